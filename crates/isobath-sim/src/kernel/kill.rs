//! Kills: a writing process dies at any moment, and the kernel keeps all that the process had
//! handed to it.

use super::campaign::{Campaign, Outcome, PATIENCE, Series, Verdict};
use super::check::Death;
use super::life::Said;
use super::outside::Outside;
use super::writer::{Trouble, Writer};
use isobath::env::planted::Plant;
use std::error::Error;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// The longest that one opens before a death that does not wait for it.
const OPENS_US_MAX: u64 = 5_000;

/// Kills the writers of one database after the other, in a directory that exists.
pub(crate) fn run(
    dir: &Path,
    kills: u64,
    seed: u64,
    plant: Option<Plant>,
    outside: Outside,
) -> Result<Outcome, Box<dyn Error>> {
    let inside = Writer::new(dir.join("db"), seed, Death::Process, Trouble::None, plant);
    let writer = Writer { outside, ..inside };
    Campaign { unit: "kills", deaths: kills, lives_max: 24, writer }.run(&mut kill)
}

fn kill(series: &mut Series<'_>) -> Verdict {
    let mut life = series.begin()?;
    let lasts_us = match series.rng.u32(..4) {
        0 => series.rng.u64(..OPENS_US_MAX),
        _ => {
            if life.listen(PATIENCE)? == Said::Nothing {
                return Ok(Some(format!("an open takes longer than {PATIENCE:?}")));
            }
            series.writes_us()
        }
    };
    thread::sleep(Duration::from_micros(lasts_us));
    // `true`: no call fails because the process is killed, so any failure counts.
    series.end(life, true)
}
