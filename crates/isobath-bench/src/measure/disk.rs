//! Sizes on disk, room left, and file systems that aren't disks.

use anyhow::{Context, Result, bail};
use nix::sys::statfs::{FsType, TMPFS_MAGIC, statfs};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes that the files below `dir` occupy (allocated blocks: preallocated or sparse files count as
/// what they take).
pub(crate) fn dir_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => dir_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        // The file was deleted after it was listed.
        Err(_) => 0,
    };
    entries.filter_map(|entry| entry.ok()).map(size).sum()
}

/// Writes back all that is dirty on the file system of `dir`, so that what a phase dirties is seen.
pub(crate) fn sync_files(dir: &Path) -> Result<()> {
    let fail = || format!("syncing the file system of {}", dir.display());
    let file = fs::File::open(dir).with_context(fail)?;
    nix::unistd::syncfs(&file).with_context(fail)
}

/// Whether files in `dir` live in memory, so that disk figures mean nothing.
pub(crate) fn is_ram_file_system(dir: &Path) -> bool {
    const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);
    statfs(dir).is_ok_and(|fs| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&fs.filesystem_type()))
}

/// Fails unless `needed` bytes fit below `dir`.
pub(crate) fn ensure_room(dir: &Path, needed: u64) -> Result<()> {
    let stat =
        statfs(dir).with_context(|| format!("asking for the free space of {}", dir.display()))?;
    let free = stat.blocks_available() * stat.block_size() as u64;
    if free < needed {
        bail!(
            "{} has {} MiB free and this run may need {} MiB: choose another --db or fewer items",
            dir.display(),
            free >> 20,
            needed >> 20
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_files_are_counted_by_blocks() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("inner")).unwrap();
        fs::write(dir.path().join("inner/file"), vec![7; 100_000]).unwrap();
        fs::File::open(dir.path().join("inner/file")).unwrap().sync_all().unwrap();
        let bytes = dir_bytes(dir.path());
        assert!((100_000..150_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn bytes_written_over_dirty_pages_are_seen_once_all_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        if is_ram_file_system(dir.path()) {
            return;
        }
        let path = dir.path().join("file");
        let rewrite = |byte: u8| {
            use std::os::unix::fs::FileExt;
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.write_all_at(&vec![byte; 16 << 20], 0).unwrap();
        };
        fs::write(&path, vec![1; 16 << 20]).unwrap();
        sync_files(dir.path()).unwrap();
        let before = crate::measure::Probe::read();
        rewrite(2);
        let seen = crate::measure::Probe::read().since(&before).device_write_bytes.unwrap();
        assert!(seen >= 16 << 20, "{seen}");
    }

    #[test]
    fn an_impossible_need_is_refused_in_words() {
        let error = ensure_room(Path::new("/"), u64::MAX).unwrap_err().to_string();
        assert!(error.contains("MiB free"), "{error}");
    }
}
