//! One word of the table: the LSN of the last commit that wrote to a slot, whether a key of the
//! slot is locked, and how many commits have announced a write to it.
//!
//! ```text
//! bit 63 ..................... 12   11       10 ......... 0
//!     LSN of the last commit        locked   pending
//!     in units of 8 bytes since
//!     the term's origin; all ones:
//!     beyond what fits
//! ```
//!
//! A commit counts itself in `pending` before it reserves its LSN. Once it has its LSN and will not
//! fail any more, it raises the LSN and takes its count back, both in one exchange: no reader sees
//! it neither announced nor stamped. The LSN only grows.

use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::{Plant, planted};
use crate::format::Lsn;

const PENDING_BITS: u32 = 11;
const PENDING_MASK: u64 = (1 << PENDING_BITS) - 1;
const LOCKED: u64 = 1 << PENDING_BITS;
const STAMP_SHIFT: u32 = PENDING_BITS + 1;
const STAMP_MAX: u64 = u64::MAX >> STAMP_SHIFT;

/// The most commits that may be announced on one word. The field holds twice as many.
pub(super) const PENDING_MAX: u32 = 1 << (PENDING_BITS - 1);

/// The distance of two LSNs that differ in a stamp: records begin on multiples of it.
const UNIT: u64 = 8;

/// A word whose `pending` is full. The commit withdraws what it announced and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// What a word said at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// No commit at or above this LSN wrote to the slot, except those that are pending. `Lsn::MAX`
    /// if it is not known.
    pub(crate) stamp: Lsn,
    /// The commits that have announced themselves and are not stamped yet.
    pub(crate) pending: u32,
    /// A key of the slot is locked.
    pub(crate) locked: bool,
}

impl Seen {
    /// True if no commit but `own` ones, which are announced, has written to the slot since.
    #[inline]
    pub(crate) fn is_unchanged_since(self, lsn: Lsn, own: u32) -> bool {
        self.stamp < lsn && self.pending <= own
    }
}

/// One word of the table, or the word of a family.
#[derive(Debug, Default)]
pub(crate) struct Word(AtomicU64);

/// How words are read: the LSN that counts as zero, and the most pending commits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) origin: Lsn,
    pub(super) pending_max: u32,
}

impl Scale {
    fn encode(self, lsn: Lsn) -> u64 {
        debug_assert!(lsn > self.origin, "{lsn:#x} is not above the origin {:#x}", self.origin);
        (lsn.saturating_sub(self.origin) / UNIT).min(STAMP_MAX)
    }

    fn decode(self, stamp: u64) -> Lsn {
        if stamp == STAMP_MAX { Lsn::MAX } else { self.origin + stamp * UNIT }
    }
}

impl Word {
    /// What the word says. The caller has reserved an LSN, or has loaded a frontier before.
    #[inline]
    pub(super) fn load(&self, scale: Scale) -> Seen {
        let word = self.0.load(Ordering::Acquire);
        Seen {
            stamp: scale.decode(word >> STAMP_SHIFT),
            pending: (word & PENDING_MASK) as u32,
            locked: word & LOCKED != 0,
        }
    }

    /// Counts a commit that is about to reserve its LSN. The reservation publishes the count.
    pub(super) fn announce(&self, scale: Scale) -> Result<Seen, Full> {
        debug_assert!(scale.pending_max <= PENDING_MAX, "a count would reach the bit `locked`");
        let add = |word: u64| {
            let room = (word & PENDING_MASK) < u64::from(scale.pending_max);
            room.then_some(word + 1)
        };
        match self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, add) {
            Ok(word) => Ok(Seen {
                stamp: scale.decode(word >> STAMP_SHIFT),
                pending: (word & PENDING_MASK) as u32,
                locked: word & LOCKED != 0,
            }),
            Err(_) => Err(Full),
        }
    }

    /// Takes back the count of a commit that will not write.
    pub(super) fn withdraw(&self) {
        self.change(|word| word - Word::share(word));
    }

    /// Turns the count of a commit into its stamp.
    pub(super) fn stamp(&self, scale: Scale, lsn: Lsn) {
        let stamp = scale.encode(lsn);
        self.change(|word| {
            let newest = (word >> STAMP_SHIFT).max(stamp);
            let below = word & (PENDING_MASK | LOCKED);
            newest << STAMP_SHIFT | (below - Word::share(word))
        });
    }

    /// The count of one commit: 1, unless a planted bug has lost it.
    fn share(word: u64) -> u64 {
        let is_counted = word & PENDING_MASK != 0;
        debug_assert!(is_counted || planted(Plant::PendingOverflows), "a commit counts once");
        u64::from(is_counted)
    }

    /// Notes that a key of the slot is locked.
    pub(super) fn set_locked(&self) {
        let before = self.0.fetch_or(LOCKED, Ordering::SeqCst);
        debug_assert!(
            before & LOCKED == 0 || planted(Plant::BitClearedByFirst),
            "the first locked key of a slot sets the bit"
        );
    }

    /// Notes that no key of the slot is locked.
    pub(super) fn clear_locked(&self) {
        let before = self.0.fetch_and(!LOCKED, Ordering::SeqCst);
        debug_assert!(
            before & LOCKED != 0 || planted(Plant::BitClearedByFirst),
            "the last locked key of a slot clears the bit"
        );
    }

    fn change(&self, to: impl Fn(u64) -> u64) {
        let changed =
            self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| Some(to(word)));
        debug_assert!(changed.is_ok());
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { origin: 4088, pending_max: 3 };

    #[test]
    fn a_word_is_fresh_below_every_commit_of_its_term() {
        let word = Word::default();
        assert_eq!(word.load(SCALE), Seen { stamp: 4088, pending: 0, locked: false });
    }

    #[test]
    fn a_commit_is_pending_or_stamped_and_the_greatest_stamp_stays() {
        let word = Word::default();
        let seen = || word.load(SCALE);
        assert_eq!(word.announce(SCALE).unwrap().pending, 0);
        assert_eq!(word.announce(SCALE).unwrap().pending, 1);
        assert_eq!(seen(), Seen { stamp: 4088, pending: 2, locked: false });
        word.stamp(SCALE, 5000);
        assert_eq!(seen(), Seen { stamp: 5000, pending: 1, locked: false });
        word.stamp(SCALE, 4096);
        assert_eq!(seen(), Seen { stamp: 5000, pending: 0, locked: false });
        word.announce(SCALE).unwrap();
        word.withdraw();
        assert_eq!(seen(), Seen { stamp: 5000, pending: 0, locked: false });
    }

    #[test]
    fn a_full_word_takes_no_more_and_its_neighbours_in_the_word_stay_as_they_are() {
        let word = Word::default();
        word.announce(SCALE).unwrap();
        word.stamp(SCALE, 4096);
        for _ in 0..3 {
            word.announce(SCALE).unwrap();
        }
        assert_eq!(word.announce(SCALE), Err(Full));
        word.set_locked();
        assert_eq!(word.load(SCALE), Seen { stamp: 4096, pending: 3, locked: true });
        assert_eq!(word.announce(SCALE), Err(Full));
        word.withdraw();
        assert!(word.announce(SCALE).unwrap().locked);
        word.stamp(SCALE, 4104);
        assert_eq!(word.load(SCALE), Seen { stamp: 4104, pending: 2, locked: true });
        word.clear_locked();
        assert_eq!(word.load(SCALE), Seen { stamp: 4104, pending: 2, locked: false });
    }

    #[test]
    fn an_lsn_that_does_not_fit_is_above_all_others() {
        let word = Word::default();
        word.announce(SCALE).unwrap();
        word.stamp(SCALE, 1 << 59);
        assert_eq!(word.load(SCALE), Seen { stamp: Lsn::MAX, pending: 0, locked: false });
        word.announce(SCALE).unwrap();
        word.stamp(SCALE, 4096);
        assert_eq!(word.load(SCALE).stamp, Lsn::MAX);
    }

    #[test]
    fn the_field_of_pending_commits_holds_the_most_of_them() {
        let scale = Scale { pending_max: PENDING_MAX, ..SCALE };
        let word = Word::default();
        while word.announce(scale).is_ok() {}
        assert_eq!(word.load(scale), Seen { stamp: 4088, pending: 1024, locked: false });
    }
}
