//! The commit hook.

use super::*;
use crate::env::Env;
use crate::error::BoxError;
use crate::options::{Expiry, Options, WriteOptions};
use crate::transact::{CommitHook, OperationKind, Operations, WrittenOperation};
use crate::vfs::{FileSystem, MemoryFs};
use crate::write::Commit;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a test has its hook do.
type Before = dyn Fn(&Operations<'_>) -> Result<(), BoxError> + Send + Sync;
type After = dyn Fn(Commit, &Operations<'_>) + Send + Sync;

struct Both(Box<Before>, Box<After>);

impl CommitHook for Both {
    fn before(&self, operations: &Operations<'_>) -> Result<(), BoxError> {
        self.0(operations)
    }

    fn after(&self, commit: Commit, operations: &Operations<'_>) {
        self.1(commit, operations);
    }
}

fn open_with(
    before: impl Fn(&Operations<'_>) -> Result<(), BoxError> + Send + Sync + 'static,
    after: impl Fn(Commit, &Operations<'_>) + Send + Sync + 'static,
) -> Db {
    let hook = Both(Box::new(before), Box::new(after));
    Options::in_memory().commit_hook(hook).open("/db").unwrap()
}

#[test]
fn the_hook_sees_what_a_transaction_writes_and_learns_of_its_commit() {
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let (before, after) = (told.clone(), told.clone());
    let db = open_with(
        move |operations| {
            let all: Vec<_> = operations.iter().map(|one| format!("{one:?}")).collect();
            assert_eq!((all.len(), operations.is_empty()), (operations.len(), false));
            before.lock().unwrap().extend(all);
            Ok(())
        },
        move |commit, operations| {
            let told = format!("{} at {:?}", operations.len(), crate::ReadPoint::from(commit));
            after.lock().unwrap().push(told);
        },
    );
    let side = db.family("side").unwrap();
    let tx = db.begin();
    tx.of(&side).put("b", "1").unwrap();
    tx.put("a", "old").unwrap();
    tx.put("a", "2").unwrap();
    tx.delete("c").unwrap();
    tx.put("p", "gone before it was there").unwrap();
    tx.delete_range("m".."p5").unwrap();
    tx.put("n", "3").unwrap();
    tx.of(&side).delete_range("c"..).unwrap();
    let commit = tx.commit().unwrap();
    let shown = |family: &str, kind: OperationKind<'_>, key: &str, value: Option<&str>| {
        let (key, value) = (key.as_bytes(), value.map(str::as_bytes));
        format!(
            "WrittenOperation {{ family: {family:?}, kind: {kind:?}, key: {key:?}, value: {value:?} }}"
        )
    };
    use OperationKind::{Delete, DeleteRange, Put};
    let expected = [
        shown("default", DeleteRange { end: Some(b"p5") }, "m", None),
        shown("default", Put, "a", Some("2")),
        shown("default", Delete, "c", None),
        shown("default", Put, "n", Some("3")),
        shown("side", DeleteRange { end: None }, "c", None),
        shown("side", Put, "b", Some("1")),
        format!("6 at {:?}", crate::ReadPoint::from(commit)),
    ];
    assert_eq!(*told.lock().unwrap(), expected);
    told.lock().unwrap().clear();
    db.put("plain", "value").unwrap();
    db.begin().commit().unwrap();
    assert!(told.lock().unwrap().is_empty(), "plain writes and mere readers pass it by");
    assert!(db.put_if("step", None, "value").unwrap().is_some());
    assert_eq!(told.lock().unwrap().len(), 2);
    assert_at_rest(db.engine());
}

/// A file that has range deletes of a family and no key has a delete in the place of a key.
#[test]
fn the_hook_is_told_of_no_delete_that_was_not_made_where_a_range_delete_was_spilled() {
    // Two files are merged before there is a third.
    for files_made in [1, 5] {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let tells = told.clone();
        let fs = MemoryFs::new();
        let before = move |operations: &Operations<'_>| {
            let of_side = operations.iter().filter(|one| one.family == "side");
            tells.lock().unwrap().extend(of_side.map(|one| format!("{:?}", one.kind)));
            Ok(())
        };
        let hook = Both(Box::new(before), Box::new(|_, _| {}));
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let mut options = Options::new().write_buffer(64 << 10).env(env).commit_hook(hook);
        options.sizes.spill_files_max = 2;
        let db = options.open("/db").unwrap();
        let side = db.family("side").unwrap();
        side.put("c", "value").unwrap();
        let tx = db.begin();
        tx.of(&side).delete_range("b".."d").unwrap();
        let mut seen = BTreeSet::new();
        for n in 0u32.. {
            tx.put(n.to_be_bytes(), [7; 200]).unwrap();
            let files = fs.list(Path::new("/db/spill")).unwrap_or_default();
            seen.extend(files.into_iter().map(|file| file.name));
            if seen.len() >= files_made {
                break;
            }
        }
        tx.commit().unwrap();
        assert_eq!(*told.lock().unwrap(), ["DeleteRange { end: Some([100]) }"], "{files_made}");
        assert!(side.get("c").unwrap().is_none());
    }
}

#[test]
fn the_hook_is_told_of_a_value_that_has_ended_before_it_was_written_as_of_a_delete() {
    let told: Arc<Mutex<Vec<bool>>> = Arc::default();
    let tells = told.clone();
    let before = move |operations: &Operations<'_>| {
        let is_delete = |one: WrittenOperation<'_>| match one.kind {
            OperationKind::Delete => one.value.is_none(),
            _ => false,
        };
        tells.lock().unwrap().extend(operations.iter().map(is_delete));
        Ok(())
    };
    let db = open_with(before, |_, _| {});
    let (ended, later) = (UNIX_EPOCH, SystemTime::now() + Duration::from_secs(1000));
    for moment in [ended, later] {
        db.transact(|tx| tx.put_ttl("k", "v", Expiry::At(moment))).unwrap();
    }
    assert_eq!(*told.lock().unwrap(), [true, false]);
}

#[test]
fn a_veto_fails_the_commit_leaves_nothing_and_is_not_run_again() {
    let (asked, told) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (asks, tells) = (asked.clone(), told.clone());
    let db = open_with(
        move |_| {
            asks.fetch_add(1, Ordering::Relaxed);
            Err("not on Sundays".into())
        },
        move |_, _| _ = tells.fetch_add(1, Ordering::Relaxed),
    );
    let tx = db.begin();
    tx.get_for_update("key").unwrap();
    tx.put("key", "value").unwrap();
    let vetoed = tx.commit().unwrap_err();
    let ErrorKind::CommitVetoed { source, .. } = vetoed.kind() else { panic!("{vetoed:?}") };
    assert_eq!(source.to_string(), "not on Sundays");
    assert!(!vetoed.is_conflict() && vetoed.to_string().contains("not on Sundays; nothing"));
    assert_at_rest(db.engine());
    let vetoed = db.transact(|tx| tx.put("key", "value")).unwrap_err();
    assert_eq!(vetoed.name(), "COMMIT_VETOED");
    assert_eq!((asked.load(Ordering::Relaxed), told.load(Ordering::Relaxed)), (2, 0));
    assert_eq!(db.count(..).unwrap(), 0);
    assert_at_rest(db.engine());
}

#[test]
fn a_hook_that_panics_before_vetoes_and_after_changes_nothing() {
    let db = open_with(|_| panic!("planted"), |_, _| ());
    let told = db.transact(|tx| tx.put("key", "value")).unwrap_err();
    assert!(told.to_string().contains("panicked"), "{told}");
    assert_eq!(db.count(..).unwrap(), 0);
    assert_at_rest(db.engine());
    let db = open_with(|_| Ok(()), |_, _| panic!("planted"));
    db.transact(|tx| tx.put("key", "value")).unwrap();
    db.with(TransactionOptions::new().write(WriteOptions::sync()))
        .transact(|tx| tx.put("other", "value"))
        .unwrap();
    assert_eq!(db.count(..).unwrap(), 2);
    assert_at_rest(db.engine());
}

/// Tells whether an error is one of these.
fn name(told: &Result<Commit>) -> &'static str {
    told.as_ref().map_or_else(Error::name, |_| "written")
}

#[test]
fn a_hook_may_call_the_database_within_the_documented_limits() {
    let place: Arc<OnceLock<Db>> = Arc::default();
    let told: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let (before_place, after_place) = (place.clone(), place.clone());
    let (before_told, after_told) = (told.clone(), told.clone());
    let db = open_with(
        move |operations| {
            let db = before_place.get().unwrap();
            let mut told = before_told.lock().unwrap();
            if operations.iter().any(|one| one.key == b"within") {
                told.push("nested");
                return Ok(());
            }
            assert!(!db.contains("key").unwrap(), "not yet");
            told.push(name(&db.put("free", "value")));
            told.push(name(&db.put("locked", "value")));
            Ok(())
        },
        move |_, operations| {
            let db = after_place.get().unwrap();
            if operations.iter().all(|one| one.key != b"within") {
                assert_eq!(db.get("key").unwrap().unwrap(), "value");
                let locked = name(&db.put("locked", "value"));
                db.transact(|tx| tx.put("within", "value")).unwrap();
                after_told.lock().unwrap().push(locked);
            }
        },
    );
    assert!(place.set(db.clone()).is_ok());
    let tx = db.begin();
    tx.get_for_update("locked").unwrap();
    tx.put("key", "value").unwrap();
    tx.commit().unwrap();
    assert_eq!(*told.lock().unwrap(), ["written", "DEADLOCK", "nested", "written"]);
    let reads = db.begin();
    _ = reads.get("free").unwrap();
    reads.put("other", "value").unwrap();
    db.delete("key").unwrap();
    assert_eq!(conflict_of(reads.commit()).0, b"free", "the hook's own write conflicts");
    assert_at_rest(db.engine());
}

#[test]
fn a_hook_may_close_the_database() {
    let place: Arc<OnceLock<Db>> = Arc::default();
    let inner = place.clone();
    let closes = move |_: &Operations<'_>| {
        _ = inner.get().unwrap().clone().close();
        Ok(())
    };
    let db = open_with(closes, |_, _| ());
    assert!(place.set(db.clone()).is_ok());
    let told = db.transact(|tx| tx.put("key", "value"));
    assert!(told.is_err_and(|error| error.is_closed()));
}

#[test]
fn an_abort_from_the_hook_before_the_commit_prevents_it() {
    let place: Arc<Mutex<Option<crate::AbortHandle>>> = Arc::default();
    let (before, after) = (place.clone(), place.clone());
    let db = open_with(
        move |_| {
            before.lock().unwrap().iter().for_each(|handle| assert!(handle.abort()));
            Ok(())
        },
        move |_, _| after.lock().unwrap().iter().for_each(|handle| assert!(!handle.abort())),
    );
    let tx = db.begin();
    tx.put("key", "value").unwrap();
    *place.lock().unwrap() = Some(tx.abort_handle());
    assert!(tx.commit().unwrap_err().is_transaction_aborted());
    assert_eq!(db.count(..).unwrap(), 0);
    *place.lock().unwrap() = None;
    assert_at_rest(db.engine());
}
