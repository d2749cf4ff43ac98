//! [`ReadPoint`]: a place in the history of a database, as programs keep it and hand it back.
//!
//! Only the engine makes one, from an LSN at which a record ends. A bare number could lie inside a
//! record. What receives a point checks its tag, which tells the database and the term of its log.

use std::fmt;

/// A point in the history of a database: a read there sees the commits up to it, and no others. A
/// [`Commit`](crate::Commit) converts to the point just after it. Points of one database are
/// ordered in time, except points of commits that a crash lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadPoint {
    pub(crate) lsn: u64,
    /// Identifies the database and the term of its log.
    pub(crate) tag: u64,
}

impl ReadPoint {
    /// The point as bytes, to store or to send. For points of one database, the bytes order as the
    /// points do.
    pub fn to_bytes(self) -> [u8; 16] {
        (u128::from(self.lsn) << 64 | u128::from(self.tag)).to_be_bytes()
    }

    /// The point that [`ReadPoint::to_bytes`] encoded. The method that receives the point checks
    /// whether it belongs to the database.
    pub fn from_bytes(bytes: [u8; 16]) -> ReadPoint {
        let all = u128::from_be_bytes(bytes);
        ReadPoint { lsn: (all >> 64) as u64, tag: all as u64 }
    }
}

/// The bytes of [`ReadPoint::to_bytes`], in hexadecimal digits.
impl fmt::Display for ReadPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.to_bytes()))
    }
}
