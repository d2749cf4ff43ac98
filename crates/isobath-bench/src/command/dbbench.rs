//! `db_bench`: opens the database, runs benchmark after benchmark, prints the line that its users
//! know.

use super::directory;
use crate::cli::DbBenchFlags;
use crate::dbbench::{Bench, Line, Size, run};
use crate::drive::Stop;
use crate::engine::{self, Durability, Engine, EngineConfig, EngineKind, settle};
use crate::measure::ensure_room;
use crate::report::micros;
use anyhow::{Context, Result, bail};
use std::process::ExitCode;
use std::time::Duration;

const SETTLE_LIMIT: Duration = Duration::from_secs(3600);

pub(super) fn execute(flags: &DbBenchFlags) -> Result<ExitCode> {
    let kind = engine::find(&flags.engine)?;
    let benches =
        flags.benchmarks.iter().map(|name| Bench::named(name)).collect::<Result<Vec<_>>>()?;
    let size = size(flags)?;
    directory::claim(&flags.db)?;
    ensure_room(&flags.db, 3 * size.num * size.entry_bytes())?;
    let stop = Stop::on_signal()?;
    let durability = if flags.sync { Durability::Sync } else { Durability::Process };
    let mut config = EngineConfig {
        path: flags.db.join(kind.name),
        durability: kind.serve(durability),
        write_buffer_bytes: flags.write_buffer_size,
        cache_bytes: flags.cache_size,
        filter_bits: flags.bloom_bits,
        codec: flags.compression_type,
        ..EngineConfig::default()
    };
    config.background_threads = flags.max_background_jobs.unwrap_or(config.background_threads);
    config.check()?;
    println!(
        "{:<12} {} {}, {} durability; keys {} bytes, values {} bytes, {} entries, closed loop",
        "Engine:",
        kind.name,
        (kind.version)(),
        config.durability.name(),
        size.key_size,
        size.value_size,
        size.num
    );
    let mut engine: Option<Box<dyn Engine>> = None;
    for (turn, bench) in (0..).zip(benches) {
        if stop.requested() {
            break;
        }
        let fresh = bench.fills() && !flags.use_existing_db;
        let synced = Durability::Sync == kind.serve(Durability::Sync);
        let wanted = match bench {
            Bench::FillSync if !synced => bail!("{} can't sync its writes", kind.name),
            Bench::FillSync => Durability::Sync,
            _ => kind.serve(durability),
        };
        if fresh || wanted != config.durability {
            close(engine.take())?;
        }
        if fresh {
            directory::clear(&flags.db, kind.name)?;
        }
        config.durability = wanted;
        let open = match engine.take() {
            Some(open) => open,
            None => open(kind, &config)?,
        };
        // Each benchmark draws its keys from another seed. With one seed, readers would ask for
        // exactly the keys that an earlier benchmark has written.
        let seed = size.seed.wrapping_add(turn * (size.threads + 1));
        bench_once(bench, open.as_ref(), kind, &Size { seed, ..size }, flags, &stop)?;
        engine = Some(open);
    }
    close(engine)?;
    Ok(if stop.requested() { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

fn size(flags: &DbBenchFlags) -> Result<Size> {
    let size = Size {
        num: flags.num,
        reads: flags.reads.unwrap_or(flags.num),
        key_size: flags.key_size,
        value_size: flags.value_size,
        threads: flags.threads,
        batch: flags.batch_size,
        seek_nexts: flags.seek_nexts,
        seconds: flags.duration,
        seed: flags.seed,
    };
    size.check()?;
    Ok(size)
}

fn open(kind: &EngineKind, config: &EngineConfig) -> Result<Box<dyn Engine>> {
    (kind.open)(config).with_context(|| format!("opening {}", kind.name))
}

fn close(engine: Option<Box<dyn Engine>>) -> Result<()> {
    engine.map_or(Ok(()), Engine::close)
}

fn bench_once(
    bench: Bench,
    engine: &dyn Engine,
    kind: &EngineKind,
    size: &Size,
    flags: &DbBenchFlags,
    stop: &Stop,
) -> Result<()> {
    if bench == Bench::WaitForCompaction {
        let settled = settle(engine, SETTLE_LIMIT, stop, |_| ())?;
        println!("waitforcompaction : {:.3} seconds, debt {}", settled.seconds, settled.debt_left);
        return Ok(());
    }
    let line = run(bench, engine, size, kind.answers, stop)
        .with_context(|| format!("{} on {}", bench.name(), kind.name))?;
    println!("{line}");
    if flags.histogram {
        percentiles(&line);
    }
    Ok(())
}

fn percentiles(line: &Line) {
    let told = |value: Option<f64>| value.map_or_else(|| "unknown".to_owned(), micros);
    for entry in &line.kinds {
        let latency = &entry.latency;
        println!(
            "  {}: Count: {}  Average: {}  Min: {}  P50: {}  P95: {}  P99: {}  P99.9: {}  Max: {}",
            entry.kind.name(),
            latency.count,
            micros(latency.mean_us),
            micros(latency.min_us),
            told(latency.p50_us),
            told(latency.p95_us),
            told(latency.p99_us),
            told(latency.p999_us),
            micros(latency.max_us)
        );
    }
}
