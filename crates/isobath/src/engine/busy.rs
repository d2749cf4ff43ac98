//! The jobs under way on one tree, as far as the next plan must keep clear of them.

use crate::table::{Extent, ExtentRef};

/// Running jobs. Slices that they read cannot be planned with, and where they will put their
/// outputs nothing may land, nor pass below.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy {
    jobs: Vec<Job>,
    next_id: u64,
}

#[derive(Clone, Debug)]
struct Job {
    id: u64,
    claim: Claim,
}

/// What a job takes from other plans while it runs.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// The files of the slices that it reads, ascending.
    pub(crate) files: Vec<u64>,
    /// Bytes on disk that leave a level for the target, by level.
    pub(crate) leaving: Vec<(usize, u64)>,
    /// Bytes that it has still to read.
    pub(crate) unread: u64,
    pub(crate) target: usize,
    /// Where its inputs and outputs lie.
    pub(crate) hull: Extent,
}

/// What a plan takes from others, once it is carried out.
pub(crate) trait Claims {
    /// One for each part that ends in a target of its own.
    fn claims(&self) -> Vec<Claim>;
}

/// Names a running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobId(pub(crate) u64);

impl Busy {
    /// Enters a plan that is about to be carried out. It is under way until [`Busy::end`].
    pub(crate) fn begin(&mut self, plan: &impl Claims) -> JobId {
        let id = self.next_id;
        self.next_id += 1;
        self.jobs.extend(plan.claims().into_iter().map(|claim| Job { id, claim }));
        JobId(id)
    }

    /// The name that the next job will have: those before it have lesser ones.
    pub(crate) fn next_id(&self) -> JobId {
        JobId(self.next_id)
    }

    /// Forgets a job, once its edit is installed or it has failed.
    pub(crate) fn end(&mut self, id: JobId) {
        self.jobs.retain(|job| job.id != id.0);
    }

    /// True until [`Busy::end`].
    pub(crate) fn holds(&self, id: JobId) -> bool {
        self.jobs.iter().any(|job| job.id == id.0)
    }

    /// Notes that a job has read `bytes` more of its inputs.
    pub(crate) fn note_read(&mut self, id: JobId, bytes: u64) {
        for job in self.jobs.iter_mut().filter(|job| job.id == id.0) {
            job.claim.unread = job.claim.unread.saturating_sub(bytes);
        }
    }

    /// Bytes that running jobs have still to read.
    pub(crate) fn unread_bytes(&self) -> u64 {
        self.jobs.iter().map(|job| job.claim.unread).sum()
    }

    /// From what each level holds (0 for level 0) to about what it will hold once the running jobs
    /// have ended.
    pub(crate) fn foresee(&self, held: &mut [u64]) {
        for job in &self.jobs {
            for &(level, bytes) in &job.claim.leaving {
                if level.max(job.claim.target) < held.len() {
                    let bytes = bytes.min(held[level]);
                    held[level] -= bytes;
                    held[job.claim.target] += bytes;
                }
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// True if a running job reads the slice.
    pub(crate) fn reads(&self, file: u64) -> bool {
        self.jobs.iter().any(|job| job.claim.files.binary_search(&file).is_ok())
    }

    /// True if outputs of a running job may land in one of the levels below `above`, down to
    /// `target`, within an extent. What comes from level `above` must not be put there or
    /// deeper.
    pub(crate) fn lands_between(
        &self,
        above: usize,
        target: usize,
        extent: &ExtentRef<'_>,
    ) -> bool {
        let lands = |job: &Job| above < job.claim.target && job.claim.target <= target;
        self.jobs.iter().any(|job| lands(job) && job.claim.hull.overlaps(extent))
    }
}
