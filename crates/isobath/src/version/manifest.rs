//! The manifest in force: takes edits, and begins anew when it has grown.
//!
//! An edit holds on disk once [`Manifest::append`] has returned. Damage of it is known for damage,
//! rather than taken for the torn tail of a write that nobody was told of, once
//! [`Manifest::confirm`] has. The steps of an append and of a rollover, and what a power failure
//! leaves after each, are in `docs/internals/manifest.md`; the numbers in the comments here are
//! its. Invariants:
//!
//! - the file that is appended to was begun by this value: what another open wrote is never
//!   appended to;
//! - `CURRENT` names a manifest only once its bytes and its directory entry are synced, and no edit
//!   is written to it before the switch itself is synced;
//! - after a failure that leaves `CURRENT` or a synced record unknown, nothing is written any more.

use super::current;
use super::edit::Edit;
use super::names::{COUNTED_END, CURRENT_TMP, manifest_number, manifest_path};
use super::record::{put_record, sync_marker};
use super::state::State;
use crate::env::{Plant, demand_normal_priority, planted};
use crate::error::{Error, ErrorKind, PoisonCause, Result};
use crate::format::{FileHeader, FileKind};
use crate::vfs::{Directory, FileSystem, WriteFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A manifest shorter than this is not worth replacing: reading it takes a few milliseconds.
const ROLL_LEN_MIN: u64 = 4 << 20;

/// The manifest in force.
pub(crate) struct Manifest {
    fs: Arc<dyn FileSystem>,
    db: PathBuf,
    /// Held open: a sync of `CURRENT`'s name that fails is final, and must not fail for want of a
    /// file descriptor.
    open_dir: Arc<dyn Directory>,
    /// The manifest that `CURRENT` names.
    number: u64,
    /// Above the number of every manifest in the directory that counts.
    number_next: u64,
    /// The manifest in force, if it can be appended to.
    log: Option<Log>,
    /// An edit may be on disk although its append failed.
    in_doubt: bool,
    /// Why nothing more is written.
    poison: Option<PoisonCause>,
    roll_len_min: u64,
}

struct Log {
    file: Box<dyn WriteFile>,
    /// From this length on the next edit goes to a new manifest.
    roll_at: u64,
    /// The last record's sync marker survives power loss.
    is_confirmed: bool,
}

impl Manifest {
    /// Begins the manifest of a new database in a directory that is there and holds none.
    pub(super) fn create(fs: Arc<dyn FileSystem>, db: &Path, state: &State) -> Result<Manifest> {
        let mut manifest = Manifest::new(fs, db, 0, 1)?;
        manifest.roll(state)?;
        Ok(manifest)
    }

    /// The manifest `number`, which `CURRENT` names and which is not going to be appended to.
    pub(super) fn resume(fs: Arc<dyn FileSystem>, db: &Path, number: u64) -> Result<Manifest> {
        let entries = fs.list(db)?;
        let numbers = entries.iter().filter_map(|entry| manifest_number(&entry.name));
        let greatest = numbers.filter(|number| *number < COUNTED_END).max();
        let next = greatest.unwrap_or(number).max(number) + 1;
        Manifest::new(fs, db, number, next)
    }

    /// Puts a manifest of `state` in force, beside all others there are.
    pub(super) fn replace(fs: Arc<dyn FileSystem>, db: &Path, state: &State) -> Result<()> {
        let number = current::read(&*fs, db).unwrap_or(0);
        let next = Manifest::resume(Arc::clone(&fs), db, number)?.number_next;
        Manifest::new(fs, db, 0, next)?.roll(state)
    }

    /// The manifest `number` for somebody who only reads: it takes no edits.
    pub(super) fn for_reading(fs: Arc<dyn FileSystem>, db: &Path, number: u64) -> Result<Manifest> {
        let mut manifest = Manifest::new(fs, db, number, number + 1)?;
        manifest.poison = Some(PoisonCause::of(&Error::read_only()));
        Ok(manifest)
    }

    fn new(fs: Arc<dyn FileSystem>, db: &Path, number: u64, number_next: u64) -> Result<Manifest> {
        Ok(Manifest {
            open_dir: fs.open_dir(db)?,
            fs,
            db: db.to_owned(),
            number,
            number_next,
            log: None,
            in_doubt: false,
            poison: None,
            roll_len_min: ROLL_LEN_MIN,
        })
    }

    #[cfg(test)]
    pub(super) fn set_roll_len_min(&mut self, len: u64) {
        self.roll_len_min = len;
        if let Some(log) = &mut self.log {
            log.roll_at = log.roll_at.min(len);
        }
    }

    /// The number of the manifest in force.
    #[cfg(test)]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn path(&self) -> PathBuf {
        manifest_path(&self.db, self.number)
    }

    /// Where the next edit would lie in the manifest in force; 0 if it goes to a new one.
    pub(super) fn len(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.file.len())
    }

    /// Takes no further edit: a panic of the file system left unknown what is on disk.
    pub(super) fn poison_after_panic(&mut self) {
        let why = || PoisonCause::panicked("while it wrote to the manifest", "");
        self.poison.get_or_insert_with(why);
    }

    /// True if an edit whose append failed may be on disk all the same.
    #[cfg(test)]
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Why no further edit is taken, if so.
    pub(crate) fn poison(&self) -> Option<&PoisonCause> {
        self.poison.as_ref()
    }

    /// Writes and syncs an edit to `state`, the state before it.
    ///
    /// After an error that is retryable the edit does not hold, unless the process ends before
    /// another edit has been appended ([`Manifest::is_in_doubt`]); after any other the manifest
    /// takes no more.
    pub(crate) fn append(&mut self, edit: &Edit, state: &State) -> Result<()> {
        demand_normal_priority("writes to the manifest");
        if let Some(why) = &self.poison {
            return Err(Error::poisoned(why.clone()));
        }
        match &mut self.log {
            None => self.roll(state)?,
            Some(log) if log.file.len() >= log.roll_at => {
                // Until there is room for a new manifest, the old one serves.
                log.roll_at = log.roll_at.saturating_mul(2);
                match self.roll(state) {
                    Err(error) if self.poison.is_some() => return Err(error),
                    _ => {}
                }
            }
            Some(_) => {}
        }
        let number = self.number;
        let log = self.log.as_mut().expect("rolled above if it was missing");
        let offset = log.file.len();
        let mut bytes = Vec::new();
        put_record(&mut bytes, number, offset, &edit.encode())?;
        if let Err(error) = log.file.append(&bytes).and_then(|()| log.file.flush()) {
            self.log = None;
            self.in_doubt = true;
            return Err(self.poison_unless_retryable(error));
        }
        // The plant does without the second sync, too, which might write what the first one lost.
        log.is_confirmed = false;
        match log.file.sync() {
            Err(_) if planted(Plant::FailedEditIgnored) => log.is_confirmed = true,
            Err(error) => {
                self.log = None;
                self.in_doubt = true;
                return Err(self.poison_by(error));
            }
            Ok(()) => {}
        }
        let marker = sync_marker(number, offset);
        if log.file.append(&marker).and_then(|()| log.file.flush()).is_err() {
            // The edit holds; what lies behind it is unknown, so the next one goes elsewhere.
            self.log = None;
        }
        Ok(())
    }

    /// Makes the last edit's sync marker survive power loss: the next record's sync does so, too,
    /// but may be long in coming. `state` is the one that the edit led to.
    pub(crate) fn confirm(&mut self, state: &State) -> Result<()> {
        demand_normal_priority("writes to the manifest");
        if let Some(why) = &self.poison {
            return Err(Error::poisoned(why.clone()));
        }
        match &mut self.log {
            // There is no place for a sync marker; a new manifest's own covers all edits before it.
            None => return self.roll(state),
            Some(log) if log.is_confirmed => return Ok(()),
            Some(log) => log.file.sync().map(|()| log.is_confirmed = true),
        }
        .map_err(|error| self.poison_by(error))
    }

    /// The same by a new manifest, in which there is no edit that could be taken for a torn tail.
    pub(super) fn renew(&mut self, state: &State) -> Result<()> {
        if let Some(why) = &self.poison {
            return Err(Error::poisoned(why.clone()));
        }
        self.roll(state)
    }

    /// Replaces the manifest in force by a new one that begins with `state`.
    fn roll(&mut self, state: &State) -> Result<()> {
        let number = self.number_next;
        self.number_next = number + 1;
        let log = match self.write_successor(number, state) {
            Ok(log) => log,
            Err(error) => {
                self.remove_successor(number);
                return Err(self.poison_unless_retryable(error));
            }
        };
        // Step 3. A rename that failed for want of room is known not to have been done once
        // `CURRENT` says so.
        if let Err(error) = current::switch(&*self.fs, &self.db) {
            let is_undone = || current::read(&*self.fs, &self.db).is_ok_and(|at| at == self.number);
            if !error.is_retryable() || !is_undone() {
                return Err(self.poison_by(error));
            }
            self.remove_successor(number);
            return Err(error);
        }
        // Step 4.
        current::harden(&*self.open_dir).map_err(|error| self.poison_by(error))?;
        let old = std::mem::replace(&mut self.number, number);
        self.log = Some(log);
        self.in_doubt = false;
        // Step 5. A new database has no old manifest.
        if old != 0 {
            let _ = self.fs.remove(&manifest_path(&self.db, old));
        }
        Ok(())
    }

    /// What cannot be removed now is an orphan for the next open.
    fn remove_successor(&self, number: u64) {
        let _ = self.fs.remove(&manifest_path(&self.db, number));
        let _ = self.fs.remove(&self.db.join(CURRENT_TMP));
    }

    /// Steps 1 and 2: all of a new manifest, but not in force.
    fn write_successor(&self, number: u64, state: &State) -> Result<Log> {
        let header =
            FileHeader { kind: FileKind::Manifest, uuid: state.uuid(), number, generation: 0 };
        let mut bytes = header.encode().to_vec();
        let offset = bytes.len() as u64;
        put_record(&mut bytes, number, offset, &state.snapshot().encode())?;
        bytes.extend_from_slice(&sync_marker(number, offset));
        let mut file = self.fs.create(&manifest_path(&self.db, number))?;
        file.append(&bytes)?;
        file.sync()?;
        current::prepare(&*self.fs, &self.db, &*self.open_dir, number)?;
        let roll_at = self.roll_len_min.max(2 * bytes.len() as u64);
        Ok(Log { file, roll_at, is_confirmed: true })
    }

    fn poison_by(&mut self, error: Error) -> Error {
        self.poison = Some(PoisonCause::of(&error));
        error
    }

    fn poison_unless_retryable(&mut self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Io { .. } if !error.is_retryable() => self.poison_by(error),
            _ => error,
        }
    }
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifest")
            .field("number", &self.number)
            .field("is_in_doubt", &self.in_doubt)
            .field("poison", &self.poison)
            .finish_non_exhaustive()
    }
}
