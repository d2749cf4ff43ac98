//! The net for weaker orders of atomics: loom's models of the engine.
//!
//! Each model runs without a mutant first, which says how long it takes and to which places it
//! comes. A mutant is thrown into the models that come to its place.
//!
//! Loom knows sequentially consistent fences, and takes such accesses for acquire and release. In
//! the engine a fence for loom follows each store whose place in the order of all threads matters.
//! So a weaker load would never be seen. A mutant of such an access is tried twice, therefore: with
//! these fences, without the one that belongs to it; and with a fence before each load instead,
//! without that before its own. A model that fails so without a mutant relies on a fence behind a
//! store before an access that is not sequentially consistent, and is tried the first way only.

use super::campaign::at_once;
use super::nets::{Net, Verdict};
use super::process::{End, Leash};
use super::site::{Access, Mutant};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Where loom's fences stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fences {
    /// Behind stores, as in the engine.
    Follow,
    /// Before loads.
    Lead,
}

/// A model, as it is without a mutant.
struct Model {
    test: String,
    fences: Fences,
    usual: Duration,
    places: BTreeSet<usize>,
}

pub(super) struct Models {
    program: PathBuf,
    /// The folder that the program runs in.
    folder: PathBuf,
    target: PathBuf,
    jobs: u32,
    /// What a model gets beyond ten times its usual time.
    pub(super) slack: Duration,
    /// The fastest first.
    models: Vec<Model>,
}

/// The longest time for a model whose usual time is not known.
const MODEL_MAX: Duration = Duration::from_secs(1800);
const MINUTE: Duration = Duration::from_secs(60);

impl Models {
    /// The models of a program. They must pass without a mutant.
    pub(super) fn explore(
        program: &Path,
        tree: &Path,
        target: &Path,
        jobs: u32,
    ) -> io::Result<Models> {
        let list = std::process::Command::new(program).args(["model::", "--list"]).output()?;
        let list = String::from_utf8_lossy(&list.stdout).into_owned();
        let tests = list.lines().filter_map(|line| line.strip_suffix(": test"));
        let ways = [Fences::Follow, Fences::Lead];
        let tests: Vec<(&str, Fences)> =
            tests.flat_map(|test| ways.map(|fences| (test, fences))).collect();
        let (program, target, models) = (program.to_owned(), target.to_owned(), Vec::new());
        let (folder, slack) = (tree.join("crates/isobath"), MINUTE);
        let mut all = Models { program, folder, target, jobs, slack, models };
        let models = Mutex::new(Vec::new());
        at_once(jobs, &tests, |job, &(test, fences)| {
            let began = Instant::now();
            match all.run(job, 0, test, fences, MODEL_MAX)? {
                End::Passed => {}
                End::Failed(seen) if fences == Fences::Lead => {
                    println!("{test}: not with fences before loads: {seen}");
                    return Ok(());
                }
                end => return Err(io::Error::other(format!("{test}: without a mutant: {end:?}"))),
            }
            let (test, usual) = (test.to_owned(), began.elapsed());
            let places = fs::read_to_string(all.reached(job))?;
            let places = places.lines().filter_map(|number| number.parse().ok()).collect();
            println!("{test}, fences {fences:?}: {:.1} s without a mutant", usual.as_secs_f64());
            let model = Model { test, fences, usual, places };
            models.lock().expect("no job panics with it").push(model);
            Ok(())
        })?;
        all.models = models.into_inner().expect("no job panics with it");
        all.models.sort_by_key(|model| model.usual);
        Ok(all)
    }

    fn reached(&self, job: usize) -> PathBuf {
        self.target.join(format!("reached-{job}"))
    }

    fn run(
        &self,
        job: usize,
        mutant: usize,
        test: &str,
        fences: Fences,
        deadline: Duration,
    ) -> io::Result<End> {
        let reached = self.reached(job);
        fs::write(&reached, b"")?;
        let fences = if fences == Fences::Lead { "lead" } else { "follow" };
        let environment = vec![
            ("ISOBATH_MUTANT", mutant.to_string()),
            ("ISOBATH_MUTANT_FENCES", fences.to_owned()),
            ("ISOBATH_MUTANT_REACHED", reached.display().to_string()),
            ("RUST_BACKTRACE", "0".to_owned()),
        ];
        let arguments = [test, "--exact", "--test-threads", "1"].map(str::to_owned).to_vec();
        let (program, folder) = (&self.program, &*self.folder);
        Leash { program, arguments, folder, environment, deadline, quiet: deadline }.run()
    }

    /// Tries a mutant. A model that takes longer than ten times its usual time decides nothing:
    /// loom ends a schedule without an end by itself, so there are only more schedules.
    fn throw(&self, job: usize, mutant: &Mutant, number: usize) -> io::Result<Verdict> {
        let is_strong = mutant.access.is_some_and(Access::is_strong);
        let started = Instant::now();
        let (mut caught, mut is_reached, mut unsure) = (None, false, None);
        let models = self.models.iter().filter(|model| {
            model.places.contains(&number) && (is_strong || model.fences == Fences::Follow)
        });
        for Model { test, fences, usual, .. } in models {
            is_reached = true;
            let deadline = *usual * 10 * self.jobs + self.slack;
            match self.run(job, number, test, *fences, deadline)? {
                End::Passed => {}
                End::Failed(seen) => {
                    caught = Some((format!("model {test}"), format!("fences {fences:?}: {seen}")));
                    break;
                }
                End::Hung(_) => {
                    let seconds = deadline.as_secs();
                    unsure = Some(format!("{test}, fences {fences:?}: not within {seconds} s"));
                }
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        Ok(Verdict { caught, seconds, is_reached, unsure })
    }
}

impl Net for Models {
    fn trial(&self, digest: &str) -> String {
        format!("sources {digest}, models under loom")
    }

    fn jobs(&self) -> u32 {
        self.jobs
    }

    /// They have passed already.
    fn try_unchanged(&self, _: &[String], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn throw(&self, job: usize, mutant: &Mutant, number: usize, _: u64) -> io::Result<Verdict> {
        self.throw(job, mutant, number)
    }
}
