//! Tests the merge of slices that a repair cannot order: the newest version of each key wins, in
//! whichever slice it was.

use super::*;
use crate::cursor::Entry;
use crate::cursor::fixtures::{Version, sort_versions};
use crate::env::fixtures::Draw;
use crate::format::{DEFAULT_FAMILY, Lsn, OpKind};
use crate::table::{TableOptions, TableWriter};
use crate::tools::{Field, dump};
use crate::version::table_path;

const TABLES: usize = 4;
const VERSIONS: Lsn = 3000;

/// Versions of few keys with unordered sequence numbers, including deletes.
fn drawn(seed: u64) -> Vec<Version> {
    let mut draw = Draw::new(seed);
    let version = |seq| match (draw.below(400), draw.below(3)) {
        (key, 0) => Version::delete(format!("key{key:03}").as_bytes(), seq),
        (key, _) => Version::put(format!("key{key:03}").as_bytes(), seq, value(seq as u32)),
    };
    (1..=VERSIONS).map(version).collect()
}

/// A directory that has only tables. Each version is in one of them.
fn tables_alone(versions: &[Version]) -> MemoryFs {
    let fs = MemoryFs::new();
    fs.create_dir_all(&Path::new(DB).join(TABLE_DIR)).unwrap();
    for nth in 0..TABLES {
        let number = nth as u64 + 1;
        let of_table = |version: &&Version| version.seq as usize * 7 / 3 % TABLES == nth;
        let mut own: Vec<_> = versions.iter().filter(of_table).cloned().collect();
        sort_versions(&mut own);
        let file = fs.create(&table_path(Path::new(DB), number)).unwrap();
        let mut writer = TableWriter::create(file, [7; 16], number).unwrap();
        let options = TableOptions { block_len: 256, ..TableOptions::default() };
        writer.begin_slice(DEFAULT_FAMILY, &options).unwrap();
        own.iter().for_each(|version| writer.add(version.as_entry()).unwrap());
        writer.finish().unwrap();
    }
    fs
}

/// Every version in a table, in order.
fn versions_in(fs: &MemoryFs, table: &Path) -> Vec<Version> {
    let mut found = Vec::new();
    let mut visit = |item: &crate::tools::DumpItem<'_>| {
        let field = |name| item.fields.iter().find(|field| field.0 == name).map(|field| field.1);
        let bytes = |name| match field(name) {
            Some(Field::Bytes(bytes)) => bytes.to_vec(),
            _ => Vec::new(),
        };
        if item.name == "entry"
            && let (Some(Field::Lsn(seq)), Some(Field::Text(kind))) = (field("seq"), field("kind"))
        {
            let kind = if kind == OpKind::Put.name() { OpKind::Put } else { OpKind::Delete };
            found.push(Version { key: bytes("key"), seq, kind, value: bytes("value") });
        }
        Ok(())
    };
    assert_eq!(dump(table, &env(fs), &mut visit).unwrap(), 0);
    found
}

#[test]
fn slices_that_cannot_be_told_apart_become_one_with_the_newest_of_each_key() {
    for seed in 1..=4 {
        let versions = drawn(seed);
        let mut newest: BTreeMap<&[u8], &Version> = BTreeMap::new();
        for version in &versions {
            newest.insert(&version.key, version);
        }
        let fs = tables_alone(&versions);
        let report = run(&fs, false).unwrap();
        assert_eq!((report.tables_kept, report.tables_made), (0, 1), "{report:?}");
        let made = tables(&fs);
        let found: Vec<Version> = made.iter().flat_map(|path| versions_in(&fs, path)).collect();
        let found: Vec<Entry<'_>> = found.iter().map(Version::as_entry).collect();
        let expected: Vec<Entry<'_>> = newest.values().map(|version| version.as_entry()).collect();
        assert!(found == expected, "seed {seed}");
        let db = options(&fs).create_if_missing(false).open(DB).unwrap();
        let puts = newest.values().filter(|version| version.kind == OpKind::Put);
        let puts: Vec<_> = puts.map(|put| (put.key.clone(), put.value.clone())).collect();
        let read: Vec<_> = content(&db).into_iter().map(|((_, key), value)| (key, value)).collect();
        assert!(read == puts, "seed {seed}");
    }
}

#[test]
fn operands_of_a_key_stay_in_one_table_however_long_they_are() {
    let mut state = 1u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_le_bytes()
    };
    let mut version = |seq| {
        let value = (0..1 << 17).flat_map(|_| noise()).collect();
        Version { key: b"key".to_vec(), seq, kind: OpKind::Merge, value }
    };
    let versions: Vec<Version> = (1..=36).map(&mut version).collect();
    let fs = tables_alone(&versions);
    let report = run(&fs, false).unwrap();
    assert_eq!((report.tables_kept, report.tables_made), (0, 1), "{report:?}");
}

/// The process dies before the inputs of a compaction are removed. Then the manifest is lost, and
/// an input is damaged.
#[test]
fn operands_that_lie_in_an_input_and_in_the_output_of_a_compaction_count_once() {
    let counting = || FamilyOptions::new().block_size(256).merge_operator("isobath.counter");
    for hurt in 0..3 {
        let fs = MemoryFs::new();
        let db = options(&fs).family(counting()).open(DB).unwrap();
        let mut inputs = Vec::new();
        for _ in 0..3 {
            for n in 0..200 {
                db.merge(key(n), 1u64.to_le_bytes()).unwrap();
            }
            db.flush().unwrap();
            inputs = tables(&fs).into_iter().map(|path| (bytes(&fs, &path), path)).collect();
        }
        db.compact().unwrap();
        let expected = content(&db);
        db.close().unwrap();
        assert!(inputs.len() == 3 && expected.len() == 200);
        for (at, (bytes, path)) in inputs.iter_mut().enumerate() {
            if at == hurt {
                // A data block.
                bytes[700] ^= 1;
            }
            let mut file = fs.create(path).unwrap();
            file.append(bytes).unwrap();
            file.sync().unwrap();
        }
        manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
        let report = run(&fs, false).unwrap();
        let is_named = |key: &[u8]| {
            let mut losses = report.losses.iter().filter_map(|loss| loss.keys.as_ref());
            losses.any(|(from, to)| from[..] <= *key && *key <= to[..])
        };
        let db = options(&fs).family(counting()).open(DB).unwrap();
        let found = content(&db);
        let mut wrong = expected.iter().filter(|(key, value)| found.get(*key) != Some(*value));
        assert!(wrong.all(|((_, key), _)| is_named(key)), "{hurt}: {report:?}");
    }
}
