//! Builds one block in its decoded form. `block.rs` draws the layout.

use super::block::{
    Block, HEAD_LEN, KIND_BITS, KIND_MASK, RESTART_LEN, SEQ_MAX, TAIL_LEN, key_head,
};
use crate::env::{Plant, planted};
use crate::format::{Lsn, OpKind};

/// Collects the entries of one block after another, and reuses its buffers.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    interval: u32,
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    versions: Vec<(Lsn, OpKind)>,
    until_restart: u32,
    min_seq: Lsn,
    max_seq: Lsn,
}

impl BlockBuilder {
    pub(crate) fn new(interval: u32) -> BlockBuilder {
        BlockBuilder {
            interval: interval.clamp(1, 255),
            bytes: Vec::new(),
            restarts: Vec::new(),
            versions: Vec::new(),
            until_restart: 0,
            min_seq: Lsn::MAX,
            max_seq: 0,
        }
    }

    /// Sets the number of entries from one restart to the next. Call it before the first entry of a
    /// block.
    pub(crate) fn set_interval(&mut self, interval: u32) {
        debug_assert!(self.is_empty());
        self.interval = interval.clamp(1, 255);
    }

    /// Appends an entry. `shared` is the length of the common prefix of its key and the key before
    /// it.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], shared: usize, seq: Lsn, kind: OpKind, value: &[u8]) {
        debug_assert!(seq <= SEQ_MAX);
        debug_assert!(shared <= key.len(), "a key shares more than it has");
        let seq = if planted(Plant::SequenceWraps) { seq & 0xffff_ffff } else { seq };
        let shared = if self.until_restart == 0 {
            self.restarts.push(self.bytes.len() as u32);
            self.until_restart = self.interval;
            0
        } else {
            shared
        };
        self.until_restart -= 1;
        self.min_seq = self.min_seq.min(seq);
        self.max_seq = self.max_seq.max(seq);
        self.versions.push((seq, kind));
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

    /// The length of the block if it were finished now.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        let per_restart = HEAD_LEN + RESTART_LEN;
        self.bytes.len()
            + self.restarts.len() * per_restart
            + self.versions.len() * self.seq_width()
            + TAIL_LEN
    }

    fn seq_width(&self) -> usize {
        debug_assert!(
            self.versions.is_empty() || self.min_seq <= self.max_seq,
            "the sequences of a block have bounds"
        );
        let greatest = self.max_seq.saturating_sub(self.min_seq) << KIND_BITS | KIND_MASK;
        (64 - greatest.leading_zeros() as usize).div_ceil(8)
    }

    /// Appends the columns and the tail. `last_key` is the key of the last entry. The block stays
    /// valid until [`BlockBuilder::clear`].
    pub(crate) fn finish(&mut self, last_key: &[u8]) -> &[u8] {
        debug_assert!(!self.is_empty());
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
        let width = self.seq_width();
        for &(seq, kind) in &self.versions {
            let word = (seq - self.min_seq) << KIND_BITS | kind as u64;
            debug_assert!(
                width == 8 || word >> (8 * width) == 0,
                "a column of {width} bytes cuts off sequence {seq:#x}"
            );
            self.bytes.extend_from_slice(&word.to_le_bytes()[..width]);
        }
        self.bytes.extend_from_slice(&self.min_seq.to_le_bytes());
        self.bytes.extend_from_slice(&(self.versions.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&(prefix_len as u16).to_le_bytes());
        self.bytes.extend_from_slice(&[self.interval as u8, width as u8]);
        debug_assert!(
            Block::parse(self.bytes.clone())
                .is_ok_and(|block| block.entry_count() as usize == self.versions.len()),
            "a block is written that cannot be read"
        );
        &self.bytes
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
        self.restarts.clear();
        self.versions.clear();
        self.until_restart = 0;
        self.min_seq = Lsn::MAX;
        self.max_seq = 0;
    }
}
