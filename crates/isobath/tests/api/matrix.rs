//! Calls every method of the matrix once on every type. A type that lacks a method does not
//! compile.

use isobath::vfs::MemoryFs;
use isobath::{
    Batch, Commit, Cursor, Db, FamilyOptions, Options, Prefix, Range, ReadOptions, Readable,
    Result, Value, WriteOptions,
};
use std::io::Write;
use std::ops::Bound;
use std::sync::Arc;

/// The answers of a part's read methods.
#[derive(Debug, PartialEq)]
struct Answers {
    got: [Option<Value>; 2],
    contains: [bool; 2],
    ends: [Option<(Value, Value)>; 2],
    counts: Vec<u64>,
    keys: Vec<Value>,
}

/// Calls every method that reads. If `$part` is not a type parameter, calls the inherent methods.
macro_rules! read {
    ($part:expr) => {{
        let part = $part;
        let (all, within): (Range, Range) = (part.iter(), part.range("a".."z"));
        let prefix: Range = part.prefix("b");
        let mut cursor: Cursor = part.cursor(..)?;
        let is_there = cursor.last()?.is_some();
        let keys = all.chain(within).chain(prefix).map(|item| item.map(|(key, _)| key));
        Answers {
            got: [part.get("a")?, part.get("none")?],
            contains: [part.contains("a")?, part.contains("none")?],
            ends: [part.first()?, part.last()?],
            counts: vec![
                part.count(..)?,
                part.count("a".."b")?,
                part.count(Prefix("b"))?,
                part.count((Bound::Excluded("a"), Bound::<&str>::Unbounded))?,
                part.multi_get(["a", "none"])?.len() as u64,
                part.multi_get(vec![String::from("a")])?.len() as u64,
                part.get_reader("a")?.map_or(0, |reader| reader.len()),
                u64::from(is_there),
            ],
            keys: keys.collect::<Result<_>>()?,
        }
    }};
}

fn read_generic(part: &impl Readable) -> Result<Answers> {
    Ok(read!(part))
}

/// Calls every write method that answers by itself. Returns the answers.
macro_rules! write_all {
    ($part:expr) => {{
        let part = $part;
        let put = part.put("a", "1")?;
        part.put("gone", "2")?;
        let deleted = part.delete("gone")?;
        part.put("b", "3")?;
        part.put("range/1", "4")?;
        let range = part.delete_range("range".."range0")?;
        part.put("range/2", "5")?;
        part.merge("merged", "6")?;
        part.merge("merged", "7")?;
        part.delete("merged")?;
        [put, deleted, range, part.delete_prefix("range")?]
    }};
}

/// Calls every write method that commits by itself.
macro_rules! write {
    ($part:expr) => {{
        let commits: [Commit; 4] = write_all!($part);
        assert!(commits.is_sorted_by(|one, next| one < next));
    }};
}

/// Calls every write method that commits with its batch.
macro_rules! gather {
    ($part:expr) => {{
        $part.put("a", "1").put("gone", "2").delete("gone").put("b", "3");
        $part.put("range/1", "4").delete_range("range".."range0");
        $part.put("range/2", "5").delete_prefix("range");
        $part.merge("merged", "6").merge("merged", "7").delete("merged");
    }};
}

/// Calls every step: a read and a write of one key in one. `$is_written` makes of `put_if`'s answer
/// whether it wrote.
macro_rules! step {
    ($part:expr, $is_written:expr) => {{
        let (part, is_written) = ($part, $is_written);
        assert!(is_written(part.put_if("a", None, "1")?));
        assert!(!is_written(part.put_if("a", None, "2")?));
        assert!(is_written(part.put_if("b", None, "3")?));
        let old = part.fetch_update("a", |old| old.map(|old| [old, b"!"].concat()))?;
        assert_eq!(old.unwrap(), "1");
        let (first, last) = (part.pop_first(..)?.unwrap(), part.pop_last(..)?.unwrap());
        assert_eq!((first.0.to_vec(), first.1.to_vec()), (b"a".to_vec(), b"1!".to_vec()));
        assert_eq!((last.0.to_vec(), last.1.to_vec()), (b"b".to_vec(), b"3".to_vec()));
        assert!(part.pop_first(..)?.is_none());
    }};
}

fn open() -> Result<Db> {
    let fs = Arc::new(MemoryFs::new());
    let env = isobath::env::Env { fs, ..isobath::env::Env::system() };
    let appending = FamilyOptions::new().merge_operator("isobath.append");
    Options::new().env(env).family(appending).open("db")
}

#[test]
fn every_type_that_reads_has_every_method_and_they_agree() -> Result<()> {
    let db = open()?;
    let users = db.family("users")?;
    write!(&db);
    write!(&users);
    let snapshot = db.snapshot();
    let options = ReadOptions::new().fill_cache(false);
    let expected = read!(&db);
    assert_eq!(expected.counts, [2, 1, 1, 1, 2, 1, 1, 1]);
    assert_eq!(expected.ends.each_ref().map(|end| end.as_ref().unwrap().1.to_vec()), [b"1", b"3"]);
    assert_eq!(expected.keys.len(), 5);
    for _ in 0..2 {
        assert_eq!(read!(&users), expected);
        assert_eq!(read!(&snapshot), expected);
        assert_eq!(read!(snapshot.of(&users)), expected);
        assert_eq!(read!(db.with(options)), expected);
        assert_eq!(read!(users.with(options)), expected);
        assert_eq!(read!(snapshot.with(options).of(&users)), expected);
        assert_eq!(read_generic(&db)?, expected);
        assert_eq!(read_generic(&users)?, expected);
        assert_eq!(read_generic(&snapshot)?, expected);
        assert_eq!(read_generic(&snapshot.of(&users))?, expected);
        assert_eq!(read_generic(&Readable::of(&db, &users))?, expected);
        assert_eq!(read_generic(&Readable::of(&snapshot, &users))?, expected);
        let tx = db.begin();
        assert_eq!(read!(&tx), expected);
        assert_eq!(read!(tx.of(&users)), expected);
        assert_eq!(read!(tx.with(options)), expected);
        assert_eq!(read_generic(&tx)?, expected);
        assert_eq!(read_generic(&Readable::of(&tx, &users))?, expected);
        db.flush()?;
    }
    users.delete("a")?;
    db.delete("b")?;
    assert_eq!(read!(snapshot.of(&users)), expected);
    assert_eq!(read_generic(&snapshot)?, expected);
    assert_eq!((db.count(..)?, users.count(..)?), (1, 1));
    Ok(())
}

#[test]
fn every_type_that_writes_has_every_method_and_they_agree() -> Result<()> {
    let db = open()?;
    let users = db.family("users")?;
    let rows =
        |part: &dyn Fn() -> Range<'static>| part().map(|item| item.unwrap()).collect::<Vec<_>>();
    write!(&db);
    let expected = rows(&|| db.iter());
    assert_eq!(expected.len(), 2);
    let check = |what: &str| -> Result<()> {
        for (name, found) in [("db", rows(&|| db.iter())), ("users", rows(&|| users.iter()))] {
            assert_eq!(found, expected, "{name} by {what}");
        }
        for key in ["a", "b", "gone"] {
            db.delete(key)?;
            users.delete(key)?;
        }
        Ok(())
    };
    write!(&users);
    check("themselves")?;
    write!(db.with(WriteOptions::sync()));
    write!(users.with(WriteOptions::sync()));
    check("options")?;
    let mut batch = Batch::new();
    gather!(batch);
    gather!(batch.of(&users));
    db.write(&mut batch)?;
    check("a batch that is lent")?;
    db.with(WriteOptions::sync()).write(&mut batch)?;
    check("a batch that is lent, by options")?;
    db.with(WriteOptions::sync()).write(batch)?;
    check("a batch that is given")?;
    db.transact(|tx| {
        let _: [(); 4] = write_all!(tx);
        let _: [(); 4] = write_all!(tx.of(&users));
        Ok(())
    })?;
    check("a transaction")?;
    db.transact(|tx| {
        write_all!(tx.with(ReadOptions::new()));
        write_all!(tx.of(&users).with(ReadOptions::new()));
        Ok(())
    })?;
    check("a transaction with options")?;
    Ok(())
}

#[test]
fn every_type_that_writes_puts_streams() -> Result<()> {
    let db = open()?;
    let users = db.family("users")?;
    let sync = WriteOptions::sync();
    let check = |what: &str| -> Result<()> {
        assert_eq!(db.get("s")?.unwrap(), what.repeat(100_000));
        assert_eq!(users.get("s")?.unwrap(), what.repeat(100_000));
        Ok(())
    };
    let own = "own".repeat(100_000);
    db.put_reader("s", own.as_bytes())?;
    users.put_reader("s", own.as_bytes())?;
    check("own")?;
    let with = "with".repeat(100_000);
    db.with(sync).put_reader("s", with.as_bytes())?;
    users.with(sync).put_reader("s", with.as_bytes())?;
    check("with")?;
    let streamed = |what: &str| -> Result<isobath::Streamed> {
        let mut writer: isobath::ValueWriter = db.value_writer(&users)?;
        (0..100_000).for_each(|_| writer.write_all(what.as_bytes()).unwrap());
        writer.finish()
    };
    let mut batch = Batch::new();
    batch.put_streamed("s", streamed("batch")?);
    batch.of(&users).put_streamed("s", streamed("batch")?);
    db.write(batch)?;
    check("batch")?;
    let tx = db.begin();
    tx.put_streamed("s", streamed("tx")?)?;
    tx.of(&users).put_streamed("s", streamed("tx")?)?;
    tx.commit()?;
    check("tx")
}

#[test]
fn every_type_that_writes_has_every_step_and_they_agree() -> Result<()> {
    let db = open()?;
    let users = db.family("users")?;
    let commits = |commit: Option<Commit>| commit.is_some();
    step!(&db, commits);
    step!(&users, commits);
    step!(db.with(WriteOptions::sync()), commits);
    step!(users.with(WriteOptions::sync()), commits);
    db.transact(|tx| {
        step!(tx, |is_written: bool| is_written);
        step!(tx.of(&users), |is_written: bool| is_written);
        Ok(())
    })?;
    assert_eq!((db.count(..)?, users.count(..)?), (0, 0));
    Ok(())
}

/// Compiled but not run: checks each handle's promises about threads and lifetimes.
#[test]
fn handles_can_be_kept_and_sent() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    fn copied<T: Copy>() {}
    shared::<Db>();
    shared::<isobath::Family>();
    shared::<isobath::Snapshot>();
    shared::<Value>();
    shared::<Batch>();
    sent::<Range>();
    sent::<Cursor>();
    sent::<isobath::Transaction>();
    sent::<isobath::ValueReader>();
    sent::<isobath::ValueWriter>();
    sent::<isobath::Streamed>();
    copied::<isobath::Reads<'_>>();
    copied::<isobath::Writes<'_>>();
    copied::<isobath::WritesFamily<'_>>();
    copied::<isobath::TransactionFamily<'_>>();
}
