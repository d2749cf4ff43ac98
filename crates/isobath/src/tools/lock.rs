//! Locks a database against writers without writing to it.

use crate::error::Result;
use crate::version::LOCK;
use crate::vfs::{FileLock, FileSystem};
use std::path::Path;

/// Takes a shared lock on the database, so that no process opens it for writing in the meantime.
/// `None` if there is no lock file, or if this process must not open it.
pub(super) fn hold(fs: &dyn FileSystem, db: &Path) -> Result<Option<Box<dyn FileLock>>> {
    fs.lock_shared(&db.join(LOCK))
}
