//! Single calls that read and write at once: each is a small transaction of its own.

use super::super::edits::far_end;
use super::super::observe::Sight;
use super::super::questions::{end_of, prefixed};
use super::super::runtime;
use super::super::values::{Draft, Key, Place, Value};
use super::attempt::is_too_large;
use super::deal::{Deal, Found, Story};
use super::hands::Hand;
use super::scans::{beside_markers, span};
use super::task::Transactor;
use crate::position::position;
use isobath::{Error, Isolation};
use std::time::SystemTime;

impl<'a> Transactor<'a> {
    /// One of them, or a plain write of one key.
    pub(super) fn step(&mut self) {
        let place = self.arena.place(&mut self.rng);
        match self.rng.u8(..8) {
            0 | 1 => self.put_if(place),
            2..5 => self.fetch_update(place),
            5 if self.rng.u8(..4) == 0 => self.pop(),
            6 if self.rng.u8(..4) == 0 => self.sweep(),
            6 if self.rng.u8(..3) == 0 => self.set_expiry(place),
            _ => self.put_one(place),
        }
    }

    fn draft(&mut self, nth: usize) -> Vec<u8> {
        let number = u64::from(self.rng.u32(..));
        let len = self.stage.terrain.value_len(&mut self.rng);
        Draft::of(self.stepper, number, nth, len).bytes()
    }

    /// A handle that writes to a family.
    fn hand(&mut self, family: u8) -> (Hand<'a>, bool) {
        Hand::draw((&self.stage.db, &self.stage.side), family, &mut self.rng)
    }

    /// Puts a value or deletes it, in one of the ways there are.
    fn put_one(&mut self, place: Place) {
        let (bytes, way) = (self.draft(0), self.rng.u8(..12));
        let (stage, key) = (self.stage, &place.1);
        let (hand, is_synced) = self.hand(place.0);
        let value = (way > 1).then(|| Value::of(&bytes));
        runtime::forget_reserved();
        stage.history.borrow_mut().begin(self.stepper, vec![(place.clone(), value)]);
        let written = match way {
            0 => hand.delete(key),
            1 => hand.put_ttl(key, &bytes, SystemTime::UNIX_EPOCH),
            2 => hand.put_ttl(key, &bytes, far_end()),
            3 => hand.merge(key, &[b"R", &bytes[..]].concat()),
            4 => hand.put_reader(key, &bytes),
            _ => hand.put(key, &bytes),
        };
        match written {
            Ok(commit) => self.done((position(commit), is_synced), None),
            Err(error) => self.not_done("a plain write", &error),
        }
    }

    /// Deletes a stretch, a prefix or all by a call of its own. Markers are never in it.
    fn sweep(&mut self) {
        let (stage, family) = (self.stage, self.rng.u8(..2));
        let prefix = (self.rng.u8(..3) == 0).then(|| {
            let mut key = self.arena.key(&mut self.rng).to_vec();
            key.truncate(self.rng.usize(..=key.len()));
            Key::from(key)
        });
        let span = match &prefix {
            Some(prefix) => prefixed(family, prefix),
            None => span(family, self.arena, &mut self.rng),
        };
        let span = beside_markers(span);
        let swept = stage.keys.all().iter().filter(|key| span.holds(key));
        let writes: Vec<_> = swept.map(|key| ((span.family, key.clone()), None)).collect();
        let is_any = !writes.is_empty();
        let (hand, is_synced) = self.hand(span.family);
        runtime::forget_reserved();
        stage.history.borrow_mut().begin(self.stepper, writes);
        let written = match &prefix {
            Some(prefix) => hand.delete_prefix(prefix),
            None => hand.delete_range(span.bounds()),
        };
        match (written, runtime::last_reserved()) {
            (Ok(commit), Some(_)) => self.done((position(commit), is_synced), None),
            (Ok(_), None) if is_any => stage.fail("a range delete writes nothing".to_owned()),
            // An empty range.
            (Ok(_), None) => stage.history.borrow_mut().withdraw(self.stepper),
            (Err(error), _) => self.not_done("a plain range delete", &error),
        }
    }

    /// Has the value of a key end now, which tells whether the key had one.
    fn set_expiry(&mut self, place: Place) {
        let (stage, look) = (self.stage, self.stage.look());
        let (hand, is_synced) = self.hand(place.0);
        runtime::forget_reserved();
        stage.history.borrow_mut().begin(self.stepper, vec![(place.clone(), None)]);
        let set = hand.set_expiry(&place.1, SystemTime::UNIX_EPOCH);
        let sight = |found| Sight::of_key(place.0, place.1.clone(), found);
        match (set, runtime::last_reserved()) {
            (Ok(true), Some(point)) => {
                let sight = sight(Some(None));
                self.done((point, is_synced), Some((place, sight)));
            }
            (Ok(true), None) => stage.fail("a set_expiry writes nothing".to_owned()),
            (Ok(false), _) => {
                stage.history.borrow_mut().withdraw(self.stepper);
                drop(stage.saw("a set_expiry of nothing", look, (vec![sight(None)], Ok(()))));
            }
            (Err(error), _) => self.not_done("a set_expiry", &error),
        }
    }

    /// Calls `put_if` with the value that the key had a moment ago, or with one that it never had.
    fn put_if(&mut self, place: Place) {
        let (stage, (family, key)) = (self.stage, &place);
        let read = match family {
            0 => stage.db.get(key),
            _ => stage.side.get(key),
        };
        let expected = match read {
            Ok(_) if self.rng.u8(..8) == 0 => Some(b"never".to_vec()),
            Ok(value) => value.map(|value| value.to_vec()),
            Err(error) => return stage.judge_read("a get before a put_if", &error),
        };
        let bytes = self.draft(0);
        let (hand, is_synced) = self.hand(*family);
        runtime::forget_reserved();
        let writes = vec![(place.clone(), Some(Value::of(&bytes)))];
        stage.history.borrow_mut().begin(self.stepper, writes);
        let written = hand.put_if(key, expected.as_deref(), &bytes);
        match written {
            Ok(Some(commit)) => {
                let found = expected.map(|value| Some(Value::of(&value)));
                let sight = Sight::of_key(place.0, place.1.clone(), found);
                self.done((position(commit), is_synced), Some((place, sight)));
            }
            Ok(None) => stage.history.borrow_mut().withdraw(self.stepper),
            Err(error) => self.not_done("a put_if", &error),
        }
    }

    /// Replaces the value of a key, or deletes the key.
    fn fetch_update(&mut self, place: Place) {
        let (stage, stepper) = (self.stage, self.stepper);
        let drafts: Vec<_> = (0..20).map(|nth| self.draft(nth)).collect();
        let deletes = self.rng.u8(..4) == 0;
        let (family, key) = &place;
        let (hand, is_synced) = self.hand(*family);
        let look = stage.look();
        let mut seen: Option<Option<Value>> = None;
        let mut tries = 0;
        let update = |old: Option<&[u8]>| {
            let mut history = stage.history.borrow_mut();
            if seen.replace(old.map(Value::of)).is_some() {
                history.withdraw(stepper);
            }
            let new = (!deletes).then(|| drafts[tries % drafts.len()].clone());
            tries += 1;
            history.begin(stepper, vec![(place.clone(), new.as_deref().map(Value::of))]);
            runtime::forget_reserved();
            new
        };
        runtime::forget_reserved();
        let fetched = hand.fetch_update(key, update);
        let Some(seen) = seen else {
            return drop(fetched.map_err(|error| stage.judge_write("a fetch_update", &error)));
        };
        match (fetched, runtime::last_reserved()) {
            (Ok(old), _) if old.as_deref().map(Value::of) != seen => {
                stage.fail("a fetch_update returns another value than it has replaced".to_owned());
            }
            (Ok(_), Some(point)) => {
                let sight = Sight::of_key(place.0, place.1.clone(), seen.map(Some));
                self.done((point, is_synced), Some((place, sight)));
            }
            (Ok(_), None) => {
                stage.history.borrow_mut().withdraw(stepper);
                if seen.is_some() || !deletes {
                    stage.fail("a fetch_update writes nothing".to_owned());
                }
                let sight = Sight::of_key(*family, key.clone(), None);
                let told = stage.saw("a fetch_update of nothing", look, (vec![sight], Ok(())));
                drop(told);
            }
            (Err(error), _) => self.not_done("a fetch_update", &error),
        }
    }

    /// Takes the first or last key out of a stretch that has no markers.
    fn pop(&mut self) {
        let (stage, is_first, family) = (self.stage, self.rng.bool(), self.rng.u8(..2));
        let span = beside_markers(span(family, self.arena, &mut self.rng));
        let (hand, is_synced) = self.hand(span.family);
        let look = stage.look();
        runtime::forget_reserved();
        // Which key it takes is known only after it has taken it.
        stage.history.borrow_mut().begin(self.stepper, Vec::new());
        let popped = match is_first {
            true => hand.pop_first(span.bounds()),
            false => hand.pop_last(span.bounds()),
        };
        let popped = match popped {
            Ok(popped) => popped,
            Err(error) => {
                self.not_done("a pop", &error);
                let is_there = self.is_in_doubt && runtime::last_reserved().is_some();
                stage.history.borrow_mut().is_blind |= is_there;
                return;
            }
        };
        let sight = end_of(&span, is_first, &popped);
        match (popped, runtime::last_reserved()) {
            (Some((key, _)), Some(point)) => {
                let place: Place = (span.family, key[..].into());
                stage.history.borrow_mut().wrote(self.stepper, vec![(place.clone(), None)]);
                self.done((point, is_synced), Some((place, sight)));
            }
            (Some(_), None) => stage.fail("a pop takes a key without a commit".to_owned()),
            (None, _) => {
                stage.history.borrow_mut().withdraw(self.stepper);
                drop(stage.saw("a pop of nothing", look, (vec![sight], Ok(()))));
            }
        }
    }

    /// Reports to the oracle a step that has committed, and what it found.
    fn done(&mut self, (point, is_synced): (u64, bool), found: Option<(Place, Sight)>) {
        let mut history = self.stage.history.borrow_mut();
        history.acknowledge(self.stepper, point, is_synced);
        let Some((place, sight)) = found else { return };
        let found = Found { items: vec![sight], ..Found::default() };
        let (level, committed) = (Isolation::Serializable, Some(point));
        let writes = vec![place];
        let story = Story::default();
        history.ended(Deal { level, point: None, committed, ended: 0, found, writes, story });
    }

    fn not_done(&mut self, doing: &str, error: &Error) {
        if !error.is_conflict() && !is_too_large(error) {
            self.stage.judge_write(doing, error);
        }
        self.failed(self.stepper, true, error);
    }
}
