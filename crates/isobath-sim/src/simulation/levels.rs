//! How many transactions ran at each level and what became of them, and how many commits in two
//! phases met a crash.
//!
//! A transaction is `judged` if it has committed and all reads of its life were judged. The causes
//! of a refusal are those that the program is told; `transact` hides them, and runs its body again:
//! such an attempt counts as `rerun`. Single steps (`put_if` and the like) are not counted.

use super::runtime::Waits;
use isobath::{ConflictKind, Error, ErrorKind, Isolation};
use std::fmt;

/// What is counted of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Begun,
    Committed,
    Judged,
    /// Refused, by the kind of the conflict.
    Read,
    Range,
    Write,
    Expired,
    Deadlock,
    LockTimeout,
    /// Ended by a timeout or by another task.
    Aborted,
    /// An attempt within `transact` that was followed by another one.
    Rerun,
    /// Waits for locks on keys and ranges.
    LockWaits,
    /// Commits that had to wait between their LSN and their verdict.
    JudgeWaits,
}

impl What {
    /// Each with its name, as it is in ledgers.
    pub(crate) const ALL: [(What, &str); 13] = [
        (What::Begun, "begun"),
        (What::Committed, "committed"),
        (What::Judged, "judged"),
        (What::Read, "read"),
        (What::Range, "range"),
        (What::Write, "write"),
        (What::Expired, "expired"),
        (What::Deadlock, "deadlock"),
        (What::LockTimeout, "lock-timeout"),
        (What::Aborted, "aborted"),
        (What::Rerun, "rerun"),
        (What::LockWaits, "lock-waits"),
        (What::JudgeWaits, "judge-waits"),
    ];

    /// What a transaction counts as that was refused with this error.
    fn of(error: &Error) -> Option<What> {
        Some(match error.kind() {
            ErrorKind::Conflict { kind, .. } => match kind {
                ConflictKind::Read => What::Read,
                ConflictKind::Range => What::Range,
                ConflictKind::Write => What::Write,
                ConflictKind::Expired => What::Expired,
                _ => return None,
            },
            ErrorKind::Deadlock { .. } => What::Deadlock,
            ErrorKind::LockTimeout { .. } => What::LockTimeout,
            ErrorKind::TransactionAborted { .. } => What::Aborted,
            _ => return None,
        })
    }
}

/// The levels, the weakest first, each with its name.
pub(crate) const LEVELS: [(Isolation, &str); 5] = [
    (Isolation::ReadUncommitted, "read-uncommitted"),
    (Isolation::ReadCommitted, "read-committed"),
    (Isolation::RepeatableRead, "repeatable-read"),
    (Isolation::Snapshot, "snapshot"),
    (Isolation::Serializable, "serializable"),
];

/// The counts of all levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Levels([[u64; What::ALL.len()]; LEVELS.len()]);

impl Levels {
    fn count(&mut self, level: Isolation, what: What) -> &mut u64 {
        let at = LEVELS.iter().position(|(one, _)| *one == level).expect("every level is listed");
        &mut self.0[at][what as usize]
    }

    pub(crate) fn note(&mut self, level: Isolation, what: What) {
        *self.count(level, what) += 1;
    }

    /// A transaction was refused.
    pub(crate) fn refused(&mut self, level: Isolation, error: &Error) {
        What::of(error).into_iter().for_each(|what| self.note(level, what));
    }

    pub(crate) fn waited(&mut self, level: Isolation, waits: Waits) {
        *self.count(level, What::LockWaits) += waits.locks;
        *self.count(level, What::JudgeWaits) += waits.judged;
    }

    /// All reads of the life were judged, so all that committed in it count as judged.
    pub(crate) fn judged(&mut self) {
        for counts in &mut self.0 {
            counts[What::Judged as usize] = counts[What::Committed as usize];
        }
    }

    pub(crate) fn add(&mut self, other: &Levels) {
        for (own, other) in self.0.iter_mut().flatten().zip(other.0.iter().flatten()) {
            *own += other;
        }
    }

    /// What there is to tell, as a ledger names it: `serializable.begun` and so on.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (String, u64)> {
        let of_level = |((_, level), counts): (&(_, &'static str), [u64; What::ALL.len()])| {
            let level = *level;
            What::ALL.iter().zip(counts).map(move |((_, what), n)| (format!("{level}.{what}"), n))
        };
        LEVELS.iter().zip(self.0).flat_map(of_level).filter(|(_, count)| *count > 0)
    }
}

impl fmt::Display for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:18}", "by level")?;
        What::ALL.iter().try_for_each(|(_, what)| write!(f, " {what:>12}"))?;
        for ((_, level), counts) in LEVELS.iter().zip(self.0) {
            write!(f, "\n{level:18}")?;
            counts.iter().try_for_each(|count| write!(f, " {count:>12}"))?;
        }
        Ok(())
    }
}

/// How far a commit in two phases was when the machine died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// In the call of its prepare.
    Preparing,
    /// Prepared, and no decision was asked for.
    Prepared,
    /// In the call of its decision.
    Deciding,
}

/// Commits in two phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TwoPhase {
    /// Whose prepare has returned.
    pub(crate) prepared: u64,
    /// Decided in a call that has returned.
    pub(crate) committed: u64,
    pub(crate) rolled_back: u64,
    /// That met a crash, each counted at its first one, by how far it was.
    pub(crate) crashed: [u64; 3],
    /// That met a crash and were decided by a later life.
    pub(crate) decided_later: u64,
}

impl TwoPhase {
    pub(crate) fn crashed(&mut self, phase: Phase) {
        self.crashed[phase as usize] += 1;
    }

    pub(crate) fn decided(&mut self, is_commit: bool, has_crashed: bool) {
        self.committed += u64::from(is_commit);
        self.rolled_back += u64::from(!is_commit);
        self.decided_later += u64::from(has_crashed);
    }

    pub(crate) fn add(&mut self, other: &TwoPhase) {
        self.prepared += other.prepared;
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.crashed.iter_mut().zip(other.crashed).for_each(|(own, other)| *own += other);
        self.decided_later += other.decided_later;
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (String, u64)> {
        let [preparing, prepared, deciding] = self.crashed;
        let counts = [
            ("two-phase-prepared", self.prepared),
            ("two-phase-committed", self.committed),
            ("two-phase-rolled-back", self.rolled_back),
            ("two-phase-crashed-preparing", preparing),
            ("two-phase-crashed-prepared", prepared),
            ("two-phase-crashed-deciding", deciding),
            ("two-phase-decided-later", self.decided_later),
        ];
        let named = counts.into_iter().map(|(name, count)| (name.to_owned(), count));
        named.filter(|(_, count)| *count > 0)
    }
}

impl fmt::Display for TwoPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TwoPhase { prepared, committed, rolled_back, crashed, decided_later } = self;
        let [preparing, between, deciding] = crashed;
        write!(
            f,
            "in two phases: {prepared} prepared, {committed} committed, {rolled_back} rolled back; {} met a crash between \
             prepare and end ({between} prepared, {deciding} in their decision), {preparing} in their prepare; \
             {decided_later} were decided by a later life",
            between + deciding
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_counts_for_itself_and_what_is_nought_is_not_told() {
        let mut levels = Levels::default();
        levels.note(Isolation::Snapshot, What::Begun);
        levels.note(Isolation::Snapshot, What::Committed);
        levels.judged();
        levels.waited(Isolation::Serializable, Waits { locks: 2, judged: 0 });
        let mut sum = levels;
        sum.add(&levels);
        let told: Vec<_> = sum.counts().collect();
        let told: Vec<_> = told.iter().map(|(name, count)| (&**name, *count)).collect();
        let expected = [
            ("snapshot.begun", 2),
            ("snapshot.committed", 2),
            ("snapshot.judged", 2),
            ("serializable.lock-waits", 4),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn the_names_stand_where_their_counts_are() {
        assert!(What::ALL.iter().enumerate().all(|(at, (what, _))| *what as usize == at));
    }

    #[test]
    fn a_commit_in_two_phases_is_counted_by_how_far_it_was() {
        let mut counts = TwoPhase::default();
        for phase in [Phase::Preparing, Phase::Prepared, Phase::Deciding, Phase::Deciding] {
            counts.crashed(phase);
        }
        counts.decided(true, true);
        counts.decided(false, false);
        assert_eq!((counts.crashed, counts.committed, counts.rolled_back), ([1, 1, 2], 1, 1));
        assert!(counts.to_string().contains("3 met a crash between"), "{counts}");
        assert_eq!(counts.decided_later, 1);
    }
}
