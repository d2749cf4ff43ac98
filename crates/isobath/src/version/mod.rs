//! The state of the tree on disk, and what changes it.
//!
//! A [`Tree`] is one family's levels: immutable, shared, replaced by a changed copy. Its parts are [`Slice`]s
//! of table files, and a table file lives while anything refers to it ([`LiveFile`]).

mod draft;
mod edit;
mod files;
mod level;
mod names;
mod record;
mod slice;
mod state;
mod tree;

#[cfg(test)]
mod fixtures;

pub(crate) use draft::FileSource;
pub(crate) use edit::{Change, Edit, Term};
pub(crate) use files::{Graveyard, LiveFile};
pub(crate) use level::Level;
pub(crate) use names::{CURRENT, LOCK, LOG_DIR, TABLE_DIR, table_name, table_path};
pub(crate) use slice::Slice;
pub(crate) use state::{Family, State};
pub(crate) use tree::{LEVELS_MAX, Tree};
