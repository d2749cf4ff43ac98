//! Looks at what the blob files of a family hold.

use crate::blob::Garbage;
use crate::engine::{Engine, Keyspace};

/// The garbage in the blob files in which the family has values.
pub(super) fn garbage_of(engine: &Engine, family: &Keyspace) -> Garbage {
    let own = family.view().tree.clone();
    if !own.has_blobs() {
        return Garbage::default();
    }
    // The family counts whether or not it is still among all: what a collection has moved is alive
    // here, so it is not moved once more.
    let others = engine.families.all().into_iter().filter(|other| other.id != family.id);
    let others: Vec<_> = others.map(|other| (other.root, other.view().tree.clone())).collect();
    let others = others.iter().map(|(root, tree)| (*root, &**tree));
    let others = others.filter(|(_, tree)| tree.has_blobs());
    Garbage::of((family.root, &own), others, |file| {
        file.len_or(|| Ok(engine.tables.files.get_blob(file.number())?.len())).ok()
    })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
