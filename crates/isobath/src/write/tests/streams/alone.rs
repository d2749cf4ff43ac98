//! What concerns one stream leaves the others, and their files, alone; and what needs no stream
//! reads none.

use super::*;
use crate::limits::MAX_KEY_LEN;
use crate::{Codec, Expiry, Isolation, TransactionOptions};

const LEVELS: [Isolation; 4] = [
    Isolation::ReadCommitted,
    Isolation::Snapshot,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

const HOUR: Duration = Duration::from_secs(3600);

/// A database in which a stream of 1000 bytes is too long to be read as a whole.
fn open_with_short_values(fs: &MemoryFs) -> Db {
    let mut options = options(fs);
    options.sizes.whole_value_max = 999;
    options.open("/db").unwrap()
}

fn at(level: Isolation) -> TransactionOptions {
    TransactionOptions::new().isolation(level)
}

#[test]
fn a_reader_keeps_the_file_of_its_value_and_nothing_else() {
    for is_flushed in [false, true] {
        let fs = MemoryFs::new();
        let db = open_streams(&fs);
        db.put_reader("k1", &*value(1, 1000)).unwrap();
        db.put_reader("k2", &*value(2, 1000)).unwrap();
        if is_flushed {
            db.flush().unwrap();
        }
        let mut reader = db.get_reader("k1").unwrap().unwrap();
        db.put_reader("k2", &*value(3, 1000)).unwrap();
        db.flush().unwrap();
        db.compact().unwrap();
        wait_for_files(&db, &fs, 2);
        let tables = || {
            let names = fs.list(Path::new("/db/table")).unwrap();
            names.len() - blob_files(&fs).len()
        };
        for _ in 0..24_000 {
            if tables() == 1 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            db.engine().remove_obsolete_files();
        }
        assert_eq!(tables(), 1, "the reader needs no table");
        db.delete("k1").unwrap();
        db.flush().unwrap();
        db.compact().unwrap();
        wait_for_files(&db, &fs, 2);
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert_eq!(read, value(1, 1000));
        drop(reader);
        wait_for_files(&db, &fs, 1);
    }
}

#[test]
fn a_reader_beside_the_writer_goes_on_after_it_has_caught_up() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    db.put_reader("in table", &*value(1, 1000)).unwrap();
    db.flush().unwrap();
    db.put_reader("in log", &*value(2, 1000)).unwrap();
    let beside = options(&fs).read_only(true).open("/db").unwrap();
    let mut readers = ["in table", "in log"].map(|key| beside.get_reader(key).unwrap().unwrap());
    db.delete("in table").unwrap();
    db.delete("in log").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
    wait_for_files(&db, &fs, 0);
    beside.catch_up().unwrap();
    assert!(beside.get_reader("in log").unwrap().is_none());
    for (seed, reader) in (1..).zip(&mut readers) {
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert_eq!(read, value(seed, 1000));
    }
}

/// The keys that a range shows, and `!` for an error.
fn shown(rows: impl Iterator<Item = crate::Result<(crate::Key, crate::Value)>>) -> Vec<String> {
    let name = |row: crate::Result<(crate::Key, crate::Value)>| match row {
        Ok((key, _)) => String::from_utf8(key.to_vec()).unwrap(),
        Err(error) => {
            assert!(error.to_string().contains("get_reader"), "{error}");
            "!".to_owned()
        }
    };
    rows.map(name).collect()
}

#[test]
fn a_range_goes_on_behind_a_stream_that_is_too_long() {
    let fs = MemoryFs::new();
    let db = open_with_short_values(&fs);
    db.put("a", "1").unwrap();
    db.put_reader("long", &*value(1, 1000)).unwrap();
    db.put_reader("longer", &*value(1, 2000)).unwrap();
    db.put("z", "2").unwrap();
    for _ in 0..2 {
        assert_eq!(shown(db.range(..)), ["a", "!", "!", "z"]);
        assert_eq!(shown(db.range(..).rev()), ["z", "!", "!", "a"]);
        assert_eq!(shown(db.prefix("long")), ["!", "!"]);
        assert_eq!(db.iter().values().count(), 4);
        for from_front in 0..=4 {
            let mut range = db.range(..);
            let mut all = shown(range.by_ref().take(from_front));
            let mut rest = shown(range.by_ref().rev());
            rest.reverse();
            all.extend(rest);
            assert_eq!(all, ["a", "!", "!", "z"], "{from_front} from the front");
            assert!(range.next().is_none() && range.next_back().is_none());
        }
        for level in LEVELS {
            let tx = db.with(at(level)).begin();
            tx.put("b", "own").unwrap();
            assert_eq!(shown(tx.range(..)), ["a", "b", "!", "!", "z"]);
            assert_eq!(shown(tx.range(..).rev()), ["z", "!", "!", "b", "a"]);
        }
        db.flush().unwrap();
    }
    for level in [Isolation::RepeatableRead, Isolation::Serializable] {
        for key in ["long", "y"] {
            let tx = db.with(at(level)).begin();
            assert_eq!(tx.range("b"..="longer").count(), 2);
            tx.put("other", "value").unwrap();
            db.put_reader(key, &*value(2, 1000)).unwrap();
            assert_eq!(tx.commit().is_err(), key == "long", "{level:?} relies on what it passed");
        }
    }
}

#[test]
fn a_pop_of_a_stream_that_is_too_long_removes_nothing() {
    let fs = MemoryFs::new();
    let db = open_with_short_values(&fs);
    db.put_reader("long", &*value(1, 1000)).unwrap();
    db.put_reader("shorter", &*value(1, 999)).unwrap();
    for _ in 0..2 {
        let tx = db.begin();
        for error in [
            db.pop_first(..).unwrap_err(),
            db.pop_last(..="long").unwrap_err(),
            tx.pop_first(..).unwrap_err(),
        ] {
            assert_eq!(error.name(), "INVALID_ARGUMENT", "{error}");
        }
        tx.put("tx", "goes on").unwrap();
        tx.commit().unwrap();
        assert_eq!(db.count(..).unwrap(), 3);
        db.flush().unwrap();
    }
    db.delete("tx").unwrap();
    let (key, found) = db.pop_last(..).unwrap().unwrap();
    assert!(key == "shorter" && found == value(1, 999));
}

#[test]
fn what_never_fits_below_the_ceiling_is_too_long_and_not_worth_another_try() {
    let fs = MemoryFs::new();
    let mut options = options(&fs).memory(24 << 20);
    options.sizes = Sizes::default();
    let db = options.open("/db").unwrap();
    db.put_reader("fits", io::repeat(7).take(1 << 20)).unwrap();
    db.put_reader("long", io::repeat(7).take(24 << 20)).unwrap();
    assert_eq!(db.get("fits").unwrap().unwrap().len(), 1 << 20);
    let error = db.get("long").unwrap_err();
    assert_eq!(error.name(), "INVALID_ARGUMENT", "{error}");
    assert!(!error.is_retryable() && error.to_string().contains("get_reader"), "{error}");
    assert_eq!(db.get_reader("long").unwrap().unwrap().len(), 24 << 20);
}

#[test]
fn a_value_that_lies_apart_and_never_fits_is_told_before_it_is_read() {
    let fs = MemoryFs::new();
    let mut options = options(&fs);
    options.sizes = Sizes::default();
    let db = options.clone().open("/db").unwrap();
    let apart = FamilyOptions::new().codec(Codec::Lz4).separate_from(1000);
    let family = db.family(("apart", apart)).unwrap();
    for (key, len) in [("a", 1 << 20), ("b", 24 << 20), ("c", 1 << 20)] {
        family.put(key, vec![7; len]).unwrap();
    }
    db.close().unwrap();
    let db = options.memory(24 << 20).open("/db").unwrap();
    let family = db.family("apart").unwrap();
    let error = family.get("b").unwrap_err();
    assert_eq!(error.name(), "INVALID_ARGUMENT", "{error}");
    assert!(!error.is_retryable() && error.to_string().contains("Options::memory"), "{error}");
    assert!(family.multi_get(["a", "b"]).is_err() && family.contains("b").unwrap());
    let lens = family.range(..).map(|item| item.map(|(_, value)| value.len()).ok());
    assert_eq!(lens.collect::<Vec<_>>(), [Some(1 << 20), None, Some(1 << 20)]);
    db.compact().unwrap();
}

#[test]
fn a_value_fits_up_to_what_there_can_be_below_the_ceiling_and_a_range_goes_on_without_memory() {
    let fs = MemoryFs::new();
    let mut options = options(&fs).memory(24 << 20);
    options.sizes = Sizes::default();
    let db = options.open("/db").unwrap();
    let most = db.engine().ceiling.whole_max;
    for (key, len) in [("a most", most), ("b more", most + 1), ("c half", most / 2)] {
        db.put_reader(key, io::repeat(7).take(len)).unwrap();
    }
    db.put("d", "value").unwrap();
    assert_eq!(db.get("b more").unwrap_err().name(), "INVALID_ARGUMENT");
    assert!(db.get("a most").map_or_else(|error| error.is_retryable(), |value| value.is_some()));
    let held = db.get("c half").unwrap().unwrap();
    let items: Vec<_> = db.range(..).collect();
    let names = items.iter().map(|item| item.as_ref().map_or_else(|error| error.name(), |_| "OK"));
    let names: Vec<_> = names.collect();
    assert_eq!((names[0], names[1], names[3]), ("MEMORY_LIMIT", "INVALID_ARGUMENT", "OK"));
    drop((items, held));
}

#[test]
fn a_stream_is_compressed_as_the_values_of_its_family_are() {
    let lens = [Codec::None, Codec::Lz4].map(|codec| {
        let fs = MemoryFs::new();
        let db = open_streams(&fs);
        let family = db.family(("f", FamilyOptions::new().codecs([codec]))).unwrap();
        family.put_reader("k", io::repeat(7).take(6400)).unwrap();
        assert_eq!(family.get("k").unwrap().unwrap(), vec![7; 6400]);
        db.metrics().stream_bytes
    });
    assert!(lens[0] > 6400 && lens[1] < lens[0] * 3 / 4, "{lens:?}");
}

#[test]
fn presence_is_told_without_a_read_of_the_stream() {
    let fs = MemoryFs::new();
    let db = open_with_short_values(&fs);
    db.put_reader("long", &*value(1, 1000)).unwrap();
    db.put_ttl("ends", "", HOUR).unwrap();
    for level in LEVELS {
        let tx = db.with(at(level)).begin();
        assert!(tx.contains("long").unwrap() && !tx.contains("none").unwrap());
    }
    for level in LEVELS {
        let tx = db.with(at(level)).begin();
        assert!(!tx.put_if("long", None, "new").unwrap());
        assert!(!tx.put_if("long", Some(b"old"), "new").unwrap());
    }
    assert!(db.put_if("long", None, "new").unwrap().is_none());
    assert!(db.put_if("long", Some(b"old"), "new").unwrap().is_none());
    assert!(db.put_if("long", Some(&value(1, 1000)), "new").is_err(), "it has to be compared");
    let shorter = value(2, 999);
    db.put_reader("shorter", &*shorter).unwrap();
    assert!(db.put_if("shorter", Some(&value(1, 999)), "new").unwrap().is_none());
    assert!(db.put_if("shorter", Some(&shorter), "new").unwrap().is_some());
    assert_eq!(db.get("shorter").unwrap().unwrap(), "new");
}

/// What a reader of the key tells of its end.
fn ends(db: &Db, key: &str) -> bool {
    match db.get_reader(key).unwrap().unwrap().expiry() {
        Expiry::At(_) => true,
        Expiry::Never => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stream_gets_another_end_without_being_read() {
    let fs = MemoryFs::new();
    let mut db = open_with_short_values(&fs);
    let long = value(1, 1000);
    for is_flushed in [false, true] {
        db.put_reader("k", &*long).unwrap();
        assert!(!db.set_expiry("none", HOUR).unwrap());
        for step in 0..4 {
            if is_flushed {
                db.flush().unwrap();
            }
            assert!(db.set_expiry("k", HOUR).unwrap());
            assert!(ends(&db, "k"));
            match step {
                0 => db.flush().unwrap(),
                1 => db.compact().unwrap(),
                2 => {
                    drop(db);
                    db = open_with_short_values(&fs);
                }
                _ => {}
            }
            assert!(ends(&db, "k"));
            assert_eq!(read_in_pieces(&db, "k").unwrap(), long);
            assert!(db.set_expiry("k", Expiry::Never).unwrap());
            assert!(!ends(&db, "k"));
            db.engine().remove_obsolete_files();
            assert_eq!(read_in_pieces(&db, "k").unwrap(), long);
        }
        let left = fs.killed();
        let again = open_with_short_values(&left);
        assert!(!ends(&again, "k"));
        assert_eq!(read_in_pieces(&again, "k").unwrap(), long);
        wait_for_files(&again, &left, 1);
        db.flush().unwrap();
        db.compact().unwrap();
        wait_for_files(&db, &fs, 1);
    }
    db.set_expiry("k", Duration::from_millis(30)).unwrap();
    std::thread::sleep(Duration::from_millis(60));
    assert!(db.get_reader("k").unwrap().is_none());
    db.flush().unwrap();
    db.compact().unwrap();
    wait_for_files(&db, &fs, 0);
}

#[test]
fn a_transaction_gives_a_stream_its_end_in_the_commit_that_puts_it() {
    let fs = MemoryFs::new();
    let db = open_with_short_values(&fs);
    let long = value(1, 1000);
    for (nth, level) in LEVELS.into_iter().enumerate() {
        db.put_reader("old", &*value(2, 1000)).unwrap();
        let tx = db.with(at(level)).begin();
        let mut writer = db.value_writer(&db.default_family()).unwrap();
        writer.write_all(&long).unwrap();
        tx.put_streamed("new", writer.finish().unwrap()).unwrap();
        for key in ["old", "new"] {
            assert!(tx.set_expiry(key, HOUR).unwrap());
            assert!(tx.set_expiry(key, 2 * HOUR).unwrap());
            let reader = tx.get_reader(key).unwrap().unwrap();
            assert!(matches!(reader.expiry(), Expiry::At(_)) && reader.len() == 1000);
        }
        tx.commit().unwrap();
        for _ in 0..2 {
            assert!(ends(&db, "old") && ends(&db, "new"), "{level:?}");
            assert_eq!(read_in_pieces(&db, "new").unwrap(), long);
            assert_eq!(read_in_pieces(&db, "old").unwrap(), value(2, 1000));
            if nth % 2 == 0 {
                db.flush().unwrap();
            }
        }
    }
    db.flush().unwrap();
    db.compact().unwrap();
    wait_for_files(&db, &fs, 2);
}

#[test]
fn a_put_that_is_refused_reads_none_of_its_value() {
    struct Counting(u64);
    impl Read for Counting {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            Ok(if self.0 > 2 { 0 } else { buf.len() })
        }
    }
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    let family = db.family("gone").unwrap();
    db.put("k", "value").unwrap();
    let beside = options(&fs).read_only(true).open("/db").unwrap();
    db.drop_family(&family).unwrap();
    let too_long = vec![b'k'; MAX_KEY_LEN + 1];
    let mut counting = Counting(0);
    for (refused, name) in [
        (db.put_reader(&too_long, &mut counting), "INVALID_ARGUMENT"),
        (beside.put_reader("k", &mut counting), "READ_ONLY"),
        (family.put_reader("k", &mut counting), "UNKNOWN_FAMILY"),
    ] {
        assert_eq!(refused.unwrap_err().name(), name);
    }
    assert_eq!(counting.0, 0, "the value was read");
    db.put_reader("k", &mut counting).unwrap();
    assert_eq!(counting.0, 3);
}
