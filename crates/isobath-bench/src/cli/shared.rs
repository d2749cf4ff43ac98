//! The flags that `run` and `suite` share.

use super::EngineFlags;
use crate::generate::Compressibility;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub(crate) struct SharedFlags {
    /// Engines to run, separated by commas [default: isobath]
    #[arg(long = "engine", short = 'e', value_delimiter = ',')]
    pub(crate) engines: Vec<String>,
    /// Times that every point or row is run, engines taking turns [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) repeat: Option<u64>,
    /// Repeat as often as fits into so many minutes, at least once (and at most --repeat times, if
    /// given)
    #[arg(long, value_name = "M")]
    pub(crate) minutes: Option<f64>,
    /// How well values compress [default: half]
    #[arg(long)]
    pub(crate) compressibility: Option<Compressibility>,
    /// Where to write the report, in every form
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}
