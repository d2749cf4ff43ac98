//! A memory control group for one row: the kernel gives its process, page cache included, so much
//! and no more, so that reads of larger data meet the device whether an engine maps its files or
//! reads them.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file of a group whose limit it holds, for each version of the interface, and where groups
/// are made.
const UNIFIED: (&str, &str) = ("/sys/fs/cgroup", "memory.max");
const SEPARATE: (&str, &str) = ("/sys/fs/cgroup/memory", "memory.limit_in_bytes");

pub(crate) struct MemoryGroup {
    dir: PathBuf,
}

impl MemoryGroup {
    /// Makes a group that may hold `limit` bytes. That takes the right to make groups, which root
    /// has.
    pub(crate) fn make(limit: u64) -> Result<MemoryGroup> {
        let ((root, file), unified) = match controllers() {
            Some(list) if list.split_whitespace().any(|name| name == "memory") => (UNIFIED, true),
            _ if Path::new(SEPARATE.0).join(SEPARATE.1).exists() => (SEPARATE, false),
            _ => {
                bail!("this machine has no memory control groups: nothing can hold a row's memory")
            }
        };
        let dir = Path::new(root).join(format!("isobath-bench-{}", std::process::id()));
        let fail = || format!("making the memory group {} (it takes root)", dir.display());
        if unified {
            fs::write(Path::new(root).join("cgroup.subtree_control"), "+memory")
                .with_context(fail)?;
        }
        if !dir.exists() {
            fs::create_dir(&dir).with_context(fail)?;
        }
        fs::write(dir.join(file), limit.to_string()).with_context(fail)?;
        if unified {
            // Without this limit, memory beyond the group's could be swapped out. A kernel without
            // swap does not have the file.
            let _ = fs::write(dir.join("memory.swap.max"), "0");
        }
        Ok(MemoryGroup { dir })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The kernel lets a group be removed only a moment after its last process has ended.
        for _ in 0..50 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn controllers() -> Option<String> {
    fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").ok()
}

/// Moves this process into the group at `dir`.
pub(super) fn join(dir: &Path) -> Result<()> {
    fs::write(dir.join("cgroup.procs"), std::process::id().to_string())
        .with_context(|| format!("joining the memory group {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_holds_its_limit_and_goes_away_or_is_refused_in_words() {
        match MemoryGroup::make(64 << 20) {
            Ok(group) => {
                let dir = group.dir().to_owned();
                let text = [UNIFIED.1, SEPARATE.1]
                    .iter()
                    .find_map(|name| fs::read_to_string(dir.join(name)).ok())
                    .unwrap();
                assert_eq!(text.trim(), (64 << 20).to_string());
                drop(group);
                assert!(!dir.exists());
            }
            Err(error) => assert!(format!("{error:#}").contains("memory"), "{error:#}"),
        }
    }
}
