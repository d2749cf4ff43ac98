//! Manifests that can be read and are older than the database.

use super::*;
use crate::ErrorKind;
use crate::version::{CURRENT, Change, Edit, ObsoleteFiles, divide_manifest, fixtures, inspect};

/// Puts keys that are on disk when this returns.
fn put(db: &crate::Db, keys: std::ops::Range<u32>) {
    for n in keys {
        db.with(WriteOptions::sync()).put(key(n), value(n)).unwrap();
    }
}

fn expected(keys: std::ops::Range<u32>) -> Content {
    keys.map(|n| (("default".to_owned(), key(n)), value(n))).collect()
}

fn write(fs: &MemoryFs, path: &Path, bytes: &[u8]) {
    if fs.exists(path).unwrap() {
        fs.remove(path).unwrap();
    }
    let mut file = fs.create(path).unwrap();
    file.append(bytes).unwrap();
}

/// `CURRENT` and the manifest that it names.
struct Saved(Vec<(PathBuf, Vec<u8>)>);

impl Saved {
    fn of(fs: &MemoryFs) -> Saved {
        let paths = manifests(fs).into_iter().chain([Path::new(DB).join(CURRENT)]);
        Saved(paths.map(|path| (path.clone(), bytes(fs, &path))).collect())
    }

    fn put_back(&self, fs: &MemoryFs) {
        self.0.iter().for_each(|(path, bytes)| write(fs, path, bytes));
    }
}

#[test]
fn what_only_the_log_has_survives_a_manifest_cut_anywhere() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    put(&db, 0..20);
    let left = fs.killed();
    let manifest = manifests(&left).pop().unwrap();
    for len in (0..bytes(&left, &manifest).len()).step_by(5) {
        let fs = left.killed();
        fs.truncate(&manifest, len as u64).unwrap();
        let (report, found) = repaired(&fs);
        assert_eq!(found, expected(0..20), "cut to {len}: {report:?}");
        assert!(report.losses.is_empty(), "cut to {len}: {report:?}");
    }
}

#[test]
fn what_was_written_since_survives_an_old_manifest_that_comes_back() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    put(&db, 0..10);
    db.close().unwrap();
    let saved = Saved::of(&fs);
    let db = options(&fs).open(DB).unwrap();
    put(&db, 10..20);
    let fs = fs.killed();
    saved.put_back(&fs);
    let (report, found) = repaired(&fs);
    assert_eq!(found, expected(0..20), "{report:?}");
    assert!(report.losses.is_empty(), "{report:?}");
}

#[test]
fn a_current_that_names_an_old_manifest_is_found_and_made_to_name_the_new_one() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    put(&db, 0..10);
    let saved = Saved::of(&fs);
    db.close().unwrap();
    saved.put_back(&fs);
    assert_eq!(manifests(&fs).len(), 2, "the close has begun another one");
    let refused = options(&fs).open(DB).map(drop).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Corruption { .. }), "{refused}");
    let verified = verify(Path::new(DB), &env(&fs), &mut |_, _| ()).unwrap();
    assert_eq!(verified.findings.len(), 1, "{verified:?}");
    assert!(verified.findings[0].path.ends_with(CURRENT), "{verified:?}");
    let (report, found) = repaired(&fs);
    assert!(report.findings.iter().all(|one| one.path.ends_with(CURRENT)), "{report:?}");
    let log = Path::new(DB).join(LOG_DIR);
    assert!(report.moved.iter().all(|file| !file.from.starts_with(&log)), "{report:?}");
    assert_eq!(found, expected(0..10), "{report:?}");
    assert!(report.losses.is_empty(), "{report:?}");
}

/// The old slice was moved to the last level, then a newer one came to level 2.
#[test]
fn a_slice_that_a_lost_edit_moved_down_hides_nothing_newer() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    put(&db, 0..10);
    db.flush().unwrap();
    for n in 0..10 {
        db.put(key(n), value(n + 100)).unwrap();
    }
    // The sequences of the two are not apart, so that only levels tell which is above.
    db.put("zz", "one").unwrap();
    db.flush().unwrap();
    let expected = content(&db);
    db.close().unwrap();
    let state = inspect(&fs, Path::new(DB), &ObsoleteFiles::new()).unwrap().state;
    let tree = &state.family(0).unwrap().tree;
    let mut metas: Vec<_> = tree.iter().map(|(_, slice)| slice.meta.clone()).collect();
    metas.sort_by_key(|meta| meta.max_seq);
    let [old, new] = metas.try_into().unwrap();
    let mut snapshot = state.snapshot();
    snapshot.changes.retain(|change| !matches!(change, Change::AddSlice { .. }));
    snapshot.push(Change::AddSlice { level: 1, meta: old.clone() });
    let moved = Edit::new(vec![
        Change::RemoveSlice { family: 0, level: 1, file: old.file },
        Change::AddSlice { level: 6, meta: old },
    ]);
    let added = Edit::new(vec![Change::AddSlice { level: 2, meta: new }]);
    let offsets = fixtures::rewrite_manifest(&fs, Path::new(DB), &[snapshot, moved, added]);
    let is_right = |fs: &MemoryFs| content(&options(fs).open(DB).unwrap()) == expected;
    assert!(is_right(&fs.killed()), "the manifest as it was");
    fs.corrupt(&manifests(&fs)[0], offsets[1] + 20, 1).unwrap();
    let (report, found) = repaired(&fs);
    assert_eq!(found, expected, "{report:?}");
}

#[test]
fn edits_of_several_records_are_read_verified_shown_and_repaired() {
    let (left, expected) = left_behind();
    let db = options(&left).open(DB).unwrap();
    db.close().unwrap();
    let divided = |fs: &MemoryFs| {
        divide_manifest(&env(fs).fs, Path::new(DB), 200).unwrap();
        manifests(fs).pop().unwrap()
    };
    let path = divided(&left);
    let fs = left.killed();
    assert!(verify(Path::new(DB), &env(&fs), &mut |_, _| ()).unwrap().is_clean());
    let mut edits = 0;
    let shown = crate::tools::dump(&path, &env(&fs), &mut |item| {
        edits += u64::from(item.name == "edit");
        Ok(())
    });
    assert_eq!((shown.unwrap(), edits), (0, 1));
    let reader = Options::new().read_only(true).env(env(&fs)).open(DB).unwrap();
    assert_eq!(content(&reader), expected);
    drop(reader);
    assert_eq!(content(&options(&fs.killed()).open(DB).unwrap()), expected);
    for at in (128..bytes(&left, &path).len() as u64).step_by(37) {
        let fs = left.killed();
        fs.corrupt(&path, at, 1).unwrap();
        let (report, found) = repaired(&fs);
        assert_eq!(found, expected, "byte {at}: {report:?}");
    }
    for len in (128..bytes(&left, &path).len() as u64).step_by(37) {
        let fs = left.killed();
        fs.truncate(&path, len).unwrap();
        let (report, found) = repaired(&fs);
        assert_eq!(found, expected, "cut to {len}: {report:?}");
    }
}
