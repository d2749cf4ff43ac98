//! The state of the tree on disk, and what changes it.
//!
//! A [`Tree`] is one family's levels: immutable, shared, replaced by a changed copy. Its parts are [`Slice`]s
//! of table files, and a table file lives while anything refers to it ([`LiveFile`]).

mod files;
mod level;
mod slice;
mod tree;

#[cfg(test)]
mod fixtures;

pub(crate) use files::{Graveyard, LiveFile};
pub(crate) use level::Level;
pub(crate) use slice::Slice;
pub(crate) use tree::{LEVELS_MAX, Tree};
