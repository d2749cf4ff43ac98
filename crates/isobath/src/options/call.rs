//! Options of a single call: how to do one write or one read.

use super::list::options;

/// When a commit may return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Durability {
    /// After the write to the log. The commit survives the death of the process, because the kernel
    /// holds it. After power loss the database holds a prefix of the commits, which may lack the
    /// newest ones.
    #[default]
    Process,
    /// After an fdatasync, which all waiting writers share. The commit survives power loss.
    Sync,
}

options! {
/// How to do one write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WriteOptions {
    /// When the write returns. `None` uses the database's default.
    pub durability: Option<Durability> = None,
    /// Return [`ErrorKind::WouldStall`](crate::ErrorKind::WouldStall) instead of waiting for a
    /// flush, a compaction, log space, or a key that a transaction has locked. Default false.
    /// Nothing was written then. A locking read of a transaction waits all the same, as long as its
    /// `lock_timeout` lets it, and so does a commit for its sync, and the commit of a transaction
    /// that has gone to files for the flushes that it asks for. On a copy-on-write file system
    /// that is full a write may wait all the same, as any other: once it has its place in the log,
    /// which cannot be taken back, it waits until the disk has room or the database closes, and so
    /// do those writes that have their places behind it. While any write waits so, writes with this
    /// option that have no place yet are refused.
    pub fail_fast: bool = false,
}
}

impl WriteOptions {
    /// Return only when the write survives power loss.
    pub fn sync() -> Self {
        WriteOptions::new().durability(Durability::Sync)
    }
}

options! {
/// How to do one read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Keep the blocks that are read in the block cache. Default true. Use false for data that is
    /// read only once, such as a full scan, so that it does not displace other blocks. A range or a
    /// cursor then reads far ahead and bypasses the cache.
    pub fill_cache: bool = true,
}
}
