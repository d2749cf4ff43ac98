//! One thread of a row: blocks of keys and values are made, then run against the clock.

use super::block::{Block, MEASURED};
use super::oracle::{RangeSeen, coin, hex, missing};
use super::row::{Row, Work};
use super::transactions::Counting;
use crate::drive::{Pace, Share, Ticket};
use crate::engine::{Operation, Session};
use crate::generate::{Chooser, KeyShape, Rng, Values, key_index, sort_word};
use crate::measure::{OpKind, Recorder, Stopwatch};
use anyhow::{Result, bail};
use std::time::{Duration, Instant};

pub(super) struct Worker<'a> {
    pub(super) row: &'a Row,
    values: &'a Values,
    session: Box<dyn Session>,
    ticket: &'a Ticket<'a>,
    recorder: &'a mut Recorder,
    pub(super) share: &'a mut Share,
    shape: KeyShape,
    /// Off for an engine that keeps nothing.
    checked: bool,
    pace: Option<Pace>,
    stopwatch: Stopwatch,
    /// The most and the least number of keys to touch.
    limit: u64,
    least: u64,
    /// The moment from which on the least number of keys is enough.
    enough_at: Instant,
    /// Time that went into making keys and values, or waiting for it.
    making: Duration,
    /// Keys touched.
    done: u64,
    ranges: Vec<RangeSeen>,
    pub(super) coin: Rng,
    pub(super) counting: Option<Counting<'a>>,
}

/// Ranges that a thread makes room for before the clock runs.
const RANGES_AHEAD: u64 = 1 << 20;

/// What a thread's phase needs besides its ticket.
pub(super) struct Task<'a> {
    pub(super) row: &'a Row,
    pub(super) values: &'a Values,
    pub(super) seed: u64,
    pub(super) checked: bool,
    /// Keys that this thread touches at most, and the least that it touches once `seconds_min` is
    /// over.
    pub(super) limit: u64,
    pub(super) least: u64,
    pub(super) seconds_min: f64,
}

impl<'a> Worker<'a> {
    pub(super) fn run(
        task: &Task<'a>,
        session: Box<dyn Session>,
        counting: Option<Counting<'a>>,
        ticket: &'a Ticket<'a>,
        recorder: &'a mut Recorder,
        share: &'a mut Share,
    ) -> Result<Vec<RangeSeen>> {
        let row = task.row;
        let mut chooser =
            Chooser::new(row.pattern, row.keys, ticket.thread, row.threads, task.seed);
        let mut worker = Worker {
            row,
            values: task.values,
            session,
            ticket,
            recorder,
            share,
            shape: row.pattern.key_shape(),
            checked: task.checked,
            pace: ticket.rate.map(|rate| Pace::new(rate, ticket.thread, row.threads, ticket.start)),
            stopwatch: Stopwatch::start(),
            limit: task.limit,
            least: task.least,
            enough_at: ticket.start + Duration::from_secs_f64(task.seconds_min),
            making: Duration::ZERO,
            done: 0,
            ranges: Vec::new(),
            coin: coin(task.seed, ticket.thread),
            counting,
        };
        if row.work == Work::Range {
            worker.ranges.reserve(task.limit.min(RANGES_AHEAD) as usize);
        }
        for kind in OpKind::ALL {
            worker.recorder.prepare(kind);
        }
        if row.work == Work::Scan {
            worker.scans()?;
        } else {
            worker.blocks(&mut chooser)?;
        }
        if worker.pace.is_some() {
            // Waits for the schedule are part of the time that the rate is computed over.
            worker.share.busy = ticket.start.elapsed().saturating_sub(worker.making);
        }
        Ok(worker.ranges)
    }

    /// Whether to end; `now` is a recent reading of the clock.
    #[inline]
    fn over(&self, now: Instant) -> bool {
        self.done >= self.limit
            || self.ticket.over(now)
            || (self.done >= self.least && now >= self.enough_at)
    }

    fn blocks(&mut self, chooser: &mut Chooser) -> Result<()> {
        let (row, limit) = (self.row, self.limit);
        let writes_values = matches!(row.work, Work::Write | Work::Overwrite | Work::Mixed);
        let value_size = if writes_values { row.value_size } else { 0 };
        let batch = row.batch.min(limit.max(1)) as usize;
        let mut block = Block::new(batch, row.key_size, value_size);
        let shift = if row.work == Work::Absent { row.keys } else { 0 };
        while !self.over(Instant::now()) {
            block.fill(chooser, self.shape, self.values, MEASURED, shift);
            if row.work == Work::Mixed {
                block.flip_coins(&mut self.coin, batch);
            }
            let count = block.len().min((limit - self.done) as usize);
            self.run_block(&block, count, batch)?;
        }
        Ok(())
    }

    fn run_block(&mut self, block: &Block, count: usize, batch: usize) -> Result<()> {
        match self.row.work {
            Work::Write | Work::Overwrite if batch > 1 => {
                self.batches(&block.puts()[..count], batch, OpKind::Mput)
            }
            Work::Delete if batch > 1 => {
                self.batches(&block.deletes()[..count], batch, OpKind::Mdel)
            }
            Work::Write | Work::Overwrite => self.singles(count, |worker, place| {
                worker.session.put(block.key(place), block.value(place)).map(|()| OpKind::Put)
            }),
            Work::Delete => self.singles(count, |worker, place| {
                worker.session.delete(block.key(place)).map(|()| OpKind::Del)
            }),
            Work::Mixed | Work::Read if batch > 1 => self.mixed_batches(block, count, batch),
            Work::Mixed => self.singles(count, |worker, place| {
                if block.writes[place] {
                    worker.session.put(block.key(place), block.value(place)).map(|()| OpKind::Put)
                } else {
                    worker.get(block, place, true)
                }
            }),
            Work::Read => self.singles(count, |worker, place| worker.get(block, place, true)),
            Work::Absent => self.singles(count, |worker, place| worker.get(block, place, false)),
            Work::Seek => self.singles(count, |worker, place| worker.seek(block, place)),
            Work::Range | Work::Scan => self.ranges(block, count),
            Work::Modify => self.singles(count, |worker, place| worker.modify(block, place)),
            Work::MostlyRead => {
                self.singles(count, |worker, place| worker.mostly_read(block, place))
            }
            Work::ScanModify => {
                self.singles(count, |worker, place| worker.scan_modify(block, place))
            }
        }
    }

    /// Calls of one key each, back to back.
    fn singles(
        &mut self,
        count: usize,
        mut call: impl FnMut(&mut Self, usize) -> Result<OpKind>,
    ) -> Result<()> {
        self.resume();
        for place in 0..count {
            let due = self.wait(1);
            let kind = call(self, place)?;
            self.finish(kind, due, 1);
            if self.over(self.stopwatch.last()) {
                break;
            }
        }
        Ok(())
    }

    fn batches(&mut self, operations: &[Operation<'_>], batch: usize, kind: OpKind) -> Result<()> {
        self.resume();
        for chunk in operations.chunks(batch) {
            let due = self.wait(chunk.len() as u64);
            self.session.write_batch(chunk)?;
            self.finish(kind, due, chunk.len() as u64);
            if self.over(self.stopwatch.last()) {
                break;
            }
        }
        Ok(())
    }

    /// Batches that are all puts or all gets; of rows that read, all gets.
    fn mixed_batches(&mut self, block: &Block, count: usize, batch: usize) -> Result<()> {
        let puts = block.puts();
        let keys: Vec<&[u8]> = (0..count).map(|place| block.key(place)).collect();
        self.resume();
        for from in (0..count).step_by(batch) {
            let to = count.min(from + batch);
            let due = self.wait((to - from) as u64);
            let kind = if self.row.work == Work::Mixed && block.writes[from] {
                self.session.write_batch(&puts[from..to])?;
                OpKind::Mput
            } else {
                self.multi_get(&keys[from..to], &block.indexes[from..to])?;
                OpKind::Mget
            };
            self.finish(kind, due, (to - from) as u64);
            if self.over(self.stopwatch.last()) {
                break;
            }
        }
        Ok(())
    }

    /// Gets of keys that exist.
    fn multi_get(&mut self, keys: &[&[u8]], indexes: &[u64]) -> Result<()> {
        let values = self.values;
        let (mut found, mut bytes, mut damaged) = (0, 0, None);
        self.session.multi_get(keys, &mut |place, value| {
            found += 1;
            bytes += value.len() as u64;
            if values.version_of(indexes[place], value).is_none() {
                damaged = Some(place);
            }
        })?;
        let asked = keys.len() as u64;
        self.share.user_bytes_read += bytes;
        self.share.hits += found;
        self.share.misses += asked - found;
        match damaged {
            Some(place) if self.checked => {
                bail!("wrong answer: key {} has a damaged value", hex(keys[place]))
            }
            None if self.checked && found < asked => bail!(
                "wrong answer: of {asked} keys from key {} on {} are absent and were written",
                hex(keys[0]),
                asked - found
            ),
            _ => Ok(()),
        }
    }

    fn ranges(&mut self, block: &Block, count: usize) -> Result<()> {
        self.resume();
        for place in 0..count {
            let due = self.wait(1);
            self.range(block.key(place), block.indexes[place])?;
            self.finish(OpKind::Range, due, 1);
            if self.over(self.stopwatch.last()) {
                break;
            }
        }
        Ok(())
    }

    /// Whole scans until the limit of rows is reached.
    fn scans(&mut self) -> Result<()> {
        while !self.over(Instant::now()) {
            self.stopwatch.skip();
            let mut checker = RangeChecker::new(self);
            let (mut rows, mut bytes) = (0u64, 0u64);
            self.session.scan(b"", None, &mut |key, value| {
                rows += 1;
                bytes += (key.len() + value.len()) as u64;
                checker.wrong(key, value)
            })?;
            checker.outcome()?;
            if self.checked && rows != self.row.keys {
                bail!(missing(self.row, self.session.as_mut(), rows, |_| true)?);
            }
            self.share.user_bytes_read += bytes;
            self.finish(OpKind::Scan, None, rows.max(1));
        }
        Ok(())
    }

    /// Begins a timed section: what happened since the last one was the making of keys and values.
    /// In open loop it delays the calls that are due by that time, which would otherwise count as
    /// the engine's latency.
    fn resume(&mut self) {
        let ended = self.stopwatch.last();
        self.stopwatch.skip();
        let made = self.stopwatch.last().saturating_duration_since(ended);
        self.making += made;
        if let Some(pace) = &mut self.pace {
            pace.pause(made);
        }
    }

    fn wait(&mut self, operations: u64) -> Option<Instant> {
        let due = self.pace.as_mut().map(|pace| pace.wait(operations));
        if due.is_some() {
            self.stopwatch.skip();
        }
        due
    }

    /// In open loop the latency counts from when the call was due.
    #[inline]
    fn finish(&mut self, kind: OpKind, due: Option<Instant>, primitives: u64) {
        let lap = self.stopwatch.lap();
        let nanos = due.map_or(lap, |due| {
            self.stopwatch.last().saturating_duration_since(due).as_nanos() as u64
        });
        self.recorder.record(kind, nanos, primitives);
        self.share.busy += Duration::from_nanos(lap);
        self.done += primitives;
        self.ticket.publish(self.done);
        match kind {
            OpKind::Put | OpKind::Mput => {
                self.share.user_bytes_written += primitives * self.row.entry_bytes()
            }
            OpKind::Del | OpKind::Mdel => {
                self.share.user_bytes_written += primitives * self.row.key_size as u64
            }
            _ => {}
        }
    }

    #[inline]
    fn get(&mut self, block: &Block, place: usize, expected: bool) -> Result<OpKind> {
        let (values, index) = (self.values, block.indexes[place]);
        let (mut right, mut bytes) = (true, 0);
        let found = self.session.get(block.key(place), &mut |value| {
            bytes = value.len() as u64;
            right = values.version_of(index, value).is_some();
        })?;
        self.share.user_bytes_read += bytes;
        if found {
            self.share.hits += 1
        } else {
            self.share.misses += 1
        }
        if self.checked && (found != expected || !right) {
            let fault = match (found, expected) {
                (false, true) => "is absent and was written",
                (true, false) => "is there and was never written",
                _ => "has a damaged value",
            };
            bail!("wrong answer: key {} {fault}", hex(block.key(place)));
        }
        Ok(OpKind::Get)
    }

    fn seek(&mut self, block: &Block, place: usize) -> Result<OpKind> {
        let (values, index, key) = (self.values, block.indexes[place], block.key(place));
        let mut right = false;
        self.session.seek(key, &mut |row_key, value| {
            right = row_key == key && values.version_of(index, value).is_some()
        })?;
        if self.checked && !right {
            bail!("wrong answer: a seek to the existing key {} lands elsewhere", hex(key));
        }
        Ok(OpKind::Seek)
    }

    /// Reads up to `range_size` rows from a key that exists.
    fn range(&mut self, from: &[u8], index: u64) -> Result<()> {
        let limit = self.row.range_size;
        let mut checker = RangeChecker::new(self);
        let (mut rows, mut bytes, mut starts) = (0, 0, false);
        self.session.scan(from, None, &mut |key, value| {
            if rows == 0 {
                starts = key == from;
            }
            rows += 1;
            bytes += (key.len() + value.len()) as u64;
            checker.wrong(key, value) || rows == limit
        })?;
        let words = checker.words;
        checker.outcome()?;
        self.share.user_bytes_read += bytes;
        if self.checked && !starts {
            bail!("wrong answer: a range from the existing key {} doesn't begin there", hex(from));
        }
        self.ranges.push(RangeSeen { index, rows, words });
        Ok(())
    }
}

/// Checks that rows ascend and hold values of their keys.
struct RangeChecker<'a> {
    shape: KeyShape,
    keys: u64,
    values: &'a Values,
    last: [u8; 64],
    last_len: usize,
    /// The sum of the keys' sort words, which tells afterwards whether a row was left out.
    words: u64,
    fault: Option<String>,
    checked: bool,
}

impl<'a> RangeChecker<'a> {
    fn new(worker: &Worker<'a>) -> RangeChecker<'a> {
        RangeChecker {
            shape: worker.shape,
            keys: worker.row.keys,
            values: worker.values,
            last: [0; 64],
            last_len: 0,
            words: 0,
            fault: None,
            checked: worker.checked,
        }
    }

    /// Takes a row; `true` when it is wrong.
    #[inline]
    fn wrong(&mut self, key: &[u8], value: &[u8]) -> bool {
        let head = &key[..key.len().min(self.last.len())];
        let last = &self.last[..self.last_len];
        // Heads of long keys may be equal.
        let descends =
            self.last_len > 0 && (head < last || (head == last && key.len() <= self.last.len()));
        let known = key_index(self.shape, key).is_some_and(|index| {
            index < self.keys && self.values.version_of(index, value).is_some()
        });
        if self.checked && (descends || !known) {
            let what = if descends {
                "comes out of order"
            } else {
                "has a damaged value or was never written"
            };
            self.fault = Some(format!("wrong answer: key {} {what}", hex(key)));
            return true;
        }
        self.words = self.words.wrapping_add(sort_word(self.shape, key));
        self.last[..head.len()].copy_from_slice(head);
        self.last_len = head.len();
        false
    }

    fn outcome(self) -> Result<()> {
        match self.fault {
            Some(fault) => bail!(fault),
            None => Ok(()),
        }
    }
}
