//! Values that end: what is stored of them, and whether their end has come.
//!
//! ```text
//! expiry  u64: milliseconds since 1970, little-endian
//! value   the rest
//! ```

use super::{Lsn, OpKind};

/// The length of what comes before the value.
pub(crate) const EXPIRY_LEN: usize = 8;

/// A point, and the time there in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) point: Lsn,
    pub(crate) unix_ms: u64,
}

/// Of values that were read, the one that ends first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FirstEnd {
    pub(crate) unix_ms: u64,
    pub(crate) key: Box<[u8]>,
}

/// A value that ends, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expiring<'a> {
    pub(crate) expires_ms: u64,
    pub(crate) value: &'a [u8],
}

impl<'a> Expiring<'a> {
    /// What is stored with an operation of kind [`OpKind::PutExpiring`]; `None` if that is too
    /// short.
    #[inline]
    pub(crate) fn split(stored: &'a [u8]) -> Option<Expiring<'a>> {
        let (expires_ms, value) = stored.split_first_chunk::<EXPIRY_LEN>()?;
        Some(Expiring { expires_ms: u64::from_le_bytes(*expires_ms), value })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.expires_ms.to_le_bytes());
        out.extend_from_slice(self.value);
    }

    /// True if the value is there at this time.
    #[inline]
    pub(crate) fn lives_at(&self, unix_ms: u64) -> bool {
        unix_ms < self.expires_ms
    }
}

/// True if an operation's value is there at this time. One that is too short to have an end, which
/// no write has made, is over.
#[inline]
pub(crate) fn lives_at(stored: &[u8], unix_ms: u64) -> bool {
    Expiring::split(stored).is_some_and(|ends| ends.lives_at(unix_ms))
}

/// The value that is stored with an operation, or its address, without what comes before it.
#[inline]
pub(crate) fn value_of(kind: OpKind, stored: &[u8]) -> &[u8] {
    if kind.is_expiring() { stored.get(EXPIRY_LEN..).unwrap_or_default() } else { stored }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_a_value_that_ends() {
        let ends = Expiring { expires_ms: 0x0102_0304, value: b"v" };
        let mut stored = Vec::new();
        ends.put(&mut stored);
        assert_eq!(stored, b"\x04\x03\x02\x01\0\0\0\0v");
        assert_eq!(Expiring::split(&stored), Some(ends));
        assert_eq!(value_of(OpKind::PutExpiring, &stored), b"v");
        assert_eq!(value_of(OpKind::Put, &stored), stored);
    }

    #[test]
    fn a_value_is_there_until_the_moment_at_which_it_ends() {
        let stored = 100u64.to_le_bytes();
        let lives: Vec<_> = [99, 100, 101].iter().map(|ms| lives_at(&stored, *ms)).collect();
        assert_eq!(lives, [true, false, false]);
        assert!(!lives_at(&stored[1..], 0), "what is too short has no value");
        assert_eq!(value_of(OpKind::PutExpiring, &stored[1..]), b"");
    }
}
