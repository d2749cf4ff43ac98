//! Internals as the benchmarks see them. No part of the crate's interface: it changes without
//! notice.
#![allow(missing_docs)]

pub mod compact;
pub mod memtable;
pub mod merge;
pub mod planner;
pub mod table;
