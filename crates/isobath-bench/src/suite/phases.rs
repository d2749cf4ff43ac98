//! A row on one engine in this process, from an empty or a filled directory to its record.

use super::oracle::{Oracle, RangeSeen, verify_ranges};
use super::reader::{self, Reader};
use super::row::{Memtable, Row, Work};
use super::transactions::{self, Counting, beside_long_reader};
use super::worker::{Task, Worker};
use crate::drive::{Limits, Progress, Share, Stop, TeamResult, Ticket, run_team};
use crate::engine::{
    self, Engine, EngineConfig, EngineKind, Marks, Operation, Settled, Written, settle,
};
use crate::generate::{Chooser, Values, touch, write_key};
use crate::measure::{
    Probe, Recorder, Usage, dir_bytes, reset_peak_memory, sync_files, thread_cpu,
};
use crate::report::{Iteration, Load, Measured, Subject};
use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Seeds of the phases: reads visit keys in another order than they were written in.
const POPULATE_SEED: u64 = 1;
const WARM_SEED: u64 = 2;
const MEASURE_SEED: u64 = 3;
/// Of keys that are written once more, to be in a memtable before the tables.
const REFILL_SEED: u64 = 4;

const POPULATE_BATCH: u64 = 1000;
/// A sustained row begins after this many write buffers were written.
const WARM_BUFFERS: u64 = 20;

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Phase {
    /// Fill a database for rows to start from.
    Populate,
    /// Measure on a database that another process has filled, or on an empty one.
    Measure,
    /// Both in this process, for engines that keep nothing on disk.
    Both,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct SuiteJob {
    pub(crate) engine: String,
    pub(crate) config: EngineConfig,
    pub(crate) row: Row,
    pub(crate) phase: Phase,
    pub(crate) repeat: u64,
    pub(crate) rate: Option<f64>,
    pub(crate) settle_limit_seconds: f64,
}

/// Runs the job. A populating one gives a record whose measured part is the population.
pub(crate) fn run_job(job: &SuiteJob, stop: &Stop) -> Result<Measured> {
    job.row.check()?;
    let kind = engine::find(&job.engine)?;
    let values = Values::new(job.row.value_size, job.row.compressibility);
    let before = Probe::read();
    let engine = (kind.open)(&job.config).with_context(|| format!("opening {}", job.engine))?;
    let stage = Stage { job, kind, values, engine, stop };
    let load = if job.phase == Phase::Measure { None } else { Some(stage.populate()?) };
    if job.phase == Phase::Populate {
        return stage.record_population(load, &before);
    }
    stage.measure(load)
}

struct Stage<'a> {
    job: &'a SuiteJob,
    kind: &'static EngineKind,
    values: Values,
    engine: Box<dyn Engine>,
    stop: &'a Stop,
}

/// How much a phase does, over all threads.
struct Extent {
    limit: u64,
    /// The phase does at least this much. Once `seconds_min` is over, it does no more.
    least: u64,
    seconds_min: f64,
}

impl Extent {
    fn exactly(operations: u64) -> Extent {
        Extent { limit: operations, least: operations, seconds_min: 0.0 }
    }
}

impl Stage<'_> {
    fn title(&self, what: &str) -> String {
        format!("{} {} {what}", self.job.engine, self.job.row.name)
    }

    fn limit(&self) -> Duration {
        Duration::from_secs_f64(self.job.settle_limit_seconds)
    }

    fn settle(&self) -> Result<Settled> {
        let spinner = Progress::spinner(&self.title("settle"));
        settle(self.engine.as_ref(), self.limit(), self.stop, |debt| {
            spinner.message(format!("debt {debt}"))
        })
    }

    /// Writes every key of the row once, in the order of its pattern, and settles.
    fn populate(&self) -> Result<Load> {
        let row = &self.job.row;
        if !row.work.populated() {
            return Ok(Load::default());
        }
        let (before, start) = (Probe::read(), Instant::now());
        self.fill(POPULATE_SEED, row.keys)?;
        let seconds = start.elapsed().as_secs_f64();
        let settled = match row.memtable {
            Memtable::Alone => Settled::default(),
            Memtable::Flushed | Memtable::Before => self.settle()?,
        };
        let device_write_bytes = Probe::read().since(&before).device_write_bytes;
        let operations = row.keys;
        Ok(Load { operations, seconds, device_write_bytes, settled, ..Load::default() })
    }

    /// Writes so many of the keys as they are populated, each once.
    fn fill(&self, seed: u64, count: u64) -> Result<()> {
        let row = &self.job.row;
        let progress = Progress::count(&self.title("populate"), count);
        let mut session = self.engine.session()?;
        let mut chooser = Chooser::new(row.pattern.of_population(), row.keys, 0, 1, seed);
        let shape = row.pattern.key_shape();
        let batch = POPULATE_BATCH.min((4 << 20) / row.entry_bytes()).max(1);
        let mut keys = vec![0; batch as usize * row.key_size];
        let mut values = vec![0; batch as usize * row.value_size];
        let mut done = 0;
        while done < count && !self.stop.requested() {
            let many = batch.min(count - done) as usize;
            for (key, value) in
                keys.chunks_mut(row.key_size).zip(values.chunks_mut(row.value_size)).take(many)
            {
                let index = chooser.next();
                write_key(shape, index, key);
                self.values.write(index, super::block::POPULATED, value);
                if row.work.transacts() {
                    transactions::reset(value);
                }
            }
            let pairs = keys.chunks(row.key_size).zip(values.chunks(row.value_size)).take(many);
            let operations: Vec<Operation<'_>> =
                pairs.map(|(key, value)| Operation::Put(key, value)).collect();
            session.write_batch(&operations)?;
            done += many as u64;
            progress.set(done);
        }
        if done < count {
            bail!("interrupted while the database was filled");
        }
        Ok(())
    }

    fn phase(
        &self,
        seed: u64,
        limits: Limits,
        extent: Extent,
        what: &str,
    ) -> Result<(TeamResult, Vec<RangeSeen>)> {
        let row = &self.job.row;
        let ranges = Mutex::new(Vec::new());
        let progress = Progress::count(&self.title(what), extent.least);
        let task = |limit, least| Task {
            row,
            values: &self.values,
            seed,
            checked: self.kind.answers,
            limit,
            least,
            seconds_min: extent.seconds_min,
        };
        let team = || {
            run_team(
                self.engine.as_ref(),
                row.threads,
                limits,
                self.stop,
                &|done| progress.set(done),
                |ticket, recorder, share| {
                    let part = |whole: u64| {
                        whole * (ticket.thread + 1) / row.threads
                            - whole * ticket.thread / row.threads
                    };
                    let task = task(part(extent.limit), part(extent.least));
                    ranges.lock().extend(self.work(&task, ticket, recorder, share)?);
                    Ok(())
                },
            )
        };
        let result = match row.long_reader {
            true => beside_long_reader(&task(0, 0), self.engine.as_ref(), self.stop, team),
            false => team(),
        }
        .with_context(|| format!("{} on {}", row.name, self.job.engine))?;
        Ok((result, ranges.into_inner()))
    }

    fn work(
        &self,
        task: &Task<'_>,
        ticket: &Ticket<'_>,
        recorder: &mut Recorder,
        share: &mut Share,
    ) -> Result<Vec<RangeSeen>> {
        let counting = match task.row.work.transacts() {
            true => Some(Counting::new(self.engine.transactor()?, task)),
            false => None,
        };
        Worker::run(task, self.engine.session()?, counting, ticket, recorder, share)
    }

    fn measure(self, load: Option<Load>) -> Result<Measured> {
        let row = &self.job.row;
        let mut oracle_phases = Vec::new();
        if row.memtable == Memtable::Before {
            self.fill(REFILL_SEED, row.fitting(self.job.config.write_buffer_bytes))?;
        }
        let reader = self.reader();
        let idle = reader.as_ref().map(|reader| reader.alone()).transpose()?;
        if row.sustained {
            let buffered = WARM_BUFFERS * self.job.config.write_buffer_bytes / row.entry_bytes();
            let (warm, _) =
                self.phase(WARM_SEED, Limits::default(), Extent::exactly(buffered), "warm up")?;
            oracle_phases.push((WARM_SEED, warm.done));
        }
        reset_peak_memory().ok();
        if self.kind.persistent {
            sync_files(&self.job.config.path)?;
        }
        let (before, marks) = (Probe::read(), Marks::read(self.engine.as_ref()));
        let limits = Limits { seconds: Some(row.seconds_max), rate: self.job.rate };
        let least = if row.sustained { row.limit() } else { row.operations };
        let extent = Extent { limit: row.limit(), least, seconds_min: row.seconds_min };
        let measure = || self.phase(MEASURE_SEED, limits, extent, "measure");
        let ((result, ranges), beside) = reader::beside(reader.as_ref(), idle, measure)?;
        let stall_us = marks.stall_us(self.engine.as_ref());
        let peak = Probe::read();
        oracle_phases.push((MEASURE_SEED, result.done.clone()));
        let own = thread_cpu();
        let iteration = self.iterate()?;
        let own = thread_cpu().saturating_sub(own).as_secs_f64();
        let settled = if row.work.destructive() { self.settle()? } else { Settled::default() };
        let settle_cpu = Probe::read().since(&peak).cpu_seconds() - own;
        let (counters, written) = (self.engine.counters(), marks.written(self.engine.as_ref()));
        let (keys, verified) = self.verify(&oracle_phases, &ranges, result.share.increments)?;
        let Stage { job, kind, engine, stop, .. } = self;
        engine.close().with_context(|| format!("closing {}", job.engine))?;
        let usage_settled = Probe::read().since(&before);
        let TeamResult { recorder, share, wall_seconds, busy_seconds, usage, sampler, .. } = result;
        Ok(Measured {
            load,
            seconds: busy_seconds,
            wall_seconds,
            units: 0,
            hits: share.hits,
            misses: share.misses,
            kinds: recorder.kinds(),
            user_bytes_written: share.user_bytes_written,
            user_bytes_read: share.user_bytes_read,
            usage,
            usage_settled,
            written,
            settled,
            settle_cpu_seconds: job.row.work.destructive().then_some(settle_cpu.max(0.0)),
            iteration,
            rss_peak_bytes: peak.rss_peak_bytes,
            vms_peak_bytes: peak.vms_peak_bytes,
            rss_anon_peak_bytes: sampler.rss_anon_peak_bytes,
            rss_file_peak_bytes: sampler.rss_file_peak_bytes,
            db_bytes: dir_bytes(&job.config.path),
            live_bytes: keys.map(|keys| keys * row.entry_bytes()),
            stall_us,
            timeline: sampler.samples,
            counters,
            rows_verified: verified,
            interrupted: stop.requested(),
            aborts: job.row.work.transacts().then_some(share.aborts),
            beside,
            ..blank(job, kind)
        })
    }

    /// The reader that this row wants beside its writers.
    fn reader(&self) -> Option<Reader<'_>> {
        let row = &self.job.row;
        (row.reader_cores > 0.0).then(|| Reader {
            row,
            values: &self.values,
            engine: self.engine.as_ref(),
            checked: self.kind.answers,
            stop: self.stop,
        })
    }

    /// Times a scan of every row, in the state in which the work has left the database.
    fn iterate(&self) -> Result<Option<Iteration>> {
        // A row of scans has measured this already, and an interrupted row does no further work.
        if self.job.row.work == Work::Scan || !self.kind.answers || self.stop.requested() {
            return Ok(None);
        }
        let mut session = self.engine.session()?;
        let (start, mut rows) = (Instant::now(), 0);
        session.scan(b"", None, &mut |key, value| {
            std::hint::black_box(key);
            touch(value);
            rows += 1;
            false
        })?;
        Ok(Some(Iteration { rows, seconds: start.elapsed().as_secs_f64() }))
    }

    /// Compares the whole content with what it must be; gives the keys there and the rows compared.
    fn verify(
        &self,
        phases: &[(u64, Vec<u64>)],
        ranges: &[RangeSeen],
        increments: u64,
    ) -> Result<(Option<u64>, u64)> {
        let row = &self.job.row;
        if !self.kind.answers {
            return Ok((None, 0));
        }
        let on = || format!("{} after {}", self.job.engine, row.name);
        if row.work.transacts() {
            let mut session = self.engine.session()?;
            let verified = transactions::verify(row, &self.values, session.as_mut(), increments);
            return Ok((Some(row.keys), verified.with_context(on)?));
        }
        if !row.work.destructive() {
            let verified = if row.work == Work::Range { verify_ranges(row, ranges) } else { Ok(0) };
            return Ok((Some(row.keys), verified.with_context(on)?));
        }
        let mut oracle = Oracle::replay(row, 0, &[]);
        for (seed, done) in phases {
            oracle.apply(row, *seed, done);
        }
        let _spinner = Progress::spinner(&self.title("verify"));
        let verified = oracle.verify(row, &self.values, self.engine.session()?.as_mut());
        Ok((Some(oracle.keys()), verified.with_context(on)?))
    }

    fn record_population(self, load: Option<Load>, before: &Probe) -> Result<Measured> {
        let Stage { job, kind, engine, .. } = self;
        engine.close().with_context(|| format!("closing {}", job.engine))?;
        let db_bytes = dir_bytes(&job.config.path);
        Ok(Measured {
            load,
            usage_settled: Probe::read().since(before),
            db_bytes,
            ..blank(job, kind)
        })
    }
}

/// A record with nothing measured yet.
fn blank(job: &SuiteJob, kind: &EngineKind) -> Measured {
    let row = &job.row;
    Measured {
        engine: job.engine.clone(),
        engine_version: (kind.version)(),
        subject: Subject {
            test: row.name.clone(),
            workload: row.work.name().to_owned(),
            pattern: row.pattern.name().to_owned(),
            threads: row.threads,
            batch_size: row.batch,
            key_size: row.key_size,
            value_size: row.value_size,
            range_size: row.range_size,
            params: Default::default(),
        },
        repeat: job.repeat,
        durability: job.config.durability,
        rate: job.rate,
        sustained: row.sustained,
        seconds_min: row.seconds_min,
        load: None,
        seconds: 0.0,
        wall_seconds: 0.0,
        units: 0,
        hits: 0,
        misses: 0,
        kinds: Vec::new(),
        write_buffer_bytes: Some(job.config.write_buffer_bytes),
        user_bytes_written: 0,
        user_bytes_read: 0,
        usage: Usage::default(),
        usage_settled: Usage::default(),
        written: Written::default(),
        settled: Settled::default(),
        settle_cpu_seconds: None,
        iteration: None,
        rss_peak_bytes: 0,
        vms_peak_bytes: 0,
        rss_anon_peak_bytes: 0,
        rss_file_peak_bytes: 0,
        db_bytes: 0,
        live_bytes: None,
        stall_us: None,
        timeline: Vec::new(),
        counters: Default::default(),
        rows_verified: 0,
        aborts: None,
        beside: None,
        interrupted: false,
    }
}
