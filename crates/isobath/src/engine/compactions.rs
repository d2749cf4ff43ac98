//! The running compactions of one family, and what the next plan needs to know of earlier ones.

use super::busy::{Busy, JobId};
use crate::blob::GarbageDebt;
use crate::env::sync::atomic::{AtomicBool, Ordering};
use crate::env::sync::{Condvar, Mutex, Rank};
use crate::error::Error;
use crate::metrics::CompactionMetrics;
use std::collections::BTreeMap;

/// Compactions that failed are tried again at least once in so many rounds of maintenance ...
const RETRY_ROUNDS_MAX: u32 = 64;
/// ... and for lack of something at least so soon after a flush of any family has found some.
const RETRY_ROUNDS_AFTER_FLUSH: u32 = 4;
/// A family rests once maintenance has looked so often and no flush has added to it.
const REST_LOOKS: u32 = 12;

/// The compactions of one family.
pub(crate) struct Compactions {
    pub(crate) state: Mutex<CompactionState>,
    /// Signalled when a job has ended.
    pub(crate) ended: Condvar,
    /// A flush has added to the family, and the state does not show it yet.
    is_flushed: AtomicBool,
    /// A compaction thread is to look for jobs.
    is_due: AtomicBool,
    /// It was told that the filter is missing, and that it failed.
    told_missing: AtomicBool,
    told_failing: AtomicBool,
}

impl Default for Compactions {
    fn default() -> Self {
        let state = Mutex::new(Rank::Compactions, CompactionState::default());
        let untold = || AtomicBool::new(false);
        let (told_missing, told_failing) = (untold(), untold());
        let (is_flushed, is_due) = (AtomicBool::new(false), AtomicBool::new(false));
        let ended = Condvar::new();
        Compactions { state, ended, is_flushed, is_due, told_missing, told_failing }
    }
}

impl Compactions {
    /// Notes that a flush has added to the family. The flusher waits for no planner, so the next
    /// thread that has the state takes it in.
    pub(crate) fn note_flushed(&self) {
        self.is_flushed.store(true, Ordering::Release);
    }

    /// True if a flush has added to the family since this was asked last. For a thread that has the
    /// state.
    pub(crate) fn take_flushed(&self) -> bool {
        self.is_flushed.load(Ordering::Relaxed) && self.is_flushed.swap(false, Ordering::AcqRel)
    }

    /// A compaction thread is to look for jobs. False if one has been asked that has not begun.
    pub(crate) fn become_due(&self) -> bool {
        !self.is_due.swap(true, Ordering::AcqRel)
    }

    /// The compaction thread that was asked begins to look.
    pub(crate) fn begin_planning(&self) {
        // It sees what those have flushed who found it set.
        self.is_due.swap(false, Ordering::AcqRel);
    }

    /// Notes that the family's filter is missing. True if it was not told yet.
    pub(crate) fn note_missing(&self) -> bool {
        !self.told_missing.swap(true, Ordering::Relaxed)
    }

    /// Notes that the family's filter gave no verdict. True if it was not told yet.
    pub(crate) fn note_failing(&self) -> bool {
        !self.told_failing.swap(true, Ordering::Relaxed)
    }
}

/// The part of [`Compactions`] that its lock protects.
#[derive(Default)]
pub(crate) struct CompactionState {
    pub(crate) busy: Busy,
    pub(crate) running: usize,
    /// The size of runs to reckon with (`run_bytes_after`); 0 if unknown.
    pub(crate) run_bytes: u64,
    /// What was garbage in blob files when jobs were planned last.
    pub(crate) garbage: GarbageDebt,
    /// The table files that slices of the family are to leave, as the last look has chosen them,
    /// each with what that is worth in bytes.
    pub(crate) cleaned: BTreeMap<u64, u64>,
    /// The last failure because of which no other job begins. The next flush forgets it, so that
    /// compactions are tried again, and from time to time maintenance does.
    suspension: Option<Failure>,
    /// The last failure of a job that could not read a slice. The next jobs do not take that slice,
    /// and may begin.
    damage: Option<Failure>,
    retries: Retries,
    /// How often maintenance has looked since a flush has added to the family, or since the family
    /// rested and nothing was to be done.
    rest_looks: u32,
    /// What was done, by reason and level.
    pub(crate) done: Vec<CompactionMetrics>,
}

/// A job that failed.
struct Failure {
    job: JobId,
    error: Error,
}

/// When maintenance tries again, in rounds.
#[derive(Default)]
struct Retries {
    /// The rounds to pass before.
    left: u32,
    /// The rounds from the last time on.
    pause: u32,
}

impl CompactionState {
    /// Notes that a job has ended.
    pub(crate) fn note_end(&mut self, job: JobId, failure: Option<Error>) {
        debug_assert!(self.running > 0, "a job ends that never began");
        match failure {
            Some(error) if self.busy.has_met_damage(job) => {
                self.damage = Some(Failure { job, error });
            }
            Some(error) => {
                self.retries.left = match error.is_retryable() {
                    true => self.retries.left.min(self.retries.pause.saturating_sub(1)),
                    false => RETRY_ROUNDS_MAX - 1,
                };
                self.suspension = Some(Failure { job, error });
            }
            None => self.retries = Retries::default(),
        }
        self.busy.end(job);
        self.running -= 1;
    }

    /// A round of maintenance has come. True if compactions are to be tried again that failed. For
    /// lack of space, memory or file descriptors that is soon, and then at ever longer intervals.
    /// Another reason seldom passes, but if it does, no flush of the family may come to tell.
    pub(crate) fn tries_again(&mut self) -> bool {
        if !self.is_suspended() {
            return false;
        }
        if self.retries.left > 0 {
            self.retries.left -= 1;
            return false;
        }
        if self.is_suspended_for_now() {
            let pause = (2 * self.retries.pause).clamp(1, RETRY_ROUNDS_MAX);
            debug_assert!(pause >= self.retries.pause, "the intervals grow");
            self.retries = Retries { left: pause - 1, pause };
        }
        self.suspension = None;
        true
    }

    /// Maintenance has come to see whether the family rests. True if it does, and what pays off
    /// only later may begin, whatever is written to others.
    pub(crate) fn rests(&mut self) -> bool {
        self.rest_looks = self.rest_looks.saturating_add(1);
        self.rest_looks >= REST_LOOKS
    }

    /// A flush has added to the family, or it rests and there is nothing that may begin.
    pub(crate) fn begin_rest(&mut self) {
        self.rest_looks = 0;
    }

    /// A flush has found space, memory and file descriptors, so compactions may, too.
    pub(crate) fn note_flush(&mut self) {
        if self.is_suspended_for_now() {
            self.retries.left = self.retries.left.min(RETRY_ROUNDS_AFTER_FLUSH);
        }
    }

    /// True if no job begins, because one has failed.
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspension.is_some()
    }

    /// True if no job begins for a reason that may pass: a lack of space, memory or descriptors.
    pub(crate) fn is_suspended_for_now(&self) -> bool {
        self.suspension.as_ref().is_some_and(|failure| failure.error.is_retryable())
    }

    /// True if a job has failed, and this was not forgotten yet.
    pub(crate) fn has_failed(&self) -> bool {
        self.suspension.is_some() || self.damage.is_some()
    }

    /// Has compactions tried again if they wait for what may pass. False if they do not.
    pub(crate) fn try_now(&mut self) -> bool {
        self.suspension.take_if(|failure| failure.error.is_retryable()).is_some()
    }

    /// Forgets what failed, so that compactions are tried again.
    pub(crate) fn forget_failures(&mut self) {
        (self.suspension, self.damage) = (None, None);
    }

    /// Counts a compaction that was installed.
    pub(crate) fn note_done(&mut self, done: &CompactionMetrics) {
        let is_like = |sum: &CompactionMetrics| {
            (sum.reason, sum.into_level) == (done.reason, done.into_level)
        };
        match self.done.iter_mut().find(|sum| is_like(sum)) {
            Some(sum) => sum.add(done),
            None => self.done.push(*done),
        }
    }

    /// The failure of a job that began as `first` or later. An older failure says nothing about
    /// now, so it is forgotten.
    pub(crate) fn failure_since(&mut self, first: JobId) -> Option<Error> {
        let mut failures = [&mut self.suspension, &mut self.damage];
        failures.iter_mut().for_each(|failure| drop(failure.take_if(|at| at.job < first)));
        failures.into_iter().flatten().map(|failure| failure.error.clone()).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Extent;

    /// The files that a job reads, to make one run of them.
    struct Files(&'static [u64]);

    impl super::super::Claims for Files {
        fn claims(&self) -> Vec<super::super::Claim> {
            vec![super::super::Claim {
                files: self.0.to_vec(),
                leaving: Vec::new(),
                unread: 0,
                target: 0,
                is_for_deletes: false,
                hull: Extent::default(),
            }]
        }
    }

    fn begin(state: &mut CompactionState, files: &'static [u64]) -> JobId {
        state.running += 1;
        state.busy.begin(&Files(files))
    }

    fn run(state: &mut CompactionState, failure: Option<Error>) {
        let job = begin(state, &[1]);
        state.note_end(job, failure);
    }

    fn full() -> Error {
        Error::io("write", "table".as_ref(), std::io::ErrorKind::StorageFull.into())
    }

    #[test]
    fn what_failed_for_want_of_room_is_tried_again_at_ever_longer_intervals() {
        let mut state = CompactionState::default();
        let rounds = |state: &mut CompactionState, count: u32| -> Vec<u32> {
            let mut tries_again = |_: &u32| {
                let tries_again = state.tries_again();
                if tries_again {
                    run(state, Some(full()));
                }
                tries_again
            };
            (0..count).filter(|round| tries_again(round)).collect()
        };
        assert!(rounds(&mut state, 10).is_empty(), "nothing has failed");
        run(&mut state, Some(full()));
        assert_eq!(rounds(&mut state, 260), [0, 1, 3, 7, 15, 31, 63, 127, 191, 255]);
        run(&mut state, None);
        assert_eq!(rounds(&mut state, 4), [0, 1, 3], "a job has found room meanwhile");
    }

    #[test]
    fn what_failed_for_another_reason_is_tried_again_seldom() {
        let mut state = CompactionState::default();
        run(&mut state, Some(Error::planted()));
        for _ in 0..2 {
            assert!((0..63).all(|_| !state.tries_again()));
            state.note_flush();
            assert!(state.tries_again() && !state.is_suspended());
            run(&mut state, Some(Error::planted()));
        }
        assert!(!state.tries_again());
        // What passes is still tried again soon, whether or not a job has succeeded in between.
        for succeeds in [true, false] {
            if succeeds {
                run(&mut state, None);
            }
            run(&mut state, Some(full()));
            assert!(state.tries_again());
            run(&mut state, Some(Error::planted()));
        }
    }

    #[test]
    fn a_flush_of_any_family_has_what_failed_for_want_of_room_tried_again_soon() {
        let mut state = CompactionState::default();
        let mut pause = |is_told: bool| {
            run(&mut state, Some(full()));
            if is_told {
                state.note_flush();
            }
            (0..100).position(|_| state.tries_again()).unwrap()
        };
        for after in [0, 0, 1, 3, 7, 15, 31, 63, 63] {
            assert_eq!(pause(false), after);
        }
        assert_eq!([pause(true), pause(false), pause(true)], [4, 63, 4]);
        state.note_flush();
        assert!(!state.tries_again(), "nothing has failed since");
    }

    #[test]
    fn damage_beside_a_job_without_room_ends_no_retries() {
        for (meets_damage_first, is_forgotten) in
            [(false, false), (true, false), (false, true), (true, true)]
        {
            let mut state = CompactionState::default();
            let (full_up, damaged) = (begin(&mut state, &[1]), begin(&mut state, &[2, 3]));
            state.busy.note_damaged(damaged, 3, Extent::default());
            let mut ends = [(full_up, full()), (damaged, Error::planted())];
            if meets_damage_first {
                ends.reverse();
            }
            for (job, error) in ends {
                state.note_end(job, Some(error));
            }
            assert!(state.is_suspended(), "there is no room");
            if is_forgotten {
                let told = state.failure_since(damaged).expect("this job met damage");
                assert!(!told.is_retryable() && !state.is_suspended(), "{told:?}");
                continue;
            }
            assert!(state.tries_again() && !state.is_suspended());
            run(&mut state, Some(full()));
            assert!(state.tries_again(), "the damage is known, and the lack may pass");
        }
        let mut state = CompactionState::default();
        let damaged = begin(&mut state, &[3]);
        state.busy.note_damaged(damaged, 3, Extent::default());
        state.note_end(damaged, Some(Error::planted()));
        assert!(!state.is_suspended() && !state.tries_again(), "others go on");
        assert!(state.failure_since(damaged).is_some_and(|error| !error.is_retryable()));
    }
}
