//! What every engine is told alike, so that work, memory and promises are equal, and the knobs
//! that only one engine knows.

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
    /// Threads for flushes and merges.
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

impl EngineConfig {
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
