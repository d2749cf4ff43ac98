//! Savepoints of a transaction. Rolling back to one takes back writes only: what was read stays
//! read, and a doomed transaction stays doomed.

use super::begin::Life;
use crate::error::{Error, Result};

impl Life {
    /// Remembers what has been written so far.
    pub(crate) fn savepoint(&mut self, name: &str) -> Result<()> {
        self.check()?;
        self.footprint.savepoint(name);
        Ok(())
    }

    /// Takes back what was written since the savepoint, which stays.
    pub(crate) fn rollback_to(&mut self, name: &str) -> Result<()> {
        self.check()?;
        if self.footprint.rollback_to(name) { Ok(()) } else { Err(unknown(name)) }
    }

    /// Forgets the savepoint, and not what was written.
    pub(crate) fn release(&mut self, name: &str) -> Result<()> {
        self.check()?;
        if self.footprint.release(name) { Ok(()) } else { Err(unknown(name)) }
    }
}

#[cold]
fn unknown(name: &str) -> Error {
    Error::invalid_argument(format!(
        "the transaction has no savepoint {name:?}: it was never set, or released, or an earlier \
         one was rolled back to or released"
    ))
}
