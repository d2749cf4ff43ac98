//! `compare`: two reports, and how much worse the later one may be.

use clap::Args;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub(crate) struct CompareFlags {
    /// The earlier report.json
    pub(crate) before: PathBuf,
    /// The later report.json
    pub(crate) after: PathBuf,
    /// Percent by which a rate may fall
    #[arg(long, default_value_t = 5.0, value_name = "PERCENT")]
    pub(crate) threshold: f64,
    /// Percent by which the p99 of a kind of call may rise
    #[arg(long, default_value_t = 25.0, value_name = "PERCENT")]
    pub(crate) p99_threshold: f64,
    /// Percent by which the peak of anonymous memory may rise
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT")]
    pub(crate) memory_threshold: f64,
    /// Percent by which the size on disk may rise
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT")]
    pub(crate) disk_threshold: f64,
    /// Percent by which write amplification may rise
    #[arg(long, default_value_t = 10.0, value_name = "PERCENT")]
    pub(crate) amplification_threshold: f64,
    /// Compare reports of different machines or settings all the same
    #[arg(long)]
    pub(crate) unlike: bool,
}
