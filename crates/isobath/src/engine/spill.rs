//! Spill files: what a large transaction has written and holds in files until it commits.
//!
//! A spill file is a table file in a directory of its own, `spill/`. It belongs to one transaction,
//! or to an ingest (`transact/ingest.rs`). An open removes all spill files that it finds, once it
//! has replayed the log: a transaction that had not committed never happened. No edit names a spill
//! file. The record of a large commit names those of its transaction, which are a layer of the
//! views then (`layer.rs`). They stay until the edit of the flush that takes the layer in is
//! confirmed.
//!
//! In a spill file each key occurs once and is newer than all range deletes of the file, as in the
//! write set that it comes from. Its sequence numbers say only which is which. Readers give the
//! entries the numbers that fit their point: see [`SpilledPart::new`].

use super::errands::Errands;
use crate::cursor::{Cursor, Entry};
use crate::env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::env::sync::{Mutex, Rank};
use crate::error::{Error, Result};
use crate::footprint::Operation;
use crate::format::{FamilyId, Lsn, OpKind, SpilledFile, checksum64};
use crate::limits::SPILL_FILES_MAX;
use crate::span::{Cover, Span, SpanSet, fragments};
use crate::table::cache::{FileCache, table_path};
use crate::table::{
    BlockCache, Found, PinnedValue, SliceMeta, Table, TableContext, TableCursor, TableFile,
    TableOptions, TableWriter,
};
use crate::version::DurableNames;
use crate::vfs::{FileAccess, FileSystem};
use std::path::PathBuf;
use std::sync::Arc;

pub(super) const SPAN_SEQ: Lsn = 1;
pub(super) const KEY_SEQ: Lsn = 2;
/// A point that sees everything in a spill file.
const POINT: Lsn = KEY_SEQ + 1;

/// Where the spill files of a database are.
pub(crate) struct Spills {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    uuid: [u8; 16],
    tables: TableContext,
    next: AtomicU64,
    /// Files that the log needs until an edit is confirmed.
    retired: Mutex<Vec<Arc<SpillFile>>>,
    /// Files that the log needed and that have no user any more. Not held over I/O: the flusher
    /// adds to it.
    obsolete: Mutex<Vec<u64>>,
    /// Files are made and removed in errands.
    errands: Arc<Errands>,
    names: DurableNames,
}

/// Removes its file when it is dropped, unless the log needs the file. The last to hold one that
/// the log needed may be the flusher, whom writers wait for, or a reader: that file is left to
/// [`Spills::remove_obsolete`].
struct Doomed {
    spills: Arc<Spills>,
    number: u64,
    is_needed: AtomicBool,
    was_needed: AtomicBool,
}

impl Doomed {
    fn new(spills: &Arc<Spills>, number: u64, is_needed: bool) -> Doomed {
        Doomed {
            spills: spills.clone(),
            number,
            is_needed: AtomicBool::new(is_needed),
            was_needed: AtomicBool::new(is_needed),
        }
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        self.spills.tables.files.evict(self.number);
        if self.is_needed.load(Ordering::Acquire) {
            return;
        }
        match self.was_needed.load(Ordering::Acquire) {
            true => self.spills.obsolete.lock().push(self.number),
            false => self.spills.remove(self.number),
        }
    }
}

/// Operations of one transaction, in a file.
pub(crate) struct SpillFile {
    /// By ascending family.
    tables: Vec<(SliceMeta, Arc<Table>)>,
    /// The memory that the operations took, and will take again.
    pub(crate) charge: u64,
    len: u64,
    // Declared last: the tables are closed first.
    file: Doomed,
}

impl Spills {
    /// `tables` finds its files in `dir`. Each term has numbers of its own: what a transaction that
    /// outlives its opening reads is not of the next one.
    pub(crate) fn new(
        fs: Arc<dyn FileSystem>,
        dir: PathBuf,
        uuid: [u8; 16],
        term: u64,
        tables: TableContext,
        errands: Arc<Errands>,
    ) -> Arc<Spills> {
        let next = AtomicU64::new(term << 32);
        let retired = Mutex::new(Rank::RetiredSpills, Vec::new());
        let obsolete = Mutex::new(Rank::ObsoleteSpills, Vec::new());
        let names = DurableNames::new();
        Arc::new(Spills { fs, dir, uuid, tables, next, retired, obsolete, errands, names })
    }

    /// For files that records of the log name, each of which is read once.
    pub(crate) fn to_read(fs: Arc<dyn FileSystem>, dir: PathBuf, uuid: [u8; 16]) -> Arc<Spills> {
        let access = FileAccess::Positional;
        let files = FileCache::new(fs.clone(), dir.clone(), access, SPILL_FILES_MAX + 1);
        let tables = TableContext::new(Arc::new(files.of_database(uuid)), BlockCache::new(0));
        Spills::new(fs, dir, uuid, 0, tables, Errands::new())
    }

    /// Writes operations, which come as in a write set, to a new spill file. `options` has what the
    /// table of a family is written with. See [`SpillWriter::finish`] for `may_fail`.
    pub(crate) fn write<'a>(
        self: &Arc<Spills>,
        ops: impl Iterator<Item = Operation<'a>>,
        options: impl Fn(FamilyId) -> TableOptions,
        (charge, may_fail): (u64, bool),
    ) -> Result<Arc<SpillFile>> {
        let mut ops = ops.peekable();
        self.write_file((charge, may_fail), |writer| {
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
                writer.set_spans(fragments(spans));
                writer.finish_slice()?;
            }
            Ok(())
        })
    }

    /// Writes a new file with the slices that `fill` adds.
    pub(super) fn write_file(
        self: &Arc<Spills>,
        (charge, may_fail): (u64, bool),
        fill: impl FnOnce(&mut TableWriter) -> Result<()>,
    ) -> Result<Arc<SpillFile>> {
        let mut file = self.begin_file()?;
        fill(&mut file.writer)?;
        file.finish(charge, may_fail)
    }

    /// Begins a new file.
    pub(crate) fn begin_file(self: &Arc<Spills>) -> Result<SpillWriter> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let file = Doomed::new(self, number, false);
        let errand = self.errands.begin().ok_or_else(Error::closed)?;
        let created = self.fs.create(&table_path(&self.dir, number));
        drop(errand);
        let writer = TableWriter::create(created?, self.uuid, number)?;
        Ok(SpillWriter { writer, file })
    }

    fn open_slices(
        &self,
        slices: &[SliceMeta],
        open: fn(TableContext, &SliceMeta) -> Result<Arc<Table>>,
    ) -> Result<Vec<(SliceMeta, Arc<Table>)>> {
        let open = |meta: &SliceMeta| Ok((meta.clone(), open(self.tables.clone(), meta)?));
        slices.iter().map(open).collect()
    }

    /// Opens a file that a record of the log names. It stays when it is dropped.
    pub(crate) fn open(self: &Arc<Spills>, named: &SpilledFile) -> Result<Arc<SpillFile>> {
        let path = table_path(&self.dir, named.number);
        let refuse = |what: String| Err(Error::corruption(&path, 0, what));
        if !self.fs.exists(&path)? {
            return refuse("a commit of the log is in this file, which is missing".to_owned());
        }
        let found = TableFile::open(&self.fs, &path)?;
        let (header, len) = (found.header(), found.len());
        if header.uuid != self.uuid || header.number != named.number || len != named.len {
            return refuse(format!(
                "a commit of the log is in file {} of {} bytes, and this is another one",
                named.number, named.len
            ));
        }
        // The log cannot be read without it, whatever memory it takes.
        let tables = self.open_slices(found.slices(), Table::reopen)?;
        let file = Doomed::new(self, named.number, true);
        Ok(Arc::new(SpillFile { tables, charge: len, len, file }))
    }

    /// Takes files that the log does not need once the last edit is confirmed.
    pub(crate) fn retire(&self, files: impl Iterator<Item = Arc<SpillFile>>) {
        self.retired.lock().extend(files);
    }

    /// The last edit is confirmed.
    pub(crate) fn release_retired(&self) {
        let retired = std::mem::take(&mut *self.retired.lock());
        retired.iter().for_each(|file| file.release());
    }

    /// Removes files that the log needed and that have no user any more.
    pub(crate) fn remove_obsolete(&self) {
        let obsolete = std::mem::take(&mut *self.obsolete.lock());
        obsolete.into_iter().for_each(|number| self.remove(number));
    }

    /// What cannot be removed now is removed by the next open.
    fn remove(&self, number: u64) {
        if let Some(_errand) = self.errands.begin() {
            let _ = self.fs.remove(&table_path(&self.dir, number));
        }
    }

    /// Makes the names of all files survive power loss. A failure is final for the files of all
    /// transactions: it may have lost names that a later sync does not bring back. The directory
    /// above is synced for the manifest alone: if two did, neither would learn of what the other's
    /// failure has lost.
    pub(crate) fn sync_names(&self) -> Result<()> {
        self.names.sync(&*self.fs, &[&*self.dir])
    }

    /// Forgets what waits for an edit, when the database closes.
    pub(crate) fn let_go(&self) {
        self.retired.lock().clear();
    }
}

/// A spill file that is being written. It is removed when it is dropped.
pub(crate) struct SpillWriter {
    pub(crate) writer: TableWriter,
    // Declared last: the file is closed first.
    file: Doomed,
}

impl SpillWriter {
    /// Adds what is stored of an operation on a key behind all keys of the slice so far.
    pub(crate) fn add(&mut self, key: &[u8], kind: OpKind, value: &[u8]) -> Result<()> {
        self.writer.add(Entry { key, seq: KEY_SEQ, kind, value })
    }

    /// Completes and syncs the file. Its name is not durable yet. What it takes in memory while it
    /// is open is charged, or that is refused if it `may_fail`; otherwise it is charged as far as
    /// there is room.
    pub(crate) fn finish(self, charge: u64, may_fail: bool) -> Result<Arc<SpillFile>> {
        let SpillWriter { writer, file } = self;
        let written = writer.finish()?;
        let open = if may_fail { Table::open } else { Table::reopen };
        let tables = file.spills.open_slices(&written.slices, open)?;
        Ok(Arc::new(SpillFile { tables, charge, len: written.file_len, file }))
    }
}

/// The kind of a put, and what is stored with it.
pub(crate) type SpilledPut = (OpKind, PinnedValue);

impl SpillFile {
    fn place_of(&self, family: FamilyId) -> Option<usize> {
        self.tables.binary_search_by_key(&family, |(meta, _)| meta.family).ok()
    }

    /// What the file has of each family, by ascending family.
    pub(crate) fn slices(&self) -> impl Iterator<Item = &SliceMeta> {
        self.tables.iter().map(|(meta, _)| meta)
    }

    /// The memory that its range deletes take as long as it is open.
    pub(crate) fn spans_charge(&self) -> u64 {
        let spans = self.tables.iter().filter_map(|(_, table)| table.spans());
        spans.map(|spans| spans.charge() as u64).sum()
    }

    /// How a record names the file.
    pub(crate) fn named(&self) -> SpilledFile {
        SpilledFile { number: self.file.number, len: self.len }
    }

    /// The log names the file: from now on it stays when it is dropped.
    pub(crate) fn keep(&self) {
        self.file.was_needed.store(true, Ordering::Release);
        self.file.is_needed.store(true, Ordering::Release);
    }

    /// The log no longer names the file: it is obsolete when no reader has it any more.
    pub(crate) fn release(&self) {
        self.file.is_needed.store(false, Ordering::Release);
    }

    /// What the file says of a key: nothing, or that it has no value, or what is stored of a put,
    /// and of which kind. A transaction asks this of what it has spilled so far, in which there are
    /// no operands: only its commit may write some, into the last file.
    pub(crate) fn get(&self, family: FamilyId, key: &[u8]) -> Result<Option<Option<SpilledPut>>> {
        let Some(at) = self.place_of(family) else { return Ok(None) };
        let (meta, table) = &self.tables[at];
        if !meta.extent().contains(key) {
            return Ok(None);
        }
        if let Some(found) = table.get_with(key, checksum64(key), POINT, false)? {
            demand_whole(table, key, found.kind)?;
            if found.kind.is_operand() {
                return Err(misplaced(table, key, found.kind));
            }
            return Ok(Some(found.kind.puts_value().then_some((found.kind, found.value))));
        }
        let is_deleted = table.spans().is_some_and(|spans| spans.newest_at(key, POINT) > 0);
        Ok(is_deleted.then_some(None))
    }

    /// Passes on all operations: by family, of each the range deletes first, then those on keys.
    pub(crate) fn each(&self, mut see: impl FnMut(Operation<'_>) -> Result<()>) -> Result<()> {
        for (meta, table) in &self.tables {
            let family = &meta.family;
            let spans = table.spans().map_or(&[][..], |spans| spans.fragments());
            for span in spans {
                let value = span.end.as_deref().unwrap_or_default();
                let kind = OpKind::DeleteRange;
                see(Operation { family: *family, kind, key: &span.start, value })?;
            }
            if !has_keys(meta) {
                continue;
            }
            let mut cursor = table.cursor(false);
            cursor.seek_first()?;
            while let Some(Entry { key, kind, value, .. }) = cursor.entry() {
                demand_whole(table, key, kind)?;
                see(Operation { family: *family, kind, key, value })?;
                Cursor::next(&mut cursor)?;
            }
        }
        Ok(())
    }
}

/// False for a slice of range deletes alone: its one key is not what anyone wrote.
fn has_keys(meta: &SliceMeta) -> bool {
    meta.max_seq >= KEY_SEQ
}

/// Refuses a value that lies elsewhere: the values of spill files lie in them.
fn demand_whole(table: &Table, key: &[u8], kind: OpKind) -> Result<()> {
    if kind.is_apart() { Err(misplaced(table, key, kind)) } else { Ok(()) }
}

#[cold]
fn misplaced(table: &Table, key: &[u8], kind: OpKind) -> Error {
    let detail = format!("a spill file has an operation of the kind \"{}\"", kind.name());
    Error::corruption(&table.path(), 0, detail).for_key(key)
}

/// What a spill file has of one family, for readers at one point.
#[derive(Clone)]
pub(crate) struct SpilledPart {
    file: Arc<SpillFile>,
    /// Which of the file's tables it is.
    at: usize,
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
        SpilledPart::with_seq(file, family, point.saturating_sub(3 + 2 * nth as u64))
    }

    /// The entries have the number `seq`, the range deletes the one below. `None` if the file has
    /// nothing of the family.
    pub(crate) fn with_seq(
        file: &Arc<SpillFile>,
        family: FamilyId,
        seq: Lsn,
    ) -> Option<SpilledPart> {
        Some(SpilledPart { file: file.clone(), at: file.place_of(family)?, seq })
    }

    /// What it has of the family, as a manifest would describe it; sequence numbers apart.
    pub(crate) fn meta(&self) -> &SliceMeta {
        &self.file.tables[self.at].0
    }

    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.file.tables[self.at].1
    }

    pub(crate) fn file(&self) -> &Arc<SpillFile> {
        &self.file
    }

    /// Its range deletes.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        let seq = self.seq.saturating_sub(1);
        let spans = self.table().spans().into_iter().flat_map(|spans| spans.spans());
        spans.map(move |span| Span { seq, ..span })
    }

    /// The sequence number of the newest of what it says of `key`, and the version if it has one;
    /// without one, a range delete covers the key.
    pub(crate) fn find(
        &self,
        key: &[u8],
        hash: u64,
        fill_cache: bool,
    ) -> Result<Option<(Lsn, Option<Found>)>> {
        if let Some(found) = self.table().get_with(key, hash, POINT, fill_cache)? {
            return Ok(Some((self.seq, Some(Found { seq: self.seq, ..found }))));
        }
        Ok(self.cover(key).map(|cover| (cover.seq, None)))
    }

    /// True if it has operations on keys.
    pub(super) fn has_keys(&self) -> bool {
        has_keys(self.meta())
    }

    pub(crate) fn has_spans(&self) -> bool {
        self.table().spans().is_some()
    }

    /// The range delete that hides `key` in what is older than the file.
    pub(crate) fn cover(&self, key: &[u8]) -> Option<Cover> {
        let spans: &SpanSet = self.table().spans()?;
        let seq = self.seq.saturating_sub(1);
        Some(Cover { seq, ..spans.cover(key, POINT)? })
    }

    pub(crate) fn cursor(&self, fill_cache: bool) -> SpilledCursor {
        self.with(self.table().cursor(fill_cache))
    }

    /// For a job, which has charged what it reads.
    pub(crate) fn job_cursor(&self) -> SpilledCursor {
        self.with(self.table().job_cursor())
    }

    fn with(&self, cursor: TableCursor) -> SpilledCursor {
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

    /// The same in the file.
    pub(crate) fn in_file(&self) -> &TableCursor {
        &self.cursor
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
