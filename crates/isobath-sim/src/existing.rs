//! Families that a test expects to find.

use isobath::{Db, Error, Family};

/// Opens families that must exist already.
pub(crate) trait Existing {
    /// The family of this name, or [`UnknownFamily`](isobath::ErrorKind::UnknownFamily).
    fn existing(&self, name: &str) -> isobath::Result<Family>;
}

impl Existing for Db {
    fn existing(&self, name: &str) -> isobath::Result<Family> {
        self.family_if_exists(name)?.ok_or_else(|| Error::unknown_family(name))
    }
}
