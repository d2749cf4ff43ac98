//! The operating system's file system.
use super::*;
/// See the module.
#[derive(Debug)]
pub struct SystemFs;
impl SystemFs {
    /// New.
    pub fn new() -> Self {
        SystemFs
    }
}
