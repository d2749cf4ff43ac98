//! The entries of a data block until its form is chosen, and the choice between both forms.
//!
//! A slotted block (`slotted.rs`) is faster to search. A chained one (`block.rs`) is shorter where
//! neighbouring keys share much more than all keys of the block do. The lengths of both are known
//! from sums over the entries, and how well a slice compresses from its blocks before. The builder
//! takes the slotted form unless that makes the stored block more than a 32nd longer, as far as it
//! can tell.

use super::block::{HEAD_LEN, RESTART_LEN, TAIL_LEN};
use super::slotted::{
    EXTENSION_LEN, FLAG_ALL_LASTING, FLAG_BITS, FLAG_ONE_VERSION, FORM, REST_LEN_DIFFERS,
    SLOT_HEAD_LEN, slot_head,
};
use crate::format::{Lsn, OpKind, put_varint, varint_len};

/// Whole keys that take more than this, and several times what a chained block would take of them,
/// would fill the memory. No more of them are staged.
const STAGED_MIN: usize = 64 << 10;
const STAGED_TIMES_MAX: usize = 4;
/// A slotted block may be longer than a chained one by this part of it.
const LONGER_PART_MAX: i64 = 32;
/// The part of blocks that is left after compression is counted in such parts.
pub(super) const STORED_WHOLE: u32 = 256;

/// No entry adds more bytes than this to a block, beside its key and value: three lengths, head,
/// restart and version, of either form.
const OVERHEAD_MAX: usize = 15 + HEAD_LEN + RESTART_LEN + 8;
/// What a block has beside its entries, without a prefix that it stores once.
const BLOCK_OVERHEAD_MAX: usize = EXTENSION_LEN + TAIL_LEN + 4;

/// What a data block may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BlockForm {
    /// Whichever its entries suggest.
    #[default]
    Either,
    Chained,
    /// For tests.
    #[cfg(any(test, fuzzing))]
    Slotted,
}

/// An entry that is staged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Staged {
    /// Where its key begins.
    pub(super) at: u32,
    pub(super) key_len: u32,
    /// The number of bytes that its key has in common with the key before.
    pub(super) shared: u32,
    /// Its end, where the next one begins.
    pub(super) end: u32,
}

/// The least and the greatest of some lengths.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    least: usize,
    greatest: usize,
}

impl Lengths {
    const NONE: Lengths = Lengths { least: usize::MAX, greatest: 0 };

    #[inline]
    fn note(&mut self, len: usize) {
        self.least = self.least.min(len);
        self.greatest = self.greatest.max(len);
    }

    fn is_one(self) -> bool {
        self.least == self.greatest
    }
}

/// Entries with whole keys, one after the other.
#[derive(Debug)]
pub(super) struct Staging {
    bytes: Vec<u8>,
    entries: Vec<Staged>,
    /// The length of the entries in a chained block, with heads and restarts.
    chained_len: usize,
    prefix_len: usize,
    keys: Lengths,
    values: Lengths,
    flags: u64,
}

impl Staging {
    pub(super) fn new() -> Staging {
        Staging {
            bytes: Vec::new(),
            entries: Vec::new(),
            chained_len: 0,
            prefix_len: 0,
            keys: Lengths::NONE,
            values: Lengths::NONE,
            flags: 0,
        }
    }

    pub(super) fn entries(&self) -> &[Staged] {
        &self.entries
    }

    pub(super) fn key(&self, entry: Staged) -> &[u8] {
        &self.bytes[entry.at as usize..][..entry.key_len as usize]
    }

    pub(super) fn value(&self, entry: Staged) -> &[u8] {
        &self.bytes[(entry.at + entry.key_len) as usize..entry.end as usize]
    }

    /// Stages an entry. In a chained block it would store `stored_shared` bytes of its key less.
    #[inline]
    pub(super) fn add(
        &mut self,
        key: &[u8],
        (shared, stored_shared): (usize, usize),
        kind: OpKind,
        value: &[u8],
    ) {
        debug_assert!(stored_shared <= shared && shared <= key.len(), "a key shares what it has");
        if self.entries.is_empty() {
            self.prefix_len = key.len().min(u16::MAX as usize);
            self.flags = FLAG_ALL_LASTING | FLAG_ONE_VERSION;
        } else {
            self.prefix_len = self.prefix_len.min(shared);
            if shared == key.len() {
                self.flags &= !FLAG_ONE_VERSION;
            }
        }
        if !kind.is_lasting_put() {
            self.flags &= !FLAG_ALL_LASTING;
        }
        self.keys.note(key.len());
        self.values.note(value.len());
        let unshared = key.len() - stored_shared;
        let header_len = match stored_shared | unshared | value.len() {
            0..0x80 => 3,
            _ => [stored_shared, unshared, value.len()].map(|n| varint_len(n as u64)).iter().sum(),
        };
        self.chained_len += header_len + unshared + value.len();
        let at = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push(Staged {
            at: at as u32,
            key_len: key.len() as u32,
            shared: shared as u32,
            end: self.bytes.len() as u32,
        });
    }

    /// True if what is staged takes far more memory than a chained block of it.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.bytes.len() > STAGED_MIN + STAGED_TIMES_MAX * self.chained_len
    }

    /// True if a key that shares so little with the one before would take the common prefix from
    /// the entries, which then grew by `len` bytes or more.
    #[inline]
    pub(super) fn would_grow(&self, shared: usize, len: usize) -> bool {
        debug_assert!(
            self.entries.is_empty() || self.prefix_len <= self.keys.least,
            "a prefix that not all keys have"
        );
        shared < self.prefix_len && (self.prefix_len - shared) * self.entries.len() >= len
    }

    /// The entry that was added last would be a restart of a chained block.
    #[inline]
    pub(super) fn note_restart(&mut self) {
        self.chained_len += HEAD_LEN + RESTART_LEN;
    }

    /// False if a block of either form is shorter than `len` bytes.
    #[inline]
    pub(super) fn may_reach(&self, len: usize) -> bool {
        self.bytes.len() + self.entries.len() * OVERHEAD_MAX + BLOCK_OVERHEAD_MAX >= len
    }

    /// The length of the entries in a chained block, with heads and restarts.
    #[inline]
    pub(super) fn chained_len(&self) -> usize {
        self.chained_len
    }

    /// The length of each key after the prefix, if they are of one length.
    #[inline]
    fn rest_len(&self) -> Option<usize> {
        let len = self.keys.greatest - self.prefix_len;
        (self.keys.is_one() && len < usize::from(REST_LEN_DIFFERS)).then_some(len)
    }

    /// The lengths of the entries in a slotted block, of each offset, and of the whole block, with
    /// versions of `width` bytes. With keys of which some are long and some short it may be less.
    #[inline]
    fn slotted_lens(&self, width: usize) -> (usize, usize, usize) {
        let count = self.entries.len();
        let rest_len_len = match self.rest_len() {
            Some(_) => 0,
            None => varint_len((self.keys.greatest - self.prefix_len) as u64),
        };
        let entries_len = self.bytes.len() - count * self.prefix_len + count * rest_len_len;
        let offset_len = match entries_len {
            _ if self.keys.is_one() && self.values.is_one() => 0,
            0..=0xffff => 2,
            _ => 4,
        };
        let columns_len = (count + 1) * offset_len + count * (SLOT_HEAD_LEN + width);
        let all = entries_len + columns_len + self.prefix_len + EXTENSION_LEN + TAIL_LEN;
        (entries_len, offset_len, all)
    }

    /// True if a slotted block is better than a chained one of `chained_len` bytes. Of
    /// `STORED_WHOLE` parts of a block `stored` are left after compression.
    ///
    /// What the two differ by shrinks as all does. But offsets and heads hardly compress, and most
    /// of what stands in their place in a chained block is the same in each entry.
    #[inline]
    fn is_better_slotted(
        &self,
        (offset_len, slotted_len): (usize, usize),
        chained_len: usize,
        stored: u32,
    ) -> bool {
        let count = self.entries.len();
        let stored = i64::from(stored.min(STORED_WHOLE));
        let kept = (count * offset_len + count / 2) as i64;
        let growth = (slotted_len as i64 - chained_len as i64) * stored
            + kept * (i64::from(STORED_WHOLE) - stored);
        count > 1 && growth <= chained_len as i64 * stored / LONGER_PART_MAX
    }

    /// The length of the slotted block, if this form is the better one, as
    /// [`Staging::is_better_slotted`] has it.
    #[inline]
    pub(super) fn chosen_len(
        &self,
        form: BlockForm,
        chained_len: usize,
        width: usize,
        stored: u32,
    ) -> Option<usize> {
        let (_, offset_len, slotted_len) = self.slotted_lens(width);
        let is_chosen = match form {
            BlockForm::Either => {
                self.is_better_slotted((offset_len, slotted_len), chained_len, stored)
            }
            BlockForm::Chained => false,
            #[cfg(any(test, fuzzing))]
            BlockForm::Slotted => true,
        };
        is_chosen.then_some(slotted_len)
    }

    /// Appends the entries of a slotted block, their offsets, the prefix and heads. Returns the
    /// length of an offset.
    pub(super) fn put_slots(&self, width: usize, out: &mut Vec<u8>) -> u8 {
        let (entries_len, offset_len, all) = self.slotted_lens(width);
        out.reserve(all);
        let rest_len = self.rest_len();
        for entry in &self.entries {
            if rest_len.is_none() {
                put_varint(out, u64::from(entry.key_len) - self.prefix_len as u64);
            }
            out.extend_from_slice(
                &self.bytes[entry.at as usize + self.prefix_len..entry.end as usize],
            );
        }
        debug_assert!(out.len() <= entries_len, "the entries are longer than was foretold");
        if offset_len > 0 {
            self.put_offsets(offset_len, out);
        }
        let first = self.entries.first().map_or(&[][..], |first| self.key(*first));
        out.extend_from_slice(&first[..self.prefix_len]);
        for entry in &self.entries {
            let head = slot_head(&self.key(*entry)[self.prefix_len..]);
            out.extend_from_slice(&head.to_le_bytes());
        }
        offset_len as u8
    }

    /// Appends the offsets of the entries, which are the bytes of `out`, and of their end.
    fn put_offsets(&self, offset_len: usize, out: &mut Vec<u8>) {
        let (has_len, end) = (self.rest_len().is_none(), out.len());
        let mut at = 0_usize;
        for entry in &self.entries {
            out.extend_from_slice(&at.to_le_bytes()[..offset_len]);
            let rest_len = entry.key_len as usize - self.prefix_len;
            let header_len = if has_len { varint_len(rest_len as u64) } else { 0 };
            at += header_len + (entry.end - entry.at) as usize - self.prefix_len;
        }
        debug_assert_eq!(at, end, "the last entry ends elsewhere");
        out.extend_from_slice(&at.to_le_bytes()[..offset_len]);
    }

    /// Appends what stands between versions and tail. `span` is the greatest sequence less
    /// the least.
    pub(super) fn put_extension(&self, offset_len: u8, span: Lsn, out: &mut Vec<u8>) {
        debug_assert_eq!(span << FLAG_BITS >> FLAG_BITS, span, "a span has room beside flags");
        out.extend_from_slice(&(span << FLAG_BITS | self.flags).to_le_bytes());
        let rest_len = self.rest_len().map_or(REST_LEN_DIFFERS, |len| len as u16);
        out.extend_from_slice(&rest_len.to_le_bytes());
        out.extend_from_slice(&[offset_len, FORM]);
    }

    /// The memory that keys and values take, in bytes.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    pub(super) fn prefix_len(&self) -> usize {
        self.prefix_len
    }

    /// Starts the next block. Frees a buffer that one large block made longer than `len_max`.
    pub(super) fn clear(&mut self, len_max: usize) {
        self.bytes.clear();
        if self.bytes.capacity() > len_max {
            self.bytes.shrink_to(len_max);
        }
        self.entries.clear();
        self.chained_len = 0;
        (self.keys, self.values) = (Lengths::NONE, Lengths::NONE);
    }
}
