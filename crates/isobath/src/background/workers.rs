//! A few threads and one queue of jobs.
//!
//! Jobs start in the order of their submission, as many at the same time as there are threads.
//! [`Workers::close`] drops the jobs that have not started, asks the running ones to stop, and
//! returns when the threads have ended. After that no job runs and none can be submitted.

use super::cancel::CancelToken;
use super::panics::{PanicReport, guard};
use super::promise::promise;
use crate::env::sync::{Condvar, Mutex, Rank};
use crate::env::{Priority, ThreadHandle, Threads};
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// Work that is done once. It should check the token at least every few milliseconds.
pub(crate) type Job = Box<dyn FnOnce(&CancelToken) + Send>;

/// Threads that run jobs.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    handles: Mutex<Vec<Box<dyn ThreadHandle>>>,
}

struct Shared {
    name: String,
    queue: Mutex<Queue>,
    /// Signalled when a job is queued or the queue is closed.
    work: Condvar,
    /// Signalled when the last job has ended.
    idle: Condvar,
    cancel: CancelToken,
    report: PanicReport,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    running_count: usize,
    is_closed: bool,
}

impl Workers {
    /// Starts `count` threads (at least one) called `name-0`, `name-1` and so on.
    pub(crate) fn new(
        threads: &dyn Threads,
        name: &str,
        count: usize,
        priority: Priority,
        report: PanicReport,
    ) -> Result<Workers> {
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            queue: Mutex::new(Rank::Jobs, Queue::default()),
            work: Condvar::new(),
            idle: Condvar::new(),
            cancel: CancelToken::new(),
            report,
        });
        // If a thread cannot be started, dropping the value ends the threads that were started.
        let workers = Workers { shared, handles: Mutex::new(Rank::WorkersEnd, Vec::new()) };
        for at in 0..count.max(1) {
            let shared = Arc::clone(&workers.shared);
            let thread_name = format!("{name}-{at}");
            let body = Box::new(move || shared.run());
            let handle = threads
                .spawn(thread_name.clone(), priority, body)
                .map_err(|error| Error::io("start thread", Path::new(&thread_name), error))?;
            workers.handles.lock().push(handle);
        }
        Ok(workers)
    }

    /// No threads: closed from the beginning.
    pub(crate) fn none(name: &str) -> Workers {
        let queue = Queue { is_closed: true, ..Queue::default() };
        let shared = Arc::new(Shared {
            name: name.to_owned(),
            queue: Mutex::new(Rank::Jobs, queue),
            work: Condvar::new(),
            idle: Condvar::new(),
            cancel: CancelToken::new(),
            report: Arc::new(|_, _| ()),
        });
        Workers { shared, handles: Mutex::new(Rank::WorkersEnd, Vec::new()) }
    }

    /// Queues a job. After [`Workers::close`] it drops the job instead and returns
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed).
    pub(crate) fn submit(&self, job: Job) -> Result<()> {
        let mut queue = self.shared.queue.lock();
        if queue.is_closed {
            // Dropping a job may run any code, so it happens without the lock.
            drop(queue);
            drop(job);
            return Err(Error::closed());
        }
        queue.jobs.push_back(job);
        drop(queue);
        self.shared.work.notify_one();
        Ok(())
    }

    /// Queues a job and waits for its result. Must not be called from these workers' own threads.
    /// Fails with [`ErrorKind::Closed`](crate::ErrorKind::Closed) after [`Workers::close`], and
    /// with [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) if the job panics or is dropped.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let (answer, promised) = promise();
        self.submit(Box::new(move |_| answer.give(Ok(job()))))?;
        promised.wait()
    }

    /// The number of jobs that are queued and have not started.
    pub(crate) fn queued_count(&self) -> usize {
        self.shared.queue.lock().jobs.len()
    }

    /// Waits until no job is queued or running.
    #[cfg(test)]
    pub(crate) fn wait_idle(&self) {
        let mut queue = self.shared.queue.lock();
        while queue.running_count > 0 || !queue.jobs.is_empty() {
            self.shared.idle.wait(&mut queue);
        }
    }

    /// Drops the jobs that have not started and asks the running ones to stop, without waiting for
    /// them. This is the first half of [`Workers::close`].
    pub(crate) fn cancel(&self) {
        let dropped = {
            let mut queue = self.shared.queue.lock();
            queue.is_closed = true;
            std::mem::take(&mut queue.jobs)
        };
        self.shared.cancel.cancel();
        self.shared.work.notify_all();
        self.shared.idle.notify_all();
        drop(dropped);
    }

    /// Closes the pool, as the module describes. May be called several times, but not from the
    /// workers' own threads: a job would wait for itself.
    pub(crate) fn close(&self) {
        self.cancel();
        // The lock is held while joining, so that a second closer does not return before the first.
        let mut handles = self.handles.lock();
        for handle in handles.drain(..) {
            handle.join();
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn run(&self) {
        while let Some(job) = self.next_job() {
            guard(&self.name, &self.report, || job(&self.cancel));
            let mut queue = self.queue.lock();
            queue.running_count -= 1;
            if queue.running_count == 0 && queue.jobs.is_empty() {
                self.idle.notify_all();
            }
        }
    }

    /// Waits for a job; `None` once the queue is closed.
    fn next_job(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_closed {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                queue.running_count += 1;
                return Some(job);
            }
            self.work.wait(&mut queue);
        }
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workers").field("name", &self.shared.name).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::env::SystemThreads;
    use crate::env::fixtures::TestThreads;
    use crate::env::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    fn workers(count: usize) -> Workers {
        let report: PanicReport = Arc::new(|name, message| panic!("{name}: {message}"));
        Workers::new(&SystemThreads, "test", count, Priority::Low, report).unwrap()
    }

    /// A job that signals that it runs, and then waits until it is released or cancelled.
    fn blocker() -> (Job, mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (started, is_started) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let job = move |cancel: &CancelToken| {
            started.send(()).unwrap();
            while !cancel.is_cancelled()
                && may_go_on.recv_timeout(Duration::from_millis(1)).is_err()
            {}
        };
        (Box::new(job), is_started, go_on)
    }

    #[test]
    fn one_thread_runs_jobs_in_order() {
        let workers = workers(1);
        let order = Arc::new(Mutex::unranked(Vec::new()));
        for at in 0..100 {
            let order = Arc::clone(&order);
            workers.submit(Box::new(move |_| order.lock().push(at))).unwrap();
        }
        workers.wait_idle();
        assert_eq!(*order.lock(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn as_many_jobs_run_at_once_as_there_are_threads() {
        let workers = workers(2);
        let (first, first_started, _first_go_on) = blocker();
        let (second, second_started, second_go_on) = blocker();
        let (third, third_started, _third_go_on) = blocker();
        workers.submit(first).unwrap();
        workers.submit(second).unwrap();
        workers.submit(third).unwrap();
        first_started.recv().unwrap();
        second_started.recv().unwrap();
        assert_eq!(workers.queued_count(), 1);
        second_go_on.send(()).unwrap();
        third_started.recv().unwrap();
    }

    #[test]
    fn closing_cancels_the_running_job_and_drops_the_queued_ones() {
        let workers = workers(1);
        let (running, is_started, _go_on) = blocker();
        workers.submit(running).unwrap();
        is_started.recv().unwrap();
        let held = Arc::new(());
        let held_by_job = Arc::clone(&held);
        let job: Job = Box::new(move |_| panic!("must not run: {held_by_job:?}"));
        workers.submit(job).unwrap();
        workers.close();
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!(workers.submit(Box::new(|_| ())).unwrap_err().name(), "CLOSED");
        workers.wait_idle();
        workers.close();
    }

    #[test]
    fn running_a_job_elsewhere_gives_its_result_and_never_waits_for_one_that_cannot_come() {
        let report: PanicReport = Arc::new(|_, _| ());
        let workers = Workers::new(&SystemThreads, "test", 1, Priority::Normal, report).unwrap();
        let name = || std::thread::current().name().map(str::to_owned);
        assert_eq!(workers.run(name).unwrap().as_deref(), Some("test-0"));
        assert!(matches!(
            workers.run(|| panic!("planted")).as_ref().map_err(Error::name),
            Err("CANCELLED")
        ));
        let (running, is_started, _go_on) = blocker();
        workers.submit(running).unwrap();
        is_started.recv().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| workers.run(|| ()));
            while workers.queued_count() == 0 {
                std::thread::yield_now();
            }
            workers.close();
            assert_eq!(waiting.join().unwrap().unwrap_err().name(), "CANCELLED");
        });
        assert_eq!(workers.run(|| ()).unwrap_err().name(), "CLOSED");
    }

    #[test]
    fn a_panic_is_reported_and_the_thread_goes_on() {
        let reports = Arc::new(Mutex::unranked(Vec::new()));
        let report: PanicReport = {
            let reports = Arc::clone(&reports);
            Arc::new(move |name, message| reports.lock().push(format!("{name}: {message}")))
        };
        let workers = Workers::new(&SystemThreads, "test", 1, Priority::Low, report).unwrap();
        let after = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&after);
        workers.submit(Box::new(|_| panic!("job {}", 7))).unwrap();
        workers.submit(Box::new(|_| panic!("plain"))).unwrap();
        workers
            .submit(Box::new(move |_| {
                counter.fetch_add(1, Ordering::SeqCst);
            }))
            .unwrap();
        workers.wait_idle();
        assert_eq!(*reports.lock(), ["test: job 7", "test: plain"]);
        assert_eq!(after.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_thread_that_cannot_start_ends_those_that_did() {
        let report: PanicReport = Arc::new(|_, _| ());
        let before_spawn = |name: &str| match name {
            "test-0" => Ok(()),
            _ => Err(std::io::Error::from_raw_os_error(11)),
        };
        let threads =
            TestThreads { before_spawn: Box::new(before_spawn), ..TestThreads::default() };
        let error = Workers::new(&threads, "test", 3, Priority::Low, report).unwrap_err();
        assert!(error.to_string().starts_with("could not start thread test-1"), "{error}");
    }
}
