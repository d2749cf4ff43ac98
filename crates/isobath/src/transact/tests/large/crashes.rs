//! What faults, power cuts and damage leave of large commits.

use super::*;
use crate::error::Result;
use crate::tools::{self, RepairOptions};
use crate::vfs::{Fault, FileOp};
use crate::wal::HEADER_PAGE_LEN;
use std::cell::RefCell;
use std::ops::ControlFlow;

/// A database that was killed with a large commit in its files.
fn killed_with_layer() -> MemoryFs {
    let fs = MemoryFs::new();
    let db = open(&fs);
    db.put("kept", "value").unwrap();
    let _flushes = Busy::flusher(&db);
    let tx = db.begin();
    put_all(&tx, 400, 1);
    tx.commit().unwrap();
    db.put("behind", "value").unwrap();
    db.sync().unwrap();
    fs.killed()
}

#[test]
fn a_file_of_a_large_commit_that_is_missing_or_damaged_is_told_and_repaired_as_one_commit() {
    let env = |fs: &MemoryFs| Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let verify = |fs: &MemoryFs| {
        tools::verify(Path::new("/db"), &env(fs), &mut |_, _| ()).unwrap().is_clean()
    };
    let repair = |fs: &MemoryFs| {
        let with = RepairOptions::new().env(env(fs));
        tools::repair(Path::new("/db"), &with, &mut |_, _| ControlFlow::Continue(())).unwrap()
    };
    for damage in 0..3 {
        let fs = killed_with_layer();
        assert!(verify(&fs));
        let dir = Path::new("/db/spill");
        let victim = dir.join(&fs.list(dir).unwrap()[1].name);
        match damage {
            0 => fs.remove(&victim).unwrap(),
            1 => fs.corrupt(&victim, 5000, 1).unwrap(),
            _ => fs.remove(Path::new("/db/CURRENT")).unwrap(),
        }
        if damage < 2 {
            assert!(!verify(&fs), "{damage}");
            let told = over(&fs).open("/db").map(drop).unwrap_err();
            assert!(told.is_corruption(), "{told}");
        }
        let report = repair(&fs);
        assert_eq!(report.losses.is_empty(), damage == 2, "{report:?}");
        let db = recovered(&fs);
        let expected = if damage == 2 { 402 } else { 2 };
        assert_eq!(db.count(..).unwrap(), expected, "{damage}");
        assert!(db.contains("behind").unwrap() && db.contains("kept").unwrap());
    }
}

#[test]
fn an_open_that_has_no_room_for_the_table_of_a_large_commit_fails_and_loses_nothing() {
    let fs = killed_with_layer();
    fs.inject(Fault::on(FileOp::Create).suffix(".tbl").kind(std::io::ErrorKind::StorageFull));
    let told = over(&fs).open("/db").map(drop).unwrap_err();
    assert!(told.is_out_of_space(), "{told}");
    assert_eq!(recovered(&fs).count(..).unwrap(), 402);
}

#[test]
fn an_open_that_has_no_room_for_a_table_leaves_what_it_has_written_free() {
    let fs = killed_with_layer();
    let list = || fs.list(Path::new("/db/table")).unwrap().len();
    let before = list();
    for op in [FileOp::Write, FileOp::Sync] {
        fs.inject(Fault::on(op).suffix(".tbl").kind(std::io::ErrorKind::StorageFull));
        over(&fs).open("/db").map(drop).unwrap_err();
        assert_eq!(list(), before, "{op:?}");
    }
    assert_eq!(recovered(&fs).count(..).unwrap(), 402);
}

/// What a sync that failed has lost no later one brings back.
#[test]
fn a_directory_that_a_copy_lacks_is_made_again_if_its_name_could_not_be_synced() {
    let fs = MemoryFs::new();
    open(&fs).close().unwrap();
    fs.remove_dir(Path::new("/db/spill")).unwrap();
    fs.sync_dir(Path::new("/db")).unwrap();
    fs.inject(Fault::on(FileOp::SyncDir).suffix("/db").nth(2));
    over(&fs).open("/db").map(drop).unwrap_err();
    let db = open(&fs);
    let tx = db.begin();
    put_all(&tx, 400, 1);
    tx.commit().unwrap();
    db.sync().unwrap();
    let left = fs.crashed(|_| 0);
    assert_eq!(open(&left).count(..).unwrap(), 400);
}

thread_local! {
    static OTHER: RefCell<Option<Family>> = const { RefCell::new(None) };
}

/// The commit flushes before it looks at what it relies on. Others still write behind that flush.
#[test]
fn an_open_that_cannot_file_what_comes_before_a_large_commit_fails_and_loses_nothing() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    OTHER.set(Some(db.family("other").unwrap()));
    let _flushes = Busy::flusher(&db);
    let tx = db.begin();
    put_all(&tx, 400, 1);
    fs.inject(Fault::on(FileOp::SyncDir).suffix("/spill").runs(|| {
        let family = OTHER.with_borrow(|family| family.clone().unwrap());
        let writer = std::thread::spawn(move || family.put("before", "value").map(drop));
        writer.join().unwrap().unwrap();
    }));
    tx.commit().unwrap();
    db.sync().unwrap();
    OTHER.set(None);
    let fs = fs.killed();
    for (op, told) in [(FileOp::Create, "the first table"), (FileOp::Sync, "its sync")] {
        fs.inject(Fault::on(op).suffix(".tbl").kind(std::io::ErrorKind::StorageFull));
        let error = over(&fs).open("/db").map(drop).expect_err(told);
        assert!(error.is_out_of_space(), "{told}: {error}");
    }
    let db = recovered(&fs);
    assert_eq!(db.count(..).unwrap(), 400);
    assert!(db.family("other").unwrap().contains("before").unwrap());
}

fn repair_with(fs: &MemoryFs, dry_run: bool) -> Result<tools::RepairReport> {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let with = RepairOptions::new().env(env).dry_run(dry_run);
    tools::repair(Path::new("/db"), &with, &mut |_, _| ControlFlow::Continue(()))
}

#[test]
fn a_repair_that_cannot_open_a_file_for_lack_of_descriptors_fails_and_loses_nothing() {
    const EMFILE: i32 = 24;
    let mut failed = 0;
    for (without_manifest, nth) in
        [false, true].into_iter().flat_map(|it| (1..).map(move |n| (it, n)).take(12))
    {
        let fs = killed_with_layer();
        let victim = fs.list(Path::new("/db/spill")).unwrap()[1].name.clone();
        if without_manifest {
            lose_manifest(&fs);
        }
        fs.inject(Fault::on(FileOp::OpenRead).suffix(&victim).errno(EMFILE).nth(nth));
        let told = repair_with(&fs, false);
        failed += u32::from(told.is_err());
        fs.clear_faults();
        for report in told.into_iter().chain([repair_with(&fs, false).unwrap()]) {
            assert!(report.losses.is_empty(), "{without_manifest} {nth} {report:?}");
        }
        assert_eq!(recovered(&fs).count(..).unwrap(), 402);
    }
    assert!(failed > 2, "{failed}");
}

#[test]
fn a_repair_replays_a_large_commit_from_before_a_change_of_families() {
    for without_manifest in [false, true] {
        let fs = MemoryFs::new();
        let db = open(&fs);
        db.put("kept", "value").unwrap();
        let _flushes = Busy::flusher(&db);
        let tx = db.begin();
        put_all(&tx, 400, 1);
        tx.commit().unwrap();
        db.family("later").unwrap().put("key", "value").unwrap();
        let lsn = db.engine().log.tail();
        db.put("damaged", "value").unwrap();
        // The next record says that this one was durable.
        db.sync().unwrap();
        db.put("behind", "value").unwrap();
        db.sync().unwrap();
        let left = fs.killed();
        match without_manifest {
            true => lose_manifest(&left),
            false => {
                let in_segment = lsn % (16 << 10);
                let segment = format!("/db/wal/{:016x}.wal", lsn - in_segment);
                left.corrupt(Path::new(&segment), HEADER_PAGE_LEN + in_segment, 1).unwrap();
            }
        }
        let report = repair_with(&left, false).unwrap();
        assert_eq!(report.losses.len(), usize::from(!without_manifest), "{report:?}");
        let again = recovered(&left);
        assert_eq!(again.range(key(0)..key(500)).count(), 400, "{without_manifest}");
        assert!(again.contains("behind").unwrap() && again.contains("kept").unwrap());
        assert!(again.family("later").unwrap().contains("key").unwrap());
    }
}

#[test]
fn a_repair_of_tables_alone_leaves_a_large_commit_to_the_next_open() {
    let fs = killed_with_layer();
    let tables = Path::new("/db/table");
    for entry in fs.list(tables).unwrap() {
        fs.remove(&tables.join(entry.name)).unwrap();
    }
    let report = repair_with(&fs, false).unwrap();
    assert!(report.losses.len() == 1 && report.records_saved == 0, "{report:?}");
    let db = recovered(&fs);
    assert!(db.count(..).unwrap() == 401 && db.contains("behind").unwrap());
}

#[test]
fn a_repair_that_is_cut_at_any_step_can_be_run_again() {
    for nth in (1..).step_by(7) {
        let fs = killed_with_layer();
        lose_manifest(&fs);
        fs.inject(Fault::on_any().nth(nth).forever());
        let told = repair_with(&fs, false);
        for left in [fs.killed(), fs.crashed(|_| 0)] {
            let report = repair_with(&left, false).unwrap();
            // A table that the first repair was writing counts as damaged.
            let is_of_commit = |loss: &tools::Loss| loss.path.ends_with("spill");
            assert!(!report.losses.iter().any(is_of_commit), "{nth} {report:?}");
            assert_eq!(recovered(&left).count(..).unwrap(), 402, "{nth}");
        }
        if told.is_ok() {
            break;
        }
    }
}

#[test]
fn a_repair_tells_beforehand_which_large_commit_is_lost_and_keeps_its_files_aside() {
    for without_manifest in [false, true] {
        let fs = killed_with_layer();
        let dir = Path::new("/db/spill");
        let names: Vec<_> = fs.list(dir).unwrap().into_iter().map(|entry| entry.name).collect();
        fs.corrupt(&dir.join(&names[1]), 5000, 1).unwrap();
        if without_manifest {
            lose_manifest(&fs);
        }
        let before = repair_with(&fs, true).unwrap();
        assert_eq!(before.losses.len(), 1, "{before:?}");
        assert_eq!(repair_with(&fs, false).unwrap().losses, before.losses);
        assert_eq!(recovered(&fs).count(..).unwrap(), 2);
        let kept = fs.list(Path::new("/db/lost+found")).unwrap();
        for name in &names {
            assert!(kept.iter().any(|entry| entry.name == *name), "{name} {kept:?}");
        }
    }
}

#[test]
fn a_fault_at_any_step_and_then_a_power_cut_leave_all_of_a_large_commit_or_nothing() {
    let (mut failed, mut done) = (0, 0);
    for forever in [false, true] {
        for nth in (1..).step_by(5) {
            let fs = MemoryFs::new();
            let db = open(&fs);
            put_some(&db);
            db.sync().unwrap();
            let fault = Fault::on_any().nth(nth);
            fs.inject(if forever { fault.forever() } else { fault });
            let told: Result<()> = (|| {
                let tx = db.begin();
                for n in 0..300 {
                    tx.put(key(n), [1; 300])?;
                }
                tx.delete_range(key(100)..key(150))?;
                tx.commit()?;
                db.sync()?;
                // The flush may be under way.
                db.put(key(600), "after").map(drop)
            })();
            let _ = db.flush();
            let has_struck = fs.struck() > 0;
            failed += u64::from(told.is_err());
            done += u64::from(told.is_ok());
            let mut rng = Rng(nth);
            let mut drawn = || fs.crashed(|it| rng.below(it.steps.len() as u64 + 1) as usize);
            for left in [drawn(), fs.crashed(|_| 0), drawn(), fs.killed()] {
                let again = recovered(&left);
                let count = again.range(key(0)..key(500)).count();
                assert!([250, 20].contains(&count), "{nth} {told:?}: {count}");
                let value = again.get(key(9)).unwrap().unwrap();
                assert_eq!(value == [1; 300], count == 250, "{nth}");
                if told.is_ok() {
                    assert_eq!(count, 250, "{nth}");
                }
            }
            fs.clear_faults();
            if !has_struck {
                break;
            }
        }
    }
    assert!(failed > 15 && done > 1, "{failed} {done}");
}

#[test]
fn names_that_could_not_be_synced_refuse_later_large_commits_and_a_directory_not_opened_does_not() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let commit = |fill| {
        let tx = db.begin();
        put_all(&tx, 400, fill);
        tx.commit()
    };
    fs.inject(Fault::on(FileOp::OpenDir).suffix("spill"));
    commit(1).unwrap_err();
    commit(2).unwrap();
    fs.inject(Fault::on(FileOp::SyncDir).suffix("spill"));
    commit(3).unwrap_err();
    assert_eq!(commit(4).unwrap_err().name(), "POISONED");
    db.put("small", "value").unwrap();
    assert_eq!(db.get(key(7)).unwrap().unwrap(), [2; 300]);
}

fn put_some(db: &Db) {
    for n in 0..20 {
        db.put(key(n), "before").unwrap();
    }
}

/// The power is cut at each step that the file system takes from the commit to the end of the
/// flush. What was not synced is lost, or drawn.
#[test]
pub(super) fn a_power_cut_at_each_step_of_commit_and_flush_keeps_what_was_synced() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    put_some(&db);
    db.sync().unwrap();
    let tx = db.begin();
    for n in 0..300 {
        tx.put(key(n), [1; 300]).unwrap();
    }
    let flushes = hold_flushes(&db);
    let begun = fs.steps();
    tx.commit().unwrap();
    db.sync().unwrap();
    let synced = fs.steps();
    let at_commit = fs.killed();
    for step in (begun..=synced).step_by(2) {
        let left = at_commit.crashed(|it| it.steps_until(step));
        let count = recovered(&left).count(..).unwrap();
        assert!([300, 20].contains(&count), "{step}: {count}");
    }
    assert_eq!(recovered(&at_commit.crashed(|_| 0)).count(..).unwrap(), 300);
    drop(flushes);
    db.flush().unwrap();
    let ended = fs.steps();
    let mut rng = Rng(7);
    for step in synced..=ended {
        let left = fs.crashed(|it| it.steps_until(step));
        assert_eq!(recovered(&left).count(..).unwrap(), 300, "{step} of {synced}..{ended}");
        let left = fs.crashed(|it| rng.below(it.steps.len() as u64 + 1) as usize);
        assert_eq!(recovered(&left).count(..).unwrap(), 300, "{step}");
    }
}

/// The directory above is synced for the manifest. Two who sync it do not learn what the other's
/// failure has lost.
#[test]
fn the_directory_of_spill_files_is_there_from_the_first_on_and_is_all_that_they_sync() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    assert!(fs.crashed(|_| 0).exists(Path::new("/db/spill")).unwrap());
    fs.inject(Fault::on(FileOp::SyncDir).suffix("/db").forever());
    db.engine().spills.sync_names().unwrap();
    fs.clear_faults();
}

/// A second commit would find nothing to do, and be a success.
#[test]
fn an_ingest_whose_commit_has_an_unknown_outcome_takes_and_commits_nothing_more() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let mut ingest = db.ingest().unwrap();
    ingest.put(key(1), [1; 300]).unwrap();
    fs.inject(Fault::on(FileOp::CopyIn).forever());
    let told = ingest.commit().unwrap_err();
    assert!(told.is_outcome_unknown(), "{told}");
    fs.clear_faults();
    let refused = ingest.put(key(10), "value").unwrap_err();
    assert!(refused.to_string().contains("begin a new one"), "{refused}");
    let again = ingest.commit().unwrap_err();
    assert!(again.is_outcome_unknown(), "{again}");
}
