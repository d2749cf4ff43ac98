//! A build that lacks a codec must report it where data needs the codec, and must not report
//! damage. A build with all codecs, the default, reports nothing of the kind.
//!
//! `cargo test -p isobath --no-default-features --test codecs` tests a build without codecs.

use isobath::env::Env;
use isobath::tools::{self, RepairOptions};
use isobath::{Codec, Error, ErrorKind, FamilyOptions, Options};
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

const CODECS: [(Codec, &str); 3] =
    [(Codec::Lz4, "lz4"), (Codec::Zstd, "zstd"), (Codec::Snappy, "snappy")];

fn has_all() -> bool {
    CODECS.iter().all(|(codec, _)| codec.is_available())
}

/// A copy of a database with families in every codec, whose process was killed.
fn copied(to: &Path) -> PathBuf {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1.1/db");
    for (path, bytes) in files(&golden) {
        let target = to.join(path.strip_prefix(&golden).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, bytes).unwrap();
    }
    to.to_owned()
}

fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), fs::read(path).unwrap())),
        }
    }
    found
}

/// The path in the error, if it reports a missing codec. The codec must be one that this build
/// lacks.
fn missing<T>(result: Result<T, Error>) -> Option<PathBuf> {
    let error = result.err()?;
    let ErrorKind::MissingCodec { path, codec, .. } = error.kind() else { panic!("{error}") };
    assert!(CODECS.iter().any(|(known, name)| name == codec && !known.is_available()));
    Some(path.clone())
}

#[test]
fn a_database_whose_options_name_a_codec_that_is_not_there_is_refused_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let db = copied(&dir.path().join("db"));
    let before = files(&db);
    let refused = missing(Options::new().open(&db).and_then(|db| db.close()));
    assert_eq!(refused, (!has_all()).then(|| db.clone()));
    if refused.is_some() {
        // The lock file names the process that opened the database.
        let differs = |(path, bytes): &(PathBuf, Vec<u8>)| before.get(path) != Some(bytes);
        let changed: Vec<_> = files(&db).into_iter().filter(differs).collect();
        assert!(changed.iter().all(|(path, _)| path.ends_with("LOCK")), "{changed:?}");
    }
}

#[test]
fn a_table_with_blocks_of_a_codec_that_is_not_there_is_named_and_not_called_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let db = copied(&dir.path().join("db"));
    let verified = tools::verify(&db, &Env::system(), &mut |_, _| ());
    match missing(verified) {
        Some(path) => assert!(!has_all() && path.starts_with(db.join("table")), "{path:?}"),
        None => assert!(has_all()),
    }
}

#[test]
fn a_repair_gives_no_block_up_for_want_of_its_codec() {
    let dir = tempfile::tempdir().unwrap();
    let db = copied(&dir.path().join("db"));
    // A table without its footer must be searched block by block.
    for (path, bytes) in files(&db.join("table")) {
        fs::write(path, &bytes[..bytes.len() - 40]).unwrap();
    }
    let before = files(&db.join("table"));
    let repaired = tools::repair(&db, &RepairOptions::new(), &mut |_, _| ControlFlow::Continue(()));
    match missing(repaired) {
        Some(path) => {
            assert!(!has_all() && path.starts_with(db.join("table")), "{path:?}");
            assert_eq!(files(&db.join("table")), before);
        }
        None => assert!(has_all()),
    }
}

#[test]
fn options_with_a_codec_that_is_not_there_are_refused_with_the_feature_that_brings_it() {
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().open(dir.path()).unwrap();
    for (codec, name) in CODECS {
        let asked = FamilyOptions::new().codec(codec);
        match db.family((name, asked.clone())) {
            Ok(_) => assert!(codec.is_available()),
            Err(error) => {
                assert_eq!(error.name(), "INVALID_ARGUMENT");
                let names_it = error.to_string().contains(&format!("`{name}`"));
                assert!(!codec.is_available() && names_it, "{error}");
            }
        }
        let opened = Options::new().family(asked).open(dir.path().join(name));
        assert_eq!(opened.is_ok(), codec.is_available());
    }
    // The build can read what it wrote itself.
    for key in 0..1000u32 {
        db.put(key.to_be_bytes(), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.get(500u32.to_be_bytes()).unwrap().unwrap(), [7; 100]);
    db.close().unwrap();
}
