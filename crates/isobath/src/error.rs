//! The one public error: few kinds, each with what happened, where, and what to do next.

mod decode;

#[cfg(test)]
pub(crate) use decode::NamedDecoder;
pub(crate) use decode::{DecodeError, Decoded, ReadError};

use std::io;
use std::path::{Path, PathBuf};

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. A key that is not there is not an error: reads answer `Ok(None)`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a file.
    #[error("could not {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb: "open", "sync", "map".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's own error.
        source: io::Error,
    },

    /// Bytes on disk are not what was written. Nothing was deleted; the rest stays readable.
    #[error(
        "corruption in {} at offset {offset}: {detail}; see `isobath verify`, then restore the file or run `isobath repair`",
        path.display()
    )]
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// Where in the file, in bytes.
        offset: u64,
        /// What did not match.
        detail: String,
    },

    /// A file was written by a newer version of Isobath.
    #[error("{} has a format this version cannot read ({detail}); open it with a newer Isobath", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// What it needs.
        detail: String,
    },

    /// The file, or the database in this directory, is compressed with a codec that this build of the crate was made
    /// without. Nothing is damaged.
    #[error(
        "{} needs the codec {codec}, which this build lacks; build Isobath with the feature `{codec}`",
        path.display()
    )]
    MissingCodec {
        /// The file, or the database's directory.
        path: PathBuf,
        /// The codec, and the feature of the crate that brings it.
        codec: &'static str,
    },

    /// The directory holds no database.
    #[error("{} is not an Isobath database: {detail}", path.display())]
    NotADatabase {
        /// The directory.
        path: PathBuf,
        /// What is missing, and what to do.
        detail: String,
    },

    /// Another process, or another handle in this one, has the database open.
    #[error("the database {} is locked by {holder}; close it there first", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Who holds it.
        holder: String,
    },

    /// An argument or option is outside what the engine accepts. Nothing was changed.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),

    /// No column family has this name, or the handle's was dropped. A later one of the same name takes a new handle.
    #[error(
        "there is no column family {0:?}; create it first, or see `Db::list_families`; handles of a dropped family do not reach a new one of that name"
    )]
    UnknownFamily(String),

    /// A column family of this name exists already.
    #[error("a column family {0:?} exists already")]
    FamilyExists(String),

    /// The write was asked not to wait and would have had to. Retry later.
    #[error("writers are paced ({0}) and the write was asked to fail fast; retry later")]
    WouldStall(&'static str),

    /// An earlier write or sync failed, so the database refuses writes; reads go on.
    #[error(
        "the database refuses writes since an earlier failure: {0}; reopen it to recover what is on disk"
    )]
    Poisoned(String),

    /// The database is open for reading only: see [`Options::read_only`](crate::Options::read_only).
    #[error("the database is open for reading only; open it without `read_only` to change it")]
    ReadOnly,

    /// What the log holds beyond the tables does not fit the memory that a reader may take for it. Nothing was changed.
    #[error(
        "replaying the log takes more than {limit} bytes of memory ({needed} so far); open with a larger `write_budget`, or \
         have the writer flush"
    )]
    MemoryLimit {
        /// The bytes that were taken when it was given up.
        needed: u64,
        /// The bytes that may be taken.
        limit: u64,
    },

    /// The process that writes changed the files faster than they could be read, again and again. Try again.
    #[error(
        "the process that writes to {} replaced files faster than they could be read, {attempts} times in a row; try again",
        path.display()
    )]
    Outrun {
        /// The directory.
        path: PathBuf,
        /// How often it was tried.
        attempts: u32,
    },

    /// The log failed while this commit waited for its sync, or for commits before it: whether it survives is known only
    /// after a reopen.
    ///
    /// Until then reads go by memory. A commit that waited for its sync was visible before, to all readers, and stays so, though
    /// the next open may not find it. One that waited for commits before it becomes visible once all of these have been applied;
    /// if one of them could not be written to the log, neither it nor any later commit does. A column family whose drop ends
    /// so is gone until the reopen; one whose creation or renaming does is not there, or has its old name.
    /// [`Db::durable_snapshot`](crate::Db::durable_snapshot) fails rather than show what may be lost.
    #[error(
        "the commit's outcome is unknown, its sync failed: {0}; reopen the database to find out"
    )]
    OutcomeUnknown(String),

    /// The database was closed.
    #[error("the database is closed")]
    Closed,

    /// The operation was cancelled by its caller or by a closing database.
    #[error("the operation was cancelled")]
    Cancelled,
}

impl Error {
    pub(crate) fn newer_format(path: &Path, detail: impl Into<String>) -> Error {
        Error::NewerFormat { path: path.to_owned(), detail: detail.into() }
    }

    pub(crate) fn missing_codec(path: &Path, codec: &'static str) -> Error {
        Error::MissingCodec { path: path.to_owned(), codec }
    }

    pub(crate) fn corruption(path: &Path, offset: u64, detail: impl Into<String>) -> Error {
        Error::Corruption { path: path.to_owned(), offset, detail: detail.into() }
    }

    pub(crate) fn io(action: &'static str, path: &Path, source: io::Error) -> Error {
        Error::Io { action, path: path.to_owned(), source }
    }

    /// True if bytes on disk were found damaged.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Error::Corruption { .. })
    }

    /// True if the same call may succeed later without anything being repaired: no space left, too
    /// many open files, no memory in the system, a paced writer that asked not to wait, a lock held elsewhere.
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Io { source, .. } => {
                self.is_out_of_space()
                    || self.is_too_many_files()
                    || source.kind() == io::ErrorKind::OutOfMemory
            }
            Error::WouldStall(_) | Error::Locked { .. } | Error::Outrun { .. } => true,
            _ => false,
        }
    }

    /// True if the file system has no room left.
    pub fn is_out_of_space(&self) -> bool {
        matches!(self, Error::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    /// True if the process or the system has no file handles left.
    pub fn is_too_many_files(&self) -> bool {
        // ENFILE and EMFILE; on Windows ERROR_TOO_MANY_OPEN_FILES.
        let codes: &[i32] = if cfg!(windows) { &[4] } else { &[23, 24] };
        matches!(self, Error::Io { source, .. }
            if source.raw_os_error().is_some_and(|code| codes.contains(&code)))
    }
}

/// A second owner of an error that several waiters must be told of.
impl Clone for Error {
    fn clone(&self) -> Self {
        match self {
            Error::Io { action, path, source } => {
                let source = match source.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::new(source.kind(), source.to_string()),
                };
                Error::Io { action, path: path.clone(), source }
            }
            Error::Corruption { path, offset, detail } => {
                Error::Corruption { path: path.clone(), offset: *offset, detail: detail.clone() }
            }
            Error::NewerFormat { path, detail } => {
                Error::NewerFormat { path: path.clone(), detail: detail.clone() }
            }
            Error::MissingCodec { path, codec } => {
                Error::MissingCodec { path: path.clone(), codec }
            }
            Error::NotADatabase { path, detail } => {
                Error::NotADatabase { path: path.clone(), detail: detail.clone() }
            }
            Error::Locked { path, holder } => {
                Error::Locked { path: path.clone(), holder: holder.clone() }
            }
            Error::InvalidArgument(what) => Error::InvalidArgument(what.clone()),
            Error::UnknownFamily(name) => Error::UnknownFamily(name.clone()),
            Error::FamilyExists(name) => Error::FamilyExists(name.clone()),
            Error::WouldStall(why) => Error::WouldStall(why),
            Error::Poisoned(why) => Error::Poisoned(why.clone()),
            Error::OutcomeUnknown(why) => Error::OutcomeUnknown(why.clone()),
            Error::ReadOnly => Error::ReadOnly,
            Error::MemoryLimit { needed, limit } => {
                Error::MemoryLimit { needed: *needed, limit: *limit }
            }
            Error::Outrun { path, attempts } => {
                Error::Outrun { path: path.clone(), attempts: *attempts }
            }
            Error::Closed => Error::Closed,
            Error::Cancelled => Error::Cancelled,
        }
    }
}
