//! Tests what tables cost on disk and in memory.

use super::damage::data_blocks;
use super::fixtures::*;
use crate::cursor::Cursor;
use crate::error::MemoryClass;
use crate::format::checksum64;
use crate::memory::Budget;
use crate::table::reader::Way;
use crate::table::{Codec, MemoryBelow, Table, TableOptions};
use crate::vfs::FileAccess;

#[test]
fn ten_thousand_slices_of_one_key_are_small() {
    let fixture = Fixture::new();
    let slices: Vec<_> = (0..10_000u32)
        .map(|family| {
            let seq = 1_000_000_000 + u64::from(family) * 200;
            (family, vec![Version::put(format!("key-{family:012}"), seq, vec![7; 100])])
        })
        .collect();
    let finished = fixture.write(&TableOptions::default(), &slices);
    let per_slice = finished.file_len / 10_000;
    assert!(per_slice < 230, "{per_slice} bytes a slice");
    let context = fixture.context(FileAccess::Mapped, 0);
    for i in [0, 1, 5000, 9999] {
        let table = Table::open(context.clone(), &finished.slices[i]).unwrap();
        let key = &slices[i].1[0].key;
        assert_eq!(*table.get(key, checksum64(key), u64::MAX).unwrap().unwrap().value, [7; 100]);
    }
    assert_eq!(context.blocks.filter_index_bytes(), 0);
}

#[test]
fn overhead_of_a_large_slice_is_a_few_bytes_an_entry() {
    let fixture = Fixture::new();
    let versions: Vec<_> = (0..50_000u64)
        .map(|i| Version::put(format!("{i:016}"), 5_000_000 + i * 150, vec![i as u8; 100]))
        .collect();
    let options = TableOptions { codec: Codec::None, ..Default::default() };
    let finished = fixture.write(&options, &[(0, versions)]);
    let overhead = finished.file_len as f64 / 50_000.0 - 100.0;
    assert!(overhead < 16.0, "{overhead} bytes an entry beside its value");
}

#[test]
fn an_open_table_is_charged_until_it_is_dropped() {
    let fixture = Fixture::new();
    let versions: Vec<_> =
        (0..20_000u64).map(|i| Version::put(format!("{i:016}"), 5000 + i, "value")).collect();
    let finished = fixture.write(&TableOptions::default(), &[(0, versions)]);
    let context = fixture.context(FileAccess::Mapped, 1 << 20);
    let table = Table::open(context.clone(), &finished.slices[0]).unwrap();
    let charged = context.blocks.filter_index_bytes();
    assert!((25_000..40_000).contains(&charged), "{charged}");
    drop(table);
    assert_eq!(context.blocks.filter_index_bytes(), 0);
}

#[test]
fn a_filter_that_has_no_room_is_not_loaded_and_the_table_is_read_without() {
    let fixture = Fixture::new();
    let versions: Vec<_> =
        (0..20_000u64).map(|i| Version::put(format!("{i:016}"), 5000 + i, "value")).collect();
    let finished = fixture.write(&TableOptions::default(), &[(0, versions)]);
    let open = |tables_max, ceiling| {
        let budget = Budget::new(ceiling, &[]);
        let below = MemoryBelow { budget: budget.clone(), tables_max, read_len: 64 << 10 };
        let context = fixture.context(FileAccess::Positional, 1 << 20).below(Some(below));
        (Table::open(context, &finished.slices[0]), budget)
    };
    let denied = |table: &Table| {
        let hashes = (0..1000u64).map(|i| checksum64(format!("{i:016}x").as_bytes()));
        hashes.filter(|hash| !table.may_contain(*hash)).count()
    };
    let (table, budget) = open(1 << 20, 1 << 20);
    let table = table.unwrap();
    assert!(denied(&table) > 900);
    let charged = table.context.blocks.filter_index_bytes();
    assert_eq!((budget.held(), budget.held_by(MemoryClass::Tables)), (charged, charged));
    for (tables_max, ceiling) in [(1000, 1 << 20), (1 << 20, 20_000)] {
        let (table, budget) = open(tables_max, ceiling);
        let table = table.unwrap();
        assert_eq!(denied(&table), 0);
        for i in [0, 777, 19_999] {
            let key = format!("{i:016}").into_bytes();
            let found = table.get(&key, checksum64(&key), u64::MAX).unwrap().unwrap();
            assert_eq!(&*found.value, b"value");
            assert!(budget.held_by(MemoryClass::Blocks) > 0);
        }
    }
    let (refused, budget) = open(1 << 20, 1000);
    assert!(refused.is_err_and(|error| error.is_retryable()));
    assert_eq!(budget.held(), 0);
}

/// A walk that bypasses the cache holds one block, and reads the next one into the same buffer.
#[test]
fn a_walk_past_the_cache_needs_one_buffer() {
    let fixture = Fixture::new();
    let versions: Vec<_> =
        (0..5000u64).map(|i| Version::put(format!("{i:016}"), 5000 + i, [7; 100])).collect();
    let finished = fixture.write(&TableOptions::default(), &[(0, versions)]);
    for mode in [FileAccess::Mapped, FileAccess::Positional] {
        let context = fixture.context(mode, 1 << 20);
        let mut cursor = Table::open(context, &finished.slices[0]).unwrap().cursor(false);
        cursor.seek_first().unwrap();
        let mut places = Vec::new();
        while let Some(entry) = cursor.entry() {
            places.push(entry.value.as_ptr().addr());
            cursor.next().unwrap();
        }
        // By then the buffer has the length of the longest block.
        let late = &places[1000..];
        let span = late.iter().max().unwrap() - late.iter().min().unwrap();
        assert!(span < 6000, "blocks of 4 KiB lie {span} bytes apart");
    }
}

#[test]
fn an_index_has_leaves_only_if_it_is_long_beside_the_data() {
    let keys = |len: usize| {
        let versions =
            (0..3000u64).map(|i| Version::put(format!("{i:0len$}x"), 5000 + i, [7; 400]));
        versions.collect::<Vec<_>>()
    };
    for (key_len, part, levels) in [(8, 32, 1), (8, 0, 2), (800, 32, 2)] {
        let fixture = Fixture::new();
        let options = TableOptions { flat_index_part: part, ..Default::default() };
        // Separators of long keys are short, unless the keys differ late.
        let finished = fixture.write(&options, &[(0, keys(key_len))]);
        let table = fixture.open(&finished, 0);
        let found = match &table.way {
            Way::Data(_) => 0,
            Way::Index(_) => 1,
            Way::Top(_) => 2,
        };
        assert_eq!(found, levels, "keys of {key_len} bytes, one in {part}");
        for at in [0, 1499, 2999] {
            let key = format!("{at:0key_len$}x");
            let found = table.get(key.as_bytes(), checksum64(key.as_bytes()), u64::MAX).unwrap();
            assert_eq!(found.unwrap().seq, 5000 + at);
        }
    }
}

#[test]
fn blocks_of_long_keys_have_the_length_that_is_asked_for() {
    let near = |i: u64| format!("{}{i:08}", "k".repeat(592));
    let far = |i: u64| format!("{:04}{}{i:06}", i / 20, "m".repeat(590));
    let lens = |key: &dyn Fn(u64) -> String, block_len, restart_interval| {
        let fixture = Fixture::new();
        let versions = (0..3000).map(|i| Version::put(key(i), 9, "")).collect();
        let options = TableOptions { block_len, restart_interval, ..Default::default() };
        let options = TableOptions { codec: Codec::None, ..options };
        fixture.write(&options, &[(0, versions)]);
        let mut lens: Vec<_> = data_blocks(&fixture).iter().map(|block| block.len).collect();
        lens.pop();
        assert!(lens.len() > 1, "{block_len}");
        lens
    };
    // A slotted block is short, until a key has another prefix.
    for (group, middle, block_len) in [(200, 592, 4096), (60, 2000, 4096), (150, 400, 1024)] {
        let broken = |i: u64| format!("{:04}{}{i:08}", i / group, "k".repeat(middle));
        let lens = lens(&broken, block_len, 8);
        let most = block_len + middle as u32 + 76;
        assert!(lens.iter().all(|len| *len < most), "{most}: {lens:?}");
    }
    // Whole keys fill the memory before the slotted block is full. It ends there.
    let of_near = lens(&near, 4096, 8);
    assert!(of_near.iter().all(|len| (1500..4096 + 600 + 64).contains(len)), "{of_near:?}");
    // The same, but the chained block is much shorter. It goes on.
    let of_far = lens(&far, 64 << 10, 16);
    assert!(of_far.iter().all(|len| (65_000..67_000).contains(len)), "{of_far:?}");
}

/// The bytes that `docs/internals/table-format.md` explains.
#[test]
fn the_least_file_is_these_bytes() {
    let fixture = Fixture::new();
    fixture.write(&TableOptions::default(), &[(0, vec![Version::put("key", 5000, "value")])]);
    let mut expected = [
        &b"ISOBATH\0\x02\x01\x01\0\x80\0\0\0"[..],
        &[0; 16],
        &[9; 16],
        b"\x2a\0\0\0\0\0\0\0",
        &[0; 64],
        b"\x08\xcb\xca\x50\x48\xa9\xbe\xa5",
    ]
    .concat();
    expected.extend_from_slice(b"\x01\x10\x00\x01\x00\x08\x88\x27\x00\x01\x00\x00\x03key\x03\x00");
    expected.extend_from_slice(b"\x03\x28\x00\x03\x05keyvalue\0\0\0\0\0\0\0\0\0\0\0\0\x01");
    expected.extend_from_slice(b"\x88\x13\0\0\0\0\0\0\x01\0\0\0\x03\0\x08\x01");
    expected.extend_from_slice(b"\x00\xf3\x41\x71\xcc\xaa\x52\xe6\x16");
    expected.extend_from_slice(b"\x01\x00\x00\x45\x00\x82\x45\xb4\x0c\x29\xd1\xba\x2d");
    expected.extend_from_slice(b"\xc5\0\0\0\0\0\0\0\x0d\0\0\0\x01\0\0\0");
    expected.extend_from_slice(&[0; 16]);
    expected.extend_from_slice(b"\x12\x01\0\0\0\0\0\0\x2a\0\0\0\0\0\0\0ISOTABLE");
    expected.extend_from_slice(b"\x19\xb3\x4d\x26\x72\x60\xd4\x23");
    assert_eq!(fixture.bytes(), expected);
}
