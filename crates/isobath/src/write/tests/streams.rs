//! Streams in a whole database: every read finds them, what nothing needs any more goes, and a
//! fault, a kill or a power cut at any step leaves each commit whole.

use super::*;
use crate::Family;
use crate::env::fixtures::{Wall, soon};
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::options::FamilyOptions;
use crate::vfs::FileAccess;
use std::io::{Read, Seek, SeekFrom, Write};
use std::time::Duration;

mod alone;
mod cuts;
mod transactions;

/// A frame has so many bytes, and a value that is no longer has no file of its own.
const FRAME: usize = 64;

fn options(fs: &MemoryFs) -> Options {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let mut options = Options::new().write_buffer(256 << 10).env(env).compaction_threads(1);
    options.sizes = Sizes { stream_frame_len: FRAME, ..Sizes::default() };
    options
}

fn open_streams(fs: &MemoryFs) -> Db {
    options(fs).open("/db").unwrap()
}

fn value(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 50 + seed) as u8).collect()
}

/// The files that are streams or other blob files.
fn blob_files(fs: &MemoryFs) -> Vec<String> {
    let dir = Path::new("/db/table");
    let is_blob = |name: &str| {
        let mut header = [0; 16];
        let file = fs.open_read(&dir.join(name), FileAccess::Positional);
        // It may be under way, or gone by now.
        file.and_then(|file| file.read_at(0, &mut header)).is_ok() && header[8] == 3
    };
    let names = fs.list(dir).unwrap().into_iter().map(|entry| entry.name);
    names.filter(|name| is_blob(name)).collect()
}

/// Waits until so many blob files are there: another thread may hold one for a moment.
fn wait_for_files(db: &Db, fs: &MemoryFs, count: usize) {
    wait_for(db, fs, |files| files == count);
}

fn wait_for(db: &Db, fs: &MemoryFs, is_right: impl Fn(usize) -> bool) {
    for _ in 0..24_000 {
        db.engine().remove_obsolete_files();
        if is_right(blob_files(fs).len()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("as many were not expected: {:?}", blob_files(fs));
}

fn read_in_pieces(db: &Db, key: &str) -> Option<Vec<u8>> {
    let mut reader = db.get_reader(key).unwrap()?;
    let mut read = Vec::new();
    reader.read_to_end(&mut read).unwrap();
    assert_eq!(reader.len(), read.len() as u64);
    Some(read)
}

/// All reads of the key agree.
fn check(db: &Db, key: &str, expected: Option<&[u8]>) {
    assert_eq!(db.get(key).unwrap().as_deref(), expected, "{key}");
    assert_eq!(db.contains(key).unwrap(), expected.is_some());
    assert_eq!(read_in_pieces(db, key).as_deref(), expected);
    assert_eq!(db.multi_get([key]).unwrap()[0].as_deref(), expected);
    let in_range: Vec<_> = db.range(key..=key).map(|row| row.unwrap().1).collect();
    assert_eq!(in_range.first().map(|value| &**value), expected);
    assert_eq!(db.count(key..=key).unwrap(), expected.iter().count() as u64);
    let mut cursor = db.cursor(key..=key).unwrap();
    let entry = cursor.first().unwrap();
    let len = entry.map(|entry| (entry.value_len(), entry.value().unwrap().to_vec()));
    assert_eq!(len, expected.map(|value| (value.len() as u64, value.to_vec())));
}

#[test]
fn a_value_of_any_length_is_found_by_every_read_wherever_it_lies() {
    let fs = MemoryFs::new();
    let mut db = open_streams(&fs);
    let lens = [0, 1, FRAME, FRAME + 1, 2 * FRAME, 1000, 70_000];
    let key = |len: usize| format!("k{len}");
    for len in lens {
        db.put_reader(key(len), &*value(len, len)).unwrap();
    }
    let check_all = |db: &Db| {
        lens.iter().for_each(|len| check(db, &key(*len), Some(&value(*len, *len))));
        check(db, "none", None);
        let all: usize = db.prefix("k").map(|row| row.unwrap().1.len()).sum();
        assert_eq!(all, lens.iter().sum::<usize>());
    };
    check_all(&db);
    assert_eq!(blob_files(&fs).len(), 4, "short values have no file");
    for step in 0..4 {
        match step {
            0 => db.flush().unwrap(),
            1 => db.compact().unwrap(),
            2 => {
                db.close().unwrap();
                db = open_streams(&fs);
            }
            _ => _ = db.put("other", "value").unwrap(),
        }
        check_all(&db);
    }
    wait_for_files(&db, &fs, 4);
    let metrics = db.metrics();
    assert_eq!((metrics.streams, metrics.blob_files), (4, 0));
    let files = blob_files(&fs);
    let entries = fs.list(Path::new("/db/table")).unwrap().into_iter();
    let lens = entries.filter(|entry| files.contains(&entry.name)).map(|entry| entry.len);
    assert_eq!(metrics.stream_bytes, lens.sum::<u64>());
}

#[test]
fn a_reader_goes_to_any_place_and_sees_its_point() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    let old = value(1, 1000);
    db.put_reader("k", &*old).unwrap();
    let mut reader = db.get_reader("k").unwrap().unwrap();
    let snapshot = db.snapshot();
    db.put_reader("k", &*value(2, 500)).unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    let mut piece = [0; 100];
    for at in [0, 63, 64, 900, 500] {
        assert_eq!(reader.seek(SeekFrom::Start(at as u64)).unwrap(), at as u64);
        reader.read_exact(&mut piece).unwrap();
        assert_eq!(piece, old[at..at + 100]);
    }
    assert_eq!(reader.seek(SeekFrom::End(-10)).unwrap(), 990);
    assert_eq!(reader.seek(SeekFrom::Current(5)).unwrap(), 995);
    assert_eq!(reader.read(&mut piece).unwrap(), 5);
    assert!(reader.seek(SeekFrom::Current(-1001)).is_err());
    reader.seek(SeekFrom::Start(2000)).unwrap();
    assert_eq!(reader.read(&mut piece).unwrap(), 0);
    assert_eq!(snapshot.get("k").unwrap().unwrap(), old);
    wait_for_files(&db, &fs, 2);
    drop((snapshot, reader));
    // What a compaction has kept for a snapshot the next one drops that meets it.
    db.write(Batch::new().put("j", "1").put("l", "1")).unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    wait_for_files(&db, &fs, 1);
    let mut reader = db.get_reader("k").unwrap().unwrap();
    db.close().unwrap();
    let error = reader.read(&mut piece).unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
}

#[test]
fn what_no_key_has_any_more_is_removed_by_the_flush_or_the_compaction_that_finds_it_out() {
    for is_flushed in [false, true] {
        for way in 0..5 {
            // By the clock of the system a value could end too early.
            let (fs, wall) = (MemoryFs::new(), Arc::new(Wall(AtomicU64::new(1 << 40))));
            let (disk, clock) = (Arc::new(fs.clone()), wall.clone());
            let env = Env { fs: disk, clock, ..Env::system() };
            let db = options(&fs).env(env).open("/db").unwrap();
            let short = FamilyOptions::new().ttl(Duration::from_millis(30));
            let family = match way {
                3 => db.family(("f", short)).unwrap(),
                _ => db.family("f").unwrap(),
            };
            family.put_reader("k", &*value(1, 1000)).unwrap();
            family.put("other", "value").unwrap();
            wait_for_files(&db, &fs, 1);
            if is_flushed {
                db.flush().unwrap();
                wait_for_files(&db, &fs, 1);
            }
            match way {
                0 => _ = family.delete("k").unwrap(),
                1 => _ = family.put_reader("k", &b"short"[..]).unwrap(),
                2 => _ = family.delete_range("a".."z").unwrap(),
                3 => _ = wall.0.fetch_add(60, Ordering::Relaxed),
                _ => db.drop_family(&family).unwrap(),
            }
            if way < 4 {
                assert!(family.get("k").unwrap().is_none_or(|value| value == "short"), "{way}");
            }
            db.flush().unwrap();
            if way < 4 {
                family.compact(..).unwrap();
            }
            wait_for_files(&db, &fs, 0);
        }
    }
}

/// Nothing asks for a flush: a stream takes little memory, whatever its length.
#[test]
fn streams_that_are_replaced_or_deleted_go_while_writes_go_on() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    let put_many = |put: &dyn Fn(usize)| {
        for round in 0..4000 {
            put(round);
            db.put("small", "value").unwrap();
        }
        // What the last epoch holds stays, and what the tree has not dropped yet.
        wait_for(&db, &fs, |files| files < 2200);
    };
    put_many(&|round| _ = db.put_reader("k", &*value(round, 100)).unwrap());
    let by_length = |round| _ = db.put_reader("k", &*value(round, 200 << 10)).unwrap();
    let before = db.metrics().flushes;
    (0..60).for_each(by_length);
    let epochs = &db.engine().epochs;
    assert!(soon(|| epochs.flushed() + 1 >= epochs.list().open.id), "what was sealed is flushed");
    let flushes = db.metrics().flushes - before;
    assert!(flushes >= 2, "{flushes}: they are three times as long as an epoch may hold");
    put_many(&|round| {
        db.put_reader(format!("k{round}"), &*value(round, 100)).unwrap();
        db.delete(format!("k{round}")).unwrap();
    });
    // All that stay are told. What the tree has just dropped is a file for a moment more.
    wait_for(&db, &fs, |files| files as u64 <= db.metrics().streams);
}

#[test]
fn other_ends_of_a_stream_fill_no_epoch() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    db.put_reader("long", &*value(1, 4 << 20)).unwrap();
    db.put("small", "value").unwrap();
    db.flush().unwrap();
    let before = db.metrics().flushes;
    for hours in 1..=600 {
        assert!(db.set_expiry("long", Duration::from_secs(3600 * hours)).unwrap());
    }
    assert!(db.metrics().flushes <= before + 1, "{} flushes", db.metrics().flushes - before);
    assert!(db.engine().epochs.list().open.streams().len() <= 1, "it is one file");
}

#[test]
fn a_stream_of_a_dropped_family_stays_until_no_replay_reads_its_record() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    let family = db.family("f").unwrap();
    family.put_reader("k", &*value(1, 1000)).unwrap();
    db.put_reader("kept", &*value(2, 1000)).unwrap();
    db.drop_family(&family).unwrap();
    drop(family);
    db.engine().remove_obsolete_files();
    assert_eq!(blob_files(&fs).len(), 2, "the log has the record");
    for left in [fs.killed(), fs.crashed(|_| 0)] {
        let again = open_streams(&left);
        check(&again, "kept", Some(&value(2, 1000)));
        wait_for_files(&again, &left, 1);
    }
    db.flush().unwrap();
    wait_for_files(&db, &fs, 1);
}

#[test]
fn a_writer_a_stream_and_a_batch_that_are_dropped_leave_no_file() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    let family = db.default_family();
    let long = value(1, 1000);
    let mut writer = db.value_writer(&family).unwrap();
    writer.write_all(&long).unwrap();
    assert_eq!(writer.written(), 1000);
    drop(writer);
    wait_for_files(&db, &fs, 0);
    let finished = || {
        let mut writer = db.value_writer(&family).unwrap();
        writer.write_all(&long).unwrap();
        writer.finish().unwrap()
    };
    drop(finished());
    wait_for_files(&db, &fs, 0);
    let mut batch = Batch::new();
    batch.put_streamed("k", finished());
    wait_for_files(&db, &fs, 1);
    batch.clear();
    wait_for_files(&db, &fs, 0);
    batch.put_streamed("k", finished()).put_streamed("k", finished());
    db.write(&mut batch).unwrap();
    drop(batch);
    check(&db, "k", Some(&long));
    db.flush().unwrap();
    wait_for_files(&db, &fs, 1);
    check(&db, "k", Some(&long));
}

#[test]
fn a_stream_gets_no_file_once_the_directory_is_given_back() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    let mut writer = db.value_writer(&db.default_family()).unwrap();
    db.engine().errands.close();
    let refused = writer.write_all(&value(1, 1000)).unwrap_err();
    assert!(refused.to_string().contains("closed"), "{refused}");
    assert_eq!(blob_files(&fs), [""; 0]);
}

#[test]
fn a_batch_that_is_written_twice_puts_one_file_twice() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    let long = value(1, 1000);
    let mut writer = db.value_writer(&db.default_family()).unwrap();
    writer.write_all(&long).unwrap();
    let mut batch = Batch::new();
    batch.put_streamed("k", writer.finish().unwrap());
    let copy = batch.clone();
    db.write(&mut batch).unwrap();
    db.flush().unwrap();
    db.delete("k").unwrap();
    db.write(batch).unwrap();
    let db = {
        let left = fs.killed();
        drop(db);
        let again = open_streams(&left);
        check(&again, "k", Some(&long));
        again.compact().unwrap();
        check(&again, "k", Some(&long));
        wait_for_files(&again, &left, 1);
        again
    };
    let foreign = db.write(copy).unwrap_err();
    assert!(foreign.to_string().contains("another opening"), "{foreign}");
}

#[test]
fn a_stream_that_is_too_long_for_one_value_is_an_error_of_that_key_alone() {
    let fs = MemoryFs::new();
    let mut options = options(&fs);
    options.sizes.whole_value_max = 999;
    let db = options.open("/db").unwrap();
    db.put("a", "1").unwrap();
    db.put_reader("long", &*value(1, 1000)).unwrap();
    db.put_reader("longest", &*value(1, 999)).unwrap();
    db.put("z", "2").unwrap();
    for _ in 0..2 {
        for error in [
            db.get("long").unwrap_err(),
            db.multi_get(["a", "long"]).unwrap_err(),
            db.range("b".."longest").next().unwrap().unwrap_err(),
        ] {
            assert_eq!(error.name(), "INVALID_ARGUMENT", "{error}");
            let text = error.to_string();
            assert!(text.contains("1000") && text.contains("get_reader") && text.contains("long"));
        }
        assert_eq!(db.get("longest").unwrap().unwrap().len(), 999);
        assert_eq!(read_in_pieces(&db, "long").unwrap(), value(1, 1000));
        assert!(db.contains("long").unwrap() && db.count(..).unwrap() == 4);
        let mut cursor = db.cursor(..).unwrap();
        let mut lens = Vec::new();
        let mut entry = cursor.first().unwrap();
        while let Some(at) = entry {
            lens.push((at.value_len(), at.value().is_ok()));
            entry = cursor.next().unwrap();
        }
        assert_eq!(lens, [(1, true), (1000, false), (999, true), (1, true)]);
        db.flush().unwrap();
    }
}

#[test]
fn a_damaged_stream_is_an_error_of_its_key_and_its_other_pieces_are_read() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    db.put("a", "x").unwrap();
    db.put_reader("b", &*value(1, 1000)).unwrap();
    db.put("c", "x").unwrap();
    let path = Path::new("/db/table").join(&blob_files(&fs)[0]);
    // The third piece.
    let offset = 128 + 2 * (FRAME as u64 + 9);
    fs.corrupt(&path, offset + 5, 1).unwrap();
    let is_told = |error: &dyn std::error::Error| {
        let text = error.to_string();
        let words = [path.to_str().unwrap(), &format!("offset {offset}"), "the value of key \"b\""];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    let keys = |range: &mut dyn Iterator<Item = crate::Result<(crate::Key, crate::Value)>>| {
        let told = range.map(|item| match item {
            Ok((key, _)) => key.to_vec(),
            Err(error) => {
                is_told(&error);
                b"damaged".to_vec()
            }
        });
        told.collect::<Vec<_>>()
    };
    let wanted = [&b"a"[..], b"damaged", b"c"];
    assert_eq!(keys(&mut db.range(..)), wanted);
    assert_eq!(keys(&mut db.range(..).rev()), [wanted[2], wanted[1], wanted[0]]);
    is_told(&db.get("b").unwrap_err());
    is_told(&db.multi_get(["a", "b"]).unwrap_err());
    let mut reader = db.get_reader("b").unwrap().unwrap();
    let mut piece = [0; FRAME];
    for nth in [0, 1, 3] {
        reader.seek(SeekFrom::Start((nth * FRAME) as u64)).unwrap();
        reader.read_exact(&mut piece).unwrap();
        assert_eq!(piece, value(1, 1000)[nth * FRAME..][..FRAME]);
    }
    reader.seek(SeekFrom::Start(2 * FRAME as u64)).unwrap();
    is_told(&reader.read(&mut piece).unwrap_err());
    let (mut reader, name) = (db.get_reader("b").unwrap().unwrap(), path.to_str().unwrap());
    fs.inject(Fault::on(FileOp::Read).suffix(name));
    reader.seek(SeekFrom::Start(2 * FRAME as u64)).unwrap();
    is_told(&reader.read(&mut piece).unwrap_err());
}

#[test]
fn a_stream_in_a_family_whose_values_end_ends_too() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    let options = FamilyOptions::new().ttl(Duration::from_secs(3600));
    let family = db.family(("f", options)).unwrap();
    family.put_reader("alone", &*value(1, 1000)).unwrap();
    let mut writer = db.value_writer(&family).unwrap();
    writer.write_all(&value(2, 1000)).unwrap();
    let mut batch = Batch::new();
    batch.of(&family).put_streamed("in batch", writer.finish().unwrap());
    db.write(batch).unwrap();
    for _ in 0..3 {
        for (key, seed) in [("alone", 1), ("in batch", 2)] {
            let (found, expiry) = family.get_expiry(key).unwrap().unwrap();
            assert_eq!(found, value(seed, 1000));
            assert!(matches!(expiry, crate::Expiry::At(_)), "{expiry:?}");
            let mut reader = family.get_reader(key).unwrap().unwrap();
            let mut read = Vec::new();
            reader.read_to_end(&mut read).unwrap();
            assert_eq!(read, value(seed, 1000));
        }
        db.flush().unwrap();
        family.compact(..).unwrap();
    }
}

#[test]
fn operands_over_a_stream_are_folded_for_readers_and_the_stream_stays() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    let options = FamilyOptions::new().merge_operator("isobath.append");
    let family: Family = db.family(("f", options)).unwrap();
    let long = value(1, 1000);
    family.put_reader("k", &*long).unwrap();
    for nth in 0..3 {
        family.merge("k", [nth]).unwrap();
        let expected = [&long[..], &(0..=nth).collect::<Vec<_>>()].concat();
        assert_eq!(family.get("k").unwrap().unwrap(), expected);
        db.flush().unwrap();
        assert_eq!(family.get("k").unwrap().unwrap(), expected);
        family.compact(..).unwrap();
        assert_eq!(family.range(..).next().unwrap().unwrap().1, expected);
        wait_for_files(&db, &fs, 1);
    }
}

#[test]
fn a_reader_beside_the_writer_reads_streams_that_the_writer_has_removed_since() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    db.put_reader("in table", &*value(1, 1000)).unwrap();
    db.flush().unwrap();
    db.put_reader("in log", &*value(2, 1000)).unwrap();
    let beside = options(&fs).read_only(true).open("/db").unwrap();
    let check_both = || {
        check(&beside, "in table", Some(&value(1, 1000)));
        check(&beside, "in log", Some(&value(2, 1000)));
    };
    check_both();
    db.delete("in table").unwrap();
    db.delete("in log").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    wait_for_files(&db, &fs, 0);
    check_both();
    db.put_reader("later", &*value(3, 1000)).unwrap();
    beside.catch_up().unwrap();
    check(&beside, "later", Some(&value(3, 1000)));
    check(&beside, "in log", None);
    let refused = beside.value_writer(&beside.default_family()).unwrap_err();
    assert_eq!(refused.name(), "READ_ONLY");
}

#[test]
fn a_reader_beside_the_writer_holds_tables_before_streams_and_few_of_these() {
    let fs = MemoryFs::new();
    let (db, max) = (open_streams(&fs), 64);
    let other = db.family("z").unwrap();
    // In a file of its own: one that two families share stays open for either.
    other.put("plain", "value").unwrap();
    db.flush().unwrap();
    let put_all = |from: usize| {
        let streams = from..from + 2 * max;
        streams.for_each(|at| _ = db.put_reader(format!("k{at:03}"), &*value(at, 100)).unwrap());
    };
    put_all(0);
    db.flush().unwrap();
    put_all(2 * max);
    let beside = options(&fs).read_only(true).max_open_files(max).open("/db").unwrap();
    for family in beside.engine().families.all() {
        for (_, slice) in family.view().tree.iter() {
            assert!(slice.file.is_kept_open());
            assert!(slice.streams.iter().filter(|file| file.is_kept_open()).count() < max);
        }
    }
    let line = beside.engine().shown.as_ref().unwrap().line.lock();
    let of_log = line.as_ref().unwrap().epoch.streams();
    assert_eq!(of_log.iter().filter(|file| file.is_kept_open()).count(), max / 2);
    drop(line);
    check(&beside, "k000", Some(&value(0, 100)));
    check(&beside, &format!("k{}", 4 * max - 1), Some(&value(4 * max - 1, 100)));
    // What the writer removes from the tables of others stays.
    other.put("plain", "later").unwrap();
    db.flush().unwrap();
    other.compact(..).unwrap();
    assert_eq!(beside.family("z").unwrap().get("plain").unwrap().unwrap(), "value");
    // The streams that are open take no room from the tables of a later look, which are fewer than
    // may be open also if no compaction comes in between.
    for nth in 0..max / 2 {
        other.put(format!("more {nth}"), "value").unwrap();
        db.flush().unwrap();
    }
    beside.catch_up().unwrap();
    for family in beside.engine().families.all() {
        assert!(family.view().tree.iter().all(|(_, slice)| slice.file.is_kept_open()));
    }
}

#[test]
fn what_cannot_be_read_or_written_is_an_error_and_leaves_no_file() {
    struct Broken(usize);
    impl Read for Broken {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let len = buf.len().min(self.0);
            self.0 -= len;
            if len > 0 { Ok(len) } else { Err(io::Error::other("the pipe is broken")) }
        }
    }
    struct Interrupted<'a>(&'a [u8], bool);
    impl Read for Interrupted<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 { Err(io::ErrorKind::Interrupted.into()) } else { self.0.read(buf) }
        }
    }
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    db.put_reader("interrupted", Interrupted(&value(1, 1000), false)).unwrap();
    check(&db, "interrupted", Some(&value(1, 1000)));
    db.delete("interrupted").unwrap();
    db.flush().unwrap();
    wait_for_files(&db, &fs, 0);
    for len in [10, 1000] {
        let error = db.put_reader("k", Broken(len)).unwrap_err();
        assert!(error.to_string().contains("the pipe is broken"), "{error}");
    }
    for op in [FileOp::Create, FileOp::Write, FileOp::Sync] {
        fs.inject(Fault::on(op).suffix(".tbl").kind(io::ErrorKind::StorageFull));
        let error = db.put_reader("k", &*value(1, 300_000)).unwrap_err();
        assert_eq!(error.io_kind(), Some(io::ErrorKind::StorageFull), "{op:?}");
    }
    wait_for_files(&db, &fs, 0);
    check(&db, "k", None);
    db.put_reader("k", &*value(1, 1000)).unwrap();
    check(&db, "k", Some(&value(1, 1000)));
}
