//! The wait of a locker until the key it has locked stays as it is: no commit is announced on the
//! key's words any more, or those that are will look for locks again, and all others are visible.

use crate::conflict::{Conflicts, Slot, Word};
use crate::engine::Engine;
use crate::env::sync::spin_hint;
use crate::env::{Plant, Reach, planted, reached};
use crate::error::Result;
use crate::format::Lsn;
use crate::lock::Locks;
use crate::wal::Before;

/// How often a locker looks at an announcement before it pauses.
const SPINS: u32 = if cfg!(loom) { 1 } else { 60 };

/// How often it pauses before it has all that are announced look for locks again.
const PAUSES_MAX: u32 = if cfg!(loom) { 1 } else { 5 };

/// What a locker looks at while it waits.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) conflicts: &'a Conflicts,
    pub(super) locks: &'a Locks,
    pub(super) log: Before<'a>,
}

impl Engine {
    pub(super) fn around(&self) -> Around<'_> {
        Around { conflicts: &self.conflicts, locks: &self.locks, log: self.log.before() }
    }
}

/// What is known of the last change of a key that was locked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changed {
    /// It has no version at or above this LSN ...
    before: Lsn,
    /// ... and the table knows everything from this one on.
    valid: Lsn,
}

impl Changed {
    /// True if the key surely has no version from `point` on.
    pub(crate) fn is_before(self, point: Lsn) -> bool {
        self.before < point && self.valid <= point
    }
}

/// Waits until no commit is announced on the words that a locked key belongs to, and all that were
/// are visible. New ones find the lock. Commits on the family's word may come so often that there
/// is always one, and a commit that has announced itself may have to wait until the log has room.
/// So the locker does after a while what the owner of a range does: what has no LSN by then starts
/// over, and finds the lock. `check` says whether to wait on; `pause` waits a little.
pub(super) fn drain(
    Around { conflicts, locks, log }: Around<'_>,
    (slot, family): (Slot, &Word),
    mut check: impl FnMut() -> Result<()>,
    mut pause: impl FnMut(),
) -> Result<Changed> {
    let stamps = &conflicts.stamps;
    // A commit on the family's word sets it, then looks at slots; the locker the other way round.
    crate::env::sync::atomic::fence(crate::env::sync::atomic::Ordering::SeqCst);
    let look = || (stamps.load(slot), stamps.load_word(family));
    let mut looks = 0;
    // What was reserved before others had to look for locks again.
    let mut reserved = None;
    let (of_slot, of_family) = loop {
        let (of_slot, of_family) = look();
        let is_over = reserved.is_some_and(|end| log.visible() >= end);
        if of_slot.pending + of_family.pending == 0 || planted(Plant::LockNotDraining) {
            break (of_slot, of_family);
        }
        if is_over {
            // Stamps come before what they stand for is visible.
            break look();
        }
        looks += 1;
        if looks < SPINS {
            spin_hint();
            continue;
        }
        log.check_healthy()?;
        check()?;
        if looks == SPINS + PAUSES_MAX {
            locks.overtake();
            reserved = Some(log.touch());
            reached(Reach::LockOvertook);
            continue;
        }
        pause();
    };
    let before = of_slot.stamp.max(of_family.stamp);
    if !planted(Plant::LockedReadsOld) {
        // A stamp that does not fit into its field says nothing.
        let target = if before == Lsn::MAX { log.touch() } else { before + 1 };
        log.wait_predecessors(target)?;
    }
    Ok(Changed { before, valid: conflicts.gate.valid() })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Options;
    use crate::engine::Keyspace;
    use crate::error::Error;
    use crate::format::{DEFAULT_FAMILY, checksum64};
    use crate::write::announce::{Announcement, Pauses, Targets};
    use crate::write::ask::Asker;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    fn drain(
        engine: &Engine,
        family: &Keyspace,
        slot: Slot,
        check: impl FnMut() -> Result<()>,
    ) -> Result<Changed> {
        let mut pauses = Pauses::new();
        super::drain(engine.around(), (slot, &family.changed), check, || pauses.pause(engine))
    }

    #[test]
    fn a_locker_waits_until_no_commit_is_announced_on_the_slot_or_on_the_family() {
        let db = Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        let family = engine.families.by_id(DEFAULT_FAMILY).unwrap();
        let stamps = &engine.conflicts.stamps;
        let slot = stamps.slot(DEFAULT_FAMILY, checksum64(b"key"));
        for (on_slot, on_family) in [(1, 0), (0, 1), (1, 1), (2, 1)] {
            (0..on_slot).for_each(|_| assert!(stamps.announce(slot).is_ok()));
            (0..on_family).for_each(|_| assert!(stamps.announce_word(&family.changed).is_ok()));
            let (version, mut looks) = (engine.locks.ranges_version(), 0);
            let drained = drain(engine, &family, slot, || {
                looks += 1;
                if looks == 2 {
                    (0..on_slot).for_each(|_| stamps.withdraw(slot));
                    (0..on_family).for_each(|_| stamps.withdraw_word(&family.changed));
                }
                Ok(())
            });
            assert!(drained.is_ok());
            assert_eq!(
                (looks, engine.locks.ranges_version()),
                (2, version),
                "nothing is overtaken"
            );
        }
    }

    /// Else it could wait without end where there is always another one.
    #[test]
    fn a_locker_has_commits_start_over_that_stay_announced() {
        let db = Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        let family = engine.families.by_id(DEFAULT_FAMILY).unwrap();
        let stamps = &engine.conflicts.stamps;
        let slot = stamps.slot(DEFAULT_FAMILY, checksum64(b"key"));
        for targets in [Targets::One(slot), Targets::Families(vec![Arc::clone(&family)])] {
            let mut announcement = Announcement::new(stamps, targets);
            assert!(announcement.make_unasked(engine).is_ok());
            let asker = Asker::new(false);
            assert!(!announcement.is_overtaken(&engine.locks, &asker));
            let version = engine.locks.ranges_version();
            // What has an LSN already is waited for.
            let started = engine.log.reserve(64).unwrap();
            let visible = AtomicBool::new(false);
            thread::scope(|scope| {
                let locker = scope.spawn(|| {
                    let (mut checks, mut took_ns, began) = (0, 0, engine.pacer.now_ns());
                    let check = || {
                        if engine.locks.ranges_version() == version {
                            checks += 1;
                            took_ns = engine.pacer.now_ns() - began;
                        }
                        Ok(())
                    };
                    assert!(drain(engine, &family, slot, check).is_ok());
                    assert_eq!(checks, PAUSES_MAX + 1, "it pauses so often, and overtakes then");
                    assert!(took_ns > 100_000, "its pauses took {took_ns} ns");
                    visible.load(Ordering::SeqCst)
                });
                while !announcement.is_overtaken(&engine.locks, &asker) {
                    thread::yield_now();
                }
                thread::sleep(Duration::from_millis(5));
                visible.store(true, Ordering::SeqCst);
                drop(started);
                assert!(locker.join().unwrap(), "a record below the locker's point is not visible");
            });
        }
    }

    #[test]
    fn a_locker_learns_that_the_log_ends_before_a_commit_that_it_waits_for() {
        let db = Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        let family = engine.families.by_id(DEFAULT_FAMILY).unwrap();
        let stamps = &engine.conflicts.stamps;
        let slot = stamps.slot(DEFAULT_FAMILY, checksum64(b"key"));
        let unfinished = engine.log.reserve(64).unwrap();
        assert!(stamps.announce(slot).is_ok());
        stamps.stamp(slot, unfinished.start());
        thread::scope(|scope| {
            let locker = scope.spawn(|| drain(engine, &family, slot, || Ok(())).map(|_| ()));
            thread::sleep(Duration::from_millis(5));
            assert!(!locker.is_finished());
            engine.log.poison(&Error::planted());
            assert_eq!(locker.join().unwrap().unwrap_err().name(), "POISONED");
        });
        drop(unfinished);
    }

    #[test]
    fn a_locker_waits_for_no_announcement_once_the_log_has_ended() {
        let db = Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        let family = engine.families.by_id(DEFAULT_FAMILY).unwrap();
        let stamps = &engine.conflicts.stamps;
        let slot = stamps.slot(DEFAULT_FAMILY, checksum64(b"key"));
        assert!(stamps.announce(slot).is_ok());
        engine.log.poison(&Error::planted());
        // The commit that has announced itself has met the end, too, and withdraws some time.
        let mut looks = 0;
        let told = drain(engine, &family, slot, || {
            looks += 1;
            if looks < 1000 { Ok(()) } else { Err(Error::cancelled()) }
        });
        assert_eq!(told.unwrap_err().name(), "POISONED");
        stamps.withdraw(slot);
    }
}
