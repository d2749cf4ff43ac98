//! The caches of readers: decoded blocks and open files. Both are bounded.

mod blocks;
mod files;
mod frames;
#[cfg(all(test, shuttle))]
mod model;
mod shard;
mod striped;

pub use blocks::BlockCache;
pub(crate) use blocks::{BlockKey, BlockRef, CacheId, Hints, ResidentCharge};
pub(crate) use files::{FileCache, read_header, read_header_of, table_path};
pub(crate) use striped::Striped;
