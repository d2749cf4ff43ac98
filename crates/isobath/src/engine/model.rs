//! Models of the epoch switch and of what readers pin, over a real log in memory: writers race with seals, flushes,
//! merges and readers. All write one key, each with its LSN for a version, so every answer is known: at a point,
//! the newest version below it.
//!
//! The flush and the merge are those of `flush/mod.rs` and `compact/schedule.rs` without their files: a run is the list
//! of versions that [`Retain`] lets through.
//!
//! Seen to fail: `Epoch::owns_while_open` that does not look at the closing mark; `Epochs::seal` that marks after it
//! reserved; `Epochs::owner` that takes the open epoch for want of a sealed one; `Family::pin` that loads the point first,
//! or does not look at the number again; `Family::publish` that stores the number after the view; `Snapshots::register` that
//! loads the point outside the lock; `Family::install` that lets go of the memtable before it has the run; a flush that does
//! not wait for its epoch; `Epochs::wake_all` without the lock; a `Pacer` whose setters do not take turns.

use super::*;
use crate::compact::{Retain, Verdict};
use crate::components::model::{check, components};
use crate::components::sync::atomic::AtomicU64;
use crate::cursor::{Cursor, Entry};
use crate::format::{Lsn, OpKind, Payload, put_payload};
use crate::memtable::{ChunkPool, MemtableCursor};
use crate::options::FamilyOptions;
use crate::version::{Graveyard, LiveFile, Slice, Tree, fixtures};
use crate::vfs::{MemoryFs, ReadMode};
use crate::wal::{self, LogOptions, RECORD_HEADER_LEN};
use shuttle::thread;
use std::collections::BTreeMap;

const START: Lsn = 4096;
const KEY: &[u8] = b"k";

/// An engine without files: a log, epochs, one family, and what tables would hold.
struct World {
    log: Log,
    epochs: Epochs,
    family: Family,
    snapshots: Snapshots,
    /// The tree as the manifest has it; held by whoever installs.
    tree: Mutex<Arc<Tree>>,
    /// Versions by the file's number, newest first. These two are the observer's, so no place to switch at.
    files: std::sync::Mutex<BTreeMap<u64, Vec<Lsn>>>,
    written: std::sync::Mutex<Vec<Lsn>>,
}

impl World {
    fn new() -> Arc<World> {
        let options = LogOptions {
            dir: "/wal".into(),
            uuid: [9; 16],
            segment_len: START,
            first_segment_len: START,
            mode: ReadMode::Mapped,
            spare_segments: 1,
            sync_interval: None,
            raise_ceiling: Box::new(|wanted| Ok(wanted + START)),
        };
        let components = components(Arc::new(MemoryFs::new()));
        let tree = Arc::new(Tree::default());
        Arc::new(World {
            log: Log::start(&components, options, START, 1 << 30, 1).unwrap(),
            epochs: Epochs::new(Arc::new(ChunkPool::new(16 << 10, 0, 0)), START),
            family: Family::new(0, "default", FamilyOptions::default(), 1, tree.clone()),
            snapshots: Snapshots::default(),
            tree: Mutex::new(tree),
            files: Default::default(),
            written: Default::default(),
        })
    }

    /// As `write/commit.rs` does it.
    fn commit(&self) {
        let mut record = vec![0; RECORD_HEADER_LEN + 8];
        let mut record = wal::seal(&mut record);
        let mut reservation = self.log.reserve(record.len() as u64).unwrap();
        reservation.write(&mut record);
        let lsn = reservation.start();
        self.written.lock().unwrap().push(lsn);
        let view = self.family.view();
        match view.memtables.first() {
            Some(newest) if newest.epoch.owns_while_open(lsn) => {
                newest.memtable.insert(KEY, lsn, OpKind::Put, b"");
            }
            _ => {
                drop(view);
                let owner = self.epochs.owner(lsn);
                assert!(owner.start <= lsn && lsn < owner.end());
                self.family.memtable_in(&owner).insert(KEY, lsn, OpKind::Put, b"");
            }
        }
        let end = reservation.end();
        reservation.publish();
        self.log.wait_visible(end).unwrap();
        assert!(self.read_newest() >= Some(lsn), "a commit that returned is not seen");
    }

    /// As `write/seal.rs` does it.
    fn seal(&self) {
        let mut marker = vec![0; RECORD_HEADER_LEN];
        put_payload(&mut marker, &Payload::EpochMarker);
        let mut marker = wal::seal(&mut marker);
        let right = self.epochs.lock();
        let reserve = || self.log.reserve_internal(marker.len() as u64);
        let (_, mut reservation) = self.epochs.seal(&right, reserve).unwrap();
        drop(right);
        reservation.write(&mut marker);
        reservation.publish();
    }

    /// As `flush/mod.rs` does it, for the oldest sealed epoch.
    fn flush(&self) {
        let epoch = self.epochs.list().sealed[0].clone();
        self.log.wait_visible(epoch.end()).unwrap();
        let keep = self.snapshots.keep(&self.log);
        let mut memtables = Vec::new();
        for (_, memtable) in epoch.memtables() {
            let mut cursor = MemtableCursor::new(memtable.clone());
            cursor.seek_first().unwrap();
            let mut versions = Vec::new();
            while let Some(entry) = cursor.entry() {
                versions.push(entry.seq);
                cursor.next().unwrap();
            }
            memtables.push((memtable, versions));
        }
        let versions = memtables.iter().flat_map(|(_, versions)| versions.clone());
        let run = self.run(&keep, versions);
        let mut tree = self.tree.lock();
        if let Some(run) = run {
            *tree = Arc::new(tree.with(&[], vec![(0, run)]).unwrap());
        }
        self.family.install(tree.clone(), Some(&epoch));
        self.epochs.retire_oldest(&epoch);
        drop(tree);
        self.log.retire(epoch.end());
        for (memtable, versions) in memtables {
            assert_eq!(memtable.len(), versions.len() as u64, "written after its flush");
        }
    }

    /// As `compact/schedule.rs` does it, for all runs there are.
    fn merge(&self) {
        let inputs = self.family.view().tree.runs.clone();
        let keep = self.snapshots.keep(&self.log);
        let versions: Vec<Lsn> =
            inputs.iter().flat_map(|run| self.versions_of(run.meta.file)).collect();
        let Some(run) = self.run(&keep, versions.into_iter()) else { return };
        let removed: Vec<_> = inputs.iter().map(|input| (0, input.meta.file)).collect();
        let mut tree = self.tree.lock();
        *tree = Arc::new(tree.with(&removed, vec![(0, run)]).unwrap());
        self.family.install(tree.clone(), None);
    }

    /// A new file with those of the versions, newest first, that somebody may read.
    fn run(&self, keep: &Keep, versions: impl Iterator<Item = Lsn>) -> Option<Arc<Slice>> {
        let mut retain = Retain::new(&keep.points, keep.horizon);
        let mut kept = Vec::new();
        for seq in versions {
            let entry = Entry { key: KEY, seq, kind: OpKind::Put, value: b"" };
            let verdict = retain.judge(&entry, || false);
            if matches!(verdict, Verdict::Keep | Verdict::KeepLast) {
                kept.push(seq);
            }
            if matches!(verdict, Verdict::KeepLast | Verdict::DropRest) {
                break;
            }
        }
        let seqs = (*kept.last()?, *kept.first()?);
        assert!(kept.is_sorted_by(|newer, older| newer > older), "{kept:?}");
        let mut files = self.files.lock().unwrap();
        let number = files.len() as u64 + 1;
        files.insert(number, kept);
        let meta = fixtures::meta(0, number, "k", "k", seqs);
        Some(Slice::new(meta, LiveFile::new(number, &Graveyard::new())))
    }

    fn versions_of(&self, file: u64) -> Vec<Lsn> {
        self.files.lock().unwrap()[&file].clone()
    }

    /// What `read/get.rs` finds.
    fn find(&self, view: &View, point: Lsn) -> Option<Lsn> {
        let in_memory = view.memtables.iter().find_map(|of| of.memtable.get(KEY, point));
        in_memory.map(|found| found.seq).or_else(|| {
            let newest_below = |file| self.versions_of(file).into_iter().find(|seq| *seq < point);
            view.tree.runs.iter().find_map(|run| newest_below(run.meta.file))
        })
    }

    fn expected(&self, point: Lsn) -> Option<Lsn> {
        self.written.lock().unwrap().iter().copied().filter(|lsn| *lsn < point).max()
    }

    fn read_newest(&self) -> Option<Lsn> {
        let (view, point) = self.family.pin(&self.log);
        let found = self.find(&view, point);
        assert_eq!(found, self.expected(point), "at {point}");
        let ids: Vec<u64> = view.memtables.iter().map(|of| of.epoch.id).collect();
        assert!(ids.is_sorted_by(|newer, older| newer > older), "{ids:?}");
        found
    }

    fn read_by_snapshot(&self) {
        let point = self.snapshots.register(&self.log);
        for _ in 0..2 {
            assert_eq!(self.find(&self.family.view(), point), self.expected(point), "at {point}");
        }
        self.snapshots.release(point);
    }

    fn end(&self) {
        assert_eq!(self.read_newest(), self.written.lock().unwrap().iter().copied().max());
        self.log.close().unwrap();
    }
}

fn spawn(world: &Arc<World>, body: impl Fn(&World) + Send + 'static) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || body(&world))
}

#[test]
fn writers_that_race_a_seal_lose_nothing_and_are_in_one_epoch() {
    check(4000, || {
        let world = World::new();
        let writers = [(); 2].map(|()| {
            spawn(&world, |world| {
                world.commit();
                world.commit();
            })
        });
        world.seal();
        world.flush();
        world.seal();
        world.flush();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        world.end();
    });
}

#[test]
fn a_view_and_a_read_point_always_fit() {
    check(4000, || {
        let world = World::new();
        world.commit();
        world.seal();
        let writer = spawn(&world, |world| {
            world.commit();
            world.commit();
        });
        let reader = spawn(&world, |world| {
            world.read_newest();
            world.read_by_snapshot();
            world.read_newest();
        });
        world.flush();
        world.seal();
        world.flush();
        world.merge();
        writer.join().unwrap();
        reader.join().unwrap();
        world.end();
    });
}

/// The second writer finds the memtable that the first one made, and may be visible before the first one has come to the
/// end of publishing it.
#[test]
fn a_memtable_is_in_every_view_that_sees_its_commits() {
    check(8000, || {
        let epoch =
            Epochs::new(Arc::new(ChunkPool::new(16 << 10, 0, 0)), START).list().open.clone();
        let tree = Arc::new(Tree::default());
        let family = Arc::new(Family::new(0, "default", FamilyOptions::default(), 1, tree));
        let visible = Arc::new(AtomicU64::new(START));
        let first = {
            let family = family.clone();
            thread::spawn(move || drop(family.memtable_in(&epoch)))
        };
        let second = {
            let (family, visible) = (family.clone(), visible.clone());
            thread::spawn(move || {
                while family.view().memtables.is_empty() {
                    thread::yield_now();
                }
                visible.store(START + 32, Ordering::SeqCst);
            })
        };
        let (view, point) = family.pin_at(|| visible.load(Ordering::SeqCst));
        assert!(point == START || view.memtables.len() == 1);
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn merges_keep_what_snapshots_see_whenever_they_are_taken() {
    check(4000, || {
        let world = World::new();
        let writer = spawn(&world, |world| {
            world.commit();
            world.commit();
        });
        let readers = [(); 2].map(|()| spawn(&world, World::read_by_snapshot));
        for _ in 0..2 {
            world.seal();
            world.flush();
            world.merge();
        }
        writer.join().unwrap();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        world.end();
    });
}

#[test]
fn whoever_waits_for_room_hears_of_a_failed_flush() {
    check(4000, || {
        let world = World::new();
        let waiter = spawn(&world, |world| {
            let mut right = world.epochs.lock();
            while world.epochs.check_flushes().is_ok() {
                world.epochs.wait_for_room(&mut right);
            }
        });
        world.epochs.note_flush_failure(Error::Closed);
        waiter.join().unwrap();
    });
}

/// Flushes and merges set the pace at once; neither takes the other's word back.
#[test]
fn writers_are_paced_while_anybody_has_a_reason() {
    check(2000, || {
        let components = components(Arc::new(MemoryFs::new()));
        let pacer = Arc::new(Pacer::new(components.clock, components.threads));
        let flusher = {
            let pacer = pacer.clone();
            thread::spawn(move || pacer.set_flush(|| false, None))
        };
        pacer.set_merges(1.0, 1e6);
        flusher.join().unwrap();
        pacer.admit(1 << 20, true, || 0.0).unwrap();
        pacer.admit(1 << 20, true, || 0.0).unwrap_err();
    });
}
