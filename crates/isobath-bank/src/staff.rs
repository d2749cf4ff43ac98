//! The threads of the bank: tellers, a messenger, an auditor and a janitor, until the bank closes
//! or dies. What tellers do is in `tellers.rs`.
//!
//! They use the engine as people do: batches are reused, extended and written twice, retried after
//! errors, and sometimes name a key or a family that they may not; transactions are run again.

use crate::Trouble;
use crate::audit;
use crate::ledger::{
    ACCOUNTS, ARCHIVE, Bank, Day, TELLERS, day_name, done_key, number, of_entry_key,
};
use crate::notes::{Counts, DAYS, Notes};
use crate::random::Random;
use isobath::{Batch, Commit, Error, ErrorKind, WriteOptions};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Jobs that the messenger does in one commit at most.
pub(crate) const JOBS_MAX: u64 = 8;
const MESSENGER: usize = TELLERS;
const JANITOR: usize = TELLERS + 1;

/// A bug of this program's own, for the driver to catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    None,
    /// A transfer is written as two commits.
    TwoBatches,
    /// A transfer is noted as acknowledged before it is written.
    AcknowledgedEarly,
    /// A transfer that was not synced is noted as if it were.
    SyncForgotten,
    /// A transaction reads balances outside of itself, so that others may change them unnoticed.
    ReadsByDb,
    /// A transfer is noted as prepared before it is.
    PreparedEarly,
}

/// A bank at work.
pub(crate) struct Work<'a> {
    pub(crate) bank: &'a Bank,
    pub(crate) notes: &'a Notes,
    pub(crate) seed: u64,
    pub(crate) mistake: Mistake,
    pub(crate) is_over: AtomicBool,
}

/// `Ok(false)` once the power is off: then nothing that is answered counts any more.
pub(crate) type Goes = Result<bool, Trouble>;

impl Work<'_> {
    /// Works for a while, or until there is trouble. Returns a commit of each teller's.
    pub(crate) fn go_on(&self, lasts: Duration) -> Result<Vec<Option<Commit>>, Trouble> {
        thread::scope(|scope| {
            let tellers: Vec<_> = (0..TELLERS)
                .map(|teller| scope.spawn(move || self.guard(self.transfer(teller))))
                .collect();
            let others = [
                scope.spawn(|| self.guard(self.bring_messages())),
                scope.spawn(|| self.guard(self.audit())),
                scope.spawn(|| self.guard(self.keep_house())),
            ];
            thread::sleep(lasts);
            self.is_over.store(true, Relaxed);
            let commits =
                tellers.into_iter().map(|teller| teller.join().expect("no panic")).collect();
            for other in others {
                other.join().expect("no panic")?;
            }
            commits
        })
    }

    /// A thread that fails ends the work of all threads.
    fn guard<T>(&self, outcome: Result<T, Trouble>) -> Result<T, Trouble> {
        if let Err(trouble) = &outcome {
            self.is_over.store(true, Relaxed);
            trouble.tell(self.notes);
        }
        outcome
    }

    pub(crate) fn goes_on(&self) -> Goes {
        Ok(!self.is_over.load(Relaxed) && self.notes.is_power_on()?)
    }

    /// Takes jobs off the queue: of a teller, the oldest first.
    fn bring_messages(&self) -> Result<(), Trouble> {
        let mut rng = Random::new(self.seed, MESSENGER as u64);
        let (bank, db) = (self.bank, &self.bank.db);
        while self.goes_on()? {
            let teller = rng.below(TELLERS as u64) as usize;
            let jobs_lock = self.lock_jobs(teller);
            let done = number(db, &done_key(teller))?;
            let mut batch = Batch::new();
            let mut now = done;
            let jobs = bank.queue.prefix([teller as u8]);
            for job in jobs.take(rng.below(JOBS_MAX + 1) as usize) {
                let (key, _) = job?;
                now += 1;
                if of_entry_key(&key)? != (teller, now) || !bank.entries.contains(&key)? {
                    return Err(Trouble::wrong(format!(
                        "a job {key:?} after {} of {teller}",
                        now - 1
                    )));
                }
                batch.of(&bank.queue).delete(key);
            }
            if now == done {
                drop(jobs_lock);
                thread::sleep(Duration::from_micros(rng.below(400)));
                continue;
            }
            batch.put(done_key(teller), now.to_be_bytes());
            let is_synced = rng.once_in(6);
            let options = if is_synced { WriteOptions::sync() } else { WriteOptions::default() };
            db.with(options).write(batch)?;
            if !self.notes.is_power_on()? {
                break;
            }
            self.notes.acknowledge(TELLERS + teller, now)?;
            if is_synced {
                self.notes.synced(TELLERS + teller, now)?;
            }
            self.notes.count(MESSENGER)?;
        }
        Ok(())
    }

    /// Audits one moment after the other while the others work.
    fn audit(&self) -> Result<(), Trouble> {
        let mut rng = Random::new(self.seed, 100);
        // With a planted mistake no audit runs here: the checks after a death must find the
        // mistake.
        while self.mistake == Mistake::None && self.goes_on()? {
            let before = self.notes.acknowledged()?;
            let today = self.today();
            if !self.goes_on()? {
                break;
            }
            let is_durable = rng.once_in(3);
            let moment = self.bank.db.snapshot();
            if is_durable {
                self.bank.db.sync_to(moment.read_point())?;
            }
            let day = today.family.clone();
            drop(today);
            let (found, _) = audit::books(&self.bank.db, &moment, &day)?;
            if let Some(line) = (0..found.len()).find(|line| found[*line] < before[*line]) {
                let tell = format!(
                    "a snapshot lacks what was acknowledged: line {line}, {found:?}, {before:?}"
                );
                return Err(Trouble::wrong(tell));
            }
            if is_durable {
                self.note_synced(found)?;
            }
            thread::sleep(Duration::from_micros(rng.below(2000)));
        }
        Ok(())
    }

    /// Flushes, compacts, syncs, and has days begin and end.
    fn keep_house(&self) -> Result<(), Trouble> {
        let mut rng = Random::new(self.seed, 101);
        let (bank, db) = (self.bank, &self.bank.db);
        while self.goes_on()? {
            thread::sleep(Duration::from_micros(rng.below(4000)));
            match rng.below(12) {
                0..3 => db.flush()?,
                3 => db.compact()?,
                4 => bank.queue.compact(..)?,
                5 => {
                    let half = (ACCOUNTS / 2).to_be_bytes();
                    bank.statements.compact(&half[..]..)?;
                }
                6..8 => {
                    let before = self.notes.acknowledged()?;
                    db.sync()?;
                    self.note_synced(before)?;
                }
                _ => {
                    if !self.begin_day(&mut rng)? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Notes that all of this survives power loss, if that was answered before a cut.
    fn note_synced(&self, counts: Counts) -> Result<(), Trouble> {
        if self.notes.is_power_on()? {
            for (line, count) in counts.into_iter().enumerate() {
                self.notes.synced(line, count)?;
            }
        }
        Ok(())
    }

    /// Begins the next day: with a family that is there before, and yesterday's put away
    /// afterwards.
    fn begin_day(&self, rng: &mut Random) -> Goes {
        let db = &self.bank.db;
        if !self.drop_archive()? {
            return Ok(true);
        }
        let yesterday = self.today().clone();
        let number = yesterday.number + 1;
        let before = self.notes.acknowledged()?;
        let family = match db.family_if_exists(&day_name(number))? {
            // An earlier process created the family and then died.
            Some(family) => family,
            None => {
                let family = db.family(day_name(number))?;
                // A family that was created survives power loss, and so does every commit before
                // it.
                self.note_synced(before)?;
                family
            }
        };
        let is_synced = rng.once_in(3);
        {
            let mut today = self.bank.day.write().unwrap_or_else(PoisonError::into_inner);
            let options = if is_synced { WriteOptions::sync() } else { WriteOptions::default() };
            if let Err(error) = db.with(options).put("day", number.to_be_bytes()) {
                // The outcome may be unknown. Readers may then see the new day, which must not be
                // taken for the old one, so the work ends.
                self.is_over.store(true, Relaxed);
                return Err(error.into());
            }
            *today = Day { number, family };
            if !self.notes.is_power_on()? {
                return Ok(false);
            }
            self.notes.acknowledge(DAYS, number)?;
        }
        if is_synced {
            self.notes.synced(DAYS, number)?;
        }
        self.notes.count(JANITOR)?;
        db.rename_family(&yesterday.family, ARCHIVE)?;
        Ok(true)
    }

    /// Removes what was put away, or what a life before did not come to put away. A snapshot from
    /// before still sees it. False if a transfer in doubt still needs it.
    fn drop_archive(&self) -> Goes {
        let db = &self.bank.db;
        let yesterday = self.today().number.checked_sub(1).map(day_name);
        for name in [Some(ARCHIVE.to_owned()), yesterday].into_iter().flatten() {
            let Some(family) = db.family_if_exists(&name)? else { continue };
            let moment = db.snapshot();
            let count = moment.of(&family).range(..).count();
            match db.drop_family(&family) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::InvalidArgument { .. })
                        && !db.in_doubt().is_empty() =>
                {
                    return Ok(false);
                }
                other => other?,
            }
            let seen = moment.of(&family).range(..).filter(Result::is_ok).count();
            if seen != count
                || !matches!(family.get("key").as_ref().map_err(Error::name), Err("UNKNOWN_FAMILY"))
            {
                return Err(Trouble::wrong(format!(
                    "{name}: {count} keys, {seen} after it was dropped"
                )));
            }
            *self.bank.dropped.lock().unwrap_or_else(PoisonError::into_inner) = Some(family);
        }
        Ok(true)
    }
}
