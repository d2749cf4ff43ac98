//! Sizes: a file has at most 600 lines, a function at most 70.
//!
//! Files and functions that were larger when the rule was added are listed in
//! `xtask/tidy-allow.txt`, one entry a line: a path or `path::function`, and its number of lines.
//! The list may only shrink: an entry that is no longer needed, or that allows more lines than
//! there are, is a violation itself, and so is an entry beyond `ENTRIES_MAX`.

use super::{Violation, Workspace};
use std::collections::BTreeMap;

/// Where the list is.
pub const LIST: &str = "xtask/tidy-allow.txt";

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
/// How many entries the list has. Lower it with the list.
const ENTRIES_MAX: usize = 0;

/// Checks every Rust file, and the list.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut allowed = allowed(&workspace.allowed, &mut violations);
    for source in workspace.rust() {
        let mut judge = |thing: String, line, lines, max| {
            let limit = allowed.remove(&thing).unwrap_or(max);
            if lines > limit {
                let what = format!("{thing} has {lines} lines, {limit} are the most: split it");
                violations.push(source.violation(line, what));
            } else if limit > max && lines < limit {
                let what = format!("{thing} has {lines} lines now: lower or remove it in {LIST}");
                violations.push(source.violation(line, what));
            }
        };
        judge(source.path.clone(), 0, source.text.lines().count(), FILE_LINES_MAX);
        for function in &source.code.functions {
            let lines = function.last_line - function.first_line + 1;
            let thing = format!("{}::{}", source.path, function.name);
            judge(thing, function.first_line, lines, FUNCTION_LINES_MAX);
        }
    }
    violations.extend(allowed.keys().map(|gone| in_list(format!("{gone} is gone: remove it"))));
    violations
}

fn allowed(list: &str, violations: &mut Vec<Violation>) -> BTreeMap<String, usize> {
    let mut allowed = BTreeMap::new();
    for line in list.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        match line.rsplit_once(' ').map(|(thing, lines)| (thing.trim(), lines.parse())) {
            Some((thing, Ok(lines))) => drop(allowed.insert(thing.to_owned(), lines)),
            _ => violations.push(in_list(format!("not a thing and a number: {line}"))),
        }
    }
    if allowed.len() > ENTRIES_MAX {
        violations.push(in_list(format!("{} entries, {ENTRIES_MAX} are the most", allowed.len())));
    }
    allowed
}

fn in_list(what: String) -> Violation {
    Violation { path: LIST.to_owned(), line: 0, what }
}
