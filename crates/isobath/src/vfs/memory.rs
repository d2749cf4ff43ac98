//! A file system in memory.
/// See the module.
#[derive(Debug)]
pub struct MemoryFs;
