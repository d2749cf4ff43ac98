//! How many assertions the engine has: those of code that ships, by room, beside its functions.
//!
//! Assertions state what must hold where state changes: order, bounds, counters, what follows what.
//! The rule keeps the rooms that hold or change the state of a database from losing them. Other
//! rooms, such as the API, options and errors, have little state, and are only counted.

use super::imports::{ENGINE, module_of};
use super::{Violation, Workspace};
use std::collections::BTreeMap;

/// Assertions in code of these rooms that ships, for each hundred of its functions, are at least
/// this many.
const PER_HUNDRED_MIN: usize = 15;
/// The rooms that hold or change the state of a database.
pub const ROOMS: [&str; 16] = [
    "compact",
    "conflict",
    "cursor",
    "engine",
    "flush",
    "follow",
    "footprint",
    "lock",
    "memtable",
    "mvcc",
    "recover",
    "table",
    "transact",
    "version",
    "wal",
    "write",
];
/// Fewer functions than these are no engine: the small workspaces that tests make.
const FUNCTIONS_MIN: usize = 100;
/// What only tests, fuzzers and benchmarks use, though other code is compiled with it.
const DOUBLES: [&str; 6] =
    ["bench_support", "fixtures", "fuzzing", "memory", "planted", "simulation"];
const ASSERTIONS: [&str; 6] =
    ["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"];

/// How many functions and assertions a room has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Functions with a body.
    pub functions: usize,
    /// Assertions, those of release builds and those of debug builds.
    pub assertions: usize,
}

/// The counts, by room.
pub fn counts(workspace: &Workspace) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for source in workspace.rust().filter(|source| source.path.starts_with(ENGINE)) {
        let module = module_of(workspace.moved.get(&source.path).unwrap_or(&source.path));
        let is_double = module.iter().any(|name| DOUBLES.contains(&name.as_str()));
        let Some(room) = module.first() else { continue };
        if is_double || workspace.is_test_only(&source.path) {
            continue;
        }
        let (functions, macros) = (&source.code.functions, &source.code.macros);
        let is_assertion = |name: &str| ASSERTIONS.contains(&name);
        let count = counts.entry(room.clone()).or_default();
        count.functions += functions.iter().filter(|function| !function.in_test).count();
        count.assertions += macros.iter().filter(|m| !m.in_test && is_assertion(&m.name)).count();
    }
    counts
}

/// These counts together.
fn total<'a>(counts: impl Iterator<Item = &'a Count>) -> Count {
    counts.fold(Count::default(), |sum, count| Count {
        functions: sum.functions + count.functions,
        assertions: sum.assertions + count.assertions,
    })
}

/// The rooms with state together.
fn total_of_rooms(counts: &BTreeMap<String, Count>) -> Count {
    total(ROOMS.iter().filter_map(|room| counts.get(*room)))
}

/// A complaint if the engine has too few.
pub fn check(workspace: &Workspace) -> Vec<Violation> {
    let Count { functions, assertions } = total_of_rooms(&counts(workspace));
    if functions < FUNCTIONS_MIN || assertions * 100 >= functions * PER_HUNDRED_MIN {
        return Vec::new();
    }
    let what = format!(
        "{assertions} assertions in {functions} functions, {PER_HUNDRED_MIN} in a hundred are the \
         least: state what must hold where the state changes"
    );
    vec![Violation { path: ENGINE.to_owned(), line: 0, what }]
}

/// A line for each room, and one for all.
pub fn describe(counts: &BTreeMap<String, Count>) -> String {
    let line = |name: &str, Count { functions, assertions }: Count| {
        let each = assertions as f64 / functions.max(1) as f64;
        format!("{name}: {assertions} assertions, {functions} functions, {each:.2} each\n")
    };
    let mut lines: String = counts.iter().map(|(room, count)| line(room, *count)).collect();
    lines.push_str(&line("the rooms with state", total_of_rooms(counts)));
    lines.push_str(&line("all", total(counts.values())));
    lines
}
