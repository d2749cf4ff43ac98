//! The life of a transaction: begin, read and write, commit or roll back.
//!
//! - `begin`     the read point, the families it has named, and what dooms it
//! - `read`      reads that see its own writes and remember what they saw
//! - `commit`    the course of its commit: look, announce, validate, stamp
//! - `validate`  whether what it relies on is still unchanged
//! - `lock`      locking reads, and the keys that a rerun locks first
//! - `prepare`, `decide`   the two phases of a commit that another decides
//! - `hook`      what a program is asked before a commit, and told after it
//! - `watch`     transactions that another thread may end
//! - `savepoints` named moments of its writes to which it can go back
//! - `spill`     large write sets go to files, and come back at the commit if they are not too large
//! - `large`     the commit of those that do not come back
//! - `ingest`    keys that come in order, in files, and their commit
//! - `sorted_file` what an ingest takes in that was built without a database
//! - `scan`      iterators that see its own writes and record what they pass
//! - `ranges`    whether what its scans have passed is still unchanged
//! - `probe`     the newest version of a key, where the table of conflicts does not answer
//! - `rerun`     running a closure until its transaction commits
//! - `pop`       taking the first or the last key of a range
//! - `stream`    values that have files of their own
//! - `steps`     small transactions on one key
//!
//! Nothing of a transaction is in the log or in a memtable before it commits. The protocol is in
//! `docs/internals/transactions.md`.

mod begin;
mod commit;
mod decide;
mod hook;
mod ingest;
mod large;
mod lock;
mod merge;
#[cfg(all(test, shuttle))]
mod model;
mod plants;
mod pop;
mod prepare;
mod probe;
mod ranges;
mod read;
mod rerun;
mod savepoints;
mod scan;
mod sorted_file;
mod spill;
mod steps;
mod stream;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod validate;
mod watch;

pub(crate) use begin::Life;
pub(crate) use decide::{decide, decide_entry};
pub use hook::{CommitHook, OperationKind, Operations, WrittenOperation};
pub(crate) use ingest::Ingesting;
pub(crate) use pop::pop;
pub(crate) use rerun::{Outcome, rerun};
pub(crate) use scan::{Opened, Recorder, Trail, Way};
pub(crate) use sorted_file::SortedWriter;
pub(crate) use steps::{OneKey, fetch_update, put_if, set_expiry, step};
