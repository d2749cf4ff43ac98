//! The manifest in force. It takes edits, and is replaced by a new manifest when it has grown.
//!
//! An edit is durable once [`Manifest::append`] has returned. After [`Manifest::confirm`], damage
//! to the edit is reported as corruption; before, it looks like the torn tail of an unfinished
//! write. The steps of an append and of a rollover, and what a power failure leaves after each, are
//! in `docs/internals/manifest.md`; comments here use its numbers. Invariants:
//!
//! - The file that is appended to was begun by this value. A manifest that another open wrote is
//!   never appended to.
//! - `CURRENT` names a manifest only after the manifest's bytes and its directory entry are synced.
//!   No edit is written to that manifest before the switch itself is synced.
//! - After a failure that leaves the state of `CURRENT` unknown, or a failed sync for another cause
//!   than want of room, of memory or of file handles ([`Error::is_retryable`]), nothing more is
//!   written. After a failed sync nothing more is written to the same file. While there is no room
//!   or handle to look at `CURRENT`, nothing is written either.

use super::current;
use super::edit::Edit;
use super::names::{COUNTED_END, CURRENT_TMP, manifest_number, manifest_path};
use super::parts::payloads;
use super::record::{PAYLOAD_LEN_MAX, demand_payload_len, put_record, sync_marker};
use super::state::State;
use crate::env::{Plant, demand_normal_priority, planted};
use crate::error::{Error, ErrorKind, PoisonCause, Result};
use crate::format::{FILE_HEADER_LEN, FileHeader, FileKind};
use crate::vfs::{Directory, FileSystem, WriteFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A manifest shorter than this is not replaced: reading it takes a few milliseconds.
const ROLL_LEN_MIN: u64 = 4 << 20;

/// The manifest in force.
pub(crate) struct Manifest {
    fs: Arc<dyn FileSystem>,
    db: PathBuf,
    /// Held open: a failed sync of `CURRENT`'s name is final, so it must not fail for lack of a
    /// file descriptor.
    open_dir: Arc<dyn Directory>,
    /// The manifest that `CURRENT` names.
    number: u64,
    /// A number above those of all manifests in the directory. File numbers of [`COUNTED_END`] and
    /// more are ignored.
    number_next: u64,
    /// The manifest in force, if this value began it and it takes edits.
    log: Option<Log>,
    /// Manifests that were in force and are to be removed.
    replaced: Vec<PathBuf>,
    /// True if an edit may be on disk although its append failed.
    in_doubt: bool,
    /// The manifest that `CURRENT` may name by now, and the error that it was given: its switch
    /// found no room, and it was not possible to look whether it happened.
    unsettled: Option<(u64, Error)>,
    /// Why nothing more is written, if so.
    poison: Option<PoisonCause>,
    roll_len_min: u64,
    /// An edit that is longer takes several records.
    payload_len_max: usize,
}

struct Log {
    file: Box<dyn WriteFile>,
    /// Once the file is this long, the next edit goes to a new manifest.
    roll_at: u64,
    /// True if the last record's sync marker is durable.
    is_confirmed: bool,
}

impl Manifest {
    /// Begins the manifest of a new database in an existing directory that holds none.
    pub(super) fn create(fs: Arc<dyn FileSystem>, db: &Path, state: &State) -> Result<Manifest> {
        let mut manifest = Manifest::new(fs, db, 0, 1)?;
        manifest.roll(state)?;
        Ok(manifest)
    }

    /// The manifest `number`, which `CURRENT` names. It is not appended to.
    pub(super) fn resume(fs: Arc<dyn FileSystem>, db: &Path, number: u64) -> Result<Manifest> {
        let entries = fs.list(db)?;
        let numbers = entries.iter().filter_map(|entry| manifest_number(&entry.name));
        let greatest = numbers.filter(|number| *number < COUNTED_END).max();
        let next = greatest.unwrap_or(number).max(number) + 1;
        Manifest::new(fs, db, number, next)
    }

    /// Puts a new manifest of `state` in force. Other manifests in the directory stay.
    pub(super) fn replace(fs: Arc<dyn FileSystem>, db: &Path, state: &State) -> Result<()> {
        let number = current::read(&*fs, db).unwrap_or(0);
        let next = Manifest::resume(Arc::clone(&fs), db, number)?.number_next;
        Manifest::new(fs, db, 0, next)?.roll(state)
    }

    /// The manifest `number` for a reader: it takes no edits.
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
            replaced: Vec::new(),
            in_doubt: false,
            unsettled: None,
            poison: None,
            roll_len_min: ROLL_LEN_MIN,
            payload_len_max: PAYLOAD_LEN_MAX,
        })
    }

    #[cfg(test)]
    pub(super) fn set_roll_len_min(&mut self, len: u64) {
        self.roll_len_min = len;
        if let Some(log) = &mut self.log {
            log.roll_at = log.roll_at.min(len);
        }
    }

    /// Lets an edit take several records if it is longer than this.
    #[cfg(test)]
    pub(super) fn set_payload_len_max(&mut self, len: usize) {
        self.payload_len_max = len;
    }

    /// The number of the manifest in force.
    #[cfg(test)]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn path(&self) -> PathBuf {
        manifest_path(&self.db, self.number)
    }

    /// The offset of the next edit in the manifest in force; 0 if the next edit goes to a new one.
    pub(super) fn len(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.file.len())
    }

    /// Takes no further edit: after a panic of the file system it is unknown what is on disk.
    pub(super) fn poison_after_panic(&mut self) {
        let why = || PoisonCause::panicked("while it wrote to the manifest", "");
        self.poison.get_or_insert_with(why);
    }

    /// True if an edit whose append failed may be on disk.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// Why no further edit is taken, if so.
    pub(crate) fn poison(&self) -> Option<&PoisonCause> {
        self.poison.as_ref()
    }

    /// Writes and syncs an edit to `state`, the state before it.
    ///
    /// After a retryable error the edit does not count, except if the process ends before another
    /// edit has been appended ([`Manifest::is_in_doubt`]). After any other error the manifest takes
    /// no more edits.
    pub(crate) fn append(&mut self, edit: &Edit, state: &State) -> Result<()> {
        demand_normal_priority("writes to the manifest");
        self.demand_settled()?;
        match &mut self.log {
            None => self.roll(state)?,
            Some(log) if log.file.len() >= log.roll_at => {
                // Until there is room for a new manifest, the old one stays in force.
                log.roll_at = log.roll_at.saturating_mul(2);
                match self.roll(state) {
                    Err(error) if self.poison.is_some() || self.unsettled.is_some() => {
                        return Err(error);
                    }
                    _ => {}
                }
            }
            Some(_) => {}
        }
        debug_assert!(!self.in_doubt, "an edit would follow one whose fate is unknown");
        debug_assert_eq!(Edit::decode(&edit.encode()).ok().as_ref(), Some(edit));
        let payloads = payloads(edit, self.payload_len_max);
        // A part that is refused behind others would leave these there.
        payloads.iter().try_for_each(|payload| demand_payload_len(payload.len()))?;
        let last = payloads.len() - 1;
        for (nth, payload) in payloads.iter().enumerate() {
            self.append_record(payload, nth == last)?;
        }
        Ok(())
    }

    /// Writes and syncs a record, and then writes its sync marker. If it is not the last of its
    /// edit, the next one is written behind the marker.
    fn append_record(&mut self, payload: &[u8], is_last: bool) -> Result<()> {
        let number = self.number;
        let log = self.log.as_mut().expect("there is one when an edit is written");
        let offset = log.file.len();
        debug_assert!(offset > FILE_HEADER_LEN as u64, "a manifest begins with a snapshot");
        let mut bytes = Vec::new();
        put_record(&mut bytes, number, offset, payload)?;
        if let Err(error) = log.file.append(&bytes).and_then(|()| log.file.flush()) {
            self.log = None;
            self.in_doubt = true;
            return Err(self.poison_unless_retryable(error));
        }
        // The planted bug skips the second sync too, because that one might write what the first
        // one lost.
        log.is_confirmed = false;
        match log.file.sync() {
            Err(_) if planted(Plant::FailedEditIgnored) => log.is_confirmed = true,
            Err(error) => {
                self.log = None;
                self.in_doubt = true;
                return Err(self.poison_unless_retryable(error));
            }
            Ok(()) => {}
        }
        debug_assert_eq!(
            log.file.len(),
            offset + bytes.len() as u64,
            "the next record would stand elsewhere than it says"
        );
        let marker = sync_marker(number, offset);
        if let Err(error) = log.file.append(&marker).and_then(|()| log.file.flush()) {
            // The record is durable. What follows it is unknown, so the next edit goes to a new
            // manifest.
            self.log = None;
            if !is_last {
                self.in_doubt = true;
                return Err(self.poison_unless_retryable(error));
            }
        }
        Ok(())
    }

    /// Makes the last edit's sync marker durable. The next record's sync would do so as well, but
    /// may come much later. `state` is the state after that edit.
    pub(crate) fn confirm(&mut self, state: &State) -> Result<()> {
        demand_normal_priority("writes to the manifest");
        self.demand_settled()?;
        debug_assert!(!self.in_doubt || self.log.is_none(), "an edit of unknown fate is confirmed");
        match &mut self.log {
            // There is no place for a sync marker. The snapshot of a new manifest covers all
            // earlier edits.
            None => return self.roll(state),
            Some(log) if log.is_confirmed => return Ok(()),
            Some(log) => log.file.sync().map(|()| log.is_confirmed = true),
        }
        .map_err(|error| {
            // What of the file is on disk is unknown from here on. A new one shows everything.
            self.log = None;
            self.poison_unless_retryable(error)
        })
    }

    /// Makes all edits safe from being taken for a torn tail, as `confirm` does, by a new manifest
    /// that begins with the state.
    pub(super) fn renew(&mut self, state: &State) -> Result<()> {
        self.demand_settled()?;
        self.roll(state)
    }

    /// Fails if nothing more is written, or as long as it is not known which manifest is in force.
    fn demand_settled(&mut self) -> Result<()> {
        match &self.poison {
            Some(why) => Err(Error::poisoned(why.clone())),
            None => self.settle(),
        }
    }

    /// Looks whether a switch happened that found no room. If `CURRENT` still names the old
    /// manifest, it did not.
    fn settle(&mut self) -> Result<()> {
        let Some((number, told)) = self.unsettled.clone() else { return Ok(()) };
        match current::read(&*self.fs, &self.db) {
            Ok(at) if at == self.number => {
                self.unsettled = None;
                self.remove_successor(number);
                Ok(())
            }
            // It names the successor, and whether that survives power loss is not known.
            Ok(_) => {
                self.poison_by(told.clone());
                Err(Error::poisoned(PoisonCause::of(&told)))
            }
            Err(error) if error.is_retryable() => Err(error),
            Err(error) => Err(self.poison_by(error)),
        }
    }

    /// Replaces the manifest in force by a new one that begins with `state`.
    fn roll(&mut self, state: &State) -> Result<()> {
        debug_assert!(self.unsettled.is_none(), "it is unknown which manifest would be replaced");
        let number = self.number_next;
        self.number_next = number + 1;
        debug_assert!(number > self.number, "a manifest would replace itself or a newer one");
        let log = match self.write_successor(number, state) {
            Ok(log) => log,
            Err(error) => {
                self.remove_successor(number);
                return Err(self.poison_unless_retryable(error));
            }
        };
        // Step 3.
        if let Err(error) = current::switch(&*self.fs, &self.db) {
            if !error.is_retryable() {
                return Err(self.poison_by(error));
            }
            self.unsettled = Some((number, error.clone()));
            return Err(self.settle().err().unwrap_or(error));
        }
        // Step 4.
        current::sync(&*self.open_dir).map_err(|error| self.poison_by(error))?;
        debug_assert!(self.poison.is_none(), "a manifest took over after a failure");
        let old = std::mem::replace(&mut self.number, number);
        self.log = Some(log);
        self.in_doubt = false;
        // Step 6 is left to others: writers may wait for this thread, and a removal for the disk. A
        // new database has no old manifest.
        self.replaced.extend((old != 0).then(|| manifest_path(&self.db, old)));
        Ok(())
    }

    /// The manifests that a newer one has replaced. If one is not removed, the next open does it.
    pub(super) fn take_replaced(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.replaced)
    }

    /// Removes a manifest that is not in force. If that fails, it is an orphan for the next open.
    fn remove_successor(&self, number: u64) {
        let _ = self.fs.remove(&manifest_path(&self.db, number));
        let _ = self.fs.remove(&self.db.join(CURRENT_TMP));
    }

    /// Steps 1 and 2: writes a complete new manifest and `CURRENT.tmp`, without putting the
    /// manifest in force.
    fn write_successor(&self, number: u64, state: &State) -> Result<Log> {
        let header = FileHeader::new(FileKind::Manifest, state.uuid(), number);
        let mut bytes = header.encode().to_vec();
        let mut file = self.fs.create(&manifest_path(&self.db, number))?;
        for payload in payloads(&state.snapshot(), self.payload_len_max) {
            let offset = file.len() + bytes.len() as u64;
            put_record(&mut bytes, number, offset, &payload)?;
            bytes.extend_from_slice(&sync_marker(number, offset));
            file.append(&std::mem::take(&mut bytes))?;
        }
        file.sync()?;
        current::prepare(&*self.fs, &self.db, &*self.open_dir, number)?;
        let roll_at = self.roll_len_min.max(2 * file.len());
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

#[cfg(test)]
mod tests;
