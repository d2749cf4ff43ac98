//! What a user can choose: few options, each with a default that is right for most.

use crate::env::Env;
use crate::error::{DecodeError, Decoded, Error, Result};
use crate::events::EventListener;
use crate::format::{DEFAULT_FAMILY, FamilyId};
use crate::sizes::Sizes;
use crate::table::cache::BlockCache;
use crate::table::{Codec, Label, Origin, TableOptions};
use crate::vfs::{MemoryFs, ReadMode};
use bytesize::ByteSize;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Table files kept open unless the options say otherwise: half of what most systems let a process open.
const OPEN_FILES_DEFAULT: usize = 512;

/// When a commit may be acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Promises less than [`Durability::Process`]; served as `Process`, which costs no more here.
    Buffered,
    /// Survives the death of the process (the kernel holds it). After power loss, what is there is a
    /// prefix of history that may lack the newest commits.
    #[default]
    Process,
    /// Survives power loss: acknowledged after an fdatasync, shared by everyone who waits.
    Sync,
}

/// How one write is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteOptions {
    /// When to acknowledge; `None` takes the database's default.
    pub durability: Option<Durability>,
    /// Answer [`ErrorKind::WouldStall`](crate::ErrorKind::WouldStall) rather than wait for flush, compaction
    /// or log room.
    pub fail_fast: bool,
}

impl WriteOptions {
    /// Acknowledge only what survives power loss.
    pub fn sync() -> Self {
        WriteOptions { durability: Some(Durability::Sync), fail_fast: false }
    }

    /// The same options with this durability.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// The same options, failing instead of waiting if `fail_fast`.
    pub fn fail_fast(mut self, fail_fast: bool) -> Self {
        self.fail_fast = fail_fast;
        self
    }
}

/// How one read is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadOptions {
    /// Keep the blocks that are read in the block cache. Default true. False is for what is read once, such as a scan of
    /// everything: it leaves the cache to the others. A range or a cursor then reads far ahead, and past the cache.
    pub fill_cache: bool,
}

impl Default for ReadOptions {
    #[inline]
    fn default() -> Self {
        ReadOptions { fill_cache: true }
    }
}

impl ReadOptions {
    /// The defaults.
    pub fn new() -> Self {
        ReadOptions::default()
    }

    /// Sets [`ReadOptions::fill_cache`].
    pub fn fill_cache(mut self, fill: bool) -> Self {
        self.fill_cache = fill;
        self
    }
}

/// Options of one column family. Persisted with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct FamilyOptions {
    /// The codec of each level, level 0 first; the last one holds for all deeper levels. Default: none for
    /// level 0, which is rewritten soon, LZ4 below (none in a build without the feature `lz4`). The last level of a tree
    /// always takes the last one.
    pub codecs: Vec<Codec>,
    /// Uncompressed bytes of a data block. Default 4 KiB. Larger ones compress better and scan faster;
    /// smaller ones make a point read of uncached data cheaper.
    #[serde(serialize_with = "as_number")]
    pub block_size: ByteSize,
    /// Bits of Bloom filter a key. Default 10 (about 1% false positives); 0 turns filters off.
    pub filter_bits_per_key: u32,
    /// How many times larger each level is than the one above. Default 10. Smaller: less space and faster
    /// reads, more bytes rewritten.
    // The name that databases from before have on disk.
    #[serde(alias = "level_ratio")]
    pub level_size_ratio: u32,
}

impl Default for FamilyOptions {
    fn default() -> Self {
        FamilyOptions {
            codecs: vec![Codec::None, Codec::default()],
            block_size: ByteSize::kib(4),
            filter_bits_per_key: 10,
            level_size_ratio: 10,
        }
    }
}

impl FamilyOptions {
    /// The defaults.
    pub fn new() -> Self {
        FamilyOptions::default()
    }

    /// One codec for every level.
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codecs = vec![codec];
        self
    }

    /// Sets [`FamilyOptions::codecs`].
    pub fn codecs(mut self, codecs: impl Into<Vec<Codec>>) -> Self {
        self.codecs = codecs.into();
        self
    }

    /// Sets [`FamilyOptions::block_size`], in bytes.
    pub fn block_size(mut self, bytes: u64) -> Self {
        self.block_size = ByteSize(bytes);
        self
    }

    /// Sets [`FamilyOptions::filter_bits_per_key`].
    pub fn filter_bits_per_key(mut self, bits: u32) -> Self {
        self.filter_bits_per_key = bits;
        self
    }

    /// Sets [`FamilyOptions::level_size_ratio`].
    pub fn level_size_ratio(mut self, ratio: u32) -> Self {
        self.level_size_ratio = ratio;
        self
    }

    /// What a table's slice means that says no options: the same in every build.
    pub(crate) fn unlabelled() -> Self {
        FamilyOptions { codecs: vec![Codec::None, Codec::Lz4], ..FamilyOptions::default() }
    }

    /// The options, unless they name a codec that this build lacks.
    pub(crate) fn demand_codecs(self) -> Decoded<Self> {
        self.codecs.iter().try_for_each(|codec| codec.demand())?;
        Ok(self)
    }

    pub(crate) fn codec_at(&self, level: usize) -> Codec {
        self.codecs.get(level).or(self.codecs.last()).copied().unwrap_or(Codec::None)
    }

    /// How slices of a level are written, in a family of this id and name.
    pub(crate) fn table_options(&self, id: FamilyId, name: &str, level: usize) -> TableOptions {
        let options =
            if *self == FamilyOptions::unlabelled() { Vec::new() } else { self.to_json() };
        let needs_label = id != DEFAULT_FAMILY || !options.is_empty();
        let label = needs_label.then(|| Label { name: name.to_owned(), options }.into());
        TableOptions {
            origin: Origin { label, ..Origin::default() },
            block_len: self.block_size.as_u64() as u32,
            codec: self.codec_at(level),
            filter_bits_per_key: self.filter_bits_per_key,
            ..TableOptions::default()
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        within("block_size", self.block_size.as_u64(), 256, 1 << 20)?;
        within("filter_bits_per_key", u64::from(self.filter_bits_per_key), 0, 64)?;
        within("level_size_ratio", u64::from(self.level_size_ratio), 2, 100)?;
        within("codecs (entries)", self.codecs.len() as u64, 1, 16)
    }

    /// What a program asks for must also be there in this build.
    pub(crate) fn check_asked(&self) -> Result<()> {
        self.check()?;
        match self.codecs.iter().find(|codec| !codec.is_available()) {
            Some(codec) => Err(Error::invalid_argument(format!(
                "codecs: this build lacks {0}; build Isobath with the feature `{0}`",
                codec.name()
            ))),
            None => Ok(()),
        }
    }

    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("plain data always serialises")
    }

    pub(crate) fn from_json(json: &[u8]) -> Decoded<FamilyOptions> {
        let unreadable = |why: String| {
            DecodeError::newer_format(format!(
                "the options of a column family cannot be read: {why}"
            ))
        };
        let options: FamilyOptions =
            serde_json::from_slice(json).map_err(|why| unreadable(why.to_string()))?;
        // They size what is written from now on: no call could have set others.
        options.check().map_err(|why| unreadable(why.to_string()))?;
        Ok(options)
    }
}

/// Options of a database, and the way to open one.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let db = isobath::Options::new().write_buffer(16 << 20).block_cache(32 << 20).open(dir.path())?;
/// db.put(b"key", b"value")?;
/// db.close()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Options {
    /// Create the database if the directory is empty or missing. Default true.
    pub create_if_missing: bool,
    /// Refuse to open a database that exists. Default false.
    pub error_if_exists: bool,
    /// Open for reading only. Default false. Nothing is created, locked, renamed or removed, and no thread is started: works
    /// without permission to write, on a file system that is read-only, and beside the process that writes. Reads see the
    /// database as it was when it was opened, until [`Db::catch_up`](crate::Db::catch_up); what changes something answers
    /// [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly). The part of the log that is not in tables yet is
    /// held in memory, at most eight times
    /// `write_buffer` of it, and table files are held open, up to `max_open_files` of them.
    pub read_only: bool,
    /// Bytes of writes gathered in memory before they are flushed to a table. Default 64 MiB; at most three
    /// times as much is held while flushes run. At least 64 KiB. Larger: fewer bytes rewritten by compactions; smaller:
    /// less memory and a shorter recovery.
    #[serde(serialize_with = "as_number")]
    pub write_buffer: ByteSize,
    /// Bytes of decoded blocks kept. Default 64 MiB. Ignored if a shared cache is given.
    #[serde(serialize_with = "as_number")]
    pub block_cache: ByteSize,
    /// When writes are acknowledged unless they say otherwise. Default [`Durability::Process`].
    pub durability: Durability,
    /// Sync the log in the background this often, at least 100 µs apart, so that power loss costs at most that much. Default
    /// never.
    pub sync_interval: Option<Duration>,
    /// How log segments are written: mapped costs no system call a commit; positional costs one, and is for file systems
    /// where a store into a mapped page may need room (copy-on-write, network), since there a full disk ends the process
    /// with a signal. Default `None`: mapped on ext2, ext3, ext4, xfs and tmpfs, positional elsewhere. See
    /// [`crate::Event::LogModeChosen`]. On xfs, whoever copies an open database by sharing its blocks (`cp --reflink`) while the
    /// disk is nearly full had better say positional.
    pub log_mode: Option<ReadMode>,
    /// How tables are read: positional takes a system call for a block that is not in the block cache, and makes an
    /// I/O error of the device an [`Error`]; mapped is quicker where the page cache holds what the block cache does not,
    /// slower where the tables are larger than memory, and an I/O error ends the process with a signal. Default
    /// positional.
    pub read_mode: ReadMode,
    /// Threads that compact tables. Default: one for each two processors, at least one, at most
    /// four.
    pub compaction_threads: Option<usize>,
    /// Table files kept open, at least 8. Default 512, half of what most systems let a process open.
    pub max_open_files: Option<usize>,
    /// The template: options of the default family, at each open, and of families that are created without their own.
    /// Default `None`: the default family keeps the options it has, new families take the defaults. Any other family keeps
    /// its options until [`Family::set_options`](crate::Family::set_options), or an open of it by options, changes them.
    pub family: Option<FamilyOptions>,
    #[serde(skip)]
    pub(crate) shared_cache: Option<BlockCache>,
    #[serde(skip)]
    pub(crate) listener: Option<Arc<dyn EventListener>>,
    #[serde(skip, default = "Env::system")]
    pub(crate) env: Env,
    #[serde(skip)]
    pub(crate) sizes: Sizes,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            create_if_missing: true,
            error_if_exists: false,
            read_only: false,
            write_buffer: ByteSize::mib(64),
            block_cache: ByteSize::mib(64),
            durability: Durability::Process,
            sync_interval: None,
            log_mode: None,
            read_mode: ReadMode::Positional,
            compaction_threads: None,
            max_open_files: None,
            family: None,
            shared_cache: None,
            listener: None,
            env: Env::system(),
            sizes: Sizes::default(),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| std::fmt::Error)?)
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Options {
        Options::default()
    }

    /// The defaults over a file system in memory, for tests: the data goes away with the last handle.
    pub fn in_memory() -> Options {
        let fs = Arc::new(MemoryFs::new());
        Options::new().env(Env { fs, ..Env::system() })
    }

    /// Sets [`Options::create_if_missing`].
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.create_if_missing = create;
        self
    }

    /// Sets [`Options::error_if_exists`].
    pub fn error_if_exists(mut self, refuse: bool) -> Self {
        self.error_if_exists = refuse;
        self
    }

    /// Sets [`Options::read_only`].
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets [`Options::write_buffer`], in bytes.
    pub fn write_buffer(mut self, bytes: u64) -> Self {
        self.write_buffer = ByteSize(bytes);
        self
    }

    /// Sets [`Options::block_cache`], in bytes.
    pub fn block_cache(mut self, bytes: u64) -> Self {
        self.block_cache = ByteSize(bytes);
        self
    }

    /// Uses a cache that several databases share.
    pub fn shared_cache(mut self, cache: BlockCache) -> Self {
        self.shared_cache = Some(cache);
        self
    }

    /// Sets [`Options::durability`].
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets [`Options::sync_interval`].
    pub fn sync_interval(mut self, interval: Option<Duration>) -> Self {
        self.sync_interval = interval;
        self
    }

    /// Sets [`Options::log_mode`].
    pub fn log_mode(mut self, mode: ReadMode) -> Self {
        self.log_mode = Some(mode);
        self
    }

    /// Sets [`Options::read_mode`].
    pub fn read_mode(mut self, mode: ReadMode) -> Self {
        self.read_mode = mode;
        self
    }

    /// Sets [`Options::compaction_threads`].
    pub fn compaction_threads(mut self, threads: usize) -> Self {
        self.compaction_threads = Some(threads);
        self
    }

    /// Sets [`Options::max_open_files`].
    pub fn max_open_files(mut self, files: usize) -> Self {
        self.max_open_files = Some(files);
        self
    }

    /// Sets [`Options::family`].
    pub fn family(mut self, family: FamilyOptions) -> Self {
        self.family = Some(family);
        self
    }

    /// Has `listener` told of flushes, compactions, stalls, recovery and errors.
    pub fn listener(mut self, listener: Arc<dyn EventListener>) -> Self {
        self.listener = Some(listener);
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
        self.max_open_files.unwrap_or(OPEN_FILES_DEFAULT)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let budget_min = self.sizes.write_buffer_min;
        within("write_buffer", self.write_buffer.as_u64(), budget_min, 64 << 30)?;
        within("compaction_threads", self.compaction_threads.unwrap_or(1) as u64, 1, 256)?;
        if let Some(interval) = self.sync_interval {
            within("sync_interval (microseconds)", interval.as_micros() as u64, 100, 1 << 50)?;
        }
        within("max_open_files", self.max_open_files.unwrap_or(1000) as u64, 8, 1 << 20)?;
        self.family.as_ref().map_or(Ok(()), FamilyOptions::check_asked)
    }

    /// The options of a family that is created without its own.
    pub(crate) fn new_family(&self) -> FamilyOptions {
        self.family.clone().unwrap_or_default()
    }
}

/// Sizes are read as people write them and written exactly: "4.0 KiB" would round.
fn as_number<S: serde::Serializer>(size: &ByteSize, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(size.as_u64())
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

    #[test]
    fn options_are_read_from_text_with_sizes_as_people_write_them() {
        let options: Options = serde_json::from_str(
            r#"{"write_buffer": "16MiB", "durability": "sync", "family": {"codecs": ["zstd"]}}"#,
        )
        .unwrap();
        assert_eq!(options.write_buffer, ByteSize::mib(16));
        assert_eq!(options.durability, Durability::Sync);
        assert_eq!(options.new_family().codec_at(5), Codec::Zstd);
        let error = serde_json::from_str::<Options>(r#"{"write_buget": "16MiB"}"#).unwrap_err();
        assert!(error.to_string().contains("write_buget"), "{error}");
    }

    #[test]
    fn family_options_come_back_from_what_is_persisted() {
        let options =
            FamilyOptions::new().codec(Codec::Lz4).filter_bits_per_key(3).block_size(5001);
        assert_eq!(FamilyOptions::from_json(&options.to_json()).unwrap(), options);
    }

    #[test]
    fn the_level_size_ratio_is_read_under_its_former_name_too() {
        let options = FamilyOptions::from_json(br#"{"level_ratio": 7}"#).unwrap();
        assert_eq!(options, FamilyOptions::new().level_size_ratio(7));
        let written = String::from_utf8(options.to_json()).unwrap();
        assert!(written.contains(r#""level_size_ratio":7"#), "{written}");
    }

    #[test]
    fn family_options_that_no_call_accepts_are_not_taken_from_disk_either() {
        for json in [
            r#"{"filter_bits_per_key": 4294967295}"#,
            r#"{"block_size": 0}"#,
            r#"{"block_size": 4294967296}"#,
            r#"{"level_size_ratio": 0}"#,
            r#"{"codecs": []}"#,
        ] {
            let error = FamilyOptions::from_json(json.as_bytes()).unwrap_err();
            assert!(error.is_newer_format(), "{json}: {error}");
        }
    }

    #[test]
    fn senseless_values_are_refused_with_the_range() {
        let error = Options::in_memory().write_buffer(1).open("x").unwrap_err();
        assert!(error.to_string().contains("write_buffer must be from"), "{error}");
    }
}
