//! The index of a slice: for each block, a key that is not below any key of the block.
//!
//! An index block is a block (see `block.rs`) with an interval of 1. The key of an entry is a
//! separator: at or above the last key of its data block, below the first key of the next one, and
//! as short as that allows. The value of the entry is the handle of the data block. First comes a
//! byte with the widths of two numbers: the low half holds the width of the offset (0 to 8), the
//! high half that of the length (0 to 4). Then come the offset within the slice and the length of
//! the block, both little-endian. The sequence number of an entry is 0, with one exception: if the
//! versions of one key fill the end of a block and continue in the next, the separator is that key,
//! and its sequence number is that of the block's last entry. So [`Block::search`] for (key, point)
//! finds the only block that can hold the answer.
//!
//! An index that is long beside its data (`TableOptions::flat_index_part`) is cut into leaves. A
//! *top* of the same form leads to them; its separators are the last separators of the leaves. The
//! top, or the only block, lies in the slice's root.

use super::block::{Block, RawEntry};
use super::block_builder::BlockBuilder;
use super::{BlockHandle, chunk};
use crate::error::{DecodeError, Decoded};
use crate::format::{Lsn, OpKind};
use std::cmp::Reverse;

/// Writes into `out` the shortest key that is at or above `below` and below `above`. `common` is
/// the length of their common prefix.
pub(crate) fn shortest_separator(below: &[u8], above: &[u8], common: usize, out: &mut Vec<u8>) {
    debug_assert!(below < above);
    out.clear();
    if below.len() <= common + 1 {
        out.extend_from_slice(below);
    } else if above.len() > common + 1 {
        out.extend_from_slice(&above[..=common]);
    } else if below[common] + 1 < above[common] {
        out.extend_from_slice(&below[..=common]);
        out[common] += 1;
    } else {
        // A longer prefix of `below`, with its last byte increased by one, is still below `above`.
        let raised = (common + 1..below.len()).find(|&i| below[i] < u8::MAX);
        match raised {
            Some(i) if i + 1 < below.len() => {
                out.extend_from_slice(&below[..=i]);
                out[i] += 1;
            }
            _ => out.extend_from_slice(below),
        }
    }
    debug_assert!(below <= out.as_slice() && out.as_slice() < above, "a separator lies between");
}

/// Collects the entries of one index block.
pub(crate) struct IndexBuilder {
    block: BlockBuilder,
    last: Vec<u8>,
    last_seq: Lsn,
    value: Vec<u8>,
}

impl IndexBuilder {
    pub(crate) fn new() -> IndexBuilder {
        let block = BlockBuilder::new(1);
        IndexBuilder { block, last: Vec::new(), last_seq: 0, value: Vec::new() }
    }

    /// Appends a block's handle. The offset in it is relative to the slice.
    pub(crate) fn add(&mut self, separator: &[u8], seq: Lsn, handle: BlockHandle) {
        debug_assert!(
            self.block.is_empty()
                || (self.last.as_slice(), Reverse(self.last_seq)) < (separator, Reverse(seq)),
            "separators ascend, and those of one key descend by sequence"
        );
        self.value.clear();
        let (offset_width, len_width) = (width(handle.offset), width(u64::from(handle.len)));
        self.value.push((offset_width | len_width << 4) as u8);
        self.value.extend_from_slice(&handle.offset.to_le_bytes()[..offset_width]);
        self.value.extend_from_slice(&handle.len.to_le_bytes()[..len_width]);
        self.block.add(separator, 0, seq, OpKind::Put, &self.value);
        self.last.clear();
        self.last.extend_from_slice(separator);
        self.last_seq = seq;
    }

    pub(crate) fn len(&self) -> usize {
        self.block.len()
    }

    pub(crate) fn finish(&mut self) -> &[u8] {
        self.block.finish(&self.last)
    }

    pub(crate) fn clear(&mut self) {
        self.block.clear(usize::MAX);
        self.last.clear();
    }
}

/// The number of bytes of `value` without leading zeros.
fn width(value: u64) -> usize {
    (64 - value.leading_zeros() as usize).div_ceil(8)
}

/// The handle in an index entry. `base` is the start of the slice.
#[inline]
pub(crate) fn handle_of(index: &Block, entry: RawEntry, base: u64) -> Decoded<BlockHandle> {
    let at = entry.value_at as usize;
    let widths = index.bytes()[at];
    let (offset_width, len_width) = (usize::from(widths & 15), usize::from(widths >> 4));
    let len_at = at + 1 + offset_width;
    let is_whole = offset_width <= 8 && len_width <= 4 && len_at + len_width == entry.end as usize;
    let offset = number(index, at + 1, offset_width).checked_add(base);
    match offset {
        Some(offset) if is_whole => {
            Ok(BlockHandle { offset, len: number(index, len_at, len_width) as u32 })
        }
        _ => Err(malformed_handle()),
    }
}

/// The integer of `width` bytes at `at`. Columns and tail follow the entries, so eight bytes can be
/// read there.
#[inline]
fn number(index: &Block, at: usize, width: usize) -> u64 {
    let Some(bytes) = chunk::<8>(index.bytes(), at) else { return 0 };
    u64::from_le_bytes(*bytes) & (1u64.unbounded_shl(8 * width as u32)).wrapping_sub(1)
}

#[cold]
fn malformed_handle() -> DecodeError {
    DecodeError::damaged("an index entry holds no handle")
}

/// An entry of an index block, by ordinal.
#[inline]
pub(crate) fn index_entry(index: &Block, ordinal: u32) -> Decoded<RawEntry> {
    index.entry_at(index.restart(ordinal))
}

/// Checks that a decoded block can be used as an index: every entry must be a restart.
pub(crate) fn parse_index(bytes: Vec<u8>) -> Decoded<Block> {
    let block = Block::parse(bytes)?;
    if block.interval() != 1 {
        return Err(DecodeError::damaged("an index block has an interval other than 1"));
    }
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn separator(below: &[u8], above: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let common = super::super::common_prefix_len(below, above);
        shortest_separator(below, above, common, &mut out);
        assert!(below <= &out[..] && &out[..] < above, "{below:?} {out:?} {above:?}");
        out
    }

    #[test]
    fn separators_are_short() {
        assert_eq!(separator(b"apple", b"banana"), b"b");
        assert_eq!(separator(b"apple", b"b"), b"aq");
        assert_eq!(separator(b"apple", b"c"), b"b");
        assert_eq!(separator(b"a\xff\xff", b"b"), b"a\xff\xff");
        assert_eq!(separator(b"a\xffab", b"b"), b"a\xffb");
        assert_eq!(separator(b"abc", b"abcdef"), b"abc");
        assert_eq!(separator(b"abcdef", b"abd123"), b"abd");
        assert_eq!(separator(b"user00123", b"user00124"), b"user00123");
        assert_eq!(separator(b"", b"\0"), b"");
    }

    #[test]
    fn a_separator_stands_between_any_two_keys_and_is_no_longer_than_the_lower() {
        let letters = [0u8, 1, 2, 254, 255];
        let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
        for len in 0..3 {
            let longer = keys
                .iter()
                .filter(|key| key.len() == len)
                .flat_map(|key| letters.map(|letter| [&key[..], &[letter]].concat()));
            let longer: Vec<_> = longer.collect();
            keys.extend(longer);
        }
        keys.sort();
        for (at, below) in keys.iter().enumerate() {
            for above in &keys[at + 1..] {
                assert!(separator(below, above).len() <= below.len().max(1), "{below:?} {above:?}");
            }
        }
    }

    #[test]
    fn handles_of_every_width_come_back_and_forged_ones_are_errors() {
        let mut builder = IndexBuilder::new();
        let handles: Vec<BlockHandle> = (0..57u32)
            .map(|at| BlockHandle {
                offset: (1 << at) - 1,
                len: (1u64 << (at % 33)).wrapping_sub(1) as u32,
            })
            .collect();
        for (at, handle) in handles.iter().enumerate() {
            builder.add(&[at as u8], at as u64 % 3, *handle);
        }
        let good = builder.finish().to_vec();
        let block = parse_index(good.clone()).unwrap();
        for (at, handle) in handles.iter().enumerate() {
            let entry = index_entry(&block, at as u32).unwrap();
            let expected = BlockHandle { offset: handle.offset + 9, ..*handle };
            assert_eq!(handle_of(&block, entry, 9).unwrap(), expected);
            let end = u64::MAX - handle.offset;
            assert_eq!(handle_of(&block, entry, end).unwrap().offset, u64::MAX);
            assert!(end == u64::MAX || handle_of(&block, entry, end + 1).is_err());
            for widths in 0..=255 {
                let mut bad = good.clone();
                let own = std::mem::replace(&mut bad[entry.value_at as usize], widths);
                let handle = handle_of(&parse_index(bad).unwrap(), entry, 0);
                let is_as_long = (widths & 15) + (widths >> 4) == (own & 15) + (own >> 4);
                let is_possible = widths & 15 <= 8 && widths >> 4 <= 4;
                assert_eq!(handle.is_ok(), is_as_long && is_possible, "{widths:#x} for {own:#x}");
            }
        }
    }

    #[test]
    fn golden_bytes_hold() {
        let mut builder = IndexBuilder::new();
        builder.add(b"abc", 0, BlockHandle { offset: 0, len: 300 });
        builder.add(b"abd", 0, BlockHandle { offset: 300, len: 17 });
        let mut expected = b"\x00\x03\x03abc\x20\x2c\x01".to_vec();
        expected.extend_from_slice(b"\x00\x03\x04abd\x12\x2c\x01\x11");
        expected.extend_from_slice(b"c\0\0\0\0\0\0\0d\0\0\0\0\0\0\0");
        expected.extend_from_slice(b"\0\0\0\0\x09\0\0\0");
        expected.extend_from_slice(b"\x01\x01");
        expected.extend_from_slice(b"\0\0\0\0\0\0\0\0\x02\0\0\0\x02\0\x01\x01");
        assert_eq!(builder.finish(), expected);
        let block = parse_index(expected).unwrap();
        let (_, entry) = block.search_restarts(b"abc5", Lsn::MAX).unwrap().unwrap();
        let handle = handle_of(&block, entry, 1000).unwrap();
        assert_eq!(handle, BlockHandle { offset: 1300, len: 17 });
    }
}
