//! The tellers: each makes one transfer after the other, by a batch, by a transaction that is run
//! again after a conflict, by one that locks, or in two phases.

use crate::Trouble;
use crate::doubt::{self, Step};
use crate::ledger::{
    ACCOUNTS, Day, Transfer, decode, entry_key, of_entry_key, statement_key, transfer_name,
};
use crate::letters::{Letter, letter_len};
use crate::notes::TRANSFERS_MAX;
use crate::random::Random;
use crate::staff::{Mistake, Work};
use isobath::{
    Batch, Commit, Durability, ErrorKind, Family, Prepared, Result as Answer, Streamed,
    Transaction, TransactionOptions, Value, WriteOptions, Xid,
};
use std::io::copy;
use std::sync::{MutexGuard, PoisonError, RwLockReadGuard, RwLockWriteGuard, atomic::Ordering};
use std::thread;
use std::time::Duration;

/// How a transfer is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Batch,
    /// A transaction whose commit finds out whether others have changed what it read.
    Transaction,
    /// One that locks what it reads and writes.
    Locking,
    TwoPhases,
}

/// What became of a transfer.
enum Made {
    Committed(Commit),
    /// Nothing of it is there: it was rolled back, or one in doubt is in its way.
    Not,
    /// It is prepared, and is left to the next opening.
    InDoubt,
    /// The power went off.
    Dark,
}

/// What a teller has at hand.
struct Desk {
    teller: usize,
    batch: Batch,
    rng: Random,
    /// Transfers whose letters are there.
    letters: Vec<u64>,
}

/// A transfer to make.
struct Deal<'a> {
    teller: usize,
    number: u64,
    transfer: Transfer,
    day: &'a Day,
    /// Letters that go with it.
    old_letters: Vec<u64>,
    /// True if its letter is put before it, by itself.
    has_letter: bool,
}

/// An entry to put.
type Entry<'a> = (&'a Family, Vec<u8>, Vec<u8>);

/// The locks of two accounts: a batch has them alone.
enum Locks<'a> {
    Alone { _both: [RwLockWriteGuard<'a, ()>; 2] },
    Shared { _both: [RwLockReadGuard<'a, ()>; 2] },
}

impl Work<'_> {
    /// Makes transfers until the work is over. Returns a commit.
    pub(crate) fn transfer(&self, teller: usize) -> Result<Option<Commit>, Trouble> {
        let bank = self.bank;
        let numbers = |family: &Family| -> Result<Vec<u64>, Trouble> {
            let keys = family.prefix([teller as u8]).keys();
            keys.map(|key| Ok(of_entry_key(&key?)?.1)).collect()
        };
        let mut count = numbers(&bank.entries)?.last().copied().unwrap_or(0);
        let letters = numbers(&bank.letters)?;
        let rng = Random::new(self.seed, teller as u64);
        let mut desk = Desk { teller, batch: Batch::new(), rng, letters };
        let mut last = None;
        while self.goes_on()? && count < TRANSFERS_MAX {
            let commit = match self.transfer_one(count + 1, &mut desk)? {
                Made::Committed(commit) => commit,
                Made::Not => continue,
                Made::InDoubt | Made::Dark => break,
            };
            count += 1;
            last = Some(commit);
            let rng = &mut desk.rng;
            if rng.once_in(6) {
                bank.db.sync_to(commit)?;
                if !self.notes.is_power_on()? {
                    break;
                }
                self.notes.synced(teller, count)?;
            }
            if rng.once_in(4) {
                thread::sleep(Duration::from_micros(rng.below(300)));
            }
        }
        Ok(last)
    }

    fn transfer_one(&self, number: u64, desk: &mut Desk) -> Result<Made, Trouble> {
        let rng = &mut desk.rng;
        let way = match self.mistake {
            Mistake::None => {
                let ways = [Way::Batch, Way::Transaction, Way::TwoPhases];
                if rng.once_in(8) { Way::Locking } else { rng.choice(&ways) }
            }
            Mistake::ReadsByDb => rng.choice(&[Way::Transaction, Way::Locking]),
            Mistake::PreparedEarly => Way::TwoPhases,
            _ => Way::Batch,
        };
        let from = rng.below(ACCOUNTS);
        let to = (from + 1 + rng.below(ACCOUNTS - 1)) % ACCOUNTS;
        let _accounts = self.lock_both(from, to, way);
        let day = self.today();
        let amount = 1 + rng.below(99) as i64;
        let memo_len = if rng.once_in(20) { rng.below(6000) } else { rng.below(120) };
        // A transaction that puts a stream is never prepared.
        let is_told = way != Way::TwoPhases && rng.once_in(40);
        let letter_len = if is_told { letter_len(rng.below(1 << 32)) } else { 0 };
        let transfer = Transfer { from, to, amount, day: day.number, memo_len, letter_len };
        let goes = |letter: &u64| (*letter == number) != is_told;
        let old_letters = desk.letters.iter().copied().filter(goes).collect();
        let teller = desk.teller;
        let mut deal = Deal { teller, number, transfer, day: &day, old_letters, has_letter: false };
        if is_told && rng.once_in(3) {
            let letter = Letter::of(teller, number, letter_len);
            self.bank.letters.put_reader(entry_key(teller, number), letter)?;
            desk.letters.push(number);
            deal.has_letter = true;
        }
        if way != Way::TwoPhases {
            self.notes.set_phase(teller, Step::None, number)?;
        }
        let before = self.notes.phases()?;
        let made = match way {
            Way::Batch => self.by_batch(&deal, desk),
            Way::Transaction | Way::Locking => self.by_transaction(&deal, way, &mut desk.rng),
            Way::TwoPhases => self.in_two_phases(&deal, &mut desk.rng),
        };
        let made = match made {
            // A transfer in doubt has locked one of the accounts.
            Err(Trouble::InTheWay { xid: Some(xid), .. }) => {
                doubt::expect_holder(self.notes, &before, &xid)?;
                self.notes.set_phase(teller, Step::None, number)?;
                return Ok(Made::Not);
            }
            other => other?,
        };
        if let Made::Committed(_) = made {
            desk.letters.retain(|letter| !deal.old_letters.contains(letter));
            if is_told && !deal.has_letter {
                desk.letters.push(number);
            }
        }
        Ok(made)
    }

    fn by_batch(&self, deal: &Deal<'_>, desk: &mut Desk) -> Result<Made, Trouble> {
        let Deal { teller, number, .. } = *deal;
        let Desk { batch, rng, .. } = desk;
        let options = durability(rng);
        let early = self.mistake == Mistake::AcknowledgedEarly;
        if early {
            self.notes.acknowledge(teller, number)?;
        }
        self.name_what_is_gone(batch, rng)?;
        batch.clear();
        let read = |family: &Family, keys: [[u8; 8]; 2]| family.multi_get(keys);
        for (family, key, value) in self.accounts_of(deal, read)? {
            batch.of(family).put(key, value);
        }
        if self.mistake == Mistake::TwoBatches {
            self.bank.db.with(options.fail_fast(false)).write(&mut *batch)?;
            batch.clear();
        }
        for (family, key, value) in self.entries_of(deal) {
            batch.of(family).put(key, value);
        }
        for letter in &deal.old_letters {
            batch.of(&self.bank.letters).delete(entry_key(teller, *letter));
        }
        if let Some(letter) = self.write_letter(deal)? {
            batch.of(&self.bank.letters).put_streamed(entry_key(teller, number), letter);
        }
        self.try_a_bad_key(batch, rng)?;
        let jobs = rng.once_in(4).then(|| self.lock_jobs(teller));
        let first = self.write(batch, options)?;
        let mut commit = first;
        if jobs.is_some() {
            // Write the same batch again, with an operation added. Its first part changes nothing.
            batch.put("last", entry_key(teller, number));
            commit = self.write(batch, options)?;
        }
        drop(jobs);
        if !self.notes.is_power_on()? {
            return Ok(Made::Dark);
        }
        // The transfer exists from its first commit on, even if the second is lost.
        self.notes.set_point(teller, number, first.into())?;
        if !early {
            self.notes.acknowledge(teller, number)?;
        }
        if options.durability == Some(Durability::Sync) || self.mistake == Mistake::SyncForgotten {
            self.notes.synced(teller, number)?;
        }
        self.notes.count(teller)?;
        Ok(Made::Committed(commit))
    }

    fn by_transaction(&self, deal: &Deal<'_>, way: Way, rng: &mut Random) -> Result<Made, Trouble> {
        let Deal { teller, number, .. } = *deal;
        let write = durability(rng);
        let options = TransactionOptions::new().write(write).locking(way == Way::Locking);
        let commit = loop {
            let ran = self.bank.db.with(options).try_transact(|tx| self.put_all(tx, deal));
            match ran {
                Ok(((), commit)) => break commit,
                Err(Trouble::InTheWay { xid: None, .. }) => {
                    thread::sleep(Duration::from_micros(rng.below(200)));
                }
                Err(other) => return Err(other),
            }
        };
        if !self.notes.is_power_on()? {
            return Ok(Made::Dark);
        }
        self.notes.set_point(teller, number, commit.into())?;
        self.notes.acknowledge(teller, number)?;
        if write.durability == Some(Durability::Sync) {
            self.notes.synced(teller, number)?;
        }
        self.notes.count(teller)?;
        Ok(Made::Committed(commit))
    }

    fn in_two_phases(&self, deal: &Deal<'_>, rng: &mut Random) -> Result<Made, Trouble> {
        let Deal { teller, number, .. } = *deal;
        let (db, notes, xid) = (&self.bank.db, self.notes, transfer_name(teller, number));
        let prepared = loop {
            let options = TransactionOptions::new().locking(rng.once_in(3));
            let tx = db.with(options).begin();
            let early = self.mistake == Mistake::PreparedEarly;
            let step = if early { Step::Prepared } else { Step::Preparing };
            notes.set_phase(teller, step, number)?;
            let ran = self.put_all(&tx, deal).and_then(|()| Ok(tx.prepare(xid.clone())?));
            match ran {
                Err(Trouble::InTheWay { xid: None, .. }) => {
                    thread::sleep(Duration::from_micros(rng.below(200)));
                }
                other => break other?,
            }
        };
        if !notes.is_power_on()? {
            return Ok(Made::Dark);
        }
        notes.set_phase(teller, Step::Prepared, number)?;
        // What survives is a prefix, so everything before the prepare does.
        notes.synced(teller, number - 1)?;
        if rng.once_in(3) {
            thread::sleep(Duration::from_micros(rng.below(500)));
        }
        match rng.below(16) {
            0 => {
                drop(prepared);
                self.is_over.store(true, Ordering::Relaxed);
                Ok(Made::InDoubt)
            }
            1..5 => self.roll_back(deal, prepared, &xid, rng),
            _ => self.commit(deal, prepared, &xid, rng),
        }
    }

    /// The second phase, by the handle or by the name.
    fn commit(
        &self,
        deal: &Deal<'_>,
        prepared: Prepared,
        xid: &Xid,
        rng: &mut Random,
    ) -> Result<Made, Trouble> {
        let (db, notes) = (&self.bank.db, self.notes);
        notes.set_phase(deal.teller, Step::Committing, deal.number)?;
        let commit = if rng.once_in(2) {
            prepared.commit()?
        } else {
            drop(prepared);
            let commit = db.commit_prepared(xid)?;
            doubt::expect_unknown(xid, db.rollback_prepared(xid))?;
            commit
        };
        if !notes.is_power_on()? {
            return Ok(Made::Dark);
        }
        doubt::note_commit(notes, deal.teller, deal.number, commit)?;
        Ok(Made::Committed(commit))
    }

    fn roll_back(
        &self,
        deal: &Deal<'_>,
        prepared: Prepared,
        xid: &Xid,
        rng: &mut Random,
    ) -> Result<Made, Trouble> {
        let (db, notes) = (&self.bank.db, self.notes);
        notes.set_phase(deal.teller, Step::RollingBack, deal.number)?;
        if rng.once_in(2) {
            prepared.rollback()?;
        } else {
            drop(prepared);
            db.rollback_prepared(xid)?;
            doubt::expect_unknown(xid, db.commit_prepared(xid))?;
        }
        if !notes.is_power_on()? {
            return Ok(Made::Dark);
        }
        notes.set_phase(deal.teller, Step::RolledBack, deal.number)?;
        Ok(Made::Not)
    }

    /// All of a transfer, in a transaction.
    fn put_all(&self, tx: &Transaction, deal: &Deal<'_>) -> Result<(), Trouble> {
        let read = |family: &Family, keys: [[u8; 8]; 2]| match self.mistake {
            Mistake::ReadsByDb => family.multi_get(keys),
            _ => tx.of(family).multi_get(keys),
        };
        let accounts = self.accounts_of(deal, read)?;
        for (family, key, value) in accounts.into_iter().chain(self.entries_of(deal)) {
            tx.of(family).put(key, value)?;
        }
        let letters = tx.of(&self.bank.letters);
        for letter in &deal.old_letters {
            letters.delete(entry_key(deal.teller, *letter))?;
        }
        if let Some(letter) = self.write_letter(deal)? {
            letters.put_streamed(entry_key(deal.teller, deal.number), letter)?;
        }
        Ok(())
    }

    /// Balances and turnovers, read and written on.
    fn accounts_of<'a>(
        &'a self,
        deal: &Deal<'a>,
        read: impl Fn(&Family, [[u8; 8]; 2]) -> Answer<Vec<Option<Value>>>,
    ) -> Result<Vec<Entry<'a>>, Trouble> {
        let Transfer { from, to, amount, .. } = deal.transfer;
        let (accounts, turnovers) = (&self.bank.accounts, &deal.day.family);
        let keys = [from.to_be_bytes(), to.to_be_bytes()];
        let balances = read(accounts, keys)?;
        let counts = read(turnovers, keys)?;
        let mut entries = Vec::new();
        for (index, change) in [-amount, amount].into_iter().enumerate() {
            let key = keys[index].to_vec();
            let balance =
                balances[index].as_ref().ok_or_else(|| Trouble::wrong("an account is gone"))?;
            let balance = decode(balance)? as i64 + change;
            entries.push((accounts, key.clone(), balance.to_be_bytes().to_vec()));
            let count = counts[index].as_ref().map_or(Ok(0), |count| decode(count))?;
            entries.push((turnovers, key, (count + 1).to_be_bytes().to_vec()));
        }
        Ok(entries)
    }

    fn entries_of<'a>(&'a self, deal: &Deal<'_>) -> Vec<Entry<'a>> {
        let Deal { teller, number, transfer, .. } = deal;
        let (bank, key) = (self.bank, entry_key(*teller, *number));
        let mut entries = vec![(&bank.entries, key.clone(), transfer.encode())];
        for (account, change) in [(transfer.from, -transfer.amount), (transfer.to, transfer.amount)]
        {
            let key = statement_key(account, *teller, *number);
            entries.push((&bank.statements, key, change.to_be_bytes().to_vec()));
        }
        entries.push((&bank.queue, key, Vec::new()));
        entries
    }

    /// The letter that is put together with a transfer, if there is one.
    fn write_letter(&self, deal: &Deal<'_>) -> Result<Option<Streamed>, Trouble> {
        let len = deal.transfer.letter_len;
        if len == 0 || deal.has_letter {
            return Ok(None);
        }
        let mut writer = self.bank.db.value_writer(&self.bank.letters)?;
        let copied = copy(&mut Letter::of(deal.teller, deal.number, len), &mut writer);
        copied.map_err(|error| Trouble::Failed(error.to_string()))?;
        Ok(Some(writer.finish()?))
    }

    /// Writes the same batch until it succeeds, if it fails in a way that may pass.
    fn write(&self, batch: &mut Batch, mut options: WriteOptions) -> Result<Commit, Trouble> {
        loop {
            match self.bank.db.with(options).write(&mut *batch) {
                Err(error) if error.is_retryable() => {
                    thread::sleep(Duration::from_micros(100));
                    options = options.fail_fast(false);
                }
                other => return Ok(other?),
            }
        }
    }

    /// A batch that names a dropped family is refused, and changes nothing.
    fn name_what_is_gone(&self, batch: &mut Batch, rng: &mut Random) -> Result<(), Trouble> {
        let dropped = self.bank.dropped.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(dropped) = dropped.filter(|_| rng.once_in(16)) else { return Ok(()) };
        batch.clear();
        batch.of(&self.bank.accounts).put("poor", "rich");
        batch.of(&dropped).put("key", "value");
        match self.bank.db.write(batch) {
            Err(error) if matches!(error.kind(), ErrorKind::UnknownFamily { .. }) => Ok(()),
            other => Err(Trouble::wrong(format!("a write to a dropped family: {other:?}"))),
        }
    }

    /// A batch with a key that is too long is refused, and changes nothing.
    fn try_a_bad_key(&self, batch: &Batch, rng: &mut Random) -> Result<(), Trouble> {
        if !rng.once_in(16) {
            return Ok(());
        }
        let mut batch = batch.clone();
        batch.of(&self.bank.accounts).put(vec![0; isobath::MAX_KEY_LEN + 1], "value");
        match self.bank.db.write(&mut batch) {
            Err(error) if matches!(error.kind(), ErrorKind::InvalidArgument { .. }) => Ok(()),
            other => Err(Trouble::wrong(format!("a bad key in a batch: {other:?}"))),
        }
    }

    fn lock_both(&self, from: u64, to: u64, way: Way) -> Locks<'_> {
        let both = [from.min(to), from.max(to)].map(|account| &self.bank.locks[account as usize]);
        match way {
            Way::Batch => Locks::Alone {
                _both: both.map(|lock| lock.write().unwrap_or_else(PoisonError::into_inner)),
            },
            _ => Locks::Shared {
                _both: both.map(|lock| lock.read().unwrap_or_else(PoisonError::into_inner)),
            },
        }
    }

    pub(crate) fn lock_jobs(&self, teller: usize) -> MutexGuard<'_, ()> {
        self.bank.jobs[teller].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn today(&self) -> RwLockReadGuard<'_, Day> {
        self.bank.day.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn durability(rng: &mut Random) -> WriteOptions {
    match rng.below(5) {
        0 => WriteOptions::sync(),
        1 => WriteOptions::default().durability(Durability::Process).fail_fast(true),
        _ => WriteOptions::default().durability(Durability::Process),
    }
}
