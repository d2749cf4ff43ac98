//! The gate: whether plain writers announce their writes in the table.
//!
//! While no transaction validates, a plain put pays two loads of one word and nothing else. A
//! commit that has something to validate enters the gate first; if the gate is not open, it opens
//! it:
//!
//! ```text
//! closed ── opening ── open ── closing ── closed
//! ```
//!
//! From `opening` on writers announce. The opener then touches the log's tail and waits until all
//! that was reserved before is visible. What is reserved after the touch has seen `opening`: a
//! writer that found the gate closed looks again once it has its LSN, and starts over if the word
//! has changed since. So behind the wait the table knows every commit from `valid` on, the visible
//! frontier of that moment.
//!
//! **No commit that entered meets a closed gate.** A commit that enters sets a mark, then reads the
//! word; a thread that closes the gate stores `closing`, then reads the marks. All four accesses
//! are sequentially consistent, so one of the two sees the other. A mark stays until the commit is
//! visible or has failed: a writer that was ahead of it in the log, and looks again after the gate
//! has closed, would otherwise learn of it by the count of openings alone.

use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::sync::{Mutex, Rank, fence_for_loom, thread_slot};
use crate::env::{Plant, planted};
use crate::error::Result;
use crate::format::Lsn;
use crossbeam_utils::CachePadded;

const CLOSED: u64 = 0;
const OPENING: u64 = 1;
const OPEN: u64 = 2;
const CLOSING: u64 = 3;
const STATE_MASK: u64 = 3;
/// Counts openings, so that a word differs from what it was before the gate opened and closed.
const OPENINGS: u64 = 4;

/// Marks are spread over so many words.
const SHARDS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };
/// In a word of marks, the low half counts the commits that are inside, the high half all that ever
/// entered.
const INSIDE: u64 = 1;
const INSIDE_MASK: u64 = u32::MAX as u64;
const ENTERED: u64 = 1 << 32;

/// What a writer found at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look(u64);

impl Look {
    /// True if writers need not announce.
    #[inline]
    pub(crate) fn is_closed(self) -> bool {
        self.0 & STATE_MASK == CLOSED
    }
}

/// The gate of an open database.
pub(crate) struct Gate {
    word: CachePadded<AtomicU64>,
    /// The table knows every commit at or above this LSN, while the gate is open.
    valid: AtomicU64,
    marks: Box<[CachePadded<AtomicU64>]>,
    /// Held while the gate opens or closes. Has the number of commits that had entered when the
    /// last attempt to close the gate was made.
    change: Mutex<u64>,
}

/// The right of a commit to believe the table. The gate stays open while it lives.
#[must_use = "the gate may close once this is dropped"]
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    shard: usize,
}

impl Pass<'_> {
    /// The table knows every commit at or above this LSN.
    pub(crate) fn valid(&self) -> Lsn {
        self.gate.valid()
    }
}

/// Like a [`Pass`], for what outlives a call: a lock. The gate stays open until it is given to
/// [`Gate::let_go`].
#[derive(Debug)]
#[must_use = "the gate would stay open for ever"]
pub(crate) struct Hold {
    shard: usize,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let marks = self.gate.marks[self.shard].fetch_sub(INSIDE, Ordering::SeqCst);
        debug_assert!(marks & INSIDE_MASK > 0, "more have left the gate than entered");
    }
}

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate {
            word: CachePadded::new(AtomicU64::new(CLOSED)),
            valid: AtomicU64::new(Lsn::MAX),
            marks: (0..SHARDS).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            change: Mutex::new(Rank::Gate, 0),
        }
    }

    /// What a writer sees of the gate: before it reserves, and again after.
    #[inline]
    pub(crate) fn look(&self) -> Look {
        Look(self.word.load(Ordering::Acquire))
    }

    /// True if a writer that found the gate as `before`, and has its LSN now, is where it was.
    #[inline]
    pub(crate) fn is_still(&self, before: Look) -> bool {
        if planted(Plant::GateNotRechecked) {
            return true;
        }
        if planted(Plant::LeftGateBeforeVisible) {
            return self.look().is_closed();
        }
        self.look() == before
    }

    /// How often the gate was opened.
    pub(crate) fn openings(&self) -> u64 {
        self.word.load(Ordering::Relaxed) / OPENINGS
    }

    /// Enters the gate, and opens it if need be. `grace` touches the log's tail, waits until
    /// everything before is visible, and returns the visible frontier.
    pub(crate) fn enter(&self, grace: impl FnOnce() -> Result<Lsn>) -> Result<Pass<'_>> {
        let shard = thread_slot() % self.marks.len();
        self.marks[shard].fetch_add(ENTERED | INSIDE, Ordering::SeqCst);
        fence_for_loom();
        let pass = Pass { gate: self, shard };
        let state = self.word.load(Ordering::SeqCst) & STATE_MASK;
        let is_open = match state {
            OPEN => true,
            OPENING => planted(Plant::EnteredWhileOpening),
            _ => false,
        };
        if !is_open {
            self.open(grace)?;
        }
        Ok(pass)
    }

    /// Enters the gate to hold it open: see [`Gate::enter`].
    pub(crate) fn hold(&self, grace: impl FnOnce() -> Result<Lsn>) -> Result<Hold> {
        let pass = self.enter(grace)?;
        let hold = Hold { shard: pass.shard };
        std::mem::forget(pass);
        Ok(hold)
    }

    /// Leaves the gate.
    pub(crate) fn let_go(&self, hold: Hold) {
        drop(Pass { gate: self, shard: hold.shard });
    }

    /// The table knows every commit at or above this LSN, for a caller that holds the gate open.
    pub(crate) fn valid(&self) -> Lsn {
        self.valid.load(Ordering::Acquire)
    }

    #[cold]
    fn open(&self, grace: impl FnOnce() -> Result<Lsn>) -> Result<()> {
        let _right = self.change.lock();
        let word = self.word.load(Ordering::SeqCst);
        if word & STATE_MASK == OPEN {
            return Ok(());
        }
        debug_assert_eq!(word & STATE_MASK, CLOSED, "who opens or closes holds the lock");
        let base = (word & !STATE_MASK).wrapping_add(OPENINGS);
        let mut end = Ends { gate: self, word: base | CLOSED };
        self.word.store(base | OPENING, Ordering::SeqCst);
        fence_for_loom();
        let visible = grace()?;
        let before = self.valid.load(Ordering::Relaxed);
        debug_assert!(before == Lsn::MAX || before <= visible, "what stamps tell of shrinks");
        self.valid.store(visible, Ordering::Release);
        end.word = base | OPEN;
        Ok(())
    }

    /// Closes the gate if no commit is inside and none has entered since the last call.
    pub(crate) fn close_if_idle(&self) {
        if self.word.load(Ordering::Relaxed) & STATE_MASK != OPEN {
            return;
        }
        let mut entered_before = self.change.lock();
        let (inside, entered) = self.count();
        let is_idle = inside == 0 && std::mem::replace(&mut *entered_before, entered) == entered;
        let word = self.word.load(Ordering::SeqCst);
        if !is_idle || word & STATE_MASK != OPEN {
            return;
        }
        let base = word & !STATE_MASK;
        self.word.store(base | CLOSING, Ordering::SeqCst);
        fence_for_loom();
        let (inside, _) = self.count();
        let state = if inside == 0 { CLOSED } else { OPEN };
        self.word.store(base | state, Ordering::SeqCst);
    }

    /// How many are inside, and how many have ever entered.
    fn count(&self) -> (u64, u64) {
        let marks = self.marks.iter().map(|marks| marks.load(Ordering::SeqCst));
        marks.fold((0, 0), |(inside, entered), marks| {
            (inside + (marks & INSIDE_MASK), entered + marks / ENTERED)
        })
    }
}

/// Stores the final state of the gate, also if the wait panics.
struct Ends<'a> {
    gate: &'a Gate,
    word: u64,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.gate.word.store(self.word, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::error::Error;

    fn enter(gate: &Gate, visible: Lsn) -> Pass<'_> {
        gate.enter(|| Ok(visible)).unwrap()
    }

    #[test]
    fn the_first_to_enter_opens_and_the_others_find_it_open() {
        let gate = Gate::new();
        assert!(gate.look().is_closed());
        let first = gate.enter(|| {
            assert!(!gate.look().is_closed(), "writers announce from `opening` on");
            assert_eq!(gate.valid(), Lsn::MAX, "stamps tell nothing before the wait has ended");
            Ok(4096)
        });
        let second = gate.enter(|| unreachable!("the gate is open")).unwrap();
        assert_eq!((first.unwrap().valid(), second.valid(), gate.openings()), (4096, 4096, 1));
    }

    #[test]
    fn it_closes_if_it_was_empty_from_one_call_to_the_next() {
        let gate = Gate::new();
        let inside = enter(&gate, 4096);
        gate.close_if_idle();
        gate.close_if_idle();
        assert!(!gate.look().is_closed(), "a commit is inside");
        drop(inside);
        drop(enter(&gate, 0));
        gate.close_if_idle();
        assert!(!gate.look().is_closed(), "a commit entered since the last call");
        gate.close_if_idle();
        assert!(gate.look().is_closed());
        assert_eq!(enter(&gate, 8192).valid(), 8192);
    }

    #[test]
    fn it_stays_open_while_it_is_held() {
        let gate = Gate::new();
        let hold = gate.hold(|| Ok(4096)).unwrap();
        (0..3).for_each(|_| gate.close_if_idle());
        assert!(!gate.look().is_closed() && gate.valid() == 4096);
        gate.let_go(hold);
        (0..2).for_each(|_| gate.close_if_idle());
        assert!(gate.look().is_closed());
        assert!(gate.hold(|| Err(Error::closed())).is_err() && gate.look().is_closed());
        assert_eq!(gate.count().0, 0, "no mark was left behind");
    }

    #[test]
    fn a_writer_sees_that_the_gate_was_open_in_between() {
        let gate = Gate::new();
        let before = gate.look();
        assert!(gate.is_still(before));
        drop(enter(&gate, 4096));
        assert!(!gate.is_still(before));
        gate.close_if_idle();
        gate.close_if_idle();
        assert!(gate.look().is_closed() && !gate.is_still(before));
    }

    #[test]
    fn an_opener_that_is_interrupted_leaves_the_gate_closed() {
        let gate = Gate::new();
        let told = gate.enter(|| Err(Error::closed())).err().unwrap();
        assert!(told.is_closed() && gate.look().is_closed());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop(gate.enter(|| panic!("planted")));
        }));
        assert!(panicked.is_err() && gate.look().is_closed());
        drop(enter(&gate, 4096));
        gate.close_if_idle();
        gate.close_if_idle();
        assert!(gate.look().is_closed(), "no mark was left behind");
    }
}
