//! The kinds of errors.

use super::cause::{
    AbortReason, ConflictKind, DeadlockWait, LockHolder, MemoryClass, MergeFailure,
    NotADatabaseCause, PoisonCause, ShownKey, StallCause,
};
use crate::read_point::ReadPoint;
use crate::xid::Xid;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// What went wrong, with details: [`Error::kind`](crate::Error::kind).
///
/// Later versions may add kinds and fields. So a `match` needs a `_` arm, and the pattern of a kind
/// ends with `..`.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused an operation on a file.
    #[non_exhaustive]
    Io {
        /// The failed operation, as a verb: "open", "sync", "map".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's own error.
        source: io::Error,
        /// What was wanted of the file, if that is known: of a value that lies there, the offset
        /// and the key. Else empty.
        detail: String,
    },

    /// Bytes on disk are not what was written. Nothing was deleted; the rest stays readable.
    #[non_exhaustive]
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// The position in the file, in bytes.
        offset: u64,
        /// What did not match.
        detail: String,
    },

    /// A newer version of Isobath wrote the file.
    #[non_exhaustive]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// What the file needs.
        detail: String,
    },

    /// The file, or the database in this directory, uses a codec that this build of the crate
    /// lacks. Nothing is damaged.
    #[non_exhaustive]
    MissingCodec {
        /// The file, or the database's directory.
        path: PathBuf,
        /// The codec, which is also the name of the crate feature to turn on.
        codec: &'static str,
    },

    /// The directory holds no database.
    #[non_exhaustive]
    NotADatabase {
        /// The directory.
        path: PathBuf,
        /// What is missing or wrong.
        cause: NotADatabaseCause,
    },

    /// The directory holds a database, and the options ask for a new one (`error_if_exists`).
    #[non_exhaustive]
    AlreadyExists {
        /// The directory.
        path: PathBuf,
    },

    /// Another process, or another handle in this one, has the database open.
    #[non_exhaustive]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process that holds the lock.
        holder: LockHolder,
    },

    /// An argument or option is outside what the engine accepts. Nothing was changed.
    #[non_exhaustive]
    InvalidArgument {
        /// What is wrong, and what would be accepted.
        detail: String,
    },

    /// An ingest takes the keys of each family in ascending order, each once: see
    /// [`Ingest`](crate::Ingest). This key was not taken; the ingest is as it was before.
    #[non_exhaustive]
    OutOfOrder {
        /// The column family, or the file of sorted keys.
        family: String,
        /// The key that came too late.
        key: Vec<u8>,
        /// The key that came before it, which is greater or the same.
        after: Vec<u8>,
    },

    /// The state at this read point or time can no longer be read: see
    /// [`Options::history`](crate::Options::history).
    #[non_exhaustive]
    PointTooOld {
        /// The oldest point that can be read.
        oldest: ReadPoint,
    },

    /// No column family has this name, or the family of this handle was dropped. A new family of
    /// the same name needs a new handle.
    #[non_exhaustive]
    UnknownFamily {
        /// The requested name, or the name of the handle's family.
        name: String,
    },

    /// A column family of this name exists already.
    #[non_exhaustive]
    FamilyExists {
        /// The name.
        name: String,
    },

    /// The write asked not to wait, and would have had to wait. Retry later.
    #[non_exhaustive]
    WouldStall {
        /// What the write would have waited for.
        cause: StallCause,
    },

    /// An earlier write or sync failed, so the database refuses writes. Reads still work, but what
    /// ends from now on is shown until the database is opened again: nothing can note the time.
    #[non_exhaustive]
    Poisoned {
        /// The first failure.
        cause: PoisonCause,
    },

    /// The log failed while this commit waited for its sync or for earlier commits. Only a reopen
    /// tells whether the commit survives.
    ///
    /// Until the reopen, reads see what is in memory. A commit that waited for its sync was already
    /// visible to all readers and stays visible, but the next open may not find it. A commit that
    /// waited for earlier ones becomes visible once all of them have been applied. If one of them
    /// could not be written to the log, neither this commit nor any later one becomes visible. A
    /// family whose drop fails this way is gone until the reopen. A family whose creation fails
    /// does not exist, and one whose renaming fails keeps its old name.
    /// [`Db::sync_to`](crate::Db::sync_to) the read point of a snapshot fails if the snapshot shows
    /// commits that may be lost.
    #[non_exhaustive]
    OutcomeUnknown {
        /// The failure.
        cause: PoisonCause,
    },

    /// Another commit changed what the transaction relies on, or, with `fail_fast`, may have: very
    /// many of its keys kept changing. Nothing was written. Run the
    /// transaction again from its start: [`Db::transact`](crate::Db::transact) does.
    #[non_exhaustive]
    Conflict {
        /// The column family of the key.
        family: String,
        /// A key that was changed.
        key: Vec<u8>,
        /// What the transaction had done with the key.
        kind: ConflictKind,
    },

    /// Each of several transactions waits for a lock that the next one keeps from it, and this one
    /// was chosen to give way: it is the youngest. Nothing of it was written. Run the transaction
    /// again from its start: [`Db::transact`](crate::Db::transact) does. A plain write, or another
    /// transaction, gets this error as well if it waits for a transaction that the same thread has
    /// called last and that therefore cannot go on. Then write through that transaction, or end it
    /// first.
    #[non_exhaustive]
    Deadlock {
        /// Who waits for which key, beginning with the caller. Each waits for the next one, and the
        /// last for the first.
        cycle: Vec<DeadlockWait>,
    },

    /// A lock was not free within the time that the options allow
    /// ([`Options::lock_timeout`](crate::Options::lock_timeout),
    /// [`TransactionOptions::lock_timeout`](crate::TransactionOptions::lock_timeout)). Nothing was
    /// written. Run the transaction or the write again; end transactions that hold locks soon.
    #[non_exhaustive]
    LockTimeout {
        /// The column family of the key.
        family: String,
        /// The locked key.
        key: Vec<u8>,
        /// The number of a transaction that holds the key or waits for it longer, as in
        /// [`Transaction::id`](crate::Transaction::id), if there still was one.
        holder: Option<u64>,
        /// Its name if it is prepared and in doubt. It keeps the key until it is decided:
        /// [`Db::commit_prepared`](crate::Db::commit_prepared) or
        /// [`Db::rollback_prepared`](crate::Db::rollback_prepared).
        xid: Option<Xid>,
    },

    /// The transaction was ended by its timeout, or by another thread. It holds no locks and no
    /// read point any more, and nothing was written. Every later call gives the same error, except
    /// [`Transaction::reset`](crate::Transaction::reset).
    #[non_exhaustive]
    TransactionAborted {
        /// What ended it.
        reason: AbortReason,
    },

    /// The commit hook of the program refused the commit: see [`CommitHook`](crate::CommitHook).
    /// Nothing was written.
    #[non_exhaustive]
    CommitVetoed {
        /// What the hook says.
        source: Box<dyn std::error::Error + Send + Sync>,
    },

    /// The merge operator of a family gave no value for a key that was read. The key's operands are
    /// kept as they are, and everything else can be read.
    #[non_exhaustive]
    MergeFailed {
        /// The name of the operator.
        operator: String,
        /// The family.
        family: String,
        /// The key.
        key: Vec<u8>,
        /// Why there is no value.
        failure: MergeFailure,
    },

    /// A transaction would write or lock more than one may. What it keeps in memory is at most half
    /// of `write_buffer`; the rest goes to files, unless there is a savepoint, to which it may go
    /// back in memory alone, or an operand, or a value that a [`ValueWriter`](crate::ValueWriter)
    /// has written. One value must fit into memory, and so must a
    /// transaction that is to be prepared and, with a commit hook, what a batch may hold. Its
    /// locks, of some 320 bytes and a key each, take as much again at most. The operation that was
    /// refused has changed nothing. Commit in smaller parts, lock a range instead of very many
    /// keys, or open the database with a larger `write_buffer`.
    #[non_exhaustive]
    TransactionTooLarge {
        /// The bytes that the transaction would take.
        needed: u64,
        /// The maximum in bytes.
        limit: u64,
    },

    /// Another transaction of this name is prepared and in doubt. Nothing was prepared. Decide that
    /// one first, or take another name.
    #[non_exhaustive]
    TransactionExists {
        /// The name.
        xid: Xid,
    },

    /// No transaction of this name is in doubt: it was decided before and is forgotten, or it was
    /// never prepared. To a coordinator that repeats its decision this is success.
    #[non_exhaustive]
    UnknownTransaction {
        /// The name.
        xid: Xid,
    },

    /// The database is open for reading only: see
    /// [`Options::read_only`](crate::Options::read_only).
    #[non_exhaustive]
    ReadOnly {},

    /// The operation would take more memory than there may be. Nothing was changed.
    ///
    /// Without a `class`: the part of the log that is not in tables yet does not fit into the
    /// memory that a database open for reading may take.
    ///
    /// With one: the ceiling of [`Options::memory`](crate::Options::memory) is reached. If there is
    /// a `holder`, the same call may succeed later: once the program lets go of iterators,
    /// snapshots and values, or ends transactions, or flushes have made room. A transaction whose
    /// read, write or lock was refused goes on. Without a holder, the key and value, or the
    /// batch, is longer than the ceiling ever allows: then `limit` is what it allows.
    #[non_exhaustive]
    MemoryLimit {
        /// The bytes needed when the operation gave up.
        needed: u64,
        /// The maximum in bytes.
        limit: u64,
        /// What the memory is for.
        class: Option<MemoryClass>,
        /// What holds most of the memory below the ceiling.
        holder: Option<MemoryClass>,
    },

    /// The writing process changed the files faster than this reader could read them, in several
    /// attempts. Try again.
    #[non_exhaustive]
    Outrun {
        /// The directory.
        path: PathBuf,
        /// The number of attempts.
        attempts: u32,
    },

    /// The database was closed.
    #[non_exhaustive]
    Closed {},

    /// The operation was cancelled, by its caller or because the database closed.
    #[non_exhaustive]
    Cancelled {},
}

impl ErrorKind {
    /// A name that never changes, for logs and bindings.
    pub fn name(&self) -> &'static str {
        match self {
            ErrorKind::Io { .. } => "IO",
            ErrorKind::Corruption { .. } => "CORRUPTION",
            ErrorKind::NewerFormat { .. } => "NEWER_FORMAT",
            ErrorKind::MissingCodec { .. } => "MISSING_CODEC",
            ErrorKind::NotADatabase { .. } => "NOT_A_DATABASE",
            ErrorKind::AlreadyExists { .. } => "ALREADY_EXISTS",
            ErrorKind::Locked { .. } => "LOCKED",
            ErrorKind::InvalidArgument { .. } => "INVALID_ARGUMENT",
            ErrorKind::OutOfOrder { .. } => "OUT_OF_ORDER",
            ErrorKind::PointTooOld { .. } => "POINT_TOO_OLD",
            ErrorKind::UnknownFamily { .. } => "UNKNOWN_FAMILY",
            ErrorKind::FamilyExists { .. } => "FAMILY_EXISTS",
            ErrorKind::WouldStall { .. } => "WOULD_STALL",
            ErrorKind::Poisoned { .. } => "POISONED",
            ErrorKind::OutcomeUnknown { .. } => "OUTCOME_UNKNOWN",
            ErrorKind::Conflict { .. } => "CONFLICT",
            ErrorKind::Deadlock { .. } => "DEADLOCK",
            ErrorKind::LockTimeout { .. } => "LOCK_TIMEOUT",
            ErrorKind::TransactionAborted { .. } => "TRANSACTION_ABORTED",
            ErrorKind::CommitVetoed { .. } => "COMMIT_VETOED",
            ErrorKind::MergeFailed { .. } => "MERGE_FAILED",
            ErrorKind::TransactionTooLarge { .. } => "TRANSACTION_TOO_LARGE",
            ErrorKind::TransactionExists { .. } => "TRANSACTION_EXISTS",
            ErrorKind::UnknownTransaction { .. } => "UNKNOWN_TRANSACTION",
            ErrorKind::ReadOnly { .. } => "READ_ONLY",
            ErrorKind::MemoryLimit { .. } => "MEMORY_LIMIT",
            ErrorKind::Outrun { .. } => "OUTRUN",
            ErrorKind::Closed { .. } => "CLOSED",
            ErrorKind::Cancelled { .. } => "CANCELLED",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Io { action, path, source, detail } if detail.is_empty() => {
                write!(f, "could not {action} {}: {source}", path.display())
            }
            ErrorKind::Io { action, path, source, detail } => {
                write!(f, "could not {action} {} ({detail}): {source}", path.display())
            }
            ErrorKind::Corruption { path, offset, detail } => write!(
                f,
                "corruption in {} at offset {offset}: {detail}; see `isobath verify`, then restore the file or run \
                 `isobath repair`",
                path.display()
            ),
            ErrorKind::NewerFormat { path, detail } => write!(
                f,
                "{} has a format this version cannot read ({detail}); open it with a newer Isobath",
                path.display()
            ),
            ErrorKind::MissingCodec { path, codec } => write!(
                f,
                "{} needs the codec {codec}, which this build lacks; build Isobath with the feature `{codec}`",
                path.display()
            ),
            ErrorKind::NotADatabase { path, cause } => {
                write!(f, "{} is not an Isobath database: {cause}", path.display())
            }
            ErrorKind::AlreadyExists { path } => write!(
                f,
                "{} holds a database already; open it without `error_if_exists`, or give another directory",
                path.display()
            ),
            ErrorKind::Locked { path, holder } => write!(
                f,
                "the database {} is locked by {holder}; close it there first",
                path.display()
            ),
            ErrorKind::InvalidArgument { detail } => write!(f, "invalid argument: {detail}"),
            ErrorKind::PointTooOld { oldest } => write!(
                f,
                "the state at this point is not kept any more, see `Options::history`; the oldest point is {oldest}"
            ),
            ErrorKind::UnknownFamily { name } => write!(
                f,
                "there is no column family {name:?}; create it first, or see `Db::list_families`; handles of a \
                 dropped family do not reach a new one of that name"
            ),
            ErrorKind::FamilyExists { name } => {
                write!(f, "a column family {name:?} exists already")
            }
            ErrorKind::WouldStall { .. }
            | ErrorKind::Poisoned { .. }
            | ErrorKind::OutcomeUnknown { .. } => self.fmt_of_write(f),
            ErrorKind::Conflict { .. }
            | ErrorKind::Deadlock { .. }
            | ErrorKind::LockTimeout { .. }
            | ErrorKind::TransactionAborted { .. }
            | ErrorKind::CommitVetoed { .. }
            | ErrorKind::TransactionTooLarge { .. }
            | ErrorKind::TransactionExists { .. }
            | ErrorKind::UnknownTransaction { .. } => self.fmt_of_transaction(f),
            ErrorKind::ReadOnly {} | ErrorKind::MemoryLimit { .. } | ErrorKind::Outrun { .. } => {
                self.fmt_of_reader(f)
            }
            ErrorKind::OutOfOrder { .. } | ErrorKind::MergeFailed { .. } => self.fmt_of_key(f),
            ErrorKind::Closed {} => write!(f, "the database is closed"),
            ErrorKind::Cancelled {} => write!(f, "the operation was cancelled"),
        }
    }
}

impl ErrorKind {
    /// Formats the kinds that only writes have.
    fn fmt_of_write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::WouldStall { cause } => write!(
                f,
                "writers are paced ({cause}) and the write was asked to fail fast; retry later"
            ),
            ErrorKind::Poisoned { cause } => write!(
                f,
                "the database refuses writes since an earlier failure: {cause}; reopen it to recover what is on disk"
            ),
            ErrorKind::OutcomeUnknown { cause } => write!(
                f,
                "the commit's outcome is unknown, because the database failed before the commit was durable: {cause}; reopen the database to find out"
            ),
            _ => f.write_str(self.name()),
        }
    }

    /// Formats the kinds that are about one key.
    fn fmt_of_key(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::OutOfOrder { family, key, after } => write!(
                f,
                "{} came behind \"{}\"; an ingest takes the keys of a family in ascending order, each once",
                ShownKey { family, key },
                after[..after.len().min(64)].escape_ascii()
            ),
            ErrorKind::MergeFailed { operator, family, key, failure } => write!(
                f,
                "the merge operator {operator:?} gave no value for {}: {failure}",
                ShownKey { family, key }
            ),
            _ => f.write_str(self.name()),
        }
    }

    /// Formats the kinds that only transactions have.
    fn fmt_of_transaction(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::Conflict { family, key, kind } => {
                let key = ShownKey { family, key };
                let (with, change) = match kind {
                    ConflictKind::Expired => ("time", "has ended"),
                    _ => ("another commit", "was changed"),
                };
                write!(
                    f,
                    "the transaction conflicts with {with}: {key}, which {kind}, {change} since; nothing was written, \
                     run the transaction again"
                )
            }
            ErrorKind::Deadlock { cycle } => {
                f.write_str("a deadlock: ")?;
                if let [wait] = &**cycle {
                    return write!(
                        f,
                        "{wait}, kept from it by a transaction that this thread called last; write through that one, \
                         or end it first"
                    );
                }
                for wait in cycle {
                    write!(f, "{wait}, kept from it by the next; ")?;
                }
                f.write_str("the last is kept from it by the first, which gives way; run it again")
            }
            ErrorKind::LockTimeout { family, key, xid: Some(xid), .. } => write!(
                f,
                "{} is locked by the prepared transaction \"{xid}\", which is in doubt; nothing was written, commit \
                 or roll back that one first",
                ShownKey { family, key }
            ),
            ErrorKind::LockTimeout { family, key, holder, .. } => {
                write!(f, "{} stayed locked", ShownKey { family, key })?;
                if let Some(id) = holder {
                    write!(f, ", by transaction {id}")?;
                }
                f.write_str(", for longer than `lock_timeout`; nothing was written, try again")
            }
            ErrorKind::TransactionAborted { reason } => {
                write!(f, "the transaction was ended: {reason}; nothing was written")
            }
            ErrorKind::CommitVetoed { source } => {
                write!(f, "the commit hook refused the commit: {source}; nothing was written")
            }
            ErrorKind::TransactionTooLarge { needed, limit } => write!(
                f,
                "what the transaction writes or locks would take {needed} bytes, and may take {limit} here; commit in \
                 smaller parts, streams by themselves, lock ranges instead of keys, or open with a larger `write_buffer`"
            ),
            ErrorKind::TransactionExists { xid } => write!(
                f,
                "a transaction \"{xid}\" is prepared already and in doubt; nothing was prepared, decide that one first \
                 or take another name"
            ),
            ErrorKind::UnknownTransaction { xid } => write!(
                f,
                "no prepared transaction \"{xid}\" is in doubt: it is decided and forgotten, or was never prepared"
            ),
            _ => f.write_str(self.name()),
        }
    }

    /// Formats the kinds that only a database open for reading has.
    fn fmt_of_reader(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::ReadOnly {} => write!(
                f,
                "the database is open for reading only; open it without `read_only` to change it"
            ),
            ErrorKind::MemoryLimit { needed, limit, class: Some(class), holder: Some(holder) } => {
                write!(
                    f,
                    "{needed} bytes more for {class} would pass the ceiling of {limit} bytes for memory, of which \
                 {holder} hold most; drop iterators, snapshots and values, try again, or open with more `memory`"
                )
            }
            ErrorKind::MemoryLimit { needed, limit, class: Some(_), holder: None } => write!(
                f,
                "{needed} bytes are more than the {limit} that the ceiling for memory allows at once; write less at \
                 once, or open with more `memory`"
            ),
            ErrorKind::MemoryLimit { needed, limit, .. } => write!(
                f,
                "replaying the log takes more than {limit} bytes of memory ({needed} so far); open with a larger \
                 `write_buffer`, or have the writer flush"
            ),
            ErrorKind::Outrun { path, attempts } => write!(
                f,
                "the process that writes to {} replaced files faster than they could be read, {attempts} times in a \
                 row; try again",
                path.display()
            ),
            _ => f.write_str(self.name()),
        }
    }
}
