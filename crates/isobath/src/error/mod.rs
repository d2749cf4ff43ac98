//! The one public error type. It has few kinds. Each says what happened, where, and what to do
//! next.
//!
//! An [`Error`] is one word long, so a `Result` on the read path stays small. A program can inspect
//! its [`ErrorKind`] and, for some kinds, a cause, which is an enum of its own. All of these can
//! grow without breaking a program: match the kinds you handle, and use the text of the others.

mod cause;
mod decode;
mod kind;

pub use cause::{
    AbortReason, ConflictKind, DeadlockWait, LockHolder, MemoryClass, MergeFailure,
    NotADatabaseCause, PoisonCause, StallCause,
};
#[cfg(test)]
pub(crate) use decode::NamedDecoder;
pub(crate) use decode::{DecodeError, Decoded, ReadError};
pub use kind::ErrorKind;

use crate::read_point::ReadPoint;
use crate::xid::Xid;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error of a program.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a call failed. A missing key is not an error: reads return `Ok(None)`.
///
/// The text says what happened, where, and what to do next. It includes the operating system's
/// message. [`std::error::Error::source`] continues below this text, so a chain of causes says
/// nothing twice. A clone is the same error; it costs one reference count.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let db = isobath::Db::open(dir.path())?;
/// use isobath::ErrorKind;
///
/// match db.put("", "value") {
///     Err(error) if error.is_out_of_space() => eprintln!("make room: {error}"),
///     Err(error) => match error.kind() {
///         ErrorKind::InvalidArgument { detail, .. } => eprintln!("not written: {detail}"),
///         _ => return Err(error),
///     },
///     Ok(commit) => println!("written: {commit:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Error(Arc<ErrorKind>);

impl Error {
    /// What went wrong, with details.
    #[inline]
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// The kind as a name that never changes, for logs and bindings: `"CORRUPTION"`.
    pub fn name(&self) -> &'static str {
        self.0.name()
    }

    /// True if damaged bytes were found on disk.
    pub fn is_corruption(&self) -> bool {
        matches!(self.kind(), ErrorKind::Corruption { .. })
    }

    /// True if the same call may succeed later without a repair: no space left, too many open
    /// files, no memory in the system or below the ceiling, a writer that asked not to wait, a
    /// directory that another process has locked ([`ErrorKind::Locked`]), a reader that a writer
    /// has outrun. Nothing was written. A reader that was handed over has to begin anew before the
    /// call is repeated, as it may be read in part. Of a transaction the commit cannot be called
    /// again, as it takes the transaction: run all of it again. [`Error::is_conflict`] is about
    /// locks of keys and about changes.
    pub fn is_retryable(&self) -> bool {
        match self.kind() {
            ErrorKind::Io { source, .. } => {
                self.is_out_of_space()
                    || self.is_too_many_files()
                    || source.kind() == io::ErrorKind::OutOfMemory
            }
            ErrorKind::WouldStall { .. } | ErrorKind::Locked { .. } | ErrorKind::Outrun { .. } => {
                true
            }
            ErrorKind::MemoryLimit { holder, .. } => holder.is_some(),
            _ => false,
        }
    }

    /// True if the file system is full, or if what is free is kept for flushes and compactions,
    /// which may make room by themselves.
    pub fn is_out_of_space(&self) -> bool {
        matches!(self.kind(), ErrorKind::Io { source, .. }
            if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
    }

    /// True if the process or the system has reached its limit of open files.
    pub fn is_too_many_files(&self) -> bool {
        // ENFILE and EMFILE; on Windows ERROR_TOO_MANY_OPEN_FILES.
        let codes: &[i32] = if cfg!(windows) { &[4] } else { &[23, 24] };
        matches!(self.kind(), ErrorKind::Io { source, .. }
            if source.raw_os_error().is_some_and(|code| codes.contains(&code)))
    }

    /// True if the commit may or may not survive. Only a reopen tells.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self.kind(), ErrorKind::OutcomeUnknown { .. })
    }

    /// True if other commits or transactions stand in the way of this one: run the whole
    /// transaction again, from its first read. [`Error::is_retryable`] is about the same call.
    pub fn is_conflict(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Conflict { .. } | ErrorKind::Deadlock { .. } | ErrorKind::LockTimeout { .. }
        )
    }

    /// True if the transaction was ended by a timeout or by another thread.
    pub fn is_transaction_aborted(&self) -> bool {
        matches!(self.kind(), ErrorKind::TransactionAborted { .. })
    }

    /// True if the database was closed.
    pub fn is_closed(&self) -> bool {
        matches!(self.kind(), ErrorKind::Closed { .. })
    }

    /// The operating system refused to `action` (a verb) the file at `path`. For file systems that
    /// a test implements.
    #[cold]
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> Error {
        let (path, detail) = (path.to_owned(), String::new());
        Error::new(ErrorKind::Io { action, path, source, detail })
    }

    /// There is no column family of this name. For programs that treat a missing family as an
    /// error.
    #[cold]
    pub fn unknown_family(name: &str) -> Error {
        Error::new(ErrorKind::UnknownFamily { name: name.to_owned() })
    }

    /// The error that a visitor returns to stop its caller early, for example
    /// [`crate::tools::dump`].
    #[cold]
    pub fn cancelled() -> Error {
        Error::new(ErrorKind::Cancelled {})
    }
}

/// An error shows no more bytes of a key.
const KEY_SHOWN_MAX: usize = 100;

/// Constructors. All are cold, so that their callers stay small.
impl Error {
    #[cold]
    #[inline(never)]
    pub(crate) fn new(kind: ErrorKind) -> Error {
        Error(Arc::new(kind))
    }

    #[cold]
    pub(crate) fn corruption(path: &Path, offset: u64, detail: impl Into<String>) -> Error {
        let (path, detail) = (path.to_owned(), detail.into());
        Error::new(ErrorKind::Corruption { path, offset, detail })
    }

    /// Says of damage, or of a file that cannot be read, which key it concerns.
    #[cold]
    pub(crate) fn for_key(self, key: &[u8]) -> Error {
        let shown = key[..key.len().min(KEY_SHOWN_MAX)].escape_ascii();
        let what = format!("the value of key \"{shown}\"");
        match self.kind() {
            ErrorKind::Corruption { path, offset, detail } => {
                Error::corruption(path, *offset, format!("{detail} ({what})"))
            }
            _ => self.noted(what),
        }
    }

    /// Says of a file that cannot be read what offset was wanted.
    #[cold]
    pub(crate) fn at_offset(self, offset: u64) -> Error {
        self.noted(format!("offset {offset}"))
    }

    fn noted(mut self, note: String) -> Error {
        if let Some(ErrorKind::Io { detail, .. }) = Arc::get_mut(&mut self.0) {
            let join = if detail.is_empty() { "" } else { ", " };
            *detail = format!("{detail}{join}{note}");
        }
        self
    }

    #[cold]
    pub(crate) fn newer_format(path: &Path, detail: impl Into<String>) -> Error {
        let (path, detail) = (path.to_owned(), detail.into());
        Error::new(ErrorKind::NewerFormat { path, detail })
    }

    #[cold]
    pub(crate) fn missing_codec(path: &Path, codec: &'static str) -> Error {
        Error::new(ErrorKind::MissingCodec { path: path.to_owned(), codec })
    }

    #[cold]
    pub(crate) fn not_a_database(path: &Path, cause: NotADatabaseCause) -> Error {
        Error::new(ErrorKind::NotADatabase { path: path.to_owned(), cause })
    }

    #[cold]
    pub(crate) fn already_exists(path: &Path) -> Error {
        Error::new(ErrorKind::AlreadyExists { path: path.to_owned() })
    }

    #[cold]
    pub(crate) fn locked(path: &Path, holder: LockHolder) -> Error {
        Error::new(ErrorKind::Locked { path: path.to_owned(), holder })
    }

    #[cold]
    pub(crate) fn invalid_argument(detail: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidArgument { detail: detail.into() })
    }

    #[cold]
    pub(crate) fn point_too_old(oldest: ReadPoint) -> Error {
        Error::new(ErrorKind::PointTooOld { oldest })
    }

    #[cold]
    pub(crate) fn family_exists(name: &str) -> Error {
        Error::new(ErrorKind::FamilyExists { name: name.to_owned() })
    }

    #[cold]
    pub(crate) fn would_stall(cause: StallCause) -> Error {
        Error::new(ErrorKind::WouldStall { cause })
    }

    /// What a caller is told of a lock for which it must not wait, if it says so.
    #[cold]
    pub(crate) fn into_stall(self, fail_fast: bool) -> Error {
        match self.kind() {
            ErrorKind::LockTimeout { .. } if fail_fast => Error::would_stall(StallCause::KeyLocked),
            _ => self,
        }
    }

    #[cold]
    pub(crate) fn poisoned(cause: PoisonCause) -> Error {
        Error::new(ErrorKind::Poisoned { cause })
    }

    #[cold]
    pub(crate) fn outcome_unknown(cause: PoisonCause) -> Error {
        Error::new(ErrorKind::OutcomeUnknown { cause })
    }

    #[cold]
    pub(crate) fn memory_limit(needed: u64, limit: u64) -> Error {
        Error::new(ErrorKind::MemoryLimit { needed, limit, class: None, holder: None })
    }

    /// The ceiling for memory is reached; most of it is held for `holder`.
    #[cold]
    pub(crate) fn memory_full(
        needed: u64,
        limit: u64,
        class: MemoryClass,
        holder: MemoryClass,
    ) -> Error {
        let (class, holder) = (Some(class), Some(holder));
        Error::new(ErrorKind::MemoryLimit { needed, limit, class, holder })
    }

    /// More than the ceiling for memory has room for, whatever else is held.
    #[cold]
    pub(crate) fn beyond_memory(needed: u64, limit: u64, class: MemoryClass) -> Error {
        let class = Some(class);
        Error::new(ErrorKind::MemoryLimit { needed, limit, class, holder: None })
    }

    #[cold]
    pub(crate) fn outrun(path: &Path, attempts: u32) -> Error {
        Error::new(ErrorKind::Outrun { path: path.to_owned(), attempts })
    }

    #[cold]
    pub(crate) fn conflict(family: &str, key: &[u8], kind: ConflictKind) -> Error {
        Error::new(ErrorKind::Conflict { family: family.to_owned(), key: key.to_owned(), kind })
    }

    #[cold]
    pub(crate) fn out_of_order(family: &str, key: &[u8], after: &[u8]) -> Error {
        let (key, after) = (key.to_owned(), after.to_owned());
        Error::new(ErrorKind::OutOfOrder { family: family.to_owned(), key, after })
    }

    #[cold]
    pub(crate) fn deadlock(cycle: Vec<DeadlockWait>) -> Error {
        Error::new(ErrorKind::Deadlock { cycle })
    }

    #[cold]
    pub(crate) fn lock_timeout(
        family: &str,
        key: &[u8],
        holder: Option<u64>,
        xid: Option<Xid>,
    ) -> Error {
        let (family, key) = (family.to_owned(), key.to_owned());
        Error::new(ErrorKind::LockTimeout { family, key, holder, xid })
    }

    #[cold]
    pub(crate) fn transaction_exists(xid: &Xid) -> Error {
        Error::new(ErrorKind::TransactionExists { xid: xid.clone() })
    }

    #[cold]
    pub(crate) fn unknown_transaction(xid: &Xid) -> Error {
        Error::new(ErrorKind::UnknownTransaction { xid: xid.clone() })
    }

    #[cold]
    pub(crate) fn transaction_aborted(reason: AbortReason) -> Error {
        Error::new(ErrorKind::TransactionAborted { reason })
    }

    #[cold]
    pub(crate) fn commit_vetoed(source: BoxError) -> Error {
        Error::new(ErrorKind::CommitVetoed { source })
    }

    #[cold]
    pub(crate) fn merge_failed(
        operator: &str,
        family: &str,
        key: &[u8],
        failure: MergeFailure,
    ) -> Error {
        let (operator, family, key) = (operator.to_owned(), family.to_owned(), key.to_vec());
        Error::new(ErrorKind::MergeFailed { operator, family, key, failure })
    }

    #[cold]
    pub(crate) fn transaction_too_large(needed: u64, limit: u64) -> Error {
        Error::new(ErrorKind::TransactionTooLarge { needed, limit })
    }

    #[cold]
    pub(crate) fn read_only() -> Error {
        Error::new(ErrorKind::ReadOnly {})
    }

    #[cold]
    pub(crate) fn closed() -> Error {
        Error::new(ErrorKind::Closed {})
    }

    /// The file that could not be read or written, or a directory.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self.kind() {
            ErrorKind::Io { path, .. }
            | ErrorKind::Corruption { path, .. }
            | ErrorKind::NewerFormat { path, .. }
            | ErrorKind::MissingCodec { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The kind of the operating system's error.
    pub(crate) fn io_kind(&self) -> Option<io::ErrorKind> {
        match self.kind() {
            ErrorKind::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// The error with which a test poisons a database.
    #[cfg(test)]
    pub(crate) fn planted() -> Error {
        Error::poisoned(PoisonCause::given_up("planted"))
    }

    /// True if a caller or a close cancelled the operation.
    pub(crate) fn is_cancelled(&self) -> bool {
        matches!(self.kind(), ErrorKind::Cancelled { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind().fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.kind(), f)
    }
}

impl std::error::Error for Error {
    /// The error below the text of [`Error`] itself. That text already includes the operating
    /// system's.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.kind() {
            ErrorKind::Io { source, .. } => source.source(),
            ErrorKind::CommitVetoed { source, .. } => source.source(),
            ErrorKind::Poisoned { cause, .. } | ErrorKind::OutcomeUnknown { cause, .. } => {
                cause.source()
            }
            _ => None,
        }
    }
}

/// For programs that use `std::io` errors: the closest kind, and the same text.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match error.kind() {
            ErrorKind::Io { source, .. } => source.kind(),
            ErrorKind::Corruption { .. } | ErrorKind::NewerFormat { .. } => {
                io::ErrorKind::InvalidData
            }
            ErrorKind::NotADatabase { .. }
            | ErrorKind::UnknownFamily { .. }
            | ErrorKind::UnknownTransaction { .. }
            | ErrorKind::PointTooOld { .. } => io::ErrorKind::NotFound,
            ErrorKind::AlreadyExists { .. }
            | ErrorKind::FamilyExists { .. }
            | ErrorKind::TransactionExists { .. } => io::ErrorKind::AlreadyExists,
            ErrorKind::Locked { .. } | ErrorKind::Outrun { .. } => io::ErrorKind::ResourceBusy,
            ErrorKind::Conflict { .. } => io::ErrorKind::ResourceBusy,
            ErrorKind::Deadlock { .. } => io::ErrorKind::Deadlock,
            ErrorKind::LockTimeout { .. }
            | ErrorKind::TransactionAborted { reason: AbortReason::Timeout | AbortReason::Idle } => {
                io::ErrorKind::TimedOut
            }
            ErrorKind::MemoryLimit { .. } | ErrorKind::TransactionTooLarge { .. } => {
                io::ErrorKind::OutOfMemory
            }
            ErrorKind::InvalidArgument { .. } | ErrorKind::OutOfOrder { .. } => {
                io::ErrorKind::InvalidInput
            }
            ErrorKind::MergeFailed { .. } => io::ErrorKind::InvalidData,
            ErrorKind::ReadOnly { .. } => io::ErrorKind::PermissionDenied,
            ErrorKind::WouldStall { .. } => io::ErrorKind::WouldBlock,
            ErrorKind::MissingCodec { .. } => io::ErrorKind::Unsupported,
            // Not `Interrupted`, because callers retry on it.
            ErrorKind::Poisoned { .. }
            | ErrorKind::OutcomeUnknown { .. }
            | ErrorKind::Closed { .. }
            | ErrorKind::TransactionAborted { .. }
            | ErrorKind::CommitVetoed { .. }
            | ErrorKind::Cancelled { .. } => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests;
