//! The nets that a mutant is thrown into: the module's unit tests, the integration tests that its
//! code runs in, and the simulator.

use super::campaign::at_once;
use super::compile::Programs;
use super::process::{End, Leash};
use super::site::Mutant;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A module's unit tests (the rest of its integration tests' names stand behind them).
const RELEVANT: [(&str, &[&str], &[&str]); 19] = [
    ("wal", &["wal::"], &["recovery", "everyday"]),
    ("write", &["write::", "batch::"], &["everyday", "model", "scripts"]),
    ("flush", &["flush::"], &["everyday", "recovery", "model"]),
    ("follow", &["follow::"], &[]),
    ("recover", &["recover::"], &["recovery", "kill", "golden", "model"]),
    ("version", &["version::"], &["recovery", "golden", "model"]),
    ("compact", &["compact::"], &["scripts", "everyday", "model"]),
    ("blob", &["blob::", "compact::garbage::", "compact::plan::"], &["everyday", "model"]),
    ("cursor", &["cursor::"], &["scripts", "everyday", "model"]),
    ("read", &["read::", "iter::"], &["scripts", "everyday", "model"]),
    ("engine", &["engine::"], &["everyday", "many_families", "stress", "model"]),
    ("snapshots", &["engine::read_points::", "snapshot::"], &["scripts", "overlap", "model"]),
    ("memory", &["memory::", "memtable::", "engine::ceiling::"], &["memory"]),
    ("memtable", &["memtable::"], &["everyday", "stress", "model"]),
    ("span", &["span::", "spans::", "drops::", "compact::run::"], &["range_deletes", "model"]),
    ("gap", &["gap::", "cursor::visible::", "engine::", "transact::ranges::"], &["queue", "model"]),
    ("transact", &["transact::", "recover::"], &["transactions", "everyday", "model"]),
    ("mvcc", &["mvcc::", "compact::", "cursor::"], &["scripts", "overlap", "model", "merge"]),
    ("table", &["table::"], &["golden", "everyday", "model"]),
];

/// What is run for a mutant in any other module.
const EVERYWHERE: [&str; 4] = ["everyday", "model", "recovery", "scripts"];

/// What else is run, in the end, for a mutant that has survived its module's tests.
const REST: [&str; 15] = [
    "range_deletes",
    "merge",
    "queue",
    "transactions",
    "estimate",
    "dropped_families",
    "handles",
    "overlap",
    "limits",
    "empty_key",
    "closing",
    "durable_callbacks",
    "neighbours",
    "tools",
    "stress",
];

/// The names of all integration tests that some module asks for.
pub(super) fn integration_tests() -> BTreeSet<&'static str> {
    let tests = RELEVANT.iter().flat_map(|(_, _, tests)| *tests).chain(&EVERYWHERE).chain(&REST);
    tests.copied().collect()
}

const MINUTE: Duration = Duration::from_secs(60);
/// The longest time for a test program whose usual time is not known.
const TESTS_MAX: Duration = Duration::from_secs(600);
/// The longest time in which no test of a program ends.
const QUIET_MAX: Duration = Duration::from_secs(300);

/// How much simulation there is, and of what.
#[derive(Clone, Debug)]
pub(super) struct Simulation {
    pub(super) minutes: f64,
    pub(super) profiles: Vec<String>,
    pub(super) with_tests: bool,
}

impl Simulation {
    /// What a mutant is thrown into, for the results: what was tried with less is tried again.
    pub(super) fn trial(&self, digest: &str) -> String {
        let Simulation { minutes, profiles, with_tests } = self;
        let tests = if *with_tests { "tests" } else { "no tests" };
        match *minutes > 0.0 {
            true => format!("sources {digest}, {tests}, {minutes} min of {}", profiles.join(" ")),
            false => format!("sources {digest}, {tests}"),
        }
    }
}

/// What became of a mutant.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    /// The net that caught it, and what was seen.
    pub(super) caught: Option<(String, String)>,
    pub(super) seconds: f64,
    /// False if no program reached its place.
    pub(super) is_reached: bool,
    /// Of one that was not caught: what did not come to its end.
    pub(super) unsure: Option<String>,
}

/// What mutants are thrown into.
pub(super) trait Net: Sync {
    /// What it is made of, for the results: what was tried with less is tried again.
    fn trial(&self, digest: &str) -> String;

    /// How many mutants are tried at once.
    fn jobs(&self) -> u32;

    /// Makes sure that the engine as it is passes, with what mutants of these modules get.
    fn try_unchanged(&self, modules: &[String], seed: u64) -> io::Result<()>;

    /// Tries a mutant. No two jobs of a number run at a time.
    fn throw(&self, job: usize, mutant: &Mutant, number: usize, seed: u64) -> io::Result<Verdict>;
}

impl Net for Nets<'_> {
    fn trial(&self, digest: &str) -> String {
        self.simulation.trial(digest)
    }

    fn jobs(&self) -> u32 {
        self.jobs
    }

    /// Each module's tests, and the simulation once.
    fn try_unchanged(&self, modules: &[String], seed: u64) -> io::Result<()> {
        let whole = &self.simulation;
        let tests_only = Nets { simulation: Simulation { minutes: 0.0, ..whole.clone() }, ..*self };
        let simulation_only =
            Nets { simulation: Simulation { with_tests: false, ..whole.clone() }, ..*self };
        let mut trials = Vec::new();
        if whole.minutes > 0.0 {
            trials.push(("simulation", &simulation_only));
        }
        if whole.with_tests {
            trials.extend(modules.iter().map(|module| (&**module, &tests_only)));
        }
        at_once(self.jobs, &trials, |job, (what, nets)| {
            let clean = nets.throw(job, 0, what, seed * 1000)?;
            if let Some((net, seen)) = clean.caught {
                let text = format!("{what}: without any mutant, {net} fails: {seen}");
                return Err(io::Error::other(text));
            }
            println!("{what}: without a mutant nothing fails, {:.0} s", clean.seconds);
            Ok(())
        })
    }

    fn throw(&self, job: usize, mutant: &Mutant, number: usize, seed: u64) -> io::Result<Verdict> {
        self.throw(job, number, mutant.module(), seed)
    }
}

pub(super) struct Nets<'a> {
    pub(super) programs: &'a Programs,
    pub(super) tree: &'a Path,
    pub(super) target: &'a Path,
    pub(super) simulation: Simulation,
    /// How long each test took without a mutant, by its module and net.
    pub(super) paces: &'a Mutex<BTreeMap<(String, String), Duration>>,
    /// How many mutants are tried at once.
    pub(super) jobs: u32,
}

/// One program of a net.
pub(super) struct Try {
    pub(super) net: String,
    program: PathBuf,
    arguments: Vec<String>,
    deadline: Duration,
    /// Every module has it, so its pace is known once for all.
    is_shared: bool,
    /// Not worth its time if no net before it came to the mutant's place.
    pub(super) is_long: bool,
}

impl Nets<'_> {
    /// Tries a mutant, or with 0 the engine as it is. `seed` says what the simulator draws; no two
    /// jobs of a number run at a time.
    pub(super) fn throw(
        &self,
        job: usize,
        mutant: usize,
        module: &str,
        seed: u64,
    ) -> io::Result<Verdict> {
        let scratch = self.target.join(format!("scratch-{job}"));
        let reached = self.target.join(format!("reached-{job}"));
        let _ = fs::remove_file(&reached);
        let started = Instant::now();
        let mut caught = None;
        for one in self.tries(module, seed) {
            if one.is_long && mutant != 0 && !reached.exists() {
                break;
            }
            let _ = fs::remove_dir_all(&scratch);
            fs::create_dir_all(&scratch)?;
            let environment = vec![
                ("ISOBATH_MUTANT", mutant.to_string()),
                ("ISOBATH_MUTANT_REACHED", reached.display().to_string()),
                ("TMPDIR", scratch.display().to_string()),
                ("RUST_BACKTRACE", "0".to_owned()),
                // Without this, proptest would try the failing cases of one mutant first under the
                // next.
                ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1".to_owned()),
                // A test that runs again draws the same cases.
                ("PROPTEST_RNG_SEED", seed.to_string()),
            ];
            let folder = self.tree.join("crates/isobath");
            let of = if one.is_shared { "" } else { module };
            let pace = (of.to_owned(), one.net.clone());
            let usual = self.paces.lock().expect("no job panics with it").get(&pace).copied();
            if one.is_shared && mutant == 0 && usual.is_some() {
                continue;
            }
            let deadline = usual.map_or(one.deadline, |usual| self.deadline(usual));
            let arguments = one.arguments;
            let began = Instant::now();
            let is_simulation = one.net.starts_with("simulation");
            let quiet = if is_simulation { deadline } else { QUIET_MAX.min(deadline) };
            let (program, folder) = (&*one.program, &*folder);
            let leash = Leash { program, arguments, folder, environment, deadline, quiet };
            let seen = match leash.run_to_a_failure_that_repeats()? {
                End::Passed if mutant == 0 && !is_simulation => {
                    let mut paces = self.paces.lock().expect("no job panics with it");
                    paces.insert(pace, began.elapsed());
                    continue;
                }
                End::Passed => continue,
                End::Failed(what) => what,
                End::Hung(_) => format!("does not end within {} s", deadline.as_secs()),
            };
            caught = Some((one.net, seen));
            break;
        }
        let _ = fs::remove_dir_all(&scratch);
        let seconds = started.elapsed().as_secs_f64();
        let is_reached = caught.is_some() || reached.exists();
        Ok(Verdict { caught, seconds, is_reached, unsure: None })
    }

    /// A program that takes four times as long as without a mutant, and a minute more, counts as
    /// hung. If others are tried at the same time, each takes its share of the processors.
    pub(super) fn deadline(&self, usual: Duration) -> Duration {
        usual * 4 * self.jobs + MINUTE
    }

    pub(super) fn tries(&self, module: &str, seed: u64) -> Vec<Try> {
        let mut tries = Vec::new();
        if self.simulation.with_tests {
            self.tests(module, &mut tries);
        }
        if self.simulation.minutes <= 0.0 {
            return tries;
        }
        let profiles = &self.simulation.profiles;
        let each = self.simulation.minutes / profiles.len() as f64;
        // Give every profile a tenth of its time first: the simulator finds most mutants early or
        // never.
        for minutes in [each * 0.1, each * 0.9] {
            for (nth, profile) in profiles.iter().enumerate() {
                let from =
                    seed + 1_000_000 * nth as u64 + if minutes < each * 0.5 { 0 } else { 500_000 };
                let seeds = format!("{from}..{}", from + 500_000);
                let minutes_text = format!("{minutes:.3}");
                let arguments =
                    ["run", "--no-shrink", "--profile", profile, "--seeds", &seeds, "--minutes"];
                let arguments = arguments.into_iter().chain([&*minutes_text]).map(str::to_owned);
                tries.push(Try {
                    net: format!("simulation, {profile}"),
                    program: self.programs.simulator.clone(),
                    arguments: arguments.collect(),
                    deadline: Duration::from_secs_f64(minutes * 60.0) + MINUTE * 2 * self.jobs,
                    is_shared: false,
                    is_long: minutes > each * 0.5,
                });
            }
        }
        tries
    }

    fn tests(&self, module: &str, tries: &mut Vec<Try>) {
        let every = (module, &["" as &str][..], &EVERYWHERE[..]);
        let known = RELEVANT.iter().find(|(name, _, _)| *name == module);
        let (_, filters, tests) = known.copied().unwrap_or(every);
        let mut add = |net: String, program: &Path, filters: &[&str], is_shared| {
            tries.push(Try {
                net,
                program: program.to_owned(),
                arguments: filters.iter().map(|filter| (*filter).to_owned()).collect(),
                deadline: TESTS_MAX * self.jobs,
                is_shared,
                is_long: false,
            });
        };
        let program_of = |test: &&str| self.programs.tests.iter().find(|(name, _)| name == test);
        add("unit tests".to_owned(), &self.programs.units, filters, false);
        for (name, program) in tests.iter().filter_map(program_of) {
            add(format!("test {name}"), program, &[], false);
        }
        if filters != [""] {
            add("all unit tests".to_owned(), &self.programs.units, &[], true);
        }
        let rest = REST.iter().filter(|name| !tests.contains(name));
        for (name, program) in rest.filter_map(program_of) {
            add(format!("test {name}"), program, &[], true);
        }
    }
}

/// The profiles that a simulator has, as its help says.
pub(super) fn profiles(programs: &Programs) -> io::Result<Vec<String>> {
    let help = std::process::Command::new(&programs.simulator).args(["run", "--help"]).output()?;
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let Some((_, behind)) = help.split_once("--profile") else {
        return Ok(vec!["mixed".to_owned()]);
    };
    let profile = behind.split_once("--trim").map_or(behind, |(profile, _)| profile);
    if let Some((_, list)) = profile.split_once("[possible values: ") {
        let list = list.split(']').next().unwrap_or_default();
        return Ok(list.split(", ").map(str::to_owned).collect());
    }
    let items = profile.lines().filter_map(|line| line.trim().strip_prefix("- "));
    Ok(items.filter_map(|item| item.split(':').next()).map(str::to_owned).collect())
}
