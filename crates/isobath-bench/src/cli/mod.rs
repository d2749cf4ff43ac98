//! The command line.

mod compare;
mod dbbench;
mod engines;
mod run;
mod shared;
mod suite;

pub(crate) use compare::CompareFlags;
pub(crate) use dbbench::DbBenchFlags;
pub(crate) use engines::EngineFlags;
pub(crate) use run::RunFlags;
pub(crate) use shared::SharedFlags;
pub(crate) use suite::SuiteFlags;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// The same work on Isobath and on its peers, side by side
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Drive a Lua workload over one or more engines
    Run(Box<RunFlags>),
    /// Run a fixed suite of rows over one or more engines
    Suite(Box<SuiteFlags>),
    /// The benchmarks of RocksDB's own tool, with its flags, on any engine
    #[command(name = "db_bench")]
    DbBench(Box<DbBenchFlags>),
    /// Compare two reports; the exit code is 1 when a row became worse or is gone
    Compare(CompareFlags),
    /// Write the page and the tables of a report again
    Render {
        /// A report.json
        report: PathBuf,
        /// Where to write them
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Print reports as Markdown tables, wins and losses counted
    Markdown {
        /// One or more report.json
        #[arg(required = true)]
        reports: Vec<PathBuf>,
    },
    /// List the suites and what they are for
    Suites,
    /// List the engines of this build
    Engines,
    /// Run one point or row in this process and print its record (how the harness isolates them)
    #[command(hide = true)]
    Job {
        file: PathBuf,
        /// The memory control group to join
        #[arg(long)]
        group: Option<PathBuf>,
    },
}
