//! The directory of a new database, and those above it.
//!
//! Those that are missing are made from the top down, and the name of each is synced before the
//! next one is made. So what a creation that was cut short leaves behind has one name at most that
//! power loss may take, the deepest, and the next creation syncs that before it goes on. `CURRENT`
//! is made after all of this: where it is, every name above it was synced, and opening the database
//! has to sync nothing above it, which might not be ours to sync.

use crate::error::Result;
use crate::vfs::FileSystem;
use std::io;
use std::path::Path;

/// Makes the directory of a new database, unless it is there, and has its name survive power loss.
pub(crate) fn make_dir(fs: &dyn FileSystem, db: &Path) -> Result<()> {
    let mut missing = Vec::new();
    let mut deepest = Some(db);
    while let Some(dir) = deepest.filter(|dir| !matches!(fs.exists(dir), Ok(true))) {
        missing.push(dir);
        deepest = above(dir);
    }
    if let Some(deepest) = deepest {
        match sync_name(fs, deepest) {
            // It was there before, on a disk that takes no changes: so its name is safe.
            Err(error) if error.io_kind() == Some(io::ErrorKind::ReadOnlyFilesystem) => {}
            other => other?,
        }
    }
    for dir in missing.into_iter().rev() {
        fs.create_dir_all(dir)?;
        sync_name(fs, dir)?;
    }
    Ok(())
}

fn sync_name(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    let Some(above) = above(dir) else { return Ok(()) };
    match fs.sync_dir(above) {
        // One may make names in a directory that one may not read, and only what can be read can be
        // synced.
        Err(error) if error.io_kind() == Some(io::ErrorKind::PermissionDenied) => Ok(()),
        other => other,
    }
}

/// The directory that holds the entry of `dir`.
fn above(dir: &Path) -> Option<&Path> {
    let above = dir.parent()?;
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    (above != dir).then_some(above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vfs::{Fault, FileOp, MemoryFs};

    #[test]
    fn a_directory_that_was_made_step_by_step_survives_wherever_it_was_cut_short() {
        let db = Path::new("/a/b/c/db");
        for step in 1..20 {
            let fs = MemoryFs::new();
            fs.create_dir_all(Path::new("/a")).unwrap();
            fs.sync_dir(Path::new("/")).unwrap();
            fs.inject(Fault::on_any().nth(step).forever());
            let _ = make_dir(&fs, db);
            let fs = fs.killed();
            make_dir(&fs, db).unwrap();
            assert!(fs.crashed(|_| 0).exists(db).unwrap(), "step {step}");
        }
    }

    #[test]
    fn nothing_is_synced_but_what_was_made_and_the_deepest_that_was_there() {
        let fs = MemoryFs::new();
        fs.create_dir_all(Path::new("/mount/data")).unwrap();
        fs.inject(Fault::on(FileOp::SyncDir).suffix("/").forever());
        make_dir(&fs, Path::new("/mount/data/x/db")).unwrap();
        assert_eq!(fs.tried(FileOp::SyncDir), 3);
    }

    #[test]
    fn a_mount_point_on_a_disk_that_takes_no_changes_is_no_obstacle() {
        let fs = MemoryFs::new();
        fs.create_dir_all(Path::new("/volume")).unwrap();
        let read_only = Fault::on(FileOp::SyncDir).suffix("/").forever();
        fs.inject(read_only.kind(io::ErrorKind::ReadOnlyFilesystem));
        make_dir(&fs, Path::new("/volume/db")).unwrap();
    }
}
