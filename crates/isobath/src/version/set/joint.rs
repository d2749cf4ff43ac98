//! Several edits that share a record of the manifest, and so its sync.
//!
//! Each is made under the lock of the version set, when it is its turn, and drafted on the effect
//! of those before it. The record has the changes of all of them, one edit behind the other: an
//! open finds all or none. No one is told of one of them before all of them are durable. An edit
//! that breaks a rule is left out; a failure of the write is one of all that are in the record.
//!
//! At most one of them is of each family. So each settles with the tree that it has left itself.

use super::VersionSet;
use crate::env::{Reach, reached_if};
use crate::error::Result;
use crate::format::{FamilyId, Lsn};
use crate::version::draft::{Draft, FileSource};
use crate::version::edit::{Change, Edit, Moment, Tick};
use crate::version::files::LiveFile;
use crate::version::state::State;
use std::sync::Arc;

/// Makes an edit, by what those before it leave.
pub(crate) type Plan = Box<dyn FnOnce(&Ahead<'_>) -> Result<Planned> + Send>;

/// An edit of one family that shares a record with others.
pub(crate) struct Joint {
    /// The only family that it changes.
    pub(crate) family: FamilyId,
    /// Makes the edit, or refuses to.
    pub(crate) plan: Plan,
    /// Called with the state that has the edit, before the lock of the version set is released.
    pub(crate) settle: Box<dyn FnOnce(&State) + Send>,
}

/// An edit, with the files of the slices that it adds.
pub(crate) struct Planned {
    pub(crate) edit: Edit,
    pub(crate) outputs: Vec<Arc<LiveFile>>,
}

/// What the edits before one in the same record leave, as far as edits ask for it.
pub(crate) struct Ahead<'a> {
    state: &'a State,
    draft: &'a Draft,
}

impl Ahead<'_> {
    pub(crate) fn has_family(&self, id: FamilyId) -> bool {
        match self.draft.families.get(&id) {
            Some(drafted) => drafted.family.is_some(),
            None => self.state.family(id).is_some(),
        }
    }

    /// See [`State::oldest_readable`].
    pub(crate) fn oldest_readable(&self) -> Option<Lsn> {
        Some(self.draft.numbers.oldest_readable).filter(|lsn| *lsn > 0)
    }

    /// The newest moment that the manifest has.
    pub(crate) fn last_moment(&self) -> Option<Moment> {
        self.draft.numbers.last_moment
    }

    /// See [`State::replay_from`].
    pub(crate) fn replay_from(&self) -> Lsn {
        self.draft.numbers.replay_from
    }

    /// The newest tick that the manifest has.
    pub(crate) fn last_tick(&self) -> Option<Tick> {
        self.draft.numbers.last_tick
    }
}

impl VersionSet {
    /// Makes edits take effect in their order, by one record, and returns the outcome of each.
    /// Errors mean the same as for [`VersionSet::install`].
    pub(crate) fn install_joint(&mut self, joint: Vec<Joint>) -> Vec<Result<()>> {
        let mut draft = Draft::of(&self.state);
        let (mut taken, mut settles): (Vec<Planned>, _) = (Vec::new(), Vec::new());
        let mut outcomes = Vec::with_capacity(joint.len());
        for Joint { family, plan, settle } in joint {
            debug_assert!(!draft.families.contains_key(&family), "two edits of family {family}");
            let ahead = Ahead { state: &self.state, draft: &draft };
            let joined =
                plan(&ahead).and_then(|planned| self.join(&mut draft, &mut taken, planned));
            debug_assert!(
                draft
                    .families
                    .keys()
                    .all(|id| { *id == family || settles.iter().any(|(of, _)| of == id) }),
                "an edit of family {family} changes another one"
            );
            if joined.is_ok() {
                settles.push((family, settle));
            }
            outcomes.push(joined);
        }
        if taken.is_empty() {
            return outcomes;
        }
        reached_if(Reach::EditsJoint, || taken.len() > 1);
        let edit = Edit::new(taken.into_iter().flat_map(|one| one.edit.changes).collect());
        match self.put(&edit, draft) {
            Ok(_) => settles.into_iter().for_each(|(_, settle)| settle(&self.state)),
            Err(error) => {
                let in_record = outcomes.iter_mut().filter(|outcome| outcome.is_ok());
                in_record.for_each(|outcome| *outcome = Err(error.clone()));
            }
        }
        outcomes
    }

    /// Adds an edit to the draft. If it breaks a rule, the draft is that of the edits before it.
    fn join(
        &self,
        draft: &mut Draft,
        taken: &mut Vec<Planned>,
        mut planned: Planned,
    ) -> Result<()> {
        if planned.outputs.iter().any(|file| file.number() >= draft.numbers.next_file) {
            planned.edit.push(Change::NextFile { number: self.files.next() });
        }
        debug_assert!(
            !planned.edit.changes.iter().any(|change| matches!(change, Change::CleanClose { .. })),
            "nothing follows a clean close in its record"
        );
        let extend = |draft: &mut Draft, one: &Planned| {
            draft.extend(&self.state, &one.edit, FileSource::outputs(&one.outputs))
        };
        if let Err(error) = extend(draft, &planned) {
            *draft = Draft::of(&self.state);
            let again = taken.iter().try_for_each(|one| extend(draft, one));
            again.expect("what was drafted once can be drafted again");
            return Err(error.in_file(&self.manifest.path(), self.manifest.len()));
        }
        taken.push(planned);
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
