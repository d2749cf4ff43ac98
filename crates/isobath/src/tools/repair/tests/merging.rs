//! Tests the merge of slices that a repair cannot order: the newest version of each key wins, in
//! whichever slice it was.

use super::*;
use crate::blob::BlobSink;
use crate::cursor::Entry;
use crate::cursor::fixtures::{Version, sort_versions};
use crate::env::fixtures::Draw;
use crate::format::{DEFAULT_FAMILY, Lsn, OpKind};
use crate::table::{TableOptions, TableWriter};
use crate::tools::{Field, dump};
use crate::version::{FileNumbers, ObsoleteFiles, table_path};

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

/// Each version is in one of a few tables.
fn tables_alone(versions: &[Version]) -> MemoryFs {
    let mut tables = vec![Vec::new(); TABLES];
    for version in versions {
        tables[version.seq as usize * 7 / 3 % TABLES].push(version.clone());
    }
    tables.iter_mut().for_each(|own| sort_versions(own));
    tables_of(&tables)
}

/// A directory that has only these tables.
fn tables_of(tables: &[Vec<Version>]) -> MemoryFs {
    let fs = MemoryFs::new();
    fs.create_dir_all(&Path::new(DB).join(TABLE_DIR)).unwrap();
    for (own, number) in tables.iter().zip(1..) {
        let file = fs.create(&table_path(Path::new(DB), number)).unwrap();
        let mut writer = TableWriter::create(file, [7; 16], number).unwrap();
        let options = TableOptions { block_len: 256, ..TableOptions::default() };
        writer.begin_slice(DEFAULT_FAMILY, &options).unwrap();
        own.iter().for_each(|version| writer.add(version.as_entry()).unwrap());
        writer.finish().unwrap();
    }
    fs
}

/// So many bytes that no codec makes shorter.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut draw = Draw::new(seed);
    (0..len).map(|_| draw.below(256) as u8).collect()
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
    let version =
        |seq| Version { kind: OpKind::Merge, ..Version::put(b"key", seq, noise(seq, 1 << 20)) };
    let versions: Vec<Version> = (1..=36).map(version).collect();
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

/// The process dies before the inputs of a compaction are removed. Then the manifest is lost, and
/// nothing can be read of the input that had deletes.
#[test]
fn what_an_unreadable_input_of_a_compaction_may_cost_is_told() {
    for (merges, told) in [(false, "deleted in it may be there again"), (true, "are missing")] {
        let plain = FamilyOptions::new().block_size(256);
        let merging = plain.clone().merge_operator("isobath.counter");
        let family = || if merges { merging.clone() } else { plain.clone() };
        let fs = MemoryFs::new();
        let db = options(&fs).family(family()).open(DB).unwrap();
        let mut inputs = Vec::new();
        for stage in 0..2 {
            for n in 0..100 {
                match stage {
                    0 => db.put(key(n), 1u64.to_le_bytes()).unwrap(),
                    _ if n % 2 == 0 => db.delete(key(n)).unwrap(),
                    _ => continue,
                };
            }
            db.flush().unwrap();
            inputs = tables(&fs).into_iter().map(|path| (bytes(&fs, &path), path)).collect();
        }
        db.compact().unwrap();
        let expected = content(&db);
        db.close().unwrap();
        assert!(inputs.len() == 2 && expected.len() == 50);
        // The log of this term has no delete.
        let db = options(&fs).open(DB).unwrap();
        db.with(WriteOptions::sync()).put("later", "value").unwrap();
        let fs = fs.killed();
        let lost = inputs[1].1.clone();
        inputs[1].0.fill(7);
        for (bytes, path) in &inputs {
            let mut file = fs.create(path).unwrap();
            file.append(bytes).unwrap();
            file.sync().unwrap();
        }
        manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
        let report = run(&fs, false).unwrap();
        let db = options(&fs).family(family()).open(DB).unwrap();
        assert_eq!(content(&db).len(), if merges { 51 } else { 101 });
        let name = lost.file_name().unwrap().to_str().unwrap();
        let names = |guess: &String| guess.contains(told) && guess.contains(name);
        assert!(report.guesses.iter().any(names), "{report:?}");
    }
}

#[test]
fn operands_above_a_value_in_a_blob_file_come_through_a_merge() {
    let fs = MemoryFs::new();
    let dir = Path::new(DB).join(TABLE_DIR);
    fs.create_dir_all(&dir).unwrap();
    let (numbers, create) =
        (FileNumbers::new(9, ObsoleteFiles::new()), |path: &Path| fs.create(path));
    let options = TableOptions { separate_from: 100, ..TableOptions::default() };
    let mut sink = BlobSink::new(&create, &dir, [7; 16], &numbers);
    let operand = |seq, value: &str| Version {
        kind: OpKind::Merge,
        ..Version::put(b"key", seq, value.as_bytes())
    };
    let base = value(7).repeat(9);
    let tables =
        [[operand(3, "two"), Version::put(b"key", 1, &*base)].to_vec(), vec![operand(2, "one")]];
    for (at, versions) in tables.iter().enumerate() {
        let number = at as u64 + 1;
        let file = fs.create(&table_path(Path::new(DB), number)).unwrap();
        let mut writer = TableWriter::create(file, [7; 16], number).unwrap();
        writer.begin_slice(DEFAULT_FAMILY, &options).unwrap();
        for version in versions {
            writer.add(sink.place(version.as_entry(), &options, |_| false).unwrap()).unwrap();
        }
        writer.finish().unwrap();
    }
    let blobs = sink.finish().unwrap().0;
    assert_eq!(blobs.len(), 1);
    let report = run(&fs, false).unwrap();
    assert_eq!((report.tables_kept, report.tables_made), (0, 1), "{report:?}");
    let appending = FamilyOptions::new().merge_operator("isobath.append");
    let db = self::options(&fs).family(appending).open(DB).unwrap();
    assert_eq!(db.get("key").unwrap().unwrap(), [&*base, b"onetwo"].concat());
}

/// The newest part of a large commit gives one sequence number to keys all over the family. So
/// many tables end at it.
#[test]
fn tables_of_a_large_commit_beneath_a_run_need_no_manifest() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let tx = db.begin();
    for n in (0..3000).map(|n| n * 1231 % 3000) {
        tx.put(key(n), noise(n.into(), 320)).unwrap();
    }
    tx.commit().unwrap();
    db.compact().unwrap();
    let tree = db.engine().default_family.view().tree.clone();
    let newest = tree.iter().map(|(_, slice)| slice.meta.max_seq).max();
    let newest = tree.iter().filter(|(_, slice)| Some(slice.meta.max_seq) == newest);
    assert!(newest.count() > 1);
    db.put(key(0), "first").unwrap();
    db.put(key(2999), "last").unwrap();
    db.flush().unwrap();
    let expected = content(&db);
    db.close().unwrap();
    manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    let (report, found) = repaired(&fs);
    assert!(found == expected && report.tables_made == 0, "{report:?}");
}

/// A compaction cuts a range delete where it cuts its outputs. So many of them end at it.
#[test]
fn the_pieces_of_one_range_delete_need_no_manifest() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    for n in 0..3000 {
        db.put(key(n), noise(n.into(), 320)).unwrap();
    }
    db.compact().unwrap();
    let seen = db.snapshot();
    db.delete_range(key(10)..key(2990)).unwrap();
    db.compact().unwrap();
    let tree = db.engine().default_family.view().tree.clone();
    let newest = tree.iter().map(|(_, slice)| slice.meta.max_seq).max();
    let newest = tree.iter().filter(|(_, slice)| Some(slice.meta.max_seq) == newest);
    assert!(newest.count() > 1);
    db.put(key(0), "first").unwrap();
    db.put(key(2999), "last").unwrap();
    db.flush().unwrap();
    let expected = content(&db);
    drop(seen);
    let fs = fs.killed();
    drop(db);
    manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    let (report, found) = repaired(&fs);
    assert!(found == expected && report.tables_made == 0, "{report:?}");
}

/// There are more tables above each other than levels, and the newest two share keys.
#[test]
fn what_is_merged_in_level_0_is_one_run_however_long_it_is() {
    let mut tables: Vec<Vec<Version>> =
        (1..=6).map(|seq| vec![Version::put(b"b", seq, value(seq as u32))]).collect();
    let large = (0..40_u64).map(|n| Version::put(key(n as u32), 9, noise(n, 1 << 20)));
    tables.push([Version::put(b"a", 9, b"")].into_iter().chain(large).collect());
    tables.push(vec![Version::put(b"a", 8, b""), Version::put(b"z", 9, b"")]);
    let fs = tables_of(&tables);
    let (report, found) = repaired(&fs);
    assert_eq!((report.tables_kept, report.tables_made), (6, 1), "{report:?}");
    assert_eq!(found.len(), 43);
}
