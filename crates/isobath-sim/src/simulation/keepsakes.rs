//! Snapshots and ranges that are kept for most of a life, across many flushes, compactions and
//! drops of families, and then read again: they must give the same answers as at first.

use super::observe::Sight;
use super::values::{Value, Values};
use super::workload::Stage;
use crate::position::position;
use isobath::{ErrorKind, Family, Range, Snapshot};

/// How many are kept at once.
const KEPT_MAX: usize = 5;

/// A snapshot that is kept, and what it answered at first.
pub(crate) struct Keepsake {
    snapshot: Snapshot,
    values: Values,
    /// A range over the second family, of which half is read.
    range: Range<'static>,
    /// The part of the range that is not read yet.
    rest: Values,
    guests: Vec<Guest>,
}

/// A family that is created and dropped meanwhile.
struct Guest {
    family: Family,
    /// Of the key that each of them has.
    value: Option<Value>,
    /// A range over it, and the part of it that is not read yet.
    range: Range<'static>,
    rest: Values,
}

/// The number of a guest among families, where only its own keys are told apart.
const GUEST: u8 = 2;

impl Stage {
    /// Keeps a snapshot, or reads a kept one again.
    pub(crate) fn keep(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        self.look_back(rng)?;
        let kept = self.keepsakes.borrow().len();
        if kept < KEPT_MAX && rng.bool() {
            let keepsake = self.new_keepsake(rng)?;
            self.keepsakes.borrow_mut().push(keepsake);
            return Ok(());
        }
        if kept == 0 {
            return Ok(());
        }
        let keepsake = self.keepsakes.borrow_mut().swap_remove(rng.usize(..kept));
        let again = self.check_again(&keepsake);
        if rng.u8(..4) > 0 {
            self.keepsakes.borrow_mut().push(keepsake);
        }
        again
    }

    fn new_keepsake(&self, rng: &mut fastrand::Rng) -> isobath::Result<Keepsake> {
        let (look, snapshot) = self.take_snapshot();
        let values = self.all_of(&snapshot)?;
        self.check_distinct(&values)?;
        self.remember(&snapshot, &values, rng);
        let sights = vec![Sight::of_family(0, &values), Sight::of_family(1, &values)];
        self.saw("a kept snapshot", look, (sights, Ok(())))?;
        let mut range = snapshot.of(&self.side).range(..);
        let side = values.iter().filter(|((family, _), _)| *family == 1);
        let mut rest: Values = side.map(|(place, value)| (place.clone(), *value)).collect();
        for _ in 0..rng.usize(..=rest.len()) {
            self.compare(range.next().transpose()?, rest.pop_first());
        }
        let guests = self.guests_of(&snapshot, rng)?;
        Ok(Keepsake { snapshot, values, range, rest, guests })
    }

    /// Checks that the keys which a snapshot sees are counted: their values are stored.
    fn check_distinct(&self, values: &Values) -> isobath::Result<()> {
        let about = self.side.distinct_keys()?.keys;
        let seen = values.keys().filter(|(family, _)| *family == 1).count() as u64;
        // What a filter removed while the snapshot was taken is in an earlier tree alone.
        let is_held = self.db.metrics().filter_held_views > 0;
        if !is_held && about + 3 < seen - seen / 8 {
            self.fail(format!("{seen} keys have values, and about {about} are told"));
        }
        Ok(())
    }

    fn guests_of(
        &self,
        snapshot: &Snapshot,
        rng: &mut fastrand::Rng,
    ) -> isobath::Result<Vec<Guest>> {
        let mut guests = Vec::new();
        for name in self.db.list_families().iter().filter(|name| name.starts_with("guest")) {
            // Another task may drop the family meanwhile, or may have dropped it before the
            // snapshot.
            let Some(family) = self.db.family_if_exists(name)? else { continue };
            match self.guest_of(snapshot, family, rng) {
                Ok(guest) => guests.push(guest),
                Err(error) if matches!(error.kind(), ErrorKind::UnknownFamily { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(guests)
    }

    fn guest_of(
        &self,
        snapshot: &Snapshot,
        family: Family,
        rng: &mut fastrand::Rng,
    ) -> isobath::Result<Guest> {
        let value = snapshot.of(&family).get("key")?.as_deref().map(Value::of);
        let mut rest = Values::new();
        for item in snapshot.of(&family).range(..) {
            let (key, value) = item?;
            rest.insert((GUEST, key[..].into()), Value::of(&value));
        }
        let mut range = snapshot.of(&family).range(..);
        for _ in 0..rng.usize(..=rest.len()) {
            self.compare(range.next().transpose()?, rest.pop_first());
        }
        Ok(Guest { family, value, range, rest })
    }

    fn compare(
        &self,
        item: Option<(isobath::Value, isobath::Value)>,
        expected: Option<((u8, super::values::Key), Value)>,
    ) {
        let found = item.as_ref().map(|(key, value)| (&**key, Value::of(value)));
        let expected = expected.as_ref().map(|((_, key), value)| (&**key, *value));
        if found != expected {
            self.fail(format!("a kept range yields {found:?} where it had {expected:?}"));
        }
    }

    fn check_again(&self, keepsake: &Keepsake) -> isobath::Result<()> {
        let again = self.all_of(&keepsake.snapshot)?;
        if again != keepsake.values {
            let other =
                again.iter().find(|(place, value)| keepsake.values.get(*place) != Some(*value));
            let lost = keepsake.values.keys().find(|place| !again.contains_key(place));
            self.fail(format!(
                "a snapshot kept at {} answers otherwise than at first: it has {other:?}, and no {lost:?}",
                position(keepsake.snapshot.read_point())
            ));
        }
        for Guest { family, value, .. } in &keepsake.guests {
            let again = keepsake.snapshot.of(family).get("key")?.as_deref().map(Value::of);
            if again != *value {
                let (name, point) = (family.name(), position(keepsake.snapshot.read_point()));
                self.fail(format!(
                    "a snapshot kept at {point} reads {again:?} in {name}, it was {value:?}"
                ));
            }
        }
        Ok(())
    }

    /// Reads all of them once more, to the end of their ranges.
    pub(crate) fn check_keepsakes(&self) {
        let kept = self.keepsakes.take();
        for mut keepsake in kept {
            let Keepsake { range, rest, guests, .. } = &mut keepsake;
            let walked = self.walk_on(range, rest).and_then(|()| {
                guests
                    .iter_mut()
                    .try_for_each(|guest| self.walk_on(&mut guest.range, &mut guest.rest))
            });
            let again = walked.and_then(|()| self.check_again(&keepsake));
            if let Err(error) = again {
                self.judge_read("a kept snapshot", &error);
            }
        }
    }

    fn walk_on(&self, range: &mut Range<'static>, rest: &mut Values) -> isobath::Result<()> {
        loop {
            let item = range.next().transpose()?;
            let is_over = item.is_none();
            self.compare(item, rest.pop_first());
            if is_over || self.is_over() {
                return Ok(());
            }
        }
    }
}

impl Keepsake {
    /// Checks that it reports its database as closed once that is closed.
    pub(crate) fn outlive(mut self) -> Result<(), String> {
        match self.snapshot.get("key000") {
            Err(error) if error.is_closed() => {}
            other => return Err(format!("a snapshot of a closed database answers {other:?}")),
        }
        match self.range.next() {
            Some(Err(error)) if error.is_closed() => Ok(()),
            item => Err(format!("a range of a closed database yields {item:?}")),
        }
    }
}
