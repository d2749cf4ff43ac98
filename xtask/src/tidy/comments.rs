//! Rules for comments: lines have at most 100 columns, and words that are signs of a riddle are
//! refused.
//!
//! The first rule is for every file with comments: Rust, scripts, manifests, workflows, workloads.
//! Only tables and drawings may be wider: text between fences, and lines with several blanks in a
//! row. Words that are signs of a sentence to rewrite are refused, also in documents.

use super::{Source, Violation, Workspace};

const COLUMNS_MAX: usize = 100;

/// Signs of a riddle. Each is refused as a word of its own, whatever its case.
const RIDDLES: [&str; 6] =
    ["whoever", "somebody", "nobody", "anybody", "a wish that", "sees to it that"];

/// Checks the comments of every file, and the words of documents.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let comments = workspace.sources.iter().flat_map(check_comments);
    let documents = workspace.documents.iter().filter(|d| !d.path.starts_with("docs/results/"));
    comments.chain(documents.flat_map(check_words)).collect()
}

fn check_comments(source: &Source) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut is_fenced = false;
    let mark = mark_of(&source.path);
    for (line, text) in (1..).zip(source.text.lines()) {
        let Some(said) = comment(text, mark) else {
            is_fenced = false;
            continue;
        };
        is_fenced ^= said.trim_start().starts_with("```");
        let columns = text.chars().count();
        if columns > COLUMNS_MAX && !is_fenced && !said.trim().contains("  ") {
            let what = format!("a comment of {columns} columns, {COLUMNS_MAX} are the most");
            violations.push(source.violation(line, what));
        }
        violations.extend(riddle(said).map(|word| source.violation(line, refused(word))));
    }
    violations
}

/// What a comment begins with in the file at `path`.
fn mark_of(path: &str) -> &'static str {
    match path.rsplit_once('.') {
        Some((_, "rs" | "in")) => "//",
        Some((_, "lua")) => "--",
        _ => "#",
    }
}

/// The text of a line that holds only a comment.
fn comment<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let said = line.trim_start().strip_prefix(mark)?;
    Some(said.trim_start_matches(['/', '!']))
}

fn check_words(document: &Source) -> Vec<Violation> {
    let find = |(line, text)| riddle(text).map(|word| document.violation(line, refused(word)));
    (1..).zip(document.text.lines()).filter_map(find).collect()
}

fn refused(word: &str) -> String {
    format!("\"{word}\" stands where a plain sentence would say who does what")
}

/// The first such word that stands in a text outside of code.
fn riddle(text: &str) -> Option<&'static str> {
    let text = text.to_lowercase();
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    RIDDLES.into_iter().find(|word| {
        text.match_indices(word).any(|(at, _)| {
            let (before, behind) = (&text[..at], &text[at + word.len()..]);
            !before.ends_with(is_letter)
                && !behind.starts_with(is_letter)
                && before.matches('`').count() % 2 == 0
        })
    })
}
