//! `unsafe` stands in listed files only, and every listed file has some.
//!
//! `xtask/unsafe-files.txt` has a line for each: its path, then what Miri can do with it, which
//! `xtask/miri.sh` reads: `miri` and a filter of test names, or `no-miri` and the reason.

use super::{Violation, Workspace};
use std::collections::BTreeSet;

/// Where the list is.
pub const LIST: &str = "xtask/unsafe-files.txt";

/// Checks every Rust file, and the list.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut listed = BTreeSet::new();
    for (index, line) in workspace.unsafe_files.lines().enumerate() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let mut words = line.split_whitespace();
        listed.extend(words.next());
        if !matches!(words.next(), Some("miri" | "no-miri")) || words.next().is_none() {
            let what = "say `miri` and a filter of tests, or `no-miri` and why".to_owned();
            violations.push(Violation { path: LIST.to_owned(), line: index + 1, what });
        }
    }
    for source in workspace.rust() {
        let is_listed = listed.remove(source.path.as_str());
        match source.code.unsafe_lines.first() {
            Some(line) if !is_listed => violations.push(source.violation(
                *line,
                format!(
                    "`unsafe` here is news: move it to a file of {LIST}, or argue for a new one"
                ),
            )),
            None if is_listed => violations.push(
                source.violation(0, format!("no `unsafe` is left here: remove it from {LIST}")),
            ),
            _ => {}
        }
    }
    violations.extend(listed.into_iter().map(|gone| Violation {
        path: LIST.to_owned(),
        line: 0,
        what: format!("{gone} is gone: remove it"),
    }));
    violations
}
