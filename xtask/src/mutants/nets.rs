//! The nets that a mutant is thrown into: the module's unit tests, the integration tests that its code runs in, and the
//! simulator.

use super::compile::Programs;
use super::process::{End, Leash};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A module's unit tests (the rest of its integration tests' names stand behind them).
const RELEVANT: [(&str, &[&str], &[&str]); 12] = [
    ("wal", &["wal::"], &["recovery", "everyday"]),
    ("write", &["write::", "batch::"], &["everyday", "model", "scripts"]),
    ("flush", &["flush::"], &["everyday", "recovery", "model"]),
    ("recover", &["recover::"], &["recovery", "kill", "golden", "model"]),
    ("version", &["version::"], &["recovery", "golden", "model"]),
    ("compact", &["compact::"], &["scripts", "everyday", "model"]),
    ("cursor", &["cursor::"], &["scripts", "everyday", "model"]),
    ("read", &["read::", "iter::"], &["scripts", "everyday", "model"]),
    ("engine", &["engine::"], &["everyday", "many_families", "stress", "model"]),
    ("snapshots", &["engine::snapshots::", "snapshot::"], &["scripts", "overlap", "model"]),
    ("memtable", &["memtable::"], &["everyday", "stress", "model"]),
    ("table", &["table::"], &["golden", "everyday", "model"]),
];

/// What is run for a mutant in any other module.
const EVERYWHERE: [&str; 4] = ["everyday", "model", "recovery", "scripts"];

/// The names of all integration tests that some module asks for.
pub(super) fn integration_tests() -> BTreeSet<&'static str> {
    let tests = RELEVANT.iter().flat_map(|(_, _, tests)| *tests).chain(&EVERYWHERE);
    tests.copied().collect()
}

const MINUTE: Duration = Duration::from_secs(60);

/// How much simulation there is, and of what.
#[derive(Clone, Debug)]
pub(super) struct Simulation {
    pub(super) minutes: f64,
    pub(super) profiles: Vec<String>,
    pub(super) with_tests: bool,
}

/// What became of a mutant.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    /// The net that caught it, and what was seen.
    pub(super) caught: Option<(String, String)>,
    pub(super) seconds: f64,
    /// False if no program came to its place.
    pub(super) is_reached: bool,
}

pub(super) struct Nets<'a> {
    pub(super) programs: &'a Programs,
    pub(super) tree: &'a Path,
    pub(super) target: &'a Path,
    pub(super) simulation: Simulation,
    /// How long each test took without a mutant, by its module and net.
    pub(super) paces: &'a RefCell<BTreeMap<(String, String), Duration>>,
}

/// One program of a net.
struct Try {
    net: String,
    program: PathBuf,
    arguments: Vec<String>,
    deadline: Duration,
}

impl Nets<'_> {
    /// Tries a mutant, or with 0 the engine as it is. `seed` says what the simulator draws.
    pub(super) fn throw(&self, mutant: usize, module: &str, seed: u64) -> io::Result<Verdict> {
        let (scratch, reached) = (self.target.join("scratch"), self.target.join("reached"));
        let _ = fs::remove_file(&reached);
        let started = Instant::now();
        let mut caught = None;
        for one in self.tries(module, seed) {
            let _ = fs::remove_dir_all(&scratch);
            fs::create_dir_all(&scratch)?;
            let environment = vec![
                ("ISOBATH_MUTANT", mutant.to_string()),
                ("ISOBATH_MUTANT_REACHED", reached.display().to_string()),
                ("TMPDIR", scratch.display().to_string()),
                ("RUST_BACKTRACE", "0".to_owned()),
            ];
            let folder = self.tree.join("crates/isobath");
            let pace = (module.to_owned(), one.net.clone());
            // A mutant that takes four times as long, and a minute, is as good as hung.
            let usual = self.paces.borrow().get(&pace).map(|usual| *usual * 4 + MINUTE);
            let (arguments, deadline) = (one.arguments, usual.unwrap_or(one.deadline));
            let began = Instant::now();
            let leash =
                Leash { program: &one.program, arguments, folder: &folder, environment, deadline };
            let seen = match leash.run()? {
                End::Passed if mutant == 0 && !one.net.starts_with("simulation") => {
                    self.paces.borrow_mut().insert(pace, began.elapsed());
                    continue;
                }
                End::Passed => continue,
                End::Failed(what) => what,
                End::Hung => format!("does not end within {} s", deadline.as_secs()),
            };
            caught = Some((one.net, seen));
            break;
        }
        let _ = fs::remove_dir_all(&scratch);
        let seconds = started.elapsed().as_secs_f64();
        let is_reached = caught.is_some() || reached.exists();
        Ok(Verdict { caught, seconds, is_reached })
    }

    fn tries(&self, module: &str, seed: u64) -> Vec<Try> {
        let mut tries = Vec::new();
        if self.simulation.with_tests {
            self.tests(module, &mut tries);
        }
        if self.simulation.minutes <= 0.0 {
            return tries;
        }
        let profiles = &self.simulation.profiles;
        let each = self.simulation.minutes / profiles.len() as f64;
        // A little of everything first: most mutants that the simulator sees at all it sees soon.
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
                    deadline: Duration::from_secs_f64(minutes * 60.0 + 90.0),
                });
            }
        }
        tries
    }

    fn tests(&self, module: &str, tries: &mut Vec<Try>) {
        let every = (module, &["" as &str][..], &EVERYWHERE[..]);
        let known = RELEVANT.iter().find(|(name, _, _)| *name == module);
        let (_, filters, tests) = known.copied().unwrap_or(every);
        tries.push(Try {
            net: "unit tests".to_owned(),
            program: self.programs.units.clone(),
            arguments: filters.iter().map(|filter| (*filter).to_owned()).collect(),
            deadline: Duration::from_secs(600),
        });
        for test in tests {
            let Some((_, program)) = self.programs.tests.iter().find(|(name, _)| name == test)
            else {
                continue;
            };
            tries.push(Try {
                net: format!("test {test}"),
                program: program.clone(),
                arguments: Vec::new(),
                deadline: Duration::from_secs(600),
            });
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
