//! Tools for a database, beyond opening it: they check every file, show one file, and read what the
//! manifest says. Except for [`repair`], nothing here writes: damaged files stay as they are.
//!
//! - [`verify`] checks every checksum of every file of a closed database, and lists what it finds
//! - [`inspect`] returns what a closed database consists of
//! - [`dump`] shows one file, intact or damaged, item by item
//! - [`repair`] makes a damaged database usable again
//!
//! `verify` holds a shared lock on the database, so no writer changes what it checks; beside a
//! writer it checks what a reader needs. The tools share `lock.rs`, the findings in `report.rs`,
//! `lost_and_found.rs`, `blob_files.rs`, which reads values that lie apart, `spilled.rs` and
//! `streams.rs`, which look at files that records of the log name, `created.rs`, which looks at
//! families that they create, and `unreadable.rs`, which reads around places that the device cannot
//! read.

mod blob_files;
mod created;
mod dump;
mod inspect;
mod lock;
mod lost_and_found;
mod repair;
mod report;
mod spilled;
mod streams;
mod unreadable;
mod verify;

pub use dump::{DumpItem, Field, dump};
pub use inspect::{
    BlobInUse, Inspection, PreparedInFile, SegmentFile, SliceInTable, TableInUse, inspect,
};
pub use repair::{Loss, MovedFile, RepairOptions, RepairReport, repair};
pub use report::{Finding, Report};
pub use verify::verify;
