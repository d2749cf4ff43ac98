//! `isobath-bench`: the same work on Isobath and on its peers, side by side.

mod cli;
mod command;
mod dbbench;
mod drive;
mod engine;
mod generate;
mod lua;
mod measure;
mod report;
mod suite;

use clap::Parser;
use std::process::ExitCode;

// The crate also replaces `malloc` for C and C++ code, so that all engines use one allocator.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match command::execute(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}
