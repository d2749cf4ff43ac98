//! The state of the database on disk, and what changes it.
//!
//! - A [`Tree`] is one family's [`Level`]s: immutable, shared, replaced by a changed copy. It
//!   consists of [`Slice`]s of table files. A table file lives while anything refers to it
//!   ([`LiveFile`]).
//! - A [`State`] is all families and the numbers beside them: the result of all [`Edit`]s. An edit
//!   is checked, and its effect drafted (`draft.rs`), before it is written.
//! - A [`Manifest`] keeps the edits on disk (`record.rs` frames them, `parts.rs` divides long
//!   ones, `current.rs` names the file in force, `reader.rs` reads it back, `trail.rs` follows it).
//! - `entry_file.rs` is the file of a prepared transaction.
//! - The [`VersionSet`] is the state and its manifest. Jobs install their edits there.
//! - `layout.rs` and `orphans.rs` judge the files in the directory; `ancestors.rs` makes the
//!   directory.
//!
//! What is on disk at each step, and what a power failure leaves: `docs/internals/manifest.md`.

mod ancestors;
mod beneath;
mod current;
mod dead_space;
mod draft;
mod durable_names;
mod edit;
mod entry_file;
mod files;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod layout;
mod level;
mod manifest;
mod names;
mod orphans;
mod parts;
mod reader;
mod record;
mod set;
mod slice;
mod slice_change;
mod state;
mod trail;
mod tree;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(all(test, shuttle))]
mod model;
#[cfg(test)]
mod tests;

pub(crate) use ancestors::{make_dir, make_missing, sync_dir_name};
pub(crate) use beneath::Beneath;
pub(crate) use current::read as read_current;
pub(crate) use dead_space::{TableUse, tables_in_use};
pub(crate) use durable_names::DurableNames;
pub(crate) use edit::{Change, Edit, Moment, Term, Tick};
pub(crate) use entry_file::{read_entry, read_own_entry, write_entry};
pub(crate) use files::{FileNumbers, LiveFile, ObsoleteFiles};
pub(crate) use layout::Layout;
pub(crate) use level::Level;
pub(crate) use names::{
    COUNTED_END, CURRENT, CURRENT_TMP, LOCK, LOG_DIR, SPILL_DIR, TABLE_DIR, manifest_number,
    manifest_path, table_number, table_path,
};
pub(crate) use orphans::Survey;
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use reader::FOLDS;
pub(crate) use reader::{ManifestReader, salvage_edits};
#[cfg(test)]
pub(crate) use set::divide_manifest;
pub(crate) use set::{
    Ahead, DEFAULT_FAMILY_NAME, Joint, Opening, Planned, Stamp, VersionSet, inspect,
    refuse_stale_current, replace_manifest,
};
pub(crate) use slice::{OpenTable, Slice};
pub(crate) use state::{PreparedFile, State, thin_out};
pub(crate) use trail::Trail;
pub(crate) use tree::Tree;
