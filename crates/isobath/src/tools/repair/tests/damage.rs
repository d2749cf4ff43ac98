//! Tests of damage: one thing at a time, and everything at once.

use super::*;
use crate::error::{Error, ErrorKind};
use crate::format::{BATCH_PREFIX_LEN, Lsn, Op, OpKind, put_batch_prefix, put_op};
use crate::version::{self, CURRENT, Change, Edit};
use crate::wal;

/// The distance between damaged bytes of a file, so that the debug build takes only seconds. A
/// prime number, so that all kinds of positions occur.
pub(super) const STEP: usize = 37;

/// Damages a new copy, repairs it, and checks that no more is lost than the report names.
fn after(damage: impl Fn(&MemoryFs)) -> (RepairReport, Content, Content) {
    let (fs, expected) = left_behind();
    damage(&fs);
    let (report, found) = repaired(&fs);
    check_losses(&report, &found, &expected);
    (report, found, expected)
}

fn without_a_loss(damage: impl Fn(&MemoryFs)) -> RepairReport {
    let (report, found, expected) = after(damage);
    assert_eq!(found, expected, "{report:?}");
    assert!(report.losses.is_empty() && !report.findings.is_empty(), "{report:?}");
    report
}

#[test]
fn a_sound_database_is_left_alone() {
    let (fs, expected) = left_behind();
    let before = everything(&fs);
    let (report, found) = repaired(&fs.killed());
    assert!(report.is_sound() && report == RepairReport::default(), "{report:?}");
    assert_eq!(found, expected);
    run(&fs, false).unwrap();
    assert_eq!(everything(&fs), before);
}

#[test]
fn a_repaired_database_vouches_for_no_commit_that_the_repair_could_not_read() {
    for removes_manifest in [false, true] {
        let fs = MemoryFs::new();
        let db = options(&fs).open(DB).unwrap();
        let put = |key| db.with(WriteOptions::sync()).put(key, "value").unwrap();
        let commits = ["first", "second", "third"].map(put);
        let fs = fs.killed();
        let segment = &segments(&fs)[0];
        let all = bytes(&fs, segment);
        let at = all.windows(6).position(|window| window == b"second").unwrap();
        fs.corrupt(segment, at as u64, 1).unwrap();
        if removes_manifest {
            manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
        }
        let report = run(&fs, false).unwrap();
        assert_eq!(report.losses.len(), 1, "{report:?}");
        let db = options(&fs).open(DB).unwrap();
        assert!(db.get("first").unwrap().is_some() && db.get("second").unwrap().is_none());
        assert_eq!(db.sync_to(commits[0]).is_ok(), !removes_manifest);
        // A manifest alone knows the terms.
        let why =
            if removes_manifest { "nothing tells whether it survived" } else { "may be lost" };
        for commit in &commits[1..] {
            let error = db.sync_to(*commit).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}

#[test]
fn a_file_with_a_number_that_nothing_can_follow_does_no_harm() {
    let last = crate::format::LSN_END - 1;
    let strangers = [version::table_path(Path::new(DB), last), Path::new(DB).join(manifest(last))];
    let plant = |fs: &MemoryFs| {
        for path in &strangers {
            let mut file = fs.create(path).unwrap();
            file.append(b"strange").unwrap();
            file.sync().unwrap();
        }
    };
    // An open removes them, as it removes all files that nothing names.
    let (fs, expected) = left_behind();
    plant(&fs);
    let db = options(&fs).open(DB).unwrap();
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    assert_eq!(content(&options(&fs).open(DB).unwrap()).len(), expected.len() + 1);
    // A repair continues the numbers of the other files, not of these.
    for removes_manifest in [false, true] {
        let (report, found, expected) = after(|fs| {
            plant(fs);
            fs.remove(&segments(fs)[0]).unwrap();
            if removes_manifest {
                let own = manifests(fs).into_iter().filter(|path| !strangers.contains(path));
                own.for_each(|path| fs.remove(&path).unwrap());
            }
        });
        assert!(found.len() < expected.len(), "{report:?}");
    }
}

fn manifest(number: u64) -> String {
    format!("MANIFEST-{number:06}")
}

#[test]
fn a_lost_or_damaged_current_costs_nothing() {
    let current = Path::new(DB).join(CURRENT);
    let report = without_a_loss(|fs| fs.remove(&current).unwrap());
    assert!(report.guesses[0].contains("MANIFEST-"), "{report:?}");
    for at in [0, 9, 20] {
        let report = without_a_loss(|fs| fs.corrupt(&current, at, 4).unwrap());
        assert_eq!(report.findings[0].path, current);
        assert_eq!(report.moved.len(), 1, "{report:?}");
    }
}

#[test]
fn a_lost_manifest_costs_nothing_and_families_keep_their_names_and_options() {
    for removes_current in [false, true] {
        let report = without_a_loss(|fs| {
            manifests(fs).iter().for_each(|path| fs.remove(path).unwrap());
            if removes_current {
                fs.remove(&Path::new(DB).join(CURRENT)).unwrap();
            }
        });
        assert!(report.guesses.iter().any(|guess| guess.contains(USERS)), "{report:?}");
    }
    let (fs, _) = left_behind();
    manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    run(&fs, false).unwrap();
    let db = options(&fs).open(DB).unwrap();
    assert_eq!(db.family_if_exists(USERS).unwrap().unwrap().options().filter_bits_per_key, 0);
    assert_eq!(db.default_family().options().block_size, 256);
}

#[test]
fn a_manifest_flipped_anywhere_costs_nothing() {
    let (fs, expected) = left_behind();
    let manifest = manifests(&fs).pop().unwrap();
    for at in (0..bytes(&fs, &manifest).len()).step_by(STEP) {
        let fs = fs.killed();
        fs.corrupt(&manifest, at as u64, 1 << (at % 8)).unwrap();
        let (report, found) = repaired(&fs);
        assert_eq!(found, expected, "byte {at}: {report:?}");
        assert!(report.losses.is_empty(), "byte {at}: {report:?}");
    }
}

#[test]
fn a_manifest_cut_anywhere_costs_nothing() {
    let (fs, expected) = left_behind();
    let manifest = manifests(&fs).pop().unwrap();
    for len in (0..bytes(&fs, &manifest).len()).step_by(STEP) {
        let fs = fs.killed();
        fs.truncate(&manifest, len as u64).unwrap();
        let (report, found) = repaired(&fs);
        assert_eq!(found, expected, "cut to {len}: {report:?}");
        assert!(report.losses.is_empty(), "cut to {len}: {report:?}");
    }
}

#[test]
fn of_a_table_flipped_anywhere_the_rest_is_kept() {
    let (fs, expected) = left_behind();
    let tables = tables(&fs);
    assert!(tables.len() >= 2, "{tables:?}");
    let mut most = 0;
    for table in tables {
        for at in (0..bytes(&fs, &table).len()).step_by(STEP) {
            let fs = fs.killed();
            fs.corrupt(&table, at as u64, 1 << (at % 8)).unwrap();
            let (report, found) = repaired(&fs);
            check_losses(&report, &found, &expected);
            assert!(report.findings.iter().all(|finding| finding.path == table), "{report:?}");
            let lost = expected.len() - found.len();
            let counted: u64 = report.losses.iter().filter_map(|loss| loss.entries).sum();
            assert_eq!(lost as u64, counted, "byte {at} of {}: {report:?}", table.display());
            most = most.max(lost);
        }
    }
    assert!((1..=30).contains(&most), "{most} keys are more than a block");
}

#[test]
fn of_a_table_cut_anywhere_what_is_in_front_is_kept() {
    let (fs, expected) = left_behind();
    for table in tables(&fs) {
        let whole = bytes(&fs, &table).len();
        for len in (0..whole).step_by(whole / 8) {
            let fs = fs.killed();
            fs.truncate(&table, len as u64).unwrap();
            let (report, found) = repaired(&fs);
            check_losses(&report, &found, &expected);
            // A cut at the end may remove only data that leads to the entries, but no entries.
            assert!(len > whole / 2 || !report.losses.is_empty(), "cut to {len}: {report:?}");
        }
    }
}

#[test]
fn a_missing_table_is_named_with_its_keys() {
    let (fs, expected) = left_behind();
    for table in tables(&fs) {
        let fs = fs.killed();
        fs.remove(&table).unwrap();
        let (report, found) = repaired(&fs);
        check_losses(&report, &found, &expected);
        let counted: u64 = report.losses.iter().filter_map(|loss| loss.entries).sum();
        assert_eq!(counted as usize, expected.len() - found.len(), "{report:?}");
        assert_eq!(report.findings[0].path, table);
        let kept = String::from_utf8(bytes(&fs, &report.kept_in.unwrap())).unwrap();
        assert!(kept.contains(&format!("damage: {}", table.display())), "{kept}");
    }
}

/// The position of the first key that is only in the log.
fn place_in_log(fs: &MemoryFs) -> usize {
    let first = key((2 * KEYS * 7) % (3 * KEYS));
    let all = bytes(fs, &segments(fs)[0]);
    all.windows(first.len()).position(|window| window == first).unwrap()
}

#[test]
fn of_a_damaged_log_all_other_records_are_kept() {
    let (fs, expected) = left_behind();
    let segment = segments(&fs).remove(0);
    let at = place_in_log(&fs);
    for place in [at, at - 40, at + 2000] {
        let fs = fs.killed();
        fs.corrupt(&segment, place as u64, 4).unwrap();
        let (report, found) = repaired(&fs);
        check_losses(&report, &found, &expected);
        let lost = expected.len() - found.len();
        assert!((1..=2).contains(&lost) && report.losses.len() == 1, "{lost}: {report:?}");
        let loss = &report.losses[0];
        let (from, to) = loss.lsns.unwrap();
        assert!(to - from < 300 && loss.path == segment, "{report:?}");
        let begin = loss.offset.unwrap();
        assert!((begin..begin + (to - from)).contains(&(place as u64)), "{report:?}");
    }
}

/// Commits a record that is intact but has no meaning: a batch that contains the padding of an
/// earlier record.
fn put_meaningless(db: &crate::Db) -> Lsn {
    let op = |key| Op { kind: OpKind::Put, family: 0, key, value: b"value" };
    let mut record = vec![0; wal::RECORD_HEADER_LEN];
    put_batch_prefix(&mut record, 2);
    put_op(&mut record, &op(b"first"));
    record.extend_from_slice(&[0; 3]);
    put_op(&mut record, &op(b"second"));
    let mut record = wal::seal(&mut record);
    let mut reservation = db.engine().log.reserve(record.len() as u64).unwrap();
    reservation.write(&mut record);
    let lsn = reservation.start();
    reservation.publish();
    lsn
}

#[test]
fn a_whole_record_that_means_nothing_is_named_and_all_others_are_kept() {
    for removes_manifest in [false, true] {
        let fs = MemoryFs::new();
        let db = options(&fs).open(DB).unwrap();
        db.put("before", "1").unwrap();
        let lsn = put_meaningless(&db);
        db.with(WriteOptions::sync()).put("behind", "2").unwrap();
        let expected = content(&db);
        let fs = fs.killed();
        let segment = segments(&fs).remove(0);
        match options(&fs).open(DB).unwrap_err().kind() {
            ErrorKind::Corruption { path, offset, detail } => {
                assert_eq!(*path, segment);
                assert_eq!(*offset, wal::HEADER_PAGE_LEN + lsn % (16 << 10));
                assert!(detail.contains(&format!("{lsn:#x} is whole, yet")), "{detail}");
            }
            other => panic!("{other}"),
        }
        if removes_manifest {
            manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
        }
        let (report, found) = repaired(&fs);
        assert_eq!(found, expected, "{report:?}");
        assert_eq!((report.losses.len(), report.records_saved), (1, 2), "{report:?}");
        let loss = &report.losses[0];
        assert_eq!((&loss.path, loss.lsns.unwrap().0), (&segment, lsn));
    }
}

#[test]
fn a_lost_drop_of_a_family_leaves_its_name_to_the_next_of_that_name() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let first = db.family(USERS).unwrap();
    first.put("old", "1").unwrap();
    let lsn = db.engine().log.tail();
    db.drop_family(&first).unwrap();
    let second = db.family(USERS).unwrap();
    second.put("new", "2").unwrap();
    let fs = fs.killed();
    manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    let offset = wal::HEADER_PAGE_LEN + lsn % (64 << 10);
    fs.corrupt(&segments(&fs)[0], offset + wal::RECORD_HEADER_LEN as u64, 1).unwrap();
    let (report, found) = repaired(&fs);
    let at = |family: &str, key: &str| (family.to_owned(), key.as_bytes().to_vec());
    let expected = [(at("recovered-1", "old"), b"1".to_vec()), (at(USERS, "new"), b"2".to_vec())];
    assert_eq!(found, Content::from(expected), "{report:?}");
    assert!(report.guesses.iter().any(|guess| guess.contains("dropped or renamed")), "{report:?}");
    assert_eq!(report.losses.len(), 1);
}

#[test]
fn a_damaged_header_page_of_the_log_costs_nothing() {
    without_a_loss(|fs| fs.corrupt(&segments(fs)[0], 50, 1).unwrap());
}

#[test]
fn without_the_log_the_tables_are_kept() {
    let (report, found, _) = after(|fs| {
        segments(fs).iter().for_each(|path| fs.remove(path).unwrap());
    });
    assert!(found.len() > KEYS as usize && report.losses.len() == 1, "{report:?}");
    assert!(report.losses[0].lsns.is_some());
    let (report, _, _) = after(|fs| fs.truncate(&segments(fs)[0], 9000).unwrap());
    assert!(!report.losses.is_empty(), "{report:?}");
}

#[test]
fn all_at_once_leaves_what_is_readable() {
    let (fs, expected) = left_behind();
    let (tables, segment) = (tables(&fs), segments(&fs).remove(0));
    fs.remove(&Path::new(DB).join(CURRENT)).unwrap();
    fs.corrupt(&manifests(&fs)[0], 300, 1).unwrap();
    fs.corrupt(&tables[0], 300, 1).unwrap();
    let footer = bytes(&fs, &tables[1]).len() as u64 - 20;
    fs.corrupt(&tables[1], footer, 1).unwrap();
    fs.corrupt(&segment, place_in_log(&fs) as u64, 1).unwrap();
    let (report, found) = repaired(&fs);
    check_losses(&report, &found, &expected);
    let lost = expected.len() - found.len();
    assert!((1..40).contains(&lost), "{lost} of {}: {report:?}", expected.len());
}

#[test]
fn what_is_damaged_is_kept_in_lost_and_found() {
    let (fs, _) = left_behind();
    let table = tables(&fs).remove(0);
    fs.corrupt(&table, 300, 1).unwrap();
    let damaged = bytes(&fs, &table);
    let report = run(&fs, false).unwrap();
    assert!(!fs.exists(&table).unwrap());
    assert_eq!(report.moved[0].from, table);
    assert_eq!(bytes(&fs, &report.moved[0].to), damaged);
}

/// Commits a record of an operation whose kind only a newer version knows.
fn put_newer(db: &crate::Db) {
    let mut record = vec![0; wal::RECORD_HEADER_LEN];
    put_batch_prefix(&mut record, 1);
    put_op(&mut record, &Op { kind: OpKind::Put, family: 0, key: b"key", value: b"value" });
    record[wal::RECORD_HEADER_LEN + BATCH_PREFIX_LEN] = 15;
    let mut record = wal::seal(&mut record);
    let mut reservation = db.engine().log.reserve(record.len() as u64).unwrap();
    reservation.write(&mut record);
    reservation.publish();
}

#[test]
fn a_log_of_a_newer_version_is_left_to_that_version() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    put_newer(&db);
    db.with(WriteOptions::sync()).put("behind", "2").unwrap();
    let fs = fs.killed();
    let segment = segments(&fs).remove(0);
    let before = everything(&fs);
    let is_newer = |error: Error| match error.kind() {
        ErrorKind::NewerFormat { path, .. } => *path == segment,
        _ => false,
    };
    assert!(is_newer(options(&fs).open(DB).unwrap_err()));
    assert!(is_newer(verify(Path::new(DB), &env(&fs), &mut |_, _| ()).unwrap_err()));
    assert!(is_newer(run(&fs, false).unwrap_err()));
    assert_eq!(everything(&fs), before);
}

#[test]
fn a_whole_record_that_no_version_knows_is_lost_if_that_is_asked_for() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    db.put("before", "1").unwrap();
    put_newer(&db);
    db.with(WriteOptions::sync()).put("behind", "2").unwrap();
    let fs = fs.killed();
    let segment = segments(&fs).remove(0);
    for is_dry in [true, false] {
        let options = RepairOptions::new().env(env(&fs)).dry_run(is_dry).lose_unknown(true);
        let report = repair(Path::new(DB), &options, &mut |_, _| ControlFlow::Continue(()));
        let report = report.unwrap();
        let [loss] = &report.losses[..] else { panic!("{:?}", report.losses) };
        assert_eq!(loss.path, segment);
        assert!(loss.detail.contains("operation kind 15"), "{loss:?}");
        assert!(report.findings.iter().any(|finding| finding.path == segment));
    }
    let db = options(&fs).open(DB).unwrap();
    assert_eq!(db.get("before").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(db.get("behind").unwrap().as_deref(), Some(&b"2"[..]));
}

#[test]
fn options_of_a_newer_version_are_left_to_that_version() {
    let (fs, _) = left_behind();
    let db = options(&fs).open(DB).unwrap();
    let change = Change::SetFamilyOptions { family: 1, options: br#"{"!adds":true}"#.to_vec() };
    db.engine().versions.lock().install(Edit::new(vec![change]), &[]).unwrap();
    let fs = fs.killed();
    let is_newer = |error: Error| match error.kind() {
        ErrorKind::NewerFormat { path, detail } => {
            path.to_string_lossy().contains("MANIFEST") && detail.contains("!adds")
        }
        _ => false,
    };
    assert!(is_newer(options(&fs).open(DB).unwrap_err()));
    assert!(is_newer(verify(Path::new(DB), &env(&fs), &mut |_, _| ()).unwrap_err()));
    for is_current_lost in [false, true] {
        if is_current_lost {
            fs.remove(&Path::new(DB).join(CURRENT)).unwrap();
        }
        let before = everything(&fs);
        for loses_unknown in [false, true] {
            let asked = RepairOptions::new().env(env(&fs)).lose_unknown(loses_unknown);
            let error = repair(Path::new(DB), &asked, &mut |_, _| ControlFlow::Continue(()));
            assert!(is_newer(error.unwrap_err()), "options say how to read, and are not lost");
        }
        assert_eq!(everything(&fs), before);
    }
}

/// The index is in the root, so nothing but the place of the root shows where a block begins.
#[test]
fn a_damaged_block_costs_itself_alone_though_the_root_is_lost_too() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    for n in 0..200 {
        db.put(key(n), value(n)).unwrap();
    }
    db.flush().unwrap();
    let expected = content(&db);
    let tree = db.engine().default_family.view().tree.clone();
    let meta = &tree.runs[0].meta;
    let (root, table) = (meta.root, version::table_path(Path::new(DB), meta.file));
    drop(tree);
    db.close().unwrap();
    fs.corrupt(&table, crate::format::FILE_HEADER_LEN as u64 + 700, 1).unwrap();
    fs.corrupt(&table, root.offset + 20, 1).unwrap();
    let (report, found) = repaired(&fs);
    check_losses(&report, &found, &expected);
    let lost = expected.len() - found.len();
    assert!((1..=20).contains(&lost), "{lost} keys are more than a block: {report:?}");
}

/// Behind the data blocks lies a filter, so only the number of entries shows that all are there.
#[test]
fn a_lost_root_behind_whole_blocks_costs_nothing_if_they_end_with_operands_too() {
    for is_merging in [false, true] {
        let fs = MemoryFs::new();
        let db = options(&fs).open(DB).unwrap();
        let words = FamilyOptions::new().block_size(256).merge_operator("isobath.append");
        let words = db.family(("words", words)).unwrap();
        for n in 0..1000 {
            match is_merging {
                true => words.merge(key(n), value(n)).unwrap(),
                false => words.put(key(n), value(n)).unwrap(),
            };
        }
        db.flush().unwrap();
        let expected = content(&db);
        let keyspace = db.engine().families.all().into_iter().find(|family| family.id != 0);
        let tree = keyspace.unwrap().view().tree.clone();
        let meta = &tree.runs[0].meta;
        let (root, table) = (meta.root, version::table_path(Path::new(DB), meta.file));
        drop(tree);
        db.close().unwrap();
        fs.corrupt(&table, root.offset + 20, 1).unwrap();
        let (report, found) = repaired(&fs);
        assert!(report.losses.is_empty() && !report.is_sound(), "{report:?}");
        assert!(found == expected);
    }
}
