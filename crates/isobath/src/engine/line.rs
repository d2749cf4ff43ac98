//! The place in the log that a reader has reached, and the state that the log gives it so far: the
//! families, and a memtable for each family that was written since `replay from`.
//!
//! It belongs to a database that is open for reading only. Records are applied one after the other,
//! each whole or not at all, so a reader can go on after any error. Queries see applied records
//! only once the line is shown ([`super::Shown`]): until then the applied records have sequences
//! above every read point in use.

use super::epochs::Epoch;
use super::families::Families;
use super::family::{Keyspace, MemtableOf, View};
use super::spill::Spills;
use crate::error::{DecodeError, Decoded, Error, ReadError, Result};
use crate::footprint::Operation;
use crate::format::{
    DEFAULT_FAMILY, Decision, FamilyId, FileKind, Lsn, Op, OpKind, Payload, SpilledFile,
    StreamAddress, decode_payload, spilled_seq,
};
use crate::memtable::{ChunkPool, Memtable};
use crate::options::FamilyOptions;
use crate::table::TableContext;
use crate::version::{LiveFile, ObsoleteFiles, Slice, Stamp, State, Term, Tick, Trail, Tree};
use crate::wal::{Looked, RECORD_ALIGN, RECORD_HEADER_LEN};
use crate::xid::Xid;
use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::Arc;

/// The memory that a tick is taken to need, with that for which it is learned.
const TICK_BYTES: u64 = 32;

/// About what a family takes without its data.
const FAMILY_BYTES: u64 = 1 << 10;

/// What a line applies records from, beside the log.
pub(crate) struct Sources<'a> {
    pub(crate) spills: &'a Arc<Spills>,
    pub(crate) tables: &'a TableContext,
    /// The most streams of the log that are held open.
    pub(crate) streams_max: usize,
}

/// The reader's place in the log.
pub(crate) struct Line {
    /// Identifies the manifest that was read last.
    pub(crate) stamp: Stamp,
    /// What was read of the manifest.
    pub(crate) trail: Trail,
    /// Those that the manifest named, oldest first.
    pub(crate) terms: Vec<Term>,
    /// Everything below this LSN is in the tables of the views.
    pub(crate) replay_from: Lsn,
    /// The least point that the tables serve; `None` if it is not known.
    oldest_readable: Option<Lsn>,
    /// The first LSN that is not applied.
    pub(crate) next: Lsn,
    pub(crate) records: u64,
    /// How far it was looked behind `next`.
    pub(crate) looked: Looked,
    /// Changes of families up to this LSN are already in the state that the line began with.
    pub(crate) families_changed: Lsn,
    next_family: FamilyId,
    /// The manifest has given out the ids below this. One that is not among the families is of a
    /// family that was dropped, or of a clone, of which no record tells.
    ids_below: FamilyId,
    pub(crate) epoch: Arc<Epoch>,
    /// How many streams of the log are held open.
    streams_held: usize,
    memory_max: u64,
    families: BTreeMap<FamilyId, Followed>,
    /// How many of them the log has dropped.
    gone: u64,
    /// The prepared transactions that are in doubt here, by the LSN of the prepare.
    in_doubt: Arc<BTreeMap<Lsn, Doubtful>>,
    /// The bytes of their payloads.
    in_doubt_bytes: u64,
    /// What time it was from which LSN on, as far as no one else has learned it.
    pub(crate) ticks: Vec<Tick>,
    /// The bytes of all ticks of the log, here or where they were learned.
    ticks_bytes: u64,
    /// How often this line may still give way to one that begins anew, only because tables are gone
    /// that it does not hold open.
    pub(crate) renewals: u32,
    /// It lacks some tables: if it goes on, because it may give way no more or no other line can be
    /// made, the next call begins anew, also if the manifest stays as it is.
    pub(crate) is_outdated: bool,
}

/// A prepared transaction that is in doubt.
#[derive(Clone)]
pub(crate) struct Doubtful {
    pub(crate) xid: Xid,
    /// The payload of its record.
    pub(crate) payload: Arc<[u8]>,
}

impl Doubtful {
    fn bytes(&self) -> u64 {
        self.payload.len() as u64
    }
}

/// A family at this place in the log.
struct Followed {
    keyspace: Arc<Keyspace>,
    name: Arc<str>,
    tree: Arc<Tree>,
    memtable: Option<Arc<Memtable>>,
    view: Arc<View>,
    /// The LSN at which the log drops the family.
    dropped_at: Lsn,
}

impl Followed {
    fn new(keyspace: Arc<Keyspace>, name: &str, tree: Arc<Tree>) -> Followed {
        let (name, dropped_at) = (name.into(), Lsn::MAX);
        let view = View::of_reader(None, tree.clone(), (keyspace.created_at(), dropped_at));
        Followed { keyspace, name, tree, memtable: None, view, dropped_at }
    }

    fn is_dropped(&self) -> bool {
        self.dropped_at != Lsn::MAX
    }

    fn renew_view(&mut self, epoch: &Arc<Epoch>) {
        let of = |memtable: &Arc<Memtable>| MemtableOf {
            epoch: epoch.clone(),
            memtable: memtable.clone(),
        };
        let memtable = self.memtable.as_ref().map(of);
        let exists = (self.keyspace.created_at(), self.dropped_at);
        self.view = View::of_reader(memtable, self.tree.clone(), exists);
    }
}

impl Line {
    /// A line that begins where `state` says that replay begins, with these prepared transactions,
    /// by the LSNs of their records. Families that are already in
    /// `known` keep their keyspace, so handles to them stay valid.
    pub(crate) fn new(
        state: &State,
        stamp: Stamp,
        in_doubt: BTreeMap<Lsn, Doubtful>,
        known: Option<&Families>,
        pool: &Arc<ChunkPool>,
        memory_max: u64,
    ) -> Decoded<Line> {
        let from = state.replay_from();
        let in_doubt_bytes = in_doubt.values().map(Doubtful::bytes).sum();
        let mut families = BTreeMap::new();
        for (id, family) in state.families() {
            let known = known.and_then(|known| known.by_id(id));
            // The writer may have withdrawn a clone, and given its id to another one.
            let keyspace = match known.filter(|known| known.created_at() == family.created) {
                Some(keyspace) => keyspace,
                None => {
                    let made = keyspace_of(id, &family.name, &family.options, family.created)?;
                    Arc::new(made.of_root(family.root))
                }
            };
            families.insert(id, Followed::new(keyspace, &family.name, family.tree.clone()));
        }
        if !families.contains_key(&DEFAULT_FAMILY) {
            return Err(DecodeError::damaged(
                "the manifest has no default column family".to_owned(),
            ));
        }
        Ok(Line {
            stamp,
            trail: Trail::default(),
            terms: state.terms().to_vec(),
            replay_from: from,
            oldest_readable: state.oldest_readable(),
            next: from,
            records: 0,
            looked: Looked::default(),
            families_changed: state.families_changed(),
            next_family: state.next_family(),
            ids_below: state.next_family(),
            epoch: Epoch::of_reader(from, pool),
            streams_held: 0,
            memory_max,
            families,
            gone: 0,
            in_doubt: Arc::new(in_doubt),
            in_doubt_bytes,
            ticks: state.ticks().to_vec(),
            ticks_bytes: 0,
            renewals: 0,
            is_outdated: false,
        })
    }

    /// The number of the term in which it is.
    pub(crate) fn term(&self) -> u64 {
        self.terms.last().map_or(0, |last| last.term)
    }

    /// Bytes of memory that the applied records take.
    pub(crate) fn bytes(&self) -> u64 {
        self.epoch.bytes() + self.in_doubt_bytes + self.ticks_bytes
    }

    /// About what the families take that the log has dropped. A line that begins where the manifest
    /// knows of the drops does not have them.
    pub(crate) fn gone_bytes(&self) -> u64 {
        self.gone * FAMILY_BYTES
    }

    /// True if it holds as many streams of the log as it may, those of values that were replaced
    /// since among them.
    pub(crate) fn is_full_of_streams(&self, most: usize) -> bool {
        self.streams_held >= most
    }

    /// True if a file that is not held open may be gone, because `state` does not name it. A family
    /// whose tree is that of the state still has all of its files.
    pub(crate) fn lacks_files(&self, state: &State) -> bool {
        let is_same = |id: &FamilyId, tree: &Arc<Tree>| {
            state.family(*id).is_some_and(|family| Arc::ptr_eq(&family.tree, tree))
        };
        let families = self.families.iter().filter(|(_, family)| !family.is_dropped());
        let changed = families.filter(|(id, family)| !is_same(id, &family.tree));
        let files = changed.flat_map(|(_, family)| files_of(&family.tree));
        let mut unheld = files.filter(|file| !file.is_kept_open()).peekable();
        unheld.peek().is_some() && {
            let named = state.file_numbers();
            unheld.any(|file| !named.contains(&file.number()))
        }
    }

    /// The numbers of the files in which its tables and their values are.
    pub(crate) fn file_numbers(&self) -> BTreeSet<u64> {
        let files = self.families.values().flat_map(|family| files_of(&family.tree));
        files.map(|file| file.number()).collect()
    }

    /// The least point that the views serve.
    pub(crate) fn floor(&self) -> Lsn {
        self.oldest_readable.map_or(self.next, |oldest| oldest.min(self.next))
    }

    /// The default family.
    pub(crate) fn default_family(&self) -> Arc<Keyspace> {
        self.families[&DEFAULT_FAMILY].keyspace.clone()
    }

    /// Applies the record at `lsn`, which must be the first that is not applied yet. Applies it
    /// whole or not at all.
    pub(crate) fn apply(
        &mut self,
        lsn: Lsn,
        payload: &[u8],
        sources: &Sources<'_>,
    ) -> Result<(), ReadError> {
        assert!(lsn >= self.next, "records are applied once, in order");
        let needed = self.bytes();
        if needed > self.memory_max {
            let limit = self.memory_max;
            return Err(ReadError::Placed(Error::memory_limit(needed, limit)));
        }
        match decode_payload(payload)? {
            Payload::Batch(ops) => {
                self.hold_streams(&ops, sources).map_err(ReadError::Placed)?;
                self.apply_batch(lsn, &ops)?;
            }
            Payload::EpochMarker => {}
            Payload::Tick { unix_ms } => {
                if self.ticks.last().is_none_or(|last| last.lsn < lsn && last.unix_ms < unix_ms) {
                    self.ticks.push(Tick { lsn, unix_ms });
                    self.ticks_bytes += TICK_BYTES;
                }
            }
            Payload::Prepare(prepare) => {
                let doubtful = Doubtful { xid: Xid::new(prepare.xid), payload: payload.into() };
                self.in_doubt_bytes += doubtful.bytes();
                let before = Arc::make_mut(&mut self.in_doubt).insert(lsn, doubtful);
                debug_assert!(before.is_none(), "a record is applied once");
            }
            Payload::Decide(decision) => self.decide(lsn, &decision)?,
            Payload::Spilled(files) => self.copy_spilled(lsn, &files, sources.spills)?,
            // The manifest has these changes already. They are not repeated: names may have been
            // reused since.
            _ if lsn <= self.families_changed => {}
            Payload::FamilyCreate { id, name, options } => self.create(lsn, id, name, options)?,
            Payload::FamilyDrop { id } => self.drop_family(lsn, id),
            Payload::FamilyRename { id, name } => {
                if let Some(family) = self.families.get_mut(&id) {
                    family.name = name.into();
                }
            }
        }
        let payload_len = (payload.len() as u64).next_multiple_of(RECORD_ALIGN);
        self.next = lsn + RECORD_HEADER_LEN as u64 + payload_len;
        self.records += 1;
        Ok(())
    }

    /// Applies what a large commit has in files. It is in memory from then on: the writer removes
    /// the files once it has flushed them.
    fn copy_spilled(
        &mut self,
        lsn: Lsn,
        files: &[SpilledFile],
        spills: &Arc<Spills>,
    ) -> Result<(), ReadError> {
        struct Copied {
            seq: Lsn,
            kind: OpKind,
            family: FamilyId,
            key: Box<[u8]>,
            value: Box<[u8]>,
        }
        let mut copied: Vec<Copied> = Vec::new();
        let mut bytes = self.bytes();
        for (nth, named) in files.iter().enumerate() {
            let file = spills.open(named).map_err(ReadError::Placed)?;
            let seq = spilled_seq(lsn, nth);
            let copy = |op: Operation<'_>| {
                bytes += (op.key.len() + op.value.len()) as u64;
                if bytes > self.memory_max {
                    return Err(Error::memory_limit(bytes, self.memory_max));
                }
                copied.push(Copied {
                    seq: if op.kind.is_span() { seq - 1 } else { seq },
                    kind: op.kind,
                    family: op.family,
                    key: op.key.into(),
                    value: op.value.into(),
                });
                Ok(())
            };
            file.each(copy).map_err(ReadError::Placed)?;
        }
        let ops: Vec<Op<'_>> = copied
            .iter()
            .map(|Copied { kind, family, key, value, .. }| Op {
                kind: *kind,
                family: *family,
                key,
                value,
            })
            .collect();
        Ok(self.apply_ops(lsn, &ops, |at, _| copied[at].seq)?)
    }

    /// Applies a decision whole or not at all.
    fn decide(&mut self, lsn: Lsn, decision: &Decision<'_>) -> Decoded<()> {
        let known = self.in_doubt.get(&decision.prepared);
        let known = known.filter(|known| known.xid.as_bytes() == decision.xid);
        if decision.is_commit {
            let Some(Doubtful { payload, .. }) = known.cloned() else {
                return Err(DecodeError::damaged(format!(
                    "the log record at {lsn:#x} commits the transaction {}, which was never prepared",
                    decision.xid.escape_ascii()
                )));
            };
            let Payload::Prepare(prepare) = decode_payload(&payload)? else {
                return Err(DecodeError::damaged("a commit is of no prepared transaction"));
            };
            self.apply_ops(lsn, &prepare.ops, |_, op| op.decided_at(lsn))?;
        }
        let decided = Arc::make_mut(&mut self.in_doubt).remove(&decision.prepared);
        self.in_doubt_bytes -= decided.map_or(0, |decided| decided.bytes());
        Ok(())
    }

    /// The prepared transactions that are in doubt here, by the LSN of the prepare.
    pub(super) fn in_doubt(&self) -> &Arc<BTreeMap<Lsn, Doubtful>> {
        &self.in_doubt
    }

    /// Passes over records of clones that were made and dropped before the manifest had this state.
    pub(crate) fn note_ids(&mut self, state: &State) {
        self.ids_below = self.ids_below.max(state.next_family());
    }

    /// Opens the streams that a record names: the writer may remove them once it has flushed it. A
    /// stream that is gone was flushed, so the caller begins anew. Those beyond the greatest number
    /// are known, and opened when they are read.
    fn hold_streams(&mut self, ops: &[Op<'_>], sources: &Sources<'_>) -> Result<()> {
        let (mut new, mut count) = (BTreeMap::new(), self.streams_held);
        for op in ops.iter().filter(|op| op.kind.is_streamed()) {
            let family = self.families.get(&op.family);
            let Ok(address) = StreamAddress::of(op.kind, op.value) else { continue };
            let is_known =
                || new.contains_key(&address.file) || self.epoch.stream(address.file).is_some();
            if family.is_some_and(|family| !family.is_dropped()) && !is_known() {
                let obsolete = ObsoleteFiles::new();
                obsolete.shut();
                let file = LiveFile::new(address.file, &obsolete);
                if count < sources.streams_max {
                    file.keep_open(sources.tables.files.hold(address.file, FileKind::Blob)?);
                    count += 1;
                }
                new.insert(address.file, file);
            }
        }
        debug_assert!(count <= sources.streams_max, "descriptors are few");
        self.streams_held = count;
        if !new.is_empty() {
            self.epoch.add_streams(&new.into_values().collect::<Vec<_>>());
        }
        Ok(())
    }

    fn apply_batch(&mut self, lsn: Lsn, ops: &[Op<'_>]) -> Decoded<()> {
        self.apply_ops(lsn, ops, |ordinal, _| lsn + ordinal as u64)
    }

    fn apply_ops(
        &mut self,
        lsn: Lsn,
        ops: &[Op<'_>],
        seq_of: impl Fn(usize, &Op<'_>) -> Lsn,
    ) -> Decoded<()> {
        let known_below = self.next_family.max(self.ids_below);
        let unknown =
            |op: &&Op<'_>| op.family >= known_below && !self.families.contains_key(&op.family);
        if let Some(op) = ops.iter().find(unknown) {
            return Err(DecodeError::damaged(format!(
                "the log record at {lsn:#x} writes to column family {}, which was never created",
                op.family
            )));
        }
        for (ordinal, op) in ops.iter().enumerate() {
            // A write that raced the drop of its family is skipped.
            let family = self.families.get_mut(&op.family);
            let Some(family) = family.filter(|family| !family.is_dropped()) else { continue };
            if family.memtable.is_none() {
                family.memtable = Some(self.epoch.memtable(op.family));
                family.renew_view(&self.epoch);
            }
            if let Some(memtable) = &family.memtable {
                memtable.apply(op.key, seq_of(ordinal, op), op.kind, op.value);
            }
        }
        Ok(())
    }

    fn create(&mut self, lsn: Lsn, id: FamilyId, name: &str, options: &[u8]) -> Decoded<()> {
        if id < self.next_family || id == FamilyId::MAX {
            return Err(DecodeError::damaged(format!(
                "it creates column family {id}, an id that is spent"
            )));
        }
        let keyspace = Arc::new(keyspace_of(id, name, options, lsn)?);
        self.families.insert(id, Followed::new(keyspace, name, Arc::default()));
        self.next_family = id + 1;
        Ok(())
    }

    fn drop_family(&mut self, lsn: Lsn, id: FamilyId) {
        let family = self.families.get_mut(&id).filter(|family| !family.is_dropped());
        if let Some(family) = family.filter(|_| id != DEFAULT_FAMILY) {
            family.dropped_at = lsn;
            family.renew_view(&self.epoch);
            self.gone += 1;
        }
    }

    /// True if `state` has a clone that the line should show and does not know, or no longer has
    /// one that the line knows. A clone is in no record of the log: who follows the log has to
    /// begin anew. A writer that finds no room for the edit of a clone withdraws it, and may make
    /// another one of the same id, of a later moment.
    pub(crate) fn lacks_clone(&self, state: &State) -> bool {
        let has = |id: FamilyId, created: Lsn| {
            let family = self.families.get(&id);
            family.is_some_and(|family| family.keyspace.created_at() == created)
        };
        let is_withdrawn = |(id, family): (&FamilyId, &Followed)| {
            let is_clone = family.keyspace.root != *id;
            is_clone && !family.is_dropped() && state.family(*id).is_none()
        };
        let mut known = state.families();
        known.any(|(id, family)| family.created < self.next && !has(id, family.created))
            || (state.families_changed() < self.next && self.families.iter().any(is_withdrawn))
    }

    /// The views that readers of each family pin from now on.
    pub(super) fn views(&self) -> BTreeMap<FamilyId, Arc<View>> {
        self.families.iter().map(|(id, family)| (*id, family.view.clone())).collect()
    }

    /// Gives the families the options that they have in `state`. To be called before the line is
    /// shown: a reader must not meet operands of a family that has no operator here yet.
    pub(crate) fn tell_options(&self, state: &State) -> Decoded<()> {
        for (id, family) in state.families() {
            let Some(followed) = self.families.get(&id) else { continue };
            let options = FamilyOptions::from_stored(&family.options)?;
            if options != *followed.keyspace.options() {
                followed.keyspace.set_options(options);
            }
        }
        Ok(())
    }

    /// Brings `families` up to date with the log: the families that exist, their names, and their
    /// trees for the metrics.
    pub(crate) fn tell_families(&self, families: &Families) {
        let living = || self.families.values().filter(|family| !family.is_dropped());
        living().for_each(|family| family.keyspace.install(family.tree.clone(), None));
        let named = living().map(|family| (family.keyspace.clone(), family.name.clone()));
        families.replace_all(named).iter().for_each(|gone| gone.note_gone());
    }
}

/// The files of a tree: those of the tables, and those in which their values are.
fn files_of(tree: &Tree) -> impl Iterator<Item = &Arc<LiveFile>> {
    tree.iter().flat_map(|(_, slice)| {
        let Slice { file, blobs, streams, .. } = &**slice;
        iter::once(file).chain(blobs).chain(streams)
    })
}

fn keyspace_of(id: FamilyId, name: &str, options: &[u8], created: Lsn) -> Decoded<Keyspace> {
    let options = FamilyOptions::from_stored(options)?;
    Ok(Keyspace::new(id, name, options, created, Arc::default()))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::engine::{Engine, Ticks};
    use crate::env::Env;
    use crate::format::{OpKind, put_batch_prefix, put_op, put_payload};
    use crate::vfs::MemoryFs;
    use crate::{Db, Options};
    use std::path::Path;

    fn batch(family: FamilyId) -> Vec<u8> {
        let mut payload = Vec::new();
        put_batch_prefix(&mut payload, 1);
        put_op(&mut payload, &Op { kind: OpKind::Put, family, key: b"key", value: b"value" });
        payload
    }

    fn open(fs: &MemoryFs) -> Db {
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        Options::new().env(env).open("/db").unwrap()
    }

    /// A line from the state of the database, and what it applies records from.
    fn line_of<'a>(fs: &MemoryFs, db: &'a Db) -> (Line, Sources<'a>) {
        let (engine, stamp) = (db.engine(), Stamp::read(fs, Path::new("/db")).unwrap());
        let (versions, pool) = (engine.versions.lock(), Arc::new(ChunkPool::new(16 << 10, 0, 0)));
        let line = Line::new(versions.state(), stamp, BTreeMap::new(), None, &pool, u64::MAX);
        let Engine { spills, tables, .. } = &**engine;
        (line.unwrap(), Sources { spills, tables, streams_max: 8 })
    }

    #[test]
    fn the_ticks_of_the_log_are_learned_and_no_manifest_is_to_be_told() {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let (mut line, sources) = line_of(&fs, &db);
        let at = line.next;
        for unix_ms in [5, 5, 7] {
            let mut payload = Vec::new();
            put_payload(&mut payload, &Payload::Tick { unix_ms });
            line.apply(line.next, &payload, &sources).unwrap();
        }
        let told: Vec<u64> = line.ticks.iter().map(|tick| tick.unix_ms).collect();
        assert_eq!((told, line.ticks[0].lsn, line.records), (vec![5, 7], at, 3));
        let ticks = Ticks::of(&[]);
        ticks.come_to(ticks.follow(&mut line, 9));
        assert_eq!(ticks.newest(), 9);
        assert!(ticks.changes(0, Lsn::MAX).is_none(), "they would be kept for the manifest");
    }

    #[test]
    fn a_tick_that_only_the_manifest_has_left_has_passed_for_all_that_is_left() {
        let fs = MemoryFs::new();
        let db = open(&fs);
        let (mut line, _) = line_of(&fs, &db);
        let tick = |lsn, unix_ms| Tick { lsn, unix_ms };
        line.ticks = vec![tick(line.next - 2, 5), tick(line.next + 8, 9)];
        let ticks = Ticks::of(&[]);
        ticks.come_to(ticks.follow(&mut line, 7));
        assert_eq!(ticks.time_at(line.next), Some(9));
        assert_eq!(ticks.time_at(line.next - 1), Some(5));
        line.next += 20;
        ticks.come_to(ticks.follow(&mut line, 11));
        assert_eq!((ticks.time_at(line.next - 1), ticks.time_at(line.next)), (Some(9), Some(11)));
    }

    #[test]
    fn a_record_of_a_family_that_was_never_created_is_damage_and_one_of_a_dropped_family_is_none() {
        let fs = MemoryFs::new();
        let db = open(&fs);
        db.drop_family(&db.family("gone").unwrap()).unwrap();
        let (mut line, sources) = line_of(&fs, &db);
        let next = line.next_family;
        for (family, is_known) in [(next, false), (DEFAULT_FAMILY, true), (next - 1, true)] {
            let applied = line.apply(line.next, &batch(family), &sources);
            assert_eq!(applied.is_ok(), is_known, "{family}");
        }
        assert_eq!(line.records, 2);
    }
}
