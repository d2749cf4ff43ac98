//! Calls of a transaction on stretches of keys: scans, pops, range deletes, locks on ranges; and
//! its savepoints.

use super::super::oracle::{Look, marker, stepper};
use super::super::questions::{Question, end_of, prefixed};
use super::super::readers::{Seen, Span};
use super::super::values::{Key, Place};
use super::attempt::{Attempt, Kind};
use super::keys::Arena;
use isobath::{Error, ErrorKind, LockMode};
use std::ops::Bound;

const NAMES: [&str; 3] = ["one", "two", "three"];

/// A range that is deleted has at most so many keys: each of them is one more write to judge.
const DELETED_MAX: usize = 100;

/// A stretch between two keys.
pub(super) fn span(family: u8, arena: &Arena, rng: &mut fastrand::Rng) -> Span {
    let (lower, upper) = arena.range(rng);
    let bound = |key: Key, rng: &mut fastrand::Rng| match rng.u8(..16) {
        0 => Bound::Unbounded,
        1..4 => Bound::Excluded(key),
        _ => Bound::Included(key),
    };
    Span { family, lower: bound(lower, rng), upper: bound(upper, rng) }
}

/// The same stretch, of the family without markers if it holds one.
pub(super) fn beside_markers(span: Span) -> Span {
    let sight = span.sight();
    let has_marker = (0..stepper(0)).any(|writer| sight.covers(&(span.family, marker(writer).1)));
    Span { family: if has_marker { 1 } else { span.family }, ..span }
}

impl Attempt<'_> {
    /// Looks at a stretch of a family, in one of the ways there are.
    pub(super) fn look_around(
        &mut self,
        family: u8,
        arena: &Arena,
        rng: &mut fastrand::Rng,
    ) -> Result<(), Error> {
        let span = span(family, arena, rng);
        match rng.u8(..18) {
            0..8 => self.walk(&span, Kind::Scan, rng),
            8 => self.lock_range(&span, rng),
            9 => self.walk_prefix(family, &arena.key(rng), rng),
            10..13 => self.move_about(&span, rng),
            13 => self.end(family, rng),
            14 => self.count(&span),
            15 | 16 => self.ask((family, arena.key(rng)), arena, rng),
            _ if self.look().is_none() => self.sum_up(&span),
            _ => Ok(()),
        }
    }

    /// Deletes a stretch, or what begins with a key. Markers are never in it.
    pub(super) fn delete_range(
        &mut self,
        (family, key): Place,
        arena: &Arena,
        rng: &mut fastrand::Rng,
    ) -> Result<(), Error> {
        let is_prefix = rng.u8(..4) == 0;
        let span = if is_prefix { prefixed(family, &key) } else { span(family, arena, rng) };
        let span = beside_markers(span);
        let sight = span.sight();
        let keys = self.stage.keys.all().iter().map(|key| (span.family, key.clone()));
        let places: Vec<Place> = keys.filter(|place| sight.covers(place)).collect();
        if places.len() > DELETED_MAX {
            return Ok(());
        }
        self.record.asked.push(sight);
        let (tx, side) = (self.tx, &self.stage.side);
        let deleted = match (span.family, is_prefix) {
            (0, true) => tx.delete_prefix(key),
            (0, false) => tx.delete_range(span.bounds()),
            (_, true) => tx.of(side).delete_prefix(key),
            (_, false) => tx.of(side).delete_range(span.bounds()),
        };
        self.outcome("a transaction's delete of a range", deleted)?;
        self.record.own.delete_range(places.into_iter());
        Ok(())
    }

    /// Locks a stretch: what it finds there must stay so.
    fn lock_range(&mut self, span: &Span, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let (tx, side) = (self.tx, &self.stage.side);
        let mode = [LockMode::Shared, LockMode::Exclusive][rng.usize(..2)];
        let locked = match span.family {
            0 => tx.lock_range(span.bounds(), mode),
            _ => tx.of(side).lock_range(span.bounds(), mode),
        };
        self.outcome("a transaction's lock of a range", locked)?;
        self.walk(span, Kind::Locked, rng)
    }

    /// Scans a stretch, to its end or not that far.
    pub(super) fn scan(&mut self, span: &Span, rng: &mut fastrand::Rng) -> Result<(), Error> {
        self.walk(span, Kind::Scan, rng)
    }

    fn walk(&mut self, span: &Span, kind: Kind, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let (tx, side) = (self.tx, &self.stage.side);
        let look = self.look();
        let range = match span.family {
            0 => tx.range(span.bounds()),
            _ => tx.of(side).range(span.bounds()),
        };
        let look = self.pinned(look);
        let seen = self.stage.walk(range, span, rng);
        self.scanned("a transaction's scan", look, seen, kind)
    }

    fn walk_prefix(&mut self, family: u8, key: &Key, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let (tx, side) = (self.tx, &self.stage.side);
        let span = prefixed(family, key);
        let look = self.look();
        let range = if family == 0 { tx.prefix(key) } else { tx.of(side).prefix(key) };
        let look = self.pinned(look);
        let seen = self.stage.walk(range, &span, rng);
        self.scanned("a transaction's scan of a prefix", look, seen, Kind::Scan)
    }

    fn move_about(&mut self, span: &Span, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let (tx, side) = (self.tx, &self.stage.side);
        let look = self.look();
        let cursor = match span.family {
            0 => tx.cursor(span.bounds()),
            _ => tx.of(side).cursor(span.bounds()),
        };
        let cursor = self.outcome("a transaction's cursor", cursor)?;
        let look = self.pinned(look);
        let mut sights = Vec::new();
        let end = self.stage.step(cursor, span, &mut sights, rng);
        self.scanned("a transaction's cursor", look, (sights, end), Kind::Scan)
    }

    /// The first or the last key of a whole family.
    fn end(&mut self, family: u8, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let (tx, side, is_first) = (self.tx, &self.stage.side, rng.bool());
        let look = self.look();
        let found = match (family, is_first) {
            (0, true) => tx.first(),
            (0, false) => tx.last(),
            (_, true) => tx.of(side).first(),
            (_, false) => tx.of(side).last(),
        };
        let found = self.outcome("a transaction's first or last key", found)?;
        let span = Span { family, lower: Bound::Unbounded, upper: Bound::Unbounded };
        self.saw(look, vec![end_of(&span, is_first, &found)], Kind::Scan);
        Ok(())
    }

    /// The count of keys, which must equal the number of keys that a scan finds.
    fn count(&mut self, span: &Span) -> Result<(), Error> {
        let (tx, side) = (self.tx, &self.stage.side);
        let counted = match span.family {
            0 => tx.count(span.bounds()),
            _ => tx.of(side).count(span.bounds()),
        };
        let counted = self.outcome("a transaction's count", counted)?;
        let look = self.look();
        let has_point = look.is_none();
        let range = match span.family {
            0 => tx.range(span.bounds()),
            _ => tx.of(side).range(span.bounds()),
        };
        let look = self.pinned(look);
        let mut sight = span.sight();
        for key in range.keys() {
            let key = self.outcome("a transaction's scan of keys", key)?;
            sight.found.insert(key[..].into(), None);
        }
        if has_point && counted != sight.found.len() as u64 {
            self.stage.fail(format!("a transaction counts {counted} of {}", sight.found.len()));
        }
        self.saw(look, vec![sight], Kind::Scan);
        Ok(())
    }

    /// Asks anything, as of whatever else can be read.
    fn ask(&mut self, place: Place, arena: &Arena, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let (tx, side) = (self.tx, &self.stage.side);
        let question = Question::draw(self.stage, place, arena.range(rng), rng);
        let look = self.look();
        let asked = match (question.family(), rng.bool()) {
            (1, true) => question.ask_family(&tx.of(side)),
            _ => question.ask(tx, side),
        };
        let sights = self.outcome("a transaction's question", asked)?;
        self.saw(look, sights, if question.is_of_keys() { Kind::Item } else { Kind::Scan });
        Ok(())
    }

    fn sum_up(&mut self, span: &Span) -> Result<(), Error> {
        let (tx, side) = (self.tx, &self.stage.side);
        let summed = match span.family {
            0 => self.stage.sum_up(tx, span),
            _ => self.stage.sum_up(&tx.of(side), span),
        };
        self.outcome("a transaction's sums", summed)
    }

    /// Takes the first or last key out of a stretch that has no markers.
    pub(super) fn pop(&mut self, span: &Span, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let (tx, side, is_first) = (self.tx, &self.stage.side, rng.bool());
        let look = self.look();
        let popped = match (span.family, is_first) {
            (0, true) => tx.pop_first(span.bounds()),
            (0, false) => tx.pop_last(span.bounds()),
            (_, true) => tx.of(side).pop_first(span.bounds()),
            (_, false) => tx.of(side).pop_last(span.bounds()),
        };
        let popped = self.outcome("a transaction's pop", popped)?;
        self.saw(look, vec![end_of(span, is_first, &popped)], Kind::Scan);
        if let Some((key, _)) = popped {
            self.record.own.write((span.family, key[..].into()), None);
        }
        Ok(())
    }

    /// What a scan finds from now on is as of a moment that has passed.
    fn pinned(&mut self, mut look: Option<Look>) -> Option<Look> {
        self.follow();
        if let Some(look) = &mut look {
            self.stage.history.borrow_mut().pinned(look);
        }
        look
    }

    fn scanned(
        &mut self,
        doing: &str,
        look: Option<Look>,
        (sights, end): Seen,
        kind: Kind,
    ) -> Result<(), Error> {
        if sights.is_empty() && end.is_ok() {
            // The call asked for an empty stretch, so it need not fail even if the transaction is
            // doomed.
            return Ok(());
        }
        self.saw(look, sights, kind);
        self.outcome(doing, end)
    }

    /// Sets a savepoint, goes back to one, or gives one up, there or not.
    pub(super) fn savepoint(&mut self, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let name = NAMES[rng.usize(..NAMES.len())];
        let way = rng.u8(..4);
        if way < 2 {
            let set = self.tx.savepoint(name);
            self.outcome("a savepoint", set)?;
            self.record.own.save(name);
            return Ok(());
        }
        let is_there = self.record.own.has_savepoint(name);
        let done = if way == 2 { self.tx.rollback_to(name) } else { self.tx.release(name) };
        match &done {
            Ok(()) if is_there => {}
            Ok(()) => self.stage.fail(format!("there is a savepoint {name} that was not set")),
            Err(error) if matches!(error.kind(), ErrorKind::InvalidArgument { .. }) => {
                if is_there {
                    self.stage.fail(format!("savepoint {name}: {error}"));
                }
                return Ok(());
            }
            Err(_) => {}
        }
        self.outcome("a savepoint", done)?;
        match way {
            2 => self.record.own.roll_back_to(name),
            _ => self.record.own.release(name),
        }
        Ok(())
    }
}
