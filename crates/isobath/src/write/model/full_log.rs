//! An exhaustive model of a log that is full but for its slack.
//!
//! `World::judge` is written after `Validation::judge`, and `World::seal` after `seal` and the
//! flush that follows it.
//!
//! These bugs were planted in the engine, and found: a write that never announces itself, or leaves
//! no stamp; a judgement that ignores one of the two. And earlier, in the model: a commit that
//! waits until no other is announced, and one that takes another LSN before it has given up its
//! own.

use super::*;
use crate::error::Error;
use crate::wal::Patience;

const KEY: &[u8] = b"key";

impl World {
    fn full() -> Arc<World> {
        let world = World::new(1, START + 2 * LEN);
        world.open_gate();
        Arc::new(world)
    }

    /// Like `Log::reserve_with`, which leaves some slack, and `Log::reserve_internal`.
    fn take(&self, slack: u64) -> Reserved<'_> {
        let (patience, refusal) = (Patience::Waits, || Error::closed());
        let taken = self.room.take(LEN, slack, patience, &NoClock, &|| (), &refusal);
        Reserved { world: self, start: taken.unwrap() }
    }

    /// A commit that relies on the key. Returns its LSN, and whether it saw that the key may have
    /// changed before that.
    fn judge(&self) -> (Lsn, bool) {
        let reserved = self.take(LEN);
        let lsn = reserved.start;
        let seen = self.conflicts.stamps.load(self.slot_of(KEY));
        let may_have_changed = !seen.is_unchanged_since(START, 0);
        if may_have_changed {
            self.log().wait_predecessors(lsn).unwrap();
        }
        (lsn, may_have_changed)
    }

    /// Seals an epoch with a marker in the slack. There is room for more once the flush of the
    /// epoch has ended, which needs all that lies before the marker.
    fn seal(&self) {
        let marker = self.take(0).start;
        self.log().wait_predecessors(marker).unwrap();
        self.room.extend(marker + 5 * LEN);
    }
}

/// A commit that judges holds an LSN and waits for those before it, never for one that has only
/// announced itself: that one may be waiting for room, which comes with a flush, which waits for
/// the commit. Here the slack is used up meanwhile.
#[test]
fn slack_that_is_used_up_while_a_commit_judges_stops_nobody() {
    check(3, || {
        let world = World::full();
        let writer = spawn(&world, |world| {
            let take = |world| World::take(world, LEN);
            world.write(&mut Writer::new(world, 1, KEY, false), take, || ())
        });
        let sealer = spawn(&world, World::seal);
        let (lsn, may_have_changed) = world.judge();
        let put = writer.join().unwrap();
        sealer.join().unwrap();
        assert!(put > lsn || may_have_changed, "{put:#x} lies before {lsn:#x}");
        assert_eq!(world.visible.at(), world.room.tail());
    });
}
