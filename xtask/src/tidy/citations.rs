//! Files that comments and documents cite exist.
//!
//! A citation is a word with the ending of a source file, script or document, in backticks or
//! plain; in backticks also a path whose first folder is one of the workspace. It gives as much of
//! the path as a reader needs: the path of some file or folder must end in it, folder by folder. A
//! file of the reader's own, as `config.toml` might be, is written with `<` or `*` in it, or
//! without the ending.

use super::{Source, Violation, Workspace};
use std::collections::BTreeSet;

const ENDINGS: [&str; 4] = [".rs", ".md", ".sh", ".toml"];

/// Files with these names belong to the reader.
const READERS: [&str; 2] = ["config.toml", "run.toml"];

/// Tables of measurements name files of the machine that measured.
const MEASURED: &str = "docs/results/";

/// Checks every file with comments, and every document.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let known = Known::of(workspace);
    let files = workspace.sources.iter().chain(&workspace.documents);
    files
        .filter(|source| !source.path.starts_with(MEASURED))
        .flat_map(|source| check_file(source, &known))
        .collect()
}

/// What citations may name.
struct Known<'a> {
    /// The ends of all paths, folder by folder.
    ends: BTreeSet<&'a str>,
    /// The first folders that paths in backticks may begin with.
    tops: BTreeSet<&'a str>,
}

impl<'a> Known<'a> {
    fn of(workspace: &'a Workspace) -> Known<'a> {
        let (mut ends, mut tops) = (BTreeSet::new(), BTreeSet::new());
        for path in &workspace.paths {
            let folders = path.match_indices('/').map(|(at, _)| &path[..at]);
            for path in folders.chain([path.as_str()]) {
                let rests = path.match_indices('/').map(|(at, _)| &path[at + 1..]);
                ends.extend(rests.chain([path]));
            }
            let inner = path.strip_prefix(super::imports::ENGINE);
            let firsts = [Some(path.as_str()), inner].into_iter().flatten();
            tops.extend(firsts.filter_map(|path| Some(path.split_once('/')?.0)));
        }
        Known { ends, tops }
    }

    fn holds(&self, cited: &str) -> bool {
        let path = cited.trim_start_matches("../").trim_start_matches("./").trim_end_matches('/');
        self.ends.contains(path)
    }

    /// True if the word, which stands in backticks, can only be meant as a path of the workspace.
    fn is_path(&self, word: &str) -> bool {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        word.split_once('/').is_some_and(|(top, _)| self.tops.contains(top))
            && word.chars().all(is_plain)
    }
}

fn check_file(source: &Source, known: &Known<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let Some(prose) = prose_of(source, line) else { continue };
        let plain = words(prose).filter(|word| is_file(word));
        // Split at backticks, every second piece is inside a pair.
        let inside = prose.split('`').skip(1).step_by(2).filter(|word| known.is_path(word));
        let missing: BTreeSet<&str> =
            plain.chain(inside).filter(|cited| !known.holds(cited)).collect();
        violations.extend(missing.into_iter().map(|cited| {
            source.violation(index + 1, format!("`{cited}` is cited, and is no file here"))
        }));
    }
    violations
}

/// The part of a line that people read.
fn prose_of<'a>(source: &Source, line: &'a str) -> Option<&'a str> {
    let is_document = source.path.ends_with(".md");
    let mark = if source.is_rust() { "//" } else { "#" };
    match line.trim_start().strip_prefix(mark) {
        _ if is_document => Some(line),
        comment => comment,
    }
}

/// The words that may be paths: cut at what no path has in it.
fn words(prose: &str) -> impl Iterator<Item = &str> {
    let cuts = |c: char| c.is_whitespace() || "`()[]{}\"',;|".contains(c);
    prose.split(cuts).map(|word| word.trim_end_matches(['.', ':']))
}

fn is_file(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    let ending = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending));
    ending.is_some_and(|stem| !stem.is_empty())
        && !READERS.contains(&name)
        && !word.contains(['<', '*', '$', ':', '~', '='])
}
