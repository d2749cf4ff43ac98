//! The model of `random.rs`: what two families hold, and what a prepared transaction locks.

use std::collections::BTreeMap;
use std::ops::Bound;

pub(super) type Map = BTreeMap<Vec<u8>, Vec<u8>>;
/// The default family and another one.
pub(super) type Maps = [Map; 2];

/// Numbers that follow from a seed (xorshift64*).
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }

    pub(super) fn one_in(&mut self, end: u64) -> bool {
        self.below(end) == 0
    }

    /// One of few keys: short ones, the empty one, and long ones.
    pub(super) fn key(&mut self) -> Vec<u8> {
        match self.below(30) {
            0 => vec![],
            1 => vec![255; 3000],
            2 => [&b"k"[..], &[255; 2999]].concat(),
            3..6 => vec![b'k', self.below(20) as u8, 0],
            _ => vec![b'k', self.below(20) as u8],
        }
    }

    pub(super) fn range(&mut self) -> Range {
        let mut ends = [self.key(), self.key()];
        ends.iter_mut().for_each(|end| end.truncate(3));
        ends.sort();
        let [from, to] = ends;
        match self.below(10) {
            0 => Range { from: vec![], to: None },
            1 => Range { from, to: None },
            _ => Range { from, to: Some(to) },
        }
    }
}

/// The keys from one on, and below another one if there is one.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) from: Vec<u8>,
    pub(super) to: Option<Vec<u8>>,
}

impl Range {
    pub(super) fn bounds(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let upper = self.to.clone().map_or(Bound::Unbounded, Bound::Excluded);
        (Bound::Included(self.from.clone()), upper)
    }

    pub(super) fn holds(&self, key: &[u8]) -> bool {
        *key >= *self.from && self.ends_behind(key)
    }

    fn ends_behind(&self, key: &[u8]) -> bool {
        self.to.as_ref().is_none_or(|to| *key < **to)
    }

    fn is_empty(&self) -> bool {
        !self.ends_behind(&self.from)
    }

    fn meets(&self, other: &Range) -> bool {
        let both = [self, other];
        !both.iter().any(|range| range.is_empty())
            && self.ends_behind(&other.from)
            && other.ends_behind(&self.from)
    }
}

#[derive(Clone, Debug)]
pub(super) enum Write {
    Put(usize, Vec<u8>, Vec<u8>),
    Delete(usize, Vec<u8>),
    DeleteRange(usize, Range),
}

impl Write {
    pub(super) fn apply(&self, maps: &mut Maps) {
        match self {
            Write::Put(family, key, value) => {
                maps[*family].insert(key.clone(), value.clone());
            }
            Write::Delete(family, key) => drop(maps[*family].remove(key)),
            Write::DeleteRange(family, range) => maps[*family].retain(|key, _| !range.holds(key)),
        }
    }
}

/// What a transaction did, as far as it locks something once it is prepared.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    pub(super) writes: Vec<Write>,
    pub(super) reads: Vec<(usize, Vec<u8>)>,
    pub(super) scans: Vec<(usize, Range)>,
}

impl Entry {
    fn writes_key(&self, (family, key): (usize, &[u8])) -> bool {
        self.writes.iter().any(|write| match write {
            Write::Put(of, other, _) | Write::Delete(of, other) => *of == family && other == key,
            Write::DeleteRange(of, range) => *of == family && range.holds(key),
        })
    }

    fn writes_into(&self, (family, range): (usize, &Range)) -> bool {
        self.writes.iter().any(|write| match write {
            Write::Put(of, key, _) | Write::Delete(of, key) => *of == family && range.holds(key),
            Write::DeleteRange(of, other) => *of == family && range.meets(other),
        })
    }

    fn bars_write(&self, write: &Write) -> bool {
        let scan = |of: usize| self.scans.iter().filter(move |scan| scan.0 == of);
        let read = |of: usize| self.reads.iter().filter(move |read| read.0 == of);
        match write {
            Write::Put(family, key, _) | Write::Delete(family, key) => {
                self.writes_key((*family, key))
                    || read(*family).any(|read| read.1 == *key)
                    || scan(*family).any(|scan| scan.1.holds(key))
            }
            Write::DeleteRange(family, range) => {
                self.writes_into((*family, range))
                    || read(*family).any(|read| range.holds(&read.1))
                    || scan(*family).any(|scan| range.meets(&scan.1))
            }
        }
    }

    /// True if these writes have to wait for what this transaction locks.
    pub(super) fn bars(&self, writes: &[Write]) -> bool {
        writes.iter().any(|write| self.bars_write(write))
    }

    /// True if a prepare of `other` may have to wait for what this transaction locks. A range that
    /// one of both has read is locked exclusively if it writes into it.
    pub(super) fn may_bar(&self, other: &Entry) -> bool {
        let holds = |(of, range): &(usize, Range), (family, key): &(usize, Vec<u8>)| {
            of == family && range.holds(key)
        };
        let mut exclusive = self.scans.iter().filter(|scan| self.writes_into((scan.0, &scan.1)));
        self.bars(&other.writes)
            || exclusive.any(|scan| other.reads.iter().any(|read| holds(scan, read)))
            || other.reads.iter().any(|(family, key)| self.writes_key((*family, key)))
            || other.scans.iter().any(|(family, range)| {
                let all = Write::DeleteRange(*family, range.clone());
                self.bars_write(&all)
            })
    }

    /// True if anything of a family is locked.
    pub(super) fn touches(&self, family: usize, range: &Range) -> bool {
        self.bars_write(&Write::DeleteRange(family, range.clone()))
    }
}
