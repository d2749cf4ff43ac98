//! The settings that every engine gets alike.

use crate::engine::{Codec, Durability, EngineConfig};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub(crate) struct EngineFlags {
    /// Directory of the databases; one below it for each engine
    #[arg(long, value_name = "DIR")]
    pub(crate) db: Option<PathBuf>,
    /// What a returned write survives: nothing, a killed process, a power cut [default: process]
    #[arg(long)]
    pub(crate) durability: Option<Durability>,
    /// Memory for writes before they are flushed [default: 64M]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) write_buffer: Option<u64>,
    /// Memory for blocks that were read [default: 64M]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) cache: Option<u64>,
    /// Filter bits for a key [default: 10]
    #[arg(long, value_name = "BITS")]
    pub(crate) filter_bits: Option<u32>,
    /// Compression of sorted files [default: lz4]
    #[arg(long)]
    pub(crate) codec: Option<Codec>,
    /// Threads for flushes and compactions [default: the machine's cores]
    #[arg(long, value_name = "N")]
    pub(crate) background_threads: Option<u32>,
    /// A knob of one engine, such as rocksdb.level0_stop_writes_trigger=36; repeatable
    #[arg(long, value_name = "ENGINE.NAME=VALUE")]
    pub(crate) knob: Vec<String>,
}

impl EngineFlags {
    /// Lays the flags that were given over `config`.
    pub(crate) fn apply(&self, config: &mut EngineConfig) {
        config.durability = self.durability.unwrap_or(config.durability);
        config.write_buffer_bytes = self.write_buffer.unwrap_or(config.write_buffer_bytes);
        config.cache_bytes = self.cache.unwrap_or(config.cache_bytes);
        config.filter_bits = self.filter_bits.unwrap_or(config.filter_bits);
        config.codec = self.codec.unwrap_or(config.codec);
        config.background_threads = self.background_threads.unwrap_or(config.background_threads);
    }

    /// The knobs of each engine.
    pub(crate) fn knobs(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
        let mut knobs: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for text in &self.knob {
            let parts =
                text.split_once('=').and_then(|(name, value)| Some((name.split_once('.')?, value)));
            let ((engine, name), value) =
                parts.ok_or_else(|| anyhow!("--knob {text}: write ENGINE.NAME=VALUE"))?;
            knobs.entry(engine.to_owned()).or_default().insert(name.to_owned(), value.to_owned());
        }
        Ok(knobs)
    }
}

/// A number of bytes, with K, M or G for powers of 1024.
pub(crate) fn parse_bytes(text: &str) -> Result<u64> {
    let (digits, shift) = match text.trim_end_matches("iB").chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 10),
        Some('m' | 'M') => (&text[..text.len() - 1], 20),
        Some('g' | 'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits
        .trim()
        .parse()
        .with_context(|| format!("`{text}` isn't a number of bytes such as 4096, 64M or 1G"))?;
    number
        .checked_shl(shift)
        .filter(|bytes| bytes >> shift == number)
        .ok_or_else(|| anyhow!("`{text}` is too much"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_bytes("64M").unwrap(), 64 << 20);
        assert_eq!(parse_bytes("4096").unwrap(), 4096);
        assert!(parse_bytes("lots").is_err());
        assert!(parse_bytes("99999999999G").is_err());
    }
}
