//! Multi-version concurrency: what a version of a key is, and what follows from it for readers and
//! for rewrites.
//!
//! - `kind`      what an operation does to its key: the one place that tells kinds apart
//! - `cursor`    a version, and the way to walk versions in order
//! - `resolve`   what a reader at a read point finds of a key
//! - `readers`   the points that readers read at, now or later
//! - `retain`    which versions they need, and which may be dropped
//! - `rewrite`   the loop over versions that flushes, compactions and repairs share
//!
//! Nothing here knows what holds the versions: all other rooms stand above this one.

mod cursor;
mod kind;
mod readers;
mod resolve;
mod retain;
mod rewrite;

pub(crate) use cursor::{Cursor, Entry, next_key_by_comparing};
pub(crate) use kind::Effect;
pub(crate) use kind::OpKind;
pub(crate) use readers::ReaderPoints;
pub(crate) use resolve::{Resolved, resolve};
pub(crate) use retain::{Retain, Verdict};
pub(crate) use rewrite::{Rewrite, Versions, rewrite};

/// A log sequence number: a position in the flat byte space of the log, and at once an MVCC
/// sequence number. An operation's sequence is the LSN of its commit plus its ordinal within the
/// commit.
///
/// A *read point* is an LSN on a record's end: a reader at point `p` sees exactly the operations
/// whose sequence is below `p`.
pub(crate) type Lsn = u64;
