//! Internals for the benchmarks. They are not part of the crate's interface and change without
//! notice.
#![allow(missing_docs)]

pub mod compact;
pub mod log;
pub mod memtable;
pub mod merge;
pub mod planner;
pub mod table;
