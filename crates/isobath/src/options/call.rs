//! Options of a single call: how one write or one read is done.

use super::list::options;

/// When a commit may be acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Durability {
    /// Survives the death of the process (the kernel holds it). After power loss, what is there is
    /// a prefix of history that may lack the newest commits.
    #[default]
    Process,
    /// Survives power loss: acknowledged after an fdatasync, shared by everyone who waits.
    Sync,
}

options! {
/// How one write is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WriteOptions {
    /// When to acknowledge; `None` takes the database's default.
    pub durability: Option<Durability> = None,
    /// Answer [`ErrorKind::WouldStall`](crate::ErrorKind::WouldStall) rather than wait for flush,
    /// compaction or log room. Default false.
    pub fail_fast: bool = false,
}
}

impl WriteOptions {
    /// Acknowledge only what survives power loss.
    pub fn sync() -> Self {
        WriteOptions::new().durability(Durability::Sync)
    }
}

options! {
/// How one read is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Keep the blocks that are read in the block cache. Default true. False is for what is read
    /// once, such as a scan of everything: it leaves the cache to the others. A range or a cursor
    /// then reads far ahead, and past the cache.
    pub fill_cache: bool = true,
}
}
