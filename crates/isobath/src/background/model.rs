//! Shuttle models: every job runs once or is dropped, and a close waits for all jobs.
//!
//! These bugs were planted and found: a `Workers::close` that does not mark the queue as closed; a
//! `Ticker::kick` that wakes without setting its mark; a `wait_idle` that checks only the queue.

use super::*;
use crate::env::Priority;
use crate::env::model::{ModelThreads, check};
use crate::env::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

const SCHEDULES: usize = 5_000;

/// Counts what happens to a job: it is dropped exactly once, whether or not it ran.
struct Token(Arc<AtomicUsize>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn report() -> PanicReport {
    Arc::new(|name, message| panic!("{name}: {message}"))
}

#[test]
fn a_close_that_races_with_submissions_leaves_no_job_behind() {
    check(SCHEDULES, || {
        let workers = Workers::new(&ModelThreads, "w", 2, Priority::Low, report()).unwrap();
        let workers = Arc::new(workers);
        let (ran, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let submitter = {
            let (workers, ran, dropped) =
                (Arc::clone(&workers), Arc::clone(&ran), Arc::clone(&dropped));
            shuttle::thread::spawn(move || {
                for _ in 0..3 {
                    let (ran, token) = (Arc::clone(&ran), Token(Arc::clone(&dropped)));
                    let job = move |_: &CancelToken| {
                        ran.fetch_add(1, Ordering::SeqCst);
                        drop(token);
                    };
                    let _ = workers.submit(Box::new(job));
                }
            })
        };
        workers.close();
        let ran_by_close = ran.load(Ordering::SeqCst);
        submitter.join().unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), ran_by_close, "a job ran after the close");
        assert_eq!(dropped.load(Ordering::SeqCst), 3);
        workers.wait_idle();
    });
}

#[test]
fn waiting_for_idleness_sees_every_job_submitted_before() {
    check(SCHEDULES, || {
        let workers = Workers::new(&ModelThreads, "w", 2, Priority::Low, report()).unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let ran = Arc::clone(&ran);
            let job = move |_: &CancelToken| {
                ran.fetch_add(1, Ordering::SeqCst);
            };
            workers.submit(Box::new(job)).unwrap();
        }
        workers.wait_idle();
        assert_eq!(ran.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn a_kick_is_never_lost_and_a_close_ends_the_ticker() {
    check(SCHEDULES, || {
        let ran = Arc::new(AtomicUsize::new(0));
        let body = {
            let ran = Arc::clone(&ran);
            Box::new(move || {
                ran.fetch_add(1, Ordering::SeqCst);
            })
        };
        let period = Duration::from_secs(1);
        let ticker =
            Ticker::new(&ModelThreads, "t", Priority::Low, period, body, report()).unwrap();
        ticker.kick();
        while ran.load(Ordering::SeqCst) == 0 {
            shuttle::thread::yield_now();
        }
        ticker.close();
    });
}
