//! One row: what is done, to which keys, by how many threads.

use super::transactions::COUNTED_LEN_MIN;
use crate::engine::Durability;
use crate::generate::{Compressibility, KEY_LEN_MIN, Pattern, VALUE_LEN_MIN};
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// What the operations of a row are.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Work {
    /// Puts into an empty database.
    Write,
    /// Gets of keys that exist.
    Read,
    /// Gets of keys that don't.
    Absent,
    /// Puts over existing keys.
    Overwrite,
    /// Half puts over existing keys, half gets.
    Mixed,
    /// Deletes of existing keys.
    Delete,
    /// A fresh cursor positioned on an existing key.
    Seek,
    /// A range of `range_size` rows from an existing key.
    Range,
    /// Every row in order.
    Scan,
    /// Transactions that read a counter and write it back one higher.
    Modify,
    /// Transactions of which 95 in a hundred read a counter and five are as above.
    MostlyRead,
    /// Transactions that read `range_size` rows, then write the first back.
    ScanModify,
}

impl Work {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Work::Write => "write",
            Work::Read => "read",
            Work::Absent => "absent",
            Work::Overwrite => "overwrite",
            Work::Mixed => "mixed",
            Work::Delete => "delete",
            Work::Seek => "seek",
            Work::Range => "range",
            Work::Scan => "scan",
            Work::Modify => "modify",
            Work::MostlyRead => "mostly_read",
            Work::ScanModify => "scan_modify",
        }
    }

    /// Whether the database is filled before.
    pub(crate) fn populated(self) -> bool {
        self != Work::Write
    }

    /// Whether the row changes what it finds, so that it needs a database of its own.
    pub(crate) fn destructive(self) -> bool {
        matches!(self, Work::Write | Work::Overwrite | Work::Mixed | Work::Delete)
            || self.transacts()
    }

    /// Whether each call is a transaction, over values that hold counters.
    pub(crate) fn transacts(self) -> bool {
        matches!(self, Work::Modify | Work::MostlyRead | Work::ScanModify)
    }
}

/// Where the keys of a row that reads are.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Memtable {
    /// In tables: flushed and compacted.
    Flushed,
    /// All in memtables, which a quarter of a write buffer of keys and values leaves room in.
    Alone,
    /// In tables, with memtables before them that hold so many of the keys once more.
    Before,
}

/// Bytes of a value, where a row isn't about its size.
pub(super) const VALUE_SIZE: usize = 100;
/// Bytes of keys and values, and a number of synced writes, that are more than any engine takes in
/// a second on a small machine.
const FAST_BYTES: u64 = 460_000_000;
const FAST_SYNCED: u64 = 200_000;
/// Keys to delete in a second. They have to be written first, so a fast engine may delete all of
/// them early.
const DELETES: u64 = 1_000_000;
/// No row is limited to less memory than this.
const GROUP_MIN: u64 = 256 << 20;
/// A row of fewer keys measures nothing.
pub(super) const KEYS_MIN: u64 = 2_000;

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) work: Work,
    pub(crate) pattern: Pattern,
    pub(crate) threads: u64,
    /// Keys that exist or are written: indexes `[0, keys)`.
    pub(crate) keys: u64,
    /// Keys to touch in all, and more only until `seconds_min` has passed.
    pub(crate) operations: u64,
    pub(crate) batch: u64,
    pub(crate) key_size: usize,
    pub(crate) value_size: usize,
    pub(crate) range_size: u64,
    pub(crate) compressibility: Compressibility,
    pub(crate) durability: Durability,
    /// The measured phase lasts at least this long, if there are keys enough, even after
    /// `operations` keys.
    pub(crate) seconds_min: f64,
    /// Ends the measured phase early, on engines that are slow.
    pub(crate) seconds_max: f64,
    /// The cache, where it isn't that of the run.
    pub(crate) cache_bytes: Option<u64>,
    /// The limit on the memory of its process, page cache included, if there is one.
    pub(crate) memory_bytes: Option<u64>,
    /// Measured after twenty write buffers have gone by, for `seconds_max`, whatever `operations`
    /// is.
    pub(crate) sustained: bool,
    /// One more thread stays in a transaction that reads, from before the others begin until they
    /// have ended.
    pub(crate) long_reader: bool,
    pub(crate) memtable: Memtable,
    /// One more thread reads at random and takes at most this share of a core, 0 for none. What it
    /// does is counted apart.
    pub(crate) reader_cores: f64,
}

impl Row {
    /// Fails on impossible sizes.
    pub(crate) fn check(&self) -> Result<()> {
        if self.key_size < KEY_LEN_MIN || self.key_size > 65_535 {
            bail!(
                "row {}: key size {} is impossible ({KEY_LEN_MIN} to 65535)",
                self.name,
                self.key_size
            );
        }
        let least = if self.work.transacts() { COUNTED_LEN_MIN } else { VALUE_LEN_MIN };
        if self.value_size < least || self.value_size > 1 << 30 {
            bail!(
                "row {}: value size {} is impossible ({least} bytes to 1 GiB)",
                self.name,
                self.value_size
            );
        }
        if self.threads == 0 || self.batch == 0 || self.keys < self.threads {
            bail!(
                "row {}: {} keys, {} threads and batches of {} can't be shared out",
                self.name,
                self.keys,
                self.threads,
                self.batch
            );
        }
        Ok(())
    }

    /// The row under a longer name.
    pub(super) fn named(self, qualifier: &str) -> Row {
        Row { name: format!("{}_{qualifier}", self.name), ..self }
    }

    /// The row with keys of another size, and values where the row has the usual one: about the
    /// same bytes.
    pub(crate) fn sized(self, key_size: Option<usize>, value_size: Option<usize>) -> Row {
        let before = self.entry_bytes();
        let mut row = self;
        if let Some(size) = key_size.filter(|size| *size != row.key_size) {
            row = Row { key_size: size, ..row.named(&format!("k{size}")) };
        }
        if row.value_size == VALUE_SIZE
            && let Some(size) = value_size.filter(|size| *size != VALUE_SIZE)
        {
            row = Row { value_size: size, ..row.named(&format!("v{size}")) };
        }
        let scaled =
            |count: u64| (count * before / row.entry_bytes().max(1)).max(KEYS_MIN.min(count));
        Row { keys: scaled(row.keys), operations: scaled(row.operations), ..row }
    }

    /// The row with its keys in memtables, or behind them.
    pub(super) fn in_memtable(self, memtable: Memtable) -> Row {
        let place = if memtable == Memtable::Alone { "memtable" } else { "behind_memtable" };
        Row { memtable, ..self.named(place) }
    }

    /// Keys that stay in a memtable of so many bytes, whatever an engine adds to each.
    pub(super) fn fitting(&self, write_buffer_bytes: u64) -> u64 {
        (write_buffer_bytes / 4 / self.entry_bytes()).clamp(1, self.keys)
    }

    /// The row with no more keys than fit into the memtable that they are to be in.
    pub(crate) fn within(self, write_buffer_bytes: u64) -> Row {
        let keys = match self.memtable {
            Memtable::Alone => self.fitting(write_buffer_bytes).max(self.threads),
            Memtable::Flushed | Memtable::Before => self.keys,
        };
        Row { keys, ..self }
    }

    pub(super) fn on_threads(self, threads: u64) -> Row {
        Row { threads, ..self.named(&format!("t{threads}")) }
    }

    pub(super) fn with_keys(self, keys: u64) -> Row {
        Row { keys, operations: keys, ..self }
    }

    /// Whether no key is touched twice, so that the keys can come to an end.
    pub(super) fn visits_once(&self) -> bool {
        self.work.destructive()
            && !matches!(self.work, Work::Mixed | Work::Overwrite)
            && !self.work.transacts()
            && !matches!(self.pattern, Pattern::Zipfian | Pattern::Uniform)
    }

    /// Keys that the measured phase touches at most.
    pub(super) fn limit(&self) -> u64 {
        match () {
            () if self.sustained => u64::MAX / 1024,
            () if self.seconds_min <= 0.0 => self.operations,
            () if self.visits_once() => self.keys,
            () => u64::MAX / 1024,
        }
    }

    /// The row with a meaningful length: at least this many seconds and, if it writes values
    /// without syncing each, this many bytes. A sustained row lasts a minute or, if that is more,
    /// so many seconds. A row that writes gets enough keys for a fast engine.
    pub(crate) fn lasting(self, seconds: f64, bytes: u64) -> Row {
        if seconds <= 0.0 {
            return self;
        }
        let mut row = self;
        if row.sustained {
            row.seconds_max = row.seconds_max.max(seconds);
            return row;
        }
        let synced = row.durability == Durability::Sync;
        let share = match row.work {
            Work::Write | Work::Overwrite | Work::Modify if !synced => 1,
            Work::Mixed if !synced => 2,
            _ => 0,
        };
        row.operations = row.operations.max(share * bytes.div_ceil(row.entry_bytes()));
        if row.visits_once() {
            let a_second = match row.work {
                _ if synced => FAST_SYNCED,
                Work::Delete => DELETES,
                _ => FAST_BYTES / row.entry_bytes(),
            };
            row.keys = row.keys.max(row.operations).max((a_second as f64 * seconds) as u64);
        }
        row.seconds_min = seconds;
        row.seconds_max = row.seconds_max.max(4.0 * seconds);
        row
    }

    pub(crate) fn takes_batches(&self) -> bool {
        matches!(self.work, Work::Write | Work::Overwrite | Work::Delete | Work::Mixed)
    }

    /// The row with batches of another size, if that isn't its own.
    pub(crate) fn batched(self, batch: u64) -> Row {
        if batch == self.batch {
            return self;
        }
        let old = format!("_b{}", self.batch);
        let name = match self.name.split_once(&old) {
            Some((head, tail)) => format!("{head}_b{batch}{tail}"),
            None => format!("{}_b{batch}", self.name),
        };
        Row { name, batch, ..self }
    }

    /// The row with a cache of this share of its data.
    pub(super) fn with_cache(self, share: f64) -> Row {
        let bytes = (self.keys * self.entry_bytes()) as f64 * share;
        Row { cache_bytes: Some(bytes as u64), ..self }
    }

    /// The row in a third of the memory that its keys and values would take: about half of its
    /// tables where values compress by half. Buffer, cache and program need some whatever the
    /// data, so there are keys enough for that.
    pub(super) fn in_a_third(self) -> Row {
        let keys = self.keys.max((3 * GROUP_MIN).div_ceil(self.entry_bytes()));
        let bytes = keys * self.entry_bytes() / 3;
        Row { keys, memory_bytes: Some(bytes), ..self.named("third_memory") }
    }

    /// Bytes of a key and its value.
    pub(crate) fn entry_bytes(&self) -> u64 {
        (self.key_size + self.value_size) as u64
    }

    /// The name of the filled database this row starts from: rows with equal names share it.
    pub(crate) fn fixture(&self) -> String {
        let shape = serde_json::to_string(&self.pattern.key_shape()).unwrap_or_default();
        let compressibility = serde_json::to_string(&self.compressibility).unwrap_or_default();
        let counted = if self.work.transacts() { "-counters" } else { "" };
        format!(
            "fixture-{shape}-{compressibility}-{}-{}-{}{counted}",
            self.keys, self.key_size, self.value_size
        )
        .replace('"', "")
    }
}
