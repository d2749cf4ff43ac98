//! A key that is reconstructed from prefix-compressed entries, one after another.

use super::{KEY_LEN_MAX, chunk};
use crate::error::{DecodeError, Decoded};

/// A short tail is copied as this many bytes at once, whatever its length.
const COPY_LEN: usize = 16;

#[cold]
fn too_long() -> DecodeError {
    DecodeError::damaged("a block has a key of an impossible length")
}

/// A key, with spare room after it.
#[derive(Debug, Default)]
pub(super) struct KeyBuffer {
    /// The first `len` bytes are the key. The bytes after it have no meaning.
    bytes: Vec<u8>,
    len: usize,
}

impl KeyBuffer {
    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Longer keys cannot be written. A small forged block could use prefix compression to expand
    /// to any size, so the length is checked.
    #[inline]
    pub(super) fn check_len(&self) -> Decoded<()> {
        if self.len <= KEY_LEN_MAX { Ok(()) } else { Err(too_long()) }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Keeps the first `shared` bytes and puts `source[start..end]` after them. Returns false and
    /// changes nothing if the key is shorter than `shared`, or if the source has no such range.
    #[inline(always)]
    pub(super) fn replace_tail(
        &mut self,
        shared: usize,
        source: &[u8],
        start: usize,
        end: usize,
    ) -> bool {
        self.replace_short_tail(shared, source, start, end)
            || self.replace_long_tail(shared, source.get(start..end))
    }

    /// The same for a tail of at most 16 bytes, if there is room for it. Otherwise returns false
    /// and changes nothing.
    #[inline(always)]
    pub(super) fn replace_short_tail(
        &mut self,
        shared: usize,
        source: &[u8],
        start: usize,
        end: usize,
    ) -> bool {
        let len = end.wrapping_sub(start);
        if shared > self.len || len > COPY_LEN {
            return false;
        }
        let Some(from) = chunk::<COPY_LEN>(source, start) else { return false };
        let to = self.bytes.get_mut(shared..).and_then(|rest| rest.first_chunk_mut::<COPY_LEN>());
        let Some(to) = to else { return false };
        *to = *from;
        self.len = shared + len;
        debug_assert!(self.len <= self.bytes.len(), "a key is longer than its buffer");
        true
    }

    #[inline(never)]
    fn replace_long_tail(&mut self, shared: usize, tail: Option<&[u8]>) -> bool {
        let Some(tail) = tail.filter(|_| shared <= self.len) else { return false };
        let len = shared + tail.len();
        if self.bytes.len() < len + COPY_LEN {
            self.bytes.resize((len + COPY_LEN).next_power_of_two(), 0);
        }
        self.bytes[shared..len].copy_from_slice(tail);
        self.len = len;
        true
    }

    /// Replaces the key by `key`.
    pub(super) fn set(&mut self, key: &[u8]) {
        self.replace_long_tail(0, Some(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_of_every_length_are_replaced() {
        let source: Vec<u8> = (0..200).collect();
        let mut key = KeyBuffer::default();
        let mut expected = Vec::new();
        for (shared, start, end) in [
            (0, 0, 3),
            (2, 10, 10),
            (2, 10, 26),
            (5, 100, 190),
            (90, 184, 200),
            (1, 199, 200),
            (2, 3, 20),
        ] {
            assert!(key.replace_tail(shared, &source, start, end));
            expected.truncate(shared);
            expected.extend_from_slice(&source[start..end]);
            assert_eq!((key.as_slice(), key.len()), (&expected[..], expected.len()));
        }
        assert!(!key.replace_tail(20, &source, 0, 1));
        assert!(!key.replace_tail(0, &source, 150, 201));
        assert!(!key.replace_tail(0, &source, 5, 4));
        assert_eq!(key.as_slice(), expected);
        key.set(b"another");
        assert_eq!(key.as_slice(), b"another");
    }
}
