//! Jobs that are installed together: small ones, of many families that are due at once.

use super::super::carry_out::{install_all, work};
use super::super::small::{Task, readable_bytes, take_together};
use super::*;
use crate::background::CancelToken;
use crate::compact::plan::Move;

const FAMILIES: usize = 40;

/// Families that all are due with the next flush, and how many flushes that took.
fn nearly_due(bench: &Bench) -> Vec<crate::Family> {
    let families = bench.db.open_families((0..FAMILIES).map(|nth| nth.to_string())).unwrap();
    for round in 0..bench.engine().options.sizes.l0_trigger_runs - 1 {
        write(bench, &families, round);
        bench.db.flush().unwrap();
    }
    assert_eq!(bench.db.metrics().compactions, 0);
    write(bench, &families, 99);
    families
}

fn write(bench: &Bench, families: &[crate::Family], round: usize) {
    let mut batch = crate::Batch::new();
    for family in families {
        batch.of(family).put(format!("key{round}"), family.name());
        batch.of(family).put("key", format!("{round}"));
    }
    bench.db.write(batch).unwrap();
}

fn wait(bench: &Bench) {
    bench.engine().compactors.wait_idle();
    let is_idle = |family: &Arc<Keyspace>| family.compactions.state.lock().running == 0;
    bench.until(|| bench.engine().families.all().iter().all(is_idle));
}

fn runs(bench: &Bench) -> Vec<usize> {
    let families = bench.engine().families.all();
    let due = families.iter().filter(|family| &*family.name() != "default");
    due.map(|family| family.view().tree.runs.len()).collect()
}

#[test]
fn families_that_are_due_at_once_share_all_syncs_but_those_of_tables() {
    let bench = Bench::new(|options| options);
    let families = nearly_due(&bench);
    let syncs = || (bench.fs.tried(FileOp::Sync), bench.fs.tried(FileOp::SyncDir));
    let before = syncs();
    bench.db.flush().unwrap();
    wait(&bench);
    let jobs = bench.db.metrics().compactions;
    let (files, dirs) = (syncs().0 - before.0, syncs().1 - before.1);
    assert!(jobs >= FAMILIES as u64, "{jobs} jobs");
    assert!(files <= jobs + 12 && dirs <= 8, "{files} syncs of files and {dirs} of directories");
    assert!(runs(&bench).iter().all(|runs| *runs == 0));
    let told = bench.told(|event| matches!(event, Event::Compacted { .. }).then_some(()));
    assert_eq!(told.len() as u64, jobs);
    let names: Vec<String> = families.iter().map(|family| family.name()).collect();
    let left = Bench::on(bench.fs.crashed(|_| 0), |options| options);
    for name in names {
        let family = left.db.family(name.as_str()).unwrap();
        assert_eq!(family.get("key").unwrap().unwrap(), "99");
        assert_eq!(family.get("key3").unwrap().unwrap(), name.as_str());
    }
}

#[test]
fn of_jobs_that_are_installed_together_one_that_cannot_be_read_fails_alone() {
    let bench = Bench::new(|options| options);
    let families = nearly_due(&bench);
    let broken = bench.engine().families.by_name(&families[20].name()).unwrap();
    let run = broken.view().tree.runs[3].clone();
    let path = bench.engine().tables.files.path(run.meta.file);
    bench.fs.corrupt(&path, run.meta.root.offset, 1).unwrap();
    bench.db.flush().unwrap();
    wait(&bench);
    let failed = |event: &Event| match event {
        Event::BackgroundError { job: BackgroundJob::Compaction, error } => Some(error.clone()),
        _ => None,
    };
    assert_eq!(bench.told(failed).len(), 1, "{:?}", bench.told(failed));
    let left = runs(&bench).into_iter().filter(|runs| *runs > 0).collect::<Vec<_>>();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(broken.view().tree.runs.len() > 1);
}

#[test]
fn a_failed_sync_of_names_fails_all_that_share_it() {
    let bench = Bench::new(|options| options);
    nearly_due(&bench);
    // The first one is the flush's own.
    bench.fs.inject(Fault::on(FileOp::SyncDir).suffix("table").nth(2));
    bench.db.flush().unwrap();
    wait(&bench);
    let is_failure = |event: &Event| {
        matches!(event, Event::BackgroundError { job: BackgroundJob::Compaction, .. }).then_some(())
    };
    assert_eq!(bench.told(is_failure).len(), FAMILIES);
    assert!(runs(&bench).iter().all(|runs| *runs == 8));
    let left = Bench::on(bench.fs.crashed(|_| 0), |options| options);
    assert_eq!(left.db.list_families().len(), FAMILIES + 1);
}

#[test]
fn a_move_whose_edit_fails_is_neither_counted_nor_told() {
    let bench = Bench::new(|options| options);
    (0..2).for_each(|round| bench.flush(round, 2, 100));
    bench.wait();
    let family = bench.family();
    let slice = family.view().tree.runs[1].clone();
    let planned = Plan::Move(vec![Move { slice, from: 0, to: 6, is_for_deletes: false }]);
    let job = begin(&mut family.compactions.state.lock(), &planned);
    bench.fs.inject(Fault::on(FileOp::Write).suffix("MANIFEST-000001").errno(28).forever());
    let worked = work(bench.engine(), &family, planned, job, &CancelToken::new());
    let refused = install_all(bench.engine(), std::slice::from_ref(&family), vec![worked]);
    assert!(refused[0].as_ref().unwrap_err().is_out_of_space());
    bench.fs.clear_faults();
    end(&family, job, None);
    let is_move = |event: &Event| matches!(event, Event::TriviallyMoved { .. }).then_some(());
    assert_eq!((bench.db.metrics().trivial_moves, bench.told(is_move).len()), (0, 0));
    assert_eq!(bench.levels(), [2]);
}

/// A job that merges all runs.
fn job_of_all(bench: &Bench) -> Plan {
    let (engine, family) = (bench.engine(), bench.family());
    let range = ManualRange { upto: u64::MAX, ..ManualRange::everything() };
    let state = family.compactions.state.lock();
    let hints = hints_of(engine, &state, false);
    let (tree, policy) = (family.view().tree.clone(), policy_of(engine, &family));
    match plan_manual(&tree, &policy, &state.busy, &hints, &range) {
        ManualPlan::Do(planned) => planned,
        nothing => panic!("{nothing:?} with {:?}", bench.levels()),
    }
}

#[test]
fn a_helper_that_waits_for_a_thread_keeps_no_input_of_a_job_that_has_ended() {
    let bench = Bench::new(|options| options.compaction_threads(2));
    let compactors = &bench.engine().compactors;
    (0..2).for_each(|round| bench.flush(round, 2, 100));
    bench.wait();
    let family = bench.family();
    let slice = family.view().tree.runs[0].clone();
    let held = Arc::strong_count(&slice);
    let Plan::Compaction(mut compaction) = job_of_all(&bench) else { panic!("it merges nothing") };
    compaction.cuts = vec![slice.meta.largest.clone()];
    let planned = Plan::Compaction(compaction);
    let job = begin(&mut family.compactions.state.lock(), &planned);
    let _release = [(); 2].map(|()| {
        let (release, waits) = std::sync::mpsc::channel::<()>();
        compactors.submit(Box::new(move |_| waits.recv().unwrap_or_default())).unwrap();
        release
    });
    bench.until(|| compactors.queued_count() == 0);
    drop(work(bench.engine(), &family, planned, job, &CancelToken::new()).unwrap().unwrap());
    end(&family, job, None);
    assert_eq!(compactors.queued_count(), 1, "a helper waits");
    assert_eq!(Arc::strong_count(&slice), held);
}

/// It has no look on its way, so it tells at its end what it has read.
#[test]
fn a_small_job_has_nothing_left_to_read_before_it_is_installed_and_sets_no_pace() {
    let bench = Bench::new(|options| options);
    (0..2).for_each(|round| bench.flush(round, 2, 100));
    bench.wait();
    let (family, planned) = (bench.family(), job_of_all(&bench));
    let debt = CompactionDebt { bytes: 2, batch_debt: 1, batch_bytes: 1 };
    let pace = || {
        let mut backlog = bench.engine().backlog.lock();
        backlog.note(99, Some(debt));
        backlog.pressure().1
    };
    let before = pace();
    let job = begin(&mut family.compactions.state.lock(), &planned);
    let unread = || family.compactions.state.lock().busy.unread_bytes(|_| true);
    assert!(unread() > 1000);
    let worked = work(bench.engine(), &family, planned, job, &CancelToken::new()).unwrap();
    assert!(unread() <= 1, "{} bytes of the last one", unread());
    assert_eq!(pace(), before);
    assert_eq!(bench.levels(), [2], "it is not installed");
    drop(worked);
    end(&family, job, None);
}

#[test]
fn a_job_counts_with_its_values_in_blob_files() {
    let options = FamilyOptions::new().separate_from(1000).codecs([Codec::None]);
    let bench = Bench::new(|all| all.write_buffer(4 << 20).family(options));
    // What follows plans jobs alone.
    bench.engine().compactors.close();
    for round in 0..2u8 {
        // Runs that share keys are not moved down.
        bench.db.put("a", "1").unwrap();
        bench.db.put([b'k', round], vec![round; 900 << 10]).unwrap();
        bench.db.put("z", "1").unwrap();
        bench.db.flush().unwrap();
    }
    let planned = job_of_all(&bench);
    let Plan::Compaction(compaction) = &planned else { panic!("{planned:?}") };
    assert!(compaction.input_bytes() < 64 << 10, "{}", compaction.input_bytes());
    let held = readable_bytes(&planned);
    assert!((1800 << 10..2 << 20).contains(&held), "{held}");
    // Two of them are more than a thread does together.
    let family = bench.family();
    let task = |planned| {
        let begun = Begun::new(&family, &mut family.compactions.state.lock(), &Plan::DoNothing);
        Task { planned, begun }
    };
    let large = || job_of_all(&bench);
    let tasks = [large(), Plan::DoNothing, large(), large(), Plan::DoNothing];
    let mut tasks = tasks.map(task).into_iter().collect();
    let counts: Vec<usize> = (0..3).map(|_| take_together(&mut tasks, 32).len()).collect();
    assert_eq!((counts, tasks.len()), (vec![2, 1, 2], 0));
}

#[test]
fn jobs_that_are_installed_together_count_no_time_twice() {
    let bench = Bench::new(|options| options);
    nearly_due(&bench);
    let began = bench.engine().pacer.now_ns();
    bench.db.flush().unwrap();
    wait(&bench);
    let elapsed = bench.engine().pacer.now_ns() - began;
    let counted = bench.db.metrics().compaction_ns;
    assert!(0 < counted && counted <= elapsed, "{counted} of {elapsed}");
}
