//! What came of each mutant, as lines of a file, and the tables that are made of them.

use super::nets::Verdict;
use super::site::Mutant;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// One mutant's fate: a line of fields with tabs between them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    module: String,
    /// The mutant's name, or `-`.
    name: String,
    /// Where it stands and what it does.
    key: String,
    operator: String,
    seed: u64,
    seconds: f64,
    /// The net that caught it; `survived`; or `never reached`, which is a survivor too.
    net: String,
    seen: String,
}

impl Row {
    pub(super) fn new(mutant: &Mutant, seed: u64, verdict: &Verdict) -> Row {
        let (net, seen) = match &verdict.caught {
            Some((net, seen)) => (net.clone(), seen.clone()),
            None if verdict.is_reached => ("survived".to_owned(), String::new()),
            None => ("never reached".to_owned(), String::new()),
        };
        Row {
            module: mutant.module().to_owned(),
            name: mutant.name.clone().unwrap_or_else(|| "-".to_owned()),
            key: mutant.key(),
            operator: mutant.operator.to_owned(),
            seed,
            seconds: verdict.seconds,
            net,
            seen,
        }
    }

    /// For people, while a campaign runs.
    pub(super) fn line(&self) -> String {
        let Row { name, key, seconds, net, seen, .. } = self;
        let seen: String = seen.chars().take(120).collect();
        match &**name {
            "-" => format!("{seconds:.1} s: {net}: {key} ({seen})"),
            _ => format!("{seconds:.1} s: {net}: {name} ({seen})"),
        }
    }

    pub(super) fn append(&self, file: &Path) -> io::Result<()> {
        let Row { module, name, key, operator, seed, seconds, net, seen } = self;
        let (key, seen) = (key.replace('\t', " "), seen.replace(['\t', '\n'], " "));
        let line =
            format!("{module}\t{name}\t{key}\t{operator}\t{seed}\t{seconds:.1}\t{net}\t{seen}\n");
        OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
    }

    fn decode(line: &str) -> Option<Row> {
        let mut fields = line.split('\t').map(str::to_owned);
        Some(Row {
            module: fields.next()?,
            name: fields.next()?,
            key: fields.next()?,
            operator: fields.next()?,
            seed: fields.next()?.parse().ok()?,
            seconds: fields.next()?.parse().ok()?,
            net: fields.next()?,
            seen: fields.next()?,
        })
    }

    fn is_caught(&self) -> bool {
        self.net != "survived" && self.net != "never reached"
    }
}

/// The rows of a file. Of a mutant that was tried several times the last counts.
pub(super) fn read(file: &Path) -> io::Result<Vec<Row>> {
    let mut rows: BTreeMap<(String, String), Row> = BTreeMap::new();
    for line in fs::read_to_string(file)?.lines() {
        let row =
            Row::decode(line).ok_or_else(|| io::Error::other(format!("not a row: {line:?}")))?;
        rows.insert((row.name.clone(), row.key.clone()), row);
    }
    Ok(rows.into_values().collect())
}

#[derive(Default)]
struct Sum {
    drawn: usize,
    units: usize,
    tests: usize,
    simulation: usize,
    survived: usize,
}

/// How many were caught by what in each module, then the mutants with names, then the survivors one by one.
pub(super) fn tables(rows: &[Row]) -> String {
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.name == "-") {
        let sum = sums.entry(&row.module).or_default();
        sum.drawn += 1;
        match &*row.net {
            "unit tests" => sum.units += 1,
            net if net.starts_with("test ") => sum.tests += 1,
            net if net.starts_with("simulation") => sum.simulation += 1,
            _ => sum.survived += 1,
        }
    }
    let mut text = String::from(
        "| module | drawn | by its unit tests | by integration tests | by simulation | survived | caught |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for (module, sum) in &sums {
        let caught = 100.0 * (sum.drawn - sum.survived) as f64 / sum.drawn as f64;
        let Sum { drawn, units, tests, simulation, survived } = sum;
        let _ = writeln!(
            text,
            "| `{module}` | {drawn} | {units} | {tests} | {simulation} | {survived} | {caught:.0}% |"
        );
    }
    text.push_str("\n| mutant | caught by | after | as |\n|---|---|---|---|\n");
    for row in rows.iter().filter(|row| row.name != "-") {
        let seen: String = row.seen.chars().take(100).collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {:.0} s | {} |",
            row.name,
            row.net,
            row.seconds,
            seen.replace('|', "\\|")
        );
    }
    text.push_str("\n| survivor | why |\n|---|---|\n");
    for row in rows.iter().filter(|row| !row.is_caught() && row.name == "-") {
        let note = if row.net == "survived" { "" } else { "never reached" };
        let key = row.key.trim_start_matches("crates/isobath/src/").replace('|', "\\|");
        let _ = writeln!(text, "| {key} | {note} |");
    }
    text
}
