//! For which commits a repaired database vouches: for those before the first loss that the report
//! names, and for none behind it.

use super::refused::{commit, forge, prepare, put};
use super::streams::{long, streaming};
use super::*;
use crate::format::{DEFAULT_FAMILY, FILE_HEADER_LEN, FileKind, Payload};
use crate::version::{CURRENT, SPILL_DIR};
use crate::{Batch, Commit, Db, ReadPoint, Xid};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

fn durably(db: &Db, key: &str) -> Commit {
    db.with(WriteOptions::sync()).put(key, "value").unwrap()
}

/// Opens the database again as after a crash, which ends a term.
fn again(fs: &MemoryFs) -> (MemoryFs, Db) {
    let fs = fs.killed();
    let db = options(&fs).open(DB).unwrap();
    (fs, db)
}

/// Repairs a database that has lost something, and checks for which of the points it vouches.
#[track_caller]
fn check<const N: usize, P: Into<ReadPoint>>(
    fs: &MemoryFs,
    points: [P; N],
    vouched: [bool; N],
) -> RepairReport {
    let points = points.map(Into::into);
    let (report, _) = repaired(fs);
    assert!(!report.losses.is_empty(), "{report:?}");
    let db = options(fs).open(DB).unwrap();
    assert_eq!(points.map(|of| db.is_durable(of)), vouched, "{report:?}");
    assert_eq!(points.map(|of| db.sync_to(of).is_ok()), vouched, "{report:?}");
    // New ones have nothing to do with the loss.
    assert!(db.is_durable(durably(&db, "new")));
    report
}

fn damage(fs: &MemoryFs, path: &Path, at: Option<u64>) {
    match at {
        Some(at) => fs.corrupt(path, at, 1).unwrap(),
        None => fs.remove(path).unwrap(),
    }
}

/// Flushes, and keeps other flushes waiting until the end is dropped.
fn hold_flushes(db: &Db) -> Sender<()> {
    db.flush().unwrap();
    let ((end, ends), (tell, begun)) = (channel::<()>(), channel());
    let wait = move |_: &_| {
        tell.send(()).unwrap();
        let _ = ends.recv();
    };
    db.engine().flusher.submit(Box::new(wait)).unwrap();
    begun.recv().unwrap();
    end
}

#[test]
fn not_for_a_large_commit_that_has_lost_a_file() {
    for at in [None, Some(5000)] {
        let fs = MemoryFs::new();
        let db = options(&fs).open(DB).unwrap();
        let before = durably(&db, "before");
        let _flushes = hold_flushes(&db);
        let tx = db.begin();
        for n in 0..400 {
            tx.put(key(n), [7; 300]).unwrap();
        }
        let large = tx.commit().unwrap();
        db.sync_to(large).unwrap();
        let behind = durably(&db, "behind");
        let fs = fs.killed();
        damage(&fs, &files(&fs, SPILL_DIR, ".tbl")[1], at);
        check(&fs, [before, large, behind], [true, false, false]);
    }
}

#[test]
fn not_for_a_put_that_has_lost_its_stream() {
    for at in [None, Some(200)] {
        let fs = MemoryFs::new();
        let db = streaming(&fs).open(DB).unwrap();
        let before = durably(&db, "before");
        let long = db.with(WriteOptions::sync()).put_reader(key(1), &*long(1)).unwrap();
        let behind = durably(&db, "behind");
        let fs = fs.killed();
        damage(&fs, &tables(&fs)[0], at);
        check(&fs, [before, long, behind], [true, false, false]);
    }
}

/// The log has the commit, and the file of an earlier flush what it commits.
#[test]
fn not_for_the_commit_of_a_prepared_transaction_that_is_lost() {
    for (at, is_decided) in [(None, true), (Some(150), true), (Some(150), false)] {
        let fs = MemoryFs::new();
        let db = options(&fs).open(DB).unwrap();
        let first = durably(&db, "first");
        let tx = db.begin();
        tx.put("prepared", "value").unwrap();
        drop(tx.prepare("xid").unwrap());
        db.flush().unwrap();
        let decided = match is_decided {
            true => db.commit_prepared(&Xid::new("xid")).unwrap(),
            false => durably(&db, "other"),
        };
        let behind = durably(&db, "behind");
        let fs = fs.killed();
        let found = crate::tools::inspect(Path::new(DB), &env(&fs)).unwrap().prepared;
        damage(&fs, &found[0].path, at);
        check(&fs, [first, decided, behind], [true, false, false]);
    }
}

#[test]
fn not_behind_a_record_that_no_replay_accepts_or_that_is_put_aside() {
    let later = || prepare(b"later", vec![put(DEFAULT_FAMILY, b"key")]);
    let refused = || Payload::FamilyCreate { id: 0, name: "new", options: b"{}" };
    for forged in [later(), refused(), commit(b"unheard of", 4096)] {
        let fs = MemoryFs::new();
        let db = options(&fs).open(DB).unwrap();
        let tx = db.begin();
        tx.put("key", "value").unwrap();
        drop(tx.prepare("earlier").unwrap());
        let before = durably(&db, "before");
        forge(&db, &forged);
        let behind = durably(&db, "behind");
        check(&fs.killed(), [before, behind], [true, false]);
    }
}

/// The table that has these bytes.
fn table_of(fs: &MemoryFs, key: &[u8]) -> PathBuf {
    let has = |path: &PathBuf| bytes(fs, path).windows(key.len()).any(|window| window == key);
    tables(fs).into_iter().find(has).unwrap()
}

/// Commits of three terms: two in a table each, and two in the log.
fn three_terms() -> (MemoryFs, [Commit; 4], [PathBuf; 2]) {
    let (fs, db) = again(&MemoryFs::new());
    let first = durably(&db, "first");
    db.flush().unwrap();
    let (fs, db) = again(&fs);
    let second = durably(&db, "second");
    db.flush().unwrap();
    let (fs, db) = again(&fs);
    let last = ["third", "fourth"].map(|key| durably(&db, key));
    let fs = fs.killed();
    let of_two = [table_of(&fs, b"first"), table_of(&fs, b"second")];
    (fs, [first, second, last[0], last[1]], of_two)
}

/// The log is left to the next open, which ends the term.
#[test]
fn not_behind_what_a_table_has_lost_though_the_log_is_whole() {
    for at in [None, Some(FILE_HEADER_LEN as u64 + 20)] {
        for nth in [1, 0] {
            let (fs, commits, tables) = three_terms();
            damage(&fs, &tables[nth], at);
            let report = check(&fs, commits, [nth == 1, false, false, false]);
            assert_eq!(report.records_saved, 0, "{report:?}");
        }
    }
}

#[test]
fn not_behind_the_first_of_losses_in_tables_and_in_the_log() {
    for lost in [0, 1, 2] {
        let (fs, commits, tables) = three_terms();
        let segment = segments(&fs).pop().unwrap();
        let all = bytes(&fs, &segment);
        let at = all.windows(5).position(|window| window == b"third").unwrap();
        fs.corrupt(&segment, at as u64, 1).unwrap();
        if lost < 2 {
            fs.remove(&tables[lost]).unwrap();
        }
        check(&fs, commits, [lost > 0, lost > 1, false, false]);
    }
}

/// A term that begins behind the loss gives out points that see what is lost: where it begins, and
/// before that.
#[test]
fn not_for_points_of_a_later_term_that_see_what_is_lost() {
    for lost in [&b"first"[..], b"second"] {
        let fs = MemoryFs::new();
        let open = |fs: &MemoryFs| options(fs).history(Duration::from_secs(3600)).open(DB).unwrap();
        let db = open(&fs);
        let first = durably(&db, "first");
        db.flush().unwrap();
        let fs = fs.killed();
        let db = open(&fs);
        let begin = db.snapshot().read_point();
        let nothing = db.write(Batch::new()).unwrap();
        let earlier = db.snapshot_at(first).unwrap().read_point();
        let second = durably(&db, "second");
        db.flush().unwrap();
        let (fs, db) = again(&fs);
        let again = db.snapshot_at(first).unwrap().read_point();
        let fs = fs.killed();
        fs.remove(&table_of(&fs, lost)).unwrap();
        let is_kept = lost != b"first";
        let points = [first.into(), begin, nothing.into(), earlier, second.into(), again];
        let vouched = [is_kept, is_kept, is_kept, is_kept, false, is_kept];
        check(&fs, points, vouched);
    }
}

/// What a compaction has folded has the number of its newest operand.
#[test]
fn for_no_commit_at_all_if_operands_are_lost() {
    let fs = MemoryFs::new();
    let counting = FamilyOptions::new().merge_operator("isobath.counter");
    let db = options(&fs).open(DB).unwrap();
    let counters = db.family((USERS, counting)).unwrap();
    let count = || counters.merge("key", 1u64.to_le_bytes()).unwrap();
    let first = count();
    let others = [count(), count()];
    db.compact().unwrap();
    let (fs, db) = again(&fs);
    let last = durably(&db, "last");
    let fs = fs.killed();
    let is_table = |path: &&PathBuf| bytes(&fs, path)[8] == FileKind::Table as u8;
    tables(&fs).iter().filter(is_table).for_each(|path| fs.remove(path).unwrap());
    check(&fs, [first, others[0], others[1], last], [false; 4]);
}

/// Tables may be gone that no record names.
#[test]
fn for_no_commit_at_all_without_a_whole_manifest() {
    let (left, commits, _) = three_terms();
    let manifest = manifests(&left).pop().unwrap();
    for at in (FILE_HEADER_LEN..bytes(&left, &manifest).len()).step_by(damage::STEP) {
        let fs = left.killed();
        fs.corrupt(&manifest, at as u64, 1).unwrap();
        let (report, _) = repaired(&fs);
        let is_whole = report.findings.iter().all(|it| it.detail.starts_with("the sync marker"));
        let db = options(&fs).open(DB).unwrap();
        let told = commits.map(|of| db.is_durable(of));
        assert_eq!(told, [is_whole; 4], "byte {at}: {report:?}");
        assert_eq!(commits.map(|of| db.sync_to(of).is_ok()), told, "byte {at}: {report:?}");
    }
}

#[test]
fn a_reader_that_has_shown_what_is_lost_is_told_that_the_database_was_restored() {
    for is_lost in [true, false] {
        let fs = MemoryFs::new();
        let db = options(&fs).open(DB).unwrap();
        durably(&db, "key");
        let reader = options(&fs).read_only(true).open(DB).unwrap();
        db.close().unwrap();
        let lost = if is_lost { tables(&fs).remove(0) } else { Path::new(DB).join(CURRENT) };
        fs.remove(&lost).unwrap();
        assert!(!run(&fs, false).unwrap().is_sound());
        let db = options(&fs).open(DB).unwrap();
        let caught_up = reader.catch_up();
        assert_eq!(caught_up.is_err(), is_lost, "{caught_up:?}");
        let why = caught_up.map_or_else(|error| error.to_string(), |_| String::new());
        assert_eq!(why.contains("it was restored"), is_lost, "{why}");
        db.close().unwrap();
    }
}

#[test]
fn for_all_that_there_is_if_nothing_is_lost() {
    let (fs, commits, _) = three_terms();
    fs.remove(&Path::new(DB).join(CURRENT)).unwrap();
    let report = run(&fs, false).unwrap();
    assert!(report.losses.is_empty() && !report.is_sound(), "{report:?}");
    let db = options(&fs).open(DB).unwrap();
    assert_eq!(commits.map(|of| db.is_durable(of)), [true; 4]);
    assert!(commits.iter().all(|of| db.sync_to(*of).is_ok()));
}
