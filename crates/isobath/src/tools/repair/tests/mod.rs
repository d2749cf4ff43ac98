//! Databases damaged in every way. A repaired one must open, verify, and hold everything that its
//! report does not name as lost.

mod blobs;
mod clones;
mod damage;
mod families;
mod log;
mod manifests;
mod merging;
mod misplaced;
mod moved;
mod prepared;
mod refused;
#[cfg(not(any(loom, shuttle)))]
mod sectors;
mod steps;
mod streams;
mod vouched;

use super::{RepairOptions, RepairReport, repair};
use crate::env::Env;
use crate::options::{FamilyOptions, Options, WriteOptions};
use crate::tools::verify;
use crate::version::{LOG_DIR, TABLE_DIR};
use crate::vfs::{FileSystem, MemoryFs};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DB: &str = "db";
const USERS: &str = "users";
/// The number of keys in tables below level 0, in a run in level 0, and only in the log: so many
/// each.
const KEYS: u32 = 60;

type Content = BTreeMap<(String, Vec<u8>), Vec<u8>>;

fn env(fs: &MemoryFs) -> Env {
    Env { fs: Arc::new(fs.clone()), ..Env::system() }
}

fn options(fs: &MemoryFs) -> Options {
    Options::new()
        .write_buffer(64 << 10)
        .block_cache(0)
        .family(FamilyOptions::new().block_size(256))
        .env(env(fs))
}

fn key(n: u32) -> Vec<u8> {
    format!("key{n:04}").into_bytes()
}

fn value(n: u32) -> Vec<u8> {
    format!("value {n} ").repeat(4).into_bytes()
}

/// A database as a killed process leaves it: two families with keys in a level, in a run and in the
/// log.
fn left_behind() -> (MemoryFs, Content) {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let users = db.family((USERS, FamilyOptions::new().filter_bits_per_key(0))).unwrap();
    for stage in 0..3 {
        for n in stage * KEYS..(stage + 1) * KEYS {
            // Each stage has its own keys, spread between those of the other stages.
            let n = n.wrapping_mul(7) % (3 * KEYS);
            db.with(WriteOptions::sync()).put(key(n), value(n)).unwrap();
            if n.is_multiple_of(3) {
                users.put(key(n), value(n + 1)).unwrap();
            }
        }
        match stage {
            0 => db.default_family().compact(..).unwrap(),
            1 => db.flush().unwrap(),
            _ => db.sync().unwrap(),
        }
    }
    let content = content(&db);
    let left = fs.killed();
    assert_eq!(content.len() as u32, 3 * KEYS + KEYS);
    (left, content)
}

fn content(db: &crate::Db) -> Content {
    let mut found = Content::new();
    for name in db.list_families() {
        let family = db.family_if_exists(&name).unwrap().unwrap();
        for entry in family.range(..) {
            let (key, value) = entry.unwrap();
            found.insert((name.clone(), key.to_vec()), value.to_vec());
        }
    }
    found
}

fn run(fs: &MemoryFs, is_dry: bool) -> crate::Result<RepairReport> {
    let options = RepairOptions::new().env(env(fs)).dry_run(is_dry);
    repair(Path::new(DB), &options, &mut |_, _| ControlFlow::Continue(()))
}

/// Repairs, and checks that the result is intact. Returns its content.
fn repaired(fs: &MemoryFs) -> (RepairReport, Content) {
    let foretold = run(fs, true).unwrap();
    let report = run(fs, false).unwrap();
    assert_eq!(foretold.findings, report.findings);
    assert_eq!(foretold.losses, report.losses);
    let verified = verify(Path::new(DB), &env(fs), &mut |_, _| ()).unwrap();
    assert!(verified.is_clean(), "{verified:?} after {report:?}");
    assert!(run(fs, false).unwrap().is_sound(), "{report:?}");
    let db = options(fs).create_if_missing(false).open(DB).unwrap();
    let found = content(&db);
    db.put("written", "afterwards").unwrap();
    db.close().unwrap();
    (report, found)
}

/// Checks that everything exists except what the report says is lost, and that the report's losses
/// are about right.
#[track_caller]
fn check_losses(report: &RepairReport, found: &Content, expected: &Content) {
    for (key, value) in found {
        assert_eq!(Some(value), expected.get(key), "{key:?} is wrong: {report:?}");
    }
    let is_named = |(family, key): &(String, Vec<u8>)| {
        report.losses.iter().any(|loss| {
            let family_fits = loss.family_name.as_ref().is_none_or(|name| name == family);
            let is_within = |(from, to): &(Vec<u8>, Vec<u8>)| from <= key && key <= to;
            family_fits && loss.keys.as_ref().is_none_or(is_within)
        })
    };
    let lost: Vec<_> = expected.keys().filter(|key| !found.contains_key(key)).collect();
    for key in &lost {
        assert!(is_named(key), "{key:?} is lost and not named: {report:?}");
    }
    assert!(lost.is_empty() || !report.findings.is_empty());
}

/// The files in a folder of the database whose names have this ending.
fn files(fs: &MemoryFs, dir: &str, ending: &str) -> Vec<PathBuf> {
    let dir = Path::new(DB).join(dir);
    let entries = fs.list(&dir).unwrap().into_iter().filter(|entry| !entry.is_dir);
    let mut names: Vec<_> = entries.map(|entry| entry.name).collect();
    names.retain(|name| name.contains(ending));
    names.sort();
    names.into_iter().map(|name| dir.join(name)).collect()
}

fn tables(fs: &MemoryFs) -> Vec<PathBuf> {
    files(fs, TABLE_DIR, ".tbl")
}

fn segments(fs: &MemoryFs) -> Vec<PathBuf> {
    files(fs, LOG_DIR, ".wal")
}

fn manifests(fs: &MemoryFs) -> Vec<PathBuf> {
    files(fs, "", "MANIFEST-")
}

fn bytes(fs: &MemoryFs, path: &Path) -> Vec<u8> {
    let file = fs.open_read(path, crate::vfs::FileAccess::Positional).unwrap();
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Every file with its bytes, except the lock file.
fn everything(fs: &MemoryFs) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for dir in ["", TABLE_DIR, LOG_DIR] {
        for path in files(fs, dir, "") {
            if !path.ends_with("LOCK") {
                found.insert(path.clone(), bytes(fs, &path));
            }
        }
    }
    found
}
