//! When nothing is left to do: no job is due, none may begin, or the family is gone.

use super::*;
use crate::engine::CompactionState;

/// Fails a job for a reason that may pass.
fn fail(state: &mut CompactionState) {
    let job = begin(state, &Plan::DoNothing);
    let full = std::io::ErrorKind::StorageFull.into();
    state.note_end(job, Some(Error::io("write", "table".as_ref(), full)));
}

#[test]
fn nothing_is_left_only_where_no_job_is_due_or_running_or_has_failed() {
    let bench = Bench::new(|options| options);
    let (engine, family) = (bench.engine(), bench.family());
    let is_idle = || {
        let holdings = Holdings::of(engine, std::slice::from_ref(&family));
        start_jobs(&mut Jobs::new(engine), engine, &family, Start::Due, &holdings).is_idle
    };
    let state = || family.compactions.state.lock();
    assert!(is_idle());
    state().running = 1;
    assert!(!is_idle(), "a job runs");
    (0..bench.engine().options.sizes.l0_trigger_runs as u32).for_each(|n| bench.flush(n, 9, 50));
    state().running = 0;
    fail(&mut state());
    assert!(!is_idle(), "no job may begin");
    state().forget_failures();
    assert!(!is_idle(), "one is due");
    bench.wait_for_compactions();
    assert!(is_idle());
}

#[test]
fn a_flush_of_any_family_lets_compactions_be_tried_again_soon() {
    let bench = Bench::new(|options| options);
    let (other, family) = (bench.db.family("other").unwrap(), bench.family());
    // Each time it lasts longer until they are.
    for _ in 0..10 {
        let mut state = family.compactions.state.lock();
        fail(&mut state);
        while !state.tries_again() {}
    }
    fail(&mut family.compactions.state.lock());
    let is_tried = || {
        (0..8).for_each(|_| retry(bench.engine()));
        !family.compactions.state.lock().is_suspended()
    };
    assert!(!is_tried());
    other.put("key", "value").unwrap();
    bench.db.flush().unwrap();
    assert!(is_tried());
}

#[test]
fn a_compaction_for_a_family_that_is_dropped_neither_fails_nor_holds_writers_back() {
    let bench = Bench::new(|options| options);
    let other = bench.db.family("other").unwrap();
    for round in 0..6 {
        for at in 0..200 {
            other.put(format!("{at:03}{round}"), vec![b'v'; 100]).unwrap();
        }
        bench.db.flush().unwrap();
    }
    bench.db.drop_family(&other).unwrap();
    assert_eq!(bench.engine().backlog.lock().pressure().0, 0.0);
    assert!(other.compact(..).is_err());
    bench.wait_for_compactions();
    let told = bench.told(|event| matches!(event, Event::BackgroundError { .. }).then_some(()));
    assert_eq!(told, []);
}

#[test]
fn compactions_that_no_thread_takes_fail() {
    let bench = Bench::new(|options| options);
    (0..2).for_each(|n| bench.flush(n, 2, 50));
    bench.engine().compactors.close();
    assert!(bench.db.compact().unwrap_err().is_closed());
}

#[test]
fn short_slices_become_longer_once_no_clone_shares_them() {
    let bench = Bench::new(|options| options);
    let slices = || bench.family().view().tree.iter().count();
    let add = |n: u32| {
        bench.flush(1000 * n, 1, 10);
        bench.db.compact().unwrap();
    };
    (0..7).for_each(add);
    let clone = bench.db.clone_family(&bench.db.default_family(), "clone").unwrap();
    add(7);
    bench.wait_for_compactions();
    assert_eq!(slices(), 8, "they would share no more");
    bench.db.drop_family(&clone).unwrap();
    // Something is queued, which does not matter to who waits.
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let block = move |_: &_| _ = ends.recv();
    bench.engine().compactors.submit(Box::new(block)).unwrap();
    bench.engine().compactors.submit(Box::new(|_: &_| ())).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| bench.wait_for_compactions());
        std::thread::sleep(std::time::Duration::from_millis(20));
        drop(end);
    });
    assert_eq!(slices(), 1);
}

#[test]
fn short_slices_wait_while_anything_runs_and_if_that_is_all_while_anything_is_queued() {
    let bench = Bench::new(|options| options);
    let (engine, family) = (bench.engine(), bench.family());
    let may = |start| may_compact_short(engine, &family.compactions.state.lock(), start);
    assert!(may(Start::Due) && may(Start::Idle));
    family.compactions.state.lock().running = 1;
    assert!(!may(Start::Due) && !may(Start::Idle));
    family.compactions.state.lock().running = 0;
    let (end, ends) = std::sync::mpsc::channel::<()>();
    let block = move |_: &_| _ = ends.recv();
    engine.compactors.submit(Box::new(block)).unwrap();
    engine.compactors.submit(Box::new(|_: &_| ())).unwrap();
    assert!(!may(Start::Due) && may(Start::Idle));
    drop(end);
}
