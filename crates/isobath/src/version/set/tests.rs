//! The version set on a real disk; power failures are in `version/tests.rs`.

use super::super::edit::Change;
use super::super::fixtures;
use super::super::names::{COUNTED_END, CURRENT, manifest_name, table_path};
use super::super::record::{RECORD_HEADER_LEN, put_record};
use super::*;
use crate::cursor::Entry;
use crate::env::{Priority, Threads};
use crate::error::ErrorKind;
use crate::format::{OpKind, checksum64};
use crate::table::cache::{BlockCache, FileCache};
use crate::table::{TableContext, TableOptions, TableWriter};
use crate::version::TABLE_DIR;
use crate::vfs::{FileAccess, SystemFs};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

struct Scratch {
    _dir: tempfile::TempDir,
    db: PathBuf,
    fs: Arc<dyn FileSystem>,
}

impl Scratch {
    fn new() -> Scratch {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("deep/db");
        Scratch { _dir: dir, db, fs: Arc::new(SystemFs::new()) }
    }

    fn create(&self) -> VersionSet {
        VersionSet::create(Arc::clone(&self.fs), &self.db, [9; 16], b"{}").unwrap()
    }

    fn open(&self) -> (VersionSet, Opening) {
        VersionSet::open(Arc::clone(&self.fs), &self.db).unwrap()
    }

    fn open_error(&self) -> String {
        let before = self.names();
        let error = VersionSet::open(Arc::clone(&self.fs), &self.db).unwrap_err();
        assert_eq!(self.names(), before, "an open that fails touches nothing");
        error.to_string()
    }

    /// All files, as paths below the database.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for dir in [self.db.clone(), self.db.join(TABLE_DIR)] {
            let Ok(entries) = fs::read_dir(dir) else { continue };
            for entry in entries.map(|entry| entry.unwrap()) {
                if entry.file_type().unwrap().is_file() {
                    let path = entry.path();
                    names.push(path.strip_prefix(&self.db).unwrap().display().to_string());
                }
            }
        }
        names.sort();
        names
    }

    fn write_table(&self, number: u64) {
        fs::write(table_path(&self.db, number), [0; 500]).unwrap();
    }

    /// Makes a table file and installs it as a run of the default family.
    fn flush(&self, set: &mut VersionSet) -> u64 {
        let output = set.files().allocate();
        let number = output.number();
        self.write_table(number);
        set.install(flush_edit(set, number), &[output]).unwrap();
        number
    }
}

fn flush_edit(set: &VersionSet, number: u64) -> Edit {
    let seq = set.state().ceiling();
    let meta = fixtures::meta(0, number, "a", "z", (seq, seq + 9));
    Edit::new(vec![Change::LsnCeiling { lsn: seq + 10 }, Change::AddSlice { level: 0, meta }])
}

fn runs(set: &VersionSet) -> Vec<u64> {
    set.state().family(0).unwrap().tree.runs.iter().map(|run| run.meta.file).collect()
}

#[test]
fn a_database_that_was_created_opens_with_what_was_installed() {
    let scratch = Scratch::new();
    let mut set = scratch.create();
    scratch.flush(&mut set);
    scratch.flush(&mut set);
    let expected = set.state().snapshot();
    drop(set);
    let (set, opening) = scratch.open();
    assert_eq!(set.state().snapshot(), expected);
    assert_eq!(runs(&set), [2, 1]);
    assert_eq!((opening.torn_tail, opening.leftovers.orphans.len()), (None, 0));
    assert_eq!(
        scratch.names(),
        [CURRENT, "MANIFEST-000001", "table/0000000001.tbl", "table/0000000002.tbl"]
    );
}

#[test]
fn opening_changes_nothing_until_the_first_edit_starts_a_new_manifest() {
    let scratch = Scratch::new();
    drop(scratch.create());
    let before = scratch.names();
    drop(scratch.open());
    assert_eq!(scratch.names(), before);
    let (mut set, _) = scratch.open();
    scratch.flush(&mut set);
    let names = [CURRENT, "MANIFEST-000001", "MANIFEST-000002", "table/0000000001.tbl"];
    assert_eq!(scratch.names(), names, "writers do not wait for the removal of the old one");
    set.files().obsolete().remove_manifests(&*scratch.fs);
    assert_eq!(scratch.names(), [CURRENT, "MANIFEST-000002", "table/0000000001.tbl"]);
    assert_eq!(fs::read_to_string(scratch.db.join(CURRENT)).unwrap().len(), 33);
    let (mut set, _) = scratch.open();
    assert_eq!(runs(&set), [1]);
    assert_eq!(scratch.flush(&mut set), 2);
    assert_eq!(set.manifest().number(), 3);
    drop(set);
    // The process died before the old one was removed.
    let (mut set, opening) = scratch.open();
    let old = manifest_path(&scratch.db, 2);
    assert_eq!(opening.leftovers.orphans, std::slice::from_ref(&old));
    scratch.flush(&mut set);
    assert_eq!(opening.leftovers.sweep(&*scratch.fs).0, [old]);
}

#[test]
fn a_manifest_that_has_grown_is_replaced() {
    let scratch = Scratch::new();
    let mut set = scratch.create();
    set.manifest.set_roll_len_min(600);
    let mut numbers = Vec::new();
    for _ in 0..40 {
        let file = scratch.flush(&mut set);
        set.install(Edit::new(vec![remove(file)]), &[]).unwrap();
        numbers.push(set.manifest().number());
        let len = fs::metadata(set.manifest().path()).unwrap().len();
        assert!(len < 1200, "{len}");
    }
    assert!(numbers.last() > Some(&5), "{numbers:?}");
    let expected = set.state().snapshot();
    assert_eq!(scratch.open().0.state().snapshot(), expected);
}

fn remove(file: u64) -> Change {
    Change::RemoveSlice { family: 0, level: 0, file }
}

#[test]
fn orphans_go_and_foreign_files_stay() {
    let scratch = Scratch::new();
    let mut set = scratch.create();
    let kept = scratch.flush(&mut set);
    drop(set);
    scratch.write_table(7);
    for name in ["CURRENT.tmp", "MANIFEST-000009", "notes.txt", "table/7.tbl", "table/x.tbl"] {
        fs::write(scratch.db.join(name), b"?").unwrap();
    }
    let (mut set, opening) = scratch.open();
    assert!(scratch.names().contains(&"MANIFEST-000009".to_owned()), "an open removes nothing");
    let (swept, errors) = opening.leftovers.sweep(&*scratch.fs);
    assert_eq!(swept, ["CURRENT.tmp", "MANIFEST-000009"].map(|name| scratch.db.join(name)));
    assert!(errors.is_empty());
    let left = [
        CURRENT,
        "MANIFEST-000001",
        "notes.txt",
        "table/0000000001.tbl",
        "table/0000000007.tbl",
        "table/7.tbl",
        "table/x.tbl",
    ];
    assert_eq!(scratch.names(), left);
    assert_eq!(kept, 1);
    assert!(set.files().obsolete().take().is_empty(), "a table stays until an edit holds");
    assert_eq!(scratch.flush(&mut set), 8, "the number of an orphan is not used again");
    assert_eq!(set.take_obsolete().unwrap(), [7]);
}

#[test]
fn numbers_go_on_from_every_table_there_is_but_those_that_no_database_has_come_to() {
    for (number, next) in [(COUNTED_END - 1, COUNTED_END), (COUNTED_END, 8)] {
        let scratch = Scratch::new();
        drop(scratch.create());
        scratch.write_table(7);
        scratch.write_table(number);
        let (mut set, _) = scratch.open();
        assert_eq!(scratch.flush(&mut set), next);
    }
}

#[test]
fn a_named_file_that_is_missing_or_cut_short_is_corruption_and_nothing_is_removed() {
    let scratch = Scratch::new();
    let mut set = scratch.create();
    let file = scratch.flush(&mut set);
    scratch.flush(&mut set);
    drop(set);
    scratch.write_table(50);
    fs::write(table_path(&scratch.db, file), [0; 191]).unwrap();
    let error = scratch.open_error();
    assert!(error.contains("0000000001.tbl at offset 191"), "{error}");
    fs::remove_file(table_path(&scratch.db, file)).unwrap();
    let error = scratch.open_error();
    assert!(error.contains("0000000001.tbl") && error.contains("missing"), "{error}");
}

/// A device that lost a write to the sector of `CURRENT`, or brings an old content back.
#[test]
fn a_current_older_than_the_last_switch_is_corruption_and_costs_no_manifest() {
    let scratch = Scratch::new();
    drop(scratch.create());
    let first = manifest_path(&scratch.db, 1);
    let (old_current, old_manifest) =
        (fs::read(scratch.db.join(CURRENT)).unwrap(), fs::read(&first).unwrap());
    let (mut set, _) = scratch.open();
    scratch.flush(&mut set);
    drop(set);
    let new_current = fs::read(scratch.db.join(CURRENT)).unwrap();
    fs::write(scratch.db.join(CURRENT), old_current).unwrap();
    fs::write(&first, old_manifest).unwrap();
    let error = scratch.open_error();
    assert!(error.contains("CURRENT") && error.contains("2 was in force later"), "{error}");
    fs::write(scratch.db.join(CURRENT), new_current).unwrap();
    assert_eq!(runs(&scratch.open().0), [1]);
}

#[test]
fn a_directory_without_current_says_what_to_do() {
    let scratch = Scratch::new();
    assert!(scratch.open_error().contains("create a database there"));
    drop(scratch.create());
    fs::remove_file(scratch.db.join(CURRENT)).unwrap();
    assert!(scratch.open_error().contains("interrupted"));
    scratch.write_table(1);
    let error = scratch.open_error();
    assert!(error.contains("MANIFEST-000001") && error.contains("isobath repair"), "{error}");
    let error = VersionSet::create(Arc::clone(&scratch.fs), &scratch.db, [9; 16], b"{}");
    assert!(matches!(error.unwrap_err().kind(), ErrorKind::NotADatabase { .. }));
    assert_eq!(scratch.names(), ["MANIFEST-000001", "table/0000000001.tbl"]);
}

#[test]
fn an_interrupted_create_is_started_over_but_a_database_is_not() {
    let scratch = Scratch::new();
    drop(scratch.create());
    fs::rename(scratch.db.join(CURRENT), scratch.db.join(CURRENT_TMP)).unwrap();
    drop(scratch.create());
    assert_eq!(scratch.names(), [CURRENT, "MANIFEST-000001"]);
    let error = VersionSet::create(Arc::clone(&scratch.fs), &scratch.db, [9; 16], b"{}");
    assert!(matches!(error.unwrap_err().kind(), ErrorKind::AlreadyExists { .. }));
}

#[test]
fn a_missing_manifest_is_named() {
    let scratch = Scratch::new();
    drop(scratch.create());
    fs::remove_file(scratch.db.join(manifest_name(1))).unwrap();
    let error = scratch.open_error();
    assert!(error.contains("MANIFEST-000001") && error.contains("missing"), "{error}");
}

#[test]
fn an_edit_that_breaks_a_rule_is_not_written() {
    let scratch = Scratch::new();
    let mut set = scratch.create();
    let before = fs::read(set.manifest().path()).unwrap();
    let output = set.files().allocate();
    let mut edit = flush_edit(&set, output.number());
    edit.push(remove(99));
    assert!(set.install(edit, &[output]).unwrap_err().is_corruption());
    assert_eq!(fs::read(set.manifest().path()).unwrap(), before);
    assert_eq!(set.take_obsolete().unwrap(), [1], "the job's output can go");
}

#[test]
fn tools_see_each_edit_with_its_offset() {
    let scratch = Scratch::new();
    let mut set = scratch.create();
    scratch.flush(&mut set);
    let reader = ManifestReader::open(&*scratch.fs, &set.manifest().path()).unwrap();
    let mut edits = reader.edits();
    let read: Vec<_> = edits.by_ref().map(|edit| edit.unwrap()).collect();
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].0, 128);
    assert!(matches!(read[0].1.changes[0], Change::Database { .. }));
    assert!(matches!(read[1].1.changes[1], Change::AddSlice { .. }));
    assert_eq!(edits.torn_tail(), None);
}

#[test]
fn an_edit_that_means_nothing_is_named_by_where_its_payload_begins() {
    let scratch = Scratch::new();
    drop(scratch.create());
    let path = manifest_path(&scratch.db, 1);
    let mut bytes = fs::read(&path).unwrap();
    let offset = bytes.len() as u64;
    put_record(&mut bytes, 1, offset, &[0xff; 9]).unwrap();
    fs::write(&path, &bytes).unwrap();
    let payload_at = offset + RECORD_HEADER_LEN as u64;
    let error = scratch.open_error();
    assert!(error.contains(&format!("MANIFEST-000001 at offset {payload_at}")), "{error}");
}

#[test]
#[cfg(debug_assertions)]
fn a_thread_of_low_priority_writes_no_manifest() {
    let scratch = Scratch::new();
    let mut set = scratch.create();
    let (told, result) = std::sync::mpsc::channel();
    let act = move || {
        let mut panics = |act: fn(&mut VersionSet) -> Result<()>| {
            catch_unwind(AssertUnwindSafe(|| act(&mut set))).is_err()
        };
        let installs = panics(|set| set.install(Edit::new(Vec::new()), &[]).map(drop));
        told.send((installs, panics(VersionSet::confirm))).unwrap();
    };
    let threads = crate::env::SystemThreads;
    threads.spawn("low".to_owned(), Priority::Low, Box::new(act)).unwrap().join();
    assert_eq!(result.recv().unwrap(), (true, true));
}

#[test]
fn every_flipped_bit_of_a_manifest_gives_the_right_state_or_an_error() {
    let scratch = Scratch::new();
    let mut set = scratch.create();
    scratch.flush(&mut set);
    scratch.flush(&mut set);
    let (path, expected) = (set.manifest().path(), set.state().snapshot());
    drop(set);
    let good = fs::read(&path).unwrap();
    let mut errors = 0;
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &bad).unwrap();
        match inspect(&*scratch.fs, &scratch.db, &ObsoleteFiles::new()) {
            Ok(found) => assert_eq!(found.state.snapshot(), expected, "bit {bit}"),
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains("MANIFEST-000001"), "bit {bit}: {error}");
                errors += 1;
            }
        }
    }
    // Only the three sync markers, of 8 bytes each, can be damaged without harm.
    assert_eq!(errors, good.len() * 8 - 3 * 64);
}

#[test]
fn a_torn_last_edit_is_dropped_and_reported() {
    let scratch = Scratch::new();
    let mut set = scratch.create();
    scratch.flush(&mut set);
    let path = set.manifest().path();
    let whole = fs::metadata(&path).unwrap().len();
    scratch.flush(&mut set);
    drop(set);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
    let (mut set, opening) = scratch.open();
    assert_eq!(runs(&set), [1]);
    let tail = opening.torn_tail.unwrap();
    assert_eq!((tail.offset, tail.len), (whole, bytes.len() as u64 - 20 - whole));
    assert!(opening.leftovers.orphans.is_empty());
    assert_eq!(scratch.flush(&mut set), 3);
    assert_eq!(set.take_obsolete().unwrap(), [2]);
    assert_eq!(runs(&scratch.open().0), [3, 1]);
}

/// Damage to an edit without a sync marker looks like a torn tail.
#[test]
fn an_open_that_installs_nothing_leaves_the_tables_of_a_damaged_last_edit() {
    let scratch = Scratch::new();
    let mut set = scratch.create();
    scratch.flush(&mut set);
    let path = set.manifest().path();
    scratch.flush(&mut set);
    drop(set);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
    assert_eq!(runs(&scratch.open().0), [1]);
    fs::write(&path, bytes).unwrap();
    assert_eq!(runs(&scratch.open().0), [2, 1], "what was damaged is put right again");
}

#[test]
fn a_damaged_snapshot_is_never_a_torn_tail() {
    let scratch = Scratch::new();
    drop(scratch.create());
    let path = scratch.db.join(manifest_name(1));
    let bytes = fs::read(&path).unwrap();
    for len in [0, 1, 127, 128, 129, bytes.len() - 9] {
        fs::write(&path, &bytes[..len]).unwrap();
        assert!(scratch.open_error().contains("MANIFEST-000001"), "length {len}");
    }
}

#[test]
fn a_slice_opens_its_table_once_and_keeps_it_open_when_it_moves() {
    let scratch = Scratch::new();
    let mut set = scratch.create();
    let output = set.files().allocate();
    let file = scratch.fs.create(&table_path(&scratch.db, output.number())).unwrap();
    let mut writer = TableWriter::create(file, set.state().uuid(), output.number()).unwrap();
    writer.begin_slice(0, &TableOptions::default()).unwrap();
    let entry = Entry { key: b"key", seq: 5000, kind: OpKind::Put, value: b"value" };
    writer.add(entry).unwrap();
    writer.finish_slice().unwrap();
    let meta = writer.finish().unwrap().slices.remove(0);
    let edit =
        vec![Change::LsnCeiling { lsn: 6000 }, Change::AddSlice { level: 0, meta: meta.clone() }];
    set.install(Edit::new(edit), &[output]).unwrap();

    let (mut set, _) = scratch.open();
    let dir = scratch.db.join(TABLE_DIR);
    let files = FileCache::new(Arc::clone(&scratch.fs), dir, FileAccess::Positional, 10);
    let context = TableContext::new(Arc::new(files), BlockCache::new(1 << 20));
    let run = Arc::clone(&set.state().family(0).unwrap().tree.runs[0]);
    let opened = Arc::clone(&run.table(&context).unwrap());
    let found = opened.get(b"key", checksum64(b"key"), 5001).unwrap().unwrap();
    assert_eq!(&*found.value, b"value");

    let file = meta.file;
    set.install(Edit::new(vec![remove(file), Change::AddSlice { level: 3, meta }]), &[]).unwrap();
    let moved = set.state().family(0).unwrap().tree.get(3, file).unwrap();
    assert!(Arc::ptr_eq(&moved.table(&context).unwrap(), &opened));
}

#[test]
fn no_reader_builds_the_fence_of_a_level_that_was_installed() {
    use super::super::level::FENCES;
    let scratch = Scratch::new();
    let mut set = scratch.create();
    for (smallest, largest) in [("a", "c"), ("k", "m"), ("e", "g")] {
        let output = set.files().allocate();
        scratch.write_table(output.number());
        let meta = fixtures::meta(0, output.number(), smallest, largest, (0, 0));
        let edit = Edit::new(vec![Change::AddSlice { level: 1, meta }]);
        set.install(edit, &[output]).unwrap();
        FENCES.set(0);
        let tree = set.state().family(0).unwrap().tree.clone();
        let found = tree.levels[0].find(smallest.as_bytes()).unwrap();
        assert_eq!((&*found.meta.largest, FENCES.get()), (largest.as_bytes(), 0));
    }
}
