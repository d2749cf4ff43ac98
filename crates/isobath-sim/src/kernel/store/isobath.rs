//! Isobath as a [`Store`].

use super::{Failure, Store};
use crate::existing::Existing;
use crate::kernel::check::{Found, Values, passing_values};
use crate::kernel::history::{FAMILIES, Plan, Value, Write};
use crate::position::position;
use isobath::{
    Batch, Commit, Db, Durability, Error, ErrorKind, Family, FamilyOptions, IoMode, Options, Range,
    WriteOptions,
};
use std::cell::Cell;
use std::path::Path;
use std::sync::OnceLock;

const PASSING: &str = "passing";

thread_local! {
    /// What this thread wrote last.
    static LAST: Cell<Option<Commit>> = const { Cell::new(None) };
}

struct Isobath {
    db: Db,
    families: OnceLock<[Family; FAMILIES.len() - 1]>,
    of_families: FamilyOptions,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let message = error.to_string();
        match error.kind() {
            _ if error.is_out_of_space() && error.is_retryable() => Failure::NoRoom(message),
            ErrorKind::Poisoned { .. } | ErrorKind::OutcomeUnknown { .. } => {
                Failure::Refused(message)
            }
            ErrorKind::Io { .. } => Failure::Io(message),
            _ => Failure::Other(message),
        }
    }
}

pub(super) fn open(dir: &Path, plan: &Plan) -> Result<Box<dyn Store>, Failure> {
    let of_families = FamilyOptions::new().separate_from(plan.separate_from);
    let options = Options::new().write_buffer(plan.write_buffer).block_cache(1 << 20);
    let options = options.family(of_families.clone()).io(
        match (plan.positional_log, plan.positional_tables) {
            (false, false) => IoMode::Mapped,
            // `Auto` maps the log where the file system allows it, and no table.
            (false, true) => IoMode::Auto,
            (true, _) => IoMode::Positional,
        },
    );
    Ok(Box::new(Isobath { db: options.open(dir)?, families: OnceLock::new(), of_families }))
}

fn collect(range: Range) -> Result<Values, Failure> {
    let mut values = Values::new();
    for row in range {
        let (key, value) = row?;
        values.insert(key.to_vec(), value.to_vec());
    }
    Ok(values)
}

impl Isobath {
    /// What a family holds, if there is one of this name.
    fn read(&self, name: &str) -> Result<Option<Values>, Failure> {
        self.db.family_if_exists(name)?.map(|family| collect(family.range(..))).transpose()
    }
}

impl Store for Isobath {
    fn read_all(&self) -> Result<Found, Failure> {
        let mut found = Found::default();
        for (name, values) in FAMILIES.iter().zip(&mut found.families) {
            *values = self.read(name)?.unwrap_or_default();
        }
        found.passing = self.read(PASSING)?;
        Ok(found)
    }

    fn create_families(&self) -> Result<(), Failure> {
        let with_options = |name: &'static str| (name, self.of_families.clone());
        let families = self.db.families([FAMILIES[1], FAMILIES[2]].map(with_options))?;
        self.families.set(families).map_err(|_| Failure::Other("created twice".to_owned()))
    }

    fn write(&self, writes: &[Write], is_synced: bool) -> Result<u64, Failure> {
        let families = self.families.get().expect("created before");
        let mut batch = Batch::new();
        for Write { place: (family, key), value } in writes {
            match (family.checked_sub(1), value.as_ref().map(Value::bytes)) {
                (None, Some(value)) => drop(batch.put(key, value)),
                (None, None) => drop(batch.delete(key)),
                (Some(other), Some(value)) => drop(batch.of(&families[other]).put(key, value)),
                (Some(other), None) => drop(batch.of(&families[other]).delete(key)),
            }
        }
        let durability = if is_synced { Durability::Sync } else { Durability::Process };
        let commit = self.db.with(WriteOptions::default().durability(durability)).write(batch)?;
        LAST.set(Some(commit));
        Ok(position(commit))
    }

    fn sync_to(&self, point: u64) -> Result<(), Failure> {
        let commit = LAST.get().filter(|commit| position(*commit) == point);
        Ok(self.db.sync_to(commit.expect("a writer syncs what it has just written"))?)
    }

    fn sync(&self) -> Result<u64, Failure> {
        let point = self.db.snapshot().read_point();
        self.db.sync_to(point)?;
        Ok(position(point))
    }

    fn flush(&self) -> Result<(), Failure> {
        Ok(self.db.flush()?)
    }

    fn compact(&self) -> Result<(), Failure> {
        Ok(self.db.default_family().compact(..)?)
    }

    fn step_family(&self, step: u64) -> Result<bool, Failure> {
        if step % 2 == 1 {
            // The family exists already if an earlier try created it and then found no room for its
            // values.
            let family = self.db.family((PASSING, self.of_families.clone()))?;
            for (key, value) in passing_values(step) {
                family.put(key, value)?;
            }
        } else {
            self.db.drop_family(&self.db.existing(PASSING)?)?;
        }
        Ok(true)
    }

    fn close(self: Box<Self>) -> Result<(), Failure> {
        Ok(self.db.close()?)
    }
}
