//! Faults: which operation fails, on which files, when, and with which error.

use crate::host::sync::atomic::{AtomicU64, Ordering};
use crate::host::sync::{Mutex, Rank};
use std::io;
use std::ops::Range;
use std::path::Path;

/// An operation that a fault can strike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileOp {
    /// `create_dir_all`
    CreateDir,
    /// `list`
    List,
    /// `exists`
    Exists,
    /// `open_read`
    OpenRead,
    /// `create`
    Create,
    /// `open_segment`
    OpenSegment,
    /// `rename` and `replace`, matched by the first path
    Rename,
    /// `link`, matched by the first path
    Link,
    /// `remove`
    Remove,
    /// `remove_dir`
    RemoveDir,
    /// `open_dir`, and the first half of `sync_dir`
    OpenDir,
    /// `sync` of a directory, and the second half of `sync_dir`
    SyncDir,
    /// `lock`
    Lock,
    /// `free_space`
    FreeSpace,
    /// `read_at` of a file or a segment
    Read,
    /// Handing appended bytes to the kernel, by `append`, `flush`, `sync` or a drop
    Write,
    /// `sync` of an appended file
    Sync,
    /// `copy_in`
    CopyIn,
    /// `sync_range`
    SyncRange,
}

const OPS: usize = FileOp::SyncRange as usize + 1;

impl FileOp {
    /// True if a real system needs a new file descriptor for the operation.
    pub fn takes_descriptor(self) -> bool {
        use FileOp::*;
        matches!(self, List | OpenRead | Create | OpenSegment | OpenDir | Lock)
    }
}

/// A fault to inject. By default it strikes once, at the first matching operation, with `EIO`.
///
/// ```
/// use isobath::vfs::{Fault, FileOp, MemoryFs};
///
/// let fs = MemoryFs::new();
/// // The third and every later sync of a table fails, as if the disk had no room left.
/// fs.inject(Fault::on(FileOp::Sync).suffix(".tbl").nth(3).forever().kind(std::io::ErrorKind::StorageFull));
/// ```
#[derive(Clone, Debug)]
pub struct Fault {
    ops: Ops,
    suffix: String,
    matches_before: u64,
    forever: bool,
    short: bool,
    late: bool,
    bytes: Range<u64>,
    error: FaultError,
}

#[derive(Clone, Copy, Debug)]
enum Ops {
    Any,
    One(FileOp),
    TakingDescriptors,
}

#[derive(Clone, Copy, Debug)]
enum FaultError {
    Kind(io::ErrorKind),
    Code(i32),
    #[cfg(all(test, not(any(loom, shuttle))))]
    Panic,
    #[cfg(test)]
    Call(fn() -> io::Error),
    #[cfg(test)]
    Run(fn()),
}

/// The number of "input or output error" on every unix.
const EIO: i32 = 5;
/// The number of "too many open files" on every unix.
const EMFILE: i32 = 24;

impl Fault {
    /// A fault of one kind of operation.
    pub fn on(op: FileOp) -> Self {
        Fault { ops: Ops::One(op), ..Fault::on_any() }
    }

    /// A fault of any operation.
    pub fn on_any() -> Self {
        Fault {
            ops: Ops::Any,
            suffix: String::new(),
            matches_before: 0,
            forever: false,
            short: false,
            late: false,
            bytes: 0..u64::MAX,
            error: FaultError::Code(EIO),
        }
    }

    /// No descriptors are left: operations that need a new one fail with `EMFILE`, all others
    /// succeed.
    pub fn no_descriptors() -> Self {
        let fault = Fault { ops: Ops::TakingDescriptors, ..Fault::on_any() };
        fault.errno(EMFILE).forever()
    }

    /// Strikes only where the path, as text, ends with `suffix`.
    pub fn suffix(self, suffix: &str) -> Self {
        Fault { suffix: suffix.to_owned(), ..self }
    }

    /// Lets n - 1 matching operations pass first.
    pub fn nth(self, n: u64) -> Self {
        Fault { matches_before: n.saturating_sub(1), ..self }
    }

    /// Strikes at every match from the first strike on.
    pub fn forever(self) -> Self {
        Fault { forever: true, ..self }
    }

    /// Lets the first half of the bytes through, for the operations on bytes: `Read`, `Write` and
    /// `CopyIn`. A read leaves the rest of the buffer unchanged; of an append, no byte counts as
    /// accepted.
    pub fn short(self) -> Self {
        Fault { short: true, ..self }
    }

    /// Carries the operation out before it fails, for the operations on names: those that take a
    /// path, without `OpenDir` and `SyncDir`. As a network disk whose answer was lost.
    pub fn late(self) -> Self {
        Fault { late: true, ..self }
    }

    /// Strikes with this kind of error.
    pub fn kind(self, kind: io::ErrorKind) -> Self {
        Fault { error: FaultError::Kind(kind), ..self }
    }

    /// Strikes with this error number of the system.
    pub fn errno(self, code: i32) -> Self {
        Fault { error: FaultError::Code(code), ..self }
    }

    /// Of the operations on bytes of a file, strikes only those that touch these.
    #[cfg(test)]
    pub(crate) fn at(self, bytes: Range<u64>) -> Self {
        Fault { bytes, ..self }
    }

    /// Strikes with a panic.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn panics(self) -> Self {
        Fault { error: FaultError::Panic, ..self }
    }

    /// Calls this, and strikes with what it returns.
    #[cfg(test)]
    pub(crate) fn calls(self, call: fn() -> io::Error) -> Self {
        Fault { error: FaultError::Call(call), ..self }
    }

    /// Runs this, and lets the operation pass.
    #[cfg(test)]
    pub(crate) fn runs(self, run: fn()) -> Self {
        Fault { error: FaultError::Run(run), ..self }
    }

    fn matches(&self, op: FileOp, path: &Path, bytes: &Range<u64>) -> bool {
        let is_meant = match self.ops {
            Ops::Any => true,
            Ops::One(wanted) => wanted == op,
            Ops::TakingDescriptors => op.takes_descriptor(),
        };
        let touches = bytes.start < self.bytes.end && bytes.end > self.bytes.start;
        is_meant && touches && path.as_os_str().as_encoded_bytes().ends_with(self.suffix.as_bytes())
    }
}

impl FaultError {
    /// None if the operation passes nevertheless.
    fn error(self) -> Option<io::Error> {
        Some(match self {
            FaultError::Kind(kind) => kind.into(),
            FaultError::Code(code) => io::Error::from_raw_os_error(code),
            // Like a panic, but it prints nothing.
            #[cfg(all(test, not(any(loom, shuttle))))]
            FaultError::Panic => std::panic::resume_unwind(Box::new("planted")),
            #[cfg(test)]
            FaultError::Call(call) => call(),
            #[cfg(test)]
            FaultError::Run(run) => {
                run();
                return None;
            }
        })
    }
}

/// The faults of a file system, and counts of the operations that were tried.
pub(super) struct Faults {
    armed: Mutex<Vec<Fault>>,
    tried: [AtomicU64; OPS],
    struck: AtomicU64,
    /// The bytes that reads have asked for.
    read_bytes: AtomicU64,
}

impl Default for Faults {
    fn default() -> Self {
        let armed = Mutex::new(Rank::MemoryFaults, Vec::new());
        let (struck, read_bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Faults { armed, tried: Default::default(), struck, read_bytes }
    }
}

/// How an operation fails.
pub(super) struct Strike {
    /// How many of the operation's bytes get through nevertheless.
    pub(super) done_len: usize,
    /// True if an operation on names is carried out nevertheless.
    pub(super) is_late: bool,
    pub(super) error: io::Error,
}

impl Faults {
    pub(super) fn add(&self, fault: Fault) {
        self.armed.lock().push(fault);
    }

    pub(super) fn clear(&self) {
        self.armed.lock().clear();
    }

    pub(super) fn tried(&self, op: FileOp) -> u64 {
        self.tried[op as usize].load(Ordering::Relaxed)
    }

    pub(super) fn struck(&self) -> u64 {
        self.struck.load(Ordering::Relaxed)
    }

    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Counts an operation, and fails it if a fault strikes. Every fault counts every match, even
    /// if another fault strikes.
    pub(super) fn strike(&self, op: FileOp, path: &Path) -> io::Result<()> {
        self.strike_bytes(op, path, 0, usize::MAX).map_err(|strike| strike.error)
    }

    /// Like [`Faults::strike`], for an operation on `len` bytes from `offset` on.
    pub(super) fn strike_bytes(
        &self,
        op: FileOp,
        path: &Path,
        offset: u64,
        len: usize,
    ) -> Result<(), Strike> {
        let bytes = offset..offset.saturating_add(len.max(1) as u64);
        self.tried[op as usize].fetch_add(1, Ordering::Relaxed);
        if op == FileOp::Read {
            self.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
        }
        let mut struck = None;
        self.armed.lock().retain_mut(|fault| {
            if !fault.matches(op, path, &bytes) {
                return true;
            }
            if fault.matches_before > 0 {
                fault.matches_before -= 1;
                return true;
            }
            struck.get_or_insert((fault.error, fault.short, fault.late));
            fault.forever
        });
        let Some((error, is_short, is_late)) = struck else { return Ok(()) };
        self.struck.fetch_add(1, Ordering::Relaxed);
        let Some(error) = error.error() else { return Ok(()) };
        let done_len = if is_short { len / 2 } else { 0 };
        Err(Strike { done_len, is_late, error })
    }
}
