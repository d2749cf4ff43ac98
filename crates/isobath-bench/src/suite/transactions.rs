//! Rows of transactions: counters in values are read and written back one higher, by many threads
//! and often the same ones. The sum of all counters at the end tells whether an update was lost,
//! and a reader that stays in one transaction all the while must see the same counters each time.
//!
//! ```text
//! value   stamp 8 bytes | counter 8 bytes, little-endian | the rest of the generated value
//! ```

use super::block::{Block, POPULATED};
use super::oracle::hex;
use super::row::Row;
use super::worker::{Task, Worker};
use crate::drive::Stop;
use crate::engine::{Access, Engine, Operation, Session, Transactor};
use crate::generate::{Chooser, Values, key_index, write_key};
use crate::measure::OpKind;
use anyhow::{Context, Result, anyhow, bail};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

const COUNTER: std::ops::Range<usize> = 8..16;
/// A shorter value has no room for a counter.
pub(super) const COUNTED_LEN_MIN: usize = COUNTER.end;

/// How many in a hundred transactions of `Work::MostlyRead` change a counter.
const CHANGES_PERCENT: u64 = 5;
/// Keys that a long reader looks at again and again.
const WATCHED_KEYS: u64 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Makes a populated value one that counts from zero.
pub(super) fn reset(value: &mut [u8]) {
    value[COUNTER].fill(0);
}

/// Reads and makes values that hold counters.
pub(super) struct Counters<'a> {
    values: &'a Values,
    scratch: Vec<u8>,
    /// Off for an engine that keeps nothing.
    checked: bool,
}

impl<'a> Counters<'a> {
    pub(super) fn new(values: &'a Values, checked: bool) -> Counters<'a> {
        Counters { values, scratch: vec![0; values.len()], checked }
    }

    /// The counter in a value of `index`, if it is one.
    fn of(&mut self, index: u64, value: &[u8]) -> Option<u64> {
        self.values.write(index, POPULATED, &mut self.scratch);
        let whole = value.len() == self.scratch.len()
            && value[..COUNTER.start] == self.scratch[..COUNTER.start]
            && value[COUNTER.end..] == self.scratch[COUNTER.end..];
        whole.then(|| value[COUNTER].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn get(&mut self, session: &mut dyn Session, key: &[u8], index: u64) -> Result<u64> {
        let mut seen = None;
        session.get(key, &mut |value| seen = self.of(index, value))?;
        self.known(seen, key)
    }

    fn known(&self, seen: Option<u64>, key: &[u8]) -> Result<u64> {
        match seen {
            Some(count) => Ok(count),
            None if !self.checked => Ok(0),
            None => bail!("wrong answer: key {} is absent or has a damaged value", hex(key)),
        }
    }

    fn put(&mut self, session: &mut dyn Session, key: &[u8], index: u64, count: u64) -> Result<()> {
        self.values.write(index, POPULATED, &mut self.scratch);
        self.scratch[COUNTER].copy_from_slice(&count.to_le_bytes());
        session.write_batch(&[Operation::Put(key, &self.scratch)])
    }
}

/// What a thread needs to work in transactions.
pub(super) struct Counting<'a> {
    transactor: Box<dyn Transactor>,
    counters: Counters<'a>,
}

impl<'a> Counting<'a> {
    pub(super) fn new(transactor: Box<dyn Transactor>, task: &Task<'a>) -> Counting<'a> {
        Counting { transactor, counters: Counters::new(task.values, task.checked) }
    }
}

impl Worker<'_> {
    /// Reads a counter and writes it back one higher.
    pub(super) fn modify(&mut self, block: &Block, place: usize) -> Result<OpKind> {
        let (key, index) = (block.key(place), block.indexes[place]);
        self.transact(Access::Write, &mut |session, counters| {
            let count = counters.get(session, key, index)?;
            counters.put(session, key, index, count + 1)
        })
    }

    /// Mostly reads a counter, and sometimes counts.
    pub(super) fn mostly_read(&mut self, block: &Block, place: usize) -> Result<OpKind> {
        if self.coin.below(100) < CHANGES_PERCENT {
            return self.modify(block, place);
        }
        let (key, index) = (block.key(place), block.indexes[place]);
        self.transact(Access::Read, &mut |session, counters| {
            counters.get(session, key, index).map(|_| ())
        })
    }

    /// Reads `range_size` rows, and writes the first one's counter back one higher.
    pub(super) fn scan_modify(&mut self, block: &Block, place: usize) -> Result<OpKind> {
        let (key, index, limit) = (block.key(place), block.indexes[place], self.row.range_size);
        self.transact(Access::Write, &mut |session, counters| {
            let (mut rows, mut first) = (0, None);
            session.scan(key, None, &mut |row_key, value| {
                if rows == 0 && row_key == key {
                    first = counters.of(index, value);
                }
                rows += 1;
                rows == limit
            })?;
            let count = counters.known(first, key)?;
            counters.put(session, key, index, count + 1)
        })
    }

    fn transact(
        &mut self,
        access: Access,
        body: &mut dyn FnMut(&mut dyn Session, &mut Counters<'_>) -> Result<()>,
    ) -> Result<OpKind> {
        let Counting { transactor, counters } =
            self.counting.as_mut().ok_or_else(|| anyhow!("this row has no transactions"))?;
        self.share.aborts += transactor.transact(access, &mut |session| body(session, counters))?;
        if access == Access::Write {
            self.share.increments += 1;
            self.share.user_bytes_written += self.row.entry_bytes();
        } else {
            self.share.user_bytes_read += self.row.value_size as u64;
        }
        Ok(OpKind::Txn)
    }
}

/// Does `work` beside a reader that stays in one transaction and sees the same counters each time.
/// The reader has looked before the work begins and looks once more when it has ended, so whatever
/// the work changes lies between two looks.
pub(super) fn beside_long_reader<T>(
    task: &Task<'_>,
    engine: &dyn Engine,
    stop: &Stop,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    std::thread::scope(|scope| {
        let (looked, first_look) = mpsc::channel();
        // Dropped when the work has ended, also by a panic: nothing else ends the reader.
        let (working, ended) = mpsc::channel();
        let reader = scope.spawn(move || {
            let outcome = long_read(task, engine, &looked, &ended);
            if outcome.is_err() {
                stop.request();
            }
            outcome
        });
        let worked = first_look.recv().ok().map(|()| work());
        drop(working);
        let read = reader.join().unwrap_or_else(|_| Err(anyhow!("the long reader panicked")));
        let worked = worked.transpose()?;
        read?;
        worked.ok_or_else(|| anyhow!("the long reader ended before it had looked"))
    })
}

fn long_read(
    task: &Task<'_>,
    engine: &dyn Engine,
    looked: &Sender<()>,
    ended: &Receiver<()>,
) -> Result<()> {
    let row = task.row;
    let mut chooser = Chooser::new(row.pattern, row.keys, 0, row.threads, task.seed);
    let indexes: Vec<u64> = (0..WATCHED_KEYS).map(|_| chooser.next()).collect();
    let mut key = vec![0; row.key_size];
    let Counting { mut transactor, mut counters } = Counting::new(engine.transactor()?, task);
    let mut look = |transactor: &mut dyn Transactor| -> Result<Vec<u64>> {
        let mut get = |index: &u64| {
            write_key(row.pattern.key_shape(), *index, &mut key);
            counters.get(transactor, &key, *index)
        };
        indexes.iter().map(&mut get).collect()
    };
    transactor.begin(Access::Read)?;
    let first = look(transactor.as_mut())?;
    looked.send(()).context("telling that the long reader has looked")?;
    loop {
        let working = ended.recv_timeout(LOOK_AGAIN) == Err(RecvTimeoutError::Timeout);
        if look(transactor.as_mut())? != first {
            bail!("wrong answer: a transaction that only reads sees what others have changed");
        }
        if !working {
            break;
        }
    }
    transactor.commit().context("ending the long reader")?;
    Ok(())
}

/// Scans everything: every key must be there with its value, and the counters must add up to what
/// was counted. Returns the rows seen.
pub(super) fn verify(
    row: &Row,
    values: &Values,
    session: &mut dyn Session,
    increments: u64,
) -> Result<u64> {
    let shape = row.pattern.key_shape();
    let mut counters = Counters::new(values, true);
    let (mut rows, mut sum, mut wrong) = (0u64, 0u64, None);
    session.scan(b"", None, &mut |key, value| {
        let count = key_index(shape, key)
            .filter(|index| *index < row.keys)
            .and_then(|index| counters.of(index, value));
        rows += 1;
        sum += count.unwrap_or(0);
        if count.is_none() {
            wrong = Some(hex(key));
        }
        wrong.is_some()
    })?;
    if let Some(key) = wrong {
        bail!("wrong answer: key {key} was never written, or has a damaged value");
    }
    if rows != row.keys {
        bail!("wrong answer: a whole scan shows {rows} keys and must show {}", row.keys);
    }
    if sum != increments {
        bail!(
            "wrong answer: {increments} transactions counted one up each and committed, and the \
             counters add up to {sum}: {}",
            if sum < increments { "updates were lost" } else { "some were applied twice" }
        );
    }
    Ok(rows)
}
