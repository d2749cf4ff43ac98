//! Reading in order: [`Range`], an iterator from both ends, and [`Cursor`], which can be moved about.
//!
//! Both see the database at one read point and keep what they read alive: the family's memtables and files as of
//! the moment they were opened. Long-lived ones hold memory and disk space back. They do not keep the database open: once it is
//! closed they answer [`ErrorKind::Closed`](crate::ErrorKind::Closed); what they gave before stays valid.

use crate::error::{Error, Result};
use crate::pinned::Value;
use crate::read::{Pin, ReadAt, Scan, ScanBounds};

/// A cursor over the visible keys of a family, within bounds. Moves in both directions; has no entry before the
/// first move and after running off an end. After a move that failed it has none either, and steps fail alike until
/// it is told by a seek where to go on. Once the database is closed every move fails with
/// [`ErrorKind::Closed`](crate::ErrorKind::Closed).
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("cursor")?;
/// for key in ["a", "b", "d"] {
///     db.put(key, "value")?;
/// }
/// let mut cursor = db.cursor(..)?;
/// cursor.seek("c")?;
/// assert_eq!(cursor.key(), Some(&b"d"[..]));
/// cursor.prev()?;
/// assert_eq!(cursor.key(), Some(&b"b"[..]));
/// # Ok(())
/// # }
/// ```
pub struct Cursor {
    pin: Pin,
    scan: Scan,
    /// Why the last move failed. A step from there would look like the end, so it fails too.
    failure: Option<Box<Error>>,
}

impl Cursor {
    pub(crate) fn new(at: ReadAt<'_>, bounds: &ScanBounds) -> Result<Cursor> {
        let pin = Pin::new(at)?;
        Ok(Cursor { scan: pin.scan(bounds)?, pin, failure: None })
    }

    /// Runs a seek, which forgets a failure before it.
    fn sought(&mut self, seek: impl FnOnce(&mut Scan) -> Result<()>) -> Result<()> {
        self.failure = None;
        let sought = self.pin.check_open().and_then(|()| seek(&mut self.scan));
        sought.map_err(|error| self.fail(error))
    }

    /// Runs a step, unless the move before failed.
    #[inline]
    fn stepped(&mut self, step: impl FnOnce(&mut Scan) -> Result<()>) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err((**failure).clone());
        }
        let stepped = self.pin.check_open().and_then(|()| step(&mut self.scan));
        stepped.map_err(|error| self.fail(error))
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.failure = Some(Box::new(error.clone()));
        error
    }

    /// Moves to the least key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.sought(Scan::seek_first)
    }

    /// Moves to the greatest key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.sought(Scan::seek_last)
    }

    /// Moves to the least key at or above `key`.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.sought(|scan| scan.seek(key.as_ref()))
    }

    /// Moves to the greatest key at or below `key`.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.sought(|scan| scan.seek_for_prev(key.as_ref()))
    }

    /// Moves to the next key. Without an entry it stays without.
    #[allow(clippy::should_implement_trait)] // A cursor lends its entries, which an iterator cannot.
    pub fn next(&mut self) -> Result<()> {
        self.stepped(Scan::next)
    }

    /// Moves to the key before.
    pub fn prev(&mut self) -> Result<()> {
        self.stepped(Scan::prev)
    }

    /// True if the cursor stands on a key.
    pub fn is_valid(&self) -> bool {
        self.scan.entry().is_some()
    }

    /// The key, borrowed until the next move.
    pub fn key(&self) -> Option<&[u8]> {
        self.scan.entry().map(|(key, _)| key)
    }

    /// The value, borrowed until the next move.
    pub fn value(&self) -> Option<&[u8]> {
        self.scan.entry().map(|(_, value)| value)
    }

    /// Key and value, borrowed until the next move.
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.scan.entry()
    }

    /// The value, kept alive without being copied.
    pub fn pinned_value(&self) -> Option<Value> {
        self.scan.entry()?;
        Some(self.scan.inner().source()?.value())
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Cursor(at {:?})",
            self.key().map(<[u8]>::escape_ascii).map(|key| key.to_string())
        )
    }
}

/// The keys of a range with their values: ascending from the front, descending from the back, until both meet.
/// After an error it ends. Once the database is closed, by [`Db::close`](crate::Db::close) or as its last handle went, the next
/// item is [`ErrorKind::Closed`](crate::ErrorKind::Closed); keys and values that were yielded before stay valid.
pub struct Range {
    /// Both ends read the same view at the same point. An error of opening is yielded once.
    pin: Option<Result<Pin>>,
    bounds: ScanBounds,
    front: Option<Scan>,
    back: Option<Scan>,
    /// What the back has yielded last, for the front to stop at, and the other way round.
    front_key: Vec<u8>,
    back_key: Vec<u8>,
    wants_values: bool,
}

/// Which end of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl Range {
    pub(crate) fn new(at: Result<ReadAt<'_>>, bounds: ScanBounds) -> Range {
        let pin = Some(at.and_then(Pin::new));
        let (front_key, back_key) = (Vec::new(), Vec::new());
        Range { pin, bounds, front: None, back: None, front_key, back_key, wants_values: true }
    }

    /// The keys alone: nothing is pinned for their values.
    pub fn keys(mut self) -> Keys {
        self.wants_values = false;
        Keys(self)
    }

    /// The values alone.
    pub fn values(self) -> Values {
        Values(self)
    }

    /// Moves an end to its next key, opening its scan if this is its first move.
    fn advance(&mut self, end: End) -> Result<()> {
        if let Some(Ok(pin)) = &self.pin {
            pin.check_open()?;
        }
        let scan = if end == End::Front { &mut self.front } else { &mut self.back };
        match (scan, end) {
            (Some(scan), End::Front) => scan.next(),
            (Some(scan), End::Back) => scan.prev(),
            (scan, end) => {
                let pin = match self.pin.take() {
                    Some(Ok(pin)) => pin,
                    Some(Err(error)) => return Err(error),
                    None => return Ok(()),
                };
                let mut opened = pin.scan(&self.bounds)?;
                self.pin = Some(Ok(pin));
                if end == End::Front {
                    opened.seek_first()?
                } else {
                    opened.seek_last()?
                }
                *scan = Some(opened);
                Ok(())
            }
        }
    }

    fn step(&mut self, end: End) -> Option<Result<(Value, Value)>> {
        self.pin.as_ref()?;
        if let Err(error) = self.advance(end) {
            self.pin = None;
            return Some(Err(error));
        }
        let (mine, other) = match end {
            End::Front => (self.front.as_ref(), self.back.is_some().then_some(&self.back_key)),
            End::Back => (self.back.as_ref(), self.front.is_some().then_some(&self.front_key)),
        };
        let scan = mine?;
        let entry = scan.entry().filter(|(key, _)| match (end, other) {
            (_, None) => true,
            (End::Front, Some(other)) => *key < other.as_slice(),
            (End::Back, Some(other)) => *key > other.as_slice(),
        });
        let Some((key, _)) = entry else {
            self.pin = None;
            return None;
        };
        let value = match scan.inner().source() {
            Some(source) if self.wants_values => source.value(),
            _ => Value::copied(&[]),
        };
        let item = (Value::copied(key), value);
        let last = if end == End::Front { &mut self.front_key } else { &mut self.back_key };
        last.clear();
        last.extend_from_slice(&item.0);
        Some(Ok(item))
    }
}

impl Iterator for Range {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(End::Front)
    }
}

impl DoubleEndedIterator for Range {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(End::Back)
    }
}

impl std::iter::FusedIterator for Range {}

/// The keys of a range: see [`Range::keys`].
#[derive(Debug)]
pub struct Keys(Range);

/// The values of a range: see [`Range::values`].
#[derive(Debug)]
pub struct Values(Range);

/// One half of the items of a range.
macro_rules! half {
    ($type:ident, $half:tt) => {
        impl Iterator for $type {
            type Item = Result<Value>;

            fn next(&mut self) -> Option<Self::Item> {
                self.0.next().map(|item| item.map(|item| item.$half))
            }
        }

        impl DoubleEndedIterator for $type {
            fn next_back(&mut self) -> Option<Self::Item> {
                self.0.next_back().map(|item| item.map(|item| item.$half))
            }
        }

        impl std::iter::FusedIterator for $type {}
    };
}

half!(Keys, 0);
half!(Values, 1);

impl std::fmt::Debug for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Range({:?})", self.bounds)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::env::Env;
    use crate::vfs::{Fault, FileOp, MemoryFs};
    use crate::{Db, Options};
    use std::collections::BTreeMap;
    use std::ops::Bound;
    use std::sync::Arc;

    fn open(fs: &MemoryFs) -> Db {
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        Options::new().env(env).open("/db").unwrap()
    }

    /// Some keys in a table, some in memory, some in both.
    fn filled(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut contents = BTreeMap::new();
        for (round, keys) in [[1, 3, 5, 9], [3, 4, 7, 9]].into_iter().enumerate() {
            for key in keys {
                // So long that a table's end, read at once, is not all of it.
                let value = vec![round as u8; 3000 + usize::from(key)];
                db.put([key], &value).unwrap();
                contents.insert(vec![key], value);
            }
            if round == 0 {
                db.flush().unwrap();
            }
        }
        db.delete([5]).unwrap();
        contents.remove(&vec![5]);
        contents
    }

    #[test]
    fn both_ends_of_a_range_meet_wherever_that_is() {
        let db = open(&MemoryFs::new());
        let contents = filled(&db);
        for (lower, upper) in
            [(None, None), (Some(3), Some(9)), (Some(4), None), (Some(9), Some(2))]
        {
            let bound = |key: Option<u8>| key.map_or(Bound::Unbounded, |k| Bound::Included([k]));
            let bounds = (bound(lower), bound(upper));
            let inside = |key: u8| lower.is_none_or(|l| key >= l) && upper.is_none_or(|u| key <= u);
            let expected: Vec<_> = contents.iter().filter(|(key, _)| inside(key[0])).collect();
            // Each choice of ends for the first pulls; all after those come from the front.
            for choice in 0..1u32 << 7 {
                for wants_values in [true, false] {
                    let range = db.range(bounds);
                    let without = |key: Result<Value>| key.map(|key| (key, Value::default()));
                    let mut range: Box<dyn DoubleEndedIterator<Item = _>> = match wants_values {
                        true => Box::new(range),
                        false => Box::new(range.keys().map(without)),
                    };
                    let mut left = expected.as_slice();
                    for pull in 0..9 {
                        let is_back = choice & 1 << pull != 0;
                        let taken = if is_back { left.split_last() } else { left.split_first() };
                        let item = if is_back { range.next_back() } else { range.next() };
                        let item = item.map(Result::unwrap);
                        left = taken.map_or(left, |(_, rest)| rest);
                        let taken = taken.map(|(item, _)| *item);
                        assert_eq!(
                            item.as_ref().map(|item| &*item.0),
                            taken.map(|item| &item.0[..])
                        );
                        let value = taken.map(|item| if wants_values { &item.1[..] } else { &[] });
                        assert_eq!(item.as_ref().map(|item| &*item.1), value);
                    }
                    assert!(left.is_empty() && range.next().is_none());
                    assert!(range.next_back().is_none());
                }
            }
        }
    }

    #[test]
    fn a_range_that_fails_says_so_once_and_ends() {
        let fs = MemoryFs::new();
        let db = open(&fs);
        filled(&db);
        let family = db.family("brief").unwrap();
        db.drop_family(&family).unwrap();
        let mut range = family.range(..);
        assert_eq!(range.next_back().unwrap().unwrap_err().name(), "UNKNOWN_FAMILY");
        assert!(range.next().is_none() && range.next_back().is_none());
        db.close().unwrap();
        for is_back in [false, true] {
            let db = open(&fs);
            fs.inject(Fault::on(FileOp::Read).forever());
            let mut range = db.range(..);
            let item = if is_back { range.next_back() } else { range.next() };
            assert!(item.unwrap().is_err());
            fs.clear_faults();
            assert!(range.next().is_none() && range.next_back().is_none());
            assert_eq!(db.range(..).count(), 5);
        }
    }

    #[test]
    fn after_a_failed_move_steps_fail_alike_until_a_seek() {
        let fs = MemoryFs::new();
        let db = open(&fs);
        filled(&db);
        db.close().unwrap();
        let db = open(&fs);
        let mut cursor = db.cursor(..).unwrap();
        fs.inject(Fault::on(FileOp::Read).forever());
        let failure = cursor.seek_to_first().unwrap_err().to_string();
        fs.clear_faults();
        for _ in 0..2 {
            assert_eq!(cursor.next().unwrap_err().to_string(), failure);
            assert_eq!(cursor.prev().unwrap_err().to_string(), failure);
            assert!(!cursor.is_valid() && cursor.entry().is_none());
        }
        cursor.seek([4]).unwrap();
        assert_eq!(cursor.key(), Some(&[4][..]));
        cursor.next().unwrap();
        assert_eq!(cursor.entry(), Some((&[7][..], &[1; 3007][..])));
    }

    #[test]
    fn a_cursor_moves_among_the_keys_within_its_bounds() {
        let db = open(&MemoryFs::new());
        let contents = filled(&db);
        let mut cursor = db.cursor((Bound::Excluded([1]), Bound::Included([7]))).unwrap();
        let check = |cursor: &Cursor, key: Option<u8>| {
            let entry = key.map(|key| (vec![key], contents[&vec![key]].clone()));
            let shown = cursor.entry().map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert_eq!(shown, entry);
            assert_eq!(cursor.key().zip(cursor.value()), cursor.entry());
            assert_eq!(cursor.is_valid(), key.is_some());
            assert_eq!(cursor.pinned_value().as_deref(), cursor.value());
            let name = key.map(|key| [key].escape_ascii().to_string());
            assert_eq!(format!("{cursor:?}"), format!("Cursor(at {name:?})"));
        };
        check(&cursor, None);
        cursor.seek_to_first().unwrap();
        for key in [Some(3), Some(4), Some(7), None, None] {
            check(&cursor, key);
            cursor.next().unwrap();
        }
        cursor.seek_to_last().unwrap();
        for key in [Some(7), Some(4), Some(3), None, None] {
            check(&cursor, key);
            cursor.prev().unwrap();
        }
        for (sought, above, below) in [
            (0, Some(3), None),
            (3, Some(3), Some(3)),
            (5, Some(7), Some(4)),
            (7, Some(7), Some(7)),
            (8, None, Some(7)),
        ] {
            cursor.seek([sought]).unwrap();
            check(&cursor, above);
            cursor.seek_for_prev([sought]).unwrap();
            check(&cursor, below);
        }
    }
}
