//! An ingest: sorted keys that go to files, past log and memory, and become visible together.

use crate::db::Owner;
use crate::error::Result;
use crate::family::Family;
use crate::format::OpKind;
use crate::options::Expiry;
use crate::transact::Ingesting;
use crate::write::Commit;
use crate::writes::writes;
use std::path::Path;
use std::sync::Arc;

/// Takes sorted keys, any number of them, and makes them visible at once: one commit, however much
/// data it is. Its own methods write to the default family; [`Ingest::of`] gives access to another
/// one. The keys of each family come in ascending order, each once. They go straight to files, past
/// the log and the memtables, so the memory that it takes does not grow with what is written, but
/// for the filters and indexes of its files.
///
/// Nothing is visible to others before [`Ingest::commit`], which makes all of it visible together,
/// in all families and also after a crash. An ingest that is dropped removes its files; so does the
/// next open after a crash.
///
/// It replaces what the same keys held before, like any write.
///
/// An ingest keeps the database open, and may move from thread to thread.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("ingest")?;
/// let lengths = db.family("lengths")?;
/// let mut ingest = db.ingest()?;
/// for word in ["apple", "pear", "plum"] {
///     ingest.put(word, "fruit")?;
///     ingest.of(&lengths).put(word, [word.len() as u8])?;
/// }
/// assert_eq!(db.count(..)?, 0);
/// ingest.commit()?;
/// assert_eq!(db.count(..)?, 3);
/// assert_eq!(lengths.get("plum")?.unwrap(), [4]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The methods that write fail with [`ErrorKind::OutOfOrder`](crate::ErrorKind::OutOfOrder), which
/// names both keys, if a key is not behind the one before it in its family. It was not taken, and
/// the ingest goes on. Below a ceiling for memory ([`Options::memory`](crate::Options::memory))
/// they fail with [`ErrorKind::MemoryLimit`](crate::ErrorKind::MemoryLimit) while there is no room
/// for one more open file: nothing was taken, and the ingest goes on once values and iterators are
/// let go. One that holds the room itself, by some thousands of files, has to be committed. After
/// an error of the disk every later call fails: begin a new one.
#[must_use = "an ingest that is dropped removes its files"]
pub struct Ingest {
    owner: Arc<Owner>,
    ingesting: Ingesting,
}

impl Ingest {
    pub(crate) fn new(owner: &Arc<Owner>) -> Result<Ingest> {
        let ingesting = Ingesting::begin(owner.engine())?;
        Ok(Ingest { owner: owner.clone(), ingesting })
    }

    /// The part of the ingest that writes to `family`.
    pub fn of<'a>(&'a mut self, family: &'a Family) -> IngestFamily<'a> {
        IngestFamily { ingest: self, family }
    }

    /// Takes all keys of a file that a [`SortedFileWriter`](crate::SortedFileWriter) has written,
    /// and returns how many they are. The file is read twice, once to see that it is whole, and
    /// stays as it is. Its keys lie behind all that the family was given before. A database in
    /// memory finds files in its own memory only: see
    /// [`SortedFileWriter::create_in`](crate::SortedFileWriter::create_in).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corruption`](crate::ErrorKind::Corruption) with the place if the file is
    /// damaged or was not finished; [`ErrorKind::NewerFormat`](crate::ErrorKind::NewerFormat);
    /// [`ErrorKind::OutOfOrder`](crate::ErrorKind::OutOfOrder) if it begins before the last key, as
    /// files do that overlap; [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) for
    /// a table of a database, or for a file with more than puts and deletes;
    /// [`ErrorKind::MemoryLimit`](crate::ErrorKind::MemoryLimit) as for a put;
    /// [`ErrorKind::Io`](crate::ErrorKind::Io). Nothing of the file was taken then, and the ingest
    /// goes on, except after an error while it is copied, as of an entry that is longer than one
    /// may be below a ceiling for memory.
    pub fn add_file(&mut self, path: impl AsRef<Path>) -> Result<u64> {
        let engine = self.owner.engine();
        self.ingesting.add_file(engine, &engine.default_family, path.as_ref())
    }

    /// Makes all that was written visible at once. The data is on disk then; the commit is durable
    /// as any other, so by default after [`Db::sync`](crate::Db::sync). The ingest is empty
    /// afterwards, and may go on with any keys.
    ///
    /// Writers in the ranges between the first and the last key of its files wait meanwhile, for a
    /// flush of what they wrote before.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::LockTimeout`](crate::ErrorKind::LockTimeout) if transactions hold locks there
    /// for longer than [`Options::lock_timeout`](crate::Options::lock_timeout), or
    /// [`ErrorKind::Deadlock`](crate::ErrorKind::Deadlock);
    /// [`ErrorKind::UnknownFamily`](crate::ErrorKind::UnknownFamily) if a family was dropped; an
    /// error that [`is_out_of_space`](crate::Error::is_out_of_space) if a flush would have no room
    /// for the tables that it makes of the ingest's files. Nothing is visible after an error. After
    /// one of these the ingest is as it was, so the call may be repeated; after another error of
    /// the disk it cannot. After [`ErrorKind::OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown)
    /// only a reopen tells whether it survives, and the ingest takes nothing more.
    pub fn commit(&mut self) -> Result<Commit> {
        self.ingesting.commit(self.owner.engine())
    }

    fn operate(&mut self, kind: OpKind, key: &[u8], value: &[u8]) -> Result<()> {
        let engine = self.owner.engine();
        self.ingesting.operate(engine, &engine.default_family, kind, key, value)
    }

    fn put_expiring(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<()> {
        let engine = self.owner.engine();
        self.ingesting.put_expiring(engine, &engine.default_family, (key, value), expiry)
    }
}

impl std::fmt::Debug for Ingest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ingest({} keys)", self.ingesting.len())
    }
}

writes!(Ingest, self: &mut Self => Result<()>);

/// The part of a family in an [`Ingest`].
#[derive(Debug)]
pub struct IngestFamily<'a> {
    ingest: &'a mut Ingest,
    family: &'a Family,
}

writes!(IngestFamily<'_>, self: &mut Self => Result<()>);

impl IngestFamily<'_> {
    /// Like [`Ingest::add_file`], into this family.
    pub fn add_file(&mut self, path: impl AsRef<Path>) -> Result<u64> {
        let Ingest { owner, ingesting } = &mut *self.ingest;
        let family = self.family.of(owner.engine())?;
        ingesting.add_file(owner.engine(), family, path.as_ref())
    }

    fn operate(&mut self, kind: OpKind, key: &[u8], value: &[u8]) -> Result<()> {
        let Ingest { owner, ingesting } = &mut *self.ingest;
        let family = self.family.of(owner.engine())?;
        ingesting.operate(owner.engine(), family, kind, key, value)
    }

    fn put_expiring(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<()> {
        let Ingest { owner, ingesting } = &mut *self.ingest;
        let family = self.family.of(owner.engine())?;
        ingesting.put_expiring(owner.engine(), family, (key, value), expiry)
    }
}
