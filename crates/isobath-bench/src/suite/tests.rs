//! Every kind of work and every pattern, on every engine of this build, checked by the oracle; and
//! what happens when an engine's answer is wrong.

use super::phases::{Phase, SuiteJob, run_job};
use super::row::{Memtable, Row, Work};
use crate::drive::Stop;
use crate::engine::{self, Durability, EngineConfig};
use crate::generate::{Compressibility, Pattern};
use crate::measure::OpKind;
use crate::report::Measured;
use std::path::Path;

fn row(work: Work, pattern: Pattern, batch: u64) -> Row {
    Row {
        name: format!("{work:?} {pattern:?} {batch}"),
        work,
        pattern,
        threads: 2,
        keys: 600,
        operations: 600,
        batch,
        key_size: 16,
        value_size: 40,
        range_size: 25,
        compressibility: Compressibility::Half,
        durability: Durability::Process,
        seconds_min: 0.0,
        seconds_max: 600.0,
        cache_bytes: None,
        memory_bytes: None,
        sustained: false,
        long_reader: false,
        memtable: Memtable::Flushed,
        reader_cores: 0.0,
    }
}

fn run(engine: &str, row: Row, dir: &Path) -> anyhow::Result<Measured> {
    let kind = engine::find(engine)?;
    let config = EngineConfig {
        path: dir.join(format!("{engine}-{}", row.name.replace(' ', "-"))),
        durability: kind.serve(Durability::Process),
        write_buffer_bytes: 1 << 20,
        ..EngineConfig::default()
    };
    let engine = engine.to_owned();
    let job = SuiteJob {
        engine,
        config,
        row,
        phase: Phase::Both,
        repeat: 0,
        rate: None,
        settle_limit_seconds: 10.0,
    };
    run_job(&job, &Stop::default())
}

const PATTERNS: [Pattern; 7] = [
    Pattern::Seq,
    Pattern::Random,
    Pattern::Zipfian,
    Pattern::Uniform,
    Pattern::Timestamp,
    Pattern::Reverse,
    Pattern::Swapped,
];

#[test]
fn every_work_on_every_pattern_is_answered_rightly_by_every_engine() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engine::plain_names() {
        for work in [
            Work::Write,
            Work::Read,
            Work::Absent,
            Work::Overwrite,
            Work::Mixed,
            Work::Delete,
            Work::Seek,
            Work::Range,
            Work::Scan,
        ] {
            for pattern in PATTERNS {
                let measured = run(engine, row(work, pattern, 1), dir.path()).unwrap();
                assert!(
                    measured.primitives() >= 600,
                    "{engine} {work:?} {pattern:?}: {}",
                    measured.primitives()
                );
            }
        }
    }
}

#[test]
fn batches_touch_as_many_keys_as_singles() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engine::plain_names() {
        for (work, kind) in [
            (Work::Write, OpKind::Mput),
            (Work::Overwrite, OpKind::Mput),
            (Work::Delete, OpKind::Mdel),
            (Work::Mixed, OpKind::Mput),
            (Work::Read, OpKind::Mget),
        ] {
            let measured = run(engine, row(work, Pattern::Random, 7), dir.path()).unwrap();
            assert_eq!((measured.kinds[0].kind, measured.primitives()), (kind, 600), "{engine}");
            if work == Work::Read && engine::find(engine).unwrap().answers {
                assert_eq!((measured.hits, measured.misses), (600, 0), "{engine}");
                assert_eq!(measured.kinds.len(), 1, "{engine}");
            }
        }
    }
}

#[test]
fn reads_of_memtables_find_nothing_flushed_and_reads_behind_them_find_both() {
    let dir = tempfile::tempdir().unwrap();
    for (work, batch) in [(Work::Read, 1), (Work::Read, 7), (Work::Seek, 1), (Work::Range, 1)] {
        let measured = |memtable| {
            let row = Row { memtable, ..row(work, Pattern::Random, batch) };
            let name = format!("{work:?} {batch} {memtable:?}");
            let measured = run("isobath", Row { name, ..row }, dir.path()).unwrap();
            let counter = |name: &str| measured.timeline[0].counters[name];
            (counter("isobath.flushes"), counter("isobath.memtable_bytes"))
        };
        let (flushes, bytes) = measured(Memtable::Alone);
        assert!(flushes == 0.0 && bytes > 600.0 * 56.0, "{work:?}: {flushes} {bytes}");
        let (flushes, bytes) = measured(Memtable::Before);
        assert!(flushes > 0.0 && bytes > 600.0 * 56.0, "{work:?}: {flushes} {bytes}");
        let (flushes, bytes) = measured(Memtable::Flushed);
        assert!(flushes > 0.0 && bytes == 0.0, "{work:?}: {flushes} {bytes}");
    }
    let many = Row { keys: 5_000_000, ..row(Work::Read, Pattern::Random, 1) };
    let within = |memtable| Row { memtable, ..many.clone() }.within(64 << 20);
    let alone = within(Memtable::Alone);
    assert!((1 << 20..32 << 20).contains(&(alone.keys * alone.entry_bytes())), "{}", alone.keys);
    assert_eq!(within(Memtable::Before).keys, many.keys, "the tables hold all of them");
}

/// Puts over keys that a reader gets meanwhile.
fn read_meanwhile() -> Row {
    let row = row(Work::Overwrite, Pattern::Uniform, 1).lasting(0.5, 0);
    Row { name: "beside a reader".to_owned(), reader_cores: 0.5, seconds_max: 2.0, ..row }
}

#[test]
fn a_reader_beside_the_writers_is_counted_apart_and_kept_to_its_share() {
    // On a busy machine the reader may begin when the writers have ended.
    let read_beside = |engine: &str| {
        let dir = tempfile::tempdir().unwrap();
        let measured = run(engine, read_meanwhile(), dir.path()).unwrap();
        let count = measured.beside.as_ref().unwrap().beside.latency.count;
        (count > 0).then_some(measured).ok_or(0.0)
    };
    for engine in ["memory", "isobath"] {
        let measured = in_some_run(|| read_beside(engine));
        let kinds: Vec<OpKind> = measured.kinds.iter().map(|entry| entry.kind).collect();
        assert_eq!(kinds, [OpKind::Put], "{engine}: its gets are no part of the row's rate");
        let reader = measured.beside.unwrap();
        for reading in [&reader.alone, &reader.beside] {
            assert!(reading.latency.count > 0 && reading.per_second > 0.0, "{engine}");
            assert!(reading.cores < 0.65, "{engine}: {} of a core", reading.cores);
        }
        assert!(reader.kept().unwrap() > 0.0, "{engine}");
    }
    let dir = tempfile::tempdir().unwrap();
    let without = run("memory", row(Work::Overwrite, Pattern::Uniform, 1), dir.path()).unwrap();
    assert!(without.beside.is_none());
}

#[test]
fn a_wrong_answer_to_the_reader_beside_the_writers_fails_the_row() {
    let config = EngineConfig {
        knobs: [("lie".to_owned(), "changed".to_owned())].into(),
        ..EngineConfig::default()
    };
    let job = SuiteJob {
        engine: "memory".to_owned(),
        config,
        row: read_meanwhile(),
        phase: Phase::Both,
        repeat: 0,
        rate: None,
        settle_limit_seconds: 1.0,
    };
    let said = format!("{:#}", run_job(&job, &Stop::default()).map(|_| ()).unwrap_err());
    assert!(said.contains("read beside writers"), "{said}");
}

#[test]
fn a_row_keeps_count_of_hits_bytes_and_rows() {
    let dir = tempfile::tempdir().unwrap();
    let absent = run("memory", row(Work::Absent, Pattern::Random, 1), dir.path()).unwrap();
    assert_eq!((absent.hits, absent.misses), (0, 600));
    let write = run("memory", row(Work::Write, Pattern::Random, 1), dir.path()).unwrap();
    assert_eq!(write.user_bytes_written, 600 * 56);
    assert_eq!((write.rows_verified, write.live_bytes), (600, Some(600 * 56)));
    let delete = run("memory", row(Work::Delete, Pattern::Random, 1), dir.path()).unwrap();
    assert_eq!(delete.live_bytes, Some(0));
}

/// Repeats a run that is judged by time until it is good: a busy machine may delay one, but not
/// each.
fn in_some_run<T>(run: impl Fn() -> Result<T, f64>) -> T {
    let mut worse = Vec::new();
    for _ in 0..40 {
        match run() {
            Ok(good) => return good,
            Err(figure) => worse.push(figure),
        }
    }
    panic!("{worse:?}");
}

#[test]
fn open_loop_starts_operations_at_the_rate() {
    let dir = tempfile::tempdir().unwrap();
    let job = SuiteJob {
        engine: "memory".to_owned(),
        config: EngineConfig { path: dir.path().join("x"), ..EngineConfig::default() },
        row: Row { operations: 200, ..row(Work::Write, Pattern::Random, 1) },
        phase: Phase::Both,
        repeat: 0,
        rate: Some(1000.0),
        settle_limit_seconds: 1.0,
    };
    in_some_run(|| {
        let seconds = run_job(&job, &Stop::default()).unwrap().wall_seconds;
        assert!(seconds >= 0.15, "{seconds}");
        (seconds < 1.0).then_some(()).ok_or(seconds)
    });
}

#[test]
fn open_loop_counts_the_keys_of_batches_and_leaves_out_the_making_of_keys() {
    let dir = tempfile::tempdir().unwrap();
    for (work, batch) in [(Work::Write, 50), (Work::Mixed, 1), (Work::Mixed, 50)] {
        let job = SuiteJob {
            engine: "memory".to_owned(),
            config: EngineConfig { path: dir.path().join("x"), ..EngineConfig::default() },
            row: Row { operations: 2000, keys: 2000, ..row(work, Pattern::Random, batch) },
            phase: Phase::Both,
            repeat: 0,
            rate: Some(4000.0),
            settle_limit_seconds: 1.0,
        };
        let measured = in_some_run(|| {
            let measured = run_job(&job, &Stop::default()).unwrap();
            let rate = measured.per_second(measured.primitives());
            assert!(rate < 4600.0, "{work:?} {batch}: {rate}");
            if rate >= 2000.0 { Ok(measured) } else { Err(rate) }
        });
        assert_eq!(measured.rate, Some(4000.0));
        assert!(measured.kinds.iter().all(|entry| measured.rate_of(entry).is_none()));
    }
}

#[test]
fn a_row_lasts_its_least_time_and_the_oracle_knows_what_was_done_in_it() {
    let dir = tempfile::tempdir().unwrap();
    for engine in ["memory", "isobath"] {
        for (work, pattern) in [
            (Work::Write, Pattern::Zipfian),
            (Work::Mixed, Pattern::Uniform),
            (Work::Read, Pattern::Random),
            (Work::Range, Pattern::Random),
        ] {
            in_some_run(|| {
                let row = row(work, pattern, 1).lasting(0.3, 1 << 20);
                let measured = run(engine, row, dir.path()).unwrap();
                assert!(measured.wall_seconds >= 0.3 && !measured.short(), "{engine} {work:?}");
                let done = measured.primitives();
                if done > 600 { Ok(()) } else { Err(done as f64) }
            });
        }
    }
    let long = row(Work::Delete, Pattern::Random, 1).lasting(5.0, 1 << 20);
    assert_eq!(long.keys, 5_000_000);
    let ends = Row { keys: 1200, ..long };
    let measured = run("memory", ends.clone(), dir.path()).unwrap();
    assert_eq!((measured.primitives(), measured.short()), (ends.keys, true), "no key twice");
}

#[test]
fn writes_fill_so_many_buffers_and_have_keys_enough_for_the_time() {
    let bytes = 8 << 20;
    let long = |work, pattern| row(work, pattern, 1).lasting(10.0, bytes);
    let write = long(Work::Write, Pattern::Random);
    assert!(write.operations * write.entry_bytes() >= bytes && write.keys > write.operations);
    let hot = long(Work::Write, Pattern::Zipfian);
    assert!(hot.operations * hot.entry_bytes() >= bytes && hot.keys == 600, "as hot as before");
    let mixed = long(Work::Mixed, Pattern::Uniform);
    assert!(mixed.operations * mixed.entry_bytes() >= 2 * bytes, "half of it is puts");
    let synced = Row { durability: Durability::Sync, ..row(Work::Write, Pattern::Random, 1) };
    assert_eq!(synced.lasting(10.0, bytes).operations, 600, "by time alone");
    let sustained =
        Row { sustained: true, seconds_max: 60.0, ..row(Work::Write, Pattern::Uniform, 1) };
    let lasts = |seconds| sustained.clone().lasting(seconds, bytes).seconds_max;
    assert_eq!([lasts(0.0), lasts(10.0), lasts(600.0)], [60.0, 60.0, 600.0]);
}

#[cfg(feature = "lmdb")]
fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy_files(&entry, &target);
        } else {
            std::fs::write(target, std::fs::read(entry).unwrap()).unwrap();
        }
    }
}

/// LMDB changes its one file in place, so the pages that it writes are those that were copied.
#[cfg(feature = "lmdb")]
#[test]
fn what_a_row_writes_over_its_copied_base_is_seen_though_the_copy_was_dirty() {
    let dir = tempfile::tempdir().unwrap();
    if crate::measure::is_ram_file_system(dir.path()) {
        return;
    }
    let (keys, path) = (40_000, dir.path().join("base"));
    let job = |phase, path: &Path| SuiteJob {
        engine: "lmdb".to_owned(),
        config: EngineConfig {
            path: path.to_owned(),
            knobs: [("map_size".to_owned(), (64 << 20).to_string())].into(),
            ..EngineConfig::default()
        },
        row: Row { keys, operations: keys, ..row(Work::Mixed, Pattern::Random, 1) },
        phase,
        repeat: 0,
        rate: None,
        settle_limit_seconds: 10.0,
    };
    run_job(&job(Phase::Populate, &path), &Stop::default()).unwrap();
    let copy = dir.path().join("copy");
    copy_files(&path, &copy);
    let measured = run_job(&job(Phase::Measure, &copy), &Stop::default()).unwrap();
    let seen = measured.usage_settled.device_write_bytes.unwrap();
    let written = measured.user_bytes_written;
    assert!(seen >= written, "the kernel saw {seen} of at least {written} bytes");
}

/// A row of a few counters that threads contend for.
fn contended(work: Work, pattern: Pattern) -> Row {
    let (keys, operations) = (40, 800);
    Row { keys, operations, threads: 4, range_size: 10, ..row(work, pattern, 1) }
}

#[test]
fn transactions_of_every_engine_lose_no_update_however_they_contend() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engine::names() {
        let kind = engine::find(engine).unwrap();
        let has_transactions = kind.transactions.is_some();
        for work in [Work::Modify, Work::MostlyRead, Work::ScanModify] {
            for pattern in [Pattern::Uniform, Pattern::Zipfian] {
                let outcome = run(engine, contended(work, pattern), dir.path());
                if !has_transactions {
                    let text = format!("{:#}", outcome.map(|_| ()).unwrap_err());
                    assert!(text.contains("no transactions"), "{engine}: {text}");
                    continue;
                }
                let measured = outcome.unwrap();
                assert_eq!(measured.primitives(), 800, "{engine} {work:?}");
                assert!(measured.aborts_per_commit().is_some(), "{engine}");
                let kinds: Vec<OpKind> = measured.kinds.iter().map(|entry| entry.kind).collect();
                assert_eq!(kinds, [OpKind::Txn], "{engine}");
                if kind.answers {
                    assert_eq!(measured.rows_verified, 40, "{engine}");
                }
            }
        }
        if has_transactions {
            let beside = Row { long_reader: true, ..contended(Work::Modify, Pattern::Uniform) };
            let measured = run(engine, beside, dir.path()).unwrap();
            assert_eq!(measured.primitives(), 800, "{engine}: the reader isn't counted");
        }
    }
}

#[test]
fn a_lost_update_and_a_moving_snapshot_fail_the_row() {
    let told = |lie: &str, row: Row| {
        let knobs = [("lie".to_owned(), lie.to_owned())].into();
        let job = SuiteJob {
            engine: "memory".to_owned(),
            config: EngineConfig { knobs, ..EngineConfig::default() },
            row,
            phase: Phase::Both,
            repeat: 0,
            rate: None,
            settle_limit_seconds: 1.0,
        };
        format!("{:#}", run_job(&job, &Stop::default()).map(|_| ()).unwrap_err())
    };
    let modify = Row { keys: 90, ..contended(Work::Modify, Pattern::Uniform) };
    assert!(told("lost", modify.clone()).contains("updates were lost"));
    // The writers are done sooner than the reader looks again by itself.
    let brief = Row { long_reader: true, ..modify };
    assert!(told("moving", brief).contains("sees what others have changed"));
}

/// Runs the memory engine with a planted wrong answer, and returns what the harness reports.
fn fault(lie: &str, work: Work, batch: u64) -> String {
    let config = EngineConfig {
        knobs: [("lie".to_owned(), lie.to_owned())].into(),
        ..EngineConfig::default()
    };
    let job = SuiteJob {
        engine: "memory".to_owned(),
        config,
        row: row(work, Pattern::Random, batch),
        phase: Phase::Both,
        repeat: 0,
        rate: None,
        settle_limit_seconds: 1.0,
    };
    let outcome = run_job(&job, &Stop::default());
    format!("{:#}", outcome.err().unwrap_or_else(|| panic!("{lie} in {work:?} was believed")))
}

#[test]
fn a_lying_engine_fails_the_row_which_names_engine_and_key() {
    for (lie, work, batch) in [
        ("lost", Work::Write, 1),
        ("lost", Work::Write, 7),
        ("lost", Work::Read, 1),
        ("lost", Work::Scan, 1),
        ("skipped", Work::Scan, 1),
        ("short", Work::Scan, 1),
        ("lost", Work::Seek, 1),
        ("lost", Work::Range, 1),
        ("changed", Work::Write, 1),
        ("changed", Work::Write, 7),
        ("changed", Work::Read, 1),
        ("changed", Work::Range, 1),
        ("changed", Work::Scan, 1),
        ("undead", Work::Delete, 1),
        ("undead", Work::Delete, 7),
        ("skipped", Work::Range, 1),
        ("short", Work::Range, 1),
        ("changed", Work::Read, 7),
        ("lost", Work::Read, 7),
        ("changed", Work::Mixed, 7),
        ("twice", Work::Range, 1),
        ("twice", Work::Scan, 1),
    ] {
        let said = fault(lie, work, batch);
        assert!(
            said.contains("memory") && said.contains("wrong answer") && said.contains("key "),
            "{lie} in {work:?}: {said}"
        );
    }
}

#[test]
fn a_sustained_row_starts_after_twenty_write_buffers_and_lasts_its_time() {
    let dir = tempfile::tempdir().unwrap();
    for engine in ["isobath", "memory"] {
        let config = EngineConfig {
            path: dir.path().join(engine),
            write_buffer_bytes: 64 << 10,
            ..EngineConfig::default()
        };
        let row =
            Row { sustained: true, seconds_max: 1.0, ..row(Work::Write, Pattern::Uniform, 1) };
        let job = SuiteJob {
            engine: engine.to_owned(),
            config,
            row,
            phase: Phase::Measure,
            repeat: 0,
            rate: None,
            settle_limit_seconds: 10.0,
        };
        let measured = run_job(&job, &Stop::default()).unwrap();
        assert!(
            measured.sustained && measured.wall_seconds >= 1.0 && measured.rows_verified == 600
        );
        if engine == "isobath" {
            let before = measured.timeline[0].counters["isobath.flushes"];
            assert!(before >= 19.0, "{before} flushes before the clock ran");
        }
    }
}

#[test]
fn an_engine_that_counts_its_bytes_is_heard_and_one_that_can_not_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let ours = run("isobath", row(Work::Write, Pattern::Random, 1), dir.path()).unwrap();
    let user = ours.user_bytes_written;
    assert!(ours.written.log.unwrap() > user, "{:?} for {user}", ours.written);
    assert!(ours.written.flush.unwrap() > 0, "{:?}", ours.written);
    assert!(ours.written.compaction.is_some(), "none is a count too");
    assert!(ours.engine_write_amplification().unwrap() > 1.0);
    assert!(ours.stall_us.is_some() && ours.level_zero_files_max().is_some());
    let theirs = run("memory", row(Work::Write, Pattern::Random, 1), dir.path()).unwrap();
    assert_eq!((theirs.written.total(), theirs.engine_write_amplification()), (None, None));
    assert_eq!((theirs.stall_us, theirs.level_zero_files_max()), (None, None));
}

#[test]
fn a_row_is_iterated_as_it_was_left() {
    let dir = tempfile::tempdir().unwrap();
    for engine in ["memory", "isobath"] {
        let rows = |work| {
            let measured = run(engine, row(work, Pattern::Zipfian, 1), dir.path()).unwrap();
            measured.iteration.map(|iteration| (iteration.rows, iteration.rate().is_some()))
        };
        let (written, rated) = rows(Work::Write).unwrap();
        assert!((1..600).contains(&written) && rated, "{engine}: {written} hot keys");
        assert_eq!(rows(Work::Read), Some((600, true)), "{engine}");
        assert_eq!(rows(Work::Scan), None);
    }
}

#[test]
fn mixed_work_has_rates_of_puts_and_gets_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mixed = run("memory", row(Work::Mixed, Pattern::Uniform, 1), dir.path()).unwrap();
    let whole = mixed.per_second(mixed.primitives());
    for entry in &mixed.kinds {
        let rate = mixed.rate_of(entry).unwrap();
        assert!(rate > mixed.per_second(entry.primitives), "{:?} {rate} of {whole}", entry.kind);
    }
}

#[test]
fn values_compress_as_stated() {
    let dir = tempfile::tempdir().unwrap();
    for (compressibility, low, high) in [
        (Compressibility::None, 0.9, 1.1),
        (Compressibility::Half, 0.45, 0.7),
        (Compressibility::Pattern, 0.0, 0.3),
    ] {
        for value_size in [100, 4096] {
            let row = Row {
                name: format!("{compressibility:?} {value_size}"),
                value_size,
                compressibility,
                ..row(Work::Write, Pattern::Seq, 1)
            };
            let measured = run("isobath", row, dir.path()).unwrap();
            let share =
                measured.counters["isobath.table_bytes"] / (600.0 * (16.0 + value_size as f64));
            assert!((low..high).contains(&share), "{compressibility:?} {value_size}: {share}");
        }
    }
}

#[test]
fn an_impossible_row_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = run("memory", Row { key_size: 4, ..row(Work::Write, Pattern::Seq, 1) }, dir.path())
        .unwrap_err();
    assert!(error.to_string().contains("key size 4 is impossible"));
}

/// The harness's own cost: keys and values made, the clock read, the histogram filled. Debug builds
/// say nothing of it, and a busy machine is given several chances.
#[test]
fn an_operation_on_nothing_costs_less_than_150_ns() {
    if cfg!(debug_assertions) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let large = |work| Row {
        threads: 1,
        keys: 1_000_000,
        operations: 1_000_000,
        value_size: 100,
        ..row(work, Pattern::Random, 1)
    };
    for work in [Work::Write, Work::Absent, Work::Seek] {
        let cost = || run("null", large(work), dir.path()).unwrap().cpu_us_per_op().unwrap() * 1e3;
        let least = (0..5).map(|_| cost()).fold(f64::INFINITY, f64::min);
        assert!(least < 150.0, "{work:?}: {least} ns");
    }
}
