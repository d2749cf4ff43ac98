//! Ten thousand column families cost their bytes, not ten thousand files, through flush, reopen and
//! kill.

use isobath::env::Env;
use isobath::vfs::{FileSystem, MemoryFs};
use isobath::{Batch, Db, Options};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const FAMILIES: usize = 10_000;

fn options(fs: &MemoryFs) -> Options {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    Options::new().env(env).write_buffer(16 << 20)
}

fn files_and_bytes(fs: &MemoryFs, dir: &Path) -> (usize, u64) {
    let mut sum = (0, 0);
    for entry in fs.list(dir).unwrap() {
        let below = dir.join(&entry.name);
        let more = if entry.is_dir { files_and_bytes(fs, &below) } else { (1, entry.len) };
        sum = (sum.0 + more.0, sum.1 + more.1);
    }
    sum
}

/// Opens and reads all families. Even ones hold `round`; odd ones hold their first value.
fn check(fs: &MemoryFs, round: u8) -> Db {
    let db = options(fs).open("/db").unwrap();
    assert_eq!(db.list_families().len(), FAMILIES + 1);
    for n in 0..FAMILIES {
        let family = db.family_if_exists(&format!("family {n}")).unwrap().unwrap();
        let expected = if n % 2 == 0 { round } else { 1 };
        assert_eq!(family.get("key").unwrap().unwrap(), [expected; 20], "family {n}");
    }
    db
}

fn check_files(fs: &MemoryFs) {
    let (files, bytes) = files_and_bytes(fs, Path::new("/db"));
    println!("{files} files, {bytes} bytes");
    assert!(files < 60 && bytes < 128 << 20, "{files} files, {bytes} bytes");
}

#[test]
fn ten_thousand_families_are_made_written_flushed_reopened_and_recovered() {
    let (fs, began) = (MemoryFs::new(), Instant::now());
    let mut since = began;
    let mut lap = |what: &str| {
        println!("{what}: {:.2} s", since.elapsed().as_secs_f64());
        since = Instant::now();
    };
    let db = options(&fs).open("/db").unwrap();
    let families = db.open_families((0..FAMILIES).map(|n| format!("family {n}"))).unwrap();
    lap("created");
    for family in &families {
        family.put("key", [1; 20]).unwrap();
    }
    lap("written one by one");
    db.flush().unwrap();
    lap("flushed");
    let tables = fs.list(Path::new("/db/table")).unwrap().len();
    assert!(tables <= 4, "{tables} table files for one flush");
    check_files(&fs);
    db.close().unwrap();
    lap("closed");
    let db = check(&fs, 1);
    lap("reopened and read");

    let mut batch = Batch::new();
    for n in (0..FAMILIES).step_by(2) {
        batch
            .of(&db.family_if_exists(&format!("family {n}")).unwrap().unwrap())
            .put("key", [2; 20]);
    }
    db.write(batch).unwrap();
    lap("a batch over half of them");
    let left = fs.killed();
    let recovered = check(&left, 2);
    lap("recovered and read");
    recovered.wait_for_compactions(None).unwrap();
    lap("compacted");
    check_files(&left);
    assert!(began.elapsed() < Duration::from_secs(600), "something grows faster than the families");
}
