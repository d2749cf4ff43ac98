//! The benchmarks, their sizes, and the line that reports one.

use crate::generate::{KEY_LEN_MIN, VALUE_LEN_MIN};
use crate::measure::KindLatency;
use anyhow::{Result, bail};
use std::fmt;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Bench {
    FillSeq,
    FillRandom,
    FillSync,
    Overwrite,
    ReadRandom,
    ReadMissing,
    ReadSeq,
    SeekRandom,
    MultiReadRandom,
    ReadWhileWriting,
    DeleteSeq,
    DeleteRandom,
    WaitForCompaction,
}

const NAMES: [(&str, Bench); 13] = [
    ("fillseq", Bench::FillSeq),
    ("fillrandom", Bench::FillRandom),
    ("fillsync", Bench::FillSync),
    ("overwrite", Bench::Overwrite),
    ("readrandom", Bench::ReadRandom),
    ("readmissing", Bench::ReadMissing),
    ("readseq", Bench::ReadSeq),
    ("seekrandom", Bench::SeekRandom),
    ("multireadrandom", Bench::MultiReadRandom),
    ("readwhilewriting", Bench::ReadWhileWriting),
    ("deleteseq", Bench::DeleteSeq),
    ("deleterandom", Bench::DeleteRandom),
    ("waitforcompaction", Bench::WaitForCompaction),
];

impl Bench {
    pub(crate) fn named(name: &str) -> Result<Bench> {
        match NAMES.iter().find(|(known, _)| *known == name) {
            Some((_, bench)) => Ok(*bench),
            None => {
                let known = NAMES.map(|(name, _)| name).join(", ");
                bail!("there is no benchmark `{name}` (there are {known})")
            }
        }
    }

    pub(crate) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, bench)| *bench == self).map_or("", |(name, _)| name)
    }

    /// Whether it begins with an empty database.
    pub(crate) fn fills(self) -> bool {
        matches!(self, Bench::FillSeq | Bench::FillRandom | Bench::FillSync)
    }

    pub(super) fn reads(self) -> bool {
        self.looks_up() || self == Bench::ReadSeq
    }

    /// Whether its line says how many keys were found.
    pub(super) fn looks_up(self) -> bool {
        matches!(
            self,
            Bench::ReadRandom
                | Bench::ReadMissing
                | Bench::SeekRandom
                | Bench::MultiReadRandom
                | Bench::ReadWhileWriting
        )
    }

    /// Whether it can go on for a given time.
    pub(super) fn random(self) -> bool {
        !matches!(self, Bench::FillSeq | Bench::ReadSeq | Bench::DeleteSeq)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) num: u64,
    pub(crate) reads: u64,
    pub(crate) key_size: usize,
    pub(crate) value_size: usize,
    pub(crate) threads: u64,
    pub(crate) batch: u64,
    pub(crate) seek_nexts: u64,
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
}

impl Size {
    pub(crate) fn check(&self) -> Result<()> {
        if !(1..=1 << 40).contains(&self.num) || !(1..=1024).contains(&self.threads) {
            bail!("num goes from 1 to 2^40, threads from 1 to 1024");
        }
        if !(KEY_LEN_MIN..=65_535).contains(&self.key_size)
            || !(VALUE_LEN_MIN..=1 << 30).contains(&self.value_size)
        {
            bail!("keys have {KEY_LEN_MIN} to 65535 bytes, values {VALUE_LEN_MIN} bytes to 1 GiB");
        }
        if !(1..=1_000_000).contains(&self.batch) || !(0.0..1e7).contains(&self.seconds) {
            bail!("batch_size goes from 1 to 1000000, duration from 0 to 1e7 seconds");
        }
        Ok(())
    }

    pub(crate) fn entry_bytes(&self) -> u64 {
        (self.key_size + self.value_size) as u64
    }
}

/// The results of a benchmark, printed as `db_bench` prints them.
pub(crate) struct Line {
    pub(super) bench: Bench,
    pub(super) operations: u64,
    /// The time of all threads together.
    pub(super) thread_seconds: f64,
    /// The time of the slowest thread.
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    /// How many keys were found, and how many were looked up.
    pub(super) found: Option<(u64, u64)>,
    pub(crate) kinds: Vec<KindLatency>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds.max(1e-9);
        write!(
            f,
            "{:<12} : {:>11.3} micros/op {:.0} ops/sec {:.3} seconds {} operations;",
            self.bench.name(),
            self.thread_seconds * 1e6 / self.operations.max(1) as f64,
            self.operations as f64 / seconds,
            self.seconds,
            self.operations
        )?;
        if self.bytes > 0 {
            write!(f, " {:>6.1} MB/s", self.bytes as f64 / 1_048_576.0 / seconds)?;
        }
        match self.found {
            Some((found, asked)) => write!(f, " ({found} of {asked} found)"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_as_that_of_db_bench() {
        let line = Line {
            bench: Bench::ReadRandom,
            operations: 1_000_000,
            thread_seconds: 4.0,
            seconds: 2.0,
            bytes: 116 << 20,
            found: Some((632_104, 1_000_000)),
            kinds: Vec::new(),
        };
        assert_eq!(
            line.to_string(),
            "readrandom   :       4.000 micros/op 500000 ops/sec 2.000 seconds 1000000 operations;   58.0 MB/s \
             (632104 of 1000000 found)"
        );
    }

    #[test]
    fn an_unknown_benchmark_is_refused_with_the_known_ones() {
        assert!(Bench::named("fillfast").unwrap_err().to_string().contains("fillrandom"));
    }
}
