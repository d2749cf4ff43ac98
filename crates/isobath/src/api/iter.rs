//! Reading in order: [`Range`], an iterator that works from both ends, and [`Cursor`], which can
//! move to any key.
//!
//! Those of a transaction borrow it: it cannot end before them. They see its writes up to their
//! opening, and say when they are dropped what they have passed (`transact/scan.rs`). All others
//! are `'static`.
//!
//! Both read at one read point. They keep alive what they read: the family's memtables and files at
//! the moment of opening. So long-lived ones hold memory and disk space. They do not keep the
//! database open. Once it is closed they return [`ErrorKind::Closed`](crate::ErrorKind::Closed);
//! what they returned before stays valid.

use crate::error::{Error, Result};
use crate::footprint::{Cut, Interval};
use crate::options::Expiry;
use crate::pinned::Value;
use crate::read::{Pin, ReadAt, Scan, ScanBounds};
use crate::transact::{Opened, Recorder, Trail, Way};

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
/// A value in a blob file is read when it is asked for. If it cannot be read, [`Entry::value`] is
/// the error, and the cursor goes on. If no value can be made of the operands of a key, the move to
/// that key fails once: the next step goes on from there.
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
///
/// The cursor of a transaction borrows it:
///
/// ```compile_fail,E0505
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("cursor")?;
/// let tx = db.begin();
/// let mut cursor = tx.cursor(..)?;
/// tx.commit()?;
/// cursor.next()?;
/// # Ok(())
/// # }
/// ```
pub struct Cursor<'a> {
    pin: Pin,
    scan: Scan,
    /// Where the cursor stands when the scan has no entry.
    outside: Outside,
    /// The way of the cursor, if its transaction validates that.
    trail: Option<Box<Trail<'a>>>,
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

impl Cursor<'static> {
    pub(crate) fn new(at: ReadAt<'_>, bounds: &ScanBounds) -> Result<Cursor<'static>> {
        Cursor::in_transaction((Pin::new(at)?, None), bounds)
    }
}

impl<'a> Cursor<'a> {
    pub(crate) fn in_transaction(
        (pin, recorder): Opened<'a>,
        bounds: &ScanBounds,
    ) -> Result<Cursor<'a>> {
        let mut trail = recorder.map(|recorder| Box::new(Trail::new(recorder)));
        let mut scan = pin.scan_lazily(bounds).inspect_err(|_| {
            if let Some(trail) = &mut trail {
                trail.fail();
            }
        })?;
        scan.outlast_refusals();
        Ok(Cursor { scan, pin, outside: Outside::Fresh, trail })
    }

    /// Runs a move. If the move finds no key, the cursor stands at `outside`.
    #[inline]
    fn moved(&mut self, outside: Outside, go: impl FnOnce(&mut Scan) -> Result<()>) -> Result<()> {
        self.outside = outside;
        match self.pin.check_open().and_then(|()| go(&mut self.scan)) {
            Ok(()) => {
                self.pin.learn(&mut self.scan);
                Ok(())
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// The entry to which a move has led, or why there is none at its key.
    #[inline]
    fn arrived(&self) -> Result<Option<Entry<'_>>> {
        let refused = || self.scan.refused().cloned().map_or(Ok(None), Err);
        self.entry().map_or_else(refused, |entry| Ok(Some(entry)))
    }

    /// Tells the transaction of a move to a key or an end, and from there to where the cursor is.
    #[cold]
    fn note_seek(&mut self, way: Way, target: Option<&[u8]>) {
        if let Some(trail) = &mut self.trail {
            trail.note_end(self.scan.first_end());
            trail.seek(way, target, self.scan.key());
        }
    }

    /// Tells the transaction of a step to where the cursor is.
    #[cold]
    fn note_step(&mut self, way: Way) {
        if let Some(trail) = &mut self.trail {
            trail.note_end(self.scan.first_end());
            trail.step(way, self.scan.key());
        }
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        if let Some(trail) = &mut self.trail {
            trail.fail();
        }
        self.scan.leave();
        self.outside = Outside::Failed(error.clone());
        error
    }

    fn forward(&mut self) -> Result<()> {
        if self.scan.has_entry() {
            self.moved(Outside::Behind, Scan::next)?;
            if self.trail.is_some() {
                self.note_step(Way::Forward);
            }
            return Ok(());
        }
        match &self.outside {
            Outside::Fresh | Outside::Before => self.first().map(drop),
            Outside::Behind => self.pin.check_open(),
            Outside::Failed(error) => Err(error.clone()),
        }
    }

    fn backward(&mut self) -> Result<()> {
        if self.scan.has_entry() {
            self.moved(Outside::Before, Scan::prev)?;
            if self.trail.is_some() {
                self.note_step(Way::Backward);
            }
            return Ok(());
        }
        match &self.outside {
            Outside::Fresh | Outside::Behind => self.last().map(drop),
            Outside::Before => self.pin.check_open(),
            Outside::Failed(error) => Err(error.clone()),
        }
    }

    /// Moves to the smallest key.
    pub fn first(&mut self) -> Result<Option<Entry<'_>>> {
        self.moved(Outside::Behind, Scan::seek_first)?;
        if self.trail.is_some() {
            self.note_seek(Way::Forward, None);
        }
        self.arrived()
    }

    /// Moves to the largest key.
    pub fn last(&mut self) -> Result<Option<Entry<'_>>> {
        self.moved(Outside::Before, Scan::seek_last)?;
        if self.trail.is_some() {
            self.note_seek(Way::Backward, None);
        }
        self.arrived()
    }

    /// Moves to the smallest key at or above `key`. If there is none, the cursor stands behind the
    /// last key.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Entry<'_>>> {
        self.moved(Outside::Behind, |scan| scan.seek(key.as_ref()))?;
        if self.trail.is_some() {
            self.note_seek(Way::Forward, Some(key.as_ref()));
        }
        self.arrived()
    }

    /// Moves to the largest key at or below `key`. If there is none, the cursor stands before the
    /// first key.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Entry<'_>>> {
        self.moved(Outside::Before, |scan| scan.seek_for_prev(key.as_ref()))?;
        if self.trail.is_some() {
            self.note_seek(Way::Backward, Some(key.as_ref()));
        }
        self.arrived()
    }

    /// Moves to the next key. A new cursor, and one that stands before the first key, moves to the
    /// first key.
    // A cursor lends its entries, which an iterator cannot.
    #[allow(clippy::should_implement_trait)]
    #[inline]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>> {
        self.forward()?;
        self.arrived()
    }

    /// Moves to the previous key. A new cursor, and one that stands behind the last key, moves to
    /// the last key.
    #[inline]
    pub fn prev(&mut self) -> Result<Option<Entry<'_>>> {
        self.backward()?;
        self.arrived()
    }

    /// The entry where the cursor stands.
    #[inline]
    pub fn entry(&self) -> Option<Entry<'_>> {
        let (key, value) = self.scan.entry()?;
        Some(Entry { key, value, scan: &self.scan })
    }
}

impl std::fmt::Debug for Cursor<'_> {
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

    /// The value. If it lies in a blob file
    /// ([`FamilyOptions::separate_from`](crate::FamilyOptions::separate_from)), the first call
    /// reads it.
    #[inline]
    pub fn value(&self) -> Result<&'a [u8]> {
        if self.scan.is_separated() {
            return self.scan.fetched().map(|value| &**value);
        }
        Ok(self.value)
    }

    /// The value, without copying it. It stays valid after the cursor moves.
    pub fn pin(&self) -> Result<Value> {
        if self.scan.is_separated() {
            return self.scan.fetched().cloned();
        }
        let pinned = self.scan.pinned();
        Ok(pinned.map_or_else(Value::default, |(_, value)| value))
    }

    /// When the value ends: [`Expiry::Never`] or [`Expiry::At`].
    pub fn expiry(&self) -> Expiry {
        Expiry::of_stored(self.scan.expires_ms())
    }

    /// The length of the value. It is known without reading the value. If what says where a value
    /// in a blob file lies is damaged it is 0, and [`Entry::value`] is an error.
    #[inline]
    pub fn value_len(&self) -> u64 {
        if self.scan.is_separated() {
            return self.scan.separated_len();
        }
        self.value.len() as u64
    }
}

impl std::fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entry(b\"{}\", {} bytes)", self.key.escape_ascii(), self.value_len())
    }
}

/// The keys of a range with their values: ascending from the front and descending from the back,
/// until both ends meet.
///
/// If the value of one key cannot be read, the item in its place is the error, and the next item is
/// that of the next key. So it is with a value in a blob file
/// ([`FamilyOptions::separate_from`](crate::FamilyOptions::separate_from)) that is damaged or whose
/// file is missing or cannot be read, where the error names file, offset and key; with one from
/// [`put_reader`](crate::Db::put_reader) that is too long to be returned as a whole; with one for
/// which there is no memory now; and with operands of which no value can be made. Any other error,
/// as of a damaged table, ends the iteration: which keys come next is not known. Once the database
/// is closed, by [`Db::close`](crate::Db::close) or because its last handle was dropped, the next
/// item is [`ErrorKind::Closed`](crate::ErrorKind::Closed). Keys and values returned before stay
/// valid.
///
/// The range of a transaction borrows it:
///
/// ```compile_fail,E0505
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("range")?;
/// let tx = db.begin();
/// let mut range = tx.range("a".."m");
/// range.next().transpose()?;
/// tx.commit()?;
/// # Ok(())
/// # }
/// ```
pub struct Range<'a> {
    /// Both ends read the same view at the same read point. An error from opening is returned once.
    pin: Option<Result<Pin>>,
    bounds: ScanBounds,
    /// Each end stays at the last item it returned, so that the other end can stop there.
    front: Option<Scan>,
    back: Option<Scan>,
    wants_values: bool,
    /// True if the recorder has to learn of each item.
    tells_items: bool,
    /// Reports to the transaction what the range has passed, if the transaction validates that.
    recorder: Option<Box<Recorder<'a>>>,
}

/// Which end of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl Range<'static> {
    #[inline]
    pub(crate) fn new(at: Result<ReadAt<'_>>, bounds: ScanBounds) -> Range<'static> {
        Range::with_pin(at.and_then(Pin::new), bounds)
    }
}

impl<'a> Range<'a> {
    #[inline]
    fn with_pin(pin: Result<Pin>, bounds: ScanBounds) -> Range<'a> {
        Range {
            pin: Some(pin),
            bounds,
            front: None,
            back: None,
            wants_values: true,
            tells_items: false,
            recorder: None,
        }
    }

    pub(crate) fn in_transaction(opened: Result<Opened<'a>>, bounds: ScanBounds) -> Range<'a> {
        let (pin, recorder) = match opened {
            Ok((pin, recorder)) => (Ok(pin), recorder),
            Err(error) => (Err(error), None),
        };
        let mut range = Range::with_pin(pin, bounds);
        range.tells_items = recorder.as_ref().is_some_and(Recorder::wants_items);
        range.recorder = recorder.map(Box::new);
        range
    }

    /// Only the keys; values are not pinned.
    pub fn keys(mut self) -> Keys<'a> {
        self.wants_values = false;
        Keys(self)
    }

    /// Only the values.
    pub fn values(self) -> Values<'a> {
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
        let mut scan = match self.wants_values {
            true => pin.scan(&self.bounds)?,
            false => pin.scan_keys(&self.bounds)?,
        };
        scan.outlast_refusals();
        self.pin = Some(Ok(pin));
        match end {
            End::Front => scan.seek_first().map(|()| self.front = Some(scan)),
            End::Back => scan.seek_last().map(|()| self.back = Some(scan)),
        }
    }

    #[inline(always)]
    fn step(&mut self, end: End) -> Option<Result<(Value, Value)>> {
        self.pin.as_ref()?;
        if let Err(error) = self.advance(end) {
            self.pin = None;
            if let Some(recorder) = &mut self.recorder {
                recorder.fail();
            }
            return Some(Err(error));
        }
        if self.tells_items {
            self.tell_item(end);
        }
        let Some((key, value)) = self.item(end) else {
            if let Some(refused) = self.refused(end) {
                return Some(Err(refused));
            }
            self.learn();
            self.pin = None;
            return None;
        };
        Some(Ok((Value::copied(key), value)))
    }

    /// Makes rows of dead keys known that the range has passed.
    fn learn(&mut self) {
        if let Some(Ok(pin)) = &self.pin {
            self.front.iter_mut().chain(&mut self.back).for_each(|scan| pin.learn(scan));
        }
    }

    #[cold]
    fn tell_item(&mut self, end: End) {
        let Some(key) = self.key_at(end).map(Value::copied) else { return };
        if let Some(recorder) = &mut self.recorder {
            let way = if end == End::Front { Way::Forward } else { Way::Backward };
            recorder.return_item(way, &key);
        }
    }

    /// Tells what was passed: everything if both ends have met, otherwise what each end has left
    /// behind it.
    #[cold]
    fn record(&self, mut recorder: Recorder<'a>) {
        let scans = self.front.iter().chain(&self.back);
        scans.for_each(|scan| recorder.note_end(scan.first_end()));
        if self.pin.is_none() {
            return recorder.pass_all();
        }
        let bounds = recorder.bounds().clone();
        if let Some(key) = self.front.as_ref().and_then(Scan::key) {
            recorder.pass(Interval { start: bounds.start, end: Some(Cut::after(key)) });
        }
        if let Some(key) = self.back.as_ref().and_then(Scan::key) {
            recorder.pass(Interval { start: Cut::before(key), end: bounds.end });
        }
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
            true => scan.pinned(),
            false if scan.refused().is_some() => None,
            false => Some((scan.key()?, Value::default())),
        }
    }

    /// The key at an end, also if its value is not shown, or `None` if that end has reached or
    /// passed the other one.
    fn key_at(&self, end: End) -> Option<&[u8]> {
        let scan = if end == End::Front { &self.front } else { &self.back };
        let key = scan.as_ref()?.key()?;
        let is_alone = self.front.is_none() || self.back.is_none();
        (is_alone || self.is_between(key, end)).then_some(key)
    }

    /// Why the value of the key at an end is not shown, if there is a key.
    fn refused(&self, end: End) -> Option<Error> {
        let scan = if end == End::Front { &self.front } else { &self.back };
        let refused = scan.as_ref()?.refused()?;
        self.key_at(end).map(|_| refused.clone())
    }

    /// True if the other end has not reached `key` yet.
    fn is_between(&self, key: &[u8], end: End) -> bool {
        match end {
            End::Front => self.back.as_ref().and_then(Scan::key).is_some_and(|back| key < back),
            End::Back => self.front.as_ref().and_then(Scan::key).is_some_and(|front| key > front),
        }
    }
}

impl Drop for Range<'_> {
    #[inline]
    fn drop(&mut self) {
        self.learn();
        if let Some(recorder) = self.recorder.take() {
            self.record(*recorder);
        }
    }
}

impl Iterator for Range<'_> {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(End::Front)
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(End::Back)
    }
}

impl std::iter::FusedIterator for Range<'_> {}

/// The keys of a range. See [`Range::keys`].
#[derive(Debug)]
pub struct Keys<'a>(Range<'a>);

/// The values of a range. See [`Range::values`].
#[derive(Debug)]
pub struct Values<'a>(Range<'a>);

/// Expands to an iterator over one half of the items of a range: the keys or the values.
macro_rules! half {
    ($type:ident, $half:tt) => {
        impl Iterator for $type<'_> {
            type Item = Result<Value>;

            fn next(&mut self) -> Option<Self::Item> {
                self.0.next().map(|item| item.map(|item| item.$half))
            }
        }

        impl DoubleEndedIterator for $type<'_> {
            fn next_back(&mut self) -> Option<Self::Item> {
                self.0.next_back().map(|item| item.map(|item| item.$half))
            }
        }

        impl std::iter::FusedIterator for $type<'_> {}
    };
}

half!(Keys, 0);
half!(Values, 1);

impl std::fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Range({:?})", self.bounds)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
