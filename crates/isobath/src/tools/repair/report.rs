//! What a repair found, kept and lost.

use super::super::report::Finding;
use crate::format::{FamilyId, Lsn};
use std::path::PathBuf;

/// The result of [`crate::tools::repair`].
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RepairReport {
    /// What was wrong: files that are damaged or missing. Empty for a sound database, which is
    /// left alone.
    pub findings: Vec<Finding>,
    /// What could not be saved, as exactly as the files tell.
    pub losses: Vec<Loss>,
    /// What was decided without the manifest, and might be otherwise.
    pub guesses: Vec<String>,
    /// Files that were moved out of the way, into `lost+found`.
    pub moved: Vec<MovedFile>,
    /// Tables that stay as they are.
    pub tables_kept: u64,
    /// Tables that were (in a dry run: would be) made out of what is readable of others and of the
    /// log.
    pub tables_made: u64,
    /// Versions that were saved from damaged tables.
    pub entries_saved: u64,
    /// Records that were saved from a damaged log.
    pub records_saved: u64,
    /// Nothing was changed: this is what a repair would do.
    pub is_dry_run: bool,
}

/// Something that is gone.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Loss {
    /// Where it was.
    pub path: PathBuf,
    /// Where in the file, in bytes, if a part of the file is meant.
    pub offset: Option<u64>,
    /// The column family, if it was one's.
    pub family: Option<FamilyId>,
    /// Its name.
    pub family_name: Option<String>,
    /// No key outside of these bounds, which count, is affected. The bounds themselves may be keys
    /// that were kept and lost older versions at most.
    pub keys: Option<(Vec<u8>, Vec<u8>)>,
    /// Nothing that was committed outside of these LSNs, of which the second does not count, is
    /// affected.
    pub lsns: Option<(Lsn, Lsn)>,
    /// How many versions, if that is known.
    pub entries: Option<u64>,
    /// In words.
    pub detail: String,
}

/// A file that is out of the way now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MovedFile {
    /// Where it was.
    pub from: PathBuf,
    /// Where it is.
    pub to: PathBuf,
}

impl RepairReport {
    /// True if there was nothing to repair.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}
