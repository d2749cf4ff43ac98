//! Compactions of a whole database in memory: what starts them, what they report, and what happens
//! after they fail.

use super::*;
use crate::compact::plan::{ManualPlan, ManualRange, plan_manual};
use crate::env::Env;
use crate::env::sync::Mutex;
use crate::options::{FamilyOptions, Options};
use crate::table::origin_of;
use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
use crate::{BackgroundJob, CompactionReason, Db, Event};
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

mod damage;
mod drops;
mod flusher;
mod idle;
mod manual;
mod run_sizes;
mod small;

type Told = Arc<Mutex<Vec<Event>>>;

struct Bench {
    fs: MemoryFs,
    db: Db,
    told: Told,
}

impl Bench {
    fn new(change: impl FnOnce(Options) -> Options) -> Bench {
        Bench::on(MemoryFs::new(), change)
    }

    fn on(fs: MemoryFs, change: impl FnOnce(Options) -> Options) -> Bench {
        let told = Told::default();
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let heard = told.clone();
        let listener = move |event: &Event| heard.lock().push(event.clone());
        let options = Options::new().write_buffer(256 << 10).compaction_threads(1);
        let options = change(options.env(env).on_event(listener));
        let db = options.open("db").unwrap();
        // On a slow machine it would find the database idle, and compact.
        db.engine().maintenance.close();
        Bench { db, fs, told }
    }

    fn engine(&self) -> &Arc<Engine> {
        self.db.engine()
    }

    fn family(&self) -> Arc<Keyspace> {
        self.engine().families.all().into_iter().next().unwrap()
    }

    /// Flushes keys `first`, `first + step` and so on, with values of 100 bytes, into a run of
    /// their own.
    fn flush(&self, first: u32, step: u32, count: u32) {
        for at in 0..count {
            self.db.put(format!("key{:06}", first + at * step), vec![b'v'; 100]).unwrap();
        }
        self.db.flush().unwrap();
    }

    fn wait(&self) {
        // A flush may leave it to the compaction thread to look for jobs.
        self.engine().compactors.wait_idle();
        self.until(|| self.family().compactions.state.lock().running == 0);
    }

    /// Compacts everything.
    fn compact(&self) {
        self.db.compact().unwrap();
    }

    fn wait_for_compactions(&self) {
        assert!(self.db.wait_for_compactions(None).unwrap());
        self.wait();
    }

    /// Waits for something that a background thread does soon.
    fn until(&self, is_so: impl Fn() -> bool) {
        for _ in 0..120_000 {
            if is_so() {
                return;
            }
            self.engine().options.env.threads.sleep(Duration::from_millis(1));
        }
        panic!("it never came");
    }

    fn told<T>(&self, of: impl FnMut(&Event) -> Option<T>) -> Vec<T> {
        self.told.lock().iter().filter_map(of).collect()
    }

    fn levels(&self) -> Vec<usize> {
        let tree = self.family().view().tree.clone();
        (0..tree.level_count()).map(|level| tree.slices(level).len()).collect()
    }
}

fn policy_with(budget: u64, codecs: &[Codec]) -> Policy {
    let family = FamilyOptions::new().codecs(codecs).level_size_ratio(7);
    let bench = Bench::new(|options| options.write_buffer(budget).family(family));
    policy_of(bench.engine(), &bench.family())
}

#[test]
fn a_policy_follows_from_the_budget_and_the_codecs() {
    let defaults = Policy { size_ratio_max: 7, plain_depths: 1, ..Policy::default() };
    let codecs = [Codec::None, Codec::Lz4];
    let (kib, mib) = (1 << 10, 1 << 20);
    let of = |base_bytes, target_file_bytes, job_bytes_max| Policy {
        base_bytes,
        target_file_bytes,
        job_bytes_max,
        ..defaults.clone()
    };
    assert_eq!(policy_with(64 * kib, &codecs), of(256 * kib, 64 * kib, 256 * kib));
    assert_eq!(policy_with(mib, &codecs), of(4 * mib, 512 * kib, 4 * mib));
    assert_eq!(policy_with(80 * mib, &codecs), of(320 * mib, 32 * mib, 256 * mib));
    let plain = |codecs: &[Codec]| policy_with(mib, codecs).plain_depths;
    assert_eq!(plain(&[Codec::None, Codec::None, Codec::Lz4, Codec::None]), 2);
    assert_eq!(plain(&[Codec::Lz4, Codec::None]), 0);
    assert_eq!(plain(&[Codec::None, Codec::None]), 0);
    assert_eq!(plain(&[Codec::Zstd]), 0);
}

#[test]
fn hints_name_the_oldest_reader_and_about_how_long_runs_are() {
    let bench = Bench::new(|options| options);
    let (engine, family) = (bench.engine(), bench.family());
    let hints = |is_idle| hints_of(engine, &family.compactions.state.lock(), is_idle);
    bench.flush(0, 1, 100);
    let first = family.view().tree.runs[0].meta.disk_bytes;
    let after = |before: u64, flushed: u64| before - (before - flushed).div_ceil(16);
    let first = after(policy_of(engine, &family).base_bytes / 8, first);
    bench.until(|| hints(false).run_bytes == first);
    assert!(!hints(false).is_idle);
    assert_eq!((hints(true).oldest_reader, hints(true).is_idle), (engine.log.visible(), true));
    let oldest = bench.db.snapshot();
    let point = hints(false).oldest_reader;
    assert_eq!(point, engine.log.visible());
    bench.flush(0, 1, 40);
    let runs = family.view().tree.runs.clone();
    let second = after(first, runs[0].meta.disk_bytes);
    bench.until(|| hints(false).run_bytes == second);
    let newer = bench.db.snapshot();
    bench.flush(0, 1, 1);
    assert!(engine.log.visible() > point);
    assert_eq!(hints(false).oldest_reader, point);
    drop(oldest);
    assert!(
        hints(false).oldest_reader > point && hints(false).oldest_reader < engine.log.visible()
    );
    drop(newer);
    assert_eq!(hints(false).oldest_reader, engine.log.visible());
    let newest = family.view().tree.runs[0].meta.disk_bytes;
    bench.until(|| hints(false).run_bytes == after(second, newest));
}

/// The listener takes long.
#[test]
fn a_compaction_and_a_settling_return_once_their_jobs_are_counted_and_told() {
    let heard = Arc::new(Mutex::unranked(0));
    let hears = heard.clone();
    let listener = move |event: &Event| {
        if matches!(event, Event::Compacted { .. } | Event::TriviallyMoved { .. }) {
            std::thread::sleep(Duration::from_millis(200));
            *hears.lock() += 1;
            panic!("planted");
        }
    };
    let bench = Bench::new(|options| options.on_event(listener));
    let count = || {
        let gauges = &bench.engine().gauges;
        gauges.compactions.get() + gauges.trivial_moves.get()
    };
    for waits in [false, true] {
        let before = count();
        for round in 0..if waits { 8 } else { 3 } {
            bench.flush(round, 3, 100);
        }
        if waits {
            assert!(bench.db.wait_for_compactions(None).unwrap());
        } else {
            bench.db.compact().unwrap();
        }
        assert!(count() > before, "{waits}");
        assert_eq!(*heard.lock(), count(), "{waits}");
    }
}

#[test]
fn a_compaction_starts_with_the_run_that_makes_them_enough_and_tells_what_it_did() {
    let bench = Bench::new(|options| options);
    let started = bench.engine().pacer.now_ns();
    for round in 0..7 {
        bench.flush(round, 7, 100);
    }
    assert_eq!(bench.told(|event| matches!(event, Event::Compacted { .. }).then_some(())), []);
    assert_eq!(bench.levels(), [7]);
    let read: u64 = bench.family().view().tree.runs.iter().map(|run| run.meta.disk_bytes).sum();
    bench.flush(0, 7, 100);
    bench.wait_for_compactions();
    let tree = bench.family().view().tree.clone();
    assert!(tree.runs.is_empty());
    let slices = tree.slices(tree.level_count() - 1);
    let compactions = bench.told(|event| match event {
        Event::Compacted {
            family,
            reason,
            into_level,
            read_entries,
            written_entries,
            read_deletes,
            written_deletes,
            removed_entries,
            replaced_entries,
            read_bytes,
            written_bytes,
            took_us,
        } => {
            assert_eq!(
                (family.as_str(), *reason, *into_level),
                ("default", CompactionReason::Runs, 6)
            );
            assert_eq!((*read_entries, *written_entries), (800, 700));
            assert_eq!((*read_deletes, *written_deletes), (0, 0));
            assert_eq!((*removed_entries, *replaced_entries), (0, 0));
            assert!(*read_bytes > read && *written_bytes < *read_bytes);
            assert!(*written_bytes >= slices.iter().map(|slice| slice.meta.disk_bytes).sum());
            Some(*took_us)
        }
        _ => None,
    });
    assert_eq!(compactions.len(), 1);
    let shares = bench.told(|event| match event {
        Event::SubcompactionDone { job, parts, took_us, .. } => {
            assert_eq!((*job, *parts > 0), (0, true));
            Some(*took_us)
        }
        _ => None,
    });
    assert_eq!(shares.len(), 1, "one thread, one share");
    let passed = bench.engine().pacer.now_ns() - started;
    let metrics = bench.db.metrics();
    assert_eq!((metrics.compactions, metrics.compaction_ns / 1000), (1, compactions[0]));
    assert!(compactions[0] * 1000 <= passed && shares[0] <= compactions[0]);
    assert_eq!(metrics.pending_compaction_bytes(), 0);
    bench.db.close().unwrap();
}

#[test]
fn runs_out_of_the_way_are_moved_and_said_so() {
    let bench = Bench::new(|options| options.family(FamilyOptions::new().codec(Codec::None)));
    for round in 0..3 {
        bench.flush(round * 1000, 1, 400);
        bench.wait_for_compactions();
        assert_eq!(bench.levels(), [0, 0, 0, 0, 0, 0, round as usize + 1]);
    }
    let moves = bench.told(|event| match event {
        Event::TriviallyMoved { family, from_level, into_level } => {
            Some((family.clone(), *from_level, *into_level))
        }
        _ => None,
    });
    assert_eq!(moves, vec![("default".to_owned(), 0, 6); 3]);
    assert_eq!(bench.db.metrics().trivial_moves, 3);
}

#[test]
fn a_wait_for_compactions_ends_with_the_last_of_them_or_when_its_time_is_over() {
    let bench = Bench::new(|options| options);
    let (family, zero) = (bench.family(), Some(Duration::ZERO));
    assert!(bench.db.wait_for_compactions(zero).unwrap(), "nothing is due");
    let job = begin(&mut family.compactions.state.lock(), &Plan::DoNothing);
    assert!(!bench.db.wait_for_compactions(zero).unwrap());
    let (asked, timeout) = (bench.engine().pacer.now_ns(), Duration::from_millis(150));
    assert!(!bench.db.wait_for_compactions(Some(timeout)).unwrap());
    let waited_ns = bench.engine().pacer.now_ns() - asked;
    assert!(Duration::from_nanos(waited_ns) >= timeout, "{waited_ns}");
    let db = &bench.db;
    std::thread::scope(|scope| {
        for timeout in [None, Some(Duration::MAX)] {
            scope.spawn(move || assert!(db.wait_for_compactions(timeout).unwrap()));
        }
        std::thread::sleep(Duration::from_millis(20));
        end(&family, job, None);
    });
}

#[test]
fn a_wait_for_compactions_ends_where_a_job_is_dropped_without_a_run_or_panics() {
    let bench = Bench::new(|options| options);
    let family = bench.family();
    for panics in [false, true] {
        let mut state = family.compactions.state.lock();
        let begun = Begun::new(&family, &mut state, &Plan::DoNothing);
        drop(state);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| bench.db.wait_for_compactions(None));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished());
            let job = std::panic::AssertUnwindSafe(move || {
                let _begun = begun;
                if panics {
                    std::panic::resume_unwind(Box::new("planted"));
                }
            });
            assert_eq!(std::panic::catch_unwind(job).is_err(), panics);
            assert!(waits.join().unwrap().unwrap(), "it began before the wait");
        });
    }
}

#[test]
fn a_call_is_not_told_of_the_failure_of_a_compaction_that_began_before() {
    let bench = Bench::new(|options| options);
    let (family, full) = (bench.family(), || {
        Error::io("write", "table".as_ref(), io::ErrorKind::StorageFull.into())
    });
    let runs = || (0..4).for_each(|round| bench.flush(round, 4, 100));
    runs();
    let job = begin(&mut family.compactions.state.lock(), &Plan::DoNothing);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| bench.db.wait_for_compactions(None));
        std::thread::sleep(Duration::from_millis(20));
        end(&family, job, Some(full()));
        assert!(waits.join().unwrap().unwrap());
    });
    assert_eq!(bench.levels()[0], 0);
    runs();
    let range = ManualRange { upto: u64::MAX, ..ManualRange::everything() };
    let mut state = family.compactions.state.lock();
    let hints = hints_of(bench.engine(), &state, false);
    let (tree, policy) = (family.view().tree.clone(), policy_of(bench.engine(), &family));
    let ManualPlan::Do(planned) = plan_manual(&tree, &policy, &state.busy, &hints, &range) else {
        panic!("there is something to do");
    };
    let job = begin(&mut state, &planned);
    drop(state);
    std::thread::scope(|scope| {
        let compacts = scope.spawn(|| bench.db.compact());
        std::thread::sleep(Duration::from_millis(20));
        end(&family, job, Some(full()));
        compacts.join().unwrap().unwrap();
    });
    assert_eq!(bench.levels()[0], 0);
}

#[test]
fn compactions_of_an_idle_database_are_tried_again_that_found_no_room() {
    let bench = Bench::new(|options| options);
    for round in 0..4 {
        bench.flush(round, 4, 100);
    }
    bench.fs.inject(Fault::on(FileOp::Create).suffix(".tbl").errno(28).forever());
    assert!(bench.db.compact().unwrap_err().is_out_of_space());
    bench.fs.clear_faults();
    retry(bench.engine());
    schedule_idle(bench.engine());
    bench.wait();
    assert_eq!(bench.levels()[0], 0);
    let job = begin(&mut bench.family().compactions.state.lock(), &Plan::DoNothing);
    end(&bench.family(), job, Some(Error::planted()));
    retry(bench.engine());
    let state = &bench.family().compactions.state;
    assert!(state.lock().has_failed(), "damage does not go away");
}

#[test]
fn what_pays_only_later_is_done_when_asked_for() {
    let bench = Bench::new(|options| options);
    for round in 0..4 {
        bench.flush(round, 4, 100);
    }
    schedule(bench.engine(), &bench.family());
    bench.wait();
    assert_eq!(bench.levels(), [4]);
    schedule_idle(bench.engine());
    bench.wait();
    assert_eq!(bench.levels()[0], 0);
    let debt = |bench: &Bench| debt_bytes(bench.engine(), &bench.family());
    assert_eq!(debt(&bench), 0);
    bench.flush(0, 3, 100);
    assert!(debt(&bench) > 0);
    bench.compact();
    assert_eq!((bench.levels()[0], debt(&bench)), (0, 0));
}

#[test]
fn a_job_that_is_due_and_found_no_thread_is_started_once_it_is_asked_for() {
    let bench = Bench::new(|options| options);
    let family = bench.family();
    let state = &family.compactions.state;
    state.lock().running = bench.engine().compactor_count;
    for round in 0..8 {
        bench.flush(round, 8, 100);
    }
    assert_eq!(bench.levels(), [8]);
    state.lock().running = 0;
    schedule(bench.engine(), &family);
    assert!(state.lock().running == 1 || bench.levels()[0] == 0);
    bench.wait();
    assert_eq!(bench.levels()[0], 0);
}

#[test]
fn a_range_without_keys_compacts_nothing() {
    let bench = Bench::new(|options| options);
    bench.flush(0, 1, 100);
    let family = bench.db.default_family();
    let excluded = |key| std::ops::Bound::Excluded(key);
    family.compact("key000080".."key000020").unwrap();
    family.compact("key000020".."key000020").unwrap();
    family.compact((excluded("key000020"), excluded("key000020"))).unwrap();
    assert_eq!(bench.levels(), [1]);
    family.compact("key000020"..="key000020").unwrap();
    assert_eq!(bench.levels()[0], 0);
}

#[test]
fn a_compaction_that_finds_no_room_is_told_of_and_tried_again_with_the_next_flush() {
    let bench = Bench::new(|options| options);
    let fault = Fault::on(FileOp::Create).suffix(".tbl").errno(28).forever();
    for round in 0..4 {
        bench.flush(round, 4, 100);
    }
    bench.fs.inject(fault);
    assert!(bench.db.compact().unwrap_err().is_out_of_space());
    let is_compaction = |event: &Event| {
        matches!(event, Event::BackgroundError { job: BackgroundJob::Compaction, .. }).then_some(())
    };
    assert_eq!(bench.told(is_compaction).len(), 1);
    // The failed job is not tried again and again.
    schedule_idle(bench.engine());
    bench.wait();
    assert_eq!((bench.told(is_compaction).len(), bench.levels()), (1, vec![4]));
    assert!(bench.db.wait_for_compactions(None).unwrap_err().is_out_of_space());
    bench.fs.clear_faults();
    bench.flush(0, 4, 100);
    bench.until(|| !bench.family().compactions.state.lock().has_failed());
    bench.compact();
    assert_eq!(bench.levels()[0], 0);
    bench.wait_for_compactions();
    bench.db.put("key", "value").unwrap();
}

#[test]
fn a_compaction_whose_edit_fails_ends_all_writing() {
    let bench = Bench::new(|options| options);
    for round in 0..4 {
        bench.flush(round, 4, 100);
    }
    bench.fs.inject(Fault::on(FileOp::Write).suffix("MANIFEST-000001").errno(5).forever());
    bench.db.compact().unwrap_err();
    bench.fs.clear_faults();
    let is_told = |event: &Event| matches!(event, Event::Compacted { .. }).then_some(());
    assert_eq!((bench.db.metrics().compactions, bench.told(is_told).len()), (0, 0));
    bench.db.put("key", "value").unwrap_err();
    assert!(bench.db.get("key000001").unwrap().is_some());
}

#[test]
fn a_wait_for_compactions_fails_once_all_writing_has_ended() {
    let bench = Bench::new(|options| options);
    bench.engine().log.poison(&Error::io("sync", "log".as_ref(), io::ErrorKind::Other.into()));
    assert_eq!(wait_until_idle(bench.engine(), None).unwrap_err().name(), "POISONED");
}

#[test]
fn the_last_level_takes_the_last_codec_however_few_levels_there_are() {
    let len_with = |codecs: &[Codec]| {
        let family = FamilyOptions::new().codecs(codecs);
        let bench = Bench::new(|options| options.family(family));
        bench.flush(0, 2, 100);
        bench.flush(1, 2, 100);
        bench.compact();
        bench.db.metrics().compaction_written_bytes
    };
    let (plain, packed) = (len_with(&[Codec::None]), len_with(&[Codec::Lz4]));
    assert!(packed * 2 < plain);
    // The tables name their codecs, too, so lengths may differ a little.
    let as_long = |codecs: &[Codec], len: u64| len_with(codecs).abs_diff(len) < 100;
    assert!(as_long(&[Codec::None, Codec::None, Codec::None, Codec::Lz4], packed));
    assert!(as_long(&[Codec::Lz4, Codec::Lz4, Codec::Lz4, Codec::None], plain));
}

#[test]
fn an_output_says_of_which_files_it_was_made_and_of_which_those_were_that_are_still_there() {
    let bench = Bench::new(|options| options);
    let numbers = |level: usize| -> Vec<u64> {
        let tree = bench.family().view().tree.clone();
        let mut numbers: Vec<_> = tree.slices(level).iter().map(|slice| slice.meta.file).collect();
        numbers.sort_unstable();
        numbers
    };
    let origin = || {
        let tree = bench.family().view().tree.clone();
        origin_of(&bench.engine().tables, &tree.slices(6)[0].meta).unwrap()
    };
    bench.flush(0, 2, 50);
    bench.flush(1, 2, 50);
    let first = numbers(0);
    let held = bench.db.range(..);
    bench.compact();
    assert_eq!((&*origin().inputs, &*origin().ancestors), (&*first, &[][..]));
    let compacted = numbers(6);
    bench.flush(0, 2, 50);
    let second = numbers(0);
    bench.compact();
    assert_eq!(*origin().inputs, [compacted, second].concat());
    assert_eq!(*origin().ancestors, *first);
    drop(held);
    bench.engine().remove_obsolete_files();
    let compacted = numbers(6);
    bench.flush(0, 2, 50);
    let third = numbers(0);
    bench.compact();
    assert_eq!(*origin().inputs, [compacted, third].concat());
    assert!(origin().ancestors.is_empty());
}

#[test]
fn a_compaction_that_was_waited_for_leaves_none_of_its_inputs() {
    let bench = Bench::new(|options| options);
    for round in 0..20 {
        bench.flush(round, 20, 50);
        bench.compact();
        let count = || bench.fs.list("db/table".as_ref()).unwrap().len();
        // Its thread may still be removing them. No other one does.
        bench.until(|| count() == bench.levels().iter().sum::<usize>());
    }
}

#[test]
fn a_moment_without_descriptors_leaves_no_output_that_says_less_of_its_origin() {
    let bench = Bench::new(|options| options);
    let files = |level: usize| -> BTreeSet<u64> {
        let tree = bench.family().view().tree.clone();
        tree.slices(level).iter().map(|slice| slice.meta.file).collect()
    };
    bench.flush(0, 2, 50);
    bench.flush(1, 2, 50);
    let first = files(0);
    let _held = bench.db.range(..);
    bench.compact();
    bench.flush(0, 2, 50);
    let inputs: BTreeSet<u64> = files(0).union(&files(6)).copied().collect();
    inputs.iter().for_each(|file| bench.engine().tables.files.evict(*file));
    bench.fs.inject(Fault::on(FileOp::OpenRead).errno(24));
    assert!(bench.db.compact().unwrap_err().is_retryable());
    bench.compact();
    let tree = bench.family().view().tree.clone();
    let origin = origin_of(&bench.engine().tables, &tree.slices(6)[0].meta).unwrap();
    assert!(origin.inputs.iter().eq(&inputs) && origin.ancestors.iter().eq(&first), "{origin:?}");
}

#[test]
fn damage_to_the_origin_of_a_table_that_can_be_read_fails_no_compaction() {
    let bench = Bench::new(|options| options);
    bench.flush(0, 2, 50);
    bench.flush(1, 2, 50);
    let all = || bench.db.range(..).collect::<Result<Vec<_>, _>>().unwrap().len();
    // This opens both tables. From here on a root is read only for the origin in it.
    assert_eq!(all(), 100);
    let runs = bench.family().view().tree.runs.clone();
    let (tables, damaged) = (&bench.engine().tables, &runs[0].meta);
    bench.fs.corrupt(&tables.files.path(damaged.file), damaged.root.offset, 1).unwrap();
    tables.files.evict(damaged.file);
    assert!(origin_of(tables, damaged).unwrap_err().is_corruption());
    bench.compact();
    let tree = bench.family().view().tree.clone();
    let origin = origin_of(tables, &tree.slices(6)[0].meta).unwrap();
    let inputs: BTreeSet<u64> = runs.iter().map(|run| run.meta.file).collect();
    assert!(origin.inputs.iter().eq(&inputs), "{origin:?}");
    assert_eq!(all(), 100);
}
