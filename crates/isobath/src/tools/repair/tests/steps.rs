//! Tests of interrupted repairs, and of tables that others replace.

use super::*;
use crate::error::Error;
use crate::vfs::{Fault, FileOp};
use crate::wal::HEADER_PAGE_LEN;
use proptest::prelude::*;

/// A database in which every kind of file is damaged.
fn damaged() -> (MemoryFs, Content) {
    let (fs, expected) = left_behind();
    manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    fs.corrupt(&tables(&fs)[0], 300, 1).unwrap();
    fs.corrupt(&segments(&fs)[0], 6000, 1).unwrap();
    (fs, expected)
}

const COUNTS: &str = "counts";

/// A database without a manifest, whose newest table is damaged in two families: the log has all
/// that is in it, and one family merges.
fn damaged_beside_the_log() -> (MemoryFs, Content) {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let counting = FamilyOptions::new().block_size(256).merge_operator("isobath.counter");
    let counts = db.family((COUNTS, counting)).unwrap();
    let mut before = Vec::new();
    for stage in 0..3 {
        for n in 0..2 * KEYS {
            counts.merge(format!("count{n:04}"), 1u64.to_le_bytes()).unwrap();
            db.put(key(n), value(n + stage)).unwrap();
        }
        db.sync().unwrap();
        if stage < 2 {
            before = tables(&fs);
            db.flush().unwrap();
        }
    }
    let expected = content(&db);
    let fs = fs.killed();
    manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    let newest = tables(&fs).into_iter().find(|path| !before.contains(path)).unwrap();
    let table = bytes(&fs, &newest);
    for first_key in ["key0000", "count0000"] {
        let first_key = first_key.as_bytes();
        let at = table.windows(first_key.len()).position(|window| window == first_key).unwrap();
        fs.corrupt(&newest, at as u64, 1).unwrap();
    }
    (fs, expected)
}

/// The complete reports in `lost+found`.
fn kept_reports(fs: &MemoryFs) -> Vec<String> {
    let has_any = fs.exists(&Path::new(DB).join("lost+found")).unwrap();
    let kept = if has_any { files(fs, "lost+found", "report.txt") } else { Vec::new() };
    let texts = kept.into_iter().map(|path| String::from_utf8(bytes(fs, &path)).unwrap());
    texts.filter(|text| text.lines().last().is_some_and(|line| line.starts_with("end: "))).collect()
}

fn losses_in(text: &str) -> usize {
    text.lines().filter(|line| line.starts_with("lost: ")).count()
}

#[test]
fn a_repair_cut_short_at_any_step_can_be_run_again() {
    for (fs, expected) in [damaged(), damaged_beside_the_log()] {
        let (report, best) = repaired(&fs.killed());
        // Of a counter an older value may show, and then the report names it.
        let is_right = |(key, value): (&(String, Vec<u8>), &Vec<u8>)| {
            key.0 == COUNTS || expected.get(key) == Some(value)
        };
        assert!(best.iter().all(is_right) && !report.losses.is_empty(), "{report:?}");
        // What the log stands for is all there.
        let of_counts = |loss: &crate::tools::Loss| loss.family_name.as_deref() == Some(COUNTS);
        let has = |name: &str| best.keys().filter(|(family, _)| family == name).count() as u32;
        assert!(!report.losses.iter().all(of_counts) || has("default") == 2 * KEYS, "{report:?}");
        let mut sound = 0;
        let ops = [FileOp::Create, FileOp::Write, FileOp::Sync, FileOp::SyncDir];
        let ops = ops.into_iter().chain([FileOp::Link, FileOp::Rename, FileOp::Remove]);
        for (op, nth) in ops.flat_map(|op| (1..6).map(move |nth| (op, nth))) {
            let mut fs = fs.killed();
            for power_lasts in [true, false] {
                fs.inject(Fault::on(op).nth(nth));
                let _ = run(&fs, false);
                fs = if power_lasts { fs.killed() } else { fs.crashed(|_| 0) };
                fs.clear_faults();
            }
            let last = run(&fs, false).unwrap();
            let found = content(&options(&fs).create_if_missing(false).open(DB).unwrap());
            assert_eq!(found, best, "{op:?} {nth} failed");
            // If an earlier attempt has made its state the current one, this one finds no damage.
            let told: Vec<usize> = kept_reports(&fs).iter().map(|text| losses_in(text)).collect();
            match last.is_sound() {
                true => assert!(told.iter().any(|told| *told > 0), "{op:?} {nth} failed"),
                false if last.kept_in.is_none() => assert!(last.losses.is_empty(), "{last:?}"),
                false => assert!(told.contains(&last.losses.len()), "{op:?} {nth} failed"),
            }
            sound += u32::from(last.is_sound());
        }
        assert!(sound > 0, "no attempt failed behind the switch");
    }
}

#[test]
fn a_repair_that_is_called_off_changes_nothing() {
    let (fs, _) = damaged();
    let before = everything(&fs);
    let options = RepairOptions::new().env(env(&fs));
    let stopped = repair(Path::new(DB), &options, &mut |_, _| ControlFlow::Break(()));
    assert!(matches!(stopped.as_ref().map_err(Error::name), Err("CANCELLED")));
    assert_eq!(everything(&fs), before);
    let foretold = run(&fs, true).unwrap();
    assert!(foretold.is_dry_run && !foretold.losses.is_empty());
    assert_eq!(everything(&fs), before);
}

#[test]
fn where_no_database_was_there_is_nothing_to_repair() {
    let fs = MemoryFs::new();
    fs.create_dir_all(Path::new(DB)).unwrap();
    assert_eq!(run(&fs, false).unwrap_err().name(), "NOT_A_DATABASE");
    let db = options(&fs).open(DB).unwrap();
    assert_eq!(run(&fs, false).unwrap_err().name(), "LOCKED");
    drop(db);
}

/// A compaction has read tables that hold keys deleted later, and these tables were not removed
/// yet.
#[test]
fn tables_that_were_compacted_do_not_bring_deleted_keys_back() {
    for missing_input in 0..4 {
        let fs = MemoryFs::new();
        let db = options(&fs).open(DB).unwrap();
        let other = db.family("other").unwrap();
        let mut inputs = Vec::new();
        for stage in 0..3u32 {
            for n in 0..30 {
                match stage {
                    0 => drop(db.put(key(n), value(n)).unwrap()),
                    1 if n.is_multiple_of(2) => drop(db.delete(key(n)).unwrap()),
                    _ => drop(db.put(key(100 + stage), value(n)).unwrap()),
                }
            }
            other.put(key(stage), value(stage)).unwrap();
            db.flush().unwrap();
            inputs = tables(&fs).into_iter().map(|path| (bytes(&fs, &path), path)).collect();
        }
        db.compact().unwrap();
        let expected = content(&db);
        db.close().unwrap();
        assert_eq!(expected.len(), 15 + 2 + 3);
        // All inputs exist except one (or none).
        for (at, (bytes, path)) in inputs.iter().enumerate() {
            if at != missing_input && !fs.exists(path).unwrap() {
                let mut file = fs.create(path).unwrap();
                file.append(bytes).unwrap();
                file.sync().unwrap();
            }
        }
        manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
        let (report, found) = repaired(&fs);
        assert_eq!(found, expected, "without input {missing_input}: {report:?}");
    }
}

#[test]
fn a_family_whose_name_nothing_tells_is_called_by_its_number() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let users = db.family(USERS).unwrap();
    db.flush().unwrap();
    // A second epoch, so that the record of the creation is in the past.
    users.put("key", "value").unwrap();
    db.sync().unwrap();
    let fs = fs.killed();
    manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    let segment = segments(&fs).remove(0);
    let all = bytes(&fs, &segment);
    let at = all.windows(USERS.len()).position(|window| window == USERS.as_bytes()).unwrap();
    fs.corrupt(&segment, at as u64, 1).unwrap();
    let (report, found) = repaired(&fs);
    assert_eq!(found[&("recovered-1".to_owned(), b"key".to_vec())], b"value");
    assert!(report.guesses.iter().any(|guess| guess.contains("recovered-1")), "{report:?}");
}

/// The last keys written.
const LAST: [&[u8]; 2] = [b"key0166", b"key0173"];

/// A file, the kind of damage, its position, and its bit.
type Wound = (usize, u8, usize, u8);

/// Does one of three kinds of damage to one of all files.
fn hurt(fs: &MemoryFs, (file, what, place, bit): Wound) {
    let mut paths: Vec<_> = everything(fs).into_keys().collect();
    paths.retain(|path| path.extension().is_none_or(|extension| extension != "spare"));
    let path = &paths[file % paths.len()];
    let len = bytes(fs, path).len();
    match what {
        0 => fs.remove(path).unwrap(),
        1 => fs.truncate(path, (place % (len + 1)) as u64).unwrap(),
        // The written part of the log is at its beginning.
        _ if len > 0 => fs.corrupt(path, (place % len.min(20_000)) as u64, 1 << bit).unwrap(),
        _ => {}
    }
}

fn check_hurt(hurts: Vec<Wound>) {
    let (fs, expected) = left_behind();
    let (tables_before, manifest) = (tables(&fs).len(), manifests(&fs).pop().unwrap());
    let is_used =
        |path: &PathBuf| bytes(&fs, path)[HEADER_PAGE_LEN as usize..].iter().any(|b| *b != 0);
    let log_end = segments(&fs).into_iter().rfind(is_used).unwrap();
    let in_log_only: Vec<_> = (2 * KEYS..3 * KEYS).map(|n| key(n * 7 % (3 * KEYS))).collect();
    let manifest_before = bytes(&fs, &manifest);
    hurts.into_iter().for_each(|wound| hurt(&fs, wound));
    let is_manifest_whole =
        fs.exists(&manifest).unwrap() && bytes(&fs, &manifest) == manifest_before;
    let is_known = is_manifest_whole || tables(&fs).len() == tables_before;
    let is_end_there = fs.exists(&log_end).unwrap();
    let (report, found) = repaired(&fs);
    // Manifest and tables with a family's name may all be damaged; then its number is its name.
    let is_unnamed = report.guesses.iter().any(|guess| guess.contains("recovered-1"));
    let named = |((family, key), value)| match is_unnamed && family == "recovered-1" {
        true => ((USERS.to_owned(), key), value),
        false => ((family, key), value),
    };
    let mut found: Content = found.into_iter().map(named).collect();
    // Nothing shows that the last record, or a missing last segment, was promised to be durable.
    // Only the manifest shows that a table is missing.
    for (key, value) in &expected {
        let is_untold = LAST.contains(&&*key.1) || (!is_end_there && in_log_only.contains(&key.1));
        if !is_known || is_untold {
            found.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    check_losses(&report, &found, &expected);
}

#[test]
fn a_cut_and_a_missing_file_together_hide_nothing() {
    check_hurt(vec![
        (4031857734522826055, 1, 7964757904441145238, 0),
        (6739577657568102961, 0, 0, 0),
    ]);
}

/// The table has lost its root with its end, so nothing but its entries shows that more is gone
/// than the first block.
#[test]
fn a_damaged_block_does_not_hide_that_the_table_was_cut() {
    check_hurt(vec![
        (17813693492573834076, 1, 4235814657536526475, 7),
        (16641682812717779748, 6, 12636546473015779248, 4),
    ]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_damaged_nothing_is_wrong_and_what_is_gone_is_named(
        hurts in prop::collection::vec((any::<usize>(), 0u8..8, any::<usize>(), 0u8..8), 1..6),
    ) {
        check_hurt(hurts);
    }
}

/// The length of a file that was cut does not show how far its records went. But a new manifest
/// begins above all that it can have held.
#[test]
fn a_cut_segment_that_a_repair_did_not_come_to_remove_refuses_no_open() {
    for is_closed in [false, true] {
        let (fs, _) = left_behind();
        if is_closed {
            options(&fs).open(DB).unwrap().close().unwrap();
        }
        let last = segments(&fs).pop().unwrap();
        fs.truncate(&last, HEADER_PAGE_LEN + 5000).unwrap();
        fs.inject(Fault::on(FileOp::Remove));
        run(&fs, false).unwrap_err();
        fs.clear_faults();
        let fs = fs.killed();
        assert!(fs.exists(&last).unwrap());
        let second = run(&fs, true).unwrap();
        assert!(second.losses.is_empty() && second.findings.is_empty(), "{second:?}");
        options(&fs).open(DB).unwrap().close().unwrap();
    }
}

#[test]
fn a_repair_makes_the_directory_of_tables_before_it_writes_them() {
    let (left, expected) = left_behind();
    let fs = MemoryFs::new();
    fs.create_dir_all(&Path::new(DB).join(LOG_DIR)).unwrap();
    let is_table = |path: &PathBuf| path.starts_with(Path::new(DB).join(TABLE_DIR));
    for (path, bytes) in everything(&left).into_iter().filter(|(path, _)| !is_table(path)) {
        fs.create(&path).unwrap().append(&bytes).unwrap();
    }
    // What only the log has is written to a table.
    let (segment, first) = (segments(&fs).remove(0), key(2 * KEYS * 7 % (3 * KEYS)));
    let at = bytes(&fs, &segment).windows(first.len()).position(|window| window == first);
    fs.corrupt(&segment, at.unwrap() as u64, 1).unwrap();
    let (report, found) = repaired(&fs);
    check_losses(&report, &found, &expected);
    assert!(!found.is_empty() && report.tables_made > 0, "{report:?}");
}
