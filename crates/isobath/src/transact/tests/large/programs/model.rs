//! The model of `programs.rs`: what four families hold, and what transactions do to it.

use super::super::Map;
use super::COUNT;
use crate::{Family, Transaction};
use std::ops::Bound;

pub(super) type Maps = [Map; COUNT];

/// The keys from one on, and below another one if there is one.
pub(super) type Span = (Vec<u8>, Option<Vec<u8>>);

pub(super) fn bounds((from, to): &Span) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let upper = to.clone().map_or(Bound::Unbounded, Bound::Excluded);
    (Bound::Included(from.clone()), upper)
}

pub(super) fn is_in(key: &[u8], (from, to): &Span) -> bool {
    key >= &from[..] && to.as_ref().is_none_or(|to| key < &to[..])
}

#[derive(Clone, Debug)]
pub(super) enum Write {
    Put(usize, Vec<u8>, Vec<u8>),
    Delete(usize, Vec<u8>),
    DeleteRange(usize, Span),
    Merge(usize, Vec<u8>, Vec<u8>),
}

impl Write {
    pub(super) fn apply(&self, maps: &mut Maps) {
        match self {
            Write::Put(at, key, value) => drop(maps[*at].insert(key.clone(), value.clone())),
            Write::Delete(at, key) => drop(maps[*at].remove(key)),
            Write::DeleteRange(at, range) => maps[*at].retain(|key, _| !is_in(key, range)),
            Write::Merge(at, key, value) => maps[*at].entry(key.clone()).or_default().extend(value),
        }
    }

    pub(super) fn to_tx(&self, tx: &Transaction, families: &[Family]) -> crate::Result<()> {
        match self {
            Write::Put(at, key, value) => tx.of(&families[*at]).put(key, value),
            Write::Delete(at, key) => tx.of(&families[*at]).delete(key),
            Write::DeleteRange(at, range) => tx.of(&families[*at]).delete_range(bounds(range)),
            Write::Merge(at, key, value) => tx.of(&families[*at]).merge(key, value),
        }
    }

    pub(super) fn to_db(&self, families: &[Family]) -> crate::Result<()> {
        match self {
            Write::Put(at, key, value) => families[*at].put(key, value).map(drop),
            Write::Delete(at, key) => families[*at].delete(key).map(drop),
            Write::DeleteRange(at, range) => families[*at].delete_range(bounds(range)).map(drop),
            Write::Merge(at, key, value) => families[*at].merge(key, value).map(drop),
        }
    }
}

/// What a transaction has read, as the level checks it.
pub(super) enum Read {
    Key(usize, Vec<u8>),
    Range(usize, Span),
}

/// What a transaction has done.
pub(super) struct Done {
    pub(super) writes: Vec<Write>,
    /// With the number of writes before.
    pub(super) reads: Vec<(usize, Read)>,
    /// What the transaction sees.
    pub(super) own: Maps,
}

impl Done {
    pub(super) fn of(own: Maps) -> Done {
        Done { writes: Vec::new(), reads: Vec::new(), own }
    }

    pub(super) fn write(&mut self, write: Write) {
        write.apply(&mut self.own);
        self.writes.push(write);
    }

    pub(super) fn read(&mut self, read: Read) {
        self.reads.push((self.writes.len(), read));
    }

    pub(super) fn roll_back(&mut self, len: usize, own: Maps) {
        self.writes.truncate(len);
        self.reads.retain(|(at, _)| *at <= len);
        self.own = own;
    }
}
