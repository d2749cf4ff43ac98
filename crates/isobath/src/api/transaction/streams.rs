//! Streams in a transaction: the same methods as on other handles.

use super::{Transaction, TransactionFamily};
use crate::error::Result;
use crate::stream::{Streamed, ValueReader};

impl TransactionFamily<'_> {
    /// Sets `key` to a value that a [`ValueWriter`](crate::ValueWriter) has written. The
    /// transaction takes the value's file: if it does not commit, the file is removed.
    ///
    /// # Errors
    /// A transaction with such a value cannot go to files, which is
    /// [`ErrorKind::TransactionTooLarge`](crate::ErrorKind::TransactionTooLarge) if its other
    /// writes would have to, and cannot be prepared.
    pub fn put_streamed(&self, key: impl AsRef<[u8]>, value: Streamed) -> Result<()> {
        let (family, engine) = (self.family()?, self.tx.engine());
        value.of.demand_stream_of(engine)?;
        self.tx.enter()?.put_streamed(engine, family, key.as_ref(), value.value)
    }

    /// The value of `key`, to be read piece by piece and from any place on. The reader may outlive
    /// the transaction.
    pub fn get_reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        let (family, engine) = (self.family()?, self.tx.engine());
        let mut life = self.tx.enter()?;
        let read = life.get_stream(engine, family, key.as_ref(), self.options)?;
        Ok(read.map(ValueReader::new))
    }
}

impl Transaction {
    /// Sets `key` to a value that a [`ValueWriter`](crate::ValueWriter) has written: see
    /// [`TransactionFamily::put_streamed`].
    pub fn put_streamed(&self, key: impl AsRef<[u8]>, value: Streamed) -> Result<()> {
        self.default_part().put_streamed(key, value)
    }

    /// The value of `key`, to be read piece by piece and from any place on. The reader may outlive
    /// the transaction.
    pub fn get_reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.default_part().get_reader(key)
    }
}
