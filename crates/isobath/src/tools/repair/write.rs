//! Writes what was saved into new tables.

use super::Repair;
use super::blobs::{Blobs, Fate};
use super::by_sequence::BySequence;
use super::facts::Facts;
use super::floors::Floors;
use super::log::FoundLog;
use super::prepared::Entries;
use super::tables::{FoundTable, visit_readable};
use crate::blob::BlobSink;
use crate::cursor::Entry;
use crate::engine::{SpilledPart, Spills};
use crate::error::Result;
use crate::flush::{self, Pending};
use crate::format::{
    FamilyId, Lsn, Op, Payload, SpilledFile, decode_payload, put_payload, spilled_seq,
};
use crate::memtable::{Arena, ChunkPool, Memtable};
use crate::mvcc::{ReaderPoints, Rewrite, rewrite};
use crate::options::FamilyOptions;
use crate::span::{SpanSet, fragments};
use crate::table::cache::{BlockCache, FileCache};
use crate::table::{
    Part, SliceMeta, Table, TableContext, TableCursor, TableOptions, TableWriter, salvage,
};
use crate::version::{SPILL_DIR, TABLE_DIR, Tick, table_path};
use crate::vfs::FileAccess;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// The approximate length of a table made from several.
const TABLE_LEN: u64 = 32 << 20;
/// Log records are collected in memory up to this length.
const MEMORY_LEN: usize = 16 << 20;
const CHUNK_LEN: usize = 1 << 20;
const OPEN_FILES: usize = 64;
/// The number of entries between two checks whether to continue.
const CANCEL_INTERVAL: u64 = 4096;

/// The options of a new table. As the engine does, they say that a family is a clone: the next
/// repair may find no manifest.
fn options_of(facts: &Facts, family: FamilyId) -> TableOptions {
    let known = facts.families.get(&family);
    let options = known.and_then(|known| FamilyOptions::from_stored(&known.options).ok());
    let options = options.unwrap_or_default();
    let (name, root) = known.map_or(("", family), |known| (&known.name, known.root));
    match root == family {
        true => options.table_options(family, name, usize::MAX),
        false => options.of_clone(root).table_options(family, name, usize::MAX),
    }
}

fn create(repair: &mut Repair<'_>, facts: &Facts) -> Result<TableWriter> {
    let number = repair.allocate();
    let path = table_path(repair.db, number);
    let uuid = facts.uuid.unwrap_or_default();
    TableWriter::create(repair.fs.create(&path)?, uuid, number)
}

/// Writes the readable part of what the families `wanted` have in a damaged table into a new table,
/// without entries whose values are lost.
pub(super) fn save_table(
    repair: &mut Repair<'_>,
    facts: &Facts,
    blobs: &mut Blobs,
    table: &FoundTable,
    wanted: &[FamilyId],
) -> Result<Vec<SliceMeta>> {
    let known = facts.in_file(table.number);
    let salvage = salvage(repair.read_leniently(&table.path)?, (facts.uuid, table.number), &known)
        .map_err(|error| error.in_file(&table.path, 0))?;
    // A clone gets a slice of its own, of what it has shared.
    let found = table.slices.iter().filter(|found| wanted.contains(&found.holder));
    let mut slices: Vec<_> = found
        .filter_map(|found| {
            let of = salvage.slices.iter().find(|of| of.family == Some(found.meta.family));
            Some((found.holder, of?))
        })
        .collect();
    slices.sort_by_key(|(holder, _)| *holder);
    if slices.is_empty() {
        return Ok(Vec::new());
    }
    let mut writer = create(repair, facts)?;
    let (fs, numbers) = (repair.fs.clone(), repair.numbers.clone());
    let (create, dir) = (|path: &Path| fs.create(path), repair.db.join(TABLE_DIR));
    let mut sink = BlobSink::new(&create, &dir, facts.uuid.unwrap_or_default(), &numbers);
    for (family, slice) in slices {
        let mut options = options_of(facts, family);
        let origin = slice.root.as_ref().map(|root| &root.origin);
        let files = origin.into_iter().flat_map(|it| it.inputs.iter().chain(&*it.ancestors));
        let ancestors: BTreeSet<u64> = files.copied().collect();
        options.origin.note_repair_of(&[table.number].into(), ancestors);
        writer.begin_slice(family, &options)?;
        visit_readable(&salvage, slice, &table.path, &mut |part| {
            let Part::Entry(entry) = part else { return Ok(()) };
            repair.count_entry()?;
            match blobs.fate(&entry)? {
                Fate::Stays => writer.add(entry),
                Fate::Moves(value) => {
                    let (kind, value) = (entry.kind.joined(), &*entry.joined_with(value));
                    writer.add(sink.place(Entry { kind, value, ..entry }, &options, |_| false)?)
                }
                Fate::Lost => Ok(()),
            }
        })?;
        if let Some(root) = &slice.root {
            writer.set_spans(root.spans.clone());
        }
        writer.finish_slice()?;
    }
    sink.finish()?;
    let finished = writer.finish()?;
    repair.report.tables_made += 1;
    Ok(finished.slices)
}

/// Merges slices of one family by key and sequence number into new tables: the newest version of
/// each key, including deletes, and all operands above it. It is not necessary to know which slice
/// was above which. For level 0 it is one table: two might end at the same sequence number.
pub(super) fn merge(
    repair: &mut Repair<'_>,
    facts: &Facts,
    (family, slices): (FamilyId, &[SliceMeta]),
    level: usize,
) -> Result<Vec<SliceMeta>> {
    if slices.is_empty() {
        return Ok(Vec::new());
    }
    let dir = repair.db.join(TABLE_DIR);
    let files = FileCache::new(repair.fs.clone(), dir, FileAccess::Positional, OPEN_FILES);
    let context = TableContext::new(Arc::new(files), BlockCache::new(0));
    let open = |meta| Table::open(context.clone(), meta);
    let tables = slices.iter().map(open).collect::<Result<Vec<_>>>()?;
    let spans = tables.iter().filter_map(|table| table.spans()).flat_map(|set| set.spans());
    let spans = fragments(spans.collect());
    let cursors = tables.iter().map(|table| table.cursor(false)).collect();
    let mut options = options_of(facts, family);
    let inputs: BTreeSet<u64> = slices.iter().map(|meta| meta.file).collect();
    options.origin.note_repair_of(&inputs, BTreeSet::new());
    let (writer, made, start) = (None, Vec::new(), Vec::new());
    let table_len = if level == 0 { u64::MAX } else { TABLE_LEN };
    let options = &options;
    let mut outputs =
        Outputs { repair, facts, family, options, table_len, writer, made, spans, start };
    let mut versions = BySequence::new(cursors)?;
    rewrite(&mut versions, &ReaderPoints::newest(), &mut outputs)?;
    let merged = outputs.finish()?;
    if let Some((first, count)) = versions.contested() {
        repair.report.guesses.push(format!(
            "{count} operands of family {family}, the first of key {:?}, are in two tables with different bytes: one of \
             the two is the sum of several, so the values of such keys may count some operands twice",
            String::from_utf8_lossy(first)
        ));
    }
    Ok(merged)
}

/// The tables that a merge writes, one after the other.
struct Outputs<'repair, 'a> {
    repair: &'a mut Repair<'repair>,
    facts: &'a Facts,
    family: FamilyId,
    options: &'a TableOptions,
    table_len: u64,
    writer: Option<TableWriter>,
    made: Vec<SliceMeta>,
    /// All range deletes. Each output has those from its start up to that of the next.
    spans: SpanSet,
    start: Vec<u8>,
}

impl Rewrite<BySequence<TableCursor>> for Outputs<'_, '_> {
    /// It is unknown what lies beneath.
    fn is_alone(&mut self, _key: &[u8]) -> bool {
        false
    }

    fn cover_above(&mut self, key: &[u8], seq: Lsn) -> Option<Lsn> {
        self.spans.least_above(key, seq)
    }

    fn add(&mut self, entry: Entry<'_>, enters: bool) -> Result<()> {
        self.repair.count_entry()?;
        let is_full = |writer: &TableWriter| writer.slice_disk_bytes() >= self.table_len;
        if enters && self.writer.as_ref().is_some_and(is_full) {
            self.close(Some(entry.key))?;
        }
        self.writer()?.add(entry)
    }
}

impl Outputs<'_, '_> {
    fn writer(&mut self) -> Result<&mut TableWriter> {
        Ok(match &mut self.writer {
            Some(writer) => writer,
            none => {
                let writer = none.insert(create(self.repair, self.facts)?);
                writer.begin_slice(self.family, self.options)?;
                writer
            }
        })
    }

    fn finish(mut self) -> Result<Vec<SliceMeta>> {
        if !self.spans.truncated(&self.start, None).is_empty() {
            self.writer()?;
        }
        self.close(None)?;
        Ok(self.made)
    }

    /// Ends the current output before the key `next`.
    fn close(&mut self, next: Option<&[u8]>) -> Result<()> {
        if let Some(mut writer) = self.writer.take() {
            writer.set_spans(self.spans.truncated(&self.start, next));
            self.start = next.unwrap_or_default().to_vec();
            self.made.extend(writer.finish()?.slices);
            self.repair.report.tables_made += 1;
        }
        Ok(())
    }
}

/// Moves the log into tables of level 0. Changes of families become facts.
pub(super) fn replay(
    repair: &mut Repair<'_>,
    facts: &mut Facts,
    (log, entries): (&mut FoundLog, &mut Entries),
) -> Result<Vec<SliceMeta>> {
    let pool = Arc::new(ChunkPool::new(CHUNK_LEN, 2, MEMORY_LEN / CHUNK_LEN));
    let mut gathered = Gathered::new(pool);
    let (floors, mut changes) = (log.floors.clone(), facts.clone());
    let mut numbers = repair.numbers.clone();
    let (fs, db) = (repair.fs.clone(), repair.db.to_owned());
    let uuid = facts.uuid.unwrap_or_default();
    let changes_known = facts.families_changed;
    let mut guesses = Vec::new();
    let (lost, lost_streams) = (log.lost_commits.clone(), log.lost_streams.clone());
    let spills = Spills::to_read(fs.clone(), db.join(SPILL_DIR), uuid);
    log.walk(repair, facts, &mut |lsn, payload| {
        if gathered.is_full() {
            gathered.flush(&*fs, &db, uuid, &mut numbers, &changes)?;
        }
        match payload {
            Payload::Batch(ops) => {
                let ops = ops.iter().enumerate().map(|(at, op)| (lsn + at as u64, op));
                let ops = ops.filter(|(seq, op)| *seq >= floors.of_family(op.family));
                let ops = ops.filter(|(seq, _)| !lost_streams.contains(seq));
                gathered.insert_all(ops, &mut changes, &mut guesses);
            }
            Payload::EpochMarker => {}
            Payload::Tick { unix_ms } => changes.note_tick(Tick { lsn, unix_ms: *unix_ms }),
            Payload::Prepare(prepare) => {
                let mut bytes = Vec::new();
                put_payload(&mut bytes, payload);
                entries.prepare(lsn, prepare, bytes);
            }
            Payload::Decide(decision) => {
                let prepared = entries.decide(decision);
                let Some(Ok(Payload::Prepare(prepare))) = prepared.as_deref().map(decode_payload)
                else {
                    return Ok(());
                };
                let ops = prepare.ops.iter().map(|op| (op.decided_at(lsn), op));
                let ops = ops.filter(|(seq, op)| *seq >= floors.of_family(op.family));
                gathered.insert_all(ops, &mut changes, &mut guesses);
            }
            Payload::Spilled(files) => {
                if !lost.contains(&lsn) {
                    gathered.flush(&*fs, &db, uuid, &mut numbers, &changes)?;
                    gathered.lay(&spills, (lsn, files), &floors, &mut changes, &mut guesses)?;
                    gathered.flush(&*fs, &db, uuid, &mut numbers, &changes)?;
                }
            }
            Payload::FamilyDrop { id }
                if floors.refutes_drop(&changes, changes_known, (*id, lsn)) => {}
            // A drop is final, though the manifest may have lost it.
            Payload::FamilyDrop { id } => {
                changes.drop_family(*id, lsn);
                gathered.memtables.remove(id);
            }
            _ if lsn <= changes_known => {}
            Payload::FamilyCreate { id, name, options } => changes.create(*id, name, options, lsn),
            Payload::FamilyRename { id, name } => changes.rename(*id, name, lsn),
        }
        Ok(())
    })?;
    gathered.flush(&*fs, &db, uuid, &mut numbers, &changes)?;
    repair.report.guesses.extend(guesses);
    repair.report.tables_made += gathered.made.len() as u64;
    *facts = changes;
    gathered.made.retain(|meta| facts.families.contains_key(&meta.family));
    Ok(gathered.made)
}

/// Operations of the log, collected for a table.
struct Gathered {
    made: Vec<SliceMeta>,
    memtables: BTreeMap<FamilyId, Arc<Memtable>>,
    /// What a large commit has in files, newest first. Then there are no memtables.
    layers: BTreeMap<FamilyId, Vec<SpilledPart>>,
    arena: Option<Arc<Arena>>,
    pool: Arc<ChunkPool>,
}

impl Gathered {
    fn is_full(&self) -> bool {
        self.arena.as_ref().is_some_and(|arena| arena.allocated_bytes() >= MEMORY_LEN)
    }

    fn new(pool: Arc<ChunkPool>) -> Gathered {
        let (memtables, layers) = (BTreeMap::new(), BTreeMap::new());
        Gathered { made: Vec::new(), memtables, layers, arena: None, pool }
    }

    fn insert(&mut self, seq: Lsn, op: &Op<'_>) {
        let pool = &self.pool;
        let arena = self.arena.get_or_insert_with(|| Arc::new(Arena::new(pool.clone())));
        let memtable = self.memtables.entry(op.family);
        let memtable = memtable.or_insert_with(|| Arc::new(Memtable::new(arena.clone())));
        memtable.apply(op.key, seq, op.kind, op.value);
    }

    /// Takes in operations, but for those of families that were dropped.
    fn insert_all<'o>(
        &mut self,
        ops: impl Iterator<Item = (Lsn, &'o Op<'o>)>,
        changes: &mut Facts,
        guesses: &mut Vec<String>,
    ) {
        for (seq, op) in ops {
            if !changes.is_dropped(op.family) {
                changes.name_family(op.family, None, guesses);
                self.insert(seq, op);
            }
        }
    }

    /// Takes in the files of a large commit.
    fn lay(
        &mut self,
        spills: &Arc<Spills>,
        (lsn, files): (Lsn, &[SpilledFile]),
        floors: &Floors,
        changes: &mut Facts,
        guesses: &mut Vec<String>,
    ) -> Result<()> {
        for (nth, named) in files.iter().enumerate() {
            let file = spills.open(named)?;
            let seq = spilled_seq(lsn, nth);
            let families = file.slices().map(|meta| meta.family);
            let counts = |of: &FamilyId| !changes.is_dropped(*of) && seq >= floors.of_family(*of);
            for family in families.filter(counts).collect::<Vec<_>>() {
                changes.name_family(family, None, guesses);
                let part = SpilledPart::with_seq(&file, family, seq);
                self.layers.entry(family).or_default().splice(0..0, part);
            }
        }
        Ok(())
    }

    fn flush(
        &mut self,
        fs: &dyn crate::vfs::FileSystem,
        db: &std::path::Path,
        uuid: [u8; 16],
        numbers: &mut Arc<crate::version::FileNumbers>,
        facts: &Facts,
    ) -> Result<()> {
        let pending = std::mem::take(&mut self.memtables).into_iter().map(|(family, memtable)| {
            let options = options_of(facts, family);
            let (memtable, layers) = (Some(memtable), Vec::new());
            Pending { family, options, memtable, layers, beneath: None, merging: None }
        });
        let laid = std::mem::take(&mut self.layers).into_iter().map(|(family, layers)| {
            let options = options_of(facts, family);
            Pending { family, options, memtable: None, layers, beneath: None, merging: None }
        });
        let pending: Vec<_> = pending.chain(laid).collect();
        let readers = ReaderPoints::newest();
        let built = flush::build_table(fs, db, uuid, numbers, &pending, &readers)?;
        self.arena = None;
        self.made.extend(built.into_iter().flat_map(|built| built.table.slices));
        Ok(())
    }
}

impl Repair<'_> {
    /// Counts an entry, and checks at times whether to continue.
    fn count_entry(&mut self) -> Result<()> {
        self.entries_written += 1;
        if self.entries_written.is_multiple_of(CANCEL_INTERVAL) {
            self.look()?;
        }
        Ok(())
    }
}
