//! A campaign: which mutants are tried, and what is written down of each.

use super::Mutants;
use super::known::Known;
use super::nets::{Nets, Simulation};
use super::report::Row;
use super::tree::{MODULES, Tree};
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

pub(super) struct Campaign<'a> {
    pub(super) tree: &'a Tree,
    pub(super) nets: &'a Nets<'a>,
    pub(super) results: &'a Path,
    pub(super) choice: &'a Mutants,
}

impl Campaign<'_> {
    /// Tries the chosen mutants one after the other. False if one with a name survived.
    pub(super) fn run(&self) -> io::Result<bool> {
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let seed = self.choice.seed.unwrap_or(clock % 1_000_000);
        println!("seed {seed}, profiles {}", self.nets.simulation.profiles.join(" "));
        let chosen = self.chosen(seed);
        self.try_unchanged(&chosen, seed)?;
        let mut none_survived = true;
        for (nth, &mutant) in chosen.iter().enumerate() {
            let one = &self.tree.mutants[mutant];
            let verdict = self.nets.throw(
                self.tree.numbers[mutant],
                one.module(),
                (seed + nth as u64) * 1000,
            )?;
            let row = Row::new(one, seed, &verdict);
            println!("{}/{} {}", nth + 1, chosen.len(), row.line());
            row.append(self.results)?;
            none_survived &= one.name.is_none() || verdict.caught.is_some();
        }
        Ok(none_survived)
    }

    /// The engine as it is must pass: each module's tests, and the simulation once.
    fn try_unchanged(&self, chosen: &[usize], seed: u64) -> io::Result<()> {
        let whole = &self.nets.simulation;
        let tests_only =
            Nets { simulation: Simulation { minutes: 0.0, ..whole.clone() }, ..*self.nets };
        let simulation_only =
            Nets { simulation: Simulation { with_tests: false, ..whole.clone() }, ..*self.nets };
        let mut trials = Vec::new();
        if whole.minutes > 0.0 {
            trials.push(("simulation".to_owned(), &simulation_only));
        }
        if whole.with_tests {
            trials.extend(self.modules(chosen).into_iter().map(|module| (module, &tests_only)));
        }
        for (what, nets) in trials {
            let clean = nets.throw(0, &what, seed * 1000)?;
            if let Some((net, seen)) = clean.caught {
                let text = format!("{what}: without any mutant, {net} fails: {seen}");
                return Err(io::Error::other(text));
            }
            println!("{what}: without a mutant nothing fails, {:.0} s", clean.seconds);
        }
        Ok(())
    }

    fn modules(&self, chosen: &[usize]) -> Vec<String> {
        let mut modules: Vec<String> =
            chosen.iter().map(|mutant| self.tree.mutants[*mutant].module().to_owned()).collect();
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
                && (choice.orderings || mutant.operator != "ordering")
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

/// Prints what there is.
pub(super) fn list(tree: &Tree, known: &[Known]) {
    for (number, mutant) in tree.mutants.iter().enumerate() {
        let note = if tree.refused.contains(&number) { " (does not compile)" } else { "" };
        match &mutant.name {
            Some(name) => {
                let why = known.iter().find(|one| one.name == *name).map_or("", |one| &one.why);
                println!("{name}: {} {why}{note}", mutant.key());
            }
            None => println!("{} {} {}{note}", tree.numbers[number], mutant.module(), mutant.key()),
        }
    }
}
