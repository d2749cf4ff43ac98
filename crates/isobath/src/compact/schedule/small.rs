//! Small jobs that are planned at the same time go to the threads several at a time.
//!
//! After a flush of thousands of families many are due at once, each with a job that writes a few
//! kilobytes and waits for syncs. A thread that has several of them installs them together
//! (`carry_out.rs`), so that they share all syncs but those of the tables themselves. They are
//! shared out among the threads first: with fewer jobs than threads each job has its own.

use super::carry_out::carry_out;
use super::{Begun, Plan};
use crate::background::CancelToken;
use crate::engine::Engine;
use std::sync::Arc;

/// A job that reads more than this has a thread to itself, and installs alone.
const SMALL_BYTES_MAX: u64 = 256 << 10;

/// The most jobs that are installed together: the first waits until the last is done.
const TOGETHER_MAX: usize = 32;

/// A planned job.
pub(super) struct Task {
    pub(super) planned: Plan,
    pub(super) begun: Begun,
}

fn is_small(planned: &Plan) -> bool {
    match planned {
        Plan::Compaction(compaction) => compaction.input_bytes() <= SMALL_BYTES_MAX,
        Plan::DoNothing | Plan::Move(_) | Plan::Drop(_) => true,
    }
}

/// Takes jobs while they are planned, and hands them to the threads.
pub(in crate::compact) struct Jobs<'a> {
    engine: &'a Arc<Engine>,
    small: Vec<Task>,
}

impl<'a> Jobs<'a> {
    pub(in crate::compact) fn new(engine: &'a Arc<Engine>) -> Jobs<'a> {
        Jobs { engine, small: Vec::new() }
    }

    pub(super) fn add(&mut self, planned: Plan, begun: Begun) {
        let is_small = is_small(&planned);
        let task = Task { planned, begun };
        if !is_small {
            return submit(self.engine, vec![task]);
        }
        self.small.push(task);
        if self.small.len() >= TOGETHER_MAX * self.engine.compactor_count {
            self.hand_out();
        }
    }

    fn hand_out(&mut self) {
        let together = self.small.len().div_ceil(self.engine.compactor_count.max(1));
        let mut small = std::mem::take(&mut self.small).into_iter();
        loop {
            let tasks: Vec<Task> = small.by_ref().take(together.min(TOGETHER_MAX)).collect();
            if tasks.is_empty() {
                return;
            }
            submit(self.engine, tasks);
        }
    }
}

impl Drop for Jobs<'_> {
    fn drop(&mut self) {
        self.hand_out();
    }
}

/// Hands jobs to one of the compactors. If they are closed, the jobs end here.
pub(super) fn submit(engine: &Arc<Engine>, tasks: Vec<Task>) {
    let weak = Arc::downgrade(engine);
    let job = Box::new(move |cancel: &CancelToken| {
        let Some(engine) = weak.upgrade() else { return };
        carry_out(&engine, tasks, cancel);
    });
    // An error says that they are closed, which the end of the jobs tells too.
    let _ = engine.compactors.submit(job);
}
