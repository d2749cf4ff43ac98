//! Mutants and the places in a source where they stand.
//!
//! A [`Site`] is a range of a file's bytes with the texts that mutants put in its place. Sites come
//! from nodes of the syntax tree, so two of them are disjoint, equal, or one lies within the other.

use std::collections::BTreeMap;
use std::ops::Range;

/// One change of the engine's sources.
#[derive(Clone, Debug)]
pub(super) struct Mutant {
    /// What switches it on by name; mutants that an operator made have none.
    pub(super) name: Option<String>,
    /// From the root of the workspace.
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) operator: &'static str,
    /// What it does, on one line.
    pub(super) change: String,
    /// The access that a weaker order is of.
    pub(super) access: Option<Access>,
}

/// What has an order, as far as loom's fences care: it models sequentially consistent fences, and
/// takes such accesses for acquire and release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Its order is not sequentially consistent, or it is a fence itself.
    Weak,
    /// A sequentially consistent store. In the engine a fence for loom follows it.
    Store,
    /// A sequentially consistent load, alone or as part of an update.
    Load,
    /// A sequentially consistent update: both.
    Update,
}

impl Access {
    pub(super) fn is_strong(self) -> bool {
        self != Access::Weak
    }

    pub(super) fn loads(self) -> bool {
        matches!(self, Access::Load | Access::Update)
    }

    pub(super) fn stores(self) -> bool {
        matches!(self, Access::Store | Access::Update)
    }
}

impl Mutant {
    /// Where it stands and what it does: the same from weave to weave while the file stays as it
    /// is.
    pub(super) fn key(&self) -> String {
        let Mutant { file, line, column, operator, change, .. } = self;
        format!("{file}:{line}:{column} {operator}: {change}")
    }

    /// The module that its file belongs to.
    pub(super) fn module(&self) -> &str {
        module_of(&self.file)
    }
}

/// The module that a file belongs to: the folder or file below `src`.
pub(super) fn module_of(file: &str) -> &str {
    let inside = file.split_once("/src/").map_or(file, |(_, inside)| inside);
    match inside {
        "engine/read_points.rs" | "snapshot.rs" => "snapshots",
        _ => inside.split_once('/').map_or(inside, |(folder, _)| folder).trim_end_matches(".rs"),
    }
}

/// What stands at a site, and so what the text around a mutant's must look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A function as a whole: never changed, it only says which mutants lie in it.
    Function,
    /// All that is between a body's braces.
    Body,
    /// An expression that gives a value.
    Expression,
    /// The call of a fence that goes with the order of an access before it.
    Fence,
    /// A statement with its semicolon.
    Statement,
    /// The place behind a body's opening brace.
    Start,
}

/// A range and the texts that mutants put in its place.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub(super) range: Range<usize>,
    pub(super) kind: Kind,
    /// Indices of mutants, with their texts.
    pub(super) alternatives: Vec<(usize, String)>,
}

/// The sites of one file while they are looked for, and the mutants of all files.
#[derive(Debug, Default)]
pub(super) struct Sites {
    found: BTreeMap<(usize, usize, Kind), Vec<(usize, String)>>,
}

impl Sites {
    /// Notes that a mutant puts `text` in place of `range`.
    pub(super) fn add(&mut self, range: Range<usize>, kind: Kind, mutant: usize, text: String) {
        self.found.entry((range.start, range.end, kind)).or_default().push((mutant, text));
    }

    /// Notes a function.
    pub(super) fn function(&mut self, range: Range<usize>) {
        self.found.entry((range.start, range.end, Kind::Function)).or_default();
    }

    /// The sites without those mutants that are refused, outer ones before those within them.
    pub(super) fn sorted(&self, is_refused: impl Fn(usize) -> bool) -> Vec<Site> {
        let mut sites: Vec<Site> = Vec::new();
        for (&(start, end, kind), alternatives) in &self.found {
            let mut alternatives = alternatives.clone();
            alternatives.retain(|(mutant, _)| !is_refused(*mutant));
            if kind == Kind::Function || !alternatives.is_empty() {
                sites.push(Site { range: start..end, kind, alternatives });
            }
        }
        sites.sort_by_key(|site| (site.range.start, usize::MAX - site.range.end, site.kind));
        sites
    }
}
