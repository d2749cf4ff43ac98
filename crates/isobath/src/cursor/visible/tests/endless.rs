//! Scans forward over slices with keys out of order or out of bounds come to an end, whatever they
//! show.

use super::*;
use crate::cursor::{ConcatCursor, SliceProvider};
use crate::error::Error;
use std::cell::Cell;
use std::rc::Rc;

/// A cursor of which all of its kind may move so many times together.
struct Counted {
    list: ListCursor,
    left: Rc<Cell<u32>>,
}

const MOVES_MAX: u32 = 20_000;

impl Counted {
    fn count(&mut self) -> Result<&mut ListCursor> {
        let left = self.left.get().checked_sub(1).ok_or_else(Error::planted)?;
        self.left.set(left);
        Ok(&mut self.list)
    }
}

impl Cursor for Counted {
    fn seek_first(&mut self) -> Result<()> {
        self.count()?.seek_first()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.count()?.seek_last()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.count()?.seek(key)
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.count()?.seek_for_prev(key)
    }

    fn next(&mut self) -> Result<()> {
        self.count()?.next()
    }

    fn prev_key(&mut self) -> Result<()> {
        self.count()?.prev_key()
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.list.entry()
    }
}

/// Slices with the bounds that they had before they were forged.
struct Forged {
    slices: Vec<(Vec<u8>, Vec<u8>, Vec<Version>)>,
    left: Rc<Cell<u32>>,
}

impl Forged {
    fn of(mut versions: Vec<Version>, slice_len: usize, left: &Rc<Cell<u32>>) -> Forged {
        sort_versions(&mut versions);
        let slices = versions.chunk_by(|one, next| one.key == next.key).collect::<Vec<_>>();
        let slices = slices.chunks(slice_len).map(|keys| {
            let versions = keys.concat();
            let ends = |at: Option<&Version>| at.map_or_else(Vec::new, |at| at.key.clone());
            (ends(versions.first()), ends(versions.last()), versions)
        });
        Forged { slices: slices.collect(), left: left.clone() }
    }
}

impl SliceProvider for Forged {
    type Cursor = Counted;

    fn count(&self) -> usize {
        self.slices.len()
    }

    fn smallest(&self, index: usize) -> &[u8] {
        &self.slices[index].0
    }

    fn largest(&self, index: usize) -> &[u8] {
        &self.slices[index].1
    }

    fn damaged(_: &Counted) -> Error {
        Error::cancelled()
    }

    fn open(&self, index: usize) -> Result<Counted> {
        let list = ListCursor::forged(self.slices[index].2.clone());
        Ok(Counted { list, left: self.left.clone() })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    #[test]
    fn no_forged_key_lets_a_scan_forward_go_on_for_ever(
        sources in sources(4),
        slice_len in 1usize..8,
        forged in prop::collection::vec((0usize..4, any::<prop::sample::Index>(), key()), 1..8),
        covers in prop::collection::vec((0usize..5, 0u64..5, key(), prop::option::of(key())), 0..4),
        point in 0u64..60,
    ) {
        let covers = Drawn::of(sources.len(), covers);
        let left = Rc::new(Cell::new(MOVES_MAX));
        let slices = sources.iter().enumerate().map(|(nth, versions)| {
            let mut slices = Forged::of(versions.clone(), slice_len, &left);
            for (_, at, key) in forged.iter().filter(|(source, ..)| *source == nth) {
                if !slices.slices.is_empty() {
                    let versions = &mut at.get_mut(&mut slices.slices).2;
                    at.get_mut(versions).key.clone_from(key);
                }
            }
            ConcatCursor::new(slices)
        });
        let merge = MergeCursor::new(slices.collect());
        let mut cursor = VisibleCursor::new(merge, point, Bound::Unbounded, Bound::Unbounded);
        cursor.hiding(Some(Box::new(covers)));
        let mut walked = cursor.seek_first();
        while walked.is_ok() && cursor.has_entry() {
            walked = cursor.next();
        }
        prop_assert!(left.get() > 0);
    }
}
