//! What an operation does to its key.

use crate::error::{Error, Result};

/// The kind of an operation, as stored in log records, memtables and tables.
///
/// Values 2 to 6 are kept free for single delete, range delete, merge, put with a time to live and
/// blob reference; a file that holds one was written by a newer version and is refused, not guessed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OpKind {
    /// The key has no value from here on.
    Delete = 0,
    /// The key has the value that follows.
    Put = 1,
}

impl OpKind {
    /// Decodes a stored kind.
    pub(crate) fn from_byte(byte: u8) -> Result<OpKind> {
        match byte {
            0 => Ok(OpKind::Delete),
            1 => Ok(OpKind::Put),
            other => {
                Err(Error::malformed(format!("operation kind {other} is unknown to this version")))
            }
        }
    }
}
