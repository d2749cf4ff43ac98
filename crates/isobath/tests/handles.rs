//! Handles of column families that are passed to a database to which they do not belong: another
//! one, the same one opened again, or one whose family was dropped. Every method that takes a
//! handle reports the error, and none reads or writes anything.

use isobath::env::Env;
use isobath::vfs::MemoryFs;
use isobath::{Batch, Db, Error, Family, Options, Range, ReadOptions, Readable, Result, Snapshot};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

type Method = fn(&Db, &Snapshot, &Family) -> Result<()>;

/// Every public method that takes a handle, by its file and name. Only the handle can make these
/// calls fail.
const METHODS: [(&str, Method); 30] = [
    ("batch.rs of", |db, _, family| {
        let mut batch = Batch::new();
        batch.put("batch", "default");
        batch.of(family).delete("key");
        db.write(batch).map(drop)
    }),
    ("batch.rs of", |db, _, family| {
        let mut batch = Batch::new();
        batch.put("batch", "default");
        batch.of(family).put("batch", "family");
        db.write(batch).map(drop)
    }),
    ("db.rs clone_family", |db, _, family| db.clone_family(family, "cloned").map(drop)),
    ("db.rs rename_family", |db, _, family| db.rename_family(family, "renamed")),
    ("db.rs value_writer", |db, _, family| db.value_writer(family).map(drop)),
    ("ingest.rs of", |db, _, family| db.ingest()?.of(family).put("key", "value")),
    ("ingest.rs of", |db, _, family| db.ingest()?.of(family).delete("key")),
    ("reads.rs of", |db, _, family| db.with(ReadOptions::new()).of(family).get("key").map(drop)),
    ("reads.rs of", |db, _, family| Readable::of(db, family).get("key").map(drop)),
    ("snapshot.rs of", |_, snapshot, family| snapshot.of(family).get("key").map(drop)),
    ("snapshot.rs of", |_, snapshot, family| snapshot.of(family).get_reader("key").map(drop)),
    ("snapshot.rs of", |_, snapshot, family| snapshot.of(family).contains("key").map(drop)),
    ("snapshot.rs of", |_, snapshot, family| snapshot.of(family).multi_get(["key"]).map(drop)),
    ("snapshot.rs of", |_, snapshot, family| snapshot.of(family).first().map(drop)),
    ("snapshot.rs of", |_, snapshot, family| snapshot.of(family).last().map(drop)),
    ("snapshot.rs of", |_, snapshot, family| snapshot.of(family).count(..).map(drop)),
    ("snapshot.rs of", |_, snapshot, family| first(snapshot.of(family).iter())),
    ("snapshot.rs of", |_, snapshot, family| {
        let mut range = snapshot.of(family).range(..);
        let last = range.next_back().transpose();
        assert!(last.is_ok() || range.next().is_none(), "a range goes on after its error");
        last.map(drop)
    }),
    ("snapshot.rs of", |_, snapshot, family| first(snapshot.of(family).prefix("k"))),
    ("snapshot.rs of", |_, snapshot, family| snapshot.of(family).cursor(..).map(drop)),
    ("snapshot.rs of", |_, snapshot, family| {
        snapshot.with(ReadOptions::new()).of(family).get("key").map(drop)
    }),
    ("transaction.rs of", |db, _, family| db.begin().of(family).get("key").map(drop)),
    ("transaction.rs of", |db, _, family| db.begin().of(family).get_reader("key").map(drop)),
    ("transaction.rs of", |db, _, family| db.begin().of(family).contains("key").map(drop)),
    ("transaction.rs of", |db, _, family| db.begin().of(family).multi_get(["key"]).map(drop)),
    ("transaction.rs of", |db, _, family| db.begin().of(family).get_for_update("key").map(drop)),
    ("transaction.rs of", |db, _, family| first(db.begin().of(family).range(..))),
    ("transaction.rs of", |db, _, family| db.begin().of(family).delete("key")),
    ("transaction.rs of", |db, _, family| {
        db.begin().of(family).put_if("key", None, "value").map(drop)
    }),
    // The last one, because it succeeds where the others do.
    ("db.rs drop_family", |db, _, family| db.drop_family(family)),
];

type Own = fn(&Family) -> Result<()>;

/// The methods of the handle itself.
const OWN: [(&str, Own); 15] = [
    ("put", |family| family.put("key", "value").map(drop)),
    ("put_reader", |family| family.put_reader("key", &b"value"[..]).map(drop)),
    ("delete", |family| family.delete("key").map(drop)),
    ("with", |family| family.with(isobath::WriteOptions::sync()).put("key", "value").map(drop)),
    ("get", |family| family.get("key").map(drop)),
    ("get_reader", |family| family.get_reader("key").map(drop)),
    ("contains", |family| family.contains("key").map(drop)),
    ("multi_get", |family| family.multi_get(["key"]).map(drop)),
    ("first", |family| family.first().map(drop)),
    ("last", |family| family.last().map(drop)),
    ("count", |family| family.count(..).map(drop)),
    ("range", |family| first(family.range(..))),
    ("prefix", |family| first(family.prefix("k"))),
    ("cursor", |family| family.cursor(..).map(drop)),
    ("compact", |family| family.compact(..)),
];

fn first(mut range: Range) -> Result<()> {
    range.next().transpose().map(drop)
}

fn over(fs: &MemoryFs) -> Options {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    Options::new().env(env).write_buffer(64 << 10)
}

/// A database with one key in its default family and one in the family "family".
fn filled(fs: &MemoryFs) -> (Db, Family) {
    let db = over(fs).open("db").unwrap();
    let family = db.family("family").unwrap();
    db.put("key", "default").unwrap();
    family.put("key", "family").unwrap();
    (db, family)
}

fn contents(db: &Db) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    for name in db.list_families() {
        for item in db.family_if_exists(&name).unwrap().unwrap().range(..) {
            let (key, value) = item.unwrap();
            all.push((name.clone(), key.to_vec(), value.to_vec()));
        }
    }
    all
}

/// Passes `handle` to every method. Each must refuse it with `words`, and nothing may change.
fn all_refuse(db: &Db, handle: &Family, words: &str) {
    let (snapshot, before) = (db.snapshot(), contents(db));
    for (name, method) in METHODS {
        match method(db, &snapshot, handle) {
            Err(error) => assert!(error.to_string().contains(words), "{name}: {error}"),
            Ok(()) => panic!("{name} takes {handle:?}, though it should say {words:?}"),
        }
    }
    assert!(contents(db) == before && db.list_families().len() >= 2);
}

/// The public methods in the sources that take a handle.
fn methods_of_the_sources(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            methods_of_the_sources(&path, found);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for signature in text.split("pub fn ").skip(1) {
            let signature = signature.split('{').next().unwrap();
            if signature.contains("Family,") || signature.contains("Family)") {
                let name = signature.split(['(', '<']).next().unwrap();
                found.insert(format!("{} {name}", path.file_name().unwrap().to_str().unwrap()));
            }
        }
    }
}

#[test]
fn the_list_has_every_public_method_that_takes_a_handle() {
    let mut found = BTreeSet::new();
    methods_of_the_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let listed: BTreeSet<String> = METHODS.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(listed, found);
}

#[test]
fn a_handle_serves_its_own_database() {
    let (db, family) = filled(&MemoryFs::new());
    let snapshot = db.snapshot();
    for (name, method) in METHODS {
        method(&db, &snapshot, &family).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn a_handle_of_another_database_is_refused() {
    let ((db, _own), (elsewhere, foreign)) = (filled(&MemoryFs::new()), filled(&MemoryFs::new()));
    db.flush().unwrap();
    elsewhere.flush().unwrap();
    all_refuse(&db, &foreign, "belongs to another database");
    all_refuse(&db, &elsewhere.default_family(), "belongs to another database");
    assert_eq!(foreign.get("key").unwrap().unwrap(), b"family");
    drop(elsewhere);
    all_refuse(&db, &foreign, "belongs to another database");
}

#[test]
fn a_handle_from_before_a_reopen_is_refused() {
    let fs = MemoryFs::new();
    let (db, old) = filled(&fs);
    let (old_default, second_owner) = (db.default_family(), db.clone());
    db.close().unwrap();
    let (db, new) = filled(&fs);
    for old in [&old, &old_default] {
        all_refuse(&db, old, "belongs to another opening of this database");
    }
    drop(second_owner);
    for old in [&old, &old_default] {
        all_refuse(&db, old, "belongs to another opening of this database");
    }
    assert_eq!(new.get("key").unwrap().unwrap(), b"family");
}

#[test]
fn a_batch_over_two_databases_is_written_to_neither() {
    let ((db, own), (elsewhere, foreign)) = (filled(&MemoryFs::new()), filled(&MemoryFs::new()));
    let before = (contents(&db), contents(&elsewhere));
    let mut batch = Batch::new();
    batch.put("new", "default");
    batch.of(&own).put("new", "own");
    batch.of(&foreign).put("new", "foreign");
    for database in [&db, &elsewhere] {
        let error = database.write(batch.clone()).unwrap_err();
        assert!(error.to_string().contains("belongs to another database"), "{error}");
    }
    assert_eq!((contents(&db), contents(&elsewhere)), before);
}

#[test]
fn a_part_without_operations_leaves_no_trace_in_its_batch() {
    let ((db, _), (_elsewhere, foreign)) = (filled(&MemoryFs::new()), filled(&MemoryFs::new()));
    let mut batch = Batch::new();
    batch.put("new", "default");
    batch.of(&foreign);
    db.write(batch).unwrap();
    assert_eq!(db.get("new").unwrap().unwrap(), b"default");
}

#[test]
fn a_handle_of_a_dropped_family_is_refused_though_the_name_is_used_again() {
    let (db, dropped) = filled(&MemoryFs::new());
    db.drop_family(&dropped).unwrap();
    all_refuse_as_unknown(&db, &dropped);
    let again = db.family("family").unwrap();
    assert_eq!(again.range(..).count(), 0);
    again.put("key", "again").unwrap();
    all_refuse_as_unknown(&db, &dropped);
    assert_eq!(again.get("key").unwrap().unwrap(), b"again");
}

fn all_refuse_as_unknown(db: &Db, handle: &Family) {
    let (snapshot, before) = (db.snapshot(), contents(db));
    for (name, method) in OWN {
        let refused = method(handle);
        assert!(
            matches!(refused.as_ref().map_err(Error::name), Err("UNKNOWN_FAMILY")),
            "{name}: {refused:?}"
        );
    }
    for (name, method) in METHODS {
        let refused = method(db, &snapshot, handle);
        assert!(
            matches!(refused.as_ref().map_err(Error::name), Err("UNKNOWN_FAMILY")),
            "{name}: {refused:?}"
        );
    }
    assert_eq!(contents(db), before);
}

#[test]
fn every_method_says_that_the_database_is_closed() {
    let fs = MemoryFs::new();
    let (db, family) = filled(&fs);
    let (snapshot, left) = (db.snapshot(), db.clone());
    db.close().unwrap();
    for _ in 0..2 {
        for (name, method) in METHODS {
            let refused = method(&left, &snapshot, &family);
            assert!(refused.as_ref().is_err_and(Error::is_closed), "{name}: {refused:?}");
        }
        for (name, method) in OWN {
            let refused = method(&family);
            assert!(refused.as_ref().is_err_and(Error::is_closed), "{name}: {refused:?}");
        }
        // It does not matter that the directory is open again.
        let _second = over(&fs).open("db").unwrap();
    }
}

#[test]
fn a_handle_keeps_its_name_up_to_date_and_outlives_everything() {
    let (db, family) = filled(&MemoryFs::new());
    let clone = family.clone();
    db.rename_family(&family, "renamed").unwrap();
    assert_eq!((clone.name(), clone.id()), ("renamed".to_owned(), 1));
    assert_eq!(clone.get("key").unwrap().unwrap(), b"family");
    assert!(db.family_if_exists("family").unwrap().is_none());
    let other = db.family("family").unwrap();
    assert!(other.get("key").unwrap().is_none());
    drop(db);
    assert_eq!((clone.name(), clone.options().level_size_ratio), ("renamed".to_owned(), 10));
}
