//! `kill`: a writing process is killed again and again.

use super::Ended;
use super::deaths::Deaths;
use crate::kernel::{Outside, Sandbox, kill};
use clap::Args;
use std::path::PathBuf;

/// The size of the file system, far more than a database takes.
const SANDBOX_LEN: u64 = 512 << 20;

#[derive(Args)]
pub(crate) struct Kill {
    /// How many kills
    #[arg(long, default_value_t = 1000)]
    kills: u64,
    /// An empty directory for the databases, instead of one in memory, which takes root
    #[arg(long)]
    dir: Option<PathBuf>,
    #[command(flatten)]
    outside: Outside,
    #[command(flatten)]
    deaths: Deaths,
}

impl Kill {
    pub(crate) fn carry_out(self) -> Ended {
        self.deaths.demand(&self.outside)?;
        let dir = match (&self.dir, Sandbox::enter(SANDBOX_LEN)) {
            (Some(dir), _) => dir.clone(),
            (None, Ok(sandbox)) => sandbox.path(""),
            (None, Err(_)) => {
                let dir = std::env::temp_dir().join(format!("isobath-sim-{}", std::process::id()));
                std::fs::create_dir(&dir)?;
                dir
            }
        };
        self.deaths.begin("kill")?;
        let Deaths { seed, control, .. } = self.deaths;
        let outcome = kill::run(&dir, self.kills, seed, control, self.outside.clone())?;
        self.deaths.report(
            &self.outside.name("kill"),
            "kills",
            self.outside.mistake.as_deref(),
            &outcome,
        )
    }
}
