//! Keys and values that reads return. Short ones are copied, longer ones keep the memory they point
//! into alive.

use crate::memtable::Memtable;
use crate::table::PinnedValue;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

/// Up to this length, bytes are copied into the value itself. That is cheaper than a reference
/// count.
const INLINE_LEN_MAX: usize = 30;

/// A key or a value that a read returns. It can be kept, compared and sent to another thread. It
/// dereferences to `[u8]`, and cloning it is cheap. While it lives, the block or the memtable that
/// holds its bytes stays in memory, except if it has at most 30 bytes: see [`Value::detach`].
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("values")?;
/// db.put("key", "a value")?;
/// let value = db.get("key")?.unwrap();
/// assert_eq!(value, "a value");
/// assert_eq!(value.slice(2..), "value");
/// let owned: Vec<u8> = value.into();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Value(Repr);

/// A key that a read returns.
pub type Key = Value;

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_LEN_MAX] },
    Block(PinnedValue),
    Memtable { start: NonNull<u8>, len: usize, _home: Arc<Memtable> },
    Heap { bytes: Arc<[u8]>, start: u32, len: u32 },
}

// SAFETY: the memory behind `start` is an immutable record of the arena that `_home` keeps, and
// `Memtable` is itself `Send` and `Sync`.
unsafe impl Send for Repr {}
// SAFETY: as above; nothing behind `start` is ever written again.
unsafe impl Sync for Repr {}

impl Value {
    /// A copy of `bytes`.
    #[inline]
    pub(crate) fn copied(bytes: &[u8]) -> Value {
        Value::short(bytes).unwrap_or_else(|| Value::on_heap(bytes))
    }

    #[inline(never)]
    fn on_heap(bytes: &[u8]) -> Value {
        Value(Repr::Heap { bytes: bytes.into(), start: 0, len: bytes.len() as u32 })
    }

    /// A copy of `bytes` without a heap allocation, if there are at most 30 of them.
    #[inline(always)]
    pub(crate) fn short(bytes: &[u8]) -> Option<Value> {
        if bytes.len() > INLINE_LEN_MAX {
            return None;
        }
        Some(Value(Repr::Inline { len: bytes.len() as u8, bytes: short_bytes(bytes) }))
    }

    /// The value of a block. A short one is copied.
    #[inline]
    pub(crate) fn in_block(value: PinnedValue) -> Value {
        match Value::short(&value) {
            Some(copy) => copy,
            None => Value::kept(value),
        }
    }

    /// The value of a block, without a copy even if it is short.
    #[inline]
    pub(crate) fn kept(value: PinnedValue) -> Value {
        Value(Repr::Block(value))
    }

    /// The value in `len` bytes of `chunk` from `at` on. A short one is copied.
    pub(crate) fn in_chunk(chunk: &Arc<[u8]>, at: usize, len: usize) -> Value {
        let value = &chunk[at..at + len];
        Value::short(value).unwrap_or_else(|| {
            let (start, len) = (at as u32, len as u32);
            Value(Repr::Heap { bytes: chunk.clone(), start, len })
        })
    }

    /// The same value. If it lies in a chunk, which it may fill, it is a copy, which does not keep
    /// the chunk from being written to.
    pub(crate) fn apart(self) -> Value {
        match &self.0 {
            Repr::Heap { .. } => Value::copied(&self),
            _ => self,
        }
    }

    /// A value that `home` returned: its bytes lie in the arena that `home` keeps alive.
    #[inline]
    pub(crate) fn in_memtable(value: &[u8], home: &Arc<Memtable>) -> Value {
        if let Some(copy) = Value::short(value) {
            return copy;
        }
        Value(Repr::Memtable {
            start: NonNull::from(value).cast(),
            len: value.len(),
            _home: home.clone(),
        })
    }
}

/// `bytes`, of which there are at most 30, followed by zeros. The loads, shifts and stores have the
/// same constant sizes for every length. A copy of variable length to the stack would be read back
/// before its stores have finished, and that wait takes longer than everything else.
#[inline(always)]
fn short_bytes(bytes: &[u8]) -> [u8; INLINE_LEN_MAX] {
    let len = bytes.len() as u32;
    let (low, high) = match (bytes.first_chunk::<16>(), bytes.last_chunk::<16>()) {
        (Some(head), Some(tail)) => {
            let behind = u128::from_le_bytes(*tail).unbounded_shr(8 * (32 - len));
            (u128::from_le_bytes(*head), behind)
        }
        _ => (u128::from(first_word(bytes)) | u128::from(second_word(bytes)) << 64, 0),
    };
    let mut inline = [0; INLINE_LEN_MAX];
    inline[..16].copy_from_slice(&low.to_le_bytes());
    inline[16..].copy_from_slice(&high.to_le_bytes()[..INLINE_LEN_MAX - 16]);
    inline
}

/// The first eight of up to 15 bytes, padded with zeros.
#[inline(always)]
fn first_word(bytes: &[u8]) -> u64 {
    if let Some(head) = bytes.first_chunk::<8>() {
        return u64::from_le_bytes(*head);
    }
    if let (Some(head), Some(tail)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        let tail = u64::from(u32::from_le_bytes(*tail));
        return u64::from(u32::from_le_bytes(*head)) | tail << (8 * (bytes.len() - 4));
    }
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Of up to 15 bytes, those after the first eight, padded with zeros.
#[inline(always)]
fn second_word(bytes: &[u8]) -> u64 {
    let tail = bytes.last_chunk::<8>().map_or(0, |tail| u64::from_le_bytes(*tail));
    tail.unbounded_shr(8 * (16 - bytes.len() as u32))
}

impl Value {
    /// A part of the value. It shares the value's memory.
    ///
    /// # Panics
    /// If the range goes beyond the end, as for a slice of bytes.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Value {
        let part = &self[(range.start_bound().cloned(), range.end_bound().cloned())];
        if let Some(value) = Value::short(part) {
            return value;
        }
        let offset = part.as_ptr() as usize - self.as_ptr() as usize;
        Value(match &self.0 {
            Repr::Inline { .. } => unreachable!("a part of it is as short"),
            Repr::Block(value) => Repr::Block(value.part(offset, part.len())),
            Repr::Memtable { _home, .. } => Repr::Memtable {
                start: NonNull::from(part).cast(),
                len: part.len(),
                _home: _home.clone(),
            },
            Repr::Heap { bytes, start, .. } => Repr::Heap {
                bytes: bytes.clone(),
                start: start + offset as u32,
                len: part.len() as u32,
            },
        })
    }

    /// A copy that keeps nothing else in memory. Use it for a cache of your own: without it, short
    /// values could keep whole blocks in memory.
    pub fn detach(&self) -> Value {
        Value::copied(self)
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Block(value) => value,
            // SAFETY: `in_memtable` took the range from a slice that the memtable returned, so it
            // lies in the memtable's arena. Records in the arena are immutable. The arena is
            // freed only with its last memtable, and `_home` keeps this memtable alive.
            Repr::Memtable { start, len, .. } => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), *len)
            },
            Repr::Heap { bytes, start, len } => &bytes[*start as usize..][..*len as usize],
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<B: AsRef<[u8]> + ?Sized> PartialEq<B> for Value {
    fn eq(&self, other: &B) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Value {}

impl Ord for Value {
    fn cmp(&self, other: &Value) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Value) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Default for Value {
    fn default() -> Value {
        Value::copied(&[])
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Vec<u8> {
        value.to_vec()
    }
}

/// Copies nothing: the bytes keep the value alive, and with it the block or the memtable that holds
/// them. See [`Value::detach`].
#[cfg(feature = "bytes")]
#[cfg_attr(docsrs, doc(cfg(feature = "bytes")))]
impl From<Value> for bytes::Bytes {
    fn from(value: Value) -> bytes::Bytes {
        bytes::Bytes::from_owner(value)
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::options::Options;
    use std::thread;

    #[test]
    #[allow(clippy::mutable_key_type)] // Nothing that a value shows ever changes.
    fn values_compare_hash_and_are_cut_as_the_bytes_that_they_are() {
        let db = Options::in_memory().open("/db").unwrap();
        let long: Vec<u8> = (0..100).collect();
        for (key, value) in [("a", &b"short"[..]), ("b", &long)] {
            db.put(key, value).unwrap();
        }
        for round in 0..2 {
            let (short, kept) = (db.get("a").unwrap().unwrap(), db.get("b").unwrap().unwrap());
            let copy = super::Value::copied(&long);
            for value in [&kept, &copy, &kept.detach(), &kept.slice(..)] {
                assert_eq!(value, &long, "round {round}");
                assert_eq!(value.slice(3..50).slice(1..=40), long[4..=43]);
                assert_eq!(value.slice(97..), [97, 98, 99]);
                assert_eq!(value.slice(5..5), "");
                assert_eq!(Vec::from(value.clone()), long);
                assert!(*value < short && value.cmp(&copy).is_eq());
            }
            let mut map = std::collections::HashMap::from([(short.clone(), 1)]);
            *map.get_mut(&b"short"[..]).unwrap() += 1;
            assert_eq!(map[&short], 2);
            let set = std::collections::BTreeSet::from([short, kept, super::Value::default()]);
            assert!(set.iter().map(|value| value.len()).eq([0, 100, 5]));
            db.flush().unwrap();
        }
    }

    #[test]
    fn short_values_are_copied_whole_and_keep_nothing_else_in_memory() {
        let bytes: Vec<u8> = (1..=40).collect();
        let db = Options::in_memory().open("/db").unwrap();
        for len in 0..=bytes.len() {
            let copy = super::Value::copied(&bytes[..len]);
            assert_eq!(copy, bytes[..len]);
            assert_eq!(matches!(copy.0, super::Repr::Inline { .. }), len <= 30);
            db.put([len as u8], &bytes[..len]).unwrap();
        }
        for _ in 0..2 {
            for (len, item) in db.range(..).enumerate() {
                for value in [item.unwrap().1, db.get([len as u8]).unwrap().unwrap()] {
                    assert_eq!(value, bytes[..len]);
                    assert_eq!(matches!(value.0, super::Repr::Inline { .. }), len <= 30, "{len}");
                }
            }
            db.flush().unwrap();
        }
    }

    #[cfg(feature = "bytes")]
    #[test]
    fn values_become_bytes_that_outlive_the_database() {
        let db = Options::in_memory().open("/db").unwrap();
        let values = [vec![b's'; 5], vec![b'l'; 100], Vec::new()];
        let mut kept: Vec<(bytes::Bytes, &Vec<u8>)> = Vec::new();
        for (nth, value) in values.iter().enumerate() {
            db.put([nth as u8], value).unwrap();
        }
        for _ in 0..2 {
            for (nth, value) in values.iter().enumerate() {
                let found = db.get([nth as u8]).unwrap().unwrap();
                let start = found.as_ptr();
                let bytes = bytes::Bytes::from(found);
                assert!(value.len() <= super::INLINE_LEN_MAX || bytes.as_ptr() == start);
                kept.push((bytes, value));
            }
            db.flush().unwrap();
        }
        db.close().unwrap();
        for (bytes, value) in kept {
            assert_eq!(bytes, *value);
            assert_eq!(bytes.slice(value.len() / 2..), value[value.len() / 2..]);
        }
    }

    /// This test runs under Miri too, which finds uses of freed memory. Files are in memory, and
    /// level 0 is not compressed.
    #[test]
    fn slices_outlive_the_database_on_any_thread() {
        let db = Options::in_memory().write_buffer(64 << 10).open("/db").unwrap();
        let (short, long) = (vec![b's'; 5], vec![b'l'; 100]);
        db.put("short", &short).unwrap();
        db.put("long", &long).unwrap();
        let get = |key| db.get(key).unwrap().unwrap();
        let of_memtable = [get("short"), get("long")];
        db.flush().unwrap();
        let of_table = [get("short"), get("long")];
        let of_range: Vec<_> = db.range(..).map(|item| item.unwrap().1).collect();
        db.put("long", b"of another memtable").unwrap();
        drop(of_memtable[1].clone());
        db.close().unwrap();
        let checked = thread::spawn(move || {
            assert_eq!(of_memtable, [&short, &long]);
            assert_eq!(of_table, [&short, &long]);
            assert_eq!(of_range, [&long, &short]);
        });
        checked.join().unwrap();
    }
}
