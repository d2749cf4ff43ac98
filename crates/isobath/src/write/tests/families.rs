//! Column families created, renamed and dropped: what is refused, what survives, and what a failure
//! leaves.

use super::open;
use crate::env::Env;
use crate::env::fixtures::Draw;
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::events::{BackgroundJob, Event};
use crate::family_spec::FamilySpec;
use crate::format::{DEFAULT_FAMILY, Payload, put_payload};
use crate::options::{FamilyOptions, Options, WriteOptions};
use crate::version::{Change, Edit, LOG_DIR};
use crate::vfs::{Fault, FileAccess, FileOp, FileSystem, MemoryFs};
use crate::wal::RECORD_HEADER_LEN;
use crate::{Db, Error, ErrorKind};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[test]
fn a_family_gets_no_name_that_is_taken_or_impossible_and_no_options_that_are() {
    let db = open(&MemoryFs::new());
    db.family("family").unwrap();
    let other = db.family("other").unwrap();
    let default = db.default_family();
    let (tail, edits) = (db.engine().log.tail(), db.engine().versions.lock().state().next_family());
    for name in ["", "a\nb", &"x".repeat(256)] {
        for told in [db.family(name).map(drop), db.rename_family(&other, name)] {
            assert!(
                matches!(told.as_ref().map_err(Error::name), Err("INVALID_ARGUMENT")),
                "{name:?}: {told:?}"
            );
        }
    }
    for taken in ["default", "family", "other"] {
        assert_eq!(db.family(taken).unwrap().name(), taken);
        let told = db.rename_family(&other, taken);
        assert!(
            matches!(
                told.as_ref().map_err(Error::kind),
                Err(ErrorKind::FamilyExists { name, .. }) if name == taken
            ),
            "{told:?}"
        );
    }
    let told = db.family(("new", FamilyOptions::new().block_size(1))).map(drop);
    assert!(matches!(told.as_ref().map_err(Error::name), Err("INVALID_ARGUMENT")), "{told:?}");
    for told in [db.rename_family(&default, "new"), db.drop_family(&default)] {
        let words = "the default column family cannot be";
        let is_told = matches!(
            told.as_ref().map_err(Error::kind),
            Err(ErrorKind::InvalidArgument { detail: what, .. }) if what.contains(words)
        );
        assert!(is_told, "{told:?}");
    }
    assert_eq!(db.engine().log.tail(), tail);
    assert_eq!(db.engine().versions.lock().state().next_family(), edits);
    assert_eq!(db.list_families(), ["default", "family", "other"]);
    default.put("key", "value").unwrap();
}

#[test]
fn what_is_wrong_with_a_request_is_told_before_what_is_wrong_with_the_database() {
    let db = open(&MemoryFs::new());
    db.engine().log.poison(&Error::planted());
    let bad = || FamilyOptions::new().block_size(1);
    let told = |name, options| db.family((name, options)).map(drop).unwrap_err();
    let [of_both, of_name] = [told("", bad()), told("", FamilyOptions::new())];
    assert!(matches!(of_name.kind(), ErrorKind::InvalidArgument { .. }), "{of_name}");
    assert_eq!(of_both.to_string(), of_name.to_string());
    let of_options = told("new", bad());
    assert!(matches!(of_options.kind(), ErrorKind::InvalidArgument { .. }), "{of_options}");
    assert!(matches!(told("new", FamilyOptions::new()).kind(), ErrorKind::Poisoned { .. }));
}

#[test]
fn a_dropped_family_is_neither_dropped_nor_renamed_again_and_its_name_is_free() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let family = db.family("family").unwrap();
    family.put("key", "value").unwrap();
    db.drop_family(&family).unwrap();
    assert!(db.engine().families.by_id(family.id()).is_none());
    let tail = db.engine().log.tail();
    for told in [db.drop_family(&family), db.rename_family(&family, "new")] {
        assert!(
            matches!(
                told.as_ref().map_err(Error::kind),
                Err(ErrorKind::UnknownFamily { name, .. }) if name == "family"
            ),
            "{told:?}"
        );
    }
    assert_eq!(db.engine().log.tail(), tail);
    let again = db.family("family").unwrap();
    assert_eq!(again.id(), family.id() + 1);
    assert!(again.get("key").unwrap().is_none());
    let db = open(&fs.killed());
    assert_eq!(db.list_families(), ["default", "family"]);
    assert!(db.family_if_exists("family").unwrap().unwrap().get("key").unwrap().is_none());
}

#[test]
fn a_dropped_family_that_a_snapshot_sees_holds_no_memory_after_a_close() {
    let db = open(&MemoryFs::new());
    let family = db.family("family").unwrap();
    family.put("key", "value").unwrap();
    let (snapshot, keyspace) = (db.snapshot(), db.engine().families.by_name("family").unwrap());
    db.drop_family(&family).unwrap();
    assert_eq!(snapshot.of(&family).get("key").unwrap().unwrap(), "value");
    db.close().unwrap();
    assert!(keyspace.view().memtables.is_empty());
}

#[test]
fn a_renamed_family_keeps_its_rows_its_handles_and_nothing_of_its_name() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let family = db.family("old").unwrap();
    family.put("key", "value").unwrap();
    db.rename_family(&family, "new").unwrap();
    assert_eq!(family.name(), "new");
    for left in [db, open(&fs.killed())] {
        assert_eq!(left.list_families(), ["default", "new"]);
        assert!(left.family_if_exists("old").unwrap().is_none());
        let family = left.family_if_exists("new").unwrap().unwrap();
        assert_eq!(family.get("key").unwrap().unwrap(), b"value");
        left.rename_family(&family, "new").unwrap_err();
        left.family("old").unwrap();
    }
}

/// The change is in the log before it is in the manifest, which an open would follow.
#[test]
fn a_change_of_families_survives_power_loss_once_it_returns_in_log_and_manifest() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let check = |expected: &[&str]| {
        let log = &db.engine().log;
        assert_eq!(log.durable(), log.tail());
        let names: Vec<_> = {
            let versions = db.engine().versions.lock();
            versions.state().families().map(|(_, family)| family.name.to_string()).collect()
        };
        assert_eq!(names, expected);
        assert_eq!(open(&fs.crashed(|_| 0)).list_families(), expected);
    };
    let family = db.family("first").unwrap();
    check(&["default", "first"]);
    db.rename_family(&family, "second").unwrap();
    check(&["default", "second"]);
    db.drop_family(&family).unwrap();
    check(&["default"]);
}

#[test]
fn options_for_one_of_several_known_families_are_set() {
    let db = open(&MemoryFs::new());
    let (one, other) = (db.family("one").unwrap(), db.family("other").unwrap());
    let before = other.options();
    let options = FamilyOptions::new().block_size(5001);
    let specs = [("one", options.clone()).into(), "other".into()];
    crate::write::open_families(db.engine(), &specs).unwrap();
    assert_eq!((one.options(), other.options()), (options, before));
}

#[test]
fn a_closed_database_says_so_before_all_else() {
    let db = open(&MemoryFs::new());
    let family = db.family("family").unwrap();
    let engine = db.engine().clone();
    let (family, default) = (family.of(&engine).unwrap().clone(), engine.default_family.clone());
    db.close().unwrap();
    let create = crate::write::open_families(&engine, &["family".into()]);
    assert!(create.as_ref().is_err_and(Error::is_closed));
    for family in [&family, &default] {
        assert_eq!(crate::write::drop_family(&engine, family).unwrap_err().name(), "CLOSED");
        let renamed = crate::write::rename_family(&engine, family, "family");
        assert!(renamed.as_ref().is_err_and(Error::is_closed));
    }
}

/// The manifest must not say anything that depends on a commit which the next open may not find.
#[test]
fn a_change_is_not_in_the_manifest_before_all_that_came_before_it_is_visible() {
    let db = open(&MemoryFs::new());
    let engine = db.engine();
    let mut record = vec![0; RECORD_HEADER_LEN];
    put_payload(&mut record, &Payload::EpochMarker);
    let mut record = crate::wal::seal(&mut record);
    let mut before = engine.log.reserve(record.len() as u64).unwrap();
    before.write(&mut record);
    let next_family = engine.versions.lock().state().next_family();
    thread::scope(|scope| {
        let creator = scope.spawn(|| db.family("family").map(drop));
        while engine.log.tail() <= before.end() {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(100));
        assert!(!creator.is_finished());
        assert_eq!(engine.versions.lock().state().next_family(), next_family);
        before.publish();
        creator.join().unwrap().unwrap();
    });
    assert_eq!(engine.versions.lock().state().next_family(), next_family + 1);
}

/// A database, and a count of its failures to put a change of families into the manifest.
fn counting(fs: &MemoryFs) -> (Db, Arc<AtomicU64>) {
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let listener = move |event: &Event| {
        if matches!(event, Event::BackgroundError { job: BackgroundJob::FamilyChange, .. }) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    };
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let options = Options::new().env(env).on_event(listener);
    (options.open("db").unwrap(), told)
}

#[test]
fn a_change_that_finds_no_room_several_times_is_told_once_and_holds() {
    let fs = MemoryFs::new();
    let (db, told) = counting(&fs);
    for nth in 1..=3 {
        fs.inject(Fault::on(FileOp::Write).kind(io::ErrorKind::StorageFull).nth(nth));
    }
    db.family("family").unwrap();
    assert_eq!((fs.struck(), told.load(Ordering::SeqCst)), (3, 1));
    assert_eq!(open(&fs.killed()).list_families(), ["default", "family"]);
}

#[test]
fn a_change_that_waits_for_room_is_given_up_when_the_writing_ends() {
    let fs = MemoryFs::new();
    let (db, told) = counting(&fs);
    fs.inject(Fault::on(FileOp::Write).kind(io::ErrorKind::StorageFull).forever());
    thread::scope(|scope| {
        let creator = scope.spawn(|| db.family("family").map(drop));
        while told.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        assert!(!creator.is_finished());
        db.engine().log.poison(&Error::planted());
        let told = creator.join().unwrap();
        assert!(told.as_ref().is_err_and(Error::is_outcome_unknown), "{told:?}");
    });
}

#[test]
fn a_change_whose_edit_fails_for_good_has_an_unknown_outcome_and_is_the_last() {
    for change in ["create", "rename", "drop"] {
        let fs = MemoryFs::new();
        let (db, told) = counting(&fs);
        let family = db.family("family").unwrap();
        fs.inject(Fault::on(FileOp::Write).forever());
        let outcome = match change {
            "create" => db.family("another").map(drop),
            "rename" => db.rename_family(&family, "another"),
            _ => db.drop_family(&family),
        };
        assert!(outcome.as_ref().is_err_and(Error::is_outcome_unknown), "{change}: {outcome:?}");
        assert_eq!(told.load(Ordering::SeqCst), 1, "{change}");
        fs.clear_faults();
        assert_eq!(db.put("key", "value").unwrap_err().name(), "POISONED");
        assert!(db.family_if_exists("another").unwrap().is_none(), "{change}");
        // The log has the change, so the next open applies it.
        let expected: &[&str] = match change {
            "create" => &["default", "another", "family"],
            "rename" => &["default", "another"],
            _ => &["default"],
        };
        let mut names = open(&fs.killed()).list_families();
        names.sort();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(names, expected, "{change}");
    }
}

#[test]
fn families_that_are_created_together_share_a_sync_and_an_edit() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let known = db.family("known").unwrap();
    let syncs = || db.metrics().log_syncs;
    let before = syncs();
    let options = FamilyOptions::new().block_size(5001);
    let specs = [("a".into(), None), ("known".into(), None), ("b".into(), Some(options.clone()))];
    let specs = specs.map(|(name, options)| FamilySpec { name, options });
    let twice = FamilySpec::from("a");
    let families = db.open_families(specs.into_iter().chain([twice])).unwrap();
    assert_eq!(syncs() - before, 1);
    let ids: Vec<_> = families.iter().map(|family| family.id()).collect();
    assert_eq!(ids, [2, known.id(), 3, 2]);
    assert_eq!(families[2].options(), options);
    for left in [fs.killed(), fs.crashed(|_| 0)] {
        let left = open(&left);
        assert_eq!(left.list_families(), ["default", "known", "a", "b"]);
        assert_eq!(left.family("b").unwrap().options(), options);
    }
    let [] = db.families::<0>([] as [&str; 0]).unwrap();
    let many: Vec<_> = (0..2500).map(|n| format!("family {n}")).collect();
    let before = syncs();
    assert_eq!(db.open_families(&many).unwrap().len(), many.len());
    assert_eq!(syncs() - before, 3, "a thousand at once");
    db.open_families(&many).unwrap();
    assert_eq!(syncs() - before, 3);
    drop((db, known, families));
    assert_eq!(open(&fs).list_families().len(), many.len() + 4);
}

#[test]
fn one_family_and_ninety_cost_one_sync_of_the_log_and_one_of_the_manifest() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    // The first edit of an open begins a new manifest, which costs syncs of its own.
    db.family("known").unwrap();
    let mut names = fs.list(Path::new("db")).unwrap().into_iter().map(|entry| entry.name);
    let manifest = names.find(|name| name.contains("MANIFEST")).unwrap();
    // The syncs of the log. No sync fails, so the manifest had no more of them than that.
    let log_syncs = |manifest_syncs_max: u64, what: &dyn Fn() -> Result<(), Error>| {
        fs.inject(Fault::on(FileOp::Sync).suffix(&manifest).nth(manifest_syncs_max + 1));
        fs.inject(Fault::on(FileOp::SyncDir).suffix("db"));
        let before = db.metrics().log_syncs;
        what().unwrap();
        fs.clear_faults();
        db.metrics().log_syncs - before
    };
    let many: Vec<_> = (0..90).map(|nth| format!("family {nth}")).collect();
    let options = FamilyOptions::new().block_size(5001);
    let changed = [("a", options.clone()), ("b", options.clone()), ("known", options)];
    assert_eq!(log_syncs(1, &|| db.family("one").map(drop)), 1);
    assert_eq!(log_syncs(1, &|| db.open_families(&many).map(drop)), 1);
    assert_eq!(log_syncs(0, &|| db.open_families(&many).map(drop)), 0, "they exist");
    assert_eq!(log_syncs(1, &|| db.families(["a", "b", "known"]).map(drop)), 1);
    assert_eq!(log_syncs(1, &|| db.families(changed.clone()).map(drop)), 0);
    assert_eq!(log_syncs(0, &|| db.families(changed.clone()).map(drop)), 0, "they have them");
    assert_eq!(fs.struck(), 0);
}

/// The record of one family does not reach the disk, as if the power was cut there.
#[test]
fn a_power_cut_leaves_the_first_few_of_the_families_that_were_created_together() {
    let names = ["the first", "the second", "the third", "the fourth"];
    for (nth, name) in names.iter().enumerate() {
        let fs = MemoryFs::new();
        let db = open(&fs);
        db.with(WriteOptions::sync()).put("key", "value").unwrap();
        fs.inject(Fault::on(FileOp::SyncRange).forever());
        db.families(names).unwrap_err();
        let left = fs.killed();
        let log = Path::new("db").join(LOG_DIR);
        let is_in = |bytes: &[u8]| bytes.windows(name.len()).position(|it| it == name.as_bytes());
        let mut damaged = 0;
        for entry in left.list(&log).unwrap() {
            let path = log.join(&entry.name);
            let file = left.open_read(&path, FileAccess::Positional).unwrap();
            let mut bytes = vec![0; file.len() as usize];
            file.read_at(0, &mut bytes).unwrap();
            if let Some(at) = is_in(&bytes) {
                left.corrupt(&path, at as u64, 1).unwrap();
                damaged += 1;
            }
        }
        assert_eq!(damaged, 1);
        let left = open(&left);
        let expected: Vec<_> = ["default"].iter().chain(&names[..nth]).copied().collect();
        assert_eq!(left.list_families(), expected);
        assert_eq!(left.get("key").unwrap().unwrap(), b"value");
        assert_eq!(left.families(names).unwrap().map(|family| family.name()), names);
    }
}

#[test]
fn options_of_a_family_change_while_it_lives_and_are_kept() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let family = db.family("family").unwrap();
    let (sparse, small) = (
        FamilyOptions::new().filter_bits_per_key(1),
        FamilyOptions::new().filter_bits_per_key(1).block_size(512),
    );
    family.set_options(sparse.clone()).unwrap();
    assert_eq!(
        (family.options(), db.family("family").unwrap().options()),
        (sparse.clone(), sparse)
    );
    // A family opened without options keeps its options; one opened with options changes to them.
    db.family(("family", small.clone())).unwrap();
    family.put("key", [7; 2000]).unwrap();
    family.put("key 2", [7; 2000]).unwrap();
    db.flush().unwrap();
    let run = family.of(db.engine()).unwrap().view().tree.runs[0].clone();
    assert!(run.meta.entries == 2);
    let refused = family.set_options(FamilyOptions::new().block_size(1)).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::InvalidArgument { .. }), "{refused}");
    for left in [fs.killed(), fs.crashed(|_| 0)] {
        assert_eq!(open(&left).family("family").unwrap().options(), small);
    }
    db.drop_family(&family).unwrap();
    let refused = family.set_options(FamilyOptions::new()).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::UnknownFamily { .. }), "{refused}");
}

#[test]
fn the_template_is_for_the_default_family_at_each_open_and_for_new_ones() {
    let fs = MemoryFs::new();
    let with = |template: Option<FamilyOptions>| {
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let options = crate::Options::new().env(env);
        match template {
            Some(template) => options.family(template).open("/db").unwrap(),
            None => options.open("/db").unwrap(),
        }
    };
    let (one, other) = (FamilyOptions::new().block_size(500), FamilyOptions::new().block_size(600));
    let db = with(Some(one.clone()));
    assert_eq!(db.family("old").unwrap().options(), one);
    drop(db);
    for (template, of_default) in [(None, &one), (Some(other.clone()), &other), (None, &other)] {
        let db = with(template);
        assert_eq!(&db.default_family().options(), of_default);
        assert_eq!(db.family("old").unwrap().options(), one);
    }
    assert_eq!(with(None).family("new").unwrap().options(), FamilyOptions::new());
}

/// Stores options as a later version may have written them.
fn persist(db: &Db, family: u32, options: &str) {
    let options = options.as_bytes().to_vec();
    let edit = Edit::new(vec![Change::SetFamilyOptions { family, options }]);
    db.engine().versions.lock().install(edit, &[]).unwrap();
}

#[test]
fn options_that_a_later_version_added_outlast_every_change_by_this_one() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let ids = [DEFAULT_FAMILY, db.family("users").unwrap().id()];
    ids.iter().for_each(|id| persist(&db, *id, r#"{"later":{"a":[1]}}"#));
    db.close().unwrap();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let template = Options::new().env(env).family(FamilyOptions::new().block_size(512));
    for size in [600, 700] {
        let db = template.open("db").unwrap();
        let users = db.family("users").unwrap();
        users.set_options(FamilyOptions::new().block_size(500)).unwrap();
        db.family(("users", FamilyOptions::new().block_size(size))).unwrap();
        for (id, size) in ids.iter().zip([512, size]) {
            let versions = db.engine().versions.lock();
            let stored = str::from_utf8(&versions.state().family(*id).unwrap().options).unwrap();
            assert!(stored.ends_with(r#","later":{"a":[1]}}"#), "{stored}");
            assert!(stored.contains(&format!(r#""block_size":{size},"#)), "{stored}");
        }
    }
}

#[test]
fn options_by_which_a_later_version_changes_what_data_means_are_a_newer_format() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    persist(&db, DEFAULT_FAMILY, r#"{"!later":1}"#);
    db.close().unwrap();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    for options in [Options::new(), Options::new().family(FamilyOptions::new().block_size(512))] {
        let error = options.env(env.clone()).open("db").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NewerFormat { .. }), "{error}");
        assert!(error.to_string().contains(r#""!later""#), "{error}");
        assert!(error.to_string().contains("MANIFEST"), "{error}");
    }
}

/// The close sets its flag before the calls get the lock, whichever of them is first.
#[test]
fn options_that_waited_for_a_lock_while_the_database_was_closed_are_refused() {
    let db = open(&MemoryFs::new());
    let family = db.family("family").unwrap();
    let (engine, small) = (db.engine().clone(), FamilyOptions::new().block_size(512));
    let changing = engine.families_change.lock();
    thread::scope(|scope| {
        let live = scope.spawn(|| family.set_options(small.clone()));
        let by_name = scope.spawn(|| db.family(("family", small.clone())).map(drop));
        // Gives the calls time to find the database open.
        thread::sleep(Duration::from_millis(100));
        let closer = scope.spawn(|| db.clone().close());
        while engine.check_open().is_ok() {
            thread::yield_now();
        }
        drop(changing);
        for refused in [live.join().unwrap(), by_name.join().unwrap()] {
            assert!(refused.as_ref().is_err_and(Error::is_closed), "{refused:?}");
        }
        closer.join().unwrap().unwrap();
    });
    assert_eq!(family.options(), FamilyOptions::default());
}

#[test]
fn options_that_are_given_twice_are_those_given_last() {
    let db = open(&MemoryFs::new());
    let [first, last] = [500, 600].map(|bytes| FamilyOptions::new().block_size(bytes));
    for held in [&first, &last] {
        for name in ["known", "new"] {
            db.family(("known", held.clone())).unwrap();
            let specs = [(name, first.clone()), (name, last.clone())];
            let [family, again] = db.families(specs).unwrap();
            assert_eq!((family.options(), again.id()), (last.clone(), family.id()), "{name}");
        }
    }
}

#[test]
fn options_that_find_no_room_are_refused_and_can_be_set_again() {
    let fs = MemoryFs::new();
    let (db, told) = counting(&fs);
    let family = db.family("family").unwrap();
    let small = FamilyOptions::new().block_size(512);
    fs.inject(Fault::on(FileOp::Write).kind(io::ErrorKind::StorageFull).forever());
    let refused = family.set_options(small.clone()).unwrap_err();
    assert!(refused.is_out_of_space(), "{refused}");
    assert_eq!((family.options(), told.load(Ordering::SeqCst)), (FamilyOptions::default(), 0));
    fs.clear_faults();
    family.put("key", "value").unwrap();
    family.set_options(small.clone()).unwrap();
    let left = open(&fs.crashed(|_| 0));
    assert_eq!(left.family("family").unwrap().options(), small);
    // An edit whose sync found no room may be there at the next open.
    fs.inject(Fault::on(FileOp::Sync).kind(io::ErrorKind::StorageFull));
    family.set_options(FamilyOptions::new().block_size(700)).unwrap_err();
    family.set_options(small.clone()).unwrap();
    let left = open(&fs.killed());
    assert_eq!(left.family("family").unwrap().options(), small);
}

#[test]
fn options_whose_edit_fails_for_good_have_an_unknown_outcome_and_are_the_last_change() {
    let fs = MemoryFs::new();
    let (db, told) = counting(&fs);
    let family = db.family("family").unwrap();
    fs.inject(Fault::on(FileOp::Write).forever());
    let unknown = family.set_options(FamilyOptions::new().block_size(512)).unwrap_err();
    assert!(unknown.is_outcome_unknown(), "{unknown}");
    assert_eq!((family.options(), told.load(Ordering::SeqCst)), (FamilyOptions::default(), 1));
    fs.clear_faults();
    assert_eq!(db.put("key", "value").unwrap_err().name(), "POISONED");
}

/// Creates three families and changes the options of a fourth, with a fault at each step in turn
/// and then a crash. Afterwards the first few of the new families exist, and everything that a call
/// acknowledged.
#[test]
fn a_fault_at_any_step_and_then_a_power_cut_leave_the_first_few_families_or_all() {
    let names = ["the first", "the second", "the third"];
    let small = FamilyOptions::new().block_size(512);
    let mut failed = 0;
    for (forever, kind) in [(false, None), (true, None), (false, Some(io::ErrorKind::StorageFull))]
    {
        for nth in 1.. {
            let fs = MemoryFs::new();
            let db = open(&fs);
            let known = db.family("known").unwrap();
            known.put("key", "value").unwrap();
            db.sync().unwrap();
            let mut fault = Fault::on_any().nth(nth);
            fault = kind.map_or(fault.clone(), |kind| fault.kind(kind));
            fs.inject(if forever { fault.forever() } else { fault });
            let told = known.set_options(small.clone()).and_then(|()| db.families(names).map(drop));
            let has_struck = fs.struck() > 0;
            failed += u64::from(told.is_err());
            let mut draw = Draw::new(nth);
            let mut crashed = || fs.crashed(|it| draw.index(it.steps.len() + 1));
            for left in [fs.killed(), fs.crashed(|_| 0), crashed(), crashed()] {
                let left = open(&left);
                let found = left.list_families();
                let expected: Vec<_> = ["default", "known"].iter().chain(&names).copied().collect();
                assert_eq!(found, expected[..found.len()], "{nth}: {told:?}");
                let known = left.family("known").unwrap();
                assert_eq!(known.get("key").unwrap().unwrap(), b"value");
                if told.is_ok() {
                    assert_eq!((found.len(), known.options()), (5, small.clone()), "{nth}");
                }
                left.families(names).unwrap()[2].put("key", "value").unwrap();
            }
            fs.clear_faults();
            if !has_struck {
                assert!(nth > 5, "{nth}");
                break;
            }
        }
    }
    assert!(failed > 5, "{failed}");
}
