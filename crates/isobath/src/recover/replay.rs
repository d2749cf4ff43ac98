//! Replaying the log of an earlier process into tables.

use super::prepared::InDoubt;
use super::streams::{Streams, last_stream};
use crate::engine::{self, Ceiling, SpilledPart, Spills, raised, retained_from, span_ms};
use crate::env::{Plant, Reach, planted, reached};
use crate::error::{DecodeError, Decoded, ReadError, Result};
use crate::events::Event;
use crate::flush::{self, Pending};
use crate::format::{
    DEFAULT_FAMILY, Decision, FamilyId, Lsn, Op, Payload, SpilledFile, StreamAddress, Succession,
    decode_payload, spilled_seq,
};
use crate::memtable::{Arena, ChunkPool, Memtable};
use crate::mvcc::{Merging, ReaderPoints};
use crate::options::{FamilyOptions, Options};
use crate::table::{FlushTimes, TableOptions};
use crate::version::{Change, Edit, LOG_DIR, SPILL_DIR, Tick, VersionSet};
use crate::wal::{self, ScanEnd, Tail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// What the replay found in the log.
pub(super) struct Replayed {
    /// The LSN after the last valid record.
    pub(super) end: Lsn,
    pub(super) records: u64,
    pub(super) bytes: u64,
}

/// Replays the log into tables and changes of families. Installs all of them except the rest, which
/// goes into the edit that ends the term.
pub(super) fn replay(
    options: &Options,
    db: &Path,
    versions: &mut VersionSet,
    (pool, ceiling): (&Arc<ChunkPool>, &Ceiling),
) -> Result<(Replayed, Rest)> {
    let from = versions.state().replay_from();
    let horizon = horizon_of(options, versions);
    let (uuid, durable) = (versions.state().uuid(), versions.state().durable());
    if from < versions.state().ceiling() {
        wal::demand_segment(&*options.env.fs, &db.join(LOG_DIR), from)?;
    }
    let mut progress = |done_bytes, total_bytes| {
        engine::tell(options, &Event::RecoveryProgress { done_bytes, total_bytes });
    };
    let fs = &*options.env.fs;
    let in_doubt = InDoubt::new(fs, db, versions.state(), ceiling.allowance());
    let mut replayer = Replayer {
        options,
        db,
        in_doubt,
        succession: versions.state().succession(),
        versions,
        pool,
        ceiling,
        arena: Arc::new(Arena::new(pool.clone())),
        memtables: BTreeMap::new(),
        layers: BTreeMap::new(),
        spills: Spills::to_read(options.env.fs.clone(), db.join(SPILL_DIR), uuid),
        changes: Vec::new(),
        families: BTreeMap::new(),
        merging: BTreeMap::new(),
        streams: Streams::default(),
        has_passed_streams: false,
        ticks: Vec::new(),
        horizon,
    };
    replayer.load_families()?;
    let fs = &*options.env.fs;
    let scanned = wal::scan(
        fs,
        &db.join(LOG_DIR),
        uuid,
        from,
        durable,
        &mut |lsn, payload| replayer.record(lsn, payload),
        &mut progress,
    )?;
    let rest = replayer.rest()?;
    tell_of_tail(options, &scanned);
    Ok((Replayed { end: scanned.end, records: scanned.records, bytes: scanned.end - from }, rest))
}

fn tell_of_tail(options: &Options, scanned: &ScanEnd) {
    let discarded_bytes = match scanned.tail {
        Tail::Clean => return,
        Tail::Torn { len } => {
            reached(Reach::RecoveryTorn);
            len
        }
        Tail::Hole { bytes, .. } => {
            reached(Reach::RecoveryHole);
            bytes
        }
    };
    engine::tell(options, &Event::LogTailDiscarded { end: scanned.end, discarded_bytes });
}

/// What the last edit of the recovery must install.
pub(super) struct Rest {
    pub(super) changes: Vec<Change>,
    pub(super) built: Option<flush::Built>,
    /// The streams that records have named.
    pub(super) streams: Streams,
    /// The files of prepared transactions.
    pub(super) filed: Vec<flush::FiledEntry>,
    /// The least point that stays readable; `None` if no earlier one does.
    pub(super) horizon: Option<Lsn>,
}

struct Replayer<'a> {
    options: &'a Options,
    db: &'a Path,
    versions: &'a mut VersionSet,
    pool: &'a Arc<ChunkPool>,
    ceiling: &'a Ceiling,
    arena: Arc<Arena>,
    memtables: BTreeMap<FamilyId, Arc<Memtable>>,
    /// What the last large commit has in files, newest first; all else that is pending is newer.
    layers: BTreeMap<FamilyId, Vec<SpilledPart>>,
    spills: Arc<Spills>,
    /// Changes of families that are in the log and not in the manifest.
    changes: Vec<Change>,
    /// The families that exist at this point of the log, with the options of their tables.
    families: BTreeMap<FamilyId, TableOptions>,
    /// How those families merge that do.
    merging: BTreeMap<FamilyId, Arc<Merging>>,
    /// Judges whether records can follow those before them.
    succession: Succession,
    /// The prepared transactions that are in doubt at this point of the log.
    in_doubt: InDoubt<'a>,
    /// The streams that records have named since an edit was installed.
    streams: Streams,
    has_passed_streams: bool,
    /// Ticks that the manifest does not have.
    ticks: Vec<Tick>,
    /// The least point that stays readable; `None` if no earlier one does.
    horizon: Option<Lsn>,
}

/// The least point of earlier terms that stays readable, according to the history that the options
/// ask for and the manifest has.
fn horizon_of(options: &Options, versions: &VersionSet) -> Option<Lsn> {
    let (state, now_ms) = (versions.state(), options.env.clock.unix_ms());
    let span_ms = span_ms(options, state)?;
    let retained = retained_from(state.moments(), span_ms, now_ms).unwrap_or(0);
    Some(state.oldest_readable()?.max(retained))
}

impl Replayer<'_> {
    fn load_families(&mut self) -> Result<()> {
        let state = self.versions.state();
        for (id, family) in state.families() {
            let options = FamilyOptions::from_stored(&family.options)
                .map_err(|error| error.in_file(&self.versions.manifest_path(), 0))?;
            let options = options.demand_codecs().map_err(|error| error.in_file(self.db, 0))?;
            note_merging(&mut self.merging, self.options, id, &options);
            let labelled =
                if family.root == id { options.clone() } else { options.of_clone(family.root) };
            let table_options = labelled.table_options(id, &family.name, 0);
            self.families.insert(id, self.ceiling.fit(table_options));
        }
        Ok(())
    }

    fn record(&mut self, lsn: Lsn, payload: &[u8]) -> Result<(), ReadError> {
        // Install before a record, never after the last one: the segment that continues there need
        // not exist.
        let bytes = self.arena.allocated_bytes() as u64 + self.in_doubt.bytes();
        if bytes >= self.options.buffer_len() {
            reached(Reach::RecoveryInPieces);
            self.install_so_far(lsn)?;
        }
        match decode_payload(payload)? {
            Payload::Batch(ops) => {
                for (ordinal, op) in ops.iter().enumerate() {
                    self.op(lsn + ordinal as u64, op)?;
                }
            }
            Payload::EpochMarker => {}
            Payload::Tick { unix_ms } => self.tick(Tick { lsn, unix_ms }),
            Payload::Prepare(prepare) => {
                self.succession.prepare(lsn, prepare.xid)?;
                self.in_doubt.prepare(lsn, prepare.xid, payload);
            }
            Payload::Decide(decision) => self.decide(lsn, &decision)?,
            Payload::Spilled(files) => self.lay(lsn, &files)?,
            // Skip changes that the manifest holds already: since then a name may have gone to
            // another family.
            _ if lsn <= self.versions.state().families_changed()
                && !planted(Plant::FamilyReplayedTwice) => {}
            Payload::FamilyCreate { id, name, options } => self.create(lsn, id, name, options)?,
            Payload::FamilyDrop { id } => self.drop_family(lsn, id),
            Payload::FamilyRename { id, name } => self.rename(lsn, id, name)?,
        }
        Ok(())
    }

    /// The manifest may have a tick already, from a flush or a compaction that was judged by it.
    fn tick(&mut self, tick: Tick) {
        let last = self.ticks.last().or(self.versions.state().ticks().last());
        if last.is_none_or(|last| last.lsn < tick.lsn && last.unix_ms < tick.unix_ms) {
            self.ticks.push(tick);
        }
    }

    /// The change that tells the manifest of the ticks since the last one.
    fn ticks(&mut self) -> Option<Change> {
        let ticks = std::mem::take(&mut self.ticks);
        (!ticks.is_empty()).then_some(Change::Ticks { ticks })
    }

    /// Takes in the files of a large commit. What comes before it is installed first: later writes
    /// in the hull of a file go into a memtable that has none of the earlier ones.
    fn lay(&mut self, lsn: Lsn, files: &[SpilledFile]) -> Result<(), ReadError> {
        reached(Reach::LayerReplayed);
        if !self.memtables.is_empty() || !self.layers.is_empty() {
            self.install_so_far(lsn)?;
        }
        for (nth, named) in files.iter().enumerate() {
            let file = self.spills.open(named).map_err(ReadError::Placed)?;
            for family in file.slices().map(|meta| meta.family) {
                if self.is_known(lsn, family)?
                    && let Some(part) = SpilledPart::with_seq(&file, family, spilled_seq(lsn, nth))
                {
                    self.layers.entry(family).or_default().insert(0, part);
                }
            }
        }
        Ok(())
    }

    fn decide(&mut self, lsn: Lsn, decision: &Decision<'_>) -> Result<(), ReadError> {
        if !self.succession.decide(lsn, decision)? {
            return Ok(());
        }
        let Some(payload) = self.in_doubt.decide(decision)? else { return Ok(()) };
        let Payload::Prepare(prepare) = decode_payload(&payload)? else {
            return Err(DecodeError::damaged("a commit is of no prepared transaction").into());
        };
        for op in &prepare.ops {
            self.op(op.decided_at(lsn), op)?;
        }
        Ok(())
    }

    /// False for a family that is dropped; an error for one that never was.
    fn is_known(&self, seq: Lsn, family: FamilyId) -> Decoded<bool> {
        if self.families.contains_key(&family) {
            return Ok(true);
        }
        self.succession.demand_family(seq, family)?;
        Ok(false)
    }

    fn op(&mut self, seq: Lsn, op: &Op<'_>) -> Result<(), ReadError> {
        if !self.is_known(seq, op.family)? {
            return Ok(());
        }
        if op.kind.is_streamed() {
            let address = StreamAddress::of(op.kind, op.value)?;
            let fs = &*self.options.env.fs;
            self.streams.claim(fs, self.db, self.versions, (op.key, &address))?;
        }
        let fresh = || Arc::new(Memtable::new(self.arena.clone()));
        let memtable = self.memtables.entry(op.family).or_insert_with(fresh);
        memtable.apply(op.key, seq, op.kind, op.value);
        Ok(())
    }

    fn create(&mut self, lsn: Lsn, id: FamilyId, name: &str, options: &[u8]) -> Decoded<()> {
        self.succession.create(id, name)?;
        let options_read = FamilyOptions::from_stored(options)?.demand_codecs()?;
        let table_options = self.ceiling.fit(options_read.table_options(id, name, 0));
        debug_assert!(!self.families.contains_key(&id), "a family is created twice");
        self.families.insert(id, table_options);
        note_merging(&mut self.merging, self.options, id, &options_read);
        let (name, options) = (name.to_owned(), options.to_vec());
        self.changes.push(Change::CreateFamily { family: id, name, options, lsn });
        Ok(())
    }

    fn drop_family(&mut self, lsn: Lsn, id: FamilyId) {
        self.succession.drop_family(id);
        if id != DEFAULT_FAMILY && self.families.remove(&id).is_some() {
            self.changes.push(Change::DropFamily { family: id, lsn });
        }
    }

    fn rename(&mut self, lsn: Lsn, id: FamilyId, name: &str) -> Decoded<()> {
        self.succession.rename(id, name)?;
        if let Some(options) = self.families.get_mut(&id) {
            if let Some(label) = &mut options.origin.label {
                Arc::make_mut(label).name = name.to_owned();
            }
            self.changes.push(Change::RenameFamily { family: id, name: name.to_owned(), lsn });
        }
        Ok(())
    }

    /// Flushes the memtables to a table.
    fn build(&mut self) -> Result<Option<flush::Built>> {
        let (families, merging) = (&self.families, &self.merging);
        let flushed = FlushTimes::now(self.options.env.clock.unix_ms());
        let mut memtables = std::mem::take(&mut self.memtables);
        let mut layers = std::mem::take(&mut self.layers);
        let written: BTreeSet<FamilyId> = memtables.keys().chain(layers.keys()).copied().collect();
        let pending: Vec<Pending> = written
            .into_iter()
            .filter_map(|family| {
                Some(Pending {
                    family,
                    options: TableOptions {
                        flushed: flushed.clone(),
                        ..families.get(&family)?.clone()
                    },
                    memtable: memtables.remove(&family),
                    layers: layers.remove(&family).unwrap_or_default(),
                    beneath: None,
                    merging: merging.get(&family).cloned(),
                })
            })
            .collect();
        let fs = &*self.options.env.fs;
        let numbers = self.versions.files().clone();
        let built = flush::build_table(
            fs,
            self.db,
            self.versions.state().uuid(),
            &numbers,
            &pending,
            &self.horizon.map_or(ReaderPoints::newest(), ReaderPoints::from),
        )?;
        self.arena = Arc::new(Arena::new(self.pool.clone()));
        Ok(built)
    }

    fn rest(mut self) -> Result<Rest> {
        let built = self.build()?;
        let mut changes = std::mem::take(&mut self.changes);
        changes.extend(added(built.as_ref()));
        changes.extend(self.ticks());
        let (of_prepared, filed) = self.in_doubt.file(self.versions.files())?;
        changes.extend(of_prepared);
        Ok(Rest { changes, built, streams: self.streams, filed, horizon: self.horizon })
    }

    /// Passes over the numbers of streams that records behind `end` name. Where such a file is
    /// missing, a table would get its number, and the file could not be put back.
    fn pass_streams(&mut self, end: Lsn) -> Result<()> {
        if std::mem::replace(&mut self.has_passed_streams, true) {
            return Ok(());
        }
        let (fs, state) = (&*self.options.env.fs, self.versions.state());
        let mut last = 0;
        let mut see = |_: Lsn, payload: &[u8]| {
            if let Payload::Batch(ops) = decode_payload(payload)? {
                last = last_stream(&ops).unwrap_or(0).max(last);
            }
            Ok(())
        };
        let log = self.db.join(LOG_DIR);
        wal::scan(fs, &log, state.uuid(), end, state.durable(), &mut see, &mut |_, _| ())?;
        self.versions.files().pass(last);
        Ok(())
    }

    /// Installs what was replayed below `end`.
    fn install_so_far(&mut self, end: Lsn) -> Result<()> {
        self.pass_streams(end)?;
        debug_assert!(
            end >= self.versions.state().replay_from(),
            "a piece of the log is replayed twice"
        );
        let built = self.build()?;
        let mut edit = Edit::new(std::mem::take(&mut self.changes));
        edit.changes.extend(added(built.as_ref()));
        let mut filed = Vec::new();
        if !planted(Plant::InstallForgetsEntries) {
            let of_prepared;
            (of_prepared, filed) = self.in_doubt.file(self.versions.files())?;
            edit.changes.extend(of_prepared);
        }
        edit.changes.extend(self.ticks());
        // The edit that allowed these LSNs may be lost: they were all given out.
        if end > self.versions.state().ceiling() {
            edit.push(Change::LsnCeiling { lsn: end });
        }
        edit.push(Change::ReplayFrom { lsn: end });
        edit.changes.extend(raised(self.versions.state(), self.horizon.unwrap_or(end)));
        let tables = built.iter().flat_map(|built| built.outputs());
        let outputs = tables.chain(filed.into_iter().map(|entry| entry.file));
        let outputs: Vec<_> = outputs.chain(self.streams.files()).collect();
        self.versions.install(edit, &outputs)?;
        // Slices keep those that are of use.
        self.streams = Streams::default();
        Ok(())
    }
}

fn note_merging(
    merging: &mut BTreeMap<FamilyId, Arc<Merging>>,
    options: &Options,
    id: FamilyId,
    family: &FamilyOptions,
) {
    if let Some(name) = &family.merge_operator {
        merging.insert(id, Arc::new(Merging::new(name, &options.operators)));
    }
}

fn added(built: Option<&flush::Built>) -> impl Iterator<Item = Change> {
    let slices = built.iter().flat_map(|built| &built.table.slices);
    slices
        .map(|meta| Change::AddSlice { level: 0, meta: meta.clone() })
        .collect::<Vec<_>>()
        .into_iter()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
