//! A small bank on Isobath: a program as its users write it, which is killed again and again by
//! `isobath-sim`.
//!
//! It was written from the README, the guide and the documentation of public items alone. Several
//! threads (`staff.rs`, `tellers.rs`) write to several column families by atomic batches and by
//! transactions (`ledger.rs`), and put streams (`letters.rs`). The bank checks at each
//! start and while it works that the families agree (`audit.rs`), and decides what is in doubt
//! (`doubt.rs`). It also checks that acknowledged commits are there; it records them in a file that
//! no power cut reaches (`notes.rs`). The driver starts it with the notes as standard input and
//! reads the lines that it prints:
//!
//! ```text
//! ready             what was found is right, work begins
//! wrong: WHAT       what was found is not right
//! failed: WHAT      a call failed that should not have
//! closed            what was found is right, before and after closing
//! ```
//!
//! Its engine is the one that ships: the simulator's hooks are in another package,
//! `isobath-simulated`. With `--built-from` it prints the hash of that engine's sources instead.

mod audit;
mod doubt;
mod ledger;
mod letters;
mod notes;
mod random;
mod staff;
mod tellers;

use audit::After;
use isobath::{Batch, Commit, Db, Error, ErrorKind, Family, IoMode, Options, Xid};
use ledger::Bank;
use notes::Notes;
use random::Random;
use staff::{Mistake, Work};
use std::io::{self, Write as _};
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

/// A call that takes longer hangs.
const HANGS_AFTER: Duration = Duration::from_secs(120);
/// Openings of a life at most.
const SESSIONS_MAX: u64 = 32;

/// Why the work cannot continue.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The engine returned something wrong.
    Wrong(String),
    /// A call of the engine or the system failed.
    Failed(String),
    /// Others were in the way, or there was no room for the moment: the call may be made again. A
    /// transfer in doubt that was in the way is named.
    InTheWay { what: String, xid: Option<Xid> },
}

impl Trouble {
    pub(crate) fn wrong(what: impl Into<String>) -> Trouble {
        Trouble::Wrong(what.into())
    }

    /// The same, saying where.
    fn at(self, place: &str) -> Trouble {
        match self {
            Trouble::Wrong(what) => Trouble::Wrong(format!("{place}: {what}")),
            failed => failed,
        }
    }

    /// Tells the driver.
    pub(crate) fn tell(&self, notes: &Notes) {
        match self {
            Trouble::Wrong(what) => say(&format!("wrong: {what}")),
            Trouble::Failed(what) | Trouble::InTheWay { what, .. } => {
                // Note the failure before telling it: the driver reads the notes before it cuts the
                // power.
                let noted = notes.fail();
                say(&format!("failed: {what} {noted:?}"));
            }
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        let what = error.to_string();
        match error.kind() {
            ErrorKind::LockTimeout { xid, .. } => Trouble::InTheWay { what, xid: xid.clone() },
            _ if error.is_conflict() || error.is_retryable() => {
                Trouble::InTheWay { what, xid: None }
            }
            _ => Trouble::Failed(what),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Wrong(format!("the notes: {error}"))
    }
}

fn say(line: &str) {
    // If the driver has closed the pipe, nothing reads the line, so its loss does not matter.
    let _ = io::stdout().lock().write_all(format!("{}\n", line.replace('\n', " ")).as_bytes());
}

/// What the driver wants.
struct Life {
    dir: PathBuf,
    seed: u64,
    after: After,
    mistake: Mistake,
    only_check: bool,
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("--built-from") {
        return say(env!("ISOBATH_ENGINE"));
    }
    let life = match Life::from_arguments() {
        Ok(life) => life,
        Err(what) => {
            eprintln!(
                "error: {what}\nusage: isobath-bank --dir=DIR --seed=N --after=process|power [--only-check] \
                 [--mistake=two-batches|acknowledged-early|sync-forgotten|reads-by-db|prepared-early] <>NOTES"
            );
            process::exit(2);
        }
    };
    end_with_the_driver();
    match Notes::inherited() {
        Ok(notes) => {
            if let Err(trouble) = life.live(&notes) {
                trouble.tell(&notes);
            }
        }
        Err(error) => say(&format!("wrong: there are no notes: {error}")),
    }
}

/// Ends the process if the driver ends, or if a call hangs.
fn end_with_the_driver() {
    let driver = parent_id();
    thread::spawn(move || {
        for _ in 0..HANGS_AFTER.as_secs() {
            thread::sleep(Duration::from_secs(1));
            if parent_id() != driver {
                process::exit(3);
            }
        }
        say(&format!("wrong: nothing came to an end in {HANGS_AFTER:?}"));
        process::exit(3);
    });
}

impl Life {
    fn from_arguments() -> Result<Life, String> {
        let (mut dir, mut seed, mut after) = (None, None, None);
        let (mut mistake, mut only_check) = (Mistake::None, false);
        for argument in std::env::args().skip(1) {
            match argument.split_once('=').unwrap_or((&argument, "")) {
                ("--dir", path) => dir = Some(PathBuf::from(path)),
                ("--seed", number) => seed = number.parse().ok(),
                ("--after", "process") => after = Some(After::Process),
                ("--after", "power") => after = Some(After::Power),
                ("--mistake", "two-batches") => mistake = Mistake::TwoBatches,
                ("--mistake", "acknowledged-early") => mistake = Mistake::AcknowledgedEarly,
                ("--mistake", "sync-forgotten") => mistake = Mistake::SyncForgotten,
                ("--mistake", "reads-by-db") => mistake = Mistake::ReadsByDb,
                ("--mistake", "prepared-early") => mistake = Mistake::PreparedEarly,
                ("--only-check", "") => only_check = true,
                _ => return Err(format!("{argument} is not understood")),
            }
        }
        let dir = dir.ok_or("--dir is missing")?;
        let seed = seed.ok_or("--seed is missing, or no number")?;
        let after = after.ok_or("--after is missing")?;
        Ok(Life { dir, seed, after, mistake, only_check })
    }

    /// Opens, checks, works and closes until killed.
    fn live(&self, notes: &Notes) -> Result<(), Trouble> {
        let lives = notes.read()?.lives;
        let mut rng = Random::new(self.seed, lives << 32);
        let db = options(&mut rng).open(&self.dir)?;
        let found =
            audit::reopened(&db, notes, self.after).map_err(|why| why.at("at the start"))?;
        if self.only_check {
            db.close()?;
            let db = options(&mut rng).open(&self.dir)?;
            audit::reopened(&db, notes, self.after)?;
            drop(db);
            say("closed");
            return Ok(());
        }
        let mut bank = Bank::of(db)?;
        if notes.is_power_on()? {
            notes.found()?;
        }
        notes.begin_life(&found.unwrap_or_default())?;
        doubt::settle(&bank, notes, &mut rng)?;
        say("ready");
        for session in 0..SESSIONS_MAX {
            let seed = random::mix(self.seed ^ lives << 20) ^ session;
            let is_over = AtomicBool::new(false);
            let work = Work { bank: &bank, notes, seed, mistake: self.mistake, is_over };
            let lasts = Duration::from_micros(1000 + rng.below(30_000));
            let commits = work.go_on(lasts)?;
            if !notes.is_power_on()? {
                break;
            }
            bank = self.reopen(bank, notes, &commits, &mut rng)?;
        }
        // Wait to be killed without closing: a close would write what a death does not.
        loop {
            thread::park();
        }
    }

    /// Closes the database and opens it again with other options, and checks that nothing is
    /// missing.
    fn reopen(
        &self,
        bank: Bank,
        notes: &Notes,
        commits: &[Option<Commit>],
        rng: &mut Random,
    ) -> Result<Bank, Trouble> {
        let mut old = None;
        if rng.once_in(2) {
            bank.db.clone().close()?;
            for part in [bank.db.get("day"), bank.accounts.get("key")] {
                if !part.as_ref().is_err_and(Error::is_closed) {
                    return Err(Trouble::wrong("a handle of a closed database is served"));
                }
            }
            old = Some(bank.accounts.clone());
        }
        // If it was not closed above, the last handle closes it here.
        drop(bank);
        let db = options(rng).open(&self.dir)?;
        // The notes may lack a commit that was acknowledged after the power cut, so nothing is
        // checked then.
        if notes.is_power_on()? {
            let checked = audit::reopened(&db, notes, After::Close);
            checked.map_err(|why| why.at("after closing and opening again"))?;
            old.iter().try_for_each(|old| expect_refusal(&db, old))?;
        }
        for commit in commits.iter().flatten() {
            db.sync_to(*commit)?;
        }
        let bank = Bank::of(db)?;
        if notes.is_power_on()? {
            doubt::settle(&bank, notes, rng)?;
        }
        Ok(bank)
    }
}

/// A handle of an earlier opening is refused, by reads and by writes.
fn expect_refusal(db: &Db, old: &Family) -> Result<(), Trouble> {
    let (snapshot, mut batch) = (db.snapshot(), Batch::new());
    batch.of(old).put("key", "value");
    let answers = [
        snapshot.of(old).get("key").map(drop),
        snapshot.of(old).prefix("key").next().transpose().map(drop),
        db.write(batch).map(drop),
        db.drop_family(old),
    ];
    match answers
        .iter()
        .all(|answer| matches!(answer.as_ref().map_err(Error::name), Err("INVALID_ARGUMENT")))
    {
        true => Ok(()),
        false => Err(Trouble::wrong(format!("a handle of an earlier opening: {answers:?}"))),
    }
}

/// Options, different for each opening.
fn options(rng: &mut Random) -> Options {
    let mut options = Options::new()
        .write_buffer(64 << rng.below(6) << 10)
        .block_cache(rng.choice(&[0, 64 << 10, 4 << 20]))
        .compaction_threads(1 + rng.below(2) as usize)
        .lock_timeout(Duration::from_millis(1 + rng.below(20)));
    if rng.once_in(2) {
        // Tables are not mapped: an error of the device would end the program instead of the call.
        options = options.io(rng.choice(&[IoMode::Auto, IoMode::Positional]));
    }
    if rng.once_in(3) {
        options = options.sync_interval(Some(Duration::from_millis(1 + rng.below(10))));
    }
    if rng.once_in(3) {
        options = options.max_open_files(8 + rng.below(64) as usize);
    }
    options
}
