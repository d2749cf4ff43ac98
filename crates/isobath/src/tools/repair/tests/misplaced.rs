//! Tables that lie in the place of others, whole or not: nothing in them is taken for what the
//! name stands for.

use super::*;
use crate::ErrorKind;
use crate::format::FILE_HEADER_LEN;
use crate::table::FOOTER_LEN;
use crate::version::{ObsoleteFiles, inspect, table_path};

/// A closed database with an old version of some keys in a level, a newer version in a run, and
/// other keys in the newest run. With the paths of the oldest table and the newest.
fn in_three_tables(fs: &MemoryFs, keys: u32) -> (Content, PathBuf, PathBuf) {
    let db = options(fs).open(DB).unwrap();
    let mut made = Vec::new();
    for stage in 0..3 {
        for n in 0..keys {
            let n = if stage == 2 { n + keys } else { n };
            db.put(key(n), value(n + 100 * stage)).unwrap();
        }
        match stage {
            0 => db.default_family().compact(..).unwrap(),
            _ => db.flush().unwrap(),
        }
        let tree = db.engine().default_family.view().tree.clone();
        let files = tree.iter().map(|(_, slice)| slice.meta.file);
        let new: Vec<u64> = files.filter(|file| !made.contains(file)).collect();
        assert_eq!(new.len(), 1, "{new:?}");
        made.extend(new);
    }
    let content = content(&db);
    db.close().unwrap();
    // The log has nothing of them, as they are of an earlier term.
    options(fs).open(DB).unwrap().close().unwrap();
    let path = |nth: usize| table_path(Path::new(DB), made[nth]);
    (content, path(0), path(2))
}

/// Gives a copy of a file the name of another one.
fn put_over(fs: &MemoryFs, bytes: &[u8], place: &Path) {
    fs.remove(place).unwrap();
    let mut file = fs.create(place).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
}

fn lose_manifest(fs: &MemoryFs) {
    manifests(fs).iter().for_each(|path| fs.remove(path).unwrap());
}

/// Checks that everything is lost that was in the place, and nothing else.
#[track_caller]
fn check(fs: &MemoryFs, place: &Path, expected: &Content, keys: u32) {
    let (report, found) = repaired(fs);
    check_losses(&report, &found, expected);
    assert_eq!(found.len() as u32, keys, "{report:?}");
    assert!(report.losses.iter().any(|loss| loss.path == *place), "{report:?}");
    assert!(report.moved.iter().any(|moved| moved.from == *place), "{report:?}");
}

#[test]
fn a_table_in_the_place_of_another_is_damage() {
    let left = MemoryFs::new();
    let (expected, oldest, newest) = in_three_tables(&left, 20);
    let copy = bytes(&left, &oldest);
    let (len, head) = (copy.len() as u64, FILE_HEADER_LEN as u64);
    // Whole; without its footer, its root, or its header: what is left tells its number.
    let spots = [None, Some(len - 20), Some(len - FOOTER_LEN as u64 - 60), Some(head - 100)];
    for spot in spots {
        for removes_manifest in [false, true] {
            let fs = left.killed();
            put_over(&fs, &copy, &newest);
            spot.into_iter().for_each(|at| fs.corrupt(&newest, at, 1).unwrap());
            if removes_manifest {
                lose_manifest(&fs);
            }
            check(&fs, &newest, &expected, 20);
        }
    }
}

/// The table of another database has the lowest number.
#[test]
fn a_table_of_another_database_is_damage_and_does_not_name_this_one() {
    let (left, other) = (MemoryFs::new(), MemoryFs::new());
    let (expected, ..) = in_three_tables(&left, 20);
    let (_, strange, _) = in_three_tables(&other, 30);
    let lowest = tables(&left).remove(0);
    for removes_manifest in [false, true] {
        let fs = left.killed();
        put_over(&fs, &bytes(&other, &strange), &lowest);
        if removes_manifest {
            lose_manifest(&fs);
        }
        let (report, found) = repaired(&fs);
        check_losses(&report, &found, &expected);
        assert_eq!(found.len(), expected.len(), "a newer version is in a run: {report:?}");
        let losses: Vec<_> = report.losses.iter().map(|loss| &loss.path).collect();
        assert_eq!(losses, [&lowest], "{report:?}");
    }
}

/// Another table has this number and this identity, as when a database was put together of copies.
#[test]
fn a_slice_that_is_not_as_the_manifest_says_is_lost() {
    let (left, expected) = left_behind();
    let options = || options(&left);
    options().open(DB).unwrap().close().unwrap();
    let state = inspect(&left, Path::new(DB), &ObsoleteFiles::new()).unwrap().state;
    let number = state.family(0).unwrap().tree.iter().map(|(_, slice)| slice.meta.file).max();
    let (uuid, number) = (state.uuid(), number.unwrap());
    drop(state);
    let table = table_path(Path::new(DB), number);
    left.remove(&table).unwrap();
    let of = FamilyOptions::new().table_options(0, "default", usize::MAX);
    let file = left.create(&table).unwrap();
    let mut writer = crate::table::TableWriter::create(file, uuid, number).unwrap();
    writer.begin_slice(0, &of).unwrap();
    let kind = crate::format::OpKind::Put;
    let entry = crate::cursor::Entry { key: b"strange", seq: 1, kind, value: b"value" };
    writer.add(entry).unwrap();
    writer.finish_slice().unwrap();
    writer.finish().unwrap();
    let error = options().open(DB).and_then(|db| db.get("strange").map(drop));
    assert!(error.is_err_and(|error| matches!(error.kind(), ErrorKind::Corruption { .. })));
    let (report, found) = repaired(&left);
    check_losses(&report, &found, &expected);
    assert!(found.len() < expected.len() && !report.losses.is_empty(), "{report:?}");
}
