//! Range deletes of a write set, beside what the drawn programs say of them.

use super::*;

#[test]
fn a_range_is_written_into_if_it_holds_an_operation_or_meets_a_range_delete() {
    let mut footprint = Footprint::new(ROOMY);
    footprint.put(1, b"c", b"value").unwrap();
    footprint.delete_range(1, (b"m", b"p")).unwrap();
    let within = |lower: Bound<&str>, upper: Bound<&str>| {
        let own = |key: &str| key.as_bytes().to_vec();
        Interval::within(&lower.map(own), &upper.map(own))
    };
    use Bound::{Excluded, Included, Unbounded};
    for (lower, upper, is_written) in [
        (Included("c"), Included("c"), true),
        (Excluded("c"), Included("l"), false),
        (Included("a"), Excluded("c"), false),
        (Unbounded, Excluded("d"), true),
        (Included("d"), Excluded("m"), false),
        (Included("d"), Included("m"), true),
        (Excluded("o"), Unbounded, true),
        (Included("p"), Unbounded, false),
        (Unbounded, Unbounded, true),
    ] {
        let range = within(lower, upper);
        assert_eq!(footprint.writes_into(1, &range), is_written, "{range:?}");
        assert!(!footprint.writes_into(0, &range) && !footprint.writes_into(2, &range));
    }
}

#[test]
fn range_deletes_take_whole_leaves_out_and_a_savepoint_brings_them_back() {
    const COUNT: u32 = LEAF_MAX as u32 * 9;
    for (start, end) in [(0, COUNT), (1, COUNT - 1), (300, 301), (LEAF_MAX as u32, 1700)] {
        let mut footprint = Footprint::new(ROOMY);
        (0..COUNT).for_each(|n| footprint.put(3, &number(n * 1001 % COUNT), b"value").unwrap());
        footprint.savepoint("all");
        footprint.delete_range(3, (&number(start), &number(end))).unwrap();
        footprint.writes.check();
        let is_gone = |n: u32| (start..end).contains(&n);
        let keys: Vec<_> =
            footprint.writes().skip(1).map(|operation| operation.key.to_vec()).collect();
        let left = (0..COUNT).filter(|n| !is_gone(*n)).map(|n| number(n).to_vec());
        assert_eq!(keys, left.collect::<Vec<_>>());
        assert!(footprint.rollback_to("all"));
        footprint.writes.check();
        assert_eq!((footprint.len(), footprint.has_deleted_ranges()), (COUNT as usize, false));
    }
}

#[test]
fn overlapping_range_deletes_become_one_and_hardly_grow_the_set() {
    let mut footprint = Footprint::new(ROOMY);
    footprint.delete_range(0, (&number(0), &number(10))).unwrap();
    let charge = footprint.charge();
    (1..10_000).for_each(|n| footprint.delete_range(0, (&number(n), &number(n + 10))).unwrap());
    (0..10_000).for_each(|n| footprint.delete_range(0, (&number(n), &number(n + 1))).unwrap());
    assert_eq!((footprint.len(), footprint.charge()), (1, charge));
    let only: Vec<_> = footprint.deleted_ranges().collect();
    assert_eq!(only, [(0, Interval::of_span(&number(0), &number(10_009)))]);
}

#[test]
fn what_was_replaced_gives_way_before_a_write_is_refused() {
    let mut footprint = Footprint::new(100_000);
    footprint.put(0, b"kept", b"value").unwrap();
    footprint.delete_range(7, (b"a", b"b")).unwrap();
    let before = footprint.write_set().unwrap();
    for n in 0..2000u32 {
        footprint.put(1, &number(n), &[n as u8; 900]).unwrap();
        footprint.put(2, b"grows", &vec![1; n as usize]).unwrap();
        footprint.delete_range(1, (&number(0), &number(n + 1))).unwrap();
        assert!(footprint.charge() <= 120_000, "{}", footprint.charge());
    }
    footprint.writes.check();
    assert_eq!(footprint.get(0, b"kept").unwrap().value, b"value");
    assert_eq!(footprint.get(2, b"grows").unwrap().value.len(), 1999);
    let ranges: Vec<_> = footprint.deleted_ranges().map(|(family, _)| family).collect();
    assert_eq!((footprint.len(), &ranges[..]), (4, &[1, 7][..]));
    let mut early = before.cursor(0, 100);
    early.seek_first().unwrap();
    assert_eq!(early.entry().unwrap().value, b"value");
    // A savepoint needs what was replaced.
    footprint.savepoint("s");
    let refused = (0..2000u32).find_map(|n| footprint.put(2, b"grows", &[n as u8; 900]).err());
    assert!(refused.is_some());
    assert!(footprint.rollback_to("s"));
    assert_eq!(footprint.get(2, b"grows").unwrap().value.len(), 1999);
}

#[test]
fn a_range_delete_without_room_is_refused_and_changes_nothing() {
    let mut footprint = Footprint::new(100_000);
    let mut deleted = 0;
    while footprint.delete_range(0, (&number(deleted * 2), &number(deleted * 2 + 1))).is_ok() {
        deleted += 1;
    }
    assert!((800..1500).contains(&deleted), "{deleted}");
    assert_eq!(footprint.len(), deleted as usize);
    // What it takes out must be kept for a savepoint.
    let mut footprint = Footprint::new(100_000);
    (0..700).for_each(|n| footprint.put(0, &number(n), b"value").unwrap());
    footprint.savepoint("s");
    let refused = footprint.delete_range(0, (b"", b"")).unwrap_err();
    assert!(matches!(refused, NoRoom::TooLarge { needed: 100_001.., .. }), "{refused:?}");
    assert_eq!((footprint.len(), footprint.has_deleted_ranges()), (700, false));
    assert!(footprint.release("s"));
    footprint.delete_range(0, (b"", b"")).unwrap();
    assert_eq!(footprint.len(), 1);
}
