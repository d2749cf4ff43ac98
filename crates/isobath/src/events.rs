//! What the engine tells a listener about itself, as it happens.

use crate::error::Error;
use crate::format::Lsn;
use crate::vfs::IoMode;
use std::path::PathBuf;
use std::sync::Arc;

/// Something that happened. Times are in microseconds, sizes in bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Recovery has replayed so much of the log.
    RecoveryProgress {
        /// Bytes replayed.
        done_bytes: u64,
        /// Bytes there are.
        total_bytes: u64,
    },
    /// How the log is written was settled at open: as the options say, or else by the file system.
    LogModeChosen {
        /// How it is written; never [`IoMode::Auto`].
        mode: IoMode,
        /// The file system that the log is on: "ext4", "btrfs", or a number where it has no name
        /// here.
        file_system: String,
    },
    /// The log of an earlier process ended in something that is no record: a commit that was never
    /// acknowledged, or, after power loss, commits that were not synced.
    LogTailDiscarded {
        /// Where the kept log ends.
        end: Lsn,
        /// Bytes after it that held something.
        discarded_bytes: u64,
    },
    /// The manifest ended in something that is no edit: one that was cut short, and that nobody was
    /// told of.
    ManifestTailDiscarded {
        /// The manifest.
        path: PathBuf,
        /// Where its valid edits end.
        offset: u64,
        /// Bytes after it.
        discarded_bytes: u64,
    },
    /// A flush wrote a table.
    Flushed {
        /// The table file, if anything survived.
        file: Option<u64>,
        /// Families with a slice in it.
        families: usize,
        /// Bytes written.
        bytes: u64,
        /// How long it took.
        took_us: u64,
    },
    /// A compaction finished and its result is installed.
    Compacted {
        /// The family.
        family: String,
        /// Why it was done.
        reason: &'static str,
        /// The level compacted into.
        into_level: usize,
        /// Versions read.
        read_entries: u64,
        /// Versions kept.
        written_entries: u64,
        /// Bytes read.
        read_bytes: u64,
        /// Bytes written.
        written_bytes: u64,
        /// How long it took.
        took_us: u64,
    },
    /// A thread has done its share of a compaction. With more than one for a job, parts were
    /// compacted at once; each began `took_us` ago.
    SubcompactionDone {
        /// The family.
        family: String,
        /// Which compaction of the family, counted up since open.
        job: u64,
        /// Parts that this thread compacted.
        parts: usize,
        /// How long it worked.
        took_us: u64,
    },
    /// A slice moved to another level without being rewritten.
    TriviallyMoved {
        /// The family.
        family: String,
        /// From here.
        from_level: usize,
        /// To here.
        into_level: usize,
    },
    /// A table file was removed since nothing needs it.
    FileRemoved {
        /// The file.
        path: PathBuf,
    },
    /// A background job failed. If it was the log, a flush or the manifest, writes are refused from
    /// now on.
    BackgroundError {
        /// What it was doing.
        job: &'static str,
        /// Why it failed.
        error: Error,
    },
}

/// Told of every [`Event`]: see [`Options::on_event`](crate::Options::on_event).
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
