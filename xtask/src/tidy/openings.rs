//! A Rust file opens by saying what it is, and nothing is left for later.

use super::{Source, Violation, Workspace};

/// Words that put work off. Spelled in halves, since this file is checked too.
const LATER: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Macros that put work off.
const LATER_MACROS: [&str; 2] = ["todo", "unimplemented"];

/// Checks every file.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    workspace.sources.iter().flat_map(check_file).collect()
}

fn check_file(source: &Source) -> Vec<Violation> {
    let mut violations = Vec::new();
    if source.is_rust() && !source.text.starts_with("//!") {
        violations.push(source.violation(1, "open with `//!`: what is it, where does it stand?"));
    }
    for (index, line) in source.text.lines().enumerate() {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if let Some(word) = words.find(|word| LATER.contains(word)) {
            let what = format!("`{word}`: do it, or write an issue");
            violations.push(source.violation(index + 1, what));
        }
    }
    for mention in &source.code.macros {
        if LATER_MACROS.contains(&mention.name.as_str()) {
            let what = format!("`{}!`: no stubs", mention.name);
            violations.push(source.violation(mention.line, what));
        }
    }
    violations
}
