//! Isobath: an embeddable, ordered, transactional key-value engine on a log-structured merge tree.
#![allow(dead_code, unused_imports)] // While the parts are being put together.

mod background;
mod cache;
mod compact;
pub mod components;
mod cursor;
mod error;
mod flush;
mod format;
pub mod keys;
mod memtable;
mod read;
mod recover;
mod table;
mod version;
pub mod vfs;
mod wal;
mod write;

pub use error::{Error, Result};
pub use format::{FamilyId, Lsn, OpKind};
