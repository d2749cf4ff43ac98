//! Spill files: what a large transaction has written and holds in files until it commits.
//!
//! A spill file is a table file in a directory of its own, `spill/`, and belongs to one
//! transaction. No record and no edit names it, and an open removes all spill files that it finds:
//! a transaction that had not committed never happened. So the table directory, repairs and backups
//! know nothing of them. A spill file is synced as every table is, although nothing relies on that.
//!
//! In a spill file each key occurs once and is newer than all range deletes of the file, as in the
//! write set that it comes from. Its sequence numbers say only which is which. Readers give the
//! entries the numbers that fit their point: see [`SpilledPart::new`].

use crate::cursor::{Cursor, Entry};
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::error::Result;
use crate::footprint::Operation;
use crate::format::{FamilyId, Lsn, OpKind, checksum64};
use crate::mvcc::{Effect, ReaderPoints};
use crate::span::{Cover, Span, SpanSet, fragments};
use crate::table::cache::table_path;
use crate::table::{PinnedValue, Table, TableContext, TableCursor, TableOptions, TableWriter};
use crate::vfs::FileSystem;
use std::path::PathBuf;
use std::sync::Arc;

/// The most spill files of a transaction. A reader gives each two of the numbers below its point
/// that no operation of the log has, because a record has a header; the write set in memory has
/// two, too.
pub(crate) const SPILL_FILES_MAX: usize = 14;

const SPAN_SEQ: Lsn = 1;
const KEY_SEQ: Lsn = 2;
/// A point that sees everything in a spill file.
const POINT: Lsn = KEY_SEQ + 1;

/// Where the spill files of a database are.
pub(crate) struct Spills {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    uuid: [u8; 16],
    tables: TableContext,
    next: AtomicU64,
}

/// Removes its file when it is dropped.
struct Doomed {
    spills: Arc<Spills>,
    number: u64,
}

impl Drop for Doomed {
    fn drop(&mut self) {
        self.spills.tables.files.evict(self.number);
        // What cannot be removed now is removed by the next open.
        let _ = self.spills.fs.remove(&table_path(&self.spills.dir, self.number));
    }
}

/// Operations of one transaction, in a file.
pub(crate) struct SpillFile {
    /// By ascending family.
    tables: Vec<(FamilyId, Arc<Table>)>,
    /// The memory that the operations took, and will take again.
    pub(crate) charge: u64,
    // Declared last: the tables are closed first.
    _file: Doomed,
}

impl Spills {
    /// `tables` finds its files in `dir`. Each term has numbers of its own: a transaction that
    /// outlives its opening removes no file of the next one.
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        dir: PathBuf,
        uuid: [u8; 16],
        term: u64,
        tables: TableContext,
    ) -> Arc<Spills> {
        let next = AtomicU64::new(term << 32);
        Arc::new(Spills { fs, dir, uuid, tables, next })
    }

    /// Writes operations, which come as in a write set, to a new spill file. `options` has what the
    /// table of a family is written with.
    pub(crate) fn write<'a>(
        self: &Arc<Spills>,
        ops: impl Iterator<Item = Operation<'a>>,
        options: impl Fn(FamilyId) -> TableOptions,
        charge: u64,
    ) -> Result<Arc<SpillFile>> {
        self.fs.create_dir_all(&self.dir)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let _file = Doomed { spills: self.clone(), number };
        let file = self.fs.create(&table_path(&self.dir, number))?;
        let mut writer = TableWriter::create(file, self.uuid, number)?;
        let mut ops = ops.peekable();
        while let Some(family) = ops.peek().map(|op| op.family) {
            writer.begin_slice(family, &options(family))?;
            let mut spans = Vec::new();
            while let Some(Operation { kind, key, value, .. }) =
                ops.next_if(|op| op.family == family)
            {
                if kind.is_span() {
                    let end = (!value.is_empty()).then(|| value.into());
                    spans.push(Span { start: key.into(), end, seq: SPAN_SEQ });
                } else {
                    writer.add(Entry { key, seq: KEY_SEQ, kind, value })?;
                }
            }
            writer.set_spans(fragments(spans, &ReaderPoints::newest()));
            writer.finish_slice()?;
        }
        let written = writer.finish()?;
        let open = |meta: &_| Table::open(self.tables.clone(), meta);
        let tables = written.slices.iter().map(|meta| Ok((meta.family, open(meta)?)));
        Ok(Arc::new(SpillFile { tables: tables.collect::<Result<_>>()?, charge, _file }))
    }
}

impl SpillFile {
    /// The table with what the file has of a family.
    pub(crate) fn table(&self, family: FamilyId) -> Option<&Arc<Table>> {
        let at = self.tables.binary_search_by_key(&family, |(id, _)| *id).ok()?;
        Some(&self.tables[at].1)
    }

    /// What the file says of a key: nothing, or that it has no value, or its value.
    pub(crate) fn get(&self, family: FamilyId, key: &[u8]) -> Result<Option<Option<PinnedValue>>> {
        let Some(table) = self.table(family) else { return Ok(None) };
        if let Some(found) = table.get_with(key, checksum64(key), POINT, false)? {
            return Ok(Some(match found.kind.effect() {
                Effect::Absent => None,
                Effect::Value => Some(found.value),
                Effect::Operand => unreachable!("a transaction with operands is not spilled"),
            }));
        }
        let is_deleted = table.spans().is_some_and(|spans| spans.newest_at(key, POINT) > 0);
        Ok(is_deleted.then_some(None))
    }

    /// Passes on all operations: by family, of each the range deletes first, then those on keys.
    pub(crate) fn each(&self, mut see: impl FnMut(Operation<'_>) -> Result<()>) -> Result<()> {
        for (family, table) in &self.tables {
            let spans = table.spans().map_or(&[][..], |spans| spans.fragments());
            for span in spans {
                let value = span.end.as_deref().unwrap_or_default();
                let kind = OpKind::DeleteRange;
                see(Operation { family: *family, kind, key: &span.start, value })?;
            }
            let mut cursor = table.cursor(false);
            cursor.seek_first()?;
            while let Some(Entry { key, kind, value, .. }) = cursor.entry() {
                see(Operation { family: *family, kind, key, value })?;
                Cursor::next(&mut cursor)?;
            }
        }
        Ok(())
    }
}

/// What a spill file has of one family, for readers at one point.
#[derive(Clone)]
pub(crate) struct SpilledPart {
    file: Arc<SpillFile>,
    table: Arc<Table>,
    /// The number of entries. Range deletes have the one below.
    seq: Lsn,
}

impl SpilledPart {
    /// `nth` counts from the newest spill file of the transaction on. `None` if the file has
    /// nothing of the family.
    pub(crate) fn new(
        file: &Arc<SpillFile>,
        family: FamilyId,
        nth: usize,
        point: Lsn,
    ) -> Option<SpilledPart> {
        debug_assert!(nth < SPILL_FILES_MAX, "an operation of the log has the number");
        let (table, seq) = (file.table(family)?.clone(), point.saturating_sub(3 + 2 * nth as u64));
        Some(SpilledPart { file: file.clone(), table, seq })
    }

    pub(crate) fn has_spans(&self) -> bool {
        self.table.spans().is_some()
    }

    /// The range delete that hides `key` in what is older than the file.
    pub(crate) fn cover(&self, key: &[u8]) -> Option<Cover> {
        let spans: &SpanSet = self.table.spans()?;
        let seq = self.seq.saturating_sub(1);
        Some(Cover { seq, ..spans.cover(key, POINT)? })
    }

    pub(crate) fn cursor(&self) -> SpilledCursor {
        let cursor = self.table.cursor(false);
        SpilledCursor { cursor, seq: self.seq, _file: self.file.clone() }
    }
}

/// Walks what a spill file has of a family.
pub(crate) struct SpilledCursor {
    cursor: TableCursor,
    seq: Lsn,
    _file: Arc<SpillFile>,
}

impl SpilledCursor {
    /// The current value, kept in memory.
    pub(crate) fn value_pin(&self) -> Option<PinnedValue> {
        self.cursor.value_pin()
    }
}

impl Cursor for SpilledCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.cursor.seek_first()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.cursor.seek_last()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.cursor.seek(key)
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.cursor.seek_for_prev(key)
    }

    fn next(&mut self) -> Result<()> {
        Cursor::next(&mut self.cursor)
    }

    fn prev_key(&mut self) -> Result<()> {
        self.cursor.prev_key()
    }

    fn entry(&self) -> Option<Entry<'_>> {
        Some(Entry { seq: self.seq, ..self.cursor.entry()? })
    }

    fn key(&self) -> Option<&[u8]> {
        Cursor::key(&self.cursor)
    }

    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        Cursor::next_key(&mut self.cursor, scratch)
    }
}
