//! Compares the public methods of the engine with the calls of the simulated workload. The test
//! fails if a public method is added that no task calls.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The public types, and what stands before a call of theirs in the workload.
const TYPES: [(&str, &[&str]); 34] = [
    ("Db", &["db.", "reader."]),
    ("Snapshot", &["snapshot."]),
    ("Family", &["family.", "side."]),
    ("Reads", &[")."]),
    ("Writes", &[")."]),
    ("Batch", &["batch.", "Batch::"]),
    ("BatchFamily", &["batch.of(&self.side)."]),
    ("Ingest", &["ingest."]),
    ("IngestFamily", &["ingest.of(&self.side)."]),
    ("SortedFileWriter", &["file.", "SortedFileWriter::"]),
    ("Cursor", &["cursor."]),
    ("Entry", &["entry."]),
    ("Range", &["range.", ")."]),
    ("Options", &["options.", "options()).", "Options::", ")."]),
    ("ReadOptions", &["ReadOptions::", ")."]),
    ("WriteOptions", &["WriteOptions::", "WriteOptions::default().", ")."]),
    ("FamilyOptions", &["FamilyOptions::", ")."]),
    ("BlockCache", &["BlockCache::"]),
    ("Value", &["slice."]),
    ("ValueWriter", &["writer."]),
    ("Streamed", &["streamed."]),
    ("ValueReader", &["reader."]),
    ("ReadPoint", &["point.", "ReadPoint::"]),
    ("Metrics", &["metrics."]),
    ("FamilyMetrics", &["family."]),
    ("LevelMetrics", &["level."]),
    ("Transactions", &["transactions.", "stage.db.with(options)."]),
    ("Transaction", &["tx."]),
    ("AbortHandle", &["handle."]),
    ("Prepared", &["handle.", "prepared."]),
    ("Xid", &["xid.", "Xid::"]),
    ("Operations", &["operations."]),
    ("TransactionFamily", &["tx.of(side).", "tx.of(&self.stage.side).", "tx.of(&self.family)."]),
    ("TransactionOptions", &["TransactionOptions::default().", "options.", ")."]),
];

/// Public types whose methods tasks do not call: the simulator's own world, the code that judges
/// errors, and the listener for events.
const OTHERS: [&str; 7] =
    ["Env", "Error", "ErrorKind", "MemoryClass", "StallCause", "BackgroundJob", "CompactionReason"];

/// The methods that a macro expands on several types: each is to be called on one at least.
const MACROS: [(&str, &[&str]); 2] = [
    ("reads.rs", &["db.", "side.", "snapshot.", "family.", "part."]),
    ("writes.rs", &["db.", "side.", "batch.", "writes."]),
];

/// What opens a database on the machine's own files, which a simulation has no use for.
const LEFT_OUT: [&str; 3] = ["Db::open", "Options::in_memory", "SortedFileWriter::create"];

/// Without white space, so that it does not matter how a call is laid out.
fn squeezed(paths: impl Iterator<Item = PathBuf>) -> String {
    let text: String = paths.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    text.split_whitespace().collect()
}

/// The public methods in the body of a macro, which is indented deeper than an `impl` of the file's
/// own.
fn methods_of_macro(source: &str) -> Vec<String> {
    let signatures = source.lines().filter_map(|line| line.strip_prefix("            pub fn "));
    signatures.map(|rest| rest[..rest.find(['(', '<']).unwrap()].to_owned()).collect()
}

/// The public methods of a type, the setters that a list of options makes of its fields among them.
fn methods(of: &str, source: &str) -> Vec<String> {
    let mut found = Vec::new();
    if !source.contains(of) {
        return found;
    }
    let (head, has_lists) = (format!("pub struct {of} {{"), source.contains("options! {"));
    let (mut is_of, mut is_list) = (false, false);
    for line in source.lines() {
        if let Some(rest) = line.strip_prefix("impl") {
            let name = rest.trim_start_matches("<'a>").trim_start();
            is_of = name.split(|c: char| !c.is_alphanumeric()).next() == Some(of)
                && !name.contains(" for ");
        }
        if !line.starts_with(' ') {
            is_list = has_lists && line == head;
        }
        if let Some(rest) = line.strip_prefix("    pub fn ").filter(|_| is_of) {
            let end = rest.find(['(', '<']).unwrap();
            found.push(rest[..end].to_owned());
        }
        if let Some(rest) = line.strip_prefix("    pub ").filter(|_| is_list) {
            found.push(rest[..rest.find(':').unwrap()].to_owned());
        }
    }
    found
}

#[test]
fn every_public_method_is_in_the_workload() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/simulation");
    let folders = [here.join("transactions"), here];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    let workload = squeezed(files.filter(|path| path.is_file() && !path.ends_with("api.rs")));
    let engine = engine_sources();
    let (mut missing, mut left_out) = (Vec::new(), BTreeSet::new());
    let is_called = |receivers: &[&str], method: &str| {
        receivers.iter().any(|receiver| {
            let call = format!("{receiver}{method}");
            workload.contains(&format!("{call}(")) || workload.contains(&format!("{call}::<"))
        })
    };
    for (file, receivers) in MACROS {
        let methods: Vec<String> = engine
            .iter()
            .filter(|(path, _)| path.ends_with(file))
            .flat_map(|(_, text)| methods_of_macro(text))
            .collect();
        assert!(!methods.is_empty(), "{file} has no methods");
        missing.extend(methods.into_iter().filter(|method| !is_called(receivers, method)));
    }
    for (of, receivers) in TYPES {
        let methods: Vec<String> = engine.iter().flat_map(|(_, text)| methods(of, text)).collect();
        assert!(!methods.is_empty(), "{of} has no methods");
        for method in methods {
            let name = format!("{of}::{method}");
            if LEFT_OUT.contains(&&*name) {
                left_out.insert(name);
            } else if !is_called(receivers, &method) {
                missing.push(name);
            }
        }
    }
    assert!(missing.is_empty(), "the workload calls none of {missing:?}");
    assert_eq!(left_out.len(), LEFT_OUT.len(), "there are only {left_out:?}");
}

/// The engine's sources: paths and texts.
fn engine_sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../isobath/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((path.clone(), std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    found
}

/// The types that the engine exports.
fn exported(lib: &str) -> Vec<&str> {
    let paths = lib.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let names = paths.flat_map(|path| {
        let names = path.rsplit_once("::").map_or(path, |(_, names)| names);
        names.trim_matches(['{', '}']).split(',').map(str::trim)
    });
    names.filter(|name| name.contains(|c: char| c.is_lowercase())).collect()
}

#[test]
fn every_exported_type_with_methods_is_known_here() {
    let engine = engine_sources();
    let is_lib = |path: &Path| path.ends_with("isobath/src/lib.rs");
    let (_, lib) = engine.iter().find(|(path, _)| is_lib(path)).unwrap();
    let exported = exported(lib);
    assert!(exported.len() > 30, "{exported:?}");
    let has_methods = |name: &str| engine.iter().any(|(_, text)| !methods(name, text).is_empty());
    let is_known = |name: &str| OTHERS.contains(&name) || TYPES.iter().any(|(of, _)| *of == name);
    let unknown: Vec<_> =
        exported.into_iter().filter(|name| has_methods(name) && !is_known(name)).collect();
    assert!(unknown.is_empty(), "nothing says what calls the methods of {unknown:?}");
}
