//! A decoded block, of data or of the index, and the search in it.
//!
//! ```text
//! entries    per entry: shared, unshared, value length (varints), unshared key bytes, value
//! heads      per restart: 8 bytes of its key after the block's common prefix, big-endian, zero-padded
//! restarts   per restart: u32 offset of its entry
//! versions   per entry, `width` bytes: (sequence - base) << 4 | operation kind
//! base       u64, the least sequence of the block
//! count      u32, entries
//! prefix     u16, length of the prefix that all keys share (at most 65535)
//! interval   u8, every how many entries a restart stands
//! width      u8, 1 to 8
//! ```
//!
//! Integers are little-endian except the heads. Entries are sorted by key ascending, then by
//! sequence number descending. `shared` is the number of bytes that a key has in common with the
//! key before it; at a restart it is 0. A search looks at the heads first, without decoding a key.
//! Then it walks over at most `interval` entries between two restarts. An index block has the same
//! layout, with an interval of 1 (see `index.rs`).
//!
//! A block with an interval of 0 is of another form: `slotted.rs` has it. A data block has one of
//! both; an index block always has this one, which is called *chained*.
//!
//! Nothing here trusts the bytes. For any bytes, a call returns a result or an error and does not
//! panic.

use super::key_buffer::KeyBuffer;
use super::slotted::Slots;
use super::{chunk, common_prefix_len};
use crate::env::{Plant, Reach, planted, prefetch, reached_if};
use crate::error::{DecodeError, Decoded, MemoryClass};
use crate::format::{LSN_END, Lsn, OpKind};
use crate::memory::{Budget, Charge};
use std::cmp::Ordering;
use std::sync::Arc;

pub(crate) const HEAD_LEN: usize = 8;
pub(crate) const RESTART_LEN: usize = 4;
pub(crate) const TAIL_LEN: usize = 16;
pub(crate) const KIND_BITS: u32 = 4;

pub(crate) const KIND_MASK: u64 = (1 << KIND_BITS) - 1;

/// The maximum length of a decoded block. Offsets within it and the headers after them fit 32 bits.
pub(crate) const BLOCK_LEN_MAX: usize = (u32::MAX - (1 << 20)) as usize;

/// The largest sequence number a block can hold.
pub(crate) const SEQ_MAX: Lsn = Lsn::MAX >> KIND_BITS;
const _: () = assert!(LSN_END - 1 <= SEQ_MAX, "what the log takes can be flushed");

/// The 8 bytes of `key` after a prefix, as an integer with the same order.
#[inline]
pub(crate) fn key_head(key: &[u8], prefix_len: usize) -> u64 {
    let rest = key.get(prefix_len..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            let mut head = [0; 8];
            head[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(head)
        }
    }
}

/// A block in its decoded form. It is cached, shared and immutable.
#[derive(Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    heads_at: u32,
    restarts_at: u32,
    versions_at: u32,
    entry_count: u32,
    restart_count: u32,
    prefix_len: u16,
    /// 0 in a slotted block.
    interval: u8,
    width: u8,
    base: Lsn,
    pub(super) slots: Slots,
    /// What its memory is charged to. How much that is follows from its bytes.
    budget: Option<Arc<Budget>>,
}

/// What is charged for a block beside its bytes: a frame of its own, or, if a cache has it, its
/// places in the map, in a queue and among the ghosts. A cache has charged the frame then.
const CHARGED_BESIDE: u64 = 128;

impl Drop for Block {
    fn drop(&mut self) {
        self.uncharge();
    }
}

/// The positions of an entry's parts in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawEntry {
    /// The number of bytes that the key has in common with the key before.
    pub(crate) shared: u32,
    pub(crate) unshared_at: u32,
    /// The end of the unshared part of the key, where the value begins.
    pub(crate) value_at: u32,
    /// The end of the value, where the next entry begins.
    pub(crate) end: u32,
}

/// An entry that a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    /// The entry's ordinal in the block.
    pub(crate) index: u32,
    /// The entry's key begins with this many bytes of the key searched for.
    pub(crate) shared: u32,
    pub(crate) entry: RawEntry,
    /// True if the entry's key is the key searched for.
    pub(crate) is_equal: bool,
}

#[cold]
pub(super) fn malformed(what: &str) -> DecodeError {
    DecodeError::damaged(format!("a block {what}"))
}

impl Block {
    /// A value that lies in a blob file, so that the cache takes it. It has no entries.
    pub(crate) fn of_value(bytes: Vec<u8>) -> Block {
        Block { bytes, budget: None, ..Block::default() }
    }

    /// Takes the decoded bytes, and checks that the columns fit.
    pub(crate) fn parse(bytes: Vec<u8>) -> Decoded<Block> {
        let Some((body, tail)) = bytes.split_last_chunk::<TAIL_LEN>() else {
            return Err(malformed("is shorter than its tail"));
        };
        if bytes.len() > BLOCK_LEN_MAX {
            return Err(malformed("is longer than blocks can be"));
        }
        let base = u64::from_le_bytes(tail[..8].try_into().expect("8 bytes"));
        let entry_count = u32::from_le_bytes(tail[8..12].try_into().expect("4 bytes"));
        let prefix_len = u16::from_le_bytes([tail[12], tail[13]]);
        let [interval, width] = [tail[14], tail[15]];
        if entry_count == 0 || !(1..=8).contains(&width) || base > SEQ_MAX {
            return Err(malformed("has an impossible tail"));
        }
        let block = Block {
            bytes: Vec::new(),
            entry_count,
            prefix_len,
            interval,
            width,
            base,
            budget: None,
            ..Block::default()
        };
        if interval == 0 {
            let (slots, heads_at, versions_at) =
                Slots::parse(&bytes, entry_count, prefix_len, width, base)?;
            return Ok(Block { bytes, heads_at, versions_at, slots, budget: None, ..block });
        }
        let restart_count = entry_count.div_ceil(u32::from(interval));
        let columns = u64::from(restart_count) * (HEAD_LEN + RESTART_LEN) as u64
            + u64::from(entry_count) * u64::from(width);
        let heads_at = match (body.len() as u64).checked_sub(columns) {
            Some(at) if at >= 3 => at as u32,
            _ => return Err(malformed("is shorter than its columns")),
        };
        let restarts_at = heads_at + restart_count * HEAD_LEN as u32;
        Ok(Block {
            bytes,
            heads_at,
            restarts_at,
            versions_at: restarts_at + restart_count * RESTART_LEN as u32,
            restart_count,
            budget: None,
            ..block
        })
    }

    /// The same block, whose memory is charged until it is dropped. The charge is for as much as
    /// [`Block::charged_bytes`] says.
    pub(crate) fn charged(mut self, charge: Option<Charge>) -> Block {
        debug_assert!(self.budget.is_none(), "a block is charged once");
        debug_assert!(charge.as_ref().is_none_or(|charge| charge.bytes() == self.charged_bytes()));
        self.budget = charge.map(|charge| charge.into_budget(MemoryClass::Blocks));
        self
    }

    /// What a block is charged below a ceiling.
    pub(crate) fn charged_bytes(&self) -> u64 {
        self.bytes.capacity() as u64 + CHARGED_BESIDE
    }

    fn uncharge(&mut self) {
        if let Some(budget) = self.budget.take()
            && !planted(Plant::ChargeForgotten)
        {
            budget.give_back(MemoryClass::Blocks, self.charged_bytes());
        }
    }

    /// Returns the buffer for use in another block. From here on it is not charged.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.uncharge();
        std::mem::take(&mut self.bytes)
    }

    /// Has the processor fetch what a search looks at first.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(self.bytes.as_ptr().wrapping_add(self.heads_at as usize));
    }

    /// All of the decoded bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    #[inline]
    pub(crate) fn entry_count(&self) -> u32 {
        self.entry_count
    }

    /// The offset at which the entries end.
    #[inline]
    pub(crate) fn entries_end(&self) -> u32 {
        if self.interval == 0 { self.slots.entries_end } else { self.heads_at }
    }

    #[inline(always)]
    pub(super) fn heads_at(&self) -> u32 {
        self.heads_at
    }

    /// The memory that the block takes, in bytes.
    pub(crate) fn charge(&self) -> usize {
        self.bytes.capacity() + size_of::<Block>() + 2 * size_of::<usize>()
    }

    /// Decodes the positions of the parts of the entry at offset `at`.
    #[inline(always)]
    pub(crate) fn entry_at(&self, at: u32) -> Decoded<RawEntry> {
        match self.short_entry_at(at) {
            Some(entry) => Ok(entry),
            None => self.long_entry_at(at),
        }
    }

    /// The same for an entry whose header has the common form: one byte for each length, or two for
    /// the value's length. `None` for other forms, and if there is no entry at `at`.
    #[inline(always)]
    pub(super) fn short_entry_at(&self, at: u32) -> Option<RawEntry> {
        // Columns and tail follow the entries, so four bytes can be read at the start of every
        // entry.
        let word = u32::from_le_bytes(*chunk::<4>(&self.bytes, at as usize)?);
        if word & 0x0000_8080 != 0 || word & 0x8080_0000 == 0x8080_0000 {
            return None;
        }
        let is_long = word >> 23 & 1;
        let high = if is_long == 0 { 0 } else { word >> 24 << 7 };
        let value_len = (word >> 16 & 0x7f) | high;
        let unshared_at = at + 3 + is_long;
        let value_at = unshared_at + (word >> 8 & 0x7f);
        let end = value_at + value_len;
        if end > self.heads_at {
            return None;
        }
        Some(RawEntry { shared: word & 0x7f, unshared_at, value_at, end })
    }

    /// Decodes the general form. Every malformed entry ends up here.
    #[cold]
    fn long_entry_at(&self, at: u32) -> Decoded<RawEntry> {
        let entries = &self.bytes[..self.heads_at as usize];
        let Some(rest) = entries.get(at as usize..) else {
            return Err(malformed("has an entry past its end"));
        };
        let mut decoder = crate::format::Decoder::new(rest);
        let shared = decoder.varint32()?;
        let unshared = decoder.varint32()?;
        let value_len = decoder.varint32()?;
        let unshared_at = at + decoder.offset() as u32;
        let value_at = u64::from(unshared_at) + u64::from(unshared);
        let end = value_at + u64::from(value_len);
        if end > entries.len() as u64 && !planted(Plant::EntryBelieved) {
            return Err(malformed("has an entry that runs past the entries' end"));
        }
        Ok(RawEntry { shared, unshared_at, value_at: value_at as u32, end: end as u32 })
    }

    /// The part of an entry's key that is stored with it.
    #[inline]
    pub(crate) fn unshared(&self, entry: RawEntry) -> &[u8] {
        &self.bytes[entry.unshared_at as usize..entry.value_at as usize]
    }

    #[inline]
    pub(crate) fn value(&self, entry: RawEntry) -> &[u8] {
        &self.bytes[entry.value_at as usize..entry.end as usize]
    }

    /// The sequence number and kind of the entry with this ordinal.
    #[inline]
    pub(crate) fn version(&self, index: u32) -> Decoded<(Lsn, OpKind)> {
        match self.known_version(index) {
            Some(version) => Ok(version),
            None => Err(self.unknown_version(index)),
        }
    }

    /// The same. `None` if there is no such entry, or if its kind is unknown.
    #[inline(always)]
    pub(super) fn known_version(&self, index: u32) -> Option<(Lsn, OpKind)> {
        let word = self.version_word(index);
        let kind = OpKind::known(word & KIND_MASK)?;
        (index < self.entry_count).then_some((self.base.wrapping_add(word >> KIND_BITS), kind))
    }

    /// True if the entry is a value that stays, with a sequence number below `point`.
    #[inline(always)]
    pub(super) fn is_value_below(&self, index: u32, point: Lsn) -> bool {
        let word = self.version_word(index);
        OpKind::known(word & KIND_MASK).is_some_and(OpKind::is_lasting_put)
            && self.base.wrapping_add(word >> KIND_BITS) < point
            && index < self.entry_count
    }

    #[cold]
    fn unknown_version(&self, index: u32) -> DecodeError {
        if index >= self.entry_count {
            return malformed("has more entries than it says");
        }
        OpKind::unknown((self.version_word(index) & KIND_MASK) as u8)
    }

    #[inline]
    fn version_word(&self, index: u32) -> u64 {
        // The tail of 16 bytes follows the column, so eight bytes can be read here.
        let at = self.versions_at as usize + index as usize * usize::from(self.width);
        match chunk::<8>(&self.bytes, at) {
            Some(word) => {
                let mask = u64::MAX.wrapping_shr(64 - 8 * u32::from(self.width));
                u64::from_le_bytes(*word) & mask
            }
            None => 0,
        }
    }

    #[inline]
    pub(super) fn seq(&self, index: u32) -> Lsn {
        self.base.wrapping_add(self.version_word(index) >> KIND_BITS)
    }

    #[inline]
    pub(super) fn head(&self, restart: u32) -> u64 {
        let at = self.heads_at as usize + restart as usize * HEAD_LEN;
        match chunk::<8>(&self.bytes, at) {
            Some(head) => u64::from_be_bytes(*head),
            None => 0,
        }
    }

    /// The offset of a restart's entry.
    #[inline]
    pub(crate) fn restart(&self, restart: u32) -> u32 {
        let at = self.restarts_at as usize + restart as usize * RESTART_LEN;
        match chunk::<4>(&self.bytes, at) {
            Some(offset) => u32::from_le_bytes(*offset),
            None => 0,
        }
    }

    #[inline]
    pub(crate) fn restart_count(&self) -> u32 {
        self.restart_count
    }

    #[inline]
    pub(crate) fn interval(&self) -> u32 {
        u32::from(self.interval)
    }

    /// The length of the prefix that all keys of the block share.
    #[inline]
    pub(crate) fn prefix_len(&self) -> usize {
        usize::from(self.prefix_len)
    }

    /// How `(key, point)` compares to a restart's entry.
    #[inline]
    fn is_restart_before(&self, restart: u32, key: &[u8], point: Lsn) -> Decoded<bool> {
        let entry = self.entry_at(self.restart(restart))?;
        Ok(match self.unshared(entry).cmp(key) {
            Ordering::Less => true,
            Ordering::Equal => {
                let seq = self.seq(restart * self.interval());
                reached_if(Reach::RestartAtPoint, || seq == point);
                seq >= point
            }
            Ordering::Greater => false,
        })
    }

    /// The number of restarts before `(key, point)` if `key` begins with the block's prefix. Any
    /// number otherwise.
    #[inline(always)]
    pub(super) fn restarts_before(&self, key: &[u8], point: Lsn) -> Decoded<u32> {
        let head = key_head(key, self.prefix_len());
        let (mut low, mut len) = (0, self.restart_count);
        while len > 0 {
            let half = len / 2;
            let is_before = self.head(low + half) < head;
            low = if is_before { low + half + 1 } else { low };
            len = if is_before { len - half - 1 } else { half };
        }
        if low < self.restart_count && self.head(low) == head {
            return self.equal_restarts_before(low, head, key, point);
        }
        Ok(low)
    }

    /// Continues where heads cannot decide: compares whole keys, then sequence numbers.
    fn equal_restarts_before(&self, first: u32, head: u64, key: &[u8], point: Lsn) -> Decoded<u32> {
        let (mut low, mut high) = (first, self.restart_count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.head(middle) == head && self.is_restart_before(middle, key, point)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The first entry at or after `(key, point)`: one with a larger key, or with this key and a
    /// sequence number below `point`. `None` if all entries come before.
    #[inline]
    pub(crate) fn search(&self, key: &[u8], point: Lsn) -> Decoded<Option<Hit>> {
        if self.is_slotted() {
            self.search_slots(key, point)
        } else {
            self.search_chain(key, point)
        }
    }

    #[inline(always)]
    fn search_chain(&self, key: &[u8], point: Lsn) -> Decoded<Option<Hit>> {
        let restart = self.restarts_before(key, point)?.saturating_sub(1);
        let at = self.restart(restart);
        let entry = self.entry_at(at)?;
        match self.compare_prefix(entry, key) {
            Ordering::Equal => self.walk(key, point, restart * self.interval(), at, 0),
            Ordering::Less => Ok(None),
            Ordering::Greater => {
                let entry = self.entry_at(self.restart(0))?;
                Ok(Some(Hit { index: 0, shared: 0, entry, is_equal: false }))
            }
        }
    }

    /// [`Block::search`] for a block in which every entry is a restart.
    #[inline(always)]
    pub(crate) fn search_restarts(
        &self,
        key: &[u8],
        point: Lsn,
    ) -> Decoded<Option<(u32, RawEntry)>> {
        let restart = self.restarts_before(key, point)?;
        let entry =
            self.entry_at(self.restart(restart.min(self.restart_count.saturating_sub(1))))?;
        match self.compare_prefix(entry, key) {
            Ordering::Equal => Ok((restart < self.restart_count).then_some((restart, entry))),
            Ordering::Less => Ok(None),
            Ordering::Greater => Ok(Some((0, self.entry_at(self.restart(0))?))),
        }
    }

    /// How the block's prefix, with which a restart's entry begins, compares to `key`. If `key`
    /// does not begin with the prefix, all entries compare the same way.
    #[inline]
    pub(super) fn compare_prefix(&self, entry: RawEntry, key: &[u8]) -> Ordering {
        let stored = self.unshared(entry);
        let prefix = &stored[..self.prefix_len().min(stored.len())];
        let common = common_prefix_len(prefix, key);
        match key.get(common) {
            _ if common == prefix.len() => Ordering::Equal,
            None => Ordering::Greater,
            Some(byte) => prefix[common].cmp(byte),
        }
    }

    /// How the key of an entry compares to `key`. `matched` is the number of bytes that the entry
    /// before has in common with `key` (0 if there is no entry before). The call updates it for
    /// this entry. The entry before must not be above `key`.
    ///
    /// The comparison does not reconstruct the entry's key. If the entry shares more bytes with the
    /// entry before than that one shares with `key`, both compare the same way to `key`. If it
    /// shares fewer, it is above `key`. Bytes have to be compared only if the lengths are equal, or
    /// if the length is 0, which says nothing at a restart.
    #[inline(always)]
    pub(super) fn compare(&self, entry: RawEntry, key: &[u8], matched: &mut usize) -> Ordering {
        let shared = entry.shared as usize;
        if shared == 0 {
            *matched = 0;
        }
        if shared != *matched {
            return if shared > *matched { Ordering::Less } else { Ordering::Greater };
        }
        let (stored, rest) = (self.unshared(entry), &key[*matched..]);
        if let (Some(a), Some(b)) = (stored.first(), rest.first())
            && a != b
        {
            return a.cmp(b);
        }
        let common = common_prefix_len(stored, rest);
        *matched += common;
        if common == rest.len() {
            if common == stored.len() { Ordering::Equal } else { Ordering::Greater }
        } else if common == stored.len() || stored[common] < rest[common] {
            Ordering::Less
        } else {
            Ordering::Greater
        }
    }

    /// Walks forward from the entry with ordinal `index` at offset `at` to the first one at or
    /// after `(key, point)`. All entries before `index` must be before `(key, point)`. `matched` is
    /// as in [`Block::compare`].
    #[inline(always)]
    fn walk(
        &self,
        key: &[u8],
        point: Lsn,
        mut index: u32,
        mut at: u32,
        mut matched: usize,
    ) -> Decoded<Option<Hit>> {
        loop {
            (index, at) = self.pass_lower(key, index, at, matched);
            if at >= self.heads_at {
                return Ok(None);
            }
            let entry = self.entry_at(at)?;
            let order = self.compare(entry, key, &mut matched);
            reached_if(Reach::ReadAtPointInTable, || {
                order == Ordering::Equal && self.seq(index) == point
            });
            if order != Ordering::Less && (order == Ordering::Greater || self.seq(index) < point) {
                let is_equal = order == Ordering::Equal;
                return Ok(Some(Hit { index, shared: entry.shared, entry, is_equal }));
            }
            index += 1;
            at = entry.end;
        }
    }

    /// Skips entries that a first check shows to be below `key`, starting with the entry of ordinal
    /// `index` at offset `at`. Such an entry shares more bytes with the entry before than that one
    /// shares with `key`; or it shares as many, and its next byte is lower. Most entries of a walk
    /// are skipped here.
    #[inline(always)]
    fn pass_lower(&self, key: &[u8], mut index: u32, mut at: u32, matched: usize) -> (u32, u32) {
        let next = key.get(matched);
        while let Some(entry) = self.short_entry_at(at) {
            let shared = entry.shared as usize;
            let is_lower = shared > matched
                || shared == matched
                    && entry.unshared_at < entry.value_at
                    && self.bytes.get(entry.unshared_at as usize) < next;
            if !is_lower {
                break;
            }
            index += 1;
            at = entry.end;
        }
        (index, at)
    }

    /// Changes `key` from the key of the entry before to the key of `entry`.
    #[inline(always)]
    pub(super) fn extend_key(&self, entry: RawEntry, key: &mut KeyBuffer) -> Decoded<()> {
        let (start, end) = (entry.unshared_at as usize, entry.value_at as usize);
        if key.replace_tail(entry.shared as usize, &self.bytes, start, end) {
            key.check_len()
        } else {
            Err(malformed("has a key that shares more than the key before it has"))
        }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({} entries, {} bytes)", self.entry_count, self.bytes.len())
    }
}
