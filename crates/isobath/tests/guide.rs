//! Runs the guide's examples, twice in the same directory where that matters, and compares what
//! they print. The programs in its pages are doc tests (`src/guide.rs`); a test checks that no page
//! is left out.

use isobath::{FamilyOptions, MergeOperator, Options};
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;

/// An example as a module. Its `main` is not called.
macro_rules! example {
    ($name:ident, $path:literal) => {
        #[allow(dead_code)]
        #[path = $path]
        mod $name;
    };
}

example!(event_store, "../examples/event_store.rs");
example!(merge_patch, "../examples/merge_patch.rs");
example!(queues, "../examples/queues.rs");
example!(quick_start, "../examples/quick_start.rs");
example!(time_series, "../examples/time_series.rs");

type Run = fn(&Path, &mut dyn Write) -> Result<(), Box<dyn Error>>;

/// The text that the example prints.
fn printed(run: Run, dir: &Path) -> String {
    let mut out = Vec::new();
    run(dir, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn the_quick_start_prints_what_was_in_stock_on_a_new_and_on_an_old_directory() {
    let dir = dir();
    let expected = "in stock, before and now:\n  banana: 3, still there\n  cherry: 20, gone\n  \
                    damson: 7, still there\n  elder: 1, still there\ncherry is black\nbanana is yellow\n";
    for _ in 0..2 {
        assert_eq!(printed(quick_start::run, dir.path()), expected);
    }
}

#[test]
fn the_event_store_reads_its_events_by_stream_and_by_arrival() {
    let expected = "order-7: Ok(2)\na late append: Err(2)\norder-7 behind 1: [\"paid\", \"sent\"]\n\
                    2: paid\n3: placed\n4: sent\n";
    assert_eq!(printed(event_store::run, dir().path()), expected);
}

#[test]
fn patches_change_documents_in_their_order_and_one_that_is_none_is_told() {
    let dir = dir();
    let expected = "ada: {\"city\":\"Bergen\",\"likes\":{\"snow\":true}}\n\
                    bob: {\"likes\":{\"tea\":true}}\nbob: MERGE_FAILED\nbob: None\n";
    for _ in 0..2 {
        assert_eq!(printed(merge_patch::run, dir.path()), expected);
    }
}

/// Documents, and patches too.
const DOCUMENTS: [&str; 14] = [
    "null",
    "7",
    "[null,1]",
    "{}",
    r#"{"a":null}"#,
    r#"{"a":1}"#,
    r#"{"a":[{"b":null}]}"#,
    r#"{"a":{}}"#,
    r#"{"a":{"b":null}}"#,
    r#"{"a":{"b":1}}"#,
    r#"{"a":{"b":{"d":2}}}"#,
    r#"{"a":{"c":2},"e":null}"#,
    r#"{"a":null,"e":{"f":null,"g":1}}"#,
    r#"{"e":{"f":1}}"#,
];

fn patched(document: Option<&str>, patches: &[&str]) -> String {
    let (mut out, patches) = (Vec::new(), patches.iter().map(|patch| patch.as_bytes()));
    let patches: Vec<_> = patches.collect();
    let operator = merge_patch::MergePatch;
    operator.merge(b"key", document.map(str::as_bytes), &patches, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Cases of the kinds that appendix A of the RFC lists.
#[test]
fn a_patch_does_what_the_rfc_says() {
    for (document, patch, expected) in [
        (r#"{"a":1}"#, r#"{"a":2}"#, r#"{"a":2}"#),
        (r#"{"a":1}"#, r#"{"b":2}"#, r#"{"a":1,"b":2}"#),
        (r#"{"a":1}"#, r#"{"a":null}"#, "{}"),
        (r#"{"a":1,"b":2}"#, r#"{"a":null}"#, r#"{"b":2}"#),
        (r#"{"a":[1]}"#, r#"{"a":2}"#, r#"{"a":2}"#),
        (r#"{"a":{"b":1}}"#, r#"{"a":{"b":2,"c":null}}"#, r#"{"a":{"b":2}}"#),
        (r#"{"a":[{"b":1}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
        ("[1,2]", "[3]", "[3]"),
        (r#"{"a":1}"#, "[2]", "[2]"),
        (r#"{"a":1}"#, "null", "null"),
        (r#"{"a":1}"#, "7", "7"),
        (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"a":1,"e":null}"#),
        ("[1,2]", r#"{"a":2,"b":null}"#, r#"{"a":2}"#),
        ("{}", r#"{"a":{"b":{"c":null}}}"#, r#"{"a":{"b":{}}}"#),
    ] {
        assert_eq!(patched(Some(document), &[patch]), expected, "{document} by {patch}");
    }
    assert_eq!(patched(None, &[r#"{"a":1,"b":null}"#]), r#"{"a":1}"#);
}

#[test]
fn two_patches_that_are_joined_mean_what_they_mean_one_after_the_other() {
    let (mut joined, mut apart) = (0, 0);
    for (first, then) in DOCUMENTS.iter().flat_map(|one| DOCUMENTS.map(|two| (*one, two))) {
        let mut both = Vec::new();
        let (left, right) = (first.as_bytes(), then.as_bytes());
        if !merge_patch::MergePatch.merge_partial(b"key", left, right, &mut both) {
            apart += 1;
            continue;
        }
        joined += 1;
        let both = String::from_utf8(both).unwrap();
        for document in [None].into_iter().chain(DOCUMENTS.map(Some)) {
            let (one, two) = (patched(document, &[&both]), patched(document, &[first, then]));
            assert_eq!(one, two, "{document:?} by {first}, then {then}: {both}");
        }
    }
    // With none joined, or all, nothing would be tested.
    assert!(joined > 100 && apart > 40, "{joined} joined, {apart} kept apart");
}

/// Two patches of a document in a deeper level are joined by their flush, or kept apart, and meet
/// the document in a compaction.
#[test]
fn patches_of_stored_documents_keep_their_order_in_tables() {
    let db = Options::in_memory().merge_operator(merge_patch::MergePatch).open("patches").unwrap();
    let options = FamilyOptions::new().merge_operator("example.merge_patch");
    let family = db.family(("documents", options)).unwrap();
    let base = r#"{"a":{"b":0,"c":0},"e":{"f":0}}"#;
    let pairs: Vec<_> = DOCUMENTS.iter().flat_map(|one| DOCUMENTS.map(|two| [*one, two])).collect();
    let key = |nth: usize| format!("{nth:04}");
    for nth in 0..pairs.len() {
        family.put(key(nth), base).unwrap();
    }
    db.flush().unwrap();
    db.compact().unwrap();
    for half in 0..2 {
        for (nth, pair) in pairs.iter().enumerate() {
            family.merge(key(nth), pair[half]).unwrap();
        }
    }
    let check = || {
        for (nth, pair) in pairs.iter().enumerate() {
            let found = family.get(key(nth)).unwrap().unwrap();
            assert_eq!(found, patched(Some(base), pair).as_bytes(), "{pair:?}");
        }
    };
    let is_turned =
        |pair: &&[&str; 2]| patched(None, &pair[..]) != patched(None, &[pair[1], pair[0]]);
    assert!(pairs.iter().filter(is_turned).count() > 50, "the order of patches matters");
    check();
    db.flush().unwrap();
    check();
    family.compact(..).unwrap();
    check();
}

#[test]
fn the_queues_do_every_job_once_and_the_one_that_was_begun_again() {
    let dir = dir();
    let expected = "mail: 50 jobs done, 0 wait\npictures: 50 jobs done, 0 wait\n\
                    mail: 51 begun, 0 wait\nmail: 51 again, \"to the last customer\"\n";
    assert_eq!(printed(queues::run, dir.path()), expected);
    let again = printed(queues::run, dir.path());
    assert!(again.starts_with("mail: 50 jobs done, 0 wait\n"), "{again}");
}

#[test]
fn the_time_series_forgets_what_is_old_and_keeps_the_rest() {
    let dir = dir();
    let expected = "newest on the roof: [(86340, 33.0), (86280, 33.0)]\n\
                    from noon to two: Some(22.5)\ntomorrow: None\nforgotten: 1380\nleft: 1500\n\
                    deletes in tables: 0\n";
    for _ in 0..2 {
        assert_eq!(printed(time_series::run, dir.path()), expected);
    }
}

#[test]
fn every_page_of_the_guide_is_tested_and_in_its_contents() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let (tested, contents) = (read("src/guide.rs"), read("guide/README.md"));
    let mut pages = 0;
    for entry in fs::read_dir(root.join("guide")).unwrap() {
        let page = entry.unwrap().file_name().into_string().unwrap();
        assert!(tested.contains(&format!("\"../guide/{page}\"")), "{page} is not tested");
        assert!(page == "README.md" || contents.contains(&format!("]({page})")), "{page}");
        pages += 1;
    }
    assert!(pages > 5);
    for entry in fs::read_dir(root.join("examples")).unwrap() {
        let example = entry.unwrap().path();
        let name = example.file_stem().unwrap().to_str().unwrap();
        assert!(contents.contains(&format!("| `{name}` |")), "{name} is not in the contents");
    }
}
