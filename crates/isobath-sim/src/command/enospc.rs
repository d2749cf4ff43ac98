//! `enospc`: a database whose file system fills up, or whose device fails.

use super::Ended;
use super::deaths::{Deaths, skip};
use crate::kernel::{enospc, failing};
use clap::{Args, ValueEnum};

/// Where room is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Place {
    /// In the file system: calls fail, and work again when there is room
    Tmpfs,
    /// In the device below the file system: writes fail after they were accepted, and syncs fail
    /// once
    Device,
}

#[derive(Args)]
pub(crate) struct Enospc {
    /// How many rounds
    #[arg(long, default_value_t = 100)]
    rounds: u64,
    /// Where there is no room
    #[arg(long, value_enum, default_value_t = Place::Tmpfs)]
    on: Place,
    #[command(flatten)]
    deaths: Deaths,
}

impl Enospc {
    pub(crate) fn carry_out(self) -> Ended {
        let Deaths { seed, control, .. } = self.deaths;
        let (harness, outcome) = match self.on {
            Place::Tmpfs => match enospc::prepare() {
                Ok(small) => {
                    self.deaths.begin("enospc")?;
                    ("enospc", enospc::run(&small, self.rounds, seed, control)?)
                }
                Err(why) => return skip("enospc", &why),
            },
            Place::Device => match failing::prepare() {
                Ok(workshop) => {
                    self.deaths.begin("enospc --on device")?;
                    ("enospc --on device", failing::run(&workshop, self.rounds, seed, control)?)
                }
                Err(why) => return skip("enospc --on device", &why),
            },
        };
        self.deaths.report(harness, "rounds", None, &outcome)
    }
}
