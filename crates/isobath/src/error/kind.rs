//! The kinds of errors.

use super::cause::{LockHolder, NotADatabaseCause, PoisonCause, StallCause};
use std::fmt;
use std::io;
use std::path::PathBuf;

/// What went wrong, with its particulars: [`Error::kind`](crate::Error::kind).
///
/// Kinds and their fields can be added, so a `match` needs a `_` arm, and the pattern of a kind
/// ends with `..`.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused an operation on a file.
    #[non_exhaustive]
    Io {
        /// What was tried, as a verb: "open", "sync", "map".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's own error.
        source: io::Error,
    },

    /// Bytes on disk are not what was written. Nothing was deleted; the rest stays readable.
    #[non_exhaustive]
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// What did not match.
        detail: String,
    },

    /// A file was written by a newer version of Isobath.
    #[non_exhaustive]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// What it needs.
        detail: String,
    },

    /// The file, or the database in this directory, is compressed with a codec that this build of
    /// the crate was made without. Nothing is damaged.
    #[non_exhaustive]
    MissingCodec {
        /// The file, or the database's directory.
        path: PathBuf,
        /// The codec, and the feature of the crate that brings it.
        codec: &'static str,
    },

    /// The directory holds no database.
    #[non_exhaustive]
    NotADatabase {
        /// The directory.
        path: PathBuf,
        /// What is missing.
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
        /// Who holds it.
        holder: LockHolder,
    },

    /// An argument or option is outside what the engine accepts. Nothing was changed.
    #[non_exhaustive]
    InvalidArgument {
        /// What, and what would be accepted.
        detail: String,
    },

    /// No column family has this name, or the handle's was dropped. A later one of the same name
    /// takes a new handle.
    #[non_exhaustive]
    UnknownFamily {
        /// The name that was asked for, or that the handle's family had.
        name: String,
    },

    /// A column family of this name exists already.
    #[non_exhaustive]
    FamilyExists {
        /// The name.
        name: String,
    },

    /// The write was asked not to wait and would have had to. Retry later.
    #[non_exhaustive]
    WouldStall {
        /// What the write would have waited for.
        cause: StallCause,
    },

    /// An earlier write or sync failed, so the database refuses writes; reads go on.
    #[non_exhaustive]
    Poisoned {
        /// The first failure.
        cause: PoisonCause,
    },

    /// The log failed while this commit waited for its sync, or for commits before it: whether it
    /// survives is known only after a reopen.
    ///
    /// Until then reads go by memory. A commit that waited for its sync was visible before, to all
    /// readers, and stays so, though the next open may not find it. One that waited for commits
    /// before it becomes visible once all of these have been applied; if one of them could not
    /// be written to the log, neither it nor any later commit does. A column family whose drop ends
    /// so is gone until the reopen; one whose creation or renaming does is not there, or has its
    /// old name. [`Db::sync_to`](crate::Db::sync_to) the read point of a snapshot fails where
    /// it shows what may be lost.
    #[non_exhaustive]
    OutcomeUnknown {
        /// The failure.
        cause: PoisonCause,
    },

    /// The database is open for reading only: see
    /// [`Options::read_only`](crate::Options::read_only).
    #[non_exhaustive]
    ReadOnly {},

    /// What the log holds beyond the tables does not fit the memory that a reader may take for it.
    /// Nothing was changed.
    #[non_exhaustive]
    MemoryLimit {
        /// The bytes that were taken when it was given up.
        needed: u64,
        /// The bytes that may be taken.
        limit: u64,
    },

    /// The process that writes changed the files faster than they could be read, again and again.
    /// Try again.
    #[non_exhaustive]
    Outrun {
        /// The directory.
        path: PathBuf,
        /// How often it was tried.
        attempts: u32,
    },

    /// The database was closed.
    #[non_exhaustive]
    Closed {},

    /// The operation was cancelled by its caller or by a closing database.
    #[non_exhaustive]
    Cancelled {},
}

impl ErrorKind {
    /// A word that never changes, for logs and bindings.
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
            ErrorKind::UnknownFamily { .. } => "UNKNOWN_FAMILY",
            ErrorKind::FamilyExists { .. } => "FAMILY_EXISTS",
            ErrorKind::WouldStall { .. } => "WOULD_STALL",
            ErrorKind::Poisoned { .. } => "POISONED",
            ErrorKind::OutcomeUnknown { .. } => "OUTCOME_UNKNOWN",
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
            ErrorKind::Io { action, path, source } => {
                write!(f, "could not {action} {}: {source}", path.display())
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
            ErrorKind::UnknownFamily { name } => write!(
                f,
                "there is no column family {name:?}; create it first, or see `Db::list_families`; handles of a \
                 dropped family do not reach a new one of that name"
            ),
            ErrorKind::FamilyExists { name } => {
                write!(f, "a column family {name:?} exists already")
            }
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
                "the commit's outcome is unknown, its sync failed: {cause}; reopen the database to find out"
            ),
            ErrorKind::ReadOnly {} | ErrorKind::MemoryLimit { .. } | ErrorKind::Outrun { .. } => {
                self.fmt_of_reader(f)
            }
            ErrorKind::Closed {} => write!(f, "the database is closed"),
            ErrorKind::Cancelled {} => write!(f, "the operation was cancelled"),
        }
    }
}

impl ErrorKind {
    /// The text of the kinds that a database open for reading only has.
    fn fmt_of_reader(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorKind::ReadOnly {} => write!(
                f,
                "the database is open for reading only; open it without `read_only` to change it"
            ),
            ErrorKind::MemoryLimit { needed, limit } => write!(
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
