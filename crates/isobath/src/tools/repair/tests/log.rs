//! What counts of the log without a manifest, beside tables that say how far flushes had come.

use super::damage::STEP;
use super::*;
use crate::format::FILE_HEADER_LEN;
use crate::version::SPILL_DIR;
use crate::vfs::{Fault, FileOp};
use crate::wal::{HEADER_PAGE_LEN, RECORD_HEADER_LEN, inventory};

/// A database as a killed process leaves it, without a manifest: two families with keys in one
/// table, and in a second table, and all that is in the second one still in the log. With the path
/// of the second table.
fn beside_the_log() -> (MemoryFs, Content, PathBuf) {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let users = db.family(USERS).unwrap();
    let mut before = Vec::new();
    for stage in 0..2 {
        for n in (0..KEYS).map(|n| n * 7 % KEYS) {
            let n = 2 * n + stage;
            users.put(key(n), value(n + 1)).unwrap();
            db.put(key(n), value(n)).unwrap();
        }
        users.delete(key(0)).unwrap();
        db.with(WriteOptions::sync()).delete(key(0)).unwrap();
        before = if stage == 0 { Vec::new() } else { tables(&fs) };
        db.flush().unwrap();
    }
    let expected = content(&db);
    let left = fs.killed();
    manifests(&left).iter().for_each(|path| left.remove(path).unwrap());
    let newest =
        tables(&left).into_iter().filter(|path| !before.contains(path)).collect::<Vec<_>>();
    assert!(before.len() == 1 && newest.len() == 1, "{before:?} {newest:?}");
    (left, expected, newest[0].clone())
}

#[test]
fn a_table_that_a_flush_had_not_finished_hides_no_commit() {
    let (fs, expected, table) = beside_the_log();
    for len in (0..bytes(&fs, &table).len()).step_by(STEP) {
        let fs = fs.killed();
        fs.truncate(&table, len as u64).unwrap();
        let (report, found) = repaired(&fs);
        assert_eq!(found, expected, "cut to {len}: {report:?}");
    }
}

#[test]
fn what_is_damaged_in_a_table_comes_from_the_log_that_still_has_it() {
    let (fs, expected, table) = beside_the_log();
    for at in (0..bytes(&fs, &table).len()).step_by(STEP) {
        let fs = fs.killed();
        fs.corrupt(&table, at as u64, 1 << (at % 8)).unwrap();
        let (report, found) = repaired(&fs);
        assert_eq!(found, expected, "byte {at}: {report:?}");
    }
}

/// A second repair finds the tables that the first one has made of the log.
#[test]
fn a_repair_that_takes_from_the_log_can_be_cut_short_and_run_again() {
    let (left, expected, table) = beside_the_log();
    let half = bytes(&left, &table).len() as u64 / 2;
    let ops = [FileOp::Create, FileOp::Write, FileOp::Sync, FileOp::Link, FileOp::Rename];
    for (op, nth) in ops.into_iter().flat_map(|op| [1, 2, 3].map(|nth| (op, nth))) {
        for is_cut in [false, true] {
            let fs = left.killed();
            match is_cut {
                true => fs.truncate(&table, half + 400).unwrap(),
                false => fs.corrupt(&table, half / 2, 1).unwrap(),
            }
            fs.inject(Fault::on(op).nth(nth));
            let _ = run(&fs, false);
            let fs = fs.killed();
            fs.clear_faults();
            run(&fs, false).unwrap();
            let found = content(&options(&fs).create_if_missing(false).open(DB).unwrap());
            assert_eq!(found, expected, "{op:?} {nth} failed, {is_cut}");
        }
    }
}

#[test]
fn operands_that_a_damaged_table_and_the_log_have_count_once() {
    let fs = MemoryFs::new();
    let counting = FamilyOptions::new().block_size(256).merge_operator("isobath.counter");
    let db = options(&fs).family(counting).open(DB).unwrap();
    for _ in 0..2 {
        for n in 0..200 {
            db.merge(key(n), 1u64.to_le_bytes()).unwrap();
        }
    }
    db.sync().unwrap();
    db.flush().unwrap();
    let expected = content(&db);
    let left = fs.killed();
    manifests(&left).iter().for_each(|path| left.remove(path).unwrap());
    left.corrupt(&tables(&left)[0], 700, 1).unwrap();
    for is_cut_short in [false, true] {
        let fs = left.killed();
        if is_cut_short {
            fs.inject(Fault::on(FileOp::Link));
            run(&fs, false).unwrap_err();
            fs.clear_faults();
        }
        let (report, found) = repaired(&fs);
        check_losses(&report, &found, &expected);
        assert!(found.len() > 100, "{is_cut_short} {report:?}");
    }
}

/// What a compaction folds has the number of its newest operand. So the log may have all numbers of
/// a slice, and lack most of what is in it.
#[test]
fn a_damaged_slice_of_folded_operands_stays_though_the_log_has_its_numbers() {
    let fs = MemoryFs::new();
    let counting = FamilyOptions::new().block_size(256).merge_operator("isobath.counter");
    let db = options(&fs).open(DB).unwrap();
    let users = db.family((USERS, counting)).unwrap();
    let count = || {
        (0..100).for_each(|n| {
            users.merge(key(n), 1u64.to_le_bytes()).unwrap();
        })
    };
    (0..30).for_each(|_| count());
    for n in 0..100 {
        db.put(key(n), vec![7; 2000]).unwrap();
    }
    let counted_from = db.engine().log.tail();
    count();
    let counted_to = db.engine().log.tail();
    db.sync().unwrap();
    db.compact().unwrap();
    db.wait_for_compactions(None).unwrap();
    db.engine().compactors.wait_idle();
    db.engine().remove_obsolete_files();
    let expected = content(&db);
    let tree = users.of(db.engine()).unwrap().view().tree.clone();
    let files: Vec<u64> = tree.iter().map(|(_, slice)| slice.meta.file).collect();
    let fs = fs.killed();
    let mut has_all = false;
    for info in inventory(&fs, &Path::new(DB).join(LOG_DIR)).unwrap() {
        match info.base <= counted_from && counted_to <= info.end() {
            true => has_all = true,
            false => fs.remove(&info.path).unwrap(),
        }
    }
    assert!(has_all && files.len() == 1, "{files:?}");
    manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    let table = crate::version::table_path(Path::new(DB), files[0]);
    fs.corrupt(&table, FILE_HEADER_LEN as u64 + 300, 1).unwrap();
    let (report, found) = repaired(&fs);
    check_losses(&report, &found, &expected);
    let of_users = found.keys().filter(|(family, _)| family == USERS).count();
    assert!((1..100).contains(&of_users), "{of_users}: {report:?}");
}

/// The directory of a table shows that its flush was finished, and so does a record of the
/// manifest that names it.
#[test]
fn a_table_that_a_record_of_the_manifest_names_was_finished() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let users = db.family(USERS).unwrap();
    users.put("deleted", "value").unwrap();
    let deleted_at = db.engine().log.tail();
    users.delete("deleted").unwrap();
    for n in 0..KEYS {
        db.put(key(n), value(n)).unwrap();
    }
    db.sync().unwrap();
    db.flush().unwrap();
    let expected = content(&db);
    let fs = fs.killed();
    let table = tables(&fs).remove(0);
    fs.truncate(&table, bytes(&fs, &table).len() as u64 - 20).unwrap();
    fs.corrupt(&manifests(&fs)[0], FILE_HEADER_LEN as u64 + 20, 1).unwrap();
    let record = HEADER_PAGE_LEN + deleted_at % (64 << 10) + RECORD_HEADER_LEN as u64;
    fs.corrupt(&segments(&fs)[0], record, 1).unwrap();
    let (report, found) = repaired(&fs);
    check_losses(&report, &found, &expected);
}

/// A power cut may take what was not synced of the log, and leave a part of the table that a flush
/// was writing.
#[test]
fn what_is_left_of_the_log_counts_beside_a_part_of_a_table_that_goes_further() {
    let (fs, expected, table) = beside_the_log();
    let segment = segments(&fs).remove(0);
    let nth = |n: u32| key(2 * (n * 7 % KEYS) + 1);
    let log = bytes(&fs, &segment);
    let end = log.windows(7).position(|window| window == nth(30)).unwrap();
    fs.truncate(&segment, end as u64).unwrap();
    for len in (0..bytes(&fs, &table).len()).step_by(STEP) {
        let fs = fs.killed();
        fs.truncate(&table, len as u64).unwrap();
        let (report, found) = repaired(&fs);
        for key in (0..30)
            .map(nth)
            .flat_map(|key| ["default", USERS].map(|of| (of.to_owned(), key.clone())))
        {
            assert_eq!(found.get(&key), expected.get(&key), "{key:?}, cut to {len}: {report:?}");
        }
    }
}

/// A delete that a compaction has dropped with all that it hid is in the log alone. An older
/// segment, whose removal a power cut has undone, must not bring back what it hid.
#[test]
fn a_segment_that_was_retired_brings_back_no_deleted_key() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let users = db.family(USERS).unwrap();
    users.put("deleted", "value").unwrap();
    db.sync().unwrap();
    let first = segments(&fs).remove(0);
    let old = bytes(&fs, &first);
    db.flush().unwrap();
    let fill = || {
        (0..100).for_each(|n| {
            db.put(key(n), vec![7; 2000]).unwrap();
        })
    };
    fill();
    users.delete("deleted").unwrap();
    db.compact().unwrap();
    db.wait_for_compactions(None).unwrap();
    fill();
    db.flush().unwrap();
    db.put("last", "value").unwrap();
    db.sync().unwrap();
    let expected = content(&db);
    // No table says that anything was there.
    db.engine().compactors.wait_idle();
    db.engine().remove_obsolete_files();
    let tree = users.of(db.engine()).unwrap().view().tree.clone();
    assert_eq!(tree.iter().count(), 0);
    let fs = fs.killed();
    manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    if !fs.exists(&first).unwrap() {
        let mut file = fs.create(&first).unwrap();
        file.append(&old).unwrap();
        file.sync().unwrap();
    }
    for path in segments(&fs).into_iter().filter(|path| *path != first) {
        let names_it = bytes(&fs, &path).windows(7).any(|window| window == b"deleted");
        // It is retired later than the others at times.
        names_it.then(|| fs.remove(&path).unwrap());
    }
    let (report, found) = repaired(&fs);
    assert_eq!(found, expected, "{report:?}");
}

/// The files of a large commit are removed once it is in a table. Then the log does not have the
/// deletes in it, while it may have what they hid.
#[test]
fn a_large_commit_whose_files_are_gone_brings_back_no_deleted_key() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let users = db.family(USERS).unwrap();
    users.put("deleted", "value").unwrap();
    let tx = db.begin();
    tx.of(&users).delete("deleted").unwrap();
    for n in 0..100 {
        tx.put(key(n), vec![7; 2000]).unwrap();
    }
    tx.commit().unwrap();
    db.compact().unwrap();
    db.engine().compactors.wait_idle();
    db.engine().remove_obsolete_files();
    db.with(WriteOptions::sync()).put("last", "value").unwrap();
    let expected = content(&db);
    let fs = fs.killed();
    assert_eq!(users.count(..).unwrap(), 0);
    assert!(files(&fs, SPILL_DIR, ".tbl").is_empty() && files(&fs, LOG_DIR, ".wal").len() < 3);
    manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    let (report, found) = repaired(&fs);
    assert_eq!(found, expected, "{report:?}");
}

/// The process died before it removed them. A repair that cannot open one now can be run again.
#[test]
fn a_spilled_file_that_cannot_be_opened_now_was_not_removed() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    db.flush().unwrap();
    let (flush, flushes) = std::sync::mpsc::channel::<()>();
    let wait = move |_: &_| {
        let _ = flushes.recv();
    };
    db.engine().flusher.submit(Box::new(wait)).unwrap();
    let tx = db.begin();
    for n in 0..100 {
        tx.put(key(n), vec![7; 2000]).unwrap();
    }
    tx.commit().unwrap();
    db.sync().unwrap();
    let spilled = files(&fs, SPILL_DIR, ".tbl");
    let kept = spilled.iter().cloned().chain(segments(&fs));
    let kept: Vec<_> = kept.map(|path| (bytes(&fs, &path), path)).collect();
    drop(flush);
    db.flush().unwrap();
    let expected = content(&db);
    let fs = fs.killed();
    for (bytes, path) in kept {
        if fs.exists(&path).unwrap() {
            fs.remove(&path).unwrap();
        }
        let mut file = fs.create(&path).unwrap();
        file.append(&bytes).unwrap();
        file.sync().unwrap();
    }
    manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    for path in &spilled {
        fs.inject(Fault::on(FileOp::OpenRead).suffix(path.to_str().unwrap()).errno(24));
    }
    let error = run(&fs, false).unwrap_err();
    assert!(error.to_string().contains(SPILL_DIR), "{error}");
    fs.clear_faults();
    let (report, found) = repaired(&fs);
    assert_eq!(found, expected, "{report:?}");
}

/// A power cut has torn the header that the spare was about to get. The next open removes it.
#[test]
fn a_spare_with_a_torn_header_is_no_damage() {
    let (fs, expected) = left_behind();
    let segment = segments(&fs).pop().unwrap();
    let spare = segment.with_file_name("00000000000000ff.spare");
    let mut file = fs.create(&spare).unwrap();
    file.append(&bytes(&fs, &segment)).unwrap();
    file.sync().unwrap();
    for at in [3, 50, 900] {
        fs.corrupt(&spare, at, 1).unwrap();
        let verified = verify(Path::new(DB), &env(&fs), &mut |_, _| ()).unwrap();
        assert!(verified.is_clean(), "{verified:?}");
        assert!(verified.notes.iter().any(|note| note.path == spare), "{verified:?}");
        assert!(run(&fs, false).unwrap().is_sound());
    }
    assert_eq!(content(&options(&fs).open(DB).unwrap()), expected);
}

/// Nothing but what the first record says of the log before it shows that there was a segment.
#[test]
fn a_lost_first_segment_is_told_though_a_record_begins_where_the_next_one_does() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    db.sync().unwrap();
    let end = inventory(&fs, &Path::new(DB).join(LOG_DIR)).unwrap()[0].end();
    let before = db.engine().log.tail();
    db.put("lost0", vec![7; 1000]).unwrap();
    let around = db.engine().log.tail() - before - 1000;
    let rest = end - db.engine().log.tail();
    db.put("lost1", vec![7; (rest - around) as usize]).unwrap();
    assert_eq!(db.engine().log.tail(), end);
    db.put("kept", "value").unwrap();
    let expected = content(&db);
    let fs = fs.killed();
    let first = segments(&fs).remove(0);
    fs.remove(&first).unwrap();
    manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    let (report, found) = repaired(&fs);
    assert!(found.len() == 1 && !report.losses.is_empty(), "{report:?}");
    check_losses(&report, &found, &expected);
}
