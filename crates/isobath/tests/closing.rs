//! Tests closing a database while other threads use it. Every call returns, with its result or with
//! [`ErrorKind::Closed`]. Everything acknowledged is there at the next open. What was opened before
//! continues to read, or reports that it cannot.

use isobath::env::Env;
use isobath::vfs::MemoryFs;
use isobath::{Batch, Db, Error, ErrorKind, Family, Options, Result, Snapshot, WriteOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn over(fs: &MemoryFs) -> Options {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    Options::new().env(env).write_buffer(64 << 10).compaction_threads(1)
}

/// What a thread uses until the database is closed.
struct Tools {
    db: Db,
    family: Family,
    snapshot: Snapshot,
    round: AtomicU64,
}

type Call = fn(&Tools) -> Result<()>;

/// One call of each kind. A thread of its own makes each call again and again.
const CALLS: [(&str, Call); 20] = [
    ("put", |tools| tools.db.put("put", [7; 500]).map(drop)),
    ("put, synced", |tools| tools.db.with(WriteOptions::sync()).put("key", [8; 50]).map(drop)),
    ("put, failing fast", |tools| {
        let put = tools.db.with(WriteOptions::default().fail_fast(true)).put("key", [8; 50]);
        if matches!(put.as_ref().map_err(Error::name), Err("WOULD_STALL")) {
            Ok(())
        } else {
            put.map(drop)
        }
    }),
    ("put_in", |tools| tools.family.put("key", [9; 500]).map(drop)),
    ("batch", |tools| {
        let mut batch = Batch::new();
        for i in 0..50u8 {
            batch.put([i], [i; 100]).of(&tools.family).delete([i]);
        }
        tools.db.write(batch).map(drop)
    }),
    ("large put", |tools| tools.db.put("large", vec![1; 300 << 10]).map(drop)),
    ("sync_to", |tools| tools.db.sync_to(tools.db.put("synced", "value")?)),
    ("sync", |tools| tools.db.sync()),
    ("get", |tools| tools.db.get("key").map(drop)),
    ("multi_get", |tools| tools.db.multi_get(["key", "put", "none"]).map(drop)),
    ("range", |tools| tools.db.range(..).try_for_each(|item| item.map(drop))),
    ("cursor", |tools| {
        let mut cursor = tools.family.cursor(..)?;
        while let Some(entry) = cursor.prev()? {
            entry.value()?;
        }
        Ok(())
    }),
    ("snapshot", |tools| {
        tools.snapshot.get("key")?;
        tools.db.snapshot().of(&tools.family).get("key").map(drop)
    }),
    ("sync_to a snapshot", |tools| tools.db.sync_to(tools.db.snapshot().read_point())),
    ("flush", |tools| tools.db.flush()),
    ("compact", |tools| tools.db.compact()),
    ("wait_for_compactions", |tools| tools.db.wait_for_compactions(None).map(drop)),
    ("families", |tools| {
        let round = tools.round.fetch_add(1, Ordering::Relaxed);
        let family = tools.db.family(format!("guest {round}"))?;
        family.put("key", "value")?;
        tools.db.rename_family(&family, &format!("renamed {round}"))?;
        tools.db.drop_family(&family)
    }),
    ("compact_range, of a family", |tools| {
        let family = tools.db.family_if_exists("family")?.expect("there is one");
        family.compact("a".."z")
    }),
    ("metrics", |tools| {
        let _ = (tools.db.metrics(), tools.db.list_families(), tools.db.default_family());
        tools.db.get("key").map(drop)
    }),
];

/// Waits for threads that must end by themselves.
#[track_caller]
fn all_end(threads: Vec<(&str, thread::JoinHandle<()>)>) {
    let began = Instant::now();
    for (name, thread) in threads {
        while !thread.is_finished() {
            assert!(began.elapsed() < Duration::from_secs(300), "{name} hangs");
            thread::sleep(Duration::from_millis(5));
        }
        thread.join().unwrap_or_else(|_| panic!("{name} panicked"));
    }
}

fn until_closed(name: &'static str, call: Call, tools: &Tools) {
    loop {
        match call(tools) {
            Ok(()) => {}
            Err(error) if error.is_closed() => break,
            Err(error) => panic!("{name}: {error:?}"),
        }
    }
    // The call keeps failing.
    assert!(call(tools).as_ref().is_err_and(Error::is_closed), "{name} works after the close");
}

#[test]
fn every_call_returns_while_another_thread_closes() {
    for round in 0..8u64 {
        let fs = MemoryFs::new();
        let db = over(&fs).open("db").unwrap();
        let family = db.family("family").unwrap();
        for i in 0..200u32 {
            db.put(i.to_be_bytes(), [1; 300]).unwrap();
        }
        let snapshot = db.snapshot();
        let tools = Tools { db: db.clone(), family, snapshot, round: AtomicU64::new(0) };
        let tools = Arc::new(tools);
        let spawn = |(name, call): (&'static str, Call)| {
            let tools = tools.clone();
            (name, thread::spawn(move || until_closed(name, call, &tools)))
        };
        let threads = CALLS.into_iter().map(spawn).collect();
        thread::sleep(Duration::from_millis(5 + 40 * round));
        db.close().unwrap();
        all_end(threads);
        over(&fs).open("db").unwrap().close().unwrap();
    }
}

#[test]
fn what_was_acknowledged_before_a_close_is_there_after_it() {
    for round in 0..10u64 {
        let fs = MemoryFs::new();
        let db = over(&fs).open("db").unwrap();
        let writers: Vec<_> = (0..4u8)
            .map(|writer| {
                let db = db.clone();
                thread::spawn(move || {
                    for i in 0u32.. {
                        let value = [writer; 700];
                        match db.put([&[writer][..], &i.to_be_bytes()].concat(), value) {
                            Ok(_) => {}
                            Err(error) if error.is_closed() => return i,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    0
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(3 + 10 * round));
        db.close().unwrap();
        let acknowledged: Vec<u32> = writers.into_iter().map(|it| it.join().unwrap()).collect();
        let db = over(&fs).open("db").unwrap();
        for (writer, count) in acknowledged.into_iter().enumerate() {
            for i in 0..count {
                let key = [&[writer as u8][..], &i.to_be_bytes()].concat();
                assert_eq!(db.get(key).unwrap().unwrap(), [writer as u8; 700]);
            }
        }
    }
}

#[test]
fn the_last_handle_may_go_while_a_flush_and_compactions_run() {
    for round in 0..20u32 {
        let fs = MemoryFs::new();
        let db = over(&fs).open("db").unwrap();
        // Seals memtables again and again without waiting for the flush.
        for i in 0..(200 + 10 * round) {
            db.put((i % 100).to_be_bytes(), [round as u8; 1000]).unwrap();
        }
        if round % 2 == 0 {
            let flusher = db.clone();
            let thread = thread::spawn(move || match flusher.flush() {
                Ok(()) => {}
                Err(error) if error.is_closed() => {}
                Err(error) => panic!("{error}"),
            });
            drop(db);
            all_end(vec![("flush", thread)]);
        } else {
            drop(db);
        }
        let db = over(&fs).open("db").unwrap();
        assert_eq!(db.range(..).map(Result::unwrap).count(), 100);
    }
}

#[test]
fn ranges_and_cursors_that_outlive_the_database_say_closed_and_what_they_gave_stays() {
    for closes in [true, false] {
        let fs = MemoryFs::new();
        let db = over(&fs).open("db").unwrap();
        for i in 0..500u32 {
            db.put(i.to_be_bytes(), [i as u8; 200]).unwrap();
        }
        db.flush().unwrap();
        for i in 500..550u32 {
            db.put(i.to_be_bytes(), [i as u8; 200]).unwrap();
        }
        let snapshot = db.snapshot();
        let (fresh, mut begun) = (db.range(..), snapshot.range(..));
        let mut cursor = db.cursor(..).unwrap();
        let pinned = cursor.first().unwrap().unwrap().pin().unwrap();
        let given = [begun.next(), begun.next_back()].map(|item| item.unwrap().unwrap());
        if closes {
            db.close().unwrap();
            assert_eq!(snapshot.get("key").unwrap_err().name(), "CLOSED");
        } else {
            drop((db, snapshot));
        }
        // A second opening rewrites and removes the files that they read.
        let db = over(&fs).open("db").unwrap();
        for i in 0..550u32 {
            db.put(i.to_be_bytes(), "changed").unwrap();
        }
        db.compact().unwrap();
        db.close().unwrap();
        for mut range in [fresh, begun] {
            assert!(range.next_back().unwrap().unwrap_err().is_closed());
            assert!(range.next().is_none() && range.next_back().is_none());
        }
        let lent = cursor.entry().unwrap().value().unwrap();
        assert_eq!((&*pinned, lent), (&[0; 200][..], &[0; 200][..]));
        assert!(cursor.next().is_err_and(|error| error.is_closed()));
        assert!(cursor.last().is_err_and(|error| error.is_closed()));
        assert!(cursor.prev().is_err_and(|error| error.is_closed()));
        assert!(cursor.seek("key").is_err_and(|error| error.is_closed()));
        for ((key, value), i) in given.into_iter().zip([0u32, 549]) {
            assert_eq!((&*key, &*value), (&i.to_be_bytes()[..], &[i as u8; 200][..]));
        }
    }
}

#[test]
fn a_closed_database_answers_every_call_without_harm() {
    let fs = MemoryFs::new();
    let db = over(&fs).open("db").unwrap();
    let family = db.family("family").unwrap();
    let tools = Tools { db: db.clone(), family, snapshot: db.snapshot(), round: AtomicU64::new(0) };
    db.close().unwrap();
    let second = over(&fs).open("db").unwrap();
    for (name, call) in CALLS {
        assert!(call(&tools).as_ref().is_err_and(Error::is_closed), "{name}");
    }
    // Closing the old opening does not close the new one.
    tools.db.clone().close().unwrap();
    second.put("key", "value").unwrap();
    assert_eq!(over(&fs).open("db").unwrap_err().name(), "LOCKED");
    drop(tools);
    second.put("key", "value").unwrap();
    assert_eq!(over(&fs).open("db").unwrap_err().name(), "LOCKED");
    second.close().unwrap();
    over(&fs).open("db").unwrap();
}

#[test]
fn a_wait_for_compactions_that_a_close_cancels_says_closed() {
    for _ in 0..5 {
        let db = over(&MemoryFs::new()).open("db").unwrap();
        for i in 0..3000u32 {
            db.put((i % 1000).to_be_bytes(), [i as u8; 500]).unwrap();
        }
        let closer = db.clone();
        let closer = thread::spawn(move || closer.close());
        let waited = db.wait_for_compactions(None);
        closer.join().unwrap().unwrap();
        assert!(
            matches!(
                waited.as_ref().map_err(Error::kind),
                Ok(true) | Err(ErrorKind::Closed { .. })
            ),
            "{waited:?}"
        );
    }
}
