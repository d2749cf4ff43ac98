//! The page of a real small report.

use super::figures::{FIGURE_COUNT, figures};
use super::render;
use crate::report::testing::sample_report;

#[test]
fn a_standard_suite_fills_every_figure() {
    let report = sample_report();
    let drawn = figures(&report).unwrap();
    let names: Vec<&str> = drawn.iter().map(|figure| figure.name.as_str()).collect();
    // The null engine's amplification is zero, and the memory engine has no files. Both are drawn.
    // Neither engine counts its bytes, and on several threads the suite runs synced writes only.
    let absent = ["Write Amplification by the Engine", "Thread Scaling"];
    assert!(absent.iter().all(|name| !names.contains(name)), "{names:?}");
    assert_eq!(names.len(), FIGURE_COUNT - absent.len(), "{names:?}");
    assert!(
        drawn
            .iter()
            .all(|figure| figure.svg.starts_with("<svg")
                && figure.svg.trim_end().ends_with("</svg>"))
    );
}

#[test]
fn the_page_needs_no_network_and_escapes_its_text() {
    let report = sample_report();
    let page = render(&report).unwrap();
    assert!(page.contains("a test &lt;report&gt; &amp; more"));
    let outside = page.replace("http://www.w3.org/2000/svg", "");
    assert!(
        !outside.contains("http://") && !outside.contains("https://") && !outside.contains("src=")
    );
    assert!(page.contains("isobath-bench suite standard"), "the command to repeat it");
}

#[test]
fn figures_have_the_titles_that_readers_of_the_seeds_know() {
    let drawn = figures(&sample_report()).unwrap();
    let names: Vec<&str> = drawn.iter().map(|figure| figure.name.as_str()).collect();
    for title in [
        "Speedup Summary",
        "Write Throughput",
        "Delete Throughput",
        "Seek Throughput",
        "Range Scan Throughput",
        "Batch Size Scaling",
        "Value Size Impact",
        "Latency Overview",
        "Latency Percentiles",
        "Write Amplification",
        "Space Efficiency",
        "Tail Latency",
        "Duration Comparison",
        "Latency Variability",
        "Sync Write Performance",
    ] {
        assert!(names.contains(&title), "{title} in {names:?}");
    }
}
