//! What one commit does: when it is acknowledged, what it refuses, and what a refused commit
//! leaves.

use super::{Content, content, open, refused};
use crate::batch::Batch;
use crate::env::Env;
use crate::env::fixtures::{Draw, TestThreads, soon};
use crate::env::sync::atomic::Ordering;
use crate::format::OpKind;
use crate::options::{Durability, Options, TransactionOptions, WriteOptions};
use crate::read_point::ReadPoint;
use crate::vfs::{Fault, FileOp, MemoryFs};
use crate::{Db, Error, ErrorKind, Family, StallCause};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

fn rows_of(family: &Family) -> Content {
    let rows = family.range(..).map(|row| row.unwrap());
    rows.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[test]
fn a_write_that_names_a_dropped_or_foreign_family_changes_nothing() {
    let (db, elsewhere) = (open(&MemoryFs::new()), open(&MemoryFs::new()));
    let (gone, kept) = (db.family("gone").unwrap(), db.family("kept").unwrap());
    let foreign = elsewhere.family("foreign").unwrap();
    let batch_with = |family: &Family| {
        let mut batch = Batch::new();
        batch.put("key", "value");
        batch.of(&kept).put("key", "value");
        batch.of(family).put("key", "value");
        batch
    };
    let (of_gone, of_foreign) = (batch_with(&gone), batch_with(&foreign));
    db.drop_family(&gone).unwrap();
    let tail = db.engine().log.tail();
    for refused in [gone.put("key", "1"), gone.delete("key"), db.write(of_gone)] {
        let is_named = matches!(
            refused.as_ref().map_err(Error::kind),
            Err(ErrorKind::UnknownFamily { name, .. }) if name == "gone"
        );
        assert!(is_named, "{refused:?}");
    }
    assert_eq!(db.write(of_foreign).unwrap_err().name(), "INVALID_ARGUMENT");
    assert_eq!(db.engine().log.tail(), tail);
    assert!(content(&db).is_empty() && rows_of(&kept).is_empty());
}

#[test]
fn a_value_that_is_too_long_is_told_of_before_a_family_that_is_gone() {
    let db = open(&MemoryFs::new());
    let gone = db.family("gone").unwrap();
    db.drop_family(&gone).unwrap();
    // Reserved addresses that are never touched.
    let len = crate::MAX_VALUE_LEN + 1;
    let value = memmap2::MmapOptions::new().len(len).no_reserve_swap().map_anon().unwrap();
    assert_eq!(gone.put("key", &value[..]).unwrap_err().name(), "INVALID_ARGUMENT");
    assert_eq!(gone.put("key", "value").unwrap_err().name(), "UNKNOWN_FAMILY");
}

#[test]
fn an_empty_batch_writes_nothing_and_stands_for_what_came_before() {
    let db = open(&MemoryFs::new());
    let last = db.put("key", "value").unwrap();
    let nothing = db.write(Batch::new()).unwrap();
    assert_eq!((nothing, db.engine().log.tail()), (last, last.point));
    db.sync_to(nothing).unwrap();
    assert_eq!(db.engine().log.durable(), last.point);
}

#[test]
fn a_commit_returns_only_once_every_commit_before_it_is_finished() {
    let db = open(&MemoryFs::new());
    let log = &db.engine().log;
    let unfinished = log.reserve(64).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| db.put("key", "value"));
        while log.tail() <= unfinished.end() {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(100));
        assert!(!writer.is_finished());
        drop(unfinished);
        let commit = writer.join().unwrap().unwrap();
        assert!(log.visible() >= commit.point);
    });
}

#[test]
fn a_commit_that_waits_when_the_writing_ends_has_an_unknown_outcome() {
    let db = open(&MemoryFs::new());
    let log = &db.engine().log;
    let unfinished = log.reserve(64).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| db.put("key", "value"));
        while log.tail() <= unfinished.end() {
            thread::yield_now();
        }
        log.poison(&Error::planted());
        let told = writer.join().unwrap();
        let is_told = matches!(
            told.as_ref().map_err(Error::kind),
            Err(ErrorKind::OutcomeUnknown { cause: why, .. }) if why.to_string().contains("planted")
        );
        assert!(is_told, "{told:?}");
    });
    drop(unfinished);
}

#[test]
fn a_commit_is_durable_when_it_returns_if_the_write_or_else_the_database_asks_for_it() {
    use Durability::*;
    for (of_database, of_write, is_durable) in [
        (Process, None, false),
        (Process, Some(Sync), true),
        (Sync, None, true),
        (Sync, Some(Process), false),
    ] {
        let db = Options::in_memory().durability(of_database).open("/db").unwrap();
        let options = WriteOptions { durability: of_write, ..WriteOptions::default() };
        let mut batch = Batch::new();
        batch.put("key", "value");
        for commit in [db.with(options).put("key", "value"), db.with(options).write(batch)] {
            let durable = db.engine().log.durable();
            assert_eq!(
                durable >= commit.unwrap().point,
                is_durable,
                "{of_database:?} {of_write:?}"
            );
        }
        db.sync().unwrap();
        assert_eq!(db.engine().log.durable(), db.engine().log.tail());
    }
}

#[test]
fn a_commit_whose_sync_fails_is_not_acknowledged_and_the_last() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let before = db.put("before", "1").unwrap();
    fs.inject(Fault::on(FileOp::SyncRange).forever());
    let told = db.with(WriteOptions::sync()).put("key", "value");
    assert!(
        matches!(told.as_ref().map_err(Error::name), Err("OUTCOME_UNKNOWN" | "POISONED")),
        "{told:?}"
    );
    fs.clear_faults();
    assert_eq!(db.put("later", "2").unwrap_err().name(), "POISONED");
    assert_eq!(db.write(Batch::new()).unwrap_err().name(), "POISONED");
    assert!(db.sync_to(before).is_err() && db.sync().is_err());
    assert_eq!(db.get("before").unwrap().unwrap(), b"1");
    // It was visible before its sync and stays visible, but it never counts as durable.
    assert_eq!(db.get("key").unwrap().unwrap(), b"value");
    assert_eq!(db.sync_to(db.snapshot().read_point()).unwrap_err().name(), "OUTCOME_UNKNOWN");
}

#[test]
fn a_point_made_of_any_bytes_is_waited_for_if_the_log_reaches_it() {
    let db = open(&MemoryFs::new());
    let commit = db.put("key", "value").unwrap();
    let bytes = ReadPoint::from(commit).to_bytes();
    let end = commit.point;
    for lsn in [0, 1, end - 1, end, end + 1, u64::MAX] {
        let moved = [&lsn.to_be_bytes()[..], &bytes[8..]].concat();
        let point = ReadPoint::from_bytes(moved.try_into().unwrap());
        assert_eq!(db.sync_to(point).is_ok(), lsn <= end, "{lsn}");
    }
    let before = db.snapshot();
    let after = db.put("key", "other").unwrap();
    assert!(before.read_point() == commit.into() && before.read_point() < after.into());
}

#[test]
fn a_closed_database_takes_no_commit_and_syncs_none() {
    let db = open(&MemoryFs::new());
    let commit = db.with(WriteOptions::sync()).put("key", "value").unwrap();
    let engine = db.engine().clone();
    db.close().unwrap();
    let family = &engine.default_family;
    let options = WriteOptions::default();
    let put = crate::write::commit_one(&engine, family, OpKind::Put, b"key", b"value", options);
    assert!(put.as_ref().is_err_and(Error::is_closed));
    assert_eq!(crate::write::sync_to(&engine, commit.into()).unwrap_err().name(), "CLOSED");
    assert_eq!(crate::write::sync_to_lsn(&engine, commit.point).unwrap_err().name(), "CLOSED");
}

#[test]
fn who_would_sync_a_readers_log_is_told_that_it_is_one_until_it_is_closed() {
    let fs = MemoryFs::new();
    let writer = open(&fs);
    let commit = writer.put("key", "value").unwrap();
    writer.close().unwrap();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let reader = Options::new().read_only(true).env(env).open("db").unwrap();
    let engine = reader.engine().clone();
    let refusals = || {
        let point = commit.into();
        let outcomes = [
            crate::write::sync_to(&engine, point),
            crate::write::on_durable(&engine, point, Box::new(|_| panic!("it does not run"))),
            crate::write::sync_to_lsn(&engine, commit.point),
        ];
        outcomes.map(|outcome| outcome.unwrap_err().name())
    };
    assert_eq!(refusals(), ["READ_ONLY"; 3]);
    reader.close().unwrap();
    assert_eq!(refusals(), ["CLOSED"; 3]);
}

/// Few keys, some with the same first bytes, so that operations of one batch often share a key.
#[test]
fn batches_of_any_length_over_any_families_do_what_their_operations_say_in_turn() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let names = ["default", "one", "two"];
    names[1..].iter().for_each(|name| drop(db.family(*name).unwrap()));
    let families = names.map(|name| db.family_if_exists(name).unwrap().unwrap());
    let mut expected: [Content; 3] = Default::default();
    let mut draw = Draw::new(7);
    let mut draw = |below: u64| draw.below(below);
    for round in 0..300_u32 {
        let mut batch = Batch::new();
        for nth_op in 0..draw(10) {
            let nth = draw(3) as usize;
            let prefix = ["", "the same", "b"][draw(3) as usize];
            let key = format!("{prefix}{}", draw(4)).into_bytes();
            if draw(4) == 0 {
                batch.of(&families[nth]).delete(&key);
                expected[nth].remove(&key);
            } else {
                let value = format!("{round} {nth_op}").into_bytes();
                batch.of(&families[nth]).put(&key, &value);
                expected[nth].insert(key, value);
            }
        }
        db.write(batch).unwrap();
        for (family, expected) in families.iter().zip(&expected) {
            assert_eq!(&rows_of(family), expected, "round {round}");
        }
        if round % 100 == 50 {
            db.flush().unwrap();
        }
    }
    let db = open(&fs.killed());
    for (name, expected) in names.iter().zip(&expected) {
        assert_eq!(&rows_of(&db.family_if_exists(name).unwrap().unwrap()), expected);
    }
    refused(&db, open(&MemoryFs::new()).put("key", "value").unwrap(), "another database");
}

/// A database whose compactions are so far behind that a write would wait for more than an hour,
/// and what tells of each wait.
fn far_behind() -> (Db, Receiver<()>) {
    let (slept, sleeps) = channel();
    let slept = crate::env::sync::Mutex::unranked(slept);
    let before_sleep = Box::new(move || {
        let _ = slept.lock().send(());
    });
    let threads = Arc::new(TestThreads { before_sleep, ..TestThreads::default() });
    let fs = Arc::new(MemoryFs::new());
    let db = Options::new().env(Env { fs, threads, ..Env::system() }).open("db").unwrap();
    let pacer = &db.engine().pacer;
    pacer.set_compactions(1.0, 1e6);
    pacer.admit(1 << 30, true, || 0.0).unwrap();
    (db, sleeps)
}

#[test]
fn a_write_that_is_slowed_down_is_told_at_once_when_the_writing_ends() {
    for (end, told) in [("a failure", "POISONED"), ("a close", "CLOSED")] {
        let (db, sleeps) = far_behind();
        let (writer, (answered, answer)) = (db.clone(), channel());
        thread::spawn(move || answered.send(writer.put("key", "value")));
        sleeps.recv_timeout(Duration::from_secs(60)).unwrap();
        match end {
            "a failure" => db.engine().log.poison(&Error::planted()),
            _ => db.close().unwrap(),
        }
        let outcome = answer.recv_timeout(Duration::from_secs(120)).expect(end);
        assert_eq!(outcome.unwrap_err().name(), told);
    }
}

/// Others would wait for the pace of one after the other.
#[test]
fn a_commit_that_holds_locks_is_slowed_down_once_it_has_given_them_back() {
    let (db, sleeps) = far_behind();
    let pacer = &db.engine().pacer;
    let (writer, (answered, answer)) = (db.clone(), channel());
    thread::spawn(move || {
        let tx = writer.begin();
        tx.get_for_update("key").unwrap();
        tx.put("key", "value").unwrap();
        answered.send(tx.commit().map(drop))
    });
    sleeps.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), "value");
    let hasty = TransactionOptions::new().write(WriteOptions::new().fail_fast(true));
    assert!(db.with(hasty).begin().get_for_update("key").unwrap().is_some());
    assert!(answer.try_recv().is_err());
    pacer.set_compactions(0.0, 1e6);
    answer.recv_timeout(Duration::from_secs(120)).unwrap().unwrap();
    let paced = &pacer.stalls()[StallCause::CompactionBehind as usize].count;
    assert_eq!(paced.load(Ordering::Relaxed), 1);
}

#[test]
fn a_synced_write_of_nothing_makes_the_writes_before_it_durable() {
    let db = open(&MemoryFs::new());
    let synced = db.with(WriteOptions::sync());
    let log = &db.engine().log;
    let writes: [&dyn Fn() -> crate::Result<()>; 5] = [
        &|| synced.write(Batch::new()).map(drop),
        &|| synced.delete_range("a".."a").map(drop),
        &|| synced.pop_first("x".."y").map(drop),
        &|| synced.set_expiry("none", crate::Expiry::Never).map(drop),
        &|| synced.put_if("key", Some(b"other"), "new").map(drop),
    ];
    for (nth, write) in writes.iter().enumerate() {
        db.put("key", "value").unwrap();
        assert!(log.durable() < log.visible());
        write().unwrap();
        assert_eq!(log.durable(), log.visible(), "write {nth}");
    }
    // What asks for no more than it gets by default syncs nothing.
    let commit = db.put("key", "value").unwrap();
    assert_eq!(db.write(Batch::new()).unwrap(), commit);
    assert_eq!(db.delete_range("a".."a").unwrap(), commit);
    assert!(log.durable() < log.visible());
}

#[test]
fn a_commit_that_is_not_to_wait_takes_no_place_behind_one_that_waits_for_the_disk() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    fs.inject(Fault::on(FileOp::CopyIn).kind(std::io::ErrorKind::StorageFull).forever());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| db.put("waits", "1"));
        while fs.struck() == 0 {
            std::thread::yield_now();
        }
        let tail = db.engine().log.tail();
        let prompt =
            scope.spawn(|| db.with(WriteOptions::new().fail_fast(true)).put("prompt", "1"));
        let is_prompt = soon(|| prompt.is_finished());
        let now = db.engine().log.tail();
        fs.clear_faults();
        waits.join().unwrap().unwrap();
        assert!(is_prompt && now == tail, "it waits behind another");
        assert_eq!(prompt.join().unwrap().unwrap_err().name(), "WOULD_STALL");
    });
    db.with(WriteOptions::new().fail_fast(true)).put("prompt", "2").unwrap();
    assert_eq!(db.get("prompt").unwrap().unwrap(), b"2");
}

#[test]
fn of_two_clones_of_one_name_at_once_the_second_is_refused_and_nothing_else() {
    let db = Options::in_memory().open("db").unwrap();
    db.put("key", "value").unwrap();
    let source = db.default_family();
    let other = db.engine().families_change.lock();
    let outcomes = std::thread::scope(|scope| {
        let cloning = [0, 1].map(|_| scope.spawn(|| db.clone_family(&source, "clone").map(drop)));
        std::thread::sleep(Duration::from_millis(100));
        drop(other);
        cloning.map(|cloning| cloning.join().unwrap())
    });
    let refused: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert!(refused.len() == 1 && refused[0].name() == "FAMILY_EXISTS", "{refused:?}");
    db.put("key", "another").unwrap();
}
