//! The keys that transactions meet on: a few neighbours of the life's keys, some far oftener than
//! others.

use super::super::keyspace::Keyspace;
use super::super::values::{Key, Place};
use isobath::AbortHandle;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What has become of another task's abort of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abort {
    None,
    /// It was the transaction's before that began anew.
    Earlier,
    UnderWay,
    Refused,
    /// It must not commit.
    Done,
}

/// Where the transactions of a life meet.
#[derive(Debug)]
pub(crate) struct Arena {
    keys: Vec<Key>,
    /// How far draws lean towards the first keys: 1 not at all.
    skew: i32,
    /// Now and then all sleep until the same moment, so long that the gate closes: then one opens
    /// it while others write.
    pub(super) has_tides: bool,
    /// Keys may stay locked by what is in doubt, so nothing waits for long.
    pub(super) has_coordinators: bool,
    /// Transactions that any task may end.
    handles: RefCell<Vec<(AbortHandle, Rc<Cell<Abort>>)>>,
}

impl Arena {
    pub(crate) fn draw(keys: &Keyspace, has_coordinators: bool, rng: &mut fastrand::Rng) -> Arena {
        let count = [4, 8, 16, 48][rng.usize(..4)];
        let keys = keys.neighbours(None, count, rng).to_vec();
        let (skew, handles) = ([1, 2, 4][rng.usize(..3)], RefCell::default());
        Arena { keys, skew, has_tides: rng.u8(..3) == 0, has_coordinators, handles }
    }

    /// Lets any task end a transaction. Returns what will have become of that.
    pub(super) fn offer(&self, handle: AbortHandle) -> Rc<Cell<Abort>> {
        let told = Rc::new(Cell::new(Abort::None));
        let mut handles = self.handles.borrow_mut();
        if handles.len() == 8 {
            handles.remove(0);
        }
        handles.push((handle, told.clone()));
        told
    }

    /// Ends a transaction of some task, if there is one.
    pub(super) fn abort_one(&self, rng: &mut fastrand::Rng) {
        let mut handles = self.handles.borrow_mut();
        if handles.is_empty() {
            return;
        }
        let at = rng.usize(..handles.len());
        let (handle, told) = handles.swap_remove(at);
        drop(handles);
        told.set(Abort::UnderWay);
        let is_done = handle.abort();
        if told.get() == Abort::UnderWay {
            told.set(if is_done { Abort::Done } else { Abort::Refused });
        }
    }

    fn at(&self, rng: &mut fastrand::Rng) -> usize {
        let at = rng.f64().powi(self.skew) * self.keys.len() as f64;
        (at as usize).min(self.keys.len() - 1)
    }

    pub(super) fn key(&self, rng: &mut fastrand::Rng) -> Key {
        self.keys[self.at(rng)].clone()
    }

    pub(super) fn place(&self, rng: &mut fastrand::Rng) -> Place {
        // Mostly in one family, so that they meet.
        (u8::from(rng.u8(..4) == 0), self.key(rng))
    }

    /// The ends of a stretch, the lesser first.
    pub(super) fn range(&self, rng: &mut fastrand::Rng) -> (Key, Key) {
        let (one, other) = (self.at(rng), self.at(rng));
        (self.keys[one.min(other)].clone(), self.keys[one.max(other)].clone())
    }
}
