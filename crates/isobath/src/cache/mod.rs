//! What readers keep at hand: decoded blocks, and open files. Both are bounded.

mod blocks;
mod files;

pub(crate) use blocks::{BlockCache, BlockKey, CacheId, ResidentCharge};
pub(crate) use files::{FileCache, read_header, table_path};
