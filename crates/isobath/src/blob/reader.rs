//! Reads values out of blob files, and counts that.

use super::stream::OpenStream;
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::{Plant, Reach, planted, reached};
use crate::error::{DecodeError, Decoded, Error, ReadError, Result};
use crate::format::{Address, Mark, StreamAddress};
use crate::memory::Charge;
use crate::mvcc::Entry;
use crate::table::cache::{BlockKey, BlockRef, Striped};
use crate::table::{
    Block, BlockFile, BlockHandle, Decompressor, PinnedValue, TableContext, decode_frame,
    read_block,
};

/// How many values were fetched, and what had to be read for them.
#[derive(Debug, Default)]
pub(crate) struct FetchCounts(Striped<Counts>);

#[derive(Debug, Default)]
struct Counts {
    values: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
}

impl FetchCounts {
    /// Values that were asked for.
    pub(crate) fn values(&self) -> u64 {
        self.0.sum(|counts| &counts.values)
    }

    /// Reads of blob files. One may bring several values.
    pub(crate) fn reads(&self) -> u64 {
        self.0.sum(|counts| &counts.reads)
    }

    /// The bytes of these reads.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.0.sum(|counts| &counts.read_bytes)
    }

    #[inline]
    fn note_value(&self, key: &BlockKey) {
        self.0.of(key).values.fetch_add(1, Ordering::Relaxed);
    }

    fn note_read(&self, key: &BlockKey, bytes: u64) {
        let counts = self.0.of(key);
        counts.reads.fetch_add(1, Ordering::Relaxed);
        counts.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Fetches values of entries that say where they lie. The caller holds the slices that the entries
/// are from. Errors name the file, the offset and the key.
#[derive(Clone, Copy)]
pub(crate) struct Fetcher<'a> {
    pub(crate) tables: &'a TableContext,
    pub(crate) counts: &'a FetchCounts,
    /// True if values are kept in the block cache.
    pub(crate) fill_cache: bool,
    /// The longest stream that is returned as one value.
    pub(crate) whole_max: u64,
}

impl Fetcher<'_> {
    /// The value of an entry.
    pub(crate) fn fetch(&self, entry: &Entry<'_>) -> Result<PinnedValue> {
        if entry.kind.is_streamed() {
            return self.fetch_stream(entry);
        }
        let address = address_of(self.tables, entry)?;
        match self.ask(&address) {
            Some(value) => Ok(value),
            None => self.read(&address).map_err(|error| told(error, &address, entry.key)),
        }
    }

    /// The stream of an entry, as a whole. No cache keeps it.
    #[cold]
    fn fetch_stream(&self, entry: &Entry<'_>) -> Result<PinnedValue> {
        let address = stream_of(self.tables, entry)?;
        if address.value_len > self.whole_max {
            return Err(too_long(&address, entry.key, self.whole_max));
        }
        let read = || {
            let charge = self.tables.charge_read(address.value_len)?;
            let mut stream = self.open_stream(&address)?;
            // Both may be forged: a small file can claim to hold much more than memory has.
            let (len, mut value) = (address.value_len, Vec::new());
            let reserved = value.try_reserve_exact(len as usize);
            reserved.map_err(|_| Error::memory_limit(len, self.whole_max))?;
            stream.read_all(&mut value)?;
            self.note_read(&place_of(&address), address.file_len);
            let block = self.tables.charged_before(Block::of_value(value), charge)?;
            Ok(PinnedValue::whole(BlockRef::alone(block)))
        };
        read().map_err(|error: Error| error.for_key(entry.key))
    }

    /// Where the stream of an entry lies.
    pub(crate) fn stream_address(&self, entry: &Entry<'_>) -> Result<StreamAddress> {
        stream_of(self.tables, entry)
    }

    /// A stream, the value of `key`, to be read piece by piece. The caller holds its file.
    pub(crate) fn stream(&self, address: &StreamAddress, key: &[u8]) -> Result<OpenStream> {
        self.open_stream(address).map_err(|error| error.for_key(key))
    }

    fn open_stream(&self, address: &StreamAddress) -> Result<OpenStream> {
        reached(Reach::StreamRead);
        self.counts.note_value(&self.cache_key(&place_of(address)));
        let file = self.tables.files.get_blob(address.file)?;
        OpenStream::open(file.parts().0.clone(), self.tables.decompressor.clone(), address)
    }

    /// The value of an entry, for a job, which has charged what a long value takes.
    pub(crate) fn fetch_for_job(&self, entry: &Entry<'_>) -> Result<Vec<u8>> {
        let address = address_of(self.tables, entry)?;
        if let Some(value) = self.ask(&address) {
            return Ok(value.to_vec());
        }
        self.read_bytes(&address).map_err(|error| told(error, &address, entry.key))
    }

    fn cache_key(&self, address: &Address) -> BlockKey {
        let offset = if planted(Plant::BlobCachedByFile) { 0 } else { address.offset };
        BlockKey { id: self.tables.cache_id, file: address.file, offset }
    }

    /// Counts the value as asked for. Returns it if the cache has it.
    #[inline]
    pub(super) fn ask(&self, address: &Address) -> Option<PinnedValue> {
        let key = self.cache_key(address);
        self.counts.note_value(&key);
        let value = self.tables.blocks.find(key).map(PinnedValue::whole)?;
        // If the address says another length, a read tells that it is damaged.
        (value.len() == address.value_len as usize).then_some(value)
    }

    /// Counts a read for the value, and perhaps for others with it.
    pub(super) fn note_read(&self, address: &Address, bytes: u64) {
        self.counts.note_read(&self.cache_key(address), bytes);
    }

    /// Reads the value with a read of its own.
    pub(super) fn read(&self, address: &Address) -> Result<PinnedValue> {
        let charge = self.charge(address)?;
        let value = self.read_bytes(address)?;
        self.keep(address, value, charge)
    }

    /// Charges what the value is about to take. One that never fits is not worth another try.
    fn charge(&self, address: &Address) -> Result<Option<Charge>> {
        let len = u64::from(address.value_len);
        if self.tables.is_below() && len > self.whole_max {
            return Err(never_fits(address, self.whole_max));
        }
        self.tables.charge_read(len)
    }

    fn read_bytes(&self, address: &Address) -> Result<Vec<u8>> {
        let file = self.tables.files.get_blob(address.file)?;
        let mut value = Vec::new();
        self.note_read(address, u64::from(address.stored_len));
        read_value(&file, address, &self.tables.decompressor, &mut value)?;
        Ok(value)
    }

    /// Makes the value of its stored bytes, which were read already.
    pub(super) fn decode(
        &self,
        stored: &[u8],
        (mark, address): (Mark, &Address),
    ) -> Result<PinnedValue, ReadError> {
        let charge = self.charge(address)?;
        let mut value = Vec::new();
        decode_frame(stored, mark, &self.tables.decompressor, &mut value)?;
        check_len(&value, address)?;
        Ok(self.keep(address, value, charge)?)
    }

    fn keep(
        &self,
        address: &Address,
        value: Vec<u8>,
        charge: Option<Charge>,
    ) -> Result<PinnedValue> {
        debug_assert_eq!(value.len(), address.value_len as usize);
        let block = self.tables.charged_before(Block::of_value(value), charge)?;
        Ok(PinnedValue::whole(match self.fill_cache {
            true => self.tables.blocks.insert(None, self.cache_key(address), block),
            false => BlockRef::alone(block),
        }))
    }
}

/// Reads the value that lies at the address, checks it, and leaves it in `out`.
pub(crate) fn read_value(
    file: &BlockFile,
    address: &Address,
    decompressor: &Decompressor,
    out: &mut Vec<u8>,
) -> Result<()> {
    read_block(file, handle_of(address), decompressor, out)?;
    check_len(out, address).map_err(|error| error.in_file(file.path(), address.offset))
}

fn check_len(value: &[u8], address: &Address) -> Decoded<()> {
    match value.len() == address.value_len as usize {
        true => Ok(()),
        false => Err(DecodeError::damaged("a value has another length than its address says")),
    }
}

pub(super) fn handle_of(address: &Address) -> BlockHandle {
    BlockHandle { offset: address.offset, len: address.stored_len }
}

/// The offset behind the value. Addresses may be forged.
pub(super) fn end_of(address: &Address) -> u64 {
    address.offset.saturating_add(u64::from(address.stored_len))
}

/// The error of a value, with where it lies and its key.
#[cold]
pub(super) fn told(error: Error, address: &Address, key: &[u8]) -> Error {
    error.at_offset(address.offset).for_key(key)
}

#[cold]
fn no_address(tables: &TableContext, entry: &Entry<'_>, error: DecodeError) -> Error {
    // Which file the entry is from is not known here; the key tells.
    error.in_file(&tables.files.path(0), 0).for_key(entry.key)
}

/// The length of a value that lies apart. It is not read.
pub(crate) fn apart_len(entry: &Entry<'_>) -> Decoded<u64> {
    match entry.kind.is_streamed() {
        true => Ok(StreamAddress::of(entry.kind, entry.value)?.value_len),
        false => Ok(u64::from(Address::of(entry.kind, entry.value)?.value_len)),
    }
}

/// What stands for a stream where values are counted.
fn place_of(stream: &StreamAddress) -> Address {
    Address { file: stream.file, offset: 0, stored_len: 0, value_len: 0 }
}

fn stream_of(tables: &TableContext, entry: &Entry<'_>) -> Result<StreamAddress> {
    StreamAddress::of(entry.kind, entry.value).map_err(|error| no_address(tables, entry, error))
}

#[cold]
fn too_long(address: &StreamAddress, key: &[u8], whole_max: u64) -> Error {
    let shown = key[..key.len().min(64)].escape_ascii();
    Error::invalid_argument(format!(
        "the value of key \"{shown}\" has {} bytes, and one that is read as a whole may have {whole_max} here; \
         `get_reader` reads it piece by piece, unless operands lie above it",
        address.value_len
    ))
}

#[cold]
fn never_fits(address: &Address, whole_max: u64) -> Error {
    let Address { file, offset, value_len, .. } = address;
    Error::invalid_argument(format!(
        "the value at {offset:#x} of blob file {file} has {value_len} bytes, and one that is read \
         below this `Options::memory` may have {whole_max}"
    ))
}

pub(super) fn address_of(tables: &TableContext, entry: &Entry<'_>) -> Result<Address> {
    Address::of(entry.kind, entry.value).map_err(|error| no_address(tables, entry, error))
}
