//! Tests that rows are what steps would find, from every position.

use crate::cursor::{Cursor, key_head};
use crate::format::{Lsn, OpKind};
use crate::table::staging::BlockForm;
use crate::table::tests::fixtures::{Fixture, Version};
use crate::table::{RowLimits, Rows, Table, TableOptions};
use proptest::prelude::*;
use std::sync::Arc;

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::collection::vec(prop_oneof![Just(0u8), Just(b'a'), Just(255)], 0..9),
        3 => (0u32..300).prop_map(|i| format!("user{i:08}").into_bytes()),
        2 => (0u32..40).prop_map(|i| format!("a prefix of two dozen...{i:08}").into_bytes()),
        1 => (0u32..40).prop_map(|i| format!("{}{i}", "long".repeat(20)).into_bytes()),
        1 => (0u32..9).prop_map(|i| format!("{}{i}", "long".repeat(60)).into_bytes()),
    ]
}

fn kind() -> impl Strategy<Value = OpKind> {
    prop_oneof![1 => Just(OpKind::Delete), 1 => Just(OpKind::Merge), 30 => Just(OpKind::Put)]
}

/// Up to three versions of each key, newest first.
fn versions() -> impl Strategy<Value = Vec<Version>> {
    let seqs = prop_oneof![
        4 => proptest::collection::btree_set(1u64..100, 1..2),
        1 => proptest::collection::btree_set(1u64..100, 1..4),
    ];
    let of_key = (seqs, kind(), prop_oneof![9 => 0usize..30, 1 => Just(200)]);
    proptest::collection::btree_map(key(), of_key, 1..150).prop_map(|keys| {
        let mut versions = Vec::new();
        for (key, (seqs, kind, len)) in keys {
            for seq in seqs.into_iter().rev() {
                let value = if kind.has_value() { vec![seq as u8; len] } else { Vec::new() };
                versions.push(Version { key: key.clone(), seq, kind, value });
            }
        }
        versions
    })
}

/// The newest version of each key.
fn newest(versions: &[Version]) -> Vec<Version> {
    let mut newest = versions.to_vec();
    newest.dedup_by(|older, newer| older.key == newer.key);
    newest
}

/// Takes rows after each key that the reader sees, and compares them with the keys that follow.
/// Returns how many rows it found where there were some to take.
fn check(table: &Arc<Table>, newest: &[Version], limits: RowLimits, last: &[u8]) -> Vec<usize> {
    let is_seen = |version: &Version| version.seq < limits.point && version.kind == OpKind::Put;
    let is_wanted = |version: &&Version| {
        is_seen(version) && key_head(&version.key) <= limits.head && version.key[..] <= *last
    };
    let (mut rows, mut scratch, mut counts) = (Rows::default(), Vec::new(), Vec::new());
    let mut cursor = table.cursor(true);
    for (at, version) in newest.iter().enumerate().filter(|(_, version)| is_seen(version)) {
        cursor.seek(&version.key).unwrap();
        cursor.take_rows(&mut rows, limits, |key| key <= last);
        let follow = newest[at + 1..].iter().take_while(is_wanted).take(limits.count);
        let follow: Vec<_> = follow.collect();
        assert!(rows.len() <= follow.len(), "{} rows of {}", rows.len(), follow.len());
        for (at, version) in follow.iter().enumerate().take(rows.len()) {
            assert_eq!(rows.key(at), version.key);
            assert_eq!(rows.entry(at), Some((&version.key[..], &version.value[..])));
            assert_eq!(&*rows.value_pin(at).unwrap(), &version.value[..]);
        }
        assert!(rows.entry(rows.len()).is_none() && rows.key(rows.len()).is_empty());
        assert_eq!(cursor.entry(), Some(newest[at + rows.len()].as_entry()));
        if !follow.is_empty() {
            counts.push(rows.len());
        }
        let stands = at + rows.len();
        if at % 2 == 0 {
            cursor.next_key(&mut scratch).unwrap();
            assert_eq!(cursor.entry(), newest.get(stands + 1).map(Version::as_entry));
        } else {
            cursor.prev_key().unwrap();
            let before = stands.checked_sub(1).map(|before| newest[before].as_entry());
            assert_eq!(cursor.entry(), before);
        }
    }
    counts
}

fn open(versions: Vec<Version>, options: &TableOptions) -> Arc<Table> {
    let fixture = Fixture::new();
    let finished = fixture.write(options, &[(7, versions)]);
    fixture.open(&finished, 0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn rows_are_what_steps_find(
        versions in versions(),
        (block_len, restart_interval) in (prop_oneof![200u32..600, Just(4096)], 1u32..12),
        form in proptest::sample::select(vec![BlockForm::Chained, BlockForm::Slotted]),
        point in prop_oneof![3 => Just(Lsn::MAX), 1 => 1u64..100],
        count in 1usize..70,
        (head, last) in (prop_oneof![3 => Just(None), 1 => key().prop_map(Some)], key()),
    ) {
        let newest = newest(&versions);
        let options = TableOptions { form, block_len, restart_interval, ..TableOptions::default() };
        let table = open(versions, &options);
        let head = head.map_or(u64::MAX, |key| key_head(&key));
        check(&table, &newest, RowLimits { point, count, head }, &last);
        let all = RowLimits { point, count: 64, head: u64::MAX };
        check(&table, &newest, all, &[255; 10]);
    }
}

#[test]
fn all_keys_of_a_block_are_taken_at_once() {
    for key_len in [8, 16, 32, 33, 100] {
        let key = |i: u64| format!("{i:0key_len$}");
        let versions: Vec<_> = (0..60).map(|i| Version::put(key(i), 100 + i, "a value")).collect();
        let table =
            open(versions.clone(), &TableOptions { block_len: 1 << 20, ..Default::default() });
        let limits = RowLimits { point: Lsn::MAX, count: 50, head: u64::MAX };
        let counts = check(&table, &versions, limits, &[255]);
        let expected: Vec<_> = (0..59).map(|at| (59 - at).min(50)).collect();
        assert_eq!(counts, expected, "keys of {key_len} bytes");
        // The reader does not see the fiftieth key.
        let limits = RowLimits { point: 150, ..limits };
        assert_eq!(check(&table, &versions, limits, &[255])[..2], [49, 48]);
    }
}

#[test]
fn rows_go_up_to_the_head_that_is_wanted() {
    let key = |i: u64| format!("{i:08}");
    let versions: Vec<_> = (0..40).map(|i| Version::put(key(i), 100 + i, "a value")).collect();
    let table = open(versions.clone(), &TableOptions::default());
    let limits = RowLimits { point: Lsn::MAX, count: 64, head: key_head(key(30).as_bytes()) };
    let counts = check(&table, &versions, limits, &[255]);
    assert_eq!(counts, (0..30).map(|at| 30 - at).collect::<Vec<_>>());
}

#[test]
fn the_last_of_two_bytes_in_a_block_is_a_row() {
    let versions: Vec<_> = ["a", "b"].map(|key| Version::put(key, 100, "")).into();
    let table = open(versions.clone(), &TableOptions::default());
    let limits = RowLimits { point: Lsn::MAX, count: 9, head: u64::MAX };
    assert_eq!(check(&table, &versions, limits, &[255]), [1]);
}

#[test]
fn a_cursor_says_whether_its_block_has_more() {
    let versions: Vec<_> = (0..10).map(|i| Version::put(format!("key{i}"), 10 + i, "")).collect();
    let table = open(versions, &TableOptions::default());
    let (mut rows, mut cursor) = (Rows::default(), table.cursor(true));
    let mut take = |count, point, last: &str| {
        cursor.seek(b"key0").unwrap();
        let limits = RowLimits { point, count, head: u64::MAX };
        let has_more = cursor.take_rows(&mut rows, limits, |key| key <= last.as_bytes());
        (rows.len(), has_more)
    };
    assert_eq!(take(5, Lsn::MAX, "key9"), (5, true));
    assert_eq!(take(20, Lsn::MAX, "key9"), (9, false));
    assert_eq!(take(20, 14, "key9"), (3, true));
    assert_eq!(take(20, Lsn::MAX, "key4"), (4, false));
    assert_eq!(take(20, Lsn::MAX, "a"), (0, false));
}
