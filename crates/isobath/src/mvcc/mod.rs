//! Multi-version concurrency: what a version of a key is, and what that means for reads and
//! rewrites.
//!
//! - `kind`      what an operation does to its key: the only place that distinguishes kinds
//! - `expiry`    values that end: what is stored, and whether the end has come
//! - `cursor`    a version, and the trait to walk versions in order
//! - `resolve`   what a reader at a read point finds for a key
//! - `readers`   the points at which readers read, now or later
//! - `fold`      which operands of a key may be folded, and what becomes of its versions
//! - `operator`  what a merge operator is, the bundled ones, and the only place that calls one
//! - `retain`    which versions readers need, and which may be dropped
//! - `rewrite`   the loop over versions that flushes, compactions and repairs share
//!
//! Nothing here knows where versions are stored. All rooms that store them may import this one.

mod cursor;
pub(crate) mod expiry;
mod filter;
mod fold;
mod kind;
pub(crate) mod operator;
mod readers;
mod resolve;
mod retain;
mod rewrite;

pub(crate) use cursor::{Cursor, Entry, next_key_by_comparing};
pub(crate) use expiry::{Expiring, FirstEnd, Moment};
pub use filter::{CompactionFilter, FilterEntry, FilterFailure, FilterVerdict};
pub(crate) use filter::{Filtering, Filters, Tally};
pub(crate) use kind::{Effect, OpKind};
pub use operator::MergeOperator;
pub(crate) use operator::{Merging, Operators};
pub(crate) use readers::ReaderPoints;
pub(crate) use resolve::{Resolved, resolve};
pub(crate) use retain::{Retain, Verdict};
pub(crate) use rewrite::{Rewrite, Versions, rewrite};

/// A log sequence number: a position in the byte space of the log, and also an MVCC sequence
/// number. The sequence number of an operation is the LSN of its commit plus its ordinal in the
/// commit.
///
/// A *read point* is an LSN at the end of a record. A reader at point `p` sees exactly the
/// operations whose sequence number is below `p`.
pub(crate) type Lsn = u64;
