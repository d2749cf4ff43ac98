//! What kind of directory an open or a create finds, judged by names alone.

use super::names::{CURRENT, LOG_DIR, TABLE_DIR, manifest_number, table_number};
use crate::error::{Error, NotADatabaseCause, Result};
use crate::vfs::FileSystem;
use std::path::Path;

/// What an open or a create finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// There is no directory, or no file of ours in it.
    Nothing,
    /// What an interrupted create leaves. Nothing was written to the database yet.
    InterruptedCreate,
    /// `CURRENT` is there.
    Database,
    /// `CURRENT` is missing, although the named files show that there was a database.
    Lost { evidence: String },
}

impl Layout {
    pub(crate) fn examine(fs: &dyn FileSystem, db: &Path) -> Result<Layout> {
        if !fs.exists(db)? {
            return Ok(Layout::Nothing);
        }
        if fs.exists(&db.join(CURRENT))? {
            return Ok(Layout::Database);
        }
        let manifests = names(fs, db)?.into_iter().filter(|name| manifest_number(name).is_some());
        let manifests: Vec<_> = manifests.collect();
        let tables = names(fs, &db.join(TABLE_DIR))?;
        let tables = tables.iter().filter(|name| table_number(name).is_some()).count();
        let segments = names(fs, &db.join(LOG_DIR))?.len();
        let is_past_create = manifests.iter().any(|name| manifest_number(name) != Some(1));
        if tables > 0 || segments > 0 || is_past_create {
            let evidence = format!(
                "{} manifests ({}), {tables} table files, {segments} log segments",
                manifests.len(),
                manifests.join(", ")
            );
            return Ok(Layout::Lost { evidence });
        }
        Ok(if manifests.is_empty() { Layout::Nothing } else { Layout::InterruptedCreate })
    }

    /// Returns an error that says what to do, unless there is a database.
    pub(crate) fn demand_database(self, db: &Path) -> Result<()> {
        let cause = match self {
            Layout::Database => return Ok(()),
            Layout::Nothing => NotADatabaseCause::Empty,
            Layout::InterruptedCreate => NotADatabaseCause::InterruptedCreate,
            Layout::Lost { evidence } => NotADatabaseCause::CurrentLost { evidence },
        };
        Err(Error::not_a_database(db, cause))
    }

    /// Returns an error that says what to do, unless a database can be created here.
    pub(super) fn demand_room(self, db: &Path) -> Result<()> {
        match self {
            Layout::Nothing | Layout::InterruptedCreate => Ok(()),
            Layout::Database => Err(Error::already_exists(db)),
            Layout::Lost { evidence } => {
                Err(Error::not_a_database(db, NotADatabaseCause::CurrentLost { evidence }))
            }
        }
    }
}

/// The names in a directory; none if it does not exist.
fn names(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<String>> {
    if !fs.exists(dir)? {
        return Ok(Vec::new());
    }
    Ok(fs.list(dir)?.into_iter().map(|entry| entry.name).collect())
}
