//! What a look beside the writer costs, in bytes read.

use super::super::catch_up::catch_up_within;
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

/// No table that it has opened, or may open, tells it: the log goes on. A call that has tried
/// before may leave it to the next one.
#[test]
fn a_reader_goes_over_to_new_tables_where_those_that_it_does_not_hold_are_gone() {
    for leaves_it in [false, true] {
        let fs = MemoryFs::new();
        let (_writer, reader) = with_other_tables(&fs);
        if leaves_it {
            catch_up_within(reader.engine(), 0).unwrap();
        }
        assert_reads_all(&reader);
    }
}

#[test]
fn a_reader_is_told_what_helps_where_a_table_is_gone_that_it_does_not_hold() {
    let fs = MemoryFs::new();
    let (_writer, reader) = with_other_tables(&fs);
    let read = |round: u32| reader.get(round.to_be_bytes());
    let refused = (0..12).find_map(|round| read(round).err()).expect("eight tables are held");
    let told = refused.to_string();
    assert!(told.contains(".tbl") && told.contains("catch up"), "{told}");
    assert!(told.contains("max_open_files"), "{told}");
    reader.catch_up().unwrap();
    assert!((0..12).all(|round| read(round).unwrap().unwrap() == "value"));
}

/// A writer of twelve tables that has made one of them and removed them, and a reader that holds
/// eight.
fn with_other_tables(fs: &MemoryFs) -> (Db, Db) {
    let mut options = options(fs);
    options.sizes = Sizes { l0_trigger_runs: 100, ..options.sizes };
    let writer = options.open("/db").unwrap();
    writer.engine().maintenance.close();
    for round in 0..12u32 {
        writer.put(round.to_be_bytes(), "value").unwrap();
        writer.put("each", round.to_be_bytes()).unwrap();
        writer.flush().unwrap();
    }
    let reader = reading(fs).max_open_files(8).open("/db").unwrap();
    let before = fs.list(Path::new("/db/table")).unwrap().len();
    writer.compact().unwrap();
    while fs.list(Path::new("/db/table")).unwrap().len() >= before {
        writer.engine().remove_obsolete_files();
    }
    (writer, reader)
}

/// It reads all once it has caught up, whatever the cache of files had.
fn assert_reads_all(reader: &Db) {
    reader.engine().tables.files.keep_only(&std::collections::BTreeSet::new());
    reader.catch_up().unwrap();
    for round in 0..12u32 {
        assert_eq!(reader.get(round.to_be_bytes()).unwrap().unwrap(), "value", "{round}");
    }
}

/// The reader could go on as it is, so what it lacks for new tables must not keep it from the log.
#[test]
fn a_reader_that_cannot_open_new_tables_follows_the_log() {
    let fs = MemoryFs::new();
    let (writer, reader) = with_other_tables(&fs);
    writer.put("later", "value").unwrap();
    fs.inject(Fault::on(FileOp::OpenRead).suffix(".tbl").errno(24).forever());
    reader.catch_up().unwrap();
    assert_eq!(reader.get("later").unwrap().unwrap(), "value");
    fs.clear_faults();
    assert_reads_all(&reader);
}

/// The writer has removed them, and the place of each is another's.
#[test]
fn a_reader_lets_go_of_streams_of_values_that_were_replaced() {
    let fs = MemoryFs::new();
    let mut options = options(&fs);
    options.sizes.stream_frame_len = 1 << 10;
    let writer = options.open("/db").unwrap();
    writer.engine().maintenance.close();
    let put = |round: u8| assert!(writer.put_reader("key", &[round; 3000][..]).is_ok());
    let reader = reading(&fs).max_open_files(8).open("/db").unwrap();
    for round in 0..12 {
        put(round);
        // The reader has all of the log before the flush is over.
        fs.inject(Fault::on(FileOp::Create).suffix(".tbl").errno(24).forever());
        assert!(writer.flush().unwrap_err().is_retryable());
        reader.catch_up().unwrap();
        fs.clear_faults();
        writer.flush().unwrap();
        reader.catch_up().unwrap();
    }
    put(100);
    reader.catch_up().unwrap();
    let snapshot = reader.snapshot();
    let before = fs.list(Path::new("/db/table")).unwrap().len();
    put(101);
    writer.compact().unwrap();
    while fs.list(Path::new("/db/table")).unwrap().len() > before.min(3) {
        writer.engine().remove_obsolete_files();
    }
    reader.engine().tables.files.keep_only(&std::collections::BTreeSet::new());
    assert_eq!(snapshot.get("key").unwrap().unwrap(), [100; 3000]);
}

#[test]
fn families_that_came_and_went_take_no_memory_of_a_reader_for_good() {
    let fs = MemoryFs::new();
    let writer = options(&fs).open("/db").unwrap();
    let reader = read(&fs);
    for nth in 0..100 {
        let family = writer.family(format!("family {nth}").as_str()).unwrap();
        writer.drop_family(&family).unwrap();
    }
    let gone =
        || reader.engine().shown.as_ref().unwrap().line.lock().as_ref().unwrap().gone_bytes();
    for _ in 0..2 {
        reader.catch_up().unwrap();
        writer.family("another").unwrap();
    }
    assert_eq!(gone(), 0, "no flush is needed: the manifest knows of them");
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
