//! Compares what the manifest names with the files that exist, when a database is opened.
//!
//! [`survey`] only looks. [`Survey::sweep`] removes the orphans it found, except tables; those
//! become obsolete files. Nothing is removed until an edit of this open is confirmed. A file that
//! the manifest names is never removed, nor is one whose name is not ours. If a file that the
//! manifest names is missing, nothing at all is removed.

use super::names::{
    COUNTED_END, CURRENT_TMP, TABLE_DIR, manifest_number, table_number, table_path,
};
use super::state::State;
use crate::error::{Error, Result};
use crate::format::FILE_HEADER_LEN;
use crate::vfs::FileSystem;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The files that exist beside those that the manifest names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Files of ours that nothing names, by ascending path.
    pub(crate) orphans: Vec<PathBuf>,
    /// The greatest number of a table file, named or not; 0 if there is none. Numbers that are too
    /// great to count are ignored.
    pub(crate) table_number_max: u64,
}

/// Looks for orphans, and for files that are missing or shorter than the manifest requires.
pub(super) fn survey(
    fs: &dyn FileSystem,
    db: &Path,
    manifest: u64,
    state: &State,
) -> Result<Survey> {
    let mut missing = named_tables(state);
    let mut survey = Survey::default();
    let table_dir = db.join(TABLE_DIR);
    let tables = if fs.exists(&table_dir)? { fs.list(&table_dir)? } else { Vec::new() };
    for entry in tables.into_iter().filter(|entry| !entry.is_dir) {
        let Some(number) = table_number(&entry.name) else { continue };
        if number < COUNTED_END {
            survey.table_number_max = survey.table_number_max.max(number);
        }
        match missing.remove(&number) {
            None => survey.orphans.push(table_dir.join(&entry.name)),
            Some(len) if entry.len < len => {
                let detail =
                    format!("the file ends before {len}, where the manifest has something");
                return Err(Error::corruption(&table_path(db, number), entry.len, detail));
            }
            Some(_) => {}
        }
    }
    if let Some(number) = missing.keys().next() {
        let others = missing.len() - 1;
        let detail = format!("the manifest names this file and {others} others that are missing");
        return Err(Error::corruption(&table_path(db, *number), 0, detail));
    }
    for entry in fs.list(db)?.into_iter().filter(|entry| !entry.is_dir) {
        let is_old_manifest = manifest_number(&entry.name).is_some_and(|other| other != manifest);
        if is_old_manifest || entry.name == CURRENT_TMP {
            survey.orphans.push(db.join(&entry.name));
        }
    }
    survey.orphans.sort();
    Ok(survey)
}

/// The files in the table directory that the manifest names, each with its minimum length.
fn named_tables(state: &State) -> BTreeMap<u64, u64> {
    let mut named = BTreeMap::new();
    for (_, family) in state.families() {
        // What the family has in each blob file. Another family may have the same values.
        let mut values = BTreeMap::new();
        for (_, slice) in family.tree.iter() {
            let root = slice.meta.root;
            let end = root.offset.saturating_add(u64::from(root.len));
            let len = named.entry(slice.meta.file).or_insert(0);
            *len = end.max(*len);
            for share in &slice.meta.blobs {
                let end = values.entry(share.file).or_insert(FILE_HEADER_LEN as u64);
                *end = share.bytes.saturating_add(*end);
            }
            for share in &slice.meta.streams {
                let len = named.entry(share.file).or_insert(0);
                *len = share.len.max(*len);
            }
        }
        for (file, end) in values {
            let len = named.entry(file).or_insert(0);
            *len = end.max(*len);
        }
    }
    named.extend(state.prepared().values().map(|prepared| (prepared.file.number(), prepared.len)));
    named
}

impl Survey {
    /// Takes the tables out of the orphans and returns their numbers.
    pub(super) fn spare_tables(&mut self) -> Vec<u64> {
        let number = |path: &PathBuf| path.file_name()?.to_str().and_then(table_number);
        let (tables, others) = std::mem::take(&mut self.orphans)
            .into_iter()
            .partition::<Vec<_>, _>(|path| number(path).is_some());
        self.orphans = others;
        tables.iter().filter_map(number).collect()
    }

    /// Removes the orphans that still exist, and returns them. A file that cannot be removed stays
    /// for the next open; the errors say why.
    pub(crate) fn sweep(self, fs: &dyn FileSystem) -> (Vec<PathBuf>, Vec<Error>) {
        let mut errors = Vec::new();
        let mut removed = self.orphans;
        removed.retain(|path| match fs.exists(path) {
            Ok(false) => false, // A new manifest has taken its place.
            _ => fs.remove(path).map_err(|error| errors.push(error)).is_ok(),
        });
        (removed, errors)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::vfs::MemoryFs;

    #[test]
    fn a_directory_without_a_folder_of_tables_has_none() {
        let (fs, db) = (MemoryFs::new(), Path::new("/db"));
        fs.create_dir_all(db).unwrap();
        let survey = survey(&fs, db, 1, &State::default()).unwrap();
        assert!(survey.orphans.is_empty() && survey.table_number_max == 0);
    }
}
