//! The effect of an edit, worked out beside the state that it starts from.
//!
//! First the changes are applied one by one ([`Draft::new`]), each checked against the result of
//! those before it. Then the trees are built ([`Draft::build_trees`]), and the conditions at the
//! end of an edit are checked.

use super::edit::{Change, Edit, Moment, Term, Tick};
use super::files::{LiveFile, ObsoleteFiles};
use super::names::NUMBER_END;
use super::slice::Slice;
use super::state::{Family, Numbers, PreparedFile, State};
use super::tree::Tree;
use crate::env::{Plant, planted};
use crate::error::{DecodeError, Decoded};
use crate::format::{DEFAULT_FAMILY, FamilyId, Lsn};
use crate::limits::MAX_XID_LEN;
use crate::table::SliceMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where the files of added slices come from.
#[derive(Debug)]
pub(crate) enum FileSource<'a> {
    /// A job made the edit, and has held its output files since it created them. By their numbers,
    /// as there may be very many: streams, and entries of transactions that are in doubt.
    Outputs(BTreeMap<u64, &'a Arc<LiveFile>>),
    /// A manifest is replayed: each file gets its [`LiveFile`] when an edit first names it.
    Replay { known: &'a mut BTreeMap<u64, Arc<LiveFile>>, obsolete: &'a Arc<ObsoleteFiles> },
}

#[cfg(test)]
thread_local! {
    /// How often this thread has looked for a slice that a family shares with one before it.
    pub(super) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The effect of an edit, not yet in place.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) numbers: Numbers,
    pub(super) terms: Vec<Term>,
    pub(super) moments: Vec<Moment>,
    pub(super) ticks: Vec<Tick>,
    pub(super) families: BTreeMap<FamilyId, DraftedFamily>,
    /// Names that an edit gives to a family or frees.
    pub(super) names: BTreeMap<Arc<str>, Option<FamilyId>>,
    /// Prepared transactions that an edit adds or, without a file, removes.
    pub(super) prepared: BTreeMap<Lsn, Option<PreparedFile>>,
    /// Xids that it gives to a transaction in doubt or frees.
    pub(super) xids: BTreeMap<Arc<[u8]>, bool>,
    /// Those that it adds, before their files are found: the file's number and length, the xid.
    added: BTreeMap<Lsn, (u64, u64, Arc<[u8]>)>,
}

#[derive(Debug)]
pub(super) struct DraftedFamily {
    /// `None` if the edit drops it.
    pub(super) family: Option<Family>,
    removed: Vec<(usize, u64)>,
    added: Vec<(usize, SliceMeta)>,
}

fn check(holds: bool, complaint: impl FnOnce() -> String) -> Decoded<()> {
    if holds { Ok(()) } else { Err(DecodeError::damaged(complaint())) }
}

impl Draft {
    pub(super) fn new(state: &State, edit: &Edit) -> Decoded<Draft> {
        let mut draft = Draft::of(state);
        draft.fold_all(state, edit)?;
        Ok(draft)
    }

    /// The effect of an edit without changes.
    pub(super) fn of(state: &State) -> Draft {
        Draft {
            numbers: Numbers { clean_close: None, ..state.numbers },
            terms: Vec::new(),
            moments: Vec::new(),
            ticks: Vec::new(),
            families: BTreeMap::new(),
            names: BTreeMap::new(),
            prepared: BTreeMap::new(),
            xids: BTreeMap::new(),
            added: BTreeMap::new(),
        }
    }

    /// Adds the effect of another edit, which comes behind those before it. After an error the
    /// draft is unusable.
    pub(super) fn extend(
        &mut self,
        state: &State,
        edit: &Edit,
        files: FileSource<'_>,
    ) -> Decoded<()> {
        self.fold_all(state, edit)?;
        self.build_trees(files)
    }

    fn fold_all(&mut self, state: &State, edit: &Edit) -> Decoded<()> {
        edit.changes.iter().try_for_each(|change| self.fold(state, change))?;
        self.check_numbers()
    }

    fn fold(&mut self, state: &State, change: &Change) -> Decoded<()> {
        let numbers = &mut self.numbers;
        let opens = matches!(change, Change::Database { .. });
        check(numbers.uuid.is_some() != opens, || {
            "a manifest begins with the database's identity, once".to_owned()
        })?;
        match change {
            Change::Database { uuid } => numbers.uuid = Some(*uuid),
            Change::CreateFamily { .. }
            | Change::CloneFamily { .. }
            | Change::Lineage { .. }
            | Change::DropFamily { .. }
            | Change::RenameFamily { .. }
            | Change::SetFamilyOptions { .. }
            | Change::AddSlice { .. }
            | Change::AddShared { .. }
            | Change::RemoveSlice { .. } => self.fold_of_family(state, change)?,
            Change::FamiliesChanged { lsn } => {
                advance("families' change", &mut numbers.families_changed, *lsn)?;
            }
            Change::ReplayFrom { lsn } => advance("replay start", &mut numbers.replay_from, *lsn)?,
            Change::LsnCeiling { lsn } => advance("LSN ceiling", &mut numbers.ceiling, *lsn)?,
            Change::DurableLsn { lsn } => advance("durable LSN", &mut numbers.durable, *lsn)?,
            Change::OldestReadable { lsn } => {
                advance("oldest readable point", &mut numbers.oldest_readable, *lsn)?;
            }
            Change::History { span_ms } => numbers.history_ms = *span_ms,
            Change::Moments { moments } => {
                for moment in moments {
                    note_moment(numbers, *moment)?;
                    self.moments.push(*moment);
                }
            }
            Change::Ticks { ticks } => {
                ticks.iter().try_for_each(|tick| note_tick(numbers, *tick))?;
                self.ticks.extend(ticks);
            }
            Change::NextFile { number } => advance("next file", &mut numbers.next_file, *number)?,
            Change::NextFamily { family } => {
                check(*family >= numbers.next_family, || {
                    format!("the next family moves back from {} to {family}", numbers.next_family)
                })?;
                numbers.next_family = *family;
            }
            Change::Term(term) => self.begin_term(*term)?,
            Change::AddPrepared { lsn, xid, file, len } => {
                self.add_prepared(state, *lsn, xid, (*file, *len))?;
            }
            Change::RemovePrepared { lsn } => self.remove_prepared(state, *lsn)?,
            Change::CleanClose { end } => {
                check(is_log_end(numbers, *end), || {
                    format!("the log cannot end at {end}: {numbers:?}")
                })?;
                numbers.clean_close = Some(*end);
                numbers.ceiling = *end;
            }
        }
        Ok(())
    }

    /// Applies a change of one family; any other changes nothing here.
    fn fold_of_family(&mut self, state: &State, change: &Change) -> Decoded<()> {
        match change {
            Change::CreateFamily { family, name, options, lsn } => {
                note_change(&mut self.numbers, *lsn)?;
                self.create_family(state, *family, name, options, *lsn)?;
            }
            Change::CloneFamily { family, source, name, options, lsn } => {
                note_change(&mut self.numbers, *lsn)?;
                self.clone_family(state, (*family, *source), name, options, *lsn)?;
            }
            Change::Lineage { family, root } => self.existing(state, *family)?.root = *root,
            Change::DropFamily { family, lsn } => {
                note_change(&mut self.numbers, *lsn)?;
                self.drop_family(state, *family)?;
            }
            Change::RenameFamily { family, name, lsn } => {
                note_change(&mut self.numbers, *lsn)?;
                self.rename(state, *family, name)?;
            }
            Change::SetFamilyOptions { family, options } => {
                self.existing(state, *family)?.options = options.as_slice().into();
            }
            Change::AddSlice { level, meta } => {
                self.add_slice(state, meta.family, *level, meta)?;
            }
            Change::AddShared { family, level, meta } => {
                self.add_slice(state, *family, *level, meta)?;
            }
            Change::RemoveSlice { family, level, file } => {
                self.existing(state, *family)?;
                self.touch(state, *family).removed.push((*level, *file));
            }
            _ => {}
        }
        Ok(())
    }

    fn create_family(
        &mut self,
        state: &State,
        id: FamilyId,
        name: &str,
        options: &[u8],
        lsn: Lsn,
    ) -> Decoded<()> {
        check(id >= self.numbers.next_family && id < FamilyId::MAX, || {
            format!("family {id} is created, but ids below {} are spent", self.numbers.next_family)
        })?;
        self.claim_name(state, id, name)?;
        self.numbers.next_family = id + 1;
        let family = Family {
            name: name.into(),
            options: options.into(),
            tree: Arc::default(),
            created: lsn,
            root: id,
        };
        let drafted =
            DraftedFamily { family: Some(family), removed: Vec::new(), added: Vec::new() };
        self.families.insert(id, drafted);
        Ok(())
    }

    /// The clone shares the tree that its source has before this edit.
    fn clone_family(
        &mut self,
        state: &State,
        (id, source): (FamilyId, FamilyId),
        name: &str,
        options: &[u8],
        lsn: Lsn,
    ) -> Decoded<()> {
        let known = state.families.get(&source).filter(|_| !self.families.contains_key(&source));
        let Some(known) = known else {
            return Err(DecodeError::damaged(format!(
                "family {id} is a clone of {source}, which is not there or changes in the same edit"
            )));
        };
        self.create_family(state, id, name, options, lsn)?;
        let clone = self.existing(state, id)?;
        (clone.tree, clone.root) = (known.tree.clone(), known.root);
        Ok(())
    }

    fn drop_family(&mut self, state: &State, id: FamilyId) -> Decoded<()> {
        check(id != DEFAULT_FAMILY, || "the default family cannot be dropped".to_owned())?;
        let name = Arc::clone(&self.existing(state, id)?.name);
        self.names.insert(name, None);
        let drafted = self.touch(state, id);
        *drafted = DraftedFamily { family: None, removed: Vec::new(), added: Vec::new() };
        Ok(())
    }

    fn rename(&mut self, state: &State, id: FamilyId, name: &str) -> Decoded<()> {
        let old = Arc::clone(&self.existing(state, id)?.name);
        if *old == *name {
            return Ok(());
        }
        self.claim_name(state, id, name)?;
        self.names.insert(old, None);
        self.existing(state, id)?.name = name.into();
        Ok(())
    }

    fn claim_name(&mut self, state: &State, id: FamilyId, name: &str) -> Decoded<()> {
        let owner = match self.names.get(name) {
            Some(owner) => *owner,
            None => state.names.get(name).copied(),
        };
        check(owner.is_none(), || format!("two families are called {name:?}"))?;
        self.names.insert(name.into(), Some(id));
        Ok(())
    }

    fn add_slice(
        &mut self,
        state: &State,
        family: FamilyId,
        level: usize,
        meta: &SliceMeta,
    ) -> Decoded<()> {
        check(meta.file > 0 && meta.is_sane(), || format!("a slice contradicts itself: {meta:?}"))?;
        self.existing(state, family)?;
        self.touch(state, family).added.push((level, meta.clone()));
        self.numbers.seq_end = self.numbers.seq_end.max(meta.max_seq + 1);
        Ok(())
    }

    fn add_prepared(
        &mut self,
        state: &State,
        lsn: Lsn,
        xid: &[u8],
        (file, len): (u64, u64),
    ) -> Decoded<()> {
        let is_taken = match self.xids.get(xid) {
            Some(is_taken) => *is_taken,
            None => state.xids.contains(xid),
        };
        let is_new = !self.is_prepared(state, lsn) && !is_taken;
        let is_named = (1..=MAX_XID_LEN).contains(&xid.len());
        check(is_new && is_named && lsn > 0 && file > 0, || {
            format!("transaction {} is prepared twice, or has no name", xid.escape_ascii())
        })?;
        let xid: Arc<[u8]> = xid.into();
        self.xids.insert(xid.clone(), true);
        self.added.insert(lsn, (file, len, xid));
        Ok(())
    }

    fn remove_prepared(&mut self, state: &State, lsn: Lsn) -> Decoded<()> {
        check(self.is_prepared(state, lsn), || {
            format!("no transaction that was prepared at {lsn} is in doubt")
        })?;
        let xid = match self.added.remove(&lsn) {
            Some((_, _, xid)) => Some(xid),
            None => {
                self.prepared.insert(lsn, None);
                state.prepared.get(&lsn).map(|known| known.xid.clone())
            }
        };
        self.xids.extend(xid.map(|xid| (xid, false)));
        Ok(())
    }

    fn is_prepared(&self, state: &State, lsn: Lsn) -> bool {
        let is_removed = self.prepared.contains_key(&lsn);
        self.added.contains_key(&lsn) || state.prepared.contains_key(&lsn) && !is_removed
    }

    fn begin_term(&mut self, term: Term) -> Decoded<()> {
        let numbers = &mut self.numbers;
        check(is_next_term(numbers, term), || {
            format!("term {term:?} cannot follow {:?} below {}", numbers.last_term, numbers.ceiling)
        })?;
        numbers.last_term = Some(term);
        self.terms.push(term);
        Ok(())
    }

    fn touch(&mut self, state: &State, id: FamilyId) -> &mut DraftedFamily {
        self.families.entry(id).or_insert_with(|| DraftedFamily {
            family: state.families.get(&id).cloned(),
            removed: Vec::new(),
            added: Vec::new(),
        })
    }

    fn existing(&mut self, state: &State, id: FamilyId) -> Decoded<&mut Family> {
        let known = self.families.contains_key(&id) || state.families.contains_key(&id);
        let family = if known { self.touch(state, id).family.as_mut() } else { None };
        family.ok_or_else(|| DecodeError::damaged(format!("there is no family {id}")))
    }

    fn check_numbers(&self) -> Decoded<()> {
        let numbers = &self.numbers;
        check(numbers.uuid.is_some(), || "the first edit is empty".to_owned())?;
        check(is_below_ceiling(numbers), || {
            format!("an LSN in use is above the ceiling: {numbers:?}")
        })?;
        check(self.added.keys().all(|lsn| *lsn < numbers.replay_from), || {
            format!("a prepared transaction in a file would be replayed, too: {numbers:?}")
        })
    }

    /// Builds the tree of each family that lost or gained slices since it was built last. A tree
    /// that the state still holds is copied; any other is changed in place.
    pub(super) fn build_trees(&mut self, mut files: FileSource<'_>) -> Decoded<()> {
        let is_foreign = |id: FamilyId, meta: &SliceMeta| meta.family != id;
        let mut drafted = self.families.iter();
        let has_shared =
            drafted.any(|(id, of)| of.added.iter().any(|(_, meta)| is_foreign(*id, meta)));
        // A clone comes after its source, so the slices that it shares are made by then.
        let mut made: BTreeMap<(FamilyId, u64, u64), Arc<Slice>> = BTreeMap::new();
        let place_of = |meta: &SliceMeta| (meta.family, meta.file, meta.root.offset);
        for (&id, drafted) in &mut self.families {
            let Some(family) = &mut drafted.family else { continue };
            if drafted.removed.is_empty() && drafted.added.is_empty() {
                continue;
            }
            let tree = Arc::make_mut(&mut family.tree);
            let removed = tree.remove(&std::mem::take(&mut drafted.removed))?;
            let removed = Removed::of(removed, tree);
            let mut added = Vec::with_capacity(drafted.added.len());
            for (level, meta) in drafted.added.drain(..) {
                let last = meta.value_files().chain([meta.file]).max();
                check(last < Some(self.numbers.next_file), || {
                    format!("file {last:?} is not below the next file")
                })?;
                #[cfg(test)]
                LOOKS.set(LOOKS.get() + usize::from(is_foreign(id, &meta)));
                let shared = is_foreign(id, &meta).then(|| made.get(&place_of(&meta))).flatten();
                let slice = match shared.filter(|slice| slice.meta == meta) {
                    Some(slice) => slice.clone(),
                    None => files.resolve(meta, level, &removed)?,
                };
                if has_shared {
                    made.entry(place_of(&slice.meta)).or_insert_with(|| slice.clone());
                }
                added.push((level, slice));
            }
            tree.add(added)?;
        }
        for (lsn, (number, len, xid)) in std::mem::take(&mut self.added) {
            check(number < self.numbers.next_file, || {
                format!("file {number} is not below the next file")
            })?;
            let file = files.find(number)?;
            self.prepared.insert(lsn, Some(PreparedFile { xid, file, len }));
        }
        Ok(())
    }
}

impl Draft {
    /// Makes the levels that the edit has changed ready for searches, so that no reader does.
    pub(super) fn prepare_levels(&self) {
        let families = self.families.values().filter_map(|drafted| drafted.family.as_ref());
        let levels = families.flat_map(|family| &family.tree.levels);
        levels.for_each(|level| level.prepare());
    }
}

/// The slices of a family that an edit removes, by their files, and the files of their values.
struct Removed {
    slices: BTreeMap<u64, Arc<Slice>>,
    blobs: BTreeMap<u64, Arc<LiveFile>>,
    /// Those of the slices that scans have passed through.
    scanned: Vec<Arc<Slice>>,
    /// What scans usually pass in the newest run that stays.
    run_scan_bytes: u64,
}

impl Removed {
    fn of(slices: Vec<Arc<Slice>>, left: &Tree) -> Removed {
        let blobs = slices.iter().flat_map(|slice| slice.blobs.iter().chain(&slice.streams));
        let blobs = blobs.map(|file| (file.number(), file.clone())).collect();
        let scanned = slices.iter().filter(|slice| slice.usual_scan_bytes() > 0).cloned().collect();
        let run_scan_bytes = left.runs.first().map_or(0, |run| run.usual_scan_bytes());
        let slices = slices.into_iter().map(|slice| (slice.meta.file, slice)).collect();
        Removed { slices, blobs, scanned, run_scan_bytes }
    }

    /// What scans will pass in a slice that is added: as much as in those whose place it takes, or
    /// in the newest run. Of several the deepest has most of the keys, and scans pass most there.
    fn expected_scan_bytes(&self, level: usize, meta: &SliceMeta) -> u64 {
        let gone = self.scanned.iter().filter(|gone| gone.extent().overlaps(&meta.extent()));
        let most = gone.map(|gone| gone.usual_scan_bytes()).max();
        most.unwrap_or(if level == 0 { self.run_scan_bytes } else { 0 })
    }
}

impl<'a> FileSource<'a> {
    pub(crate) fn outputs(files: &'a [Arc<LiveFile>]) -> FileSource<'a> {
        FileSource::Outputs(files.iter().map(|file| (file.number(), file)).collect())
    }

    /// The slice that `meta` describes. Of those that the edit removes, one of the same file moves,
    /// and blob files go over to those that are added.
    fn resolve(&mut self, meta: SliceMeta, level: usize, removed: &Removed) -> Decoded<Arc<Slice>> {
        let moved = removed.slices.get(&meta.file);
        if let Some(moved) = moved.filter(|moved| moved.meta == meta) {
            return Ok(Arc::clone(moved));
        }
        let mut blobs = Vec::with_capacity(meta.blobs.len());
        for share in &meta.blobs {
            let held = removed.blobs.get(&share.file);
            let taken = |file: &Arc<LiveFile>| match planted(Plant::BlobOwnedTwice) {
                true => file.twin(),
                false => file.clone(),
            };
            blobs.push(held.map_or_else(|| self.find(share.file), |file| Ok(taken(file)))?);
        }
        let mut streams = Vec::with_capacity(meta.streams.len());
        for share in &meta.streams {
            let held = removed.blobs.get(&share.file);
            streams.push(held.map_or_else(|| self.find(share.file), |file| Ok(file.clone()))?);
        }
        let file = moved.map_or_else(|| self.find(meta.file), |moved| Ok(moved.file.clone()))?;
        let scan_bytes = removed.expected_scan_bytes(level, &meta);
        Ok(Slice::with_streams(meta, file, blobs.into(), streams.into(), scan_bytes))
    }

    fn find(&mut self, number: u64) -> Decoded<Arc<LiveFile>> {
        let file = match self {
            FileSource::Outputs(outputs) => outputs.get(&number).map(|file| Arc::clone(file)),
            FileSource::Replay { known, obsolete } => {
                let file = known.entry(number).or_insert_with(|| LiveFile::new(number, obsolete));
                Some(Arc::clone(file))
            }
        };
        file.ok_or_else(|| {
            DecodeError::damaged(format!("file {number} is added, but no job holds it"))
        })
    }
}

/// Notes that families changed at `lsn`. The state may already have a later change.
fn note_change(numbers: &mut Numbers, lsn: Lsn) -> Decoded<()> {
    let newest = lsn.max(numbers.families_changed);
    advance("families' change", &mut numbers.families_changed, newest)
}

/// Notes when the database was at a point. Both ascend.
fn note_tick(numbers: &mut Numbers, tick: Tick) -> Decoded<()> {
    let is_later = |last: Tick| last.unix_ms < tick.unix_ms && last.lsn < tick.lsn;
    check(numbers.last_tick.is_none_or(is_later), || {
        format!("{tick:?} does not follow {:?}", numbers.last_tick)
    })?;
    numbers.last_tick = Some(tick);
    Ok(())
}

fn note_moment(numbers: &mut Numbers, moment: Moment) -> Decoded<()> {
    let is_later = |last: Moment| last.unix_ms < moment.unix_ms && last.point < moment.point;
    check(numbers.last_moment.is_none_or(is_later), || {
        format!("{moment:?} does not follow {:?}", numbers.last_moment)
    })?;
    numbers.last_moment = Some(moment);
    Ok(())
}

/// Raises a number that may only grow, within limits that keep later additions from wrapping.
fn advance(what: &str, number: &mut u64, to: u64) -> Decoded<()> {
    check(to < NUMBER_END, || format!("the {what} cannot be {to}"))?;
    check(to >= *number, || format!("the {what} moves back from {number} to {to}"))?;
    *number = to;
    Ok(())
}

fn is_next_term(numbers: &Numbers, term: Term) -> bool {
    let (last, last_begin) = numbers.last_term.map_or((0, 0), |last| (last.term, last.resumes_at));
    term.term > last
        && term.term < NUMBER_END
        && term.ended_at >= last_begin
        && term.ended_at >= numbers.durable
        && term.resumes_at >= term.ended_at
        && term.resumes_at >= numbers.ceiling
}

fn is_log_end(numbers: &Numbers, end: Lsn) -> bool {
    numbers.replay_from <= end && numbers.durable <= end && end <= numbers.ceiling
}

fn is_below_ceiling(numbers: &Numbers) -> bool {
    let term_begin = numbers.last_term.map_or(0, |term| term.resumes_at);
    term_begin <= numbers.ceiling
        && numbers.replay_from <= numbers.ceiling
        && numbers.durable <= numbers.ceiling
        && numbers.seq_end <= numbers.ceiling
        && numbers.oldest_readable <= numbers.ceiling
        && numbers.last_moment.is_none_or(|last| last.point <= numbers.ceiling)
}
