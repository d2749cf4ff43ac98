//! Immutable sorted tables on disk.

mod meta;

pub(crate) use meta::{BlockHandle, SliceMeta};
