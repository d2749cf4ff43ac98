//! Data directories of the harness's own: made, marked, and only then ever emptied.

use anyhow::{Context, Result, bail};
use std::fs;
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
}
