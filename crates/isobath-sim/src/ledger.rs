//! The ledger: what every run of a harness did, one line each, so that many runs on many days make
//! one figure.
//!
//! ```text
//! commit <tab> harness <tab> inputs <tab> seconds <tab> found <tab> name=count name=count ... <tab> engine
//! ```
//!
//! `inputs` says what makes the run repeatable (profile and seeds). `found` counts failures.
//! `engine` is a hash of the engine's code (`isobath-simulated/build/fingerprint.rs`): the row
//! counts for exactly this engine. Rows from before the hash was recorded have none, and count for
//! other engines than today's. `commit` names the commit that was built, with `+` if the tree had
//! changes. Lines that begin with `#` are for people.
//!
//! A count of transactions of one level is named `LEVEL.WHAT`; these counts have a table of their
//! own. A row has the counts that its run knew: older rows have fewer, and an absent one is none.
//!
//! Every run counts, also one that failed or had a changed tree. A run adds a row when it begins,
//! of the harness [`BEGUN`], and one when it ends, with the count [`ENDED`]. So one that was
//! stopped, or that failed itself, shows as begun and not ended. Older rows have neither. Only a
//! repeated run proves nothing new: rows with the same harness, inputs, engine and findings count
//! once, but for those of harnesses that leave something to the kernel. No bound is derived from a
//! count: seeds share code, options and schedules, so they are no independent trials.

use crate::simulation::{LEVELS, What};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

#[cfg(test)]
#[path = "../../isobath-simulated/build/fingerprint.rs"]
mod fingerprint;

#[cfg(test)]
#[path = "../build/main.rs"]
#[allow(dead_code)] // Only its list is looked at.
mod build;

/// Where the ledger is, from the root of the workspace.
pub(crate) const PATH: &str = "docs/testing/ledger.tsv";

/// The harness of rows that say that a run has begun.
const BEGUN: &str = "begun";
/// A count of 1 in rows of runs that have ended.
const ENDED: &str = "ended";

const HEADING: &str = "# commit\tharness\tinputs\tseconds\tfound\tcounts\tengine\n";

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
    /// The hash of the engine's sources; old rows have none.
    pub(crate) engine: Option<String>,
}

impl Row {
    /// What a run of the code at hand did.
    pub(crate) fn new(harness: &str, inputs: String, seconds: f64, found: u64) -> Row {
        let (commit, harness) = (commit().to_owned(), harness.to_owned());
        let engine = Some(engine().to_owned());
        Row { commit, harness, inputs, seconds, found, counts: Vec::new(), engine }.count(ENDED, 1)
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
            "{}\t{}\t{}\t{:.1}\t{}\t{}\t{}\n",
            self.commit,
            self.harness,
            self.inputs,
            self.seconds,
            self.found,
            counts.join(" "),
            self.engine.as_deref().unwrap_or_default()
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
        let engine = text().filter(|engine| !engine.is_empty());
        Some(Row { commit, harness, inputs, seconds, found, counts, engine })
    }
}

/// Says in the ledger, if there is one, that a run of this command begins.
pub(crate) fn begin(command: &str, ledger: Option<&Path>) -> io::Result<()> {
    let Some(ledger) = ledger else { return Ok(()) };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let inputs = format!("{command} at {now} by {}", process::id());
    let begun = Row::new(BEGUN, inputs, 0.0, 0);
    Row { counts: Vec::new(), ..begun }.append(ledger)
}

/// The commit that this program was built from, with `+` if its code had changes; `unknown` if
/// there was no history.
pub(crate) fn commit() -> &'static str {
    env!("ISOBATH_COMMIT")
}

/// A hash of the sources of the engine that this program was built with.
pub(crate) fn engine() -> &'static str {
    env!("ISOBATH_ENGINE")
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
    counts: BTreeMap<String, u64>,
}

impl Sum {
    fn add(&mut self, row: &Row) {
        (self.runs, self.found) = (self.runs + 1, self.found + row.found);
        self.seconds += row.seconds;
        for (name, count) in &row.counts {
            *self.counts.entry(name.clone()).or_insert(0) += count;
        }
    }

    /// Runs, hours and failures, as cells of a table.
    fn cells(&self) -> String {
        format!("{} | {:.2} | {}", self.runs, self.seconds / 3600.0, self.found)
    }
}

/// What was run on the engine whose sources have this hash, and on all others, by harness, as a
/// table of a page.
pub(crate) fn table(rows: &[Row], engine: &str) -> String {
    let mut seen = BTreeSet::new();
    let mut sums: BTreeMap<&str, [Sum; 2]> = BTreeMap::new();
    let mut lost = [0; 2];
    for row in rows {
        let is_other = row.engine.as_deref() != Some(engine);
        let ended: u64 = row.counts.iter().filter(|(name, _)| name == ENDED).map(|it| it.1).sum();
        lost[usize::from(is_other)] += i64::from(row.harness == BEGUN) - ended as i64;
        if row.harness == BEGUN {
            continue;
        }
        // For old rows, only the commit tells which engine was run.
        let source = row.engine.as_ref().unwrap_or(&row.commit);
        let is_known = !seen.insert((source, &row.harness, &row.inputs, row.found));
        if !is_known || !is_repeatable(&row.harness) {
            sums.entry(&row.harness).or_default()[usize::from(is_other)].add(row);
        }
    }
    let mut table = format!(
        "Written for the engine with sources `{engine}`, built at commit {}: \"today's\" is that one. What ran on others says nothing \
         certain of it.\n\n\
         | harness | what | today's engine | runs | hours | found | other engines | runs | hours | found |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
        commit()
    );
    for (harness, [today, others]) in &sums {
        let names = today.counts.keys().chain(others.counts.keys());
        let is_told = |name: &&String| !name.contains('.') && *name != ENDED;
        let names: BTreeSet<&String> = names.filter(is_told).collect();
        for (nth, name) in names.into_iter().enumerate() {
            let count = |sum: &Sum| sum.counts.get(name).copied().unwrap_or(0);
            let (now, before) = (count(today), count(others));
            let _ = match nth {
                0 => writeln!(
                    table,
                    "| {harness} | {name} | {now} | {} | {before} | {} |",
                    today.cells(),
                    others.cells()
                ),
                _ => writeln!(table, "| | {name} | {now} | | | | {before} | | | |"),
            };
        }
    }
    let [today, others] = lost.map(|count| count.max(0));
    let _ = writeln!(
        table,
        "\nBegun, and not ended: {today} runs on today's engine, {others} on others since runs tell of their beginning."
    );
    table + &levels(&sums)
}

/// True if a run of the same inputs does the same again. What the kernel and its threads do differs
/// from run to run.
fn is_repeatable(harness: &str) -> bool {
    !["kill", "powercut", "enospc", "threads"].iter().any(|other| harness.starts_with(other))
}

/// The counts of transactions by level, over all harnesses; nothing if there are none.
fn levels(sums: &BTreeMap<&str, [Sum; 2]>) -> String {
    let names = What::ALL.map(|(_, what)| what);
    let mut table = format!(
        "\n| transactions | engine | {} |\n|---|---{}|\n",
        names.join(" | "),
        "|---".repeat(names.len())
    );
    let mut is_any = false;
    for (_, level) in LEVELS {
        for (at, engine) in ["today's", "others"].into_iter().enumerate() {
            let count = |what: &str| -> u64 {
                let name = format!("{level}.{what}");
                sums.values().filter_map(|sums| sums[at].counts.get(&name)).sum()
            };
            let counts = names.map(count);
            is_any |= counts.iter().any(|count| *count > 0);
            let counts = counts.map(|count| count.to_string());
            let _ = writeln!(table, "| {level} | {engine} | {} |", counts.join(" | "));
        }
    }
    if is_any { table } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(engine: Option<&str>, inputs: &str, crashes: u64, found: u64) -> Row {
        let (harness, inputs) = ("run".to_owned(), inputs.to_owned());
        let engine = engine.map(str::to_owned);
        let commit = "abc".to_owned();
        Row { commit, harness, inputs, seconds: 2.5, found, counts: Vec::new(), engine }
            .count("crashes", crashes)
    }

    #[test]
    fn rows_come_back_as_they_were_written_and_rows_of_old_have_no_engine() {
        for engine in [Some("e1"), None] {
            let written = row(engine, "short 0..100", 7, 0).count("operations", 12);
            assert_eq!(Row::decode(written.encode().trim_end_matches('\n')), Some(written));
        }
        let old = "abc\trun\tshort 0..100\t2.5\t0\tcrashes=7";
        assert_eq!(Row::decode(old), Some(row(None, "short 0..100", 7, 0)));
        assert_eq!(Row::decode("abc\trun\tinputs\tnever\t0\t"), None);
        assert_eq!(Row::decode("abc\trun\tinputs\t1\t0\tcrashes=many"), None);
    }

    #[test]
    fn only_runs_of_the_same_sources_stand_for_todays_engine_and_the_same_run_counts_once() {
        let rows = [
            row(Some("e1"), "0..9", 200, 0),
            row(Some("e1"), "0..9", 200, 0),
            row(Some("e1"), "9..18", 50, 0),
            row(Some("e2"), "0..9", 30, 0),
            row(None, "0..9", 20, 0),
        ];
        let table = table(&rows, "e1");
        let line = "| run | crashes | 250 | 2 | 0.00 | 0 | 50 | 2 | 0.00 | 0 |";
        assert!(table.contains(line), "{table}");
    }

    #[test]
    fn what_the_kernel_does_differs_so_the_same_kills_count_each_time() {
        let kills = |inputs| Row { harness: "kill".to_owned(), ..row(Some("e1"), inputs, 5, 0) };
        let table = table(&[kills("seeds 0..9"), kills("seeds 0..9")], "e1");
        assert!(table.contains("| kill | crashes | 10 | 2 |"), "{table}");
    }

    #[test]
    fn runs_that_began_and_left_no_row_are_told() {
        let begun = |engine| Row { harness: BEGUN.to_owned(), ..row(Some(engine), "x", 0, 0) };
        let begun = |engine| Row { counts: Vec::new(), ..begun(engine) };
        let ended = row(Some("e1"), "0..9", 5, 0).count(ENDED, 1);
        let old = row(Some("e1"), "9..18", 5, 0);
        let told = table(&[begun("e1"), ended, begun("e1"), begun("e2"), old], "e1");
        assert!(told.contains("Begun, and not ended: 1 runs on today's engine, 1 on"), "{told}");
        assert!(!told.contains("| ended |") && !told.contains("| begun |"), "{told}");
    }

    #[test]
    fn a_run_that_begins_says_so_where_there_is_a_ledger() {
        let ledger = std::env::temp_dir().join(format!("ledger-{}.tsv", process::id()));
        begin("run", None).unwrap();
        begin("run", Some(&ledger)).unwrap();
        Row::new("run", "0..9".to_owned(), 1.0, 0).append(&ledger).unwrap();
        let rows = read(&ledger).unwrap();
        fs::remove_file(&ledger).unwrap();
        assert!(rows[0].harness == BEGUN && rows[0].inputs.starts_with("run at "));
        assert!(table(&rows, engine()).contains("Begun, and not ended: 0 runs"));
    }

    #[test]
    fn transactions_by_level_have_a_table_of_their_own_over_rows_of_every_age() {
        let counted = |engine, inputs, count| {
            row(Some(engine), inputs, 1, 0).count("snapshot.judged", count).count("seeds", 3)
        };
        let rows = [counted("e1", "0..9", 7), counted("e1", "9..18", 4), counted("e2", "0..9", 5)];
        let old = row(Some("e1"), "18..27", 1, 0);
        let sums = table(&[&rows[..], std::slice::from_ref(&old)].concat(), "e1");
        for line in [
            "| snapshot | today's | 0 | 0 | 11 | 0 |",
            "| snapshot | others | 0 | 0 | 5 | 0 |",
            "| run | crashes | 3 | 3 |",
        ] {
            assert!(sums.contains(line), "{line} is not in {sums}");
        }
        assert!(!sums.contains("snapshot.judged"));
        assert!(!table(&[old], "e1").contains("snapshot"), "rows of old know no levels");
    }

    #[test]
    fn a_run_that_failed_counts_though_the_same_inputs_passed_before() {
        let rows = [row(Some("e1"), "0..9", 200, 0), row(Some("e1"), "0..9", 90, 1)];
        let table = table(&rows, "e1");
        assert!(table.contains("| run | crashes | 290 | 2 | 0.00 | 1 | 0 |"), "{table}");
    }

    #[test]
    fn a_change_in_any_code_that_a_row_stands_for_marks_the_commit() {
        // The benchmark adds no rows; `fuzz` is a workspace of its own.
        let (others, root) = (["isobath-bench"], Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
        let crates = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name());
        let crates = crates.map(|name| name.into_string().unwrap());
        let crates = crates.filter(|name| !others.contains(&name.as_str()));
        for path in crates.map(|name| format!("crates/{name}")).chain(["fuzz".to_owned()]) {
            assert!(build::TREE.contains(&path.as_str()), "changes in {path} are not looked for");
        }
    }

    #[test]
    fn a_build_knows_its_sources_and_its_commit() {
        assert!(engine().len() == 16 && u64::from_str_radix(engine(), 16).is_ok());
        assert!(!commit().is_empty());
    }
}
