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
use std::collections::VecDeque;
use std::sync::Arc;

/// A job whose inputs hold more than this, with their values in blob files, has a thread to itself,
/// and installs alone.
const SMALL_BYTES_MAX: u64 = 256 << 10;

/// The most jobs that are installed together, and what their inputs hold at most: the first waits
/// until the last is done.
const TOGETHER_MAX: usize = 32;
const TOGETHER_BYTES_MAX: u64 = 2 << 20;

/// A planned job.
pub(super) struct Task {
    pub(super) planned: Plan,
    pub(super) begun: Begun,
}

/// What a job may have to read.
pub(super) fn readable_bytes(planned: &Plan) -> u64 {
    match planned {
        Plan::Compaction(compaction) => {
            let held = compaction.inputs.iter().map(|(_, slice)| slice.readable_bytes());
            held.fold(0, u64::saturating_add)
        }
        Plan::DoNothing | Plan::Move(_) | Plan::Drop(_) => 0,
    }
}

/// Takes those of the jobs off the front that a thread does together: `count` at most.
pub(super) fn take_together(small: &mut VecDeque<Task>, count: usize) -> Vec<Task> {
    let (mut bytes, mut taken) = (0, 0);
    for task in small.iter().take(count.min(TOGETHER_MAX)) {
        bytes += readable_bytes(&task.planned);
        if taken > 0 && bytes > TOGETHER_BYTES_MAX {
            break;
        }
        taken += 1;
    }
    small.drain(..taken).collect()
}

/// Takes jobs while they are planned, and hands them to the threads.
pub(in crate::compact) struct Jobs<'a> {
    engine: &'a Arc<Engine>,
    small: VecDeque<Task>,
}

impl<'a> Jobs<'a> {
    pub(in crate::compact) fn new(engine: &'a Arc<Engine>) -> Jobs<'a> {
        Jobs { engine, small: VecDeque::new() }
    }

    pub(super) fn add(&mut self, planned: Plan, begun: Begun) {
        let is_small = readable_bytes(&planned) <= SMALL_BYTES_MAX;
        let task = Task { planned, begun };
        if !is_small {
            return submit(self.engine, vec![task]);
        }
        self.small.push_back(task);
        if self.small.len() >= TOGETHER_MAX * self.engine.compactor_count {
            self.hand_out();
        }
    }

    fn hand_out(&mut self) {
        let together = self.small.len().div_ceil(self.engine.compactor_count.max(1));
        while !self.small.is_empty() {
            submit(self.engine, take_together(&mut self.small, together));
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
