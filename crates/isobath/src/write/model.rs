//! Models of writes beside transactions: plain writes beside the gate that opens and closes
//! (`at_gate`), beside keys and ranges that transactions lock (`beside_locks`), and beside a commit
//! that judges while the log is full (`full_log`).
//!
//! The gate, the words, the locks, the log's tail and its frontier are the engine's own, and so are
//! these steps: `reserve_by`, `AtGate`, `Announcement` but for its `make`, `held_key`, `drain`,
//! `Before` with its `grace`, and `Seen::is_unchanged_since`. The rest needs a whole database, so
//! the models have their own, written after these functions:
//!
//! - `World::reserve` and `Reserved` after `Log::reserve_with` and `Reservation`, which also copies
//!   the record;
//! - `World::write` after `commit_admitted` from the reservation on. It does not wait until it is
//!   visible itself: no other waits for the end of a plain write;
//! - `Writer` after `Plain`, `Announcement::make` and `KeyLocks::wait_for`. It never locks what it
//!   writes, which `Asker` has a writer do that was held up three times.

#[cfg(loom)]
mod at_gate;
mod beside_locks;
#[cfg(loom)]
mod full_log;

use super::announce::{Announcement, AtGate, Course, Targets};
use super::ask::{Asker, Held};
use super::commit::reserve_by;
use crate::conflict::{Conflicts, Slot};
use crate::engine::Keyspace;
use crate::env::Clock;
use crate::env::model::check;
use crate::env::sync::spin_hint;
use crate::error::Result;
use crate::format::{DEFAULT_FAMILY, Lsn, Op, OpKind, checksum64, put_batch_prefix, put_op};
use crate::lock::{LockMode, Locks, Owner};
use crate::options::FamilyOptions;
use crate::wal::{self, Before, Frontier, Health, RECORD_HEADER_LEN, Room};
#[cfg(loom)]
use loom::thread;
#[cfg(shuttle)]
use shuttle::thread;
use std::sync::Arc;

const START: Lsn = 4096;
/// All records are of this length.
const LEN: u64 = 32;
const NEVER: u64 = u64::MAX;

struct NoClock;

impl Clock for NoClock {
    fn now_ns(&self) -> u64 {
        0
    }
    fn unix_ms(&self) -> u64 {
        0
    }
}

/// What writes and transactions meet at, of a database with one family.
struct World {
    conflicts: Conflicts,
    locks: Locks,
    family: Arc<Keyspace>,
    room: Room,
    visible: Frontier,
    health: Health,
}

impl World {
    /// A table of so many slots, and a log with room up to `limit`.
    fn new(slots: usize, limit: Lsn) -> World {
        let conflicts = Conflicts::new(slots, 4, START);
        conflicts.stamps.load(Slot::at(0));
        let locks = Locks::new(1, Arc::clone(&conflicts.stamps) as _, Arc::new(NoClock));
        let options = FamilyOptions::default();
        let family = Keyspace::new(DEFAULT_FAMILY, "default", options, 1, Arc::default());
        let (room, visible) = (Room::new(START, 1 << 20), Frontier::new(START, 64));
        room.extend(limit);
        let (family, health) = (Arc::new(family), Health::new());
        World { conflicts, locks, family, room, visible, health }
    }

    /// From now on the gate stays open, and writers announce themselves.
    fn open_gate(&self) {
        std::mem::forget(self.conflicts.gate.hold(|| self.log().grace()));
    }

    fn log(&self) -> Before<'_> {
        Before { room: &self.room, visible: &self.visible, health: &self.health }
    }

    fn slot_of(&self, key: &[u8]) -> Slot {
        self.conflicts.stamps.slot(DEFAULT_FAMILY, checksum64(key))
    }

    fn reserve(&self) -> Reserved<'_> {
        Reserved { world: self, start: self.room.try_take(LEN, 0).expect("there is room") }
    }

    /// A plain write. `apply` is called with its LSN before it is visible. Returns the LSN.
    fn write<'w>(
        &'w self,
        writer: &mut Writer<'w>,
        take: impl Fn(&'w World) -> Reserved<'w>,
        apply: impl FnOnce(),
    ) -> Lsn {
        let record = record_of(writer.key);
        let start = |reserved: &Reserved<'_>| reserved.start;
        let reserved = reserve_by(&record, writer, || Ok(take(self)), start).unwrap();
        apply();
        let lsn = reserved.start;
        drop(reserved);
        writer.finish(lsn);
        lsn
    }
}

/// A sealed record that puts the key.
fn record_of(key: &[u8]) -> Vec<u8> {
    let mut record = vec![0; RECORD_HEADER_LEN];
    put_batch_prefix(&mut record, 1);
    put_op(&mut record, &Op { kind: OpKind::Put, family: DEFAULT_FAMILY, key, value: b"" });
    wal::seal(&mut record);
    record
}

/// A place in the log. It is visible, as a commit or as a record to skip, once it is dropped and
/// all before it are.
struct Reserved<'a> {
    world: &'a World,
    start: Lsn,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.world.visible.mark(self.start, self.start + LEN);
    }
}

#[cfg(loom)]
fn spawn<R: 'static>(
    world: &Arc<World>,
    body: impl FnOnce(&World) -> R + 'static,
) -> thread::JoinHandle<R> {
    let world = Arc::clone(world);
    thread::spawn(move || body(&world))
}

/// The course of a plain write of one key.
struct Writer<'w> {
    world: &'w World,
    key: &'static [u8],
    /// Announces itself on the word of the family instead of the key's, as if it wrote very many.
    on_family: bool,
    at: AtGate<'w, Announcement<'w>>,
    asker: Asker,
    owner: Arc<Owner>,
}

impl<'w> Writer<'w> {
    fn new(world: &'w World, id: u64, key: &'static [u8], on_family: bool) -> Writer<'w> {
        let (at, asker) = (AtGate::new(&world.conflicts.gate), Asker::new(false));
        Writer { world, key, on_family, at, asker, owner: Owner::write(id) }
    }
}

impl Course for Writer<'_> {
    fn prepare(&mut self, record: &[u8]) -> Result<()> {
        let Writer { world, key, on_family, at, asker, owner } = self;
        let (locks, stamps) = (&world.locks, &world.conflicts.stamps);
        let targets = || match on_family {
            true => Targets::Families(vec![world.family.clone()]),
            false => Targets::One(world.slot_of(key)),
        };
        let wait = || {
            world.log().wait_predecessors(world.room.tail())?;
            spin_hint();
            Ok(())
        };
        at.prepare(|announced| {
            let own = announced.get_or_insert_with(|| Announcement::new(stamps, targets()));
            while let Some(held) = own.make_unless_held(locks, record, asker, None, wait)? {
                match held {
                    Held::Key(family, key) => locks.await_key(owner, (family, &key), NEVER),
                    Held::Range(family, span) => {
                        locks.await_span(owner, (family, span), LockMode::Exclusive, NEVER)
                    }
                }
                .unwrap();
            }
            Ok(())
        })
    }

    fn settle(&mut self, lsn: Lsn) -> Result<bool> {
        let Writer { world, at, asker, .. } = self;
        Ok(at.settle(|announcement| announcement.settle(&world.locks, asker, lsn)))
    }

    fn finish(&mut self, _lsn: Lsn) {}
}
