//! Slotted data blocks: the place of an entry follows from its ordinal, and no key needs the one
//! before it.
//!
//! ```text
//! entries     per entry: length of the rest of its key (varint, only if `rest_len` does not tell it),
//!             the rest of its key, value
//! offsets     per entry its offset, and then the end of the entries: `offset_len` bytes each; with an
//!             `offset_len` of 0 there are none, and all entries are of one length
//! prefix      the bytes with which all keys begin
//! heads       per entry: u16, the two bytes of its key after the prefix as a number that sorts as they
//!             do; a missing byte counts as 0
//! versions    as in `block.rs`
//! greatest    u64: (greatest sequence - base) << 4 | flags
//! rest_len    u16: the length of each key after the prefix; 65535 if lengths differ
//! offset_len  u8: 0, 2 or 4
//! form        u8: 2
//! base, count, prefix length, 0, width    16 bytes, as in `block.rs`; its interval is 0
//! ```
//!
//! Integers are little-endian. The *rest* of a key is what follows the prefix. A search counts the
//! heads that are below the wanted one, which takes no branch, and mostly looks at one entry then.
//! Where heads are equal it compares the rests of keys, and then sequence numbers. Flag 1 says that
//! every entry is a value that stays, flag 2 that no two entries have the same key.
//!
//! Nothing here trusts the bytes, as in `block.rs`.

use super::block::{Block, Hit, RawEntry, TAIL_LEN, malformed};
use super::key_buffer::KeyBuffer;
use super::{KEY_LEN_MAX, chunk};
use crate::env::{Plant, Reach, planted, reached_if};
use crate::error::{DecodeError, Decoded};
use crate::format::{Decoder, Lsn, varint_len};
use std::cmp::Ordering;

pub(super) const SLOT_HEAD_LEN: usize = 2;
/// The length of what stands between the prefix and the tail.
pub(super) const EXTENSION_LEN: usize = 12;
pub(super) const FORM: u8 = 2;
/// Stands for lengths that differ.
pub(super) const REST_LEN_DIFFERS: u16 = u16::MAX;
/// Every entry is a value that stays.
pub(super) const FLAG_ALL_LASTING: u64 = 1;
/// No two entries have the same key.
pub(super) const FLAG_ONE_VERSION: u64 = 2;
pub(super) const FLAG_BITS: u32 = 4;
pub(super) const FLAG_MASK: u64 = (1 << FLAG_BITS) - 1;

/// Of so many heads or fewer each is compared; a search halves more.
const COUNTED_MAX: usize = 64;

/// What a search in a slotted block needs beyond the tail that all blocks have.
#[derive(Clone, Copy, Default)]
pub(super) struct Slots {
    /// Where the offsets begin, if there are any.
    pub(super) entries_end: u32,
    /// The length of an entry if all have the same.
    stride: u32,
    rest_len: u16,
    offset_len: u8,
    flags: u8,
    greatest: Lsn,
}

/// The first two bytes of the rest of a key, as a number with the same order.
#[inline(always)]
pub(super) fn slot_head(rest: &[u8]) -> u16 {
    match *rest {
        [first, second, ..] => u16::from_be_bytes([first, second]),
        [first] => u16::from_be_bytes([first, 0]),
        [] => 0,
    }
}

impl Slots {
    /// Finds the parts of a block whose tail has these numbers, and where heads and versions begin.
    pub(super) fn parse(
        bytes: &[u8],
        entry_count: u32,
        prefix_len: u16,
        width: u8,
        base: Lsn,
    ) -> Decoded<(Slots, u32, u32)> {
        let body = &bytes[..bytes.len() - TAIL_LEN];
        let Some((body, extension)) = body.split_last_chunk::<EXTENSION_LEN>() else {
            return Err(malformed("is shorter than its tail"));
        };
        let greatest = u64::from_le_bytes(extension[..8].try_into().expect("8 bytes"));
        let rest_len = u16::from_le_bytes([extension[8], extension[9]]);
        let [offset_len, form] = [extension[10], extension[11]];
        let flags = greatest & FLAG_MASK;
        if form < FORM {
            return Err(malformed("has no form"));
        }
        if form > FORM || flags & !(FLAG_ALL_LASTING | FLAG_ONE_VERSION) != 0 {
            return Err(DecodeError::newer_format(format!("form {form} of a data block")));
        }
        let count = u64::from(entry_count);
        let offsets_len = match offset_len {
            0 => 0,
            2 | 4 => (count + 1) * u64::from(offset_len),
            _ => return Err(malformed("has offsets of an impossible length")),
        };
        let heads_len = count * SLOT_HEAD_LEN as u64;
        let versions_len = count * u64::from(width);
        let columns = offsets_len + heads_len + versions_len + u64::from(prefix_len);
        let Some(entries_end) = (body.len() as u64).checked_sub(columns) else {
            return Err(malformed("is shorter than its columns"));
        };
        if offset_len == 0 && !entries_end.is_multiple_of(count) {
            return Err(malformed("has entries of one length that do not fill it"));
        }
        let heads_at = entries_end + offsets_len + u64::from(prefix_len);
        let versions_at = heads_at + heads_len;
        let slots = Slots {
            entries_end: entries_end as u32,
            stride: (entries_end / count) as u32,
            rest_len,
            offset_len,
            flags: flags as u8,
            greatest: base.saturating_add(greatest >> FLAG_BITS),
        };
        Ok((slots, heads_at as u32, versions_at as u32))
    }
}

impl Block {
    /// True if the block has the form that this file describes.
    #[inline(always)]
    pub(super) fn is_slotted(&self) -> bool {
        self.interval() == 0
    }

    /// True if no two entries have the same key, and the block says so.
    #[inline(always)]
    pub(super) fn has_single_versions(&self) -> bool {
        u64::from(self.slots.flags) & FLAG_ONE_VERSION != 0
    }

    /// True if a reader at `point` sees a value that stays in each entry, and the block says so.
    #[inline(always)]
    pub(super) fn is_seen_whole(&self, point: Lsn) -> bool {
        u64::from(self.slots.flags) & FLAG_ALL_LASTING != 0 && self.slots.greatest < point
    }

    /// The bytes with which all keys of a slotted block begin. Nothing for a chained one, whose
    /// first entry has a whole key.
    #[inline]
    pub(super) fn stored_prefix(&self) -> &[u8] {
        if !self.is_slotted() {
            return &[];
        }
        let end = self.heads_at() as usize;
        self.bytes().get(end - self.prefix_len()..end).unwrap_or_default()
    }

    /// The entry with this ordinal. `None` if there is none, or if the block is malformed there.
    #[inline(always)]
    pub(super) fn slot(&self, index: u32) -> Option<RawEntry> {
        if index >= self.entry_count() {
            return None;
        }
        let slots = &self.slots;
        let at = slots.entries_end as usize + index as usize * usize::from(slots.offset_len);
        let (start, end) = match slots.offset_len {
            0 => (index * slots.stride, (index + 1) * slots.stride),
            2 => {
                let pair = u32::from_le_bytes(*chunk::<4>(self.bytes(), at)?);
                (pair & 0xffff, pair >> 16)
            }
            _ => {
                let pair = u64::from_le_bytes(*chunk::<8>(self.bytes(), at)?);
                (pair as u32, (pair >> 32) as u32)
            }
        };
        if start > end || end > slots.entries_end {
            return None;
        }
        let (unshared_at, value_at) = match slots.rest_len {
            REST_LEN_DIFFERS => match *self.bytes().get(start as usize)? {
                len @ 0..0x80 => (start + 1, start + 1 + u32::from(len)),
                _ => self.long_slot(start, end)?,
            },
            len => (start, start + u32::from(len)),
        };
        let shared = self.prefix_len() as u32;
        let is_within = value_at <= end || planted(Plant::EntryBelieved);
        is_within.then_some(RawEntry { shared, unshared_at, value_at, end })
    }

    /// Where the rest of a long key lies, in an entry that states its length.
    #[cold]
    fn long_slot(&self, start: u32, end: u32) -> Option<(u32, u32)> {
        let mut decoder = Decoder::new(self.bytes().get(start as usize..end as usize)?);
        let len = decoder.varint32().ok()?;
        let unshared_at = start + decoder.offset() as u32;
        Some((unshared_at, unshared_at.checked_add(len)?))
    }

    /// The same, with an error if there is no such entry.
    #[inline(always)]
    fn slot_at(&self, index: u32) -> Decoded<RawEntry> {
        match self.slot(index) {
            Some(entry) => Ok(entry),
            None => Err(malformed("has an entry that does not lie within it")),
        }
    }

    #[inline(always)]
    fn slot_head(&self, index: u32) -> u16 {
        let at = self.heads_at() as usize + index as usize * SLOT_HEAD_LEN;
        chunk::<2>(self.bytes(), at).map_or(0, |head| u16::from_le_bytes(*head))
    }

    /// How many heads are below `head`.
    #[inline(always)]
    fn heads_below(&self, head: u16) -> u32 {
        let start = self.heads_at() as usize;
        let mut heads = &self.bytes()[start..start + self.entry_count() as usize * SLOT_HEAD_LEN];
        let mut below = 0;
        while heads.len() > COUNTED_MAX * SLOT_HEAD_LEN {
            let half = heads.len() / SLOT_HEAD_LEN / 2;
            let (lower, upper) = heads.split_at(half * SLOT_HEAD_LEN);
            let is_below = chunk::<2>(upper, 0).is_some_and(|it| u16::from_le_bytes(*it) < head);
            heads = if is_below { upper } else { lower };
            below += if is_below { half as u32 } else { 0 };
        }
        let (heads, _) = heads.as_chunks::<SLOT_HEAD_LEN>();
        let counted = heads.iter().map(|it| u16::from(u16::from_le_bytes(*it) < head)).sum::<u16>();
        let below = below + u32::from(counted);
        debug_assert!(below <= self.entry_count(), "more heads are counted than there are");
        below
    }

    /// The ordinals between which lie the entries whose keys have this head.
    #[inline(always)]
    fn slots_of(&self, head: u16) -> (u32, u32) {
        let (low, count) = (self.heads_below(head), self.entry_count());
        if low >= count || self.slot_head(low) != head {
            return (low, low);
        }
        if low + 1 >= count || self.slot_head(low + 1) != head {
            return (low, low + 1);
        }
        (low, head.checked_add(1).map_or(count, |above| self.heads_below(above).max(low)))
    }

    /// [`Block::search`] in a slotted block.
    #[inline(always)]
    pub(super) fn search_slots(&self, key: &[u8], point: Lsn) -> Decoded<Option<Hit>> {
        let prefix = self.stored_prefix();
        let Some(rest) = key.strip_prefix(prefix) else {
            if key > prefix {
                return Ok(None);
            }
            let entry = self.slot_at(0)?;
            return Ok(Some(Hit { index: 0, shared: entry.shared, entry, is_equal: false }));
        };
        let (mut low, mut high) = self.slots_of(slot_head(rest));
        let mut found = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.slot_at(middle)?;
            let order = self.unshared(entry).cmp(rest);
            reached_if(Reach::ReadAtPointInTable, || {
                order == Ordering::Equal && self.seq(middle) == point
            });
            let is_equal = order == Ordering::Equal;
            if order == Ordering::Less || is_equal && self.seq(middle) >= point {
                low = middle + 1;
            } else {
                high = middle;
                found = Some((entry, is_equal));
            }
        }
        let (entry, is_equal) = match found {
            Some(found) => found,
            None if low >= self.entry_count() => return Ok(None),
            None => (self.slot_at(low)?, false),
        };
        Ok(Some(Hit { index: low, shared: entry.shared, entry, is_equal }))
    }

    /// [`Block::search_before`] in a slotted block.
    pub(super) fn search_slots_before(
        &self,
        key: Option<&[u8]>,
        found: &mut KeyBuffer,
    ) -> Decoded<Option<(u32, RawEntry)>> {
        let hit = key.map(|key| self.search_slots(key, Lsn::MAX)).transpose()?;
        let end = hit.flatten().map_or(self.entry_count(), |hit| hit.index);
        let Some(last) = end.checked_sub(1) else { return Ok(None) };
        let entry = self.slot_at(last)?;
        self.begin_key(found);
        self.extend_key(entry, found)?;
        let is_only = self.has_single_versions()
            || last == 0
            || self.unshared(self.slot_at(last - 1)?) != self.unshared(entry);
        if is_only {
            return Ok(Some((last, entry)));
        }
        match self.search_slots(found.as_slice(), Lsn::MAX)? {
            Some(hit) if hit.is_equal => Ok(Some((hit.index, hit.entry))),
            _ => Err(malformed("has keys out of order")),
        }
    }

    /// The entry before the one at `index`, which has this `key`, if it is the newest version of
    /// its key in the slice and has a smaller key. `None` also where more than a look at its
    /// neighbour is needed to say so.
    #[inline(always)]
    pub(super) fn slot_below(&self, index: u32, key: &[u8]) -> Option<(u32, RawEntry)> {
        // Newer versions of the first key may lie in the block before.
        let before = index.checked_sub(1).filter(|before| *before > 0)?;
        let entry = self.slot(before)?;
        let stored = self.unshared(entry);
        let is_newest = self.has_single_versions()
            || self.slot(before - 1).is_some_and(|newer| self.unshared(newer) != stored);
        let is_below = key.get(self.prefix_len()..).is_some_and(|rest| stored < rest)
            || planted(Plant::DescentBelieved);
        (is_newest && is_below).then_some((before, entry))
    }

    /// The entry after the one at `index`, which ends at `at`, if it has the common form.
    #[inline(always)]
    pub(super) fn entry_after(&self, index: u32, at: u32) -> Option<RawEntry> {
        if self.is_slotted() { self.slot(index + 1) } else { self.short_entry_at(at) }
    }

    /// The entry with ordinal `index`, which begins at `at`: the end of the one before, or 0 for
    /// the first.
    #[inline(always)]
    pub(crate) fn entry_of(&self, index: u32, at: u32) -> Decoded<RawEntry> {
        if self.is_slotted() { self.slot_at(index) } else { self.entry_at(at) }
    }

    /// True if no entry follows the one at `index`, which ends at `at`.
    #[inline]
    pub(super) fn is_last(&self, index: u32, at: u32) -> bool {
        match self.is_slotted() {
            true => index + 1 >= self.entry_count(),
            false => at >= self.entries_end(),
        }
    }

    /// Changes `key` from the key of a neighbour to the key of `entry`, if that is a short step.
    /// Otherwise returns false and changes nothing.
    #[inline(always)]
    pub(super) fn step_key(&self, entry: RawEntry, key: &mut KeyBuffer) -> bool {
        let shared = entry.shared as usize;
        let (start, end) = (entry.unshared_at as usize, entry.value_at as usize);
        if !self.is_slotted() {
            return key.replace_short_tail(shared, self.bytes(), start, end);
        }
        // No step from key to key adds up in a slotted block, so a long rest is a short step too.
        let is_key = shared + (end - start) <= KEY_LEN_MAX;
        is_key && key.replace_tail(shared, self.bytes(), start, end)
    }

    /// Makes `key` ready for a walk over entries: [`Block::extend_key`] turns it into the key of
    /// one.
    #[inline]
    pub(super) fn begin_key(&self, key: &mut KeyBuffer) {
        key.set(self.stored_prefix());
    }

    /// True if `entry`, which follows one with this `key`, is known to have another key. False also
    /// where a chained block stores a whole key.
    #[inline(always)]
    pub(super) fn changes_key(&self, entry: RawEntry, key: &[u8]) -> bool {
        if self.is_slotted() {
            return self.has_single_versions() || !self.has_key(entry, key);
        }
        let is_same = entry.value_at == entry.unshared_at && entry.shared as usize == key.len();
        entry.shared > 0 && !is_same
    }

    /// True if `entry`, which follows one with this `key`, has the same key.
    #[inline(always)]
    pub(super) fn has_key(&self, entry: RawEntry, key: &[u8]) -> bool {
        let stored = self.unshared(entry);
        if self.is_slotted() {
            return key.get(entry.shared as usize..) == Some(stored);
        }
        match entry.shared {
            0 => stored == key,
            _ => stored.is_empty() && entry.shared as usize == key.len(),
        }
    }

    /// Checks that offsets, heads, prefix and flags agree with the entries, and that the entries
    /// fill their part of the block.
    pub(super) fn check_slots(&self) -> Decoded<()> {
        let (mut end, mut greatest) = (0, 0);
        let (mut is_lasting, mut is_single) = (true, true);
        let mut before: Option<&[u8]> = None;
        for index in 0..self.entry_count() {
            let entry = self.slot_at(index)?;
            let rest = self.unshared(entry);
            let header_len = match self.slots.rest_len {
                REST_LEN_DIFFERS => varint_len(rest.len() as u64) as u32,
                _ => 0,
            };
            if entry.unshared_at != end + header_len || self.slot_head(index) != slot_head(rest) {
                return Err(malformed(
                    "has an offset or a head that does not agree with its entry",
                ));
            }
            if self.prefix_len() + rest.len() > KEY_LEN_MAX {
                return Err(malformed("has a key of an impossible length"));
            }
            if let Ok((_, kind)) = self.version(index) {
                is_lasting &= kind.is_lasting_put();
            }
            is_single &= before != Some(rest);
            greatest = greatest.max(self.seq(index));
            (before, end) = (Some(rest), entry.end);
        }
        let claims = self.slots.flags;
        let is_true = |flag: u64, holds: bool| u64::from(claims) & flag == 0 || holds;
        if end != self.slots.entries_end
            || greatest != self.slots.greatest
            || !is_true(FLAG_ALL_LASTING, is_lasting)
            || !is_true(FLAG_ONE_VERSION, is_single)
        {
            return Err(malformed("does not agree with its entries"));
        }
        Ok(())
    }
}
