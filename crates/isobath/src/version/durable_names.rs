//! Makes the names of files survive power loss, and remembers when that has failed.
//!
//! A failed sync of a directory may have lost names of another job's files, and a later sync would
//! succeed nevertheless. So a failure is final for the files of all jobs. To find no descriptor
//! for the directory is no such failure.

use crate::env::sync::{Mutex, Rank};
use crate::error::{Error, PoisonCause, Result};
use crate::vfs::FileSystem;
use std::path::Path;

/// The names of the files of one kind.
#[derive(Debug)]
pub(crate) struct DurableNames {
    /// Why names may be lost for good. Held while they are synced.
    lost: Mutex<Option<PoisonCause>>,
}

impl DurableNames {
    pub(crate) fn new() -> DurableNames {
        DurableNames { lost: Mutex::new(Rank::FileNames, None) }
    }

    /// Makes all names in these directories durable.
    pub(crate) fn sync(&self, fs: &dyn FileSystem, dirs: &[&Path]) -> Result<()> {
        let dirs = dirs.iter().map(|dir| fs.open_dir(dir)).collect::<Result<Vec<_>>>()?;
        let mut lost = self.lost.lock();
        if let Some(why) = &*lost {
            return Err(Error::poisoned(why.clone()));
        }
        *lost = Some(PoisonCause::panicked("while it synced a directory", ""));
        let synced = dirs.iter().try_for_each(|dir| dir.sync());
        *lost = synced.as_ref().err().map(PoisonCause::of);
        synced
    }
}
