//! Exhaustive models of the table and the gate beside the log's tail: a commit that reserves later
//! sees what one before it has announced.
//!
//! These bugs were planted and found: a commit that looks at the other's word before it reserves,
//! or announces itself after; a tail that is taken by relaxed exchanges; a writer that does not
//! look at the gate again; a gate that opens without a wait, that counts as open while it opens, or
//! that closes though a commit has entered meanwhile. A relaxed announcement was not found: the
//! reservation behind it publishes it.

use super::{Conflicts, Look, Slot};
use crate::env::model::check;
use crate::env::sync::atomic::*;
use crate::env::sync::spin_hint;
use crate::format::Lsn;
use crate::wal::Room;
use loom::thread;
use std::sync::Arc;

const START: Lsn = 4096;
const LEN: u64 = 32;

/// A log whose frontier is a count of finished records, since all are of one length.
struct Log {
    conflicts: Conflicts,
    room: Room,
    finished: [AtomicBool; 4],
}

impl Log {
    fn new() -> Log {
        let conflicts = Conflicts::new(2, 4, START);
        conflicts.stamps.load(slot(&conflicts, 0));
        let room = Room::new(START, 1 << 20);
        room.extend(1 << 16);
        Log { conflicts, room, finished: std::array::from_fn(|_| AtomicBool::new(false)) }
    }

    fn reserve(&self) -> Lsn {
        self.room.try_take(LEN, 0).expect("there is room")
    }

    fn finish(&self, lsn: Lsn) {
        self.finished[((lsn - START) / LEN) as usize].store(true, Ordering::Release);
    }

    fn wait(&self, below: Lsn) {
        for finished in &self.finished[..((below - START) / LEN) as usize] {
            while !finished.load(Ordering::Acquire) {
                spin_hint();
            }
        }
    }

    /// A plain put to slot 0. Returns its LSN.
    fn put(&self) -> Lsn {
        let (stamps, gate) = (&self.conflicts.stamps, &self.conflicts.gate);
        let slot = slot(&self.conflicts, 0);
        loop {
            let seen: Look = gate.look();
            if !seen.is_closed() {
                stamps.announce(slot).unwrap();
            }
            let lsn = self.reserve();
            if !seen.is_closed() {
                stamps.stamp(slot, lsn);
            } else if !gate.is_still(seen) {
                self.finish(lsn);
                continue;
            }
            self.finish(lsn);
            return lsn;
        }
    }

    /// A commit that relies on slot 0 from `v0` on. Returns `v0`, its LSN, and whether it saw that
    /// the slot may have changed in between.
    fn validate(&self) -> (Lsn, Lsn, bool) {
        let (stamps, gate) = (&self.conflicts.stamps, &self.conflicts.gate);
        let grace = || {
            let tail = self.room.touch();
            self.wait(tail);
            Ok(tail)
        };
        let pass = gate.enter(grace).unwrap();
        let v0 = pass.valid();
        let lsn = self.reserve();
        let seen = stamps.load(slot(&self.conflicts, 0));
        self.wait(lsn);
        self.finish(lsn);
        drop(pass);
        (v0, lsn, seen.pending > 0 || seen.stamp >= v0)
    }
}

fn slot(conflicts: &Conflicts, hash: u64) -> Slot {
    conflicts.stamps.slot(0, hash)
}

/// Of two commits that each write what the other has read, the later one sees the earlier one:
/// still announced, or stamped.
#[test]
fn of_two_crossing_commits_the_later_one_sees_the_earlier() {
    check(4, || {
        let log = Arc::new(Log::new());
        let commit = |own: u64, log: &Log| {
            let (own, other) = (slot(&log.conflicts, own), slot(&log.conflicts, 1 - own));
            let stamps = &log.conflicts.stamps;
            stamps.announce(own).unwrap();
            let lsn = log.reserve();
            let seen = stamps.load(other);
            stamps.stamp(own, lsn);
            (lsn, seen)
        };
        let second = {
            let log = Arc::clone(&log);
            thread::spawn(move || commit(1, &log))
        };
        let (a, b) = (commit(0, &log), second.join().unwrap());
        let ((early, _), (_, seen)) = if a.0 < b.0 { (a, b) } else { (b, a) };
        assert!(seen.pending > 0 || seen.stamp >= early, "{early:#x} {seen:?}");
    });
}

/// A put that comes while the gate opens is below the frontier from which the table is valid, or
/// the table shows it.
#[test]
fn a_put_while_the_gate_opens_is_waited_for_or_announced() {
    check(4, || {
        let log = Arc::new(Log::new());
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.put())
        };
        let (v0, lsn, is_seen) = log.validate();
        let put = writer.join().unwrap();
        assert!(put < v0 || put > lsn || is_seen, "{put:#x} lies in {v0:#x}..{lsn:#x}");
    });
}

/// Like above, while another thread closes the gate.
#[test]
fn a_put_while_the_gate_closes_is_announced_as_long_as_a_commit_validates() {
    check(3, || {
        let log = Arc::new(Log::new());
        drop(log.conflicts.gate.enter(|| Ok(START)).unwrap());
        log.conflicts.gate.close_if_idle();
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.put())
        };
        let validator = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.validate())
        };
        log.conflicts.gate.close_if_idle();
        let ((v0, lsn, is_seen), put) = (validator.join().unwrap(), writer.join().unwrap());
        assert!(put < v0 || put > lsn || is_seen, "{put:#x} lies in {v0:#x}..{lsn:#x}");
    });
}

/// Of two commits one opens the gate, and the other may come while it does.
#[test]
fn who_enters_while_another_opens_the_gate_waits_until_it_is_open() {
    check(2, || {
        let log = Arc::new(Log::new());
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.put())
        };
        let other = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.validate())
        };
        let commits = [log.validate(), other.join().unwrap()];
        let put = writer.join().unwrap();
        for (v0, lsn, is_seen) in commits {
            assert!(v0 <= lsn, "a commit believes the table from {v0:#x} on");
            assert!(put < v0 || put > lsn || is_seen, "{put:#x} lies in {v0:#x}..{lsn:#x}");
        }
    });
}
