//! The streams that records of the log name, while the log is replayed.
//!
//! The file of such a stream is there, whole and synced: that came before the record. To the survey
//! of the open it is an orphan, so the replay *claims* it. Nothing is removed before the engine is
//! there, and numbers that are given out meanwhile are above those of all files that exist. The
//! replay holds what it has claimed until an edit moves `replay from` past the record. Then the
//! slices hold what they name, and the rest is an orphan indeed.

use crate::blob::check_stream;
use crate::env::{Plant, Reach, planted, reached};
use crate::error::{Error, Result};
use crate::format::{Op, StreamAddress, streams_of};
use crate::version::{COUNTED_END, LiveFile, State, VersionSet, table_path};
use crate::vfs::{FileAccess, FileSystem};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The streams that records have named.
#[derive(Default)]
pub(super) struct Streams {
    /// By the numbers of their files.
    claimed: BTreeMap<u64, (StreamAddress, Arc<LiveFile>)>,
    /// Those that slices have, once a record has named one that needs no claim.
    of_slices: Option<BTreeMap<u64, Arc<LiveFile>>>,
}

/// The greatest number of a file that a record names as a stream.
pub(super) fn last_stream(ops: &[Op<'_>]) -> Option<u64> {
    let numbers = streams_of(ops).map(|(_, _, address)| address.file);
    numbers.filter(|number| *number < COUNTED_END).max()
}

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
        if planted(Plant::StreamNotClaimed) {
            return Ok(());
        }
        let known = match self.claimed.get(&address.file) {
            Some((of, _)) if of == address => return Ok(()),
            known => known.map(|(_, file)| file.clone()),
        };
        reached(Reach::StreamReplayed);
        let path = table_path(db, address.file);
        let found = known.or_else(|| versions.files().claim(address.file));
        let Some(file) = found.or_else(|| self.of_slices(versions.state(), address.file)) else {
            let detail = "the log names this file, the value of a key, but it is missing";
            return Err(Error::corruption(&path, 0, detail).for_key(key));
        };
        let read = fs.open_read(&path, FileAccess::Positional)?;
        check_stream(&*read, address).map_err(|error| error.for_key(key))?;
        file.len_or(|| Ok(address.file_len))?;
        self.claimed.insert(address.file, (*address, file));
        Ok(())
    }

    /// The file, if a slice has it already: a record may give a stream another end.
    fn of_slices(&mut self, state: &State, number: u64) -> Option<Arc<LiveFile>> {
        let list = || {
            let slices = state.families().flat_map(|(_, family)| family.tree.iter());
            let streams = slices.flat_map(|(_, slice)| slice.streams.iter());
            streams.map(|file| (file.number(), file.clone())).collect()
        };
        self.of_slices.get_or_insert_with(list).get(&number).cloned()
    }

    pub(super) fn files(&self) -> impl Iterator<Item = Arc<LiveFile>> {
        self.claimed.values().map(|(_, file)| file.clone())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::format::{DEFAULT_FAMILY, OpKind};

    #[test]
    fn numbers_that_no_file_has_do_not_move_the_next_one() {
        let last_of = |files: &[u64]| {
            let stored: Vec<Vec<u8>> = files.iter().map(|file| stored(*file)).collect();
            let op = |value| Op {
                kind: OpKind::PutStreamed,
                family: DEFAULT_FAMILY,
                key: b"k",
                value: Vec::as_slice(value),
            };
            last_stream(&stored.iter().map(op).collect::<Vec<_>>())
        };
        assert_eq!(last_of(&[7, COUNTED_END - 1, COUNTED_END, u64::MAX]), Some(COUNTED_END - 1));
        assert_eq!(last_of(&[COUNTED_END]), None);
    }

    fn stored(file: u64) -> Vec<u8> {
        let mut stored = Vec::new();
        StreamAddress { file, value_len: 5, file_len: 198, checksum: 7 }.put(&mut stored);
        stored
    }
}
