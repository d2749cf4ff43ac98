//! What a program uses: the handles, and the values they return.
//!
//! - `db`, `family`, `snapshot`, `batch`: the handles
//! - `reads`, `writes`, `calls`: the methods that several handles share, written once, and the
//!   options of single calls
//! - `ingest`, `sorted_file`: sorted keys that are loaded past the log, and files of them
//! - `transaction`, `steps`, `prepared`: transactions, small ones on one key, and those in doubt
//! - `iter`, `key_range`: ranges, cursors, and their bounds
//! - `sealed`: keeps other crates from implementing the public traits
//!
//! This room may import all others. No other room imports it.

pub(crate) mod batch;
pub(crate) mod calls;
pub(crate) mod db;
pub(crate) mod family;
pub(crate) mod ingest;
pub(crate) mod iter;
pub(crate) mod key_range;
pub(crate) mod prepared;
pub(crate) mod reads;
pub(crate) mod sealed;
pub(crate) mod snapshot;
pub(crate) mod sorted_file;
pub(crate) mod steps;
pub(crate) mod transaction;
pub(crate) mod writes;

pub use batch::{Batch, BatchFamily};
pub use calls::{CallOptions, FamilyCallOptions};
pub use db::Db;
pub use family::Family;
pub use ingest::{Ingest, IngestFamily};
pub use iter::{Cursor, Entry, Keys, Range, Values};
pub use key_range::{KeyRange, Prefix};
pub use prepared::{InDoubt, Prepared};
pub use reads::{Readable, Reads};
pub use snapshot::Snapshot;
pub use sorted_file::SortedFileWriter;
pub use transaction::{
    AbortHandle, RunningTransaction, Transaction, TransactionFamily, Transactions,
};
pub use writes::{Writes, WritesFamily};
