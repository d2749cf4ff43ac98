//! Opening and closing a database for one command.

use super::Outcome;
use crate::cli::{AsOf, CodecName, FamilyFlags, Keyspace};
use crate::failure::{Failure, Result, say};
use crate::progress::Progress;
use crate::text::Form;
use crate::when::{When, read_duration};
use isobath::{Codec, Db, Error, Event, Family, FamilyOptions, MAX_BATCH_LEN, Options, Reads};
use std::path::Path;
use std::time::SystemTime;

/// One command writes little, and log segments are made when a database opens: the smaller, the
/// sooner it is open. Large enough to recover what a server left without making many small tables
/// of it.
const WRITE_BUFFER_BYTES: u64 = 16 << 20;
/// With more, a transaction may hold no more in memory.
const WRITE_BUFFER_BYTES_MAX: u64 = 2 * MAX_BATCH_LEN as u64;
/// What a server left in the log is held in memory, however large its own budget is: eight times
/// this at most.
const READ_BUDGET_BYTES: u64 = 1 << 30;
const BLOCK_CACHE_BYTES: u64 = 16 << 20;

/// The options all commands open a database with; there must be one.
pub(super) fn options() -> Options {
    Options::new()
        .create_if_missing(false)
        .write_buffer(WRITE_BUFFER_BYTES)
        .block_cache(BLOCK_CACHE_BYTES)
}

/// The options of a family that is to be created.
pub(super) fn family_options(flags: &FamilyFlags) -> Result<FamilyOptions> {
    let options = match &flags.merge_operator {
        Some(name) => FamilyOptions::new().merge_operator(name),
        None => FamilyOptions::new(),
    };
    let ttl = flags.ttl.as_deref().map(read_duration).transpose()?;
    let bound = flags.delete_within.as_deref().map(read_duration).transpose()?;
    let options = options.ttl(ttl).separate_from(flags.separate_from).delete_within(bound);
    Ok(match flags.codec {
        None => options,
        Some(CodecName::None) => options.codec(Codec::None),
        Some(CodecName::Lz4) => options.codec(Codec::Lz4),
        Some(CodecName::Zstd) => options.codec(Codec::Zstd),
        Some(CodecName::Snappy) => options.codec(Codec::Snappy),
    })
}

/// Opens the database, has `work` done, and closes it. If the database cannot be closed, the
/// failure says that the work was done. An answer for which nothing was written stays the answer.
/// Work that holds too much in memory has changed nothing, and is done again with room for that.
pub(super) fn with_database(
    path: &Path,
    mut work: impl FnMut(&Db) -> Result<Outcome>,
) -> Result<Outcome> {
    let mut write_buffer = WRITE_BUFFER_BYTES;
    loop {
        let done = changing(options().write_buffer(write_buffer), path, &mut work);
        let needed = done.as_ref().err().and_then(Failure::needed_bytes);
        match needed.filter(|_| write_buffer < WRITE_BUFFER_BYTES_MAX) {
            None => return done,
            // A transaction may take half of it.
            Some(needed) => {
                let wanted = needed.max(write_buffer).saturating_mul(2);
                write_buffer = wanted.min(WRITE_BUFFER_BYTES_MAX);
            }
        }
    }
}

/// One attempt of [`with_database`], with these options.
pub(super) fn changing(
    options: Options,
    path: &Path,
    work: impl FnOnce(&Db) -> Result<Outcome>,
) -> Result<Outcome> {
    let db = listened(options).open(path)?;
    let done = work(&db);
    let closed = db.close();
    match (done?, closed) {
        (outcome, Ok(())) => Ok(outcome),
        (Outcome::Yes, Err(error)) => Err(Failure::Unclosed(error)),
        (Outcome::No, Err(error)) => {
            say(&format!("note: the database could not be closed: {error}"));
            Ok(Outcome::No)
        }
    }
}

/// The same for a command that only reads, and so touches nothing: also beside the process that has
/// the database open.
pub(super) fn reading<T>(path: &Path, work: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
    let options = options().read_only(true).write_buffer(READ_BUDGET_BYTES);
    let db = listened(options).open(path)?;
    let done = work(&db);
    let closed = db.close();
    let value = done?;
    closed?;
    Ok(value)
}

/// The options with a listener that tells what a person at a shell has to know.
fn listened(options: Options) -> Options {
    let recovery = Progress::new("recovering");
    options.on_event(move |event: &Event| match event {
        Event::RecoveryProgress { done_bytes, total_bytes, .. } => {
            recovery.set(*done_bytes, *total_bytes);
            if done_bytes == total_bytes {
                recovery.wipe();
            }
        }
        _ => {
            if let Some(text) = note_of(event) {
                recovery.note(&text);
            }
        }
    })
}

/// What a person at a shell has to know of an event.
fn note_of(event: &Event) -> Option<String> {
    let text = |bytes: &[u8]| Form::Text.show(bytes);
    Some(match event {
        Event::LogTailDiscarded { end, discarded_bytes, .. } => format!(
            "the log ended in {discarded_bytes} bytes at LSN {end:#x} that are not a whole record. They \
             were never acknowledged as durable, and were discarded"
        ),
        Event::ManifestTailDiscarded { path, offset, discarded_bytes, .. } => format!(
            "{} ended in {discarded_bytes} bytes at offset {offset} that are not a whole edit. Its \
             success was never reported, and they were discarded",
            path.display()
        ),
        Event::FilterMissing { family, filter, .. } => format!(
            "the column family \"{}\" has the compaction filter \"{}\", which only the program has that \
             uses it. So all values were kept",
            text(family.as_bytes()),
            text(filter.as_bytes())
        ),
        Event::FilterFailed { family, filter, key, failure, .. } => format!(
            "the compaction filter \"{}\" of the column family \"{}\" gave no verdict on the key \"{}\": \
             {failure}. Its value was kept",
            text(filter.as_bytes()),
            text(family.as_bytes()),
            text(key)
        ),
        Event::BackgroundError { job, error, .. } => format!("a background {job} failed: {error}"),
        _ => return None,
    })
}

/// [`with_database`], with one of its families.
pub(super) fn with_family(
    keyspace: &Keyspace,
    mut work: impl FnMut(&Family) -> Result<Outcome>,
) -> Result<Outcome> {
    with_database(&keyspace.database.path, |db| work(&db.existing(&keyspace.family)?))
}

/// Families that have to be there already.
pub(super) trait Existing {
    /// The family of this name, or [`ErrorKind::UnknownFamily`].
    fn existing(&self, name: &str) -> isobath::Result<Family>;
}

impl Existing for Db {
    fn existing(&self, name: &str) -> isobath::Result<Family> {
        self.family_if_exists(name)?.ok_or_else(|| Error::unknown_family(name))
    }
}

/// [`reading`], from one of its families, now or as of another time.
pub(super) fn reading_family<T>(
    keyspace: &Keyspace,
    when: &AsOf,
    work: impl FnOnce(&Reads<'_>) -> Result<T>,
) -> Result<T> {
    let when = when.as_of.as_ref().map(|text| When::read(text, SystemTime::now())).transpose()?;
    reading(&keyspace.database.path, |db| {
        let family = db.existing(&keyspace.family)?;
        let snapshot = match when {
            None => db.snapshot(),
            Some(When::Time(time)) => db.snapshot_as_of(time)?,
            Some(When::Point(point)) => db.snapshot_at(point)?,
        };
        work(&snapshot.of(&family))
    })
}
