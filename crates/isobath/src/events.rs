//! The events that the engine reports to a listener while it works.

use crate::error::Error;
use crate::format::Lsn;
use crate::mvcc::FilterFailure;
use crate::vfs::IoMode;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Something that happened. Times are in microseconds, sizes in bytes. Later versions may add kinds
/// of events, and fields to each.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Recovery replays the log and has come this far.
    #[non_exhaustive]
    RecoveryProgress {
        /// Bytes replayed so far.
        done_bytes: u64,
        /// Bytes to replay in all.
        total_bytes: u64,
    },
    /// The open decided how the log is written. The options decide or, with [`IoMode::Auto`], the
    /// file system.
    #[non_exhaustive]
    LogModeChosen {
        /// The mode in use; never [`IoMode::Auto`].
        mode: IoMode,
        /// The file system that holds the log, such as "ext4" or "btrfs". An unknown one is shown
        /// as a number.
        file_system: String,
    },
    /// The log of an earlier process ended in bytes that are not a record. They belong to a commit
    /// that was never acknowledged or, after power loss, to commits that were not synced.
    #[non_exhaustive]
    LogTailDiscarded {
        /// Where the kept log ends.
        end: Lsn,
        /// Bytes after `end` that held data.
        discarded_bytes: u64,
    },
    /// The manifest ended in an incomplete edit: its write was interrupted, and its success was
    /// never reported.
    #[non_exhaustive]
    ManifestTailDiscarded {
        /// The manifest.
        path: PathBuf,
        /// The offset at which the valid edits end.
        offset: u64,
        /// Bytes after `offset`.
        discarded_bytes: u64,
    },
    /// A flush wrote a table.
    #[non_exhaustive]
    Flushed {
        /// The number of the table file; `None` if there was nothing to write.
        file: Option<u64>,
        /// How many families the flush wrote.
        families: usize,
        /// Bytes written.
        bytes: u64,
        /// How long it took.
        took_us: u64,
    },
    /// A compaction finished and its result is installed.
    #[non_exhaustive]
    Compacted {
        /// The name of the family.
        family: String,
        /// Why the compaction was due.
        reason: CompactionReason,
        /// The level that the outputs are in.
        into_level: usize,
        /// Versions read.
        read_entries: u64,
        /// Versions kept.
        written_entries: u64,
        /// Deletes among the versions read.
        read_deletes: u64,
        /// Deletes among the versions kept.
        written_deletes: u64,
        /// Values that the family's compaction filter removed.
        removed_entries: u64,
        /// Values that the family's compaction filter replaced.
        replaced_entries: u64,
        /// Bytes read.
        read_bytes: u64,
        /// Bytes written.
        written_bytes: u64,
        /// How long it took.
        took_us: u64,
    },
    /// A family names a compaction filter that the program has not brought
    /// ([`Options::compaction_filter`](crate::Options::compaction_filter)). All its values stay.
    /// Told once, by the family's first compaction.
    #[non_exhaustive]
    FilterMissing {
        /// The name of the family.
        family: String,
        /// The name of the filter.
        filter: String,
    },
    /// A compaction filter gave no verdict on a value, which was kept. Told once for a family;
    /// [`Metrics::filter_failures`](crate::Metrics::filter_failures) counts them all.
    #[non_exhaustive]
    FilterFailed {
        /// The name of the family.
        family: String,
        /// The name of the filter.
        filter: String,
        /// A key whose value it did not judge.
        key: Vec<u8>,
        /// Why it did not.
        failure: FilterFailure,
    },
    /// A thread has finished its share of a compaction. If several threads share one compaction,
    /// each reports its own share, and each share began `took_us` before its event.
    #[non_exhaustive]
    SubcompactionDone {
        /// The name of the family.
        family: String,
        /// The number of the compaction within its family, counted since open.
        job: u64,
        /// How many parts this thread compacted.
        parts: usize,
        /// How long this thread worked.
        took_us: u64,
    },
    /// A slice moved to another level without being rewritten.
    #[non_exhaustive]
    TriviallyMoved {
        /// The name of the family.
        family: String,
        /// The level that the slice left.
        from_level: usize,
        /// The level that the slice is in now.
        into_level: usize,
    },
    /// Slices left the tree without being read, because no reader can see anything of them.
    #[non_exhaustive]
    Dropped {
        /// The name of the family.
        family: String,
        /// Why no reader can see them.
        reason: CompactionReason,
        /// How many slices left.
        slices: usize,
        /// The versions in them.
        entries: u64,
        /// Their bytes on disk, with those of their values in blob files. They are free once the
        /// last reader has ended that uses the files.
        bytes: u64,
    },
    /// The engine removed a table or blob file that nothing needs any more.
    #[non_exhaustive]
    FileRemoved {
        /// The removed file.
        path: PathBuf,
    },
    /// The wall clock has leapt ahead: it is more than an hour beyond the time that has passed
    /// since the engine last believed it. For values that end and for the history the engine goes
    /// on from the time before, until the clock has stood there for an hour; then it believes it.
    /// Told once for each leap, and only where the database is open for writing.
    #[non_exhaustive]
    ClockLeapt {
        /// How far it has leapt.
        ahead_us: u64,
    },
    /// A background job failed. If `error` can be retried, the engine tries the job again; a
    /// compaction it tries again in any case, but for slices that it could not read. After any
    /// other failure of the log, a flush or the manifest, the database refuses all further writes.
    #[non_exhaustive]
    BackgroundError {
        /// What the job was doing.
        job: BackgroundJob,
        /// Why the job failed.
        error: Error,
    },
}

/// Why a compaction was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum CompactionReason {
    /// Level 0 has too many runs.
    Runs,
    /// Level 0 cannot be compacted down now, so its newest runs become one.
    RunsInPlace,
    /// A level is full.
    Size,
    /// Slices hold many deletes.
    Deletes,
    /// There is nothing more urgent.
    Idle,
    /// The program asked for it.
    Manual,
    /// Range deletes cover whole slices.
    Covered,
    /// All values of whole slices have ended.
    Expired,
    /// Slices have values in blob files that are mostly garbage.
    Garbage,
    /// Slices lie in table files whose other slices have mostly gone.
    DeadSpace,
    /// Many neighbours of the last level are short.
    ShortSlices,
    /// Slices hold deletes that have stayed as long as
    /// [`FamilyOptions::delete_within`](crate::FamilyOptions::delete_within) allows there.
    OldDeletes,
}

impl CompactionReason {
    /// The label in logs.
    pub fn name(self) -> &'static str {
        match self {
            CompactionReason::Runs => "runs",
            CompactionReason::RunsInPlace => "runs in place",
            CompactionReason::Size => "size",
            CompactionReason::Deletes => "deletes",
            CompactionReason::Idle => "idle",
            CompactionReason::Manual => "manual",
            CompactionReason::Covered => "covered",
            CompactionReason::Expired => "expired",
            CompactionReason::Garbage => "garbage",
            CompactionReason::DeadSpace => "dead space",
            CompactionReason::ShortSlices => "short slices",
            CompactionReason::OldDeletes => "old deletes",
        }
    }
}

impl fmt::Display for CompactionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a background job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackgroundJob {
    /// It writes memtables to a table.
    Flush,
    /// It rewrites slices into another level.
    Compaction,
    /// It creates, renames or drops column families. A call of the program waits for it.
    FamilyChange,
    /// It removes tables that nothing needs any more.
    TableRemoval,
    /// It writes, syncs or prepares the log: a commit, a call of [`Db::sync`](crate::Db::sync),
    /// [`Options::sync_interval`](crate::Options::sync_interval). Or a thread of the engine has
    /// panicked. This is told about a second later, once, and only if no other job has told why
    /// writes are refused.
    Log,
    /// It removes segments of the log below the point where recovery begins, or prepares them to be
    /// written again.
    LogRecycling,
    /// It removes what an interrupted process left in the directory.
    LeftoverRemoval,
    /// It closes the database.
    Close,
}

impl BackgroundJob {
    /// The label in logs: a noun.
    pub fn name(self) -> &'static str {
        match self {
            BackgroundJob::Flush => "flush",
            BackgroundJob::Compaction => "compaction",
            BackgroundJob::FamilyChange => "change of a column family",
            BackgroundJob::TableRemoval => "removal of tables",
            BackgroundJob::Log => "write of the log",
            BackgroundJob::LogRecycling => "recycling of the log",
            BackgroundJob::LeftoverRemoval => "removal of leftovers",
            BackgroundJob::Close => "close",
        }
    }
}

impl fmt::Display for BackgroundJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The function that is called with every [`Event`]: see
/// [`Options::on_event`](crate::Options::on_event).
pub(crate) type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::env::Env;
    use crate::options::Options;
    use crate::vfs::{Fault, FileOp, MemoryFs};
    use std::panic::resume_unwind;

    #[test]
    fn a_listener_that_panics_stops_no_job_no_change_of_families_and_no_close() {
        let fs = MemoryFs::new();
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let options = Options::new().env(env);
        // Like a panic, but it prints nothing.
        let listener = |_: &Event| resume_unwind(Box::new("planted"));
        let db = options.clone().on_event(listener).open("db").unwrap();
        for _ in 0..3 {
            db.put("key", "value").unwrap();
            db.flush().unwrap();
        }
        db.compact().unwrap();
        fs.inject(Fault::on(FileOp::Write).kind(std::io::ErrorKind::StorageFull));
        let families = ["first", "second"].map(|name| db.family(name).unwrap());
        assert_eq!(fs.struck(), 1);
        families[1].put("key", "value").unwrap();
        db.close().unwrap();
        let db = options.open("db").unwrap();
        let second = db.family_if_exists("second").unwrap().unwrap();
        assert_eq!(second.get("key").unwrap().unwrap(), b"value");
    }
}
