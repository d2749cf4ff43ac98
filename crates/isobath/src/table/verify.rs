//! Checks a slice on disk: every block's checksum and form, the order of all entries, whether the
//! index and the filter agree with the entries, and the properties. Takes nothing from the block
//! cache.

use super::block::{Block, key_head};
use super::common_prefix_len;
use super::filter::Filter;
use super::index::{handle_of, index_entry, parse_index};
use super::key_buffer::KeyBuffer;
use super::reader::{Table, read_filter, read_root};
use super::root::{Content, FilterPlace, Root};
use super::sketch::Sketch;
use super::{BlobShares, BlockHandle, Ends, StreamShares};
use crate::error::{DecodeError, Decoded, Result};
use crate::format::{Address, Lsn, OpKind, StreamAddress, checksum64};
use crate::mvcc::Expiring;

/// Called with the number of bytes read since the last call.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(u64);

/// Called with the kind of each entry.
pub(crate) type NoteKind<'a> = &'a mut dyn FnMut(OpKind);

/// What the check has seen of a slice so far.
struct Verifier<'a> {
    table: &'a Table,
    root: &'a Root,
    filter: Option<Filter>,
    progress: Progress<'a>,
    note_kind: NoteKind<'a>,
    /// The offset at which the next data block must begin.
    next_offset: u64,
    key: Vec<u8>,
    hash: u64,
    sketch: Sketch,
    /// The previous separator and its sequence number.
    separator: Option<(Vec<u8>, Lsn)>,
    last: Option<Lsn>,
    smallest: Vec<u8>,
    entries: u64,
    deletes: u64,
    oldest_delete: Lsn,
    ends: Option<Ends>,
    blobs: BlobShares,
    streams: StreamShares,
    raw_bytes: u64,
    data_blocks: u64,
    min_seq: Lsn,
    max_seq: Lsn,
}

fn ensure(holds: bool, what: &'static str) -> Decoded<()> {
    if holds { Ok(()) } else { Err(DecodeError::damaged(what)) }
}

impl Table {
    /// Reads and checks the whole slice. The error names the file and the offset of the faulty
    /// block.
    pub(crate) fn verify(&self, progress: Progress<'_>, note_kind: NoteKind<'_>) -> Result<()> {
        let file = self.context.files.get(self.file)?;
        let root = read_root(&file, self.root_at)?;
        let filter = match &root.filter {
            FilterPlace::None => None,
            FilterPlace::Inline(stored) => {
                Filter::decode(stored).map_err(|error| self.located(error, self.root_at))?
            }
            FilterPlace::At(handle) => {
                progress(u64::from(handle.len));
                read_filter(&file, self.base, *handle, &self.context.decompressor)?
            }
        };
        let mut verifier = Verifier {
            table: self,
            root: &root,
            filter,
            progress,
            note_kind,
            next_offset: self.base,
            key: Vec::new(),
            hash: 0,
            sketch: Sketch::default(),
            separator: None,
            last: None,
            smallest: Vec::new(),
            entries: 0,
            deletes: 0,
            oldest_delete: Lsn::MAX,
            ends: None,
            blobs: BlobShares::default(),
            streams: StreamShares::default(),
            raw_bytes: 0,
            data_blocks: 0,
            min_seq: Lsn::MAX,
            max_seq: 0,
        };
        verifier.content()?;
        verifier.totals().map_err(|error| self.located(error, self.root_at))?;
        (verifier.progress)(u64::from(self.root_at.len));
        Ok(())
    }
}

impl Verifier<'_> {
    fn content(&mut self) -> Result<()> {
        let (table, root_at) = (self.table, self.table.root_at);
        match &self.root.content {
            Content::Data(bytes) => Block::parse(bytes.clone())
                .and_then(|block| self.data_block(&block))
                .map_err(|error| table.located(error, root_at)),
            Content::Index { levels: 1, top } => {
                let top =
                    parse_index(top.clone()).map_err(|error| table.located(error, root_at))?;
                self.index(&top, root_at)
            }
            Content::Index { top, .. } => {
                let top =
                    parse_index(top.clone()).map_err(|error| table.located(error, root_at))?;
                let mut leaf_offset = None;
                for ordinal in 0..top.entry_count() {
                    let (separator, seq, handle) = separator_at(&top, ordinal, table.base)
                        .map_err(|error| table.located(error, root_at))?;
                    let leaf = parse_index(self.read(handle)?)
                        .map_err(|error| table.located(error, handle))?;
                    self.index(&leaf, handle)?;
                    let is_last = self.separator.as_ref().is_some_and(|(key, last_seq)| {
                        key.as_slice() == separator && *last_seq == seq
                    });
                    let follows = leaf_offset.is_none_or(|offset| offset == handle.offset);
                    ensure(is_last && follows, "the index top and an index block disagree")
                        .map_err(|error| table.located(error, handle))?;
                    leaf_offset = Some(handle.offset.saturating_add(u64::from(handle.len)));
                }
                top.check_columns().map_err(|error| table.located(error, root_at))
            }
        }
    }

    fn index(&mut self, index: &Block, index_at: BlockHandle) -> Result<()> {
        let table = self.table;
        for ordinal in 0..index.entry_count() {
            let (separator, seq, handle) = separator_at(index, ordinal, table.base)
                .map_err(|error| table.located(error, index_at))?;
            ensure(
                handle.offset == self.next_offset,
                "a data block does not follow the one before",
            )
            .map_err(|error| table.located(error, index_at))?;
            let block = Block::parse(self.read(handle)?);
            block
                .and_then(|block| self.data_block(&block))
                .map_err(|error| table.located(error, handle))?;
            let is_bound = if seq == 0 {
                separator >= &self.key[..]
            } else {
                separator == &self.key[..] && self.last == Some(seq)
            };
            ensure(is_bound, "a separator lies below its block")
                .map_err(|error| table.located(error, index_at))?;
            self.separator = Some((separator.to_vec(), seq));
            self.next_offset = handle.offset.saturating_add(u64::from(handle.len));
        }
        index.check_columns().map_err(|error| table.located(error, index_at))
    }

    fn read(&mut self, handle: BlockHandle) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.table.read(handle, &mut bytes)?;
        (self.progress)(u64::from(handle.len));
        Ok(bytes)
    }

    fn data_block(&mut self, block: &Block) -> Decoded<()> {
        block.check_columns()?;
        let is_said = self.root.has_slotted || !block.is_slotted();
        ensure(is_said, "a block has a form that the slice's root does not tell of")?;
        let mut key = KeyBuffer::default();
        block.begin_key(&mut key);
        let mut at = 0;
        for index in 0..block.entry_count() {
            let entry = block.entry_of(index, at)?;
            block.extend_key(entry, &mut key)?;
            let (seq, kind) = block.version(index)?;
            if index == 0 {
                self.check_start(key.as_slice())?;
            }
            self.version(key.as_slice(), seq, kind, block.value(entry))?;
            at = entry.end;
        }
        self.data_blocks += 1;
        Ok(())
    }

    /// Checks that the first key of a block is above the separator before it, or equal to it.
    fn check_start(&self, first: &[u8]) -> Decoded<()> {
        let is_above = self.separator.as_ref().is_none_or(|(separator, seq)| {
            if *seq == 0 { separator.as_slice() < first } else { separator == first }
        });
        ensure(is_above, "a block begins below the separator before it")
    }

    fn version(&mut self, key: &[u8], seq: Lsn, kind: OpKind, value: &[u8]) -> Decoded<()> {
        match self.last {
            None => self.smallest = key.to_vec(),
            Some(last) => {
                let is_after = self.key.as_slice() < key || (self.key == key && seq < last);
                ensure(is_after, "entries are out of order")?;
            }
        }
        if self.last.is_none() || self.key != key {
            self.hash = checksum64(key);
            let is_found = self.filter.as_ref().is_none_or(|filter| filter.may_contain(self.hash));
            ensure(is_found, "the filter denies a key of the slice")?;
            self.key.clear();
            self.key.extend_from_slice(key);
        }
        (self.note_kind)(kind);
        ensure(kind.has_value() || value.is_empty(), "a delete has a value")?;
        if kind.puts_value() {
            self.sketch.add(self.hash);
        }
        if kind.is_expiring() {
            let Some(ends) = Expiring::split(value) else {
                return ensure(false, "a value that ends is shorter than its end");
            };
            self.ends = Some(Ends::with(self.ends, ends.expires_ms));
        }
        if kind.is_separated() {
            self.blobs.note(&Address::of(kind, value)?);
        }
        if kind.is_streamed() {
            self.streams.note(&StreamAddress::of(kind, value)?);
        }
        self.last = Some(seq);
        self.entries += 1;
        if kind.is_tombstone() {
            self.deletes += 1;
            self.oldest_delete = self.oldest_delete.min(seq);
        }
        self.raw_bytes += (key.len() + value.len()) as u64;
        self.min_seq = self.min_seq.min(seq);
        self.max_seq = self.max_seq.max(seq);
        Ok(())
    }

    fn totals(&self) -> Decoded<()> {
        let root = self.root;
        let (least, greatest) = root.spans.seqs().unwrap_or((Lsn::MAX, 0));
        let seqs = (self.min_seq.min(least), self.max_seq.max(greatest));
        let agree = self.entries == root.entries
            && self.deletes == root.deletes
            && self.ends == root.ends
            && root.oldest_delete.is_none_or(|it| it.seq == self.oldest_delete.min(least))
            && self.raw_bytes == root.raw_bytes
            && self.data_blocks == root.data_blocks
            && seqs == (root.min_seq, root.max_seq)
            && self.smallest == root.smallest
            && self.key == root.largest
            && self.next_offset == self.table.data_end();
        ensure(agree, "the slice's properties do not agree with its entries")?;
        let agree = self.blobs.shares().eq(&root.blobs);
        ensure(agree, "the slice's shares of blob files do not agree with its entries")?;
        let agree = self.streams.shares().eq(root.streams.iter().copied());
        ensure(agree, "the slice's streams do not agree with its entries")?;
        let mut stored = Sketch::default();
        let is_known = root.sketch.as_ref().map_or(Ok(false), |it| stored.add_stored(it))?;
        ensure(!is_known || stored == self.sketch, "the sketch does not agree with the keys")
    }
}

fn separator_at(index: &Block, ordinal: u32, base: u64) -> Decoded<(&[u8], Lsn, BlockHandle)> {
    let entry = index_entry(index, ordinal)?;
    let (seq, _) = index.version(ordinal)?;
    Ok((index.unshared(entry), seq, handle_of(index, entry, base)?))
}

impl Block {
    /// Checks that restarts, heads and the prefix agree with the entries, and that the entries fill
    /// their part of the block.
    pub(super) fn check_columns(&self) -> Decoded<()> {
        if self.is_slotted() {
            return self.check_slots();
        }
        let mut key = KeyBuffer::default();
        let mut first = Vec::new();
        let mut at = 0;
        for index in 0..self.entry_count() {
            let entry = self.entry_at(at)?;
            self.extend_key(entry, &mut key)?;
            if index == 0 {
                first = key.as_slice().to_vec();
            }
            ensure(
                common_prefix_len(&first, key.as_slice()) >= self.prefix_len(),
                "a key lacks the prefix of its block",
            )?;
            if index.is_multiple_of(self.interval()) {
                let restart = index / self.interval();
                let agrees = entry.shared == 0
                    && self.restart(restart) == at
                    && self.head(restart) == key_head(key.as_slice(), self.prefix_len());
                ensure(agrees, "a restart does not agree with its entry")?;
            }
            at = entry.end;
        }
        ensure(at == self.entries_end(), "a block holds more than its entries")
    }
}
