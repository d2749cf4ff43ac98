//! Survivors that people have judged: a list of mutants that nothing can kill, each with the
//! reason.
//!
//! ```toml
//! [[explained]]
//! file = "crates/isobath/src/wal/room.rs"
//! find = "if len < self.spare {"
//! operator = "comparison"
//! change = "-> `<=`"
//! is = "speed only"
//! why = "..."
//! ```
//!
//! `find` occurs exactly once in its file (or `nth` says which one is meant, from 1), so lines may
//! come and go. The entry explains the mutant of this operator that begins within it. If several
//! do, `change`, part of what the report says of it, picks one, or `count` says that the reason
//! holds for so many. So no reason is taken for a mutant that it does not speak of.

use super::site::Mutant;
use super::sources::SourceFile;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Why a mutant that survives is harmless.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Is {
    /// It changes nothing that anyone can see.
    #[serde(rename = "equivalent")]
    Equivalent,
    /// It changes how fast something is, or what it costs, and nothing else.
    #[serde(rename = "speed only")]
    SpeedOnly,
}

impl Is {
    pub(super) fn name(self) -> &'static str {
        match self {
            Is::Equivalent => "equivalent",
            Is::SpeedOnly => "speed only",
        }
    }
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    explained: Vec<Explained>,
}

/// An entry of the list.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Explained {
    file: String,
    find: String,
    nth: Option<usize>,
    operator: String,
    change: Option<String>,
    #[serde(default = "one")]
    count: usize,
    is: Is,
    why: String,
}

fn one() -> usize {
    1
}

/// The reasons, by the keys of the mutants that they explain.
pub(super) type Reasons = BTreeMap<String, (Is, String)>;

/// The entries that a file lists.
pub(super) fn read(list: &Path) -> io::Result<Vec<Explained>> {
    let text = fs::read_to_string(list)?;
    parse(&text).map_err(|error| io::Error::other(format!("{}: {error}", list.display())))
}

/// The entries that such a file's text lists.
pub(super) fn parse(text: &str) -> Result<Vec<Explained>, toml::de::Error> {
    toml::from_str::<List>(text).map(|list| list.explained)
}

/// Which mutants the entries explain, and what is wrong with entries that explain none, or others
/// than they count.
pub(super) fn resolve<'a>(
    list: &[Explained],
    files: impl Iterator<Item = &'a SourceFile> + Clone,
    mutants: &[Mutant],
) -> (Reasons, Vec<String>) {
    let (mut reasons, mut stale) = (Reasons::new(), Vec::new());
    for one in list {
        let text = files.clone().find(|file| file.path == one.file).map(|file| &*file.text);
        let is_about = |mutant: &&Mutant| text.is_some_and(|text| one.is_about(mutant, text));
        let explained: Vec<_> = mutants.iter().filter(is_about).map(Mutant::key).collect();
        let (found, Explained { file, find, operator, change, count, .. }) = (explained.len(), one);
        if found != *count {
            let change = change.as_deref().unwrap_or_default();
            stale.push(format!("{file}: {find:?}, {operator} {change} explains {found} mutants"));
            continue;
        }
        reasons.extend(explained.into_iter().map(|key| (key, (one.is, one.why.clone()))));
    }
    (reasons, stale)
}

impl Explained {
    fn is_about(&self, mutant: &Mutant, text: &str) -> bool {
        let is_like = mutant.file == self.file
            && mutant.name.is_none()
            && mutant.operator == self.operator
            && self.change.as_ref().is_none_or(|change| mutant.change.contains(&**change));
        if !is_like {
            return false;
        }
        let mut places = text.match_indices(&self.find).map(|(at, _)| at);
        let place = match self.nth {
            Some(nth) => places.nth(nth.saturating_sub(1)),
            None => places.next().filter(|_| places.next().is_none()),
        };
        let line: usize =
            text.split_inclusive('\n').take(mutant.line - 1).map(|line| line.len()).sum();
        let at = line + mutant.column.saturating_sub(1);
        place.is_some_and(|place| (place..place + self.find.len()).contains(&at))
    }
}
