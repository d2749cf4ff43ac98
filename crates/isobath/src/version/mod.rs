//! The state of the tree on disk, and what changes it.
//!
//! A [`Tree`] is one family's levels: immutable, shared, replaced by a changed copy. Its parts are [`Slice`]s
//! of table files, and a table file lives while anything refers to it ([`LiveFile`]).

mod current;
mod draft;
mod edit;
mod files;
mod layout;
mod level;
mod manifest;
mod names;
mod orphans;
mod reader;
mod record;
mod set;
mod slice;
mod state;
mod tree;

#[cfg(test)]
mod fixtures;

pub(crate) use draft::FileSource;
pub(crate) use edit::{Change, Edit, Term};
pub(crate) use files::{FileNumbers, Graveyard, LiveFile};
pub(crate) use layout::Layout;
pub(crate) use level::Level;
pub(crate) use manifest::Manifest;
pub(crate) use names::{CURRENT, LOCK, LOG_DIR, TABLE_DIR, manifest_path, table_name, table_path};
pub(crate) use orphans::Survey;
pub(crate) use reader::{Edits, ManifestReader};
pub(crate) use record::TornTail;
pub(crate) use set::{DEFAULT_FAMILY_NAME, Inspection, Opening, VersionSet, inspect};
pub(crate) use slice::Slice;
pub(crate) use state::{Family, State};
pub(crate) use tree::{LEVELS_MAX, Tree};
