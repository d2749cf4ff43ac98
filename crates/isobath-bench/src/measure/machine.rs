//! The machine and the build, for the record.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Where a result comes from.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) system: String,
    pub(crate) file_system: String,
    pub(crate) allocator: String,
    pub(crate) build: String,
    pub(crate) engines: BTreeMap<String, String>,
}

impl Machine {
    /// Describes this machine, with the file system that holds `dir`.
    pub(crate) fn read(dir: &Path) -> Machine {
        Machine {
            cpu: value_after("/proc/cpuinfo", "model name")
                .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, |count| count.get()),
            memory_bytes: memory_bytes(),
            kernel: read_trimmed("/proc/sys/kernel/osrelease"),
            system: value_after("/etc/os-release", "PRETTY_NAME")
                .unwrap_or_default()
                .trim_matches('"')
                .to_owned(),
            file_system: file_system(dir),
            allocator: allocator_name().to_owned(),
            build: build(),
            engines: BTreeMap::new(),
        }
    }
}

/// The allocator of the whole process.
pub(crate) fn allocator_name() -> &'static str {
    if cfg!(feature = "jemalloc") {
        "jemalloc 5.3 (malloc replaced in the whole process)"
    } else {
        "system"
    }
}

fn build() -> String {
    let profile = if cfg!(debug_assertions) { "debug (figures mean little)" } else { "release" };
    format!(
        "isobath-bench {} {profile}, commit {}",
        env!("CARGO_PKG_VERSION"),
        env!("ISOBATH_COMMIT")
    )
}

fn memory_bytes() -> u64 {
    let text = value_after("/proc/meminfo", "MemTotal").unwrap_or_default();
    text.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The type of the mount that holds `dir`.
fn file_system(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut best: (usize, String) = (0, String::new());
    for line in mounts.lines() {
        let mut words = line.split_whitespace();
        if let (Some(_), Some(point), Some(kind), Some(options)) =
            (words.next(), words.next(), words.next(), words.next())
            && dir.starts_with(point)
            && point.len() >= best.0
        {
            best = (point.len(), format!("{kind} ({options})"));
        }
    }
    best.1
}

fn read_trimmed(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The value of the first `name : value` or `name=value` line.
fn value_after(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line[name.len()..].trim_start_matches([' ', '\t', ':', '=']).to_owned())
}
