//! Explains a wrong history to people, as briefly as possible: the read that is wrong, and the
//! commits that wrote what it should have seen.

use super::super::observe::{Judge, Sight, When};
use super::super::transactions::deal::{Deal, Found};
use super::super::values::Place;
use super::{CARELESS, Commit, History, coordinator, show, show_place, stepper, transactor};
use isobath::Isolation;
use std::fmt::Write as _;

/// The number of commits before the read that are listed if it is not known which of them matter.
const BEFORE: usize = 3;

/// A read that is wrong.
struct Wrong<'a> {
    place: Place,
    sight: &'a Sight,
    /// The commits that matter lie after this point, and up to the next field's.
    after: Option<u64>,
    upto: u64,
    /// What was read must be true before this point.
    before: u64,
    how: String,
}

impl History {
    /// Explains the first commit, or the first read at a point, that is wrong. Empty if none is
    /// wrong.
    pub(crate) fn explain(&self) -> String {
        let judge = self.judge();
        let deals: Vec<(&Deal, Vec<Sight>)> = self
            .deals
            .iter()
            .filter(|deal| deal.committed.is_some())
            .map(|deal| (deal, deal.found.lasting(deal.level)))
            .collect();
        let of_deal = deals.iter().find_map(|(deal, lasting)| {
            let before = deal.committed?;
            let (place, sight) = odd_among(&judge, lasting, before)?;
            let how = self.tell_deal(deal);
            Some(Wrong { place, sight, after: deal.point, upto: before, before, how })
        });
        let of_reading = || {
            self.readings.iter().find_map(|reading| {
                let (before, how) = match reading.when {
                    When::At(point) => (point + 1, format!("{} at {point}", reading.how)),
                    When::Before(point) => (point, format!("{} before {point}", reading.how)),
                    When::After(_) => return None,
                };
                let (place, sight) = odd_among(&judge, &reading.sights, before)?;
                Some(Wrong { place, sight, after: None, upto: before, before, how })
            })
        };
        // Two transactions wrote the same key, and the second committer was not refused.
        let of_snapshot = || {
            self.deals.iter().find_map(|deal| {
                let (point, committed) = (deal.point?, deal.committed?);
                let is_lost = |place: &&Place| judge.is_written_between(place, point, committed);
                let place = deal.writes.iter().find(is_lost)?;
                let commits = self.tell_commits(place, Some(point), committed);
                (deal.level == Isolation::Snapshot).then(|| self.tell_deal(deal) + &commits)
            })
        };
        let of_read = of_deal.or_else(of_reading).map(|wrong| self.tell(&wrong));
        of_read.or_else(of_snapshot).unwrap_or_default()
    }

    fn tell(&self, wrong: &Wrong<'_>) -> String {
        let Wrong { place, sight, after, upto, before, how } = wrong;
        let saw = sight.found.get(&place.1).map(|value| value.as_ref());
        let saw = match saw {
            Some(None) => "a value".to_owned(),
            other => show(other.flatten()),
        };
        let commits = self.tell_commits(place, *after, *upto);
        format!("{how}\n  saw {saw} at {} before {before}{commits}", show_place(place))
    }

    /// Lists the commits to a place up to a point, one a line: those after another point and the
    /// one before that point, or the last few.
    fn tell_commits(&self, place: &Place, after: Option<u64>, upto: u64) -> String {
        let writers = self.writers.iter().enumerate();
        let commits = writers.flat_map(|(writer, all)| all.iter().map(move |one| (writer, one)));
        let writes_there = |commit: &Commit| commit.writes.iter().any(|(at, _)| at == place);
        let mut commits: Vec<(u64, usize, &Commit)> = commits
            .filter_map(|(writer, commit)| Some((commit.point?, writer, commit)))
            .filter(|(point, _, commit)| *point <= upto && writes_there(commit))
            .collect();
        commits.sort_by_key(|(point, ..)| *point);
        let until = commits.partition_point(|(point, ..)| after.is_some_and(|at| *point <= at));
        let least = match after {
            Some(_) => until.saturating_sub(1),
            None => commits.len().saturating_sub(BEFORE),
        };
        let mut told = String::new();
        for (point, writer, commit) in &commits[least..] {
            let value = commit.writes.iter().find(|(at, _)| at == place);
            let value = value.and_then(|(_, value)| value.as_ref());
            let (begun, who) = (commit.begun, name(*writer));
            let deal = self.deals.iter().find(|deal| deal.committed == Some(*point));
            let deal = deal.map_or_else(|| "a plain write".to_owned(), |deal| self.tell_deal(deal));
            let _ =
                write!(told, "\n  {who}, event {begun}, commit {point}: {}; {deal}", show(value));
        }
        told
    }

    fn tell_deal(&self, deal: &Deal) -> String {
        let Found { items, scans, untracked, locked } = &deal.found;
        let (point, committed) = (deal.point, deal.committed);
        let kind = if deal.story.is_locking { "locking" } else { "optimistic" };
        let places: Vec<String> = deal.writes.iter().map(show_place).collect();
        format!(
            "{:?}, {kind}, try {}, read at {point:?}, committed at {committed:?}, ended at event {}: {} keys, {} stretches, \
             {} untracked, {} locked; wrote {}",
            deal.level,
            deal.story.nth_try,
            deal.ended,
            items.len(),
            scans.len(),
            untracked.len(),
            locked.len(),
            places.join(" ")
        )
    }
}

/// The first of these sights that is not true before a point, and the place where it is not.
fn odd_among<'a>(judge: &Judge<'_>, sights: &'a [Sight], point: u64) -> Option<(Place, &'a Sight)> {
    sights.iter().find_map(|sight| Some((judge.odd_before(sight, point)?, sight)))
}

fn name(writer: usize) -> String {
    match writer {
        CARELESS => "the careless task".to_owned(),
        _ if writer >= stepper(0) => format!("step of {}", writer - stepper(0)),
        _ if writer >= coordinator(0) => format!("coordinator {}", writer - coordinator(0)),
        _ if writer >= transactor(0) => format!("transactor {}", writer - transactor(0)),
        _ => format!("writer {writer}"),
    }
}
