//! Keys and values as the oracle keeps them: keys are shared, values are digests, so that thousands
//! of keys and values of megabytes cost the oracle little.
//!
//! A value's bytes follow from who wrote it ([`Draft`]), so nothing has to keep them: the writer
//! fills them in when it writes, and what a read returns is digested at once ([`Value::of`]) and
//! compared as a [`Value`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A key, shared by everything that refers to it.
pub(crate) type Key = Arc<[u8]>;

/// A family (0 is the default one) and a key.
pub(crate) type Place = (u8, Key);

pub(crate) type Values = BTreeMap<Place, Value>;

/// What a commit does to a place: puts a value, or deletes.
pub(crate) type Write = (Place, Option<Draft>);

/// How much of a value is kept as it is.
const HEAD_LEN: usize = 20;

/// A value: its length, its first bytes and a digest of all of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Value {
    len: u32,
    head: [u8; HEAD_LEN],
    digest: u64,
}

impl Value {
    pub(crate) fn of(bytes: &[u8]) -> Value {
        let mut head = [0; HEAD_LEN];
        let head_len = bytes.len().min(HEAD_LEN);
        head[..head_len].copy_from_slice(&bytes[..head_len]);
        Value { len: bytes.len() as u32, head, digest: digest(bytes) }
    }

    /// The first bytes, as far as they are kept.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head[..HEAD_LEN.min(self.len as usize)]
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Value { len, digest, .. } = self;
        write!(f, "{:?} ({len} bytes, {digest:08x})", String::from_utf8_lossy(self.head()))
    }
}

/// What a value is made of: a text, and then `len` bytes that follow from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Draft {
    text: String,
    len: usize,
}

impl Draft {
    /// A text and nothing else.
    pub(crate) fn text(text: String) -> Draft {
        Draft { text, len: 0 }
    }

    /// The value of the `nth` operation of a writer's commit, no two of which are equal.
    pub(crate) fn of(writer: usize, number: u64, nth: usize, len: usize) -> Draft {
        Draft { text: format!("{writer}.{number}.{nth}."), len }
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.text.len() + self.len
    }

    /// The bytes. Half of them repeat, so that they can be compressed.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.text.clone().into_bytes();
        let mut word = digest(&bytes);
        let end = bytes.len() + self.len;
        bytes.reserve(self.len + 16);
        while bytes.len() < end {
            word = mix(word, 0x9e37_79b9_7f4a_7c15);
            bytes.extend(word.to_le_bytes());
            bytes.extend([b'.'; 8]);
        }
        bytes.truncate(end);
        bytes
    }
}

fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ 0xa076_1d64_78bd_642f) * u128::from(b ^ 0xe703_7ed1_a0b4_28db);
    (product >> 64) as u64 ^ product as u64
}

fn digest(bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    };
    bytes
        .chunks(8)
        .fold(bytes.len() as u64, |digest, chunk| mix(digest.rotate_left(1), word(chunk)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_differ_if_any_byte_or_the_length_does() {
        let bytes = Draft::of(1, 2, 3, 100).bytes();
        let value = Value::of(&bytes);
        assert_eq!(value, Value::of(&bytes.clone()));
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_ne!(value, Value::of(&other), "byte {at}");
            assert_ne!(value, Value::of(&bytes[..at]), "cut at {at}");
        }
        assert_ne!(Value::of(b"a"), Value::of(b"a\0"));
        assert_ne!(bytes, Draft::of(1, 2, 4, 100).bytes());
        assert_eq!(Value::of(b"12").head(), b"12");
    }
}
