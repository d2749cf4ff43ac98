//! `suite`: fixed rows.

use super::SharedFlags;
use super::engines::parse_bytes;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub(crate) struct SuiteFlags {
    /// The suite; `isobath-bench suites` lists them
    #[arg(required_unless_present = "config")]
    pub(crate) name: Option<String>,
    /// Settings to start from, as a file that a suite has saved; flags override it
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
    /// Size of everything: 1 is ten million operations a row [default: 0.1; smoke: 0.001]
    #[arg(long)]
    pub(crate) scale: Option<f64>,
    /// Threads of rows that don't fix them [default: the machine's cores, at most 8]
    #[arg(long, short = 't')]
    pub(crate) threads: Option<u64>,
    /// Only rows of these names, or whose names contain them, separated by commas
    #[arg(long, value_delimiter = ',')]
    pub(crate) rows: Vec<String>,
    /// Keys in a batch of rows that write, in place of the suite's own, separated by commas
    #[arg(long = "batch", value_delimiter = ',', value_name = "KEYS")]
    pub(crate) batches: Vec<u64>,
    /// Seconds that a row lasts at least; it also fills eight write buffers [default: 10; smoke:
    /// 0; sustained rows: 60]
    #[arg(long, conflicts_with = "quick")]
    pub(crate) seconds: Option<f64>,
    /// No least length: to see that all of it runs, not how fast
    #[arg(long)]
    pub(crate) quick: bool,
    /// Bytes of a key [default: 16]
    #[arg(long)]
    pub(crate) key_size: Option<usize>,
    /// Bytes of a value, in rows that aren't about its size [default: 100]
    #[arg(long, value_parser = |text: &str| parse_bytes(text).map(|bytes| bytes as usize))]
    pub(crate) value_size: Option<usize>,
    /// Operations a second to start in all, whatever the engine does (open loop): latency counts
    /// from when a call was due
    #[arg(long, value_name = "PER_SECOND")]
    pub(crate) rate: Option<f64>,
    /// Keep the databases
    #[arg(long)]
    pub(crate) keep: bool,
    #[command(flatten)]
    pub(crate) shared: SharedFlags,
}
