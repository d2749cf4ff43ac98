//! The settings that every engine gets alike, so that work, memory and durability are equal, and
//! the knobs that only one engine knows.

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

/// What a returned write survives. Rows are compared only when this is equal.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    /// Nothing: a killed process may lose returned writes.
    Buffered,
    /// A killed process, not a power cut.
    Process,
    /// A power cut.
    Sync,
}

impl Durability {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Durability::Buffered => "buffered",
            Durability::Process => "process",
            Durability::Sync => "sync",
        }
    }
}

/// Compression of sorted files.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Codec {
    None,
    Lz4,
    Zstd,
    Snappy,
}

/// How to open an engine.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EngineConfig {
    pub(crate) path: PathBuf,
    pub(crate) durability: Durability,
    pub(crate) write_buffer_bytes: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) filter_bits: u32,
    pub(crate) codec: Codec,
    /// Threads that compact. Another one flushes, where the engine has threads for it.
    pub(crate) background_threads: u32,
    /// The engine's own knobs, verbatim.
    pub(crate) knobs: BTreeMap<String, String>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            path: PathBuf::new(),
            durability: Durability::Process,
            write_buffer_bytes: 64 << 20,
            cache_bytes: 64 << 20,
            filter_bits: 10,
            codec: Codec::Lz4,
            background_threads: std::thread::available_parallelism().map_or(2, |n| n.get() as u32),
            knobs: BTreeMap::new(),
        }
    }
}

/// The most write buffers that an engine holds before its writers wait, including the one being
/// filled. It is as many as Isobath holds. Engines that have an option for it get this value.
#[cfg(any(feature = "rocksdb", feature = "tidesdb", feature = "redb"))]
pub(crate) const UNFLUSHED_BUFFERS: u64 = 3;

/// Far above what anyone needs, and far below what overflows a sum.
const BYTES_MAX: u64 = 1 << 42;
const WRITE_BUFFER_MIN: u64 = 64 << 10;

impl EngineConfig {
    /// Fails on sizes that no engine can have.
    pub(crate) fn check(&self) -> Result<()> {
        if !(WRITE_BUFFER_MIN..=BYTES_MAX).contains(&self.write_buffer_bytes) {
            bail!("a write buffer of {} bytes is impossible (64K to 4T)", self.write_buffer_bytes);
        }
        if self.cache_bytes > BYTES_MAX {
            bail!("a cache of {} bytes is impossible (at most 4T)", self.cache_bytes);
        }
        if self.filter_bits > 64 {
            bail!("{} filter bits a key are impossible (0 to 64)", self.filter_bits);
        }
        if !(1..=1024).contains(&self.background_threads) {
            bail!("background threads go from 1 to 1024");
        }
        Ok(())
    }

    /// Fails when a knob was given that the engine doesn't know.
    pub(crate) fn check_knobs(&self, engine: &str, known: &[&str]) -> Result<()> {
        for name in self.knobs.keys() {
            if !known.contains(&name.as_str()) {
                let list =
                    if known.is_empty() { "it has none".to_owned() } else { known.join(", ") };
                bail!("engine {engine} has no knob `{name}` (its knobs: {list})");
            }
        }
        Ok(())
    }

    /// The knob's value, if it was given.
    pub(crate) fn knob<T>(&self, name: &str) -> Result<Option<T>>
    where
        T: FromStr,
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        self.knobs
            .get(name)
            .map(|text| text.parse().with_context(|| format!("knob `{name}` can't be `{text}`")))
            .transpose()
    }
}

/// Fails on a rate that no clock can keep.
pub(crate) fn check_rate(rate: Option<f64>) -> Result<()> {
    match rate {
        Some(rate) if !(1e-3..=1e9).contains(&rate) => bail!("a rate must be from 0.001 to 1e9"),
        _ => Ok(()),
    }
}

/// Fails on a time that no clock can count.
pub(crate) fn check_seconds(name: &str, seconds: f64) -> Result<()> {
    match seconds {
        seconds if (0.0..1e7).contains(&seconds) => Ok(()),
        _ => bail!("{name} must be from 0 to 1e7 seconds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_sizes_are_refused() {
        let base = EngineConfig::default();
        base.check().unwrap();
        let wrong = [
            EngineConfig { write_buffer_bytes: 0, ..base.clone() },
            EngineConfig { write_buffer_bytes: u64::MAX, ..base.clone() },
            EngineConfig { cache_bytes: u64::MAX, ..base.clone() },
            EngineConfig { filter_bits: u32::MAX, ..base.clone() },
            EngineConfig { background_threads: 0, ..base.clone() },
            EngineConfig { background_threads: u32::MAX, ..base },
        ];
        wrong.iter().for_each(|config| assert!(config.check().is_err(), "{config:?}"));
    }

    #[test]
    fn rates_and_times_that_no_clock_keeps_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300, 1e-300] {
            assert!(check_rate(Some(rate)).is_err(), "{rate}");
        }
        for seconds in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            assert!(check_seconds("x", seconds).is_err(), "{seconds}");
        }
        check_rate(None).unwrap();
        check_rate(Some(1000.0)).unwrap();
        check_seconds("x", 0.0).unwrap();
    }
}
