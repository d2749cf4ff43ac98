//! Runs the guide's examples, twice in the same directory where that matters, and compares what
//! they print. The programs in its pages are doc tests (`src/guide.rs`); a test checks that no page
//! is left out.

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
