//! Makes the names of files survive power loss, and remembers when that has failed.
//!
//! A failed sync of a directory may have lost names of another job's files, and a later sync would
//! succeed nevertheless. So a failure is final for the files of all jobs. To find no descriptor
//! for the directory is no such failure.
//!
//! Who asks while a sync is under way needs another one, which begins after that: its names may
//! have come too late. All who ask meanwhile share that other one.

use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::sync::{Mutex, Rank};
use crate::error::{Error, PoisonCause, Result};
use crate::vfs::FileSystem;
use std::path::Path;

/// The names of the files of one kind, always in the same directories.
#[derive(Debug)]
pub(crate) struct DurableNames {
    /// How often a sync was asked for.
    asked: AtomicU64,
    /// Held while names are synced.
    synced: Mutex<Synced>,
}

#[derive(Debug, Default)]
struct Synced {
    /// Why names may be lost for good.
    lost: Option<PoisonCause>,
    /// A sync that has succeeded began after so many had asked.
    asked: u64,
}

/// A wish for names to be durable that exist by now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamesAsked(u64);

impl DurableNames {
    pub(crate) fn new() -> DurableNames {
        let synced = Mutex::new(Rank::FileNames, Synced::default());
        DurableNames { asked: AtomicU64::new(0), synced }
    }

    /// Asks for the names that exist by now. Who waits for another thread's turn to sync them asks
    /// first, so that it shares the sync of whose turn comes earlier.
    pub(crate) fn ask(&self) -> NamesAsked {
        // Paired with the load of who syncs: it sees the names that were made before.
        NamesAsked(self.asked.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// Makes all names in these directories durable.
    pub(crate) fn sync(&self, fs: &dyn FileSystem, dirs: &[&Path]) -> Result<()> {
        self.sync_for(self.ask(), fs, dirs)
    }

    /// Makes the names in these directories durable that were there when it was asked.
    pub(crate) fn sync_for(
        &self,
        asked: NamesAsked,
        fs: &dyn FileSystem,
        dirs: &[&Path],
    ) -> Result<()> {
        let mut synced = self.synced.lock();
        if let Some(why) = &synced.lost {
            return Err(Error::poisoned(why.clone()));
        }
        if synced.asked >= asked.0 {
            return Ok(());
        }
        // What cannot be opened has lost no name.
        let dirs = dirs.iter().map(|dir| fs.open_dir(dir)).collect::<Result<Vec<_>>>()?;
        synced.lost = Some(PoisonCause::panicked("while it synced a directory", ""));
        let all_asked = self.asked.load(Ordering::Acquire);
        debug_assert!(all_asked >= asked.0, "a sync begins before it is asked for");
        let outcome = dirs.iter().try_for_each(|dir| dir.sync());
        synced.lost = outcome.as_ref().err().map(PoisonCause::of);
        if outcome.is_ok() {
            synced.asked = all_asked;
        }
        outcome
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::vfs::{FileOp, MemoryFs};

    #[test]
    fn who_asked_before_a_sync_began_shares_it_and_who_asked_later_does_not() {
        let (fs, dir, names) = (MemoryFs::new(), Path::new("/table"), DurableNames::new());
        fs.create_dir_all(dir).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        let named = |name: &str| drop(fs.create(&dir.join(name)).unwrap());
        let is_durable = |name: &str| fs.crashed(|_| 0).exists(&dir.join(name)).unwrap();
        named("first");
        let first = names.ask();
        named("second");
        let second = names.ask();
        let syncs = || fs.tried(FileOp::SyncDir);
        let before = syncs();
        names.sync_for(first, &fs, &[dir]).unwrap();
        assert!(is_durable("first") && is_durable("second"));
        names.sync_for(second, &fs, &[dir]).unwrap();
        assert_eq!(syncs(), before + 1, "the first one's sync was for both");
        named("third");
        names.sync(&fs, &[dir]).unwrap();
        assert!(is_durable("third"));
        assert_eq!(syncs(), before + 2);
    }
}
