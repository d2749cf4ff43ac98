//! `powercut`: ext4 under a writing database is cut off its device again and again.

use super::Ended;
use super::deaths::{Deaths, skip};
use crate::kernel::{Engine, powercut};
use clap::Args;

#[derive(Args)]
pub(crate) struct Powercut {
    /// How many cuts
    #[arg(long, default_value_t = 1000)]
    cuts: u64,
    /// What writes
    #[arg(long, value_enum, default_value_t = Engine::Isobath)]
    engine: Engine,
    #[command(flatten)]
    deaths: Deaths,
}

impl Powercut {
    pub(crate) fn carry_out(self) -> Ended {
        let disk = match powercut::prepare() {
            Ok(disk) => disk,
            Err(why) => return skip("powercut", &why),
        };
        let Deaths { seed, control, .. } = self.deaths;
        let outcome = powercut::run(&disk, self.cuts, seed, self.engine, control)?;
        let harness = match self.engine {
            Engine::Isobath => "powercut".to_owned(),
            #[cfg(any(feature = "rocksdb", feature = "fjall"))]
            peer => format!("powercut of {peer}"),
        };
        self.deaths.report(&harness, "cuts", &outcome)
    }
}
