//! The troubles of a disk, while a database is open on it and between two lives, and the errors
//! that these troubles permit.
//!
//! An operation that fails must give a typed error or none, never a wrong answer. A full disk
//! excuses only errors that can be retried. Data that a disk destroys, between two lives or while
//! the database is open, must be refused as damage. It may be skipped only if it was never promised
//! to be durable. Destroyed means: a flipped bit; a sector of zeros, of old data or of other data;
//! a missing file.

use isobath::IoMode;
use isobath::env::reach::{Reach, reached};
use isobath::vfs::{Fault, FileAccess, FileOp, FileSystem, MemoryFs};
use isobath::{Error, ErrorKind, Options};
use std::io;
use std::path::{Path, PathBuf};

/// What goes wrong in a life, beside its end.
#[derive(Clone, Debug)]
pub(crate) enum Trouble {
    None,
    /// Operations on files fail.
    Faults {
        faults: Vec<Fault>,
        /// Reading may fail too.
        strikes_reads: bool,
        /// All of them are errors for lack of room or of file handles.
        can_be_retried: bool,
    },
    /// The disk is full for some time, counted in operations on files.
    Full {
        from_op: u64,
        until_op: u64,
        room: u64,
    },
    /// The process has no file handles to spare for some time.
    Handles {
        from_op: u64,
        until_op: u64,
    },
    /// A thread of the engine's cannot be started: the one of this number.
    Threads {
        lacking: u32,
    },
    /// The sync of the manifest with this number fails, and the bytes that it covered are lost.
    Edit {
        failing: u64,
    },
    /// Something of the database is destroyed while it is open.
    Rot {
        from_op: u64,
    },
}

const EIO: i32 = 5;
const EMFILE: i32 = 24;

impl Trouble {
    /// Draws the trouble of a life that is opened with `options`.
    pub(crate) fn draw(rng: &mut fastrand::Rng, options: &Options) -> Trouble {
        match rng.u8(..24) {
            0..8 => Trouble::None,
            8 | 9 => Trouble::Edit { failing: rng.u64(2..9) },
            20 => Trouble::Threads { lacking: rng.u32(1..6) },
            21 | 22 => Trouble::Rot { from_op: rng.u64(1..600) },
            23 => {
                let from_op = rng.u64(1..300);
                Trouble::Handles { from_op, until_op: from_op + rng.u64(1..300) }
            }
            10..13 => {
                let from_op = rng.u64(1..600);
                let until_op = from_op + rng.u64(1..600);
                // A few kilobytes are enough for the log, whose segments exist, but not for a
                // table.
                let room_max = [2_000, 2_000, 20_000, 200_000][rng.usize(..4)];
                let room = rng.u64(0..room_max);
                Trouble::Full { from_op, until_op, room }
            }
            _ => {
                let count = if rng.u8(..4) == 0 { 2 } else { 1 };
                let drawn: Vec<_> = (0..count).map(|_| draw_fault(rng, options)).collect();
                let strikes_reads = drawn.iter().any(|drawn| drawn.strikes_reads);
                let can_be_retried = drawn.iter().all(|drawn| drawn.can_be_retried);
                let faults = drawn.into_iter().map(|drawn| drawn.fault).collect();
                Trouble::Faults { faults, strikes_reads, can_be_retried }
            }
        }
    }

    /// True if calls fail only for lack of room or of handles.
    pub(crate) fn is_want_of_room(&self) -> bool {
        matches!(
            self,
            Trouble::Full { .. }
                | Trouble::Handles { .. }
                | Trouble::Faults { can_be_retried: true, .. }
        )
    }

    /// True if an error may be the answer to a call.
    pub(crate) fn excuses(&self, error: &Error, is_read: bool) -> bool {
        match self {
            Trouble::None => false,
            Trouble::Handles { .. } => error.is_retryable(),
            Trouble::Threads { .. } => matches!(error.kind(), ErrorKind::Io { .. }),
            Trouble::Edit { .. } => {
                let poisons = matches!(
                    error.kind(),
                    ErrorKind::Poisoned { .. } | ErrorKind::OutcomeUnknown { .. }
                );
                !is_read && (poisons || matches!(error.kind(), ErrorKind::Io { .. }))
            }
            // Errors of corruption are not excused here: the damage that is planted excuses them.
            Trouble::Rot { .. } => is_for_want_of_a_file(error),
            Trouble::Full { .. } => !is_read && error.is_retryable(),
            Trouble::Faults { strikes_reads, can_be_retried, .. } => {
                let is_typed = match error.kind() {
                    ErrorKind::Io { .. } => !can_be_retried || error.is_retryable(),
                    ErrorKind::Poisoned { .. } | ErrorKind::OutcomeUnknown { .. } => {
                        !can_be_retried
                    }
                    _ => false,
                };
                is_typed && (*strikes_reads || !is_read)
            }
        }
    }
}

/// True if a file that should be there is not.
fn is_for_want_of_a_file(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

struct Drawn {
    fault: Fault,
    strikes_reads: bool,
    can_be_retried: bool,
}

fn draw_fault(rng: &mut fastrand::Rng, options: &Options) -> Drawn {
    let (op, strikes_reads) = match rng.u8(..10) {
        0..4 => (
            [FileOp::SyncRange, FileOp::SyncRange, FileOp::Sync, FileOp::SyncDir][rng.usize(..4)],
            false,
        ),
        4..7 => {
            let ops = [
                FileOp::Write,
                FileOp::Create,
                FileOp::OpenSegment,
                FileOp::Rename,
                FileOp::CopyIn,
            ];
            // Only a segment written by position can fail a copy, which is the last of `ops`.
            let count = if options.io == IoMode::Positional { 5 } else { 4 };
            (ops[rng.usize(..count)], false)
        }
        7 => ([FileOp::Remove, FileOp::CreateDir, FileOp::Lock][rng.usize(..3)], false),
        _ => {
            let ops = [FileOp::Read, FileOp::Read, FileOp::OpenRead, FileOp::List, FileOp::Exists];
            (ops[rng.usize(..5)], true)
        }
    };
    let nth_max = 1 << rng.u32(0..9);
    let mut fault = Fault::on(op).nth(rng.u64(1..=nth_max));
    let is_short = matches!(op, FileOp::Read | FileOp::Write | FileOp::CopyIn) && rng.bool();
    if is_short {
        fault = fault.short();
    }
    let takes_room = matches!(op, FileOp::Write | FileOp::Create | FileOp::OpenSegment);
    let takes_handles = matches!(op, FileOp::OpenRead | FileOp::Create);
    let (fault, can_be_retried) = match rng.u8(..4) {
        0 | 1 if takes_room => (fault.kind(io::ErrorKind::StorageFull), true),
        1 | 2 if takes_handles => (fault.errno(EMFILE), true),
        _ => (fault.errno(EIO), false),
    };
    let fault = if rng.u8(..3) == 0 { fault.forever() } else { fault };
    Drawn { fault, strikes_reads, can_be_retried }
}

/// A piece of the disk that is not what was written any more.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    path: PathBuf,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// These bits of these bytes are flipped.
    Rotten(Vec<(u64, u8)>),
    /// The file is gone, and kept here.
    Missing { kept: PathBuf },
}

impl Damage {
    /// Damages a file of the database in `db`, if there is one. `earlier` is what the disk was a
    /// life ago.
    pub(crate) fn inflict(
        rng: &mut fastrand::Rng,
        fs: &MemoryFs,
        db: &Path,
        earlier: Option<&MemoryFs>,
    ) -> Option<Damage> {
        let mut files = Vec::new();
        list(fs, db, &mut files);
        let wanted =
            [".tbl", ".tbl", ".tbl", ".wal", ".wal", "MANIFEST", "CURRENT"][rng.usize(..7)];
        files.retain(|(path, len)| *len > 0 && path.to_string_lossy().contains(wanted));
        if files.is_empty() {
            return None;
        }
        let (path, len) = files.swap_remove(rng.usize(..files.len()));
        // Of all files only these are written again: manifests grow, and segments are recycled.
        let earlier = earlier.filter(|_| [".wal", "MANIFEST"].contains(&wanted));
        let kind = if rng.u8(..5) == 0 {
            let kept = Path::new("attic").join(rng.u64(..).to_string());
            fs.create_dir_all(Path::new("attic")).ok()?;
            fs.link(&path, &kept).ok()?;
            fs.remove(&path).ok()?;
            reached(Reach::FileMissing);
            Kind::Missing { kept }
        } else {
            // Records lie at the beginning of a log segment, behind its header page, so half of the
            // damage goes there.
            let reach = if rng.bool() { len } else { len.min(4096 + 2000) };
            // Damage that hits the last edit together with its sync marker looks like an
            // interrupted write.
            let blind = if wanted == "MANIFEST" { MANIFEST_TAIL_LEN } else { 0 };
            let flips = match rng.u8(..8) {
                4.. if len > blind => {
                    let reach = reach.min(len - blind);
                    replace_sectors(rng, fs, &path, reach, earlier)?
                }
                _ => {
                    reached(Reach::BitsFlipped);
                    flip_bits(rng, reach)
                }
            };
            for (offset, xor) in &flips {
                fs.corrupt(&path, *offset, *xor).ok()?;
            }
            Kind::Rotten(flips)
        };
        Some(Damage { path, kind })
    }

    /// Repairs what was damaged, if the file still exists.
    pub(crate) fn undo(&self, fs: &MemoryFs) {
        match &self.kind {
            Kind::Rotten(flips) => {
                for (offset, xor) in flips {
                    let _ = fs.corrupt(&self.path, *offset, *xor);
                }
            }
            Kind::Missing { kept } => {
                let _ = fs.link(kept, &self.path);
                let _ = self.path.parent().map(|dir| fs.sync_dir(dir));
            }
        }
    }

    /// True if the log is damaged, of which the end may be missing then.
    pub(crate) fn is_of_log(&self) -> bool {
        self.path.to_string_lossy().contains(".wal")
    }

    /// True if an open may refuse the database with this error.
    pub(crate) fn is_refusal(error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::Corruption { .. } | ErrorKind::NotADatabase { .. })
    }
}

fn flip_bits(rng: &mut fastrand::Rng, reach: u64) -> Vec<(u64, u8)> {
    let count = [1, 1, 1, 3][rng.usize(..4)];
    let flip = |_| (rng.u64(..reach), 1 << rng.u8(..8));
    let mut flips: Vec<(u64, u8)> = (0..count).map(flip).collect();
    flips.sort_unstable();
    flips.dedup_by_key(|(offset, _)| *offset);
    flips
}

const SECTOR_LEN: u64 = 512;
/// Longer than the sectors that are damaged together, and the edits of a close.
const MANIFEST_TAIL_LEN: u64 = 6 << 10;

/// How often sectors are drawn until some would change.
const SECTOR_TRIES: u32 = 16;

/// Some sectors are zeros, hold what they held a life ago (a write that never came), or what
/// belongs elsewhere.
fn replace_sectors(
    rng: &mut fastrand::Rng,
    fs: &MemoryFs,
    path: &Path,
    reach: u64,
    earlier: Option<&MemoryFs>,
) -> Option<Vec<(u64, u8)>> {
    let draw_place = |rng: &mut fastrand::Rng| rng.u64(..reach.div_ceil(SECTOR_LEN)) * SECTOR_LEN;
    (0..SECTOR_TRIES).find_map(|_| {
        let count = [1, 1, 2, 8][rng.usize(..4)] * SECTOR_LEN;
        let at = draw_place(rng);
        let now = read(fs, path, at, count)?;
        let (place, other) = match rng.u8(..3) {
            0 => (Reach::SectorsZeroed, vec![0; now.len()]),
            1 => (Reach::SectorsMisdirected, read(fs, path, draw_place(rng), count)?),
            _ => (Reach::SectorsStale, stale(rng, earlier?, path, at, now.len())?),
        };
        let bytes = now.iter().zip(other).zip(at..);
        let flips: Vec<_> = bytes
            .map(|((now, other), at)| (at, now ^ other))
            .filter(|(_, xor)| *xor != 0)
            .collect();
        if flips.is_empty() {
            return None;
        }
        reached(place);
        Some(flips)
    })
}

/// What so many bytes of a file held a life ago: of a recycled segment of the log, what another
/// segment or a spare had there, and of a file that has grown, zeros behind its end.
fn stale(
    rng: &mut fastrand::Rng,
    earlier: &MemoryFs,
    path: &Path,
    at: u64,
    len: usize,
) -> Option<Vec<u8>> {
    let mut files = Vec::new();
    list(earlier, path.parent()?, &mut files);
    if path.extension().is_none() {
        files.retain(|(file, _)| file == path);
    }
    let (file, _) = files.get(rng.usize(..files.len().max(1)))?;
    let mut bytes = read(earlier, file, at, len as u64)?;
    bytes.resize(len, 0);
    Some(bytes)
}

/// Up to so many bytes of a file.
fn read(fs: &MemoryFs, path: &Path, offset: u64, len: u64) -> Option<Vec<u8>> {
    let file = fs.open_read(path, FileAccess::Positional).ok()?;
    let mut bytes = vec![0; file.len().saturating_sub(offset).min(len) as usize];
    file.read_at(offset, &mut bytes).ok()?;
    Some(bytes)
}

fn list(fs: &MemoryFs, dir: &Path, files: &mut Vec<(PathBuf, u64)>) {
    for entry in fs.list(dir).unwrap_or_default() {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            list(fs, &path, files);
        } else {
            files.push((path, entry.len));
        }
    }
}
