//! [`Xid`]: the name of a prepared transaction, which its coordinator chooses.
//!
//! Its length is judged where a transaction is prepared ([`crate::limits::MAX_XID_LEN`]).

use std::fmt;
use std::sync::Arc;

/// The name by which a prepared transaction is decided: any bytes, from 1 to
/// [`MAX_XID_LEN`](crate::MAX_XID_LEN), which holds an identifier of XA with all its parts. Two
/// transactions that are in doubt at one time have different names.
///
/// ```
/// let xid = isobath::Xid::new("transfer 7");
/// assert_eq!(xid.as_bytes(), b"transfer 7");
/// assert_eq!(xid.to_string(), "transfer 7");
/// assert_eq!(isobath::Xid::new([0, 255]).to_string(), r"\x00\xff");
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid(Arc<[u8]>);

impl Xid {
    /// A name of these bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Xid {
        Xid(bytes.as_ref().into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<&str> for Xid {
    fn from(text: &str) -> Xid {
        Xid::new(text)
    }
}

impl From<&[u8]> for Xid {
    fn from(bytes: &[u8]) -> Xid {
        Xid::new(bytes)
    }
}

/// Bytes that are no printable ASCII are escaped.
impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Xid(\"{self}\")")
    }
}

/// As text, escaped like that of `Display`.
#[cfg(feature = "serde")]
impl serde::Serialize for Xid {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
