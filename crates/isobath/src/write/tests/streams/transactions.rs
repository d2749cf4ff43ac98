//! Streams in transactions.

use super::*;
use crate::error::{BoxError, ErrorKind};
use crate::{CommitHook, OperationKind, Operations, Streamed, TransactionOptions};
use std::sync::Mutex;

fn streamed(db: &Db, seed: usize, len: usize) -> Streamed {
    let mut writer = db.value_writer(&db.default_family()).unwrap();
    writer.write_all(&value(seed, len)).unwrap();
    writer.finish().unwrap()
}

#[test]
fn a_transaction_reads_its_own_streams_and_commits_them_with_its_other_writes() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    let family = db.family(("f", FamilyOptions::new().ttl(Duration::from_secs(3600)))).unwrap();
    db.put_reader("old", &*value(9, 700)).unwrap();
    let tx = db.begin();
    tx.put_streamed("a", streamed(&db, 1, 1000)).unwrap();
    tx.put("b", "2").unwrap();
    tx.of(&family).put_streamed("a", streamed(&db, 3, 500)).unwrap();
    tx.put_streamed("short", streamed(&db, 4, 10)).unwrap();
    for (key, expected) in [("a", value(1, 1000)), ("old", value(9, 700)), ("short", value(4, 10))]
    {
        assert_eq!(tx.get(key).unwrap().unwrap(), expected);
        assert_eq!(tx.multi_get([key]).unwrap()[0].as_ref().unwrap(), &expected);
        assert!(tx.contains(key).unwrap());
        let mut reader = tx.get_reader(key).unwrap().unwrap();
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert_eq!(read, expected);
    }
    let (own, expiry) = tx.of(&family).get_expiry("a").unwrap().unwrap();
    assert!(own == value(3, 500) && matches!(expiry, crate::Expiry::At(_)));
    let rows: Vec<_> = tx.range(..).map(|row| row.unwrap()).collect();
    let lens: Vec<_> = rows.iter().map(|(key, value)| (key.to_vec(), value.len())).collect();
    let expected = [("a", 1000), ("b", 1), ("old", 700), ("short", 10)];
    assert_eq!(lens, expected.map(|(key, len)| (key.as_bytes().to_vec(), len)));
    assert_eq!(tx.of(&family).range(..).next().unwrap().unwrap().1, value(3, 500));
    let mut own = tx.get_reader("a").unwrap().unwrap();
    assert!(db.get("a").unwrap().is_none());
    tx.commit().unwrap();
    check(&db, "a", Some(&value(1, 1000)));
    assert_eq!(family.get("a").unwrap().unwrap(), value(3, 500));
    db.delete("a").unwrap();
    db.flush().unwrap();
    let mut read = Vec::new();
    own.read_to_end(&mut read).unwrap();
    assert_eq!(read, value(1, 1000), "the reader outlives the transaction");
    drop(own);
    wait_for_files(&db, &fs, 2);
    let left = fs.killed();
    drop((family, db));
    let again = open_streams(&left);
    check(&again, "a", None);
    check(&again, "old", Some(&value(9, 700)));
}

#[test]
fn what_does_not_commit_leaves_no_file() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    let tx = db.begin();
    tx.put_streamed("a", streamed(&db, 1, 1000)).unwrap();
    wait_for_files(&db, &fs, 1);
    tx.rollback();
    wait_for_files(&db, &fs, 0);
    let tx = db.begin();
    tx.put_streamed("a", streamed(&db, 1, 1000)).unwrap();
    tx.savepoint("s").unwrap();
    tx.put("a", "short").unwrap();
    tx.put_streamed("b", streamed(&db, 2, 1000)).unwrap();
    tx.rollback_to("s").unwrap();
    assert_eq!(tx.get("a").unwrap().unwrap(), value(1, 1000), "it has come back");
    tx.commit().unwrap();
    wait_for_files(&db, &fs, 1);
    check(&db, "a", Some(&value(1, 1000)));
    check(&db, "b", None);
    let tx = db.begin();
    let read = tx.get("a").unwrap();
    tx.put_streamed("c", streamed(&db, 3, 1000)).unwrap();
    db.put("a", "changed").unwrap();
    assert!(tx.commit().unwrap_err().is_conflict());
    drop(read);
    db.flush().unwrap();
    wait_for_files(&db, &fs, 0);
}

#[test]
fn a_rerun_streams_anew() {
    let fs = MemoryFs::new();
    let db = open_streams(&fs);
    let mut attempts = 0;
    db.transact(|tx| {
        attempts += 1;
        tx.get("a")?;
        tx.put_streamed("k", streamed(&db, attempts, 1000))?;
        // The next attempt locks it first.
        if attempts < 2 {
            db.put("a", [attempts as u8])?;
        }
        Ok(())
    })
    .unwrap();
    check(&db, "k", Some(&value(2, 1000)));
    wait_for_files(&db, &fs, 1);
}

#[test]
fn a_transaction_with_a_stream_is_neither_prepared_nor_goes_to_files() {
    let fs = MemoryFs::new();
    let db = options(&fs).write_buffer(64 << 10).open("/db").unwrap();
    let tx = db.begin();
    tx.put_streamed("a", streamed(&db, 1, 1000)).unwrap();
    let error = tx.prepare("x").unwrap_err();
    assert_eq!(error.name(), "INVALID_ARGUMENT", "{error}");
    for is_first in [true, false] {
        let tx = db.begin();
        let put_stream = || tx.put_streamed("a", streamed(&db, 1, 1000));
        let put_all = || (0..200_u32).try_for_each(|n| tx.put(n.to_be_bytes(), [7; 1000]));
        let done = match is_first {
            true => put_stream().and_then(|()| put_all()),
            false => put_all().and_then(|()| put_stream()),
        };
        let error = done.and_then(|()| tx.commit().map(drop)).unwrap_err();
        let ErrorKind::TransactionTooLarge { needed, limit } = *error.kind() else {
            panic!("{error}");
        };
        // Before the commit half of a write buffer is for what is in memory, then all of it.
        assert_eq!(limit, if is_first { 32 << 10 } else { 64 << 10 });
        assert!(needed > limit && error.to_string().contains("streams"), "{error}");
    }
    wait_for_files(&db, &fs, 0);
    check(&db, "a", None);
}

#[test]
fn a_stream_that_a_transaction_no_longer_puts_does_not_count() {
    let fs = MemoryFs::new();
    let db = options(&fs).write_buffer(64 << 10).open("/db").unwrap();
    for is_replaced in [false, true] {
        let begin = || {
            let tx = db.begin();
            tx.put("first", "value").unwrap();
            if !is_replaced {
                tx.savepoint("s").unwrap();
            }
            tx.put_streamed("a", streamed(&db, 1, 1000)).unwrap();
            match is_replaced {
                true => tx.put("a", "short").unwrap(),
                false => {
                    tx.rollback_to("s").unwrap();
                    tx.release("s").unwrap();
                }
            }
            tx
        };
        let prepared = begin().prepare("x").unwrap();
        prepared.commit().unwrap();
        let tx = begin();
        (0..200_u32).for_each(|n| tx.put(n.to_be_bytes(), [7; 1000]).unwrap());
        tx.commit().unwrap();
        assert_eq!(db.get("a").unwrap().is_some(), is_replaced);
        assert!(db.contains(199_u32.to_be_bytes()).unwrap());
    }
    wait_for_files(&db, &fs, 0);
}

#[test]
fn the_commit_hook_is_told_of_a_stream_and_its_length() {
    struct Hook(Arc<Mutex<Vec<String>>>);
    impl CommitHook for Hook {
        fn before(&self, operations: &Operations<'_>) -> Result<(), BoxError> {
            let told = operations.iter().map(|one| match one.kind {
                OperationKind::PutStreamed { len, .. } => format!("{len} {:?}", one.value),
                other => format!("{other:?}"),
            });
            self.0.lock().unwrap().extend(told);
            Ok(())
        }
    }
    let (fs, told) = (MemoryFs::new(), Arc::<Mutex<Vec<String>>>::default());
    let db = options(&fs).commit_hook(Hook(told.clone())).open("/db").unwrap();
    let tx = db.begin();
    tx.put_streamed("a", streamed(&db, 1, 1000)).unwrap();
    tx.put("b", "2").unwrap();
    tx.commit().unwrap();
    assert_eq!(*told.lock().unwrap(), ["1000 None", "Put"]);
}

#[test]
fn a_stream_of_another_database_is_refused() {
    let (one, other) = (MemoryFs::new(), MemoryFs::new());
    let (db, foreign) = (open_streams(&one), open_streams(&other));
    let tx = db.with(TransactionOptions::new()).begin();
    let error = tx.put_streamed("a", streamed(&foreign, 1, 1000)).unwrap_err();
    assert!(error.to_string().contains("another database"), "{error}");
    let mut batch = Batch::new();
    batch.put_streamed("a", streamed(&foreign, 1, 1000));
    assert_eq!(db.write(batch).unwrap_err().name(), "INVALID_ARGUMENT");
    wait_for_files(&foreign, &other, 0);
    let family = foreign.default_family();
    assert!(db.value_writer(&family).is_err());
}
