//! Entries of one block, decoded in one go for a scan that is likely to show them all.
//!
//! A step of a scan goes through several cursors, each of which has to be ready for anything. Most
//! steps lead to the next entry of the same block, so a scan that has begun to run takes such
//! entries many at a time, and then shows one after the other.

use super::block::{Block, RawEntry};
use super::reader::PinnedValue;
use super::{KEY_LEN_MAX, chunk};
use crate::env::{Plant, planted};
use crate::format::Lsn;
use crate::table::cache::BlockRef;

/// A short key is copied as this many bytes at once, whatever its length.
const COPY_LEN: usize = 32;

/// Spare room after the keys: two such copies.
const ROOM: usize = 2 * COPY_LEN;

/// What rows a scan asks for.
#[derive(Clone, Copy)]
pub(crate) struct RowLimits {
    /// The newest version of each key is a value that a reader at this point sees.
    pub(crate) point: Lsn,
    /// The greatest number of rows.
    pub(crate) count: usize,
    /// A key whose first eight bytes, as a big-endian number, are above this is not wanted.
    pub(crate) head: u64,
}

/// Keys with their values, in ascending order, each as a reader at some point finds it.
#[derive(Default)]
pub(crate) struct Rows {
    /// The block with the values.
    block: Option<BlockRef>,
    /// The keys, one after the other, and spare room.
    keys: Vec<u8>,
    rows: Vec<Row>,
}

#[derive(Clone, Copy)]
pub(super) struct Row {
    key_at: u32,
    key_len: u32,
    value_at: u32,
    /// The end of the value, where the next entry begins.
    end: u32,
    /// The ordinal of the entry in the block.
    index: u32,
}

impl Row {
    /// The ordinal of the entry, where its value begins and where it ends.
    pub(super) fn place(self) -> (u32, u32, u32) {
        (self.index, self.value_at, self.end)
    }
}

impl Rows {
    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The key of row `at`; empty if there is no such row.
    #[inline]
    pub(crate) fn key(&self, at: usize) -> &[u8] {
        self.rows.get(at).map_or(&[], |row| self.key_of(*row))
    }

    #[inline]
    pub(super) fn key_of(&self, row: Row) -> &[u8] {
        let at = row.key_at as usize;
        self.keys.get(at..at + row.key_len as usize).unwrap_or_default()
    }

    /// The key and the value of row `at`.
    #[inline]
    pub(crate) fn entry(&self, at: usize) -> Option<(&[u8], &[u8])> {
        let row = *self.rows.get(at)?;
        let value = self.block.as_deref()?.bytes().get(row.value_at as usize..row.end as usize)?;
        Some((self.key_of(row), value))
    }

    /// The value of row `at`, which stays in memory for as long as the caller keeps it.
    #[inline]
    pub(crate) fn value_pin(&self, at: usize) -> Option<PinnedValue> {
        let row = self.rows.get(at)?;
        Some(PinnedValue::new(self.block.clone()?, row.value_at, row.end))
    }

    pub(super) fn last(&self) -> Option<Row> {
        self.rows.last().copied()
    }

    /// Lets go of all rows.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.block = None;
    }

    /// Keeps the rows up to the first that is not `wanted`. What comes after one that is not wanted
    /// is not wanted either.
    pub(super) fn keep_while(&mut self, wanted: impl Fn(&[u8]) -> bool) {
        if self.last().is_some_and(|last| !wanted(self.key_of(last))) {
            let kept = self.rows.partition_point(|row| wanted(self.key_of(*row)));
            self.rows.truncate(kept);
        }
    }

    /// Takes rows of `block` from offset `at` on, where the entry with ordinal `index` begins. The
    /// entry before has this `key`, and the reader sees it. Stops before the first entry of another
    /// key that is not a value that this reader sees: only the cursor that knows all of the block
    /// can say what comes then. False at the end of the block.
    pub(super) fn decode(
        &mut self,
        block: &BlockRef,
        from: (u32, u32),
        key: &[u8],
        limits: RowLimits,
    ) -> bool {
        match block.is_slotted() {
            true => self.decode_as::<true>(block, from, key, limits),
            false => self.decode_as::<false>(block, from, key, limits),
        }
    }

    #[inline(always)]
    fn decode_as<const IS_SLOTTED: bool>(
        &mut self,
        block: &BlockRef,
        (mut index, mut at): (u32, u32),
        key: &[u8],
        RowLimits { point, count, head }: RowLimits,
    ) -> bool {
        let is_seen_whole = IS_SLOTTED && block.is_seen_whole(point);
        let has_single_versions = IS_SLOTTED && block.has_single_versions();
        self.rows.clear();
        self.rows.reserve(count);
        self.block = Some(block.clone());
        self.make_room(key.len() + count * COPY_LEN);
        self.keys[..key.len()].copy_from_slice(key);
        let (mut before, mut before_len) = (0, key.len());
        while self.rows.len() < count {
            let entry = if IS_SLOTTED { block.slot(index) } else { block.short_entry_at(at) };
            let Some(entry) = entry else { break };
            let shared = entry.shared as usize;
            let stored_len = (entry.value_at - entry.unshared_at) as usize;
            let is_older = !has_single_versions
                && block.has_key(entry, &self.keys[before..before + before_len]);
            if !is_older {
                let is_shown = is_seen_whole
                    || block.is_value_below(index, point)
                    || planted(Plant::RowsBeyondThePoint) && block.is_value_below(index, Lsn::MAX);
                let (key_at, key_len) = (before + before_len, shared + stored_len);
                if !is_shown || shared > before_len {
                    break;
                }
                if key_len > COPY_LEN || !self.copy_short(block, entry, before, key_at) {
                    if key_len > KEY_LEN_MAX {
                        break;
                    }
                    self.make_room(key_at + key_len + count * COPY_LEN);
                    self.keys.copy_within(before..before + shared, key_at);
                    self.keys[key_at + shared..key_at + key_len]
                        .copy_from_slice(block.unshared(entry));
                }
                if head < u64::MAX && self.head_at(key_at, key_len) > head {
                    break;
                }
                (before, before_len) = (key_at, key_len);
                self.rows.push(Row {
                    key_at: key_at as u32,
                    key_len: key_len as u32,
                    value_at: entry.value_at,
                    end: entry.end,
                    index,
                });
            }
            (index, at) = (index + 1, entry.end);
        }
        !block.is_last(index.saturating_sub(1), at)
    }

    /// The head of the key of `len` bytes at `key_at`.
    #[inline(always)]
    fn head_at(&self, key_at: usize, len: usize) -> u64 {
        let bytes = chunk::<8>(&self.keys, key_at).map_or(0, |head| u64::from_be_bytes(*head));
        let absent = 8 * 8_u32.saturating_sub(len as u32);
        bytes.unbounded_shr(absent).unbounded_shl(absent)
    }

    fn make_room(&mut self, end: usize) {
        if self.keys.len() < end + ROOM {
            self.keys.resize((end + ROOM).next_power_of_two(), 0);
        }
    }

    /// Puts the key of an entry at `key_at`, if it has at most 32 bytes: what it shares with the
    /// key at `before`, and then what is stored with it. False if the block ends too soon after it.
    #[inline(always)]
    fn copy_short(&mut self, block: &Block, entry: RawEntry, before: usize, key_at: usize) -> bool {
        let shared = entry.shared as usize;
        let Some(tail) = chunk::<COPY_LEN>(block.bytes(), entry.unshared_at as usize) else {
            return false;
        };
        let Some(&head) = chunk::<COPY_LEN>(&self.keys, before) else { return false };
        let to = self.keys.get_mut(key_at..).and_then(|rest| rest.first_chunk_mut::<ROOM>());
        let Some(to) = to.filter(|_| shared <= COPY_LEN) else { return false };
        to[..COPY_LEN].copy_from_slice(&head);
        to[shared..shared + COPY_LEN].copy_from_slice(tail);
        true
    }
}

#[cfg(test)]
mod tests;
