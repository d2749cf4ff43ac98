//! Power cuts: the file system of a writing database is cut off its device again and again.
//!
//! 1. a writer is started: it opens what the cut before left, checks it, and writes
//! 2. after a while, or while it still opens, things are written back out of order (`disturb.rs`)
//! 3. the file system is shut down without flushing its log: what it had not written is gone
//! 4. the writer is killed, the file system mounted anew

use super::campaign::{Campaign, Outcome, PATIENCE, Series, Verdict};
use super::check::Death;
use super::disturb::{Bystander, disturb};
use super::life::Said;
use super::outside::Outside;
use super::sandbox::{Disk, Sandbox};
use super::store::Engine;
use super::writer::{Trouble, Writer};
use isobath::env::planted::Plant;
use std::error::Error;
use std::thread;
use std::time::Duration;

/// Room for the database and for what an engine sets aside in advance.
const DISK_LEN: u64 = 192 << 20;
/// The longest that one opens before a cut that does not wait for it.
const OPENS_US_MAX: u64 = 6_000;
const DISTURBANCES_MAX: u64 = 6;

/// A disk to cut, or an error that says what this machine lacks for one.
pub(crate) fn prepare() -> Result<Disk, String> {
    let sandbox = Sandbox::enter(DISK_LEN * 2)?;
    Disk::create(&sandbox.path("disk"), sandbox.path("mounted"), DISK_LEN)
}

/// What writes to the disk.
pub(crate) fn writer(
    disk: &Disk,
    seed: u64,
    engine: Engine,
    plant: Option<Plant>,
    outside: Outside,
) -> Writer {
    let inside = Writer::new(disk.at().join("db"), seed, Death::Power, Trouble::None, plant);
    Writer { engine, outside, ..inside }
}

/// Cuts the power of one database after the other; if `spares_creation`, never before one has been
/// created.
pub(crate) fn run(
    disk: &Disk,
    cuts: u64,
    writer: Writer,
    spares_creation: bool,
) -> Result<Outcome, Box<dyn Error>> {
    let campaign = Campaign { unit: "cuts", deaths: cuts, lives_max: 16, writer };
    campaign.run(&mut |series| cut(disk, series, spares_creation))
}

/// One life and its end.
fn cut(disk: &Disk, series: &mut Series<'_>, spares_creation: bool) -> Verdict {
    let bystander = Bystander::create(disk.at())?;
    let is_spared = spares_creation && !series.notes.has_begun()?;
    let mut life = series.begin()?;
    let lasts_us = match series.rng.u32(..4) {
        0 if !is_spared => series.rng.u64(..OPENS_US_MAX),
        _ => {
            if life.listen(PATIENCE)? == Said::Nothing {
                return Ok(Some(format!("an open takes longer than {PATIENCE:?}")));
            }
            series.writes_us()
        }
    };
    let disturbances = series.rng.u64(..DISTURBANCES_MAX);
    let pause = Duration::from_micros(lasts_us / (disturbances + 1));
    for _ in 0..disturbances {
        thread::sleep(pause);
        disturb(&series.writer.dir, &bystander, series.rng)?;
    }
    // In half of the rounds the power fails right after the last disturbance: a writer that goes on
    // syncing would write the pages that the disturbance has left out.
    if series.rng.bool() {
        thread::sleep(pause);
    }
    let has_failed = series.notes.has_failed()?;
    series.notes.power_off()?;
    disk.cut()?;
    let wrong = series.end(life, has_failed)?;
    drop(bystander);
    disk.unmount()?;
    disk.mount()?;
    Ok(wrong)
}
