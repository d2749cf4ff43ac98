//! What the next plan for a tree must avoid: the running jobs, and slices that cannot be read.

use crate::table::{Extent, ExtentRef};
use std::collections::BTreeMap;

/// Running jobs, and slices that cannot be read. A new plan must not use the slices that the jobs
/// read, nor those. Nothing may be placed in, or moved below, the part of the key space where the
/// jobs' outputs will land.
#[derive(Clone, Debug, Default)]
pub(crate) struct Busy {
    jobs: Vec<Job>,
    next_id: u64,
    /// The slices that a job could not read, by their files.
    damaged: BTreeMap<u64, Extent>,
    /// A job has taken level 0 down since the last one for old deletes of other levels began.
    has_lowered_runs: bool,
}

#[derive(Clone, Debug)]
struct Job {
    id: u64,
    claim: Claim,
    has_met_damage: bool,
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
    /// It is for deletes that have stayed too long.
    pub(crate) is_for_deletes: bool,
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
        for claim in &claims {
            let takes_runs = claim.leaving.iter().any(|(level, _)| *level == 0);
            self.has_lowered_runs |= takes_runs && claim.target > 0;
            self.has_lowered_runs &= takes_runs || !claim.is_for_deletes;
        }
        let job = |claim| Job { id, claim, has_met_damage: false };
        self.jobs.extend(claims.into_iter().map(job));
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

    /// Bytes that those running jobs have still to read whose claim this accepts.
    pub(crate) fn unread_bytes(&self, counts: impl Fn(&Claim) -> bool) -> u64 {
        let claims = self.jobs.iter().map(|job| &job.claim);
        claims.filter(|claim| counts(claim)).map(|claim| claim.unread).sum()
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

    /// Notes that a job could not read the slice of this file. No compaction takes it again, unless
    /// one is asked for.
    pub(crate) fn note_damaged(&mut self, id: JobId, file: u64, extent: Extent) {
        self.damaged.insert(file, extent);
        let jobs = self.jobs.iter_mut().filter(|job| job.id == id.0);
        jobs.for_each(|job| job.has_met_damage = true);
    }

    /// True if the job could not read one of its slices, and all such slices are noted.
    pub(crate) fn has_met_damage(&self, id: JobId) -> bool {
        self.jobs.iter().any(|job| job.id == id.0 && job.has_met_damage)
    }

    /// The slices that cannot be read.
    pub(crate) fn damaged(&self) -> &BTreeMap<u64, Extent> {
        &self.damaged
    }

    pub(crate) fn is_damaged(&self, file: u64) -> bool {
        self.damaged.contains_key(&file)
    }

    /// Forgets damaged slices that have left the tree.
    pub(crate) fn forget_damaged(&mut self, stays: impl Fn(u64, &Extent) -> bool) {
        self.damaged.retain(|file, extent| stays(*file, extent));
    }

    /// The running jobs alone.
    pub(crate) fn without_damaged(&self) -> Busy {
        Busy { damaged: BTreeMap::new(), ..self.clone() }
    }

    /// True if a job has taken level 0 down since the last one for old deletes of other levels
    /// began: it is their turn.
    pub(crate) fn has_lowered_runs(&self) -> bool {
        self.has_lowered_runs
    }

    /// True if no job that nothing asked for may read the slice: another does, or none can.
    pub(crate) fn bars(&self, file: u64) -> bool {
        self.is_damaged(file) || self.reads(file)
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
