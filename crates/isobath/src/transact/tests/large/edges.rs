//! Large commits at their edges: what a hull covers, what is waited for, what a hook hears.

use super::*;
use crate::FamilyOptions;
use crate::engine::SpillFile;
use crate::error::{BoxError, Error};
use crate::footprint::Operation;
use crate::format::{DEFAULT_FAMILY, Lsn, OpKind, checksum64};
use crate::table::{Codec, TableOptions};
use crate::transact::{CommitHook, Operations};
use crate::vfs::{Fault, FileOp};
use crate::write::{Course, commit_spilled};
use std::sync::atomic::AtomicUsize;

/// Runs `commit` on another thread, and `meanwhile` once it sleeps for a lock.
fn while_it_waits(db: &Db, commit: impl FnOnce() + Send, meanwhile: impl FnOnce()) {
    std::thread::scope(|scope| {
        let before = db.engine().locks.sleepers();
        let running = scope.spawn(commit);
        while db.engine().locks.sleepers() == before && !running.is_finished() {
            std::thread::yield_now();
        }
        meanwhile();
        running.join().unwrap();
    });
}

#[test]
fn what_comes_into_a_hull_while_its_lock_is_waited_for_lies_beneath_the_layer() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let holder = db.begin();
    holder.get_for_update(key(123)).unwrap();
    holder.put(key(123), "theirs").unwrap();
    let large = begin(&db, Isolation::ReadCommitted);
    put_all(&large, 400, 1);
    while_it_waits(&db, || _ = large.commit().unwrap(), || _ = holder.commit().unwrap());
    assert_eq!(db.get(key(123)).unwrap().unwrap(), [1; 300]);
    db.flush().unwrap();
    assert_eq!(db.get(key(123)).unwrap().unwrap(), [1; 300]);
    assert_at_rest(db.engine());
}

#[test]
fn a_hull_reaches_as_far_as_the_longest_file() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let tx = begin(&db, Isolation::Snapshot);
    tx.put(key(0), "first").unwrap();
    tx.put(key(900), "last").unwrap();
    (100..500).for_each(|n| tx.put(key(n), [1; 300]).unwrap());
    db.put(key(900), "theirs").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    assert_at_rest(db.engine());
}

#[test]
fn a_large_commit_relies_on_no_more_of_a_scan_than_it_has_passed() {
    for level in [Isolation::RepeatableRead, Isolation::Serializable] {
        let fs = MemoryFs::new();
        let db = open(&fs);
        (0..9).for_each(|n| _ = db.put([b'r', n], "before").unwrap());
        let tx = begin(&db, level);
        assert_eq!(tx.range("r"..).next().unwrap().unwrap().0, b"r\0"[..]);
        put_all(&tx, 400, 1);
        db.put([b'r', 8], "theirs").unwrap();
        tx.commit().unwrap();
        assert_at_rest(db.engine());
    }
}

struct Counts(Arc<AtomicUsize>);

impl CommitHook for Counts {
    fn before(&self, operations: &Operations<'_>) -> Result<(), BoxError> {
        self.0.fetch_add(operations.len(), Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_hook_hears_of_all_that_a_transaction_has_in_files() {
    let (fs, heard) = (MemoryFs::new(), Arc::default());
    let db = over(&fs).commit_hook(Counts(Arc::clone(&heard))).open("/db").unwrap();
    let tx = db.begin();
    put_all(&tx, 400, 1);
    tx.commit().unwrap();
    assert_eq!((heard.load(Ordering::Relaxed), db.count(..).unwrap()), (400, 400));
}

/// The log names the files until an edit of the manifest says that a table has all of them.
#[test]
fn a_fault_while_a_layer_is_flushed_and_the_database_closed_leaves_it_to_the_next_open() {
    let mut failed = 0;
    let faults = (1..60).step_by(5).flat_map(|nth| [(true, nth), (false, nth)]);
    for (forever, nth) in faults {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let busy = Busy::flusher(&db);
        let tx = db.begin();
        put_all(&tx, 200, 1);
        tx.commit().unwrap();
        db.sync().unwrap();
        let fault = Fault::on_any().nth(nth);
        fs.inject(if forever { fault.forever() } else { fault });
        drop(busy);
        failed += u32::from(db.close().is_err());
        fs.clear_faults();
        for left in [fs.crashed(|_| 0), fs] {
            assert_eq!(recovered(&left).count(..).unwrap(), 200, "{forever} {nth}");
        }
    }
    assert!(failed > 5, "{failed}");
}

#[test]
fn a_large_commit_into_a_family_that_was_dropped_fails_whole() {
    for level in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let side = db.family("side").unwrap();
        let tx = begin(&db, level);
        put_all(&tx, 200, 1);
        tx.of(&side).put("key", "value").unwrap();
        put_all(&tx, 400, 1);
        db.drop_family(&side).unwrap();
        assert_eq!(tx.commit().unwrap_err().name(), "UNKNOWN_FAMILY");
        assert_eq!((db.count(..).unwrap(), spill_files(&fs)), (0, 0));
        assert_at_rest(db.engine());
    }
}

/// The commit has its LSN behind that of the drop, and a snapshot still reads the family.
#[test]
fn a_layer_that_races_the_drop_of_its_family_is_not_kept_for_it() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let (engine, side) = (db.engine(), db.family("side").unwrap());
    side.put("key", "value").unwrap();
    let family = engine.families.by_name("side").unwrap();
    let snapshot = db.snapshot();
    db.drop_family(&side).unwrap();
    db.flush().unwrap();
    let put = Operation { family: family.id, kind: OpKind::Put, key: b"k", value: b"v" };
    let options = |id| family.options().table_options(id, "side", 0);
    let file = engine.spills.write(std::iter::once(put), options, (1, true)).unwrap();
    let epoch = engine.epochs.list().open.clone();
    family.lay([(0, &file)].into_iter(), &epoch, epoch.start + 8);
    assert!(family.view().layers.is_empty() && epoch.layers().contains_key(&family.id));
    assert_eq!(snapshot.of(&side).count(..).unwrap(), 1);
}

/// A course without conditions.
struct Straight;

impl Course for Straight {
    fn prepare(&mut self, _record: &[u8]) -> crate::Result<()> {
        Ok(())
    }

    fn settle(&mut self, _lsn: Lsn) -> crate::Result<bool> {
        Ok(true)
    }

    fn finish(&mut self, _lsn: Lsn) {}
}

/// So it is where the edit of the flush before the commit was lost with the power.
#[test]
fn a_replay_puts_a_layer_above_what_the_log_has_before_it_and_below_what_comes_behind() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let engine = db.engine();
    let family = engine.default_family.clone();
    let _busy = Busy::flusher(&db);
    for key in ["hidden", "replaced"] {
        db.put(key, "before").unwrap();
    }
    let op = |kind, key, value| Operation { family: 0, kind, key, value };
    let ops = [
        op(OpKind::DeleteRange, &b"h"[..], &b"i"[..]),
        op(OpKind::Put, b"newer", b"layer"),
        op(OpKind::Put, b"replaced", b"layer"),
    ];
    let options = |id| family.options().table_options(id, "default", 0);
    let file = engine.spills.write(ops.into_iter(), options, (1, true)).unwrap();
    let (families, with) = ([family.clone()], Default::default());
    commit_spilled(engine, &families, &[file], with, &mut Straight).unwrap();
    db.put("newer", "behind").unwrap();
    let expected: Map = [("newer", "behind"), ("replaced", "layer")]
        .map(|(key, value)| (key.into(), value.into()))
        .into();
    assert_shows(&recovered(&fs.killed()).default_family(), &expected);
}

#[test]
fn a_transaction_never_has_more_files_than_it_may_have() {
    let fs = MemoryFs::new();
    for max in [2, 3] {
        let mut options = over(&fs);
        options.sizes.footprint_max = 4000;
        options.sizes.spill_files_max = max;
        let db = options.open("/db").unwrap();
        let tx = db.begin();
        for n in 0..600 {
            tx.put(key(n), [1; 300]).unwrap();
            assert!(spill_files(&fs) <= max, "{n}");
        }
        tx.commit().unwrap();
        assert_eq!(db.count(..).unwrap(), 600);
    }
}

#[test]
fn range_deletes_in_files_are_bounded_by_the_memory_that_they_take() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    (0..9000).step_by(100).for_each(|n| _ = db.put(key(n), "before").unwrap());
    let tx = db.begin();
    let delete = |n: &u32| tx.delete_range(key(n * 2)..key(n * 2 + 1));
    let refused = (0..9000).find_map(|n| Some((n, delete(&n).err()?)));
    let (deleted, error) = refused.unwrap();
    assert_eq!(error.name(), "TRANSACTION_TOO_LARGE");
    tx.commit().unwrap();
    let left = db.range(..).map(|row| row.unwrap().0.to_vec());
    let expected = (0..9000).step_by(100).filter(|n| *n >= deleted * 2).map(key);
    assert!(left.eq(expected), "{deleted}");
}

/// A spill file of many blocks.
fn spilled(db: &Db, fill: u8) -> Arc<SpillFile> {
    let mut file = db.engine().spills.begin_file().unwrap();
    file.writer.begin_slice(DEFAULT_FAMILY, &uncompressed()).unwrap();
    (0..500).for_each(|n| file.add(&key(n), OpKind::Put, &[fill; 300]).unwrap());
    file.writer.finish_slice().unwrap();
    file.finish(1, true).unwrap()
}

fn uncompressed() -> TableOptions {
    TableOptions { codec: Codec::None, ..TableOptions::default() }
}

#[test]
fn a_merge_of_spill_files_fails_by_every_read_that_fails() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let files = [spilled(&db, 1), spilled(&db, 2)];
    let fails_by = |nth: &u64| {
        fs.inject(Fault::on(FileOp::Read).suffix(".tbl").nth(*nth));
        let merged = db.engine().spills.merge(&files, |_| uncompressed());
        fs.clear_faults();
        merged.is_err()
    };
    let reads = (1..).take_while(fails_by).count();
    assert!(reads > 4, "{reads}");
}

#[test]
fn a_close_lets_go_of_files_that_wait_for_an_edit() {
    let db = open(&MemoryFs::new());
    let file = spilled(&db, 1);
    let left = Arc::downgrade(&file);
    db.engine().log.poison(&Error::planted());
    db.engine().spills.retire(std::iter::once(file));
    assert!(left.upgrade().is_some());
    let _ = db.clone().close();
    assert!(left.upgrade().is_none());
}

#[test]
fn a_dropped_family_keeps_no_layer_that_no_snapshot_sees() {
    let db = open(&MemoryFs::new());
    let side = db.family("side").unwrap();
    side.put("key", "value").unwrap();
    let snapshot = db.snapshot();
    let keyspace = db.engine().families.by_id(side.id()).unwrap();
    let _busy = Busy::flusher(&db);
    let tx = db.begin();
    (0..1000).for_each(|n| tx.of(&side).put(key(n), [1; 300]).unwrap());
    tx.commit().unwrap();
    assert!(!keyspace.view().layers.is_empty());
    db.drop_family(&side).unwrap();
    assert!(keyspace.view().layers.is_empty());
    assert_eq!(snapshot.of(&side).get("key").unwrap().unwrap(), "value");
}

#[test]
fn a_reader_takes_in_the_operands_of_a_large_commits_last_file() {
    let fs = MemoryFs::new();
    let mut options = over(&fs);
    options.sizes.large_from = 40 << 10;
    let db = options.open("/db").unwrap();
    let appends = crate::FamilyOptions::new().merge_operator("isobath.append");
    let family = db.family(("sums", appends)).unwrap();
    family.put("a", "1").unwrap();
    let flushes = hold_flushes(&db);
    let tx = db.begin();
    put_all(&tx, 75, 1);
    // The write set refuses this one, is spilled, and then has it alone.
    tx.of(&family).merge("a", [b'x'; 8 << 10]).unwrap();
    assert_eq!(spill_files(&fs), 1);
    (100..150).for_each(|n| tx.put(key(n), [2; 300]).unwrap());
    tx.commit().unwrap();
    assert!(layers(&db) > 0);
    let wanted = format!("1{}", "x".repeat(8 << 10));
    assert_eq!(family.get("a").unwrap().unwrap(), wanted);
    for fs in [fs.clone(), fs.killed()] {
        let reader = over(&fs).read_only(true).open("/db").unwrap();
        assert_eq!(reader.family("sums").unwrap().get("a").unwrap().unwrap(), wanted);
        assert_eq!(reader.count(..).unwrap(), 125);
    }
    let again = recovered(&fs.killed());
    assert_eq!(again.family("sums").unwrap().get("a").unwrap().unwrap(), wanted);
    drop(flushes);
}

#[test]
fn an_ingest_that_a_flush_has_no_room_for_is_refused_and_committed_once_there_is() {
    // Hexadecimal digits, which only Zstandard makes shorter; that all values have the same is of
    // use to codecs as long as they lie together.
    let of = |n: u32| checksum64(&n.to_le_bytes()) as usize % 16;
    let digits: Vec<u8> = (0..300).map(|n| b"0123456789abcdef"[of(n)]).collect();
    let apart = FamilyOptions::new().separate_from(100);
    let mut layouts = vec![FamilyOptions::new(), apart.clone(), apart.codec(Codec::Lz4)];
    if Codec::Zstd.is_available() {
        layouts.push(FamilyOptions::new().codecs([Codec::Lz4, Codec::Zstd]));
    }
    for layout in layouts {
        let fs = MemoryFs::new();
        let db = over(&fs).family(layout.clone()).open("/db").unwrap();
        let mut ingest = db.ingest().unwrap();
        (0..2000).for_each(|n| ingest.put(key(n), &digits).unwrap());
        let used = || u64::MAX - fs.free_space(Path::new("/")).unwrap();
        assert!(used() < 400 << 10, "{layout:?}: its files are shorter than its flush");
        for free in [500 << 10, 0] {
            fs.set_capacity(u64::MAX);
            fs.set_capacity(used() + free);
            let told = ingest.commit().unwrap_err();
            assert!(told.is_out_of_space() && told.is_retryable(), "{free}: {told}");
            assert_eq!(db.count(..).unwrap(), 0);
        }
        fs.set_capacity(u64::MAX);
        fs.set_capacity(used() + (4 << 20));
        ingest.commit().unwrap();
        assert_eq!(db.count(..).unwrap(), 2000);
        db.flush().unwrap();
    }
}
