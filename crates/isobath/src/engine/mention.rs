//! A family that is named in a batch, and the error if it belongs to another database.

use super::{Engine, Keyspace};
use crate::error::{Error, Result};
use crate::format::FamilyId;
use std::sync::{Arc, Weak};

/// A family that is named in a batch. It does not keep the database open.
#[derive(Clone)]
pub(crate) struct Mention {
    keyspace: Arc<Keyspace>,
    /// The address identifies one opening of a database. It is not reused while a `Weak` refers to
    /// it.
    engine: Weak<Engine>,
    uuid: [u8; 16],
}

impl Mention {
    pub(crate) fn new(engine: &Arc<Engine>, keyspace: &Arc<Keyspace>) -> Mention {
        let (keyspace, uuid) = (keyspace.clone(), engine.uuid);
        Mention { keyspace, engine: Arc::downgrade(engine), uuid }
    }

    pub(crate) fn id(&self) -> FamilyId {
        self.keyspace.id
    }

    #[inline]
    pub(crate) fn is_of(&self, keyspace: &Arc<Keyspace>) -> bool {
        Arc::ptr_eq(&self.keyspace, keyspace)
    }

    /// The family, if it was named for this open database. There is no other access to it.
    #[inline]
    pub(crate) fn of(&self, engine: &Engine) -> Result<&Arc<Keyspace>> {
        if std::ptr::eq(self.engine.as_ptr(), engine) {
            return Ok(&self.keyspace);
        }
        Err(foreign_family(&self.keyspace, self.uuid, engine))
    }

    /// An error unless a stream that was written with this family is of this open database.
    pub(crate) fn demand_stream_of(&self, engine: &Engine) -> Result<()> {
        if std::ptr::eq(self.engine.as_ptr(), engine) {
            return Ok(());
        }
        Err(Error::invalid_argument(
            "the stream was written for another database, or for another opening of this one",
        ))
    }
}

impl std::fmt::Debug for Mention {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mention({} {:?})", self.id(), &*self.keyspace.name())
    }
}

/// The error for a family handle that belongs to another open database.
#[cold]
pub(crate) fn foreign_family(keyspace: &Keyspace, uuid: [u8; 16], engine: &Engine) -> Error {
    let owner = match uuid == engine.uuid {
        true => "another opening of this database",
        false => "another database",
    };
    Error::invalid_argument(format!(
        "the handle of column family {:?} belongs to {owner}; get one of this with `Db::family`",
        &*keyspace.name()
    ))
}
