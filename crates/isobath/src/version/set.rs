//! The version set: the state of the database and the manifest that keeps it.
//!
//! It is one value, behind one lock of the database. A job installs its results here by one edit:
//!
//! 1. The edit is checked against the state, and its effect is drafted. If it breaks a rule,
//!    nothing is written.
//! 2. The edit is appended to the manifest and synced.
//! 3. The draft takes its place in memory.
//! 4. The edit is confirmed, before anything that it made obsolete is destroyed.
//!
//! Edits that wait for each other share step 2 (`joint.rs`).
//!
//! Before, the caller has synced what the edit names: the table files, their directory, and the log
//! up to the edit's LSN. If step 2 fails, the edit may be on disk nevertheless. From then on no
//! file is handed out for removal until a new manifest is in force that certainly lacks the edit,
//! or until the next open.
//!
//! Between steps 2 and 4, damage to the edit looks like a torn tail, and an open ignores the edit.
//! So everything that the state before it needs must still exist: its tables, its log, and no newer
//! term's records in the log.

use super::ancestors::{make_dir, make_missing};
use super::current;
use super::draft::{Draft, FileSource};
use super::edit::{Change, Edit, Term};
use super::files::{FileNumbers, LiveFile, ObsoleteFiles};
use super::layout::Layout;
use super::manifest::Manifest;
use super::names::{CURRENT, CURRENT_TMP, DIRS, manifest_number, manifest_path, table_path};
use super::orphans::{self, Survey};
use super::reader::ManifestReader;
use super::record::TornTail;
use super::state::State;
use super::trail::Trail;
use crate::env::{Plant, Point, planted, yield_point};
use crate::error::{Error, Result};
use crate::format::{DEFAULT_FAMILY, FILE_HEADER_LEN, FIRST_LSN, FamilyId, checksum64};
use crate::vfs::{FileAccess, FileSystem};
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod joint;

pub(crate) use joint::{Ahead, Joint, Planned};

/// The name of the family that every database has.
pub(crate) const DEFAULT_FAMILY_NAME: &str = "default";

/// The state of an open database and the manifest that keeps it.
#[derive(Debug)]
pub(crate) struct VersionSet {
    state: State,
    manifest: Manifest,
    files: Arc<FileNumbers>,
    is_let_go: bool,
}

/// What an inspection of a database's manifest found.
#[derive(Debug)]
pub(crate) struct Inspection {
    pub(crate) manifest: u64,
    pub(crate) state: State,
    /// The end of the manifest that was dropped: an edit whose success was never reported.
    pub(crate) torn_tail: Option<TornTail>,
    pub(crate) survey: Survey,
}

/// What an open found and did, for its events.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) manifest_path: PathBuf,
    pub(crate) torn_tail: Option<TornTail>,
    /// Files that nothing names, except tables. They are removed once an edit of this open is
    /// confirmed, so that an open that is refused later leaves everything for a repair.
    pub(crate) leftovers: Survey,
}

/// Reads the state of a database and looks at its files. Changes nothing.
pub(crate) fn inspect(
    fs: &dyn FileSystem,
    db: &Path,
    obsolete: &Arc<ObsoleteFiles>,
) -> Result<Inspection> {
    Layout::examine(fs, db)?.demand_database(db)?;
    let number = current::read(fs, db)?;
    let path = manifest_path(db, number);
    demand_manifest(fs, &path)?;
    let (state, torn_tail) = ManifestReader::open(fs, &path)?.fold(obsolete)?;
    let survey = orphans::survey(fs, db, number, &state)?;
    refuse_stale_current(fs, db, number)?;
    Ok(Inspection { manifest: number, state, torn_tail, survey })
}

pub(super) fn demand_manifest(fs: &dyn FileSystem, path: &Path) -> Result<()> {
    match fs.exists(path)? {
        true => Ok(()),
        false => Err(Error::corruption(path, 0, "CURRENT names this manifest, but it is missing")),
    }
}

/// Identifies the manifest in force and its length. Each edit makes it longer, so between two equal
/// stamps there was no edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    number: u64,
    len: u64,
    /// Tells databases apart.
    header_sum: u64,
}

impl Stamp {
    /// The path of the manifest.
    pub(crate) fn manifest_path(&self, db: &Path) -> PathBuf {
        manifest_path(db, self.number)
    }

    /// The present stamp.
    pub(crate) fn read(fs: &dyn FileSystem, db: &Path) -> Result<Stamp> {
        let number = current::read(fs, db)?;
        let path = manifest_path(db, number);
        demand_manifest(fs, &path)?;
        let file = fs.open_read(&path, FileAccess::Positional)?;
        let mut header = vec![0; file.len().min(FILE_HEADER_LEN as u64) as usize];
        file.read_at(0, &mut header)?;
        Ok(Stamp { number, len: file.len(), header_sum: checksum64(&header) })
    }
}

/// A manifest gets an edit after its snapshot only once the switch of `CURRENT` to it is synced. So
/// if a newer manifest has such an edit, `CURRENT` is not what was last written to it.
pub(crate) fn refuse_stale_current(fs: &dyn FileSystem, db: &Path, number: u64) -> Result<()> {
    let numbers = fs.list(db)?.into_iter().filter_map(|entry| manifest_number(&entry.name));
    for newer in numbers.filter(|other| *other > number) {
        let path = manifest_path(db, newer);
        let reader = match ManifestReader::open(fs, &path) {
            Err(error) if error.is_corruption() => continue, // It was never finished.
            other => other?,
        };
        if reader.edits().take(2).filter(Result::is_ok).count() == 2 {
            let detail = format!("it names manifest {number}, but {newer} was in force later");
            return Err(Error::corruption(&db.join(CURRENT), 0, detail));
        }
    }
    Ok(())
}

/// Stops edits and removals when it is dropped, which happens only if a change of the manifest
/// panics: see [`VersionSet::guarded`].
struct Alarm<'a> {
    manifest: &'a mut Manifest,
    obsolete: &'a ObsoleteFiles,
}

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        self.manifest.poison_after_panic();
        self.obsolete.shut();
    }
}

impl VersionSet {
    /// Creates a database in a directory that need not exist. `options` are those of the default
    /// family, as JSON.
    pub(crate) fn create(
        fs: Arc<dyn FileSystem>,
        db: &Path,
        uuid: [u8; 16],
        options: &[u8],
    ) -> Result<VersionSet> {
        Layout::examine(&*fs, db)?.demand_room(db)?;
        let mut state = State::default();
        state
            .apply(&first_edit(uuid, options), FileSource::outputs(&[]))
            .map_err(|error| error.in_file(&manifest_path(db, 1), 0))?;
        make_dir(&*fs, db)?;
        for dir in DIRS {
            let dir = db.join(dir);
            // An earlier attempt may have made it, and lost its name with a sync that failed.
            let _ = fs.remove_dir(&dir);
            fs.create_dir_all(&dir)?;
        }
        for leftover in [manifest_path(db, 1), db.join(CURRENT_TMP)] {
            if fs.exists(&leftover)? {
                fs.remove(&leftover)?;
            }
        }
        let manifest = Manifest::create(Arc::clone(&fs), db, &state)?;
        let files = FileNumbers::new(state.next_file(), ObsoleteFiles::new());
        Ok(VersionSet { state, manifest, files, is_let_go: false })
    }

    /// Opens the database in a directory, and removes nothing. The first edit starts a new
    /// manifest. Until that edit is confirmed, tables that nothing names stay, for two reasons. The
    /// edit that removed them may be known to the kernel only; after a power cut an earlier state
    /// that needs them could come back. Or the edit that added them was damaged and looks like a
    /// torn tail; if the log does not fit the state before that edit, a repair needs the tables.
    pub(crate) fn open(fs: Arc<dyn FileSystem>, db: &Path) -> Result<(VersionSet, Opening)> {
        let obsolete = ObsoleteFiles::new();
        let mut found = inspect(&*fs, db, &obsolete)?;
        drop(obsolete.take());
        let named = found.state.file_numbers();
        for spare in found.survey.spare_tables() {
            debug_assert!(!named.contains(&spare), "table {spare} is in use and would be removed");
            if planted(Plant::SweptEarly) {
                fs.remove(&table_path(db, spare))?;
                continue;
            }
            obsolete.add(spare);
        }
        obsolete.hold();
        DIRS.iter().try_for_each(|dir| make_missing(&*fs, db, dir))?;
        let next_file = found.state.next_file().max(found.survey.table_number_max + 1);
        debug_assert!(
            found.state.file_numbers().iter().all(|number| *number < next_file),
            "a table that is in use has a number that is still free"
        );
        let manifest = Manifest::resume(fs, db, found.manifest)?;
        let reused = u64::from(planted(Plant::FileNumberReused) && next_file > 1);
        let files = FileNumbers::new(next_file - reused, obsolete);
        let opening = Opening {
            manifest_path: manifest.path(),
            torn_tail: found.torn_tail,
            leftovers: found.survey,
        };
        Ok((VersionSet { state: found.state, manifest, files, is_let_go: false }, opening))
    }

    /// The state that `read` describes, for a reader: the set takes no edits and removes nothing.
    pub(crate) fn for_reading(
        fs: Arc<dyn FileSystem>,
        db: &Path,
        read: &Trail,
    ) -> Result<VersionSet> {
        let obsolete = ObsoleteFiles::new();
        obsolete.shut();
        let manifest = Manifest::for_reading(fs, db, read.manifest())?;
        let state = read.state().clone();
        let files = FileNumbers::new(state.next_file(), obsolete);
        Ok(VersionSet { state, manifest, files, is_let_go: false })
    }

    /// Takes a state that was read later.
    pub(crate) fn adopt(&mut self, state: State) {
        self.state = state;
    }

    #[cfg(test)]
    pub(super) fn set_roll_len_min(&mut self, len: u64) {
        self.manifest.set_roll_len_min(len);
    }

    #[cfg(test)]
    pub(super) fn set_payload_len_max(&mut self, len: usize) {
        self.manifest.set_payload_len_max(len);
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    #[cfg(test)]
    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The path of the manifest in force.
    pub(crate) fn manifest_path(&self) -> PathBuf {
        self.manifest.path()
    }

    /// Jobs get the numbers of their output files here.
    pub(crate) fn files(&self) -> &Arc<FileNumbers> {
        &self.files
    }

    /// Makes an edit take effect, on disk and then in memory, and returns the families that it
    /// changed. `outputs` are the files of the slices that it adds.
    ///
    /// After an error the state in memory is as before. If the error is retryable, the same edit
    /// may be installed again; otherwise the set takes no more edits.
    pub(crate) fn install(
        &mut self,
        mut edit: Edit,
        outputs: &[Arc<LiveFile>],
    ) -> Result<Vec<FamilyId>> {
        if outputs.iter().any(|file| file.number() >= self.state.next_file()) {
            edit.push(Change::NextFile { number: self.files.next() });
        }
        let draft = self
            .state
            .draft(&edit, FileSource::outputs(outputs))
            .map_err(|error| error.in_file(&self.manifest.path(), self.manifest.len()))?;
        self.put(&edit, draft)
    }

    /// Writes an edit, and then puts its effect in place.
    fn put(&mut self, edit: &Edit, draft: Draft) -> Result<Vec<FamilyId>> {
        draft.prepare_levels();
        let appended = self.guarded(|manifest, state| manifest.append(edit, state));
        if self.manifest.is_in_doubt() {
            self.state.note_doubtful(edit, self.files.next());
        }
        let obsolete = self.files.obsolete();
        match self.manifest.poison() {
            Some(_) => obsolete.shut(),
            None => obsolete.hold(),
        }
        appended?;
        yield_point(Point::Installed);
        Ok(self.state.commit(draft))
    }

    /// Confirms the edits installed so far: from now on damage to them is reported as corruption,
    /// not taken for a torn tail. After that, files that these edits made obsolete may be removed.
    /// After a retryable error they may not yet; after any other error the set takes no more edits.
    pub(crate) fn confirm(&mut self) -> Result<()> {
        let confirmed = self.guarded(Manifest::confirm);
        let obsolete = self.files.obsolete();
        match (self.manifest.poison(), &confirmed) {
            (Some(_), _) => obsolete.shut(),
            (None, Err(_)) => {}
            (None, Ok(())) => obsolete.release(),
        }
        confirmed
    }

    /// Has the present state hold, if an edit that is not in it may: its append has failed, and the
    /// next open may find it. Errors mean the same as for [`VersionSet::confirm`].
    pub(crate) fn settle_doubt(&mut self) -> Result<()> {
        if self.manifest.is_in_doubt() { self.confirm() } else { Ok(()) }
    }

    /// Puts a new manifest in force that begins with the present state. Errors mean the same as for
    /// [`VersionSet::confirm`].
    pub(crate) fn renew(&mut self) -> Result<()> {
        let renewed = self.guarded(Manifest::renew);
        if self.manifest.poison().is_some() {
            self.files.obsolete().shut();
        }
        renewed
    }

    /// Releases all tables, because the database is closed. Nothing may be installed from here on:
    /// a new manifest would begin with a state without tables.
    pub(crate) fn let_go(&mut self) {
        self.is_let_go = true;
        self.state.let_go();
    }

    /// Changes the manifest. If the file system panics, it is unknown what is on disk, so nothing
    /// more is written to the manifest and no file is removed.
    fn guarded(&mut self, change: impl FnOnce(&mut Manifest, &State) -> Result<()>) -> Result<()> {
        if self.is_let_go {
            return Err(Error::closed());
        }
        let alarm = Alarm { manifest: &mut self.manifest, obsolete: self.files.obsolete() };
        let changed = change(&mut *alarm.manifest, &self.state);
        std::mem::forget(alarm);
        self.files.obsolete().add_manifests(self.manifest.take_replaced());
        changed
    }

    /// Has the obsolete files removed from now on.
    pub(crate) fn doom_obsolete(&mut self) -> Result<()> {
        if !self.files.obsolete().is_empty() {
            self.confirm()?;
            self.files.obsolete().doom();
        }
        Ok(())
    }

    /// The numbers of the files to remove now. Each is handed out only once.
    #[cfg(test)]
    pub(crate) fn take_obsolete(&mut self) -> Result<Vec<u64>> {
        self.doom_obsolete()?;
        Ok(self.files.obsolete().take())
    }
}

/// Puts a new manifest of the state of a closed database in force whose records have at most
/// `len_max` bytes, as if no record took more.
#[cfg(test)]
pub(crate) fn divide_manifest(fs: &Arc<dyn FileSystem>, db: &Path, len_max: usize) -> Result<()> {
    let found = inspect(&**fs, db, &ObsoleteFiles::new())?;
    let mut manifest = Manifest::resume(Arc::clone(fs), db, found.manifest)?;
    manifest.set_payload_len_max(len_max);
    manifest.renew(&found.state)
}

/// Puts a new manifest in force that says only `state`, whatever is in force now. Removes nothing.
pub(crate) fn replace_manifest(fs: &Arc<dyn FileSystem>, db: &Path, state: &State) -> Result<()> {
    Manifest::replace(Arc::clone(fs), db, state)
}

fn first_edit(uuid: [u8; 16], options: &[u8]) -> Edit {
    Edit::new(vec![
        Change::Database { uuid },
        Change::Term(Term { term: 1, ended_at: FIRST_LSN, resumes_at: FIRST_LSN, seed: 0 }),
        Change::LsnCeiling { lsn: FIRST_LSN },
        Change::DurableLsn { lsn: FIRST_LSN },
        Change::ReplayFrom { lsn: FIRST_LSN },
        Change::OldestReadable { lsn: FIRST_LSN },
        Change::NextFile { number: 1 },
        Change::CreateFamily {
            family: DEFAULT_FAMILY,
            name: DEFAULT_FAMILY_NAME.to_owned(),
            options: options.to_vec(),
            // Below every record: the first one may be a change of families, too.
            lsn: 0,
        },
    ])
}

#[cfg(test)]
mod tests;
