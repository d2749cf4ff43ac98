//! The streams that records of the log name, while the log is replayed.
//!
//! The file of such a stream is there, whole and synced: that came before the record. To the survey
//! of the open it is an orphan, so the replay *claims* it. Nothing is removed before the engine is
//! there, and numbers that are given out meanwhile are above those of all files that exist. The
//! replay holds what it has claimed until an edit moves `replay from` past the record. Then the
//! slices hold what they name, and the rest is an orphan indeed.

use crate::blob::check_stream;
use crate::error::{Error, Result};
use crate::format::StreamAddress;
use crate::version::{LiveFile, State, VersionSet, table_path};
use crate::vfs::{FileAccess, FileSystem};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The streams that records have named, by the numbers of their files.
#[derive(Default)]
pub(super) struct Streams(BTreeMap<u64, Arc<LiveFile>>);

impl Streams {
    /// Takes charge of a stream that a record names for `key`. An error if its file is missing, or
    /// is another one.
    pub(super) fn claim(
        &mut self,
        fs: &dyn FileSystem,
        db: &Path,
        versions: &VersionSet,
        (key, address): (&[u8], &StreamAddress),
    ) -> Result<()> {
        let path = table_path(db, address.file);
        let known = self.0.get(&address.file).cloned();
        let found = known.or_else(|| versions.files().claim(address.file));
        let Some(file) = found.or_else(|| held(versions.state(), address.file)) else {
            let detail = "the log names this file, the value of a key, but it is missing";
            return Err(Error::corruption(&path, 0, detail).for_key(key));
        };
        let read = fs.open_read(&path, FileAccess::Positional)?;
        check_stream(&*read, address).map_err(|error| error.for_key(key))?;
        file.len_or(|| Ok(address.file_len))?;
        self.0.insert(address.file, file);
        Ok(())
    }

    pub(super) fn files(&self) -> impl Iterator<Item = Arc<LiveFile>> {
        self.0.values().cloned()
    }
}

/// The file, if a slice has it already: a batch may have put it twice.
fn held(state: &State, number: u64) -> Option<Arc<LiveFile>> {
    let slices = state.families().flat_map(|(_, family)| family.tree.iter());
    let mut streams = slices.flat_map(|(_, slice)| slice.streams.iter());
    streams.find(|file| file.number() == number).cloned()
}
