//! Scans over slices that a forger wrote come to an end, whatever they show: none steps from one
//! key to another and back for ever.

use super::fixtures::*;
use super::forged::{FORMS, each_forged, fixture, sample};
use crate::cursor::{Cursor, Entry, MergeCursor, VisibleCursor};
use crate::error::{Error, Result};
use crate::format::Lsn;
use crate::gap::{Gaps, Stretch};
use crate::span::{Cover, Covers};
use crate::table::{SliceMeta, Table, TableCursor};
use crate::vfs::FileAccess;
use std::ops::Bound;
use std::sync::Arc;

/// A cursor that may move so many times.
struct Counted {
    inner: TableCursor,
    moves: u32,
}

const MOVES_MAX: u32 = 5000;

impl Counted {
    fn count(&mut self) -> Result<&mut TableCursor> {
        self.moves += 1;
        if self.moves > MOVES_MAX { Err(Error::planted()) } else { Ok(&mut self.inner) }
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
        self.inner.entry()
    }
}

/// A range delete in the first source, the newest thing that the reader sees.
struct OneCover;

impl Covers for OneCover {
    fn cover(&self, key: &[u8], point: Lsn) -> Result<Option<(Cover, usize)>> {
        let (start, end) = (b"key0045"[..].into(), Some(b"key0070"[..].into()));
        let cover = Cover { seq: point - 1, start, end };
        Ok(cover.holds(key).then_some((cover, 0)))
    }
}

/// Scans a slice beneath a newer source, in which some keys of it are. Of half of its keys a reader
/// at `point` sees an older version, or none. False without an end.
fn scan(tables: [&Arc<Table>; 2], point: Lsn, is_back: bool) -> bool {
    let source = |table: &Arc<Table>| Counted { inner: table.cursor(true), moves: 0 };
    let merge = MergeCursor::new(tables.map(source).into());
    let mut cursor = VisibleCursor::new(merge, point, Bound::Unbounded, Bound::Unbounded);
    let mut gaps = Gaps::default();
    gaps.announce(&Stretch::of(b"key0010", b"key0030"));
    gaps.touched(point, point);
    cursor.jumping(Some(Arc::new(gaps)), 0);
    cursor.hiding(Some(Box::new(OneCover)));
    let mut walked = if is_back { cursor.seek_last() } else { cursor.seek_first() };
    while walked.is_ok() && cursor.has_entry() {
        walked = if is_back { cursor.prev() } else { cursor.next() };
    }
    walked.err().is_none_or(|error| error.to_string() != Error::planted().to_string())
}

#[test]
fn no_forged_byte_lets_a_scan_go_on_for_ever() {
    let newer = Fixture::new();
    let of_newer =
        (0..30u64).step_by(4).map(|i| Version::put(format!("key{:04}", i * 3), 5900 + i, "newer"));
    let newer = newer.open(&newer.write(&Default::default(), &[(3, of_newer.collect())]), 0);
    for (form, ..) in FORMS {
        let (fixture, slices) = fixture(form);
        let meta: &SliceMeta = slices.iter().find(|meta| meta.family == 3).unwrap();
        let open = || Table::open(fixture.context(FileAccess::Positional, 1 << 20), meta);
        assert_eq!(meta.entries, sample()[1].1.len() as u64);
        let (mut opened, mut endless) = (0, Vec::new());
        each_forged(&fixture, |at, place| {
            let Ok(table) = open() else { return };
            opened += 1;
            for (point, is_back) in [(5150, false), (5150, true), (9000, false), (9000, true)] {
                if !scan([&newer, &table], point, is_back) {
                    endless.push((at.offset, place, point, is_back));
                }
            }
        });
        assert!(opened > 1000, "{opened}");
        assert_eq!(endless, [], "{form:?}");
    }
}
