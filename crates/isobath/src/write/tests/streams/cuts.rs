//! What a fault, a kill and a power cut leave of streams, at each operation on files.

use super::*;
use crate::error::Result;

type Rows = BTreeMap<String, Vec<u8>>;

/// What is done between two commits.
type Step = fn(&Db) -> Result<()>;

/// A commit, and what it makes of the rows.
type Change = (fn(&Db) -> Result<Commit>, fn(&mut Rows));

fn streamed(db: &Db, value: &[u8]) -> Result<crate::Streamed> {
    let mut writer = db.value_writer(&db.default_family())?;
    let written = writer.write_all(value);
    let inner = |error: io::Error| Error::io("write", Path::new("a stream"), error);
    written.map_err(inner)?;
    writer.finish()
}

const CHANGES: [(Change, Step); 7] = [
    (
        (
            |db| durably(db).put_reader("a", &*value(1, 1000)),
            |rows| _ = rows.insert("a".into(), value(1, 1000)),
        ),
        |_| Ok(()),
    ),
    (
        (
            |db| {
                let mut batch = Batch::new();
                batch.put("b", "short").put_streamed("a", streamed(db, &value(2, 500))?);
                batch.put_streamed("c", streamed(db, &value(3, 300))?);
                durably(db).write(batch)
            },
            |rows| {
                rows.insert("a".into(), value(2, 500));
                rows.insert("b".into(), b"short".to_vec());
                rows.insert("c".into(), value(3, 300));
            },
        ),
        Db::flush,
    ),
    ((|db| durably(db).delete("c"), |rows| _ = rows.remove("c")), |_| Ok(())),
    (
        (
            |db| durably(db).put_reader("d", &*value(4, 700)),
            |rows| _ = rows.insert("d".into(), value(4, 700)),
        ),
        |db| db.flush().and_then(|()| db.compact()),
    ),
    ((|db| durably(db).delete_range("a".."b"), |rows| _ = rows.remove("a")), |db| {
        db.flush()?;
        db.compact()?;
        db.engine().remove_obsolete_files();
        Ok(())
    }),
    (
        (
            |db| durably(db).put_reader("a", &*value(5, 900)),
            |rows| _ = rows.insert("a".into(), value(5, 900)),
        ),
        |_| Ok(()),
    ),
    (
        (|db| durably(db).put("e", "last"), |rows| _ = rows.insert("e".into(), b"last".to_vec())),
        Db::flush,
    ),
];

fn durably(db: &Db) -> crate::Writes<'_> {
    db.with(WriteOptions::sync())
}

/// Does all until an error. Returns how many commits were acknowledged.
fn run(db: &Db) -> usize {
    let mut done = 0;
    for ((commit, _), step) in CHANGES {
        if commit(db).is_err() {
            return done;
        }
        done += 1;
        if step(db).is_err() {
            return done;
        }
    }
    done
}

/// The rows after so many commits.
fn rows_after(commits: usize) -> Rows {
    let mut rows = Rows::new();
    CHANGES.iter().take(commits).for_each(|((_, change), _)| change(&mut rows));
    rows
}

/// Opens what is left: it has all that was acknowledged, perhaps one commit more, and no file but
/// those of its streams.
fn check_left(left: &MemoryFs, done: usize, what: &str) {
    let db = open_streams(left);
    let keys = || db.range(..).map(|row| row.unwrap()).map(|(key, _)| key);
    let read = |key: &str| read_in_pieces(&db, key).unwrap();
    let of = |key: crate::Key| String::from_utf8(key.to_vec()).unwrap();
    let found: Rows = keys().map(of).map(|key| (key.clone(), read(&key))).collect();
    let whole: Rows =
        db.range(..).map(|row| row.unwrap()).map(|(k, v)| (of(k), v.to_vec())).collect();
    assert_eq!(found, whole, "{what}");
    let is_right = [done, done + 1].into_iter().any(|commits| rows_after(commits) == found);
    assert!(is_right, "{what}: {done} commits, {:?}", found.keys());
    let streams = found.values().filter(|value| value.len() > FRAME).count();
    db.flush().unwrap();
    db.compact().unwrap();
    wait_for_files(&db, left, streams);
    for (key, value) in found {
        check(&db, &key, Some(&value));
    }
    db.close().unwrap();
    let again = open_streams(left);
    wait_for_files(&again, left, streams);
}

#[test]
fn the_changes_as_they_are_leave_what_they_should() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    assert_eq!(run(&db), CHANGES.len());
    for left in [fs.killed(), fs.crashed(|_| 0)] {
        check_left(&left, CHANGES.len(), "at the end");
    }
}

#[test]
fn a_machine_that_stops_at_any_operation_leaves_each_commit_whole() {
    let mut seed = 7_u64;
    let mut drawn = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    for nth in 1.. {
        let fs = MemoryFs::new();
        let db = open_streams(&fs);
        fs.inject(Fault::on_any().nth(nth).forever());
        let done = run(&db);
        let is_over = fs.struck() == 0;
        let lefts = [fs.killed(), fs.crashed(|_| 0), fs.crashed(|it| drawn(it.steps.len() + 1))];
        drop(db);
        for (way, left) in lefts.iter().enumerate() {
            check_left(left, done, &format!("operation {nth}, way {way}"));
        }
        if is_over {
            assert!(nth > 40, "{nth}");
            return;
        }
    }
}

/// An error that passes: the database goes on, and what it says is so.
#[test]
fn a_fault_of_one_operation_loses_nothing_that_was_acknowledged() {
    for nth in 1.. {
        let fs = MemoryFs::new();
        let db = open_streams(&fs);
        fs.inject(Fault::on_any().nth(nth).kind(io::ErrorKind::StorageFull));
        let done = run(&db);
        let is_over = fs.struck() == 0;
        fs.clear_faults();
        let left = fs.killed();
        drop(db);
        check_left(&left, done, &format!("operation {nth}"));
        if is_over {
            return;
        }
    }
}

#[test]
fn a_record_whose_stream_is_missing_or_another_one_fails_the_open() {
    let killed = || {
        let fs = MemoryFs::new();
        let db = open_streams(&fs);
        durably(&db).put_reader("key of it", &*value(1, 1000)).unwrap();
        fs.killed()
    };
    for damage in 0..4 {
        let left = killed();
        let name = blob_files(&left).remove(0);
        let path = Path::new("/db/table").join(name);
        let len = left.open_read(&path, FileAccess::Positional).unwrap().len();
        match damage {
            0 => left.remove(&path).unwrap(),
            1 => left.truncate(&path, len - 1).unwrap(),
            2 => left.corrupt(&path, len - 1, 1).unwrap(),
            _ => left.corrupt(&path, 200, 1).unwrap(),
        }
        let opened = options(&left).open("/db");
        if damage < 3 {
            let error = opened.map(drop).unwrap_err();
            assert!(error.is_corruption(), "{damage}: {error}");
            assert!(error.to_string().contains("key of it"), "{damage}: {error}");
            continue;
        }
        // Frames are not read by the open.
        let db = opened.unwrap();
        let error = db.get("key of it").unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("key of it"), "{error}");
        let mut reader = db.get_reader("key of it").unwrap().unwrap();
        assert!(reader.read(&mut [0; 10]).is_err() || reader.read(&mut [0; 100]).is_err());
        reader.seek(SeekFrom::Start(900)).unwrap();
        let mut end = Vec::new();
        reader.read_to_end(&mut end).unwrap();
        assert_eq!(end, value(1, 1000)[900..], "other frames are read as before");
    }
}

/// Its number must not have gone to a table of an earlier piece.
#[test]
fn a_stream_that_is_missing_can_be_put_back_after_an_open_that_has_installed_a_piece() {
    let fs = MemoryFs::new();
    let db = options(&fs).write_buffer(4 << 20).open("/db").unwrap();
    for nth in 0..400_u32 {
        db.put(format!("{nth}"), vec![1; 500]).unwrap();
    }
    durably(&db).put_reader("k", &*value(1, 1000)).unwrap();
    let left = fs.killed();
    let path = Path::new("/db/table").join(blob_files(&left).remove(0));
    let file = left.open_read(&path, FileAccess::Positional).unwrap();
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes).unwrap();
    left.remove(&path).unwrap();
    let open = || {
        let mut small = options(&left).write_buffer(64 << 10);
        small.sizes.stream_frame_len = FRAME;
        small.open("/db")
    };
    let error = open().map(drop).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("missing"), "{error}");
    assert!(!left.list(Path::new("/db/table")).unwrap().is_empty(), "a piece was installed");
    let mut again = left.create(&path).unwrap();
    again.append(&bytes).unwrap();
    again.sync().unwrap();
    let db = open().unwrap();
    check(&db, "k", Some(&value(1, 1000)));
    assert_eq!(db.count(..).unwrap(), 401);
}

#[test]
fn a_log_of_several_pieces_keeps_the_streams_that_later_pieces_name_again() {
    let fs = MemoryFs::new();
    let db = options(&fs).write_buffer(4 << 20).open("/db").unwrap();
    let mut batch = Batch::new();
    batch.put_streamed("k", streamed(&db, &value(1, 1000)).unwrap());
    batch.put_streamed("gone", streamed(&db, &value(2, 1000)).unwrap());
    let fill = |round: u32| {
        for nth in 0..400_u32 {
            db.put(format!("{round}.{nth}"), vec![round as u8; 500]).unwrap();
        }
    };
    for round in 0..3 {
        db.write(&mut batch).unwrap();
        db.delete("gone").unwrap();
        if round < 2 {
            db.delete("k").unwrap();
        }
        fill(round);
    }
    db.sync().unwrap();
    let left = fs.killed();
    drop((batch, db));
    let mut small = options(&left).write_buffer(64 << 10);
    small.sizes.stream_frame_len = FRAME;
    let again = small.open("/db").unwrap();
    check(&again, "k", Some(&value(1, 1000)));
    check(&again, "gone", None);
    again.compact().unwrap();
    wait_for_files(&again, &left, 1);
}
