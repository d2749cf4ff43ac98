//! Bugs in compactions that a test harness plants (`host/planted.rs`). Without the feature
//! `simulation` these functions do nothing.

use super::plan::Compaction;
use super::run::Outcome;
use crate::engine::{Engine, Keyspace};
use crate::env::{Plant, planted};
use crate::format::Lsn;
use crate::span::Fragments;
use crate::wal::RECORD_ALIGN;

/// [`Plant::OrdinalIgnored`]: what covers a version, where every range delete of its commit does.
/// Of a short commit all sequence numbers lie between two places where records begin.
#[inline]
pub(super) fn cover_of_commit(spans: &mut Fragments<'_>, key: &[u8], seq: Lsn) -> Option<Lsn> {
    let commit = seq - seq % RECORD_ALIGN;
    let cover = spans.least_above(key, commit.saturating_sub(1))?;
    Some(cover.max(seq + 1))
}

/// [`Plant::OverlappingFiles`]: omits a file of the target level from the inputs.
#[inline]
pub(super) fn leave_out(compaction: &mut Compaction) {
    if planted(Plant::OverlappingFiles) && compaction.target > 0 {
        let left_out = compaction.inputs.iter().rposition(|(level, _)| *level == compaction.target);
        left_out.filter(|_| compaction.inputs.len() > 1).map(|at| compaction.inputs.remove(at));
    }
}

/// [`Plant::BlobDeletedInUse`]: the blob files where inputs have values and outputs have none.
#[inline]
pub(super) fn blobs_left(family: &Keyspace, outcome: &Outcome) -> Vec<u64> {
    if !planted(Plant::BlobDeletedInUse) {
        return Vec::new();
    }
    let tree = family.view().tree.clone();
    let removed = outcome.removed.iter().filter_map(|&(level, file)| tree.get(level, file));
    let is_left = |number: &u64| {
        let mut shares = outcome.added.iter().flat_map(|(_, meta)| &meta.blobs);
        !shares.any(|share| share.file == *number)
    };
    removed.flat_map(|slice| &slice.blobs).map(|file| file.number()).filter(is_left).collect()
}

/// [`Plant::DeletedInUse`]: removes the inputs although readers use them.
#[inline]
pub(super) fn delete_inputs(engine: &Engine, outcome: &Outcome, blobs: &[u64]) {
    for number in blobs {
        engine.tables.files.evict(*number);
        let _ = engine.options.env.fs.remove(&engine.tables.files.path(*number));
    }
    if planted(Plant::DeletedInUse) {
        let still_there = |number| outcome.added.iter().any(|(_, meta)| meta.file == number);
        for (_, number) in outcome.removed.iter().filter(|(_, number)| !still_there(*number)) {
            engine.tables.files.evict(*number);
            let _ = engine.options.env.fs.remove(&engine.tables.files.path(*number));
        }
    }
}
