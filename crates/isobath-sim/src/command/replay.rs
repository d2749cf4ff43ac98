//! `replay`: one seed again, as `run` printed it.

use super::Ended;
use super::run::Choice;
use crate::ledger;
use crate::simulation::{self, simulate};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Replay {
    /// The seed that failed
    seed: u64,
    #[command(flatten)]
    choice: Choice,
}

impl Replay {
    pub(crate) fn carry_out(self) -> Ended {
        simulation::hook();
        let settings = self.choice.settings();
        println!("commit {}", ledger::commit());
        Ok(match simulate(self.seed, &settings) {
            Ok(tally) => {
                println!("seed {} finds nothing: {tally}", self.seed);
                ExitCode::SUCCESS
            }
            Err(wrong) => {
                println!("seed {} FAILED: {wrong}", self.seed);
                ExitCode::FAILURE
            }
        })
    }
}
