//! The read path: [`get`] by key and [`scan`] in order, both at a [`ReadAt`].
//!
//! Both [`begin`] by pinning a view of the family (`engine/family.rs`), and both resolve versions
//! at a read point. Neither takes a lock that a writer holds.

mod begin;
mod estimate;
mod expiry;
mod fold;
mod get;
mod pin;
mod plants;
mod scan;
mod source;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub(crate) use begin::ReadAt;
pub use estimate::Estimate;
pub(crate) use expiry::Read;
pub(crate) use pin::Pin;
pub(crate) use scan::{Scan, ScanBounds};
