//! What the manifests say: everything, if the current one can be read; otherwise what can be read
//! of all existing ones.
//!
//! Each record of a manifest can be read by itself, so the edits after a damaged one can be read
//! too. They say less than a state: it is unknown which slices the lost edits added and removed.

use super::Repair;
use crate::error::{ErrorKind, Result};
use crate::format::{DEFAULT_FAMILY, FamilyId, Lsn, Succession};
use crate::options::FamilyOptions;
use crate::table::{Label, SliceMeta};
use crate::version::{
    COUNTED_END, CURRENT, Change, DEFAULT_FAMILY_NAME, Edit, ManifestReader, ObsoleteFiles, State,
    Term, Tick, manifest_number, manifest_path, read_current, refuse_stale_current, salvage_edits,
    table_path,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A column family.
#[derive(Clone, Debug)]
pub(super) struct KnownFamily {
    pub(super) name: String,
    /// JSON.
    pub(super) options: Vec<u8>,
    pub(super) created: Lsn,
    /// The family that the first of its ancestors is, if it is a clone; otherwise itself.
    pub(super) root: FamilyId,
}

/// What is known about the database.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The current manifest was read completely: what it does not name does not belong to the
    /// database.
    pub(super) is_exact: bool,
    /// The manifest that was read.
    pub(super) manifest: PathBuf,
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) families: BTreeMap<FamilyId, KnownFamily>,
    pub(super) dropped: BTreeSet<FamilyId>,
    /// Below this the snapshot of a manifest has seen all families, and ids are never used twice.
    spent_ids: FamilyId,
    /// The families whose options nothing tells. The default family has the defaults then.
    pub(super) untold: BTreeSet<FamilyId>,
    /// The families that may have slices of others.
    pub(super) clones: BTreeSet<FamilyId>,
    /// The slices with their levels, by the family that has them in its tree, and by their file. A
    /// clone has slices that were written for another family.
    pub(super) slices: BTreeMap<(FamilyId, u64), (usize, SliceMeta)>,
    /// How many gaps lie before the edit that tells the level of a slice. Between two edits with
    /// the same number none is lost.
    pub(super) learned: BTreeMap<(FamilyId, u64), u64>,
    /// The gaps in the manifests so far: places where edits may be lost.
    gaps: u64,
    pub(super) removed: BTreeSet<(FamilyId, u64)>,
    /// Prepared transactions that are in doubt, by the LSN of the prepare: xid, file, its length.
    pub(super) prepared: BTreeMap<Lsn, (Vec<u8>, u64, u64)>,
    pub(super) terms: Vec<Term>,
    pub(super) replay_from: Lsn,
    pub(super) ceiling: Lsn,
    pub(super) durable: Lsn,
    pub(super) families_changed: Lsn,
    /// For how many milliseconds points stay readable; 0 without a history.
    pub(super) history_ms: u64,
    /// The last tick that is known of.
    pub(super) last_tick: Option<Tick>,
    pub(super) next_file: u64,
    pub(super) next_family: FamilyId,
    /// Messages about names that families had to give up.
    pub(super) unseated: Vec<String>,
}

/// Reads the manifests.
pub(super) fn gather(repair: &mut Repair<'_>) -> Result<Facts> {
    let entries = repair.fs.list(repair.db)?;
    let mut numbers: Vec<u64> =
        entries.iter().filter_map(|entry| manifest_number(&entry.name)).collect();
    numbers.sort_unstable();
    let state = match current(repair)? {
        Some(number) => in_force(repair, number)?.map(|state| (number, state)),
        None => newest(repair, &numbers)?,
    };
    if let Some(state) = state {
        let (number, state) = state;
        let manifest = manifest_path(repair.db, number);
        return Ok(Facts { manifest, ..Facts::of(&state) });
    }
    let mut facts = Facts::default();
    for number in numbers {
        let path = manifest_path(repair.db, number);
        let bytes = repair.read_leniently(&path)?;
        let salvaged = salvage_edits(&bytes, number).map_err(|error| error.in_file(&path, 0))?;
        facts.gaps += 1;
        for mut salvaged in salvaged {
            facts.gaps += u64::from(!salvaged.follows);
            salvaged.edit.changes.retain(is_possible);
            facts.absorb(&salvaged.edit);
        }
    }
    Ok(facts)
}

/// The number of the current manifest, if `CURRENT` can be read and is not an old copy.
fn current(repair: &mut Repair<'_>) -> Result<Option<u64>> {
    let path = repair.db.join(CURRENT);
    if !repair.fs.exists(&path)? {
        repair.damage(&path, None, "it is missing");
        return Ok(None);
    }
    let number = read_current(&*repair.fs, repair.db).and_then(|number| {
        refuse_stale_current(&*repair.fs, repair.db, number)?;
        Ok(number)
    });
    repair.absorb(number)
}

fn in_force(repair: &mut Repair<'_>, number: u64) -> Result<Option<State>> {
    let path = manifest_path(repair.db, number);
    if !repair.fs.exists(&path)? {
        repair.damage(&path, None, "it is missing, yet CURRENT names it");
        return Ok(None);
    }
    let state = fold(repair, number);
    repair.absorb(state)
}

fn fold(repair: &Repair<'_>, number: u64) -> Result<State> {
    let path = manifest_path(repair.db, number);
    Ok(ManifestReader::open(&*repair.fs, &path)?.fold(&ObsoleteFiles::new())?.0)
}

/// The state of the newest manifest that is intact and names no missing table.
fn newest(repair: &mut Repair<'_>, numbers: &[u64]) -> Result<Option<(u64, State)>> {
    let mut best: Option<((u64, Lsn, u64), u64, State)> = None;
    for &number in numbers {
        let state = match fold(repair, number) {
            Ok(state) => state,
            Err(error) if matches!(error.kind(), ErrorKind::NewerFormat { .. }) => {
                return Err(error);
            }
            Err(error) => {
                repair.absorb::<()>(Err(error))?;
                continue;
            }
        };
        let age = (state.term().term, state.replay_from(), state.next_file());
        if has_all_tables(repair, &state)? && best.as_ref().is_none_or(|best| best.0 <= age) {
            best = Some((age, number, state));
        }
    }
    Ok(best.map(|(_, number, state)| {
        let path = manifest_path(repair.db, number);
        let guess = format!("{} is taken for the manifest that was in force", path.display());
        repair.report.guesses.push(guess);
        (number, state)
    }))
}

fn has_all_tables(repair: &Repair<'_>, state: &State) -> Result<bool> {
    for number in state.file_numbers() {
        if !repair.fs.exists(&table_path(repair.db, number))? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks the numbers in an edit that no state has checked. They must leave room to count on from
/// them.
fn is_possible(change: &Change) -> bool {
    let number = match change {
        Change::AddSlice { meta, .. } | Change::AddShared { meta, .. } => {
            let files = meta.value_files().chain([meta.file]);
            return files.max() < Some(COUNTED_END) && meta.is_sane();
        }
        Change::AddPrepared { lsn, file, .. } => (*lsn).max(*file),
        Change::Term(term) => term.resumes_at.max(term.ended_at).max(term.term),
        Change::NextFile { number } => *number,
        Change::CreateFamily { lsn, .. }
        | Change::CloneFamily { lsn, .. }
        | Change::ReplayFrom { lsn }
        | Change::LsnCeiling { lsn }
        | Change::DurableLsn { lsn } => *lsn,
        _ => 0,
    };
    number < COUNTED_END
}

/// True if these stored options name a merge operator.
fn merges(stored: &[u8]) -> bool {
    FamilyOptions::from_stored(stored).is_ok_and(|options| options.merge_operator.is_some())
}

impl Facts {
    fn of(state: &State) -> Facts {
        let mut facts = Facts::default();
        facts.absorb(&state.snapshot());
        facts.terms = state.terms().to_vec();
        facts.is_exact = true;
        facts
    }

    fn absorb(&mut self, edit: &Edit) {
        let is_snapshot = matches!(edit.changes.first(), Some(Change::Database { .. }));
        if is_snapshot {
            // A snapshot lists everything: what it does not name had been removed.
            self.removed.extend(std::mem::take(&mut self.slices).into_keys());
            self.dropped.extend(std::mem::take(&mut self.families).into_keys());
            self.terms.clear();
            self.prepared.clear();
            self.history_ms = 0;
        }
        edit.changes.iter().for_each(|change| self.apply(change));
        let spent = edit.changes.iter().filter_map(|change| match change {
            Change::NextFamily { family } if is_snapshot => Some(*family),
            _ => None,
        });
        self.spent_ids = spent.max().unwrap_or(0).max(self.spent_ids);
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Database { uuid } => self.uuid = Some(*uuid),
            Change::CreateFamily { family, name, options, lsn } => {
                self.create(*family, name, options, *lsn);
            }
            Change::CloneFamily { family, source, name, options, lsn } => {
                self.create(*family, name, options, *lsn);
                let root = self.families.get(source).map_or(*source, |source| source.root);
                self.note_root(*family, root);
                let shared = self.slices.range((*source, 0)..=(*source, u64::MAX));
                let shared: Vec<_> =
                    shared.map(|((_, file), slice)| (*file, slice.clone())).collect();
                for (file, slice) in shared {
                    let learned = self.learned.get(&(*source, file)).copied();
                    self.learned.insert((*family, file), learned.unwrap_or_default());
                    self.slices.insert((*family, file), slice);
                }
            }
            Change::Lineage { family, root } => self.note_root(*family, *root),
            Change::DropFamily { family, lsn } => self.drop_family(*family, *lsn),
            Change::RenameFamily { family, name, lsn } => self.rename(*family, name, *lsn),
            Change::SetFamilyOptions { family, options } => {
                if let Some(known) = self.families.get_mut(family) {
                    known.options = options.clone();
                }
            }
            Change::AddSlice { level, meta } => self.add_slice(meta.family, *level, meta),
            Change::AddShared { family, level, meta } => {
                self.clones.insert(*family);
                self.add_slice(*family, *level, meta);
            }
            Change::RemoveSlice { family, file, .. } => {
                self.slices.remove(&(*family, *file));
                self.removed.insert((*family, *file));
            }
            Change::ReplayFrom { lsn } => self.replay_from = self.replay_from.max(*lsn),
            Change::LsnCeiling { lsn } => self.ceiling = self.ceiling.max(*lsn),
            Change::NextFile { number } => self.next_file = self.next_file.max(*number),
            Change::NextFamily { family } => self.next_family = self.next_family.max(*family),
            Change::Term(term) => self.terms.push(*term),
            Change::DurableLsn { lsn } => self.durable = self.durable.max(*lsn),
            Change::FamiliesChanged { lsn } => {
                self.families_changed = self.families_changed.max(*lsn);
            }
            Change::AddPrepared { lsn, xid, file, len } => {
                self.prepared.insert(*lsn, (xid.clone(), *file, *len));
            }
            Change::RemovePrepared { lsn } => {
                self.prepared.remove(lsn);
            }
            Change::Ticks { ticks } => ticks.iter().for_each(|tick| self.note_tick(*tick)),
            Change::History { span_ms } => self.history_ms = *span_ms,
            // A repaired database begins a new history, of the same span.
            Change::OldestReadable { .. } | Change::Moments { .. } | Change::CleanClose { .. } => {}
        }
    }

    fn add_slice(&mut self, family: FamilyId, level: usize, meta: &SliceMeta) {
        let slice = (family, meta.file);
        self.removed.remove(&slice);
        self.slices.insert(slice, (level, meta.clone()));
        self.learned.insert(slice, self.gaps);
    }

    fn note_root(&mut self, family: FamilyId, root: FamilyId) {
        self.clones.insert(family);
        if let Some(known) = self.families.get_mut(&family) {
            known.root = root;
        }
    }

    /// What the records of the log follow. Without the manifest, they follow anything.
    pub(super) fn succession(&self) -> Succession {
        if !self.is_exact {
            return Succession::unknown();
        }
        let families = self.families.iter().map(|(id, known)| (*id, &*known.name));
        let in_doubt = self.prepared.iter().map(|(lsn, (xid, ..))| (*lsn, &**xid));
        Succession::new((self.next_family, self.families_changed), families, in_doubt)
    }

    /// The families that have the slice of `family` in a file, as far as that is known. If the
    /// manifest is not, the family itself may have it.
    pub(super) fn holders(&self, family: FamilyId, file: u64) -> Vec<FamilyId> {
        let has = |holder: FamilyId| {
            self.slices.get(&(holder, file)).is_some_and(|(_, meta)| meta.family == family)
        };
        let own = std::iter::once(family).filter(|own| !self.is_exact || has(*own));
        let clones = self.clones.iter().copied().filter(|clone| *clone != family && has(*clone));
        own.chain(clones).collect()
    }

    /// What the manifests say of the slices in a file, each once.
    pub(super) fn in_file(&self, number: u64) -> Vec<SliceMeta> {
        let known = self.slices.values().map(|(_, meta)| meta);
        let mut known: Vec<_> = known.filter(|meta| meta.file == number).cloned().collect();
        known.sort_by_key(|meta| meta.family);
        known.dedup_by_key(|meta| meta.family);
        known
    }

    /// Time goes on where it was: what has ended stays so.
    pub(super) fn note_tick(&mut self, tick: Tick) {
        if self.last_tick.is_none_or(|last| last.unix_ms < tick.unix_ms) {
            self.last_tick = Some(tick);
        }
    }

    pub(super) fn create(&mut self, id: FamilyId, name: &str, options: &[u8], lsn: Lsn) {
        if id == FamilyId::MAX {
            return;
        }
        self.unseat(name, id);
        let (name, options) = (name.to_owned(), options.to_vec());
        self.dropped.remove(&id);
        self.untold.remove(&id);
        self.families.insert(id, KnownFamily { name, options, created: lsn, root: id });
        self.next_family = self.next_family.max(id.saturating_add(1));
        self.families_changed = self.families_changed.max(lsn);
    }

    pub(super) fn drop_family(&mut self, id: FamilyId, lsn: Lsn) {
        if id == DEFAULT_FAMILY {
            return;
        }
        self.families.remove(&id);
        self.slices.retain(|(family, _), _| *family != id);
        self.dropped.insert(id);
        self.families_changed = self.families_changed.max(lsn);
    }

    /// True if the manifests or the log say so of a family, or if it is older than a manifest that
    /// does not have it.
    pub(super) fn is_dropped(&self, id: FamilyId) -> bool {
        self.dropped.contains(&id) || (id < self.spent_ids && !self.families.contains_key(&id))
    }

    /// Takes a name from another family than `id`. The edit that dropped or renamed that family is
    /// lost.
    fn unseat(&mut self, name: &str, id: FamilyId) {
        let holder =
            self.families.iter_mut().find(|(held, known)| **held != id && known.name == name);
        if let Some((other, known)) = holder {
            known.name = format!("recovered-{other}");
            self.unseated.push(format!(
                "column family {other} was dropped or renamed, as {id} has its name {name:?}: it is {}",
                known.name
            ));
        }
    }

    pub(super) fn rename(&mut self, id: FamilyId, name: &str, lsn: Lsn) {
        if self.families.contains_key(&id) {
            self.unseat(name, id);
        }
        if let Some(known) = self.families.get_mut(&id) {
            known.name = name.to_owned();
        }
        self.families_changed = self.families_changed.max(lsn);
    }

    /// Returns an error if the options of a family can be read only by a later version, because the
    /// meaning of the family's data may depend on them, or if they name a codec that this build
    /// lacks: it could not open the result.
    pub(super) fn check_options(&self, db: &Path) -> Result<()> {
        let path = if self.manifest.as_os_str().is_empty() { db } else { &self.manifest };
        for known in self.families.values() {
            let read = FamilyOptions::from_stored(&known.options);
            read.and_then(|it| it.demand_codecs()).map_err(|error| error.in_file(path, 0))?;
        }
        Ok(())
    }

    /// True if a family has a merge operator, by what is known of it or by the label of a slice.
    /// The manifest may be from before the family got its operator, and the label may be lost.
    pub(super) fn merges(&self, id: FamilyId, label: Option<&Label>) -> bool {
        self.families.get(&id).is_some_and(|known| merges(&known.options))
            || label.is_some_and(|label| merges(&label.options))
    }

    /// Takes a family's name from the label of a table, or invents one, if no better name is known.
    pub(super) fn name_family(
        &mut self,
        id: FamilyId,
        label: Option<&Label>,
        guesses: &mut Vec<String>,
    ) {
        if self.families.contains_key(&id) || id == FamilyId::MAX {
            return;
        }
        let is_taken = |name: &str| self.families.values().any(|known| known.name == name);
        let from_label = label.map(|label| label.name.clone()).filter(|name| !is_taken(name));
        let name = match from_label {
            _ if id == DEFAULT_FAMILY => DEFAULT_FAMILY_NAME.to_owned(),
            Some(name) => {
                guesses.push(format!(
                    "column family {id} is called {name:?}, as its newest table says"
                ));
                name
            }
            None => {
                // Edits that are left name what a known clone shares.
                let shared = match self.clones.contains(&id) {
                    true => "",
                    false => "; if it was a clone, what it shared is not in it",
                };
                guesses.push(format!(
                    "the name of column family {id} is lost: it is recovered-{id}{shared}"
                ));
                format!("recovered-{id}")
            }
        };
        let read = label.and_then(|label| FamilyOptions::from_stored(&label.options).ok());
        if let Some(root) = read.and_then(|options| options.is_clone_of()) {
            guesses.push(format!(
                "column family {id} was made as a clone of family {root}, or of a clone of it: without a manifest, the \
                 tables that it shared count as those of the other alone"
            ));
        }
        if label.is_none() && id != DEFAULT_FAMILY {
            self.untold.insert(id);
        }
        let options = label.map(|label| label.options.clone()).filter(|json| !json.is_empty());
        let options = options.unwrap_or_else(|| FamilyOptions::unlabelled().to_stored());
        self.families.insert(id, KnownFamily { name, options, created: 0, root: id });
        self.next_family = self.next_family.max(id.saturating_add(1));
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_family_merges_if_the_manifest_says_so_or_a_label() {
        let (name, created) = (String::new(), 0);
        let stored = FamilyOptions::new().merge_operator("isobath.counter").to_stored();
        let plain = FamilyOptions::new().to_stored();
        let known = |options| KnownFamily { name: name.clone(), options, created, root: 1 };
        let families = BTreeMap::from([(1, known(stored.clone())), (2, known(plain.clone()))]);
        let facts = Facts { families, ..Facts::default() };
        let label = |options| Label { name: name.clone(), options };
        let (merging, not) = (label(stored), label(plain));
        let said = |id| [None, Some(&not), Some(&merging)].map(|label| facts.merges(id, label));
        assert_eq!(said(1), [true, true, true]);
        assert_eq!(said(2), [false, false, true]);
        assert_eq!(said(3), [false, false, true]);
    }
}
