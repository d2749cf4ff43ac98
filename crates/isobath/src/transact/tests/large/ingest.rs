//! Ingests: what is visible when, what is refused, and what crashes leave.

use super::*;
use crate::cursor::Entry;
use crate::error::{Error, Result};
use crate::format::{Address, DEFAULT_FAMILY, FileHeader, FileKind, OpKind, StreamAddress};
use crate::options::{FamilyOptions, TransactionOptions};
use crate::table::{TableOptions, TableWriter};
use crate::vfs::FileAccess;
use crate::vfs::{Fault, FileOp};
use crate::{Codec, Ingest, SortedFileWriter, WriteOptions};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A database whose tables are as long as what is written to them, so that ingests have several.
fn open(fs: &MemoryFs) -> Db {
    let plain = FamilyOptions::new().codecs(vec![Codec::None]);
    over(fs).family(plain).open("/db").unwrap()
}

/// Takes the keys from `start` on and below `end`, every `step`th.
fn take(ingest: &mut Ingest, (start, end, step): (u32, u32, usize), fill: u8) -> Result<()> {
    (start..end).step_by(step).try_for_each(|n| ingest.put(key(n), [fill; 300]))
}

fn keys_of(map: impl IntoIterator<Item = (u32, u8)>) -> Map {
    map.into_iter().map(|(n, fill)| (key(n), vec![fill; 300])).collect()
}

#[test]
fn an_ingest_shows_nothing_before_its_commit_and_then_all_of_it_in_every_family() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let side = db.family("side").unwrap();
    db.put(key(7), "older").unwrap();
    let mut ingest = db.ingest().unwrap();
    for n in 0..400 {
        ingest.put(key(n), [1; 300]).unwrap();
        ingest.of(&side).put(key(n), [2; 300]).unwrap();
    }
    assert!(spill_files(&fs) > 3, "it writes several files");
    assert_eq!((db.count(..).unwrap(), side.count(..).unwrap()), (1, 0));
    let before = db.snapshot();
    let commit = ingest.commit().unwrap();
    let after = db.snapshot();
    db.put(key(8), [3; 300]).unwrap();
    let (mut main, beside) = (keys_of((0..400).map(|n| (n, 1))), keys_of((0..400).map(|n| (n, 2))));
    assert_eq!(rows(after.range(..)), main);
    main.insert(key(8), vec![3; 300]);
    for round in 0..3 {
        assert_shows(&db.default_family(), &main);
        assert_shows(&side, &beside);
        let seen = (before.count(..).unwrap(), before.get(key(7)).unwrap().unwrap());
        assert_eq!((seen.0, &*seen.1), (1, &b"older"[..]), "{round}");
        assert_eq!(before.of(&side).count(..).unwrap(), 0);
        assert_eq!(after.get(key(8)).unwrap().unwrap(), [1; 300]);
        match round {
            0 => db.flush().unwrap(),
            _ => db.compact().unwrap(),
        }
    }
    assert!(db.snapshot().read_point() > commit.into());
    drop((before, after));
    db.close().unwrap();
    assert_eq!(spill_files(&fs), 0);
    drop((ingest, side));
    let again = open(&fs);
    assert_shows(&again.default_family(), &main);
    assert_shows(&again.family("side").unwrap(), &beside);
}

#[test]
fn a_key_out_of_order_is_refused_by_name_and_the_ingest_goes_on() {
    let db = open(&MemoryFs::new());
    let side = db.family("side").unwrap();
    let mut ingest = db.ingest().unwrap();
    ingest.put("b", "1").unwrap();
    ingest.of(&side).put("z", "1").unwrap();
    for late in ["b", "a", ""] {
        let told = ingest.put(late, "2").unwrap_err();
        let ErrorKind::OutOfOrder { family, key, after } = told.kind() else { panic!("{told}") };
        assert_eq!((&**family, &**key, &**after), ("default", late.as_bytes(), &b"b"[..]));
        assert!(told.to_string().contains("\"b\""), "{told}");
        assert!(ingest.delete(late).is_err());
    }
    ingest.put("ba", "3").unwrap();
    ingest.commit().unwrap();
    assert_eq!(db.get("b").unwrap().unwrap(), "1");
    assert_eq!((db.count(..).unwrap(), side.count(..).unwrap()), (2, 1));
    // It begins anew.
    ingest.put("a", "4").unwrap();
    ingest.commit().unwrap();
    ingest.commit().unwrap();
    assert_eq!(db.count(..).unwrap(), 3);
}

#[test]
fn an_ingest_of_the_empty_key_alone_is_kept() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let mut ingest = db.ingest().unwrap();
    ingest.put("", "").unwrap();
    assert!(ingest.put("", "").is_err());
    ingest.commit().unwrap();
    assert_eq!(db.get("").unwrap().unwrap(), "");
    db.sync().unwrap();
    assert_eq!(recovered(&fs.killed()).get("").unwrap().unwrap(), "");
}

#[test]
fn an_ingest_that_is_dropped_leaves_no_file_and_no_key() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let mut ingest = db.ingest().unwrap();
    take(&mut ingest, (0, 900, 1), 1).unwrap();
    let left = fs.killed();
    assert!(spill_files(&left) > 2);
    drop(ingest);
    assert_eq!((spill_files(&fs), db.count(..).unwrap()), (0, 0));
    let again = recovered(&left);
    assert_eq!((spill_files(&left), again.count(..).unwrap()), (0, 0));
}

#[test]
fn an_ingest_replaces_what_is_in_memory_in_tables_and_in_deleted_ranges() {
    let db = open(&MemoryFs::new());
    for n in 0..200 {
        db.put(key(n), [1; 300]).unwrap();
    }
    db.compact().unwrap();
    db.delete_range(key(100)..key(120)).unwrap();
    db.put(key(121), [2; 300]).unwrap();
    let mut ingest = db.ingest().unwrap();
    take(&mut ingest, (1, 200, 2), 3).unwrap();
    ingest.delete(key(200)).unwrap();
    ingest.commit().unwrap();
    db.delete(key(3)).unwrap();
    db.delete_range(key(5)..key(8)).unwrap();
    let mut map = keys_of((0..200).map(|n| (n, if n % 2 == 1 { 3 } else { 1 })));
    map.retain(|at, _| {
        let is = |n| *at == key(n);
        !is(3) && !(5..8).any(is) && !(100..120).filter(|n| n % 2 == 0).any(is)
    });
    for _ in 0..2 {
        assert_shows(&db.default_family(), &map);
        db.flush().unwrap();
        assert_shows(&db.default_family(), &map);
        db.compact().unwrap();
    }
}

#[test]
fn a_delete_in_an_ingest_hides_the_key() {
    let db = open(&MemoryFs::new());
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.put("b", "1").unwrap();
    let mut ingest = db.ingest().unwrap();
    ["a", "b", "c"].iter().for_each(|key| ingest.delete(key).unwrap());
    ingest.put("d", "1").unwrap();
    ingest.commit().unwrap();
    for _ in 0..2 {
        assert_eq!(db.count(..).unwrap(), 1);
        db.flush().unwrap();
    }
}

#[test]
fn values_of_an_ingest_end_as_those_of_puts() {
    let db = open(&MemoryFs::new());
    let ttl = FamilyOptions::new().ttl(Duration::from_secs(3600));
    let family = db.family(("ending", ttl)).unwrap();
    let mut ingest = db.ingest().unwrap();
    ingest.of(&family).put("a", "1").unwrap();
    ingest.of(&family).put_ttl("b", "2", crate::Expiry::Never).unwrap();
    ingest.put_ttl("c", "3", Duration::from_secs(60)).unwrap();
    assert!(ingest.put_ttl("d", "3", Duration::ZERO).is_err());
    ingest.commit().unwrap();
    let expiry = |family: &Family, key| family.get_expiry(key).unwrap().unwrap().1;
    assert_ne!(expiry(&family, "a"), crate::Expiry::Never);
    assert_eq!(expiry(&family, "b"), crate::Expiry::Never);
    assert_ne!(expiry(&db.default_family(), "c"), crate::Expiry::Never);
    assert_eq!(db.count(..).unwrap(), 1);
}

#[test]
fn a_transaction_that_read_where_an_ingest_writes_conflicts() {
    let db = open(&MemoryFs::new());
    db.put(key(50), "before").unwrap();
    let reads: [fn(&Transaction); 3] = [
        |tx| drop(tx.get(key(50)).unwrap()),
        |tx| drop(tx.get(key(51)).unwrap()),
        |tx| assert!(tx.range(key(60)..key(70)).all(|row| row.is_ok())),
    ];
    for (read, is_large) in reads.into_iter().flat_map(|read| [(read, true), (read, false)]) {
        let (tx, apart) = (db.begin(), db.begin());
        read(&tx);
        drop(apart.get("elsewhere").unwrap());
        let mut ingest = db.ingest().unwrap();
        take(&mut ingest, (0, if is_large { 400 } else { 70 }, 1), 1).unwrap();
        ingest.commit().unwrap();
        tx.put("mine", "1").unwrap();
        apart.put("other", "1").unwrap();
        assert_eq!(tx.commit().unwrap_err().name(), "CONFLICT");
        apart.commit().unwrap();
    }
    assert_at_rest(db.engine());
}

#[test]
fn a_commit_waits_for_locks_and_after_a_timeout_it_may_be_repeated() {
    let fs = MemoryFs::new();
    let db = over(&fs).lock_timeout(Duration::from_millis(20)).open("/db").unwrap();
    let tx = db.begin();
    tx.get_for_update(key(5)).unwrap();
    let mut ingest = db.ingest().unwrap();
    take(&mut ingest, (0, 300, 1), 1).unwrap();
    let told = std::thread::scope(|scope| scope.spawn(|| ingest.commit()).join().unwrap());
    assert_eq!(told.unwrap_err().name(), "LOCK_TIMEOUT");
    assert_eq!(db.count(..).unwrap(), 0);
    drop(tx);
    take(&mut ingest, (300, 400, 1), 1).unwrap();
    ingest.commit().unwrap();
    assert_eq!(db.count(..).unwrap(), 400);
    assert_at_rest(db.engine());
}

#[test]
fn an_ingest_into_a_family_that_is_dropped_fails_and_writes_nothing() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let side = db.family("side").unwrap();
    let mut ingest = db.ingest().unwrap();
    ingest.put("a", "1").unwrap();
    ingest.of(&side).put("a", "1").unwrap();
    db.drop_family(&side).unwrap();
    assert_eq!(ingest.of(&side).put("b", "1").unwrap_err().name(), "UNKNOWN_FAMILY");
    let file = sorted_file(&fs, "sorted", (0, 3), 1);
    assert_eq!(ingest.of(&side).add_file(&file).unwrap_err().name(), "UNKNOWN_FAMILY");
    ingest.put("b", "1").unwrap();
    assert_eq!(ingest.commit().unwrap_err().name(), "UNKNOWN_FAMILY");
    assert_eq!(db.count(..).unwrap(), 0);
    let other = open(&MemoryFs::new());
    assert!(ingest.of(&other.default_family()).put("c", "1").is_err(), "of another database");
}

#[test]
fn where_no_ingest_can_be_there_is_none() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let mut ingest = db.ingest().unwrap();
    ingest.put("a", "1").unwrap();
    db.clone().close().unwrap();
    assert!(ingest.put("b", "1").unwrap_err().is_closed());
    assert!(ingest.commit().unwrap_err().is_closed());
    assert!(db.ingest().unwrap_err().is_closed());
    drop((ingest, db));
    let reader = over(&fs).read_only(true).open("/db").unwrap();
    assert_eq!(reader.ingest().unwrap_err().name(), "READ_ONLY");
    drop(reader);
    struct Hook;
    impl crate::CommitHook for Hook {}
    let hooked = over(&fs).commit_hook(Hook).open("/db").unwrap();
    assert_eq!(hooked.ingest().unwrap_err().name(), "INVALID_ARGUMENT");
}

#[test]
fn a_file_that_cannot_be_written_fails_the_ingest_for_good_and_nothing_else() {
    for (op, nth) in [(FileOp::Create, 2), (FileOp::Write, 3), (FileOp::Sync, 1)] {
        let fs = MemoryFs::new();
        let db = open(&fs);
        db.put("kept", "value").unwrap();
        let mut ingest = db.ingest().unwrap();
        let full = io::ErrorKind::StorageFull;
        fs.inject(Fault::on(op).suffix(".tbl").nth(nth).kind(full));
        let told = take(&mut ingest, (0, 2000, 1), 1).unwrap_err();
        fs.clear_faults();
        let again: [Result<()>; 2] = [ingest.put("z", "1"), ingest.commit().map(drop)];
        for again in again {
            let again = again.unwrap_err();
            assert!(again.to_string().contains(&told.to_string()), "{op:?}: {again}");
            assert!(told.is_retryable() && !again.is_retryable(), "{op:?}: no call helps");
        }
        assert_eq!((spill_files(&fs), db.count(..).unwrap()), (0, 1), "{op:?}");
        let mut ingest = db.ingest().unwrap();
        take(&mut ingest, (0, 20, 1), 1).unwrap();
        ingest.commit().unwrap();
    }
}

fn sorted_file(fs: &MemoryFs, name: &str, range: (u32, u32), fill: u8) -> PathBuf {
    let path = Path::new("/").join(name);
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let mut file = SortedFileWriter::create_in(&path, &env).unwrap();
    (range.0..range.1).for_each(|n| file.put(key(n), [fill; 300]).unwrap());
    assert_eq!(file.finish().unwrap(), u64::from(range.1 - range.0));
    path
}

#[test]
fn files_built_without_a_database_come_in_together_over_several_families() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let side = db.family("side").unwrap();
    let [one, two, none] = [(0, 400), (400, 500), (0, 0)]
        .map(|range| sorted_file(&fs, &format!("sorted{range:?}"), range, 1));
    let mut ingest = db.ingest().unwrap();
    let taken = [&one, &none, &two].map(|path| ingest.add_file(path).unwrap());
    assert_eq!(taken, [400, 0, 100]);
    assert_eq!(ingest.of(&side).add_file(&two).unwrap(), 100);
    ingest.put(key(500), [1; 300]).unwrap();
    assert_eq!(db.count(..).unwrap(), 0);
    ingest.commit().unwrap();
    assert_shows(&db.default_family(), &keys_of((0..501).map(|n| (n, 1))));
    assert_shows(&side, &keys_of((400..500).map(|n| (n, 1))));
    assert!(fs.exists(&one).unwrap(), "it is copied");
    let hour = FamilyOptions::new().ttl(Duration::from_secs(3600));
    let ending = db.family(("ending", hour)).unwrap();
    ingest.of(&ending).add_file(&two).unwrap();
    ingest.commit().unwrap();
    assert_ne!(ending.get_expiry(key(400)).unwrap().unwrap().1, crate::Expiry::Never);
}

#[test]
fn a_sorted_file_out_of_order_is_refused_by_name_and_an_unfinished_one_is_removed() {
    let fs = MemoryFs::new();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let path = Path::new("/sorted");
    let mut file = SortedFileWriter::create_in(path, &env).unwrap();
    file.delete("").unwrap();
    file.put("b", "1").unwrap();
    for late in ["b", "a", ""] {
        let told = file.put(late, "2").unwrap_err();
        let ErrorKind::OutOfOrder { key, after, .. } = told.kind() else { panic!("{told}") };
        assert_eq!((&**key, &**after), (late.as_bytes(), &b"b"[..]));
        assert!(file.delete(late).is_err());
    }
    assert!(file.put(vec![0; 70_000], "").is_err());
    drop(file);
    assert!(!fs.exists(path).unwrap());
    let mut file = SortedFileWriter::create_in(path, &env).unwrap();
    file.put("a", "1").unwrap();
    fs.inject(Fault::on(FileOp::Sync));
    file.finish().unwrap_err();
    assert!(!fs.exists(path).unwrap());
    // Why it failed is told from then on.
    let mut file = SortedFileWriter::create_in(path, &env).unwrap();
    fs.inject(Fault::on(FileOp::Write).kind(std::io::ErrorKind::StorageFull));
    let told = (0..1 << 20).find_map(|n| file.put(key(n), vec![7; 5000]).err()).unwrap();
    assert!(told.is_out_of_space() && !fs.exists(path).unwrap());
    assert!(file.put(key(1 << 20), "").unwrap_err().is_out_of_space());
    assert!(file.finish().unwrap_err().is_out_of_space());
}

#[test]
fn a_sorted_file_that_is_complete_is_not_lost_because_its_directory_cannot_be_opened() {
    for code in [24, 13] {
        let fs = MemoryFs::new();
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let path = Path::new("/sorted");
        let mut file = SortedFileWriter::create_in(path, &env).unwrap();
        file.put("a", "1").unwrap();
        fs.inject(Fault::on(FileOp::OpenDir).errno(code).forever());
        assert_eq!(file.finish().unwrap(), 1);
        fs.clear_faults();
        assert!(fs.crashed(|_| 0).exists(path).unwrap());
    }
    let fs = MemoryFs::new();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let path = Path::new("/sorted");
    // Without a descriptor nothing is begun. A directory that may not be read cannot be synced.
    fs.inject(Fault::on(FileOp::OpenDir).errno(24));
    assert!(SortedFileWriter::create_in(path, &env).unwrap_err().is_too_many_files());
    assert!(!fs.exists(path).unwrap());
    fs.inject(Fault::on(FileOp::OpenDir).errno(13));
    let mut file = SortedFileWriter::create_in(path, &env).unwrap();
    file.put("a", "1").unwrap();
    assert_eq!(file.finish().unwrap(), 1);
    assert!(fs.exists(path).unwrap());
}

#[test]
fn files_that_overlap_are_damaged_or_newer_or_tables_are_refused_and_nothing_is_lost() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    db.put("kept", "value").unwrap();
    db.flush().unwrap();
    let whole = sorted_file(&fs, "whole", (100, 400), 1);
    let overlapping = sorted_file(&fs, "overlapping", (399, 500), 2);
    let mut ingest = db.ingest().unwrap();
    ingest.add_file(&whole).unwrap();
    let told = ingest.add_file(&overlapping).unwrap_err();
    let ErrorKind::OutOfOrder { key: late, after, .. } = told.kind() else { panic!("{told}") };
    assert_eq!((late, after), (&key(399), &key(399)));
    assert_eq!(ingest.add_file("/none").unwrap_err().name(), "IO");
    let table = fs.list(Path::new("/db/table")).unwrap()[0].name.clone();
    let told = ingest.add_file(Path::new("/db/table").join(table)).unwrap_err();
    assert_eq!(told.name(), "INVALID_ARGUMENT");
    let later = sorted_file(&fs, "later", (500, 900), 3);
    let len = fs.open_read(&later, FileAccess::Positional).unwrap().len();
    for offset in (0..len).step_by(97) {
        fs.corrupt(&later, offset, 1).unwrap();
        let told = ingest.add_file(&later).unwrap_err();
        let is_of_file = told.to_string().contains("later");
        assert!((told.is_corruption() || told.name() == "NEWER_FORMAT") && is_of_file, "{told}");
        fs.corrupt(&later, offset, 1).unwrap();
    }
    ingest.add_file(&later).unwrap();
    ingest.commit().unwrap();
    assert_eq!(db.count(..).unwrap(), 701);
}

/// No slice would keep the blob files in which its values lie, and no flush could install it.
#[test]
fn a_sorted_file_with_addresses_of_values_is_refused() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let (mut separated, mut streamed) = (Vec::new(), Vec::new());
    let address = Address { file: 1, offset: 128, stored_len: 70, value_len: 60 };
    address.put_in(OpKind::Put, b"", &mut separated);
    let address = StreamAddress { file: 1, file_len: 700, value_len: 600, checksum: 5 };
    address.put(&mut streamed);
    for (path, kind, value) in
        [("/apart", OpKind::PutSeparated, &separated), ("/stream", OpKind::PutStreamed, &streamed)]
    {
        let path = Path::new(path);
        let mut writer = TableWriter::create(fs.create(path).unwrap(), [0; 16], 0).unwrap();
        writer.begin_slice(DEFAULT_FAMILY, &TableOptions::default()).unwrap();
        writer.add(Entry { key: b"a", seq: 1, kind, value }).unwrap();
        writer.finish().unwrap();
        let told = db.ingest().unwrap().add_file(path).unwrap_err();
        assert_eq!(told.name(), "INVALID_ARGUMENT", "{told}");
    }
}

/// A header says which version of the format the file has.
#[test]
fn a_sorted_file_of_a_newer_format_is_told_as_such() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let path = Path::new("/newer");
    let (kind, uuid) = (FileKind::Table, [0; 16]);
    let mut header = FileHeader::new(kind, uuid, 0).encode();
    header[10] = 9;
    let sum = checksum64(&header[..120]);
    header[120..].copy_from_slice(&sum.to_le_bytes());
    let mut file = fs.create(path).unwrap();
    file.append(&header).unwrap();
    file.append(&[0; 4096]).unwrap();
    file.sync().unwrap();
    assert_eq!(db.ingest().unwrap().add_file(path).unwrap_err().name(), "NEWER_FORMAT");
}

/// Two families with something in them, and an ingest into both.
fn ingest_beside(db: &Db) -> Result<()> {
    let side = db.family("side")?;
    let mut ingest = db.ingest()?;
    for n in 0..300 {
        ingest.put(key(n), [1; 300])?;
        ingest.of(&side).put(key(n), [1; 300])?;
    }
    ingest.commit()?;
    db.sync()
}

/// What an open finds in both families: all that was ingested, or nothing.
#[track_caller]
fn assert_whole(fs: &MemoryFs, must_be: bool) -> bool {
    let again = recovered(fs);
    let side = again.family("side").unwrap();
    let counts = (again.count(..).unwrap(), side.count(..).unwrap());
    assert!(counts == (300, 300) || (counts == (20, 0) && !must_be), "{counts:?}");
    let expected = if counts.0 == 300 { [1; 300].to_vec() } else { b"before".to_vec() };
    assert_eq!(again.get(key(9)).unwrap().unwrap(), expected);
    counts.0 == 300
}

fn with_some(fs: &MemoryFs) -> Db {
    let db = open(fs);
    db.family("side").unwrap();
    for n in 0..20 {
        db.put(key(n), "before").unwrap();
    }
    db.sync().unwrap();
    db
}

/// From the `nth` operation on files on, one fails, or all do as if the machine had stopped. Then
/// the power fails. True if nothing failed.
fn strike(nth: u64, forever: bool, told: &mut [u64; 2]) -> bool {
    let fs = MemoryFs::new();
    let db = with_some(&fs);
    let fault = Fault::on_any().nth(nth);
    fs.inject(if forever { fault.forever() } else { fault });
    let ingested = ingest_beside(&db);
    let _ = db.flush();
    let has_struck = fs.struck() > 0;
    told[usize::from(ingested.is_ok())] += 1;
    let mut rng = Rng(nth);
    let mut drawn = || fs.crashed(|it| rng.below(it.steps.len() as u64 + 1) as usize);
    for left in [drawn(), fs.crashed(|_| 0), drawn(), fs.killed()] {
        assert_whole(&left, ingested.is_ok());
    }
    fs.clear_faults();
    !has_struck
}

#[test]
fn a_power_cut_at_each_step_of_an_ingest_leaves_all_of_it_or_nothing() {
    let mut told = [0; 2];
    let _ = (1..).find(|nth| strike(*nth, true, &mut told));
    assert!(told[0] > 30 && told[1] > 10, "{told:?}");
}

#[test]
fn a_fault_at_any_step_of_an_ingest_and_then_a_power_cut_leave_all_of_it_or_nothing() {
    let mut told = [0; 2];
    let _ = (1..).step_by(2).find(|nth| strike(*nth, false, &mut told));
    assert!(told[0] > 15 && told[1] > 5, "{told:?}");
}

#[test]
fn writers_beside_an_ingest_come_before_it_or_after_it() {
    let db = open(&MemoryFs::new());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                db.with(WriteOptions::default()).put(key(n % 400), [9; 20]).unwrap();
                let lately = TransactionOptions::new().isolation(Isolation::Serializable);
                let tx = db.with(lately).begin();
                let sum = tx.get(key(n % 7)).unwrap().map_or(0, |value| value.len());
                tx.put(key(800 + n % 7), [7; 3]).unwrap();
                let _ = tx.commit().map_err(|error: Error| assert!(error.is_conflict(), "{sum}"));
            }
        });
        for round in 1..=6 {
            let mut ingest = db.ingest().unwrap();
            take(&mut ingest, (0, 400, 1), round).unwrap();
            let commit = ingest.commit().unwrap();
            let snapshot = db.snapshot_at(commit).unwrap_or_else(|_| db.snapshot());
            for row in snapshot.range(..key(500)) {
                let value = row.unwrap().1;
                assert!(value == [round; 300] || value == [9; 20], "{round}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_at_rest(db.engine());
}

/// Each commit is younger than all transactions that run. If it were the one that dies, it might
/// never come through beside those that lock two keys of it one after the other.
#[test]
fn an_ingest_does_not_die_of_a_deadlock_with_a_transaction() {
    let db = open(&MemoryFs::new());
    let mut ingest = db.ingest().unwrap();
    take(&mut ingest, (0, 10, 1), 1).unwrap();
    let tx = db.begin();
    tx.get_for_update(key(3)).unwrap();
    std::thread::scope(|scope| {
        let commits = scope.spawn(|| ingest.commit());
        while db.engine().locks.sleepers() == 0 && !commits.is_finished() {
            std::thread::yield_now();
        }
        let told = tx.get_for_update(key(5)).map(drop);
        drop(tx);
        commits.join().unwrap().unwrap();
        assert_eq!(told.unwrap_err().name(), "DEADLOCK");
    });
    assert_eq!(db.count(..).unwrap(), 10);
}

/// The put waits for the ingest, which waits for the transaction of the put's thread.
#[test]
fn an_ingest_that_is_chosen_in_a_deadlock_with_a_plain_write_lets_it_go_first() {
    let db = open(&MemoryFs::new());
    let mut ingest = db.ingest().unwrap();
    take(&mut ingest, (0, 10, 1), 1).unwrap();
    let tx = db.begin();
    tx.get_for_update(key(3)).unwrap();
    std::thread::scope(|scope| {
        let commits = scope.spawn(|| ingest.commit());
        while db.engine().locks.sleepers() == 0 && !commits.is_finished() {
            std::thread::yield_now();
        }
        db.put(key(5), "plain").unwrap();
        drop(tx);
        commits.join().unwrap().unwrap();
    });
    assert_eq!(db.count(..).unwrap(), 10);
    assert!(db.metrics().deadlocks > 0);
}
