//! Flushes: from a sealed epoch to a table.
//!
//! On disk, step by step, and what recovery does if power fails there:
//!
//! 1. The epoch's memtables, and the files of large commits in it, are written to one new table
//!    file, a slice for each family, which has range deletes and versions alike, and long values to
//!    blob files; the blob files are synced, then the table, then their directory. Before step 2
//!    the files are orphans: the next open removes them and replays the log.
//!    Prepared transactions that are in doubt get files of their own (`prepared.rs`). The files of
//!    streams are there and synced already; the edit names those whose entries stay, and the others
//!    go with the epoch.
//! 2. One manifest edit adds the slices and moves `replay from` to the epoch's end. It holds
//!    entirely or not at all.
//! 3. Views are swapped, and the epoch is forgotten. The log still holds everything that the table
//!    holds. So damage to the edit loses nothing: without a sync marker it looks as if power had
//!    failed in step 2.
//! 4. The edit is confirmed by a sync marker. Log segments wholly below `replay from` are recycled,
//!    and files of large commits are removed when their last reader is gone.
//!
//! Step 3 makes room for writers. Callers that asked for the flush are woken last, after the flush
//! is counted and listeners have been told.
//!
//! Epochs are installed strictly in order, so `replay from` never passes an epoch that is only in
//! memory. And `replay from` always lies in a segment that exists: if recovery finds no segment
//! there, it takes that segment for lost, not for one that was never written.

mod input;
mod plants;
mod prepared;

use crate::blob::{BlobSink, Create};
use crate::compact;
use crate::cursor::{Cursor, Entry, MergeCursor};
use crate::engine::{Engine, Epoch, Keyspace, SpilledPart};
use crate::env::{Plant, Point, Reach, planted, reached_if, yield_point};
use crate::error::{Error, Result};
use crate::events::{BackgroundJob, Event};
use crate::format::{FamilyId, Lsn};
use crate::memtable::{Memtable, MemtableCursor};
use crate::mvcc::{Merging, ReaderPoints, Rewrite, rewrite};
use crate::span::Fragments;
use crate::table::cache::table_path;
use crate::table::{Finished, FlushTimes, TableContext, TableOptions, TableWriter};
use crate::version::{Beneath, Change, Edit, FileNumbers, LiveFile, TABLE_DIR, Tree};
use crate::vfs::FileSystem;
pub(crate) use input::Input;
use plants::retire_early;
use prepared::Entries;
pub(crate) use prepared::{FiledEntry, file_entry};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

/// The rate of flushes is measured with epochs that fill at least this part of a write buffer.
const TELLING_SHARE: u64 = 8;

/// Submits a background flush of the sealed epochs.
pub(crate) fn submit(engine: &Arc<Engine>) {
    let weak = Arc::downgrade(engine);
    // A closed queue means that the database is closing, and a closing database flushes nothing
    // more.
    let _ = engine.flusher.submit(Box::new(move |_cancel| {
        let Some(engine) = weak.upgrade() else { return };
        if let Err(error) = flush_sealed(&engine) {
            give_up(&engine, error);
        }
    }));
}

/// Submits another flush after one failed because disk space or file descriptors ran out.
pub(crate) fn retry(engine: &Arc<Engine>) {
    if engine.epochs.take_flush_failure().is_some() {
        submit(engine);
    }
}

/// Handles a failed flush. Its data stays in memory and in the log. If the error is retryable, a
/// later [`retry`] repeats the flush: by maintenance each second, by each requested flush, and by
/// writes, which pause between attempts. Until one succeeds, writers find less and less room, and
/// in the end get the error.
fn give_up(engine: &Arc<Engine>, error: Error) {
    let weak = Arc::downgrade(engine);
    // What was written of the table takes room that is short, and the flush that is tried again may
    // need it. But writers wait for this thread, and a removal may wait for the disk. So a
    // compactor's thread removes the files, and who asks for a flush does so before it is tried.
    // Only a write's own attempt may come too early; maintenance then tries again, with more room.
    let is_full = error.is_out_of_space();
    let _ = engine.compactors.submit(Box::new(move |_cancel| {
        let Some(engine) = weak.upgrade() else { return };
        engine.remove_obsolete_files();
        if is_full {
            engine.log.give_up_spares();
        }
    }));
    if !error.is_retryable() {
        return engine.poison(BackgroundJob::Flush, error);
    }
    engine.epochs.note_flush_failure(error.clone(), engine.pacer.now_ns());
    engine.tell(Event::BackgroundError { job: BackgroundJob::Flush, error });
}

/// What a flush wrote.
pub(crate) struct Built {
    pub(crate) file: Arc<LiveFile>,
    /// Where its long values lie.
    pub(crate) blobs: Vec<Arc<LiveFile>>,
    pub(crate) blob_bytes: u64,
    pub(crate) table: Finished,
}

impl Built {
    /// All files that it wrote.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = Arc<LiveFile>> {
        std::iter::once(&self.file).chain(&self.blobs).cloned()
    }
}

/// What to write of a family, and the options of its slice.
pub(crate) struct Pending {
    pub(crate) family: FamilyId,
    pub(crate) options: TableOptions,
    pub(crate) memtable: Option<Arc<Memtable>>,
    /// Files of large commits, newest first where they overlap. What the memtable has in their
    /// hulls is newer.
    pub(crate) layers: Vec<SpilledPart>,
    /// All that is older, if that is known: deletes without anything beneath are not written.
    pub(crate) beneath: Option<(Arc<Tree>, Arc<TableContext>)>,
    /// How the family merges; `None` if it does not.
    pub(crate) merging: Option<Arc<Merging>>,
}

fn flush_sealed(engine: &Arc<Engine>) -> Result<()> {
    loop {
        let Some(oldest) = engine.epochs.list().sealed.first().cloned() else { return Ok(()) };
        flush_epoch(engine, oldest)?;
    }
}

/// Flushes the oldest sealed epoch and installs it.
fn flush_epoch(engine: &Arc<Engine>, epoch: Arc<Epoch>) -> Result<()> {
    let started = engine.pacer.now_ns();
    if !planted(Plant::FlushedBeforeComplete) {
        engine.log.wait_visible(epoch.end())?;
    }
    epoch.arena.note_complete();
    engine.note_end(epoch.end());
    let (families, pending) = pending_of(engine, &epoch);
    let readers = engine.readers_for(epoch.end());
    let fs = &*engine.options.env.fs;
    let create = |path: &Path| Ok(engine.io_limit.limited(fs.create(path)?, None));
    let (with, numbers) = ((fs, &create as Create<'_>), &engine.files);
    let built = match build_with(with, &engine.dir, engine.uuid, numbers, &pending, &readers) {
        Err(error) if error.is_retryable() && planted(Plant::FailedFlushForgotten) => None,
        other => other?,
    };
    let entries = Entries::file(engine, &epoch)?;
    yield_point(Point::Built);
    install(engine, &epoch, &families, (built.as_ref(), entries), readers.horizon())?;
    let took_ns = engine.pacer.now_ns() - started;
    let bytes = built.as_ref().map_or(0, |built| built.table.file_len + built.blob_bytes);
    let of_layers: u64 =
        pending.iter().flat_map(|slice| &slice.layers).map(|part| part.meta().disk_bytes).sum();
    engine.gauges.flushes.add(1);
    engine.gauges.flush_bytes.add(bytes);
    engine.disk_room.note_more(bytes);
    engine.gauges.flush_ns.add(took_ns);
    engine.tell(Event::Flushed {
        file: built.map(|built| built.file.number()),
        families: families.len(),
        bytes,
        took_us: took_ns / 1000,
    });
    let flushed = epoch.bytes() + of_layers;
    let rate = flushed.saturating_mul(1_000_000_000) / took_ns.max(1);
    // A small epoch takes little more time than its syncs do, and says nothing of a full one.
    let is_telling = flushed >= engine.options.buffer_len() / TELLING_SHARE;
    let rate = (is_telling || !engine.pacer.knows_flushes()).then_some(rate);
    engine.pacer.set_flush(|| engine.epochs.list().sealed.len() > 1, rate);
    let id = epoch.id;
    drop((epoch, pending));
    // Below a ceiling it is only now that its memory is free for those who wait.
    engine.epochs.wake_all();
    compact::after_flush(engine, &families);
    engine.epochs.note_flushed(id);
    Ok(())
}

/// The families that were written in an epoch and still exist, and what was written. All epochs
/// before it must be installed.
fn pending_of(engine: &Engine, epoch: &Epoch) -> (Vec<Arc<Keyspace>>, Vec<Pending>) {
    let mut written: BTreeMap<FamilyId, (Option<Arc<Memtable>>, Vec<SpilledPart>)> = epoch
        .memtables()
        .into_iter()
        .map(|(id, memtable)| (id, (Some(memtable), Vec::new())))
        .collect();
    for (id, layers) in epoch.layers() {
        let parts = layers.into_iter().map(|layer| layer.part).collect();
        written.entry(id).or_default().1 = parts;
    }
    let live = written.into_iter().filter_map(|(id, (memtable, layers))| {
        let family = engine.families.by_id(id)?;
        let mut options = engine.ceiling.fit(family.table_options(0));
        options.flushed = FlushTimes::now(engine.clock_ms());
        let beneath = Some((family.view().tree.clone(), engine.tables.clone()));
        let merging = family.merging(&engine.options.operators).cloned();
        Some((family, Pending { family: id, options, memtable, layers, beneath, merging }))
    });
    live.unzip()
}

/// [`build_with`], as fast as the file system is, where nothing else runs. If it fails, it removes
/// what it has written, which would stay until the next open has succeeded: that open needs room
/// for all of it again.
pub(crate) fn build_table(
    fs: &dyn FileSystem,
    db: &Path,
    uuid: [u8; 16],
    numbers: &FileNumbers,
    pending: &[Pending],
    readers: &ReaderPoints,
) -> Result<Option<Built>> {
    let created = RefCell::new(Vec::new());
    let create = |path: &Path| {
        let file = fs.create(path)?;
        created.borrow_mut().push(path.to_owned());
        Ok(file)
    };
    let built = build_with((fs, &create), db, uuid, numbers, pending, readers);
    if built.is_err() {
        for path in created.take() {
            let _ = fs.remove(&path);
        }
    }
    built
}

/// How many tables a flush opens to learn what lies beneath its deletes. Writers may wait for it.
const OPENINGS_MAX: usize = 16;

/// Writes what is pending, by ascending family, to a new table file, and long values to blob files,
/// and syncs them. `None` if no version is worth keeping. `create` makes the files.
fn build_with(
    (fs, create): (&dyn FileSystem, Create<'_>),
    db: &Path,
    uuid: [u8; 16],
    numbers: &FileNumbers,
    pending: &[Pending],
    readers: &ReaderPoints,
) -> Result<Option<Built>> {
    if pending.is_empty() {
        return Ok(None);
    }
    // If a later step fails, dropping `file` marks the file for removal.
    let file = numbers.allocate();
    let dir = db.join(TABLE_DIR);
    let path = table_path(&dir, file.number());
    let mut writer = TableWriter::create(create(&path)?, uuid, file.number())?;
    let mut sink = BlobSink::new(create, &dir, uuid, numbers);
    let openings = Cell::new(OPENINGS_MAX);
    for slice in pending {
        writer.begin_slice(slice.family, &slice.options)?;
        write_slice(&mut writer, &mut sink, slice, (readers, &openings))?;
        writer.finish_slice()?;
    }
    if writer.is_empty() {
        return Ok(None);
    }
    let (blobs, blob_bytes) = sink.finish()?;
    let table = writer.finish()?;
    file.len_or(|| Ok(table.file_len))?;
    numbers.sync_names(fs, &dir)?;
    Ok(Some(Built { file, blobs, blob_bytes, table }))
}

/// Adds every version that a reader needs to the table.
fn write_slice(
    writer: &mut TableWriter,
    sink: &mut BlobSink<'_>,
    pending: &Pending,
    (readers, openings): (&ReaderPoints, &Cell<usize>),
) -> Result<()> {
    let Pending { memtable, layers, beneath, merging, options, .. } = pending;
    let mut spans = memtable.iter().filter_map(|memtable| memtable.spans()).peekable();
    let has_spans = spans.peek().is_some() || layers.iter().any(SpilledPart::has_spans);
    let spans = spans.flat_map(|spans| spans.all());
    let spans = spans.chain(layers.iter().flat_map(SpilledPart::spans));
    let spans = has_spans.then(|| Fragments::new(spans.collect(), readers));
    let beneath = beneath.as_ref().map(|(tree, tables)| Beneath::tree(tree, tables, openings));
    let merging = merging.as_deref();
    let mut to = IntoTable { writer, sink, options, spans, beneath, merging };
    match (memtable, &layers[..]) {
        (Some(memtable), []) => {
            let mut cursor = MemtableCursor::new(memtable.clone());
            cursor.seek_first()?;
            rewrite(&mut cursor, readers, &mut to)?;
        }
        _ => {
            let in_layers: u64 = layers.iter().map(|part| part.meta().entries).sum();
            let in_memory = memtable.as_ref().map_or(0, |memtable| memtable.len());
            to.writer.expect_keys(in_layers + in_memory);
            let newest = memtable.iter().map(Input::memtable);
            let inputs = newest.chain(Input::layers(layers));
            let mut cursor = MergeCursor::new(inputs.collect());
            cursor.seek_first()?;
            rewrite(&mut cursor, readers, &mut to)?;
        }
    }
    if let Some(mut spans) = to.spans {
        to.writer.set_spans(spans.take_up_to(None));
    }
    Ok(())
}

/// Writes versions to a table.
struct IntoTable<'a, 's> {
    writer: &'a mut TableWriter,
    sink: &'a mut BlobSink<'s>,
    options: &'a TableOptions,
    /// The range deletes, if there are any.
    spans: Option<Fragments<'a>>,
    beneath: Option<Beneath<'a>>,
    merging: Option<&'a Merging>,
}

impl<C> Rewrite<C> for IntoTable<'_, '_> {
    #[inline(always)]
    fn is_alone(&mut self, key: &[u8]) -> bool {
        let is_clear = self.beneath.as_mut().is_some_and(|beneath| beneath.is_clear_of(key));
        reached_if(Reach::DeleteUnwritten, || is_clear);
        is_clear || planted(Plant::DeleteUnwritten)
    }

    #[inline(always)]
    fn cover_above(&mut self, key: &[u8], seq: Lsn) -> Option<Lsn> {
        self.spans.as_mut()?.least_above(key, seq)
    }

    #[inline(always)]
    fn merging(&self) -> Option<&Merging> {
        self.merging
    }

    #[inline(always)]
    fn made_max(&self) -> u64 {
        self.options.made_max
    }

    #[inline(always)]
    fn add(&mut self, entry: Entry<'_>, _enters: bool) -> Result<()> {
        if let Some(spans) = &mut self.spans {
            spans.note(entry.key, entry.seq);
        }
        let entry = self.sink.place(entry, self.options, |_| false)?;
        self.writer.add(entry)
    }
}

fn install(
    engine: &Engine,
    epoch: &Arc<Epoch>,
    families: &[Arc<Keyspace>],
    (built, entries): (Option<&Built>, Entries),
    horizon: Lsn,
) -> Result<()> {
    // Wait until a change of families below the epoch's end is in the manifest: after this edit the
    // next open no longer reads that part of the log. A change that was given up stays in the log
    // alone, which it has poisoned.
    if *engine.families_pending.lock() {
        engine.log.check_healthy()?;
    }
    let of_prepared = entries.changes();
    let mut versions = engine.versions.lock();
    let mut edit = Edit::default();
    for slice in built.iter().flat_map(|built| &built.table.slices) {
        // Leave out the slice of a family that was dropped after the table was begun.
        if versions.state().family(slice.family).is_some() {
            edit.push(Change::AddSlice { level: 0, meta: slice.clone() });
        }
    }
    check_whole(engine, epoch, built, versions.state().replay_from());
    let replay_from = epoch.end();
    let (of_history, filed) = engine.history.changes(versions.state(), horizon, replay_from);
    edit.push(Change::ReplayFrom { lsn: replay_from });
    edit.changes.extend(of_history);
    let ticks_below = replay_from.max(horizon);
    edit.changes.extend(engine.ticks.changes(horizon, ticks_below));
    retire_early(engine, epoch);
    edit.changes.extend(of_prepared);
    let tables = built.iter().flat_map(|built| built.outputs());
    let outputs = tables.chain(entries.outputs()).chain(epoch.streams());
    let outputs: Vec<Arc<LiveFile>> = outputs.collect();
    versions.install(edit, &outputs)?;
    engine.history.note_in_tables(replay_from);
    filed.into_iter().for_each(|last| engine.history.note_filed(last));
    engine.ticks.note_filed(ticks_below);
    for family in families {
        if let Some(state) = versions.state().family(family.id) {
            family.install(state.tree.clone(), Some(epoch));
        }
    }
    // Lock order: the list of epochs before the manifest, never after.
    drop(versions);
    entries.settle(engine);
    let layers = epoch.layers().into_values().flatten();
    engine.spills.retire(layers.map(|layer| layer.part.file().clone()));
    engine.epochs.retire_oldest(epoch);
    retire_log(engine, replay_from)
}

/// Checks what must hold before `replay from` moves to the epoch's end: after that, nothing of the
/// epoch is read from the log.
fn check_whole(engine: &Engine, epoch: &Epoch, built: Option<&Built>, replayed_from: Lsn) {
    assert!(replayed_from <= epoch.start, "an epoch is installed after those before it");
    // The record before the marker left more room than the marker needs, so a segment exists for
    // what begins here.
    debug_assert!(engine.log.has_room_at(epoch.end()));
    debug_assert!(engine.log.visible() >= epoch.end(), "its writers have all applied");
    for slice in built.iter().flat_map(|built| &built.table.slices) {
        assert!(
            (epoch.start <= slice.min_seq && slice.max_seq < epoch.end())
                || planted(Plant::SealForgetsRacers),
            "epoch {:#x}..{:#x} holds sequences {:#x} to {:#x}",
            epoch.start,
            epoch.end(),
            slice.min_seq,
            slice.max_seq
        );
    }
}

/// Confirms the last edit and retires the log below `replay_from`, where replay now begins.
fn retire_log(engine: &Engine, replay_from: Lsn) -> Result<()> {
    let mut versions = engine.versions.lock();
    let confirmed = versions.confirm();
    let held_from = versions.state().replay_from();
    drop(versions);
    match confirmed {
        Ok(()) if held_from < replay_from => {
            panic!(
                "the log would be given up to {replay_from:#x}, yet is needed from {held_from:#x}"
            )
        }
        Ok(()) => {
            engine.log.retire(replay_from);
            engine.spills.release_retired();
        }
        // The next flush retires these segments, too.
        Err(error) if error.is_retryable() => {
            engine.tell(Event::BackgroundError { job: BackgroundJob::LogRecycling, error });
        }
        Err(error) => return Err(error),
    }
    Ok(())
}
