//! What must be true: the history of a simulated database, and the checks of every read and every recovery against it.
//!
//! Every commit of a writer also puts the writer's own marker key to the number of the commit, so after a crash it is
//! known exactly which commits are there: of each writer, those up to its marker. What remains unknown is the place in
//! history of a commit that never returned (one for each writer at most): wherever it may lie, its values are allowed
//! beside the expected one.
//!
//! A disk that was damaged at rest may have lost the end of what was written, but nothing from the middle, and nothing
//! that a close had finished.

use super::families::Guests;
use super::values::{Place, Value, Values};
use isobath::Lsn;
use std::collections::HashMap;

/// A commit as its writer knows it.
#[derive(Clone, Debug)]
pub(crate) struct Commit {
    /// One for each place, the last of those to it.
    pub(crate) writes: Vec<(Place, Option<Value>)>,
    /// The read point it was acknowledged with.
    pub(crate) point: Option<Lsn>,
    /// Acknowledged as surviving power loss.
    pub(crate) is_synced: bool,
    /// When it was begun, in the oracle's own count of events.
    pub(crate) begun: u64,
}

/// What a read saw.
#[derive(Clone, Debug)]
struct Seen {
    place: Place,
    value: Option<Value>,
    /// Everything acknowledged up to here must be seen; with a snapshot, exactly this point.
    from: Lsn,
    is_exact: bool,
    /// When the read ended, in the oracle's count.
    ended: u64,
    how: &'static str,
}

/// How a life ended, as far as it matters for what must be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    /// The process is gone, its files are as it left them.
    Killed,
    PowerLost,
}

/// One life of the database.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// What was there at the beginning.
    base: Values,
    /// By writer, in the order of their numbers.
    writers: Vec<Vec<Commit>>,
    seen: Vec<Seen>,
    events: u64,
    newest_acknowledged: Lsn,
    newest_synced: Lsn,
    /// The families that come and go.
    pub(crate) guests: Guests,
    /// Whether the second of the two families that stay is there.
    pub(crate) has_side: bool,
}

/// The marker key of a writer.
pub(crate) fn marker(writer: usize) -> Place {
    (0, format!("!writer{writer}").into_bytes().into())
}

impl History {
    pub(crate) fn new(base: Values, writers: usize) -> History {
        History { base, writers: vec![Vec::new(); writers], ..History::default() }
    }

    /// The number that the next commit of a writer has, counted over all lives.
    pub(crate) fn next_number(&self, writer: usize) -> u64 {
        marker_number(&self.base, writer) + self.writers[writer].len() as u64 + 1
    }

    /// Notes a commit that is about to be made, with the values as they are written.
    pub(crate) fn begin(&mut self, writer: usize, mut writes: Vec<(Place, Option<Value>)>) {
        self.events += 1;
        let begun = self.events;
        // Of several writes to one place the last wins.
        writes.reverse();
        writes.sort_by(|a, b| a.0.cmp(&b.0));
        writes.dedup_by(|later, kept| later.0 == kept.0);
        self.writers[writer].push(Commit { writes, point: None, is_synced: false, begun });
    }

    /// The commit that was begun last has failed for good: it is nowhere, and never will be.
    pub(crate) fn withdraw(&mut self, writer: usize) {
        self.writers[writer].pop();
    }

    pub(crate) fn acknowledge(&mut self, writer: usize, point: Lsn, is_synced: bool) {
        self.events += 1;
        let commit = self.writers[writer].last_mut().expect("begun before");
        (commit.point, commit.is_synced) = (Some(point), is_synced);
        self.newest_acknowledged = self.newest_acknowledged.max(point);
        if is_synced {
            self.synced(point);
        }
    }

    /// Everything up to `point` survives power loss.
    pub(crate) fn synced(&mut self, point: Lsn) {
        self.newest_synced = self.newest_synced.max(point);
    }

    pub(crate) fn newest_acknowledged(&self) -> Lsn {
        self.newest_acknowledged
    }

    /// Notes a read that began when `from` was the newest acknowledged point, or that was made exactly at `from`.
    pub(crate) fn see(
        &mut self,
        how: &'static str,
        place: Place,
        value: Option<Value>,
        from: Lsn,
        is_exact: bool,
    ) {
        self.events += 1;
        self.seen.push(Seen { place, value, from, is_exact, ended: self.events, how });
    }

    pub(crate) fn reads(&self) -> u64 {
        self.seen.len() as u64
    }

    pub(crate) fn commits(&self) -> u64 {
        self.writers.iter().map(|commits| commits.len() as u64).sum()
    }

    /// True if there was a value at a place once, or may have been.
    pub(crate) fn was_written(&self, place: &Place) -> bool {
        let writes = |commit: &Commit| commit.writes.binary_search_by(|write| write.0.cmp(place));
        self.base.contains_key(place)
            || self.writers.iter().flatten().any(|commit| writes(commit).is_ok())
    }

    /// Checks all reads of this life, now that every acknowledged commit is known.
    pub(crate) fn check_reads(&self) -> Result<(), String> {
        let timeline = Timeline::of(self.writers.iter().flatten());
        self.seen.iter().try_for_each(|seen| self.check_read(seen, &timeline))
    }

    fn check_read(&self, seen: &Seen, timeline: &Timeline<'_>) -> Result<(), String> {
        let mut newest: (Lsn, Option<&Value>) = (0, self.base.get(&seen.place));
        let mut allowed = Vec::new();
        for &(commit, value) in timeline.at(&seen.place) {
            match commit.point {
                Some(point) if point <= seen.from && point > newest.0 => newest = (point, value),
                Some(point) if point <= seen.from => {}
                Some(_) if seen.is_exact => {}
                // It may have been visible already: it was begun before the read ended.
                Some(_) | None if commit.begun <= seen.ended => allowed.push(value),
                _ => {}
            }
        }
        allowed.push(newest.1);
        if allowed.contains(&seen.value.as_ref()) {
            return Ok(());
        }
        Err(format!(
            "{} of {} from point {} saw {}, allowed were {:?}",
            seen.how,
            show_place(&seen.place),
            seen.from,
            show(seen.value.as_ref()),
            allowed.iter().map(|value| show(*value)).collect::<Vec<_>>()
        ))
    }

    /// Checks what a recovery found after this life. If the disk was damaged since, the end of it may be missing.
    pub(crate) fn check_recovered(
        &self,
        found: &Values,
        end: End,
        is_damaged: bool,
    ) -> Result<(), String> {
        let mut kept: Vec<&Commit> = Vec::new();
        let mut lost: Vec<&Commit> = Vec::new();
        for (writer, commits) in self.writers.iter().enumerate() {
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
        self.check_values(found, &kept)
    }

    fn check_values(&self, found: &Values, kept: &[&Commit]) -> Result<(), String> {
        let timeline = Timeline::of(kept.iter().copied());
        let mut places: Vec<&Place> =
            timeline.writes.keys().copied().chain(self.base.keys()).chain(found.keys()).collect();
        places.sort_unstable();
        places.dedup();
        for place in places {
            let mut newest: (Lsn, Option<&Value>) = (0, self.base.get(place));
            let mut allowed = Vec::new();
            for &(commit, value) in timeline.at(place) {
                match commit.point {
                    Some(point) if point > newest.0 => newest = (point, value),
                    Some(_) => {}
                    None => allowed.push(value),
                }
            }
            allowed.push(newest.1);
            let value = found.get(place);
            if !allowed.contains(&value) {
                return Err(format!(
                    "after recovery {} is {}, allowed were {:?}",
                    show_place(place),
                    show(value),
                    allowed.iter().map(|value| show(*value)).collect::<Vec<_>>()
                ));
            }
        }
        Ok(())
    }
}

fn marker_number(values: &Values, writer: usize) -> u64 {
    let text = values.get(&marker(writer)).map(|value| str::from_utf8(value.head()));
    text.and_then(|text| text.ok()?.parse().ok()).unwrap_or(0)
}

/// What commits did to each place, so that judging an answer looks at no others.
struct Timeline<'a> {
    writes: HashMap<&'a Place, Vec<(&'a Commit, Option<&'a Value>)>>,
}

impl<'a> Timeline<'a> {
    fn of(commits: impl Iterator<Item = &'a Commit>) -> Timeline<'a> {
        let mut writes: HashMap<&Place, Vec<_>> = HashMap::new();
        for commit in commits {
            for (place, value) in &commit.writes {
                writes.entry(place).or_default().push((commit, value.as_ref()));
            }
        }
        Timeline { writes }
    }

    fn at(&self, place: &Place) -> &[(&'a Commit, Option<&'a Value>)] {
        self.writes.get(place).map_or(&[], Vec::as_slice)
    }
}

fn show(value: Option<&Value>) -> String {
    value.map_or("nothing".to_owned(), |value| format!("{value:?}"))
}

fn show_place(place: &Place) -> String {
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
        point: Option<Lsn>,
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
        let mut history = History::new(Values::new(), 2);
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
                .contains("after recovery")
        );
        let in_flight = values(&[("!writer0", "2"), ("!writer1", "2"), ("a", "1.2"), ("b", "1.1")]);
        history.check_recovered(&in_flight, End::Killed, false).unwrap();
    }

    #[test]
    fn a_read_that_misses_what_was_acknowledged_before_it_is_caught() {
        let mut history = History::new(Values::new(), 1);
        commit(&mut history, 0, Some(100), false, "a");
        history.see("get", (0, b"a"[..].into()), None, 100, false);
        assert!(history.check_reads().is_err());
    }
}
