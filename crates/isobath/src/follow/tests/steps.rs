//! What a look beside the writer costs, in bytes read.

use super::*;
use crate::Options;

/// Segments of a MiB, so that much log is prepared ahead.
fn with_long_segments(fs: &MemoryFs) -> Options {
    let mut options = options(fs).write_buffer(4 << 20);
    options.sizes = Sizes { segment_len_min: 1 << 20, ..options.sizes };
    options
}

fn cost(fs: &MemoryFs, reader: &Db) -> u64 {
    let before = fs.read_bytes();
    reader.catch_up().unwrap();
    fs.read_bytes() - before
}

#[test]
fn a_look_reads_little_when_nothing_is_new_and_about_a_mebibyte_behind_something_new() {
    let fs = MemoryFs::new();
    let writer = with_long_segments(&fs).open("/db").unwrap();
    for round in 0..20_000u32 {
        writer.put(round.to_be_bytes(), [7; 100]).unwrap();
    }
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let reader = with_long_segments(&fs).env(env).read_only(true).open("/db").unwrap();
    for round in 0..30u32 {
        let nothing = cost(&fs, &reader);
        writer.put("key", round.to_be_bytes()).unwrap();
        let one = cost(&fs, &reader);
        assert_eq!(reader.get("key").unwrap().unwrap(), round.to_be_bytes());
        assert!(one < 5 << 19, "{one} bytes for a record");
        let rest: Vec<u64> = (0..8).map(|_| cost(&fs, &reader)).collect();
        assert!(rest[7] < 12 << 10, "{rest:?} bytes when nothing is new, and before {nothing}");
    }
}

#[test]
fn a_look_that_finds_edits_folds_them_alone() {
    use crate::version::FOLDS;
    let fs = MemoryFs::new();
    let writer = options(&fs).open("/db").unwrap();
    writer.engine().maintenance.close();
    let set = |separate_from: u64| {
        let options = crate::FamilyOptions::new().separate_from(separate_from);
        writer.default_family().set_options(options).unwrap();
    };
    for round in 0..50u32 {
        set(4096 + u64::from(round));
    }
    let reader = read(&fs);
    for round in 0..20u32 {
        set(8192 + u64::from(round));
        let (read, folds) = (fs.read_bytes(), FOLDS.get());
        reader.catch_up().unwrap();
        assert_eq!(FOLDS.get() - folds, 1);
        let read = fs.read_bytes() - read;
        assert!(read < 16 << 10, "{read} bytes");
    }
}

/// The files that an earlier moment has opened stay open as long as the manifest names them.
#[test]
fn a_reader_that_begins_anew_holds_no_more_files_than_it_may() {
    let fs = MemoryFs::new();
    let mut options = options(&fs);
    options.sizes = Sizes { l0_trigger_runs: 100, ..options.sizes };
    let writer = options.open("/db").unwrap();
    writer.engine().maintenance.close();
    let write = |round: u32| {
        writer.put("key", round.to_be_bytes()).unwrap();
        writer.flush().unwrap();
    };
    write(0);
    let reader = reading(&fs).max_open_files(8).open("/db").unwrap();
    for round in 1..20 {
        write(round);
        reader.catch_up().unwrap();
        assert_eq!(reader.get("key").unwrap().unwrap(), round.to_be_bytes());
        let family = reader.default_family();
        let tree = family.of(reader.engine()).unwrap().view().tree.clone();
        let is_open = |slice: &&std::sync::Arc<crate::version::Slice>| slice.file.is_kept_open();
        let open = tree.runs.iter().filter(is_open).count();
        assert_eq!(open, tree.runs.len().min(8), "of {} runs", tree.runs.len());
    }
}

/// A look that fails, and is made again, may have opened tables already.
#[test]
fn tables_that_an_open_finds_at_its_second_look_stay_readable() {
    let fs = MemoryFs::new();
    let writer = options(&fs).open("/db").unwrap();
    writer.put("key", "old").unwrap();
    writer.flush().unwrap();
    let names = || fs.list(Path::new("/db/table")).unwrap().into_iter().map(|entry| entry.name);
    let before: Vec<String> = names().collect();
    fs.inject(Fault::on(FileOp::OpenRead).suffix(".wal").kind(std::io::ErrorKind::NotFound));
    let struck = fs.struck();
    let reader = read(&fs);
    assert_eq!(fs.struck(), struck + 1, "the first look has failed");
    writer.put("key", "new").unwrap();
    writer.compact().unwrap();
    while names().any(|name| before.contains(&name)) {
        writer.engine().remove_obsolete_files();
    }
    reader.engine().tables.files.keep_only(&std::collections::BTreeSet::new());
    assert_eq!(reader.get("key").unwrap().unwrap(), b"old");
}
