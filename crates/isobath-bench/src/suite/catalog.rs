//! The named suites.

use super::row::{KEYS_MIN, Memtable, Row, VALUE_SIZE, Work};
use crate::engine::Durability;
use crate::generate::{Compressibility, Pattern};
use anyhow::{Result, bail};

/// A suite's name, and what it is for.
pub(crate) const SUITES: &[(&str, &str)] = &[
    ("smoke", "every kind of work once, small: does it all run?"),
    ("standard", "the rows that decide, at the machine's own number of threads"),
    ("large", "standard at four times the size and 16 threads, with sustained writes"),
    ("sync", "writes that survive a power cut, on 1 to 16 threads"),
    ("single", "standard on one thread"),
    ("larger-than-memory", "reads, seeks and ranges over data 16 times the cache"),
    ("large-values", "values of 1 KiB to 64 KiB"),
    ("memtable", "reads of keys that are in memtables, or in tables behind them"),
    (
        "memory-pressure",
        "reads of data three times the memory that its process may have, from the device",
    ),
    ("scaling", "writes, reads and mixed work on 1, 2, 4, 8 and 16 threads"),
    ("small-values", "fifty million values of 64 bytes (large: two hundred million)"),
    ("engines", "TidesDB's first article: one to eight threads, patterns, sizes and batches"),
    ("durable", "TidesDB's article on synced writes: every kind of work in batches of 100"),
    ("transactions", "transactions on 1 to 16 threads, often over the same keys"),
    ("sustained", "writes past twenty flushes, for a minute: the debt is being paid"),
    ("beside-reader", "sustained writes beside a reader that takes half a core"),
];

/// How large the rows of a suite are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// 1 is the size that TidesDB's articles use: ten million operations.
    pub(crate) factor: f64,
    pub(crate) threads: u64,
    pub(crate) durability: Durability,
    pub(crate) compressibility: Compressibility,
}

const FULL_OPERATIONS: f64 = 10_000_000.0;
/// Longest measured phase at full scale.
const FULL_SECONDS: f64 = 40.0;
const SMALL_VALUES: f64 = 50_000_000.0;
const MANY_SECONDS: f64 = 600.0;
const SUSTAINED_SECONDS: f64 = 60.0;
/// Keys of a call that looks up several.
const LOOKUPS: u64 = 64;

/// The rows of a suite.
pub(crate) fn rows(suite: &str, scale: &Scale) -> Result<Vec<Row>> {
    let builder = Builder { scale: *scale };
    Ok(match suite {
        "smoke" => builder.smoke(),
        "standard" => builder.standard(),
        "large" => {
            Builder { scale: Scale { factor: scale.factor * 4.0, threads: 16, ..*scale } }.large()
        }
        "sync" => builder.sync(),
        "single" => Builder { scale: Scale { threads: 1, ..*scale } }.standard(),
        "larger-than-memory" => builder.larger_than_memory(),
        "large-values" => builder.large_values(),
        "sustained" => builder.sustained(),
        "beside-reader" => builder.beside_reader(),
        "memtable" => builder.memtable(),
        "transactions" => builder.transactions(),
        "memory-pressure" => builder.memory_pressure(),
        "scaling" => builder.scaling(&[1, 2, 4, 8, 16]),
        "small-values" => vec![builder.small_values(SMALL_VALUES)],
        "engines" => builder.engines(),
        "durable" => Builder { scale: Scale { durability: Durability::Sync, ..*scale } }.durable(),
        other => {
            let known: Vec<&str> = SUITES.iter().map(|(name, _)| *name).collect();
            bail!("there is no suite `{other}` (there are {})", known.join(", "));
        }
    })
}

struct Builder {
    scale: Scale,
}

impl Builder {
    /// A row of 16-byte keys and 100-byte values.
    fn row(&self, work: Work, pattern: Pattern, batch: u64) -> Row {
        let operations = self.count(FULL_OPERATIONS);
        let batched = if batch > 1 || matches!(work, Work::Write | Work::Overwrite | Work::Delete) {
            format!("_b{batch}")
        } else {
            String::new()
        };
        Row {
            name: format!("{}_{}{batched}", work.name(), pattern.name()),
            work,
            pattern,
            threads: self.scale.threads,
            keys: operations,
            operations,
            batch,
            key_size: 16,
            value_size: VALUE_SIZE,
            range_size: 0,
            compressibility: self.scale.compressibility,
            durability: self.scale.durability,
            seconds_min: 0.0,
            seconds_max: (FULL_SECONDS * self.scale.factor).clamp(0.5, FULL_SECONDS),
            cache_bytes: None,
            memory_bytes: None,
            sustained: false,
            long_reader: false,
            memtable: Memtable::Flushed,
            reader_cores: 0.0,
        }
    }

    fn count(&self, full: f64) -> u64 {
        ((full * self.scale.factor) as u64).max(KEYS_MIN)
    }

    fn values(&self, pattern: Pattern, batch: u64, value_size: usize) -> Row {
        let row = self.row(Work::Write, pattern, batch);
        let operations =
            (row.operations * 116 / (16 + value_size as u64)).max(KEYS_MIN).min(row.operations * 2);
        Row {
            name: format!("{}_v{value_size}", row.name),
            value_size,
            operations,
            keys: operations,
            ..row
        }
    }

    fn range(&self, pattern: Pattern, range_size: u64) -> Row {
        let row = self.row(Work::Range, pattern, 1);
        let operations = (row.operations / range_size).max(KEYS_MIN / 20);
        Row { name: format!("{}_{range_size}", row.name), range_size, operations, ..row }
    }

    fn writes(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for pattern in [Pattern::Seq, Pattern::Random, Pattern::Zipfian] {
            rows.extend(
                [1, 10, 100, 1000, 10_000].map(|batch| self.row(Work::Write, pattern, batch)),
            );
        }
        rows.push(self.row(Work::Write, Pattern::Timestamp, 1));
        rows.push(self.row(Work::Write, Pattern::Reverse, 1));
        rows.push(self.row(Work::Write, Pattern::Swapped, 100));
        rows.extend([64, 1024, 4096].map(|size| self.values(Pattern::Random, 100, size)));
        rows.push(self.values(Pattern::Random, 1, 4096));
        rows
    }

    fn reads(&self) -> Vec<Row> {
        vec![
            self.row(Work::Read, Pattern::Random, 1),
            self.row(Work::Read, Pattern::Zipfian, 1),
            self.row(Work::Absent, Pattern::Random, 1),
            self.row(Work::Read, Pattern::Random, LOOKUPS),
            self.row(Work::Seek, Pattern::Random, 1),
            self.row(Work::Seek, Pattern::Seq, 1),
            self.row(Work::Seek, Pattern::Zipfian, 1),
            self.range(Pattern::Random, 10),
            self.range(Pattern::Random, 100),
            self.range(Pattern::Random, 1000),
            self.range(Pattern::Seq, 100),
            self.range(Pattern::Seq, 1000),
            self.row(Work::Scan, Pattern::Random, 1),
        ]
    }

    fn standard(&self) -> Vec<Row> {
        let mut rows = self.writes();
        rows.extend(self.reads());
        rows.extend(self.gets().map(|row| row.named("cached").with_cache(2.0)));
        rows.extend(self.gets().map(|row| row.named("16x_cache").with_cache(1.0 / 16.0)));
        rows.push(self.row(Work::Mixed, Pattern::Uniform, 1));
        rows.push(self.row(Work::Mixed, Pattern::Zipfian, 1));
        rows.push(self.row(Work::Mixed, Pattern::Timestamp, 1));
        rows.extend([1, 100, 1000].map(|batch| self.row(Work::Delete, Pattern::Random, batch)));
        rows.push(self.row(Work::Delete, Pattern::Seq, 1));
        rows.push(self.row(Work::Delete, Pattern::Zipfian, 1));
        rows.extend(self.sync());
        rows
    }

    fn gets(&self) -> [Row; 3] {
        [
            self.row(Work::Read, Pattern::Random, 1),
            self.row(Work::Read, Pattern::Zipfian, 1),
            self.row(Work::Absent, Pattern::Random, 1),
        ]
    }

    /// Data 16 times the cache: the cache shrinks where the data is small.
    fn larger_than_memory(&self) -> Vec<Row> {
        let mut rows = self.gets().to_vec();
        rows.push(self.row(Work::Seek, Pattern::Random, 1));
        rows.push(self.range(Pattern::Random, 100));
        rows.push(self.row(Work::Mixed, Pattern::Uniform, 1));
        rows.into_iter().map(|row| row.named("16x_cache").with_cache(1.0 / 16.0)).collect()
    }

    fn sync(&self) -> Vec<Row> {
        let synced = |batch: u64, threads: u64| {
            let row = self.row(Work::Write, Pattern::Random, batch);
            let batched = if batch > 1 { format!("_b{batch}") } else { String::new() };
            let name = format!("write_random{batched}_sync_t{threads}");
            let durability = Durability::Sync;
            Row { name, threads, durability, ..row }.with_keys(self.count(FULL_OPERATIONS / 20.0))
        };
        let mut rows: Vec<Row> = [1, 4, 8, 16].map(|threads| synced(1, threads)).into();
        rows.extend([10, 100, 1000].map(|batch| synced(batch, self.scale.threads.min(8))));
        rows
    }

    fn large(&self) -> Vec<Row> {
        let mut rows = self.standard();
        rows.push(self.small_values(SMALL_VALUES));
        rows.extend(self.memory_pressure());
        rows.extend(self.sustained());
        rows
    }

    /// Writes of values of 64 bytes; `large` has four times as many.
    fn small_values(&self, full: f64) -> Row {
        let row = self.values(Pattern::Random, 100, 64);
        let operations = self.count(full);
        Row { seconds_max: MANY_SECONDS, ..row.named("many").with_keys(operations) }
    }

    fn memory_pressure(&self) -> Vec<Row> {
        let mut rows = self.gets().to_vec();
        rows.push(self.row(Work::Read, Pattern::Random, LOOKUPS));
        rows.push(self.row(Work::Seek, Pattern::Random, 1));
        rows.push(self.range(Pattern::Random, 100));
        rows.push(self.range(Pattern::Random, 1000));
        rows.push(self.row(Work::Scan, Pattern::Random, 1));
        rows.push(self.row(Work::Mixed, Pattern::Uniform, 1));
        rows.into_iter().map(Row::in_a_third).collect()
    }

    /// Read-modify-write, mostly reading, scans before a write, and writers beside a reader that
    /// stays in its transaction.
    fn transactions(&self) -> Vec<Row> {
        let scan = Row { range_size: 100, ..self.row(Work::ScanModify, Pattern::Uniform, 1) };
        let scan = Row { operations: (scan.operations / 100).max(KEYS_MIN / 20), ..scan };
        let all: &[u64] = &[1, 2, 4, 8, 16];
        let works = [
            (self.row(Work::Modify, Pattern::Uniform, 1), all),
            (self.row(Work::Modify, Pattern::Zipfian, 1), all),
            (self.row(Work::MostlyRead, Pattern::Uniform, 1), all),
            (self.row(Work::MostlyRead, Pattern::Zipfian, 1), all),
            (scan, &[1, 4, 16]),
        ];
        let mut rows: Vec<Row> = works
            .into_iter()
            .flat_map(|(row, threads)| threads.iter().map(move |at| row.clone().on_threads(*at)))
            .collect();
        let beside = self.row(Work::Modify, Pattern::Zipfian, 1).named("beside_reader");
        rows.push(Row { long_reader: true, ..beside.on_threads(8) });
        rows
    }

    fn scaling(&self, threads: &[u64]) -> Vec<Row> {
        let works = [
            self.row(Work::Write, Pattern::Seq, 1),
            self.row(Work::Write, Pattern::Random, 1),
            self.row(Work::Write, Pattern::Random, 100),
            self.row(Work::Read, Pattern::Random, 1),
            self.row(Work::Mixed, Pattern::Uniform, 1),
        ];
        let on = |row: &Row, threads: u64| row.clone().on_threads(threads);
        works.iter().flat_map(|row| threads.iter().map(|count| on(row, *count))).collect()
    }

    /// The tables of "TidesDB vs RocksDB: which storage engine is faster?": a million operations at
    /// scale 0.1.
    fn engines(&self) -> Vec<Row> {
        let on = |threads: u64, row: Row| row.on_threads(threads);
        let sized = |row: Row, key_size: usize, value_size: usize| Row {
            key_size,
            value_size,
            name: format!("{}_k{key_size}_v{value_size}", row.name),
            ..row
        };
        let mut rows = self.scaling(&[1, 2, 4, 8]);
        rows.retain(|row| row.work == Work::Write && row.batch == 1);
        rows.push(on(1, self.row(Work::Mixed, Pattern::Random, 1)));
        for pattern in [Pattern::Random, Pattern::Zipfian, Pattern::Timestamp] {
            rows.push(on(4, self.row(Work::Mixed, pattern, 1)));
        }
        rows.push(on(1, self.row(Work::Delete, Pattern::Random, 1)));
        for batch in [1, 10, 100, 1000] {
            rows.push(on(4, self.row(Work::Delete, Pattern::Random, batch)));
        }
        rows.push(on(4, self.row(Work::Delete, Pattern::Zipfian, 1)));
        rows.push(on(4, sized(self.row(Work::Mixed, Pattern::Random, 1), 16, 1024)));
        rows.push(on(4, sized(self.row(Work::Mixed, Pattern::Random, 1), 8, 32)));
        for batch in [10, 100, 1000] {
            rows.push(on(4, self.row(Work::Write, Pattern::Random, batch)));
        }
        for batch in [100, 1000] {
            rows.push(on(4, self.row(Work::Mixed, Pattern::Random, batch)));
        }
        rows
    }

    /// The tables of "TidesDB 7 vs RocksDB 10 under sync mode": all of it synced, a hundred keys a
    /// batch.
    fn durable(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = [Pattern::Seq, Pattern::Random, Pattern::Zipfian]
            .map(|pattern| self.row(Work::Write, pattern, 100))
            .into();
        for batch in [1, 10, 1000] {
            rows.push(self.row(Work::Write, Pattern::Random, batch));
        }
        rows.push(self.values(Pattern::Random, 100, 64));
        rows.push(self.values(Pattern::Random, 100, 4096));
        rows.extend([1, 100, 1000].map(|batch| self.row(Work::Delete, Pattern::Random, batch)));
        rows.push(self.row(Work::Mixed, Pattern::Random, 100));
        rows.push(self.row(Work::Mixed, Pattern::Zipfian, 100));
        // A twentieth of the operations, as in `sync`, because each call waits for the device.
        let mut rows: Vec<Row> = rows
            .into_iter()
            .map(|row| {
                let operations = (row.operations / 20).max(KEYS_MIN);
                row.named("sync").with_keys(operations)
            })
            .collect();
        rows.extend(self.reads());
        rows
    }

    fn sustained(&self) -> Vec<Row> {
        vec![
            self.for_a_minute(self.row(Work::Write, Pattern::Uniform, 1)),
            self.for_a_minute(self.values(Pattern::Uniform, 1, 4096)),
        ]
    }

    /// Five times the usual keys, or about as many bytes.
    fn for_a_minute(&self, row: Row) -> Row {
        let usual = (16 + VALUE_SIZE as u64) as f64 / row.entry_bytes() as f64;
        let keys = self.count(FULL_OPERATIONS * 5.0 * usual);
        let row = row.named("sustained");
        Row { keys, operations: keys, seconds_max: SUSTAINED_SECONDS, sustained: true, ..row }
    }

    fn beside_reader(&self) -> Vec<Row> {
        let row = self.for_a_minute(self.row(Work::Overwrite, Pattern::Uniform, 1));
        vec![row.clone(), Row { reader_cores: 0.5, ..row.named("beside_reader") }]
    }

    /// The same reads of keys that no flush has moved yet, and of keys in tables behind memtables.
    fn memtable(&self) -> Vec<Row> {
        let reads = [
            self.row(Work::Read, Pattern::Random, 1),
            self.row(Work::Read, Pattern::Zipfian, 1),
            self.row(Work::Absent, Pattern::Random, 1),
            self.row(Work::Read, Pattern::Random, LOOKUPS),
            self.row(Work::Seek, Pattern::Random, 1),
            self.range(Pattern::Random, 100),
        ];
        let places = [Memtable::Alone, Memtable::Before];
        let within = |place| reads.iter().map(move |row| row.clone().in_memtable(place));
        places.into_iter().flat_map(within).collect()
    }

    fn large_values(&self) -> Vec<Row> {
        let mut rows: Vec<Row> =
            [1024, 4096, 16_384, 65_536].map(|size| self.values(Pattern::Random, 1, size)).into();
        let sized = self.values(Pattern::Random, 1, 4096);
        let like = |row: Row| Row {
            name: format!("{}_v4096", row.name),
            value_size: 4096,
            keys: sized.keys,
            ..row
        };
        rows.push(like(self.row(Work::Read, Pattern::Random, 1)));
        rows.push(like(self.range(Pattern::Random, 100)));
        rows.push(like(self.row(Work::Mixed, Pattern::Uniform, 1)));
        rows
    }

    fn smoke(&self) -> Vec<Row> {
        let mut rows = vec![
            self.row(Work::Write, Pattern::Seq, 1),
            self.row(Work::Write, Pattern::Random, 1),
            self.row(Work::Write, Pattern::Random, 100),
            self.row(Work::Write, Pattern::Zipfian, 1),
            self.row(Work::Write, Pattern::Timestamp, 1),
            self.row(Work::Write, Pattern::Reverse, 1),
            self.row(Work::Write, Pattern::Swapped, 1),
            self.values(Pattern::Random, 1, 4096),
        ];
        rows.extend(self.reads());
        rows.push(self.row(Work::Mixed, Pattern::Uniform, 1));
        rows.push(self.row(Work::Delete, Pattern::Random, 1));
        rows.push(self.row(Work::Delete, Pattern::Random, 100));
        rows.extend(self.sync().into_iter().take(2));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn scale(factor: f64) -> Scale {
        let (durability, compressibility) = (Durability::Process, Compressibility::Half);
        Scale { factor, threads: 8, durability, compressibility }
    }

    #[test]
    fn every_suite_has_rows_of_possible_sizes_and_distinct_names() {
        for (suite, _) in SUITES {
            for factor in [0.0001, 0.1, 1.0] {
                let rows = rows(suite, &scale(factor)).unwrap();
                rows.iter().for_each(|row| row.check().unwrap());
                let names: BTreeSet<&str> = rows.iter().map(|row| row.name.as_str()).collect();
                assert_eq!(names.len(), rows.len(), "{suite} at {factor}");
            }
        }
    }

    #[test]
    fn rows_of_all_sizes_write_as_much_and_none_has_more_memory_than_a_third_of_its_data() {
        for factor in [0.0001, 0.1, 2.0] {
            let scale = scale(factor);
            let bytes = |row: &Row| row.keys * row.entry_bytes();
            for row in rows("memory-pressure", &scale).unwrap() {
                let limit = row.memory_bytes.unwrap();
                assert!(limit >= 256 << 20 && 3 * limit <= bytes(&row), "{row:?}");
            }
            let sustained = rows("sustained", &scale).unwrap();
            let ratio = bytes(&sustained[1]) as f64 / bytes(&sustained[0]) as f64;
            assert!(factor < 0.01 || (0.9..1.1).contains(&ratio), "{ratio}");
        }
    }

    #[test]
    fn an_unknown_suite_is_refused_with_the_known_ones() {
        assert!(
            rows("speedy", &scale(1.0)).unwrap_err().to_string().contains("larger-than-memory")
        );
    }
}
