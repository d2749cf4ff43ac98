//! What tools need of a database beyond opening it: checking every file, looking at one, and reading what the
//! manifest says. But for [`repair`] nothing here writes: damaged files stay as they are.
//!
//! - [`verify`] checks every checksum of every file of a closed database and lists what it finds;
//! - [`inspect`] tells what a closed database consists of;
//! - [`dump`] shows one file, whole or damaged, item by item;
//! - [`repair`] makes a damaged database usable again.
//!
//! `verify` and `inspect` hold the database's lock meanwhile, so what they see holds still.

mod dump;
mod dump_log;
mod dump_manifest;
mod dump_table;
mod inspect;
mod lock;
mod lost_and_found;
mod repair;
mod report;
mod verify;
mod verify_directory;
mod verify_log;
mod verify_manifest;
mod verify_tables;

pub use dump::{DumpItem, Field, dump};
pub use inspect::{Inspection, SegmentFile, SliceInTable, TableInUse, inspect};
pub use repair::{Loss, MovedFile, RepairOptions, RepairReport, repair};
pub use report::{Finding, Report};
pub use verify::verify;
