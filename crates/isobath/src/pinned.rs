//! Bytes that a read hands out without copying them: they keep what they lie in alive.

use crate::memtable::Memtable;
use crate::table::PinnedValue;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes up to this length are copied into the value itself: cheaper than keeping their home alive.
const INLINE_LEN_MAX: usize = 30;

/// A key or a value. Dereferences to `[u8]`; cloning is cheap. While it lives, the block or the memtable that
/// it lies in stays in memory.
#[derive(Clone)]
pub struct Slice(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, bytes: [u8; INLINE_LEN_MAX] },
    Block(PinnedValue),
    Memtable { start: NonNull<u8>, len: usize, _home: Arc<Memtable> },
    Heap(Arc<[u8]>),
}

// SAFETY: the memory behind `start` is an immutable record of the arena that `_home` keeps, and `Memtable` is
// itself `Send` and `Sync`.
unsafe impl Send for Repr {}
// SAFETY: as above; nothing behind `start` is ever written again.
unsafe impl Sync for Repr {}

impl Slice {
    /// A copy of `bytes`.
    pub(crate) fn copied(bytes: &[u8]) -> Slice {
        match Slice::inline(bytes) {
            Some(slice) => slice,
            None => Slice(Repr::Heap(bytes.into())),
        }
    }

    fn inline(bytes: &[u8]) -> Option<Slice> {
        if bytes.len() > INLINE_LEN_MAX {
            return None;
        }
        let mut inline = [0; INLINE_LEN_MAX];
        inline[..bytes.len()].copy_from_slice(bytes);
        Some(Slice(Repr::Inline { len: bytes.len() as u8, bytes: inline }))
    }

    /// A value that lies in a block.
    #[inline]
    pub(crate) fn in_block(value: PinnedValue) -> Slice {
        Slice(Repr::Block(value))
    }

    /// A value that `home` returned: it lies in the arena that `home` keeps.
    #[inline]
    pub(crate) fn in_memtable(value: &[u8], home: &Arc<Memtable>) -> Slice {
        if let Some(slice) = Slice::inline(value) {
            return slice;
        }
        Slice(Repr::Memtable {
            start: NonNull::from(value).cast(),
            len: value.len(),
            _home: home.clone(),
        })
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Block(value) => value,
            // SAFETY: `in_memtable` took the range from a slice that the memtable lent out: it lies in the arena,
            // whose records are immutable and which is freed only with its last memtable.
            Repr::Memtable { start, len, .. } => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), *len)
            },
            Repr::Heap(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl<B: AsRef<[u8]> + ?Sized> PartialEq<B> for Slice {
    fn eq(&self, other: &B) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Slice {}

impl std::fmt::Debug for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::options::Options;
    use std::thread;

    /// Under Miri too, which sees what is used after it was freed: files are in memory, and level 0 is not compressed.
    #[test]
    fn slices_outlive_the_database_on_any_thread() {
        let db = Options::in_memory().write_budget(64 << 10).open("/db").unwrap();
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
