//! How a reader finds what it asked for: [`get`] by key, [`scan`] in order, both as of a
//! [`ReadAt`].
//!
//! Both [`begin`] by pinning a view of the family (`engine/family.rs`) and resolve versions at a
//! read point. Neither takes a lock that a writer holds.

mod begin;
mod get;
mod scan;
mod source;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub(crate) use begin::ReadAt;
pub(crate) use scan::{Pin, Scan, ScanBounds};
