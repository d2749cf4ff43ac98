//! Compares what a program can call of the engine with the calls of the simulated workload. The
//! tests fail if a public method or function is added that no task calls.

mod calls;
mod engine;

use calls::Workload;
use engine::Engine;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// The public types, and what the workload calls them by. `with()` stands for any call of `with`.
const TYPES: [(&str, &[&str]); 39] = [
    ("Db", &["db", "reader"]),
    ("Snapshot", &["snapshot", "snapshot()"]),
    ("Family", &["family", "side"]),
    ("Reads", &["snapshot.with()", "snapshot.with().of()", "snapshot.of()"]),
    ("Writes", &["db.with()", "writes"]),
    ("WritesFamily", &["of_side"]),
    ("Batch", &["batch"]),
    ("BatchFamily", &["batch.of()"]),
    ("Ingest", &["ingest"]),
    ("IngestFamily", &["ingest.of()"]),
    ("SortedFileWriter", &["file"]),
    ("Cursor", &["cursor"]),
    ("Entry", &["entry"]),
    ("Range", &["range", "range()"]),
    ("Options", &["Options::new()", "options", "options()"]),
    ("ReadOptions", &["ReadOptions::new()", "ReadOptions::default()"]),
    ("WriteOptions", &["WriteOptions::new()", "WriteOptions::default()", "write"]),
    ("FamilyOptions", &["FamilyOptions::new()", "options", "family_options()"]),
    ("BlockCache", &["cache"]),
    ("Value", &["slice"]),
    ("ValueWriter", &["writer"]),
    ("Streamed", &["streamed"]),
    ("ValueReader", &["reader"]),
    ("ReadPoint", &["point"]),
    ("Metrics", &["metrics"]),
    ("FamilyMetrics", &["family"]),
    ("LevelMetrics", &["level"]),
    ("Transactions", &["transactions", "db.with()"]),
    ("Transaction", &["tx"]),
    ("AbortHandle", &["handle"]),
    ("Prepared", &["handle", "prepared"]),
    ("Xid", &["xid"]),
    ("Operations", &["operations"]),
    ("TransactionFamily", &["tx.of()"]),
    ("TransactionOptions", &["TransactionOptions::default()", "options"]),
    ("RepairOptions", &["RepairOptions::new()", "options", "options.clone()"]),
    ("Report", &["report"]),
    ("RepairReport", &["repaired"]),
    ("Codec", &["codec"]),
];

/// Public types whose methods tasks do not call: the simulator's own world, and the code that
/// judges errors and listens for events.
const OTHERS: [&str; 6] =
    ["Error", "ErrorKind", "MemoryClass", "StallCause", "BackgroundJob", "CompactionReason"];

/// Traits whose methods the engine calls. The workload implements them.
const OF_PROGRAMS: [&str; 2] = ["MergeOperator", "CommitHook"];

/// What is not called, and why.
const LEFT_OUT: [(&str, &str); 5] = [
    ("Db::open", "it opens the machine's own files"),
    ("Options::in_memory", "it opens no files that could be cut"),
    ("SortedFileWriter::create", "it writes to the machine's own files"),
    ("Codec::is_available", "it tells of the build, and all codecs are in this one"),
    ("CompactionFilter::filter", "the filter of the simulation is a function, as any may be"),
];

static ENGINE: LazyLock<Engine> = LazyLock::new(Engine::read);

fn receivers(of: &str) -> Option<&'static [&'static str]> {
    TYPES.iter().find(|(name, _)| *name == of).map(|(_, receivers)| *receivers)
}

/// What the workload does not call.
fn missing(engine: &Engine, workload: &Workload) -> BTreeSet<String> {
    let mut missing = BTreeSet::new();
    for (of, receivers) in TYPES {
        let methods = engine.methods.get(of).unwrap_or_else(|| panic!("{of} has no methods"));
        for method in methods {
            let name = format!("{of}::{method}");
            let chained = if of.ends_with("Options") { methods } else { &BTreeSet::new() };
            if !workload.paths.contains(&name) && !workload.calls(receivers, method, chained) {
                missing.insert(name);
            }
        }
    }
    for (of, methods) in &engine.traits {
        let is_there = |method: &&String| match OF_PROGRAMS.contains(&&**of) {
            true => workload.implemented.contains(&(of.clone(), (*method).clone())),
            false => workload.calls_by_trait(of, method),
        };
        if engine.exported.contains(of) {
            let absent = methods.iter().filter(|method| !is_there(method));
            missing.extend(absent.map(|method| format!("{of}::{method}")));
        }
    }
    let functions = engine.functions.iter().filter(|name| engine.exported.contains(*name));
    let functions = functions.map(|name| format!("tools::{name}"));
    missing.extend(functions.filter(|name| !workload.paths.contains(name)));
    missing
}

#[test]
fn every_public_method_is_in_the_workload() {
    let mut missing = missing(&ENGINE, &Workload::read());
    for (name, why) in LEFT_OUT {
        assert!(missing.remove(name), "{name} is called, and left out as {why}");
    }
    assert!(missing.is_empty(), "the workload calls none of {missing:#?}");
}

#[test]
fn every_exported_type_with_methods_is_known_here() {
    let engine = &*ENGINE;
    let exported = &engine.exported;
    assert!(exported.len() > 80, "{exported:?}");
    let is_known = |name: &str| OTHERS.contains(&name) || receivers(name).is_some();
    let has_methods = |name: &str| engine.methods.contains_key(name);
    let unknown: Vec<_> =
        exported.iter().filter(|name| has_methods(name) && !is_known(name)).collect();
    assert!(unknown.is_empty(), "nothing says what calls the methods of {unknown:?}");
}

#[test]
fn no_macro_hides_a_method() {
    let engine = &*ENGINE;
    for (of, methods) in &engine.macros {
        let is_on_a_type =
            |method: &String| TYPES.iter().any(|(of, _)| engine.methods[*of].contains(method));
        let hidden: Vec<_> = methods.iter().filter(|method| !is_on_a_type(method)).collect();
        assert!(hidden.is_empty(), "{of} expands to {hidden:?} on no type that is known here");
    }
    let named: Vec<&str> = engine.named_by_calls.iter().map(String::as_str).collect();
    assert_eq!(named, ["options"], "macros that name methods after what they are given");
}
