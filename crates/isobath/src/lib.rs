//! The public interface of the engine. The text that follows is the project's README.
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Shipped code reaches files, time and threads through `host` and `vfs` only. Tests may use the
// standard library.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_types))]

#[cfg(not(any(target_pointer_width = "64", target_pointer_width = "32")))]
compile_error!("lengths of blocks are kept in 32 bits: a target of 32 or 64 bits is needed");

mod api;
mod background;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod bench_support;
mod blob;
mod close;
mod collect;
mod compact;
mod conflict;
mod cursor;
#[cfg(all(test, shuttle))]
mod db_model;
mod engine;
#[cfg(feature = "testing")]
pub mod env;
#[cfg(not(feature = "testing"))]
#[allow(dead_code, unreachable_pub, unused_imports)] // Public under the feature `testing`.
mod env;
mod error;
mod events;
mod family_spec;
mod flush;
mod follow;
mod footprint;
mod format;
#[cfg(any(all(test, not(any(loom, shuttle))), fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod gap;
#[cfg(doctest)]
mod guide;
#[allow(dead_code, unreachable_pub, unused_imports)]
// Public under the feature `testing`, as `env` is.
mod host;
mod limits;
mod lock;
mod maintenance;
mod memory;
mod memtable;
mod metrics;
mod mvcc;
pub mod operators;
mod options;
mod pinned;
#[cfg(all(test, shuttle))]
mod point_model;
mod read;
mod read_point;
mod recover;
mod sizes;
mod span;
mod table;
mod telemetry;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
pub mod tools;
mod transact;
mod version;
#[cfg(feature = "testing")]
pub mod vfs;
#[cfg(not(feature = "testing"))]
#[allow(dead_code, unreachable_pub, unused_imports)] // Public under the feature `testing`.
mod vfs;
mod wal;
mod write;
mod xid;

// Inside the crate, `crate::db` is short for `crate::api::db`.
use api::{
    batch, calls, db, family, ingest, iter, key_range, reads, sealed, snapshot, steps, stream,
    transaction, writes,
};

pub use api::{
    AbortHandle, Batch, BatchFamily, CallOptions, Cursor, Db, Entry, Family, FamilyCallOptions,
    InDoubt, Ingest, IngestFamily, KeyRange, Keys, Prefix, Prepared, Range, Readable, Reads,
    RunningTransaction, Snapshot, SortedFileWriter, Streamed, Transaction, TransactionFamily,
    Transactions, ValueReader, ValueWriter, Values, Writes, WritesFamily,
};
pub use env::Env;
pub use error::{
    AbortReason, BoxError, ConflictKind, DeadlockWait, Error, ErrorKind, LockHolder, MemoryClass,
    MergeFailure, NotADatabaseCause, PoisonCause, Result, StallCause,
};
pub use events::{BackgroundJob, CompactionReason, Event};
pub use family_spec::FamilySpec;
pub use limits::{
    MAX_BATCH_LEN, MAX_FAMILY_NAME_LEN, MAX_KEY_LEN, MAX_STREAM_LEN, MAX_VALUE_LEN, MAX_XID_LEN,
};
pub use lock::LockMode;
pub use metrics::{
    CompactionMetrics, FamilyMetrics, LevelMetrics, MemoryMetrics, Metrics, StallMetrics,
};
pub use mvcc::{CompactionFilter, FilterEntry, FilterFailure, FilterVerdict, MergeOperator};
pub use options::{
    Durability, Expiry, FamilyOptions, GIB, Isolation, KIB, MIB, Options, ReadOptions,
    TransactionOptions, WriteOptions,
};
pub use pinned::{Key, Value};
pub use read::{DistinctKeys, Estimate};
pub use read_point::ReadPoint;
#[cfg(feature = "simulation")]
pub use sizes::Sizes;
pub use table::BlockCache;
pub use table::Codec;
pub use transact::{CommitHook, OperationKind, Operations, WrittenOperation};
pub use vfs::IoMode;
pub use write::Commit;
pub use xid::Xid;
