//! The ledger: what every run of a harness did, one line each, so that many runs on many days make one figure.
//!
//! ```text
//! commit <tab> harness <tab> inputs <tab> seconds <tab> found <tab> name=count name=count ...
//! ```
//!
//! `inputs` says what makes the run repeatable (profile and seeds); a commit that ends in `+` had changes of its code.
//! `found` counts failures. Lines that begin with `#` are for people. The same harness with the same inputs at the
//! same commit proves nothing new, so it counts once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

/// Where the ledger is, from the root of the workspace.
pub(crate) const PATH: &str = "docs/testing/ledger.tsv";

const HEADING: &str = "# commit\tharness\tinputs\tseconds\tfound\tcounts\n";

/// What one run did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) commit: String,
    pub(crate) harness: String,
    pub(crate) inputs: String,
    pub(crate) seconds: f64,
    /// Failures.
    pub(crate) found: u64,
    pub(crate) counts: Vec<(String, u64)>,
}

impl Row {
    /// What a run of the code at hand did.
    pub(crate) fn new(harness: &str, inputs: String, seconds: f64, found: u64) -> Row {
        let (commit, harness) = (commit(), harness.to_owned());
        Row { commit, harness, inputs, seconds, found, counts: Vec::new() }
    }

    /// The row with a count more.
    pub(crate) fn count(mut self, name: &str, count: u64) -> Row {
        self.counts.push((name.to_owned(), count));
        self
    }

    /// Adds the row to a ledger, which is made if there is none.
    pub(crate) fn append(&self, ledger: &Path) -> io::Result<()> {
        if let Some(dir) = ledger.parent() {
            fs::create_dir_all(dir)?;
        }
        let mut file = OpenOptions::new().create(true).append(true).open(ledger)?;
        let heading = if file.metadata()?.len() == 0 { HEADING } else { "" };
        file.write_all(format!("{heading}{}", self.encode()).as_bytes())
    }

    fn encode(&self) -> String {
        let counts: Vec<String> =
            self.counts.iter().map(|(name, count)| format!("{name}={count}")).collect();
        format!(
            "{}\t{}\t{}\t{:.1}\t{}\t{}\n",
            self.commit,
            self.harness,
            self.inputs,
            self.seconds,
            self.found,
            counts.join(" ")
        )
    }

    fn decode(line: &str) -> Option<Row> {
        let mut fields = line.split('\t');
        let mut text = || fields.next().map(str::to_owned);
        let (commit, harness, inputs) = (text()?, text()?, text()?);
        let (seconds, found) = (text()?.parse().ok()?, text()?.parse().ok()?);
        let counts = text()?;
        let counts = counts.split_whitespace().map(|pair| {
            let (name, count) = pair.split_once('=')?;
            Some((name.to_owned(), count.parse().ok()?))
        });
        let counts = counts.collect::<Option<_>>()?;
        Some(Row { commit, harness, inputs, seconds, found, counts })
    }
}

/// The commit of the code at hand, with `+` if the code has changed since; `unknown` where there is no history.
pub(crate) fn commit() -> String {
    let git = |arguments: &[&str]| Command::new("git").args(arguments).output().ok();
    let head = git(&["rev-parse", "--short=12", "HEAD"]).filter(|output| output.status.success());
    let Some(head) = head else { return "unknown".to_owned() };
    let changed = git(&["diff", "--quiet", "HEAD", "--", ":/crates"]);
    let mark = if changed.is_some_and(|output| output.status.success()) { "" } else { "+" };
    format!("{}{mark}", String::from_utf8_lossy(&head.stdout).trim())
}

/// All rows of a ledger.
pub(crate) fn read(ledger: &Path) -> io::Result<Vec<Row>> {
    let text = fs::read_to_string(ledger)?;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            Row::decode(line).ok_or_else(|| io::Error::other(format!("not a row: {line:?}")))
        })
        .collect()
}

#[derive(Default)]
struct Sum {
    runs: u64,
    seconds: f64,
    found: u64,
    commits: BTreeSet<String>,
    counts: BTreeMap<String, u64>,
}

/// The sums by harness, as a table of a page, each count with the bound that it supports if nothing was found.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut seen = BTreeSet::new();
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for row in rows {
        if !seen.insert((&row.commit, &row.harness, &row.inputs)) {
            continue;
        }
        let sum = sums.entry(&row.harness).or_default();
        (sum.runs, sum.found) = (sum.runs + 1, sum.found + row.found);
        sum.seconds += row.seconds;
        sum.commits.insert(row.commit.clone());
        for (name, count) in &row.counts {
            *sum.counts.entry(name.clone()).or_insert(0) += count;
        }
    }
    let mut table = String::from(
        "| harness | runs | commits | hours | found | what | how many | at most, at 95% |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (harness, sum) in sums {
        let mut head = format!(
            "{harness} | {} | {} | {:.2} | {}",
            sum.runs,
            sum.commits.len(),
            sum.seconds / 3600.0,
            sum.found
        );
        for (name, count) in sum.counts {
            let bound = match (sum.found, count) {
                (0, 1..) => format!("1 failure in {}", count.div_ceil(3)),
                _ => String::new(),
            };
            let _ = writeln!(table, "| {head} | {name} | {count} | {bound} |");
            " | | | | ".clone_into(&mut head);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(commit: &str, inputs: &str, crashes: u64) -> Row {
        let (harness, inputs) = ("run".to_owned(), inputs.to_owned());
        Row { commit: commit.into(), harness, inputs, seconds: 2.5, found: 0, counts: Vec::new() }
            .count("crashes", crashes)
    }

    #[test]
    fn rows_come_back_as_they_were_written() {
        let written = row("abc", "short 0..100", 7).count("operations", 12);
        assert_eq!(Row::decode(written.encode().trim_end()), Some(written));
        assert_eq!(Row::decode("abc\trun\tinputs\tnever\t0\t"), None);
        assert_eq!(Row::decode("abc\trun\tinputs\t1\t0\tcrashes=many"), None);
    }

    #[test]
    fn the_same_run_counts_once_and_sums_give_a_bound() {
        let rows = [
            row("a", "0..9", 200),
            row("a", "0..9", 200),
            row("a", "9..18", 50),
            row("b", "0..9", 50),
        ];
        let table = table(&rows);
        assert!(
            table.contains("| run | 3 | 2 | 0.00 | 0 | crashes | 300 | 1 failure in 100 |"),
            "{table}"
        );
    }
}
