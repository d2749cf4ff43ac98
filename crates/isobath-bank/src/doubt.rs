//! Transfers in two phases: which of them may be in doubt, and their decision by a later process.
//!
//! The notes are the coordinator's memory. For each teller they hold the last step of its last
//! transfer in two phases; a decision is noted before the engine is told. So an opening knows for
//! each name whether it must be in doubt, may be, or must not be.

use crate::Trouble;
use crate::ledger::{Bank, TELLERS};
use crate::notes::{Counts, Notes};
use crate::random::Random;
use isobath::{Commit, Db, Error, ErrorKind, Xid};
use std::fmt::Debug;

/// How far a transfer in two phases has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is none, or another transfer has followed.
    None,
    /// The engine was asked to prepare it.
    Preparing,
    /// The engine answered that it is prepared.
    Prepared,
    /// It is decided, and the engine was told.
    Committing,
    /// The engine answered that it is committed.
    Committed,
    /// It is decided, and the engine was told.
    RollingBack,
    /// The engine answered that it is rolled back.
    RolledBack,
}

const STEPS: [Step; 7] = [
    Step::None,
    Step::Preparing,
    Step::Prepared,
    Step::Committing,
    Step::Committed,
    Step::RollingBack,
    Step::RolledBack,
];

/// A step, and the number of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    pub(crate) step: Step,
    pub(crate) number: u64,
}

impl Phase {
    /// As one number, so that it is noted at once.
    pub(crate) fn encode(self) -> u64 {
        self.number * STEPS.len() as u64 + self.step as u64
    }

    pub(crate) fn decode(number: u64) -> Phase {
        let count = STEPS.len() as u64;
        Phase { step: STEPS[(number % count) as usize], number: number / count }
    }

    /// Checks that the transfer is in doubt if it must be, and is there if it must be. `count` is
    /// the number of the teller's transfers that are there.
    fn judge(self, in_doubt: &[u64], count: u64) -> Result<(), Trouble> {
        let Phase { step, number } = self;
        let (is_listed, is_there) = (in_doubt == [number], count >= number);
        let is_right = (in_doubt.is_empty() || is_listed)
            && match step {
                Step::None => !is_listed,
                Step::Preparing | Step::RollingBack => !is_there,
                Step::Prepared => is_listed && !is_there,
                Step::Committing => is_listed != is_there,
                Step::Committed => !is_listed && is_there,
                Step::RolledBack => !is_listed && !is_there,
            };
        // Whatever was committed before the prepare survives with it.
        let is_behind_others = is_listed && count + 1 < number;
        if is_right && !is_behind_others {
            Ok(())
        } else {
            Err(Trouble::wrong(format!("{in_doubt:?} are in doubt, {count} are there; {self:?}")))
        }
    }
}

/// By teller, the numbers of the transfers that are in doubt.
fn listed(db: &Db) -> Result<[Vec<u64>; TELLERS], Trouble> {
    let mut listed = [const { Vec::new() }; TELLERS];
    for one in db.in_doubt() {
        let (teller, number) = of_name(&one.xid)?;
        listed[teller].push(number);
    }
    Ok(listed)
}

/// Teller and number of a transfer's name.
fn of_name(xid: &Xid) -> Result<(usize, u64), Trouble> {
    let text = String::from_utf8_lossy(xid.as_bytes()).into_owned();
    let parts = text.strip_prefix("transfer ").and_then(|numbers| numbers.split_once('.'));
    let numbers =
        parts.and_then(|(teller, number)| Some((teller.parse().ok()?, number.parse().ok()?)));
    match numbers {
        Some((teller, number)) if teller < TELLERS => Ok((teller, number)),
        _ => Err(Trouble::wrong(format!("a transaction {xid} is in doubt, which is no transfer"))),
    }
}

/// Checks what is in doubt in a database that was just opened.
pub(crate) fn check(db: &Db, notes: &Notes, found: &Counts) -> Result<(), Trouble> {
    for (teller, in_doubt) in listed(db)?.iter().enumerate() {
        let judged = notes.phase(teller)?.judge(in_doubt, found[teller]);
        judged.map_err(|why| why.at(&format!("teller {teller}")))?;
    }
    Ok(())
}

/// Checks that a lock which was waited for in vain is that of a transfer in doubt, or of one that
/// was not decided yet at `before`, when the wait had not begun.
pub(crate) fn expect_holder(
    notes: &Notes,
    before: &[Phase; TELLERS],
    xid: &Xid,
) -> Result<(), Trouble> {
    let (teller, number) = of_name(xid)?;
    let (before, after) = (before[teller], notes.phase(teller)?);
    match may_have_held(before.number, number, after.number) {
        true => Ok(()),
        false => Err(Trouble::wrong(format!("{xid} holds a lock; {before:?}, then {after:?}"))),
    }
}

/// True if the teller was at this transfer at some time between.
fn may_have_held(before: u64, number: u64, after: u64) -> bool {
    (before..=after).contains(&number)
}

/// Decides all that is in doubt, as was noted, or at will where nothing was, and notes that nothing
/// is. What was noted may be of transfers that a power cut has taken. Stops if the power goes off.
pub(crate) fn settle(bank: &Bank, notes: &Notes, rng: &mut Random) -> Result<(), Trouble> {
    for one in bank.db.in_doubt() {
        let (teller, number) = of_name(&one.xid)?;
        let commits = match notes.phase(teller)?.step {
            Step::Committing => true,
            Step::RollingBack => false,
            _ => rng.once_in(2),
        };
        if commits {
            notes.set_phase(teller, Step::Committing, number)?;
            let commit = bank.db.commit_prepared(&one.xid)?;
            if !notes.is_power_on()? {
                return Ok(());
            }
            note_commit(notes, teller, number, commit)?;
        } else {
            notes.set_phase(teller, Step::RollingBack, number)?;
            bank.db.rollback_prepared(&one.xid)?;
            if !notes.is_power_on()? {
                return Ok(());
            }
            notes.set_phase(teller, Step::RolledBack, number)?;
        }
        if rng.once_in(2) {
            expect_unknown(&one.xid, bank.db.commit_prepared(&one.xid))?;
            expect_unknown(&one.xid, bank.db.rollback_prepared(&one.xid))?;
        }
    }
    if notes.is_power_on()? {
        let counts = notes.acknowledged()?;
        (0..TELLERS).try_for_each(|nth| notes.set_phase(nth, Step::None, counts[nth]))?;
    }
    Ok(())
}

/// Notes that the engine has answered a decision to commit: it is durable.
pub(crate) fn note_commit(
    notes: &Notes,
    teller: usize,
    number: u64,
    commit: Commit,
) -> Result<(), Trouble> {
    notes.set_point(teller, number, commit.into())?;
    notes.acknowledge(teller, number)?;
    notes.synced(teller, number)?;
    notes.set_phase(teller, Step::Committed, number)?;
    Ok(notes.count(teller)?)
}

/// What is decided is forgotten.
pub(crate) fn expect_unknown<T: Debug>(xid: &Xid, answer: Result<T, Error>) -> Result<(), Trouble> {
    match answer {
        Err(error) if matches!(error.kind(), ErrorKind::UnknownTransaction { .. }) => Ok(()),
        other => Err(Trouble::wrong(format!("{xid} was decided, and again: {other:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::transfer_name;

    fn judge(step: Step, in_doubt: &[u64], count: u64) -> bool {
        let phase = Phase { step, number: 5 };
        assert_eq!(Phase::decode(phase.encode()), phase);
        phase.judge(in_doubt, count).is_ok()
    }

    #[test]
    fn what_may_be_in_doubt_follows_from_the_last_step() {
        // In doubt; neither in doubt nor there; there; both.
        let answers = |step| {
            [(&[5][..], 4), (&[], 4), (&[], 5), (&[5], 5)].map(|(d, count)| judge(step, d, count))
        };
        assert_eq!(answers(Step::None), [false, true, true, false]);
        assert_eq!(answers(Step::Preparing), [true, true, false, false]);
        assert_eq!(answers(Step::Prepared), [true, false, false, false]);
        assert_eq!(answers(Step::Committing), [true, false, true, false]);
        assert_eq!(answers(Step::Committed), [false, false, true, false]);
        assert_eq!(answers(Step::RollingBack), [true, true, false, false]);
        assert_eq!(answers(Step::RolledBack), [false, true, false, false]);
        for step in STEPS {
            assert!(!judge(step, &[4], 4), "{step:?}: another is in doubt");
            assert!(!judge(step, &[4, 5], 4), "{step:?}: two are in doubt");
            assert!(!judge(step, &[5], 3), "{step:?}: one before it is lost");
        }
    }

    #[test]
    fn who_holds_a_lock_was_not_decided_when_the_wait_began() {
        let of_five = |before, after| may_have_held(before, 5, after);
        assert!(of_five(5, 5) && of_five(4, 5) && of_five(5, 7) && of_five(4, 7));
        assert!(!of_five(6, 6) && !of_five(6, 7) && !of_five(4, 4));
    }

    #[test]
    fn a_name_tells_whose_transfer_it_is() {
        assert_eq!(of_name(&transfer_name(2, 71)).unwrap(), (2, 71));
        for other in ["transfer 3.1", "transfer 1", "", "transfer x.1"] {
            assert!(of_name(&Xid::new(other)).is_err(), "{other}");
        }
    }
}
