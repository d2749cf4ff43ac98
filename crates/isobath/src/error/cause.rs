//! Causes within a kind of error, as enums. A program can match on them. Labels in messages and
//! metrics are derived from them.

use super::{Error, ErrorKind};
use std::borrow::Cow;
use std::fmt;

/// Why writers wait, or why a write that asked not to wait was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StallCause {
    /// Writers are slowed down because flushes fall behind.
    FlushBehind,
    /// Writers are slowed down because compactions of level 0 or of the levels below fall behind.
    CompactionBehind,
    /// Every memory budget is full.
    MemoryFull,
    /// The next segment of the log is not ready yet.
    LogFull,
    /// A transaction holds a lock on a key that would be written.
    KeyLocked,
}

impl StallCause {
    /// The label in messages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            StallCause::FlushBehind => "flush falls behind",
            StallCause::CompactionBehind => "compactions fall behind",
            StallCause::MemoryFull => "write memory is full",
            StallCause::LogFull => "the log has no room",
            StallCause::KeyLocked => "a key is locked",
        }
    }
}

impl fmt::Display for StallCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// As its label.
#[cfg(feature = "serde")]
impl serde::Serialize for StallCause {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What memory is for, as far as [`Options::memory`](crate::Options::memory) counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryClass {
    /// Writes that are not in tables yet, and those that readers still hold.
    Memtables,
    /// Decoded blocks of tables: in the block cache, under scans, behind values of the program.
    Blocks,
    /// Filters and top index blocks of open tables, and the list of all tables.
    Tables,
    /// Buffers of flushes and compactions, and of transactions that write to files.
    Jobs,
    /// What transactions have written, read and locked, prepared ones included.
    Transactions,
}

impl MemoryClass {
    pub(crate) const ALL: [MemoryClass; 5] = [
        MemoryClass::Memtables,
        MemoryClass::Blocks,
        MemoryClass::Tables,
        MemoryClass::Jobs,
        MemoryClass::Transactions,
    ];

    /// The label in messages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            MemoryClass::Memtables => "memtables",
            MemoryClass::Blocks => "blocks",
            MemoryClass::Tables => "tables",
            MemoryClass::Jobs => "jobs",
            MemoryClass::Transactions => "transactions",
        }
    }
}

impl fmt::Display for MemoryClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// As its label.
#[cfg(feature = "serde")]
impl serde::Serialize for MemoryClass {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Why a merge operator gave no value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MergeFailure {
    /// The program has opened the database without it:
    /// [`Options::merge_operator`](crate::Options::merge_operator).
    NoOperator,
    /// It returned an error, which says this.
    Refused(String),
    /// It panicked.
    Panicked,
    /// The value would have this many bytes, more than a value may have
    /// ([`MAX_VALUE_LEN`](crate::MAX_VALUE_LEN)).
    TooLong(u64),
}

impl fmt::Display for MergeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MergeFailure::NoOperator => f.write_str(
                "the database was opened without it; open it with `Options::merge_operator`",
            ),
            MergeFailure::Refused(why) => f.write_str(why),
            MergeFailure::Panicked => f.write_str("it panicked"),
            MergeFailure::TooLong(len) => {
                write!(f, "it made a value of {len} bytes, more than a value may have")
            }
        }
    }
}

/// What a transaction had done with a key that another commit changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConflictKind {
    /// It had read the key, present or not.
    Read,
    /// It writes the key, and its isolation level lets the first committer win.
    Write,
    /// It had scanned a range that contains the key, present or not.
    Range,
    /// It had read a value of the key that has ended since.
    Expired,
}

impl fmt::Display for ConflictKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConflictKind::Read => "it had read",
            ConflictKind::Write => "it writes",
            ConflictKind::Range => "it had scanned past",
            ConflictKind::Expired => "it had read",
        })
    }
}

/// Why a transaction was ended before its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AbortReason {
    /// It took longer than [`TransactionOptions::timeout`](crate::TransactionOptions::timeout).
    Timeout,
    /// It was not called for longer than
    /// [`TransactionOptions::idle_timeout`](crate::TransactionOptions::idle_timeout).
    Idle,
    /// A thread called [`AbortHandle::abort`](crate::AbortHandle::abort).
    Asked,
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AbortReason::Timeout => "it took longer than its `timeout`",
            AbortReason::Idle => "it was not called for longer than its `idle_timeout`",
            AbortReason::Asked => "its `AbortHandle` was used",
        })
    }
}

/// One part of a deadlock: who waits, and for which key. What keeps it from the key is the next
/// part of the deadlock's cycle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct DeadlockWait {
    /// The number of the waiting transaction, as in
    /// [`Transaction::id`](crate::Transaction::id). `None` for a write outside of any transaction.
    pub transaction: Option<u64>,
    /// The column family of the key.
    pub family: String,
    /// The key.
    pub key: Vec<u8>,
}

impl fmt::Display for DeadlockWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.transaction {
            Some(id) => write!(f, "transaction {id}")?,
            None => f.write_str("a plain write")?,
        }
        write!(f, " waits for {}", ShownKey { family: &self.family, key: &self.key })
    }
}

/// A key in the text of an error.
pub(super) struct ShownKey<'a> {
    pub(super) family: &'a str,
    pub(super) key: &'a [u8],
}

impl fmt::Display for ShownKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN_MAX: usize = 32;
        let dots = if self.key.len() > SHOWN_MAX { "..." } else { "" };
        let shown = &self.key[..self.key.len().min(SHOWN_MAX)];
        write!(f, "the key \"{}{dots}\" of column family {:?}", shown.escape_ascii(), self.family)
    }
}

/// The process that has a database open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockHolder {
    /// Another handle in this process.
    ThisProcess,
    /// The process with this id.
    #[non_exhaustive]
    Process {
        /// The operating system's process id.
        id: u32,
    },
    /// A process that did not write its id.
    Unknown,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockHolder::ThisProcess => f.write_str("this process"),
            LockHolder::Process { id } => write!(f, "process {id}"),
            LockHolder::Unknown => f.write_str("another process"),
        }
    }
}

/// Why a directory is not a usable database. The text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NotADatabaseCause {
    /// There is no `CURRENT` file, and no other file of a database.
    Empty,
    /// The creation of the database was interrupted before anything could be written to it.
    InterruptedCreate,
    /// `CURRENT` is missing, although other files show that there was a database.
    #[non_exhaustive]
    CurrentLost {
        /// A description of these files.
        evidence: String,
    },
    /// There is no database, and the options do not allow creating one (`create_if_missing`).
    NotCreated,
    /// The directory holds files of something else.
    OtherFiles,
    /// The directory now holds another database than the one that is open for reading.
    Replaced,
    /// The database's history ends before the point that readers have already seen: it was restored
    /// or repaired while readers had it open.
    #[non_exhaustive]
    Restored {
        /// Where the history ends.
        ends_at: u64,
        /// The point that readers have already seen.
        shown: u64,
    },
    /// The database was opened for writing more often since a reader read it last than it keeps
    /// account of. So it is not known whether it is the one that was shown, or was restored.
    OpenedTooOften,
}

impl fmt::Display for NotADatabaseCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotADatabaseCause::Empty => f.write_str(
                "it holds no CURRENT file; check the path, or create a database there",
            ),
            NotADatabaseCause::InterruptedCreate => f.write_str(
                "its creation was interrupted before anything could be written to it; create it again",
            ),
            NotADatabaseCause::CurrentLost { evidence } => write!(
                f,
                "its CURRENT file is missing and with it the name of the manifest, yet there are {evidence}; nothing \
                 was touched, run `isobath repair`"
            ),
            NotADatabaseCause::NotCreated => {
                f.write_str("there is none, and `create_if_missing` is not set")
            }
            NotADatabaseCause::OtherFiles => {
                f.write_str("it holds other files; give an empty or a new directory, in a volume one of its own")
            }
            NotADatabaseCause::Replaced => {
                f.write_str("another one stands in its place; open it again")
            }
            NotADatabaseCause::Restored { ends_at, shown } => write!(
                f,
                "its history ends at {ends_at:#x} now, before {shown:#x}, which was shown already; it was restored or \
                 repaired: open it again"
            ),
            NotADatabaseCause::OpenedTooOften => f.write_str(
                "it was opened too often since it was read last: nothing tells whether it is the one that was shown, or was \
                 restored; open it again",
            ),
        }
    }
}

/// Why a database refuses writes until it is opened again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PoisonCause {
    /// An operation that commits depend on has failed.
    #[non_exhaustive]
    Failed {
        /// The failure.
        error: Error,
    },
    /// A thread of the engine panicked: a broken invariant, which is a bug.
    #[non_exhaustive]
    Panicked {
        /// What the thread was doing.
        doing: Cow<'static, str>,
        /// The panic's message, if it is known.
        message: String,
    },
    /// A panic of the calling thread left an operation half done: a broken invariant, which is a
    /// bug.
    #[non_exhaustive]
    GivenUp {
        /// The operation that was left half done.
        what: Cow<'static, str>,
    },
}

impl PoisonCause {
    /// The cause that `error` contains, or `error` itself as a cause.
    pub(crate) fn of(error: &Error) -> PoisonCause {
        match error.kind() {
            ErrorKind::Poisoned { cause } | ErrorKind::OutcomeUnknown { cause } => cause.clone(),
            _ => PoisonCause::Failed { error: error.clone() },
        }
    }

    #[cold]
    pub(crate) fn panicked(doing: impl Into<Cow<'static, str>>, message: &str) -> PoisonCause {
        PoisonCause::Panicked { doing: doing.into(), message: message.to_owned() }
    }

    #[cold]
    pub(crate) fn given_up(what: impl Into<Cow<'static, str>>) -> PoisonCause {
        PoisonCause::GivenUp { what: what.into() }
    }

    /// The error below this cause's own text.
    pub(super) fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PoisonCause::Failed { error } => std::error::Error::source(error),
            PoisonCause::Panicked { .. } | PoisonCause::GivenUp { .. } => None,
        }
    }
}

impl fmt::Display for PoisonCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoisonCause::Failed { error } => error.fmt(f),
            PoisonCause::Panicked { doing, message } if message.is_empty() => {
                write!(f, "a thread panicked {doing}")
            }
            PoisonCause::Panicked { doing, message } => {
                write!(f, "a thread panicked {doing}: {message}")
            }
            PoisonCause::GivenUp { what } => write!(f, "{what} was given up halfway"),
        }
    }
}
