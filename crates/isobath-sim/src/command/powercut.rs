//! `powercut`: ext4 under a writing database is cut off its device again and again.

use super::Ended;
use super::deaths::{Deaths, skip};
use crate::kernel::{Engine, Outside, powercut};
use clap::Args;

#[derive(Args)]
pub(crate) struct Powercut {
    /// How many cuts
    #[arg(long, default_value_t = 1000)]
    cuts: u64,
    /// What writes
    #[arg(long, value_enum, default_value_t = Engine::Isobath)]
    engine: Engine,
    /// Never cut before a database has been created. For engines that cannot open a database whose
    /// creation was cut
    #[arg(long)]
    spare_creation: bool,
    #[command(flatten)]
    outside: Outside,
    #[command(flatten)]
    deaths: Deaths,
}

impl Powercut {
    pub(crate) fn carry_out(self) -> Ended {
        self.deaths.demand(&self.outside)?;
        let disk = match powercut::prepare() {
            Ok(disk) => disk,
            Err(why) => return skip("powercut", &why),
        };
        self.deaths.begin("powercut")?;
        let Deaths { seed, control, .. } = self.deaths;
        let Powercut { cuts, engine, spare_creation, outside, .. } = self;
        let writer = powercut::writer(&disk, seed, engine, control, outside.clone());
        let outcome = powercut::run(&disk, cuts, writer, spare_creation)?;
        let mut harness = outside.name("powercut");
        if engine != Engine::Isobath {
            harness += &format!(" of {engine}");
        }
        if spare_creation {
            harness += " --spare-creation";
        }
        self.deaths.report(&harness, "cuts", outside.mistake.as_deref(), &outcome)
    }
}
