//! `run`: a Lua workload.

use super::SharedFlags;
use super::engines::parse_bytes;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub(crate) struct RunFlags {
    /// The workload, a Lua file
    #[arg(value_name = "FILE.lua", required_unless_present = "config")]
    pub(crate) workload: Option<PathBuf>,
    /// Settings to start from, as a file that a run has saved; flags override it
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
    /// Numbers of threads to run with, separated by commas [default: 1]
    #[arg(long, short = 't', value_delimiter = ',')]
    pub(crate) threads: Vec<u64>,
    /// Threads that load [default: the machine's cores]
    #[arg(long, value_name = "N")]
    pub(crate) load_threads: Option<u64>,
    /// Seconds of each point [default: 10]
    #[arg(long, short = 's')]
    pub(crate) seconds: Option<f64>,
    /// Calls of `run` at each point, at most
    #[arg(long, value_name = "N")]
    pub(crate) units: Option<u64>,
    /// Items, as the workload understands them
    #[arg(long)]
    pub(crate) items: Option<u64>,
    /// Users, as the workload understands them
    #[arg(long)]
    pub(crate) users: Option<u64>,
    /// Keys a batch, as the workload understands it
    #[arg(long)]
    pub(crate) batch: Option<u64>,
    /// Bytes of a generated key
    #[arg(long)]
    pub(crate) key_size: Option<usize>,
    /// Bytes of a generated value
    #[arg(long, value_parser = |text: &str| parse_bytes(text).map(|bytes| bytes as usize))]
    pub(crate) value_size: Option<usize>,
    /// Where random choices begin [default: 42]
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// A parameter's values, replacing the workload's own: B=1,64,256; repeatable
    #[arg(long, value_name = "NAME=V,V")]
    pub(crate) sweep: Vec<String>,
    /// Load each engine once and run every point on that database
    #[arg(long)]
    pub(crate) load_once: bool,
    /// Use the database that is there, as it is
    #[arg(long, conflicts_with = "load_once")]
    pub(crate) no_load: bool,
    /// Wait until flushes and compactions are done after loading and after running
    #[arg(long)]
    pub(crate) settle: bool,
    /// Units a second to start in all, whatever the engine does (open loop): latency counts from
    /// when a unit was due
    #[arg(long, value_name = "PER_SECOND")]
    pub(crate) rate: Option<f64>,
    /// Find the highest rate whose p99 is under so many milliseconds
    #[arg(long, value_name = "MS", conflicts_with = "rate")]
    pub(crate) ramp_p99_ms: Option<f64>,
    #[command(flatten)]
    pub(crate) shared: SharedFlags,
}
