//! Exhaustive models of the table and the gate beside the log's tail: a commit that reserves later
//! sees what one before it has announced.
//!
//! `World::validate` is written after `Validated` and `Validation::judge`, which need the views of
//! a whole database: it takes what one word says for its judgement, and relies on the word from the
//! opening of the gate on.
//!
//! These bugs were planted in the engine, and found: a reservation that comes before the
//! announcement; a write that does not look at the gate again, that goes on though the gate has
//! changed, or that forgets what it saw the second time; one that never announces itself; a stamp
//! that is left out; a grace that waits for nothing, or only loads the tail; a judgement that
//! ignores who is announced, or who is stamped. Earlier ones, with the same gate: a tail that is
//! taken by relaxed exchanges; a gate that counts as open while it opens, or that closes though a
//! commit has entered meanwhile. A relaxed announcement was not found: the reservation behind it
//! publishes it.

use super::*;
use crate::conflict::Seen;

const KEY: &[u8] = b"key";

impl World {
    fn at_gate(slots: usize) -> Arc<World> {
        Arc::new(World::new(slots, 1 << 16))
    }

    /// A plain put of the key. Returns its LSN.
    fn put(&self) -> Lsn {
        self.write(&mut Writer::new(self, 1, KEY, false), World::reserve, || ())
    }

    /// A commit that relies on the key from `v0` on. Returns `v0`, its LSN, and whether it
    /// saw that the key may have changed in between.
    fn validate(&self) -> (Lsn, Lsn, bool) {
        let pass = self.conflicts.gate.enter(|| self.log().grace()).unwrap();
        let v0 = pass.valid();
        let reserved = self.reserve();
        let lsn = reserved.start;
        let seen = self.conflicts.stamps.load(self.slot_of(KEY));
        drop(reserved);
        self.log().wait_predecessors(lsn + LEN).unwrap();
        drop(pass);
        (v0, lsn, !seen.is_unchanged_since(v0, 0))
    }
}

/// The course of a commit that is announced whatever the gate says, and looks at another word once
/// it has its LSN.
struct Crossing<'w> {
    world: &'w World,
    own: Announcement<'w>,
    other: Slot,
    seen: Option<Seen>,
}

impl Course for Crossing<'_> {
    fn prepare(&mut self, record: &[u8]) -> Result<()> {
        let (locks, asker) = (&self.world.locks, Asker::new(false));
        let held = self.own.make_unless_held(locks, record, &asker, None, || unreachable!())?;
        assert!(held.is_none(), "nothing is locked");
        Ok(())
    }

    fn settle(&mut self, lsn: Lsn) -> Result<bool> {
        self.seen = Some(self.world.conflicts.stamps.load(self.other));
        Ok(self.own.settle(&self.world.locks, &mut Asker::new(false), lsn))
    }

    fn finish(&mut self, _lsn: Lsn) {}
}

/// Of two commits that each write what the other has read, the later one sees the earlier one:
/// still announced, or stamped.
#[test]
fn of_two_crossing_commits_the_later_one_sees_the_earlier() {
    check(4, || {
        let world = World::at_gate(2);
        let commit = |at: usize, world: &World| {
            let [own, other] = [at, 1 - at].map(Slot::at);
            let own = Announcement::new(&world.conflicts.stamps, Targets::One(own));
            let mut course = Crossing { world, own, other, seen: None };
            let (take, start) = (|| Ok(world.reserve()), |reserved: &Reserved<'_>| reserved.start);
            let reserved = reserve_by(&[], &mut course, take, start).unwrap();
            (reserved.start, course.seen.unwrap())
        };
        let second = {
            let world = Arc::clone(&world);
            thread::spawn(move || commit(1, &world))
        };
        let (a, b) = (commit(0, &world), second.join().unwrap());
        let ((early, _), (_, seen)) = if a.0 < b.0 { (a, b) } else { (b, a) };
        assert!(!seen.is_unchanged_since(early, 0), "{early:#x} {seen:?}");
    });
}

/// A put that comes while the gate opens is below the frontier from which the table is valid, or
/// the table shows it.
#[test]
fn a_put_while_the_gate_opens_is_waited_for_or_announced() {
    check(4, || {
        let world = World::at_gate(1);
        let writer = spawn(&world, World::put);
        let (v0, lsn, is_seen) = world.validate();
        let put = writer.join().unwrap();
        assert!(put < v0 || put > lsn || is_seen, "{put:#x} lies in {v0:#x}..{lsn:#x}");
    });
}

/// Like above, while another thread closes the gate.
#[test]
fn a_put_while_the_gate_closes_is_announced_as_long_as_a_commit_validates() {
    check(3, || {
        let world = World::at_gate(1);
        drop(world.conflicts.gate.enter(|| Ok(START)).unwrap());
        world.conflicts.gate.close_if_idle();
        let writer = spawn(&world, World::put);
        let validator = spawn(&world, World::validate);
        world.conflicts.gate.close_if_idle();
        let ((v0, lsn, is_seen), put) = (validator.join().unwrap(), writer.join().unwrap());
        assert!(put < v0 || put > lsn || is_seen, "{put:#x} lies in {v0:#x}..{lsn:#x}");
    });
}

/// Of two commits one opens the gate, and the other may come while it does.
#[test]
fn who_enters_while_another_opens_the_gate_waits_until_it_is_open() {
    check(2, || {
        let world = World::at_gate(1);
        let writer = spawn(&world, World::put);
        let other = spawn(&world, World::validate);
        let commits = [world.validate(), other.join().unwrap()];
        let put = writer.join().unwrap();
        for (v0, lsn, is_seen) in commits {
            assert!(v0 <= lsn, "a commit believes the table from {v0:#x} on");
            assert!(put < v0 || put > lsn || is_seen, "{put:#x} lies in {v0:#x}..{lsn:#x}");
        }
    });
}
