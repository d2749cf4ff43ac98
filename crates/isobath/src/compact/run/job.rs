//! A running compaction, which several threads may work on.
//!
//! The parts of a compaction are disjoint in keys, so the outputs of all parts together are the
//! compaction's outputs. Every thread with the [`CompactionJob`] may take parts from it
//! ([`CompactionJob::help`]). The owner takes parts too. Then it waits only for helpers that have
//! started, until they have reported. So a job ends with any number of threads.

use super::{CompactionContext, Written, run_part};
use crate::compact::plan::{Compaction, Dropped, Move};
use crate::env::sync::{Condvar, Mutex, Rank};
use crate::env::{Plant, Reach, planted, reached_if};
use crate::error::{Error, PoisonCause, Result};
use crate::format::{FamilyId, Lsn};
use crate::mvcc::Tally;
use crate::table::{End, Extent, SliceMeta};
use crate::version::{Change, LiveFile, Slice};
use std::sync::Arc;

/// A compaction, its parts, and what has been written so far.
pub(crate) struct CompactionJob {
    compaction: Compaction,
    context: CompactionContext,
    /// The parts, ascending; each ends where the next begins.
    parts: Vec<Extent>,
    progress: Mutex<Progress>,
    helper_done: Condvar,
}

#[derive(Default)]
struct Progress {
    next_part: usize,
    helpers: usize,
    written: Vec<(usize, Written)>,
    error: Option<Error>,
}

/// A part that a thread is working on. It ends with the part's result, or without one if the thread
/// panics.
struct Turn<'a> {
    job: &'a CompactionJob,
    part: usize,
    result: Option<Result<Written>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut progress = self.job.progress.lock();
        match self.result.take() {
            Some(Ok(written)) => progress.written.push((self.part, written)),
            failed => {
                // No thread takes another part.
                progress.next_part = self.job.parts.len();
                let panicked = || Error::poisoned(PoisonCause::panicked("in a compaction", ""));
                let error = failed.and_then(Result::err).unwrap_or_else(panicked);
                progress.error.get_or_insert(error);
            }
        }
    }
}

/// A thread that works on a job. The job waits for it.
struct Helper<'a>(&'a CompactionJob);

impl Drop for Helper<'_> {
    fn drop(&mut self) {
        self.0.progress.lock().helpers -= 1;
        self.0.helper_done.notify_all();
    }
}

/// What a job changes in the tree when it is installed.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) removed: Vec<(usize, u64)>,
    pub(crate) added: Vec<(usize, SliceMeta)>,
    /// The least point that a reader to come could have when versions were dropped; 0 if none was.
    pub(crate) horizon: Lsn,
    /// Keeps the files of the added slices until the tree keeps them.
    pub(crate) files: Vec<Arc<LiveFile>>,
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    pub(crate) entries_in: u64,
    pub(crate) entries_out: u64,
    pub(crate) deletes_in: u64,
    pub(crate) deletes_out: u64,
    /// What the family's filter decided.
    pub(crate) tally: Tally,
}

impl Outcome {
    /// The changes of slices that move.
    pub(crate) fn of_moves(moves: &[Move]) -> Outcome {
        debug_assert!(moves.iter().all(|step| step.from < step.to), "a slice moves upward");
        Outcome {
            removed: moves.iter().map(|step| (step.from, step.slice.meta.file)).collect(),
            added: moves.iter().map(|step| (step.to, step.slice.meta.clone())).collect(),
            files: moves.iter().map(|step| step.slice.file.clone()).collect(),
            ..Outcome::default()
        }
    }

    /// The changes of slices that leave.
    pub(crate) fn of_drop(dropped: &Dropped) -> Outcome {
        let removed = dropped.slices.iter().map(|(level, slice)| (*level, slice.meta.file));
        Outcome { removed: removed.collect(), horizon: dropped.horizon, ..Outcome::default() }
    }

    /// The changes, to be installed by one edit.
    pub(crate) fn changes(&self, family: FamilyId) -> Vec<Change> {
        let removed =
            self.removed.iter().map(|&(level, file)| Change::RemoveSlice { family, level, file });
        let added = self.added.iter().cloned();
        removed.chain(added.map(|(level, meta)| Change::add_slice(family, level, meta))).collect()
    }
}

impl CompactionJob {
    /// A job that no thread works on yet.
    pub(crate) fn new(compaction: Compaction, context: CompactionContext) -> CompactionJob {
        debug_assert!(
            compaction.cuts.is_sorted_by(|one, next| one < next),
            "parts of a compaction share keys"
        );
        let mut parts = vec![Extent::default()];
        for cut in &compaction.cuts {
            if let Some(before) = parts.last_mut() {
                before.end = End::Excluded(cut.clone());
            }
            parts.push(Extent { start: cut.clone(), end: End::Unbounded });
        }
        let (progress, helper_done) =
            (Mutex::new(Rank::CompactionParts, Progress::default()), Condvar::new());
        CompactionJob { compaction, context, parts, progress, helper_done }
    }

    /// The slices that the job reads, with their levels.
    pub(crate) fn inputs(&self) -> &[(usize, Arc<Slice>)] {
        &self.compaction.inputs
    }

    /// How many parts the job has.
    pub(crate) fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Works on the job until no part is left to take. Then calls `tell` with the number of parts
    /// it took, if any. The job does not end before that call returns.
    pub(crate) fn help(&self, tell: impl FnOnce(usize)) {
        let mut parts = 0;
        self.progress.lock().helpers += 1;
        let _helper = Helper(self);
        let part_bytes = self.compaction.input_bytes() / self.parts.len() as u64;
        while let Some(mut turn) = self.take() {
            let part = &self.parts[turn.part];
            turn.result = Some(run_part(&self.context, &self.compaction, part, part_bytes));
            parts += 1;
        }
        if parts > 0 {
            tell(parts);
        }
    }

    fn take(&self) -> Option<Turn<'_>> {
        let mut progress = self.progress.lock();
        if progress.next_part == self.parts.len() {
            return None;
        }
        debug_assert!(progress.next_part < self.parts.len(), "a part is taken that is none");
        progress.next_part += 1;
        Some(Turn { job: self, part: progress.next_part - 1, result: None })
    }

    /// Works on the job, waits for helpers, and makes the names of the outputs durable by
    /// `sync_names`. After an error, all outputs are released.
    pub(crate) fn finish(
        &self,
        sync_names: impl FnOnce(&CompactionContext) -> Result<()>,
    ) -> Result<Outcome> {
        self.help(|_| ());
        let mut progress = self.progress.lock();
        while progress.helpers > 0 {
            self.helper_done.wait(&mut progress);
        }
        let mut written = std::mem::take(&mut progress.written);
        let error = progress.error.take();
        drop(progress);
        if let Some(error) = error {
            return Err(error);
        }
        written.sort_unstable_by_key(|(part, _)| *part);
        debug_assert!(
            written.iter().map(|(part, _)| *part).eq(0..self.parts.len()),
            "each part is written once"
        );
        self.check_all_passed(&written)?;
        let outcome = self.outcome(written);
        if !outcome.added.is_empty() {
            sync_names(&self.context)?;
        }
        Ok(outcome)
    }

    /// Checks that the parts together have come past each entry of each input. Where keys are out
    /// of order a part may end early, or begin late, and what it leaves out would be gone, untold.
    fn check_all_passed(&self, written: &[(usize, Written)]) -> Result<()> {
        debug_assert!(
            written.iter().all(|(_, part)| part.passed.len() == self.compaction.inputs.len()),
            "a part counts what it passes of each input"
        );
        for (nth, (_, slice)) in self.compaction.inputs.iter().enumerate() {
            let passed: u64 = written.iter().map(|(_, part)| part.passed[nth]).sum();
            if passed != slice.meta.entries {
                let what = format!(
                    "a compaction came past {passed} of the {} versions of a slice: its keys are \
                     out of order",
                    slice.meta.entries
                );
                let path = self.context.tables.files.path(slice.meta.file);
                return Err(Error::corruption(&path, slice.meta.root.offset, what));
            }
        }
        Ok(())
    }

    /// Checks that a compaction invents nothing: what it writes is among what it read.
    fn check_within(&self, outcome: &Outcome) {
        let inputs = self.compaction.inputs.iter().map(|(_, slice)| &slice.meta);
        let (oldest, newest) = inputs.fold((Lsn::MAX, 0), |(oldest, newest), meta| {
            (oldest.min(meta.min_seq), newest.max(meta.max_seq))
        });
        // A part that writes range deletes and no version adds a delete that stands for them.
        let has_spans = self.compaction.inputs.iter().any(|(_, slice)| slice.meta.spans.is_some());
        let stand_ins = if has_spans { self.parts.len() as u64 } else { 0 };
        assert!(
            outcome.entries_out <= outcome.entries_in + stand_ins,
            "a compaction has written versions twice"
        );
        for (_, meta) in &outcome.added {
            assert!(
                (oldest <= meta.min_seq && meta.max_seq <= newest) || planted(Plant::SequenceWraps),
                "a compaction of sequences {oldest:#x} to {newest:#x} has written {meta:?}"
            );
        }
    }

    fn outcome(&self, written: Vec<(usize, Written)>) -> Outcome {
        let inputs = &self.compaction.inputs;
        let own = self.context.family;
        reached_if(Reach::SharedRewritten, || inputs.iter().any(|(_, of)| of.meta.family != own));
        let mut outcome = Outcome {
            removed: inputs.iter().map(|(level, slice)| (*level, slice.meta.file)).collect(),
            bytes_read: self.compaction.input_bytes(),
            horizon: self.context.readers.horizon(),
            entries_in: inputs.iter().map(|(_, slice)| slice.meta.entries).sum(),
            deletes_in: inputs.iter().map(|(_, slice)| slice.meta.deletes).sum(),
            ..Outcome::default()
        };
        for (_, part) in written {
            outcome.entries_out += part.slices.iter().map(|slice| slice.entries).sum::<u64>();
            outcome.deletes_out += part.slices.iter().map(|slice| slice.deletes).sum::<u64>();
            outcome
                .added
                .extend(part.slices.into_iter().map(|meta| (self.compaction.target, meta)));
            outcome.files.extend(part.files);
            outcome.bytes_written += part.bytes;
            outcome.bytes_read += part.value_bytes_read;
            outcome.tally.add(part.tally);
        }
        debug_assert!(
            outcome.added.is_sorted_by(|(_, one), (_, next)| one.extent().is_below(&next.extent())),
            "outputs of a compaction share keys"
        );
        debug_assert!(
            self.compaction.target > 0 || outcome.added.len() <= 1,
            "level 0 refuses two slices that one commit wrote last"
        );
        debug_assert!(
            outcome.added.iter().all(|(level, _)| *level == self.compaction.target),
            "an output is in another level than planned"
        );
        self.check_within(&outcome);
        outcome
    }
}
