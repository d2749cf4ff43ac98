//! Writes one slice: data blocks as they fill, then filter, index and root.
//!
//! It holds in memory one data block, the index and the filter. Its buffers are reused for
//! one slice after another.

use super::block::{BLOCK_LEN_MAX, SEQ_MAX};
use super::block_builder::BlockBuilder;
use super::codec::{Codec, Compressor};
use super::filter::FilterBuilder;
use super::index::{IndexBuilder, shortest_separator};
use super::output::Output;
use super::root::{Content, FilterPlace, Root};
use super::sketch::Sketch;
use super::{
    BlobShares, BlockHandle, Ends, KEY_LEN_MAX, OldestDelete, SliceMeta, StreamShares,
    TableOptions, VALUE_LEN_MAX, common_prefix_len,
};
use crate::cursor::Entry;
use crate::env::{Plant, Reach, planted, reached};
use crate::error::{Error, Result};
use crate::format::{Address, FILE_HEADER_LEN, FamilyId, Lsn, OpKind, StreamAddress, checksum64};
use crate::mvcc::Expiring;
use crate::span::SpanSet;

/// If a slice has one data block, no longer than this, the block lies in the root: one read gets
/// all.
const INLINE_DATA_LEN: usize = 1024;
/// A filter no longer than this lies in the root.
const INLINE_FILTER_LEN: usize = 1024;
/// Buffers that large blocks made longer than this are freed.
const BUFFER_LEN_KEPT: usize = 1 << 20;

/// The longest index in one block, and about the longest top of one in leaves. A slice may be of
/// any size, and its block and its root may not.
const FLAT_LEN_MAX: u64 = 64 << 20;

/// What an entry of an index takes at most beside its separator.
const INDEX_ENTRY_LEN_MAX: u64 = 64;

/// The data blocks of a slice, each with its separator and the sequence number of that.
#[derive(Default)]
struct Blocks {
    separators: Vec<u8>,
    /// Where each block's separator ends, and the block.
    all: Vec<(usize, Lsn, BlockHandle)>,
    /// The length of the longest separator.
    longest: usize,
}

impl Blocks {
    fn add(&mut self, separator: &[u8], seq: Lsn, handle: BlockHandle) {
        let is_behind = |(_, _, last): &(usize, Lsn, BlockHandle)| {
            last.offset + u64::from(last.len) <= handle.offset
        };
        debug_assert!(self.all.last().is_none_or(is_behind), "blocks lie in the order of keys");
        self.separators.extend_from_slice(separator);
        self.longest = self.longest.max(separator.len());
        self.all.push((self.separators.len(), seq, handle));
    }

    /// The length of a leaf of their index where the top has become long. If each leaf ends with
    /// the longest separator, the rest of the top still has half of the length that one block of
    /// an index may have.
    fn long_leaf_len(&self) -> u64 {
        let leaves_max = FLAT_LEN_MAX / 2 / (self.longest as u64 + INDEX_ENTRY_LEN_MAX);
        debug_assert!(leaves_max > 500, "a separator is longer than a key may be");
        self.index_len().div_ceil(leaves_max)
    }

    /// The greatest length of their index, in one block.
    fn index_len(&self) -> u64 {
        self.separators.len() as u64 + self.all.len() as u64 * INDEX_ENTRY_LEN_MAX
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], Lsn, BlockHandle)> {
        let starts = std::iter::once(0).chain(self.all.iter().map(|(end, ..)| *end));
        let separator = |(start, end): (usize, usize)| &self.separators[start..end];
        starts
            .zip(&self.all)
            .map(move |(start, (end, seq, handle))| (separator((start, *end)), *seq, *handle))
    }

    fn clear(&mut self) {
        self.separators.clear();
        self.separators.shrink_to(BUFFER_LEN_KEPT);
        self.longest = 0;
        self.all.clear();
        self.all.shrink_to(BUFFER_LEN_KEPT / size_of::<(usize, Lsn, BlockHandle)>());
    }
}

pub(crate) struct SliceWriter {
    options: TableOptions,
    family: FamilyId,
    base: u64,
    compressor: Compressor,
    data: BlockBuilder,
    blocks: Blocks,
    index: IndexBuilder,
    filter: FilterBuilder,
    sketch: Sketch,
    /// The hash of the last key.
    hash: u64,
    separator: Vec<u8>,
    smallest: Vec<u8>,
    last_key: Vec<u8>,
    last_seq: Lsn,
    entries: u64,
    deletes: u64,
    raw_bytes: u64,
    min_seq: Lsn,
    max_seq: Lsn,
    data_blocks: u64,
    /// The bytes of all data blocks before compression.
    decoded_len: u64,
    /// True if a data block is slotted.
    has_slotted: bool,
    spans: SpanSet,
    ends: Option<Ends>,
    /// The least sequence of a delete.
    oldest_delete: Lsn,
    /// What the slice has in each blob file.
    blobs: BlobShares,
    /// Its values that have a blob file of their own.
    streams: StreamShares,
}

/// How long an index may be that is in one block, for data of `raw_bytes`: one part in `part` of
/// them, or `len_min` bytes.
fn flat_len_max(raw_bytes: u64, part: u32, len_min: u32) -> u64 {
    let of_data = raw_bytes.checked_div(u64::from(part)).unwrap_or(0);
    of_data.max(u64::from(len_min)).min(FLAT_LEN_MAX)
}

impl SliceWriter {
    pub(crate) fn new() -> SliceWriter {
        let options = TableOptions::default();
        SliceWriter {
            family: 0,
            base: 0,
            compressor: Compressor::default(),
            data: BlockBuilder::new(options.restart_interval),
            blocks: Blocks::default(),
            index: IndexBuilder::new(),
            filter: FilterBuilder::default(),
            sketch: Sketch::default(),
            hash: 0,
            separator: Vec::new(),
            smallest: Vec::new(),
            last_key: Vec::new(),
            last_seq: 0,
            entries: 0,
            deletes: 0,
            raw_bytes: 0,
            min_seq: Lsn::MAX,
            max_seq: 0,
            data_blocks: 0,
            decoded_len: 0,
            has_slotted: false,
            spans: SpanSet::default(),
            ends: None,
            oldest_delete: Lsn::MAX,
            blobs: BlobShares::default(),
            streams: StreamShares::default(),
            options,
        }
    }

    /// No more than `count` keys come, which is known before the first.
    pub(crate) fn expect_keys(&mut self, count: u64) {
        self.filter.expect(count);
    }

    /// With more than `most` keys the slice has no filter.
    pub(crate) fn limit_filter(&mut self, most: u64) {
        self.filter.limit(most);
    }

    /// The number of keys in the filter until now.
    pub(crate) fn filter_keys(&self) -> u64 {
        self.filter.count()
    }

    /// Begins a slice at offset `base` of the file.
    pub(crate) fn begin(&mut self, family: FamilyId, options: &TableOptions, base: u64) {
        debug_assert!(base >= FILE_HEADER_LEN as u64, "a slice lies behind the file's header");
        self.data.clear(BUFFER_LEN_KEPT);
        self.data.begin_slice(options.form, options.restart_interval, options.block_len as usize);
        (self.decoded_len, self.has_slotted) = (0, false);
        self.blocks.clear();
        self.filter.begin(options.filter_bits_per_key);
        self.sketch.clear();
        self.last_key.clear();
        self.spans = SpanSet::default();
        self.options = options.clone();
        self.family = family;
        self.base = base;
        (self.entries, self.deletes, self.raw_bytes, self.data_blocks) = (0, 0, 0, 0);
        (self.ends, self.oldest_delete) = (None, Lsn::MAX);
        (self.blobs, self.streams) = (BlobShares::default(), StreamShares::default());
        (self.min_seq, self.max_seq, self.last_seq) = (Lsn::MAX, 0, 0);
    }

    /// The bytes written of the slice, plus those of the current block.
    pub(crate) fn disk_bytes(&self, out: &Output) -> u64 {
        let in_hand = if self.data.is_empty() { 0 } else { self.data.chained_len() as u64 };
        out.offset() - self.base + in_hand
    }

    /// What the slice has in blob files until now.
    pub(crate) fn blobs(&self) -> &BlobShares {
        &self.blobs
    }

    /// Bytes of the values of the slice that lie apart, until now.
    pub(crate) fn apart_bytes(&self) -> u64 {
        self.blobs.bytes().saturating_add(self.streams.bytes())
    }

    /// Sets the range deletes of the slice.
    pub(crate) fn set_spans(&mut self, spans: SpanSet) {
        debug_assert!(self.spans.is_empty(), "a slice has its range deletes at once");
        self.spans = spans;
    }

    /// A slice with range deletes and no version of a key gets one: a delete of the first key that
    /// they cover. Readers, levels and checks then meet no slice without a key.
    fn add_stand_in(&mut self, out: &mut Output) -> Result<()> {
        let first = self.spans.fragments().first();
        let newest = first.and_then(|first| Some((first.start.clone(), *first.seqs.first()?)));
        if let Some((key, seq)) = newest.filter(|_| self.entries == 0)
            && !planted(Plant::SpanOnlySliceLost)
        {
            reached(Reach::SpanOnlySlice);
            self.add(Entry { key: &key, seq, kind: OpKind::Delete, value: &[] }, out)?;
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn add(&mut self, entry: Entry<'_>, out: &mut Output) -> Result<()> {
        let Entry { key, seq, kind, value } = entry;
        let shared = common_prefix_len(&self.last_key, key);
        let is_same_key = shared == key.len() && shared == self.last_key.len() && self.entries > 0;
        let is_in_order = match key.get(shared) {
            _ if self.entries == 0 => true,
            None => is_same_key && seq < self.last_seq,
            byte => byte > self.last_key.get(shared),
        };
        if !is_in_order || key.len() > KEY_LEN_MAX || value.len() > VALUE_LEN_MAX || seq > SEQ_MAX {
            return Err(self.refuse(entry, is_in_order));
        }
        debug_assert!(
            self.entries == 0
                || key > self.last_key.as_slice()
                || (key == self.last_key.as_slice() && seq < self.last_seq),
            "an entry out of order was taken for one in order"
        );
        if !self.data.is_empty() {
            let block_len = self.options.block_len as usize;
            let is_alone = key.len() + value.len() >= block_len;
            if is_alone || self.data.is_full() || self.data.ends_before(shared) {
                self.cut(Some((key, shared)), out)?;
            }
        }
        self.data.add(key, shared, seq, kind, value);
        if !is_same_key {
            self.hash = checksum64(key);
            self.filter.add(self.hash);
            if self.entries == 0 {
                self.smallest.clear();
                self.smallest.extend_from_slice(key);
            }
            self.last_key.truncate(shared);
            self.last_key.extend_from_slice(&key[shared..]);
        }
        if kind.puts_value() {
            self.sketch.add(self.hash);
        }
        self.last_seq = seq;
        self.min_seq = self.min_seq.min(seq);
        self.max_seq = self.max_seq.max(seq);
        self.entries += 1;
        if kind.is_tombstone() {
            self.deletes += 1;
            self.oldest_delete = self.oldest_delete.min(seq);
        }
        if kind.is_expiring() {
            self.note_end(value);
        }
        if kind.is_apart() {
            self.note_apart(kind, value);
        }
        self.raw_bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    #[cold]
    fn note_end(&mut self, stored: &[u8]) {
        let expires_ms = Expiring::split(stored).map_or(0, |ends| ends.expires_ms);
        self.ends = Some(Ends::with(self.ends, expires_ms));
    }

    #[inline(never)]
    fn note_apart(&mut self, kind: OpKind, stored: &[u8]) {
        // An address that is none stays what it was in the table that it comes from: readers are
        // told.
        if kind.is_streamed() {
            StreamAddress::of(kind, stored).iter().for_each(|address| self.streams.note(address));
            return;
        }
        let Ok(address) = Address::of(kind, stored) else { return };
        if planted(Plant::BlobsHalfNamed)
            && self.blobs.count() > 0
            && !self.blobs.contains(address.file)
        {
            return;
        }
        self.blobs.note(&address);
    }

    #[cold]
    fn refuse(&self, entry: Entry<'_>, is_in_order: bool) -> Error {
        let detail = if is_in_order {
            format!(
                "a key of {} bytes, a value of {} or sequence {} is beyond what a table holds",
                entry.key.len(),
                entry.value.len(),
                entry.seq
            )
        } else {
            format!(
                "entries must come by key ascending, then sequence descending; {:?} at {} came after {:?} at {}",
                String::from_utf8_lossy(entry.key),
                entry.seq,
                String::from_utf8_lossy(&self.last_key),
                self.last_seq
            )
        };
        if cfg!(feature = "paranoid") {
            panic!("{detail}");
        }
        Error::invalid_argument(detail)
    }

    /// Writes the current data block. `next` is the first key of the next block, with the length of
    /// its common prefix with the last key.
    fn cut(&mut self, next: Option<(&[u8], usize)>, out: &mut Output) -> Result<()> {
        let raw = self.data.finish(&self.last_key);
        debug_assert!(raw.len() <= BLOCK_LEN_MAX);
        self.decoded_len += raw.len() as u64;
        let (codec, payload) = self.compressor.compress(self.options.codec, raw);
        let mut handle = out.put_block(codec, payload)?;
        handle.offset -= self.base;
        self.has_slotted |= self.data.is_slotted();
        self.data.clear(BUFFER_LEN_KEPT);
        self.data.note_stored(self.decoded_len, handle.offset + u64::from(handle.len));
        self.compressor.trim(BUFFER_LEN_KEPT);
        self.data_blocks += 1;
        match next {
            Some((key, shared)) if shared == key.len() && shared == self.last_key.len() => {
                self.blocks.add(&self.last_key, self.last_seq, handle);
            }
            Some((key, shared)) => {
                shortest_separator(&self.last_key, key, shared, &mut self.separator);
                self.blocks.add(&self.separator, 0, handle);
            }
            None => self.blocks.add(&self.last_key, 0, handle),
        }
        Ok(())
    }

    /// Writes the rest of the slice. `None` if it has no entry.
    pub(crate) fn finish(&mut self, file: u64, out: &mut Output) -> Result<Option<SliceMeta>> {
        self.add_stand_in(out)?;
        if self.entries == 0 {
            return Ok(None);
        }
        let spans = std::mem::take(&mut self.spans);
        if let Some((least, greatest)) = spans.seqs() {
            self.min_seq = self.min_seq.min(least);
            self.oldest_delete = self.oldest_delete.min(least);
            self.max_seq = self.max_seq.max(greatest);
        }
        let (content, filter, data_len) =
            if self.data_blocks == 0 && self.data.len() <= INLINE_DATA_LEN {
                self.data_blocks = 1;
                let data = self.data.finish(&self.last_key).to_vec();
                self.has_slotted = self.data.is_slotted();
                (Content::Data(data), FilterPlace::None, 0)
            } else {
                self.cut(None, out)?;
                debug_assert_eq!(
                    self.data_blocks,
                    self.blocks.all.len() as u64,
                    "each block is in the index"
                );
                let data_len = out.offset() - self.base;
                let filter = self.finish_filter(out)?;
                (self.finish_index(out)?, filter, data_len)
            };
        let is_indexed = matches!(content, Content::Index { .. });
        let root = Root {
            family: self.family,
            entries: self.entries,
            deletes: self.deletes,
            raw_bytes: self.raw_bytes,
            min_seq: self.min_seq,
            max_seq: self.max_seq,
            data_blocks: self.data_blocks,
            data_len,
            body_len: out.offset() - self.base,
            smallest: std::mem::take(&mut self.smallest),
            largest: std::mem::take(&mut self.last_key),
            content,
            has_slotted: self.has_slotted,
            filter,
            spans,
            ends: self.ends,
            oldest_delete: self.known_oldest_delete(),
            blobs: std::mem::take(&mut self.blobs).shares().copied().collect(),
            streams: std::mem::take(&mut self.streams).shares().collect(),
            origin: self.options.origin.clone(),
            sketch: is_indexed.then(|| self.stored_sketch()),
            unknown: Vec::new(),
        };
        let mut payload = Vec::new();
        root.encode(&mut payload);
        let handle = out.put_block(Codec::None, &payload)?;
        debug_assert!(
            Root::decode(&payload, handle).is_ok_and(|decoded| decoded == root),
            "a slice's root reads back otherwise than it was written"
        );
        let meta = root.meta(file, handle);
        debug_assert!(meta.is_sane(), "a slice is written that no manifest takes: {meta:?}");
        Ok(Some(meta))
    }

    fn known_oldest_delete(&self) -> Option<OldestDelete> {
        let has_any = self.oldest_delete < Lsn::MAX;
        self.options.flushed.oldest_delete(self.oldest_delete).filter(|_| has_any)
    }

    fn stored_sketch(&self) -> Box<[u8]> {
        let mut stored = Vec::new();
        self.sketch.encode(&mut stored);
        stored.into()
    }

    fn finish_filter(&mut self, out: &mut Output) -> Result<FilterPlace> {
        let Some(filter) = self.filter.finish(BUFFER_LEN_KEPT / size_of::<u64>()) else {
            return Ok(FilterPlace::None);
        };
        if filter.len() <= INLINE_FILTER_LEN {
            return Ok(FilterPlace::Inline(filter));
        }
        let mut handle = out.put_block(Codec::None, &filter)?;
        handle.offset -= self.base;
        Ok(FilterPlace::At(handle))
    }

    /// An index in one block if that is short beside the data, else one in two levels.
    fn finish_index(&mut self, out: &mut Output) -> Result<Content> {
        let TableOptions { index_block_len, flat_index_part, .. } = self.options;
        let flat_len_max = flat_len_max(self.raw_bytes, flat_index_part, index_block_len);
        self.index.clear();
        let is_flat = self.blocks.iter().enumerate().all(|(nth, (separator, seq, handle))| {
            let has_room = nth == 0 || (self.index.len() as u64) < flat_len_max;
            self.index.add(separator, seq, handle);
            has_room
        });
        if !is_flat {
            return self.finish_index_in_leaves(out);
        }
        Ok(Content::Index { levels: 1, top: self.index.finish().to_vec() })
    }

    fn finish_index_in_leaves(&mut self, out: &mut Output) -> Result<Content> {
        let mut leaves = Blocks::default();
        let leaf_len = u64::from(self.options.index_block_len);
        let long_leaf_len = self.blocks.long_leaf_len().max(leaf_len);
        self.index.clear();
        let mut blocks = self.blocks.iter().peekable();
        while let Some((separator, seq, handle)) = blocks.next() {
            self.index.add(separator, seq, handle);
            let is_top_long = leaves.index_len() >= FLAT_LEN_MAX / 2;
            let leaf_len = if is_top_long { long_leaf_len } else { leaf_len };
            let is_full = self.index.len() as u64 >= leaf_len;
            if is_full || blocks.peek().is_none() {
                let raw = self.index.finish();
                let (codec, payload) = self.compressor.compress(self.options.codec, raw);
                let handle = out.put_block(codec, payload)?;
                let offset = handle.offset - self.base;
                leaves.add(separator, seq, BlockHandle { offset, len: handle.len });
                self.index.clear();
            }
        }
        debug_assert!(
            leaves.iter().last().map(|(end, seq, _)| (end, seq))
                == self.blocks.iter().last().map(|(end, seq, _)| (end, seq)),
            "the index ends before its last block"
        );
        leaves.iter().for_each(|(separator, seq, handle)| self.index.add(separator, seq, handle));
        Ok(Content::Index { levels: 2, top: self.index.finish().to_vec() })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn an_index_in_one_block_stays_short_however_much_data_there_is() {
        assert_eq!(flat_len_max(1 << 20, 32, 4096), 1 << 15);
        assert_eq!(flat_len_max(1 << 10, 32, 4096), 4096);
        assert_eq!(flat_len_max(u64::MAX, 0, 4096), 4096);
        for raw_bytes in [1 << 37, 1 << 40, u64::MAX] {
            // Beside what a root has else.
            assert!(flat_len_max(raw_bytes, 32, 4096) < BLOCK_LEN_MAX as u64 / 2);
        }
    }

    #[test]
    fn leaves_of_long_separators_are_so_long_that_the_top_is_not() {
        let long_leaf_len = |count: u64, len: usize| {
            let all = (0..count).map(|_| (0, 0, BlockHandle { offset: 0, len: 1 })).collect();
            let separators = vec![0; count as usize * len];
            Blocks { separators, all, longest: len }.long_leaf_len()
        };
        assert!(long_leaf_len(1_000_000, 24) < 4096);
        // Four keys in each.
        let of_long = long_leaf_len(2000, KEY_LEN_MAX);
        assert!((200_000..300_000).contains(&of_long), "{of_long}");
    }
}
