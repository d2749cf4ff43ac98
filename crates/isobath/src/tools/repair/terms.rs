//! For which commits the repaired database vouches.
//!
//! A program that asks about a commit of an earlier term is told by where that term ended: all
//! commits up to there are kept. A repair keeps what it can read behind a loss, too, but of no
//! commit there it is known that it is complete, and so are all before it. So the term that has
//! lost something ends at the first loss, and of the terms that begin behind it nothing counts.
//! Even a point where such a term begins sees what is lost. So each of them gets another seed: its
//! points are then of a life of which nothing is known.
//!
//! If the log can be replayed, the next open ends the last term, where the log ends, and knows of
//! no loss. So that term gets another seed, too.
//!
//! Without the whole manifest a table may be gone that nothing names. Then no commit counts.

use super::facts::Facts;
use super::report::Loss;
use crate::format::Lsn;
use crate::version::Term;

/// No commit below this is lost, as far as the losses tell; all are kept if it is the greatest LSN.
pub(super) fn kept_until(facts: &Facts, losses: &[Loss]) -> Lsn {
    if !facts.is_exact {
        return 0;
    }
    let from = |loss: &Loss| {
        // What a compaction has folded has the number of its newest operand.
        let may_be_older = loss.family.is_some_and(|family| facts.merges(family, None));
        loss.lsns.filter(|_| !may_be_older).map_or(0, |(from, _)| from)
    };
    losses.iter().map(from).min().unwrap_or(Lsn::MAX)
}

/// Makes the terms vouch for no commit behind `kept_until`. Those that begin behind it get `seed`,
/// and so does the last one if it has not ended.
pub(super) fn vouch_until(terms: &mut [Term], kept_until: Lsn, seed: u64, has_ended: bool) {
    let (mut begun_at, last) = (0, terms.len().wrapping_sub(1));
    for (at, term) in terms.iter_mut().enumerate() {
        // Nothing of the term before lies below its begin.
        term.ended_at = term.ended_at.min(kept_until.max(begun_at));
        begun_at = term.resumes_at;
        let is_open = at == last && !has_ended && kept_until < Lsn::MAX;
        if kept_until < begun_at || is_open {
            term.seed = seed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> Vec<Term> {
        [(1, 100, 100), (2, 250, 300), (3, 450, 500)]
            .map(|(term, ended_at, resumes_at)| Term { term, ended_at, resumes_at, seed: term })
            .to_vec()
    }

    #[test]
    fn the_term_with_the_first_loss_ends_there_and_later_ones_are_not_known() {
        for (kept_until, ends, seeds) in [
            (Lsn::MAX, [100, 250, 450], [1, 2, 3]),
            (500, [100, 250, 450], [1, 2, 3]),
            (449, [100, 250, 449], [1, 2, 9]),
            (300, [100, 250, 300], [1, 2, 9]),
            (299, [100, 250, 300], [1, 9, 9]),
            (200, [100, 200, 300], [1, 9, 9]),
            (100, [100, 100, 300], [1, 9, 9]),
            (50, [50, 100, 300], [9, 9, 9]),
            (0, [0, 100, 300], [9, 9, 9]),
        ] {
            let mut terms = terms();
            vouch_until(&mut terms, kept_until, 9, true);
            assert_eq!(terms.iter().map(|term| term.ended_at).collect::<Vec<_>>(), ends);
            assert_eq!(terms.iter().map(|term| term.seed).collect::<Vec<_>>(), seeds);
        }
    }

    #[test]
    fn a_term_that_has_not_ended_gets_another_seed_if_anything_is_lost() {
        for (kept_until, last) in [(Lsn::MAX, 3), (Lsn::MAX - 1, 9), (500, 9)] {
            let mut terms = terms();
            vouch_until(&mut terms, kept_until, 9, false);
            assert_eq!(terms.iter().map(|term| term.seed).collect::<Vec<_>>(), [1, 2, last]);
        }
        vouch_until(&mut [], 0, 9, false);
    }
}
