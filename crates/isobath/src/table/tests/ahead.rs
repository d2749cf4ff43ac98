//! What scans ask of a file: how often, and how much that nothing needs.

use super::fixtures::*;
use crate::cursor::Cursor;
use crate::format::{Lsn, checksum64};
use crate::table::cache::BlockCache;
use crate::table::{BlockHandle, Codec, Table, TableContext, TableOptions};
use crate::vfs::FileAccess;
use std::sync::Arc;

const ROWS: u64 = 20_000;

/// A slice of blocks of about 4 KiB with 35 rows each, past a cache that holds nothing.
fn table(fixture: &Fixture, mode: FileAccess) -> Arc<Table> {
    let options = TableOptions { codec: Codec::None, ..TableOptions::default() };
    let versions: Vec<_> = (0..ROWS)
        .map(|i| Version::put(format!("key{i:05}"), 5000 + i, vec![i as u8; 100]))
        .collect();
    let finished = fixture.write(&options, &[(0, versions)]);
    let files = fixture.context(mode, 0).files;
    let context = TableContext::new(files, BlockCache::new(0));
    let table = Table::open(context, &finished.slices[0]).unwrap();
    fixture.fs.take_trace();
    table
}

fn seek(table: &Arc<Table>, row: u64) -> crate::table::TableCursor {
    let mut cursor = table.cursor(true);
    cursor.seek(format!("key{row:05}").as_bytes()).unwrap();
    cursor
}

/// Reads so many rows from each of many places. Returns the calls and bytes of a scan: of reads,
/// and of what was told to be read ahead.
fn scan(fixture: &Fixture, table: &Arc<Table>, rows: u64) -> [f64; 3] {
    const SCANS: u64 = 200;
    let (mut reads, mut read, mut ahead) = (0, 0, 0);
    for nth in 0..SCANS {
        let mut cursor = seek(table, nth * 7919 % (ROWS - rows));
        (1..rows).for_each(|_| cursor.next().unwrap());
        assert!(cursor.entry().is_some());
        drop(cursor);
        for (is_ahead, _, len) in fixture.fs.take_trace() {
            match is_ahead {
                true => ahead += len,
                false => (reads, read) = (reads + 1, read + len),
            }
        }
    }
    [reads, read, ahead].map(|sum| sum as f64 / SCANS as f64)
}

#[test]
fn scans_of_one_length_soon_read_what_they_need_with_one_call() {
    let fixture = Fixture::new();
    let table = table(&fixture, FileAccess::Positional);
    let [reads, read, ahead] = scan(&fixture, &table, 1);
    assert!((1.0..1.05).contains(&reads) && read < 4500.0 && ahead == 0.0, "{reads} {read}");
    scan(&fixture, &table, 100);
    let [reads, read, ahead] = scan(&fixture, &table, 100);
    // A hundred rows lie in three or four blocks.
    assert!(reads < 1.2 && read < 5.0 * 4300.0 && ahead == 0.0, "{reads} {read} {ahead}");
    let [reads, read, _] = scan(&fixture, &table, 1);
    assert!(reads < 1.1 && read < 5500.0, "seeks soon read one block again: {reads} {read}");
}

#[test]
fn scans_through_a_mapping_tell_it_once_what_they_need() {
    let fixture = Fixture::new();
    let table = table(&fixture, FileAccess::Mapped);
    scan(&fixture, &table, 100);
    let [reads, _, ahead] = scan(&fixture, &table, 100);
    assert!((3.0..=4.0).contains(&reads) && ahead < 5.0 * 4300.0, "{reads} {ahead}");
}

#[test]
fn a_long_scan_reads_large_pieces_ahead_in_both_directions() {
    for is_forward in [true, false] {
        let fixture = Fixture::new();
        let table = table(&fixture, FileAccess::Positional);
        let mut cursor = table.cursor(true);
        let rows = if is_forward { forward(&mut cursor) } else { backward(&mut cursor) };
        assert_eq!(rows.unwrap().len() as u64, ROWS);
        let trace = fixture.fs.take_trace();
        let reads: Vec<u64> = trace.iter().filter(|read| !read.0).map(|read| read.2).collect();
        let sum: u64 = reads.iter().sum();
        let data = table.data_end() - table.base;
        // A piece ends within a block, which the next one begins with: the kernel has it by then.
        assert!(sum <= data + data / 6, "{sum} bytes of {data} were read");
        assert!(reads.len() as u64 <= data / (24 << 10), "{} reads of {data}", reads.len());
        assert!(trace.iter().any(|read| read.0), "the device works ahead");
    }
}

/// Of a cursor that keeps no blocks for others.
#[test]
fn a_scan_that_turns_back_reads_each_block_once() {
    let fixture = Fixture::new();
    let table = table(&fixture, FileAccess::Positional);
    let mut cursor = table.cursor(false);
    cursor.seek(format!("key{:05}", ROWS - 200).as_bytes()).unwrap();
    (0..100).for_each(|_| cursor.next().unwrap());
    fixture.fs.take_trace();
    let mut rows = 0;
    while cursor.entry().is_some() {
        cursor.prev_key().unwrap();
        rows += 1;
    }
    assert_eq!(rows, ROWS - 99);
    let reads = fixture.fs.take_trace().into_iter().filter(|read| !read.0);
    let (sum, data) = (reads.map(|read| read.2).sum::<u64>(), table.data_end() - table.base);
    assert!(sum <= data + data / 6, "{sum} bytes of {data} were read");
}

#[test]
fn what_cannot_be_read_behind_a_block_harms_only_those_who_ask_for_it() {
    let fixture = Fixture::new();
    let table = table(&fixture, FileAccess::Positional);
    scan(&fixture, &table, 100);
    let mut cursor = seek(&table, 0);
    let [(_, start, len)] = fixture.fs.take_trace()[..] else { panic!("one call reads the scan") };
    drop(cursor);
    fixture.fs.break_bytes(start + len - 1..start + len);
    cursor = seek(&table, 0);
    (1..60).for_each(|_| cursor.next().unwrap());
    let beyond = (60..200).try_for_each(|_| cursor.next());
    assert!(
        beyond.is_err() && cursor.entry().is_none(),
        "the last block has a byte that is broken"
    );
}

/// The blocks of some rows, in the order of the rows.
fn blocks_of(table: &Table, rows: &[u64]) -> Vec<BlockHandle> {
    let place = |row: &u64| {
        let key = format!("key{row:05}").into_bytes();
        table.place_of(&key, checksum64(&key), Lsn::MAX).unwrap().unwrap().at
    };
    rows.iter().map(place).collect()
}

#[test]
fn announced_blocks_are_asked_for_in_few_pieces_that_hold_all_of_them() {
    let fixture = Fixture::new();
    let table = table(&fixture, FileAccess::Positional);
    let blocks = blocks_of(&table, &[0, 40, 80, 5000, 12_000, 12_090, ROWS - 1]);
    table.announce(blocks.iter().copied()).unwrap();
    let trace = fixture.fs.take_trace();
    let pieces: Vec<_> = trace.iter().map(|(_, at, len)| *at..at + len).collect();
    assert!(trace.iter().all(|(is_ahead, ..)| *is_ahead), "{trace:?}");
    let of = |first: usize, last: usize| {
        blocks[first].offset..blocks[last].offset + u64::from(blocks[last].len)
    };
    // Between rows 12,000 and 12,090 lies one block at least.
    assert_eq!(pieces, [of(0, 2), of(3, 3), of(4, 4), of(5, 5), of(6, 6)]);
    // What damaged bytes say is no order.
    table
        .announce([blocks[3], blocks[0], BlockHandle { offset: u64::MAX, len: 9 }].into_iter())
        .unwrap();
    assert_eq!(fixture.fs.take_trace().len(), 2);
}

#[test]
fn a_block_that_cannot_be_read_fails_a_seek_in_both_directions() {
    let fixture = Fixture::new();
    let table = table(&fixture, FileAccess::Positional);
    let block = blocks_of(&table, &[5000])[0];
    fixture.fs.break_bytes(block.offset..block.offset + u64::from(block.len));
    let mut cursor = table.cursor(true);
    let key = b"key05000";
    assert!(cursor.seek(key).is_err() && cursor.entry().is_none());
    assert!(cursor.seek_for_prev(key).is_err() && cursor.entry().is_none());
}
