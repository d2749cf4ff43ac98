//! A handle on a column family: a keyspace of its own, with its own options, in one log with the others.

use crate::engine::{Engine, Family};
use crate::error::{Error, Result};
use crate::format::FamilyId;
use crate::options::FamilyOptions;
use std::sync::{Arc, Weak};

/// A column family of an open database. Cheap to clone; of no use once the database is closed or the family
/// dropped: calls then answer an error.
#[derive(Clone)]
pub struct ColumnFamily {
    family: Arc<Family>,
    engine: Weak<Engine>,
}

impl ColumnFamily {
    pub(crate) fn new(family: Arc<Family>, engine: &Arc<Engine>) -> Self {
        ColumnFamily { family, engine: Arc::downgrade(engine) }
    }

    /// The number that stands for the family on disk; never reused.
    pub fn id(&self) -> FamilyId {
        self.family.id
    }

    /// The current name.
    pub fn name(&self) -> String {
        self.family.name().to_string()
    }

    /// The options it was created with.
    pub fn options(&self) -> &FamilyOptions {
        &self.family.options
    }

    pub(crate) fn inner(&self) -> &Arc<Family> {
        &self.family
    }

    pub(crate) fn same_as(&self, other: &ColumnFamily) -> bool {
        Arc::ptr_eq(&self.family, &other.family)
    }

    /// Refuses a handle that belongs to another database.
    pub(crate) fn check_engine(&self, engine: &Arc<Engine>) -> Result<()> {
        if std::ptr::eq(self.engine.as_ptr(), Arc::as_ptr(engine)) {
            return Ok(());
        }
        Err(Error::InvalidArgument(format!(
            "the column family {:?} belongs to another database",
            self.name()
        )))
    }
}

impl std::fmt::Debug for ColumnFamily {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ColumnFamily({} {:?})", self.id(), self.name())
    }
}
