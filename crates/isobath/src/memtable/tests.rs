//! Tests the memtable against a `BTreeMap`, with one thread and with many.

mod concurrent;
mod oracle;

use super::*;
use crate::cursor::Cursor;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Every version by key, newest first: the order that a cursor promises.
type Oracle = BTreeMap<(Vec<u8>, Reverse<Lsn>), (OpKind, Vec<u8>)>;

fn arena() -> Arc<Arena> {
    Arc::new(Arena::new(Arc::new(ChunkPool::new(64 << 10, 0, 0))))
}

/// Two tables that split after few keys, and one with the normal sizes.
fn tables() -> [Arc<Memtable>; 3] {
    [(2, 4), (3, 7), (FIRST_LEAF_CAPACITY, FANOUT)]
        .map(|(first_leaf, fanout)| Arc::new(Memtable::with_fanout(arena(), first_leaf, fanout)))
}

fn small_table() -> Arc<Memtable> {
    Arc::new(Memtable::with_fanout(arena(), 2, 4))
}

fn put(table: &Memtable, key: &[u8], seq: Lsn) {
    table.insert(key, seq, OpKind::Put, &seq.to_be_bytes());
}

fn forward(table: &Arc<Memtable>) -> Vec<(Vec<u8>, Lsn)> {
    let mut cursor = MemtableCursor::new(table.clone());
    cursor.seek_first().unwrap();
    let mut all = Vec::new();
    while let Some(entry) = cursor.entry() {
        all.push((entry.key.to_vec(), entry.seq));
        cursor.next().unwrap();
    }
    all
}

fn backward_keys(table: &Arc<Memtable>) -> Vec<Vec<u8>> {
    let mut cursor = MemtableCursor::new(table.clone());
    cursor.seek_last().unwrap();
    let mut all = Vec::new();
    while let Some(entry) = cursor.entry() {
        all.push(entry.key.to_vec());
        cursor.prev_key().unwrap();
    }
    all
}

fn check_against(table: &Arc<Memtable>, oracle: &Oracle) {
    let expected: Vec<_> = oracle.keys().map(|(key, seq)| (key.clone(), seq.0)).collect();
    assert_eq!(forward(table), expected);
    let mut keys: Vec<_> = oracle.keys().map(|(key, _)| key.clone()).collect();
    keys.dedup();
    let key_count = keys.len() as u64;
    keys.reverse();
    assert_eq!(backward_keys(table), keys);
    for ((key, seq), (kind, value)) in oracle {
        let found = Found { seq: seq.0, kind: *kind, value };
        assert_eq!(table.get(key, seq.0 + 1), Some(found));
    }
    assert_eq!((table.len(), table.keys()), (oracle.len() as u64, key_count));
    let bytes: usize = oracle.iter().map(|((key, _), (_, value))| key.len() + value.len()).sum();
    assert_eq!(table.key_value_bytes(), bytes as u64);
    let seqs = || oracle.keys().map(|(_, seq)| seq.0);
    assert_eq!(table.min_seq(), seqs().min().unwrap_or(Lsn::MAX));
    assert_eq!(table.max_seq(), seqs().max().unwrap_or(0));
    assert_eq!(table.is_empty(), oracle.is_empty());
}

#[test]
fn an_empty_table_has_nothing_anywhere() {
    for table in tables() {
        check_against(&table, &Oracle::new());
        assert_eq!(table.get(b"a", Lsn::MAX), None);
        let mut cursor = MemtableCursor::new(table);
        cursor.seek(b"").unwrap();
        assert_eq!(cursor.entry(), None);
        cursor.seek_for_prev(b"z").unwrap();
        assert_eq!(cursor.entry(), None);
        cursor.next().unwrap();
        cursor.prev_key().unwrap();
        assert_eq!(cursor.entry(), None);
    }
}

#[test]
fn a_reader_sees_the_newest_version_below_its_point() {
    for table in tables() {
        for seq in [30, 10, 20] {
            put(&table, b"k", seq);
        }
        table.insert(b"k", 40, OpKind::Delete, b"");
        let seq_at = |point| table.get(b"k", point).map(|found| found.seq);
        assert_eq!(
            [5, 10, 11, 30, 31, 40].map(seq_at),
            [None, None, Some(10), Some(20), Some(30), Some(30)]
        );
        let newest = table.get(b"k", 41).unwrap();
        assert_eq!((newest.kind, newest.value), (OpKind::Delete, &b""[..]));
    }
}

#[test]
fn ascending_descending_and_zigzag_orders_all_come_out_sorted() {
    let count = if cfg!(miri) { 120 } else { 3000u64 };
    let orders: [Box<dyn Fn(u64) -> u64>; 5] = [
        Box::new(|i| i),
        Box::new(|i| count - i),
        Box::new(|i| if i % 2 == 0 { i } else { 2 * count - i }),
        Box::new(|i| i % 7 * count + i),
        Box::new(|i| (i % 5 + 1) * count - i),
    ];
    for order in orders {
        for table in tables() {
            let mut oracle = Oracle::new();
            for i in 0..count {
                let key = format!("a/rather/long/common/prefix/{:08}", order(i)).into_bytes();
                put(&table, &key, i + 1);
                oracle.insert((key, Reverse(i + 1)), (OpKind::Put, (i + 1).to_be_bytes().to_vec()));
            }
            check_against(&table, &oracle);
        }
    }
}

#[test]
fn ascending_and_descending_inserts_leave_full_leaves() {
    let count = if cfg!(miri) { 300 } else { 20_000u64 };
    for descending in [false, true] {
        let arena = arena();
        let table = Memtable::new(arena);
        for i in 0..count {
            let i = if descending { count - i } else { i };
            put(&table, &i.to_be_bytes(), i + 1);
        }
        let (mut leaf, _) = table.find_leaf(Target::First);
        let mut leaves = 1;
        while let Some(next) = leaf.next() {
            leaf = next;
            leaves += 1;
        }
        assert!(leaves <= count.div_ceil(FANOUT as u64) + 2, "{leaves} leaves");
    }
}

#[test]
fn a_cluster_is_searched_behind_its_whole_prefix() {
    let table = Memtable::new(arena());
    let prefix = [0x55; 100];
    for i in 0..if cfg!(miri) { 200 } else { 10_000u64 } {
        let key = [&prefix[..], &i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()].concat();
        put(&table, &key, i + 1);
    }
    for target in [Target::First, Target::Last] {
        let leaf = table.find_leaf(target).0;
        assert!(leaf.prefix().skip >= 100, "edge leaf: {:?}", leaf.prefix());
    }
    if table.root().count() >= 2 {
        assert!(table.root().prefix().skip >= 100, "root: {:?}", table.root().prefix());
    }
}

#[test]
fn a_small_table_costs_little() {
    let arena = arena();
    let tables: Vec<_> = (0..100).map(|_| Memtable::new(arena.clone())).collect();
    for table in &tables {
        (1..=5u64).for_each(|i| put(table, &i.to_be_bytes(), i));
    }
    let each = arena.allocated_bytes() / tables.len() + size_of::<Memtable>();
    assert!(each <= 1024, "{each} bytes");
}

#[test]
fn a_sorted_batch_meets_what_is_there() {
    let count = if cfg!(miri) { 60 } else { 2000u64 };
    for table in tables() {
        let mut oracle = Oracle::new();
        for round in 0..4u64 {
            let keys: Vec<_> = (0..count).map(|i| (i * (round + 1)).to_be_bytes()).collect();
            let ops = keys
                .iter()
                .enumerate()
                .map(|(i, key)| (&key[..], round * count + i as u64 + 1, OpKind::Put, &b"v"[..]));
            ops.clone().for_each(|(key, seq, kind, value)| {
                oracle.insert((key.to_vec(), Reverse(seq)), (kind, value.to_vec()));
            });
            table.insert_sorted(ops);
        }
        check_against(&table, &oracle);
    }
}

/// What the iterator inserts between two of its keys stands for other threads.
#[test]
fn a_sorted_batch_notices_that_others_split_its_leaf_below_its_last_key() {
    let cases = (0..12u64).flat_map(|before| (1..8).map(move |n| (before, n)));
    for (before, between) in cases.step_by(if cfg!(miri) { 9 } else { 1 }) {
        for table in tables() {
            let others = |from: u64, count: u64| {
                (from..from + count)
                    .for_each(|i| put(&table, format!("aaa{:02}", i * 37 % 100).as_bytes(), i + 1));
            };
            others(0, before);
            let batch: [&[u8]; 2] = [b"bbb00", b"bbb01"];
            table.insert_sorted(batch.iter().enumerate().map(|(i, key)| {
                if i == 1 {
                    others(before, between);
                }
                (*key, 100 + i as u64, OpKind::Put, &b""[..])
            }));
            let all = forward(&table);
            assert!(all.is_sorted_by(|a, b| a.0 < b.0), "{before}, {between}: {all:?}");
            for (key, seq) in all {
                assert_eq!(table.get(&key, Lsn::MAX).map(|found| found.seq), Some(seq));
            }
        }
    }
}

#[test]
fn skipping_to_visible_passes_newer_versions_and_whole_keys() {
    for table in tables() {
        for (key, seq) in [(b"a", 5), (b"a", 15), (b"b", 20), (b"c", 9), (b"c", 30)] {
            put(&table, key, seq);
        }
        let mut cursor = MemtableCursor::new(table);
        cursor.seek_first().unwrap();
        let mut seen = Vec::new();
        loop {
            cursor.skip_to_visible(10);
            let Some(entry) = cursor.entry() else { break };
            seen.push((entry.key.to_vec(), entry.seq));
            cursor.next_key();
        }
        assert_eq!(seen, [(b"a".to_vec(), 5), (b"c".to_vec(), 9)]);
    }
}

#[test]
fn the_filter_of_a_memtable_holds_every_key_however_it_was_put() {
    for expected in [1, 3, 50] {
        let arena = arena();
        let before = arena.allocated_bytes();
        let table = Memtable::expecting(arena.clone(), expected);
        assert!(arena.allocated_bytes() - before >= expected as usize * 64, "it is charged");
        let key = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
        let count = if cfg!(miri) { 60 } else { 3000 };
        (0..count).for_each(|i| table.insert(&key(i), i + 1, OpKind::Put, b""));
        let mut sorted: Vec<_> = (count..2 * count).map(|i| (key(i), i + 1)).collect();
        sorted.sort_unstable();
        let ops = sorted.iter().map(|(key, seq)| (&key[..], *seq, OpKind::Delete, &b""[..]));
        table.insert_sorted(ops);
        (2 * count..3 * count).for_each(|i| table.apply(&key(i), i + 1, OpKind::Put, b"v"));
        let filter = table.filter().unwrap();
        for i in 0..3 * count {
            assert!(filter.may_hold(crate::format::checksum64(&key(i))), "{i}");
            assert!(table.get(&key(i), Lsn::MAX).is_some());
        }
    }
    assert!(Memtable::expecting(arena(), 0).filter().is_none());
    assert!(Memtable::new(arena()).filter().is_none());
}

#[test]
fn leaves_are_counted_as_they_are_split() {
    for table in tables() {
        for i in 0..if cfg!(miri) { 40 } else { 1000u64 } {
            put(&table, &i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), i + 1);
            let first = table.find_leaf(Target::First).0;
            if i % 17 == 0 {
                let leaves = std::iter::successors(Some(first), |leaf| leaf.next()).count();
                assert_eq!(table.leaves() as usize, leaves, "after {i}");
            }
        }
    }
}
