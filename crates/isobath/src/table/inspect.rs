//! A table file opened by its name alone: footer, directory, slices. For verification, repair and dumps,
//! which must do without a manifest.

use super::block::Block;
use super::codec::{Codec, Decompressor};
use super::footer::{FOOTER_LEN, Footer, decode_directory};
use super::frame::{check_within, open_frame, read_block};
use super::index::{handle_of, index_entry, parse_index};
use super::key_buffer::KeyBuffer;
use super::reader::{Table, TableContext, read_root};
use super::root::{Content, FilterPlace, Root};
use super::verify::Progress;
use super::{BlockHandle, SliceMeta};
use crate::cache::{BlockCache, FileCache, read_header};
use crate::cursor::Entry;
use crate::error::{Error, Result};
use crate::format::{FILE_HEADER_LEN, FileHeader, Lsn};
use crate::vfs::{FileSystem, ReadFile, ReadMode};
use std::path::Path;
use std::sync::Arc;

/// A table file, read as a whole.
pub(crate) struct TableFile {
    file: Arc<dyn ReadFile>,
    header: FileHeader,
    footer: Footer,
    slices: Vec<SliceMeta>,
    context: TableContext,
}

/// What a stored block is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Data,
    Filter,
    Index,
    Root,
    Directory,
}

/// One thing found in a table file, in the order in which a dump meets it.
#[derive(Debug)]
pub(crate) enum DumpItem<'a> {
    Header(&'a FileHeader),
    /// A stored block, and its length once decoded.
    Block {
        kind: BlockKind,
        handle: BlockHandle,
        codec: Codec,
        decoded_len: usize,
    },
    /// What the root before says of its slice.
    Slice {
        root: &'a Root,
        meta: &'a SliceMeta,
    },
    /// An entry of the index (of the block before, or of the root).
    Separator {
        key: &'a [u8],
        seq: Lsn,
        leads_to: BlockHandle,
    },
    /// An entry of the data block before (or of the root).
    Entry(Entry<'a>),
    Footer {
        offset: u64,
        file_len: u64,
    },
}

impl TableFile {
    /// Opens a table file by its path and reads every slice's root.
    pub(crate) fn open(fs: &Arc<dyn FileSystem>, path: &Path) -> Result<TableFile> {
        let file = fs.open_read(path, ReadMode::Positional)?;
        let header = read_header(&*file)?;
        let footer = read_footer(&*file)?;
        if footer.number != header.number {
            let detail = format!("header and footer disagree: {} {}", header.number, footer.number);
            return Err(Error::corruption(path, 0, detail));
        }
        let mut payload = Vec::new();
        read_block(&*file, footer.directory, &Decompressor::default(), &mut payload)?;
        let roots = decode_directory(&payload)
            .map_err(|error| error.in_file(path, footer.directory.offset))?;
        let mut slices = Vec::with_capacity(roots.len());
        for (family, handle) in roots {
            let root = read_root(&*file, handle)?;
            if root.family != family {
                return Err(Error::corruption(
                    path,
                    handle.offset,
                    format!("the directory tells of family {family}, the slice of {}", root.family),
                ));
            }
            slices.push(root.meta(header.number, handle));
        }
        let files = FileCache::of_one(fs.clone(), file.clone(), header.number);
        let context = TableContext::new(Arc::new(files), BlockCache::new(0));
        Ok(TableFile { file, header, footer, slices, context })
    }

    pub(crate) fn header(&self) -> &FileHeader {
        &self.header
    }

    /// The slices, as the manifest would record them.
    pub(crate) fn slices(&self) -> &[SliceMeta] {
        &self.slices
    }

    /// Checks everything: that the parts fill the file without a gap, and each slice.
    pub(crate) fn verify(&self, progress: Progress<'_>) -> Result<()> {
        let mut end = FILE_HEADER_LEN as u64;
        for meta in &self.slices {
            let base = (meta.root.offset + u64::from(meta.root.len)).checked_sub(meta.disk_bytes);
            if base != Some(end) {
                return Err(
                    self.corruption(meta.root.offset, "a slice does not follow the one before")
                );
            }
            Table::open(self.context.clone(), meta)?.verify(progress)?;
            end = meta.root.offset + u64::from(meta.root.len);
        }
        if end != self.footer.directory.offset {
            return Err(self.corruption(end, "the directory does not follow the last slice"));
        }
        Ok(())
    }

    fn corruption(&self, offset: u64, detail: &str) -> Error {
        Error::corruption(self.file.path(), offset, detail)
    }

    /// Shows everything in the file, in its order on disk as far as an index allows.
    pub(crate) fn dump(&self, show: &mut dyn FnMut(DumpItem<'_>)) -> Result<()> {
        show(DumpItem::Header(&self.header));
        for meta in &self.slices {
            self.dump_slice(meta, show)?;
        }
        self.dump_block(BlockKind::Directory, self.footer.directory, show)?;
        let file_len = self.footer.file_len;
        show(DumpItem::Footer { offset: file_len - FOOTER_LEN as u64, file_len });
        Ok(())
    }

    fn dump_slice(&self, meta: &SliceMeta, show: &mut dyn FnMut(DumpItem<'_>)) -> Result<()> {
        let root = read_root(&*self.file, meta.root)?;
        self.dump_block(BlockKind::Root, meta.root, show)?;
        show(DumpItem::Slice { root: &root, meta });
        let base = root.base(meta.root);
        let at_root = |error: Error| error.in_file(self.file.path(), meta.root.offset);
        match root.content {
            Content::Data(bytes) => {
                dump_entries(&Block::parse(bytes).map_err(at_root)?, show).map_err(at_root)?;
            }
            Content::Index { levels, top } => {
                let top = parse_index(top).map_err(at_root)?;
                self.dump_index(&top, meta.root, base, levels, show)?;
            }
        }
        if let FilterPlace::At(handle) = root.filter {
            let handle = BlockHandle { offset: base.saturating_add(handle.offset), ..handle };
            self.dump_block(BlockKind::Filter, handle, show)?;
        }
        Ok(())
    }

    fn dump_index(
        &self,
        index: &Block,
        index_at: BlockHandle,
        base: u64,
        levels: u8,
        show: &mut dyn FnMut(DumpItem<'_>),
    ) -> Result<()> {
        for ordinal in 0..index.entry_count() {
            let at_index = |error: Error| error.in_file(self.file.path(), index_at.offset);
            let entry = index_entry(index, ordinal).map_err(at_index)?;
            let leads_to = handle_of(index, entry, base).map_err(at_index)?;
            let (seq, _) = index.version(ordinal).map_err(at_index)?;
            show(DumpItem::Separator { key: index.unshared(entry), seq, leads_to });
            let at_block = |error: Error| error.in_file(self.file.path(), leads_to.offset);
            if levels > 1 {
                let bytes = self.dump_block(BlockKind::Index, leads_to, show)?;
                let leaf = parse_index(bytes).map_err(at_block)?;
                self.dump_index(&leaf, leads_to, base, levels - 1, show)?;
            } else {
                let bytes = self.dump_block(BlockKind::Data, leads_to, show)?;
                let block = Block::parse(bytes).map_err(at_block)?;
                dump_entries(&block, show).map_err(at_block)?;
            }
        }
        Ok(())
    }

    fn dump_block(
        &self,
        kind: BlockKind,
        handle: BlockHandle,
        show: &mut dyn FnMut(DumpItem<'_>),
    ) -> Result<Vec<u8>> {
        check_within(&*self.file, handle)?;
        let mut stored = vec![0; handle.len as usize];
        self.file.read_at(handle.offset, &mut stored)?;
        let mut decoded = Vec::new();
        let codec = open_frame(&stored, handle.offset)
            .and_then(|(codec, payload)| {
                self.context.decompressor.decompress(codec, payload, &mut decoded)?;
                Ok(codec)
            })
            .map_err(|error| error.in_file(self.file.path(), handle.offset))?;
        show(DumpItem::Block { kind, handle, codec, decoded_len: decoded.len() });
        Ok(decoded)
    }
}

fn dump_entries(block: &Block, show: &mut dyn FnMut(DumpItem<'_>)) -> Result<()> {
    let mut key = KeyBuffer::default();
    let mut at = block.restart(0);
    for index in 0..block.entry_count() {
        let raw = block.entry_at(at)?;
        block.extend_key(raw, &mut key)?;
        let (seq, kind) = block.version(index)?;
        show(DumpItem::Entry(Entry { key: key.as_slice(), seq, kind, value: block.value(raw) }));
        at = raw.end;
    }
    Ok(())
}

/// Reads and checks the footer.
fn read_footer(file: &dyn ReadFile) -> Result<Footer> {
    let Some(offset) = file.len().checked_sub(FOOTER_LEN as u64) else {
        return Err(Error::corruption(file.path(), 0, "the file is shorter than a table footer"));
    };
    let mut bytes = [0; FOOTER_LEN];
    file.read_at(offset, &mut bytes)?;
    Footer::decode(&bytes, file.len()).map_err(|error| error.in_file(file.path(), offset))
}
