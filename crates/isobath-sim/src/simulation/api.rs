//! The public methods of the engine against the simulated workload: one that is added and that no task calls fails here.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The public types, where they are, and what stands before a call of theirs in the workload.
const TYPES: [(&str, &str, &[&str]); 13] = [
    ("Db", "db.rs", &["db.", "reader."]),
    ("Snapshot", "snapshot.rs", &["snapshot."]),
    ("Family", "family.rs", &["family.", "side."]),
    ("Reads", "reads.rs", &[")."]),
    ("Writes", "writes.rs", &[")."]),
    ("Batch", "batch.rs", &["batch.", "Batch::"]),
    ("Cursor", "iter.rs", &["cursor."]),
    ("Range", "iter.rs", &["range.", ")."]),
    ("Options", "options/mod.rs", &["options.", "options()).", "Options::", ")."]),
    ("ReadOptions", "options/call.rs", &["ReadOptions::", ")."]),
    ("WriteOptions", "options/call.rs", &["WriteOptions::", "WriteOptions::default().", ")."]),
    ("FamilyOptions", "options/family.rs", &["FamilyOptions::", ")."]),
    ("BlockCache", "table/cache/blocks.rs", &["BlockCache::"]),
];

/// The methods that a macro expands on several types: each is to be called on one at least.
const MACROS: [(&str, &[&str]); 2] = [
    ("reads.rs", &["db.", "side.", "snapshot.", "family.", "part."]),
    ("writes.rs", &["db.", "side.", "batch.", "writes."]),
];

/// What opens a database on the machine's own files, which a simulation has no use for.
const LEFT_OUT: [&str; 2] = ["Db::open", "Options::in_memory"];

/// Without white space, so that it does not matter how a call is laid out.
fn squeezed(paths: impl Iterator<Item = PathBuf>) -> String {
    let text: String = paths.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    text.split_whitespace().collect()
}

/// The public methods in the body of a macro, which is indented deeper than an `impl` of the file's own.
fn methods_of_macro(source: &str) -> Vec<String> {
    let signatures = source.lines().filter_map(|line| line.strip_prefix("            pub fn "));
    signatures.map(|rest| rest[..rest.find(['(', '<']).unwrap()].to_owned()).collect()
}

/// The public methods of a type, and the setters of options, which a macro makes of fields with defaults.
fn methods(of: &str, source: &str) -> Vec<String> {
    let (mut is_of, mut is_list) = (false, false);
    let mut found = Vec::new();
    for line in source.lines() {
        is_list = line == format!("pub struct {of} {{") || (is_list && line != "}");
        if let Some((name, field)) =
            line.strip_prefix("    pub ").and_then(|rest| rest.split_once(": "))
            && is_list
            && field.contains(" = ")
        {
            found.push(name.to_owned());
        }
        if let Some(rest) = line.strip_prefix("impl") {
            let name = rest.trim_start_matches("<'a>").trim_start();
            is_of = name.split(|c: char| !c.is_alphanumeric()).next() == Some(of)
                && !name.contains(" for ");
        }
        if let Some(rest) = line.strip_prefix("    pub fn ").filter(|_| is_of) {
            let end = rest.find(['(', '<']).unwrap();
            found.push(rest[..end].to_owned());
        }
    }
    found
}

#[test]
fn every_public_method_is_in_the_workload() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/simulation");
    let files = std::fs::read_dir(here).unwrap().map(|entry| entry.unwrap().path());
    let workload = squeezed(files.filter(|path| path.is_file() && !path.ends_with("api.rs")));
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../isobath/src");
    let (mut missing, mut left_out) = (Vec::new(), BTreeSet::new());
    let is_called = |receivers: &[&str], method: &str| {
        receivers.iter().any(|receiver| {
            let call = format!("{receiver}{method}");
            workload.contains(&format!("{call}(")) || workload.contains(&format!("{call}::<"))
        })
    };
    for (file, receivers) in MACROS {
        let methods = methods_of_macro(&std::fs::read_to_string(engine.join(file)).unwrap());
        assert!(!methods.is_empty(), "{file} has no methods");
        missing.extend(methods.into_iter().filter(|method| !is_called(receivers, method)));
    }
    for (of, file, receivers) in TYPES {
        let methods = methods(of, &std::fs::read_to_string(engine.join(file)).unwrap());
        assert!(!methods.is_empty(), "{file} has no methods of {of}");
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
