//! Opening a database for writing. The module's documentation lists the steps.

use super::replay::{Replayed, replay};
use super::{plants, prepared};
use crate::background::{PanicReport, Workers};
use crate::engine::{
    self, Backlog, Ceiling, DiskRoom, EditQueue, Engine, Epochs, Errands, Families, Gauges,
    History, Keyspace, Notices, Pacer, ReadPoints, Spills, Ticks, TrustedClock,
};
use crate::env::sync::atomic::AtomicBool;
use crate::env::sync::{Mutex, Rank};
use crate::env::{Env, Priority, Reach, reached};
use crate::error::{Error, NotADatabaseCause, PoisonCause, Result};
use crate::events::{BackgroundJob, Event};
use crate::footprint::Spares;
use crate::format::{DEFAULT_FAMILY, Lsn};
use crate::memory::{Charge, Shares};
use crate::memtable::ChunkPool;
use crate::options::{FamilyOptions, Options};
use crate::table::TableContext;
use crate::table::cache::{BlockCache, FileCache};
use crate::version::{
    CURRENT_TMP, Change, Edit, FileNumbers, LOCK, LOG_DIR, Layout, LiveFile, Opening, SPILL_DIR,
    State, Survey, TABLE_DIR, Term, VersionSet, make_dir, table_number,
};
use crate::vfs::{FileAccess, FileSystem, FileSystemKind};
use crate::wal::{self, Log, LogOptions, RaiseCeiling, SEGMENT_LEN_MAX, SegmentInfo, SegmentKind};
use crate::{compact, maintenance};
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

/// The first log segments are shorter than the others by this factor, so that a small database
/// takes little room on disk.
const FIRST_SEGMENT_SHARE: u64 = 64;
const FIRST_SEGMENT_LEN_MIN: u64 = 16 << 10;
const FIRST_SEGMENT_LEN_MAX: u64 = 256 << 10;

/// The most open files of transactions that do not fit into memory.
const SPILLS_OPEN_MAX: usize = 64;

/// Chunks of memory whose pages are faulted in ahead of writers.
const WARM_CHUNKS: usize = 4;

/// Opens the database in `db`.
pub(crate) fn open(db: &Path, options: Options) -> Result<Arc<Engine>> {
    let options = options.settled();
    let fs = options.env.fs.clone();
    let is_new = judge(&*fs, db, &options)?;
    if is_new {
        make_dir(&*fs, db)?;
    }
    let lock = fs.lock(&db.join(LOCK))?;
    // The former owner may have created it meanwhile.
    let is_new = is_new && judge(&*fs, db, &options)?;
    // Not before: the former owner's last renames have to be covered.
    sync_dirs(&*fs, db)?;
    let (mut versions, leftovers) = if is_new {
        let uuid = new_uuid(&options.env);
        let versions = VersionSet::create(fs.clone(), db, uuid, &options.new_family().to_stored())?;
        (versions, Survey::default())
    } else {
        let (versions, opening) = VersionSet::open(fs.clone(), db)?;
        tell_of_torn_tail(&options, &opening);
        (versions, opening.leftovers)
    };
    wal::remove_unfinished(&*fs, &db.join(LOG_DIR))?;
    let (ceiling, lease) = Ceiling::of(&options)?;
    let pool = Arc::new(pool_of(&options, lease));
    let (replayed, rest) = replay(&options, db, &mut versions, (&pool, &ceiling))?;
    let segment_len = segment_len(&options);
    let state = versions.state();
    let untouched = end_of_segment(&*fs, db, state.replay_from())?;
    let above = state.ceiling().max(replayed.end).max(untouched);
    let resumes_at = above.next_multiple_of(segment_len);
    assert!(state.replay_from() <= replayed.end, "the log ends before it is needed");
    let number = state.term().term + 1;
    let seed = options.env.random.next_u64().max(1);
    let term = Term { term: number, ended_at: replayed.end, resumes_at, seed };
    let mut edit = Edit::new(rest.changes);
    edit.changes.extend(template_of(&options, state)?);
    edit.push(Change::Term(term));
    edit.push(Change::ReplayFrom { lsn: resumes_at });
    edit.push(Change::DurableLsn { lsn: resumes_at });
    edit.push(Change::LsnCeiling { lsn: resumes_at + options.sizes.ceiling_step });
    // Numbers of files that no edit names count as taken, too: who still removes such a file must
    // not meet another one of its number.
    edit.push(Change::NextFile { number: versions.files().next().max(state.next_file()) });
    edit.changes.extend(engine::raised(state, rest.horizon.unwrap_or(resumes_at)));
    edit.changes.extend(engine::opened(&options, state, resumes_at));
    let tables = rest.built.iter().flat_map(|built| built.outputs());
    let outputs = tables.chain(rest.filed.into_iter().map(|entry| entry.file));
    let outputs: Vec<_> = outputs.chain(rest.streams.files()).collect();
    let versions = Arc::new(Mutex::new(Rank::Versions, versions));
    let (fs_of_room, tables_dir) = (options.env.fs.clone(), db.join(TABLE_DIR));
    let disk_room = DiskRoom::new(fs_of_room, tables_dir, options.buffer_len());
    let log = start_log(&options, db, (&versions, &disk_room), term, segment_len)?;
    debug_assert_eq!(log.tail(), resumes_at, "the log begins elsewhere than its term");
    debug_assert!(
        versions.lock().state().ceiling() <= resumes_at,
        "LSNs of an earlier term would be given out again"
    );
    install_last(&*fs, db, &mut versions.lock(), edit, &outputs)?;
    versions.lock().confirm()?;
    log.retire(resumes_at);
    let files = versions.lock().files().clone();
    files.obsolete().remove_manifests(&*fs);
    sweep(&options, leftovers);
    sweep_runs(&options, db);
    assemble(db, options, lock, versions, (log, disk_room), (pool, ceiling), &replayed)
}

/// The end of the log segment that holds `lsn`; 0 if there is none. New segments start above the
/// segment where replay begins, so that it keeps its name until the edit that ends the term holds.
/// The edit of the last close may be in the page cache only. If power fails and that edit is lost,
/// recovery needs the segment.
fn end_of_segment(fs: &dyn FileSystem, db: &Path, lsn: Lsn) -> Result<Lsn> {
    let files = wal::inventory(fs, &db.join(LOG_DIR))?;
    let held = files.iter().rfind(|info| info.kind == SegmentKind::Log && info.holds(lsn));
    Ok(held.map_or(0, SegmentInfo::end))
}

/// Installs the edit that ends the term.
fn install_last(
    fs: &dyn FileSystem,
    db: &Path,
    versions: &mut VersionSet,
    mut edit: Edit,
    outputs: &[Arc<LiveFile>],
) -> Result<()> {
    plants::eat_log(fs, db, versions)?;
    plants::split(versions, &mut edit)?;
    versions.install(edit, outputs).map(drop)
}

/// The change that gives the default family the options in `options`, if it has others.
fn template_of(options: &Options, state: &State) -> Result<Option<Change>> {
    let Some(mut template) = options.family.clone() else { return Ok(None) };
    // Do not replace options that cannot be read: the open fails because of them.
    let stored = state.family(DEFAULT_FAMILY).map(|family| &family.options);
    let former = stored.map(|stored| FamilyOptions::from_stored(stored));
    let Some(Ok(former)) = former else { return Ok(None) };
    template.take_over(&former)?;
    let options = template.to_stored();
    let is_changed = former != template;
    Ok(is_changed.then_some(Change::SetFamilyOptions { family: DEFAULT_FAMILY, options }))
}

fn tell_of_torn_tail(options: &Options, opening: &Opening) {
    if let Some(tail) = &opening.torn_tail {
        reached(Reach::ManifestTorn);
        let path = opening.manifest_path.clone();
        let (offset, discarded_bytes) = (tail.offset, tail.len);
        engine::tell(options, &Event::ManifestTailDiscarded { path, offset, discarded_bytes });
    }
}

fn sweep(options: &Options, leftovers: Survey) {
    let (removed, errors) = leftovers.sweep(&*options.env.fs);
    for path in removed {
        reached(Reach::OrphansRemoved);
        engine::tell(options, &Event::FileRemoved { path });
    }
    for error in errors {
        engine::tell(
            options,
            &Event::BackgroundError { job: BackgroundJob::LeftoverRemoval, error },
        );
    }
}

/// Removes what transactions of earlier openings had written and not committed.
fn sweep_runs(options: &Options, db: &Path) {
    let (fs, dir) = (&*options.env.fs, db.join(SPILL_DIR));
    let exists = fs.exists(&dir).unwrap_or(false);
    let left = if exists { fs.list(&dir).unwrap_or_default() } else { Vec::new() };
    for entry in left.iter().filter(|entry| table_number(&entry.name).is_some()) {
        let path = dir.join(&entry.name);
        match fs.remove(&path) {
            Ok(()) => engine::tell(options, &Event::FileRemoved { path }),
            Err(error) => {
                let job = BackgroundJob::LeftoverRemoval;
                engine::tell(options, &Event::BackgroundError { job, error });
            }
        }
    }
}

/// Makes the names in the database's directories survive power loss. An earlier process may have
/// died between creating a name and syncing its directory, and this process now relies on those
/// names.
fn sync_dirs(fs: &dyn FileSystem, db: &Path) -> Result<()> {
    for dir in [db, &db.join(LOG_DIR), &db.join(TABLE_DIR)] {
        if fs.exists(dir)? {
            fs.sync_dir(dir)?;
        }
    }
    Ok(())
}

/// Decides, before anything is touched, whether to create a database, open one, or refuse.
fn judge(fs: &dyn FileSystem, db: &Path, options: &Options) -> Result<bool> {
    if db.as_os_str().is_empty() {
        return Err(Error::invalid_argument("the path of the database is empty"));
    }
    let not_a_database = |cause| Err(Error::not_a_database(db, cause));
    match Layout::examine(fs, db)? {
        Layout::Database if options.error_if_exists => Err(Error::already_exists(db)),
        Layout::Database => Ok(false),
        // Opening the version set reports what was lost, and touches nothing.
        Layout::Lost { .. } => Ok(false),
        _ if !options.create_if_missing => not_a_database(NotADatabaseCause::NotCreated),
        Layout::InterruptedCreate => {
            reached(Reach::CreateCut);
            Ok(true)
        }
        Layout::Nothing => {
            let strangers = fs.exists(db)?
                && fs.list(db)?.iter().any(|entry| {
                    ![LOCK, LOG_DIR, TABLE_DIR, SPILL_DIR, CURRENT_TMP].contains(&&*entry.name)
                });
            if strangers {
                return not_a_database(NotADatabaseCause::OtherFiles);
            }
            Ok(true)
        }
    }
}

fn new_uuid(env: &Env) -> [u8; 16] {
    let mut uuid = [0; 16];
    for half in uuid.chunks_exact_mut(8) {
        half.copy_from_slice(&env.random.next_u64().to_le_bytes());
    }
    // Version 4, variant 1, as RFC 9562 has it for random ones.
    (uuid[6], uuid[8]) = (uuid[6] & 0x0f | 0x40, uuid[8] & 0x3f | 0x80);
    uuid
}

/// The length of log segments: a quarter of the write buffer.
fn segment_len(options: &Options) -> u64 {
    let quarter = options.buffer_len() / 4;
    quarter
        .clamp(options.sizes.segment_len_min, SEGMENT_LEN_MAX)
        .next_power_of_two()
        .min(SEGMENT_LEN_MAX)
}

/// How many spare segments are kept for reuse: as many as four write buffers need, from 2 to 16.
fn spare_segments(options: &Options, segment_len: u64) -> usize {
    (options.buffer_len() * 4 / segment_len).clamp(2, 16) as usize
}

/// The pool of memory for memtables. Below a ceiling it has a lease.
fn pool_of(options: &Options, lease: Option<(Charge, Shares)>) -> ChunkPool {
    if let Some((charge, shares)) = lease {
        return ChunkPool::leased(WARM_CHUNKS, charge, &shares);
    }
    let (chunk_len, idle_max) = chunks(options);
    ChunkPool::new(chunk_len, WARM_CHUNKS, idle_max)
}

/// The length of a memory chunk, and how many may stay idle. A chunk has 2 MiB, or less if the
/// write buffer is small. As many may stay idle as two epochs hold, so that in steady state every
/// chunk that a writer takes has been used before.
fn chunks(options: &Options) -> (usize, usize) {
    let budget = options.buffer_len();
    let chunk_len = (budget / 8).clamp(options.sizes.chunk_len_min, 2 << 20).next_power_of_two();
    (chunk_len as usize, (budget * 2).div_ceil(chunk_len) as usize)
}

fn start_log(
    options: &Options,
    db: &Path,
    (versions, disk_room): (&Arc<Mutex<VersionSet>>, &Arc<DiskRoom>),
    term: Term,
    segment_len: u64,
) -> Result<Arc<Log>> {
    let ceiling_step = options.sizes.ceiling_step;
    let dir = db.join(LOG_DIR);
    let mode = log_access(options, &dir);
    let log_options = LogOptions {
        dir,
        uuid: versions.lock().state().uuid(),
        segment_len,
        first_segment_len: (segment_len / FIRST_SEGMENT_SHARE)
            .clamp(FIRST_SEGMENT_LEN_MIN, FIRST_SEGMENT_LEN_MAX),
        mode,
        spare_segments: spare_segments(options, segment_len),
        sync_interval: options.sync_interval,
        raise_ceiling: ceiling_raiser(versions.clone(), ceiling_step),
        admit_segment: {
            let disk_room = disk_room.clone();
            Box::new(move |used| disk_room.admit_segment(used))
        },
    };
    let ceiling = term.resumes_at + ceiling_step;
    Log::start(&options.env, log_options, term.resumes_at, ceiling, term.term as u16).map(Arc::new)
}

/// Raises the ceiling in the manifest above the LSN that the log asks for. Maintenance asks ahead
/// of time, and the preparer asks for a writer that waits, possibly at the same time. The second of
/// them may ask for less than the ceiling already is; it then gets the ceiling as it is.
fn ceiling_raiser(versions: Arc<Mutex<VersionSet>>, step: Lsn) -> RaiseCeiling {
    Box::new(move |above| {
        reached(Reach::CeilingRaised);
        let mut versions = versions.lock();
        let (there, lsn) = (versions.state().ceiling(), above + step);
        if lsn > there {
            versions.install(Edit::new(vec![Change::LsnCeiling { lsn }]), &[])?;
        }
        debug_assert!(versions.state().ceiling() >= above, "LSNs above the ceiling were promised");
        Ok(lsn.max(there))
    })
}

/// How the log's files are accessed.
fn log_access(options: &Options, dir: &Path) -> FileAccess {
    // If the system cannot tell the kind of file system, treat it as unknown.
    let unknown = |_| FileSystemKind { name: "unknown".to_owned(), stores_in_place: false };
    let kind = options.env.fs.kind(dir).unwrap_or_else(unknown);
    let access = options.io.of_log(&kind);
    engine::tell(options, &Event::LogModeChosen { mode: access.into(), file_system: kind.name });
    access
}

/// The context that reads the tables of the database with this identity.
pub(crate) fn tables_of(
    options: &Options,
    db: &Path,
    uuid: [u8; 16],
    ceiling: &Ceiling,
) -> TableContext {
    let (fs, dir) = (options.env.fs.clone(), db.join(TABLE_DIR));
    let files =
        FileCache::new(fs, dir, options.io.of_tables(), options.open_files()).of_database(uuid);
    let files = files.beside(options.read_only);
    let fresh = || BlockCache::new(options.cache_len());
    let blocks = options.shared_cache.clone().or_else(|| ceiling.cache()).unwrap_or_else(fresh);
    TableContext::new(Arc::new(files), blocks).below(ceiling.of_tables())
}

/// Where large transactions keep what they have written. Its tables share the cache of blocks.
pub(crate) fn spills_of(
    options: &Options,
    db: &Path,
    uuid: [u8; 16],
    term: u64,
    tables: &TableContext,
    errands: &Arc<Errands>,
) -> Arc<Spills> {
    let (fs, dir) = (options.env.fs.clone(), db.join(SPILL_DIR));
    // Each spill file is open as long as it lives. The files of few others stay open.
    let files = FileCache::new(fs.clone(), dir.clone(), FileAccess::Positional, SPILLS_OPEN_MAX);
    let context = TableContext::new(Arc::new(files.of_database(uuid)), tables.blocks.clone())
        .below_that_of(tables);
    Spills::new(fs, dir, uuid, term, context, errands.clone())
}

/// The points that the database serves, whose log ends at `end`, the history that it keeps, and
/// what time it was and is. The wall clock is believed, and so are the times that the database has
/// come to.
fn past_of(
    options: &Options,
    state: &State,
    end: Lsn,
) -> (ReadPoints, History, (Arc<Ticks>, TrustedClock)) {
    let oldest = state.oldest_readable().unwrap_or(end);
    let history = History::new(engine::span_ms(options, state), state);
    let ticks = Ticks::new(state);
    let noted_ms = state.moments().last().map_or(0, |last| last.unix_ms);
    let clock = TrustedClock::new(options.env.clock.clone(), ticks.newest(), noted_ms);
    (ReadPoints::new(oldest), history, (Arc::new(ticks), clock))
}

fn gauges_of(replayed: &Replayed) -> Gauges {
    let gauges = Gauges::default();
    gauges.recovered_records.add(replayed.records);
    gauges.recovered_bytes.add(replayed.bytes);
    gauges
}

/// The database's id, the term of this open, and where jobs get the numbers of their files.
fn identity_of(versions: &VersionSet) -> ([u8; 16], Term, Arc<FileNumbers>) {
    let state = versions.state();
    (state.uuid(), state.term(), versions.files().clone())
}

fn assemble(
    db: &Path,
    options: Options,
    lock: Box<dyn crate::vfs::FileLock>,
    versions: Arc<Mutex<VersionSet>>,
    (log, disk_room): (Arc<Log>, Arc<DiskRoom>),
    (pool, ceiling): (Arc<ChunkPool>, Ceiling),
    replayed: &Replayed,
) -> Result<Arc<Engine>> {
    let env = options.env.clone();
    let (uuid, term, file_numbers) = identity_of(&versions.lock());
    let (points, history, (ticks, clock)) = past_of(&options, versions.lock().state(), log.tail());
    let (families, default_family) = families_of(&versions)?;
    let (threads, report) = (&*env.threads, || panic_report(&log));
    let workers = |name: &str, count, rank| Workers::new(threads, name, count, rank, report());
    let compactor_count = compactor_count_of(&options);
    let conflicts = engine::conflicts_of(&options, log.tail());
    let tables = ceiling.press(tables_of(&options, db, uuid, &ceiling));
    let (started, errands) = (Arc::<OnceLock<Weak<Engine>>>::default(), Errands::new());
    let engine = Arc::new(Engine {
        dir: db.to_owned(),
        uuid,
        point_tag: engine::point_tag(&uuid, term),
        begun_at: term.resumes_at,
        epochs: Epochs::new(pool, log.tail()),
        families,
        default_family,
        versions,
        files: file_numbers,
        points,
        point_times: engine::PointTimes::new(),
        history,
        clock,
        ticks,
        locks: engine::locks_of(&options, &conflicts),
        spare_footprints: Spares::default(),
        running: engine::Running::default(),
        prepared: engine::PreparedSet::default(),
        conflicts,
        pacer: Pacer::new(env.clock.clone(), env.threads.clone()),
        io_limit: engine::io_limit_of(&options),
        gauges: gauges_of(replayed),
        spills: spills_of(&options, db, uuid, term.term, &tables, &errands),
        errands,
        tables,
        ceiling,
        flusher: workers("isobath-flush", 1, Priority::Normal)?,
        compactors: workers("isobath-compact", compactor_count, Priority::Low)?,
        installer: workers("isobath-manifest", 1, Priority::Normal)?,
        edits: EditQueue::new(),
        compactor_count,
        maintenance: maintenance::start(&env, started.clone(), panic_report(&log))?,
        notices: Notices::new(),
        closed: AtomicBool::new(false),
        has_flushed: AtomicBool::new(false),
        disk_room,
        is_failure_told: AtomicBool::new(false),
        close_outcome: Mutex::new(Rank::Close, None),
        backlog: Mutex::new(Rank::Backlog, Backlog::default()),
        families_change: Mutex::new(Rank::FamiliesChange, ()),
        families_pending: Mutex::new(Rank::FamiliesPending, false),
        shown: None,
        lock: Mutex::new(Rank::Directory, Some(lock)),
        log,
        options,
    });
    begin(&engine, &started)?;
    Ok(engine)
}

/// Lets jobs begin.
fn begin(engine: &Arc<Engine>, started: &OnceLock<Weak<Engine>>) -> Result<()> {
    engine.note_held_bytes();
    prepared::restore(engine)?;
    // From now on jobs may hold the engine for a moment. If the open failed later, such a job could
    // be the last to hold it, and would wait for the end of its own thread.
    let first = started.set(Arc::downgrade(engine));
    debug_assert!(first.is_ok(), "an engine is begun once");
    compact::schedule_all(engine);
    Ok(())
}

/// How many threads compact: by default half as many as there are processors, and four at most.
fn compactor_count_of(options: &Options) -> usize {
    let half = (options.env.threads.parallelism() / 2).clamp(1, 4);
    options.compaction_threads.unwrap_or(half)
}

/// The families, and the default one of them.
fn families_of(versions: &Mutex<VersionSet>) -> Result<(Families, Arc<Keyspace>)> {
    let versions = versions.lock();
    let families = Families::default();
    for (id, state) in versions.state().families() {
        let options = FamilyOptions::from_stored(&state.options)
            .map_err(|error| error.in_file(&versions.manifest_path(), 0))?;
        let (created, tree) = (state.created, state.tree.clone());
        let family = Keyspace::new(id, &state.name, options, created, tree);
        families.insert(Arc::new(family.of_root(state.root)));
    }
    match families.by_id(DEFAULT_FAMILY) {
        Some(default_family) => Ok((families, default_family)),
        None => {
            let path = versions.manifest_path();
            Err(Error::corruption(&path, 0, "the manifest has no default column family"))
        }
    }
}

/// A callback that poisons the log when a job panics: an invariant is broken, so the database
/// refuses writes from then on.
fn panic_report(log: &Arc<Log>) -> PanicReport {
    let log = Arc::downgrade(log);
    Arc::new(move |name, message| {
        if let Some(log) = log.upgrade() {
            let cause = PoisonCause::panicked(format!("in a job of {name}"), message);
            log.poison(&Error::poisoned(cause));
        }
    })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
