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
use crate::error::{DecodeError, Decoded};
use crate::format::{DEFAULT_FAMILY, FamilyId, Lsn};
use crate::limits::MAX_XID_LEN;
use crate::table::SliceMeta;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where the files of added slices come from.
#[derive(Debug)]
pub(crate) enum FileSource<'a> {
    /// A job made the edit, and has held its output files since it created them.
    Outputs(&'a [Arc<LiveFile>]),
    /// A manifest is replayed: each file gets its [`LiveFile`] when an edit first names it.
    Replay { known: &'a mut BTreeMap<u64, Arc<LiveFile>>, obsolete: &'a Arc<ObsoleteFiles> },
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
        let mut draft = Draft {
            numbers: Numbers { clean_close: None, ..state.numbers },
            terms: Vec::new(),
            moments: Vec::new(),
            ticks: Vec::new(),
            families: BTreeMap::new(),
            names: BTreeMap::new(),
            prepared: BTreeMap::new(),
            added: BTreeMap::new(),
        };
        for change in &edit.changes {
            draft.fold(state, change)?;
        }
        draft.check_numbers()?;
        Ok(draft)
    }

    fn fold(&mut self, state: &State, change: &Change) -> Decoded<()> {
        let numbers = &mut self.numbers;
        let opens = matches!(change, Change::Database { .. });
        check(numbers.uuid.is_some() != opens, || {
            "a manifest begins with the database's identity, once".to_owned()
        })?;
        match change {
            Change::Database { uuid } => numbers.uuid = Some(*uuid),
            Change::CreateFamily { family, name, options, lsn } => {
                note_change(numbers, *lsn)?;
                self.create_family(state, *family, name, options, *lsn)?;
            }
            Change::DropFamily { family, lsn } => {
                note_change(numbers, *lsn)?;
                self.drop_family(state, *family)?;
            }
            Change::RenameFamily { family, name, lsn } => {
                note_change(numbers, *lsn)?;
                self.rename(state, *family, name)?;
            }
            Change::FamiliesChanged { lsn } => {
                advance("families' change", &mut numbers.families_changed, *lsn)?;
            }
            Change::SetFamilyOptions { family, options } => {
                self.existing(state, *family)?.options = options.as_slice().into();
            }
            Change::AddSlice { level, meta } => self.add_slice(state, *level, meta)?,
            Change::RemoveSlice { family, level, file } => {
                self.existing(state, *family)?;
                self.touch(state, *family).removed.push((*level, *file));
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
            tree: Arc::new(Tree::default()),
            created: lsn,
        };
        let drafted =
            DraftedFamily { family: Some(family), removed: Vec::new(), added: Vec::new() };
        self.families.insert(id, drafted);
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

    fn add_slice(&mut self, state: &State, level: usize, meta: &SliceMeta) -> Decoded<()> {
        check(meta.file > 0 && meta.is_sane(), || format!("a slice contradicts itself: {meta:?}"))?;
        self.existing(state, meta.family)?;
        self.touch(state, meta.family).added.push((level, meta.clone()));
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
        let is_known = |other: &Lsn| self.is_prepared(state, *other);
        let of_state = state.prepared.iter().filter(|(lsn, _)| is_known(lsn));
        let mut others = of_state.map(|(_, known)| &known.xid);
        let is_new = !is_known(&lsn)
            && others.all(|other| **other != *xid)
            && self.added.values().all(|(_, _, other)| **other != *xid);
        let is_named = (1..=MAX_XID_LEN).contains(&xid.len());
        check(is_new && is_named && lsn > 0 && file > 0, || {
            format!("transaction {} is prepared twice, or has no name", xid.escape_ascii())
        })?;
        self.added.insert(lsn, (file, len, xid.into()));
        Ok(())
    }

    fn remove_prepared(&mut self, state: &State, lsn: Lsn) -> Decoded<()> {
        check(self.is_prepared(state, lsn), || {
            format!("no transaction that was prepared at {lsn} is in doubt")
        })?;
        if self.added.remove(&lsn).is_none() {
            self.prepared.insert(lsn, None);
        }
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

    /// Builds the tree of each family that lost or gained slices. A tree that the state still holds
    /// is copied; any other is changed in place.
    pub(super) fn build_trees(&mut self, mut files: FileSource<'_>) -> Decoded<()> {
        for drafted in self.families.values_mut() {
            let Some(family) = &mut drafted.family else { continue };
            if drafted.removed.is_empty() && drafted.added.is_empty() {
                continue;
            }
            let mut added = Vec::with_capacity(drafted.added.len());
            for (level, meta) in drafted.added.drain(..) {
                check(meta.file < self.numbers.next_file, || {
                    format!("file {} is not below the next file", meta.file)
                })?;
                let moved = drafted.removed.iter().find(|(_, file)| *file == meta.file);
                let moved = moved.and_then(|&(level, file)| family.tree.get(level, file));
                added.push((level, files.resolve(meta, moved)?));
            }
            Arc::make_mut(&mut family.tree).change(&drafted.removed, added)?;
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

impl FileSource<'_> {
    /// The slice that `meta` describes. `moved` is the slice of the same file that the edit
    /// removes.
    fn resolve(&mut self, meta: SliceMeta, moved: Option<&Arc<Slice>>) -> Decoded<Arc<Slice>> {
        if let Some(moved) = moved {
            return Ok(match moved.meta == meta {
                true => Arc::clone(moved),
                false => Slice::new(meta, Arc::clone(&moved.file)),
            });
        }
        let file = self.find(meta.file)?;
        Ok(Slice::new(meta, file))
    }

    fn find(&mut self, number: u64) -> Decoded<Arc<LiveFile>> {
        let file = match self {
            FileSource::Outputs(outputs) => {
                outputs.iter().find(|file| file.number() == number).cloned()
            }
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
