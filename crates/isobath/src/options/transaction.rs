//! Options of a transaction: what it is protected from, and how it commits.

use super::call::WriteOptions;
use super::list::options;
use std::time::Duration;

/// What a transaction is protected from.
///
/// At every level a commit is atomic, a transaction never sees uncommitted data, and it sees its
/// own writes. Above [`Isolation::ReadCommitted`] it reads one moment of the database, its read
/// point, and a commit fails with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict) if what the
/// level checks has changed since. The guarantee of a level holds among transactions of that level
/// or above, together with plain writes and batches. A transaction that wrote nothing meets no
/// conflict, unless a lock has moved its read point and a value that it read has ended since. At
/// every level a commit fails with [`ConflictKind::Expired`](crate::ConflictKind::Expired) if
/// `put_if`, `fetch_update` or `set_expiry` has written for a value that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Isolation {
    /// The same as [`Isolation::ReadCommitted`]: there is no way to see uncommitted data.
    ReadUncommitted,
    /// Each read sees the newest commits. No read and no write is checked. Two reads of a key may
    /// differ (a non-repeatable read), two scans of a range may show other keys (a phantom), and
    /// reads of two keys may be of two moments (read skew). Of two transactions that read a value
    /// and write a new one, one may undo the other (a lost update), and two may each read what the
    /// other one writes (write skew). A single step is safe: `put_if`, `fetch_update` and
    /// `set_expiry` lock their key until the transaction ends, and the pops their range.
    ReadCommitted,
    /// Checks the keys that were read, absent ones and those that scans returned included. What it
    /// still permits: a key that another transaction *inserts* into a range that was scanned (a
    /// phantom), and what follows from that: write skew over ranges, and a reader between two such
    /// writers that sees what no order explains.
    RepeatableRead,
    /// Checks the keys that are written: the first committer wins. What it still permits: two
    /// transactions that each read what the other one writes, keys or ranges (write skew); and a
    /// transaction that only reads, between the commits of two others, and sees a state that no
    /// order of the three explains (the read-only anomaly).
    Snapshot,
    /// Checks everything that was read. Committed transactions have the effects that they would
    /// have one after the other, in the order of the log: one that wrote at the place of its
    /// commit, one that only read at its read point. One that begins after another's commit has
    /// returned comes behind it in that order, so this is strict serializability.
    #[default]
    Serializable,
}

options! {
/// How to run a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TransactionOptions {
    /// What the transaction is protected from. Default [`Isolation::Serializable`]. A lower level
    /// meets fewer conflicts and permits more anomalies.
    pub isolation: Isolation = Isolation::Serializable,
    /// How it commits: when the commit returns, and whether it may wait for room.
    pub write: WriteOptions = WriteOptions::default(),
    /// How often [`Db::transact`](crate::Db::transact) runs its closure, at most, before it returns
    /// the conflict. Default 16; 0 counts as 1.
    pub attempts: u32 = 16,
    /// Lock what is written when it is written and, from
    /// [`Isolation::RepeatableRead`] on except at [`Isolation::Snapshot`], each key that is read by
    /// itself when it is read. What scans and counts read is not locked: the commit checks it, as
    /// without this option, and may fail with [`ErrorKind::Conflict`](crate::ErrorKind::Conflict).
    /// `lock_range` locks a range before it is scanned. Default false: the commit finds out whether
    /// others have changed what was read. Locks make others wait; they spare the work of
    /// transactions that would fail because others are faster, where many write the same keys.
    pub locking: bool = false,
    /// How long one wait for a lock takes at most. `None` uses the database's
    /// [`Options::lock_timeout`](crate::Options::lock_timeout). Then the call fails with
    /// [`ErrorKind::LockTimeout`](crate::ErrorKind::LockTimeout), which
    /// [`Db::transact`](crate::Db::transact) runs again after, unless the lock is one of a prepared
    /// transaction in doubt. So all of it may take `attempts` times as long.
    pub lock_timeout: Option<Duration> = None,
    /// How long the transaction may take, from its begin to its commit, with all attempts of
    /// [`Db::transact`](crate::Db::transact) together. Default: any time. A call after that, and
    /// one that waits for a lock then, fails with
    /// [`ErrorKind::TransactionAborted`](crate::ErrorKind::TransactionAborted). About a second
    /// later the database ends a transaction that is not called any more: it gives its locks and
    /// its read point back. A commit that has come so far that it may be written is not ended.
    pub timeout: Option<Duration> = None,
    /// How long the transaction may go without a call. Default: any time. Then it is ended like one
    /// that has reached its [`TransactionOptions::timeout`]. Steps of an iterator are no calls.
    pub idle_timeout: Option<Duration> = None,
}
}
