//! Causes within a kind of error, as enums: a program decides by them, and labels in messages and
//! metrics are derived from them.

use super::{Error, ErrorKind};
use std::borrow::Cow;
use std::fmt;

/// Why writers wait, or why one that asked not to wait was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StallCause {
    /// Writers are paced: flushes fall behind.
    FlushBehind,
    /// Writers are paced: level 0 or the levels below fall behind.
    CompactionBehind,
    /// Every memory budget is full.
    MemoryFull,
    /// The next segment of the log is not there yet.
    LogFull,
}

impl StallCause {
    /// The label in messages and metrics.
    pub fn name(self) -> &'static str {
        match self {
            StallCause::FlushBehind => "flush falls behind",
            StallCause::CompactionBehind => "compactions fall behind",
            StallCause::MemoryFull => "write memory is full",
            StallCause::LogFull => "the log has no room",
        }
    }
}

impl fmt::Display for StallCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Who has a database open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockHolder {
    /// Another handle in this process.
    ThisProcess,
    /// The process of this id.
    #[non_exhaustive]
    Process {
        /// As the operating system numbers them.
        id: u32,
    },
    /// A process that has not said which it is.
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

/// What a directory lacks to be a database. Its text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NotADatabaseCause {
    /// There is no `CURRENT` file, nor anything that one would belong to.
    Empty,
    /// The creation of the database was cut short before anything could be written to it.
    InterruptedCreate,
    /// `CURRENT` is missing, although other files say that there was a database.
    #[non_exhaustive]
    CurrentLost {
        /// Which files, in words.
        evidence: String,
    },
    /// There is none, and the options do not allow to create one (`create_if_missing`).
    NotCreated,
    /// It holds files that belong to something else.
    OtherFiles,
    /// It holds another database now than the one that is open for reading.
    Replaced,
    /// Its history ends before what was shown already: it was restored or repaired beside its
    /// readers.
    #[non_exhaustive]
    Restored {
        /// Where its history ends.
        ends_at: u64,
        /// What was shown already.
        shown: u64,
    },
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
                f.write_str("it holds other files; give an empty or a new directory")
            }
            NotADatabaseCause::Replaced => {
                f.write_str("another one stands in its place; open it again")
            }
            NotADatabaseCause::Restored { ends_at, shown } => write!(
                f,
                "its history ends at {ends_at:#x} now, before {shown:#x}, which was shown already; it was restored or \
                 repaired: open it again"
            ),
        }
    }
}

/// Why a database refuses writes until it is opened again.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PoisonCause {
    /// An operation that commits depend on failed.
    #[non_exhaustive]
    Failed {
        /// How it failed.
        error: Error,
    },
    /// A thread of the engine panicked: a broken invariant, which is a bug.
    #[non_exhaustive]
    Panicked {
        /// What the thread did.
        doing: Cow<'static, str>,
        /// What the panic said, if that is known.
        message: String,
    },
    /// Something was given up halfway, by a panic of the calling thread: a broken invariant, which
    /// is a bug.
    #[non_exhaustive]
    GivenUp {
        /// What was given up.
        what: Cow<'static, str>,
    },
}

impl PoisonCause {
    /// The cause that `error` is, or stands for.
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

    /// What lies below the words of the cause.
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
