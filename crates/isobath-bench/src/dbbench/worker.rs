//! One thread of a benchmark.

use super::bench::{Bench, Size};
use crate::drive::{Share, Ticket};
use crate::engine::{Operation, Session};
use crate::generate::{KeyShape, Rng, Values, key_index, write_key};
use crate::measure::{OpKind, Recorder, Stopwatch};
use anyhow::{Result, bail};

/// All keys are of this shape: their order is that of their numbers.
const SHAPE: KeyShape = KeyShape::Ordered;

pub(super) struct Worker<'a> {
    session: Box<dyn Session>,
    size: &'a Size,
    values: &'a Values,
    ticket: &'a Ticket<'a>,
    recorder: &'a mut Recorder,
    share: &'a mut Share,
    /// Off for an engine that keeps nothing.
    checked: bool,
    rng: Rng,
    stopwatch: Stopwatch,
    keys: Vec<u8>,
    batch_values: Vec<u8>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        session: Box<dyn Session>,
        size: &'a Size,
        values: &'a Values,
        ticket: &'a Ticket<'a>,
        recorder: &'a mut Recorder,
        share: &'a mut Share,
        checked: bool,
    ) -> Worker<'a> {
        Worker {
            session,
            size,
            values,
            ticket,
            recorder,
            share,
            checked,
            rng: Rng::new(size.seed.wrapping_add(ticket.thread)),
            stopwatch: Stopwatch::start(),
            keys: vec![0; size.batch as usize * size.key_size],
            batch_values: vec![0; size.batch as usize * size.value_size],
        }
    }

    /// Runs this many operations of a benchmark on this thread.
    pub(super) fn bench(&mut self, bench: Bench, operations: u64) -> Result<()> {
        if bench == Bench::ReadSeq {
            return self.read_all(operations);
        }
        let ordered = matches!(bench, Bench::FillSeq | Bench::DeleteSeq);
        let mut done = 0;
        while done < operations && !self.ticket.over(self.stopwatch.last()) {
            let batched = bench != Bench::SeekRandom
                && matches!(bench, Bench::MultiReadRandom) | !bench.reads();
            let count = if batched { self.size.batch.min(operations - done) } else { 1 };
            let numbers: Vec<u64> = (0..count)
                .map(|at| if ordered { done + at } else { self.rng.below(self.size.num) })
                .collect();
            match bench {
                Bench::ReadRandom | Bench::ReadWhileWriting => self.get(numbers[0])?,
                Bench::ReadMissing => self.get(self.size.num + numbers[0])?,
                Bench::SeekRandom => self.seek(numbers[0])?,
                Bench::MultiReadRandom => self.multi_get(&numbers)?,
                Bench::DeleteSeq | Bench::DeleteRandom => self.delete(&numbers)?,
                _ => self.put(&numbers)?,
            }
            done += count;
            self.share.units += count;
            self.ticket.publish(done);
        }
        Ok(())
    }

    /// Puts random keys until `over`.
    pub(super) fn write_until(&mut self, over: &dyn Fn() -> bool) -> Result<()> {
        while !over() && !self.ticket.stopped() {
            let number = self.rng.below(self.size.num);
            self.put(&[number])?;
        }
        Ok(())
    }

    fn record(&mut self, kind: OpKind, keys: u64) {
        let nanos = self.stopwatch.lap();
        self.recorder.record(kind, nanos, keys);
    }

    fn make_keys(&mut self, numbers: &[u64]) {
        for (key, number) in self.keys.chunks_mut(self.size.key_size).zip(numbers) {
            write_key(SHAPE, *number, key);
        }
    }

    fn put(&mut self, numbers: &[u64]) -> Result<()> {
        self.make_keys(numbers);
        for (value, number) in self.batch_values.chunks_mut(self.size.value_size).zip(numbers) {
            self.values.write(*number, 0, value);
        }
        let entries = self
            .keys
            .chunks(self.size.key_size)
            .zip(self.batch_values.chunks(self.size.value_size));
        if let ([_], Some((key, value))) = (numbers, entries.clone().next()) {
            self.session.put(key, value)?;
        } else {
            let puts: Vec<Operation<'_>> = entries
                .take(numbers.len())
                .map(|(key, value)| Operation::Put(key, value))
                .collect();
            self.session.write_batch(&puts)?;
        }
        self.share.user_bytes_written += numbers.len() as u64 * self.size.entry_bytes();
        let kind = if numbers.len() == 1 { OpKind::Put } else { OpKind::Mput };
        self.record(kind, numbers.len() as u64);
        Ok(())
    }

    fn delete(&mut self, numbers: &[u64]) -> Result<()> {
        self.make_keys(numbers);
        let keys = self.keys.chunks(self.size.key_size).take(numbers.len());
        if let ([_], Some(key)) = (numbers, keys.clone().next()) {
            self.session.delete(key)?;
        } else {
            let deletes: Vec<Operation<'_>> = keys.map(Operation::Delete).collect();
            self.session.write_batch(&deletes)?;
        }
        let kind = if numbers.len() == 1 { OpKind::Del } else { OpKind::Mdel };
        self.record(kind, numbers.len() as u64);
        Ok(())
    }

    fn get(&mut self, number: u64) -> Result<()> {
        self.make_keys(&[number]);
        let (values, mut bytes, mut right) = (self.values, 0, true);
        let found = self.session.get(&self.keys[..self.size.key_size], &mut |value| {
            bytes = value.len() as u64;
            right = values.version_of(number, value).is_some();
        })?;
        self.looked_up(u64::from(found), 1, bytes + found as u64 * self.size.key_size as u64);
        self.record(OpKind::Get, 1);
        self.check(right, number)
    }

    fn multi_get(&mut self, numbers: &[u64]) -> Result<()> {
        self.make_keys(numbers);
        let keys: Vec<&[u8]> = self.keys.chunks(self.size.key_size).take(numbers.len()).collect();
        let (values, mut bytes, mut found, mut wrong) = (self.values, 0, 0, None);
        self.session.multi_get(&keys, &mut |place, value| {
            found += 1;
            bytes += value.len() as u64;
            if values.version_of(numbers[place], value).is_none() {
                wrong = Some(numbers[place]);
            }
        })?;
        self.looked_up(found, numbers.len() as u64, bytes + found * self.size.key_size as u64);
        self.record(OpKind::Mget, numbers.len() as u64);
        wrong.map_or(Ok(()), |number| self.check(false, number))
    }

    /// Positions a cursor, and reads on.
    fn seek(&mut self, number: u64) -> Result<()> {
        self.make_keys(&[number]);
        let (values, mut landed, mut wrong) = (self.values, false, None);
        let (mut rows, mut bytes) = (0, 0);
        let last = 1 + self.size.seek_nexts;
        let mut row = |key: &[u8], value: &[u8]| {
            let index = key_index(SHAPE, key);
            landed |= index == Some(number);
            if index.is_none_or(|index| index < number || values.version_of(index, value).is_none())
            {
                wrong = Some(number);
            }
            rows += 1;
            bytes += (key.len() + value.len()) as u64;
            rows == last
        };
        let from = &self.keys[..self.size.key_size];
        if last == 1 {
            self.session.seek(from, &mut |key, value| {
                row(key, value);
            })?;
        } else {
            self.session.scan(from, None, &mut row)?;
        }
        self.looked_up(u64::from(landed), 1, bytes);
        self.record(OpKind::Seek, 1);
        wrong.map_or(Ok(()), |number| self.check(false, number))
    }

    /// Reads on from the first key.
    fn read_all(&mut self, limit: u64) -> Result<()> {
        let (mut rows, mut bytes) = (0, 0);
        let (values, ticket, stopwatch, recorder) =
            (self.values, self.ticket, &mut self.stopwatch, &mut *self.recorder);
        let mut wrong = None;
        self.session.scan(b"", None, &mut |key, value| {
            match key_index(SHAPE, key) {
                Some(index) if values.version_of(index, value).is_some() => {}
                index => wrong = Some(index.unwrap_or(0)),
            }
            rows += 1;
            bytes += (key.len() + value.len()) as u64;
            recorder.record(OpKind::Scan, stopwatch.lap(), 1);
            rows == limit || wrong.is_some() || ticket.stopped()
        })?;
        self.share.units += rows;
        self.share.user_bytes_read += bytes;
        wrong.map_or(Ok(()), |number| self.check(false, number))
    }

    fn looked_up(&mut self, found: u64, asked: u64, bytes: u64) {
        self.share.hits += found;
        self.share.misses += asked - found;
        self.share.user_bytes_read += bytes;
    }

    fn check(&self, right: bool, number: u64) -> Result<()> {
        if self.checked && !right {
            bail!("wrong answer: at key number {number} is what was never written");
        }
        Ok(())
    }
}
