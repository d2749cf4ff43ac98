//! The result of each mutant, as lines of a file, and the tables made from them.

use super::explained::{Is, Reasons};
use super::known::Known;
use super::nets::Verdict;
use super::site::Mutant;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

const SURVIVED: &str = "survived";
const NOT_REACHED: &str = "not reached";

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
    /// The net that caught it; or that it survived; or that no net came to it, which makes a
    /// survivor too.
    net: String,
    seen: String,
    /// The sources from which it was made, and the nets that it was thrown into.
    trial: String,
}

impl Row {
    pub(super) fn new(mutant: &Mutant, seed: u64, trial: &str, verdict: &Verdict) -> Row {
        let (net, seen) = match &verdict.caught {
            Some((net, seen)) => (net.clone(), seen.clone()),
            None if verdict.is_reached => {
                (SURVIVED.to_owned(), verdict.unsure.clone().unwrap_or_default())
            }
            None => (NOT_REACHED.to_owned(), String::new()),
        };
        Row {
            module: mutant.module().to_owned(),
            name: name(mutant).to_owned(),
            key: key(mutant),
            operator: mutant.operator.to_owned(),
            seed,
            seconds: verdict.seconds,
            net,
            seen,
            trial: trial.to_owned(),
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

    /// Adds the line in one piece, so that what is read meanwhile is whole.
    pub(super) fn append(&self, file: &Path) -> io::Result<()> {
        let line = self.encode();
        OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
    }

    pub(super) fn encode(&self) -> String {
        let Row { module, name, key, operator, seed, seconds, net, seen, trial } = self;
        let seen = seen.replace(['\t', '\n'], " ");
        format!(
            "{module}\t{name}\t{key}\t{operator}\t{seed}\t{seconds:.1}\t{net}\t{seen}\t{trial}\n"
        )
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
            trial: fields.next()?,
        })
    }

    /// True if it is the outcome of this mutant in this trial.
    pub(super) fn is_of(&self, mutant: &Mutant, seed: u64, trial: &str) -> bool {
        self.seed == seed
            && self.trial == trial
            && self.name == name(mutant)
            && self.key == key(mutant)
    }

    pub(super) fn is_killed(&self) -> bool {
        self.net != SURVIVED && self.net != NOT_REACHED
    }

    /// Where it stands, for a table.
    fn place(&self) -> String {
        self.key.trim_start_matches("crates/isobath/src/").replace('|', "\\|")
    }
}

fn name(mutant: &Mutant) -> &str {
    mutant.name.as_deref().unwrap_or("-")
}

fn key(mutant: &Mutant) -> String {
    mutant.key().replace('\t', " ")
}

/// The rows of a file. Of a mutant that was tried several times in one trial the last counts.
pub(super) fn read(file: &Path) -> io::Result<Vec<Row>> {
    parse(&fs::read_to_string(file)?)
}

/// The same; none if there is no such file.
pub(super) fn read_if_there(file: &Path) -> io::Result<Vec<Row>> {
    if file.exists() { read(file) } else { Ok(Vec::new()) }
}

/// The rows of such a file's text.
pub(super) fn parse(text: &str) -> io::Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    let mut places = BTreeMap::new();
    for line in text.lines() {
        let row =
            Row::decode(line).ok_or_else(|| io::Error::other(format!("not a row: {line:?}")))?;
        let Row { seed, trial, name, key, .. } = row.clone();
        match places.insert((seed, trial, name, key), rows.len()) {
            None => rows.push(row),
            Some(there) => {
                rows[there] = row;
                let Row { seed, trial, name, key, .. } = rows[there].clone();
                places.insert((seed, trial, name, key), there);
            }
        }
    }
    Ok(rows)
}

/// The rows of one seed, that of the last row unless it is given.
pub(super) fn of_seed(mut rows: Vec<Row>, seed: Option<u64>) -> Vec<Row> {
    let seed = seed.or(rows.last().map(|row| row.seed));
    rows.retain(|row| Some(row.seed) == seed);
    rows
}

#[derive(Clone, Copy, Default)]
struct Sum {
    drawn: usize,
    units: usize,
    all_units: usize,
    tests: usize,
    models: usize,
    simulation: usize,
    equivalent: usize,
    speed_only: usize,
    survived: usize,
    not_reached: usize,
}

impl Sum {
    fn count(&mut self, row: &Row, is: Option<Is>) {
        self.drawn += 1;
        *match (&*row.net, is) {
            (SURVIVED | NOT_REACHED, Some(Is::Equivalent)) => &mut self.equivalent,
            (SURVIVED | NOT_REACHED, Some(Is::SpeedOnly)) => &mut self.speed_only,
            (SURVIVED, None) => &mut self.survived,
            (NOT_REACHED, None) => &mut self.not_reached,
            ("unit tests", _) => &mut self.units,
            ("all unit tests", _) => &mut self.all_units,
            (net, _) if net.starts_with("test ") => &mut self.tests,
            (net, _) if net.starts_with("model ") => &mut self.models,
            _ => &mut self.simulation,
        } += 1;
    }

    fn line(&self, head: &str) -> String {
        let Sum { drawn, units, all_units, tests, models, simulation, .. } = self;
        let Sum { equivalent, speed_only, survived, not_reached, .. } = self;
        let killed = units + all_units + tests + models + simulation;
        let killed = 100.0 * killed as f64 / *drawn as f64;
        format!(
            "| {head} | {drawn} | {units} | {all_units} | {tests} | {models} | {simulation} | {equivalent} | {speed_only} | {survived} | {not_reached} | {killed:.0}% |\n"
        )
    }
}

/// How many were caught by what in each module, then the mutants with names, then the survivors one
/// by one: those that are explained, and the others.
pub(super) fn tables(rows: &[Row], known: &[Known], reasons: &Reasons) -> String {
    let drawn: Vec<&Row> = rows.iter().filter(|row| row.name == "-").collect();
    let reason = |row: &Row| reasons.get(&row.key);
    let (mut sums, mut all) = (BTreeMap::<&str, Sum>::new(), Sum::default());
    for row in &drawn {
        let is = reason(row).map(|(is, _)| *is);
        sums.entry(&row.module).or_default().count(row, is);
        all.count(row, is);
    }
    let mut text = String::new();
    for (seed, trial) in rows.iter().map(|row| (row.seed, &row.trial)).collect::<BTreeSet<_>>() {
        let _ = writeln!(text, "Seed {seed}, {trial}.");
    }
    text.push_str(
        "\n| module | drawn | killed by its unit tests | by those of others | by integration tests | by models | by simulation | equivalent | speed only \
         | not killed | not reached | killed |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    sums.iter().for_each(|(module, sum)| text += &sum.line(&format!("`{module}`")));
    if all.drawn > 0 {
        text += &all.line("all");
    }
    text.push_str("\n| mutant | killed by | after | as |\n|---|---|---|---|\n");
    for row in rows.iter().filter(|row| row.name != "-") {
        let Row { name, net, seconds, .. } = row;
        let equivalent = known.iter().any(|one| one.name == *name && one.equivalent.is_some());
        let seen: String = match !row.is_killed() && equivalent {
            true => "equivalent, with the reason in `known.toml`".to_owned(),
            false => row.seen.chars().take(100).collect(),
        };
        let seen = seen.replace('|', "\\|");
        let _ = writeln!(text, "| `{name}` | {net} | {seconds:.0} s | {seen} |");
    }
    text.push_str("\n| explained | is | why |\n|---|---|---|\n");
    for row in &drawn {
        let Some((is, why)) = reason(row) else { continue };
        let why = why.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
        let is = if row.is_killed() { "**killed all the same**" } else { is.name() };
        let _ = writeln!(text, "| {} | {is} | {why} |", row.place());
    }
    text.push_str("\n| not killed | |\n|---|---|\n");
    for row in drawn.iter().filter(|row| !row.is_killed() && reason(row).is_none()) {
        let note = if row.net == SURVIVED { "" } else { NOT_REACHED };
        let _ = writeln!(text, "| {} | {note} |", row.place());
    }
    text
}
