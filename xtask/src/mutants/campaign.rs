//! A campaign: which mutants are tried, and what is recorded of each.

use super::Mutants;
use super::explained::Reasons;
use super::known::Known;
use super::nets::Net;
use super::report::{self, Row};
use super::site::Mutant;
use super::tree::{MODULES, Tree};
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) struct Campaign<'a> {
    pub(super) tree: &'a Tree,
    pub(super) known: &'a [Known],
    pub(super) reasons: &'a Reasons,
    pub(super) net: &'a dyn Net,
    pub(super) results: &'a Path,
    pub(super) choice: &'a Mutants,
}

impl Campaign<'_> {
    /// Tries the chosen mutants, as many at a time as there are jobs, except those that the results
    /// already hold. Those that people have explained come last. False if a named mutant survived
    /// that is not known to be equivalent.
    pub(super) fn run(&self) -> io::Result<bool> {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let seed = self.choice.seed.unwrap_or(clock % 1_000_000);
        let trial = self.net.trial(&self.tree.digest);
        println!("seed {seed}, {trial}");
        let chosen = self.chosen(seed);
        let done = report::read_if_there(self.results)?;
        let mut left = left(&chosen, &self.tree.mutants, &done, seed, &trial);
        left.sort_by_key(|(_, mutant)| {
            self.reasons.contains_key(&self.tree.mutants[*mutant].key())
        });
        if left.len() < chosen.len() {
            println!(
                "{} of {} are in the results already",
                chosen.len() - left.len(),
                chosen.len()
            );
        }
        if !left.is_empty() {
            self.net.try_unchanged(&self.modules(&left), seed)?;
        }
        let (written, net, results) = (Mutex::new(0), self.net, self.results);
        let (mutants, numbers) = (&self.tree.mutants, &self.tree.numbers);
        at_once(net.jobs(), &left, |job, &(nth, mutant)| {
            let one = &mutants[mutant];
            let seed_of_it = (seed + nth as u64) * 1000;
            let verdict = net.throw(job, one, numbers[mutant], seed_of_it)?;
            let row = Row::new(one, seed, &trial, &verdict);
            let mut written = written.lock().expect("no job panics with it");
            *written += 1;
            println!("{written}/{} {}", left.len(), row.line());
            row.append(results)
        })?;
        let rows = report::read_if_there(self.results)?;
        let tried = chosen.iter().map(|mutant| &self.tree.mutants[*mutant]);
        let is_well = |one: &Mutant| match &one.name {
            None => true,
            Some(name) => {
                let known = self.known.iter().find(|known| known.name == *name);
                known.is_some_and(|known| known.equivalent.is_some())
                    || rows.iter().any(|row| row.is_of(one, seed, &trial) && row.is_killed())
            }
        };
        Ok(tried.fold(true, |all, one| all & is_well(one)))
    }

    fn modules(&self, left: &[(usize, usize)]) -> Vec<String> {
        let mut modules: Vec<String> =
            left.iter().map(|(_, mutant)| self.tree.mutants[*mutant].module().to_owned()).collect();
        modules.sort();
        modules.dedup();
        modules
    }

    /// The numbers of the mutants to be tried.
    fn chosen(&self, seed: u64) -> Vec<usize> {
        let choice = self.choice;
        let mutants = self.tree.mutants.iter().enumerate();
        let mutants = mutants.filter(|(number, mutant)| {
            !self.tree.refused.contains(number)
                && match mutant.access {
                    Some(_) => choice.orderings || choice.orderings_only,
                    None => !choice.orderings_only,
                }
                && (choice.module.is_empty()
                    || choice.module.iter().any(|name| name == mutant.module()))
        });
        if let Some(part) = &choice.only {
            let is_it =
                |name: &Option<String>| name.as_ref().is_some_and(|name| name.contains(part));
            let wanted = mutants.filter(|(_, one)| is_it(&one.name) || one.key().contains(part));
            return wanted.map(|(number, _)| number).collect();
        }
        if choice.known {
            return mutants
                .filter(|(_, one)| one.name.is_some())
                .map(|(number, _)| number)
                .collect();
        }
        let unnamed: Vec<_> = mutants.filter(|(_, mutant)| mutant.name.is_none()).collect();
        let mut chosen = Vec::new();
        for (nth, module) in MODULES.into_iter().enumerate() {
            let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(64).wrapping_add(nth as u64));
            let here = unnamed.iter().filter(|(_, mutant)| mutant.module() == module);
            let mut here: Vec<usize> = here.map(|(number, _)| *number).collect();
            rng.shuffle(&mut here);
            here.truncate(choice.count);
            chosen.extend(here);
        }
        chosen
    }
}

/// Does each piece of work once, as many at a time as there are jobs, until one fails.
pub(super) fn at_once<T: Sync>(
    jobs: u32,
    work: &[T],
    one: impl Fn(usize, &T) -> io::Result<()> + Sync,
) -> io::Result<()> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let carry_out = &|job: usize| {
        while !failed.load(Ordering::Relaxed)
            && let Some(piece) = work.get(next.fetch_add(1, Ordering::Relaxed))
        {
            if let Err(error) = one(job, piece) {
                failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let jobs = (0..jobs as usize).map(|job| scope.spawn(move || carry_out(job)));
        let jobs: Vec<_> = jobs.collect();
        jobs.into_iter().try_for_each(|job| job.join().expect("no job panics"))
    })
}

/// The chosen mutants that the results do not tell of yet, with their places among those chosen.
pub(super) fn left(
    chosen: &[usize],
    mutants: &[Mutant],
    done: &[Row],
    seed: u64,
    trial: &str,
) -> Vec<(usize, usize)> {
    let is_done = |mutant: &Mutant| done.iter().any(|row| row.is_of(mutant, seed, trial));
    let all = chosen.iter().copied().enumerate();
    all.filter(|(_, mutant)| !is_done(&mutants[*mutant])).collect()
}

/// What there is, a line each.
pub(super) fn list(tree: &Tree, known: &[Known], orderings_only: bool) -> String {
    let mut text = String::new();
    let mutants = tree.mutants.iter().enumerate();
    for (number, mutant) in mutants.filter(|(_, mutant)| !orderings_only || mutant.access.is_some())
    {
        let note = if tree.refused.contains(&number) { " (does not compile)" } else { "" };
        let key = mutant.key();
        let _ = match &mutant.name {
            Some(name) => {
                let why = known.iter().find(|one| one.name == *name).map_or("", |one| &one.why);
                writeln!(text, "{name}: {key} {why}{note}")
            }
            None => writeln!(text, "{} {} {key}{note}", tree.numbers[number], mutant.module()),
        };
    }
    text
}
