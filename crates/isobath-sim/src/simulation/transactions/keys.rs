//! The keys that transactions meet on: a few neighbours of the life's keys, some far oftener than
//! others.

use super::super::keyspace::Keyspace;
use super::super::levels;
use super::super::runtime::real;
use super::super::values::{Key, Place};
use super::task::LEVELS;
use isobath::{AbortHandle, Isolation};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

/// The result of another task's abort of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Abort {
    None,
    /// The abort was for the transaction before it began anew.
    Earlier,
    UnderWay,
    Refused,
    /// It must not commit.
    Done,
}

impl Abort {
    const ALL: [Abort; 5] =
        [Abort::None, Abort::Earlier, Abort::UnderWay, Abort::Refused, Abort::Done];
}

/// The result of an abort, shared by the task that aborts and the one whose transaction it is.
#[derive(Debug)]
pub(super) struct Told(AtomicU8);

impl Told {
    fn new() -> Told {
        Told(AtomicU8::new(Abort::None as u8))
    }

    pub(super) fn get(&self) -> Abort {
        Abort::ALL[usize::from(self.0.load(SeqCst))]
    }

    pub(super) fn set(&self, abort: Abort) {
        self.0.store(abort as u8, SeqCst);
    }

    /// The abort that is under way has ended; nothing if the transaction has begun anew meanwhile.
    fn settle(&self, abort: Abort) {
        let under_way = Abort::UnderWay as u8;
        let _ = self.0.compare_exchange(under_way, abort as u8, SeqCst, SeqCst);
    }
}

/// A transaction that any task may end.
type Offer = (AbortHandle, Arc<Told>);

/// Where the transactions of a life meet. Each thread has a clone.
#[derive(Clone, Debug)]
pub(crate) struct Arena {
    keys: Vec<Key>,
    /// How strongly draws prefer the first keys; 1 is not at all.
    skew: i32,
    /// Now and then all sleep until the same moment, so long that the gate closes: then one opens
    /// it while others write.
    pub(super) has_tides: bool,
    /// Most transactions scan a stretch, write there, and are run again until they commit: they
    /// lock ranges, and wait for one another.
    pub(super) is_crowded: bool,
    /// Keys may stay locked by what is in doubt, so nothing waits for long.
    pub(super) has_coordinators: bool,
    /// All levels come equally often.
    pub(super) is_even: bool,
    /// Coordinators put their decisions off.
    pub(super) is_deferring: bool,
    /// Transactions that any task may end.
    handles: Arc<Mutex<Vec<Offer>>>,
}

impl Arena {
    pub(crate) fn draw(keys: &Keyspace, has_coordinators: bool, rng: &mut fastrand::Rng) -> Arena {
        let count = [4, 8, 16, 48][rng.usize(..4)];
        let keys = keys.neighbours(None, count, rng).to_vec();
        let (skew, handles) = ([1, 2, 4][rng.usize(..3)], Arc::default());
        let has_tides = rng.u8(..3) == 0 && !real::is_here();
        let is_crowded = rng.u8(..3) == 0;
        let (is_even, is_deferring) = (false, false);
        Arena {
            keys,
            skew,
            has_tides,
            is_crowded,
            has_coordinators,
            is_even,
            is_deferring,
            handles,
        }
    }

    /// The same arena, in which all levels come equally often.
    pub(super) fn even(self) -> Arena {
        Arena { is_even: true, ..self }
    }

    /// An arena of all keys, each as often as any other, on which coordinators put their decisions
    /// off: most keys are free, though each coordinator has something in doubt.
    pub(super) fn deferring(self, keys: &Keyspace) -> Arena {
        let keys = keys.all().to_vec();
        Arena { keys, skew: 1, is_crowded: false, is_deferring: true, ..self }
    }

    /// The level of a transaction.
    pub(super) fn level(&self, rng: &mut fastrand::Rng) -> Isolation {
        match self.is_even {
            true => levels::LEVELS[rng.usize(..levels::LEVELS.len())].0,
            false => LEVELS[rng.usize(..LEVELS.len())],
        }
    }

    /// The same arena, in which all transactions are run as in a crowd.
    pub(crate) fn crowded(self) -> Arena {
        Arena { is_crowded: true, ..self }
    }

    /// Lets any task end a transaction. Returns the place that will hold the result of such an
    /// abort.
    pub(super) fn offer(&self, handle: AbortHandle) -> Arc<Told> {
        let told = Arc::new(Told::new());
        let mut handles = self.handles();
        if handles.len() == 8 {
            handles.remove(0);
        }
        handles.push((handle, told.clone()));
        told
    }

    fn handles(&self) -> MutexGuard<'_, Vec<Offer>> {
        self.handles.lock().expect("nothing panics with it")
    }

    /// Ends a transaction of some task, if there is one.
    pub(super) fn abort_one(&self, rng: &mut fastrand::Rng) {
        let mut handles = self.handles();
        if handles.is_empty() {
            return;
        }
        let at = rng.usize(..handles.len());
        let (handle, told) = handles.swap_remove(at);
        drop(handles);
        told.set(Abort::UnderWay);
        let is_done = handle.abort();
        told.settle(if is_done { Abort::Done } else { Abort::Refused });
    }

    fn at(&self, rng: &mut fastrand::Rng) -> usize {
        let at = rng.f64().powi(self.skew) * self.keys.len() as f64;
        (at as usize).min(self.keys.len() - 1)
    }

    pub(super) fn key(&self, rng: &mut fastrand::Rng) -> Key {
        self.keys[self.at(rng)].clone()
    }

    pub(super) fn place(&self, rng: &mut fastrand::Rng) -> Place {
        // Mostly in one family, so that transactions meet.
        (u8::from(rng.u8(..4) == 0), self.key(rng))
    }

    /// The ends of a stretch, the lesser first.
    pub(super) fn range(&self, rng: &mut fastrand::Rng) -> (Key, Key) {
        let (one, other) = (self.at(rng), self.at(rng));
        (self.keys[one.min(other)].clone(), self.keys[one.max(other)].clone())
    }
}
