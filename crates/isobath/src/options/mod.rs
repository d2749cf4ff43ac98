//! What a user can configure: few options, each with a default that is right for most programs.
//!
//! Each set of options is one list (`list.rs`): fields of plain types, their defaults, and setters
//! of the same names. Sizes are in bytes; text may add a unit (`size.rs`). The options of a family
//! are stored on disk (`stored.rs`).

mod call;
mod expiry;
mod family;
mod list;
mod names;
mod size;
mod stored;
#[cfg(feature = "serde")]
mod text;
mod transaction;

pub use call::{Durability, ReadOptions, WriteOptions};
pub use expiry::Expiry;
pub use family::FamilyOptions;
pub use size::{GIB, KIB, MIB};
pub use transaction::{Isolation, TransactionOptions};

use crate::env::Env;
use crate::error::{Error, Result};
use crate::events::{Event, Listener};
use crate::memory::Shares;
use crate::mvcc::{CompactionFilter, Filters, MergeOperator, Operators};
use crate::sizes::Sizes;
use crate::table::cache::BlockCache;
use crate::vfs::{IoMode, MemoryFs};
use list::options;
use names::check_name;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// The commit hook of the program, whose shape `transact` knows.
pub(crate) type ErasedHook = Arc<dyn Any + Send + Sync>;

/// How many table files are open, unless the options set a number. As many as the first of `MAX`
/// may be half of what the process may open, and more an eighth: it may have several databases.
const OPEN_FILES_MAX: [u64; 2] = [512, 8192];
const OPEN_FILES_MIN: u64 = 8;

/// The write buffer, and the block cache, unless the options say otherwise.
const SIZE_DEFAULT: u64 = 64 * MIB;
const BUFFER_LEN_MAX: u64 = 64 << 30;

options! {
/// Options of a database. [`Options::open`] opens the database.
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
    /// Refuse to open a database that exists. Default false. A creation that failed, as on a full
    /// disk, may leave an empty database, which exists.
    pub error_if_exists: bool = false,
    /// Open for reading only. Default false. Opening then creates, locks, renames and removes
    /// nothing, and starts no thread. So it works without write permission, on a read-only file
    /// system, and beside the process that writes on the same machine. Reads see the database as of
    /// the moment of opening, until [`Db::catch_up`](crate::Db::catch_up). Calls that would change
    /// something return [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly). The reader holds in
    /// memory the part of the log that is not in tables yet, at most eight times `write_buffer`. It
    /// keeps up to `max_open_files` table files open.
    pub read_only: bool = false,
    /// The most bytes of memory that the database holds: writes that are not in tables yet, cached
    /// blocks, filters and indexes, what flushes and compactions work with, transactions and their
    /// locks, and what iterators and values of the program keep. At least 24 MiB, which suits up to
    /// some 3 GiB of data. Default `None`: there is no ceiling, and `write_buffer` and
    /// `block_cache` are two sizes of their own. With a ceiling the engine divides it, and these
    /// two are the most that it gives to either. At the ceiling the block cache gives way first.
    /// Then writers are slowed down, and at last a call fails with
    /// [`ErrorKind::MemoryLimit`](crate::ErrorKind::MemoryLimit), which says what holds most;
    /// nothing that was written is lost. A key and its value together may then have a 64th of the
    /// ceiling. A larger ceiling means fewer reads of files and fewer bytes rewritten by
    /// compactions; a smaller one leaves more memory to the program. Memory of batches that the
    /// program fills, of threads and of the mapped log is not counted; the guide *Tuning* has the
    /// list. Not with `shared_cache` or `read_only`.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "text::optional_size"))]
    pub memory: Option<u64> = None,
    /// Bytes of writes collected in memory before they are flushed to a table. Default 64 MiB, or a
    /// twelfth of `memory`; at least 64 KiB. While flushes run, at most three times as much is
    /// held. Two flushes of little that were asked for may hold a fifth of a buffer besides, and
    /// large transactions and ingests, while they are merged, a quarter (half of a small buffer).
    /// An open transaction may hold half a buffer. A larger buffer means that compactions rewrite
    /// fewer bytes; a smaller one uses less memory and recovers faster.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "text::optional_size"))]
    pub write_buffer: Option<u64> = None,
    /// Bytes of decoded blocks to keep. Default 64 MiB, or what `memory` has left. With a larger
    /// cache, fewer reads go to files; a smaller one uses less memory. Ignored if a shared cache is
    /// given.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "text::optional_size"))]
    pub block_cache: Option<u64> = None,
    /// When writes return, unless a write has its own [`WriteOptions`]. Default
    /// [`Durability::Process`].
    pub durability: Durability = Durability::Process,
    /// Sync the log in the background at this interval, at least 100 µs. Power loss then costs at
    /// most the writes of one interval and of the two syncs around it. A longer interval costs more
    /// of them, a shorter one more work of the device. Default `None`: no background sync, because
    /// the cost of a sync every second for writers is not measured yet.
    pub sync_interval: Option<Duration> = None,
    /// For how long earlier states of the database can be read, by
    /// [`Db::snapshot_at`](crate::Db::snapshot_at) and
    /// [`Db::snapshot_as_of`](crate::Db::snapshot_as_of): every point that was given out within
    /// this time and the last 64 openings for writing, and the state at every time within it.
    /// Default `None`: as when the database was last opened for writing; a new one keeps no
    /// history. With zero, it forgets its history. A longer one takes more room: flushes and
    /// compactions keep each value and each delete that was overwritten within this time.
    pub history: Option<Duration> = None,
    /// How to access the log and tables. Default [`IoMode::Auto`].
    pub io: IoMode = IoMode::Auto,
    /// Threads that compact tables. Default: one for every two processors, at least one and at most
    /// four. More threads keep up with more writes; fewer leave more processor to the program. They
    /// run at a lower priority than the program (on Linux, nice 10), so a machine that has no
    /// processor left for them slows its writers.
    pub compaction_threads: Option<usize> = None,
    /// The most bytes a second that flushes and compactions write to tables, at least 64 KiB.
    /// Default: no limit. Flushes go before compactions. The log and what a recovery writes are
    /// not limited. A smaller limit leaves more of the device to reads and to other programs;
    /// but each byte that a program writes is written to tables several times, so programs that
    /// write more than a fraction of the limit for long are slowed down to what it lets through.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "text::optional_size"))]
    pub io_rate_limit: Option<u64> = None,
    /// Table files to keep open, at least 8. A reader beside the process that writes
    /// ([`Options::read_only`]) needs room for all of them: if it has let a file go that the writer
    /// has removed since, its reads of that file fail with [`ErrorKind::Io`](crate::ErrorKind::Io)
    /// (not found) until it catches up. Default: half of what the process may open, at most 512; or
    /// an eighth of it if that is more, at most 8192. With a larger number, fewer tables are opened
    /// again; a smaller one uses fewer file descriptors.
    pub max_open_files: Option<usize> = None,
    /// How long a write waits for a key that a transaction has locked, and one wait of a
    /// transaction that has no [`TransactionOptions::lock_timeout`] of its own. Default 10 s. Then
    /// it fails with [`ErrorKind::LockTimeout`](crate::ErrorKind::LockTimeout). A longer time lets
    /// a program bear transactions that hold locks for long; a shorter one tells it sooner.
    pub lock_timeout: Duration = Duration::from_secs(10),
    /// Options for the default family, applied at each open, and for new families that are created
    /// without options of their own. Default `None`: the default family keeps its options, and new
    /// families get the defaults. Any other family keeps its options until
    /// [`Family::set_options`](crate::Family::set_options), or until it is opened with options.
    pub family: Option<FamilyOptions> = None,
}
with {
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) shared_cache: Option<BlockCache> = None,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) listener: Option<Listener> = None,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) commit_hook: Option<ErasedHook> = None,
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) operators: Operators = Operators::default(),
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) filters: Filters = Filters::default(),
    #[cfg_attr(feature = "serde", serde(skip, default = "Env::system"))]
    pub(crate) env: Env = Env::system(),
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) sizes: Sizes = Sizes::default(),
}
}

impl Options {
    /// The default options on a file system in memory, for tests. The data is gone when the last
    /// handle is dropped.
    pub fn in_memory() -> Options {
        let fs = Arc::new(MemoryFs::new());
        Options::new().env(Env { fs, ..Env::system() })
    }

    /// Uses a block cache that several databases share.
    pub fn shared_cache(mut self, cache: BlockCache) -> Self {
        self.shared_cache = Some(cache);
        self
    }

    /// Calls `listener` with every [`Event`], on the thread where it happens: flushes, compactions,
    /// recovery, errors of background jobs. A second listener replaces the first.
    ///
    /// A listener must return quickly. It must not call the database, except to close it (see
    /// [`Db::close`](crate::Db::close)). A panic in the listener ends that call and nothing else.
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Brings a merge operator, which families then name by
    /// [`FamilyOptions::merge_operator`]. May be called for several. The bundled ones
    /// ([`operators`](crate::operators)) are always there; only their names may begin with
    /// `isobath.`. Without an operator that a family names, the database opens, and reads of keys
    /// with operands fail.
    pub fn merge_operator(mut self, operator: impl MergeOperator) -> Self {
        self.operators.add(Arc::new(operator));
        self
    }

    /// Brings a compaction filter under a name, by which families then ask for it:
    /// [`FamilyOptions::compaction_filter`]. May be called for several. Without the filter that a
    /// family names, the database opens, and all values of the family stay; its first compaction
    /// then tells [`Event::FilterMissing`].
    pub fn compaction_filter(
        mut self,
        name: impl AsRef<str>,
        filter: impl CompactionFilter,
    ) -> Self {
        self.filters.add(name.as_ref(), Arc::new(filter));
        self
    }

    /// Replaces the environment: files, clock, random numbers, threads.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Replaces internal sizes that a program cannot set.
    #[cfg(feature = "simulation")]
    pub fn sizes(mut self, sizes: Sizes) -> Self {
        self.sizes = sizes;
        self
    }

    /// The number of table files to keep open.
    pub(crate) fn open_files(&self) -> usize {
        self.max_open_files.unwrap_or_else(|| open_files_of(self.env.fs.open_files_max()))
    }

    /// The length of a write buffer.
    #[inline]
    pub(crate) fn buffer_len(&self) -> u64 {
        self.write_buffer.unwrap_or(SIZE_DEFAULT)
    }

    /// The bytes of decoded blocks to keep, if there is no ceiling for memory.
    pub(crate) fn cache_len(&self) -> u64 {
        self.block_cache.unwrap_or(SIZE_DEFAULT)
    }

    /// How the ceiling for memory is divided, if there is one.
    pub(crate) fn shares(&self) -> Option<Shares> {
        let (cap, sizes) = (self.write_buffer.unwrap_or(BUFFER_LEN_MAX), &self.sizes);
        Some(Shares::new(self.memory?, cap, sizes.write_buffer_min, sizes.chunk_len_min))
    }

    /// The same options, with the sizes that follow from the ceiling for memory.
    pub(crate) fn settled(mut self) -> Options {
        if let Some(shares) = self.shares() {
            self.write_buffer = Some(shares.write_buffer);
        }
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.check_memory()?;
        let budget_min = self.sizes.write_buffer_min;
        within("write_buffer", self.buffer_len(), budget_min, BUFFER_LEN_MAX)?;
        within("compaction_threads", self.compaction_threads.unwrap_or(1) as u64, 1, 256)?;
        if let Some(interval) = self.sync_interval {
            let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
            within("sync_interval (microseconds)", micros, 100, 1 << 50)?;
        }
        if let Some(rate) = self.io_rate_limit {
            within("io_rate_limit", rate, 64 * KIB, 1 << 50)?;
        }
        if let Some(files) = self.max_open_files {
            within("max_open_files", files as u64, OPEN_FILES_MIN, 1 << 20)?;
        }
        for name in self.filters.names() {
            check_name("compaction_filter", name)?;
        }
        if let Some(name) = self.operators.names().find(|name| name.starts_with("isobath.")) {
            return Err(Error::invalid_argument(format!(
                "merge_operator: {name:?} is a name of the engine; choose one that does not begin with \"isobath.\""
            )));
        }
        self.family.as_ref().map_or(Ok(()), |family| self.check_family(family))
    }

    fn check_memory(&self) -> Result<()> {
        let Some(memory) = self.memory else { return Ok(()) };
        within("memory", memory, self.sizes.memory_min, 1 << 50)?;
        let other = match (&self.shared_cache, self.read_only) {
            (Some(_), _) => "a cache that databases share (`shared_cache`)",
            (None, true) => "`read_only`",
            (None, false) => return Ok(()),
        };
        Err(Error::invalid_argument(format!(
            "`memory` is a ceiling for one database that is open for writing; leave it or {other} out"
        )))
    }

    /// Checks options of a family that the program passes.
    pub(crate) fn check_family(&self, family: &FamilyOptions) -> Result<()> {
        family.check_asked()?;
        if let Some(name) = &family.compaction_filter
            && self.filters.find(name).is_none()
        {
            return Err(Error::invalid_argument(format!(
                "compaction_filter: {name:?} is not known; open the database with `Options::compaction_filter`"
            )));
        }
        match &family.merge_operator {
            Some(name) if self.operators.find(name).is_none() => {
                Err(Error::invalid_argument(format!(
                    "merge_operator: {name:?} is not known; open the database with `Options::merge_operator`"
                )))
            }
            _ => Ok(()),
        }
    }

    /// The options of a family created without options of its own.
    pub(crate) fn new_family(&self) -> FamilyOptions {
        self.family.clone().unwrap_or_default()
    }
}

/// The number of tables to keep open in a process that may open `limit` files.
fn open_files_of(limit: Option<u64>) -> usize {
    let [of_half, of_eighth] = OPEN_FILES_MAX;
    let most = limit.unwrap_or(of_half * 2);
    (most / 2).min(of_half).max((most / 8).min(of_eighth)).max(OPEN_FILES_MIN) as usize
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
            r#"{"write_buffer": "16MiB", "io_rate_limit": "1MiB", "durability": "sync", "family": {"codecs": ["zstd"]}}"#,
        )
        .unwrap();
        assert_eq!((options.buffer_len(), options.io_rate_limit), (16 * MIB, Some(MIB)));
        assert_eq!(options.durability, Durability::Sync);
        assert_eq!(options.new_family().codec_at(5), Codec::Zstd);
        let error = serde_json::from_str::<Options>(r#"{"write_buget": "16MiB"}"#).unwrap_err();
        assert!(error.to_string().contains("write_buget"), "{error}");
    }

    #[test]
    fn a_part_of_the_files_that_a_process_may_open_are_tables_unless_the_options_say_otherwise() {
        let few =
            [(None, 512), (Some(3), 8), (Some(100), 50), (Some(1024), 512), (Some(2048), 512)];
        let many = [(Some(4096), 512), (Some(20_000), 2500), (Some(1 << 20), 8192)];
        for (limit, files) in few.into_iter().chain(many) {
            assert_eq!(open_files_of(limit), files, "{limit:?}");
        }
        assert_eq!(Options::new().max_open_files(70).open_files(), 70);
    }

    #[test]
    fn a_ceiling_for_memory_is_divided_and_the_other_two_sizes_are_caps_within_it() {
        let with = |json: &str| serde_json::from_str::<Options>(json).unwrap();
        assert_eq!(with(r#"{"memory": "1GiB"}"#).settled().buffer_len(), GIB / 12);
        let capped = with(r#"{"memory": "1GiB", "write_buffer": "16MiB"}"#);
        assert_eq!(capped.settled().buffer_len(), 16 * MIB);
        assert_eq!(with(r#"{"block_cache": "1MiB"}"#).cache_len(), MIB);
        let apart = with(r#"{"family": {"separate_from": "4KiB"}}"#).family.unwrap();
        assert_eq!(apart.separate_from, Some(4 * KIB));
        let none = Options::new().settled();
        assert_eq!(
            (none.buffer_len(), none.cache_len(), none.shares()),
            (64 * MIB, 64 * MIB, None)
        );
    }

    #[test]
    fn a_ceiling_that_is_too_low_or_has_no_meaning_is_refused_and_says_why() {
        let told = |options: Options| options.open("x").unwrap_err().to_string();
        let low = told(Options::in_memory().memory(1 << 20));
        assert!(low.contains("memory must be from 25165824 to"), "{low}");
        let shared = told(Options::in_memory().memory(GIB).shared_cache(BlockCache::new(MIB)));
        assert!(shared.contains("shared_cache"), "{shared}");
        let reader = told(Options::in_memory().memory(GIB).read_only(true));
        assert!(reader.contains("read_only"), "{reader}");
    }

    #[test]
    fn a_merge_operator_of_the_program_cannot_have_a_name_of_the_bundled_ones() {
        struct Mine(&'static str);
        impl MergeOperator for Mine {
            fn name(&self) -> &str {
                self.0
            }

            fn merge(
                &self,
                _: &[u8],
                _: Option<&[u8]>,
                _: &[&[u8]],
                _: &mut Vec<u8>,
            ) -> std::result::Result<(), crate::BoxError> {
                Ok(())
            }
        }
        let open = |name| Options::in_memory().merge_operator(Mine(name)).open("x").map(drop);
        for name in ["isobath.counter", "isobath.of_a_later_version"] {
            assert_eq!(open(name).unwrap_err().name(), "INVALID_ARGUMENT", "{name}");
        }
        open("isobathic").unwrap();
    }

    #[test]
    fn senseless_values_are_refused_with_the_range() {
        let error = Options::in_memory().write_buffer(1).open("x").unwrap_err();
        assert!(error.to_string().contains("write_buffer must be from"), "{error}");
        // The last one's microseconds are 200 more than fit 64 bits.
        for interval in
            [Duration::ZERO, Duration::MAX, Duration::new(18_446_744_073_709, 551_816_000)]
        {
            let error = Options::in_memory().sync_interval(interval).open("x").unwrap_err();
            assert!(error.to_string().contains("sync_interval"), "{error}");
        }
    }
}
