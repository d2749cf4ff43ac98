//! The caches of readers: decoded blocks and open files. Both are bounded.

mod blocks;
mod files;
#[cfg(all(test, shuttle))]
mod model;
mod striped;

pub use blocks::BlockCache;
pub(crate) use blocks::{BlockKey, CacheId, ENTRY_OVERHEAD, ResidentCharge};
pub(crate) use files::{FileCache, read_header, read_header_of, table_path};
pub(crate) use striped::Striped;
