//! `Options::memory`: what the process really has allocated stays below the ceiling, with a slack
//! that is stated here; and what is refused at the ceiling is told, and loses nothing.
//!
//! An allocator counts all live bytes, so the tests run one at a time. It sees chunks of memtables
//! too: below 2 MiB they are plain allocations, and these ceilings ask for less.

#![allow(clippy::disallowed_methods)] // Tests may have threads of their own.

use isobath::{
    Batch, Db, Error, ErrorKind, FamilyOptions, FilterEntry, FilterVerdict, MIB, MemoryClass,
    Options, Range, ReadOptions, Transaction, Value,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What the ceiling does not count: the state of the manifest, names and options of families, open
/// files, a record that is being encoded, a block on its way from the file, and the test itself.
const SLACK: u64 = 3 * MIB / 2;

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn note(bytes: usize) {
    PEAK.fetch_max(LIVE.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // Both exist for a moment.
        note(len);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

const CEILING: u64 = 24 * MIB;

/// Counts from here on, and says how much was live at most.
struct Watch {
    base: usize,
}

/// Fails if more is live than is charged, at this moment, with the slack. Much may come free or be
/// charged between two looks, so it looks at what is charged before and after, and a few times.
fn check_charged(watch: &Watch, db: &Db) {
    let look = || {
        let memory = db.metrics().memory.unwrap();
        assert!(memory.held <= memory.ceiling, "{memory:?}");
        memory.held
    };
    let looks = (0..3).map(|_| {
        let before = look();
        let live = (LIVE.load(Relaxed) - watch.base) as u64;
        (live, before.max(look()))
    });
    let looks: Vec<_> = looks.take_while(|(live, held)| *live > *held + SLACK).collect();
    assert!(looks.len() < 3, "live and charged: {looks:?}");
}

impl Watch {
    fn begin() -> Watch {
        let base = LIVE.load(Relaxed);
        PEAK.store(base, Relaxed);
        Watch { base }
    }

    fn peak(&self) -> u64 {
        (PEAK.load(Relaxed) - self.base) as u64
    }

    fn check(&self, what: &str) {
        let peak = self.peak();
        println!("{what}: {} KiB at most of {} KiB", peak >> 10, CEILING >> 10);
        assert!(peak <= CEILING + SLACK, "{what}: {peak} bytes were live");
    }
}

/// The same without what is only reserved, while no job runs.
fn check_idle(watch: &Watch, db: &Db) {
    db.wait_for_compactions(None).unwrap();
    let live = (LIVE.load(Relaxed) - watch.base) as u64;
    let metrics = db.metrics();
    let memory = metrics.memory.unwrap();
    let of_readers = memory.blocks + memory.tables;
    let known = metrics.memtable_reserved_bytes + of_readers + memory.transactions;
    println!("{} KiB live, {} KiB known", live >> 10, known >> 10);
    assert!(live <= known + SLACK, "{live} bytes are live, {known} known, {memory:?}");
}

/// So many writes of a run may be refused: while a thread stands still that has spoken for memory,
/// the others wait half a second for it, and have to write again. Of three runs one has none.
const REFUSED_MAX: usize = 12;

/// Writes again if there is no memory, which is told only after a wait. Counts the refusals.
fn persist(refused: &AtomicUsize, mut write: impl FnMut() -> isobath::Result<isobath::Commit>) {
    loop {
        let began = Instant::now();
        let Err(error) = write() else { return };
        let is_full = matches!(error.kind(), ErrorKind::MemoryLimit { .. });
        assert!(is_full && error.is_retryable(), "{error}");
        assert!(began.elapsed() > Duration::from_millis(450), "{error} without a wait");
        assert!(refused.fetch_add(1, Relaxed) < REFUSED_MAX, "{error}");
    }
}

fn open(dir: &Path) -> Db {
    Options::new().memory(CEILING).compaction_threads(2).open(dir).unwrap()
}

fn key(n: u64) -> String {
    format!("key {:08}", n.wrapping_mul(2_654_435_761) % 100_000_000)
}

/// Bytes that do not compress.
fn value(n: u64, len: usize) -> Vec<u8> {
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes()).take(len).collect()
}

fn len_of(n: u64) -> usize {
    if n.is_multiple_of(997) { 100_000 } else { 300 + (n % 200) as usize }
}

#[test]
fn a_database_of_five_ceilings_is_loaded_scanned_compacted_and_reopened_below_one() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let (dir, count) = (tempfile::tempdir().unwrap(), 240_000);
    let watch = Watch::begin();
    let db = open(dir.path());
    for n in 0..count {
        db.put(key(n), value(n, len_of(n))).unwrap();
        if n % 40_000 == 39_999 {
            let seen = db.range(key(n)..).take(2000).filter(|row| row.is_ok()).count();
            assert_eq!(seen, 2000);
        }
        if n.is_multiple_of(2000) {
            check_charged(&watch, &db);
        }
    }
    watch.check("load");
    let rows = db.range(..);
    assert_eq!(rows.filter(|row| row.is_ok()).count() as u64, count);
    watch.check("scan");
    for n in (0..count).step_by(97) {
        assert_eq!(db.get(key(n)).unwrap().unwrap(), value(n, len_of(n)), "{n}");
    }
    watch.check("gets");
    db.compact().unwrap();
    watch.check("compaction");
    check_idle(&watch, &db);
    db.put("left in the log", "value").unwrap();
    drop(db);
    let db = open(dir.path());
    assert_eq!(db.count(..).unwrap(), count + 1);
    watch.check("reopen");
    check_idle(&watch, &db);
    drop(db);
}

#[test]
fn what_is_longer_than_the_ceiling_allows_is_refused_before_anything_is_written() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let most = (CEILING / 64) as usize;
    let (fits, long) = (vec![7; most - 1], vec![7; most]);
    db.put("k", &fits).unwrap();
    let refusals =
        [db.put("k", &long).unwrap_err(), db.transact(|tx| tx.put("k", &long)).unwrap_err(), {
            let mut batch = Batch::new();
            batch.put("other", "value").put("k", &long);
            db.write(&mut batch).unwrap_err()
        }];
    for refused in refusals {
        let ErrorKind::MemoryLimit { needed, limit, holder: None, .. } = refused.kind() else {
            panic!("{refused}")
        };
        assert_eq!((*needed, *limit), (most as u64 + 1, most as u64));
        assert!(!refused.is_retryable());
    }
    let mut batch = Batch::new();
    for n in 0..(CEILING / 16 / 400) {
        batch.put(key(n), value(n, 400));
    }
    let refused = db.write(&mut batch).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::MemoryLimit { holder: None, .. }), "{refused}");
    assert_eq!((db.count(..).unwrap(), db.get("k").unwrap().unwrap().len()), (1, most - 1));
}

#[test]
fn values_that_the_program_holds_are_charged_until_it_lets_them_go() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let (dir, count) = (tempfile::tempdir().unwrap(), 60_000);
    let mut held = Vec::with_capacity(count as usize);
    let watch = Watch::begin();
    let db = open(dir.path());
    for n in 0..count {
        db.put(key(n), value(n, 400)).unwrap();
    }
    db.flush().unwrap();
    db.wait_for_compactions(None).unwrap();
    let refused = loop {
        let n = held.len() as u64;
        assert!(n < count, "all blocks together are more than the ceiling");
        match db.get(key(n)) {
            Ok(value) => held.push(value.unwrap()),
            Err(error) => break error,
        }
    };
    let ErrorKind::MemoryLimit { class, holder, .. } = refused.kind() else { panic!("{refused}") };
    // At this ceiling blocks can hold about as much as is reserved for jobs.
    assert_eq!(*class, Some(MemoryClass::Blocks));
    assert!(matches!(holder, Some(MemoryClass::Blocks | MemoryClass::Jobs)), "{refused}");
    assert!(refused.is_retryable() && refused.to_string().contains("hold most"), "{refused}");
    let memory = db.metrics().memory.unwrap();
    assert!(memory.refusals > 0 && memory.held > CEILING / 16 * 15, "{memory:?}");
    // What is reserved suffices to write, to flush and to compact, whatever readers hold.
    for n in 0..20_000 {
        db.put(key(n), value(n + 1, 400)).unwrap();
    }
    db.flush().unwrap();
    db.compact().unwrap();
    let intact = held.iter().zip(0..).filter(|(held, n)| **held == value(*n, 400)[..]).count();
    assert_eq!(intact, held.len());
    watch.check("values held");
    drop(held.split_off(held.len() / 2));
    check_idle(&watch, &db);
    drop(held);
    assert_eq!(db.count(..).unwrap(), count);
    assert_eq!(db.get(key(7)).unwrap().unwrap(), value(8, 400));
    watch.check("values let go");
}

/// Writes so many keys, which go into tables.
fn fill(db: &Db, count: u64) {
    for n in 0..count {
        db.put(key(n), value(n, 400)).unwrap();
    }
    db.flush().unwrap();
    db.wait_for_compactions(None).unwrap();
}

/// Values that hold all that readers may have.
fn hold_all(db: &Db, count: u64) -> Vec<Value> {
    let held: Vec<_> = (0..count).map_while(|n| db.get(key(n)).ok()).flatten().collect();
    assert!((held.len() as u64) < count, "readers have all that is left to them");
    held
}

#[test]
fn values_that_a_scan_past_the_cache_hands_out_are_charged_too() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let (dir, count) = (tempfile::tempdir().unwrap(), 60_000);
    let mut held = Vec::with_capacity(count as usize);
    let watch = Watch::begin();
    let db = open(dir.path());
    fill(&db, count);
    let mut refused = None;
    for row in db.with(ReadOptions::new().fill_cache(false)).range(..) {
        match row {
            Ok((_, value)) => held.push(value),
            Err(error) => refused = Some(error),
        }
        if held.len().is_multiple_of(1000) {
            check_charged(&watch, &db);
        }
    }
    let refused = refused.expect("all blocks together are more than the ceiling");
    let ErrorKind::MemoryLimit { class, .. } = refused.kind() else { panic!("{refused}") };
    assert_eq!(*class, Some(MemoryClass::Blocks));
    watch.check("a scan past the cache");
    drop(held);
    assert_eq!(db.with(ReadOptions::new().fill_cache(false)).range(..).count() as u64, count);
}

#[test]
fn small_values_in_blob_files_leave_no_more_frames_than_are_charged() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let (dir, count) = (tempfile::tempdir().unwrap(), 60_000);
    let watch = Watch::begin();
    let db = open(dir.path());
    let apart = db.family(("apart", FamilyOptions::new().separate_from(60))).unwrap();
    for n in 0..count {
        apart.put(key(n), value(n, 64)).unwrap();
    }
    db.flush().unwrap();
    for n in 0..count {
        assert_eq!(apart.get(key(n)).unwrap().unwrap(), value(n, 64));
    }
    check_idle(&watch, &db);
    fill(&db, count);
    for n in 0..count {
        assert_eq!(db.get(key(n)).unwrap().unwrap(), value(n, 400));
    }
    check_idle(&watch, &db);
    watch.check("small values");
}

#[test]
fn threads_write_large_batches_while_values_hold_all_that_readers_may_have() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    assert!((0..3).any(|_| refused_large_batches() == 0), "some are refused in each run");
}

fn refused_large_batches() -> usize {
    let (dir, count) = (tempfile::tempdir().unwrap(), 60_000);
    let watch = Watch::begin();
    let db = open(dir.path());
    fill(&db, count);
    let held = hold_all(&db, count);
    let long = |thread: u64, n: u64| format!("long {thread} {n}");
    let refused = AtomicUsize::new(0);
    let write = |thread: u64| {
        for round in 0..15 {
            let mut batch = Batch::new();
            for n in round * 3..round * 3 + 3 {
                batch.put(long(thread, n), value(n, 100 << 10));
            }
            persist(&refused, || db.write(&mut batch));
        }
    };
    std::thread::scope(|scope| {
        let write = &write;
        (0..4).for_each(|thread| drop(scope.spawn(move || write(thread))));
    });
    db.flush().unwrap();
    watch.check("large batches of threads");
    drop(held);
    assert_eq!(db.count(..).unwrap(), count + 4 * 45);
    assert_eq!(db.get(long(3, 44)).unwrap().unwrap(), value(44, 100 << 10));
    refused.into_inner()
}

#[test]
fn batches_are_written_and_flushed_while_values_hold_all_that_readers_may_have() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let (dir, count) = (tempfile::tempdir().unwrap(), 60_000);
    let watch = Watch::begin();
    let db = open(dir.path());
    fill(&db, count);
    let held = hold_all(&db, count);
    for round in 0..300 {
        let mut batch = Batch::new();
        for n in round * 100..(round + 1) * 100 {
            batch.put(key(n), value(n + 1, 400));
        }
        db.write(&mut batch).unwrap();
        if round % 100 == 50 {
            db.flush().unwrap();
        }
    }
    db.flush().unwrap();
    db.compact().unwrap();
    watch.check("batches");
    drop(held);
    assert_eq!(db.count(..).unwrap(), count);
    assert_eq!(db.get(key(7)).unwrap().unwrap(), value(8, 400));
}

/// Puts, tracks and locks some keys. Counts the calls that are refused for lack of memory, after
/// which the transaction goes on.
fn use_memory(tx: &Transaction, nth: u64) -> usize {
    let mut refused = 0;
    for n in 0..500 {
        let told = [
            tx.put(format!("of {nth} {n:03}"), value(n, 400)),
            tx.get(format!("absent {nth} {n:03}")).map(drop),
            tx.get_for_update(format!("locked {nth} {n:03}")).map(drop),
        ];
        for error in told.into_iter().filter_map(Result::err) {
            let ErrorKind::MemoryLimit { holder, .. } = error.kind() else { panic!("{error}") };
            assert!(holder.is_some() && error.is_retryable(), "{error}");
            refused += 1;
        }
    }
    refused
}

#[test]
fn many_open_transactions_are_charged_and_others_write_read_and_flush_beside_them() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let (dir, count) = (tempfile::tempdir().unwrap(), 20_000);
    let watch = Watch::begin();
    let db = open(dir.path());
    fill(&db, count);
    let (mut all, mut refused) = (Vec::new(), 0);
    for nth in 0..60 {
        all.push(db.begin());
        refused += use_memory(&all[nth as usize], nth);
        check_charged(&watch, &db);
    }
    watch.check("open transactions");
    let held = db.metrics().memory.unwrap();
    assert!(refused > 0 && held.transactions > 3 * MIB, "{refused} refused, {held:?}");
    check_idle(&watch, &db);
    for n in 0..count {
        db.put(key(n), value(n + 1, 400)).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.range(..).filter(|row| row.is_ok()).count() as u64, count);
    watch.check("writers and readers beside open transactions");
    for (nth, tx) in all.into_iter().enumerate() {
        if nth % 2 == 0 {
            tx.commit().unwrap();
        }
    }
    watch.check("commits");
    let kept = db.metrics().memory.unwrap().transactions;
    assert!(kept <= 16 * (32 << 10), "{kept}");
    assert!(db.count(..).unwrap() > count);
    check_idle(&watch, &db);
}

#[test]
fn what_operators_and_filters_make_is_compacted_whatever_readers_hold() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let (dir, count) = (tempfile::tempdir().unwrap(), 60_000);
    let longer = |_: FilterEntry<'_>| FilterVerdict::Replace(vec![7; CEILING as usize / 8]);
    let options = Options::new().memory(CEILING).compaction_filter("longer", longer);
    let db = options.open(dir.path()).unwrap();
    let lists = FamilyOptions::new().merge_operator("isobath.append");
    let lists = db.family(("lists", lists)).unwrap();
    let short = db.family(("short", FamilyOptions::new().compaction_filter("longer"))).unwrap();
    fill(&db, count);
    let append = |n: u64| {
        lists.merge("list", value(n, 300_000)).unwrap();
        short.put(key(n), "value").unwrap();
        db.flush().unwrap();
    };
    (0..10).for_each(append);
    db.compact().unwrap();
    let held = hold_all(&db, count);
    (10..12).for_each(append);
    for family in [&lists, &short] {
        family.compact(..).unwrap();
    }
    drop(held);
    let list: Vec<u8> = (0..12).flat_map(|n| value(n, 300_000)).collect();
    assert!(lists.get("list").unwrap().unwrap() == list);
    assert!(
        short.get(key(0)).unwrap().unwrap() == "value",
        "what is too long was put in its place"
    );
}

/// Writes, and opens iterators that keep what was written in memory, until a write is refused.
/// Returns the iterators, how many keys were written, and the refusal.
fn keep_all_memory(db: &Db) -> (Vec<Range<'static>>, u64, Error) {
    let (mut readers, mut written) = (Vec::new(), 0_u64);
    let refused = loop {
        assert!(written < 200_000, "each reader keeps an epoch of its own");
        if written.is_multiple_of(2000) {
            readers.push(db.range(..));
        }
        match db.put(key(written), value(written, 400)) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    (readers, written, refused)
}

#[test]
fn a_close_flushes_although_readers_keep_all_memory() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::begin();
    let db = open(dir.path());
    let (readers, written, _) = keep_all_memory(&db);
    db.close().unwrap();
    watch.check("close");
    drop(readers);
    let db = open(dir.path());
    assert_eq!(db.metrics().recovered_records, 0, "all was flushed");
    assert_eq!(db.count(..).unwrap(), written);
}

#[test]
fn writers_fail_once_readers_keep_all_memory_and_nothing_is_lost() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::begin();
    let db = open(dir.path());
    let (readers, written, refused) = keep_all_memory(&db);
    let ErrorKind::MemoryLimit { class, holder, .. } = refused.kind() else { panic!("{refused}") };
    assert_eq!((*class, *holder), (Some(MemoryClass::Memtables), Some(MemoryClass::Memtables)));
    assert!(refused.is_retryable(), "{refused}");
    watch.check("memtables held");
    assert_eq!(db.count(..).unwrap(), written);
    drop(readers);
    for n in written..written + 20_000 {
        db.put(key(n), value(n, 400)).unwrap();
    }
    watch.check("memtables let go");
    drop(db);
    let db = open(dir.path());
    assert_eq!(db.count(..).unwrap(), written + 20_000);
    for n in (0..written + 20_000).step_by(41) {
        assert_eq!(db.get(key(n)).unwrap().unwrap(), value(n, 400), "{n}");
    }
}

#[test]
fn several_threads_that_write_batches_and_scan_stay_below_the_ceiling_and_none_is_refused() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    assert!((0..3).any(|_| refused_beside_scans() == 0), "some are refused in each run");
}

fn refused_beside_scans() -> usize {
    let dir = tempfile::tempdir().unwrap();
    let watch = Watch::begin();
    let db = open(dir.path());
    let (is_over, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let (db, watch, is_over, refused) = (&db, &watch, &is_over, &refused);
        let write = |thread: u64| {
            for round in 0..150 {
                let of = (thread * 150 + round) * 100;
                let mut batch = Batch::new();
                for n in of..of + 99 {
                    batch.put(key(n), value(n, 400));
                }
                persist(refused, || db.write(&mut batch));
                persist(refused, || db.put(key(of + 99), value(of + 99, 400)));
            }
        };
        let writers: Vec<_> = (0..4).map(|thread| scope.spawn(move || write(thread))).collect();
        for _ in 0..2 {
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    db.range(..).take(5000).for_each(|row| drop(row.unwrap()));
                    check_charged(watch, db);
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Relaxed);
    });
    watch.check("threads");
    assert_eq!(db.count(..).unwrap(), 60_000);
    check_idle(&watch, &db);
    refused.into_inner()
}
