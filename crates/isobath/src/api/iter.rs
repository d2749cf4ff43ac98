//! Reading in order: [`Range`], an iterator that works from both ends, and [`Cursor`], which can
//! move to any key.
//!
//! Both read at one read point. They keep alive what they read: the family's memtables and files at
//! the moment of opening. So long-lived ones hold memory and disk space. They do not keep the
//! database open. Once it is closed they return [`ErrorKind::Closed`](crate::ErrorKind::Closed);
//! what they returned before stays valid.

use crate::error::{Error, Result};
use crate::pinned::Value;
use crate::read::{Pin, ReadAt, Scan, ScanBounds};

/// A cursor over the visible keys of a family within bounds. It moves in both directions. Each move
/// returns the entry it arrives at, which is valid until the next move, or `None` if there is no
/// such key.
///
/// A new cursor is not on a key: [`Cursor::next`] goes to the first key and [`Cursor::prev`] to the
/// last one. A cursor that moved past an end stays there until a step in the other direction brings
/// it to the key at that end. After a failed move the cursor has no entry, and every step returns
/// the same error until a seek sets a new position. Once the database is closed, every move fails
/// with [`ErrorKind::Closed`](crate::ErrorKind::Closed).
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("cursor")?;
/// for key in ["a", "b", "d"] {
///     db.put(key, "value")?;
/// }
/// let mut cursor = db.cursor(..)?;
/// let entry = cursor.seek("c")?.expect("there is one behind it");
/// assert_eq!((entry.key(), entry.value()?), (&b"d"[..], &b"value"[..]));
/// assert!(cursor.next()?.is_none());
///
/// let mut keys = Vec::new();
/// while let Some(entry) = cursor.prev()? {
///     keys.push(entry.key().to_vec());
/// }
/// assert_eq!(keys, [b"d", b"b", b"a"]);
/// # Ok(())
/// # }
/// ```
pub struct Cursor {
    pin: Pin,
    scan: Scan,
    /// Where the cursor stands when the scan has no entry.
    outside: Outside,
}

/// Where a cursor without an entry stands.
enum Outside {
    /// The cursor has not moved. A step in either direction enters its keys.
    Fresh,
    Before,
    Behind,
    /// The last move failed. A step from here would look like the end of the keys, so it fails too.
    Failed(Error),
}

impl Cursor {
    pub(crate) fn new(at: ReadAt<'_>, bounds: &ScanBounds) -> Result<Cursor> {
        let pin = Pin::new(at)?;
        Ok(Cursor { scan: pin.scan(bounds)?, pin, outside: Outside::Fresh })
    }

    /// Runs a move. If the move finds no key, the cursor stands at `outside`.
    #[inline]
    fn moved(&mut self, outside: Outside, go: impl FnOnce(&mut Scan) -> Result<()>) -> Result<()> {
        self.outside = outside;
        match self.pin.check_open().and_then(|()| go(&mut self.scan)) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.fail(error)),
        }
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.scan.leave();
        self.outside = Outside::Failed(error.clone());
        error
    }

    fn forward(&mut self) -> Result<()> {
        if self.scan.has_entry() {
            return self.moved(Outside::Behind, Scan::next);
        }
        match &self.outside {
            Outside::Fresh | Outside::Before => self.moved(Outside::Behind, Scan::seek_first),
            Outside::Behind => self.pin.check_open(),
            Outside::Failed(error) => Err(error.clone()),
        }
    }

    fn backward(&mut self) -> Result<()> {
        if self.scan.has_entry() {
            return self.moved(Outside::Before, Scan::prev);
        }
        match &self.outside {
            Outside::Fresh | Outside::Behind => self.moved(Outside::Before, Scan::seek_last),
            Outside::Before => self.pin.check_open(),
            Outside::Failed(error) => Err(error.clone()),
        }
    }

    /// Moves to the smallest key.
    pub fn first(&mut self) -> Result<Option<Entry<'_>>> {
        self.moved(Outside::Behind, Scan::seek_first)?;
        Ok(self.entry())
    }

    /// Moves to the largest key.
    pub fn last(&mut self) -> Result<Option<Entry<'_>>> {
        self.moved(Outside::Before, Scan::seek_last)?;
        Ok(self.entry())
    }

    /// Moves to the smallest key at or above `key`. If there is none, the cursor stands behind the
    /// last key.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Entry<'_>>> {
        self.moved(Outside::Behind, |scan| scan.seek(key.as_ref()))?;
        Ok(self.entry())
    }

    /// Moves to the largest key at or below `key`. If there is none, the cursor stands before the
    /// first key.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Entry<'_>>> {
        self.moved(Outside::Before, |scan| scan.seek_for_prev(key.as_ref()))?;
        Ok(self.entry())
    }

    /// Moves to the next key. A new cursor, and one that stands before the first key, moves to the
    /// first key.
    #[allow(clippy::should_implement_trait)] // A cursor lends its entries, which an iterator cannot.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>> {
        self.forward()?;
        Ok(self.entry())
    }

    /// Moves to the previous key. A new cursor, and one that stands behind the last key, moves to
    /// the last key.
    #[inline]
    pub fn prev(&mut self) -> Result<Option<Entry<'_>>> {
        self.backward()?;
        Ok(self.entry())
    }

    /// The entry where the cursor stands.
    #[inline]
    pub fn entry(&self) -> Option<Entry<'_>> {
        let (key, value) = self.scan.entry()?;
        Some(Entry { key, value, scan: &self.scan })
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = self.entry().map(|entry| entry.key.escape_ascii().to_string());
        write!(f, "Cursor(at {key:?})")
    }
}

/// A key and its value, borrowed from a [`Cursor`] until its next move.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    key: &'a [u8],
    value: &'a [u8],
    scan: &'a Scan,
}

impl<'a> Entry<'a> {
    /// The key.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The value. It returns a `Result` because a later version may have to read the value from
    /// disk. It does not fail today.
    #[inline]
    pub fn value(&self) -> Result<&'a [u8]> {
        Ok(self.value)
    }

    /// The value, without copying it. It stays valid after the cursor moves.
    pub fn pin(&self) -> Result<Value> {
        let pinned = self.scan.shown().and_then(|merge| merge.source()?.pinned());
        Ok(pinned.map_or_else(Value::default, |(_, value)| value))
    }

    /// The length of the value. It is known without reading the value.
    #[inline]
    pub fn value_len(&self) -> u64 {
        self.value.len() as u64
    }
}

impl std::fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entry(b\"{}\", {} bytes)", self.key.escape_ascii(), self.value.len())
    }
}

/// The keys of a range with their values: ascending from the front and descending from the back,
/// until both ends meet. An error ends the iteration. Once the database is closed, by
/// [`Db::close`](crate::Db::close) or because its last handle was dropped, the next item is
/// [`ErrorKind::Closed`](crate::ErrorKind::Closed). Keys and values returned before stay valid.
pub struct Range {
    /// Both ends read the same view at the same read point. An error from opening is returned once.
    pin: Option<Result<Pin>>,
    bounds: ScanBounds,
    /// Each end stays at the last item it returned, so that the other end can stop there.
    front: Option<Scan>,
    back: Option<Scan>,
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
        Range { pin, bounds, front: None, back: None, wants_values: true }
    }

    /// Only the keys; values are not pinned.
    pub fn keys(mut self) -> Keys {
        self.wants_values = false;
        Keys(self)
    }

    /// Only the values.
    pub fn values(self) -> Values {
        Values(self)
    }

    /// Moves an end to its next key, and opens its scan first if this is its first move.
    #[inline(always)]
    fn advance(&mut self, end: End) -> Result<()> {
        if let Some(Ok(pin)) = &self.pin {
            pin.check_open()?;
        }
        match (end, &mut self.front, &mut self.back) {
            (End::Front, Some(front), _) => front.next(),
            (End::Back, _, Some(back)) => back.prev(),
            _ => self.open(end),
        }
    }

    /// The first move of an end.
    #[cold]
    fn open(&mut self, end: End) -> Result<()> {
        let pin = match self.pin.take() {
            Some(Ok(pin)) => pin,
            Some(Err(error)) => return Err(error),
            None => return Ok(()),
        };
        let mut scan = pin.scan(&self.bounds)?;
        self.pin = Some(Ok(pin));
        match end {
            End::Front => scan.seek_first()?,
            End::Back => scan.seek_last()?,
        }
        match end {
            End::Front => self.front = Some(scan),
            End::Back => self.back = Some(scan),
        }
        Ok(())
    }

    #[inline(always)]
    fn step(&mut self, end: End) -> Option<Result<(Value, Value)>> {
        self.pin.as_ref()?;
        if let Err(error) = self.advance(end) {
            self.pin = None;
            return Some(Err(error));
        }
        let Some((key, value)) = self.item(end) else {
            self.pin = None;
            return None;
        };
        Some(Ok((Value::copied(key), value)))
    }

    /// The item at an end, or `None` if that end has reached or passed the other one.
    #[inline(always)]
    fn item(&self, end: End) -> Option<(&[u8], Value)> {
        let scan = match end {
            End::Front => self.front.as_ref()?,
            End::Back => self.back.as_ref()?,
        };
        if self.front.is_some() && self.back.is_some() && !self.is_between(scan.key()?, end) {
            return None;
        }
        match self.wants_values {
            true => scan.shown()?.source()?.pinned(),
            false => Some((scan.key()?, Value::default())),
        }
    }

    /// True if the other end has not reached `key` yet.
    fn is_between(&self, key: &[u8], end: End) -> bool {
        match end {
            End::Front => self.back.as_ref().and_then(Scan::key).is_some_and(|back| key < back),
            End::Back => self.front.as_ref().and_then(Scan::key).is_some_and(|front| key > front),
        }
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

/// The keys of a range. See [`Range::keys`].
#[derive(Debug)]
pub struct Keys(Range);

/// The values of a range. See [`Range::values`].
#[derive(Debug)]
pub struct Values(Range);

/// Expands to an iterator over one half of the items of a range: the keys or the values.
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
                // Long enough that the first read, of the table's end, does not cover the table.
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
            // Tries every choice of ends for the first pulls. All later pulls come from the front.
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
        let failure = cursor.first().unwrap_err().to_string();
        fs.clear_faults();
        for _ in 0..2 {
            assert_eq!(cursor.next().unwrap_err().to_string(), failure);
            assert_eq!(cursor.prev().unwrap_err().to_string(), failure);
            assert!(cursor.entry().is_none());
        }
        assert_eq!(cursor.seek([4]).unwrap().unwrap().key(), [4]);
        let entry = cursor.next().unwrap().unwrap();
        assert_eq!((entry.key(), entry.value().unwrap()), (&[7][..], &[1; 3007][..]));
    }

    #[test]
    fn a_cursor_has_no_entry_once_a_move_found_the_database_closed() {
        let db = open(&MemoryFs::new());
        filled(&db);
        let mut cursor = db.cursor(..).unwrap();
        let mut fresh = db.cursor(..).unwrap();
        let mut beyond = db.cursor(..).unwrap();
        assert_eq!(cursor.next().unwrap().unwrap().key(), [1]);
        assert!(beyond.seek([10]).unwrap().is_none());
        db.close().unwrap();
        assert_eq!(cursor.entry().unwrap().key(), [1]);
        for cursor in [&mut cursor, &mut fresh, &mut beyond] {
            for _ in 0..2 {
                assert!(cursor.next().unwrap_err().is_closed() && cursor.entry().is_none());
                assert!(cursor.prev().unwrap_err().is_closed());
                assert!(cursor.seek([3]).unwrap_err().is_closed());
            }
        }
    }

    /// A move of a cursor, with its name.
    type Move = (&'static str, fn(&mut Cursor) -> Result<Option<Entry<'_>>>);

    #[test]
    fn a_cursor_moves_among_the_keys_within_its_bounds() {
        let db = open(&MemoryFs::new());
        let contents = filled(&db);
        let mut cursor = db.cursor((Bound::Excluded([1]), Bound::Included([7]))).unwrap();
        let check = |cursor: &mut Cursor, (name, go): Move, key: Option<u8>| {
            let wanted = key.map(|key| (vec![key], contents[&vec![key]].clone()));
            let shown = |entry: Entry<'_>| {
                assert_eq!(entry.pin().unwrap(), entry.value().unwrap());
                assert_eq!(entry.value_len(), entry.value().unwrap().len() as u64);
                (entry.key().to_vec(), entry.value().unwrap().to_vec())
            };
            assert_eq!(go(cursor).unwrap().map(shown), wanted, "{name}");
            assert_eq!(cursor.entry().map(shown), wanted, "after {name}");
            let at = key.map(|key| [key].escape_ascii().to_string());
            assert_eq!(format!("{cursor:?}"), format!("Cursor(at {at:?})"));
        };
        let (next, prev): (Move, Move) = (("next", Cursor::next), ("prev", Cursor::prev));
        let (first, last): (Move, Move) = (("first", Cursor::first), ("last", Cursor::last));
        let up = [(next, Some(4)), (next, Some(7)), (next, None), (next, None)];
        let down = [(prev, Some(4)), (prev, Some(3)), (prev, None), (prev, None)];
        let script = [&[(first, Some(3))], &up[..], &[(prev, Some(7))], &down, &[(next, Some(3))]];
        let script = script.concat().into_iter().chain([(last, Some(7)), (prev, Some(4))]);
        assert!(cursor.entry().is_none());
        script.for_each(|(go, key)| check(&mut cursor, go, key));
        for (sought, above, below) in [
            (0, Some(3), None),
            (3, Some(3), Some(3)),
            (5, Some(7), Some(4)),
            (7, Some(7), Some(7)),
            (8, None, Some(7)),
        ] {
            let entry = cursor.seek([sought]).unwrap();
            assert_eq!(entry.map(|entry| entry.key()), above.as_ref().map(std::slice::from_ref));
            if above.is_none() {
                check(&mut cursor, next, None);
                check(&mut cursor, prev, Some(7));
            }
            let entry = cursor.seek_for_prev([sought]).unwrap();
            assert_eq!(entry.map(|entry| entry.key()), below.as_ref().map(std::slice::from_ref));
            if below.is_none() {
                check(&mut cursor, prev, None);
                check(&mut cursor, next, Some(3));
            }
        }
    }

    #[test]
    fn a_fresh_cursor_goes_to_the_end_that_its_first_step_leaves_for() {
        let db = open(&MemoryFs::new());
        filled(&db);
        let fresh = || db.cursor([2]..[9]).unwrap();
        assert_eq!(fresh().next().unwrap().unwrap().key(), [3]);
        assert_eq!(fresh().prev().unwrap().unwrap().key(), [7]);
        let mut empty = db.cursor([5]..[6]).unwrap();
        for _ in 0..2 {
            assert!(empty.next().unwrap().is_none() && empty.next().unwrap().is_none());
            assert!(empty.prev().unwrap().is_none() && empty.entry().is_none());
        }
    }
}
