//! The directory of a new database, and the directories above it.
//!
//! Missing directories are made from the top down, and the name of each is synced before the next
//! one is made. So an interrupted creation leaves at most one name that power loss may take, the
//! deepest, and the next creation syncs that name before it goes on. `CURRENT` is made after all of
//! this. Hence, where `CURRENT` exists, every name above it was synced, and opening the database
//! syncs nothing above it. Those directories may belong to someone else.

use crate::error::Result;
use crate::vfs::FileSystem;
use std::io;
use std::path::Path;

/// Makes the directory of a new database, unless it exists, and makes its name durable.
pub(crate) fn make_dir(fs: &dyn FileSystem, db: &Path) -> Result<()> {
    let mut missing = Vec::new();
    let mut deepest = Some(db);
    while let Some(dir) = deepest.filter(|dir| !matches!(fs.exists(dir), Ok(true))) {
        missing.push(dir);
        deepest = above(dir);
    }
    if let Some(deepest) = deepest {
        sync_dir_name(fs, deepest)?;
    }
    missing.into_iter().rev().try_for_each(|dir| make(fs, dir, |dir| sync_name(fs, dir)))
}

/// Makes the name of a directory that exists durable, in the directory above it.
pub(crate) fn sync_dir_name(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    match sync_name(fs, dir) {
        // The directory existed before, on a disk that takes no changes, so its name is safe.
        Err(error) if error.io_kind() == Some(io::ErrorKind::ReadOnlyFilesystem) => Ok(()),
        other => other,
    }
}

/// Makes a directory within that of a database, unless it exists, and makes its name durable.
pub(crate) fn make_missing(fs: &dyn FileSystem, db: &Path, name: &str) -> Result<()> {
    let dir = db.join(name);
    if fs.exists(&dir)? { Ok(()) } else { make(fs, &dir, |_| fs.sync_dir(db)) }
}

/// Makes a directory and syncs its name. If that fails, the name goes: a later sync would not cover
/// it.
fn make(
    fs: &dyn FileSystem,
    dir: &Path,
    sync_name: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    fs.create_dir_all(dir)?;
    sync_name(dir).inspect_err(|_| drop(fs.remove_dir(dir)))
}

fn sync_name(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    let Some(above) = above(dir) else { return Ok(()) };
    match fs.sync_dir(above) {
        // A process may have the right to make names in a directory without the right to read it,
        // and only a readable directory can be synced.
        Err(error) if error.io_kind() == Some(io::ErrorKind::PermissionDenied) => Ok(()),
        other => other,
    }
}

/// The directory that contains the entry of `dir`.
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

    /// What a sync that failed has lost no later one brings back.
    #[test]
    fn a_directory_whose_name_could_not_be_synced_is_made_again() {
        let db = Path::new("/a/b/db");
        for nth in 1..4 {
            let fs = MemoryFs::new();
            fs.create_dir_all(Path::new("/a")).unwrap();
            fs.sync_dir(Path::new("/")).unwrap();
            fs.inject(Fault::on(FileOp::SyncDir).nth(nth));
            make_dir(&fs, db).unwrap_err();
            make_dir(&fs, db).unwrap();
            assert!(fs.crashed(|_| 0).exists(db).unwrap(), "sync {nth}");
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
