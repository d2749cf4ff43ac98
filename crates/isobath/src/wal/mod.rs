//! The write-ahead log: it gives each commit its LSN and decides what survives a crash.
//!
//! - [`record`]: the bytes of one record; [`segment`]: one file, its name and header page
//! - [`log`]: the open log, `reserve → write → publish → sync`, made of [`room`] (the tail and
//!   the limit it may reach), [`frontier`] (the finished prefix), [`syncer`] (one shared sync),
//!   [`segment_table`] (from LSN to segment), [`health`] (poisoned, closed)
//! - [`preparer`]: the background thread; [`recycler`]: files that are not in use; [`rest`]: room
//!   that is given back
//! - [`scan`]: reads the log back after a crash; [`still`]: the log of a database that is open for
//!   reading only
//!
//! `docs/internals/log.md` says what is on disk at each step, and what recovery makes of it.

mod frontier;
#[cfg(any(all(test, not(any(loom, shuttle))), fuzzing))]
pub(crate) mod fuzzing;
mod health;
mod log;
#[cfg(all(test, loom))]
mod model;
mod plants;
mod preparer;
mod reader;
mod record;
mod recycler;
mod rest;
mod room;
mod scan;
mod segment;
mod segment_table;
mod still;
mod syncer;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod waiters;

#[cfg(all(test, any(loom, shuttle)))]
pub(crate) use frontier::Frontier;
#[cfg(all(test, any(loom, shuttle)))]
pub(crate) use health::Health;
pub(crate) use log::{Before, Log, LogOptions, RaiseCeiling, Reservation};
pub(crate) use reader::{ReadPiece, reach};
pub(crate) use record::{RECORD_ALIGN, RECORD_HEADER_LEN, RecordHeader, payload_of, seal};
pub(crate) use recycler::remove_unfinished;
pub(crate) use room::Patience;
#[cfg(all(test, any(loom, shuttle)))]
pub(crate) use room::Room;
pub(crate) use scan::{Dumped, Looked, ScanEnd, Tail, dump, dump_by, follow, scan};
pub(crate) use segment::{
    HEADER_PAGE_LEN, SEGMENT_LEN_MAX, SegmentInfo, SegmentKind, demand_segment, inventory,
};
