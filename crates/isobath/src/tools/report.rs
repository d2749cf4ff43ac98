//! What a verification found.

use crate::error::{Error, ErrorKind, Result};
use std::io;
use std::path::{Path, PathBuf};

/// The result of [`crate::tools::verify`].
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Report {
    /// Damage: bytes that are not what was written, and files that are missing. In the order in
    /// which it was found; empty for a sound database.
    pub findings: Vec<Finding>,
    /// What is no damage but worth knowing: leftovers of a crash, which the next open clears away.
    pub notes: Vec<Finding>,
    /// Files that were checked.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Edits of the manifest.
    pub edits: u64,
    /// Records of the log.
    pub log_records: u64,
    /// Slices of tables.
    pub slices: u64,
    /// Versions in them.
    pub entries: u64,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// Where in it the damaged structure begins, in bytes; `None` if the file as a whole is meant.
    pub offset: Option<u64>,
    /// What is wrong.
    pub detail: String,
}

impl Report {
    /// True if nothing is damaged.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    pub(super) fn damage(&mut self, path: &Path, offset: Option<u64>, detail: impl Into<String>) {
        let is_known =
            self.findings.iter().any(|known| known.path == path && known.offset == offset);
        if !is_known {
            self.findings.push(Finding { path: path.to_owned(), offset, detail: detail.into() });
        }
    }

    pub(super) fn note(&mut self, path: &Path, offset: Option<u64>, detail: impl Into<String>) {
        self.notes.push(Finding { path: path.to_owned(), offset, detail: detail.into() });
    }

    /// Keeps an error that is damage; gives back any other, which ends the verification.
    pub(super) fn absorb(&mut self, error: Error) -> Result<()> {
        match error.kind() {
            ErrorKind::Corruption { path, offset, detail } => {
                self.damage(path, Some(*offset), detail.as_str());
            }
            ErrorKind::Io { action, path, source } if is_loss(source) => {
                self.damage(path, None, format!("could not {action} it: {source}"));
            }
            _ => return Err(error),
        }
        Ok(())
    }
}

/// True if the bytes cannot be had, rather than that this process cannot have them now.
pub(super) fn is_loss(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    error.kind() == io::ErrorKind::UnexpectedEof || error.raw_os_error() == Some(EIO)
}

/// The same of an error.
pub(super) fn is_loss_of(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io { source, .. } if is_loss(source))
}
