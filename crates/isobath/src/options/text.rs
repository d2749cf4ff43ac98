//! Sizes in `serde` formats.

use super::size;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;

/// Reads a size that is a number of bytes, or text with a unit.
pub(super) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(Size)
}

/// Reads a size that may be absent.
pub(super) fn optional_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Bytes>::deserialize(from)?.map(|Bytes(bytes)| bytes))
}

struct Bytes(u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        size(from).map(Bytes)
    }
}

struct Size;

impl Visitor<'_> for Size {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes, or a size such as \"64MiB\"")
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<u64, E> {
        Ok(bytes)
    }

    // For formats with signed integers, such as TOML.
    fn visit_i64<E: Error>(self, bytes: i64) -> Result<u64, E> {
        bytes.try_into().map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        size::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}
