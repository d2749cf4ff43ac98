//! What a flush leaves to compaction threads, since writers wait for the flusher.

use super::*;
use std::sync::mpsc;
use std::thread;

/// Keeps the only compaction thread busy until the sender is dropped.
fn block(bench: &Bench) -> mpsc::Sender<()> {
    let (end, ends) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel();
    let block = move |_: &_| {
        begin.send(()).unwrap();
        _ = ends.recv();
    };
    bench.engine().compactors.submit(Box::new(block)).unwrap();
    begun.recv().unwrap();
    end
}

/// Flushes a range delete, whose table no thread has opened, while the compaction thread is busy.
fn deleted_unread(bench: &Bench) -> mpsc::Sender<()> {
    bench.flush(0, 1, 100);
    bench.wait_for_compactions();
    let end = block(bench);
    bench.db.delete_range("key".."l").unwrap();
    bench.db.flush().unwrap();
    end
}

fn runs(bench: &Bench) -> usize {
    bench.family().view().tree.runs.len()
}

#[test]
fn a_flush_does_not_wait_for_who_plans() {
    let bench = Bench::new(|options| options);
    let due = bench.engine().options.sizes.l0_trigger_runs as u32;
    (1..due).for_each(|n| bench.flush(n, 9, 50));
    let family = bench.family();
    let run_bytes = family.compactions.state.lock().run_bytes;
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        let state = family.compactions.state.lock();
        scope.spawn(|| {
            // Much longer than those before.
            bench.flush(0, 1, 1000);
            done.send(()).unwrap();
        });
        let in_time = is_done.recv_timeout(Duration::from_secs(120));
        drop(state);
        in_time.expect("the flush waits for the planner");
    });
    bench.until(|| runs(&bench) == 0);
    assert!(family.compactions.state.lock().run_bytes > run_bytes, "the run counts");
    bench.wait_for_compactions();
}

#[test]
fn a_flush_opens_no_table_to_look_for_jobs() {
    let bench = Bench::new(|options| options);
    let end = deleted_unread(&bench);
    let newest = bench.family().view().tree.runs[0].clone();
    assert!(newest.meta.spans.is_some() && newest.spans_if_open().is_none());
    assert_eq!(bench.engine().compactors.queued_count(), 1);
    // Another flush asks for no other look.
    bench.db.put("x", "y").unwrap();
    bench.db.flush().unwrap();
    assert_eq!(bench.engine().compactors.queued_count(), 1);
    drop(end);
    let dropped = |event: &Event| matches!(event, Event::Dropped { .. }).then_some(());
    bench.until(|| !bench.told(dropped).is_empty());
}

#[test]
fn what_a_flush_of_long_values_calls_for_is_started() {
    let apart = FamilyOptions::new().separate_from(1000);
    let bench = Bench::new(|options| options.family(apart));
    let end = block(&bench);
    let due = bench.engine().options.sizes.l0_trigger_runs as u8;
    for round in 0..3 * due {
        bench.db.put("a", "1").unwrap();
        bench.db.put([b'k', round], vec![round; 2000]).unwrap();
        bench.db.flush().unwrap();
    }
    let family = bench.family();
    assert_eq!(family.compactions.state.lock().running, 0);
    assert!(family.compactions.state.lock().run_bytes > 0);
    assert!(bench.engine().backlog.lock().pressure().0 > 0.0, "writers are paced at once");
    drop(end);
    bench.until(|| runs(&bench) == 0);
}

#[test]
fn a_close_drops_what_is_left_to_compaction_threads() {
    let bench = Bench::new(|options| options);
    let end = deleted_unread(&bench);
    assert_eq!(bench.engine().compactors.queued_count(), 1);
    bench.engine().compactors.cancel();
    drop(end);
    let waited = bench.db.wait_for_compactions(Some(Duration::from_secs(10)));
    assert!(!matches!(waited, Ok(false)), "it waits for what never comes");
    bench.db.close().unwrap();
}
