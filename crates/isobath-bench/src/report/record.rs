//! The record of a run: plain data that every sink reads and that JSON keeps.

use crate::engine::{Durability, Settled, Written};
use crate::measure::{KindLatency, Machine, OpKind, Sample, Usage};
use crate::suite::Beside;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was run. Two records are comparable if their subjects differ only in engine and repeat.
#[derive(Clone, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Subject {
    pub(crate) test: String,
    pub(crate) workload: String,
    pub(crate) pattern: String,
    pub(crate) threads: u64,
    pub(crate) batch_size: u64,
    pub(crate) key_size: usize,
    pub(crate) value_size: usize,
    pub(crate) range_size: u64,
    /// The parameters swept, by name.
    pub(crate) params: BTreeMap<String, String>,
}

impl Subject {
    /// A short name that tells this subject from the others of a run.
    pub(crate) fn label(&self) -> String {
        let params: String =
            self.params.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        format!("{} t{}{params}", self.test, self.threads)
    }
}

/// How the data was written.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Load {
    pub(crate) operations: u64,
    pub(crate) seconds: f64,
    pub(crate) device_write_bytes: Option<u64>,
    pub(crate) settled: Settled,
    pub(crate) timeline: Vec<Sample>,
}

impl Load {
    /// Keys a second that were loaded, where any were.
    pub(crate) fn rate(&self) -> Option<f64> {
        (self.operations > 0 && self.seconds > 0.0).then(|| self.operations as f64 / self.seconds)
    }
}

/// A timed pass over every row of a database.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Iteration {
    pub(crate) rows: u64,
    pub(crate) seconds: f64,
}

impl Iteration {
    /// Rows a second; an empty database has none.
    pub(crate) fn rate(&self) -> Option<f64> {
        (self.rows > 0 && self.seconds > 0.0).then(|| self.rows as f64 / self.seconds)
    }
}

/// One engine on one subject, once.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Measured {
    pub(crate) engine: String,
    pub(crate) engine_version: String,
    pub(crate) subject: Subject,
    pub(crate) repeat: u64,
    /// What was served, which may be less than what was asked for.
    pub(crate) durability: Durability,
    /// Operations a second that were started in open loop; none in closed loop, where a thread
    /// calls again as soon as it was answered.
    pub(crate) rate: Option<f64>,
    /// True for a row that is measured for a minute, after twenty write buffers were written.
    /// `backlog_grew` tells whether compactions kept up with it.
    pub(crate) sustained: bool,
    /// How long the measured phase should have lasted at least; 0 where no length was asked for.
    pub(crate) seconds_min: f64,
    pub(crate) load: Option<Load>,
    /// The longest time a thread spent in timed sections; what rates are divided by.
    pub(crate) seconds: f64,
    pub(crate) wall_seconds: f64,
    pub(crate) units: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) kinds: Vec<KindLatency>,
    /// The engine's buffer for writes, as it was asked for.
    pub(crate) write_buffer_bytes: Option<u64>,
    pub(crate) user_bytes_written: u64,
    pub(crate) user_bytes_read: u64,
    /// Of the measured phase.
    pub(crate) usage: Usage,
    /// Of the measured phase and of the work that it left: flush, settle, close.
    pub(crate) usage_settled: Usage,
    /// The engine's own count, over the same time as `usage_settled`, without the close.
    pub(crate) written: Written,
    pub(crate) settled: Settled,
    /// Processor time from the end of the measured phase until that was done, without the pass
    /// below; `None` if it wasn't done.
    pub(crate) settle_cpu_seconds: Option<f64>,
    /// A whole pass over what the row left, before it settled.
    pub(crate) iteration: Option<Iteration>,
    pub(crate) rss_peak_bytes: u64,
    pub(crate) vms_peak_bytes: u64,
    pub(crate) rss_anon_peak_bytes: u64,
    pub(crate) rss_file_peak_bytes: u64,
    pub(crate) db_bytes: u64,
    /// Keys and values that a reader can see at the end, where the harness knows.
    pub(crate) live_bytes: Option<u64>,
    pub(crate) stall_us: Option<u64>,
    pub(crate) timeline: Vec<Sample>,
    pub(crate) counters: BTreeMap<String, f64>,
    /// Rows compared with what they must be, after the measured phase.
    pub(crate) rows_verified: u64,
    /// Transactions that had to be run again; `None` where there were none at all.
    pub(crate) aborts: Option<u64>,
    /// The reader beside the writers, if the row has one.
    pub(crate) beside: Option<Beside>,
    pub(crate) interrupted: bool,
}

impl Measured {
    /// Keys touched by all operations.
    pub(crate) fn primitives(&self) -> u64 {
        self.kinds
            .iter()
            .filter(|entry| entry.kind != OpKind::Unit)
            .map(|entry| entry.primitives)
            .sum()
    }

    /// The calls of one kind, if there were any.
    pub(crate) fn kind(&self, kind: OpKind) -> Option<&KindLatency> {
        self.kinds.iter().find(|entry| entry.kind == kind)
    }

    /// Write buffers that the keys and values written would fill; `None` if nothing was written.
    pub(crate) fn buffers_filled(&self) -> Option<f64> {
        let written = (self.user_bytes_written > 0).then_some(self.user_bytes_written)?;
        ratio(written, self.write_buffer_bytes?)
    }

    pub(crate) fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }

    /// Keys of one kind of call a second of the time spent in such calls, over all threads: the
    /// rates of puts and gets apart. In open loop latency holds waiting too, and this isn't
    /// known.
    pub(crate) fn rate_of(&self, entry: &KindLatency) -> Option<f64> {
        let seconds = entry.latency.mean_us * entry.latency.count as f64 / 1e6;
        let known = self.rate.is_none() && seconds > 0.0;
        known.then(|| entry.primitives as f64 * self.subject.threads as f64 / seconds)
    }

    /// Keys a second over the whole phase, the making of keys and values included.
    pub(crate) fn wall_rate(&self) -> Option<f64> {
        (self.wall_seconds > 0.0).then(|| self.primitives() as f64 / self.wall_seconds)
    }

    /// The share of the phase that was in timed sections. The rest went into making keys and
    /// values, while flushes and compactions went on, so a small share flatters the engine.
    pub(crate) fn timed_share(&self) -> Option<f64> {
        (self.wall_seconds > 0.0).then(|| self.seconds / self.wall_seconds)
    }

    /// Keys a second until flushes and compactions were done, which a burst leaves behind.
    pub(crate) fn paid_rate(&self) -> Option<f64> {
        let seconds = self.wall_seconds + self.settled.seconds;
        self.paid().then(|| self.primitives() as f64 / seconds)
    }

    /// Processor time of a key until then.
    pub(crate) fn paid_cpu_us_per_op(&self) -> Option<f64> {
        let seconds = self.usage.cpu_seconds() + self.settle_cpu_seconds?;
        self.paid().then(|| seconds * 1e6 / self.primitives() as f64)
    }

    /// Whether background work was waited for, and all of it was done.
    fn paid(&self) -> bool {
        self.settled.seconds > 0.0 && self.settled.debt_left == 0 && self.primitives() > 0
    }

    /// Peaks of memory in bytes; `None` where the kernel didn't tell, as a process always has some.
    pub(crate) fn resident_peak(&self) -> Option<f64> {
        peak(self.rss_peak_bytes)
    }

    pub(crate) fn anonymous_peak(&self) -> Option<f64> {
        peak(self.rss_anon_peak_bytes)
    }

    pub(crate) fn file_peak(&self) -> Option<f64> {
        peak(self.rss_file_peak_bytes)
    }

    pub(crate) fn writes(&self) -> bool {
        self.kinds.iter().any(|entry| entry.kind.writes())
    }

    /// Bytes that files were made dirty with, as the kernel counts them, for each byte the user
    /// wrote, until the debt was paid.
    pub(crate) fn write_amplification(&self) -> Option<f64> {
        ratio(self.usage_settled.device_write_bytes?, self.user_bytes_written)
    }

    /// The same, as the engine counts its log, flushes and compactions.
    pub(crate) fn engine_write_amplification(&self) -> Option<f64> {
        ratio(self.written.total()?, self.user_bytes_written)
    }

    pub(crate) fn read_amplification(&self) -> Option<f64> {
        ratio(self.usage.device_read_bytes?, self.user_bytes_read)
    }

    pub(crate) fn space_amplification(&self) -> Option<f64> {
        ratio(self.db_bytes, self.live_bytes?)
    }

    /// `None` if nothing was done.
    pub(crate) fn cpu_us_per_op(&self) -> Option<f64> {
        let primitives = self.primitives();
        (primitives > 0).then(|| self.usage.cpu_seconds() * 1e6 / primitives as f64)
    }

    /// The processor time, as a percentage of one processor's.
    pub(crate) fn cpu_percent(&self) -> f64 {
        quotient(self.usage.cpu_seconds() * 100.0, self.wall_seconds)
    }

    /// Attempts that failed, for each transaction that committed.
    pub(crate) fn aborts_per_commit(&self) -> Option<f64> {
        let entry = self.kind(OpKind::Txn)?;
        Some(quotient(self.aborts? as f64, entry.latency.count as f64))
    }

    pub(crate) fn hit_rate(&self) -> Option<f64> {
        let looked = self.hits + self.misses;
        (looked > 0).then(|| self.hits as f64 / looked as f64)
    }

    /// Whether the phase ended before it had lasted long enough, because it ran out of keys.
    pub(crate) fn short(&self) -> bool {
        self.wall_seconds < self.seconds_min * 0.98
    }

    /// The mean backlog about the middle of the phase and in its last fifth; `None` where it was
    /// too short to be sampled.
    pub(crate) fn backlog_trend(&self) -> Option<(f64, f64)> {
        let end = self.timeline.last()?.seconds;
        let mean = |from: f64, to: f64| {
            let among = self.timeline.iter().filter(|at| (from..=to).contains(&(at.seconds / end)));
            let values: Vec<f64> = among.filter_map(|at| Some(at.backlog? as f64)).collect();
            (values.len() >= 3).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        Some((mean(0.4, 0.6)?, mean(0.8, 1.0)?))
    }

    /// Whether a sustained row had more background work left at its end than in its middle, with an
    /// allowance for the sampling.
    pub(crate) fn backlog_grew(&self) -> bool {
        self.sustained
            && self.backlog_trend().is_some_and(|(middle, end)| end > middle * BACKLOG_SLACK + 1.0)
    }

    pub(crate) fn level_zero_files_max(&self) -> Option<u64> {
        self.timeline.iter().filter_map(|sample| sample.level_zero_files).max()
    }

    /// Keys a second in each five seconds of the phase, or in each tenth of a shorter one; none
    /// where it was sampled too rarely for that.
    pub(crate) fn windows(&self) -> Vec<f64> {
        let end = self.timeline.last().map_or(0.0, |sample| sample.seconds);
        let count = ((end / WINDOW_SECONDS) as u32).max(WINDOWS_MIN);
        let mut edges = vec![(0.0, 0)];
        for window in 1..=count {
            let until = end * f64::from(window) / f64::from(count) + 1e-9;
            let last = self.timeline.iter().rev().find(|sample| sample.seconds <= until);
            edges.extend(last.map(|sample| (sample.seconds, sample.operations)));
        }
        let apart = edges.windows(2).all(|pair| pair[1].0 > pair[0].0);
        if edges.len() <= count as usize || !apart {
            return Vec::new();
        }
        let rate = |pair: &[(f64, u64)]| {
            pair[1].1.saturating_sub(pair[0].1) as f64 / (pair[1].0 - pair[0].0)
        };
        edges.windows(2).map(rate).collect()
    }

    /// By what factor the rate of a window differs from that of the next, at most.
    pub(crate) fn steepest_step(&self) -> Option<f64> {
        let windows = self.windows();
        let step = |pair: &[f64]| pair[0].max(pair[1]) / pair[0].min(pair[1]);
        windows.windows(2).map(step).filter(|step| step.is_finite()).reduce(f64::max)
    }

    /// Why a ratio of this and `other` would mean nothing, if so.
    pub(crate) fn unequal(&self, other: &Measured) -> Option<&'static str> {
        self.unlike(other).or_else(|| {
            (self.backlog_grew() || other.backlog_grew())
                .then_some("don't both pay their debt as they go")
        })
    }

    /// Whether this and `other` were asked for different things. Reads don't depend on durability.
    pub(crate) fn unlike(&self, other: &Measured) -> Option<&'static str> {
        if self.subject != other.subject || self.sustained != other.sustained {
            return Some("did different work");
        }
        if self.rate != other.rate {
            return Some("were driven at different rates");
        }
        if self.durability != other.durability && (self.writes() || other.writes()) {
            return Some("promise different durability");
        }
        None
    }
}

/// A backlog rises and falls like a saw, so it may end this much above its middle without growing.
const BACKLOG_SLACK: f64 = 1.1;

pub(crate) fn quotient(numerator: f64, denominator: f64) -> f64 {
    if denominator > 0.0 { numerator / denominator } else { 0.0 }
}

fn peak(bytes: u64) -> Option<f64> {
    (bytes > 0).then_some(bytes as f64)
}

fn ratio(numerator: u64, denominator: u64) -> Option<f64> {
    (denominator > 0).then(|| numerator as f64 / denominator as f64)
}

/// How long the parts are that a sustained phase is cut into, to see whether its rate holds, and
/// how many there are at least.
const WINDOW_SECONDS: f64 = 5.0;
const WINDOWS_MIN: u32 = 10;

/// A whole run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    pub(crate) format: u32,
    pub(crate) run_id: String,
    pub(crate) title: String,
    /// What to type to do it again.
    pub(crate) command: String,
    /// The effective configuration, as TOML.
    pub(crate) config: String,
    pub(crate) machine: Machine,
    pub(crate) rows: Vec<Measured>,
    /// Rows that failed, and why: an engine crashed, ran out of time or gave a wrong answer.
    pub(crate) failures: Vec<String>,
    /// What a reader must know, such as data on a RAM file system.
    pub(crate) warnings: Vec<String>,
}

/// The version of the JSON that this build writes.
pub(crate) const REPORT_FORMAT: u32 = 2;

impl Report {
    /// Engines in order of first appearance.
    pub(crate) fn engines(&self) -> Vec<&str> {
        let mut engines: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !engines.contains(&row.engine.as_str()) {
                engines.push(&row.engine);
            }
        }
        engines
    }

    /// Subjects in order of first appearance.
    pub(crate) fn subjects(&self) -> Vec<&Subject> {
        let mut subjects: Vec<&Subject> = Vec::new();
        for row in &self.rows {
            if !subjects.contains(&&row.subject) {
                subjects.push(&row.subject);
            }
        }
        subjects
    }

    /// Every repeat of an engine on a subject.
    pub(crate) fn repeats(&self, engine: &str, subject: &Subject) -> Vec<&Measured> {
        self.rows.iter().filter(|row| row.engine == engine && row.subject == *subject).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::measure::Sample;
    use crate::report::testing::sample_report;

    #[test]
    fn windows_last_five_seconds_and_a_stall_shows_in_them_however_long_the_phase() {
        let mut row = sample_report().rows.remove(0);
        let sampled = |seconds: u64, stalled: std::ops::Range<u64>| {
            let mut operations = 0;
            let samples = (1..=2 * seconds).map(|half| {
                let rate = if stalled.contains(&(half / 2)) { 10 } else { 1000 };
                operations += rate;
                Sample { seconds: half as f64 / 2.0, operations, ..Sample::default() }
            });
            samples.collect::<Vec<_>>()
        };
        row.timeline = sampled(600, 300..306);
        let windows = row.windows();
        assert_eq!(windows.len(), 120);
        let slowest = windows.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(slowest < 200.0, "{slowest}");
        assert!(row.steepest_step().unwrap() > 5.0);
        row.timeline = sampled(20, 0..0);
        assert_eq!(row.windows().len(), 10, "a short one is cut into tenths");
        assert!(row.steepest_step().unwrap() < 1.01);
        row.timeline.truncate(3);
        assert!(row.windows().is_empty() && row.steepest_step().is_none());
    }
}
