//! A scan: visible keys within bounds, in both directions.
//!
//! Where several keys in a row come from one block, it takes them as [`Rows`] and shows one after
//! the other, while its cursor stands on the last of them already.

use crate::blob::{ScanAhead, apart_len};
use crate::cursor::{MergeCursor, VisibleCursor, key_head};
use crate::engine::Engine;
use crate::env::sync::{Mutex, Rank};
use crate::env::{Plant, Reach, planted, reached, reached_if};
use crate::error::{DecodeError, Error, Result};
use crate::gap::Stretch;
use crate::mvcc::FirstEnd;
use crate::mvcc::expiry::EXPIRY_LEN;
use crate::pinned::Value;
use crate::read::source::Source;
use crate::table::{RowLimits, Rows};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

/// A scan takes rows of a source that has come first so many times in a row: rows beyond the next
/// key of another source are of no use, and the first ones cost allocations.
const LEAD_MIN: u32 = if cfg!(any(test, feature = "simulation")) { 1 } else { 6 };
/// So many steps pass before a scan looks for rows where it has just found none.
const PAUSE: u32 = if cfg!(any(test, feature = "simulation")) { 1 } else { 64 };
/// A scan takes so many rows at once at first, and twice as many each time, if it could.
const ROWS_MIN: usize = if cfg!(any(test, feature = "simulation")) { 2 } else { 8 };
const ROWS_MAX: usize = 64;

/// A scan's cursor.
pub(crate) struct Scan {
    /// Stands on the last row if there are rows.
    cursor: VisibleCursor<MergeCursor<Source>>,
    /// The row that is shown, if it is below the count of rows.
    at: usize,
    count: usize,
    rows: Option<Box<Rows>>,
    /// The number of steps forward before it is worth looking for rows.
    pause: u32,
    /// The number of rows to take.
    wanted: usize,
    /// True if each move fetches the value to which it leads, if that lies in a blob file.
    is_eager: bool,
    /// True if the scan stands at keys whose values cannot be read, and tells why. Otherwise the
    /// move fails that leads there.
    outlasts: bool,
    /// Why the value to which the last move has led cannot be read.
    refused: Option<Error>,
    /// Where to fetch such values; `None` if only keys are asked for, or if no table that the scan
    /// reads names a blob file.
    fetching: Option<Box<Fetching>>,
}

/// Fetches values that lie in blob files.
pub(super) struct Fetching {
    engine: Arc<Engine>,
    fill_cache: bool,
    /// What was read with values that the scan has come to.
    ahead: Mutex<ScanAhead>,
    /// That of the entry at which the cursor stands, if it lies there and was fetched.
    value: OnceLock<Value>,
}

impl Fetching {
    pub(super) fn new(engine: Arc<Engine>, fill_cache: bool) -> Fetching {
        let ahead = Mutex::new(Rank::ScanAhead, ScanAhead::default());
        Fetching { engine, fill_cache, ahead, value: OnceLock::new() }
    }
}

impl Scan {
    /// A scan of keys.
    pub(super) fn new(cursor: VisibleCursor<MergeCursor<Source>>) -> Scan {
        Scan {
            cursor,
            at: 0,
            count: 0,
            rows: None,
            pause: 0,
            wanted: ROWS_MIN,
            is_eager: false,
            outlasts: false,
            refused: None,
            fetching: None,
        }
    }

    /// From now on a value that cannot be read fails no move: the scan stands at its key, and
    /// [`Scan::refused`] tells why.
    pub(crate) fn outlast_refusals(&mut self) {
        self.outlasts = true;
    }

    /// Shows values, too. Those in blob files are fetched by each move or, if not, when they are
    /// asked for.
    pub(super) fn show_values(&mut self, is_eager: bool, fetching: Option<Box<Fetching>>) {
        (self.is_eager, self.fetching) = (is_eager, fetching);
    }

    /// After a move of the cursor.
    #[inline(always)]
    fn moved(&mut self, moved: Result<()>) -> Result<()> {
        if moved.is_ok() && self.cursor.is_stored() { Ok(()) } else { self.moved_otherwise(moved) }
    }

    /// The same, where no entry or another one than most is.
    #[inline(never)]
    fn moved_otherwise(&mut self, moved: Result<()>) -> Result<()> {
        self.refused = None;
        let is_separated = moved.is_ok() && self.cursor.separated().is_some();
        if is_separated && let Some(fetching) = &mut self.fetching {
            fetching.value.take();
        }
        let is_fetched = is_separated && self.is_eager;
        match moved.and_then(|()| if is_fetched { self.fetched().map(drop) } else { Ok(()) }) {
            Ok(()) => Ok(()),
            Err(error) => self.refuse(error),
        }
    }

    /// After a move that has failed. If the error is of the value alone to which it has led, the
    /// scan can stand there and go on.
    #[cold]
    fn refuse(&mut self, error: Error) -> Result<()> {
        if self.outlasts && self.cursor.has_entry() && !error.is_closed() {
            self.refused = Some(error);
            return Ok(());
        }
        self.cursor.leave();
        Err(error)
    }

    /// Why the value at the scan's position is not shown: it is damaged, lies in a file that cannot
    /// be read, is too long to be read as a whole, or cannot be made of its operands.
    #[inline]
    pub(crate) fn refused(&self) -> Option<&Error> {
        let is_met = self.count == 0 && !self.cursor.is_stored() && self.cursor.has_entry();
        self.refused.as_ref().filter(|_| is_met)
    }

    /// True if the value at the scan's position lies in a blob file.
    #[inline(always)]
    pub(crate) fn is_separated(&self) -> bool {
        self.count == 0 && !self.cursor.is_stored() && self.cursor.separated().is_some()
    }

    /// The value at the scan's position, which lies in a blob file. Once the database is closed,
    /// only one that was fetched before is there.
    pub(crate) fn fetched(&self) -> Result<&Value> {
        let Some(entry) = self.cursor.separated() else {
            unreachable!("a value that lies with its key is fetched");
        };
        let Some(fetching) = &self.fetching else { return Err(self.unnamed(entry.key)) };
        if let Some(value) = fetching.value.get() {
            return Ok(value);
        }
        reached(Reach::BlobValueShown);
        fetching.engine.check_open()?;
        let fetcher = fetching.engine.fetcher(fetching.fill_cache);
        let value = fetching.ahead.lock().fetch(&fetcher, &entry)?;
        Ok(fetching.value.get_or_init(|| Value::in_block(value)))
    }

    /// The value at the scan's position is said to lie in a blob file, and its table names none. So
    /// nothing keeps the file, if there is one.
    #[cold]
    fn unnamed(&self, key: &[u8]) -> Error {
        let Some(source) = self.cursor.shown().and_then(MergeCursor::source) else {
            unreachable!("an entry has a source");
        };
        let detail = "an entry has its value in a blob file, and the table names no blob file";
        source.damaged(DecodeError::damaged(detail)).for_key(key)
    }

    /// The length of the value at the scan's position, which lies in a blob file. It is not read.
    #[cold]
    pub(crate) fn separated_len(&self) -> u64 {
        let entry = self.cursor.separated();
        entry.and_then(|entry| apart_len(&entry).ok()).unwrap_or(0)
    }

    /// True if the scan holds what fetches values.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn fetches(&self) -> bool {
        self.fetching.is_some()
    }

    #[cfg(test)]
    pub(super) fn source_count(&self) -> usize {
        self.cursor.inner().source_count()
    }

    /// The rows, if the scan stands on one of them.
    #[inline(always)]
    fn shown_rows(&self) -> Option<&Rows> {
        if self.count > 0 { self.rows.as_deref() } else { None }
    }

    /// Leaves the rows. The cursor stays on the last of them.
    #[inline]
    fn leave_rows(&mut self) {
        if self.count > 0 {
            (self.at, self.count) = (0, 0);
            if let Some(rows) = &mut self.rows {
                rows.clear();
            }
        }
    }

    /// What comes before each move but a step.
    fn begin(&mut self) {
        self.leave_rows();
        (self.pause, self.wanted) = (0, ROWS_MIN);
    }

    /// Moves to the smallest key.
    pub(crate) fn seek_first(&mut self) -> Result<()> {
        self.begin();
        let moved = self.cursor.seek_first();
        self.moved(moved)
    }

    /// Moves to the largest key.
    pub(crate) fn seek_last(&mut self) -> Result<()> {
        self.begin();
        let moved = self.cursor.seek_last();
        self.moved(moved)
    }

    /// Moves to the smallest key at or above `key`.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.begin();
        let moved = self.cursor.seek(key);
        self.moved(moved)
    }

    /// Moves to the largest key at or below `key`.
    pub(crate) fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.begin();
        let moved = self.cursor.seek_for_prev(key);
        self.moved(moved)
    }

    /// Moves to the next key. Does nothing if there is no entry.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        if self.count > 0 {
            if self.at + 1 < self.count {
                self.at += 1;
                return Ok(());
            }
            self.leave_rows();
        }
        if self.pause > 0 {
            self.pause -= 1;
        } else if self.cursor.inner().lead() >= LEAD_MIN && self.take_rows() {
            return Ok(());
        }
        let moved = self.cursor.next();
        self.moved(moved)
    }

    /// Moves to the previous key. Does nothing if there is no entry.
    pub(crate) fn prev(&mut self) -> Result<()> {
        if self.count > 0 && self.is_back_in_rows()? {
            return Ok(());
        }
        let moved = self.cursor.prev();
        self.moved(moved)
    }

    /// Moves to the row before. At the first row, leaves the rows and has the cursor stand there.
    #[cold]
    fn is_back_in_rows(&mut self) -> Result<bool> {
        if self.at > 0 {
            self.at -= 1;
            return Ok(true);
        }
        reached(Reach::RowsLeftBackward);
        let key = self.shown_rows().map_or_else(Vec::new, |rows| rows.key(0).to_vec());
        self.begin();
        self.cursor.seek_for_prev(&key)?;
        Ok(false)
    }

    /// Takes the keys that come next and stands on the first of them. False if there are none that
    /// can be taken.
    #[inline(never)]
    fn take_rows(&mut self) -> bool {
        let rows = self.rows.get_or_insert_with(Box::default);
        let wanted = self.wanted;
        let mut is_bounded = false;
        let has_more = self.cursor.go_alone(|merge, point, is_below| {
            merge.go_alone(|source, next| {
                is_bounded = next.is_some();
                let limits =
                    RowLimits { point, count: wanted, head: next.map_or(u64::MAX, key_head) };
                source.take_rows(rows, limits, |key| {
                    let is_before = next.is_none_or(|next| key < next);
                    (is_before || planted(Plant::RowsBeyondTheNext)) && is_below(key)
                })
            })
        });
        (self.at, self.count) = (0, if has_more.is_some() { rows.len() } else { 0 });
        self.pause = match has_more {
            _ if self.count == wanted => 0,
            // What comes then is a step for the cursor.
            _ if self.count > 0 => 1,
            Some(false) => 0,
            _ => PAUSE,
        };
        self.wanted = match has_more {
            Some(true) if self.count < wanted => ROWS_MIN,
            _ => (2 * wanted).min(ROWS_MAX),
        };
        reached_if(Reach::RowsBeforeAnother, || is_bounded && self.count > 0);
        self.count > 0
    }

    /// Drops the entry. There is none until the next seek.
    pub(crate) fn leave(&mut self) {
        self.begin();
        self.cursor.leave();
    }

    /// True if the scan stands on a key.
    #[inline]
    pub(crate) fn has_entry(&self) -> bool {
        self.cursor.has_entry()
    }

    /// The key at the scan's position.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self.shown_rows() {
            Some(rows) => Some(rows.key(self.at)),
            None => self.cursor.key(),
        }
    }

    /// The key and value at the scan's position. A value that lies in a blob file is not there.
    #[inline]
    pub(crate) fn entry(&self) -> Option<(&[u8], &[u8])> {
        match self.shown_rows() {
            Some(rows) => rows.entry(self.at),
            None => self.cursor.entry(),
        }
    }

    /// The key at the scan's position and its value, which is copied only if it is short or was
    /// made of operands.
    #[inline(always)]
    pub(crate) fn pinned(&self) -> Option<(&[u8], Value)> {
        if let Some(rows) = self.shown_rows() {
            let (key, value) = rows.entry(self.at)?;
            let value = match Value::short(value) {
                Some(value) => value,
                None => Value::kept(rows.value_pin(self.at)?),
            };
            return Some((key, value));
        }
        self.pinned_by_cursor()
    }

    #[inline(always)]
    fn pinned_by_cursor(&self) -> Option<(&[u8], Value)> {
        if self.cursor.is_stored() {
            return self.cursor.inner().source()?.pinned();
        }
        self.pinned_otherwise()
    }

    /// The same of another entry than most.
    #[inline(never)]
    fn pinned_otherwise(&self) -> Option<(&[u8], Value)> {
        let cursor = &self.cursor;
        if self.refused().is_some() {
            return None;
        }
        if self.is_separated() {
            // A scan that is asked for it has fetched it.
            let value = self.fetching.as_ref()?.value.get()?;
            return Some((cursor.key()?, value.clone()));
        }
        match cursor.folded() {
            None if cursor.ends() => {
                let (key, stored) = cursor.shown()?.source()?.pinned()?;
                Some((key, stored.slice(EXPIRY_LEN..)))
            }
            None => cursor.shown()?.source()?.pinned(),
            Some(value) => Some((cursor.key()?, Value::copied(value))),
        }
    }

    /// When the value of the current entry ends, in milliseconds since 1970, if it does.
    #[inline]
    pub(crate) fn expires_ms(&self) -> Option<u64> {
        if self.count > 0 { None } else { self.cursor.expires_ms() }
    }

    /// The first end among the values that were shown, if such ends are noted.
    pub(crate) fn first_end(&self) -> Option<&FirstEnd> {
        self.cursor.first_end()
    }

    /// True if a row of dead keys waits to be taken.
    #[inline]
    pub(crate) fn has_stretch(&self) -> bool {
        self.cursor.has_stretch()
    }

    /// The longest row of dead keys since this was asked last, if one is worth a gap.
    pub(crate) fn take_stretch(&mut self) -> Option<Stretch> {
        self.cursor.take_stretch()
    }
}

/// The bounds of the keys that a scan may show.
#[derive(Clone, Debug)]
pub(crate) struct ScanBounds {
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

impl ScanBounds {
    pub(crate) fn borrowed(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        (self.lower.as_ref().map(Vec::as_slice), self.upper.as_ref().map(Vec::as_slice))
    }

    /// True if no key can lie within the bounds.
    pub(crate) fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => lower >= upper,
            _ => false,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
