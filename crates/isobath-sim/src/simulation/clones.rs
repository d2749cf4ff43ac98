//! Clones of the second family. What is in one must be what its source held at one moment of the
//! call; it must stay so, whatever becomes of the source, and be whole or not there after a crash.
//! Who began before finds nothing in it, and a transaction that has done so does not commit.

use super::families::{Change, Content};
use super::observe::Sight;
use super::runtime;
use super::values::{Value, Values};
use super::workload::Stage;
use crate::existing::Existing;
use isobath::{Batch, Db, Family, Snapshot, Transaction, WriteOptions};
use std::hash::{DefaultHasher, Hash, Hasher};

/// How the names of clones begin.
const COPY: &str = "copy";

/// True for the name of a clone.
pub(crate) fn is_copy(name: &str) -> bool {
    name.starts_with(COPY)
}

fn digest(values: &Values) -> Vec<u8> {
    let mut hasher = DefaultHasher::new();
    for ((_, key), value) in values {
        (&**key, format!("{value:?}")).hash(&mut hasher);
    }
    hasher.finish().to_le_bytes().to_vec()
}

/// Everything in a clone, as if it were in the second family.
fn all_of(copy: &Family) -> isobath::Result<Values> {
    let mut values = Values::new();
    for item in copy.range(..) {
        let (key, value) = item?;
        values.insert((1, key[..].into()), Value::of(&value));
    }
    Ok(values)
}

/// What a clone of this name holds, for a comparison.
pub(crate) fn content(db: &Db, name: &str) -> isobath::Result<Content> {
    Ok(Some(digest(&all_of(&db.existing(name)?)?)))
}

impl Stage {
    /// Clones the second family.
    pub(crate) fn clone_side(&self, nth: u32, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let name = format!("{COPY}{:08x}{nth}", rng.u32(..));
        let (snapshot, tx) = (self.db.snapshot(), self.db.begin());
        for _ in 0..rng.u8(..40) {
            runtime::yield_now();
        }
        let mut look = self.look();
        self.change(Change::Create { name: name.clone() }, || {
            self.db.clone_family(&self.side, &name).map(drop)
        })?;
        self.history.borrow_mut().pinned(&mut look);
        let copy = self.db.existing(&name)?;
        let values = all_of(&copy)?;
        self.saw("a clone", look, (vec![Sight::of_family(1, &values)], Ok(())))?;
        self.look_from_before(&copy, &values, (&snapshot, tx))?;
        let mut expected = values;
        if rng.bool() {
            let mut batch = Batch::new();
            batch.of(&copy).put(b"own", &name);
            if let Some((_, first)) = expected.keys().next().cloned() {
                batch.of(&copy).delete(&first);
                expected.remove(&(1, first));
            }
            self.db.with(WriteOptions::sync()).write(batch)?;
            expected.insert((1, b"own"[..].into()), Value::of(name.as_bytes()));
        }
        self.history.borrow_mut().guests.put(&name, &digest(&expected));
        Ok(())
    }

    /// Looks at a clone that holds `values` from a snapshot, and in a transaction, that are older.
    fn look_from_before(
        &self,
        copy: &Family,
        values: &Values,
        (snapshot, tx): (&Snapshot, Transaction),
    ) -> isobath::Result<()> {
        let seen = snapshot.of(copy).count(..)?;
        if seen != 0 {
            self.fail(format!("a snapshot from before a clone sees {seen} keys in it"));
        }
        let Some((_, key)) = values.keys().next() else { return Ok(()) };
        if tx.of(copy).get(key)?.is_some() {
            self.fail("a transaction from before a clone sees a key in it".to_owned());
        }
        tx.of(copy).delete(b"absent")?;
        match tx.commit() {
            Ok(_) => self.fail("a commit relies on what a clone did not hold".to_owned()),
            Err(error) if !error.is_conflict() => return Err(error),
            _ => {}
        }
        Ok(())
    }

    /// Checks that a clone still holds what it held.
    pub(crate) fn check_copy(&self, name: &str) -> isobath::Result<()> {
        let (found, expected) = (content(&self.db, name)?, self.history.borrow().guests.held(name));
        if expected.is_some() && found != expected {
            self.fail(format!("{name}, a clone, holds something else than at first"));
        }
        Ok(())
    }
}
