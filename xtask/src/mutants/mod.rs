//! Mutation testing of the engine: `cargo run -p xtask -- mutants`.
//!
//! To build the engine anew for each mutant would take days, so all mutants are compiled at once,
//! each behind a switch (mutant schemata). `sources.rs` finds the files, `finder.rs` walks them,
//! `operators.rs`, `statements.rs` and `orders.rs` say what is changed, `known.rs` reads the list
//! of mutants with names, `weave.rs` writes all of them into one text, `tree.rs` keeps the copy of
//! the workspace, `compile.rs` builds it and drops what does not compile, and `built.rs` remembers
//! of which sources. Then `campaign.rs` draws mutants and throws each into the nets of `nets.rs`:
//! the module's tests and some minutes of simulation. Weaker orders of atomics are for loom's
//! models, the net of `models.rs`. `report.rs` makes the tables, with the reasons that
//! `explained.rs` reads for survivors.

mod built;
mod campaign;
mod compile;
mod explained;
mod finder;
mod known;
mod models;
mod nets;
mod operators;
mod orders;
mod process;
mod report;
mod site;
mod sources;
mod statements;
#[cfg(test)]
mod tests;
mod tree;
mod weave;

use crate::tidy::workspace_root;
use clap::Args;
use std::error::Error;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Changes the engine in one place at a time, and sees whether tests and simulator notice.
#[derive(Args)]
pub struct Mutants {
    /// Only build, and say how to switch a mutant on
    #[arg(long)]
    build: bool,
    /// List what there is instead of trying it
    #[arg(long)]
    list: bool,
    /// Try the mutants with names
    #[arg(long)]
    known: bool,
    /// Try those whose key or name contains this
    #[arg(long)]
    only: Option<String>,
    /// Draw from this module; may be given several times, default is all
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(tree::MODULES))]
    module: Vec<String>,
    /// How many to draw in each module
    #[arg(long, default_value_t = 30)]
    count: usize,
    /// What is drawn, mutants and simulated seeds; default is the clock. With --report, whose
    /// results
    #[arg(long)]
    seed: Option<u64>,
    /// How many mutants are tried at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Minutes of simulation for each, over all profiles; 0 for tests only
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// The simulator's profiles; default is all it has
    #[arg(long, value_delimiter = ',')]
    profiles: Vec<String>,
    /// Leave out the tests: what does the simulator see alone?
    #[arg(long)]
    no_tests: bool,
    /// Weaker orders of atomics too, which tests and simulator cannot see: they are for the models
    #[arg(long)]
    orderings: bool,
    /// Only weaker orders of atomics, thrown into loom's models instead of tests and simulator
    #[arg(long, conflicts_with_all = ["known", "orderings", "no_tests", "minutes", "profiles"])]
    orderings_only: bool,
    /// The mutants with names
    #[arg(long, default_value = "xtask/mutants/known.toml")]
    list_of_known: PathBuf,
    /// The survivors that people have judged
    #[arg(long, default_value = "xtask/mutants/explained.toml")]
    list_of_explained: PathBuf,
    /// Add each outcome to this file. Mutants for which it holds an outcome with the same seed,
    /// sources and nets are not tried again
    #[arg(long, default_value = "target/mutants/results.tsv")]
    results: PathBuf,
    /// Print the tables of such a file and do nothing else
    #[arg(long)]
    report: bool,
}

impl Mutants {
    /// Does what the arguments say. False if a mutant with a name survived or fits no more.
    pub fn carry_out(&self) -> Result<bool, Box<dyn Error>> {
        let workspace = workspace_root().canonicalize()?;
        let results = workspace.join(&self.results);
        let mut known = known::read(&workspace.join(&self.list_of_known))?;
        let mut tree = tree::Tree::find(&workspace, &self.list_of_known, &mut known)?;
        for complaint in &tree.stale {
            eprintln!("does not fit the sources any more: {complaint}");
        }
        if self.list {
            return Ok(print(&campaign::list(&tree, &known, self.orderings_only))?);
        }
        let reasons = self.reasons(&workspace, &tree)?;
        if self.report {
            let rows = report::of_seed(report::read(&results)?, self.seed);
            return Ok(print(&report::tables(&rows, &known, &reasons))?);
        }
        if self.orderings_only {
            return self.try_orders(tree.for_models(), (&known, &reasons), &results);
        }
        let programs = compile::build(&mut tree, !self.no_tests, self.minutes > 0.0)?;
        let made = tree.mutants.len() - tree.refused.len();
        println!("{made} mutants compile, {} do not", tree.refused.len());
        for program in [&programs.units, &programs.simulator] {
            println!("switch one on: ISOBATH_MUTANT=NAME {}", program.display());
        }
        if self.build {
            return Ok(true);
        }
        let profiles = match self.profiles.is_empty() && self.minutes > 0.0 {
            true => nets::profiles(&programs)?,
            false => self.profiles.clone(),
        };
        let (minutes, with_tests) = (self.minutes, !self.no_tests);
        let simulation = nets::Simulation { minutes, profiles, with_tests };
        let (target, paces, jobs) = (&*tree.target, &Mutex::default(), self.jobs);
        let nets =
            nets::Nets { programs: &programs, tree: &tree.root, target, simulation, paces, jobs };
        let (tree, known, reasons, net, results) = (&tree, &*known, &reasons, &nets, &*results);
        let campaign = campaign::Campaign { tree, known, reasons, net, results, choice: self };
        Ok(campaign.run()? && (!self.known || tree.stale.is_empty()))
    }

    /// Throws weaker orders of atomics into loom's models.
    fn try_orders(
        &self,
        mut tree: tree::Tree,
        (known, reasons): (&[known::Known], &explained::Reasons),
        results: &Path,
    ) -> Result<bool, Box<dyn Error>> {
        let program = compile::build(&mut tree, true, false)?.units;
        println!("switch one on: ISOBATH_MUTANT=NUMBER {} model::", program.display());
        if self.build {
            return Ok(true);
        }
        let net = &models::Models::explore(&program, &tree.root, &tree.target, self.jobs)?;
        let tree = &tree;
        Ok(campaign::Campaign { tree, known, reasons, net, results, choice: self }.run()?)
    }

    /// Why mutants that survive do so, as far as people have said.
    fn reasons(&self, workspace: &Path, tree: &tree::Tree) -> io::Result<explained::Reasons> {
        let list = explained::read(&workspace.join(&self.list_of_explained))?;
        let (reasons, stale) = tree.explain(&list);
        for complaint in stale {
            eprintln!("does not fit the sources any more: {complaint}");
        }
        Ok(reasons)
    }
}

/// Prints a text. The reader may close the pipe at any time.
fn print(text: &str) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(true),
    }
}
