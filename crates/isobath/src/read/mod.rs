//! The read path: [`get`] by key, [`multi_get`] of several keys, and [`scan`] in order, all at a
//! [`ReadAt`].
//!
//! All [`begin`] by pinning a view of the family (`engine/family.rs`), and resolve versions at a
//! read point. None takes a lock that a writer holds.

mod begin;
mod distinct;
mod estimate;
mod expiry;
mod fold;
mod get;
mod multi_get;
mod pin;
mod plants;
mod scan;
mod source;
mod stream;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub(crate) use begin::ReadAt;
pub use distinct::DistinctKeys;
pub use estimate::Estimate;
pub(crate) use expiry::Read;
pub(crate) use pin::Pin;
pub(crate) use scan::{Scan, ScanBounds};
pub(crate) use source::LayerFiles;
pub(crate) use stream::{Content, Located, Stream, StreamRead};
