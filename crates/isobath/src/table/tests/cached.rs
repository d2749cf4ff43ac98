//! Blocks in the cache beside the tables that they are of: found again, by whom, and for how long.

use super::fixtures::*;
use crate::cursor::Cursor;
use crate::format::{Lsn, checksum64};
use crate::table::{Table, TableContext, TableOptions};
use crate::vfs::FileAccess;
use std::sync::Arc;

fn numbered(count: u64) -> Vec<Version> {
    (0..count).map(|i| Version::put(format!("key{i:08}"), 5000 + i, vec![i as u8; 90])).collect()
}

/// An index of one level, and one of two.
fn layouts() -> [TableOptions; 2] {
    let small = TableOptions { block_len: 400, ..Default::default() };
    let flat = TableOptions { flat_index_part: 1, ..small.clone() };
    [flat, TableOptions { index_block_len: 200, flat_index_part: 0, ..small }]
}

fn read_all(table: &Arc<Table>, versions: &[Version]) {
    for version in versions {
        let found = table.get(&version.key, checksum64(&version.key), Lsn::MAX).unwrap();
        assert_eq!(*found.unwrap().value, *version.value);
    }
}

fn misses(context: &TableContext) -> u64 {
    context.blocks.misses()
}

#[test]
fn a_block_is_read_once_by_all_ways_to_it_and_all_tables_of_its_slice() {
    for options in layouts() {
        let (fixture, versions) = (Fixture::new(), numbered(500));
        let finished = fixture.write(&options, &[(0, versions.clone())]);
        let context = fixture.context(FileAccess::Positional, 1 << 20);
        let open = || Table::open(context.clone(), &finished.slices[0]).unwrap();
        let (first, second) = (open(), open());
        read_all(&first, &versions);
        let read = misses(&context);
        assert!(read >= 100, "{read} blocks");
        read_all(&first, &versions);
        assert_eq!(forward(&mut first.cursor(true)).unwrap(), versions);
        assert_eq!(backward(&mut first.cursor(true)).unwrap().len(), versions.len());
        // The second table knows of no frames, and finds what the first has read.
        read_all(&second, &versions);
        drop(first);
        read_all(&second, &versions);
        drop(second);
        read_all(&open(), &versions);
        assert_eq!(misses(&context), read);
    }
}

#[test]
fn reads_stay_right_while_blocks_come_and_go() {
    for options in layouts() {
        let (fixture, versions) = (Fixture::new(), numbered(400));
        let finished = fixture.write(&options, &[(0, versions.clone())]);
        let context = fixture.context(FileAccess::Positional, 6000);
        let open = || Table::open(context.clone(), &finished.slices[0]).unwrap();
        let tables = [open(), open()];
        for round in 0..3 {
            for (nth, version) in versions.iter().enumerate() {
                let table = &tables[(nth + round) % 2];
                read_all(table, std::slice::from_ref(version));
                read_all(table, std::slice::from_ref(&versions[nth * 7 % versions.len()]));
            }
            assert!(context.blocks.used_bytes() <= 6000);
        }
        assert!(context.blocks.hits() > 0);
    }
}

#[test]
fn what_a_reader_holds_outlives_its_table_and_the_cache() {
    for capacity in [0, 1 << 20] {
        let (fixture, versions) = (Fixture::new(), numbered(300));
        let finished = fixture.write(&layouts()[0], &[(0, versions.clone())]);
        let context = fixture.context(FileAccess::Positional, capacity);
        let table = Table::open(context.clone(), &finished.slices[0]).unwrap();
        let get = |version: &Version| {
            table.get(&version.key, checksum64(&version.key), Lsn::MAX).unwrap().unwrap().value
        };
        let values: Vec<_> = versions.iter().map(get).collect();
        let mut cursor = table.cursor(true);
        cursor.seek(&versions[150].key).unwrap();
        let pinned = cursor.value_pin().unwrap();
        context.blocks.set_capacity(0);
        assert_eq!(cursor.entry().unwrap().value, &versions[150].value[..]);
        drop((cursor, table, context));
        assert_eq!(*pinned, *versions[150].value);
        assert!(values.iter().zip(&versions).all(|(value, version)| **value == *version.value));
    }
}
