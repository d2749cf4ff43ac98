//! Merging cursors against a sorted list, under random sources and movements.

use super::super::fixtures::{ListCursor, Version, sort_versions};
use super::super::{Cursor, MergeCursor};
use proptest::prelude::*;

/// One movement of a cursor.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    First,
    Last,
    Seek(Vec<u8>),
    SeekForPrev(Vec<u8>),
    Next,
    PrevKey,
    NextKey,
}

impl Move {
    pub(crate) fn apply(&self, cursor: &mut impl Cursor) -> crate::Result<()> {
        let stands = cursor.entry().is_some();
        match self {
            Move::First => cursor.seek_first(),
            Move::Last => cursor.seek_last(),
            Move::Seek(key) => cursor.seek(key),
            Move::SeekForPrev(key) => cursor.seek_for_prev(key),
            Move::Next if stands => cursor.next(),
            Move::PrevKey if stands => cursor.prev_key(),
            Move::NextKey if stands => cursor.next_key(&mut b"left over".to_vec()),
            Move::Next | Move::PrevKey | Move::NextKey => Ok(()),
        }
    }
}

/// Keys that often have the same heads and extend each other.
pub(crate) fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(0u8..3, 0..4),
        prop::collection::vec(0u8..3, 0..3).prop_map(|tail| [b"\0\0a-head-", &tail[..]].concat()),
        prop::collection::vec(0xfdu8..=0xff, 7..10),
    ]
}

pub(crate) fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        1 => Just(Move::First),
        1 => Just(Move::Last),
        3 => key().prop_map(Move::Seek),
        3 => key().prop_map(Move::SeekForPrev),
        8 => Just(Move::Next),
        8 => Just(Move::PrevKey),
        4 => Just(Move::NextKey),
    ];
    prop::collection::vec(one, 1..60)
}

/// Sources, newest first: for each key, an earlier source holds only newer versions than a later
/// one.
pub(crate) fn sources(most: usize) -> impl Strategy<Value = Vec<Vec<Version>>> {
    let keys = prop::collection::btree_set((key(), 0u64..4), 0..25);
    prop::collection::vec(keys, 0..most).prop_map(|sources| {
        let count = sources.len() as u64;
        let build = |(at, keys): (usize, std::collections::BTreeSet<(Vec<u8>, u64)>)| {
            let base = (count - at as u64) * 10;
            let version = |(key, seq): (Vec<u8>, u64)| match seq {
                0 => Version::delete(&key, base),
                _ => Version::put(&key, base + seq, format!("{at}/{seq}").as_bytes()),
            };
            keys.into_iter().map(version).collect()
        };
        sources.into_iter().enumerate().map(build).collect()
    })
}

impl<C> MergeCursor<C> {
    /// The number of cursors that are merged.
    pub(crate) fn source_count(&self) -> usize {
        self.sources.len()
    }
}

/// Puts a long common prefix before most keys.
fn stretch(key: &mut Vec<u8>) {
    if key.first().is_some_and(|first| *first < 2) {
        key.splice(0..0, *b"\x01what many keys have in common/");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn a_merge_moves_as_one_cursor_over_everything(
        sources in sources(9),
        filters in prop::collection::vec(any::<bool>(), 9),
        moves in moves(),
    ) {
        let mut oracle = ListCursor::new(sources.concat());
        let list = |(versions, has_filter): (Vec<Version>, bool)| {
            let mut list = ListCursor::new(versions);
            list.has_filter = has_filter;
            list
        };
        let mut merge = MergeCursor::new(sources.into_iter().zip(filters).map(list).collect());
        for step in moves {
            step.apply(&mut oracle).unwrap();
            step.apply(&mut merge).unwrap();
            prop_assert_eq!(merge.entry(), oracle.entry(), "after {:?}", step);
        }
    }

    #[test]
    fn keys_that_share_a_long_beginning_move_alike(
        mut sources in sources(9),
        mut moves in moves(),
    ) {
        for version in sources.iter_mut().flatten() {
            stretch(&mut version.key);
        }
        for step in &mut moves {
            if let Move::Seek(key) | Move::SeekForPrev(key) = step {
                stretch(key);
            }
        }
        let mut oracle = ListCursor::new(sources.concat());
        let mut merge = MergeCursor::new(sources.into_iter().map(ListCursor::new).collect());
        for step in moves {
            step.apply(&mut oracle).unwrap();
            step.apply(&mut merge).unwrap();
            prop_assert_eq!(merge.entry(), oracle.entry(), "after {:?}", step);
        }
    }

    #[test]
    fn a_failed_source_leaves_no_entry_and_the_next_seek_starts_afresh(
        sources in sources(5),
        moves in moves(),
        failing in 0usize..5,
        fail_after in 0usize..20,
    ) {
        let mut oracle = ListCursor::new(sources.concat());
        let mut lists: Vec<_> = sources.into_iter().map(ListCursor::new).collect();
        if let Some(list) = lists.get_mut(failing) {
            list.fail_after = Some(fail_after);
        }
        let mut merge = MergeCursor::new(lists);
        for step in moves {
            step.apply(&mut oracle).unwrap();
            let failed = |merge: &MergeCursor<ListCursor>| -> usize {
                merge.sources.iter().map(|source| source.failed).sum()
            };
            let (before, moved) = (failed(&merge), step.apply(&mut merge));
            prop_assert_eq!(moved.is_err(), failed(&merge) > before, "{:?}", step);
            if moved.is_err() {
                prop_assert_eq!(merge.entry(), None);
                for source in &mut merge.sources {
                    source.fail_after = None;
                }
                merge.seek_first().unwrap();
                oracle.seek_first().unwrap();
            }
            prop_assert_eq!(merge.entry(), oracle.entry(), "after {:?}", step);
        }
    }
}

fn list(keys: &[&str], seq: u64) -> ListCursor {
    ListCursor::new(keys.iter().map(|key| Version::put(key.as_bytes(), seq, b"")).collect())
}

#[test]
fn a_merge_of_nothing_is_empty() {
    let mut merge = MergeCursor::<ListCursor>::new(Vec::new());
    merge.seek_first().unwrap();
    assert_eq!(merge.entry(), None);
    merge.seek_for_prev(b"a").unwrap();
    assert_eq!(merge.entry(), None);
}

#[test]
fn a_merge_that_has_run_off_an_end_stays_there() {
    let mut merge = MergeCursor::new(vec![list(&["a"], 2), list(&["a"], 1)]);
    let moves = [Move::First, Move::Last, Move::Seek(b"b".into()), Move::SeekForPrev(b"0".into())];
    for start in moves {
        start.apply(&mut merge).unwrap();
        match start {
            Move::First | Move::Seek(_) => while_it_stands(&mut merge, Cursor::next),
            _ => while_it_stands(&mut merge, Cursor::prev_key),
        }
        merge.next().unwrap();
        merge.prev_key().unwrap();
        merge.next_key(&mut Vec::new()).unwrap();
        assert_eq!(merge.entry(), None, "{start:?}");
    }
}

fn while_it_stands<C: Cursor>(cursor: &mut C, step: impl Fn(&mut C) -> crate::Result<()>) {
    while cursor.entry().is_some() {
        step(cursor).unwrap();
    }
}

#[test]
fn keys_are_copied_only_while_sources_wait_and_always_to_the_same_place() {
    let mut merge = MergeCursor::new(vec![list(&["b", "c", "d"], 2), list(&["b", "e"], 1)]);
    merge.seek_first().unwrap();
    merge.next().unwrap();
    assert_eq!((merge.waiting, merge.scratch.capacity()), (0, 0), "each source has its place");
    merge.seek(b"b").unwrap();
    assert_eq!(merge.waiting, 1, "the newer source has the key");
    merge.next().unwrap();
    assert_eq!((merge.waiting, &*merge.scratch), (0, &b"b"[..]));
    merge.prev_key().unwrap();
    assert_eq!(merge.entry(), None);
    merge.seek_for_prev(b"d").unwrap();
    merge.next().unwrap();
    assert_eq!((merge.waiting, &*merge.scratch), (0, &b"d"[..]), "it turned");
}

#[test]
fn a_source_at_the_key_that_the_merge_turns_at_takes_one_step() {
    let mut older = list(&["a", "b"], 1);
    older.fail_after = Some(9);
    let mut merge = MergeCursor::new(vec![list(&["b"], 2), older]);
    merge.seek_first().unwrap();
    merge.next().unwrap();
    assert_eq!(merge.entry().unwrap().seq, 2);
    let before = merge.sources[1].fail_after;
    merge.prev_key().unwrap();
    assert_eq!(merge.entry().unwrap().key, b"a");
    assert_eq!(merge.sources[1].fail_after, before.map(|left| left - 1), "it needs no seek");
}

#[test]
fn sources_that_are_placed_at_keys_that_share_much_choose_a_prefix_at_once() {
    for (count, prefix) in [(2u64, &b""[..]), (40, b"what many keys have in co")] {
        let one = |at| {
            let key = format!("what many keys have in common{at:02}");
            ListCursor::new(vec![Version::put(key.as_bytes(), 100 - at, b"")])
        };
        let mut merge = MergeCursor::new((0..count).map(one).collect());
        merge.seek_first().unwrap();
        assert_eq!(merge.prefix, prefix, "of {count}");
    }
}

#[test]
fn a_seek_that_hits_leaves_older_sources_unpositioned() {
    let mut merge =
        MergeCursor::new(vec![list(&["b", "d"], 3), list(&["c"], 2), list(&["a", "e"], 1)]);
    merge.seek(b"c").unwrap();
    assert_eq!(merge.entry().unwrap().seq, 2);
    assert_eq!(merge.sources[2].entry(), None, "the oldest source was not needed");
    merge.next().unwrap();
    assert_eq!(merge.entry().unwrap().key, b"d");
    merge.next().unwrap();
    assert_eq!(merge.entry().unwrap().key, b"e", "it was placed once the merge went on");
}

#[test]
fn a_source_whose_filter_rules_the_key_out_is_left_alone() {
    let mut newest = list(&["b", "d"], 3);
    newest.has_filter = true;
    let mut merge = MergeCursor::new(vec![newest, list(&["c"], 2)]);
    merge.seek(b"c").unwrap();
    assert_eq!(merge.entry().unwrap().key, b"c");
    assert_eq!(merge.sources[0].entry(), None);
    merge.prev_key().unwrap();
    assert_eq!(merge.entry().unwrap().key, b"b");
}

#[test]
fn older_versions_of_a_key_met_going_backward_move_no_other_source() {
    let versions = vec![Version::put(b"k", 9, b"new"), Version::put(b"k", 8, b"old")];
    let mut merge = MergeCursor::new(vec![ListCursor::new(versions), list(&["a", "z"], 1)]);
    merge.seek_last().unwrap();
    merge.prev_key().unwrap();
    assert_eq!(merge.entry().unwrap().seq, 9);
    merge.next().unwrap();
    assert_eq!((merge.entry().unwrap().seq, merge.waiting), (8, 1));
    assert_eq!(merge.sources[1].entry().unwrap().key, b"a", "it stays behind the current key");
    merge.next().unwrap();
    assert_eq!(merge.entry().unwrap().key, b"z");
}

#[test]
fn many_sources_come_out_in_order() {
    let mut all = Vec::new();
    let mut lists = Vec::new();
    for source in 0..40u64 {
        let versions: Vec<_> = (0..50u64)
            .map(|n| {
                Version::put(
                    ((n * 7919 + source * 104_729) % 1000).to_be_bytes(),
                    100 - source,
                    b"",
                )
            })
            .collect();
        let mut versions = versions;
        sort_versions(&mut versions);
        versions.dedup_by(|a, b| a.key == b.key);
        all.extend(versions.clone());
        lists.push(ListCursor::new(versions));
    }
    sort_versions(&mut all);
    let mut merge = MergeCursor::new(lists);
    merge.seek_first().unwrap();
    for version in &all {
        assert_eq!(merge.entry(), Some(version.as_entry()));
        merge.next().unwrap();
    }
    assert_eq!(merge.entry(), None);
}

#[test]
fn heads_are_taken_behind_what_keys_share_and_anew_once_that_has_passed() {
    let key = |n: u64| format!("table-17/row-{n:010}").into_bytes();
    let list = |source: u64| {
        let versions = (0..2000).map(|n| Version::put(key(n * 5 + source), 9 - source, b""));
        ListCursor::new(versions.collect())
    };
    let mut merge = MergeCursor::new((0..5).map(list).collect());
    merge.seek_first().unwrap();
    let mut ties = 0;
    for n in 0..10_000 {
        assert_eq!(merge.entry().unwrap().key, key(n));
        let before = merge.ties.get();
        merge.next().unwrap();
        ties += merge.ties.get().saturating_sub(before);
    }
    assert_eq!(merge.entry(), None);
    assert!(ties < 1000, "{ties} of about 20000 comparisons looked at whole keys");
    assert!(merge.prefix.starts_with(b"table-17/row-"));
}

/// The merge notices what keys share while it walks over them, not only at a seek. It notices soon,
/// even if the prefix has not changed for a long time.
#[test]
fn a_walk_into_keys_that_share_something_else_chooses_another_prefix_soon() {
    let row = |n: u64| format!("rows of one and the same table/{n:010}").into_bytes();
    let name = |n: u64| format!("the names of those who were asked/{n:010}").into_bytes();
    let list = |source: u64| {
        let same = (0..9000).map(|n| format!("all in both/{n}").into_bytes());
        let own =
            (0..5000).map(|n| row(n * 2 + source)).chain((0..5000).map(|n| name(n * 2 + source)));
        let mut versions: Vec<_> =
            same.chain(own).map(|key| Version::put(&key, 9 - source, b"")).collect();
        sort_versions(&mut versions);
        ListCursor::new(versions)
    };
    let mut merge = MergeCursor::new(vec![list(0), list(1)]);
    merge.seek_first().unwrap();
    let mut ties = std::collections::BTreeMap::<u8, u32>::new();
    while let Some(first) = merge.entry().map(|entry| entry.key[0]) {
        let before = merge.ties.get();
        merge.next().unwrap();
        *ties.entry(first).or_default() += merge.ties.get().saturating_sub(before);
    }
    assert!(ties[&b'a'] > 8184 && ties[&b'r'] < 5000 && ties[&b't'] < 100, "{ties:?}");
}

#[test]
fn a_merge_names_the_source_of_its_entry_and_holds_what_any_source_may() {
    let mut lists = vec![list(&["b", "d"], 3), list(&["a", "d"], 2), list(&[], 1)];
    lists.iter_mut().for_each(|list| list.has_filter = true);
    let mut merge = MergeCursor::new(lists);
    assert!(merge.source().is_none());
    let held = ["a", "b", "c", "d"].map(|key| merge.may_hold(key.as_bytes(), 0).unwrap());
    assert_eq!(held, [true, true, false, true]);
    merge.seek_first().unwrap();
    for (key, seq) in [("a", 2), ("b", 3), ("d", 3), ("d", 2)] {
        let shown = merge.source().unwrap().entry().unwrap();
        assert_eq!((shown.key, shown.seq), (key.as_bytes(), seq));
        merge.next().unwrap();
    }
    assert!(merge.source().is_none());
}

#[test]
fn keys_behind_an_equal_one_of_a_newer_source_are_counted_as_they_are_passed() {
    let lists = [["a", "b", "c"], ["b", "c", "d"], ["c", "d", "e"]];
    let mut merge = MergeCursor::new((0..3).map(|at| list(&lists[at], 9 - at as u64)).collect());
    merge.seek_first().unwrap();
    let mut passed = Vec::new();
    while merge.entry().is_some() {
        merge.next_key(&mut Vec::new()).unwrap();
        passed.push(merge.shadowed_count());
    }
    assert_eq!(passed, [0, 1, 3, 4, 4]);
}

/// The keys that a merge still passes on its way.
fn rest(
    merge: &mut MergeCursor<ListCursor>,
    step: impl Fn(&mut MergeCursor<ListCursor>),
) -> String {
    let mut keys = String::new();
    while let Some(key) = merge.key().map(<[u8]>::to_vec) {
        keys.push_str(str::from_utf8(&key).unwrap());
        step(merge);
    }
    keys
}

#[test]
fn only_a_merge_that_walks_the_same_way_skips() {
    let lists = [["a", "c", "e"], ["b", "c", "d"]];
    let merge = || MergeCursor::new((0..2).map(|at| list(&lists[at], 9 - at as u64)).collect());
    let (mut ahead, mut back) = (merge(), merge());
    ahead.seek_first().unwrap();
    ahead.skip_backward(0, b"b").unwrap();
    assert_eq!(rest(&mut ahead, |merge| merge.next().unwrap()), "abccde");
    back.seek_last().unwrap();
    back.skip_forward(0, Some(b"e")).unwrap();
    back.skip_forward(0, None).unwrap();
    assert_eq!(rest(&mut back, |merge| merge.prev_key().unwrap()), "edcba");
    back.seek_last().unwrap();
    back.skip_backward(1, b"c").unwrap();
    assert_eq!(rest(&mut back, |merge| merge.prev_key().unwrap()), "ecba");
}

#[test]
fn a_merge_that_turns_back_after_a_skip_passes_over_nothing_one_by_one() {
    let keys: Vec<String> = (0..1000).map(|nth| format!("{nth:03}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut merge = MergeCursor::new(vec![list(&["500+"], 9), list(&keys, 8)]);
    merge.seek_first().unwrap();
    merge.skip_forward(1, Some(b"999")).unwrap();
    assert_eq!(merge.key(), Some(&b"500+"[..]));
    merge.sources[1].fail_after = Some(6);
    merge.prev_key().unwrap();
    assert_eq!(merge.key(), Some(&b"500"[..]));
}

#[test]
fn a_source_that_fails_while_it_is_skipped_ends_the_merge() {
    let lists = [["a", "c", "e"], ["b", "c", "d"]];
    for is_back in [true, false] {
        let mut merge =
            MergeCursor::new((0..2).map(|at| list(&lists[at], 9 - at as u64)).collect());
        let skipped = if is_back {
            merge.seek_last().unwrap();
            merge.sources[1].fail_after = Some(0);
            merge.skip_backward(1, b"c")
        } else {
            merge.seek_first().unwrap();
            merge.sources[1].fail_after = Some(0);
            merge.skip_forward(1, Some(b"c"))
        };
        skipped.unwrap_err();
        assert_eq!(merge.entry(), None);
    }
}
