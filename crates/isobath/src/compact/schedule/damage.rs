//! What jobs could not read: the family's next plans leave it where it is.
//!
//! Only memory knows of it. After the next open the first job that meets the damage finds it again,
//! and tells of it once more. So does each compaction that the program asks for.

use crate::engine::{CompactionState, Engine, JobId, Keyspace};
use crate::error::Error;
use crate::version::{Slice, Tree};
use std::sync::Arc;

/// Notes which slices the job could not read, if that is what the error says: those whose table it
/// names. Values that cannot be read fail no job.
pub(super) fn note(
    engine: &Engine,
    family: &Keyspace,
    (job, inputs): (JobId, &[(usize, Arc<Slice>)]),
    error: &Error,
) {
    let Some(path) = error.path().filter(|_| !error.is_retryable()) else { return };
    let files = &engine.tables.files;
    let is_damaged = |slice: &Slice| files.path(slice.meta.file) == path;
    let mut state = family.compactions.state.lock();
    for (_, slice) in inputs.iter().filter(|(_, slice)| is_damaged(slice)) {
        state.busy.note_damaged(job, slice.meta.file, slice.extent().owned());
    }
}

/// Forgets the damaged slices that have left the tree: they were dropped unread, or could be read
/// after all.
pub(super) fn forget_gone(state: &mut CompactionState, tree: &Tree) {
    state.busy.forget_damaged(|file, extent| tree.locate(file, &extent.borrowed()).is_some());
}
