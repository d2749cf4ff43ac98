//! One look at manifest, tables and log, and when to look again.

use crate::engine::{self, Doubtful, Families, Line, Sources, Spills};
use crate::env::Env;
use crate::error::{Error, ErrorKind, NotADatabaseCause, Result};
use crate::events::Event;
use crate::format::{FileKind, Lsn};
use crate::memtable::ChunkPool;
use crate::options::Options;
use crate::table::TableContext;
use crate::version::{
    LOG_DIR, LiveFile, PreparedFile, SPILL_DIR, Slice, Stamp, State, read_own_entry,
};
use crate::wal;
use crate::xid::Xid;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How many of its own write buffers a reader may use for the replayed log. A writer seals an epoch
/// at one budget, lets two sealed epochs wait for their flush and up to four that hold little, and
/// reserves a record's bytes in the log before it counts them in memory.
const MEMORY_BUDGETS: u64 = 8;

/// How many looks in a row a writer may spoil before the reader gives up.
const ATTEMPTS_MAX: u32 = 50;

/// How many looks in a row may fail although the manifest did not change. A record that is being
/// written while the log after it is judged looks like damage; and a writer may sleep in the middle
/// of one, so each pause is longer than the one before.
const STILL_MAX: u32 = 8;

const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// The database to read, and what to read it with.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) options: &'a Options,
    pub(super) db: &'a Path,
    pub(super) pool: &'a Arc<ChunkPool>,
    /// Whether the listener receives progress.
    pub(super) tells: bool,
}

impl Place<'_> {
    fn env(&self) -> &Env {
        &self.options.env
    }

    /// Builds a line from `state` to the end of the log. `known` are the families that already have
    /// handles.
    pub(super) fn build(
        &self,
        stamp: Stamp,
        state: &State,
        known: Option<&Families>,
        tables: &TableContext,
    ) -> Result<Line> {
        self.hold_tables(state, tables)?;
        let memory_max = self.options.buffer_len().saturating_mul(MEMORY_BUDGETS);
        let in_doubt = self.read_prepared(state)?;
        let mut line = Line::new(state, stamp, in_doubt, known, self.pool, memory_max)
            .map_err(|error| error.in_file(&stamp.manifest_path(self.db), 0))?;
        if line.next < state.ceiling() {
            let dir = self.db.join(LOG_DIR);
            wal::demand_segment(&*self.env().fs, &dir, line.next)?;
        }
        self.follow(&mut line, (state.uuid(), tables), state.durable())?;
        Ok(line)
    }

    /// Reads the prepared transactions of `state`: a writer may remove their files at any time.
    fn read_prepared(&self, state: &State) -> Result<BTreeMap<Lsn, Doubtful>> {
        let fs = &*self.env().fs;
        let read = |(lsn, prepared): (&Lsn, &PreparedFile)| {
            let number = prepared.file.number();
            let payload = read_own_entry(fs, self.db, state.uuid(), number, *lsn)?;
            let xid = Xid::new(&prepared.xid);
            Ok((*lsn, Doubtful { xid, payload: payload.into() }))
        };
        state.prepared().iter().map(read).collect()
    }

    /// Opens the tables and the blob files of `state`, so that they stay readable after a writer
    /// removes them. Opens only as many as the options allow, those of earlier lines among them,
    /// which may lie deeper than what is left out; the rest are opened when they are read. Each
    /// table comes with the files in which its values lie: one is of little use without the others.
    /// Streams come last, as each of them has one value, and get half of what is left.
    fn hold_tables(&self, state: &State, tables: &TableContext) -> Result<()> {
        let slices = || state.families().flat_map(|(_, family)| family.tree.iter());
        // An earlier line has opened some. They count, whatever place they have now.
        let files_max = self.options.open_files();
        let of_tables = || slices().flat_map(|(_, slice)| tables_of(slice));
        let held = hold(tables, files_max, of_tables)?;
        let of_streams = || slices().flat_map(|(_, slice)| streams_of(slice));
        hold(tables, files_max.saturating_sub(held) / 2, of_streams)?;
        Ok(())
    }

    /// Applies the records of the log of database `uuid` from the line's place on. The log is known
    /// to be durable below `durable`.
    pub(super) fn follow(
        &self,
        line: &mut Line,
        (uuid, tables): ([u8; 16], &TableContext),
        durable: Lsn,
    ) -> Result<()> {
        let mut progress = |done_bytes, total_bytes| {
            if self.tells {
                engine::tell(self.options, &Event::RecoveryProgress { done_bytes, total_bytes });
            }
        };
        let fs = self.env().fs.clone();
        let spills = Spills::to_read(fs, self.db.join(SPILL_DIR), uuid);
        // Beside those of the tables.
        let streams_max = self.options.open_files() / 2;
        let sources = Sources { spills: &spills, tables, streams_max };
        let (mut looked, from) = (line.looked, line.next);
        let scanned = wal::follow(
            &mut looked,
            (&*self.env().fs, &self.db.join(LOG_DIR), uuid),
            (from, durable),
            &mut |lsn, payload| line.apply(lsn, payload, &sources),
            &mut progress,
        )?;
        line.looked = looked;
        debug_assert!(line.next <= scanned.end, "a reader would apply records again");
        line.next = scanned.end;
        Ok(())
    }
}

/// The table file of a slice, and the files in which its values lie among others.
fn tables_of(slice: &Slice) -> impl Iterator<Item = (&Arc<LiveFile>, FileKind)> {
    let blobs = slice.blobs.iter().map(|file| (file, FileKind::Blob));
    iter::once((&slice.file, FileKind::Table)).chain(blobs)
}

/// Keeps up to `most` files open, and returns how many are. Those that are open count first.
fn hold<'s, I: Iterator<Item = (&'s Arc<LiveFile>, FileKind)>>(
    tables: &TableContext,
    most: usize,
    files: impl Fn() -> I,
) -> Result<usize> {
    let open = files().filter(|(file, _)| file.is_kept_open());
    let mut seen: BTreeSet<u64> = open.map(|(file, _)| file.number()).collect();
    for (file, kind) in files() {
        if seen.len() >= most {
            break;
        }
        if seen.insert(file.number()) {
            file.keep_open(tables.files.hold(file.number(), kind)?);
            debug_assert!(file.is_kept_open(), "a file that counts as open is not");
        }
    }
    Ok(seen.len())
}

/// The files of its streams.
fn streams_of(slice: &Slice) -> impl Iterator<Item = (&Arc<LiveFile>, FileKind)> {
    slice.streams.iter().map(|file| (file, FileKind::Blob))
}

/// Calls `look` with the stamp of the manifest until it succeeds. Fails once an error cannot be the
/// work of a writer, or after too many attempts.
pub(crate) fn look_until_steady<T>(
    env: &Env,
    db: &Path,
    look: &mut dyn FnMut(Stamp) -> Result<T>,
) -> Result<T> {
    let (mut still, mut pause) = (0, PAUSE_MIN);
    for _ in 0..ATTEMPTS_MAX {
        let before = Stamp::read(&*env.fs, db);
        let looked = match &before {
            Ok(stamp) => look(*stamp),
            Err(error) => Err(error.clone()),
        };
        let Err(error) = looked else { return looked };
        let after = Stamp::read(&*env.fs, db);
        let moved = after.is_ok_and(|after| before.is_ok_and(|before| before != after));
        (still, pause) = match moved {
            true => (0, PAUSE_MIN),
            false => (still + 1, (pause * 2).min(PAUSE_MAX)),
        };
        if !may_pass(&error) || still >= STILL_MAX {
            return Err(error);
        }
        env.threads.sleep(pause);
    }
    Err(Error::outrun(db, ATTEMPTS_MAX))
}

/// True for an error that a writer beside the reader can cause: files that are gone, shorter than
/// before, or overwritten.
pub(super) fn may_pass(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Corruption { .. } => true,
        ErrorKind::Io { source, .. } => {
            matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof)
        }
        _ => false,
    }
}

/// Refuses a manifest that does not continue the line's history.
pub(super) fn check_history(db: &Path, uuid: [u8; 16], line: &Line, state: &State) -> Result<()> {
    let refuse = |cause| Err(Error::not_a_database(db, cause));
    if state.uuid() != uuid {
        return refuse(NotADatabaseCause::Replaced);
    }
    // An older copy that was opened as often looks no different from what was shown.
    let last = line.terms.last().zip(state.terms().first());
    if last.is_some_and(|(last, kept)| last.term < kept.term) {
        return refuse(NotADatabaseCause::OpenedTooOften);
    }
    // A copy is opened in terms of the same numbers. A term of which nothing is shown may have been
    // lost: the sync of its edit has failed. The one in its place ends the term before no earlier.
    for known in &line.terms {
        let is_shown = line.next > known.resumes_at;
        let ends_at = match state.terms().iter().find(|term| term.term == known.term) {
            Some(same) if same == known => None,
            Some(other) => (is_shown || other.ended_at < known.ended_at).then_some(other.ended_at),
            None if is_shown && state.term().term < known.term => Some(state.replay_from()),
            None => None,
        };
        if let Some(ends_at) = ends_at {
            return refuse(NotADatabaseCause::Restored { ends_at, shown: line.next });
        }
    }
    // The first later term says where the line's term ended. If the later term continues without a
    // gap, the line may be in it already.
    let next_term = state.terms().iter().find(|term| term.term > line.term());
    let ended = next_term.filter(|term| term.ended_at < term.resumes_at);
    let ends_at = ended.map_or(state.ceiling(), |term| term.ended_at);
    if ends_at < line.next {
        return refuse(NotADatabaseCause::Restored { ends_at, shown: line.next });
    }
    Ok(())
}
