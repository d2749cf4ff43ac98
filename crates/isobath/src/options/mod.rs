//! What a user can choose: few options, each with a default that is right for most.
//!
//! Each set of options is one list (`list.rs`): fields of plain types, their defaults, setters of
//! the same names. Sizes are bytes; text may give them a unit (`size.rs`). A family's options are
//! kept on disk (`stored.rs`).

mod call;
mod family;
mod list;
mod size;
mod stored;
#[cfg(feature = "serde")]
mod text;

pub use call::{Durability, ReadOptions, WriteOptions};
pub use family::FamilyOptions;
pub use size::{GIB, KIB, MIB};

use crate::env::Env;
use crate::error::{Error, Result};
use crate::events::{Event, Listener};
use crate::sizes::Sizes;
use crate::table::cache::BlockCache;
use crate::vfs::{IoMode, MemoryFs};
use list::options;
use std::sync::Arc;
use std::time::Duration;

/// Table files kept open at most, and at least, unless the options say otherwise.
const OPEN_FILES_MAX: u64 = 512;
const OPEN_FILES_MIN: u64 = 8;

options! {
/// Options of a database, and the way to open one.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// use isobath::{MIB, Options};
///
/// let db = Options::new().write_buffer(16 * MIB).block_cache(32 * MIB).open(dir.path())?;
/// db.put(b"key", b"value")?;
/// db.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct Options {
    /// Create the database if the directory is empty or missing. Default true.
    pub create_if_missing: bool = true,
    /// Refuse to open a database that exists. Default false.
    pub error_if_exists: bool = false,
    /// Open for reading only. Default false. Nothing is created, locked, renamed or removed, and no
    /// thread is started: works without permission to write, on a file system that is read-only,
    /// and beside the process that writes. Reads see the database as it was when it was opened,
    /// until [`Db::catch_up`](crate::Db::catch_up); what changes something answers
    /// [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly). The part of the log that is not in
    /// tables yet is held in memory, at most eight times `write_buffer` of it, and table files are
    /// held open, up to `max_open_files` of them.
    pub read_only: bool = false,
    /// Bytes of writes gathered in memory before they are flushed to a table. Default 64 MiB; at
    /// most three times as much is held while flushes run. At least 64 KiB. Larger: fewer bytes
    /// rewritten by compactions; smaller: less memory and a shorter recovery.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "text::size"))]
    pub write_buffer: u64 = 64 * MIB,
    /// Bytes of decoded blocks kept. Default 64 MiB. Ignored if a shared cache is given.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "text::size"))]
    pub block_cache: u64 = 64 * MIB,
    /// When writes are acknowledged unless they say otherwise. Default [`Durability::Process`].
    pub durability: Durability = Durability::Process,
    /// Sync the log in the background this often, at least 100 µs apart, so that power loss costs
    /// at most that much. Default `None`, never: what a sync every second costs writers is not
    /// measured yet.
    pub sync_interval: Option<Duration> = None,
    /// How the log and tables are reached. Default [`IoMode::Auto`].
    pub io: IoMode = IoMode::Auto,
    /// Threads that compact tables. Default: one for each two processors, at least one, at most
    /// four.
    pub compaction_threads: Option<usize> = None,
    /// Table files kept open, at least 8. Default: half of what the process may open, at most 512.
    /// Larger: fewer tables are opened again; smaller: fewer file descriptors.
    pub max_open_files: Option<usize> = None,
    /// The template: options of the default family, at each open, and of families that are created
    /// without their own. Default `None`: the default family keeps the options it has, new families
    /// take the defaults. Any other family keeps its options until
    /// [`Family::set_options`](crate::Family::set_options), or an open of it by options, changes
    /// them.
    pub family: Option<FamilyOptions> = None,
}
with {
    #[cfg_attr(feature = "serde", serde(skip))]
    shared_cache: Option<BlockCache> = None,
    #[cfg_attr(feature = "serde", serde(skip))]
    listener: Option<Listener> = None,
    #[cfg_attr(feature = "serde", serde(skip, default = "Env::system"))]
    env: Env = Env::system(),
    #[cfg_attr(feature = "serde", serde(skip))]
    sizes: Sizes = Sizes::default(),
}
}

impl Options {
    /// The defaults over a file system in memory, for tests: the data goes away with the last
    /// handle.
    pub fn in_memory() -> Options {
        let fs = Arc::new(MemoryFs::new());
        Options::new().env(Env { fs, ..Env::system() })
    }

    /// Uses a cache that several databases share.
    pub fn shared_cache(mut self, cache: BlockCache) -> Self {
        self.shared_cache = Some(cache);
        self
    }

    /// Calls `listener` with every [`Event`], on the thread where it happens: flushes, compactions,
    /// stalls, recovery, errors. A later call replaces the listener.
    ///
    /// A listener returns quickly and does not call the database, except to close it (see
    /// [`Db::close`](crate::Db::close)). A panic ends that call of the listener and nothing else.
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Replaces the outside world: files, clock, randomness, threads.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Replaces lengths that no program chooses.
    #[cfg(feature = "simulation")]
    pub fn sizes(mut self, sizes: Sizes) -> Self {
        self.sizes = sizes;
        self
    }

    /// Table files kept open.
    pub(crate) fn open_files(&self) -> usize {
        self.max_open_files.unwrap_or_else(|| open_files_of(self.env.fs.open_files_max()))
    }

    pub(crate) fn check(&self) -> Result<()> {
        let budget_min = self.sizes.write_buffer_min;
        within("write_buffer", self.write_buffer, budget_min, 64 << 30)?;
        within("compaction_threads", self.compaction_threads.unwrap_or(1) as u64, 1, 256)?;
        if let Some(interval) = self.sync_interval {
            within("sync_interval (microseconds)", interval.as_micros() as u64, 100, 1 << 50)?;
        }
        if let Some(files) = self.max_open_files {
            within("max_open_files", files as u64, OPEN_FILES_MIN, 1 << 20)?;
        }
        self.family.as_ref().map_or(Ok(()), FamilyOptions::check_asked)
    }

    /// The options of a family that is created without its own.
    pub(crate) fn new_family(&self) -> FamilyOptions {
        self.family.clone().unwrap_or_default()
    }
}

/// How many tables are kept open by a process that may open so many files.
fn open_files_of(limit: Option<u64>) -> usize {
    let half = limit.map_or(OPEN_FILES_MAX, |most| most / 2);
    half.clamp(OPEN_FILES_MIN, OPEN_FILES_MAX) as usize
}

fn within(what: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!("{what} must be from {least} to {most}, not {value}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Codec;

    #[test]
    fn options_are_read_from_text_with_sizes_as_people_write_them() {
        let options: Options = serde_json::from_str(
            r#"{"write_buffer": "16MiB", "durability": "sync", "family": {"codecs": ["zstd"]}}"#,
        )
        .unwrap();
        assert_eq!(options.write_buffer, 16 * MIB);
        assert_eq!(options.durability, Durability::Sync);
        assert_eq!(options.new_family().codec_at(5), Codec::Zstd);
        let error = serde_json::from_str::<Options>(r#"{"write_buget": "16MiB"}"#).unwrap_err();
        assert!(error.to_string().contains("write_buget"), "{error}");
    }

    #[test]
    fn half_of_the_files_that_a_process_may_open_are_tables_unless_the_options_say_otherwise() {
        for (limit, files) in [(None, 512), (Some(4096), 512), (Some(100), 50), (Some(3), 8)] {
            assert_eq!(open_files_of(limit), files, "{limit:?}");
        }
        assert_eq!(Options::new().max_open_files(70).open_files(), 70);
    }

    #[test]
    fn senseless_values_are_refused_with_the_range() {
        let error = Options::in_memory().write_buffer(1).open("x").unwrap_err();
        assert!(error.to_string().contains("write_buffer must be from"), "{error}");
    }
}
