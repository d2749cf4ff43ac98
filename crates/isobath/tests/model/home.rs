//! Where the database of a history is.

use isobath::env::Env;
use isobath::vfs::MemoryFs;
use isobath::{Db, Options, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// In memory, or in a directory of the system's that goes away with it.
pub(crate) enum Home {
    Memory(MemoryFs),
    Files(PathBuf),
}

impl Home {
    pub(crate) fn new(is_on_files: bool) -> Home {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        if !is_on_files {
            return Home::Memory(MemoryFs::new());
        }
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("isobath-model-{}-{nth}", std::process::id());
        Home::Files(std::env::temp_dir().join(name))
    }

    pub(crate) fn open(&self, options: Options) -> Result<Db> {
        match self {
            Home::Memory(fs) => {
                let fs = Arc::new(fs.clone());
                options.env(Env { fs, ..Env::system() }).open("/data/db")
            }
            Home::Files(dir) => options.open(dir),
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Home::Files(dir) = self {
            // Nothing depends on its being gone.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}
