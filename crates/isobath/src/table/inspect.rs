//! Opens a table file by its name alone: footer, directory, slices. For verification, repair and
//! dumps, which have to work without a manifest.

use super::block::Block;
use super::block_file::BlockFile;
use super::codec::{Codec, Decompressor};
use super::context::TableContext;
use super::footer::{FOOTER_LEN, Footer, decode_directory};
use super::frame::{check_within, open_frame, read_block};
use super::index::{handle_of, index_entry, parse_index};
use super::key_buffer::KeyBuffer;
use super::reader::{Table, read_root};
use super::root::{Content, FilterPlace, Root};
use super::verify::{NoteKind, Progress};
use super::{BlockHandle, Origin, SliceMeta};
use crate::cursor::Entry;
use crate::error::{DecodeError, Decoded, Error, Result};
use crate::format::{FILE_HEADER_LEN, FileHeader, Lsn};
use crate::table::cache::{BlockCache, FileCache, read_header};
use crate::vfs::{FileAccess, FileSystem, ReadFile};
use std::path::Path;
use std::sync::Arc;

/// A table file that is read as a whole.
pub(crate) struct TableFile {
    file: BlockFile,
    header: FileHeader,
    footer: Footer,
    slices: Vec<SliceMeta>,
    context: TableContext,
}

/// The use of a stored block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Data,
    Filter,
    Index,
    Root,
    Directory,
}

/// Receives each item of a dump. If it returns an error, the dump ends.
pub(crate) type Show<'a> = &'a mut dyn FnMut(DumpItem<'_>) -> Result<()>;

/// One item in a table file. A dump visits them in this order.
#[derive(Debug)]
pub(crate) enum DumpItem<'a> {
    Header(&'a FileHeader),
    /// A stored block, and its decoded length.
    Block {
        kind: BlockKind,
        handle: BlockHandle,
        codec: Codec,
        decoded_len: usize,
    },
    /// What the preceding root says about its slice.
    Slice {
        root: &'a Root,
        meta: &'a SliceMeta,
    },
    /// An entry of the index: of the preceding block, or of the root.
    Separator {
        key: &'a [u8],
        seq: Lsn,
        leads_to: BlockHandle,
    },
    /// An entry of the preceding data block, or of the root.
    Entry(Entry<'a>),
    /// A part that cannot be read. The next item belongs to the next readable part.
    Damage(&'a Error),
    Footer {
        offset: u64,
        file_len: u64,
    },
}

impl TableFile {
    /// Opens a table file by its path and reads every slice's root.
    pub(crate) fn open(fs: &Arc<dyn FileSystem>, path: &Path) -> Result<TableFile> {
        let file = fs.open_read(path, FileAccess::Positional)?;
        let header = read_header(&*file)?;
        let file = BlockFile::new(file, header.salt);
        let footer = read_footer(&*file)?;
        if footer.number != header.number {
            let detail = format!("header and footer disagree: {} {}", header.number, footer.number);
            return Err(Error::corruption(path, 0, detail));
        }
        let mut payload = Vec::new();
        read_block(&file, footer.directory, &Decompressor::default(), &mut payload)?;
        let roots = decode_directory(&payload)
            .map_err(|error| error.in_file(path, footer.directory.offset))?;
        let mut slices = Vec::with_capacity(roots.len());
        for (family, handle) in roots {
            let root = read_root(&file, handle)?;
            if root.family != family {
                return Err(Error::corruption(
                    path,
                    handle.offset,
                    format!(
                        "the directory names family {family}, the slice family {}",
                        root.family
                    ),
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

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// The origin of a slice, as its root states it.
    pub(crate) fn origin(&self, meta: &SliceMeta) -> Result<Origin> {
        Ok(read_root(&self.file, meta.root)?.origin)
    }

    /// One of its slices, open for reading.
    pub(crate) fn table(&self, meta: &SliceMeta) -> Result<Arc<Table>> {
        Table::open(self.context.clone(), meta)
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.footer.file_len
    }

    /// The slices, as the manifest would record them.
    pub(crate) fn slices(&self) -> &[SliceMeta] {
        &self.slices
    }

    /// Checks everything: that the parts fill the file without a gap, and each slice.
    #[cfg(test)]
    pub(crate) fn verify(&self, progress: Progress<'_>) -> Result<()> {
        match self.check(progress).into_iter().next() {
            Some(first) => Err(first),
            None => Ok(()),
        }
    }

    fn corruption(&self, offset: u64, detail: &str) -> Error {
        Error::corruption(self.file.path(), offset, detail)
    }

    /// Every error that [`TableFile::verify`] could return, not only the first one: those of each
    /// slice as a whole, and those of each block that cannot be read.
    pub(crate) fn check(&self, progress: Progress<'_>) -> Vec<Error> {
        self.check_kinds(progress, &mut |_| ())
    }

    /// Does the same, and tells the kinds of the entries.
    pub(crate) fn check_kinds(
        &self,
        progress: Progress<'_>,
        note_kind: NoteKind<'_>,
    ) -> Vec<Error> {
        let mut found = Vec::new();
        let mut end = FILE_HEADER_LEN as u64;
        for meta in &self.slices {
            let base = (meta.root.offset + u64::from(meta.root.len)).checked_sub(meta.disk_bytes);
            if base != Some(end) {
                let detail = "a slice does not follow the one before";
                found.push(self.corruption(meta.root.offset, detail));
            }
            end = meta.root.offset + u64::from(meta.root.len);
            let opened = Table::open(self.context.clone(), meta);
            let Err(first) = opened.and_then(|table| table.verify(progress, note_kind)) else {
                continue;
            };
            found.push(first);
            let dumped = self.dump_slice(meta, &mut |item| {
                if let DumpItem::Damage(error) = item {
                    found.push(error.clone());
                }
                Ok(())
            });
            found.extend(dumped.err());
        }
        if end != self.footer.directory.offset {
            found.push(self.corruption(end, "the directory does not follow the last slice"));
        }
        found
    }

    /// Shows everything in the file, in its order on disk as far as an index allows. Shows a
    /// damaged block as damaged, and still shows everything else that can be read.
    pub(crate) fn dump(&self, show: Show<'_>) -> Result<()> {
        show(DumpItem::Header(&self.header))?;
        for meta in &self.slices {
            self.dump_slice(meta, show)?;
        }
        self.dump_block(BlockKind::Directory, self.footer.directory, show)?;
        let file_len = self.footer.file_len;
        show(DumpItem::Footer { offset: file_len - FOOTER_LEN as u64, file_len })
    }

    /// Visits the entries of a slice that can be read.
    pub(crate) fn visit(
        &self,
        meta: &SliceMeta,
        visit: &mut dyn FnMut(Entry<'_>) -> Result<()>,
    ) -> Result<()> {
        self.dump_slice(meta, &mut |item| match item {
            DumpItem::Entry(entry) => visit(entry),
            _ => Ok(()),
        })
    }

    fn dump_slice(&self, meta: &SliceMeta, show: Show<'_>) -> Result<()> {
        let root = match read_root(&self.file, meta.root) {
            Ok(root) => root,
            Err(error) => return show(DumpItem::Damage(&error)),
        };
        self.dump_block(BlockKind::Root, meta.root, show)?;
        show(DumpItem::Slice { root: &root, meta })?;
        let base = root.base(meta.root);
        match root.content {
            Content::Data(bytes) => self.dump_entries(Block::parse(bytes), meta.root, show)?,
            Content::Index { levels, top } => {
                self.dump_index(parse_index(top), meta.root, base, levels, show)?;
            }
        }
        if let FilterPlace::At(handle) = root.filter {
            let handle = BlockHandle { offset: base.saturating_add(handle.offset), ..handle };
            self.dump_block(BlockKind::Filter, handle, show)?;
        }
        Ok(())
    }

    /// Shows the index block at `index_at`, and everything to which it leads.
    fn dump_index(
        &self,
        index: Decoded<Block>,
        index_at: BlockHandle,
        base: u64,
        levels: u8,
        show: Show<'_>,
    ) -> Result<()> {
        let located = |error: DecodeError| error.in_file(self.file.path(), index_at.offset);
        let index = match index.map_err(located) {
            Ok(index) => index,
            Err(error) => return show(DumpItem::Damage(&error)),
        };
        for ordinal in 0..index.entry_count() {
            let separator = index_entry(&index, ordinal).and_then(|entry| {
                let (seq, _) = index.version(ordinal)?;
                Ok((entry, seq, handle_of(&index, entry, base)?))
            });
            let (entry, seq, leads_to) = match separator.map_err(located) {
                Ok(separator) => separator,
                Err(error) => return show(DumpItem::Damage(&error)),
            };
            show(DumpItem::Separator { key: index.unshared(entry), seq, leads_to })?;
            let kind = if levels > 1 { BlockKind::Index } else { BlockKind::Data };
            let Some(bytes) = self.dump_block(kind, leads_to, show)? else { continue };
            if levels > 1 {
                self.dump_index(parse_index(bytes), leads_to, base, levels - 1, show)?;
            } else {
                self.dump_entries(Block::parse(bytes), leads_to, show)?;
            }
        }
        Ok(())
    }

    /// Shows the entries of a data block at `block_at`.
    fn dump_entries(
        &self,
        block: Decoded<Block>,
        block_at: BlockHandle,
        show: Show<'_>,
    ) -> Result<()> {
        let located = |error: DecodeError| error.in_file(self.file.path(), block_at.offset);
        let block = match block.map_err(located) {
            Ok(block) => block,
            Err(error) => return show(DumpItem::Damage(&error)),
        };
        let mut key = KeyBuffer::default();
        let mut at = 0;
        block.begin_key(&mut key);
        for index in 0..block.entry_count() {
            let decoded = block.entry_of(index, at).and_then(|raw| {
                block.extend_key(raw, &mut key)?;
                Ok((raw, block.version(index)?))
            });
            let (raw, (seq, kind)) = match decoded.map_err(located) {
                Ok(decoded) => decoded,
                Err(error) => return show(DumpItem::Damage(&error)),
            };
            show(DumpItem::Entry(Entry {
                key: key.as_slice(),
                seq,
                kind,
                value: block.value(raw),
            }))?;
            at = raw.end;
        }
        Ok(())
    }

    /// Shows a stored block and decodes it; `None` if it is damaged.
    fn dump_block(
        &self,
        kind: BlockKind,
        handle: BlockHandle,
        show: Show<'_>,
    ) -> Result<Option<Vec<u8>>> {
        match self.read_stored(handle) {
            Ok((codec, decoded)) => {
                show(DumpItem::Block { kind, handle, codec, decoded_len: decoded.len() })?;
                Ok(Some(decoded))
            }
            Err(error) => {
                show(DumpItem::Damage(&error))?;
                Ok(None)
            }
        }
    }

    fn read_stored(&self, handle: BlockHandle) -> Result<(Codec, Vec<u8>)> {
        check_within(&*self.file, handle)?;
        let mut stored = vec![0; handle.len as usize];
        self.file.read_at(handle.offset, &mut stored)?;
        let mut decoded = Vec::new();
        open_frame(&stored, self.file.mark(handle.offset))
            .and_then(|(codec, payload)| {
                self.context.decompressor.decompress(codec, payload, &mut decoded)?;
                Ok(codec)
            })
            .map(|codec| (codec, decoded))
            .map_err(|error| error.in_file(self.file.path(), handle.offset))
    }
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
