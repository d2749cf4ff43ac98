//! A file system without room: a database on a small tmpfs that is filled up beside it, and emptied
//! again.
//!
//! While there is no room, every call either waits or fails with an error that says so and may be
//! retried; nothing acknowledged is lost, whether the process lives on or is killed and opened
//! again, with room or without; and as soon as there is room, all writers and flushes go on.

use super::calls;
use super::campaign::{Campaign, Outcome, PATIENCE, Series, Verdict};
use super::check::Death;
use super::life::{Life, Said};
use super::notes::{COMMITS_MAX, Counts};
use super::sandbox::Sandbox;
use super::writer::{Trouble, Writer};
use isobath::env::planted::Plant;
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const LEN: u64 = 24 << 20;
const PAGE_LEN: u64 = 4096;
/// Room that is left when the file system counts as full.
const LEFT_PAGES_MAX: u64 = 64;
/// How long writers may take to notice that there is no room. Some never do, because they have all
/// the room that they need.
const NOTICED_WITHIN: Duration = Duration::from_millis(150);
/// How long they may take to go on.
const GOES_ON_WITHIN: Duration = Duration::from_secs(100);
const LOOKS_EVERY: Duration = Duration::from_millis(1);

/// What takes the room.
pub(super) struct Ballast(File);

impl Ballast {
    pub(super) fn create(path: &Path) -> io::Result<Ballast> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        Ok(Ballast(file))
    }

    /// Takes all free room but `left` bytes.
    pub(super) fn fill(&self, left: u64) -> io::Result<()> {
        let mut len = self.0.metadata()?.len();
        let mut piece = 1 << 20;
        while piece >= PAGE_LEN {
            match calls::take_room(&self.0, len, piece) {
                Ok(()) => len += piece,
                Err(error) if error.kind() == io::ErrorKind::StorageFull => piece /= 2,
                Err(error) => return Err(error),
            }
        }
        self.0.set_len(len.saturating_sub(left))
    }

    pub(super) fn drop_all(&self) -> io::Result<()> {
        self.0.set_len(0)
    }
}

/// A small file system, or an error that says what this machine lacks for one.
pub(crate) fn prepare() -> Result<PathBuf, String> {
    let sandbox = Sandbox::enter(LEN)?;
    sandbox.tmpfs("small", LEN).map_err(|error| format!("this needs a tmpfs ({error})"))
}

/// Fills and empties the file system under one database after the other.
pub(crate) fn run(
    small: &Path,
    rounds: u64,
    seed: u64,
    plant: Option<Plant>,
) -> Result<Outcome, Box<dyn Error>> {
    let ballast = Ballast::create(&small.join("ballast"))?;
    let (dir, after, trouble) = (small.join("db"), Death::Process, Trouble::NoRoom);
    let writer = Writer::new(dir, seed, after, trouble, plant);
    let campaign = Campaign { unit: "rounds", deaths: rounds, lives_max: 8, writer };
    campaign.run(&mut |series| fill_and_empty(&ballast, series))
}

/// One round: the file system fills up under a writing database, which lives on or is killed; then
/// there is room again.
fn fill_and_empty(ballast: &Ballast, series: &mut Series<'_>) -> Verdict {
    let mut life = match series.begin_writing()? {
        Ok(life) => life,
        Err(wrong) => return Ok(Some(wrong)),
    };
    thread::sleep(Duration::from_micros(series.rng.u64(..8000)));
    ballast.fill(series.rng.u64(..LEFT_PAGES_MAX) * PAGE_LEN)?;
    let enough = series.rng.u64(1..30);
    wait_until(NOTICED_WITHIN, || Ok(series.notes.expected_failures_noted()? >= enough))?;
    if series.rng.bool() {
        if let Some(wrong) = series.end(life, true)? {
            return Ok(Some(wrong));
        }
        life = match reopen(ballast, series)? {
            Ok(life) => life,
            Err(wrong) => return Ok(Some(wrong)),
        };
    }
    ballast.drop_all()?;
    let stuck = what_stands_still(ballast, series)?;
    let wrong = series.end(life, true)?;
    Ok(wrong.or(stuck))
}

/// Opens without room. If that fails, which it may only for lack of room, opens with room.
fn reopen(
    ballast: &Ballast,
    series: &mut Series<'_>,
) -> Result<Result<Life, String>, Box<dyn Error>> {
    let mut life = series.begin()?;
    match life.listen(PATIENCE)? {
        Said::Ready => Ok(Ok(life)),
        Said::NoRoom => {
            series.errors += 1;
            drop(life.kill()?);
            ballast.drop_all()?;
            series.begin_writing()
        }
        said => Ok(Err(format!("an open without room: {said:?}, {:?}", life.kill()?))),
    }
}

/// `None` once every writer has committed more and more was flushed. Otherwise says what did not go
/// on.
fn what_stands_still(ballast: &Ballast, series: &Series<'_>) -> io::Result<Option<String>> {
    let writers = series.writer.engine.plan(series.writer.seed).writers;
    let counts = || -> io::Result<Counts> {
        let record = series.notes.read()?;
        Ok(std::array::from_fn(|writer| record.last_acknowledged(writer)))
    };
    let failures = || series.notes.expected_failures_noted();
    let (before, flushes, failed) = (counts()?, series.notes.flushes_noted()?, failures()?);
    let all_go_on = wait_until(GOES_ON_WITHIN, || {
        let now = counts()?;
        let moved = |writer: usize| now[writer] > before[writer] || now[writer] == COMMITS_MAX;
        Ok((0..writers).all(moved) && series.notes.flushes_noted()? > flushes)
    })?;
    if all_go_on {
        return Ok(None);
    }
    let (now, flushed, failed) =
        (counts()?, series.notes.flushes_noted()? - flushes, failures()? - failed);
    let free = calls::free_bytes(&ballast.0)?;
    Ok(Some(format!(
        "there is room again, but not all goes on within {GOES_ON_WITHIN:?}: commits of each writer {before:?} and then \
         {now:?}, {flushed} flushes, {failed} failures, {free} bytes are free; {}",
        files_of(&series.writer.dir)
    )))
}

/// The files of a database with their lengths, as far as they can be listed.
fn files_of(dir: &Path) -> String {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    let (dirs, files): (Vec<_>, Vec<_>) = entries(dir).partition(|entry| entry.path().is_dir());
    let mut files: Vec<_> = dirs
        .iter()
        .flat_map(|entry| entries(&entry.path()))
        .chain(files)
        .filter_map(|entry| {
            let path = entry.path();
            let name = path.strip_prefix(dir).unwrap_or(&path).display().to_string();
            Some((name, entry.metadata().ok()?.len()))
        })
        .collect();
    files.sort();
    let lines: Vec<_> = files.iter().map(|(name, len)| format!("{name} {len}")).collect();
    lines.join(", ")
}

/// False if the condition did not become true within the time.
fn wait_until(limit: Duration, is_true: impl Fn() -> io::Result<bool>) -> io::Result<bool> {
    let until = Instant::now() + limit;
    loop {
        if is_true()? {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        thread::sleep(LOOKS_EVERY);
    }
}
