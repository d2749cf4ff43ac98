//! Clones of column families: a new family begins with all the files of another one.
//!
//! A clone is an edit and no record of the log. Its point `p` is where the tables end and the log
//! begins (`replay from`): the source's tree holds what was committed below `p`, and nothing else.
//! So the edit shares that tree as it stands, whatever it weighs. On disk, step by step, and what
//! an open finds if power fails there:
//!
//! 1. Everything committed before the call is flushed, as by a flush that a program asks for. If
//!    there is nothing, a record that says nothing is logged first, so that `p` lies above each
//!    point that was given out before. No clone.
//! 2. The edit is appended and synced. The whole clone, or none: the call has not returned.
//! 3. The edit is confirmed by a sync marker: from here on damage to it is corruption. Commits to
//!    the clone are in the log only after this, so the log never names a family that the manifest
//!    does not have.
//!
//! Why a flush: memtables belong to epochs, in which the families lie side by side and which
//! writers go on filling. A clone that shared them would hold what its source writes after `p`.
//!
//! Below `p` the clone does not exist, and readers there find it empty, although its slices hold
//! what they may see in the source. A transaction that began below `p`, and has read in the clone,
//! conflicts: for it, the clone changed as a whole. The source's transactions in doubt are not in
//! the clone. They are decided in the source.
//!
//! How long a shared file lives needs no count on disk: a file lives as long as any tree or pinned
//! view has a slice of it (`version/files.rs`).

use super::changing::Changing;
use super::families::{log_nothing, patiently};
use super::seal::{flush_now, is_anything_unsealed};
use crate::compact;
use crate::engine::{Engine, Keyspace};
use crate::env::{Plant, Reach, planted, reached};
use crate::error::{Error, Result};
use crate::format::FamilyId;
use crate::limits::check_family_name;
use crate::version::{Change, Edit, VersionSet};
use std::sync::Arc;

/// Makes a family that holds what `source` holds, with its options.
pub(crate) fn clone_family(
    engine: &Arc<Engine>,
    source: &Arc<Keyspace>,
    name: &str,
) -> Result<Arc<Keyspace>> {
    check_family_name(name)?;
    engine.check_writable()?;
    check(engine, source, name)?;
    if !planted(Plant::CloneNotFlushed) {
        if !is_anything_unsealed(engine) {
            // Nothing was written since a flush, and a snapshot may have the very point of it.
            log_nothing(&Changing::begin(engine)?)?;
        }
        flush_now(engine)?;
    }
    let mut changing = Changing::begin(engine)?;
    check(engine, source, name)?;
    if engine.versions.lock().state().next_family() == FamilyId::MAX {
        return Err(Error::invalid_argument("the ids for column families are used up"));
    }
    let clone = patiently(&mut changing, |versions| install(versions, source, name))?;
    patiently(&mut changing, VersionSet::confirm)?;
    reached(Reach::FamilyCloned);
    let clone = Arc::new(clone);
    engine.conflicts.note_clone(&clone.changed, clone.created_at());
    engine.families.insert(clone.clone());
    compact::schedule(engine, &clone);
    Ok(clone)
}

fn check(engine: &Engine, source: &Keyspace, name: &str) -> Result<()> {
    if source.is_dropped() {
        return Err(Error::unknown_family(&source.name()));
    }
    match engine.families.contains_name(name) {
        true => Err(Error::family_exists(name)),
        false => Ok(()),
    }
}

/// Puts the clone into the manifest, and returns it.
fn install(versions: &mut VersionSet, source: &Keyspace, name: &str) -> Result<Keyspace> {
    let state = versions.state();
    let id = state.next_family();
    let known = state.family(source.id).ok_or_else(|| Error::unknown_family(&source.name()))?;
    // The greatest point that does not see what is in the tables: a reader at `replay from` does.
    let created = state.replay_from() - 1;
    let (tree, options) = (known.tree.clone(), known.options.to_vec());
    debug_assert!(
        tree.iter().all(|(_, slice)| slice.meta.max_seq <= created)
            || planted(Plant::CloneNotFlushed),
        "a clone would hold what was committed after its point"
    );
    let change = Change::CloneFamily {
        family: id,
        source: source.id,
        name: name.to_owned(),
        options,
        lsn: created,
    };
    versions.install(Edit::new(vec![change]), &[])?;
    let options = source.options().as_ref().clone();
    Ok(Keyspace::new(id, name, options, created, tree).of_root(source.root).cloned())
}
