//! The import rule of the engine: verbs import nouns, nouns never import verbs.
//!
//! A noun may name other nouns and the ground that all stand on; nothing else of the crate, so
//! neither the verbs nor the files that make up the public face. Tests of the engine open
//! databases, so they may. `format/` does no input or output, so it names no file system;
//! `background/` runs jobs that it knows nothing about, so it names no other noun.

use super::scan::PathUse;
use super::{Source, Violation, Workspace};

pub(super) const ENGINE: &str = "crates/isobath/src/";

/// The rooms that hold structure.
pub const NOUNS: [&str; 19] = [
    "host",
    "format",
    "vfs",
    "wal",
    "memory",
    "memtable",
    "mvcc",
    "span",
    "gap",
    "table",
    "version",
    "blob",
    "background",
    "cursor",
    "conflict",
    "lock",
    "footprint",
    "env",
    "engine",
];

/// What everyone may name.
pub const GROUND: [&str; 9] =
    ["error", "limits", "metrics", "events", "options", "read_point", "sizes", "telemetry", "xid"];

/// What the crate's root exports out of the ground and the nouns.
const ROOT_EXPORTS: [&str; 2] = ["Error", "Result"];

const BACKGROUND_MAY: [&str; 4] = ["background", "env", "error", "metrics"];

/// Checks every noun.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let engine = workspace.rust().filter(|s| s.path.starts_with(ENGINE));
    engine.flat_map(|source| check_file(workspace, source)).collect()
}

fn check_file(workspace: &Workspace, source: &Source) -> Vec<Violation> {
    let module = module_of(workspace.moved.get(&source.path).unwrap_or(&source.path));
    let Some(noun) = module.first().map(String::as_str) else { return Vec::new() };
    if !NOUNS.contains(&noun) {
        return Vec::new();
    }
    let is_test = workspace.is_test_only(&source.path);
    let may_name_all = |path: &&PathUse| noun == "engine" && (is_test || path.in_test);
    let named = |path: &PathUse| top_module_named(&module, path).map(|top| (path.line, top));
    let refused = |(line, top): (usize, String)| {
        let reason = refusal(noun, &top)?;
        Some(source.violation(line, format!("`{noun}` names `crate::{top}`: {reason}")))
    };
    let paths = source.code.paths.iter().filter(|path| !may_name_all(path));
    paths.filter_map(named).filter_map(refused).collect()
}

/// Why a noun may not name something at the crate's root, if it may not.
fn refusal(noun: &str, top: &str) -> Option<&'static str> {
    if ROOT_EXPORTS.contains(&top) || noun == top {
        return None;
    }
    if !NOUNS.contains(&top) && !GROUND.contains(&top) {
        return Some("a noun never imports a verb or the public face; turn the dependency round");
    }
    match noun {
        "format" if top == "vfs" => Some("formats do no input or output; take or return bytes"),
        "background" if !BACKGROUND_MAY.contains(&top) => {
            Some("jobs are opaque to it; let the job know what it works on")
        }
        _ => None,
    }
}

/// The modules that a file of the engine stands in.
pub(super) fn module_of(path: &str) -> Vec<String> {
    let inner = path.trim_start_matches(ENGINE).trim_end_matches(".rs");
    let mut module: Vec<String> = inner.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
        module.pop();
    }
    module
}

/// What stands right below the crate's root in a path, if the path leads there.
pub(super) fn top_module_named(module: &[String], path: &PathUse) -> Option<String> {
    if path.starts_with(&["crate"]) {
        return path.names.get(1).cloned();
    }
    let supers = path.names.iter().take_while(|name| *name == "super").count();
    // The path leads to the root if it goes up once for each module that it stands in, those inside
    // the file included.
    (supers > 0 && supers == module.len() + path.depth)
        .then(|| path.names.get(supers).cloned())
        .flatten()
}
