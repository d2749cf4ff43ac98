//! An open slice: filter and index top in memory, everything else through the caches.
//!
//! A get reads one cache line of the filter, then searches the index top (and a cached leaf, if the
//! index has two levels), and then searches one data block. If the blocks are cached, it allocates
//! nothing and makes no system call.

use super::block::{Block, Hit};
use super::block_file::BlockFile;
use super::codec::Decompressor;
use super::context::{Opener, Stay, TableContext};
use super::filter::Filter;
use super::frame::read_block;
use super::index::{handle_of, parse_index};
use super::loader::Loader;
use super::read_ahead::UsualScan;
use super::root::{Content, FilterPlace, Root};
use super::sketch::Sketch;
use super::{BlockHandle, SliceMeta, TableCursor};
use crate::cursor::Cursor;
use crate::error::{DecodeError, Decoded, Error, ReadError, Result};
use crate::format::{Lsn, OpKind, checksum64};
use crate::memory::{Charge, Room};
use crate::span::SpanSet;
use crate::table::cache::{BlockKey, BlockRef, Hints, ResidentCharge};
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::Arc;

/// Blocks no further apart than this are announced together: one piece of this length is read as
/// fast as none.
const ANNOUNCED_GAP: u64 = 4096;

/// The way to the data blocks.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// The only data block itself.
    Data(BlockRef),
    /// An index over data blocks.
    Index(BlockRef),
    /// An index over index blocks.
    Top(BlockRef),
}

/// Where a block lies, and which entry of the index that the table holds says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) at: BlockHandle,
    /// `u32::MAX` if it is another index, or none.
    nth: u32,
}

impl Place {
    #[inline]
    pub(crate) fn at(at: BlockHandle) -> Place {
        Place { at, nth: u32::MAX }
    }

    #[inline]
    pub(super) fn hinted(at: BlockHandle, nth: u32) -> Place {
        Place { at, nth }
    }
}

impl Default for Place {
    fn default() -> Place {
        Place::at(BlockHandle { offset: 0, len: 0 })
    }
}

/// One family's slice of a table file, open for reading.
pub(crate) struct Table {
    pub(crate) context: TableContext,
    pub(super) file: u64,
    /// The start of the slice. Handles in the index are relative to it.
    pub(super) base: u64,
    pub(super) root_at: BlockHandle,
    pub(super) data_len: u64,
    pub(super) way: Way,
    /// Where the cache has the blocks that `way` names.
    hints: Hints,
    filter: Option<Filter>,
    spans: Option<Arc<SpanSet>>,
    sketch: StoredSketch,
    pub(super) usual_scan: UsualScan,
    _charge: ResidentCharge,
    /// What the filter is charged to, and all else.
    _below: (Option<Charge>, Option<Room>),
}

/// The sketch of the keys of a slice.
enum StoredSketch {
    None,
    /// As it is stored.
    Held(Box<[u8]>),
    /// In the root: below a ceiling for memory it is read there when it is needed, which is seldom.
    InRoot,
}

impl StoredSketch {
    fn of(stored: Option<Box<[u8]>>, context: &TableContext) -> StoredSketch {
        match stored {
            None => StoredSketch::None,
            Some(_) if context.is_below() => StoredSketch::InRoot,
            Some(stored) => StoredSketch::Held(stored),
        }
    }

    fn charge(&self) -> usize {
        if let StoredSketch::Held(stored) = self { stored.len() } else { 0 }
    }
}

/// A version that a get found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) seq: Lsn,
    pub(crate) kind: OpKind,
    /// Empty for a delete.
    pub(crate) value: PinnedValue,
}

/// A value in a block. It keeps the block in memory.
#[derive(Clone)]
pub(crate) struct PinnedValue {
    block: BlockRef,
    start: u32,
    end: u32,
}

impl PinnedValue {
    /// All bytes of a value that lies in a blob file.
    pub(crate) fn whole(block: BlockRef) -> PinnedValue {
        let end = block.bytes().len() as u32;
        PinnedValue { block, start: 0, end }
    }

    pub(super) fn new(block: BlockRef, start: u32, end: u32) -> PinnedValue {
        debug_assert!(start <= end && end as usize <= block.bytes().len());
        PinnedValue { block, start, end }
    }
}

impl PinnedValue {
    /// `len` bytes of the value from `offset` on.
    pub(crate) fn part(&self, offset: usize, len: usize) -> PinnedValue {
        assert!(offset + len <= self.len(), "a part lies within");
        let start = self.start + offset as u32;
        PinnedValue { block: self.block.clone(), start, end: start + len as u32 }
    }
}

impl Deref for PinnedValue {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.block.bytes()[self.start as usize..self.end as usize]
    }
}

impl std::fmt::Debug for PinnedValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PinnedValue({} bytes)", self.len())
    }
}

/// Reads and decodes the root at `handle`.
pub(super) fn read_root(file: &BlockFile, handle: BlockHandle) -> Result<Root> {
    let mut payload = Vec::new();
    read_block(file, handle, &Decompressor::default(), &mut payload)?;
    Root::decode(&payload, handle).map_err(|error| error.in_file(file.path(), handle.offset))
}

impl Table {
    /// Opens a slice for one who keeps it open: reads its root, index top and filter.
    pub(crate) fn open(context: TableContext, meta: &SliceMeta) -> Result<Arc<Table>> {
        Table::open_for(context, meta, Opener::Keeper).map(|(table, _)| table)
    }

    /// The same for one who cannot do without. Its memory is charged as far as there is room.
    pub(crate) fn reopen(context: TableContext, meta: &SliceMeta) -> Result<Arc<Table>> {
        Table::open_for(context, meta, Opener::Recovery).map(|(table, _)| table)
    }

    pub(super) fn open_for(
        context: TableContext,
        meta: &SliceMeta,
        opener: Opener,
    ) -> Result<(Arc<Table>, Stay)> {
        let file = context.files.get(meta.file)?;
        let root = read_root(&file, meta.root)?;
        if !root.meta(meta.file, meta.root).is_same_as(meta) {
            return Err(Error::corruption(
                file.path(),
                meta.root.offset,
                "the slice is not the one that the manifest names",
            ));
        }
        let in_root = |error: DecodeError| error.in_file(file.path(), meta.root.offset);
        let base = root.base(meta.root);
        let (mut filter, mut of_filter) = match root.filter {
            FilterPlace::None => (None, None),
            FilterPlace::Inline(stored) => (Filter::decode(&stored).map_err(in_root)?, None),
            FilterPlace::At(handle) => charged_filter(&file, base, handle, &context)?,
        };
        let way = match root.content {
            Content::Data(bytes) => {
                Way::Data(BlockRef::alone(Block::parse(bytes).map_err(in_root)?))
            }
            Content::Index { levels, top } => {
                let top = BlockRef::alone(parse_index(top).map_err(in_root)?);
                if levels == 1 { Way::Index(top) } else { Way::Top(top) }
            }
        };
        let (block, hints) = match &way {
            Way::Data(block) => (block, Hints::default()),
            Way::Index(block) | Way::Top(block) => (block, Hints::new(block.entry_count())),
        };
        let sketch = StoredSketch::of(root.sketch, &context);
        let held = block.charge() + hints.charge() + root.spans.charge() + sketch.charge();
        let rest = size_of::<Table>() + held;
        let uncharged = if of_filter.is_some() { 0 } else { charge_of(&filter) };
        let (of_rest, stay) = context.charge_table((rest + uncharged) as u64, opener)?;
        if stay != Stay::Long && of_filter.take().is_some() {
            filter = None;
        }
        let spans = (!root.spans.is_empty()).then(|| Arc::new(root.spans));
        let _charge = context.blocks.charge_resident((rest + charge_of(&filter)) as u64);
        let table = Arc::new(Table {
            file: meta.file,
            base,
            root_at: meta.root,
            data_len: root.data_len,
            way,
            hints,
            filter,
            spans,
            sketch,
            usual_scan: UsualScan::default(),
            _charge,
            _below: (of_filter, of_rest),
            context: context.of_open(),
        });
        Ok((table, stay))
    }

    /// How many bytes of blocks scans have usually passed in it of late.
    pub(crate) fn usual_scan_bytes(&self) -> u64 {
        self.usual_scan.bytes()
    }

    /// The range deletes of the slice, if it has any.
    #[inline]
    pub(crate) fn spans(&self) -> Option<&Arc<SpanSet>> {
        self.spans.as_ref()
    }

    /// Adds the keys of the slice that have a value in some version to a sketch. False if the slice
    /// has no sketch that this version knows.
    pub(crate) fn add_keys_to(self: &Arc<Self>, sketch: &mut Sketch) -> Result<bool> {
        let read = match &self.sketch {
            StoredSketch::InRoot => self.read_sketch()?,
            _ => None,
        };
        let held = if let StoredSketch::Held(stored) = &self.sketch { Some(stored) } else { None };
        if let Some(stored) = read.as_ref().or(held) {
            let added = sketch.add_stored(stored);
            return added.map_err(|error| self.located(error, self.root_at));
        }
        if !matches!(self.way, Way::Data(_)) {
            return Ok(false);
        }
        let mut cursor = self.cursor(false);
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            if entry.kind.puts_value() {
                sketch.add(checksum64(entry.key));
            }
            cursor.next()?;
        }
        Ok(true)
    }

    #[cold]
    fn read_sketch(&self) -> Result<Option<Box<[u8]>>> {
        let file = self.context.files.get(self.file)?;
        read_root(&file, self.root_at).map(|root| root.sketch)
    }

    /// False only if the slice holds no version of any key with this hash.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(hash))
    }

    /// False only if the slice holds no version of `key`. `hash` is the key's XXH3-64. Reads
    /// nothing.
    pub(crate) fn may_hold(&self, key: &[u8], hash: u64) -> bool {
        match &self.way {
            Way::Data(block) => {
                block.search(key, Lsn::MAX).map_or(true, |hit| hit.is_some_and(|hit| hit.is_equal))
            }
            Way::Index(_) | Way::Top(_) => self.may_contain(hash),
        }
    }

    /// True if the index has two levels.
    #[cfg(test)]
    pub(crate) fn has_leaves(&self) -> bool {
        matches!(self.way, Way::Top(_))
    }

    /// [`Table::get_with`], which keeps the blocks it reads in the cache.
    #[cfg(any(test, fuzzing, feature = "bench-internals"))]
    pub(crate) fn get(&self, key: &[u8], hash: u64, point: Lsn) -> Result<Option<Found>> {
        self.get_with(key, hash, point, true)
    }

    /// The newest version of `key` with a sequence number below `point`. `hash` is the key's
    /// XXH3-64. Without `fill_cache`, the data block read for it is not kept in the block cache.
    pub(crate) fn get_with(
        &self,
        key: &[u8],
        hash: u64,
        point: Lsn,
        fill_cache: bool,
    ) -> Result<Option<Found>> {
        let Some(place) = self.place_of(key, hash, point)? else { return Ok(None) };
        self.get_in(self.data_block(place, fill_cache)?, place.at, key, point)
    }

    /// The data block that holds the newest version of `key` below `point`, if the slice has one.
    #[inline(always)]
    pub(crate) fn place_of(&self, key: &[u8], hash: u64, point: Lsn) -> Result<Option<Place>> {
        if !self.may_contain(hash) {
            return Ok(None);
        }
        match &self.way {
            Way::Data(_) => Ok(Some(Place::at(self.root_at))),
            Way::Index(index) => self.follow(index, self.root_at, key, point),
            Way::Top(top) => self.place_below(top, key, point),
        }
    }

    /// The same through an index of two levels.
    #[inline(never)]
    fn place_below(&self, top: &Block, key: &[u8], point: Lsn) -> Result<Option<Place>> {
        let Some(leaf) = self.follow(top, self.root_at, key, point)? else { return Ok(None) };
        let place = self.follow(&*self.index_block(leaf)?, leaf.at, key, point)?;
        Ok(place.map(|place| Place::at(place.at)))
    }

    /// A data block, if it is in memory.
    #[inline(always)]
    pub(crate) fn block_in_memory(&self, place: Place) -> Option<BlockRef> {
        match &self.way {
            Way::Data(block) => Some(block.clone()),
            Way::Index(_) | Way::Top(_) => self.cached(place),
        }
    }

    /// A data block. Without `fill_cache`, one that is read for this is not kept in the cache.
    #[inline(always)]
    pub(crate) fn data_block(&self, place: Place, fill_cache: bool) -> Result<BlockRef> {
        match self.block_in_memory(place) {
            Some(block) => Ok(block),
            None => self.read_data_block(place, fill_cache),
        }
    }

    /// The same for one that is not in memory.
    #[cold]
    pub(crate) fn read_data_block(&self, place: Place, fill_cache: bool) -> Result<BlockRef> {
        match fill_cache {
            true => self.load(place, Block::parse),
            false => {
                let block = self.parse_at(place.at, Block::parse)?;
                Ok(BlockRef::alone(self.context.charged(block)?))
            }
        }
    }

    /// Has the processor fetch what the filter tells about a hash.
    #[inline]
    pub(crate) fn prefetch_filter(&self, hash: u64) {
        if let Some(filter) = &self.filter {
            filter.prefetch(hash);
        }
    }

    /// Announces blocks that will be read soon, by ascending offset. Some that lie close to each
    /// other are asked for as one.
    pub(crate) fn announce(&self, blocks: impl Iterator<Item = BlockHandle>) -> Result<()> {
        let file = self.context.files.get(self.file)?;
        let mut window: Range<u64> = 0..0;
        let tell = |window: &Range<u64>| {
            if !window.is_empty() {
                file.read_ahead(window.start, window.end - window.start);
            }
        };
        for BlockHandle { offset, len } in blocks {
            let end = offset.saturating_add(u64::from(len)).min(file.len());
            let near = window.start..=window.end.saturating_add(ANNOUNCED_GAP);
            if window.is_empty() || !near.contains(&offset) {
                tell(&window);
                window = offset..end;
            }
            window.end = window.end.max(end);
        }
        tell(&window);
        Ok(())
    }

    /// The place of the only block that can hold the first version at or after `(key, point)`.
    pub(super) fn follow(
        &self,
        index: &Block,
        index_at: BlockHandle,
        key: &[u8],
        point: Lsn,
    ) -> Result<Option<Place>> {
        let found = index.search_restarts(key, point).and_then(|hit| match hit {
            Some((nth, entry)) => {
                handle_of(index, entry, self.base).map(|at| Some(Place::hinted(at, nth)))
            }
            None => Ok(None),
        });
        found.map_err(|error| self.located(error, index_at))
    }

    /// The newest version of `key` below `point` in a data block.
    pub(crate) fn get_in(
        &self,
        block: BlockRef,
        handle: BlockHandle,
        key: &[u8],
        point: Lsn,
    ) -> Result<Option<Found>> {
        let found = block.search(key, point).and_then(|hit| match hit {
            Some(Hit { index, entry, is_equal: true, .. }) => {
                block.version(index).map(|version| Some((version, entry)))
            }
            _ => Ok(None),
        });
        match found {
            Ok(Some(((seq, kind), entry))) => {
                let value = PinnedValue::new(block, entry.value_at, entry.end);
                Ok(Some(Found { seq, kind, value }))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(self.located(error, handle)),
        }
    }

    /// A cursor over all versions. With `fill_cache`, the blocks it reads are kept in the block
    /// cache. Without it, the cursor reads far ahead, past the cache, into a buffer of its own;
    /// compactions should use that.
    pub(crate) fn cursor(self: &Arc<Self>, fill_cache: bool) -> TableCursor {
        TableCursor::new(self.clone(), Loader::new(fill_cache))
    }

    /// A cursor past the cache for a job that has charged what it reads at once.
    pub(crate) fn job_cursor(self: &Arc<Self>) -> TableCursor {
        TableCursor::new(self.clone(), Loader::of_job())
    }

    /// A block, if it is in the cache.
    #[inline(never)]
    pub(super) fn cached(&self, place: Place) -> Option<BlockRef> {
        self.context.blocks.get(self.hints.of(place.nth), self.cache_key(place.at))
    }

    /// An index block below the top, read through the cache.
    #[inline]
    pub(super) fn index_block(&self, place: Place) -> Result<BlockRef> {
        match self.cached(place) {
            Some(block) => Ok(block),
            None => self.load(place, parse_index),
        }
    }

    /// Reads a block from disk into the cache.
    #[cold]
    pub(super) fn load(
        &self,
        place: Place,
        parse: fn(Vec<u8>) -> Decoded<Block>,
    ) -> Result<BlockRef> {
        self.keep(place, self.parse_at(place.at, parse)?)
    }

    /// Puts a block that was read into the cache.
    pub(super) fn keep(&self, place: Place, block: Block) -> Result<BlockRef> {
        let (key, block) = (self.cache_key(place.at), self.context.charged(block)?);
        Ok(self.context.blocks.insert(self.hints.of(place.nth), key, block))
    }

    /// Reads a block from disk, past the cache.
    #[cold]
    pub(super) fn parse_at(
        &self,
        handle: BlockHandle,
        parse: fn(Vec<u8>) -> Decoded<Block>,
    ) -> Result<Block> {
        let mut bytes = Vec::new();
        self.read(handle, &mut bytes)?;
        parse(bytes).map_err(|error| self.located(error, handle))
    }

    /// Reads a block from disk, past the cache.
    pub(super) fn read(&self, handle: BlockHandle, bytes: &mut Vec<u8>) -> Result<()> {
        let file = self.context.files.get(self.file)?;
        read_block(&file, handle, &self.context.decompressor, bytes)
    }

    /// The offset at which the data blocks end.
    pub(super) fn data_end(&self) -> u64 {
        self.base.saturating_add(self.data_len)
    }

    #[inline]
    fn cache_key(&self, handle: BlockHandle) -> BlockKey {
        BlockKey { id: self.context.cache_id, file: self.file, offset: handle.offset }
    }

    /// Adds the file and the offset to a decoder's error about the block at `handle`.
    #[cold]
    pub(super) fn located(&self, error: impl Into<ReadError>, handle: BlockHandle) -> Error {
        error.into().in_file(&self.path(), handle.offset)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.context.files.path(self.file)
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({} at {})", self.path().display(), self.base)
    }
}

/// The bytes that a filter takes, if there is one.
fn charge_of(filter: &Option<Filter>) -> usize {
    filter.as_ref().map_or(0, Filter::charge)
}

/// Reads a filter and charges it. Without memory for it there is none.
fn charged_filter(
    file: &BlockFile,
    base: u64,
    handle: BlockHandle,
    context: &TableContext,
) -> Result<(Option<Filter>, Option<Charge>)> {
    // While it is read it is there twice: as it is stored, and as it is used.
    let Ok(mut charge) = context.charge_filter(2 * u64::from(handle.len)) else {
        return Ok((None, None));
    };
    let filter = read_filter(file, base, handle, &context.decompressor)?;
    if let Some(charge) = &mut charge {
        charge.shrink_to(charge_of(&filter) as u64);
    }
    Ok((filter, charge))
}

/// Reads a filter into cache-aligned lines.
pub(super) fn read_filter(
    file: &BlockFile,
    base: u64,
    handle: BlockHandle,
    decompressor: &Decompressor,
) -> Result<Option<Filter>> {
    let offset = base.saturating_add(handle.offset);
    let mut stored = Vec::new();
    read_block(file, BlockHandle { offset, len: handle.len }, decompressor, &mut stored)?;
    Filter::decode(&stored).map_err(|error| error.in_file(file.path(), offset))
}
