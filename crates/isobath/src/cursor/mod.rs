//! Walks several sources of versions as one cursor: merged, concatenated, and filtered for a reader
//! at a read point.

mod bound_key;
mod concat;
mod dead;
mod hidden;
mod merge;
mod steps;
mod visible;

#[cfg(test)]
pub(crate) mod fixtures;

pub(crate) use crate::mvcc::{Cursor, Entry, next_key_by_comparing};
pub(crate) use concat::{ConcatCursor, SliceProvider};
pub(crate) use merge::MergeCursor;
pub(crate) use visible::{Folds, VisibleCursor};

/// The first eight bytes of a key as a big-endian number, padded with zeros. Unequal heads order as
/// their keys do; equal heads decide nothing.
#[inline]
pub(crate) fn key_head(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            let mut head = [0; 8];
            head[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(head)
        }
    }
}
