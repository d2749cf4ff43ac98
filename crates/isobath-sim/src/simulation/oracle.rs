//! The history of a simulated database, and the checks of every read and every recovery against it.
//!
//! Every commit of a writer also puts the writer's own marker key to the number of the commit, so
//! after a crash the oracle knows exactly which commits are there: those of each writer up to its
//! marker. What remains unknown is whether a commit that never returned (one for each writer at
//! most) was seen: if it was, it is where it had reserved its place in the log. All that reads and
//! a recovery found must fit into one order of the commits (`observe.rs`).
//!
//! A transaction is a commit whose reads must still be true just before it
//! ([`History::saw_before`]). Which of its reads must be so depends on the isolation level
//! (`transactions/`).
//!
//! A disk that was damaged at rest may have lost the end of what was written, but nothing from the
//! middle, and nothing that a close had finished.

mod explain;
mod threads;

pub(crate) use threads::Clock;

use super::families::Guests;
use super::leases::Leases;
use super::levels::{Levels, TwoPhase};
use super::memories::Memory;
use super::observe::{Judge, Reading, Sight, When};
use super::transactions::coordinator::{Doubt, no_doubts};
use super::transactions::deal::{Deal, Refusal};
use super::transactions::rules;
use super::values::{Place, Value, Values};
use super::workload::WRITERS;
use isobath::Isolation;
use std::sync::Arc;

/// A commit as its writer knows it.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    /// One for each place, the last of those to it.
    pub(crate) writes: Vec<(Place, Option<Value>)>,
    /// The read point it was acknowledged with.
    pub(crate) point: Option<u64>,
    /// Acknowledged as surviving power loss.
    pub(crate) is_synced: bool,
    /// When it was begun, in the oracle's own count of events.
    pub(crate) begun: u64,
    /// The newest point that was acknowledged when it was begun.
    pub(crate) after: u64,
    /// When it returned an error that leaves its outcome open.
    pub(crate) failed: Option<u64>,
    /// Its place in history if it exists, as far as that is known.
    pub(crate) place: Placed,
}

/// The place of a commit of unknown outcome, if it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Placed {
    /// Anywhere between what was acknowledged before it and what began after it had failed.
    #[default]
    Anywhere,
    /// It never had a place in the log.
    Nowhere,
    /// Its record would end here.
    At(u64),
}

impl From<Option<u64>> for Placed {
    fn from(reserved: Option<u64>) -> Placed {
        reserved.map_or(Placed::Nowhere, Placed::At)
    }
}

/// A read that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// After the newest point that was acknowledged then; with a snapshot, at its own.
    when: When,
    began: u64,
    /// When it had pinned what it reads, if that was earlier than its end.
    pinned: Option<u64>,
    is_beside: bool,
}

impl Look {
    /// The newest point that was acknowledged when it began.
    pub(crate) fn acknowledged(&self) -> u64 {
        match self.when {
            When::After(point) | When::At(point) | When::Before(point) => point,
        }
    }

    /// A read by another process, beside the one that writes.
    pub(crate) fn beside(self) -> Look {
        Look { is_beside: true, ..self }
    }
}

/// How a life ended, as far as it matters for what must be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    /// The process is gone, its files are as it left them.
    Killed,
    PowerLost,
}

/// One life of the database, or what one thread did in it.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// What was there at the beginning.
    base: Values,
    /// By writer, in the order of their numbers.
    writers: Vec<Vec<Commit>>,
    readings: Vec<Reading>,
    /// Transactions that have ended, and what some of them were refused for.
    deals: Vec<Deal>,
    refusals: Vec<Refusal>,
    clock: Arc<Clock>,
    newest_synced: u64,
    /// The families that come and go.
    pub(crate) guests: Guests,
    /// Whether the second of the two families that stay is there.
    pub(crate) has_side: bool,
    /// Commits that a task may make durable later.
    pub(crate) tokens: Vec<isobath::Commit>,
    /// Those of the life before, and whether they must have lasted.
    pub(crate) old_tokens: Vec<isobath::Commit>,
    pub(crate) keeps_old_tokens: bool,
    /// Points that were seen, in earlier lives too.
    pub(crate) memories: Vec<Memory>,
    /// Values that end.
    pub(crate) leases: Leases,
    /// What each coordinator may have in doubt.
    pub(crate) doubts: Vec<Option<Doubt>>,
    /// Something unknown may have been written: reads go unjudged.
    pub(crate) is_blind: bool,
    pub(crate) levels: Levels,
    pub(crate) two_phase: TwoPhase,
}

/// The writer whose commits carry no marker, after those that number theirs.
pub(crate) const CARELESS: usize = WRITERS;

/// Tasks that run transactions: at most so many.
pub(crate) const TRANSACTORS: usize = 8;

/// The writer that a task's transactions are commits of. They carry markers.
pub(crate) const fn transactor(task: usize) -> usize {
    CARELESS + 1 + task
}

/// Tasks that commit in two phases: at most so many.
pub(crate) const COORDINATORS: usize = 8;

/// The writer that a coordinator's transactions are commits of. They carry markers.
pub(crate) const fn coordinator(nth: usize) -> usize {
    transactor(TRANSACTORS) + nth
}

/// The writer that its single steps (`put_if` and the like) are commits of, which carry none.
pub(crate) const fn stepper(task: usize) -> usize {
    coordinator(COORDINATORS) + task
}

/// True if each commit of a writer puts its marker.
const fn has_marker(writer: usize) -> bool {
    writer != CARELESS && writer < stepper(0)
}

/// The marker key of a writer.
pub(crate) fn marker(writer: usize) -> Place {
    (0, format!("!writer{writer}").into_bytes().into())
}

impl History {
    pub(crate) fn new(base: Values) -> History {
        let (writers, doubts) = (vec![Vec::new(); stepper(TRANSACTORS)], no_doubts());
        History { base, writers, doubts, ..History::default() }
    }

    /// Takes over what the life before remembers. `is_kept` if all that it had must have lasted.
    pub(crate) fn follow(&mut self, before: History, is_kept: bool) {
        (self.old_tokens, self.keeps_old_tokens) = (before.tokens, is_kept);
        self.memories = before.memories;
        self.memories.iter_mut().for_each(|memory| memory.grow_old(is_kept));
        self.leases = before.leases;
        self.leases.grow_old(is_kept);
    }

    /// The number that the next commit of a writer has, counted over all lives.
    pub(crate) fn next_number(&self, writer: usize) -> u64 {
        marker_number(&self.base, writer) + self.writers[writer].len() as u64 + 1
    }

    /// Notes a commit that is about to be made, with the values as they are written.
    pub(crate) fn begin(&mut self, writer: usize, mut writes: Vec<(Place, Option<Value>)>) {
        let begun = self.clock.tick();
        // Of several writes to one place the last wins.
        writes.reverse();
        writes.sort_by(|a, b| a.0.cmp(&b.0));
        writes.dedup_by(|later, kept| later.0 == kept.0);
        let (after, is_synced) = (self.clock.newest_acknowledged(), false);
        let (failed, place) = (None, Placed::default());
        let commit = Commit { writes, point: None, is_synced, begun, after, failed, place };
        self.writers[writer].push(commit);
    }

    /// Sets what the commit writes that was begun last, which is known only now.
    pub(crate) fn wrote(&mut self, writer: usize, writes: Vec<(Place, Option<Value>)>) {
        self.writers[writer].last_mut().expect("begun before").writes = writes;
    }

    /// The commit that was begun last has failed, but it may exist all the same.
    pub(crate) fn fail(&mut self, writer: usize, place: Placed) {
        let failed = self.clock.tick();
        let commit = self.writers[writer].last_mut().expect("begun before");
        (commit.failed, commit.place) = (Some(failed), place);
    }

    /// The commit that was begun last has failed for good: it does not exist, and never will.
    pub(crate) fn withdraw(&mut self, writer: usize) {
        self.writers[writer].pop();
    }

    pub(crate) fn acknowledge(&mut self, writer: usize, point: u64, is_synced: bool) {
        self.clock.tick();
        let commit = self.writers[writer].last_mut().expect("begun before");
        (commit.point, commit.is_synced) = (Some(point), is_synced);
        self.clock.acknowledge(point);
        if is_synced {
            self.synced(point);
        }
    }

    /// Everything up to `point` survives power loss.
    pub(crate) fn synced(&mut self, point: u64) {
        self.newest_synced = self.newest_synced.max(point);
    }

    pub(crate) fn newest_acknowledged(&self) -> u64 {
        self.clock.newest_acknowledged()
    }

    /// A read begins.
    pub(crate) fn look(&mut self) -> Look {
        let began = self.clock.tick();
        let when = When::After(self.clock.newest_acknowledged());
        Look { when, began, pinned: None, is_beside: false }
    }

    /// It has pinned what it reads: what it finds from now on is as of a moment that has passed.
    pub(crate) fn pinned(&mut self, look: &mut Look) {
        look.pinned = Some(self.clock.tick());
    }

    /// It has taken a snapshot at `point`.
    pub(crate) fn pinned_at(&mut self, look: &mut Look, point: u64) {
        self.pinned(look);
        look.when = When::At(point);
    }

    /// What it found, all as of one moment.
    pub(crate) fn saw(&mut self, how: &'static str, look: Look, sights: Vec<Sight>) {
        let now = self.clock.tick();
        let Look { when, began, pinned, is_beside } = look;
        let pinned = pinned.unwrap_or(now);
        self.readings.push(Reading { how, when, is_beside, began, pinned, sights });
    }

    /// What the transaction found that was acknowledged with `point`: as things were just before.
    pub(crate) fn saw_before(&mut self, how: &'static str, point: u64, sights: Vec<Sight>) {
        let began = self.clock.tick();
        let (pinned, when) = (began, When::Before(point));
        self.readings.push(Reading { how, when, is_beside: true, began, pinned, sights });
    }

    /// A transaction has ended, in whichever way.
    pub(crate) fn ended(&mut self, deal: Deal) {
        if let Some(point) = deal.committed {
            let how = match deal.level {
                Isolation::Serializable => "a Serializable transaction's commit",
                _ => "a transaction's commit",
            };
            self.saw_before(how, point, deal.found.lasting(deal.level));
        }
        let ended = self.clock.tick();
        self.deals.push(Deal { ended, ..deal });
    }

    /// A transaction was told of a conflict.
    pub(crate) fn refused(&mut self, refusal: Refusal) {
        let told = self.clock.tick();
        self.refusals.push(Refusal { told, ..refusal });
    }

    pub(crate) fn reads(&self) -> u64 {
        self.readings.len() as u64
    }

    pub(crate) fn commits(&self) -> u64 {
        self.writers.iter().map(|commits| commits.len() as u64).sum()
    }

    fn judge(&self) -> Judge<'_> {
        Judge::new(&self.base, self.writers.iter().flatten(), &self.readings)
    }

    /// Checks all reads of this life, now that every acknowledged commit is known. False if the
    /// late ones go unjudged.
    pub(crate) fn check_reads(&self) -> Result<bool, String> {
        if self.is_blind {
            return Ok(false);
        }
        let mut judge = self.judge();
        let is_judged = judge.judge(None, false)?;
        rules::check(&judge, &self.deals, &self.refusals)?;
        Ok(is_judged)
    }

    /// Checks what a recovery found after this life. If the disk was damaged since, the end of it
    /// may be missing.
    pub(crate) fn check_recovered(
        &self,
        found: &Values,
        end: End,
        is_damaged: bool,
    ) -> Result<(), String> {
        let mut kept: Vec<&Commit> = Vec::new();
        let mut lost: Vec<&Commit> = Vec::new();
        let marked = self.writers.iter().enumerate().filter(|(writer, _)| has_marker(*writer));
        for (writer, commits) in marked {
            let (before, now) = (marker_number(&self.base, writer), marker_number(found, writer));
            let count = now.checked_sub(before).filter(|count| *count <= commits.len() as u64);
            let count = count.ok_or_else(|| {
                format!(
                    "writer {writer} is at {now}, but began at {before} and wrote {}",
                    commits.len()
                )
            })?;
            kept.extend(&commits[..count as usize]);
            lost.extend(&commits[count as usize..]);
        }
        let must_last = |commit: &Commit| match (commit.point, end) {
            (None, _) => false,
            (Some(_), End::Closed) => true,
            (Some(_), _) if is_damaged => false,
            (Some(_), End::Killed) => true,
            (Some(point), End::PowerLost) => commit.is_synced || point <= self.newest_synced,
        };
        if let Some(commit) = lost.iter().find(|commit| must_last(commit)) {
            return Err(format!(
                "an acknowledged commit is lost: {}; synced up to {}, of {} commits {} are there",
                show_commit(commit),
                self.newest_synced,
                self.commits(),
                kept.len()
            ));
        }
        let last = kept.iter().filter_map(|commit| commit.point).max().unwrap_or(0);
        if let Some(hole) =
            lost.iter().find(|commit| commit.point.is_some_and(|point| point < last))
        {
            return Err(format!("a hole: {} is lost, a later commit is there", show_commit(hole)));
        }
        self.judge_recovered(found, end, is_damaged)
    }

    /// What was found must be the state at one moment. That moment lies after everything that must
    /// survive. Unless the power failed, it also lies after everything that reads had seen: what is
    /// visible has been copied to the kernel, which keeps it when the process dies.
    fn judge_recovered(&self, found: &Values, end: End, is_damaged: bool) -> Result<(), String> {
        let (from, keeps_reads) = match end {
            End::Closed => (self.newest_acknowledged(), true),
            _ if is_damaged => (0, false),
            End::Killed => (self.newest_acknowledged(), true),
            End::PowerLost => (self.newest_synced, false),
        };
        let now = self.clock.tick();
        let recovered = Reading {
            how: "a recovery",
            when: When::After(from),
            is_beside: false,
            began: now,
            pinned: now,
            sights: vec![Sight::of_family(0, found), Sight::of_family(1, found)],
        };
        if self.is_blind {
            return Ok(());
        }
        // Lives that go unjudged were counted with the reads: the number of guesses is the same.
        self.judge().judge(Some(&recovered), keeps_reads).map(drop)
    }
}

pub(crate) fn marker_number(values: &Values, writer: usize) -> u64 {
    let text = values.get(&marker(writer)).map(|value| str::from_utf8(value.head()));
    text.and_then(|text| text.ok()?.parse().ok()).unwrap_or(0)
}

pub(crate) fn show(value: Option<&Value>) -> String {
    value.map_or("nothing".to_owned(), |value| format!("{value:?}"))
}

pub(crate) fn show_place(place: &Place) -> String {
    let key = String::from_utf8_lossy(&place.1[..place.1.len().min(40)]).into_owned();
    let rest =
        if place.1.len() > 40 { format!("... ({} bytes)", place.1.len()) } else { String::new() };
    format!("{}/{key}{rest}", place.0)
}

fn show_commit(commit: &Commit) -> String {
    let writes: Vec<String> = commit
        .writes
        .iter()
        .take(6)
        .map(|(place, value)| format!("{} = {}", show_place(place), show(value.as_ref())))
        .collect();
    let (count, shown) = (commit.writes.len(), writes.join(", "));
    format!("point {:?}, synced {}, of {count} writes: {shown}", commit.point, commit.is_synced)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> (Place, Option<Value>) {
        ((0, key.as_bytes().into()), Some(Value::of(value.as_bytes())))
    }

    fn commit(
        history: &mut History,
        writer: usize,
        point: Option<u64>,
        is_synced: bool,
        key: &str,
    ) {
        let number = history.next_number(writer).to_string();
        let own = String::from_utf8(marker(writer).1.to_vec()).unwrap();
        history.begin(writer, vec![put(&own, &number), put(key, &format!("{writer}.{number}"))]);
        if let Some(point) = point {
            history.acknowledge(writer, point, is_synced);
        }
    }

    fn values(pairs: &[(&str, &str)]) -> Values {
        pairs
            .iter()
            .map(|(key, value)| ((0, key.as_bytes().into()), Value::of(value.as_bytes())))
            .collect()
    }

    #[test]
    fn losses_holes_and_wrong_values_are_told_apart_from_what_may_be() {
        let mut history = History::new(Values::new());
        commit(&mut history, 0, Some(100), false, "a");
        commit(&mut history, 1, Some(200), true, "b");
        commit(&mut history, 0, Some(300), false, "a");
        commit(&mut history, 1, None, false, "a");
        let all = values(&[("!writer0", "2"), ("!writer1", "1"), ("a", "0.2"), ("b", "1.1")]);
        history.check_recovered(&all, End::Killed, false).unwrap();
        let synced_only =
            values(&[("!writer0", "1"), ("!writer1", "1"), ("a", "0.1"), ("b", "1.1")]);
        history.check_recovered(&synced_only, End::PowerLost, false).unwrap();
        assert!(
            history.check_recovered(&synced_only, End::Killed, false).unwrap_err().contains("lost")
        );
        let hole = values(&[("!writer0", "2"), ("a", "0.2")]);
        assert!(history.check_recovered(&hole, End::PowerLost, false).is_err());
        history.check_recovered(&synced_only, End::Killed, true).unwrap();
        history.check_recovered(&Values::new(), End::Killed, true).unwrap();
        assert!(history.check_recovered(&synced_only, End::Closed, true).is_err());
        assert!(history.check_recovered(&hole, End::Killed, true).unwrap_err().contains("hole"));
        let wrong = values(&[("!writer0", "2"), ("!writer1", "1"), ("a", "0.1"), ("b", "1.1")]);
        assert!(
            history
                .check_recovered(&wrong, End::Killed, false)
                .unwrap_err()
                .contains("a recovery of")
        );
        let in_flight = values(&[("!writer0", "2"), ("!writer1", "2"), ("a", "1.2"), ("b", "1.1")]);
        history.check_recovered(&in_flight, End::Killed, false).unwrap();
    }

    fn sees(history: &mut History, look: Look, found: &[(&str, Option<&str>)]) {
        let sights = found.iter().map(|(key, value)| {
            let value = value.map(|value| Some(Value::of(value.as_bytes())));
            Sight::of_key(0, key.as_bytes().into(), value)
        });
        history.saw("a read", look, sights.collect());
    }

    #[test]
    fn a_read_that_misses_what_was_acknowledged_before_it_is_caught() {
        let mut history = History::new(Values::new());
        commit(&mut history, 0, Some(100), false, "a");
        let look = history.look();
        sees(&mut history, look, &[("a", None)]);
        assert!(history.check_reads().is_err());
    }

    /// What one read may find if two commits are in flight.
    fn reads_in_flight(found: &[(&str, Option<&str>)]) -> Result<bool, String> {
        let mut history = History::new(Values::new());
        history.begin(0, vec![put("a", "0")]);
        history.begin(1, vec![put("b", "1")]);
        let look = history.look();
        sees(&mut history, look, found);
        history.acknowledge(0, 100, false);
        history.acknowledge(1, 200, false);
        history.check_reads()
    }

    #[test]
    fn one_moment_must_explain_all_that_a_read_found() {
        reads_in_flight(&[("a", None), ("b", None)]).unwrap();
        reads_in_flight(&[("a", Some("0")), ("b", None)]).unwrap();
        reads_in_flight(&[("b", Some("1")), ("a", Some("0"))]).unwrap();
        reads_in_flight(&[("b", Some("1"))]).unwrap();
        for wrong in
            [&[("a", None), ("b", Some("1"))][..], &[("a", Some("1"))], &[("c", Some("1"))]]
        {
            reads_in_flight(wrong).unwrap_err();
        }
    }

    #[test]
    fn a_life_with_too_many_guesses_says_that_it_goes_unjudged() {
        let mut history = History::new(Values::new());
        for writer in 0..3 {
            history.begin(writer, vec![put("a", "0")]);
            history.fail(writer, Placed::Anywhere);
        }
        assert_eq!(history.check_reads(), Ok(true));
        let mut history = History::new(Values::new());
        (0..3).for_each(|writer| history.begin(writer, vec![put("a", "0")]));
        (0..100).for_each(|nth| commit(&mut history, 3, Some(100 + nth), false, "b"));
        let look = history.look();
        sees(&mut history, look, &[("b", None)]);
        assert_eq!(history.check_reads(), Ok(false));
    }

    #[test]
    fn reads_never_go_back_and_what_they_saw_survives_a_kill() {
        let mut history = History::new(Values::new());
        history.begin(0, vec![put("!writer0", "1"), put("a", "0")]);
        let look = history.look();
        sees(&mut history, look, &[("a", Some("0"))]);
        history.fail(0, Placed::Anywhere);
        history.check_recovered(&Values::new(), End::PowerLost, false).unwrap();
        history.check_recovered(&Values::new(), End::Killed, false).unwrap_err();
        let there = values(&[("!writer0", "1"), ("a", "0")]);
        history.check_recovered(&there, End::Killed, false).unwrap();
        history.check_reads().unwrap();
        let look = history.look();
        sees(&mut history, look, &[("a", None)]);
        history.check_reads().unwrap_err();
    }

    #[test]
    fn a_snapshot_sees_its_point_and_no_other() {
        for (found, is_right) in [(None, false), (Some("0.1"), true), (Some("0.2"), false)] {
            let mut history = History::new(Values::new());
            commit(&mut history, 0, Some(100), false, "a");
            let mut look = history.look();
            history.pinned_at(&mut look, 100);
            commit(&mut history, 0, Some(200), false, "a");
            sees(&mut history, look, &[("a", found)]);
            assert_eq!(history.check_reads().is_ok(), is_right, "{found:?}");
        }
    }

    #[test]
    fn what_a_scan_did_not_find_was_not_there() {
        for (found, is_right) in [(&["!writer0"][..], false), (&["!writer0", "a"], true)] {
            let mut history = History::new(Values::new());
            commit(&mut history, 0, Some(100), false, "a");
            let look = history.look();
            let mut sight = Sight::of_family(0, &Values::new());
            sight.found.extend(found.iter().map(|key| (key.as_bytes().into(), None)));
            history.saw("a scan", look, vec![sight]);
            assert_eq!(history.check_reads().is_ok(), is_right);
        }
    }
}
