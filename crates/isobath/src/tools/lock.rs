//! Holding a database still without writing to it.

use crate::error::{Error, Result};
use crate::version::LOCK;
use crate::vfs::{FileLock, FileSystem};
use std::io;
use std::path::Path;

/// Takes the database's lock. Where nothing can be written at all nobody else can change it either, and there is
/// nothing to take.
pub(super) fn hold(fs: &dyn FileSystem, db: &Path) -> Result<Option<Box<dyn FileLock>>> {
    match fs.lock(&db.join(LOCK)) {
        Ok(lock) => Ok(Some(lock)),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::ReadOnlyFilesystem => {
            Ok(None)
        }
        Err(other) => Err(other),
    }
}
