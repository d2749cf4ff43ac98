//! The engine reaches the outside world through `host` and `vfs` only, so that a simulation can own
//! it.
//!
//! The rule covers files, time, threads, locks and atomics, in code that ships; tests may use them
//! directly.

use super::scan::PathUse;
use super::{Source, Violation, Workspace};

const ENGINE: &str = "crates/isobath/src/";

/// Folders that are the way out.
const DOORS: [&str; 2] = ["crates/isobath/src/host/", "crates/isobath/src/vfs/"];

/// What is closed, and what to use.
const CLOSED: [(&[&str], &str); 22] = [
    (&["std", "fs"], "crate::vfs::FileSystem"),
    (&["std", "net"], "nothing: the engine has no network"),
    (&["std", "process"], "an Error"),
    (&["std", "time", "Instant"], "crate::env::Clock"),
    (&["std", "time", "SystemTime"], "crate::env::Clock"),
    (&["std", "time", "*"], "crate::env::Clock"),
    (&["std", "thread"], "crate::env::Threads"),
    (&["std", "thread_local"], "state that is passed along"),
    (&["std", "hash", "RandomState"], "crate::env::Random"),
    (&["std", "sync", "Mutex"], "crate::env::sync::Mutex"),
    (&["std", "sync", "RwLock"], "crate::env::sync::Mutex"),
    (&["std", "sync", "Condvar"], "crate::env::sync::Condvar"),
    (&["std", "sync", "Barrier"], "crate::env::sync::Condvar"),
    (&["std", "sync", "mpsc"], "crate::env::sync::Condvar"),
    (&["std", "sync", "atomic"], "crate::env::sync::atomic"),
    (&["std", "sync", "*"], "crate::env::sync"),
    (&["std", "sync", "self"], "crate::env::sync"),
    (&["core", "sync"], "crate::env::sync::atomic"),
    (&["parking_lot"], "crate::env::sync"),
    (&["loom"], "crate::env::sync"),
    (&["shuttle"], "crate::env::sync"),
    (&["memmap2"], "crate::vfs"),
];

/// Modules that may not be named as a whole, which would let their insides in under another name.
const CLOSED_WHOLE: [&[&str]; 3] = [&["std", "sync"], &["std", "time"], &["std", "hash"]];

/// Checks every file of the engine that ships.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    workspace
        .rust()
        .filter(|s| {
            s.path.starts_with(ENGINE) && !DOORS.iter().any(|door| s.path.starts_with(door))
        })
        .filter(|s| !workspace.is_test_only(&s.path))
        .flat_map(check_file)
        .collect()
}

fn check_file(source: &Source) -> Vec<Violation> {
    let paths = source.code.paths.iter().filter(|path| !path.in_test).filter_map(|path| {
        let replacement = closed(path)?;
        let what = format!("`{}` is outside: use {replacement}", path.names.join("::"));
        Some(source.violation(path.line, what))
    });
    let macros = source.code.macros.iter().filter(|m| !m.in_test && m.name == "thread_local");
    let macros = macros.map(|m| source.violation(m.line, "`thread_local!`: pass the state along"));
    paths.chain(macros).collect()
}

fn closed(path: &PathUse) -> Option<&'static str> {
    if CLOSED_WHOLE.iter().any(|whole| path.names == *whole) {
        return Some("its parts, each by its own name");
    }
    // A single name is an item of the file itself, or the name of a build (`cfg(loom)`).
    let found = CLOSED.iter().find(|(names, _)| path.starts_with(names) && path.names.len() > 1);
    found.map(|(_, replacement)| *replacement)
}
