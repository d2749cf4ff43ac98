//! Tests that reads return what was written: by get and by cursor in both directions, in every
//! layout.

use super::fixtures::*;
use crate::cursor::{Cursor, Entry};
use crate::error::Error;
use crate::format::{Lsn, OpKind, checksum64};
use crate::table::staging::BlockForm;
use crate::table::{
    BlockKind, Codec, DumpItem, PinnedValue, Table, TableCursor, TableFile, TableOptions,
    TableWriter,
};
use crate::vfs::{FileAccess, FileSystem};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

type Oracle = BTreeMap<Vec<u8>, BTreeMap<Lsn, (OpKind, Vec<u8>)>>;

fn versions_of(oracle: &Oracle) -> Vec<Version> {
    let versions = oracle.iter().flat_map(|(key, versions)| {
        versions.iter().rev().map(|(&seq, (kind, value))| Version {
            key: key.clone(),
            seq,
            kind: *kind,
            value: value.clone(),
        })
    });
    versions.collect()
}

fn newest(oracle: &Oracle, key: &[u8]) -> Version {
    let (&seq, (kind, value)) = oracle[key].last_key_value().unwrap();
    Version { key: key.to_vec(), seq, kind: *kind, value: value.clone() }
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        // Few letters and lengths give many shared prefixes, and keys that are prefixes of others.
        4 => proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(255)], 0..12),
        2 => (0u32..400).prop_map(|i| format!("user{i:08}").into_bytes()),
        1 => (0u32..50).prop_map(|i| format!("{}{i}", "long".repeat(60)).into_bytes()),
        1 => proptest::collection::vec(any::<u8>(), 1..20),
    ]
}

fn value() -> impl Strategy<Value = (OpKind, Vec<u8>)> {
    prop_oneof![
        2 => Just((OpKind::Delete, Vec::new())),
        6 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(|v| (OpKind::Put, v)),
        1 => (any::<u8>(), 100usize..6000).prop_map(|(b, n)| (OpKind::Put, vec![b; n])),
    ]
}

fn oracle() -> impl Strategy<Value = Oracle> {
    let hot = proptest::collection::btree_map(1u64..1 << 40, value(), 1..40);
    let cold = proptest::collection::btree_map(1u64..1 << 20, value(), 1..3);
    let versions = prop_oneof![1 => hot, 9 => cold];
    proptest::collection::btree_map(key(), versions, 1..120)
}

fn options() -> impl Strategy<Value = TableOptions> {
    let codec =
        prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd), Just(Codec::Snappy)];
    (
        prop_oneof![1u32..300, Just(4096)],
        1u32..20,
        codec,
        0u32..14,
        prop_oneof![1u32..200, Just(4096)],
        proptest::sample::select(vec![BlockForm::Either, BlockForm::Chained, BlockForm::Slotted]),
    )
        .prop_map(
            |(block_len, restart_interval, codec, filter_bits_per_key, index_block_len, form)| {
                TableOptions {
                    form,
                    block_len,
                    restart_interval,
                    codec,
                    filter_bits_per_key,
                    index_block_len,
                    flat_index_part: [0, 32][index_block_len as usize % 2],
                    ..TableOptions::default()
                }
            },
        )
}

fn check_gets(table: &Table, oracle: &Oracle, probes: &[Vec<u8>]) {
    for (key, versions) in oracle {
        let hash = checksum64(key);
        let mut points = vec![0, Lsn::MAX];
        points.extend(versions.keys().flat_map(|&seq| [seq, seq + 1]));
        for point in points {
            let found = table.get(key, hash, point).unwrap();
            let found = found.map(|found| (found.seq, found.kind, found.value.to_vec()));
            let expected = versions.range(..point).next_back();
            assert_eq!(found, expected.map(|(&seq, (kind, value))| (seq, *kind, value.clone())));
        }
    }
    for probe in probes.iter().filter(|probe| !oracle.contains_key(*probe)) {
        assert!(table.get(probe, checksum64(probe), Lsn::MAX).unwrap().is_none());
    }
}

fn check_stand(cursor: &dyn Cursor, expected: Option<Version>) {
    assert_eq!(cursor.entry(), expected.as_ref().map(Version::as_entry));
}

fn check_seeks(cursor: &mut dyn Cursor, oracle: &Oracle, probes: &[Vec<u8>]) {
    for probe in probes {
        let at_or_above = oracle.range(probe.clone()..).next().map(|(key, _)| newest(oracle, key));
        let at_or_below =
            oracle.range(..=probe.clone()).next_back().map(|(key, _)| newest(oracle, key));
        cursor.seek(probe).unwrap();
        check_stand(cursor, at_or_above.clone());
        if let Some(stood) = at_or_above {
            // Moves on to an older version or another key, then back.
            cursor.next().unwrap();
            if let Some(after) = cursor.entry().map(|entry| entry.key.to_vec()) {
                cursor.prev_key().unwrap();
                let before = oracle.range(..after).next_back().map(|(key, _)| newest(oracle, key));
                check_stand(cursor, before);
            }
            cursor.seek(&stood.key).unwrap();
            check_stand(cursor, Some(stood));
        }
        cursor.seek_for_prev(probe).unwrap();
        check_stand(cursor, at_or_below);
    }
}

fn check_steps_by_key(cursor: &mut dyn Cursor, oracle: &Oracle) {
    let mut scratch = b"left over".to_vec();
    cursor.seek_first().unwrap();
    for (at, key) in oracle.keys().enumerate() {
        check_stand(cursor, Some(newest(oracle, key)));
        // Starts from the newest version, or from an older one.
        if oracle[key].len() > at % 3 {
            (0..at % 3).for_each(|_| cursor.next().unwrap());
        }
        cursor.next_key(&mut scratch).unwrap();
    }
    check_stand(cursor, None);
}

fn check_all(table: &Arc<Table>, oracle: &Oracle, probes: &[Vec<u8>]) {
    let all = versions_of(oracle);
    let keys_backward: Vec<_> = oracle.keys().rev().map(|key| newest(oracle, key)).collect();
    for fill_cache in [true, false] {
        let mut cursor = table.cursor(fill_cache);
        assert_eq!(forward(&mut cursor).unwrap(), all);
        assert_eq!(backward(&mut cursor).unwrap(), keys_backward);
        check_seeks(&mut cursor, oracle, probes);
        check_steps_by_key(&mut cursor, oracle);
        assert_eq!(forward(&mut cursor).unwrap(), all);
    }
    check_gets(table, oracle, probes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_slice_reads_back_as_written(
        oracle in oracle(),
        options in options(),
        mut probes in proptest::collection::vec(key(), 0..60),
        mapped in any::<bool>(),
        cache_bytes in prop_oneof![Just(0u64), Just(2000), Just(1 << 20)],
    ) {
        let fixture = Fixture::new();
        let finished = fixture.write(&options, &[(7, versions_of(&oracle))]);
        let mode = if mapped { FileAccess::Mapped } else { FileAccess::Positional };
        let table = Table::open(fixture.context(mode, cache_bytes), &finished.slices[0]).unwrap();
        probes.extend(oracle.keys().cloned());
        check_all(&table, &oracle, &probes);
        let mut bytes = 0;
        table.verify(&mut |more| bytes += more, &mut |_| ()).unwrap();
        prop_assert_eq!(bytes, finished.slices[0].disk_bytes);
    }
}

fn numbered(count: u64, value_len: usize) -> Vec<Version> {
    let version = |i| Version::put(format!("key{i:08}"), 5000 + i, vec![i as u8; value_len]);
    (0..count).map(version).collect()
}

#[test]
fn slices_of_several_families_are_read_apart() {
    let fixture = Fixture::new();
    let options = TableOptions {
        block_len: 256,
        index_block_len: 128,
        flat_index_part: 0,
        ..Default::default()
    };
    let slices: Vec<_> = [(0, 1), (1, 2000), (5, 30), (900, 3)]
        .map(|(family, count)| (family, numbered(count, 50 + family as usize)))
        .to_vec();
    let finished = fixture.write(&options, &slices);
    let fs: Arc<dyn FileSystem> = fixture.fs.clone();
    let file = TableFile::open(&fs, &fixture.path()).unwrap();
    assert_eq!(file.slices(), &finished.slices[..]);
    file.verify(&mut |_| {}).unwrap();
    for (i, (family, versions)) in slices.iter().enumerate() {
        assert_eq!(finished.slices[i].family, *family);
        let table = fixture.open(&finished, i);
        assert_eq!(forward(&mut table.cursor(true)).unwrap(), *versions);
    }
}

#[test]
fn a_dump_shows_every_byte_and_every_entry() {
    let fixture = Fixture::new();
    let options = TableOptions {
        block_len: 256,
        index_block_len: 128,
        flat_index_part: 0,
        ..Default::default()
    };
    let slices = vec![(2, numbered(3, 10)), (3, numbered(900, 20))];
    let finished = fixture.write(&options, &slices);
    let fs: Arc<dyn FileSystem> = fixture.fs.clone();
    let file = TableFile::open(&fs, &fixture.path()).unwrap();
    let (mut bytes, mut entries, mut families, mut kinds) = (128 + 64, Vec::new(), vec![], vec![]);
    let show = &mut |item: DumpItem<'_>| {
        match item {
            DumpItem::Block { kind, handle, .. } => {
                bytes += u64::from(handle.len);
                kinds.push(kind);
            }
            DumpItem::Slice { meta, .. } => families.push(meta.family),
            DumpItem::Entry(Entry { key, seq, kind, value }) => {
                entries.push(Version { key: key.to_vec(), seq, kind, value: value.to_vec() });
            }
            DumpItem::Header(header) => assert_eq!(header.number, NUMBER),
            DumpItem::Separator { leads_to, .. } => assert!(leads_to.len > 0),
            DumpItem::Footer { file_len, .. } => assert_eq!(file_len, finished.file_len),
            DumpItem::Damage(error) => panic!("{error}"),
        }
        Ok(())
    };
    file.dump(show).unwrap();
    assert_eq!(bytes, finished.file_len);
    assert_eq!(entries, [&slices[0].1[..], &slices[1].1].concat());
    assert_eq!(families, [2, 3]);
    for kind in [BlockKind::Data, BlockKind::Index, BlockKind::Filter, BlockKind::Directory] {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
}

#[test]
fn readers_and_writers_can_move_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    fn is_sent<T: Send>() {}
    is_shared::<Table>();
    is_shared::<PinnedValue>();
    is_sent::<TableCursor>();
    is_sent::<TableWriter>();
}

#[test]
fn a_slice_without_entries_leaves_no_trace() {
    let fixture = Fixture::new();
    let mut writer = fixture.writer();
    writer.begin_slice(3, &TableOptions::default()).unwrap();
    assert_eq!(writer.finish_slice().unwrap(), None);
    assert!(writer.finish().unwrap().slices.is_empty());
    let fs: Arc<dyn FileSystem> = fixture.fs.clone();
    TableFile::open(&fs, &fixture.path()).unwrap().verify(&mut |_| {}).unwrap();
}

#[test]
fn what_is_out_of_order_or_out_of_bounds_is_refused() {
    let fixture = Fixture::new();
    let mut writer = fixture.writer();
    let entry = |key: &'static [u8], seq| Entry { key, seq, kind: OpKind::Put, value: b"" };
    assert!(writer.add(entry(b"a", 1)).is_err());
    writer.begin_slice(3, &TableOptions::default()).unwrap();
    writer.add(entry(b"b", 10)).unwrap();
    writer.add(entry(b"b", 9)).unwrap();
    if !cfg!(feature = "paranoid") {
        let long = vec![0xff; (64 << 10) + 1];
        for bad in [entry(b"b", 9), entry(b"b", 10), entry(b"a", 1), entry(b"c", Lsn::MAX)] {
            assert!(
                matches!(writer.add(bad).as_ref().map_err(Error::name), Err("INVALID_ARGUMENT")),
                "{bad:?}"
            );
        }
        let bad = Entry { key: &long, ..entry(b"", 1) };
        assert_eq!(writer.add(bad).unwrap_err().name(), "INVALID_ARGUMENT");
    }
    assert!(writer.begin_slice(4, &TableOptions::default()).is_err());
    writer.finish_slice().unwrap();
    assert!(writer.begin_slice(3, &TableOptions::default()).is_err());
    assert!(writer.finish_slice().is_err());
    writer.begin_slice(6, &TableOptions::default()).unwrap();
    writer.add(entry(b"a", 1)).unwrap();
    writer.finish_slice().unwrap();
    assert!(writer.begin_slice(5, &TableOptions::default()).is_err(), "it follows the last one");
}

#[test]
fn large_values_get_blocks_of_their_own() {
    let fixture = Fixture::new();
    let mut versions = numbered(100, 100);
    versions[40].value = vec![1; 300_000];
    versions[41].value = (0..70_000u32).map(|i| checksum64(&i.to_le_bytes()) as u8).collect();
    versions[99].value = vec![2; 5_000];
    let finished = fixture.write(&TableOptions::default(), &[(0, versions.clone())]);
    let table = fixture.open(&finished, 0);
    assert_eq!(forward(&mut table.cursor(true)).unwrap(), versions);
    let before = table.context.blocks.used_bytes();
    let found = table.get(&versions[39].key, checksum64(&versions[39].key), Lsn::MAX).unwrap();
    assert_eq!(*found.unwrap().value, versions[39].value);
    assert!(table.context.blocks.used_bytes() - before < 20_000);
}

#[test]
fn the_longest_keys_are_kept() {
    let fixture = Fixture::new();
    let long = |last: u8| [vec![b'k'; (64 << 10) - 1], vec![last]].concat();
    let versions: Vec<_> = (0..9).map(|i| Version::put(long(i), 10 + u64::from(i), "v")).collect();
    let finished = fixture.write(&TableOptions::default(), &[(0, versions.clone())]);
    let table = fixture.open(&finished, 0);
    assert_eq!(forward(&mut table.cursor(true)).unwrap(), versions);
    assert_eq!(backward(&mut table.cursor(true)).unwrap().len(), 9);
    for version in &versions {
        assert!(table.get(&version.key, checksum64(&version.key), Lsn::MAX).unwrap().is_some());
    }
    assert!(table.get(&long(9), checksum64(&long(9)), Lsn::MAX).unwrap().is_none());
}

#[test]
fn a_pinned_value_outlives_cursor_and_cache() {
    let fixture = Fixture::new();
    let finished = fixture.write(&TableOptions::default(), &[(0, numbered(1000, 100))]);
    let table = fixture.open(&finished, 0);
    for fill_cache in [true, false] {
        let mut cursor = table.cursor(fill_cache);
        cursor.seek(b"key00000500").unwrap();
        let pinned = cursor.value_pin().unwrap();
        while cursor.entry().is_some() {
            cursor.next().unwrap();
        }
        assert_eq!(*pinned, [500u64 as u8; 100]);
    }
}
