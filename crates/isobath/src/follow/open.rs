//! Opening a database for reading only.

use super::catch_up::catch_up;
use super::replay::{Place, look_until_steady};
use crate::background::{Ticker, Workers};
use crate::engine::{
    Backlog, Ceiling, DiskRoom, EditQueue, Engine, Epochs, Errands, Families, Gauges, History,
    Line, Notices, Pacer, PointTimes, PreparedSet, ReadPoints, Running, Shown, Ticks, TrustedClock,
    conflicts_of, io_limit_of, locks_of, point_tag,
};
use crate::env::sync::atomic::AtomicBool;
use crate::env::sync::{Mutex, Rank};
use crate::error::{Error, Result};
use crate::footprint::Spares;
use crate::memtable::ChunkPool;
use crate::options::Options;
use crate::recover::{spills_of, tables_of};
use crate::table::TableContext;
use crate::version::{LOG_DIR, Layout, TABLE_DIR, Trail, VersionSet};
use crate::wal::Log;
use std::path::Path;
use std::sync::Arc;

/// What one look found.
struct Found {
    line: Line,
    tables: TableContext,
}

/// Opens the database in `db` for reading. Changes nothing on disk.
pub(crate) fn open(db: &Path, options: Options) -> Result<Arc<Engine>> {
    if options.error_if_exists {
        let detail = "`read_only` opens what exists, and `error_if_exists` refuses it".to_owned();
        return Err(Error::invalid_argument(detail));
    }
    let pool = Arc::new(ChunkPool::new(chunk_len(&options), 0, 0));
    let place = Place { options: &options, db, pool: &pool, tells: true };
    Layout::examine(&*options.env.fs, db)?.demand_database(db)?;
    let fs = &*options.env.fs;
    let found = look_until_steady(&options.env, db, &mut |stamp| {
        // Each look has tables of its own, which hold the files that its own state names.
        let mut trail = Trail::default();
        trail.follow(fs, db)?;
        trail.demand_tables(fs, db)?;
        let tables = tables_of(&options, db, trail.state().uuid(), &Ceiling::none());
        let mut line = place.build(stamp, trail.state(), None, &tables)?;
        line.trail = trail;
        Ok(Found { line, tables })
    })?;
    let engine = assemble(db, options, pool, found)?;
    // The writer may have gone on and retired the end of the log before it was read.
    catch_up(&engine)?;
    Ok(engine)
}

/// The length of a memory chunk: the same as a writer with these options uses.
fn chunk_len(options: &Options) -> usize {
    let eighth = options.buffer_len() / 8;
    eighth.clamp(options.sizes.chunk_len_min, 2 << 20).next_power_of_two() as usize
}

fn assemble(
    db: &Path,
    options: Options,
    pool: Arc<ChunkPool>,
    found: Found,
) -> Result<Arc<Engine>> {
    let Found { mut line, tables } = found;
    let (env, state) = (options.env.clone(), line.trail.state());
    let (uuid, term, history) = (state.uuid(), state.term(), History::new(None, state));
    let log = Log::still(&env, db.join(LOG_DIR), uuid, line.next)?;
    let versions = VersionSet::for_reading(env.fs.clone(), db, &line.trail)?;
    let gauges = Gauges::default();
    gauges.recovered_records.add(line.records);
    gauges.recovered_bytes.add(line.next - line.replay_from);
    let ticks = Arc::new(Ticks::of(&[]));
    let seen_ms = line.ticks.last().map_or(0, |last| last.unix_ms);
    let noted_ms = state.moments().last().map_or(0, |last| last.unix_ms);
    let clock = TrustedClock::new(env.clock.clone(), seen_ms, noted_ms);
    ticks.come_to(ticks.follow(&mut line, clock.unix_ms()));
    let families = Families::default();
    line.tell_families(&families);
    let (conflicts, errands) = (conflicts_of(&options, line.next), Errands::new());
    Ok(Arc::new(Engine {
        dir: db.to_owned(),
        uuid,
        point_tag: point_tag(&uuid, term),
        begun_at: term.resumes_at,
        ceiling: Ceiling::none(),
        epochs: Epochs::new(pool, line.next),
        families,
        default_family: line.default_family(),
        files: versions.files().clone(),
        versions: Arc::new(Mutex::new(Rank::Versions, versions)),
        points: ReadPoints::new(line.floor()),
        point_times: PointTimes::new(),
        history,
        ticks,
        clock,
        locks: locks_of(&options, &conflicts),
        spare_footprints: Spares::default(),
        running: Running::default(),
        prepared: PreparedSet::default(),
        conflicts,
        pacer: Pacer::new(env.clock.clone(), env.threads.clone()),
        io_limit: io_limit_of(&options),
        gauges,
        spills: spills_of(&options, db, uuid, term.term, &tables, &errands),
        errands,
        tables: Arc::new(tables),
        flusher: Workers::none("isobath-flush"),
        compactors: Workers::none("isobath-compact"),
        installer: Workers::none("isobath-manifest"),
        edits: EditQueue::new(),
        compactor_count: 0,
        maintenance: Ticker::none(),
        notices: Notices::new(),
        closed: AtomicBool::new(false),
        has_flushed: AtomicBool::new(false),
        disk_room: DiskRoom::new(env.fs.clone(), db.join(TABLE_DIR), options.buffer_len()),
        is_failure_told: AtomicBool::new(false),
        close_outcome: Mutex::new(Rank::Close, None),
        backlog: Mutex::new(Rank::Backlog, Backlog::default()),
        families_change: Mutex::new(Rank::FamiliesChange, ()),
        families_pending: Mutex::new(Rank::FamiliesPending, false),
        lock: Mutex::new(Rank::Directory, None),
        shown: Some(Box::new(Shown::new(line))),
        log: Arc::new(log),
        options,
    }))
}
