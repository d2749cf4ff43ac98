//! Transactions that write more than memory may hold.

use super::{assert_at_rest, begin};
use crate::env::Env;
use crate::options::{Isolation, Options};
use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
use crate::{Db, Family, Transaction};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A database whose transactions hold 32 KiB in memory.
fn over(fs: &MemoryFs) -> Options {
    Options::new().write_buffer(64 << 10).env(Env { fs: Arc::new(fs.clone()), ..Env::system() })
}

fn open(fs: &MemoryFs) -> Db {
    over(fs).open("/db").unwrap()
}

fn spill_files(fs: &MemoryFs) -> usize {
    let dir = Path::new("/db/spill");
    if fs.exists(dir).unwrap() { fs.list(dir).unwrap().len() } else { 0 }
}

fn key(n: u32) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

/// Puts keys until there are so many spill files.
fn fill(fs: &MemoryFs, tx: &Transaction, count: usize) -> u32 {
    for n in 0..10_000 {
        tx.put(key(n), [7; 200]).unwrap();
        if spill_files(fs) == count {
            return n + 1;
        }
    }
    panic!("nothing is spilled");
}

fn rows(range: crate::Range<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    range.map(Result::unwrap).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

#[test]
fn what_was_spilled_is_read_and_commits_at_one_point_and_the_files_go() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    db.put(key(3), "before").unwrap();
    let snapshot = db.snapshot();
    let tx = db.begin();
    let count = fill(&fs, &tx, 3);
    for n in (0..count).step_by(17) {
        assert_eq!(tx.get(key(n)).unwrap().unwrap(), [7; 200]);
    }
    assert!(tx.contains(key(1)).unwrap() && tx.get(key(count)).unwrap().is_none());
    assert_eq!(tx.multi_get([key(0), key(count)]).unwrap()[0].as_deref(), Some(&[7; 200][..]));
    tx.put(key(5), "newer").unwrap();
    tx.delete(key(6)).unwrap();
    assert_eq!(tx.count(..).unwrap(), u64::from(count) - 1);
    assert_eq!(tx.get(key(5)).unwrap().unwrap(), "newer");
    assert_eq!(tx.pop_first(..).unwrap().unwrap().0, key(0));
    assert_eq!(tx.last().unwrap().unwrap().0, key(count - 1));
    assert!(db.get(key(3)).unwrap().unwrap() == "before" && db.count(..).unwrap() == 1);
    let (begun, tail) = (db.metrics().transactions_committed, db.engine().log.tail());
    tx.commit().unwrap();
    db.flush().unwrap();
    assert_eq!((db.metrics().transactions_committed, spill_files(&fs)), (begun + 1, 0));
    assert!(db.engine().log.tail() > tail);
    assert_eq!(db.count(..).unwrap(), u64::from(count) - 2);
    assert_eq!(db.get(key(5)).unwrap().unwrap(), "newer");
    assert_eq!(snapshot.count(..).unwrap(), 1);
    drop(snapshot);
    assert_at_rest(db.engine());
    let db = open(&fs.killed());
    assert_eq!(db.count(..).unwrap(), u64::from(count) - 2);
}

#[test]
fn a_transaction_that_ends_without_a_commit_leaves_no_file_and_nothing_written() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let tx = db.begin();
    fill(&fs, &tx, 2);
    tx.rollback();
    assert_eq!(spill_files(&fs), 0);
    let mut tx = db.begin();
    fill(&fs, &tx, 1);
    tx.reset();
    assert!((spill_files(&fs), tx.count(..).unwrap()) == (0, 0));
    fill(&fs, &tx, 2);
    // What is still read stays.
    let mut rows = tx.iter();
    assert_eq!(rows.next().unwrap().unwrap().0, key(0));
    drop(rows);
    drop(tx);
    assert!(spill_files(&fs) == 0 && db.count(..).unwrap() == 0);
    assert_at_rest(db.engine());
}

#[test]
fn a_crash_before_the_commit_leaves_files_that_the_next_open_removes() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    db.put("kept", "value").unwrap();
    let tx = db.begin();
    fill(&fs, &tx, 3);
    let left = fs.killed();
    assert_eq!(spill_files(&left), 3);
    let env = || Env { fs: Arc::new(left.clone()), ..Env::system() };
    let report = crate::tools::verify(Path::new("/db"), &env(), &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    left.remove(Path::new("/db/CURRENT")).unwrap();
    let with = crate::tools::RepairOptions::new().env(env());
    let mut go_on = |_, _| std::ops::ControlFlow::Continue(());
    crate::tools::repair(Path::new("/db"), &with, &mut go_on).unwrap();
    let db = open(&left);
    assert_eq!((spill_files(&left), db.count(..).unwrap()), (0, 1));
}

#[test]
fn one_that_outlives_its_opening_touches_no_file_of_a_later_one() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let late = db.begin();
    fill(&fs, &late, 2);
    db.close().unwrap();
    let db = open(&fs);
    assert_eq!(spill_files(&fs), 0);
    let tx = db.begin();
    let count = fill(&fs, &tx, 2);
    drop(late);
    assert_eq!(spill_files(&fs), 2);
    tx.commit().unwrap();
    assert_eq!(db.count(..).unwrap(), u64::from(count));
}

#[test]
fn a_spilled_transaction_conflicts_as_any_other_and_locks_what_it_locked() {
    for level in [Isolation::Snapshot, Isolation::Serializable] {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let tx = begin(&db, level);
        if level == Isolation::Serializable {
            assert!(tx.get("read").unwrap().is_none());
        }
        fill(&fs, &tx, 2);
        // In the first spill file, or read before it.
        let changed = if level == Isolation::Snapshot { key(1) } else { b"read".to_vec() };
        db.put(changed, "theirs").unwrap();
        let told = tx.commit().unwrap_err();
        assert!(told.is_conflict(), "{told}");
        assert_eq!((spill_files(&fs), db.count(..).unwrap()), (0, 1));
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_rerun_has_the_limit_of_the_first_run() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let mut attempts = 0;
    let told = db.transact(|tx| {
        attempts += 1;
        tx.get("read")?;
        fill(&fs, tx, 2);
        if attempts == 1 {
            db.put("read", "theirs")?;
        }
        Ok(())
    });
    told.unwrap();
    db.flush().unwrap();
    assert_eq!((attempts, spill_files(&fs)), (2, 0));
    assert_at_rest(db.engine());
}

#[test]
fn what_a_savepoint_may_go_back_to_stays_in_memory() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let tx = db.begin();
    let count = fill(&fs, &tx, 1);
    tx.savepoint("here").unwrap();
    let mut refused = None;
    for n in count.. {
        if let Err(error) = tx.put(key(n), [1; 200]) {
            refused = Some(error);
            break;
        }
    }
    assert_eq!((refused.unwrap().name(), spill_files(&fs)), ("TRANSACTION_TOO_LARGE", 1));
    tx.rollback_to("here").unwrap();
    assert_eq!(tx.count(..).unwrap(), u64::from(count));
    tx.release("here").unwrap();
    for n in 0..count {
        tx.put(key(n), [2; 200]).unwrap();
    }
    assert_eq!(spill_files(&fs), 2);
    tx.commit().unwrap();
    assert!(db.iter().all(|row| row.unwrap().1 == [2; 200]));
    assert_eq!(db.count(..).unwrap(), u64::from(count));
}

#[test]
fn many_spill_files_become_few_and_what_was_spilled_is_not_prepared() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let side = db.family("side").unwrap();
    for n in [70, 3955] {
        db.put(key(n), "beneath").unwrap();
    }
    let (tx, mut most) = (db.begin(), 0);
    // Each spill file has a version of the first key, and deletes a range of what is older.
    let end = 4000;
    for n in 1..=end {
        tx.put(key(n), [7; 300]).unwrap();
        tx.put(key(0), n.to_be_bytes()).unwrap();
        if n % 100 == 0 {
            tx.delete_range(key(n - 50)..key(n - 40)).unwrap();
            tx.delete(key(n - 30)).unwrap();
            tx.of(&side).put(key(n), "side").unwrap();
        }
        most = most.max(spill_files(&fs));
    }
    let expected = u64::from(end + 1 - end / 100 * 11);
    // One more while several become one.
    assert!(most <= crate::limits::SPILL_FILES_MAX + 1, "{most}");
    assert_eq!(tx.count(..).unwrap(), expected);
    assert_eq!(tx.first().unwrap().unwrap().1, end.to_be_bytes());
    assert_eq!(tx.get(key(0)).unwrap().unwrap(), end.to_be_bytes());
    assert!(tx.get(key(70)).unwrap().is_none() && tx.get(key(3955)).unwrap().is_none());
    tx.commit().unwrap();
    assert_eq!(db.count(..).unwrap(), expected);
    assert_eq!(side.count(..).unwrap(), 40);
    db.flush().unwrap();
    assert_eq!((db.count(..).unwrap(), spill_files(&fs)), (expected, 0));
    let tx = db.begin();
    fill(&fs, &tx, 1);
    let told = tx.prepare("x").map(drop).unwrap_err();
    assert_eq!(told.name(), "TRANSACTION_TOO_LARGE", "{told}");
    assert!(spill_files(&fs) == 0 && db.in_doubt().is_empty());
    assert_at_rest(db.engine());
}

#[test]
fn a_disk_that_fails_refuses_the_write_and_the_transaction_goes_on() {
    for op in [FileOp::Create, FileOp::Write, FileOp::Sync] {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let tx = db.begin();
        fs.inject(Fault::on(op).kind(std::io::ErrorKind::StorageFull).forever());
        let mut written = 0;
        let told = loop {
            match tx.put(key(written), [7; 200]) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(told.io_kind().is_some(), "{told}");
        fs.clear_faults();
        assert_eq!((spill_files(&fs), tx.count(..).unwrap()), (0, u64::from(written)), "{op:?}");
        tx.put(key(written), "more").unwrap();
        assert_eq!(spill_files(&fs), 1);
        tx.commit().unwrap();
        assert_eq!(db.count(..).unwrap(), u64::from(written) + 1);
        assert_at_rest(db.engine());
    }
}

#[test]
fn a_commit_that_cannot_read_its_files_writes_nothing() {
    let fs = MemoryFs::new();
    let db = over(&fs).block_cache(0).open("/db").unwrap();
    let tx = db.begin();
    fill(&fs, &tx, 1);
    fs.inject(Fault::on(FileOp::Read).forever());
    let told = tx.commit().unwrap_err();
    assert!(told.io_kind().is_some(), "{told}");
    fs.clear_faults();
    assert!(spill_files(&fs) == 0 && db.count(..).unwrap() == 0);
    assert_at_rest(db.engine());
}

/// Numbers that follow from a seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn key(&mut self) -> Vec<u8> {
        vec![b'a' + self.below(26) as u8, self.below(8) as u8]
    }
}

fn check(tx: &Transaction, families: &[Family; 2], maps: &[Map; 2], rng: &mut Rng) {
    for (family, map) in families.iter().zip(maps) {
        let part = tx.of(family);
        let (mut from, mut to) = (rng.key(), rng.key());
        if from > to {
            (from, to) = (to, from);
        }
        let bounds = (Bound::Included(from), Bound::Excluded(to));
        let want: Vec<_> = map.range::<Vec<u8>, _>(bounds.clone()).collect();
        let got = rows(part.range(bounds.clone()));
        assert!(got.iter().map(|(key, value)| (key, value)).eq(want.iter().copied()));
        let mut back: Vec<_> =
            part.range(bounds).rev().map(|row| row.unwrap().0.to_vec()).collect();
        back.reverse();
        assert!(back.iter().eq(want.iter().map(|(key, _)| *key)));
        let sought = rng.key();
        let mut cursor = part.cursor(..).unwrap();
        cursor.seek(&sought).unwrap();
        let next = map.range(sought.clone()..).next().map(|(key, _)| &key[..]);
        assert_eq!(cursor.entry().map(|entry| entry.key()), next);
        let value = part.get(&sought).unwrap();
        assert_eq!(value.as_deref(), map.get(&sought).map(Vec::as_slice));
    }
}

#[test]
fn drawn_transactions_with_range_deletes_see_and_commit_what_a_map_has() {
    for seed in 1..7 {
        let (fs, mut rng) = (MemoryFs::new(), Rng(seed));
        let db = open(&fs);
        let families = [db.default_family(), db.family("side").unwrap()];
        let mut maps: [Map; 2] = Default::default();
        for _ in 0..3 {
            let tx = db.begin();
            let mut most = 0;
            for step in 0..600u32 {
                let at = rng.below(2) as usize;
                let (part, map) = (tx.of(&families[at]), &mut maps[at]);
                let key = rng.key();
                match rng.below(24) {
                    0 => {
                        let to = [&key[..], &[1]].concat();
                        let to = if rng.below(4) == 0 { vec![key[0] + 2] } else { to };
                        part.delete_range(key.clone()..to.clone()).unwrap();
                        map.retain(|other, _| *other < key || *other >= to);
                    }
                    1..5 => {
                        part.delete(&key).unwrap();
                        map.remove(&key);
                    }
                    _ => {
                        let mut value = step.to_be_bytes().to_vec();
                        value.resize(20 + rng.below(600) as usize, 0);
                        part.put(&key, &value).unwrap();
                        map.insert(key, value);
                    }
                }
                most = most.max(spill_files(&fs));
                if step % 25 == 0 {
                    check(&tx, &families, &maps, &mut rng);
                }
            }
            assert!(most >= 3, "{most}");
            tx.commit().unwrap();
            for (family, map) in families.iter().zip(&maps) {
                let got: Map = rows(family.range(..)).into_iter().collect();
                assert!(got == *map, "seed {seed}");
            }
        }
        assert_at_rest(db.engine());
    }
}

#[test]
fn operands_stay_in_memory_and_merges_find_what_was_spilled() {
    let fs = MemoryFs::new();
    let db = over(&fs).family(crate::FamilyOptions::new().merge_operator("isobath.append"));
    let db = db.open("/db").unwrap();
    db.put("merged", "old").unwrap();
    let tx = db.begin();
    tx.put("spilled", "a").unwrap();
    let count = fill(&fs, &tx, 1);
    // What the database has of the key is not what the transaction has put.
    tx.merge("spilled", "b").unwrap();
    assert_eq!(tx.get("spilled").unwrap().unwrap(), "ab");
    tx.commit().unwrap();
    assert_eq!(db.get("spilled").unwrap().unwrap(), "ab");

    let tx = db.begin();
    tx.merge("merged", "er").unwrap();
    let refused = (0..count + 1).find_map(|n| tx.put(key(n), [8; 200]).err());
    assert_eq!(refused.unwrap().name(), "TRANSACTION_TOO_LARGE");
    assert_eq!(spill_files(&fs), 0);
    tx.commit().unwrap();
    assert_eq!(db.get("merged").unwrap().unwrap(), "older");
    assert_at_rest(db.engine());
}

#[test]
fn a_merge_behind_a_spill_is_a_put_so_that_the_transaction_spills_again() {
    let fs = MemoryFs::new();
    let db = over(&fs).family(crate::FamilyOptions::new().merge_operator("isobath.append"));
    let db = db.open("/db").unwrap();
    db.put("merged", "old").unwrap();
    let tx = db.begin();
    let count = fill(&fs, &tx, 1);
    tx.merge("merged", "er").unwrap();
    tx.merge("alone", "new").unwrap();
    for n in count..3 * count {
        tx.put(key(n), [8; 200]).unwrap();
    }
    assert!(spill_files(&fs) >= 2, "{}", spill_files(&fs));
    tx.merge("merged", " still").unwrap();
    assert_eq!(tx.get("merged").unwrap().unwrap(), "older still");
    tx.commit().unwrap();
    assert_eq!(db.get("merged").unwrap().unwrap(), "older still");
    assert_eq!(db.get("alone").unwrap().unwrap(), "new");
    assert_at_rest(db.engine());
}
