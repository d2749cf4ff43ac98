//! Tests what a walk over the slices of one run returns, and which slices it opens.

use super::super::fixtures::{ListCursor, Version};
use super::super::merge::tests::{moves, sources};
use super::*;
use proptest::prelude::*;
use std::cell::Cell;

struct Slices {
    slices: Vec<Vec<Version>>,
    opened: Cell<usize>,
    /// From this opening on, each cursor fails after this many movements, and every third opening
    /// fails.
    fails_from: Option<usize>,
}

impl SliceProvider for Slices {
    type Cursor = ListCursor;
    fn count(&self) -> usize {
        self.slices.len()
    }
    fn smallest(&self, index: usize) -> &[u8] {
        &self.slices[index][0].key
    }
    fn largest(&self, index: usize) -> &[u8] {
        &self.slices[index].last().unwrap().key
    }
    fn damaged(_: &ListCursor) -> Error {
        Error::planted()
    }
    fn open(&self, index: usize) -> Result<ListCursor> {
        let nth = self.opened.get();
        self.opened.set(nth + 1);
        let mut list = ListCursor::new(self.slices[index].clone());
        if self.fails_from.is_some_and(|first| nth >= first) {
            if nth % 3 == 2 {
                return Err(Error::closed());
            }
            list.fail_after = Some(nth % 5);
        }
        Ok(list)
    }
}

/// Cuts sorted versions into slices at key boundaries.
fn cut(mut versions: Vec<Version>, slice_len: usize) -> Slices {
    super::super::fixtures::sort_versions(&mut versions);
    let mut slices: Vec<Vec<Version>> = Vec::new();
    for version in versions {
        match slices.last_mut() {
            Some(last) if last.len() < slice_len || last.last().unwrap().key == version.key => {
                last.push(version);
            }
            _ => slices.push(vec![version]),
        }
    }
    Slices { slices, opened: Cell::new(0), fails_from: None }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn slices_in_a_row_move_as_one_cursor(
        source in sources(4),
        slice_len in 1usize..6,
        moves in moves(),
    ) {
        let versions = source.concat();
        let mut oracle = ListCursor::new(versions.clone());
        let mut concat = ConcatCursor::new(cut(versions, slice_len));
        for step in moves {
            step.apply(&mut oracle).unwrap();
            step.apply(&mut concat).unwrap();
            prop_assert_eq!(concat.entry(), oracle.entry(), "after {:?}", step);
            prop_assert_eq!(concat.current().is_some(), concat.entry().is_some());
        }
    }

    #[test]
    fn a_slice_that_fails_leaves_no_entry_and_a_seek_that_succeeds_starts_afresh(
        source in sources(4),
        slice_len in 1usize..6,
        fails_from in 0usize..4,
        moves in moves(),
    ) {
        let versions = source.concat();
        let mut oracle = ListCursor::new(versions.clone());
        let mut slices = cut(versions, slice_len);
        slices.fails_from = Some(fails_from);
        let mut concat = ConcatCursor::new(slices);
        let failed = |concat: &ConcatCursor<Slices>| {
            concat.open.as_ref().map_or(0, |(_, cursor)| cursor.failed)
        };
        for step in moves {
            let (before, opened) = (failed(&concat), concat.slices.opened.get());
            let moved = step.apply(&mut concat);
            if concat.slices.opened.get() == opened {
                prop_assert_eq!(moved.is_err(), failed(&concat) > before, "{:?}", &step);
            } else if moved.is_ok() {
                prop_assert_eq!(failed(&concat), 0);
            }
            if moved.is_err() {
                prop_assert_eq!(concat.entry(), None);
                prop_assert!(concat.current().is_none());
                if let Some((_, cursor)) = &mut concat.open {
                    cursor.fail_after = None;
                }
                oracle = ListCursor::new(concat.slices.slices.concat());
            } else {
                step.apply(&mut oracle).unwrap();
                prop_assert_eq!(concat.entry(), oracle.entry(), "after {:?}", step);
            }
        }
    }
}

#[test]
fn keys_from_the_least_to_the_greatest_of_a_slice_may_be_held_and_keys_between_slices_are_not() {
    let versions = [1u8, 3, 5, 7, 9, 11].map(|n| Version::put([n], 1, b"")).to_vec();
    let concat = ConcatCursor::new(cut(versions, 2));
    let held: Vec<u8> = (0..13).filter(|key| concat.may_hold(&[*key], 0).unwrap()).collect();
    assert_eq!(held, [1, 2, 3, 5, 6, 7, 9, 10, 11]);
}

#[test]
fn a_slice_is_opened_only_when_wanted_and_kept_open_within_it() {
    let versions = (0..9u8).map(|n| Version::put([n], 1, b"")).collect();
    let mut concat = ConcatCursor::new(cut(versions, 3));
    assert_eq!(concat.slices.opened.get(), 0);
    concat.seek(&[4]).unwrap();
    concat.seek(&[3]).unwrap();
    assert_eq!(concat.slices.opened.get(), 1);
    assert!(!concat.may_hold(&[9], 0).unwrap());
    concat.seek(&[9]).unwrap();
    assert_eq!((concat.entry(), concat.slices.opened.get()), (None, 1));
    concat.seek(&[5]).unwrap();
    concat.next().unwrap();
    assert_eq!((concat.entry().unwrap().key, concat.slices.opened.get()), (&[6u8][..], 2));
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "slices that are read one after the other share keys")]
fn slices_that_share_one_key_are_noticed() {
    let slices = vec![vec![Version::put("a", 3, "")], vec![Version::put("a", 2, "")]];
    ConcatCursor::new(Slices { slices, opened: Cell::new(0), fails_from: None });
}
