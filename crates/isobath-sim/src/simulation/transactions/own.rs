//! What a transaction has written so far, with its savepoints: its reads must show these writes.

use super::super::observe::Sight;
use super::super::oracle::show_place;
use super::super::values::{Key, Place, Value};
use std::collections::BTreeMap;
use std::ops::Bound;

/// What was written, and whether ranges were deleted, which may have held no key.
#[derive(Clone, Debug, Default)]
struct Writes {
    places: BTreeMap<Place, Option<Value>>,
    has_ranges: bool,
}

/// The writes of a transaction under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Own {
    writes: Writes,
    /// In the order in which they were set; several may have one name.
    savepoints: Vec<(String, Writes)>,
}

impl Own {
    pub(super) fn write(&mut self, place: Place, value: Option<Value>) {
        self.writes.places.insert(place, value);
    }

    /// Deletes a range. `places` are those of the range that a run can write.
    pub(super) fn delete_range(&mut self, places: impl Iterator<Item = Place>) {
        self.writes.has_ranges = true;
        places.for_each(|place| self.write(place, None));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.writes.places.is_empty() && !self.writes.has_ranges
    }

    pub(super) fn all(&self) -> Vec<(Place, Option<Value>)> {
        self.writes.places.iter().map(|(place, value)| (place.clone(), *value)).collect()
    }

    pub(super) fn places(&self) -> Vec<Place> {
        self.writes.places.keys().cloned().collect()
    }

    pub(super) fn save(&mut self, name: &str) {
        self.savepoints.push((name.to_owned(), self.writes.clone()));
    }

    pub(super) fn has_savepoint(&self, name: &str) -> bool {
        self.savepoints.iter().any(|(known, _)| known == name)
    }

    /// Rolls back to the newest savepoint of a name, which stays; later ones are removed.
    pub(super) fn roll_back_to(&mut self, name: &str) {
        if let Some(at) = self.savepoints.iter().rposition(|(known, _)| known == name) {
            self.savepoints.truncate(at + 1);
            self.writes = self.savepoints[at].1.clone();
        }
    }

    /// Removes the newest savepoint of a name, and later ones. What was written stays.
    pub(super) fn release(&mut self, name: &str) {
        if let Some(at) = self.savepoints.iter().rposition(|(known, _)| known == name) {
            self.savepoints.truncate(at);
        }
    }

    /// Checks that a sight shows the transaction's own writes, and removes them. What remains are
    /// the stretches between them.
    pub(super) fn take_out(&self, sight: Sight) -> Result<Vec<Sight>, String> {
        let (lower, upper) = (Bound::Included((sight.family, Key::from([]))), Bound::Unbounded);
        let own: Vec<_> = self
            .writes
            .places
            .range((lower, upper))
            .take_while(|((family, _), _)| *family == sight.family)
            .filter(|(place, _)| sight.covers(place))
            .collect();
        let Sight { family, mut lower, upper, mut found } = sight;
        let mut parts = Vec::with_capacity(own.len() + 1);
        for (place, value) in own {
            let key = &place.1;
            let is_right = match (found.remove(key), value) {
                (None, None) | (Some(None), Some(_)) => true,
                (Some(Some(found)), Some(value)) => found == *value,
                _ => false,
            };
            if !is_right {
                return Err(format!(
                    "a transaction does not see what it wrote at {}: {value:?}",
                    show_place(place)
                ));
            }
            let behind = found.split_off(key);
            let before = std::mem::replace(&mut found, behind);
            let end = Bound::Excluded(key.clone());
            parts.push(Sight { family, lower, upper: end.clone(), found: before });
            lower = end;
        }
        parts.push(Sight { family, lower, upper, found });
        parts.retain(|part| !part.is_empty() || !part.found.is_empty());
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(key: &str) -> Place {
        (0, key.as_bytes().into())
    }

    fn value(text: &str) -> Value {
        Value::of(text.as_bytes())
    }

    fn scan(lower: &str, upper: &str, found: &[(&str, &str)]) -> Sight {
        let found = found.iter().map(|(key, text)| (key.as_bytes().into(), Some(value(text))));
        let bound = |key: &str| Bound::Included(key.as_bytes().into());
        Sight { family: 0, lower: bound(lower), upper: bound(upper), found: found.collect() }
    }

    #[test]
    fn what_it_wrote_is_taken_out_of_a_scan_and_must_be_there() {
        let mut own = Own::default();
        own.write(place("b"), Some(value("mine")));
        own.write(place("d"), None);
        let seen = scan("a", "e", &[("a", "1"), ("b", "mine"), ("c", "2"), ("e", "3")]);
        let parts = own.take_out(seen).unwrap();
        let keys = |part: &Sight| part.found.keys().map(|key| key[0]).collect::<Vec<_>>();
        assert_eq!(
            parts.iter().map(keys).collect::<Vec<_>>(),
            [vec![b'a'], vec![b'c'], vec![b'e']]
        );
        for hidden in ["b", "d"] {
            assert!(parts.iter().all(|part| !part.covers(&place(hidden))), "{hidden}");
        }
        for shown in ["a", "aa", "c", "cc", "e"] {
            assert!(parts.iter().any(|part| part.covers(&place(shown))), "{shown}");
        }
        for wrong in [&[("b", "old")][..], &[], &[("b", "mine"), ("d", "still")]] {
            own.take_out(scan("a", "e", wrong)).unwrap_err();
        }
        let outside = own.take_out(scan("e", "f", &[("e", "3")])).unwrap();
        assert_eq!(outside.len(), 1);
        assert!(own.take_out(scan("b", "b", &[("b", "mine")])).unwrap().is_empty());
    }

    #[test]
    fn rolling_back_keeps_the_savepoint_and_releasing_keeps_the_writes() {
        let mut own = Own::default();
        own.write(place("a"), None);
        own.save("one");
        own.write(place("b"), None);
        own.save("two");
        own.write(place("c"), None);
        own.roll_back_to("one");
        assert_eq!(own.places(), [place("a")]);
        assert!(own.has_savepoint("one") && !own.has_savepoint("two"));
        own.write(place("d"), None);
        own.release("one");
        assert_eq!(own.places(), [place("a"), place("d")]);
        assert!(!own.has_savepoint("one"));
    }
}
