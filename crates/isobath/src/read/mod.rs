//! How a reader finds what it asked for: [`get`] by key, [`scan`] in order.
//!
//! Both [`begin`] by pinning a view of the family (`engine/family.rs`) and resolve versions at a read point. Neither takes
//! a lock that a writer holds.

mod begin;
mod get;
mod scan;
mod source;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub(crate) use get::{Wanted, get, multi_get};
pub(crate) use scan::{Pin, Scan, ScanBounds};
