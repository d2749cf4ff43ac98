//! The running jobs on one tree, as far as the next plan must avoid them.

use crate::table::{Extent, ExtentRef};

/// Running jobs. A new plan must not use the slices that they read. Nothing may be placed in, or
/// moved below, the part of the key space where their outputs will land.
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

/// What a running job reserves for itself.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// The files of the slices that the job reads, ascending.
    pub(crate) files: Vec<u64>,
    /// Bytes on disk that leave each level for the target: pairs of level and bytes.
    pub(crate) leaving: Vec<(usize, u64)>,
    /// Bytes that the job has still to read.
    pub(crate) unread: u64,
    pub(crate) target: usize,
    /// The extent of the job's inputs and outputs.
    pub(crate) hull: Extent,
}

/// A plan that reserves something while it is carried out.
pub(crate) trait Claims {
    /// One claim for each part of the plan that has its own target.
    fn claims(&self) -> Vec<Claim>;
}

/// The name of a running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobId(pub(crate) u64);

impl Busy {
    /// Enters a plan that is about to be carried out. It counts as running until [`Busy::end`].
    pub(crate) fn begin(&mut self, plan: &impl Claims) -> JobId {
        let id = self.next_id;
        self.next_id += 1;
        let claims = plan.claims();
        let mut files = claims.iter().flat_map(|claim| &claim.files);
        debug_assert!(files.all(|file| !self.reads(*file)), "two jobs would rewrite one slice");
        debug_assert!(
            claims.iter().all(|claim| claim.files.is_sorted()),
            "files are found by a binary search"
        );
        self.jobs.extend(claims.into_iter().map(|claim| Job { id, claim }));
        JobId(id)
    }

    /// The name of the next job. All earlier jobs have smaller names.
    pub(crate) fn next_id(&self) -> JobId {
        JobId(self.next_id)
    }

    /// Forgets a job, after its edit was installed or the job failed.
    pub(crate) fn end(&mut self, id: JobId) {
        self.jobs.retain(|job| job.id != id.0);
    }

    /// True until [`Busy::end`].
    pub(crate) fn holds(&self, id: JobId) -> bool {
        self.jobs.iter().any(|job| job.id == id.0)
    }

    /// True if a job runs that began before the one of this name.
    pub(crate) fn holds_before(&self, id: JobId) -> bool {
        self.jobs.iter().any(|job| job.id < id.0)
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

    /// Changes `held`, the bytes of each level (0 is level 0), to about what each level will hold
    /// when the running jobs have ended.
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

    /// True if outputs of a running job may land within the extent, in one of the levels below
    /// `above`, down to `target`. Slices from level `above` must then not be put into that level or
    /// a deeper one.
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
