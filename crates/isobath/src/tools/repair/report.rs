//! What a repair found, kept and lost.

use super::super::report::Finding;
#[cfg(feature = "serde")]
use super::super::report::{path_as_text, path_as_text_if_any};
use crate::format::{FamilyId, Lsn};
use std::path::PathBuf;

/// The result of [`crate::tools::repair`].
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RepairReport {
    /// The damage: files that are damaged or missing. Empty for an intact database, which is left
    /// unchanged.
    pub findings: Vec<Finding>,
    /// What could not be saved, as exactly as the files show.
    pub losses: Vec<Loss>,
    /// What was decided without the manifest, and may be wrong.
    pub guesses: Vec<String>,
    /// The file in `lost+found` that has [`RepairReport::lines`], if anything was lost or guessed;
    /// `None` after a dry run. It is complete before the repaired state is the current one: from
    /// then on nothing else tells of it, and this report may not reach anyone.
    #[cfg_attr(feature = "serde", serde(serialize_with = "path_as_text_if_any"))]
    pub kept_in: Option<PathBuf>,
    /// Files that were moved into `lost+found`.
    pub moved: Vec<MovedFile>,
    /// Tables that stay as they are.
    pub tables_kept: u64,
    /// Tables that were written (in a dry run: would be written) from what can be read of other
    /// tables and of the log.
    pub tables_made: u64,
    /// Versions that were saved from damaged tables.
    pub entries_saved: u64,
    /// Records that were saved from a damaged log.
    pub records_saved: u64,
    /// True if nothing was changed: the report says what a repair would do.
    pub is_dry_run: bool,
}

/// Something that was lost.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Loss {
    /// The file that held it.
    #[cfg_attr(feature = "serde", serde(serialize_with = "path_as_text"))]
    pub path: PathBuf,
    /// The offset in the file, in bytes, if a part of the file is lost.
    pub offset: Option<u64>,
    /// The column family, if it belonged to one.
    pub family: Option<FamilyId>,
    /// The name of the family.
    pub family_name: Option<String>,
    /// No key outside these bounds is affected. The bounds are included. A key at a bound may have
    /// been kept; then it lost older versions at most.
    pub keys: Option<(Vec<u8>, Vec<u8>)>,
    /// No commit outside these LSNs is affected. The second LSN is excluded. But what a compaction
    /// has folded with a merge operator has the LSN of its newest operand: older ones are lost with
    /// it.
    pub lsns: Option<(Lsn, Lsn)>,
    /// The number of versions, if it is known.
    pub entries: Option<u64>,
    /// A description in words.
    pub detail: String,
}

/// A file that was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MovedFile {
    /// Its old place.
    #[cfg_attr(feature = "serde", serde(serialize_with = "path_as_text"))]
    pub from: PathBuf,
    /// Its new place.
    #[cfg_attr(feature = "serde", serde(serialize_with = "path_as_text"))]
    pub to: PathBuf,
}

impl RepairReport {
    /// Damage, losses, guesses and moved files, a line each, which begins with `damage: `,
    /// `lost: `, `guess: ` or `moved: `. `show` tells how keys are shown.
    pub fn lines(&self, show: impl Fn(&[u8]) -> String) -> Vec<String> {
        let damage = self.findings.iter().map(|found| {
            let offset = found.offset.map_or(String::new(), |at| format!(" at offset {at}"));
            format!("damage: {}{offset}: {}", found.path.display(), found.detail)
        });
        let lost = self.losses.iter().map(|loss| format!("lost: {}", loss.line(&show)));
        let guesses = self.guesses.iter().map(|guess| format!("guess: {guess}"));
        let moved = self
            .moved
            .iter()
            .map(|moved| format!("moved: {} to {}", moved.from.display(), moved.to.display()));
        damage.chain(lost).chain(guesses).chain(moved).collect()
    }

    /// True if there was nothing to repair.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}

impl Loss {
    fn line(&self, show: &dyn Fn(&[u8]) -> String) -> String {
        let mut line = self.path.display().to_string();
        if let Some(offset) = self.offset {
            line += &format!(" at offset {offset}");
        }
        line += &format!(": {}", self.detail);
        if let Some(name) = &self.family_name {
            line += &format!("; family {name}");
        }
        if let Some((from, to)) = &self.keys {
            line += &format!("; keys {} to {}", show(from), show(to));
        }
        if let Some((from, to)) = self.lsns {
            line += &format!("; LSNs {from:#x} to {to:#x}");
        }
        if let Some(entries) = self.entries {
            line += &format!("; {entries} entries");
        }
        line
    }
}
