//! The state of the database on disk: the result of all edits of its manifest.
//!
//! An edit is applied whole or not at all. A [`Draft`] of its effect is made and checked, and only
//! then replaces what it changes. The cost of both depends on the edit and the levels that it
//! touches, not on the number of families.
//!
//! Invariants of every state, beside those that [`Tree`] keeps for each family:
//!
//! - Every file in a tree is below `next_file`, every family below `next_family`, every sequence
//!   below `ceiling`. So no number is ever used twice.
//! - The running term begins at or below `ceiling`.
//! - `replay_from` and `durable` never move back and are never above `ceiling`.
//! - `oldest_readable` never moves back and is never above `ceiling`. Moments ascend, and none is
//!   below it. Ticks ascend, and at most one of them is below it.
//! - Every prepared transaction that has a file was prepared below `replay_from`, and has an xid of
//!   its own.
//! - After a clean close `ceiling` is the log's end: an edit must raise it before any LSN is used.

use super::draft::{Draft, FileSource};
use super::edit::{Change, Edit, Moment, Term, Tick};
use super::files::{LiveFile, ObsoleteFiles};
use super::tree::Tree;
use crate::error::Decoded;
use crate::format::{FamilyId, Lsn, Succession};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many terms a manifest keeps. A cursor from an older term cannot be resumed.
const TERMS_KEPT: usize = 64;

/// How many moments a manifest keeps: each open and each close adds one, however long the history,
/// and a history has two in each 4,096th.
const MOMENTS_KEPT: usize = 16_384;

/// A column family.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    pub(crate) name: Arc<str>,
    /// The family's options as JSON. This room does not read them.
    pub(crate) options: Arc<[u8]>,
    pub(crate) tree: Arc<Tree>,
    /// The LSN of the log record that created it. Of a clone, the greatest point that does not see
    /// it; what its slices hold was written below that.
    pub(crate) created: Lsn,
    /// The family itself. Of a clone, the family that the first of its ancestors is; that may be
    /// dropped.
    pub(crate) root: FamilyId,
}

/// The file of a prepared transaction that is in doubt.
#[derive(Clone, Debug)]
pub(crate) struct PreparedFile {
    pub(crate) xid: Arc<[u8]>,
    pub(crate) file: Arc<LiveFile>,
    /// The length of the file.
    pub(crate) len: u64,
}

/// Everything that the manifest says.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(super) numbers: Numbers,
    terms: Vec<Term>,
    /// Ascending.
    moments: Vec<Moment>,
    /// Ascending.
    ticks: Vec<Tick>,
    pub(super) families: BTreeMap<FamilyId, Family>,
    pub(super) names: BTreeMap<Arc<str>, FamilyId>,
    /// By the LSN of the prepare.
    pub(super) prepared: BTreeMap<Lsn, PreparedFile>,
    /// The xids of those.
    pub(super) xids: BTreeSet<Arc<[u8]>>,
}

/// The part of the state that is copied for each edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) next_file: u64,
    pub(super) next_family: FamilyId,
    pub(super) replay_from: Lsn,
    pub(super) ceiling: Lsn,
    pub(super) durable: Lsn,
    pub(super) clean_close: Option<Lsn>,
    /// The greatest LSN of a creation, drop or rename of a family.
    pub(super) families_changed: Lsn,
    /// The least point that the tables serve; 0 if it is not known.
    pub(super) oldest_readable: Lsn,
    /// For how long points stay readable.
    pub(super) history_ms: u64,
    /// The newest moment that is kept.
    pub(super) last_moment: Option<Moment>,
    /// The newest tick that is kept.
    pub(super) last_tick: Option<Tick>,
    /// A number above every sequence of every slice that existed since the manifest's snapshot.
    pub(super) seq_end: Lsn,
    pub(super) last_term: Option<Term>,
}

impl State {
    /// What an edit makes of nothing. No file is removed when the state is let go.
    pub(crate) fn of(edit: &Edit) -> Decoded<State> {
        let obsolete = ObsoleteFiles::new();
        obsolete.shut();
        let mut state = State::default();
        let known = &mut BTreeMap::new();
        state.apply(edit, FileSource::Replay { known, obsolete: &obsolete })?;
        Ok(state)
    }

    /// The files that contain slices, values of slices, or prepared transactions.
    pub(crate) fn file_numbers(&self) -> BTreeSet<u64> {
        let slices = self.families().flat_map(|(_, family)| family.tree.iter());
        let prepared = self.prepared.values().map(|prepared| prepared.file.number());
        let mut numbers: BTreeSet<u64> = prepared.collect();
        for (_, slice) in slices {
            numbers.insert(slice.meta.file);
            numbers.extend(slice.meta.value_files());
        }
        numbers
    }

    /// Prepared transactions that are in doubt and have a file, by the LSN of the prepare.
    pub(crate) fn prepared(&self) -> &BTreeMap<Lsn, PreparedFile> {
        &self.prepared
    }

    /// The database's identity; zeros before the first edit.
    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.numbers.uuid.unwrap_or_default()
    }

    pub(crate) fn family(&self, id: FamilyId) -> Option<&Family> {
        self.families.get(&id)
    }

    /// Releases all tables, because the database is closed.
    pub(super) fn let_go(&mut self) {
        self.families.values_mut().for_each(|family| family.tree = Arc::default());
        self.prepared.clear();
        self.xids.clear();
    }

    /// All families, by ascending id.
    pub(crate) fn families(&self) -> impl Iterator<Item = (FamilyId, &Family)> {
        self.families.iter().map(|(id, family)| (*id, family))
    }

    #[cfg(test)]
    pub(crate) fn family_id(&self, name: &str) -> Option<FamilyId> {
        self.names.get(name).copied()
    }

    /// Files at or above this number have never existed.
    pub(crate) fn next_file(&self) -> u64 {
        self.numbers.next_file
    }

    /// The id for the next family that is created.
    pub(crate) fn next_family(&self) -> FamilyId {
        self.numbers.next_family
    }

    /// Where replay of the log begins. Everything below is in tables.
    pub(crate) fn replay_from(&self) -> Lsn {
        self.numbers.replay_from
    }

    /// LSNs at or above this have never been given out.
    pub(crate) fn ceiling(&self) -> Lsn {
        self.numbers.ceiling
    }

    /// The log is known to be durable up to this LSN.
    pub(crate) fn durable(&self) -> Lsn {
        self.numbers.durable
    }

    /// The end of the log, if the database was closed cleanly and no edit followed.
    pub(crate) fn clean_close(&self) -> Option<Lsn> {
        self.numbers.clean_close
    }

    /// Creations, drops and renames of families up to this LSN are part of the state.
    pub(crate) fn families_changed(&self) -> Lsn {
        self.numbers.families_changed
    }

    /// What the records of the log from `replay from` on follow.
    pub(crate) fn succession(&self) -> Succession {
        let known = (self.next_family(), self.families_changed());
        let families = self.families().map(|(id, family)| (id, &*family.name));
        let in_doubt = self.prepared().iter().map(|(lsn, prepared)| (*lsn, &*prepared.xid));
        Succession::new(known, families, in_doubt)
    }

    /// The least point at which tables and log together hold all that a reader sees. `None` if no
    /// edit says so: the database is from before that was kept, or repaired.
    pub(crate) fn oldest_readable(&self) -> Option<Lsn> {
        Some(self.numbers.oldest_readable).filter(|lsn| *lsn > 0)
    }

    /// For how many milliseconds points stay readable; 0 for no longer than snapshots hold them.
    pub(crate) fn history_ms(&self) -> u64 {
        self.numbers.history_ms
    }

    /// When the database was at which point, ascending; none of the points is below the oldest that
    /// is readable.
    pub(crate) fn moments(&self) -> &[Moment] {
        &self.moments
    }

    /// What time it was from which LSN on, ascending, as far as points that can be read ask for it.
    pub(crate) fn ticks(&self) -> &[Tick] {
        &self.ticks
    }

    /// The term that is running.
    pub(crate) fn term(&self) -> Term {
        self.numbers.last_term.unwrap_or(Term { term: 0, ended_at: 0, resumes_at: 0, seed: 0 })
    }

    /// The terms that are kept, oldest first.
    pub(crate) fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Checks an edit and works out its effect, without changing anything.
    pub(super) fn draft(&self, edit: &Edit, files: FileSource<'_>) -> Decoded<Draft> {
        let mut draft = Draft::new(self, edit)?;
        draft.build_trees(files)?;
        Ok(draft)
    }

    /// Puts a draft in place and returns the families that it changed. No other edit may have come
    /// in between.
    pub(super) fn commit(&mut self, draft: Draft) -> Vec<FamilyId> {
        self.check_forward(&draft.numbers);
        self.numbers = draft.numbers;
        self.terms.extend(draft.terms);
        let surplus = self.terms.len().saturating_sub(TERMS_KEPT);
        self.terms.drain(..surplus);
        debug_assert!(
            self.terms.windows(2).all(|pair| pair[0].resumes_at <= pair[1].ended_at),
            "terms share LSNs: {:?}",
            self.terms
        );
        self.moments.extend(draft.moments);
        let oldest = self.numbers.oldest_readable;
        let gone = self.moments.partition_point(|moment| moment.point < oldest);
        self.moments.drain(..gone);
        if self.moments.len() > MOMENTS_KEPT {
            thin_out(&mut self.moments);
        }
        self.numbers.last_moment = self.moments.last().copied();
        self.ticks.extend(draft.ticks);
        let below = self.ticks.partition_point(|tick| tick.lsn < oldest);
        self.ticks.drain(..below.saturating_sub(1));
        self.numbers.last_tick = self.ticks.last().copied();
        for (name, owner) in draft.names {
            match owner {
                Some(id) => self.names.insert(name, id),
                None => self.names.remove(&name),
            };
        }
        let mut touched = Vec::with_capacity(draft.families.len());
        for (id, drafted) in draft.families {
            touched.push(id);
            match drafted.family {
                Some(family) => self.families.insert(id, family),
                None => self.families.remove(&id),
            };
        }
        debug_assert_eq!(self.names.len(), self.families.len(), "each family has one name");
        for (xid, is_taken) in draft.xids {
            match is_taken {
                true => self.xids.insert(xid),
                false => self.xids.remove(&xid),
            };
        }
        for (lsn, prepared) in draft.prepared {
            match prepared {
                Some(prepared) => self.prepared.insert(lsn, prepared),
                None => self.prepared.remove(&lsn),
            };
        }
        debug_assert!(
            self.prepared.keys().all(|lsn| *lsn < self.numbers.replay_from),
            "a prepared transaction is in the log and in a file"
        );
        debug_assert_eq!(self.xids.len(), self.prepared.len(), "each in doubt has one xid");
        touched
            .iter()
            .filter_map(|id| self.families.get(id))
            .for_each(|one| self.check_family(one));
        touched
    }

    /// What only grows has not gone back.
    fn check_forward(&self, next: &Numbers) {
        let now = &self.numbers;
        debug_assert!(now.uuid.is_none() || now.uuid == next.uuid, "a database changed identity");
        debug_assert!(now.next_file <= next.next_file, "file numbers would be reused");
        debug_assert!(now.next_family <= next.next_family, "ids of families would be reused");
        debug_assert!(now.replay_from <= next.replay_from, "flushed records would be replayed");
        debug_assert!(now.durable <= next.durable, "synced records would count as lost");
        debug_assert!(now.families_changed <= next.families_changed, "a change would be repeated");
        debug_assert!(now.seq_end <= next.seq_end, "a slice is above the end of sequences");
        debug_assert!(next.replay_from <= next.ceiling, "replay would begin above the ceiling");
        debug_assert!(next.durable <= next.ceiling, "the log is durable above the ceiling");
    }

    /// What holds of a family after each edit.
    fn check_family(&self, family: &Family) {
        let metas = || family.tree.iter().map(|(_, slice)| &slice.meta);
        debug_assert!(
            metas().all(|meta| meta.file < self.numbers.next_file),
            "a slice lies in a file whose number is not given out yet"
        );
        debug_assert!(
            metas().all(|meta| meta.max_seq < self.numbers.seq_end),
            "a slice has sequences above the end of all"
        );
        debug_assert!(self.names.contains_key(&family.name), "a family lost its name");
    }

    /// Applies an edit whole or, if it breaks a rule, not at all. Returns the families that it
    /// changed.
    pub(crate) fn apply(&mut self, edit: &Edit, files: FileSource<'_>) -> Decoded<Vec<FamilyId>> {
        let draft = self.draft(edit, files)?;
        Ok(self.commit(draft))
    }

    /// Like [`State::apply`], in place: no level is copied, but after an error the state is
    /// unusable.
    pub(super) fn replay(&mut self, edit: &Edit, files: FileSource<'_>) -> Decoded<()> {
        let mut draft = Draft::new(self, edit)?;
        for id in draft.families.keys() {
            if let Some(family) = self.families.get_mut(id) {
                family.tree = Arc::default();
            }
        }
        draft.build_trees(files)?;
        self.commit(draft);
        Ok(())
    }

    /// Spends the numbers in an edit that may be on disk though it does not count: a reader beside
    /// the writer may have seen them. The next manifest, which is begun before anything else is
    /// appended, says so. A new family that the log names, too, keeps its number.
    pub(super) fn note_doubtful(&mut self, edit: &Edit, next_file: u64) {
        let numbers = &mut self.numbers;
        numbers.next_file = numbers.next_file.max(next_file);
        for change in &edit.changes {
            if let Change::CloneFamily { family, .. } = change {
                numbers.next_family = numbers.next_family.max(family.saturating_add(1));
            }
        }
    }

    /// The edit that makes this state from an empty one. A clean close is not part of it: a new
    /// manifest begins because an edit follows, and that edit ends the clean close.
    pub(crate) fn snapshot(&self) -> Edit {
        let numbers = &self.numbers;
        let mut changes = vec![Change::Database { uuid: self.uuid() }];
        // Terms come before the ceiling, because each must begin above the ceiling at its time.
        changes.extend(self.terms.iter().copied().map(Change::Term));
        changes.extend([
            Change::LsnCeiling { lsn: numbers.ceiling },
            Change::DurableLsn { lsn: numbers.durable },
            Change::ReplayFrom { lsn: numbers.replay_from },
            Change::NextFile { number: numbers.next_file },
        ]);
        changes.extend(self.oldest_readable().map(|lsn| Change::OldestReadable { lsn }));
        if numbers.history_ms > 0 {
            changes.push(Change::History { span_ms: numbers.history_ms });
        }
        if !self.moments.is_empty() {
            changes.push(Change::Moments { moments: self.moments.clone() });
        }
        if !self.ticks.is_empty() {
            changes.push(Change::Ticks { ticks: self.ticks.clone() });
        }
        for (&id, family) in &self.families {
            changes.push(Change::CreateFamily {
                family: id,
                name: family.name.to_string(),
                options: family.options.to_vec(),
                lsn: family.created,
            });
            if family.root != id {
                changes.push(Change::Lineage { family: id, root: family.root });
            }
            let slices = family.tree.iter();
            changes.extend(
                slices.map(|(level, slice)| Change::add_slice(id, level, slice.meta.clone())),
            );
        }
        changes.extend(self.prepared.iter().map(|(lsn, prepared)| Change::AddPrepared {
            lsn: *lsn,
            xid: prepared.xid.to_vec(),
            file: prepared.file.number(),
            len: prepared.len,
        }));
        changes.push(Change::NextFamily { family: numbers.next_family });
        changes.push(Change::FamiliesChanged { lsn: numbers.families_changed });
        Edit::new(changes)
    }
}

/// Forgets every second moment, but neither the oldest nor the newest. A time then has the point of
/// an earlier one, and what stays readable begins no later.
pub(crate) fn thin_out(moments: &mut Vec<Moment>) {
    let newest = moments.len().saturating_sub(1);
    let mut at = 0..;
    moments.retain(|_| at.next().is_some_and(|at| at == 0 || (newest - at).is_multiple_of(2)));
}

#[cfg(test)]
mod tests;
