//! Data directories of the harness's own: made, marked, and only then ever emptied.

use anyhow::{Context, Result, bail};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::unistd::{Whence, lseek};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

const MARKER: &str = ".isobath-bench";

/// Makes `dir`, or takes one that the harness made before.
pub(crate) fn claim(dir: &Path) -> Result<()> {
    let marker = dir.join(MARKER);
    if marker.exists() {
        return Ok(());
    }
    if dir.exists()
        && fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?.next().is_some()
    {
        bail!(
            "{} has files that isobath-bench didn't make: give an empty or new directory as --db",
            dir.display()
        );
    }
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let text = "isobath-bench made this directory and deletes what is in it.\n";
    fs::write(&marker, text).with_context(|| format!("writing {}", marker.display()))
}

/// Deletes the database below a claimed directory.
pub(crate) fn clear(dir: &Path, name: &str) -> Result<()> {
    if !dir.join(MARKER).exists() {
        bail!("{} isn't a directory of isobath-bench", dir.display());
    }
    let target = dir.join(name);
    if target.exists() {
        fs::remove_dir_all(&target).with_context(|| format!("deleting {}", target.display()))?;
    }
    Ok(())
}

/// Copies a closed database. Holes stay holes: a mapped file may be far larger than its data.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("making {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            copy_file(&entry.path(), &target)
                .with_context(|| format!("copying {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Lets the kernel forget what it has cached of the files below `dir`, which must be synced.
pub(crate) fn forget(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            forget(&path)?;
        } else {
            let file = File::open(&path)?;
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
                .with_context(|| format!("dropping the cached pages of {}", path.display()))?;
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let (mut source, mut target) = (File::open(from)?, File::create(to)?);
    let len = source.metadata()?.len();
    target.set_len(len)?;
    let mut place = 0;
    while place < len {
        // An error (ENXIO) means that only a hole is left.
        let Ok(data) = lseek(&source, place as i64, Whence::SeekData) else { break };
        let end = lseek(&source, data, Whence::SeekHole)?;
        source.seek(SeekFrom::Start(data as u64))?;
        target.seek(SeekFrom::Start(data as u64))?;
        std::io::copy(&mut (&mut source).take((end - data) as u64), &mut target)?;
        place = end as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_strangers_is_never_taken() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.txt"), "").unwrap();
        assert!(claim(dir.path()).unwrap_err().to_string().contains("didn't make"));
        assert!(clear(dir.path(), "isobath").is_err());
    }

    #[test]
    fn a_claimed_directory_is_cleared_and_taken_again() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("a/b");
        claim(&base).unwrap();
        fs::create_dir(base.join("null")).unwrap();
        claim(&base).unwrap();
        clear(&base, "null").unwrap();
        assert!(!base.join("null").exists());
    }

    #[test]
    fn a_copy_is_equal_and_keeps_its_holes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("inner")).unwrap();
        fs::write(from.join("inner/small"), "text").unwrap();
        let mut sparse = File::create(from.join("sparse")).unwrap();
        sparse.seek(SeekFrom::Start(64 << 20)).unwrap();
        std::io::Write::write_all(&mut sparse, &[7; 10_000]).unwrap();
        sparse.set_len(1 << 30).unwrap();
        sparse.sync_all().unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("inner/small")).unwrap(), b"text");
        let mut copied = File::open(to.join("sparse")).unwrap();
        assert_eq!(copied.metadata().unwrap().len(), 1 << 30);
        copied.seek(SeekFrom::Start(64 << 20)).unwrap();
        let mut bytes = vec![0; 10_001];
        copied.read_exact(&mut bytes).unwrap();
        assert_eq!((bytes[9_999], bytes[10_000]), (7, 0));
        copied.sync_all().unwrap();
        assert!(crate::measure::dir_bytes(&to) < 4 << 20);
    }
}
