//! Looks at what the blob files of families hold.

use super::plan::{Hints, stuck_blobs};
use super::schedule::policy_of;
use crate::blob::{Garbage, Live, live_bytes};
use crate::engine::{Engine, Keyspace};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What all families have in blob files at one moment. Later a family may have less in a file, and
/// not more, so at worst a file is collected later than it could be. It holds no tree: who waits
/// for compactions has it for long, and would keep the files that they replace.
#[derive(Default)]
pub(super) struct Holdings {
    live: BTreeMap<u64, Live>,
}

impl Holdings {
    /// Walks over all families, if any of these has values in blob files.
    pub(super) fn of(engine: &Engine, families: &[Arc<Keyspace>]) -> Holdings {
        if !families.iter().any(|family| family.view().tree.has_blobs()) {
            return Holdings::default();
        }
        // A family counts whether or not it is still among all: what a collection has moved is
        // alive here, so it is not moved once more.
        let all = engine.families.all();
        let trees = all.iter().chain(families);
        let trees = trees.map(|family| (family.id, (family.root, family.view().tree.clone())));
        let mut trees: BTreeMap<_, _> = trees.collect();
        trees.retain(|_, (_, tree)| tree.has_blobs());
        Holdings { live: live_bytes(trees.values().map(|(root, tree)| (*root, &**tree))) }
    }

    /// The garbage in the blob files in which the family has values, but for files that are newer
    /// than this, and for those in which a slice has values that damage keeps from moving: nothing
    /// is gained if the rest does.
    pub(super) fn garbage_of(&self, engine: &Engine, family: &Keyspace) -> Garbage {
        let own = family.view().tree.clone();
        let policy = policy_of(engine, family);
        let stuck = {
            let state = family.compactions.state.lock();
            let hints = Hints { run_bytes: state.run_bytes, ..Hints::default() };
            stuck_blobs(&own, &policy, &state.busy, &hints)
        };
        Garbage::of(&own, &self.live, |file| {
            if stuck.contains(&file.number()) {
                return None;
            }
            file.len_or(|| Ok(engine.tables.files.get_blob(file.number())?.len())).ok()
        })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
