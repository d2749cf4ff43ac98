//! Bugs that a harness plants in recovery (`host/planted.rs`). Without the feature `simulation`
//! none of this code is compiled in.

use crate::env::{Plant, planted};
use crate::error::Result;
use crate::version::{Change, Edit, LOG_DIR, VersionSet};
use crate::vfs::FileSystem;
use crate::wal;
use std::path::Path;

/// With [`Plant::RecoveryEatsLog`], removes the old log before the edit that makes it unnecessary.
#[inline]
pub(super) fn eat_log(fs: &dyn FileSystem, db: &Path, versions: &VersionSet) -> Result<()> {
    if planted(Plant::RecoveryEatsLog) {
        let old = versions.state().ceiling();
        for segment in wal::inventory(fs, &db.join(LOG_DIR))? {
            if segment.base < old {
                fs.remove(&segment.path)?;
            }
        }
    }
    Ok(())
}

/// With [`Plant::RecoveryInTwoEdits`], ends the term by an edit of its own and leaves in `edit`
/// what was replayed.
#[inline]
pub(super) fn split(versions: &mut VersionSet, edit: &mut Edit) -> Result<()> {
    if planted(Plant::RecoveryInTwoEdits) {
        let ends_term = |change: &Change| matches!(change, Change::Term(_));
        let end = edit.changes.iter().position(ends_term).map_or(0, |at| at - 1);
        let replayed = Edit::new(edit.changes.drain(..end).collect());
        versions.install(std::mem::replace(edit, replayed), &[])?;
    }
    Ok(())
}
