//! Bugs of compactions that a harness plants (`host/planted.rs`); without the feature `simulation`
//! nothing of this is left.

use super::plan::Compaction;
use super::run::Outcome;
use crate::engine::Engine;
use crate::env::{Plant, planted};

/// [`Plant::OverlappingFiles`]: leaves a file of the target level out.
#[inline]
pub(super) fn leave_out(compaction: &mut Compaction) {
    if planted(Plant::OverlappingFiles) && compaction.target > 0 {
        let left_out = compaction.inputs.iter().rposition(|(level, _)| *level == compaction.target);
        left_out.filter(|_| compaction.inputs.len() > 1).map(|at| compaction.inputs.remove(at));
    }
}

/// [`Plant::DeletedInUse`]: removes the inputs though readers have them.
#[inline]
pub(super) fn delete_inputs(engine: &Engine, outcome: &Outcome) {
    if planted(Plant::DeletedInUse) {
        let still_there = |number| outcome.added.iter().any(|(_, meta)| meta.file == number);
        for (_, number) in outcome.removed.iter().filter(|(_, number)| !still_there(*number)) {
            engine.tables.files.evict(*number);
            let _ = engine.options.env.fs.remove(&engine.tables.files.path(*number));
        }
    }
}
