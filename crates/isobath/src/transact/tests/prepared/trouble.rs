//! Two-phase commit where the disk is full, damaged, or fails at any operation.

use super::*;
use crate::Transaction;
use crate::options::WriteOptions;

#[test]
fn a_full_disk_at_any_step_is_an_error_after_which_the_call_may_be_repeated() {
    // A flush that finds no room for the file of an entry is tried again.
    let fs = MemoryFs::new();
    let db = open(&fs);
    drop(prepare(&db, "x", &["key"]));
    fs.inject(Fault::on(FileOp::Write).kind(io::ErrorKind::StorageFull));
    let told = db.flush();
    fs.clear_faults();
    db.flush().unwrap();
    assert_eq!(names(&db), ["x"], "{told:?}");
    let db = open(&fs.crashed(|_| 0));
    assert_eq!(names(&db), ["x"]);
    // A decision that cannot read the file of an entry leaves it in doubt.
    let fs = fs.crashed(|_| 0);
    let db = open(&fs);
    fs.inject(Fault::on(FileOp::OpenRead));
    assert_eq!(db.commit_prepared(&xid("x")).unwrap_err().name(), "IO");
    fs.clear_faults();
    db.commit_prepared(&xid("x")).unwrap();
    assert_at_rest(db.engine());
}

/// It takes memory as every write does, and has none before a flush makes room.
#[test]
fn a_decision_that_finds_memory_and_disk_full_changes_nothing_and_may_be_repeated() {
    let fs = MemoryFs::new();
    let db = over(&fs).write_buffer(256 << 10).open("/db").unwrap();
    drop(prepare(&db, "x", &["key"]));
    fs.inject(Fault::on(FileOp::Create).suffix(".tbl").kind(io::ErrorKind::StorageFull).forever());
    let put = |n: u64| db.put(n.to_be_bytes(), [7; 1000]);
    let told = (0..).find_map(|n| put(n).err()).unwrap();
    assert!(told.is_out_of_space(), "{told}");
    for _ in 0..3 {
        let told = db.commit_prepared(&xid("x")).unwrap_err();
        assert!(told.is_out_of_space() && told.is_retryable(), "{told}");
    }
    assert_eq!((names(&db), db.contains("key").unwrap()), (vec!["x".to_owned()], false));
    fs.clear_faults();
    db.flush().unwrap();
    db.commit_prepared(&xid("x")).unwrap();
    assert!(db.contains("key").unwrap());
    assert_at_rest(db.engine());
}

#[test]
fn a_prepare_whose_sync_fails_is_of_unknown_outcome_and_the_next_open_tells() {
    for survives in [false, true] {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let tx = db.begin();
        tx.put("key", "value").unwrap();
        fs.inject(Fault::on(FileOp::SyncRange));
        let told = tx.prepare("x").map(drop).unwrap_err();
        assert!(told.is_outcome_unknown(), "{told}");
        fs.clear_faults();
        assert_eq!(db.commit_prepared(&xid("x")).unwrap_err().name(), "POISONED");
        drop(db);
        let left = if survives { fs.killed() } else { fs.crashed(|_| 0) };
        let db = open(&left);
        assert!(!db.contains("key").unwrap());
        assert_eq!(names(&db).len(), usize::from(survives));
    }
}

#[test]
fn a_decision_whose_sync_fails_is_of_unknown_outcome_and_the_next_open_tells() {
    for survives in [false, true] {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let prepared = prepare(&db, "x", &["key"]);
        fs.inject(Fault::on(FileOp::SyncRange));
        assert!(prepared.commit().unwrap_err().is_outcome_unknown());
        fs.clear_faults();
        let name = xid("x");
        for again in [db.commit_prepared(&name).map(drop), db.rollback_prepared(&name)] {
            assert_eq!(again.unwrap_err().name(), "POISONED", "it would be forgotten");
        }
        assert_eq!(names(&db), ["x"]);
        drop(db);
        let left = if survives { fs.killed() } else { fs.crashed(|_| 0) };
        let db = open(&left);
        assert_eq!(db.contains("key").unwrap(), survives);
        assert_eq!(names(&db).len(), usize::from(!survives));
        if !survives {
            db.commit_prepared(&xid("x")).unwrap();
        }
    }
}

#[test]
fn a_damaged_file_refuses_the_open_and_names_itself() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    drop(prepare(&db, "x", &["key"]));
    db.close().unwrap();
    let entries = fs.list(Path::new("/db/table")).unwrap();
    assert_eq!(entries.len(), 1, "no key was written");
    let path = Path::new("/db/table").join(&entries[0].name);
    fs.corrupt(&path, 150, 1).unwrap();
    let told = over(&fs).open("/db").unwrap_err();
    assert!(matches!(told.kind(), ErrorKind::Corruption { path: at, .. } if *at == path), "{told}");
}

/// A prepare that finds no room in the log, and none on the disk to make some, has changed nothing.
#[test]
fn a_prepare_without_room_in_the_log_leaves_its_name_free() {
    let fs = MemoryFs::new();
    let db = over(&fs).write_buffer(1 << 20).open("/db").unwrap();
    db.put("key", "value").unwrap();
    fs.set_capacity(0);
    let attempt = || {
        let tx = db.with(hasty()).begin();
        (0..40u8).for_each(|key| tx.put([key], vec![7; 10_000]).unwrap());
        tx.prepare("x")
    };
    let refused = loop {
        match attempt() {
            Ok(prepared) => prepared.rollback().unwrap(),
            Err(error) => break error,
        }
    };
    assert!(refused.is_retryable(), "{refused}");
    assert!(db.in_doubt().is_empty() && db.engine().prepared.below(u64::MAX).len() < 40);
    fs.set_capacity(u64::MAX);
    let prepared = loop {
        match attempt() {
            Ok(prepared) => break prepared,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        db.flush().unwrap();
    };
    prepared.commit().unwrap();
    assert!(db.contains([7]).unwrap());
    assert_at_rest(db.engine());
}

fn hasty() -> TransactionOptions {
    TransactionOptions::new().write(WriteOptions::new().fail_fast(true))
}

/// Its coordinator may take long, and each run would wait for `lock_timeout`.
#[test]
fn a_transaction_that_meets_a_key_in_doubt_is_not_run_again() {
    let db = Options::in_memory().lock_timeout(Duration::from_millis(20)).open("/db").unwrap();
    let tx = db.begin();
    tx.put("key", "value").unwrap();
    let prepared = tx.prepare("x").unwrap();
    let mut runs = 0;
    let refused = db.transact(|tx| {
        runs += 1;
        tx.get_for_update("key").map(drop)
    });
    let refused = refused.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::LockTimeout { xid: Some(_), .. }), "{refused}");
    assert_eq!(runs, 1);
    runs = 0;
    let refused = db.transact(|tx| {
        runs += 1;
        tx.put("key", "other")
    });
    assert!(matches!(refused.unwrap_err().kind(), ErrorKind::LockTimeout { .. }));
    assert_eq!(runs, 1);
    prepared.rollback().unwrap();
    assert_at_rest(db.engine());
}

#[test]
fn who_must_not_wait_is_told_of_a_locked_key_by_the_same_error_whatever_it_does() {
    let db = Options::in_memory().open("/db").unwrap();
    db.put("key", "value").unwrap();
    let holder = db.begin();
    // Of a key that its own thread has locked a caller is told `Deadlock`.
    let locks = std::thread::spawn(move || holder.get_for_update("key").map(|_| holder));
    let holder = locks.join().unwrap().unwrap();
    let quick = db.with(WriteOptions::new().fail_fast(true));
    let tx = db.with(hasty()).begin();
    tx.put("key", "other").unwrap();
    let told = [
        quick.put("key", "other").map(drop),
        quick.put_if("key", Some(b"value"), "other").map(drop),
        quick.fetch_update("key", |_| Some("other")).map(drop),
        quick.set_expiry("key", Duration::from_secs(9)).map(drop),
        quick.pop_first(..).map(drop),
        // The end of its range is the locked key.
        quick.pop_first("key"..).map(drop),
        quick.delete_range(..).map(drop),
        tx.prepare("x").map(drop),
    ];
    let told = told.map(|told| told.unwrap_err().name());
    assert_eq!(told, ["WOULD_STALL"; 8]);
    holder.put("key", "prepared").unwrap();
    let prepared = holder.prepare("y").unwrap();
    assert_eq!(quick.pop_first("key"..).unwrap_err().name(), "WOULD_STALL");
    assert_eq!(quick.put("key", "other").unwrap_err().name(), "WOULD_STALL");
    prepared.commit().unwrap();
    quick.pop_first("key"..).unwrap().unwrap();
    assert_at_rest(db.engine());
}

/// Some operation on files fails, and so do all after it; then the process dies, or the power
/// fails.
#[test]
fn whatever_fails_what_was_acknowledged_holds_and_nothing_is_half_decided() {
    let mut nth = 1;
    let mut was_struck = true;
    while was_struck {
        let fs = MemoryFs::new();
        let db = open(&fs);
        db.put("before", "value").unwrap();
        fs.inject(Fault::on_any().nth(nth).forever());
        let steps = two_phases(&db);
        was_struck = fs.struck() > 0;
        fs.clear_faults();
        for left in [fs.killed(), fs.crashed(|_| 0)] {
            check_two_phases(&open(&left), &steps, nth);
            // What that recovery has left is as good.
            check_two_phases(&open(&left.crashed(|_| 0)), &steps, nth);
        }
        drop(db);
        nth += 1;
    }
    assert!(nth > 20, "{nth} operations were struck");
}

/// What came of the steps, in their order: two prepares, a flush, a commit, a rollback, a flush.
fn two_phases(db: &Db) -> Vec<Result<(), Error>> {
    let prepare = |xid: &str| {
        let tx = db.begin();
        tx.put(xid, "now").and_then(|()| tx.prepare(xid)).map(drop)
    };
    let mut told = vec![prepare("a"), prepare("b")];
    told.push(db.flush());
    told.push(db.commit_prepared(&xid("a")).map(drop));
    told.push(db.rollback_prepared(&xid("b")));
    told.push(db.flush());
    told
}

fn check_two_phases(db: &Db, told: &[Result<(), Error>], nth: u64) {
    let names = names(db);
    for (at, name) in ["a", "b"].into_iter().enumerate() {
        let is_listed = names.iter().any(|listed| listed == name);
        let (is_there, decided) = (db.contains(name).unwrap(), &told[3 + at]);
        let is_rolled_back = name == "b";
        assert!(!is_there || !is_listed && !is_rolled_back, "{nth}: {told:?}");
        match (&told[at], decided) {
            (_, Ok(())) => assert!(!is_listed && is_there == (name == "a"), "{nth}: {told:?}"),
            (Ok(()), Err(error)) if error.is_outcome_unknown() => {
                assert!(name == "b" || is_listed != is_there, "{nth}: {told:?}");
            }
            (Ok(()), Err(_)) => assert!(is_listed, "{nth}: {name} is lost: {told:?}"),
            (Err(_), Err(_)) => assert!(!is_there, "{nth}: {told:?}"),
        }
        if is_listed {
            assert!(db.put(name, "other").unwrap_err().is_conflict(), "{nth}: {name} is free");
        }
    }
}

fn below_a_ceiling(fs: &MemoryFs) -> Db {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    Options::new().memory(24 << 20).env(env).open("/db").unwrap()
}

/// So many operations that they take more memory than one commit may, below the least ceiling.
fn put_many(tx: &Transaction) {
    (0..7000_u32).for_each(|n| tx.put(n.to_be_bytes(), "").unwrap());
}

#[test]
fn a_prepare_whose_decision_would_take_too_much_memory_is_refused() {
    let db = below_a_ceiling(&MemoryFs::new());
    let tx = db.begin();
    put_many(&tx);
    let refused = tx.prepare("x").map(drop).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::MemoryLimit { holder: None, .. }), "{refused}");
    assert!(names(&db).is_empty());
    // A commit that needs no decision goes through a file.
    let tx = db.begin();
    put_many(&tx);
    tx.commit().unwrap();
    assert_eq!(db.count(..).unwrap(), 7000);
    assert_at_rest(db.engine());
}

#[test]
fn what_was_prepared_without_a_ceiling_is_decided_below_one() {
    let fs = MemoryFs::new();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let db = Options::new().env(env).open("/db").unwrap();
    let tx = db.begin();
    put_many(&tx);
    tx.prepare("x").map(drop).unwrap();
    drop(db);
    let db = below_a_ceiling(&fs);
    db.commit_prepared(&xid("x")).unwrap();
    assert_eq!(db.count(..).unwrap(), 7000);
    assert_at_rest(db.engine());
}
