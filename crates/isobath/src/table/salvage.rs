//! Recovers what can still be read of a damaged table file. Where nothing else shows the way, it
//! uses the checksums.
//!
//! Stored blocks follow each other from the file header on, and the checksum of a block depends on
//! its offset and its length. So a block can be found by trying lengths. After a damaged block that
//! an index or a root names, the next one begins where these say. If none of them names the block,
//! positions are tried byte by byte, up to a limit, and then the next place is taken where a block
//! is known to begin: of a slice that has lost its index that may be the root alone.
//!
//! The root of a slice tells the use of each block. If the root is lost, the form of the block
//! tells it: data blocks come first, and an index block holds only handles.

use super::block::{Block, SEQ_MAX};
use super::codec::{Codec, Decompressor};
use super::footer::{FOOTER_LEN, Footer, decode_directory};
use super::frame::{TRAILER_LEN, decode_frame, find_frame, has_checksum, salt_of};
use super::index::{handle_of, index_entry, parse_index};
use super::key_buffer::KeyBuffer;
use super::root::{Content, FilterPlace, Root};
use super::{BlockHandle, SliceMeta};
use crate::cursor::Entry;
use crate::error::{DecodeError, Decoded, ReadError, Result};
use crate::format::{FILE_HEADER_LEN, FamilyId, FileHeader, FileKind, Salt};
use std::collections::{BTreeMap, BTreeSet};

/// How many positions are tried after damage if nothing shows where the next block begins, and up
/// to what block length.
const PLACES_MAX: usize = 64 << 10;
const BLIND_LEN_MAX: usize = 16 << 10;

/// What the search found in a table file.
pub(crate) struct Salvage {
    bytes: Vec<u8>,
    /// Of its blocks.
    salt: Salt,
    decompressor: Decompressor,
    pub(crate) slices: Vec<SalvagedSlice>,
    /// True if the directory, which names every slice, can be read.
    pub(crate) has_directory: bool,
    /// Bytes of intact blocks that cannot be assigned to a slice.
    pub(crate) homeless_bytes: u64,
}

/// What the search found of a slice.
pub(crate) struct SalvagedSlice {
    /// `None` if neither the manifest nor the directory names the family.
    pub(crate) family: Option<FamilyId>,
    /// What the root states, or the manifest if the root is lost.
    pub(crate) meta: Option<SliceMeta>,
    pub(crate) root: Option<Root>,
    base: u64,
    /// The offset at which data blocks end.
    data_end: u64,
    /// The intact data blocks.
    blocks: Vec<BlockHandle>,
}

/// The blocks that roots and indexes name.
#[derive(Default)]
struct KnownBlocks {
    /// Where blocks begin.
    starts: BTreeSet<u64>,
    /// Where each of those ends whose length is known, too.
    ends: BTreeMap<u64, u64>,
}

impl KnownBlocks {
    fn add(&mut self, block: BlockHandle) {
        let end = block.offset.saturating_add(u64::from(block.len));
        self.starts.extend([block.offset, end]);
        self.ends.insert(block.offset, end);
    }

    /// True if this place lies in one of them: no other block begins there.
    fn holds(&self, at: u64) -> bool {
        self.ends.range(..=at).next_back().is_some_and(|(_, end)| at < *end)
    }
}

/// A part of a slice, in key order.
pub(crate) enum Part<'a> {
    Entry(Entry<'a>),
    /// Data blocks that cannot be read.
    Gap {
        offset: u64,
        len: u64,
    },
}

/// The database that a table is of, if that is known, and its number.
type Identity = (Option<[u8; 16]>, u64);

/// Searches the bytes of a table file. `known` is what the manifest says about its slices. An
/// intact block whose codec this build lacks is an error, because the block is not lost. So is a
/// root, and a data block of a slice whose root is there, that a newer version has written.
pub(crate) fn salvage(bytes: Vec<u8>, of: Identity, known: &[SliceMeta]) -> Decoded<Salvage> {
    let mut salvage = Salvage::new(bytes);
    let (mut directory, mut blocks) = (Vec::new(), Vec::new());
    for salt in salvage.salts(of, known) {
        salvage.salt = salt;
        directory = salvage.directory();
        let named = directory.iter().map(|(_, root)| *root);
        let roots: Vec<_> = known.iter().map(|meta| meta.root).chain(named).collect();
        salvage.refuse_newer_roots(&roots)?;
        blocks = salvage.find_blocks(&salvage.known_blocks(&roots))?;
        if !blocks.is_empty() {
            break;
        }
    }
    debug_assert!(blocks.is_sorted_by_key(|block| block.offset), "blocks are found in order");
    salvage.has_directory = !directory.is_empty();
    salvage.add_rooted(&blocks, of.1);
    salvage.refuse_newer_data(&blocks)?;
    salvage.add_rootless(&blocks, known, &directory);
    let is_home = |block: &&BlockHandle| {
        let (from, end) = (block.offset, block.offset + u64::from(block.len));
        salvage.slices.iter().any(|slice| slice.base <= from && end <= slice.end())
    };
    let homeless = blocks.iter().filter(|block| !is_home(block) && salvage.is_data(block));
    salvage.homeless_bytes = homeless.map(|block| u64::from(block.len)).sum();
    salvage.slices.sort_by_key(|slice| slice.base);
    Ok(salvage)
}

/// False if neither the header, nor the end, nor the blocks at the beginning are of a table, whose
/// file is longer than this beginning. Then it is of no use to search the whole file: what is left
/// of a stream, for one, may be longer than memory.
pub(crate) fn may_be_table(
    head: Vec<u8>,
    of: Identity,
    end: &[u8; FOOTER_LEN],
    file_len: u64,
) -> bool {
    let is_damage = |error: DecodeError| error.is_damage();
    if !FileHeader::decode(&head, FileKind::Table).is_err_and(is_damage)
        || !Footer::decode(end, file_len).is_err_and(is_damage)
    {
        return true;
    }
    let mut head = Salvage::new(head);
    let mut judged = head.salts(of, &[]).into_iter().filter_map(|salt| {
        head.salt = salt;
        head.begins_as_table()
    });
    judged.next().unwrap_or(false)
}

impl SalvagedSlice {
    /// True if the block lies among the data blocks.
    fn has_data_at(&self, block: &BlockHandle) -> bool {
        self.base <= block.offset && block.offset + u64::from(block.len) <= self.data_end
    }

    /// The place behind the last intact data block of a slice that has lost its root, and its
    /// length: nothing tells whether there were more data blocks.
    pub(crate) fn unknown_tail(&self) -> Option<(u64, u64)> {
        let is_unknown = self.root.is_none() && !self.blocks.is_empty();
        let root = self.meta.as_ref().filter(|_| is_unknown)?.root;
        let len = root.offset.checked_sub(self.data_end).filter(|len| *len > 0)?;
        Some((self.data_end, len))
    }

    fn end(&self) -> u64 {
        match &self.meta {
            Some(meta) => meta.root.offset + u64::from(meta.root.len),
            None => self.data_end,
        }
    }
}

impl Salvage {
    fn new(bytes: Vec<u8>) -> Salvage {
        let (slices, decompressor) = (Vec::new(), Decompressor::default());
        let (salt, has_directory, homeless_bytes) = (Salt::NONE, false, 0);
        Salvage { bytes, salt, decompressor, slices, has_directory, homeless_bytes }
    }

    /// The salt that the header states or, if it is damaged or that of another file, those which
    /// the blocks may have, the likeliest first.
    fn salts(&self, (uuid, number): Identity, known: &[SliceMeta]) -> Vec<Salt> {
        let stated = self.header();
        let is_own = |header: &&FileHeader| {
            header.number == number && uuid.is_none_or(|uuid| uuid == header.uuid)
        };
        if let Some(header) = stated.as_ref().filter(is_own) {
            return vec![header.salt];
        }
        let own = uuid.map(|uuid| Salt::of(uuid, number));
        let others = [stated.map(|header| header.salt), self.salt_by_directory()];
        let others = others.into_iter().flatten().chain([Salt::NONE]);
        let mut salts: Vec<Salt> = own.into_iter().chain(others).collect();
        let directory = self.footer().map(|footer| footer.directory);
        let named: Vec<_> = known.iter().map(|meta| meta.root).chain(directory).collect();
        salts.sort_by_cached_key(|salt| {
            !named.iter().any(|block| self.block_of(*salt, *block).is_some())
        });
        debug_assert!(salts.contains(&Salt::NONE), "what was written before salts is tried");
        salts
    }

    /// The salt with which the directory is whole, and a root that it names, too. It is found
    /// also where nothing tells which database the file is of.
    fn salt_by_directory(&self) -> Option<Salt> {
        let at = self.footer()?.directory;
        let salt = salt_of(self.stored(at)?, at.offset)?;
        let roots = decode_directory(&self.block_of(salt, at)?).ok()?;
        roots.iter().any(|(_, root)| self.block_of(salt, *root).is_some()).then_some(salt)
    }

    /// Whether the blocks that are found at the beginning are of a table. `None` if none are found.
    fn begins_as_table(&self) -> Option<bool> {
        let (mut at, mut has_block) = (FILE_HEADER_LEN, false);
        while at < self.bytes.len() {
            let Some(len) = self.find_frame(at, usize::MAX) else {
                let next = (!has_block).then(|| self.next_start(at, &KnownBlocks::default()));
                match next.flatten() {
                    Some(next) => at = next,
                    None => break,
                }
                continue;
            };
            let block = BlockHandle { offset: at as u64, len: len as u32 };
            if self.is_part_of_table(&block) {
                return Some(true);
            }
            (at, has_block) = (at + len, true);
        }
        has_block.then_some(false)
    }

    fn find_frame(&self, at: usize, len_max: usize) -> Option<usize> {
        find_frame(&self.bytes, self.salt, at, len_max)
    }

    fn stored(&self, handle: BlockHandle) -> Option<&[u8]> {
        let start = usize::try_from(handle.offset).ok()?;
        self.bytes.get(start..start.checked_add(handle.len as usize)?)
    }

    fn block(&self, handle: BlockHandle) -> Option<Vec<u8>> {
        self.block_of(self.salt, handle)
    }

    fn block_of(&self, salt: Salt, handle: BlockHandle) -> Option<Vec<u8>> {
        let (stored, mut out) = (self.stored(handle)?, Vec::new());
        decode_frame(stored, salt.mark(handle.offset), &self.decompressor, &mut out).ok()?;
        Some(out)
    }

    /// The file's header, if it is whole.
    pub(crate) fn header(&self) -> Option<FileHeader> {
        FileHeader::decode(&self.bytes, FileKind::Table).ok()
    }

    /// The number of the table by its footer, if that is whole.
    pub(crate) fn number_at_end(&self) -> Option<u64> {
        Some(self.footer()?.number)
    }

    fn footer(&self) -> Option<Footer> {
        let bytes = self.bytes.last_chunk::<FOOTER_LEN>()?;
        Footer::decode(bytes, self.bytes.len() as u64).ok()
    }

    fn root(&self, handle: BlockHandle) -> Option<Root> {
        Root::decode(&self.block(handle)?, handle).ok()
    }

    /// Fails if a root that is intact is of a newer version.
    fn refuse_newer_roots(&self, roots: &[BlockHandle]) -> Decoded<()> {
        let intact = roots.iter().filter_map(|root| Some((root, self.block(*root)?)));
        let mut newer = intact.filter_map(|(root, bytes)| Root::decode(&bytes, *root).err());
        newer.find(DecodeError::is_newer_format).map_or(Ok(()), Err)
    }

    /// Fails if a data block is of a newer version. Where no root says what a block is, it may be
    /// anything else.
    fn refuse_newer_data(&self, blocks: &[BlockHandle]) -> Decoded<()> {
        for slice in self.slices.iter().filter(|slice| slice.root.is_some()) {
            debug_assert!(slice.base <= slice.data_end, "a slice ends before it begins");
            let within = blocks.iter().filter(|block| slice.has_data_at(block));
            let mut newer = within.filter_map(|block| Block::parse(self.block(*block)?).err());
            newer.find(DecodeError::is_newer_format).map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// The directory's roots, if footer and directory can be read.
    fn directory(&self) -> Vec<(FamilyId, BlockHandle)> {
        let payload = self.footer().and_then(|footer| self.block(footer.directory));
        payload.and_then(|payload| decode_directory(&payload).ok()).unwrap_or_default()
    }

    /// The blocks that roots and indexes name.
    fn known_blocks(&self, roots: &[BlockHandle]) -> KnownBlocks {
        let mut known = KnownBlocks::default();
        for handle in roots {
            known.add(*handle);
            let Some(root) = self.root(*handle) else { continue };
            let base = root.base(*handle);
            known.starts.extend([base, base + root.data_len]);
            if let FilterPlace::At(filter) = root.filter {
                known.add(BlockHandle { offset: base.saturating_add(filter.offset), ..filter });
            }
            if let Content::Index { levels, top } = root.content {
                self.add_indexed(top, base, levels, &mut known);
            }
        }
        known
    }

    fn add_indexed(&self, index: Vec<u8>, base: u64, levels: u8, known: &mut KnownBlocks) {
        let Ok(index) = parse_index(index) else { return };
        for handle in handles(&index, base).unwrap_or_default() {
            known.add(handle);
            if levels > 1
                && let Some(bytes) = self.block(handle)
            {
                self.add_indexed(bytes, base, levels - 1, known);
            }
        }
    }

    /// The length of the block that begins there. An intact index knows; by trying, bytes within a
    /// block's first value may look like the end of a shorter one. None is longer than an index
    /// says, and to look further for each damaged block would take the square of their number.
    fn frame_len(&self, at: usize, known: &KnownBlocks) -> Option<usize> {
        let end = known.ends.get(&(at as u64)).and_then(|end| usize::try_from(*end).ok());
        let stored = end.and_then(|end| self.bytes.get(at..end));
        let len_max = end.map_or(usize::MAX, |end| end.saturating_sub(at));
        let told = stored
            .filter(|stored| has_checksum(stored, self.salt.mark(at as u64)))
            .map(<[u8]>::len);
        told.or_else(|| self.find_frame(at, len_max))
    }

    /// Every intact block, in order.
    fn find_blocks(&self, known: &KnownBlocks) -> Decoded<Vec<BlockHandle>> {
        let mut blocks = Vec::new();
        let mut at = FILE_HEADER_LEN;
        while at < self.bytes.len() {
            match self.frame_len(at, known) {
                Some(len) => {
                    Codec::from_byte(self.bytes[at + len - TRAILER_LEN])?.demand()?;
                    blocks.push(BlockHandle { offset: at as u64, len: len as u32 });
                    at += len;
                }
                None => match self.next_start(at, known) {
                    Some(next) => at = next,
                    None => break,
                },
            }
        }
        Ok(blocks)
    }

    /// The next offset at which a block may begin after the damaged one at `at`.
    fn next_start(&self, at: usize, known: &KnownBlocks) -> Option<usize> {
        let next = known.starts.range(at as u64 + 1..).next();
        let next = next.and_then(|start| usize::try_from(*start).ok());
        let next = next.filter(|next| *next < self.bytes.len());
        if known.holds(at as u64) {
            return next;
        }
        let end = next.unwrap_or(self.bytes.len()).min(at.saturating_add(PLACES_MAX));
        let mut zeros_end = 0;
        let found = (at + 1..end).find(|place| {
            if zeros_end <= *place {
                let rest = self.bytes[*place..].iter();
                zeros_end = place + rest.take_while(|byte| **byte == 0).count();
            }
            // A power cut leaves zeros, and no block is nothing else.
            let is_empty = zeros_end >= self.bytes.len().min(place + BLIND_LEN_MAX);
            !is_empty && self.find_frame(*place, BLIND_LEN_MAX).is_some()
        });
        found.or(next)
    }

    /// Adds the slices whose roots can be read.
    fn add_rooted(&mut self, blocks: &[BlockHandle], number: u64) {
        let mut from = FILE_HEADER_LEN as u64;
        for handle in blocks {
            let Some(root) = self.root(*handle).filter(|root| root.base(*handle) >= from) else {
                continue;
            };
            let base = root.base(*handle);
            let data_end = base + root.data_len;
            let slice = SalvagedSlice {
                family: Some(root.family),
                meta: Some(root.meta(number, *handle)),
                base,
                data_end,
                blocks: self.data_blocks(blocks, base, data_end),
                root: Some(root),
            };
            from = handle.offset + u64::from(handle.len);
            self.slices.push(slice);
        }
    }

    /// Adds the slices whose roots are lost, as far as other data describes them.
    fn add_rootless(
        &mut self,
        blocks: &[BlockHandle],
        known: &[SliceMeta],
        directory: &[(FamilyId, BlockHandle)],
    ) {
        let places = known.iter().map(|meta| (meta.family, meta.root, Some(meta)));
        let places = places.chain(directory.iter().map(|(family, root)| (*family, *root, None)));
        for (family, root, meta) in places {
            let is_known = |slice: &SalvagedSlice| {
                slice.base <= root.offset && root.offset < slice.end().max(slice.base + 1)
            };
            if self.slices.iter().any(is_known) {
                continue;
            }
            let before =
                self.slices.iter().map(SalvagedSlice::end).filter(|end| *end <= root.offset);
            let begin = before.max().unwrap_or(FILE_HEADER_LEN as u64);
            let base = meta.map_or(begin, |meta| {
                (root.offset + u64::from(root.len)).saturating_sub(meta.disk_bytes).max(begin)
            });
            let data = self.data_blocks(blocks, base, root.offset);
            self.slices.push(SalvagedSlice {
                family: Some(family),
                meta: meta.cloned(),
                root: None,
                base,
                data_end: data.last().map_or(base, |last| last.offset + u64::from(last.len)),
                blocks: data,
            });
        }
    }

    fn data_blocks(&self, blocks: &[BlockHandle], base: u64, end: u64) -> Vec<BlockHandle> {
        let within = |block: &&BlockHandle| {
            base <= block.offset && block.offset + u64::from(block.len) <= end
        };
        blocks.iter().filter(within).filter(|block| self.is_data(block)).copied().collect()
    }

    /// True if the block has the form of a root, a data block or an index, or if this build cannot
    /// tell.
    fn is_part_of_table(&self, handle: &BlockHandle) -> bool {
        let end = handle.offset as usize + handle.len as usize;
        let codec = Codec::from_byte(self.bytes[end - TRAILER_LEN]);
        if codec.and_then(Codec::demand).is_err() || self.root(*handle).is_some() {
            return true;
        }
        let block = self.block(*handle).and_then(|bytes| Block::parse(bytes).ok());
        block
            .filter(|block| block.entry_count() > 0)
            .is_some_and(|block| is_readable(&block) || handles(&block, 0).is_some())
    }

    /// True if the block has the form of a data block.
    fn is_data(&self, handle: &BlockHandle) -> bool {
        let Some(bytes) = self.block(*handle) else { return false };
        let Ok(block) = Block::parse(bytes) else { return false };
        let is_index = block.interval() == 1 && handles(&block, 0).is_some();
        !is_index && is_readable(&block)
    }

    /// Visits the readable rest of a slice, in key order. Fails if only a newer version can read a
    /// part.
    pub(crate) fn visit(
        &self,
        slice: &SalvagedSlice,
        visit: &mut dyn FnMut(Part<'_>) -> Result<()>,
    ) -> Result<(), ReadError> {
        if let (Some(Root { content: Content::Data(bytes), .. }), Some(meta)) =
            (&slice.root, &slice.meta)
        {
            return match Block::parse(bytes.clone()) {
                Ok(block) if is_readable(&block) => visit_block(&block, visit),
                Err(error) if error.is_newer_format() => Err(error.into()),
                _ => Ok(visit(Part::Gap { offset: meta.root.offset, len: meta.root.len.into() })?),
            };
        }
        let mut at = slice.base;
        for handle in &slice.blocks {
            if at < handle.offset {
                visit(Part::Gap { offset: at, len: handle.offset - at })?;
            }
            at = handle.offset + u64::from(handle.len);
            if let Some(bytes) = self.block(*handle) {
                visit_block(&Block::parse(bytes)?, visit)?;
            }
        }
        let end = match (&slice.root, &slice.meta) {
            (None, Some(meta)) if slice.blocks.is_empty() => meta.root.offset,
            _ => slice.data_end,
        };
        if at < end {
            visit(Part::Gap { offset: at, len: end - at })?;
        }
        Ok(())
    }
}

/// The handles of an index block, in order; `None` if the block is something else.
fn handles(index: &Block, base: u64) -> Option<Vec<BlockHandle>> {
    let mut found: Vec<BlockHandle> = Vec::new();
    for ordinal in 0..index.entry_count() {
        let entry = index_entry(index, ordinal).ok()?;
        if entry.value_at >= entry.end {
            return None;
        }
        let handle = handle_of(index, entry, base).ok()?;
        let is_next = |last: &BlockHandle| {
            last.offset.checked_add(u64::from(last.len)) == Some(handle.offset)
        };
        let follows = found.last().is_none_or(is_next);
        if handle.len == 0 || !follows {
            return None;
        }
        found.push(handle);
    }
    Some(found)
}

/// True if every entry of a data block can be read and written again. Also true if reading an entry
/// needs a newer version: a visit of the block then reports that.
fn is_readable(block: &Block) -> bool {
    let is_known = |index| match block.version(index) {
        Ok((seq, _)) => seq <= SEQ_MAX,
        Err(error) => !error.is_damage(),
    };
    block.check_columns().is_ok() && (0..block.entry_count()).all(is_known)
}

fn visit_block(
    block: &Block,
    visit: &mut dyn FnMut(Part<'_>) -> Result<()>,
) -> Result<(), ReadError> {
    let mut key = KeyBuffer::default();
    let mut at = 0;
    block.begin_key(&mut key);
    for index in 0..block.entry_count() {
        let raw = block.entry_of(index, at)?;
        block.extend_key(raw, &mut key)?;
        let (seq, kind) = block.version(index)?;
        let value = block.value(raw);
        visit(Part::Entry(Entry { key: key.as_slice(), seq, kind, value }))?;
        at = raw.end;
    }
    Ok(())
}
