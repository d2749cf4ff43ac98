//! Builds one block in its decoded form. `block.rs` and `slotted.rs` draw the layouts.

use super::block::{
    Block, HEAD_LEN, KIND_BITS, KIND_MASK, RESTART_LEN, SEQ_MAX, TAIL_LEN, key_head,
};
use super::staging::{BlockForm, STORED_WHOLE, Staging};
use crate::env::{Plant, planted};
use crate::format::{Lsn, OpKind};

/// Collects the entries of one block after another, and reuses its buffers.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    interval: u32,
    form: BlockForm,
    block_len: usize,
    /// Entries until the form of the block is chosen.
    staging: Staging,
    /// True if the block is chained, and its entries are not staged.
    is_direct: bool,
    is_slotted: bool,
    /// How much of `STORED_WHOLE` parts of a block is left after compression.
    stored: u32,
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    versions: Vec<(Lsn, OpKind)>,
    until_restart: u32,
    min_seq: Lsn,
    max_seq: Lsn,
}

impl BlockBuilder {
    /// A builder of chained blocks.
    pub(crate) fn new(interval: u32) -> BlockBuilder {
        BlockBuilder {
            interval: interval.clamp(1, 255),
            form: BlockForm::Chained,
            block_len: usize::MAX,
            staging: Staging::new(),
            is_direct: true,
            is_slotted: false,
            stored: STORED_WHOLE,
            bytes: Vec::new(),
            restarts: Vec::new(),
            versions: Vec::new(),
            until_restart: 0,
            min_seq: Lsn::MAX,
            max_seq: 0,
        }
    }

    /// Begins a slice: sets the form of its blocks, the number of entries from one restart to the
    /// next in a chained one, and the length at which a block is full. An entry whose key and value
    /// take that many bytes or more is alone in its block.
    pub(crate) fn begin_slice(&mut self, form: BlockForm, interval: u32, block_len: usize) {
        debug_assert!(self.is_empty());
        self.block_len = block_len;
        self.interval = interval.clamp(1, 255);
        self.form = form;
        self.stored = STORED_WHOLE;
        self.is_direct = form == BlockForm::Chained;
    }

    /// Of `raw_len` bytes of blocks `stored_len` were left after compression: blocks to come are
    /// like them. Call it before the first entry of a block.
    pub(crate) fn note_stored(&mut self, raw_len: u64, stored_len: u64) {
        debug_assert!(self.is_empty() && raw_len > 0, "the form of a block is chosen once");
        let parts = u128::from(stored_len) * u128::from(STORED_WHOLE) / u128::from(raw_len.max(1));
        self.stored = parts.clamp(1, u128::from(STORED_WHOLE)) as u32;
    }

    /// Appends an entry. `shared` is the length of the common prefix of its key and the key before
    /// it.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], shared: usize, seq: Lsn, kind: OpKind, value: &[u8]) {
        debug_assert!(seq <= SEQ_MAX);
        debug_assert!(shared <= key.len(), "a key shares more than it has");
        let seq = if planted(Plant::SequenceWraps) { seq & 0xffff_ffff } else { seq };
        if self.is_empty() && key.len() + value.len() >= self.block_len {
            // A block of one entry is chained. A slotted one is for tests.
            self.is_direct |= self.form == BlockForm::Either;
        }
        self.min_seq = self.min_seq.min(seq);
        self.max_seq = self.max_seq.max(seq);
        self.versions.push((seq, kind));
        if self.is_direct {
            return self.chain(key, shared, value);
        }
        if self.until_restart == 0 {
            self.until_restart = self.interval;
            self.staging.add(key, (shared, 0), kind, value);
            self.staging.note_restart();
        } else {
            self.staging.add(key, (shared, shared), kind, value);
        }
        self.until_restart -= 1;
        if self.staging.is_large() {
            self.chain_if_better();
        }
    }

    /// Takes the chained form if it is the better one. Otherwise the block is full: it ends in the
    /// form that suits what is staged.
    #[cold]
    fn chain_if_better(&mut self) {
        if self.slotted_len().is_none() {
            self.chain_staged();
        }
    }

    /// Takes the chained form, once and for all of the block.
    #[cold]
    fn chain_staged(&mut self) {
        debug_assert!(!self.is_direct && self.bytes.is_empty(), "a block is chained once");
        let staging = std::mem::replace(&mut self.staging, Staging::new());
        self.until_restart = 0;
        for &entry in staging.entries() {
            self.chain(staging.key(entry), entry.shared as usize, staging.value(entry));
        }
        debug_assert_eq!(self.chained_entries_len(), staging.chained_len(), "as was foretold");
        self.staging = staging;
        self.is_direct = true;
    }

    /// Appends an entry to a chained block.
    #[inline]
    fn chain(&mut self, key: &[u8], shared: usize, value: &[u8]) {
        let shared = if self.until_restart == 0 {
            self.restarts.push(self.bytes.len() as u32);
            self.until_restart = self.interval;
            0
        } else {
            shared
        };
        self.until_restart -= 1;
        let unshared = &key[shared..];
        self.put_header(shared as u32, unshared.len() as u32, value.len() as u32);
        self.bytes.extend_from_slice(unshared);
        self.bytes.extend_from_slice(value);
    }

    #[inline]
    fn put_header(&mut self, shared: u32, unshared: u32, value_len: u32) {
        if (shared | unshared | value_len) < 0x80 {
            self.bytes.extend_from_slice(&[shared as u8, unshared as u8, value_len as u8]);
            return;
        }
        for mut number in [shared, unshared, value_len] {
            while number >= 0x80 {
                self.bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            self.bytes.push(number as u8);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// True if the block has the length that is wanted, or takes too much memory until it is
    /// finished.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        let len = self.block_len;
        if self.is_direct {
            return self.len() >= len;
        }
        self.staging.is_large() || self.staging.may_reach(len) && self.len() >= len
    }

    /// True if the block should end before a key that shares so little with the one before. It is
    /// slotted now, and short because of a long common prefix, and chained it would be too long.
    #[inline]
    pub(crate) fn ends_before(&self, shared: usize) -> bool {
        !self.is_direct
            && self.staging.would_grow(shared, self.block_len)
            && self.chained_len() >= self.block_len
    }

    /// The length of the block if it were finished now, or a little more than that.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slotted_len().unwrap_or_else(|| self.chained_len())
    }

    /// The length of the block if it were finished now and chained: near enough for where an output
    /// ends, and cheaper to tell.
    #[inline]
    pub(crate) fn chained_len(&self) -> usize {
        let len = match self.is_direct {
            true => self.chained_entries_len(),
            false => self.staging.chained_len(),
        };
        len + self.versions.len() * self.seq_width() + TAIL_LEN
    }

    /// The length of chained entries, their heads and restarts.
    #[inline]
    fn chained_entries_len(&self) -> usize {
        self.bytes.len() + self.restarts.len() * (HEAD_LEN + RESTART_LEN)
    }

    /// The length of the block if it is to be slotted.
    #[inline]
    fn slotted_len(&self) -> Option<usize> {
        if self.is_direct || self.is_empty() {
            return None;
        }
        self.staging.chosen_len(self.form, self.chained_len(), self.seq_width(), self.stored)
    }

    /// True if the block finished last is slotted.
    pub(crate) fn is_slotted(&self) -> bool {
        self.is_slotted
    }

    fn seq_width(&self) -> usize {
        debug_assert!(
            self.versions.is_empty() || self.min_seq <= self.max_seq,
            "the sequences of a block have bounds"
        );
        let greatest = self.max_seq.saturating_sub(self.min_seq) << KIND_BITS | KIND_MASK;
        (64 - greatest.leading_zeros() as usize).div_ceil(8)
    }

    /// Makes the block. `last_key` is the key of the last entry. The block stays valid until
    /// [`BlockBuilder::clear`].
    pub(crate) fn finish(&mut self, last_key: &[u8]) -> &[u8] {
        debug_assert!(!self.is_empty());
        self.is_slotted = self.slotted_len().is_some();
        if self.is_slotted {
            self.finish_slotted();
        } else {
            if !self.is_direct {
                self.chain_staged();
            }
            self.finish_chained(last_key);
        }
        debug_assert!(
            Block::parse(self.bytes.clone())
                .is_ok_and(|block| block.entry_count() as usize == self.versions.len()),
            "a block is written that cannot be read"
        );
        &self.bytes
    }

    fn finish_slotted(&mut self) {
        let offset_len = self.staging.put_slots(self.seq_width(), &mut self.bytes);
        self.put_versions();
        let span = self.max_seq - self.min_seq;
        self.staging.put_extension(offset_len, span, &mut self.bytes);
        self.put_tail(self.staging.prefix_len(), 0);
    }

    fn finish_chained(&mut self, last_key: &[u8]) {
        debug_assert!(
            self.restarts.is_sorted_by(|one, next| one < next),
            "a reader finds an entry between two restarts"
        );
        debug_assert_eq!(
            self.restarts.len(),
            self.versions.len().div_ceil(self.interval as usize),
            "a reader counts restarts by entries"
        );
        let first_key = self.restart_key(0);
        let prefix_len = super::common_prefix_len(first_key, last_key).min(u16::MAX as usize);
        for i in 0..self.restarts.len() {
            let head = key_head(self.restart_key(i), prefix_len);
            self.bytes.extend_from_slice(&head.to_be_bytes());
        }
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        self.put_versions();
        self.put_tail(prefix_len, self.interval as u8);
    }

    fn put_versions(&mut self) {
        let width = self.seq_width();
        for &(seq, kind) in &self.versions {
            let word = (seq - self.min_seq) << KIND_BITS | kind as u64;
            debug_assert!(
                width == 8 || word >> (8 * width) == 0,
                "a column of {width} bytes cuts off sequence {seq:#x}"
            );
            self.bytes.extend_from_slice(&word.to_le_bytes()[..width]);
        }
    }

    fn put_tail(&mut self, prefix_len: usize, interval: u8) {
        let width = self.seq_width() as u8;
        self.bytes.extend_from_slice(&self.min_seq.to_le_bytes());
        self.bytes.extend_from_slice(&(self.versions.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(prefix_len as u16).to_le_bytes());
        self.bytes.extend_from_slice(&[interval, width]);
    }

    /// The key of a restart's entry, which is stored in full.
    fn restart_key(&self, i: usize) -> &[u8] {
        let start = self.restarts[i] as usize;
        let mut decoder = crate::format::Decoder::new(&self.bytes[start..]);
        let mut number = || decoder.varint().expect("written by this builder") as usize;
        let (_, len, _) = (number(), number(), number());
        let key_start = start + decoder.offset();
        &self.bytes[key_start..key_start + len]
    }

    /// Starts the next block. Frees buffers that one large block made longer than `len_max`.
    pub(crate) fn clear(&mut self, len_max: usize) {
        self.bytes.clear();
        if self.bytes.capacity() > len_max {
            self.bytes.shrink_to(len_max);
        }
        self.staging.clear(len_max);
        self.is_direct = self.form == BlockForm::Chained;
        self.restarts.clear();
        self.versions.clear();
        self.until_restart = 0;
        self.min_seq = Lsn::MAX;
        self.max_seq = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_fills_a_block_is_not_staged() {
        let mut builder = BlockBuilder::new(1);
        builder.begin_slice(BlockForm::Either, 8, 4096);
        for len in [4093, 64 << 20] {
            builder.add(b"key", 0, 9, OpKind::Put, &vec![7; len]);
            assert_eq!(builder.staging.capacity(), 0, "a value of {len} bytes");
            assert!(builder.is_full());
            let block = Block::parse(builder.finish(b"key").to_vec()).unwrap();
            let entry = block.entry_of(0, 0).unwrap();
            assert_eq!((block.unshared(entry), block.value(entry).len()), (&b"key"[..], len));
            assert!(!builder.is_slotted());
            builder.clear(1 << 20);
        }
        // The next block has a form that is chosen again.
        for key in [b"ka", b"kb"] {
            builder.add(key, usize::from(key == b"kb"), 9, OpKind::Put, &[7; 4093]);
            assert!(builder.staging.capacity() > 4093);
        }
        builder.finish(b"kb");
        assert!(builder.is_slotted());
    }
}
