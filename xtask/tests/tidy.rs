//! The workspace keeps the house rules, and each rule catches what it is there to catch.

use xtask::tidy::rooms::{describe, rooms};
use xtask::tidy::{Source, Violation, Workspace, check, workspace_root};
use xtask::tidy::{assertions, imports};

#[test]
fn the_workspace_keeps_the_house_rules() {
    let workspace = Workspace::load(&workspace_root()).unwrap();
    assert!(workspace.sources.len() > 50, "the sources were not found");
    let violations: Vec<_> = check(&workspace).iter().map(Violation::to_string).collect();
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

/// The violations that the rules find in these files.
fn verdict_with(files: &[(&str, &str)], unsafe_files: &str, allowed: &str) -> Vec<(String, usize)> {
    let sources = files.iter().map(|(path, text)| Source::new(path, text).unwrap()).collect();
    let workspace = Workspace::of(sources, unsafe_files.to_owned(), allowed.to_owned());
    check(&workspace).into_iter().map(|v| (v.path, v.line)).collect()
}

/// The lines that the rules complain about in one file of the engine.
fn lines(path: &str, body: &str) -> Vec<usize> {
    let path = format!("crates/isobath/src/{path}");
    let text = format!("//! A file.\n{body}");
    verdict_with(&[(&path, &text)], "", "").into_iter().map(|(_, line)| line).collect()
}

const CLEAN: &[usize] = &[];

#[test]
fn a_noun_that_imports_a_verb_is_caught() {
    assert_eq!(lines("table/block.rs", "use crate::compact::Plan;"), [2]);
    assert_eq!(lines("wal/mod.rs", "use crate::{error::Error, write::Commit};"), [2]);
    assert_eq!(lines("vfs/mod.rs", "fn f() {\n    crate::recover::replay()\n}"), [3]);
    assert_eq!(lines("memtable/mod.rs", "use crate::db::Db;"), [2]);
    assert_eq!(lines("memtable/mod.rs", "use crate::Db;"), [2]);
    assert_eq!(lines("footprint/mod.rs", "pub fn f(batch: &crate::batch::Batch) {}"), [2]);
    assert_eq!(lines("version/mod.rs", "use crate::*;"), [2]);
}

#[test]
fn a_noun_that_climbs_to_a_verb_is_caught() {
    assert_eq!(lines("table/mod.rs", "use super::flush::Job;"), [2]);
    assert_eq!(lines("table/block.rs", "use super::super::flush::Job;"), [2]);
    let nested = "mod m {\n    use super::super::super::flush::Job;\n}";
    assert_eq!(lines("table/block.rs", nested), [3]);
    assert_eq!(lines("table/block.rs", "use super::flush::Job;"), CLEAN);
    let declares = "//! A file.\n#[cfg(test)]\n#[path = \"tests/set.rs\"]\nmod tests;\n";
    let climbs = "//! A file.\nuse super::super::names;\nuse super::super::super::read;\n";
    let moved = "crates/isobath/src/version/tests/set.rs";
    let files = [("crates/isobath/src/version/set.rs", declares), (moved, climbs)];
    assert_eq!(verdict_with(&files, "", ""), [(moved.to_owned(), 3)]);
}

#[test]
fn what_nouns_and_verbs_may_import_is_not_complained_about() {
    assert_eq!(lines("table/block.rs", "use crate::{Error, cursor, format::Lsn, vfs};"), CLEAN);
    assert_eq!(lines("write/commit.rs", "use crate::{compact, db::Db, table, wal};"), CLEAN);
    assert_eq!(lines("db.rs", "use crate::{flush, read, write};"), CLEAN);
    let words = "// crate::compact\nconst S: &str = \"crate::compact::X\";";
    assert_eq!(lines("table/block.rs", words), CLEAN);
}

#[test]
fn a_format_that_knows_files_and_a_background_that_knows_jobs_are_caught() {
    assert_eq!(lines("format/varint.rs", "use crate::vfs::ReadFile;"), [2]);
    assert_eq!(lines("format/varint.rs", "use crate::error::Error;"), CLEAN);
    assert_eq!(lines("background/mod.rs", "use crate::table::Table;"), [2]);
    assert_eq!(lines("background/mod.rs", "use crate::{env, error, metrics};"), CLEAN);
}

#[test]
fn rooms_that_import_each_other_in_a_circle_are_caught() {
    let file = |path: &str, body: &str| {
        Source::new(&format!("crates/isobath/src/{path}"), &format!("//! A file.\n{body}")).unwrap()
    };
    let verdict = |files: &[(&str, &str)]| {
        let sources = files.iter().map(|(path, body)| file(path, body)).collect();
        let workspace = Workspace::of(sources, String::new(), String::new());
        check(&workspace).iter().map(Violation::to_string).collect::<Vec<_>>()
    };
    let three = |last: &str| {
        let lib = "pub use write::Commit;";
        let (write, flush) = ("use crate::flush::submit;", "use crate::read::get;");
        verdict(&[("lib.rs", lib), ("write.rs", write), ("flush.rs", flush), ("read.rs", last)])
    };
    let caught = three("use crate::Commit;");
    assert_eq!(caught.len(), 3, "{caught:?}");
    assert!(caught[0].ends_with("circle: flush -> read -> write -> flush"), "{caught:?}");
    assert_eq!(three("#[cfg(test)]\nmod tests {\n    use crate::Commit;\n}"), [""; 0]);
    assert_eq!(three("use crate::nothing;"), [""; 0]);
    // Imports between files of one room are allowed, also through a name that the root gives to a
    // file.
    let lib = ("lib.rs", "use api::{batch, db};");
    let (db, batch) = (("api/db.rs", "use crate::batch;"), ("api/batch.rs", "use crate::api::db;"));
    assert_eq!(verdict(&[lib, db, batch]), [""; 0]);
    let write = ("write.rs", "use crate::batch::Batch;");
    assert_eq!(verdict(&[lib, db, batch, write]), [""; 0]);
    let calls = ("api/calls.rs", "use crate::write::Commit;");
    assert_eq!(verdict(&[lib, db, batch, write, calls]).len(), 2);
}

#[test]
fn the_rooms_of_the_engine_are_in_layers() {
    let workspace = Workspace::load(&workspace_root()).unwrap();
    let shown = describe(&rooms(&workspace));
    println!("{shown}");
    assert!(!shown.contains("circles"), "{shown}");
    let place = |room: &str| shown.lines().position(|line| line.starts_with(&format!("{room}: ")));
    let order = ["host", "vfs", "env", "format", "wal", "engine", "write", "api"].map(place);
    assert!(order.is_sorted() && order[0].is_some(), "{shown}");
}

/// A rule about a room that does not exist checks nothing, and no other test would notice.
#[test]
fn the_rules_name_only_rooms_that_exist() {
    let workspace = Workspace::load(&workspace_root()).unwrap();
    let rooms = rooms(&workspace);
    let named = imports::NOUNS.iter().chain(&imports::GROUND).chain(&assertions::ROOMS);
    let missing: Vec<_> = named.filter(|room| !rooms.contains_key(**room)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn an_engine_with_few_assertions_is_caught() {
    let text = |asserting: usize| {
        let body = |at: usize| if at < asserting { "debug_assert!(at < 9);" } else { "at + 1;" };
        let functions = (0..100).map(|at| format!("fn f{at}(at: u8) {{ {} }}", body(at)));
        let test =
            "#[cfg(test)]\nmod tests { #[test] fn t() { assert!(true); assert_eq!(1, 1); } }";
        format!("{}\n{test}", functions.collect::<Vec<_>>().join("\n"))
    };
    assert_eq!(lines("wal/mod.rs", &text(15)), CLEAN);
    assert_eq!(lines("wal/mod.rs", &text(14)), [0]);
    assert_eq!(lines("wal/mod.rs", "fn f() -> u8 { 1 }"), CLEAN, "too small to count");
}

/// `cargo test -p xtask the_assertions -- --nocapture` prints the counts.
#[test]
fn the_assertions_are_counted_by_room() {
    let workspace = Workspace::load(&workspace_root()).unwrap();
    let counts = assertions::counts(&workspace);
    println!("{}", assertions::describe(&counts));
    for room in ["wal", "memtable", "table", "version", "engine", "lock"] {
        assert!(counts[room].functions > 20 && counts[room].assertions > 0, "{room}");
    }
}

#[test]
fn a_long_file_and_a_long_function_are_caught() {
    assert_eq!(lines("db.rs", &"\n".repeat(599)), CLEAN);
    assert_eq!(lines("db.rs", &"\n".repeat(600)), [0]);
    let function = |lines: usize| format!("fn f() -> u8 {{{}1\n}}", "\n".repeat(lines - 2));
    assert_eq!(lines("db.rs", &function(70)), CLEAN);
    assert_eq!(lines("db.rs", &function(71)), [2]);
    let inner =
        format!("impl X {{\n    pub fn g(\n        self,\n    ) {{{}}}\n}}", "\n".repeat(70));
    assert_eq!(lines("db.rs", &inner), [3]);
    assert_eq!(lines("db.rs", "trait T {\n    fn f(&self);\n}"), CLEAN);
}

#[test]
fn the_allowlist_only_shrinks() {
    let path = "crates/isobath/src/db.rs";
    let long = format!("//! A file.\n{}", "\n".repeat(650));
    let list = |entry: &str| verdict_with(&[(path, &long)], "", entry);
    // The list is meant to be empty, so every entry is a violation.
    let in_list = ("xtask/tidy-allow.txt".to_owned(), 0);
    let of_file = (path.to_owned(), 0);
    let sorted = |mut verdict: Vec<(String, usize)>| {
        verdict.sort();
        verdict
    };
    assert_eq!(list(&format!("{path} 651")), std::slice::from_ref(&in_list));
    assert_eq!(sorted(list(&format!("{path} 650"))), [of_file.clone(), in_list.clone()]);
    assert_eq!(sorted(list(&format!("{path} 652"))), [of_file, in_list.clone()]);
    assert_eq!(list("gone.rs 700").iter().filter(|v| **v == in_list).count(), 2);
    assert!(list("no number").contains(&in_list));
}

#[test]
fn unsafe_in_a_file_that_is_not_listed_is_caught() {
    let body = "// unsafe\nfn f() {\n    unsafe { g() }\n}";
    assert_eq!(lines("db.rs", body), [4]);
    assert_eq!(lines("db.rs", "macro_rules! m { () => { unsafe { g() } } }"), [2]);
    assert_eq!(lines("db.rs", "const S: &str = \"unsafe\"; // unsafe"), CLEAN);
    let (path, text) = ("crates/isobath/src/db.rs", format!("//! A file.\n{body}"));
    let verdict = |list: &str| verdict_with(&[(path, &text)], list, "");
    assert_eq!(verdict("crates/isobath/src/db.rs miri db::"), []);
    assert_eq!(verdict("crates/isobath/src/db.rs"), [("xtask/unsafe-files.txt".to_owned(), 1)]);
}

#[test]
fn a_listed_file_without_unsafe_is_caught() {
    let path = "crates/isobath/src/db.rs";
    let verdict = |list: &str| verdict_with(&[(path, "//! A file.\n")], list, "");
    assert_eq!(verdict("crates/isobath/src/db.rs miri db::"), [(path.to_owned(), 0)]);
    let gone = verdict("crates/isobath/src/gone.rs miri x");
    assert_eq!(gone, [("xtask/unsafe-files.txt".to_owned(), 0)]);
}

#[test]
fn what_is_left_for_later_is_caught() {
    let later = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];
    for word in later {
        assert_eq!(lines("db.rs", &format!("// {word}: this")), [2], "{word}");
        let script = format!("#!/bin/sh\n# {word}\n");
        let caught = verdict_with(&[("xtask/miri.sh", &script)], "", "");
        assert_eq!(caught, [("xtask/miri.sh".to_owned(), 2)]);
        assert_eq!(lines("db.rs", &format!("// {word}S and a_{word}")), CLEAN);
    }
    assert_eq!(lines("db.rs", "fn f() {\n    todo!()\n}"), [3]);
    assert_eq!(lines("db.rs", "fn f() {\n    std::unimplemented!(\"soon\")\n}"), [3]);
}

#[test]
fn a_file_that_does_not_say_what_it_is_is_caught() {
    let path = "crates/isobath-cli/src/main.rs";
    assert_eq!(verdict_with(&[(path, "fn main() {}\n")], "", ""), [(path.to_owned(), 1)]);
}

#[test]
fn reaching_outside_past_the_env_is_caught() {
    for outside in [
        "use std::fs;",
        "use std::{io, fs::File};",
        "use std::time::{Duration, Instant};",
        "use std::time;",
        "fn f() { std::thread::spawn(g); }",
        "use std::sync::{Arc, Mutex};",
        "use std::sync::atomic::AtomicU64;",
        "use std::sync;",
        "use std::sync::{self, Arc};",
        "use core::sync::atomic::AtomicU64;",
        "use parking_lot::RwLock;",
        "thread_local! { static X: u8 = 0; }",
        "std::thread_local! { static X: u8 = 0; }",
        "macro_rules! m { () => { ::std::fs::read(p) } }",
    ] {
        let caught = lines("read/get.rs", outside);
        assert!(!caught.is_empty() && caught.iter().all(|line| *line == 2), "{outside}");
        assert_eq!(lines("vfs/system/mod.rs", outside), CLEAN, "{outside}");
        assert_eq!(lines("host/clock.rs", outside), CLEAN, "{outside}");
        let in_test = format!("#[cfg(test)]\nmod tests {{\n{outside}\n}}");
        assert_eq!(lines("read/get.rs", &in_test), CLEAN, "{outside}");
        let after_test = format!("#[cfg(test)]\nmod tests {{}}\n{outside}");
        assert!(lines("read/get.rs", &after_test).contains(&4), "{outside}");
    }
    assert_eq!(lines("read/get.rs", "use std::{sync::Arc, time::Duration};"), CLEAN);
    let elsewhere = [("crates/isobath-cli/src/x.rs", "//! A file.\nuse std::fs;")];
    assert_eq!(verdict_with(&elsewhere, "", ""), []);
}

#[test]
fn files_of_test_modules_may_reach_outside() {
    let declares = "//! A file.\nmod a;\n#[cfg(test)]\nmod tests;\n\
                    #[cfg(test)]\n#[path = \"tests/b.rs\"]\nmod b;\n";
    let reaches = "//! A file.\nuse std::fs;\n";
    let files = [
        ("crates/isobath/src/wal/mod.rs", declares),
        ("crates/isobath/src/wal/a.rs", reaches),
        ("crates/isobath/src/wal/tests.rs", reaches),
        ("crates/isobath/src/wal/tests/deep.rs", reaches),
        ("crates/isobath/src/wal/tests/b.rs", reaches),
    ];
    let caught = verdict_with(&files, "", "");
    assert_eq!(caught, [("crates/isobath/src/wal/a.rs".to_owned(), 2)]);
}

#[test]
fn files_that_are_cited_and_are_not_there_are_caught() {
    for there in [
        "// See `wal/log.rs`, wal/log.rs: and log.rs. It is in `wal/`, or `crates/isobath/src/wal`.",
        "// Nothing of the workspace: `target/x`, a `.rs`, <name>.toml, https://example.org/log.md, and/or.",
        "/// [`Log`](crate::wal::Log), `a.b/c`",
        "const S: &str = \"gone.rs\";",
    ] {
        assert_eq!(lines("wal/log.rs", there), CLEAN, "{there}");
    }
    for gone in [
        "// See `wal/gone.rs`.",
        "//! (gone.rs)",
        "/// docs/gone.md",
        "// `log/log.rs`",
        "// `og.rs`",
        "// `wal/gone/`",
        "// `crates/isobath/tests/gone`",
    ] {
        assert_eq!(lines("wal/log.rs", gone), [2], "{gone}");
    }
    let script = ("xtask/x.sh", "#!/bin/sh\n# by gone.sh\necho gone.md\n");
    assert_eq!(verdict_with(&[script], "", ""), [("xtask/x.sh".to_owned(), 2)]);
    let mut workspace = Workspace::default();
    workspace.documents.push(Source::new("docs/x.md", "A [link](../gone.md), `x.md`.").unwrap());
    assert_eq!(check(&workspace).len(), 2, "of itself it knows by its path only");
    workspace.paths.insert("docs/x.md".to_owned());
    assert_eq!(check(&workspace).len(), 1);
}

#[test]
fn a_file_for_tests_alone_that_is_called_something_else_is_caught() {
    let verdict = |name: &str, file: &str| {
        let declares =
            format!("//! A file.\n#[cfg(all(test, not(loom)))]\nmod {name};\nmod ships;\n");
        let declaring = "crates/isobath/src/wal/mod.rs";
        let path = format!("crates/isobath/src/wal/{file}");
        let ships = "crates/isobath/src/wal/ships.rs";
        let text = "//! A file.\n";
        verdict_with(&[(declaring, &declares), (&path, text), (ships, text)], "", "")
    };
    for (name, file) in [("tests", "tests/deep.rs"), ("order_model", "order_model.rs")] {
        assert_eq!(verdict(name, file), [], "{file}");
    }
    for (name, file) in [("wal_tests", "wal_tests.rs"), ("scripts", "scripts.rs")] {
        assert_eq!(verdict(name, file), [(format!("crates/isobath/src/wal/{file}"), 0)], "{file}");
    }
}

#[test]
fn a_kind_that_is_told_apart_without_naming_all_is_caught() {
    for loose in [
        "fn f() -> bool { entry.kind == OpKind::Put }",
        "fn f() -> bool { entry.kind != crate::format::OpKind::Put }",
        "fn f() -> bool { OpKind::Put == *kind }",
        "fn f() -> bool { *kind == *&OpKind::Put }",
        "fn f() -> bool { (entry.seq, entry.kind) == (7, OpKind::Put) }",
        "fn f() -> bool { (OpKind::Put, 7) != (entry.kind, entry.seq) }",
        "fn f() -> bool { matches!(entry.kind, OpKind::Put) }",
        "fn f() { if let OpKind::Put = kind { g() } }",
        "fn f() { if a && let Some((OpKind::Put, _)) = version { g() } }",
        "fn f() { let OpKind::Put = kind else { return }; }",
        "fn f() -> u8 { match kind { OpKind::Put => 1, _ => 2 } }",
        "fn f() -> u8 { match kind { other if g() => { 2 } OpKind::Put => 1, OpKind::Delete => 3 } }",
        "fn f() -> u8 { match (kind, is_new) { (OpKind::Put, true) => g(1, 2), (_, _) => 2 } }",
        "fn f() -> u8 { match kind.effect() { Effect::Value => 1, _ => 2 } }",
        "use crate::format::OpKind::*;",
        "use crate::format::{Lsn, OpKind::{Delete, Put}};",
        "use crate::format::{OpKind as Kind, Lsn};",
    ] {
        assert_eq!(lines("read/get.rs", loose), [2], "{loose}");
        assert_eq!(lines("mvcc/kind.rs", loose), CLEAN, "{loose}");
        let in_test = format!("#[cfg(test)]\nmod tests {{\n{loose}\n}}");
        assert_eq!(lines("read/get.rs", &in_test), CLEAN, "{loose}");
    }
    for fine in [
        "fn f() { put(OpKind::Put) }",
        "use crate::format::{Lsn, OpKind};",
        "fn f() { let kind = OpKind::Put; }",
        "fn f() { let op = Op { kind: OpKind::Put, key }; }",
        "fn f() -> bool { kind.is_tombstone() == other }",
        "fn f() -> bool { count(OpKind::Put) == 3 }",
        "fn f() -> bool { header.kind == FileKind::Table }",
        "fn f() -> u8 { match (kind, is_new) { (OpKind::Put, _) => 1, (OpKind::Delete, _) => 2 } }",
        "fn f() -> u8 { match word { 0 => g(OpKind::Put), _ => 2 } }",
    ] {
        assert_eq!(lines("read/get.rs", fine), CLEAN, "{fine}");
    }
}

#[test]
fn comments_that_are_wide_or_riddles_are_caught() {
    let wide = "word ".repeat(20);
    assert_eq!(lines("db.rs", &format!("/// {wide}\nfn f() {{}}")), [2]);
    assert_eq!(lines("db.rs", &format!("fn f() {{\n    // {wide}.\n}}")), [3]);
    assert_eq!(lines("db.rs", "// Waits for\n// whoever comes.\nfn f() {}"), [3]);
    assert_eq!(lines("db.rs", "// It is\n// there. It sees to it that all is well."), [3]);
    for (path, mark) in [
        ("xtask/x.sh", "#"),
        ("Cargo.toml", "#"),
        ("ci.yml", "#"),
        ("w.lua", "--"),
        ("s.rs.in", "//"),
    ] {
        let file = |said: &str| format!("\n{mark} {said}\n");
        assert_eq!(verdict_with(&[(path, &file(&wide))], "", ""), [(path.to_owned(), 2)]);
        assert_eq!(verdict_with(&[(path, &file("short"))], "", ""), []);
    }
}

#[test]
fn tables_and_plain_words_are_not_complained_about() {
    let table = format!("/// ```text\n/// {}\n/// ```\nfn f() {{}}", "word ".repeat(20));
    assert_eq!(lines("db.rs", &table), CLEAN);
    let columns = format!("//! {} | {}  |", "word ".repeat(10), "word ".repeat(10));
    assert_eq!(lines("db.rs", &columns), CLEAN);
    assert_eq!(lines("db.rs", "// The type `nobody`, or busybody_nobodys.\nfn f() {}"), CLEAN);
}
