//! Files of a `SortedFileWriter`: under which name they lie when, whose files a writer removes, and
//! what of a file an ingest refuses.

use super::*;
use crate::SortedFileWriter;
use crate::cursor::Entry;
use crate::env::Random;
use crate::error::Result;
use crate::format::{DEFAULT_FAMILY, OpKind};
use crate::mvcc::Expiring;
use crate::span::{Span, fragments};
use crate::table::{TableOptions, TableWriter};
use crate::vfs::{Fault, FileOp};

const PATH: &str = "/sorted";

fn env(fs: &MemoryFs) -> Env {
    Env { fs: Arc::new(fs.clone()), ..Env::system() }
}

fn begin_file(fs: &MemoryFs, value: &str) -> SortedFileWriter {
    let mut file = SortedFileWriter::create_in(PATH, &env(fs)).unwrap();
    file.put("a", value).unwrap();
    file
}

fn names(fs: &MemoryFs) -> Vec<String> {
    fs.list(Path::new("/")).unwrap().into_iter().map(|entry| entry.name).collect()
}

/// The value of the only key of the file.
fn value_in(fs: &MemoryFs) -> Vec<u8> {
    let db = open(fs);
    let mut ingest = db.ingest().unwrap();
    assert_eq!(ingest.add_file(PATH).unwrap(), 1);
    ingest.commit().unwrap();
    db.get("a").unwrap().unwrap().to_vec()
}

#[test]
fn a_sorted_file_outlives_an_older_writer_of_its_name() {
    let fs = MemoryFs::new();
    let older = begin_file(&fs, "older");
    let _ = fs.remove(Path::new(PATH));
    let newer = begin_file(&fs, "newer");
    drop(older);
    assert_eq!(newer.finish().unwrap(), 1);
    assert_eq!(names(&fs), ["sorted"]);
    assert_eq!(value_in(&fs.crashed(|_| 0)), b"newer");
}

#[test]
fn the_first_of_two_writers_that_finishes_gets_the_name_and_the_other_leaves_nothing() {
    struct Same;
    impl Random for Same {
        fn next_u64(&self) -> u64 {
            u64::MAX
        }
    }
    let fs = MemoryFs::new();
    let env = Env { random: Arc::new(Same), ..env(&fs) };
    let [mut one, mut other, third] =
        [(); 3].map(|()| SortedFileWriter::create_in(PATH, &env).unwrap());
    assert!(!fs.exists(Path::new(PATH)).unwrap(), "it is not finished");
    one.put("a", "one").unwrap();
    other.put("a", "other").unwrap();
    assert_eq!(other.finish().unwrap(), 1);
    let told = one.finish().unwrap_err();
    assert_eq!(told.io_kind(), Some(std::io::ErrorKind::AlreadyExists), "{told}");
    assert!(told.to_string().contains(PATH), "{told}");
    drop(third);
    assert_eq!(names(&fs), ["sorted"]);
    let told = SortedFileWriter::create_in(PATH, &env).unwrap_err();
    assert_eq!(told.io_kind(), Some(std::io::ErrorKind::AlreadyExists), "{told}");
    assert_eq!(names(&fs), ["sorted"]);
    assert_eq!(value_in(&fs), b"other");
}

#[test]
fn a_process_that_dies_leaves_an_unfinished_file_beside_the_name_and_not_under_it() {
    let fs = MemoryFs::new();
    let file = begin_file(&fs, "dies");
    let left = fs.killed();
    drop(file);
    assert!(names(&fs).is_empty());
    let [name] = &names(&left)[..] else { panic!("{:?}", names(&left)) };
    let drawn = name.strip_prefix("isobath-sorted-").and_then(|name| name.strip_suffix(".tmp"));
    assert!(drawn.is_some_and(|drawn| drawn.len() == 16), "{name}");
    begin_file(&left, "next").finish().unwrap();
    assert_eq!(value_in(&left), b"next");
}

#[test]
fn a_sorted_file_that_cannot_get_its_name_is_removed_and_one_that_has_it_is_kept() {
    let fs = MemoryFs::new();
    let file = begin_file(&fs, "unnamed");
    fs.inject(Fault::on(FileOp::Rename));
    file.finish().unwrap_err();
    assert!(names(&fs).is_empty());
    let file = begin_file(&fs, "named");
    fs.inject(Fault::on(FileOp::SyncDir));
    let told = file.finish().unwrap_err().to_string();
    assert!(told.contains("complete file /sorted") && told.contains("sync"), "{told}");
    assert_eq!(names(&fs), ["sorted"]);
    assert_eq!(value_in(&fs), b"named");
}

#[test]
fn a_sorted_file_in_a_directory_that_was_just_made_survives_a_power_cut() {
    let fs = MemoryFs::new();
    fs.create_dir_all(Path::new("/made")).unwrap();
    let mut file = SortedFileWriter::create_in("/made/sorted", &env(&fs)).unwrap();
    file.put("a", "1").unwrap();
    file.finish().unwrap();
    assert!(fs.crashed(|_| 0).exists(Path::new("/made/sorted")).unwrap());
}

/// Its deletes of ranges were not carried out, its operands reached a family without a merge
/// operator, and no tick was due for the ends of its values.
#[test]
fn a_sorted_file_with_what_no_writer_of_such_files_writes_is_refused() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    db.put("kept", "value").unwrap();
    let mut ending = Vec::new();
    Expiring { expires_ms: 7, value: b"value" }.put(&mut ending);
    let span = || Span { start: (*b"k").into(), end: Some((*b"l").into()), seq: 1 };
    let forge = |path: &Path, entry: Option<(OpKind, &[u8])>, has_span: bool| -> Result<()> {
        let mut writer = TableWriter::create(fs.create(path)?, [0; 16], 0)?;
        writer.begin_slice(DEFAULT_FAMILY, &TableOptions::default())?;
        // What is wrong comes behind many that are right.
        for n in 0..500 {
            let (key, value) = (&*key(n), &*vec![7; 300]);
            writer.add(Entry { key, seq: 1, kind: OpKind::Put, value })?;
        }
        if let Some((kind, value)) = entry {
            writer.add(Entry { key: b"a", seq: 1, kind, value })?;
        }
        if has_span {
            writer.set_spans(fragments(vec![span()]));
        }
        writer.finish().map(drop)
    };
    let mut ingest = db.ingest().unwrap();
    for (name, entry, has_span) in [
        ("/span", None, true),
        ("/merge", Some((OpKind::Merge, &b"1"[..])), false),
        ("/ending", Some((OpKind::PutExpiring, &*ending)), false),
    ] {
        forge(Path::new(name), entry, has_span).unwrap();
        let told = ingest.add_file(name).expect_err(name);
        assert_eq!(told.name(), "INVALID_ARGUMENT", "{told}");
        assert!(told.to_string().contains(name), "{told}");
    }
    forge(Path::new("/plain"), Some((OpKind::Delete, b"")), false).unwrap();
    assert_eq!(ingest.add_file("/plain").unwrap(), 501, "nothing was taken of the others");
    ingest.commit().unwrap();
    assert_eq!(db.count(..).unwrap(), 501);
}

#[test]
fn an_empty_sorted_file_does_not_bind_an_ingest_to_its_family() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let side = db.family("side").unwrap();
    SortedFileWriter::create_in(PATH, &env(&fs)).unwrap().finish().unwrap();
    let mut ingest = db.ingest().unwrap();
    assert_eq!(ingest.of(&side).add_file(PATH).unwrap(), 0);
    ingest.put("a", "1").unwrap();
    db.drop_family(&side).unwrap();
    ingest.commit().unwrap();
    assert_eq!(db.get("a").unwrap().unwrap(), "1");
}

#[test]
fn an_ingest_that_has_taken_part_of_a_file_commits_nothing() {
    let fs = MemoryFs::new();
    let mut file = SortedFileWriter::create_in(PATH, &env(&fs)).unwrap();
    (0..400).for_each(|n| file.put(key(n), [1; 300]).unwrap());
    file.finish().unwrap();
    let db = open(&fs);
    let [mut refused, mut broken] = [0; 2];
    for nth in 1.. {
        let mut ingest = db.ingest().unwrap();
        fs.inject(Fault::on(FileOp::Read).suffix(PATH).nth(nth));
        let added = ingest.add_file(PATH);
        fs.clear_faults();
        if added.is_ok() {
            break;
        }
        match ingest.commit() {
            Ok(_) => refused += 1,
            Err(_) => broken += 1,
        }
        assert_eq!(db.count(..).unwrap(), 0, "read {nth}");
    }
    assert!(refused > 3 && broken > 0, "{refused}, {broken}");
}

#[test]
fn an_ingest_goes_on_after_a_key_that_is_too_long() {
    let db = open(&MemoryFs::new());
    let mut ingest = db.ingest().unwrap();
    ingest.put("a", "1").unwrap();
    let long = vec![0xff; crate::MAX_KEY_LEN + 1];
    assert_eq!(ingest.put(&long, "2").unwrap_err().name(), "INVALID_ARGUMENT");
    ingest.put("b", "3").unwrap();
    ingest.commit().unwrap();
    assert_eq!(db.count(..).unwrap(), 2);
}

#[test]
fn an_ingest_whose_last_file_cannot_be_completed_commits_nothing() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let mut ingest = db.ingest().unwrap();
    ingest.put("a", "1").unwrap();
    fs.inject(Fault::on(FileOp::Sync).suffix(".tbl").nth(1));
    ingest.commit().unwrap_err();
    fs.clear_faults();
    ingest.commit().expect_err("the key is gone");
    assert_eq!(db.count(..).unwrap(), 0);
}
