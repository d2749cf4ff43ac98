//! Blob files that are gone because a compaction has moved what was alive in them, while the tables
//! that name them stay: other families share these.

use super::*;
use crate::version::{CURRENT, table_path};
use std::collections::BTreeSet;
use std::time::Duration;

const MOVING: &str = "moving";
const LONG: u32 = 20;

fn separating(merges: bool) -> FamilyOptions {
    let options = FamilyOptions::new().block_size(256).separate_from(60);
    if merges { options.merge_operator("isobath.counter") } else { options }
}

fn long(n: u32) -> Vec<u8> {
    let mut bits = u64::from(n + 1);
    let mut byte = || {
        bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (bits >> 56) as u8
    };
    (0..200).map(|_| byte()).collect()
}

/// The blob file in which the family has all its long values, while nothing compacts it.
fn blob_of(db: &crate::Db, family: &str) -> PathBuf {
    let family = db.engine().families.by_name(family).unwrap();
    let tree = family.view().tree.clone();
    let shares = tree.iter().flat_map(|(_, slice)| slice.meta.blobs.iter());
    let files: BTreeSet<u64> = shares.map(|share| share.file).collect();
    assert_eq!(files.len(), 1);
    table_path(Path::new(DB), *files.first().unwrap())
}

/// A table of three families, two of which have their long values in one blob file; the greater one
/// was dropped then.
struct Shared {
    fs: MemoryFs,
    db: crate::Db,
    moving: crate::Family,
    blob: PathBuf,
}

impl Shared {
    fn new(merges: bool) -> Shared {
        let fs = MemoryFs::new();
        let db = options(&fs).open(DB).unwrap();
        let moving = db.family((MOVING, separating(merges))).unwrap();
        let dropped = db.family(("dropped", separating(false))).unwrap();
        for n in 0..3 * LONG {
            db.put(key(n), value(n)).unwrap();
            dropped.put(key(n), long(n)).unwrap();
        }
        for n in 0..LONG {
            moving.put(key(n), long(n + 1000)).unwrap();
        }
        moving.put(key(LONG / 2), "short").unwrap();
        db.flush().unwrap();
        let blob = blob_of(&db, MOVING);
        db.drop_family(&dropped).unwrap();
        drop(dropped);
        Shared { fs, db, moving, blob }
    }

    /// Compacts the family, which moves its values. The blob file goes; the table stays.
    fn compact(&self) {
        let table = tables(&self.fs).remove(0);
        self.moving.compact(..).unwrap();
        for _ in 0..6000 {
            if !self.fs.exists(&self.blob).unwrap() {
                assert!(self.fs.exists(&table).unwrap(), "others share it");
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{:?} is not collected", self.blob);
    }

    /// The log of this term has nothing of all that.
    fn reopened(self) -> (MemoryFs, Content) {
        let content = content(&self.db);
        self.db.close().unwrap();
        let db = options(&self.fs).open(DB).unwrap();
        db.put("later", "value").unwrap();
        db.sync().unwrap();
        let mut expected = content;
        expected.insert(("default".to_owned(), b"later".to_vec()), b"value".to_vec());
        (self.fs.killed(), expected)
    }
}

fn lose_manifest(fs: &MemoryFs) {
    manifests(fs).iter().for_each(|path| fs.remove(path).unwrap());
}

fn of_moving(content: Content) -> Content {
    content.into_iter().filter(|((family, _), _)| family == MOVING).collect()
}

#[test]
fn an_old_manifest_that_names_an_emptied_blob_file_costs_nothing_that_is_not_told() {
    for merges in [false, true] {
        let shared = Shared::new(merges);
        let saved = manifests(&shared.fs).into_iter().chain([Path::new(DB).join(CURRENT)]);
        let saved: Vec<_> = saved.map(|path| (path.clone(), bytes(&shared.fs, &path))).collect();
        shared.compact();
        let expected = content(&shared.db);
        let fs = shared.fs.killed();
        for (path, bytes) in saved {
            if fs.exists(&path).unwrap() {
                fs.remove(&path).unwrap();
            }
            fs.create(&path).unwrap().append(&bytes).unwrap();
        }
        assert!(options(&fs).open(DB).is_err(), "the old manifest names the blob file");
        let (report, found) = repaired(&fs);
        check_losses(&report, &found, &expected);
    }
}

#[test]
fn without_a_manifest_values_that_have_moved_are_neither_lost_nor_named_as_lost() {
    for merges in [false, true] {
        let shared = Shared::new(merges);
        shared.compact();
        let blob = shared.blob.clone();
        let (fs, expected) = shared.reopened();
        lose_manifest(&fs);
        let (report, found) = repaired(&fs);
        assert_eq!(of_moving(found), of_moving(expected), "merges: {merges}, {report:?}");
        let is_of = |name: &Option<String>| name.as_deref() == Some(MOVING);
        assert!(!report.losses.iter().any(|loss| is_of(&loss.family_name)), "{report:?}");
        assert!(!fs.exists(&blob).unwrap());
    }
}

/// The one output was written before the process died, and the blob file is lost by damage.
#[test]
fn a_lost_blob_file_costs_no_more_if_a_compaction_was_not_installed() {
    // The database may have compacted it by itself already.
    let attempt = |_| {
        let shared = Shared::new(false);
        shared.db.flush().unwrap();
        let before = everything(&shared.fs.killed());
        let is_there = before.contains_key(&shared.blob);
        (is_there && blob_of(&shared.db, MOVING) == shared.blob).then_some((shared, before))
    };
    let (shared, before) = (0..100).find_map(attempt).expect("it is not always as quick");
    shared.compact();
    let expected = content(&shared.db);
    let fs = shared.fs.killed();
    let is_new = |path: &PathBuf| path.parent().is_some_and(|dir| dir.ends_with(TABLE_DIR));
    let new: Vec<_> = everything(&fs).into_iter().filter(|(path, _)| is_new(path)).collect();
    for path in everything(&fs).into_keys() {
        fs.remove(&path).unwrap();
    }
    let files = before.into_iter().chain(new).filter(|(path, _)| *path != shared.blob);
    for (path, bytes) in files.collect::<BTreeMap<_, _>>() {
        fs.create(&path).unwrap().append(&bytes).unwrap();
    }
    let (report, found) = repaired(&fs);
    check_losses(&report, &found, &expected);
    assert_eq!(entries_lost(&report), u64::from(LONG) - 1, "{report:?}");
}

#[test]
fn a_verification_without_a_manifest_tells_moved_values_from_lost_ones() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let moving = db.family((MOVING, separating(false))).unwrap();
    for n in 0..3 * LONG {
        db.put(key(n), value(n)).unwrap();
        moving.put(key(n), long(n)).unwrap();
    }
    db.flush().unwrap();
    let blob = blob_of(&db, MOVING);
    for n in 0..2 * LONG {
        moving.delete(key(n)).unwrap();
    }
    for _ in 0..6000 {
        moving.compact(..).unwrap();
        if !fs.exists(&blob).unwrap() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = blob_of(&db, MOVING);
    let fs = fs.killed();
    assert!(left != blob);
    lose_manifest(&fs);
    let found = |fs: &MemoryFs| verify(Path::new(DB), &env(fs), &mut |_, _| ()).unwrap();
    let report = found(&fs);
    assert!(report.notes.iter().any(|note| note.path == blob), "{report:?}");
    let tells = |report: &crate::tools::Report, of: &Path| {
        report.findings.iter().any(|finding| finding.path == of)
    };
    assert!(!tells(&report, &blob) && !tells(&report, &left), "{report:?}");
    fs.remove(&left).unwrap();
    assert!(tells(&found(&fs), &left) && !tells(&found(&fs), &blob));
}

/// The writer removes a blob file during the check. The table stays.
#[test]
fn a_verification_beside_the_writer_does_not_miss_a_blob_file_that_has_just_gone() {
    let shared = Shared::new(false);
    shared.db.sync().unwrap();
    let mut has_gone = false;
    let report = verify(Path::new(DB), &env(&shared.fs), &mut |_, _| {
        if !std::mem::replace(&mut has_gone, true) {
            shared.compact();
        }
    });
    let report = report.unwrap();
    assert!(has_gone && report.is_clean(), "{report:?}");
}

/// Every value that the one input has is damaged, and the one output that there is lacks most keys.
#[test]
fn an_input_of_which_nothing_is_left_hides_no_other() {
    use crate::format::{DEFAULT_FAMILY, FILE_HEADER_LEN};
    use crate::table::{Origin, TableOptions, TableWriter};
    let fs = MemoryFs::new();
    let open = || options(&fs).family(separating(false)).open(DB).unwrap();
    let db = open();
    for half in 0..2 {
        for n in (0..2 * LONG).filter(|n| n % 2 == half) {
            let value = if half == 0 { long(n) } else { value(n) };
            db.put(key(n), value).unwrap();
        }
        db.flush().unwrap();
    }
    let uuid = db.engine().uuid;
    let tree = db.engine().default_family.view().tree.clone();
    let mut inputs: Vec<u64> = tree.runs.iter().map(|run| run.meta.file).collect();
    drop(tree);
    inputs.sort_unstable();
    let blob = blob_of(&db, "default");
    db.close().unwrap();
    open().close().unwrap();
    for at in FILE_HEADER_LEN..bytes(&fs, &blob).len() {
        fs.corrupt(&blob, at as u64, 1).unwrap();
    }
    let origin = Origin { inputs: inputs.into(), ..Origin::default() };
    let of = TableOptions { block_len: 256, origin, ..TableOptions::default() };
    let file = fs.create(&table_path(Path::new(DB), 90)).unwrap();
    let mut writer = TableWriter::create(file, uuid, 90).unwrap();
    writer.begin_slice(DEFAULT_FAMILY, &of).unwrap();
    let kind = crate::format::OpKind::Put;
    writer.add(crate::cursor::Entry { key: b"a", seq: 1, kind, value: b"first" }).unwrap();
    writer.finish_slice().unwrap();
    writer.finish().unwrap();
    lose_manifest(&fs);
    let (report, found) = repaired(&fs);
    for n in (0..2 * LONG).filter(|n| n % 2 == 1) {
        let kept = found.get(&("default".to_owned(), key(n)));
        assert_eq!(kept, Some(&value(n)), "{report:?}");
    }
    let lost: u64 = report.losses.iter().filter_map(|loss| loss.entries).sum();
    assert_eq!(lost, u64::from(LONG), "{report:?}");
}

/// A closed database with long and short values in turns: its identity, its tables and the blob
/// file. All are in one table, or the short ones in a second one.
fn in_turns(merges: bool, runs: u32) -> (MemoryFs, [u8; 16], Vec<u64>, PathBuf) {
    let fs = MemoryFs::new();
    let open = || options(&fs).family(separating(merges)).open(DB).unwrap();
    let db = open();
    for run in 0..runs {
        for n in (0..2 * LONG).filter(|n| n % runs == run) {
            db.put(key(n), in_turn(n)).unwrap();
        }
        db.flush().unwrap();
    }
    let uuid = db.engine().uuid;
    let tree = db.engine().default_family.view().tree.clone();
    let mut files: Vec<u64> = tree.iter().map(|(_, slice)| slice.meta.file).collect();
    drop(tree);
    files.sort_unstable();
    let blob = blob_of(&db, "default");
    db.close().unwrap();
    open().close().unwrap();
    (fs, uuid, files, blob)
}

fn in_turn(n: u32) -> Vec<u8> {
    if n.is_multiple_of(2) { long(n) } else { value(n) }
}

/// Writes a table as an output of a compaction, with the keys from `from` up to `to`.
fn write_output(
    fs: &MemoryFs,
    (merges, uuid, number): (bool, [u8; 16], u64),
    inputs: &[u64],
    keys: std::ops::Range<u32>,
) {
    use crate::format::{DEFAULT_FAMILY, OpKind};
    use crate::table::{TableFile, TableWriter};
    let shared: Arc<dyn FileSystem> = Arc::new(fs.clone());
    let mut seqs = BTreeMap::new();
    for input in inputs {
        let table = TableFile::open(&shared, &table_path(Path::new(DB), *input)).unwrap();
        for meta in table.slices() {
            let mut note = |entry: crate::cursor::Entry<'_>| {
                seqs.insert(entry.key.to_vec(), entry.seq);
                Ok(())
            };
            table.visit(meta, &mut note).unwrap();
        }
    }
    let mut of = separating(merges).table_options(DEFAULT_FAMILY, "default", usize::MAX);
    of.origin.inputs = inputs.into();
    let file = fs.create(&table_path(Path::new(DB), number)).unwrap();
    let mut writer = TableWriter::create(file, uuid, number).unwrap();
    writer.begin_slice(DEFAULT_FAMILY, &of).unwrap();
    for n in keys {
        let (key, value) = (key(n), in_turn(n));
        let seq = seqs[&key];
        let entry = crate::cursor::Entry { key: &key, seq, kind: OpKind::Put, value: &value };
        writer.add(entry).unwrap();
    }
    writer.finish_slice().unwrap();
    writer.finish().unwrap();
}

fn entries_lost(report: &RepairReport) -> u64 {
    report.losses.iter().filter_map(|loss| loss.entries).sum()
}

/// The process died before a compaction had all its outputs, and the blob file is lost by damage.
#[test]
fn a_lost_blob_file_costs_no_more_if_a_part_of_a_compaction_was_written() {
    let all = [0..10, 30..2 * LONG];
    let written = [all[..1].to_vec(), all.to_vec()];
    for (merges, outputs) in
        [false, true].into_iter().flat_map(|it| written.clone().map(|o| (it, o)))
    {
        for is_manifest_lost in [false, true] {
            let (fs, uuid, inputs, blob) = in_turns(merges, 1);
            for (number, keys) in (90..).zip(outputs.clone()) {
                write_output(&fs, (merges, uuid, number), &inputs, keys);
            }
            fs.remove(&blob).unwrap();
            if is_manifest_lost {
                lose_manifest(&fs);
            }
            let (report, found) = repaired(&fs);
            let case = format!("{merges} {outputs:?} {is_manifest_lost} {report:?}");
            for n in (0..2 * LONG).filter(|n| n % 2 == 1) {
                let kept = found.get(&("default".to_owned(), key(n)));
                assert_eq!(kept, Some(&value(n)), "{case}");
            }
            assert_eq!(entries_lost(&report), u64::from(LONG), "{case}");
        }
    }
}

#[test]
fn one_output_that_reaches_over_all_inputs_has_all_values_that_have_moved() {
    for merges in [false, true] {
        let (fs, uuid, inputs, blob) = in_turns(merges, 1);
        write_output(&fs, (merges, uuid, 90), &inputs, 0..2 * LONG);
        fs.remove(&blob).unwrap();
        lose_manifest(&fs);
        let (report, found) = repaired(&fs);
        assert_eq!(found.len() as u32, 2 * LONG, "merges: {merges}, {report:?}");
        assert!(report.losses.is_empty(), "merges: {merges}, {report:?}");
    }
}

#[test]
fn an_input_of_which_nothing_is_left_does_not_put_the_output_aside() {
    for merges in [false, true] {
        let (fs, uuid, inputs, blob) = in_turns(merges, 2);
        write_output(&fs, (merges, uuid, 90), &inputs, 0..2 * LONG);
        for at in crate::format::FILE_HEADER_LEN..bytes(&fs, &blob).len() {
            fs.corrupt(&blob, at as u64, 1).unwrap();
        }
        lose_manifest(&fs);
        let (report, found) = repaired(&fs);
        assert_eq!(found.len() as u32, 2 * LONG, "merges: {merges}, {report:?}");
    }
}

/// What a repair has written lacks the values as well, so it does not show that they have moved.
#[test]
fn a_second_repair_tells_of_a_lost_blob_file_what_the_first_one_would_have_told() {
    use crate::vfs::{Fault, FileOp};
    for merges in [false, true] {
        let fs = MemoryFs::new();
        let open = || options(&fs).family(separating(merges)).open(DB).unwrap();
        let db = open();
        for n in 0..2 * LONG {
            db.put(key(n), if n % 2 == 0 { long(n) } else { value(n) }).unwrap();
        }
        db.flush().unwrap();
        let blob = blob_of(&db, "default");
        db.close().unwrap();
        open().close().unwrap();
        fs.remove(&blob).unwrap();
        lose_manifest(&fs);
        let first = run(&fs, true).unwrap();
        assert_eq!(first.losses.len(), 1, "{first:?}");
        fs.inject(Fault::on(FileOp::Create).suffix("CURRENT.tmp"));
        let tables_before = tables(&fs).len();
        run(&fs, false).unwrap_err();
        fs.clear_faults();
        assert!(tables(&fs).len() > tables_before, "the first repair has written a table");
        let (report, found) = repaired(&fs);
        assert_eq!(report.losses, first.losses, "merges: {merges}");
        assert_eq!(found.len() as u32, LONG);
    }
}

/// Another output was not begun when the power was cut, and an input is lost since.
#[test]
fn a_part_of_a_compaction_does_not_show_that_the_manifest_is_old() {
    let (fs, uuid, inputs, _) = in_turns(false, 2);
    write_output(&fs, (false, uuid, 90), &inputs, 0..LONG);
    let lost = table_path(Path::new(DB), inputs[0]);
    let output = table_path(Path::new(DB), 90);
    fs.remove(&lost).unwrap();
    let (report, found) = repaired(&fs);
    for n in (0..2 * LONG).filter(|n| n % 2 == 1) {
        let kept = found.get(&("default".to_owned(), key(n)));
        assert_eq!(kept, Some(&in_turn(n)), "{report:?}");
    }
    assert!(report.losses.iter().any(|loss| loss.path == lost), "{report:?}");
    assert_eq!(entries_lost(&report), u64::from(LONG), "{report:?}");
    assert!(report.moved.iter().any(|moved| moved.from == output), "{report:?}");
}

/// Then nothing of the inputs is left, so that the output has more than they have.
#[test]
fn an_output_whose_inputs_are_all_gone_shows_that_the_manifest_is_old() {
    let (fs, uuid, inputs, _) = in_turns(false, 2);
    write_output(&fs, (false, uuid, 90), &inputs, 0..2 * LONG);
    inputs.iter().for_each(|file| fs.remove(&table_path(Path::new(DB), *file)).unwrap());
    let (report, found) = repaired(&fs);
    assert_eq!(found.len() as u32, 2 * LONG, "{report:?}");
    assert!(report.losses.is_empty(), "{report:?}");
}
