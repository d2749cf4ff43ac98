//! Edits that wait for each other, in a whole database in memory.

use super::*;
use crate::env::Env;
use crate::error::Error;
use crate::version::{Ahead, Change, Edit, Planned, State};
use crate::vfs::{Fault, FileOp, MemoryFs};
use crate::{Db, Options};
use std::thread;

const FAMILIES: FamilyId = 8;

/// A database with eight families besides the default one.
fn world() -> (MemoryFs, Db) {
    let fs = MemoryFs::new();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let db = Options::new().env(env).open("/db").unwrap();
    db.engine().maintenance.close();
    db.open_families((1..=FAMILIES).map(|id| id.to_string())).unwrap();
    (fs, db)
}

/// An edit that gives a family these options.
fn setting(family: FamilyId, options: &str, settled: &Arc<Mutex<Vec<String>>>) -> Joint {
    let (options, settled) = (options.to_owned(), settled.clone());
    let told = options.clone();
    let plan = move |_: &Ahead<'_>| {
        let changes = vec![Change::SetFamilyOptions { family, options: options.into_bytes() }];
        Ok(Planned { edit: Edit::new(changes), outputs: Vec::new() })
    };
    let settle = move |state: &State| {
        assert_eq!(&*state.family(family).unwrap().options, told.as_bytes());
        settled.lock().push(told);
    };
    Joint { family, plan: Box::new(plan), settle: Box::new(settle) }
}

fn waiting(engine: &Engine) -> usize {
    engine.edits.waiting.lock().edits.len()
}

/// Has a thread for each of these edits, which waits for the manifest until all do. Returns their
/// outcomes and the syncs that they took.
fn at_once(fs: &MemoryFs, db: &Db, edits: Vec<Vec<Joint>>) -> (Vec<Vec<Result<()>>>, u64) {
    let engine = db.engine();
    thread::scope(|scope| {
        let held = engine.versions.lock();
        let before = fs.tried(FileOp::Sync);
        let mut brought = 0;
        let mut threads = Vec::new();
        for joint in edits {
            brought += joint.len();
            threads.push(scope.spawn(move || engine.install_joint(joint)));
            while waiting(engine) < brought {
                thread::yield_now();
            }
        }
        drop(held);
        let outcomes = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        (outcomes, fs.tried(FileOp::Sync) - before)
    })
}

#[test]
fn edits_that_wait_for_each_other_share_a_sync() {
    let (fs, db) = world();
    let settled = Arc::new(Mutex::unranked(Vec::new()));
    let edits = (1..=FAMILIES).map(|id| vec![setting(id, &format!("{{ \"{id}\": 1 }}"), &settled)]);
    let (outcomes, syncs) = at_once(&fs, &db, edits.collect());
    assert!(outcomes.iter().flatten().all(Result::is_ok));
    assert_eq!(syncs, 1);
    let expected: Vec<_> = (1..=FAMILIES).map(|id| format!("{{ \"{id}\": 1 }}")).collect();
    assert_eq!(*settled.lock(), expected, "they settle in the order in which they came");
    let left = crate::version::inspect(
        &fs.crashed(|_| 0),
        std::path::Path::new("/db"),
        &crate::version::ObsoleteFiles::new(),
    );
    let state = left.unwrap().state;
    for (id, options) in (1..=FAMILIES).zip(&expected) {
        assert_eq!(&*state.family(id).unwrap().options, options.as_bytes());
    }
}

#[test]
fn a_second_edit_of_a_family_and_those_behind_it_go_to_the_next_record() {
    let (fs, db) = world();
    let settled = Arc::new(Mutex::unranked(Vec::new()));
    let edit = |id, options| setting(id, options, &settled);
    let edits =
        vec![vec![edit(1, "1"), edit(2, "2"), edit(1, "3")], vec![edit(3, "4"), edit(2, "5")]];
    let (outcomes, syncs) = at_once(&fs, &db, edits);
    assert!(outcomes.iter().flatten().all(Result::is_ok));
    assert_eq!(*settled.lock(), ["1", "2", "3", "4", "5"]);
    assert_eq!(syncs, 2);
}

#[test]
fn a_record_takes_no_more_than_so_many_edits() {
    let (fs, db) = world();
    let families = 9..=JOINT_MAX as FamilyId + 1;
    db.open_families(families.map(|id| id.to_string())).unwrap();
    let settled = Arc::new(Mutex::unranked(Vec::new()));
    let all = 1..=JOINT_MAX as FamilyId + 1;
    let (outcomes, syncs) =
        at_once(&fs, &db, vec![all.map(|id| setting(id, "{}", &settled)).collect()]);
    assert!(outcomes[0].iter().all(Result::is_ok) && outcomes[0].len() == JOINT_MAX + 1);
    assert_eq!(syncs, 2);
}

#[test]
fn the_error_of_a_shared_sync_reaches_all_and_none_has_settled() {
    let (fs, db) = world();
    let settled = Arc::new(Mutex::unranked(Vec::new()));
    let edits = (1..=FAMILIES).map(|id| vec![setting(id, "{}", &settled)]).collect();
    fs.inject(Fault::on(FileOp::Sync).suffix("MANIFEST-000001").errno(5));
    let (outcomes, syncs) = at_once(&fs, &db, edits);
    for outcome in outcomes.into_iter().flatten() {
        assert!(outcome.unwrap_err().to_string().contains("MANIFEST-000001"));
    }
    assert_eq!((syncs, settled.lock().len(), waiting(db.engine())), (1, 0, 0));
    let later = db.engine().install_joint(vec![setting(1, "{}", &settled)]);
    assert_eq!(later[0].as_ref().unwrap_err().name(), "POISONED");
}

#[test]
fn edits_that_no_thread_writes_are_given_up() {
    let (_fs, db) = world();
    let settled = Arc::new(Mutex::unranked(Vec::new()));
    db.engine().installer.close();
    let outcomes = db.engine().install_joint(vec![setting(1, "{}", &settled)]);
    assert!(outcomes[0].as_ref().is_err_and(Error::is_closed), "{outcomes:?}");
    assert_eq!(waiting(db.engine()), 0);
    assert!(db.engine().install_joint(Vec::new()).is_empty());
}

#[test]
fn a_panic_ends_the_waits_of_all_in_the_record_and_no_others() {
    let (_fs, db) = world();
    let settled = Arc::new(Mutex::unranked(Vec::new()));
    let panicking = Joint {
        family: 2,
        plan: Box::new(|_| panic!("planted")),
        settle: Box::new(|_| panic!("settled")),
    };
    let joint = vec![setting(1, "{}", &settled), panicking, setting(3, "{}", &settled)];
    let outcomes = db.engine().install_joint(joint);
    assert!(outcomes.iter().all(|one| one.as_ref().is_err_and(Error::is_cancelled)));
    assert!(settled.lock().is_empty() && waiting(db.engine()) == 0);
    let later = db.engine().install_joint(vec![setting(1, "{ }", &settled)]);
    assert!(later[0].is_ok(), "what was drafted before the panic is gone");
    assert!(db.put("key", "value").is_err(), "a job that panicked has ended all writing");
}
