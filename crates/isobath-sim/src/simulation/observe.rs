//! Reads judged as moments: all that one read found, presence and absence alike, must be explained
//! by one moment in the order of the commits.
//!
//! Commits are ordered by the read points that they returned. A moment lies after one commit and
//! before the next. For each read two bounds are known: commits that it must see (all that were
//! acknowledged before it began, and all that an earlier read had seen) and commits that it cannot
//! see (those that began after it had pinned its view). Between the two, the check looks for the
//! least moment that explains everything that the read found. A snapshot reads at exactly one
//! point, and what a transaction validates must be as it is just before its commit.
//!
//! It is not known whether a commit that never returned exists. If it had reserved a place in the
//! log, it is at that place or does not exist; each possibility is a guess. One guess must explain
//! all reads of a life and what the next life recovers.

use super::oracle::{Commit, Placed, show, show_place};
use super::values::{Key, Place, Value, Values};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A stretch of keys of one family, and all that a read found there.
#[derive(Clone, Debug)]
pub(crate) struct Sight {
    pub(crate) family: u8,
    pub(crate) lower: Bound<Key>,
    pub(crate) upper: Bound<Key>,
    /// Ascending. Without a value: the key is there, its value was not looked at.
    pub(crate) found: BTreeMap<Key, Option<Value>>,
}

impl Sight {
    /// What was found at one key.
    pub(crate) fn of_key(family: u8, key: Key, value: Option<Option<Value>>) -> Sight {
        let bound = || Bound::Included(key.clone());
        let found = value.map(|value| (key.clone(), value)).into_iter().collect();
        Sight { family, lower: bound(), upper: bound(), found }
    }

    /// Everything that was found in a family.
    pub(crate) fn of_family(family: u8, values: &Values) -> Sight {
        let of_it = values.iter().filter(|((of, _), _)| *of == family);
        let found = of_it.map(|((_, key), value)| (key.clone(), Some(*value))).collect();
        Sight { family, lower: Bound::Unbounded, upper: Bound::Unbounded, found }
    }

    fn lower(&self) -> Bound<Place> {
        match &self.lower {
            Bound::Unbounded => Bound::Included((self.family, Key::from([]))),
            bound => bound.as_ref().map(|key| (self.family, key.clone())),
        }
    }

    /// True if it tells of a place.
    pub(crate) fn covers(&self, place: &Place) -> bool {
        let is_before = match &self.lower {
            Bound::Included(lower) => place.1 < *lower,
            Bound::Excluded(lower) => place.1 <= *lower,
            Bound::Unbounded => false,
        };
        !is_before && !self.is_beyond(place)
    }

    /// True if no key can lie within.
    pub(crate) fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => lower >= upper,
        }
    }

    fn is_beyond(&self, place: &Place) -> bool {
        place.0 != self.family
            || match &self.upper {
                Bound::Included(upper) => place.1 > *upper,
                Bound::Excluded(upper) => place.1 >= *upper,
                Bound::Unbounded => false,
            }
    }
}

/// Which moment must explain a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// One at or after everything that was acknowledged up to this point.
    After(u64),
    /// The one at exactly this point.
    At(u64),
    /// The one just before the commit that was acknowledged with this point.
    Before(u64),
}

/// One read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) how: &'static str,
    pub(crate) when: When,
    /// True if another process read beside the writer: what it saw may not be visible to the
    /// writer's own readers yet.
    pub(crate) is_beside: bool,
    /// When it began and when it had pinned what it reads, in the oracle's count of events.
    pub(crate) began: u64,
    pub(crate) pinned: u64,
    pub(crate) sights: Vec<Sight>,
}

/// A place in history: the number of commits before it whose points are known, and the number of
/// commits with unknown points after the last of those.
type Moment = (usize, usize);

const END: usize = usize::MAX;

/// For each commit whose point is not known, the place where it is assumed to be, if it exists.
type Guess = Vec<Option<Moment>>;

/// The most guesses to try. In a life with more, nothing is judged from the first commit of unknown
/// outcome on.
const GUESSES_MAX: usize = 20_000;

/// A commit that never returned.
struct Unknown<'a> {
    commit: &'a Commit,
    /// The least and the largest number of known commits that may lie before it.
    least: usize,
    last: usize,
}

/// What a commit leaves at a place, if it writes there.
fn write_to<'a>(commit: &'a Commit, place: &Place) -> Option<Option<&'a Value>> {
    let at = commit.writes.binary_search_by(|write| write.0.cmp(place)).ok()?;
    Some(commit.writes[at].1.as_ref())
}

/// The commits of a life in their order, to judge its reads by.
pub(crate) struct Judge<'a> {
    base: &'a Values,
    /// The points of the commits whose points are known, ascending.
    points: Vec<u64>,
    /// When each of them was begun.
    begun: Vec<u64>,
    /// For each commit, the latest begin among it and all before it.
    begun_max: Vec<u64>,
    unknown: Vec<Unknown<'a>>,
    /// Every place that was ever written to, with the moments of its writes.
    places: BTreeMap<Place, Vec<(usize, Option<&'a Value>)>>,
    /// Ordered by the moment at which they had pinned their view.
    readings: Vec<&'a Reading>,
}

/// The least moments that later reads must see, by when reads were made.
#[derive(Clone, Default)]
struct Floors(Vec<(u64, Moment)>);

impl Floors {
    /// The least moment that a read which began at that time must see.
    fn at(&self, began: u64) -> Moment {
        let before = self.0.partition_point(|(pinned, _)| *pinned < began);
        before.checked_sub(1).map_or((0, 0), |last| self.0[last].1)
    }

    fn add(&mut self, reading: &Reading, moment: Moment) {
        let highest = self.0.last().map_or((0, 0), |(_, highest)| *highest);
        let seen = if reading.is_beside { highest } else { highest.max(moment) };
        self.0.push((reading.pinned, seen));
    }
}

impl<'a> Judge<'a> {
    pub(crate) fn new(
        base: &'a Values,
        commits: impl Iterator<Item = &'a Commit>,
        readings: &'a [Reading],
    ) -> Judge<'a> {
        let (mut known, unknown): (Vec<&Commit>, Vec<&Commit>) =
            commits.partition(|commit| commit.point.is_some());
        known.sort_by_key(|commit| commit.point);
        let mut places: BTreeMap<Place, Vec<_>> =
            base.keys().map(|place| (place.clone(), Vec::new())).collect();
        let (mut begun_max, mut latest) = (Vec::with_capacity(known.len()), 0);
        for (at, commit) in known.iter().enumerate() {
            latest = commit.begun.max(latest);
            begun_max.push(latest);
            for (place, value) in &commit.writes {
                places.entry(place.clone()).or_default().push((at + 1, value.as_ref()));
            }
        }
        for commit in &unknown {
            for (place, _) in &commit.writes {
                places.entry(place.clone()).or_default();
            }
        }
        let begun = known.iter().map(|commit| commit.begun).collect();
        let points: Vec<u64> = known.iter().filter_map(|commit| commit.point).collect();
        let gap = |commit: &Commit| match commit.place {
            Placed::At(end) => {
                let gap = points.partition_point(|point| *point < end);
                (gap, gap)
            }
            Placed::Nowhere => (1, 0),
            Placed::Anywhere => {
                let last = commit.failed.map_or(points.len(), |failed| {
                    begun_max.partition_point(|begun| *begun <= failed)
                });
                let least = points.partition_point(|point| *point <= commit.after);
                (least, last.max(least))
            }
        };
        let unknown = unknown.into_iter().map(|commit| {
            let (least, last) = gap(commit);
            Unknown { commit, least, last }
        });
        // In the order of their places, those that are known first.
        let mut unknown: Vec<Unknown<'_>> = unknown.collect();
        unknown.sort_by_key(|unknown| match unknown.commit.place {
            Placed::At(end) => end,
            Placed::Nowhere | Placed::Anywhere => u64::MAX,
        });
        let mut readings: Vec<&Reading> = readings.iter().collect();
        readings.sort_by_key(|reading| reading.pinned);
        Judge { base, points, begun, begun_max, unknown, places, readings }
    }

    /// Finds moments for all reads and, if it is given, for `recovered` after them. With
    /// `keeps_reads`, the moment of `recovered` must be at or after everything that the reads saw.
    /// Returns false if there were too many guesses to try; then late reads count as explained.
    pub(crate) fn judge(
        &mut self,
        recovered: Option<&Reading>,
        keeps_reads: bool,
    ) -> Result<bool, String> {
        let mut floors = Floors::default();
        let doubtful = self.unknown.iter().map(|unknown| unknown.commit.begun).min();
        let early = self
            .readings
            .partition_point(|reading| doubtful.is_none_or(|begun| reading.pinned < begun));
        let nowhere: Guess = vec![None; self.unknown.len()];
        for reading in &self.readings[..early] {
            let moment = self.explain(reading, &nowhere, floors.at(reading.began))?;
            floors.add(reading, moment);
        }
        for unknown in &mut self.unknown {
            if unknown.commit.place != Placed::Anywhere {
                continue;
            }
            // A read that had ended earlier did not see the commit, so the commit cannot lie before
            // what that read saw.
            unknown.least = unknown.least.max(floors.at(unknown.commit.begun).0);
            unknown.last = unknown.last.max(unknown.least);
        }
        let (end, mut wrong) = ((recovered, keeps_reads), None);
        let guesses = self.guesses();
        for guess in &guesses {
            floors.0.truncate(early);
            match self.judge_late(&self.readings[early..], end, guess, &mut floors) {
                Ok(()) => return Ok(true),
                Err(found) => drop(wrong.get_or_insert(found)),
            }
        }
        wrong.map_or(Ok(false), Err)
    }

    /// The event from which it is not known which commits exist.
    pub(crate) fn known_until(&self) -> u64 {
        self.unknown.iter().map(|unknown| unknown.commit.begun).min().unwrap_or(u64::MAX)
    }

    /// True if a commit between two points, neither included, is known to write to a place.
    pub(crate) fn is_written_between(&self, place: &Place, after: u64, before: u64) -> bool {
        let Some(writes) = self.places.get(place) else { return false };
        writes.iter().any(|(nth, _)| (after + 1..before).contains(&self.points[nth - 1]))
    }

    /// True if a commit beyond a point that had begun by then wrote to a place, or may have.
    pub(crate) fn may_be_written_since(&self, place: &Place, after: u64, told: u64) -> bool {
        let known = self.places.get(place).into_iter().flatten();
        let mut known = known.filter(|(nth, _)| self.points[nth - 1] > after);
        let writes = |unknown: &Unknown<'_>| write_to(unknown.commit, place).is_some();
        known.any(|(nth, _)| self.begun[nth - 1] <= told) || self.unknown.iter().any(writes)
    }

    /// True if there ever was a key at a place, or if it was deleted.
    pub(crate) fn was_ever_there(&self, place: &Place) -> bool {
        self.places.contains_key(place)
    }

    /// True if a sight matches the state just before the commit with this point, provided that no
    /// commit of unknown outcome exists.
    pub(crate) fn holds_before(&self, sight: &Sight, point: u64) -> bool {
        self.odd_before(sight, point).is_none()
    }

    /// A place of a sight where that is not so.
    pub(crate) fn odd_before(&self, sight: &Sight, point: u64) -> Option<Place> {
        let moment = (self.points.partition_point(|known| *known < point), END);
        self.disagrees(sight, &vec![None; self.unknown.len()], moment)
    }

    /// True if one moment explains all sights, under the same condition.
    pub(crate) fn is_one_moment(&self, sights: &[Sight]) -> bool {
        let (how, when, sights) = ("reads", When::After(0), sights.to_vec());
        let reading = Reading { how, when, is_beside: true, began: 0, pinned: u64::MAX, sights };
        let nowhere = vec![None; self.unknown.len()];
        self.explain_within(&reading, &nowhere, (0, 0), (self.points.len(), END)).is_ok()
    }

    fn judge_late(
        &self,
        readings: &[&Reading],
        (recovered, keeps_reads): (Option<&Reading>, bool),
        guess: &Guess,
        floors: &mut Floors,
    ) -> Result<(), String> {
        for reading in readings {
            let moment = self.explain(reading, guess, floors.at(reading.began))?;
            floors.add(reading, moment);
        }
        let Some(recovered) = recovered else { return Ok(()) };
        let floor = if keeps_reads { floors.at(u64::MAX) } else { (0, 0) };
        self.explain(recovered, guess, floor).map(drop)
    }

    /// All guesses of where the commits with unknown points are. The likeliest comes first: that
    /// none of them exists. `None` if there are too many.
    fn guesses(&self) -> Vec<Guess> {
        let mut guesses = vec![Vec::new()];
        for unknown in &self.unknown {
            let mut longer = Vec::new();
            for guess in guesses {
                longer.push([&guess[..], &[None]].concat());
                for gap in unknown.least..=unknown.last {
                    let others = guess.iter().flatten().filter(|(there, _)| *there == gap).count();
                    // Those whose places are known come in their order.
                    let is_placed = unknown.commit.place != Placed::Anywhere;
                    let first = if is_placed { others + 1 } else { 1 };
                    for rank in first..=others + 1 {
                        let shift = |place: &Option<Moment>| {
                            place.map(|(there, at)| {
                                (there, if there == gap && at >= rank { at + 1 } else { at })
                            })
                        };
                        let mut more: Guess = guess.iter().map(shift).collect();
                        more.push(Some((gap, rank)));
                        longer.push(more);
                    }
                }
            }
            guesses = longer;
            if guesses.len() > GUESSES_MAX {
                return Vec::new();
            }
        }
        guesses
    }

    /// The least moment at or after `floor` that explains all that a read found.
    fn explain(&self, reading: &Reading, guess: &Guess, floor: Moment) -> Result<Moment, String> {
        if let When::Before(point) = reading.when {
            let before = self.points.partition_point(|known| *known < point);
            return self.explain_within(reading, guess, (before, END), (before, END));
        }
        let (When::After(from) | When::At(from) | When::Before(from)) = reading.when;
        let must = self.points.partition_point(|point| *point <= from);
        let can = self.begun_max.partition_point(|begun| *begun <= reading.pinned);
        let mut last = (if reading.when == When::At(from) { must } else { can }, END);
        for (unknown, place) in self.unknown.iter().zip(guess) {
            if let Some((gap, rank)) = place
                && unknown.commit.begun > reading.pinned
            {
                last = last.min((*gap, rank - 1));
            }
        }
        let first = floor.max((must, 0));
        if first > last || must > can {
            return Err(format!(
                "{} {:?} must be at {first:?} or later, which it cannot be: {last:?} is the last it can see",
                reading.how, reading.when
            ));
        }
        self.explain_within(reading, guess, first, last)
    }

    fn explain_within(
        &self,
        reading: &Reading,
        guess: &Guess,
        first: Moment,
        last: Moment,
    ) -> Result<Moment, String> {
        let mut moment = first;
        let mut seen = 0;
        let mut at = 0;
        // Each sight must agree with the moment. One that does not moves the moment forward, and
        // the others are checked again.
        while seen < reading.sights.len() {
            match self.disagrees(&reading.sights[at], guess, moment) {
                None => seen += 1,
                Some(place) => {
                    let next = self.next_write(&place, guess, moment).filter(|next| *next <= last);
                    moment = next.ok_or_else(|| {
                        self.describe(
                            reading,
                            &reading.sights[at],
                            &place,
                            guess,
                            (first, moment, last),
                        )
                    })?;
                    seen = 0;
                    continue;
                }
            }
            at = (at + 1) % reading.sights.len();
        }
        Ok(moment)
    }

    /// The first place of a sight where something else is to be found at a moment.
    fn disagrees(&self, sight: &Sight, guess: &Guess, moment: Moment) -> Option<Place> {
        if sight.is_empty() {
            return sight.found.keys().next().map(|key| (sight.family, key.clone()));
        }
        let mut count = 0;
        let range = (sight.lower(), Bound::Unbounded);
        for (place, writes) in self.places.range(range).take_while(|(at, _)| !sight.is_beyond(at)) {
            let found = sight.found.get(&place.1);
            count += usize::from(found.is_some());
            let agrees = match (found, self.value(place, writes, guess, moment)) {
                (None, None) | (Some(None), Some(_)) => true,
                (Some(Some(found)), Some(value)) => found == value,
                _ => false,
            };
            if !agrees {
                return Some(place.clone());
            }
        }
        if count == sight.found.len() {
            return None;
        }
        let places = sight.found.keys().map(|key| (sight.family, key.clone()));
        places.into_iter().find(|place| !self.places.contains_key(place) || sight.is_beyond(place))
    }

    fn value(
        &self,
        place: &Place,
        writes: &[(usize, Option<&'a Value>)],
        guess: &Guess,
        moment: Moment,
    ) -> Option<&'a Value> {
        let count = writes.partition_point(|(at, _)| *at <= moment.0);
        let known = count.checked_sub(1).map(|last| writes[last]);
        let mut newest =
            known.map_or(((0, 0), self.base.get(place)), |(at, value)| ((at, 0), value));
        for (unknown, guessed) in self.unknown.iter().zip(guess) {
            if let Some(at) = *guessed
                && at <= moment
                && at > newest.0
                && let Some(value) = write_to(unknown.commit, place)
            {
                newest = (at, value);
            }
        }
        newest.1
    }

    /// The next moment at which a place is written to.
    fn next_write(&self, place: &Place, guess: &Guess, moment: Moment) -> Option<Moment> {
        let writes = self.places.get(place)?;
        let count = writes.partition_point(|(at, _)| *at <= moment.0);
        let known = writes.get(count).map(|(at, _)| (*at, 0));
        let unknown = self.unknown.iter().zip(guess).filter_map(|(unknown, at)| {
            at.filter(|at| *at > moment && write_to(unknown.commit, place).is_some())
        });
        unknown.chain(known).min()
    }

    fn describe(
        &self,
        reading: &Reading,
        sight: &Sight,
        place: &Place,
        guess: &Guess,
        (first, tried, last): (Moment, Moment, Moment),
    ) -> String {
        let saw = match sight.found.get(&place.1) {
            Some(Some(value)) => show(Some(value)),
            Some(None) => "a value".to_owned(),
            None => show(None),
        };
        let there = self.places.get(place).map(|writes| self.value(place, writes, guess, tried));
        format!(
            "{} of {} (from {} to {}) {:?} saw {saw}: no moment from {first:?} to {last:?} explains all it saw; at {tried:?} \
             there was {}",
            reading.how,
            show_place(place),
            show_bound(&sight.lower),
            show_bound(&sight.upper),
            reading.when,
            show(there.flatten())
        )
    }
}

fn show_bound(bound: &Bound<Key>) -> String {
    format!("{:?}", bound.as_ref().map(|key| key.escape_ascii().to_string()))
}
