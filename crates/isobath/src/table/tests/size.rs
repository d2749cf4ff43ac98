//! Tests what tables cost on disk and in memory.

use super::damage::data_blocks;
use super::fixtures::*;
use crate::cursor::Cursor;
use crate::engine::Ceiling;
use crate::error::MemoryClass;
use crate::format::checksum64;
use crate::memory::{Budget, Reserve};
use crate::options::Options;
use crate::table::reader::Way;
use crate::table::{
    Codec, MemoryBelow, Sketch, SliceMeta, Table, TableContext, TableOptions, block_of_len,
};
use crate::vfs::FileAccess;
use std::sync::Arc;

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

/// A context below a budget, with so much for tables that stay, for others, and for jobs.
fn below(
    fixture: &Fixture,
    budget: &Arc<Budget>,
    (stay_max, passing, of_jobs): (u64, u64, u64),
) -> TableContext {
    let reserve = |class, bytes| Reserve::new(budget.try_charge(class, bytes).unwrap());
    let below = MemoryBelow {
        budget: budget.clone(),
        stay_max,
        read_len: 64 << 10,
        passing: reserve(MemoryClass::Tables, passing),
        of_jobs: reserve(MemoryClass::Jobs, of_jobs),
    };
    fixture.context(FileAccess::Positional, 0).below(Some(below))
}

/// A file with so many slices of a hundred keys.
fn many_slices(fixture: &Fixture, count: u32) -> Vec<SliceMeta> {
    let key = |family: u32, i: u64| format!("{family:03} {i:016}");
    let versions =
        |family: u32| (0..100).map(move |i| Version::put(key(family, i), 5000 + i, [7; 200]));
    let slices: Vec<_> = (0..count).map(|family| (family, versions(family).collect())).collect();
    fixture.write(&TableOptions::default(), &slices).slices
}

fn assert_readable(table: &Table, family: u32) {
    for i in [0, 99] {
        let key = format!("{family:03} {i:016}").into_bytes();
        assert!(table.get(&key, checksum64(&key), u64::MAX).unwrap().is_some());
    }
}

#[test]
fn tables_that_cannot_all_stay_open_come_and_go_and_never_take_more_than_they_may() {
    let fixture = Fixture::new();
    let metas = many_slices(&fixture, 60);
    let budget = Budget::new(1 << 20, &[]);
    let (stay_max, passing) = (20_000, 10_000);
    let context = below(&fixture, &budget, (stay_max, passing, 0));
    let mut staying = Vec::new();
    for round in 0..3 {
        for (family, meta) in metas.iter().enumerate() {
            let (table, stays) = context.open(meta, false, 0).unwrap();
            assert_readable(&table, family as u32);
            assert_eq!(
                Arc::strong_count(&table),
                if stays { 1 } else { 2 },
                "recent ones are kept"
            );
            if stays {
                assert_eq!(round, 0, "what has come in time stays");
                staying.push(table);
            }
            assert!(budget.held_by(MemoryClass::Tables) <= stay_max + passing);
        }
    }
    assert!((5..50).contains(&staying.len()), "{} stay", staying.len());
    // One that was asked for just now is found open.
    let (last, _) = context.open(&metas[59], false, 0).unwrap();
    assert!(Arc::ptr_eq(&last, &context.open(&metas[59], false, 0).unwrap().0));
    drop((staying, last, context));
    assert_eq!(budget.held(), 0, "an open table keeps no other one open");
}

#[test]
fn a_job_opens_tables_whatever_readers_hold() {
    let fixture = Fixture::new();
    let metas = many_slices(&fixture, 20);
    let budget = Budget::new(200_000, &[]);
    let context = below(&fixture, &budget, (0, 4_000, 4_000));
    let _others = budget.try_charge(MemoryClass::Memtables, 200_000 - 8_000).unwrap();
    let mut held = Vec::new();
    let refused = loop {
        match context.open(&metas[held.len()], false, 0) {
            Ok((table, _)) => held.push(table),
            Err(refused) => break refused,
        }
    };
    assert!(refused.is_retryable() && !held.is_empty(), "{refused}");
    let (table, stays) = context.open(&metas[19], true, 0).unwrap();
    assert!(!stays && Arc::strong_count(&table) == 1, "a job's table goes with the job");
    drop(table);
    drop(held.pop());
    context.open(&metas[18], false, 0).unwrap();
}

#[test]
fn a_table_that_is_written_below_a_ceiling_takes_little_beside_its_filter() {
    let ceiling = Options::in_memory().memory(24 << 20);
    let (ceiling, _lease) = Ceiling::of(&ceiling).unwrap();
    let options = ceiling.fit(TableOptions { filter_bits_per_key: 0, ..Default::default() });
    for (count, len) in [(2600, 400), (10_000, 100), (1000, 400)] {
        let fixture = Fixture::new();
        let value =
            |i: u64| (0..len).map(|at| (i * 31 + at * at * 7 + i * at) as u8).collect::<Vec<_>>();
        let versions = (0..count).map(|i| Version::put(format!("{i:016}"), 5000 + i, value(i)));
        let metas = fixture.write(&options, &[(0, versions.collect())]).slices;
        let budget = Budget::new(1 << 20, &[]);
        let context = below(&fixture, &budget, (1 << 20, 0, 0));
        let table = Table::open(context, &metas[0]).unwrap();
        let taken = budget.held();
        println!("{count} entries of {len} bytes, {} on disk: {taken}", metas[0].disk_bytes);
        assert!(taken < 1700, "{taken}");
        drop(table);
    }
}

#[test]
fn filters_leave_half_of_what_stays_to_tops() {
    let fixture = Fixture::new();
    let versions = |family: u64| {
        (0..3000).map(move |i| Version::put(format!("{family} {i:016}"), 5000 + i, "value"))
    };
    let slices: Vec<_> =
        (0..30).map(|family| (family as u32, versions(family).collect())).collect();
    let metas = fixture.write(&TableOptions::default(), &slices).slices;
    let budget = Budget::new(1 << 20, &[]);
    let stay_max = 60_000;
    let context = below(&fixture, &budget, (stay_max, 0, 0));
    let opened: Vec<_> = metas.iter().map(|meta| context.open(meta, false, 0).unwrap()).collect();
    let has_filter = |(table, _): &&(Arc<Table>, bool)| !table.may_contain(checksum64(b"no key"));
    let (with, stay) = (opened.iter().filter(has_filter).count(), |of: &&(_, bool)| of.1);
    assert!((2..10).contains(&with), "{with} filters");
    assert!(opened.iter().filter(stay).count() > with + 5, "tables stay open without a filter");
    assert!(opened.iter().filter(has_filter).all(|(_, stays)| *stays));
}

#[test]
fn a_sketch_that_is_not_in_memory_is_read() {
    let fixture = Fixture::new();
    let metas = many_slices(&fixture, 1);
    let budget = Budget::new(1 << 20, &[]);
    let context = below(&fixture, &budget, (1 << 20, 0, 0));
    let [mut read, mut held] = [Sketch::default(), Sketch::default()];
    assert!(Table::open(context, &metas[0]).unwrap().add_keys_to(&mut read).unwrap());
    let plain = fixture.context(FileAccess::Positional, 0);
    assert!(Table::open(plain, &metas[0]).unwrap().add_keys_to(&mut held).unwrap());
    assert!(read == held && (95..106).contains(&read.estimate()), "{}", read.estimate());
}

#[test]
fn a_walk_that_has_no_memory_to_read_ahead_reads_block_by_block() {
    let fixture = Fixture::new();
    let versions: Vec<_> =
        (0..5000u64).map(|i| Version::put(format!("{i:016}"), 5000 + i, [7; 100])).collect();
    let finished = fixture.write(&TableOptions::default(), &[(0, versions)]);
    let budget = Budget::new(50_000, &[]);
    let context = below(&fixture, &budget, (50_000, 0, 0));
    let table = Table::open(context, &finished.slices[0]).unwrap();
    for fills in [false, true] {
        let mut cursor = table.cursor(fills);
        cursor.seek_first().unwrap();
        let mut count = 0;
        while cursor.entry().is_some() {
            count += 1;
            cursor.next().unwrap();
        }
        assert_eq!(count, 5000);
    }
}

#[test]
fn a_job_has_memory_for_a_long_block_whatever_readers_hold() {
    let fixture = Fixture::new();
    let versions: Vec<_> =
        (0..4u64).map(|i| Version::put(format!("{i:016}"), 5000 + i, vec![7; 100_000])).collect();
    let options = TableOptions { codec: Codec::None, ..Default::default() };
    let finished = fixture.write(&options, &[(0, versions)]);
    // What is longer than all that is kept is read, too. Else no job would ever go on.
    for (of_jobs, taken, is_read) in
        [(120_000, 0, true), (120_000, 30_000, false), (90_000, 0, true)]
    {
        let budget = Budget::new(200_000, &[]);
        let context = below(&fixture, &budget, (200_000, 0, of_jobs));
        let table = Table::open(context.clone(), &finished.slices[0]).unwrap();
        let free = budget.ceiling() - budget.held();
        let _others = budget.try_charge(MemoryClass::Blocks, free).unwrap();
        let _taken = context.charge_long_block(taken).unwrap();
        let mut cursor = table.job_cursor();
        let mut walk = || {
            cursor.seek_first()?;
            for _ in 0..4 {
                assert_eq!(cursor.entry().unwrap().value.len(), 100_000);
                cursor.next()?;
            }
            Ok::<_, crate::Error>(())
        };
        let walked = walk();
        assert_eq!(walked.is_ok(), is_read, "{walked:?}");
        assert!(walked.err().is_none_or(|error| error.is_retryable()));
    }
}

#[test]
fn a_block_that_is_longer_than_all_that_is_kept_leaves_room_for_what_is_read_beside_it() {
    let (fixture, budget) = (Fixture::new(), Budget::new(1 << 20, &[]));
    let context = below(&fixture, &budget, (200_000, 0, 120_000));
    let free = budget.ceiling() - budget.held();
    for (others, len) in [(0, 2 << 20), (0, 600_000), (free - 300_000, 500_000)] {
        let _others = budget.try_charge(MemoryClass::Blocks, others).unwrap();
        let _long = context.charge_long_block(len).unwrap();
        let _beside = context.charge_long_block(120_000).unwrap();
        let _more = context.charge_long_block(120_000).unwrap();
        let free = budget.ceiling() - budget.held();
        assert!(free >= (1 << 20) / 64, "{free} beside {others} and {len}");
    }
}

#[test]
fn a_reader_past_the_cache_charges_its_blocks_and_takes_nothing_of_what_is_kept_for_jobs() {
    let fixture = Fixture::new();
    for len in [100_000, 1000] {
        let versions: Vec<_> = (0..8u64)
            .map(|i| Version::put(format!("{i:016}"), 5000 + i, vec![i as u8; len]))
            .collect();
        let options = TableOptions { codec: Codec::None, block_len: 900, ..Default::default() };
        let finished = fixture.write(&options, &[(0, versions)]);
        let budget = Budget::new(1_300_000, &[]);
        let context = below(&fixture, &budget, (200_000, 0, 120_000));
        let table = Table::open(context.clone(), &finished.slices[0]).unwrap();
        let free = budget.ceiling() - budget.held();
        let room = 4 * len as u64 + 4000;
        let _others = budget.try_charge(MemoryClass::Memtables, free - room).unwrap();
        let mut cursor = table.cursor(false);
        cursor.seek_first().unwrap();
        // Its values keep the blocks.
        let (mut held, mut refused) = (Vec::new(), None);
        while refused.is_none() && cursor.entry().is_some() {
            held.push(cursor.value_pin().unwrap());
            assert!(budget.held_by(MemoryClass::Blocks) >= (held.len() * len) as u64);
            assert_eq!(context.spare_for_jobs(), 120_000);
            refused = cursor.next().err();
        }
        assert!(refused.is_some_and(|error| error.is_retryable()), "{} held", held.len());
        assert!((2..=6).contains(&held.len()), "{} held", held.len());
        drop((cursor, held));
        assert_eq!(budget.held_by(MemoryClass::Blocks), 0);
    }
}

#[test]
fn a_block_is_charged_until_it_is_dropped_or_gives_its_bytes_away() {
    let fixture = Fixture::new();
    let budget = Budget::new(100_000, &[]);
    let context = below(&fixture, &budget, (0, 0, 0));
    let block = context.charged(block_of_len(4000)).unwrap();
    let bytes = block.charged_bytes();
    assert_eq!((budget.held(), bytes), (bytes, budget.held_by(MemoryClass::Blocks)));
    let other = context.charged(block_of_len(900)).unwrap();
    assert_eq!(block.into_bytes().capacity() as u64, bytes - 128);
    assert_eq!(budget.held(), other.charged_bytes());
    drop(other);
    assert_eq!(budget.held(), 0);
    // Charged before it is read, with too little and with too much.
    for before in [10, 50_000] {
        let charge = context.charge_read(before).unwrap();
        let block = context.charged_before(block_of_len(4000), charge).unwrap();
        assert_eq!(budget.held(), block.charged_bytes());
        drop(block);
        assert_eq!(budget.held(), 0);
    }
    let charge = context.charge_read(10).unwrap();
    let _others = budget.try_charge(MemoryClass::Jobs, 99_000).unwrap();
    assert!(context.charged_before(block_of_len(4000), charge).is_err());
    assert_eq!(budget.held(), 99_000);
}

#[test]
fn a_filter_that_has_no_room_is_not_loaded_and_the_table_is_read_without() {
    let fixture = Fixture::new();
    let versions: Vec<_> =
        (0..20_000u64).map(|i| Version::put(format!("{i:016}"), 5000 + i, "value")).collect();
    let finished = fixture.write(&TableOptions::default(), &[(0, versions)]);
    let open = |stay_max, ceiling| {
        let budget = Budget::new(ceiling, &[]);
        let context = below(&fixture, &budget, (stay_max, 0, 0));
        (Table::open(context, &finished.slices[0]), budget)
    };
    let denied = |table: &Table| {
        let hashes = (0..1000u64).map(|i| checksum64(format!("{i:016}x").as_bytes()));
        hashes.filter(|hash| !table.may_contain(*hash)).count()
    };
    let (table, budget) = open(2 << 20, 1 << 20);
    let table = table.unwrap();
    assert!(denied(&table) > 900);
    let charged = table.context.blocks.filter_index_bytes();
    assert_eq!((budget.held(), budget.held_by(MemoryClass::Tables)), (charged, charged));
    for (stay_max, ceiling) in [(1000, 1 << 20), (2 << 20, 20_000)] {
        let (table, budget) = open(stay_max, ceiling);
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
fn the_top_of_an_index_of_long_separators_is_not_longer_than_one_block_of_it() {
    let fixture = Fixture::new();
    let key = |i: u64| [vec![b'k'; 65_000], i.to_be_bytes().to_vec()].concat();
    let versions = (0..1200).map(|i| Version::put(key(i), 9, "")).collect();
    let finished = fixture.write(&TableOptions::default(), &[(0, versions)]);
    let root = finished.slices[0].root;
    assert!((33 << 20..64 << 20).contains(&root.len), "{} bytes", root.len);
    let table = fixture.open(&finished, 0);
    for at in [0, 1, 511, 512, 600, 1199] {
        let key = key(at);
        assert_eq!(table.get(&key, checksum64(&key), u64::MAX).unwrap().unwrap().seq, 9);
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
        &[0; 8],
        b"\x01\0\0\0\0\0\0\0",
        &[9; 16],
        b"\x2a\0\0\0\0\0\0\0",
        &[0; 64],
        b"\x22\x30\xb0\xf1\x08\x0e\x00\x16",
    ]
    .concat();
    expected.extend_from_slice(b"\x01\x10\x00\x01\x00\x08\x88\x27\x00\x01\x00\x00\x03key\x03\x00");
    expected.extend_from_slice(b"\x03\x28\x00\x03\x05keyvalue\0\0\0\0\0\0\0\0\0\0\0\0\x01");
    expected.extend_from_slice(b"\x88\x13\0\0\0\0\0\0\x01\0\0\0\x03\0\x08\x01");
    expected.extend_from_slice(b"\x00\xf4\x9f\x5d\xb2\xe1\x34\x1f\xec");
    expected.extend_from_slice(b"\x01\x00\x00\x45\x00\x85\x9b\x98\x72\x62\xb7\x43\xd7");
    expected.extend_from_slice(b"\xc5\0\0\0\0\0\0\0\x0d\0\0\0\x01\0\0\0");
    expected.extend_from_slice(&[0; 16]);
    expected.extend_from_slice(b"\x12\x01\0\0\0\0\0\0\x2a\0\0\0\0\0\0\0ISOTABLE");
    expected.extend_from_slice(b"\x19\xb3\x4d\x26\x72\x60\xd4\x23");
    assert_eq!(fixture.bytes(), expected);
}
