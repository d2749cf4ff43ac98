//! Isobath as a [`Store`].

use super::{Failure, Store};
use crate::existing::Existing;
use crate::kernel::check::{Found, Values, passing_values};
use crate::kernel::history::{FAMILIES, How, Plan, STREAM_LEN, Value, Write};
use crate::position::position;
use isobath::{
    Batch, Commit, Db, Durability, Error, ErrorKind, Family, FamilyOptions, IoMode, Options, Sizes,
    Streamed, WriteOptions,
};
use std::cell::Cell;
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

const PASSING: &str = "passing";
/// No value lives so long in a test.
const FAR_AWAY: Duration = Duration::from_secs(1_000_000);
/// A stream is written by pieces of this length.
const PIECE_LEN: usize = 3000;

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

/// The engine's own error is within that of a stream.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.downcast::<Error>() {
            Ok(error) => error.into(),
            Err(other) => Failure::Other(other.to_string()),
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
    let mut sizes = Sizes::default();
    sizes.stream_frame_len = STREAM_LEN;
    let options = options.sizes(sizes);
    Ok(Box::new(Isobath { db: options.open(dir)?, families: OnceLock::new(), of_families }))
}

/// All that a family holds. Values that may be streams are read once more, as such.
fn collect(family: &Family) -> Result<Values, Failure> {
    let mut values = Values::new();
    for row in family.range(..) {
        let (key, value) = row?;
        if value.len() >= STREAM_LEN {
            let mut streamed = Vec::new();
            if let Some(mut reader) = family.get_reader(&key)? {
                reader.read_to_end(&mut streamed)?;
            }
            if value != streamed {
                let key = key.escape_ascii();
                return Err(Failure::Other(format!("{key} is another value as a stream")));
            }
        }
        values.insert(key.to_vec(), value.to_vec());
    }
    Ok(values)
}

impl Isobath {
    /// What a family holds, if there is one of this name.
    fn read(&self, name: &str) -> Result<Option<Values>, Failure> {
        self.db.family_if_exists(name)?.map(|family| collect(&family)).transpose()
    }

    fn streamed(&self, family: &Family, value: &[u8]) -> Result<Streamed, Failure> {
        let mut writer = self.db.value_writer(family)?;
        for piece in value.chunks(PIECE_LEN) {
            writer.write_all(piece)?;
        }
        Ok(writer.finish()?)
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
        let named = self.families.get().expect("created before");
        let default = self.db.default_family();
        let mut batch = Batch::new();
        for Write { place: (family, key), value, how } in writes {
            let family = family.checked_sub(1).map_or(&default, |other| &named[other]);
            let value = value.as_ref().map(Value::bytes);
            match (how, value) {
                (How::Range { .. }, _) => {
                    let end = how.range_end().expect("a range has an end");
                    batch.of(family).delete_range(&key[..]..&end[..]);
                }
                (_, None) => drop(batch.of(family).delete(key)),
                (How::Plainly, Some(value)) => drop(batch.of(family).put(key, value)),
                (How::Ending, Some(value)) => drop(batch.of(family).put_ttl(key, value, FAR_AWAY)),
                (How::Streamed, Some(value)) => {
                    let streamed = self.streamed(family, &value)?;
                    batch.of(family).put_streamed(key, streamed);
                }
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
