//! The result of a verification.

use crate::error::{Error, ErrorKind, Result};
use std::io;
use std::path::{Path, PathBuf};

/// The result of [`crate::tools::verify`].
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Report {
    /// The damage, in the order in which it was found: bytes that are not what was written, and
    /// missing files. Empty for an intact database.
    pub findings: Vec<Finding>,
    /// Findings that are not damage, such as leftovers of a crash, which the next open removes.
    pub notes: Vec<Finding>,
    /// The number of files checked.
    pub files: u64,
    /// The number of bytes in these files.
    pub bytes: u64,
    /// The number of edits in the manifest.
    pub edits: u64,
    /// The number of records in the log.
    pub log_records: u64,
    /// The number of slices in the tables.
    pub slices: u64,
    /// The number of versions in these slices.
    pub entries: u64,
    /// The number of blob files.
    pub blob_files: u64,
    /// The number of values in blob files that versions in tables have. If two column families
    /// share a value, it counts for each.
    pub blob_values: u64,
    /// The bytes of these values as they are stored. The rest of the blob files is garbage.
    pub blob_bytes: u64,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// The file.
    #[cfg_attr(feature = "serde", serde(serialize_with = "path_as_text"))]
    pub path: PathBuf,
    /// The offset in bytes at which the damaged structure begins; `None` if the finding is about
    /// the whole file.
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
        let is_known = self.notes.iter().any(|known| known.path == path && known.offset == offset);
        if is_known {
            return;
        }
        self.notes.push(Finding { path: path.to_owned(), offset, detail: detail.into() });
    }

    /// Records an error that is damage. Returns any other error, which ends the verification.
    pub(super) fn absorb(&mut self, error: Error) -> Result<()> {
        match error.kind() {
            ErrorKind::Corruption { path, offset, detail } => {
                self.damage(path, Some(*offset), detail.as_str());
            }
            ErrorKind::Io { action, path, source, .. } if is_loss(source) => {
                self.damage(path, None, format!("could not {action} it: {source}"));
            }
            _ => return Err(error),
        }
        Ok(())
    }
}

/// A path in formats of `serde`: what is no Unicode is replaced, as otherwise a report could not be
/// written.
#[cfg(feature = "serde")]
pub(super) fn path_as_text<S: serde::Serializer>(
    path: &Path,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

#[cfg(feature = "serde")]
pub(super) fn path_as_text_if_any<S: serde::Serializer>(
    path: &Option<PathBuf>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    match path {
        Some(path) => serializer.collect_str(&path.display()),
        None => serializer.serialize_none(),
    }
}

/// True if the bytes are lost. False if only this process cannot read them now.
pub(super) fn is_loss(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    error.kind() == io::ErrorKind::UnexpectedEof || error.raw_os_error() == Some(EIO)
}

/// The same for an error of this crate.
pub(super) fn is_loss_of(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io { source, .. } if is_loss(source))
}
