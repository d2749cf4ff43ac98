//! Holding a database still without writing to it.

use crate::error::Result;
use crate::version::LOCK;
use crate::vfs::{FileLock, FileSystem};
use std::path::Path;

/// Takes a share of the database's lock, so that nobody opens it for writing meanwhile. Where
/// nothing may be opened, there is nothing to take.
pub(super) fn hold(fs: &dyn FileSystem, db: &Path) -> Result<Option<Box<dyn FileLock>>> {
    fs.lock_shared(&db.join(LOCK))
}
