//! Column families created, renamed and dropped: what is refused, what survives, and what a failure leaves.

use super::open;
use crate::components::Components;
use crate::components::sync::atomic::{AtomicU64, Ordering};
use crate::events::Event;
use crate::format::{Payload, put_payload};
use crate::options::{FamilyOptions, Options};
use crate::vfs::{Fault, FileOp, MemoryFs};
use crate::wal::RECORD_HEADER_LEN;
use crate::{Db, Error};
use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[test]
fn a_family_gets_no_name_that_is_taken_or_impossible_and_no_options_that_are() {
    let db = open(&MemoryFs::new());
    db.create_family("family").unwrap();
    let other = db.create_family("other").unwrap();
    let default = db.default_family();
    let (tail, edits) = (db.engine().log.tail(), db.engine().versions.lock().state().next_family());
    for name in ["", "a\nb", &"x".repeat(256)] {
        for told in [db.create_family(name).map(drop), db.rename_family(&other, name)] {
            assert!(matches!(told, Err(Error::InvalidArgument(_))), "{name:?}: {told:?}");
        }
    }
    for taken in ["default", "family", "other"] {
        for told in [db.create_family(taken).map(drop), db.rename_family(&other, taken)] {
            assert!(matches!(&told, Err(Error::FamilyExists(name)) if name == taken), "{told:?}");
        }
    }
    let told = db.create_family_with("new", FamilyOptions::new().block_size(1)).map(drop);
    assert!(matches!(told, Err(Error::InvalidArgument(_))), "{told:?}");
    for told in [db.rename_family(&default, "new"), db.drop_family(&default)] {
        let words = "the default column family cannot be";
        let is_told = matches!(&told, Err(Error::InvalidArgument(what)) if what.contains(words));
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
    db.engine().log.poison(&Error::Poisoned("planted".into()));
    let bad = || FamilyOptions::new().block_size(1);
    let told = |name, options| db.create_family_with(name, options).map(drop).unwrap_err();
    let [of_both, of_name] = [told("", bad()), told("", FamilyOptions::new())];
    assert!(matches!(of_name, Error::InvalidArgument(_)), "{of_name}");
    assert_eq!(of_both.to_string(), of_name.to_string());
    let of_options = told("new", bad());
    assert!(matches!(of_options, Error::InvalidArgument(_)), "{of_options}");
    assert!(matches!(told("new", FamilyOptions::new()), Error::Poisoned(_)));
}

#[test]
fn a_dropped_family_is_neither_dropped_nor_renamed_again_and_its_name_is_free() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let family = db.create_family("family").unwrap();
    family.put("key", "value").unwrap();
    db.drop_family(&family).unwrap();
    assert!(db.engine().families.by_id(family.id()).is_none());
    let tail = db.engine().log.tail();
    for told in [db.drop_family(&family), db.rename_family(&family, "new")] {
        assert!(matches!(&told, Err(Error::UnknownFamily(name)) if name == "family"), "{told:?}");
    }
    assert_eq!(db.engine().log.tail(), tail);
    let again = db.create_family("family").unwrap();
    assert_eq!(again.id(), family.id() + 1);
    assert!(again.get("key").unwrap().is_none());
    let db = open(&fs.killed());
    assert_eq!(db.list_families(), ["default", "family"]);
    assert!(db.family("family").unwrap().get("key").unwrap().is_none());
}

#[test]
fn a_renamed_family_keeps_its_rows_its_handles_and_nothing_of_its_name() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let family = db.create_family("old").unwrap();
    family.put("key", "value").unwrap();
    db.rename_family(&family, "new").unwrap();
    assert_eq!(family.name(), "new");
    for left in [db, open(&fs.killed())] {
        assert_eq!(left.list_families(), ["default", "new"]);
        assert!(matches!(left.family("old"), Err(Error::UnknownFamily(_))));
        let family = left.family("new").unwrap();
        assert_eq!(family.get("key").unwrap().unwrap(), b"value");
        left.rename_family(&family, "new").unwrap_err();
        left.create_family("old").unwrap();
    }
}

/// It is in the log before it is in the manifest, which an open would follow.
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
    let family = db.create_family("first").unwrap();
    check(&["default", "first"]);
    db.rename_family(&family, "second").unwrap();
    check(&["default", "second"]);
    db.drop_family(&family).unwrap();
    check(&["default"]);
}

#[test]
fn a_closed_database_says_so_before_all_else() {
    let db = open(&MemoryFs::new());
    let family = db.create_family("family").unwrap();
    let engine = db.engine().clone();
    let (family, default) = (family.of(&engine).unwrap().clone(), engine.default_family.clone());
    db.close().unwrap();
    let create = crate::write::create_family(&engine, "family", FamilyOptions::new());
    assert!(matches!(create, Err(Error::Closed)));
    for family in [&family, &default] {
        assert!(matches!(crate::write::drop_family(&engine, family), Err(Error::Closed)));
        let renamed = crate::write::rename_family(&engine, family, "family");
        assert!(matches!(renamed, Err(Error::Closed)));
    }
}

/// Nothing that an open reads from the manifest may overtake a commit that an open might miss.
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
        let creator = scope.spawn(|| db.create_family("family").map(drop));
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

/// A database whose failures to put a change of families into the manifest are counted.
fn counting(fs: &MemoryFs) -> (Db, Arc<AtomicU64>) {
    let told = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&told);
    let listener = move |event: &Event| {
        if matches!(event, Event::BackgroundError { job: "change of a column family", .. }) {
            count.fetch_add(1, Ordering::SeqCst);
        }
    };
    let components = Components { fs: Arc::new(fs.clone()), ..Components::system() };
    let options = Options::new().components(components).listener(Arc::new(listener));
    (options.open("db").unwrap(), told)
}

#[test]
fn a_change_that_finds_no_room_several_times_is_told_once_and_holds() {
    let fs = MemoryFs::new();
    let (db, told) = counting(&fs);
    for nth in 1..=3 {
        fs.inject(Fault::on(FileOp::Write).kind(ErrorKind::StorageFull).nth(nth));
    }
    db.create_family("family").unwrap();
    assert_eq!((fs.struck(), told.load(Ordering::SeqCst)), (3, 1));
    assert_eq!(open(&fs.killed()).list_families(), ["default", "family"]);
}

#[test]
fn a_change_that_waits_for_room_is_given_up_when_the_writing_ends() {
    let fs = MemoryFs::new();
    let (db, told) = counting(&fs);
    fs.inject(Fault::on(FileOp::Write).kind(ErrorKind::StorageFull).forever());
    thread::scope(|scope| {
        let creator = scope.spawn(|| db.create_family("family").map(drop));
        while told.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        assert!(!creator.is_finished());
        db.engine().log.poison(&Error::Poisoned("planted".to_owned()));
        let told = creator.join().unwrap();
        assert!(matches!(told, Err(Error::OutcomeUnknown(_))), "{told:?}");
    });
}

#[test]
fn a_change_whose_edit_fails_for_good_has_an_unknown_outcome_and_is_the_last() {
    for change in ["create", "rename", "drop"] {
        let fs = MemoryFs::new();
        let (db, told) = counting(&fs);
        let family = db.create_family("family").unwrap();
        fs.inject(Fault::on(FileOp::Write).forever());
        let outcome = match change {
            "create" => db.create_family("another").map(drop),
            "rename" => db.rename_family(&family, "another"),
            _ => db.drop_family(&family),
        };
        assert!(matches!(outcome, Err(Error::OutcomeUnknown(_))), "{change}: {outcome:?}");
        assert_eq!(told.load(Ordering::SeqCst), 1, "{change}");
        fs.clear_faults();
        assert!(matches!(db.put("key", "value"), Err(Error::Poisoned(_))));
        assert!(matches!(db.family("another"), Err(Error::UnknownFamily(_))), "{change}");
        // The log knows of it, and so does who opens next.
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
