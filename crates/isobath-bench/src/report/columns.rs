//! The table of results, with a line for each kind of operation of each record. The 33 columns of
//! the files behind TidesDB's articles come first and unchanged, so that a program that reads those
//! files reads these too; then come ours. CSV and TSV are this table.

use super::record::{Iteration, Load, Measured, Report};
use crate::engine::Durability;
use crate::measure::{KindLatency, OpKind};
use crate::suite::Beside;
use anyhow::{Context, Result};

struct Line<'a> {
    row: &'a Measured,
    kind: &'a KindLatency,
    run_id: &'a str,
}

type Column = (&'static str, fn(&Line<'_>) -> String);

const MIB: f64 = 1024.0 * 1024.0;

const COLUMNS: &[Column] = &[
    ("engine", |line| line.row.engine.clone()),
    ("test_name", |line| line.row.subject.test.clone()),
    ("operation", |line| line.kind.kind.name().to_owned()),
    ("ops_per_sec", |line| {
        known((line.row.seconds > 0.0).then(|| line.row.per_second(line.kind.primitives)))
    }),
    ("duration_sec", |line| number(line.row.seconds)),
    ("avg_latency_us", |line| number(line.kind.latency.mean_us)),
    ("stddev_us", |line| number(line.kind.latency.stddev_us)),
    ("cv_percent", |line| number(line.kind.latency.cv_percent())),
    ("p50_us", |line| known(line.kind.latency.p50_us)),
    ("p95_us", |line| known(line.kind.latency.p95_us)),
    ("p99_us", |line| known(line.kind.latency.p99_us)),
    ("min_us", |line| number(line.kind.latency.min_us)),
    ("max_us", |line| number(line.kind.latency.max_us)),
    ("peak_rss_mb", |line| known_size(line.row.resident_peak())),
    ("peak_vms_mb", |line| {
        known_mib((line.row.vms_peak_bytes > 0).then_some(line.row.vms_peak_bytes))
    }),
    ("disk_read_mb", |line| known_mib(line.row.usage.device_read_bytes)),
    ("disk_write_mb", |line| known_mib(line.row.usage_settled.device_write_bytes)),
    ("cpu_user_sec", |line| number(line.row.usage.cpu_user_seconds)),
    ("cpu_sys_sec", |line| number(line.row.usage.cpu_system_seconds)),
    ("cpu_percent", |line| number(line.row.cpu_percent())),
    ("db_size_mb", |line| mib(line.row.db_bytes)),
    ("write_amp", |line| known(line.row.write_amplification())),
    ("read_amp", |line| known(line.row.read_amplification())),
    ("space_amp", |line| known(line.row.space_amplification())),
    ("workload", |line| line.row.subject.workload.clone()),
    ("pattern", |line| line.row.subject.pattern.clone()),
    ("threads", |line| line.row.subject.threads.to_string()),
    ("num_operations", |line| line.kind.primitives.to_string()),
    ("batch_size", |line| line.row.subject.batch_size.to_string()),
    ("key_size", |line| line.row.subject.key_size.to_string()),
    ("value_size", |line| line.row.subject.value_size.to_string()),
    ("range_size", |line| line.row.subject.range_size.to_string()),
    ("sync_enabled", |line| u8::from(line.row.durability == Durability::Sync).to_string()),
    ("durability", |line| line.row.durability.name().to_owned()),
    ("p999_us", |line| known(line.kind.latency.p999_us)),
    ("rss_anon_mb", |line| known_size(line.row.anonymous_peak())),
    ("stall_ms", |line| known(line.row.stall_us.map(|us| us as f64 / 1e3))),
    ("cpu_us_per_op", |line| known(line.row.cpu_us_per_op())),
    ("engine_version", |line| line.row.engine_version.clone()),
    ("run_id", |line| line.run_id.to_owned()),
    ("repeat", |line| line.row.repeat.to_string()),
    ("sustained", |line| u8::from(line.row.sustained).to_string()),
    ("rss_file_mb", |line| known_size(line.row.file_peak())),
    ("settle_sec", |line| {
        let seconds = line.row.settled.seconds;
        known((seconds > 0.0).then_some(seconds))
    }),
    ("debt_left", |line| line.row.settled.debt_left.to_string()),
    ("debt_middle", |line| known(line.row.backlog_trend().map(|at| at.0))),
    ("debt_end", |line| known(line.row.backlog_trend().map(|at| at.1))),
    ("level0_files_max", |line| whole(line.row.level_zero_files_max())),
    ("interrupted", |line| u8::from(line.row.interrupted).to_string()),
    ("rows_verified", |line| line.row.rows_verified.to_string()),
    ("units_per_sec", |line| {
        known((line.row.units > 0).then(|| line.row.per_second(line.row.units)))
    }),
    ("hit_rate", |line| known(line.row.hit_rate())),
    ("load_ops_per_sec", |line| known(line.row.load.as_ref().and_then(Load::rate))),
    ("iteration_keys_per_sec", |line| known(line.row.iteration.as_ref().and_then(Iteration::rate))),
    ("ops_per_busy_sec", |line| known(line.row.rate_of(line.kind))),
    ("loop_rate", |line| {
        line.row.rate.map_or_else(|| "closed".to_owned(), |rate| format!("open {rate}"))
    }),
    ("short", |line| u8::from(line.row.short()).to_string()),
    ("log_mb", |line| known_mib(line.row.written.log)),
    ("flush_mb", |line| known_mib(line.row.written.flush)),
    ("compaction_mb", |line| known_mib(line.row.written.compaction)),
    ("engine_write_amp", |line| known(line.row.engine_write_amplification())),
    ("buffers_filled", |line| known(line.row.buffers_filled())),
    ("aborts_per_commit", |line| known(line.row.aborts_per_commit())),
    ("reader_alone_per_sec", |line| known(beside(line).map(|at| at.alone.per_second))),
    ("reader_per_sec", |line| known(beside(line).map(|at| at.beside.per_second))),
    ("reader_p99_us", |line| known(beside(line).and_then(|at| at.beside.latency.p99_us))),
    ("wall_sec", |line| known((line.row.wall_seconds > 0.0).then_some(line.row.wall_seconds))),
    ("keys_per_wall_sec", |line| known(line.row.wall_rate())),
    ("keys_per_paid_sec", |line| known(line.row.paid_rate())),
    ("cpu_us_per_op_paid", |line| known(line.row.paid_cpu_us_per_op())),
    ("params", |line| {
        let pairs: Vec<String> =
            line.row.subject.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join(" ")
    }),
];

fn beside<'a>(line: &Line<'a>) -> Option<&'a Beside> {
    line.row.beside.as_ref()
}

/// What R and pandas read as unknown; zero would be a figure.
const UNKNOWN: &str = "NA";

fn number(value: f64) -> String {
    if value.is_finite() { format!("{value:.3}") } else { UNKNOWN.to_owned() }
}

fn known(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), number)
}

fn whole(value: Option<u64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| value.to_string())
}

fn known_mib(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| UNKNOWN.to_owned(), mib)
}

fn known_size(bytes: Option<f64>) -> String {
    known(bytes.map(|bytes| bytes / MIB))
}

fn mib(bytes: u64) -> String {
    number(bytes as f64 / MIB)
}

/// The report as a table whose fields are separated by `delimiter`.
pub(super) fn separated(report: &Report, delimiter: u8) -> Result<String> {
    let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(Vec::new());
    writer.write_record(COLUMNS.iter().map(|(name, _)| name))?;
    for row in &report.rows {
        let only_units = row.kinds.iter().all(|entry| entry.kind == OpKind::Unit);
        for kind in row.kinds.iter().filter(|entry| entry.kind != OpKind::Unit || only_units) {
            let line = Line { row, kind, run_id: &report.run_id };
            writer.write_record(COLUMNS.iter().map(|(_, field)| field(&line)))?;
        }
    }
    let bytes = writer.into_inner().context("writing a table")?;
    String::from_utf8(bytes).context("a table in UTF-8")
}

/// Every sample of every record, tab-separated: the timeline.
pub(super) fn timeline(report: &Report) -> Result<String> {
    let mut writer = csv::WriterBuilder::new().delimiter(b'\t').from_writer(Vec::new());
    let head = "engine test_name threads params repeat seconds operations rss_anon_bytes \
                rss_file_bytes device_write_bytes log_bytes flush_bytes compaction_bytes stall_us debt backlog level0_files counters";
    writer.write_record(head.split_whitespace())?;
    for row in &report.rows {
        for sample in &row.timeline {
            writer.write_record([
                row.engine.clone(),
                row.subject.test.clone(),
                row.subject.threads.to_string(),
                serde_json::to_string(&row.subject.params)?,
                row.repeat.to_string(),
                number(sample.seconds),
                sample.operations.to_string(),
                sample.rss_anon_bytes.to_string(),
                sample.rss_file_bytes.to_string(),
                whole(sample.device_write_bytes),
                whole(sample.written.log),
                whole(sample.written.flush),
                whole(sample.written.compaction),
                whole(sample.stall_us),
                whole(sample.debt),
                whole(sample.backlog),
                whole(sample.level_zero_files),
                serde_json::to_string(&sample.counters)?,
            ])?;
        }
    }
    let bytes = writer.into_inner().context("writing a timeline")?;
    String::from_utf8(bytes).context("a timeline in UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::sample_report;

    const SEED_COLUMNS: usize = 33;

    #[test]
    fn the_seeds_columns_come_first_in_their_order() {
        let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        let seeds = "engine, test_name, operation, ops_per_sec, duration_sec, avg_latency_us, stddev_us, cv_percent, \
            p50_us, p95_us, p99_us, min_us, max_us, peak_rss_mb, peak_vms_mb, disk_read_mb, disk_write_mb, cpu_user_sec, \
            cpu_sys_sec, cpu_percent, db_size_mb, write_amp, read_amp, space_amp, workload, pattern, threads, \
            num_operations, batch_size, key_size, value_size, range_size, sync_enabled";
        assert_eq!(names[..SEED_COLUMNS].join(", "), seeds);
        let ours = [
            "durability",
            "p999_us",
            "rss_anon_mb",
            "stall_ms",
            "cpu_us_per_op",
            "engine_version",
            "run_id",
        ];
        assert_eq!(names[SEED_COLUMNS..SEED_COLUMNS + ours.len()], ours);
    }

    #[test]
    fn every_column_of_every_line_is_filled() {
        let report = sample_report();
        for delimiter in [b',', b'\t'] {
            let text = separated(&report, delimiter).unwrap();
            let mut reader =
                csv::ReaderBuilder::new().delimiter(delimiter).from_reader(text.as_bytes());
            let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
            assert!(records.len() >= report.rows.len());
            for record in &records {
                assert_eq!(record.len(), COLUMNS.len());
                // Only the last column, the swept parameters, may be empty.
                assert!(
                    record.iter().take(COLUMNS.len() - 1).all(|field| !field.is_empty()),
                    "{record:?}"
                );
            }
        }
    }

    #[test]
    fn a_figure_that_is_unknown_is_never_zero() {
        let mut report = sample_report();
        for row in &mut report.rows {
            (row.rss_peak_bytes, row.rss_anon_peak_bytes, row.vms_peak_bytes) = (0, 0, 0);
            (row.rss_file_peak_bytes, row.seconds, row.stall_us) = (0, 0.0, None);
            (row.wall_seconds, row.settled.seconds) = (0.0, 0.0);
            row.usage_settled.device_write_bytes = None;
        }
        let text = separated(&report, b',').unwrap();
        let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
        let names = reader.headers().unwrap().clone();
        let record = reader.records().next().unwrap().unwrap();
        for name in [
            "peak_rss_mb",
            "peak_vms_mb",
            "rss_anon_mb",
            "rss_file_mb",
            "ops_per_sec",
            "stall_ms",
            "disk_write_mb",
            "write_amp",
            "aborts_per_commit",
            "wall_sec",
            "keys_per_wall_sec",
            "keys_per_paid_sec",
            "cpu_us_per_op_paid",
            "settle_sec",
        ] {
            let place = names.iter().position(|at| at == name).unwrap();
            assert_eq!(&record[place], UNKNOWN, "{name}");
        }
    }

    #[test]
    fn the_timeline_has_a_line_for_every_sample() {
        let report = sample_report();
        let samples: usize = report.rows.iter().map(|row| row.timeline.len()).sum();
        assert_eq!(timeline(&report).unwrap().lines().count(), samples + 1);
    }
}
