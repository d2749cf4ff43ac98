//! What readers do: gets, scans both ways, walks of a cursor, and snapshots, all told to the oracle.

use super::runtime;
use super::values::{Key, Place, Value, Values};
use super::workload::Stage;
use isobath::Snapshot;
use std::ops::Bound;

impl Stage {
    /// One reader's life.
    pub(crate) fn read(&self, count: u32, mut rng: fastrand::Rng) {
        for _ in 0..count {
            if self.is_over() {
                return;
            }
            let result = match rng.u8(..10) {
                0 => self.contains(&mut rng),
                1..6 => self.get(&mut rng),
                6 => self.scan(&mut rng),
                7 => self.multi_get(&mut rng),
                _ => self.snapshot(&mut rng),
            };
            if let Err(error) = result {
                self.judge_read("a read", &error);
            }
        }
    }

    fn get(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let (family, key) = self.keys.place(rng);
        let from = self.history.borrow().newest_acknowledged();
        let value =
            if family == 0 { self.db.get(&key)? } else { self.db.get_in(&self.side, &key)? };
        let value = value.map(|value| Value::of(&value));
        self.history.borrow_mut().see("a get", (family, key), value, from, false);
        Ok(())
    }

    fn contains(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let key = self.keys.key(rng);
        let is_there = self.db.contains(&key)?;
        // Not timed together with a value, so only told wrong where nobody ever wrote.
        if is_there && !self.history.borrow().was_written(&(0, key.clone())) {
            self.fail(format!("{} is there, and was never written", String::from_utf8_lossy(&key)));
        }
        Ok(())
    }

    fn multi_get(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let keys: Vec<Key> = (0..rng.usize(1..6)).map(|_| self.keys.key(rng)).collect();
        let from = self.history.borrow().newest_acknowledged();
        let values = self.db.multi_get(&keys)?;
        for (key, value) in keys.into_iter().zip(values) {
            let value = value.map(|value| Value::of(&value));
            self.history.borrow_mut().see("a multi_get", (0, key), value, from, false);
        }
        Ok(())
    }

    /// A scan without a snapshot, of part of a family, forward or backward.
    fn scan(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let (lower, upper) = self.keys.range(rng);
        let from = self.history.borrow().newest_acknowledged();
        let range = self.db.range_in(&self.side, &*lower..=&*upper);
        let found: isobath::Result<Values> = match rng.bool() {
            true => range.map(entry).collect(),
            false => range.rev().map(entry).collect(),
        };
        let found = found?;
        for key in self.keys.within(&lower, &upper) {
            let place = (1, key.clone());
            let value = found.get(&place).copied();
            self.history.borrow_mut().see("a scan", place, value, from, false);
        }
        Ok(())
    }

    /// A snapshot, kept for a while: everything at exactly one point, both ways, in both families.
    fn snapshot(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let snapshot = self.db.snapshot();
        let acknowledged = self.history.borrow().newest_acknowledged();
        if snapshot.point() < acknowledged {
            self.fail(format!("a snapshot at {} misses commit {acknowledged}", snapshot.point()));
        }
        for _ in 0..rng.u8(0..20) {
            runtime::yield_now();
        }
        let side: isobath::Result<Values> =
            snapshot.range_in::<&[u8]>(&self.side, ..).map(entry).collect();
        let back: isobath::Result<Values> =
            snapshot.range_in::<&[u8]>(&self.side, ..).rev().map(entry).collect();
        let side = side?;
        if side != back? {
            self.fail("a snapshot reads differently backward".to_owned());
        }
        for key in self.keys.all() {
            let place = (1, key.clone());
            let value = side.get(&place).copied();
            let point = snapshot.point();
            self.history.borrow_mut().see("a snapshot's scan", place, value, point, true);
        }
        self.walk(&snapshot, &side, rng)?;
        for _ in 0..4 {
            let key = self.keys.key(rng);
            let value = snapshot.get(&key)?.map(|value| Value::of(&value));
            self.history.borrow_mut().see(
                "a snapshot's get",
                (0, key),
                value,
                snapshot.point(),
                true,
            );
        }
        Ok(())
    }

    /// Seeks and steps of a cursor, over a snapshot whose second family is `side`.
    fn walk(
        &self,
        snapshot: &Snapshot,
        side: &Values,
        rng: &mut fastrand::Rng,
    ) -> isobath::Result<()> {
        let mut cursor = snapshot.cursor_in::<&[u8]>(&self.side, ..)?;
        let mut at: Option<&Place> = None;
        for _ in 0..rng.u8(..16) {
            let target = (1, self.keys.key(rng));
            let after = |place: &Place| (Bound::Excluded(place.clone()), Bound::Unbounded);
            at = match rng.u8(..6) {
                0 => cursor.seek(&target.1).map(|()| side.range(&target..).next())?,
                1 => {
                    cursor.seek_for_prev(&target.1).map(|()| side.range(..=&target).next_back())?
                }
                2 => cursor.seek_to_first().map(|()| side.first_key_value())?,
                3 => cursor.seek_to_last().map(|()| side.last_key_value())?,
                4 => cursor.next().map(|()| at.and_then(|at| side.range(after(at)).next()))?,
                _ => cursor.prev().map(|()| at.and_then(|at| side.range(..at).next_back()))?,
            }
            .map(|(place, _)| place);
            let expected = at.map(|at| (&*at.1, side[at]));
            if cursor.entry().map(|(key, value)| (key, Value::of(value))) != expected {
                let shown = cursor.key().map(String::from_utf8_lossy);
                self.fail(format!("a cursor stands on {shown:?}, a scan says {at:?}"));
            }
        }
        Ok(())
    }
}

fn entry(
    item: isobath::Result<(isobath::Slice, isobath::Slice)>,
) -> isobath::Result<(Place, Value)> {
    item.map(|(key, value)| ((1, key[..].into()), Value::of(&value)))
}
