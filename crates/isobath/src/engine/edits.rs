//! Edits that wait for the manifest. All that wait are written by one record.
//!
//! Threads of low priority bring them ([`Engine::install_joint`]), since they may not hold the lock
//! of the version set across a sync. The thread `isobath-manifest` writes them. While it writes,
//! others may come: the next record has all of them, in the order in which they came, but for
//! those behind the second edit of one family.

use super::Engine;
use crate::background::{Answer, Promised, promise};
use crate::env::sync::{Mutex, Rank};
use crate::error::{Error, Result};
use crate::format::FamilyId;
use crate::version::{Joint, VersionSet};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// The most edits in one record. All of them wait until their record is written.
const JOINT_MAX: usize = 64;

/// The edits that wait, in the order in which they came.
pub(crate) struct EditQueue {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    edits: VecDeque<(u64, Joint, Answer<()>)>,
    /// The number of the next one.
    next: u64,
}

impl EditQueue {
    pub(crate) fn new() -> Arc<EditQueue> {
        Arc::new(EditQueue { waiting: Mutex::new(Rank::Edits, Waiting::default()) })
    }

    /// Adds edits, and returns their numbers and what tells their outcomes.
    fn add(&self, joint: Vec<Joint>) -> (std::ops::Range<u64>, Vec<Promised<()>>) {
        let mut waiting = self.waiting.lock();
        let first = waiting.next;
        let mut outcomes = Vec::with_capacity(joint.len());
        for one in joint {
            let (answer, promised) = promise();
            let number = waiting.next;
            waiting.edits.push_back((number, one, answer));
            waiting.next += 1;
            outcomes.push(promised);
        }
        (first..waiting.next, outcomes)
    }

    /// Writes what waits until no edit of a number below `end` does.
    fn write(&self, versions: &Mutex<VersionSet>, end: u64) {
        while self.has_below(end) {
            // Others may come while this thread waits for the lock.
            let mut versions = versions.lock();
            let (joint, answers) = self.take(end);
            let outcomes = versions.install_joint(joint);
            drop(versions);
            debug_assert_eq!(outcomes.len(), answers.len(), "each edit has an outcome");
            answers.into_iter().zip(outcomes).for_each(|(answer, outcome)| answer.give(outcome));
        }
    }

    fn has_below(&self, end: u64) -> bool {
        self.waiting.lock().edits.front().is_some_and(|(number, ..)| *number < end)
    }

    /// Takes the edits of the next record, if the first that waits has a number below `end`.
    fn take(&self, end: u64) -> (Vec<Joint>, Vec<Answer<()>>) {
        let mut waiting = self.waiting.lock();
        let edits = &mut waiting.edits;
        if edits.front().is_none_or(|(number, ..)| *number >= end) {
            return (Vec::new(), Vec::new());
        }
        let mut families: BTreeSet<FamilyId> = BTreeSet::new();
        let is_new = |(_, joint, _): &(u64, Joint, Answer<()>)| families.insert(joint.family);
        let count = edits.iter().take(JOINT_MAX).map(is_new).take_while(|is_new| *is_new).count();
        let taken = edits.drain(..count);
        taken.map(|(_, joint, answer)| (joint, answer)).unzip()
    }

    /// Takes edits out that no thread will write any more.
    fn give_up(&self, numbers: &std::ops::Range<u64>, error: &Error) {
        let mut waiting = self.waiting.lock();
        let edits = std::mem::take(&mut waiting.edits);
        let (own, others): (VecDeque<_>, VecDeque<_>) =
            edits.into_iter().partition(|(number, ..)| numbers.contains(number));
        waiting.edits = others;
        drop(waiting);
        own.into_iter().for_each(|(_, _, answer)| answer.give(Err(error.clone())));
    }
}

impl Engine {
    /// Makes these edits take effect in their order, and those of other threads that wait, by as
    /// few records as possible. Returns the outcome of each. For threads of low priority: see
    /// [`Engine::change_versions`].
    pub(crate) fn install_joint(&self, joint: Vec<Joint>) -> Vec<Result<()>> {
        if joint.is_empty() {
            return Vec::new();
        }
        let (numbers, outcomes) = self.edits.add(joint);
        let (edits, versions, end) = (self.edits.clone(), self.versions.clone(), numbers.end);
        // The request of another thread may write these edits, too. Then nothing is left to do.
        if let Err(error) = self.installer.run(move || edits.write(&versions, end)) {
            self.edits.give_up(&numbers, &error);
        }
        outcomes.into_iter().map(Promised::wait).collect()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
