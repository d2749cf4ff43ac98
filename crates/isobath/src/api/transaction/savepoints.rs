//! Savepoints: going back to an earlier moment of a transaction without giving it up.

use super::Transaction;
use crate::error::Result;

impl Transaction {
    /// Sets a savepoint: [`Transaction::rollback_to`] takes back what is written from here on, in
    /// all families. Savepoints nest. Of two with one name, the later one is meant, until it is
    /// released or an earlier one is rolled back to.
    ///
    /// ```
    /// # fn main() -> isobath::Result<()> {
    /// # let db = isobath::Options::in_memory().open("savepoints")?;
    /// let tx = db.begin();
    /// tx.put("order", "1 book")?;
    /// tx.savepoint("gift")?;
    /// tx.put("wrapping", "red")?;
    /// tx.rollback_to("gift")?;
    /// tx.commit()?;
    /// assert!(db.contains("order")? && !db.contains("wrapping")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn savepoint(&self, name: &str) -> Result<()> {
        self.enter()?.savepoint(name)
    }

    /// Takes back all that was written since the savepoint. The savepoint stays; later ones are
    /// gone. What was read since stays read, so the commit validates it. Iterators that are open
    /// keep showing what they showed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is no such
    /// savepoint.
    pub fn rollback_to(&self, name: &str) -> Result<()> {
        self.enter()?.rollback_to(name)
    }

    /// Forgets the savepoint and all later ones. What was written stays.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`](crate::ErrorKind::InvalidArgument) if there is no such
    /// savepoint.
    pub fn release(&self, name: &str) -> Result<()> {
        self.enter()?.release(name)
    }
}
