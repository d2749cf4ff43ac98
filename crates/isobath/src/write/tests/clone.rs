//! Clones of column families: what is in them and for whom, what they share and how long, what is
//! refused, and what a failure or a power cut leaves.

use super::open;
use crate::env::Env;
use crate::error::ConflictKind;
use crate::options::{FamilyOptions, Options, ReadOptions, TransactionOptions, WriteOptions};
use crate::tools;
use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
use crate::{Batch, Db, Error, ErrorKind, Expiry, Family, Isolation, Snapshot, Xid};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

fn rows(family: &Family) -> Content {
    let rows = family.range(..).map(|row| row.unwrap());
    rows.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn existing(db: &Db, name: &str) -> Family {
    db.family_if_exists(name).unwrap().unwrap()
}

fn env(fs: &MemoryFs) -> Env {
    Env { fs: Arc::new(fs.clone()), ..Env::system() }
}

fn verify(fs: &MemoryFs) {
    let report = tools::verify(Path::new("db"), &env(fs), &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

fn tables(fs: &MemoryFs) -> usize {
    fs.list(Path::new("db/table")).unwrap().len()
}

/// Waits until no thread of the database has work.
fn settle(db: &Db) {
    assert!(db.wait_for_compactions(Some(Duration::from_secs(60))).unwrap());
    db.engine().remove_obsolete_files();
}

/// Waits until there are so few tables: a thread of the database may be removing some.
fn await_tables(fs: &MemoryFs, at_most: usize) {
    let began = Instant::now();
    while tables(fs) > at_most {
        assert!(began.elapsed() < Duration::from_secs(60), "{} tables", tables(fs));
        thread::sleep(Duration::from_millis(1));
    }
}

/// A family with something of each kind, in tables and in memory.
fn filled(db: &Db, name: &str) -> Family {
    let options = FamilyOptions::new().separate_from(100).merge_operator("isobath.append");
    let family = db.family((name, options.block_size(512))).unwrap();
    for stage in 0..3u8 {
        for n in (stage..120).step_by(3) {
            family.put([n], [n; 20]).unwrap();
        }
        family.put([stage, 1], [stage; 500]).unwrap();
        family.merge("list", [b'0' + stage]).unwrap();
        family.put_ttl([stage, 2], "lasts", Duration::from_secs(1 << 20)).unwrap();
        family.put_ttl([stage, 3], "has ended", std::time::UNIX_EPOCH).unwrap();
        family.delete_range([60 + stage]..[70 + stage]).unwrap();
        family.delete([30 + stage]).unwrap();
        match stage {
            0 => family.compact(..).unwrap(),
            1 => db.flush().unwrap(),
            _ => {}
        }
    }
    family
}

#[test]
fn a_clone_holds_all_that_was_committed_in_memory_and_in_tables_and_goes_its_own_way() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let source = filled(&db, "source");
    let before = rows(&source);
    assert_eq!(before[&b"list"[..]], b"012");
    let clone = db.clone_family(&source, "clone").unwrap();
    assert_eq!((clone.name().as_str(), clone.options()), ("clone", source.options()));
    assert_eq!(db.list_families(), ["default", "source", "clone"]);
    let read_all = |clone: &Family| {
        assert_eq!(rows(clone), before);
        let backward: Vec<_> = clone.range(..).rev().map(|row| row.unwrap().0.to_vec()).collect();
        assert!(backward.iter().rev().eq(before.keys()));
        for n in 0..120u8 {
            let value = clone.get([n]).unwrap().map(|value| value.to_vec());
            assert_eq!(value.as_ref(), before.get(&[n][..]), "{n}");
        }
        assert_eq!(clone.count(..).unwrap(), before.len() as u64);
        assert!(matches!(clone.get_expiry([0, 2]).unwrap(), Some((_, Expiry::At(_)))));
    };
    read_all(&clone);
    source.put("later", "in the source").unwrap();
    source.delete_range(..[50]).unwrap();
    read_all(&clone);
    clone.merge("list", "3").unwrap();
    clone.put([1], "in the clone").unwrap();
    let of_source = rows(&source);
    assert_eq!(source.get("list").unwrap().unwrap(), b"012");
    let of_clone = rows(&clone);
    assert_eq!(of_clone[&b"list"[..]], b"0123");
    let check = |db: &Db| {
        assert_eq!(rows(&existing(db, "source")), of_source);
        assert_eq!(rows(&existing(db, "clone")), of_clone);
    };
    db.sync().unwrap();
    let killed = fs.killed();
    check(&open(&killed));
    db.compact().unwrap();
    settle(&db);
    check(&db);
    db.close().unwrap();
    verify(&fs);
    let db = open(&fs);
    check(&db);
    db.compact().unwrap();
    check(&db);
    let clone = existing(&db, "clone");
    assert_eq!(clone.options(), existing(&db, "source").options());
    db.close().unwrap();
    verify(&fs);
}

#[test]
fn clones_that_cannot_be_are_refused_and_nothing_is_written() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let (source, gone) = (db.family("source").unwrap(), db.family("gone").unwrap());
    db.drop_family(&gone).unwrap();
    db.put("in memory", "value").unwrap();
    let foreign = open(&MemoryFs::new()).family("foreign").unwrap();
    let state = || {
        let versions = db.engine().versions.lock();
        (db.engine().log.tail(), versions.state().next_family(), versions.state().replay_from())
    };
    let before = state();
    for name in ["", "a\nb", &"x".repeat(256)] {
        let told = db.clone_family(&source, name).unwrap_err();
        assert!(matches!(told.kind(), ErrorKind::InvalidArgument { .. }), "{told}");
    }
    for taken in ["default", "source"] {
        let told = db.clone_family(&source, taken).unwrap_err();
        assert!(
            matches!(told.kind(), ErrorKind::FamilyExists { name, .. } if name == taken),
            "{told}"
        );
    }
    let told = db.clone_family(&gone, "clone").unwrap_err();
    assert!(
        matches!(told.kind(), ErrorKind::UnknownFamily { name, .. } if name == "gone"),
        "{told}"
    );
    let told = db.clone_family(&foreign, "clone").unwrap_err();
    assert!(matches!(told.kind(), ErrorKind::InvalidArgument { .. }), "{told}");
    assert!(told.to_string().contains("another database"), "{told}");
    assert_eq!(state(), before);
    assert_eq!(db.list_families(), ["default", "source"]);
    db.sync().unwrap();
    let reader = Options::new().env(env(&fs.killed())).read_only(true).open("db").unwrap();
    for name in ["clone", "source"] {
        let told = reader.clone_family(&reader.default_family(), name).unwrap_err();
        assert!(matches!(told.kind(), ErrorKind::ReadOnly { .. }), "{told}");
    }
    let other = db.clone();
    db.close().unwrap();
    assert!(other.clone_family(&source, "clone").unwrap_err().is_closed());
}

#[test]
fn readers_from_before_a_clone_find_it_empty_and_those_after_it_see_it() {
    let fs = MemoryFs::new();
    let db = Options::new().env(env(&fs)).history(Duration::from_secs(3600)).open("db").unwrap();
    let source = db.family("source").unwrap();
    source.put("a", "1").unwrap();
    let (before, point) = (db.snapshot(), db.put("between", "value").unwrap());
    source.put("b", "2").unwrap();
    let clone = db.clone_family(&source, "clone").unwrap();
    let after = db.snapshot();
    clone.put("c", "3").unwrap();
    let seen = |snapshot: &Snapshot| {
        let of = snapshot.of(&clone);
        let keys = of.iter().map(|row| row.unwrap().0.to_vec()).collect::<Vec<_>>();
        let there = ["a", "b", "c"].map(|key| of.get(key).unwrap().is_some());
        assert_eq!(there.iter().filter(|there| **there).count(), keys.len());
        assert_eq!(of.count(..).unwrap(), keys.len() as u64);
        keys.len()
    };
    assert_eq!((seen(&db.snapshot_at(point).unwrap()), seen(&db.snapshot())), (0, 3));
    assert_eq!((seen(&before), seen(&after)), (0, 2));
    assert_eq!(before.of(&source).count(..).unwrap(), 1);
    db.compact().unwrap();
    assert_eq!((seen(&before), seen(&after)), (0, 2));
    // A range that an older reader passes teaches nothing about the clone.
    clone.delete_range(..).unwrap();
    for n in 0..200u8 {
        clone.put([n], "value").unwrap();
    }
    for n in 0..200u8 {
        clone.delete([n]).unwrap();
    }
    clone.put("c", "3").unwrap();
    assert_eq!(seen(&before), 0);
    assert_eq!(clone.count(..).unwrap(), 1);
    source.put("z", "0").unwrap();
    drop((before, after));
    db.close().unwrap();
    let db = Options::new().env(env(&fs)).history(Duration::from_secs(3600)).open("db").unwrap();
    let clone = existing(&db, "clone");
    let old = db.snapshot_at(point).unwrap();
    assert_eq!((old.of(&clone).count(..).unwrap(), clone.count(..).unwrap()), (0, 1));
    assert_eq!(old.of(&existing(&db, "source")).count(..).unwrap(), 1);
}

#[test]
fn a_transaction_from_before_a_clone_conflicts_if_it_has_read_there() {
    let db = open(&MemoryFs::new());
    let source = db.family("source").unwrap();
    source.put("key", "value").unwrap();
    for n in 0..8u8 {
        let serializable = TransactionOptions::new();
        let snapshot = TransactionOptions::new().isolation(Isolation::Snapshot);
        let [tx, blind, own] =
            [serializable, serializable, snapshot].map(|options| db.with(options).begin());
        db.put("other", [n]).unwrap();
        let clone = db.clone_family(&source, &format!("clone {n}")).unwrap();
        let of = tx.of(&clone);
        let is_a_locking_read = n == 4;
        match n {
            0 => assert!(of.get("key").unwrap().is_none()),
            1 => assert!(of.get("absent").unwrap().is_none()),
            2 => assert_eq!(of.range(..).count(), 0),
            3 => assert!(of.multi_get(["key"]).unwrap()[0].is_none()),
            4 => assert_eq!(of.get_for_update("key").unwrap().unwrap(), "value"),
            5 => assert!(!of.contains("key").unwrap()),
            6 => assert!(of.first().unwrap().is_none()),
            _ => assert_eq!(of.count(.."l").unwrap(), 0),
        }
        of.put("mine", "value").unwrap();
        let committed = tx.commit();
        match is_a_locking_read {
            true => drop(committed.unwrap()),
            false => {
                let told = committed.unwrap_err();
                let is_read = |kind: &ErrorKind| {
                    matches!(
                        kind,
                        ErrorKind::Conflict { kind: ConflictKind::Read | ConflictKind::Range, .. }
                    )
                };
                assert!(is_read(told.kind()), "{n}: {told}");
                assert!(clone.get("mine").unwrap().is_none());
            }
        }
        // What it writes there, it writes behind the clone.
        blind.of(&clone).put("blind", "value").unwrap();
        blind.commit().unwrap();
        own.of(&clone).put("key", "value").unwrap();
        let told = own.commit().unwrap_err();
        assert!(told.is_conflict(), "the first committer wins: {told}");
        let retried = db.transact(|tx| {
            let value = tx.of(&clone).get("key")?;
            tx.of(&clone).put("copy", value.as_deref().unwrap_or_default())
        });
        retried.unwrap();
        assert_eq!(clone.get("copy").unwrap().unwrap(), "value");
        assert_eq!(clone.get("blind").unwrap().unwrap(), "value");
    }
}

#[test]
fn what_a_transaction_in_doubt_has_written_is_not_in_a_clone() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let source = db.family("source").unwrap();
    source.put("committed", "value").unwrap();
    for xid in ["one", "two"] {
        let tx = db.begin();
        tx.of(&source).put(xid, "in doubt").unwrap();
        drop(tx.prepare(Xid::new(xid)).unwrap());
    }
    let clone = db.clone_family(&source, "clone").unwrap();
    db.commit_prepared(&Xid::new("one")).unwrap();
    let check = |db: &Db, count: u64| {
        assert_eq!(existing(db, "clone").count(..).unwrap(), 1);
        assert_eq!(existing(db, "source").count(..).unwrap(), count);
    };
    check(&db, 2);
    assert_eq!(clone.get("one").unwrap(), None);
    db.sync().unwrap();
    let db = open(&fs.killed());
    check(&db, 2);
    db.commit_prepared(&Xid::new("two")).unwrap();
    // The lock of a key in the source is none of the key in the clone.
    existing(&db, "clone").put("two", "value").unwrap();
    existing(&db, "clone").delete("two").unwrap();
    db.flush().unwrap();
    check(&db, 3);
}

#[test]
fn a_shared_file_stays_until_neither_family_needs_it() {
    for drops_source in [false, true] {
        for reopens in [false, true] {
            let fs = MemoryFs::new();
            let mut db = open(&fs);
            let source = filled(&db, "source");
            let before = rows(&source);
            source.compact(..).unwrap();
            settle(&db);
            let shared = tables(&fs);
            db.clone_family(&source, "clone").unwrap();
            assert!(tables(&fs) <= shared, "no byte of data is copied");
            drop(source);
            if reopens {
                db.close().unwrap();
                verify(&fs);
                db = open(&fs);
            }
            let (first, second) = match drops_source {
                true => ("source", "clone"),
                false => ("clone", "source"),
            };
            // One rewrites all that both have.
            let family = existing(&db, first);
            for n in 0..120u8 {
                family.put([n], [7; 30]).unwrap();
            }
            family.compact(..).unwrap();
            settle(&db);
            assert_eq!(rows(&existing(&db, second)), before);
            db.drop_family(&family).unwrap();
            settle(&db);
            assert_eq!(rows(&existing(&db, second)), before);
            // A collection may have joined what is left.
            await_tables(&fs, shared);
            if reopens {
                db.close().unwrap();
                verify(&fs);
                db = open(&fs);
                assert_eq!(rows(&existing(&db, second)), before);
            }
            db.drop_family(&existing(&db, second)).unwrap();
            settle(&db);
            await_tables(&fs, 0);
        }
    }
}

#[test]
fn a_clone_of_a_clone_shares_what_both_have_also_after_the_next_open() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let source = filled(&db, "source");
    let first = db.clone_family(&source, "first").unwrap();
    first.put("own", "value").unwrap();
    let second = db.clone_family(&first, "second").unwrap();
    assert_eq!(rows(&first), rows(&second));
    let bytes = |db: &Db| {
        let metrics = db.metrics();
        let sizes = metrics.families.iter().map(|family| family.total().disk_bytes);
        (sizes.sum::<u64>() - metrics.shared_bytes, metrics.shared_bytes, metrics.table_bytes())
    };
    let (once, shared, told) = bytes(&db);
    assert!(shared > once && told == once, "{shared} of {once}");
    db.drop_family(&source).unwrap();
    db.close().unwrap();
    let db = open(&fs);
    let [first, second] = ["first", "second"].map(|name| existing(&db, name));
    assert_eq!(rows(&first), rows(&second));
    let slices = |family: &Family| {
        let tree = family.of(db.engine()).unwrap().view().tree.clone();
        tree.iter().map(|(_, slice)| slice.clone()).collect::<Vec<_>>()
    };
    let both = std::iter::zip(slices(&first), slices(&second));
    assert!(both.fold(0, |n, (one, other)| n + u32::from(Arc::ptr_eq(&one, &other))) >= 2);
    let (once, shared, told) = bytes(&db);
    assert!((once, once) == (shared, told), "{shared} of {once}, {told}");
    first.compact(..).unwrap();
    second.compact(..).unwrap();
    assert_eq!(rows(&first), rows(&second));
}

#[test]
fn a_clone_made_under_way_is_one_moment_of_all_writers() {
    let db = open(&MemoryFs::new());
    let source = db.family("source").unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let is_done = || done.load(std::sync::atomic::Ordering::Relaxed);
    thread::scope(|scope| {
        for writer in 0..2u8 {
            let (db, source, is_done) = (&db, &source, &is_done);
            scope.spawn(move || {
                for n in 0u32.. {
                    let mut batch = Batch::new();
                    let of = &mut batch.of(source);
                    of.put([&[writer][..], &n.to_be_bytes()].concat(), [writer; 200]);
                    of.put([writer, b'n'], n.to_be_bytes());
                    db.write(batch).unwrap();
                    if is_done() {
                        break;
                    }
                }
            });
        }
        for nth in 0..6 {
            let newest = |family: &Family, writer: u8| {
                let value = family.get([writer, b'n']).unwrap();
                value.map(|value| u32::from_be_bytes(value.as_ref().try_into().unwrap()))
            };
            let before = [0, 1].map(|writer| newest(&source, writer));
            let clone = db.clone_family(&source, &format!("clone {nth}")).unwrap();
            for writer in 0..2u8 {
                let last = newest(&clone, writer);
                assert!(last >= before[writer as usize]);
                let rows = clone.prefix([writer]).count() as u32;
                assert_eq!(rows, last.map_or(0, |last| last + 2), "a prefix of its batches");
            }
            if nth % 2 == 0 {
                db.drop_family(&clone).unwrap();
            }
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_power_cut_or_a_failure_at_each_step_leaves_the_whole_clone_or_none() {
    let (mut without, mut with) = (0, 0);
    for nth in 1.. {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let source = filled(&db, "source");
        let before = rows(&source);
        db.sync().unwrap();
        let struck = fs.struck();
        fs.inject(Fault::on_any().nth(nth).forever());
        let cloned = db.clone_family(&source, "clone");
        let is_over = fs.struck() == struck;
        let states = [fs.killed(), fs.crashed(|_| 0), fs.crashed(|state| state.steps.len() / 2)];
        fs.clear_faults();
        for left in states {
            let db = open(&left);
            assert_eq!(rows(&existing(&db, "source")), before, "{nth}");
            match db.family_if_exists("clone").unwrap() {
                Some(clone) => assert_eq!(rows(&clone), before, "{nth}"),
                None => assert!(cloned.is_err(), "{nth}: it was there"),
            }
            with += u32::from(db.list_families().len() == 3);
            without += u32::from(db.list_families().len() == 2);
            db.family("later").unwrap().put("key", "value").unwrap();
            db.close().unwrap();
            verify(&left);
        }
        drop(db);
        if is_over {
            break;
        }
    }
    assert!(with > 0 && without > 0, "{with} and {without}");
}

#[test]
fn a_clone_waits_for_room_and_is_made_once() {
    // The edit of the flush is written before that of the clone.
    for (is_manifest, nth) in [(true, 1), (true, 2), (true, 3), (true, 4), (false, 1)] {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let source = filled(&db, "source");
        let mut names = fs.list(Path::new("db")).unwrap().into_iter().map(|entry| entry.name);
        let manifest = names.find(|name| name.contains("MANIFEST")).unwrap();
        let files = if is_manifest { &*manifest } else { ".tbl" };
        let fault = Fault::on(FileOp::Write).suffix(files).nth(nth);
        fs.inject(fault.kind(io::ErrorKind::StorageFull));
        match db.clone_family(&source, "clone") {
            Ok(clone) => assert_eq!(rows(&clone), rows(&source), "{files}"),
            Err(told) => {
                assert!(told.is_out_of_space(), "{told}");
                assert_eq!(db.list_families(), ["default", "source"]);
                db.clone_family(&source, "clone").unwrap();
            }
        }
        db.with(WriteOptions::sync()).put("key", "value").unwrap();
        let left = open(&fs.killed());
        assert_eq!(left.list_families(), ["default", "source", "clone"]);
        assert_eq!(rows(&existing(&left, "clone")), rows(&source));
    }
}

#[test]
fn a_clone_whose_edit_fails_for_good_has_an_unknown_outcome_and_is_the_last() {
    let mut told = Vec::new();
    for nth in 1.. {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let source = db.family("source").unwrap();
        source.put("key", "value").unwrap();
        db.flush().unwrap();
        // The first ones are those of the flush.
        fs.inject(Fault::on(FileOp::Sync).nth(nth).forever());
        let Err(error) = db.clone_family(&source, "clone") else { break };
        told.push(error.name());
        assert_eq!(db.put("key", "value").unwrap_err().name(), "POISONED", "{nth}");
        assert!(db.family_if_exists("clone").unwrap().is_none());
        assert_eq!(source.get("key").unwrap().unwrap(), "value");
        let left = open(&fs.killed());
        if let Some(clone) = left.family_if_exists("clone").unwrap() {
            assert_eq!(clone.get("key").unwrap().unwrap(), "value");
        }
    }
    assert!(told.starts_with(&["POISONED"]) && told.ends_with(&["OUTCOME_UNKNOWN"]), "{told:?}");
}

#[test]
fn a_clone_expires_and_filters_as_its_source_does() {
    let fs = MemoryFs::new();
    let options = || {
        Options::new().env(env(&fs)).compaction_filter(
            "no drafts",
            |entry: crate::FilterEntry<'_>| match entry.value {
                [b'd', ..] => crate::FilterVerdict::Remove,
                _ => crate::FilterVerdict::Keep,
            },
        )
    };
    let db = options().open("db").unwrap();
    let of = FamilyOptions::new().compaction_filter("no drafts").ttl(Duration::from_secs(1 << 20));
    let source = db.family(("source", of)).unwrap();
    source.put("draft", "d").unwrap();
    source.put("kept", "k").unwrap();
    let clone = db.clone_family(&source, "clone").unwrap();
    source.compact(..).unwrap();
    assert!(source.get("draft").unwrap().is_none());
    assert_eq!(clone.get("draft").unwrap().unwrap(), "d");
    clone.put("new", "value").unwrap();
    assert!(matches!(clone.get_expiry("new").unwrap(), Some((_, Expiry::At(_)))));
    let snapshot = db.snapshot();
    clone.compact(..).unwrap();
    assert_eq!(clone.with(ReadOptions::new()).get("kept").unwrap().unwrap(), "k");
    assert_eq!(snapshot.of(&clone).get("draft").unwrap().unwrap(), "d", "a snapshot sees it");
    drop(snapshot);
    clone.compact(..).unwrap();
    assert!(clone.get("draft").unwrap().is_none());
    let _: Result<_, Error> = db.drop_family(&source);
    db.close().unwrap();
    let db = options().open("db").unwrap();
    assert_eq!(existing(&db, "clone").count(..).unwrap(), 2);
}

/// Each bug is found by the test beside it, which runs on this thread.
#[cfg(feature = "simulation")]
#[test]
fn planted_bugs_of_clones_are_found() {
    use crate::env::planted::{Plant, plant_here};
    let found_by: [(Plant, fn()); 3] = [
        (
            Plant::CloneNotFlushed,
            a_clone_holds_all_that_was_committed_in_memory_and_in_tables_and_goes_its_own_way,
        ),
        (
            Plant::CloneSeenTooEarly,
            readers_from_before_a_clone_find_it_empty_and_those_after_it_see_it,
        ),
        (Plant::CloneNotJudged, a_transaction_from_before_a_clone_conflicts_if_it_has_read_there),
    ];
    for (bug, test) in found_by {
        plant_here(bug);
        let found = std::panic::catch_unwind(test).is_err();
        plant_here(Plant::Nothing);
        assert!(found, "{}", bug.name());
    }
}

/// Two records of changes at a time could each wait for the other: one for the record before its
/// own, one for the lock that the first holds.
#[test]
fn a_clone_logs_nothing_while_another_change_is_under_way() {
    let db = Options::in_memory().open("db").unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    let source = db.default_family();
    let other = db.engine().families_change.lock();
    let tail = db.engine().log.tail();
    thread::scope(|scope| {
        let cloning = scope.spawn(|| db.clone_family(&source, "clone").unwrap());
        thread::sleep(Duration::from_millis(50));
        let logged = db.engine().log.tail() - tail;
        drop(other);
        assert_eq!(rows(&cloning.join().unwrap()).len(), 1);
        assert_eq!(logged, 0);
    });
}
