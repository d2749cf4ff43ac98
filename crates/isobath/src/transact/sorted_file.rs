//! Files of sorted keys that belong to no database: what an ingest takes in.
//!
//! Such a file is a table file whose header names no database (an identity of zeros) and no number
//! (0, which no table has). It has one slice, of family 0, or none if it has no keys. Each key is
//! there once, as a put or a delete with the sequence number 1. Nothing in it says which family of
//! which database it is for.

use crate::cursor::{Cursor, Entry};
use crate::error::{Error, Result};
use crate::format::{DEFAULT_FAMILY, Lsn, OpKind};
use crate::table::{SliceMeta, Table, TableCursor, TableFile, TableOptions, TableWriter};
use crate::vfs::{FileSystem, WriteFile};
use std::path::Path;
use std::sync::Arc;

/// The identity of no database.
const NO_UUID: [u8; 16] = [0; 16];
/// The number of no table.
const NO_NUMBER: u64 = 0;
const SEQ: Lsn = 1;

/// Writes such a file. After an error it is useless.
pub(crate) struct SortedWriter {
    writer: TableWriter,
    last_key: Vec<u8>,
    len: u64,
}

impl SortedWriter {
    pub(crate) fn create(file: Box<dyn WriteFile>) -> Result<SortedWriter> {
        let mut writer = TableWriter::create(file, NO_UUID, NO_NUMBER)?;
        writer.begin_slice(DEFAULT_FAMILY, &TableOptions::default())?;
        Ok(SortedWriter { writer, last_key: Vec::new(), len: 0 })
    }

    /// The key that came last.
    pub(crate) fn last_key(&self) -> Option<&[u8]> {
        (self.len > 0).then_some(&*self.last_key)
    }

    /// Adds a put or, without a value, a delete. The key lies behind the last one.
    pub(crate) fn add(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        debug_assert!(self.last_key().is_none_or(|last| last < key), "keys ascend, each once");
        let kind = if value.is_some() { OpKind::Put } else { OpKind::Delete };
        self.writer.add(Entry { key, seq: SEQ, kind, value: value.unwrap_or_default() })?;
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.len += 1;
        Ok(())
    }

    /// Completes and syncs the file, and returns the number of its keys.
    pub(crate) fn finish(self) -> Result<u64> {
        self.writer.finish()?;
        Ok(self.len)
    }
}

/// Such a file, all of which was read and found whole.
pub(crate) struct SortedFile {
    slice: Option<(SliceMeta, Arc<Table>)>,
}

impl SortedFile {
    /// Opens a file and checks all of it. One with range deletes, or other entries than a
    /// [`SortedWriter`] adds, is refused: an ingest would not carry them out. The errors name the
    /// file, and where it is damaged.
    pub(crate) fn open(fs: &Arc<dyn FileSystem>, path: &Path) -> Result<SortedFile> {
        const OTHERS: &str = "has more than puts and deletes of one family";
        let file = TableFile::open(fs, path)?;
        let (header, slices) = (file.header(), file.slices());
        let is_ours = |meta: &SliceMeta| {
            let is_plain =
                meta.spans.is_none() && meta.ends.is_none() && meta.value_files().next().is_none();
            meta.family == DEFAULT_FAMILY && (meta.min_seq, meta.max_seq) == (SEQ, SEQ) && is_plain
        };
        let refused = |what: &str| {
            let wanted = "an ingest takes files of a `SortedFileWriter`";
            Err(Error::invalid_argument(format!("{} {what}; {wanted}", path.display())))
        };
        if header.uuid != NO_UUID || header.number != NO_NUMBER {
            return refused("is a table of a database");
        }
        if !slices.iter().all(is_ours) {
            return refused(OTHERS);
        }
        let mut has_others = false;
        let note = &mut |kind: OpKind| has_others |= !kind.is_lasting_put() && !kind.is_tombstone();
        if let Some(damage) = file.check_kinds(&mut |_| (), note).into_iter().next() {
            return Err(damage);
        }
        if has_others {
            return refused(OTHERS);
        }
        let slice = slices.first().map(|meta| Ok((meta.clone(), file.table(meta)?)));
        Ok(SortedFile { slice: slice.transpose()? })
    }

    /// The first key.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        self.slice.as_ref().map(|(meta, _)| &*meta.smallest)
    }

    /// A cursor at the first entry; `None` if there is no key.
    pub(crate) fn cursor(&self) -> Result<Option<TableCursor>> {
        let Some((_, table)) = &self.slice else { return Ok(None) };
        let mut cursor = table.cursor(false);
        cursor.seek_first()?;
        Ok(Some(cursor))
    }
}
