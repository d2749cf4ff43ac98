//! `db_bench`: RocksDB's own tool's benchmarks and flags, as far as they mean something for every
//! engine.

use super::engines::parse_bytes;
use crate::engine::Codec;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
#[command(rename_all = "snake_case")]
pub(crate) struct DbBenchFlags {
    /// What to run, in order: fillseq, fillrandom, fillsync, overwrite, readrandom, readmissing,
    /// readseq, seekrandom, multireadrandom, readwhilewriting, deleteseq, deleterandom,
    /// waitforcompaction
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "fillseq,fillrandom,overwrite,readrandom,readseq,seekrandom,readwhilewriting,deleterandom"
    )]
    pub(crate) benchmarks: Vec<String>,
    /// Keys, and operations of each thread
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) num: u64,
    /// Operations of each reading thread [default: num]
    #[arg(long)]
    pub(crate) reads: Option<u64>,
    /// Bytes of a key
    #[arg(long, default_value_t = 16)]
    pub(crate) key_size: usize,
    /// Bytes of a value; half of them compress
    #[arg(long, default_value_t = 100)]
    pub(crate) value_size: usize,
    /// Threads of each benchmark
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: u64,
    /// Keys written or looked up together
    #[arg(long, default_value_t = 1)]
    pub(crate) batch_size: u64,
    /// Rows read after each seek
    #[arg(long, default_value_t = 0)]
    pub(crate) seek_nexts: u64,
    /// Seconds that a benchmark of random keys lasts, in place of its number of operations
    #[arg(long, default_value_t = 0.0)]
    pub(crate) duration: f64,
    /// Where random choices begin
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// Use the database that is there also for the benchmarks that fill one
    #[arg(long)]
    pub(crate) use_existing_db: bool,
    /// Every write survives a power cut
    #[arg(long)]
    pub(crate) sync: bool,
    /// Percentiles below each line
    #[arg(long)]
    pub(crate) histogram: bool,
    /// The engine
    #[arg(long, short = 'e', default_value = "isobath")]
    pub(crate) engine: String,
    /// Directory of the database
    #[arg(long, default_value = "data/db_bench")]
    pub(crate) db: PathBuf,
    /// Memory for writes before they are flushed
    #[arg(long, default_value = "64M", value_parser = parse_bytes)]
    pub(crate) write_buffer_size: u64,
    /// Memory for blocks that were read
    #[arg(long, default_value = "64M", value_parser = parse_bytes)]
    pub(crate) cache_size: u64,
    /// Filter bits for a key
    #[arg(long, default_value_t = 10)]
    pub(crate) bloom_bits: u32,
    /// Compression of sorted files
    #[arg(long, default_value = "lz4")]
    pub(crate) compression_type: Codec,
    /// Threads for flushes and compactions [default: the machine's cores]
    #[arg(long)]
    pub(crate) max_background_jobs: Option<u32>,
}
