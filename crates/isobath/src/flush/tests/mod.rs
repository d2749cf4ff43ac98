//! Flushes of an open database step by step: what an edit installs, what listeners hear, and what a
//! failed step leaves.

mod beneath;
mod failed;
mod table;

use super::*;
use crate::env::fixtures::soon;
use crate::env::sync::Mutex;
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::{Clock, Env};
use crate::format::{DEFAULT_FAMILY, Op, OpKind, put_batch_prefix, put_op};
use crate::options::{Options, WriteOptions};
use crate::version::fixtures;
use crate::vfs::{Fault, FileOp, MemoryFs};
use crate::wal::{self, RECORD_HEADER_LEN, SegmentKind};
use crate::write::seal_if_written;
use crate::{Db, Family};
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const TABLES: &str = "/db/table";

/// A clock that advances with each reading.
struct Watched(AtomicU64);

impl Clock for Watched {
    fn now_ns(&self) -> u64 {
        self.0.fetch_add(3_000, Ordering::Relaxed)
    }

    fn unix_ms(&self) -> u64 {
        0
    }
}

const BEGINNING_NS: u64 = 1 << 50;

/// An open database whose flusher is held until `release` is dropped, and the events it reported.
struct Held {
    release: Option<mpsc::Sender<()>>,
    db: Db,
    fs: MemoryFs,
    told: Arc<Mutex<Vec<Event>>>,
}

fn over(fs: &MemoryFs) -> Options {
    let clock = Arc::new(Watched(AtomicU64::new(BEGINNING_NS)));
    let env = Env { fs: Arc::new(fs.clone()), clock, ..Env::system() };
    Options::new().write_buffer(256 << 10).env(env)
}

impl Held {
    fn new() -> Held {
        let (fs, told) = (MemoryFs::new(), Arc::new(Mutex::unranked(Vec::new())));
        let heard = told.clone();
        let listener = move |event: &Event| heard.lock().push(event.clone());
        let db = over(&fs).on_event(listener).open("/db").unwrap();
        // It would try flushes again that fail.
        db.engine().maintenance.close();
        let mut held = Held { release: None, db, fs, told };
        held.hold();
        held
    }

    fn hold(&mut self) {
        let (release, released) = mpsc::channel::<()>();
        let job = Box::new(move |_cancel: &_| {
            let _ = released.recv();
        });
        self.db.engine().flusher.submit(job).unwrap();
        while self.db.engine().flusher.queued_count() > 0 {
            thread::yield_now();
        }
        self.release = Some(release);
    }

    fn engine(&self) -> &Arc<Engine> {
        self.db.engine()
    }

    fn seal(&self) -> Arc<Epoch> {
        seal_if_written(self.engine()).unwrap().unwrap()
    }

    fn let_go(&mut self) {
        self.release = None;
        self.engine().flusher.wait_idle();
    }

    /// Writes one key and more than a log segment of filler, and seals the epoch.
    fn written(&self, key: &str) -> Arc<Epoch> {
        self.db.put(key, "value").unwrap();
        for _ in 0..40 {
            self.db.put("filler", [7; 1000]).unwrap();
        }
        self.seal()
    }

    /// The file name of the manifest in force.
    fn manifest(&self) -> String {
        let path = self.engine().versions.lock().manifest().path();
        path.file_name().unwrap().to_str().unwrap().to_owned()
    }

    fn slices(&self, family: FamilyId) -> usize {
        let versions = self.engine().versions.lock();
        versions.state().family(family).unwrap().tree.iter().count()
    }

    fn replay_from(&self) -> Lsn {
        self.engine().versions.lock().state().replay_from()
    }

    fn built(&self, epoch: &Epoch) -> (Vec<Arc<Keyspace>>, Option<Built>) {
        let (families, pending) = pending_of(self.engine(), epoch);
        let readers = self.engine().readers();
        let fs = &*self.engine().options.env.fs;
        let (uuid, files) = (self.engine().uuid, &self.engine().files);
        let built = build_table(fs, Path::new("/db"), uuid, files, &pending, &readers).unwrap();
        (families, built)
    }

    /// The base and the end of each segment that holds records.
    fn segments(&self) -> Vec<(Lsn, Lsn)> {
        let found = wal::inventory(&self.fs, Path::new("/db/wal")).unwrap();
        let logs = found.iter().filter(|info| info.kind == SegmentKind::Log);
        logs.map(|info| (info.base, info.end())).collect()
    }

    /// True if the segments that end at `lsn` or below are gone soon.
    fn soon_holds_log_from(&self, lsn: Lsn) -> bool {
        soon(|| {
            self.engine().log.discard_files();
            self.segments().iter().all(|(_, end)| *end > lsn)
        })
    }

    fn tables(&self) -> usize {
        self.fs.list(Path::new(TABLES)).unwrap().len()
    }

    /// The background errors that a job reported.
    fn errors(&self, of: BackgroundJob) -> Vec<Error> {
        let told = self.told.lock();
        let errors = told.iter().filter_map(|event| match event {
            Event::BackgroundError { job, error } if *job == of => Some(error.clone()),
            _ => None,
        });
        errors.collect()
    }
}

fn get(family: &Family, key: &str) -> Option<Vec<u8>> {
    family.get(key).unwrap().map(|value| value.to_vec())
}

fn memtables(family: &Arc<Keyspace>) -> usize {
    family.view().memtables.len()
}

/// A sync after a flush does not sync the log, because the table holds the data. Without the
/// flush's edit, nothing holds it.
#[test]
fn what_only_a_table_holds_is_not_synced_before_damage_of_its_edit_is_known_for_damage() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("db").unwrap();
    let commit = db.put("key", "value").unwrap();
    let engine = db.engine();
    let end = engine.log.visible();
    db.flush().unwrap();
    while engine.log.durable() < end {
        engine.options.env.threads.sleep(Duration::from_millis(1));
    }
    db.sync_to(commit).unwrap();
    let left = fs.crashed(|_| 0);
    fixtures::damage_last_edit(&left, Path::new("db"));
    let error = over(&left).open("db").unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("sync marker"), "{error}");
}

#[test]
fn a_flush_moves_an_epoch_from_memory_and_log_into_one_table() {
    let mut held = Held::new();
    let (family, default) = (held.db.family("family").unwrap(), held.db.default_family());
    let (from, first_segments) = (held.replay_from(), held.segments());
    for round in 0..200u32 {
        family.put(format!("key {round}"), [7; 900]).unwrap();
    }
    held.db.put("key", "value").unwrap();
    let epoch = held.seal();
    assert_eq!((held.engine().flusher.queued_count(), held.replay_from()), (1, from));
    held.let_go();
    let engine = held.engine();
    assert_eq!(held.replay_from(), epoch.end());
    assert!(engine.epochs.list().sealed.is_empty());
    for (handle, id) in [(&default, 0), (&family, family.id())] {
        assert_eq!((memtables(handle.of(engine).unwrap()), held.slices(id)), (0, 1));
    }
    assert_eq!(get(&default, "key").unwrap(), b"value");
    assert_eq!(get(&family, "key 7").unwrap(), [7; 900]);
    assert!(first_segments[0].1 <= epoch.end(), "more than a segment was written");
    assert!(held.soon_holds_log_from(epoch.end()));
    let told = held.told.lock().clone();
    let flushed = told.iter().filter_map(|event| match event {
        Event::Flushed { file, families, bytes, took_us } => {
            Some((file.is_some(), *families, *bytes, *took_us))
        }
        _ => None,
    });
    let took_ns = engine.gauges.flush_ns.get();
    let table = &held.fs.list(Path::new(TABLES)).unwrap()[0].name;
    let path = Path::new(TABLES).join(table);
    let len = held.fs.open_read(&path, crate::vfs::FileAccess::Positional).unwrap().len();
    assert_eq!(flushed.collect::<Vec<_>>(), [(true, 2, len, took_ns / 1000)]);
    assert_eq!((engine.gauges.flushes.get(), engine.gauges.flush_bytes.get()), (1, len));
    assert!((3_000..BEGINNING_NS).contains(&took_ns));
    assert_eq!(engine.pacer.flush_pace(), (false, epoch.bytes() * 1_000_000_000 / took_ns));
}

#[test]
fn a_small_epoch_says_nothing_of_the_rate_of_flushes_once_that_is_known() {
    let db = over(&MemoryFs::new()).open("/db").unwrap();
    let rate_after = |len: u64| {
        db.put("key", vec![7; len as usize]).unwrap();
        db.flush().unwrap();
        db.engine().pacer.flush_pace().1
    };
    let first = rate_after(10);
    assert!(first > 0, "better than nothing");
    assert_eq!([rate_after(10), rate_after(1000)], [first; 2]);
    assert_ne!(rate_after(db.engine().options.buffer_len() / TELLING_SHARE), first);
}

#[test]
fn a_flush_returns_once_it_is_counted_and_told() {
    let (fs, heard) = (MemoryFs::new(), Arc::new(AtomicU64::new(0)));
    let hears = heard.clone();
    let listener = move |event: &Event| {
        if matches!(event, Event::Flushed { .. }) {
            thread::sleep(Duration::from_millis(50));
            hears.fetch_add(1, Ordering::Relaxed);
            panic!("planted");
        }
    };
    let db = over(&fs).on_event(listener).open("/db").unwrap();
    for round in 1..=3 {
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        assert_eq!((db.metrics().flushes, heard.load(Ordering::Relaxed)), (round, round));
        db.flush().unwrap();
        assert_eq!(db.metrics().flushes, round, "nothing was written since");
    }
}

#[test]
fn memory_is_free_for_writers_while_a_listener_is_told_of_the_flush() {
    let (may_go_on, go_on) = mpsc::channel::<()>();
    let go_on = Mutex::unranked(go_on);
    let listener = move |event: &Event| {
        if matches!(event, Event::Flushed { .. }) {
            let _ = go_on.lock().recv();
        }
    };
    let db = over(&MemoryFs::new()).on_event(listener).open("/db").unwrap();
    db.put("key", "value").unwrap();
    let sealed = seal_if_written(db.engine()).unwrap().unwrap();
    thread::scope(|scope| {
        assert!(soon(|| db.engine().epochs.list().sealed.is_empty()));
        let flushing = scope.spawn(|| db.flush());
        thread::sleep(Duration::from_millis(50));
        assert!(!flushing.is_finished() && db.engine().epochs.flushed() < sealed.id);
        drop(may_go_on);
        flushing.join().unwrap().unwrap();
    });
}

#[test]
fn a_flush_is_behind_while_more_than_one_epoch_waits_for_it() {
    let mut held = Held::new();
    let first = held.written("first");
    assert!(!held.engine().pacer.flush_pace().0);
    held.written("second");
    assert!(held.engine().pacer.flush_pace().0);
    flush_epoch(held.engine(), first).unwrap();
    assert!(!held.engine().pacer.flush_pace().0, "the second is next, and none waits behind it");
    held.let_go();
    assert!(held.engine().epochs.list().sealed.is_empty());
}

#[test]
fn an_epoch_whose_families_are_gone_ends_without_a_table() {
    let mut held = Held::new();
    let family = held.db.family("family").unwrap();
    family.put("key", "value").unwrap();
    held.db.drop_family(&family).unwrap();
    let epoch = held.seal();
    held.let_go();
    assert_eq!((held.replay_from(), held.tables()), (epoch.end(), 0));
    let is_it =
        |event: &Event| matches!(event, Event::Flushed { file: None, families: 0, bytes: 0, .. });
    assert!(held.told.lock().iter().any(is_it));
}

#[test]
fn a_family_that_is_dropped_while_its_table_is_written_takes_its_slice_with_it() {
    let mut held = Held::new();
    let family = held.db.family("family").unwrap();
    family.put("key", "value").unwrap();
    let epoch = held.written("kept");
    let (families, built) = held.built(&epoch);
    held.db.drop_family(&family).unwrap();
    install(held.engine(), &epoch, &families, (built.as_ref(), Entries::default()), 0).unwrap();
    held.engine().epochs.note_flushed(epoch.id);
    assert_eq!((held.replay_from(), held.slices(0)), (epoch.end(), 1));
    held.let_go();
    held.db.with(WriteOptions::sync()).put("more", "value").unwrap();
    let db = over(&held.fs.killed()).open("/db").unwrap();
    assert_eq!(db.list_families(), ["default"]);
    assert_eq!(get(&db.default_family(), "kept").unwrap(), b"value");
}

#[test]
fn no_edit_moves_the_start_of_replay_over_a_change_of_families_that_is_only_logged() {
    let held = Held::new();
    let from = held.replay_from();
    let epoch = held.written("key");
    let (families, built) = held.built(&epoch);
    thread::scope(|scope| {
        let changing = held.engine().families_pending.lock();
        let install =
            || install(held.engine(), &epoch, &families, (built.as_ref(), Entries::default()), 0);
        let installing = scope.spawn(install);
        thread::sleep(Duration::from_millis(100));
        assert!(!installing.is_finished() && held.replay_from() == from);
        drop(changing);
        installing.join().unwrap().unwrap();
    });
    held.engine().epochs.note_flushed(epoch.id);
    assert_eq!(held.replay_from(), epoch.end());
}

/// A commit of one put that is reserved but not yet in a memtable.
fn reserved(engine: &Engine) -> (Vec<u8>, wal::Reservation<'_>) {
    let mut record = vec![0; RECORD_HEADER_LEN];
    put_batch_prefix(&mut record, 1);
    put_op(&mut record, &Op { family: 0, kind: OpKind::Put, key: b"late", value: b"value" });
    let len = wal::seal(&mut record).len() as u64;
    (record, engine.log.reserve(len).unwrap())
}

#[test]
fn an_epoch_is_flushed_once_its_last_commit_is_in_it() {
    let mut held = Held::new();
    let engine = held.engine().clone();
    held.db.put("early", "value").unwrap();
    let (mut record, mut late) = reserved(&engine);
    held.release = None;
    thread::scope(|scope| {
        let sealing = scope.spawn(|| held.seal());
        thread::sleep(Duration::from_millis(100));
        assert_eq!((held.tables(), engine.gauges.flushes.get()), (0, 0));
        let epoch = engine.epochs.owner(late.start());
        engine.default_family.memtable_in(&epoch).insert(
            b"late",
            late.start(),
            OpKind::Put,
            b"value",
        );
        late.write(&mut wal::seal(&mut record));
        late.publish();
        sealing.join().unwrap();
    });
    held.let_go();
    let default = held.db.default_family();
    assert_eq!((memtables(&engine.default_family), held.slices(0)), (0, 1));
    assert_eq!(get(&default, "late").unwrap(), b"value");
}

#[test]
fn an_epoch_that_will_never_be_complete_is_not_flushed() {
    let held = Held::new();
    let (engine, from) = (held.engine().clone(), held.replay_from());
    held.db.put("early", "value").unwrap();
    let (_, late) = reserved(&engine);
    thread::scope(|scope| {
        let sealing = scope.spawn(|| seal_if_written(&engine).map(drop));
        assert!(soon(|| engine.epochs.list().sealed.len() == 1));
        engine.log.poison(&Error::planted());
        let epoch = engine.epochs.list().sealed[0].clone();
        assert_eq!(flush_epoch(&engine, epoch).unwrap_err().name(), "OUTCOME_UNKNOWN");
        drop(late);
        let _ = sealing.join().unwrap();
    });
    assert_eq!((held.replay_from(), held.tables()), (from, 0));
    assert_eq!(engine.epochs.list().sealed.len(), 1);
}

#[test]
fn an_edit_that_failed_for_good_installs_nothing() {
    let mut held = Held::new();
    let from = held.replay_from();
    held.written("key");
    let manifest = held.manifest();
    held.fs.inject(Fault::on(FileOp::Sync).suffix(&manifest));
    held.let_go();
    assert_eq!((held.slices(0), held.replay_from()), (0, from));
    assert_eq!(memtables(&held.engine().default_family), 1);
    assert_eq!(held.engine().epochs.list().sealed.len(), 1);
    assert_eq!(held.db.put("more", "value").unwrap_err().name(), "POISONED");
}

/// A new manifest would confirm the edit as well, so it finds no room either.
#[test]
fn log_segments_wait_for_the_next_flush_while_there_is_no_room_for_a_sync_marker() {
    let mut held = Held::new();
    let first = held.written("first");
    let needed = held.segments();
    let manifest = held.manifest();
    held.fs.inject(Fault::on(FileOp::Write).suffix(&manifest).nth(2));
    held.fs.inject(Fault::on(FileOp::Create).kind(io::ErrorKind::StorageFull).nth(2));
    held.let_go();
    assert_eq!((held.replay_from(), held.slices(0)), (first.end(), 1));
    assert_eq!(
        (held.errors(BackgroundJob::LogRecycling).len(), held.errors(BackgroundJob::Flush).len()),
        (1, 0)
    );
    thread::sleep(Duration::from_millis(50));
    assert_eq!(held.segments()[0], needed[0]);
    held.hold();
    let second = held.written("second");
    held.let_go();
    assert!(held.soon_holds_log_from(second.end()));
}

#[test]
fn a_sync_marker_that_fails_for_good_has_writes_refused_and_keeps_the_log() {
    let mut held = Held::new();
    let first = held.written("first");
    let needed = held.segments();
    let manifest = held.manifest();
    held.fs.inject(Fault::on(FileOp::Sync).suffix(&manifest).nth(2));
    held.let_go();
    assert_eq!((held.replay_from(), held.slices(0)), (first.end(), 1));
    assert_eq!(held.errors(BackgroundJob::Flush).len(), 1);
    thread::sleep(Duration::from_millis(50));
    assert_eq!(held.segments()[0], needed[0]);
    assert_eq!(held.db.put("more", "value").unwrap_err().name(), "POISONED");
}

/// A version from beyond the epoch's end would be read twice: from the table and from the log.
#[test]
fn an_epoch_that_holds_what_is_not_its_own_is_not_installed() {
    // Beyond the ceiling the manifest refuses it, too. Below it, only the flush knows.
    for beyond in [1 << 16, 1 << 40] {
        let mut held = Held::new();
        let (engine, from) = (held.engine(), held.replay_from());
        let memtable = engine.default_family.memtable_in(&engine.epochs.list().open);
        let late = engine.log.tail() + beyond;
        memtable.insert(b"late", late, crate::format::OpKind::Put, b"");
        held.written("key");
        held.let_go();
        assert_eq!(held.db.put("more", "value").unwrap_err().name(), "POISONED");
        assert_eq!(held.replay_from(), from);
        let db = over(&held.fs.killed()).open("/db").unwrap();
        assert_eq!(get(&db.default_family(), "key").unwrap(), b"value");
        assert!(get(&db.default_family(), "late").is_none());
    }
}

#[test]
fn what_a_range_delete_hides_is_written_only_for_a_reader_that_still_sees_it() {
    for (is_seen, expected) in [(false, 21), (true, 51)] {
        let db = over(&MemoryFs::new()).open("/db").unwrap();
        for key in 0..50u8 {
            db.put([key], "value").unwrap();
        }
        let snapshot = is_seen.then(|| db.snapshot());
        db.delete_range([10]..[40]).unwrap();
        db.put([20], "new").unwrap();
        db.flush().unwrap();
        let family = db.engine().families.by_id(DEFAULT_FAMILY).unwrap();
        assert_eq!(family.view().tree.runs[0].meta.entries, expected);
        assert_eq!(snapshot.map_or(50, |snapshot| snapshot.count(..).unwrap()), 50);
        assert_eq!(db.count(..).unwrap(), 21);
    }
}

/// Without the file a recovery would find the commit in the log, and not what it commits.
#[test]
fn a_transaction_that_is_committed_in_the_next_epoch_is_filed_with_its_own() {
    let mut held = Held::new();
    let tx = held.db.begin();
    tx.put("key", "value").unwrap();
    let prepared = tx.prepare("x").unwrap();
    held.seal();
    prepared.commit().unwrap();
    held.let_go();
    let db = over(&held.fs.killed()).open("/db").unwrap();
    assert_eq!(get(&db.default_family(), "key").unwrap(), b"value");
}

#[test]
fn a_flush_of_prepared_transactions_alone_fails_if_their_names_cannot_be_synced() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("/db").unwrap();
    let tx = db.begin();
    tx.put("key", "value").unwrap();
    drop(tx.prepare("x").unwrap());
    fs.inject(Fault::on(FileOp::SyncDir).suffix("table"));
    db.flush().unwrap_err();
    assert!(db.engine().versions.lock().state().prepared().is_empty());
}

/// An iterator may hold a memtable long after it is in a table.
#[test]
fn a_flushed_epoch_that_is_held_keeps_no_more_of_the_memory_than_it_took() {
    let env = Env { fs: Arc::new(MemoryFs::new()), ..Env::system() };
    let db = Options::new().memory(24 << 20).env(env).open("/db").unwrap();
    let spoken = || db.engine().epochs.pool().spoken();
    let (before, rest) = spoken();
    db.put("key", "value").unwrap();
    let held = db.range(..);
    db.flush().unwrap();
    let (after, _) = spoken();
    assert!(before < after && after < before + rest, "{before} {after} {rest}");
    drop(held);
}
