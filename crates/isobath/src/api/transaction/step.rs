//! The key of a step within a transaction.

use super::TransactionFamily;
use crate::error::Result;
use crate::format::OpKind;
use crate::options::Expiry;
use crate::pinned::Value;
use crate::read::{Located, Stream};
use crate::transact::OneKey;

/// A key within a transaction. The transaction is free while the program's closure runs.
pub(super) struct OneOf<'a, 'k> {
    part: TransactionFamily<'a>,
    key: &'k [u8],
    /// Until when what was read holds, if a step that writes relies on that.
    holds_until: Option<u64>,
}

impl<'a, 'k> OneOf<'a, 'k> {
    pub(super) fn new(part: TransactionFamily<'a>, key: &'k [u8]) -> OneOf<'a, 'k> {
        OneOf { part, key, holds_until: None }
    }

    /// The step writes, so it relies on what it has read.
    fn rely(&self) -> Result<()> {
        if let Some(holds_until) = self.holds_until {
            let family = self.part.family()?;
            self.part.tx.enter()?.rely_on_step(family, self.key, holds_until);
        }
        Ok(())
    }
}

impl OneKey for OneOf<'_, '_> {
    fn get(&mut self) -> Result<Option<Value>> {
        let TransactionFamily { tx, options, .. } = self.part;
        let (family, engine, mut life) = (self.part.family()?, tx.engine(), tx.enter()?);
        let found = life.get_of_step(engine, family, self.key, options)?;
        self.holds_until = life.end_of_step();
        Ok(found)
    }

    fn operate(&mut self, kind: OpKind, value: &[u8]) -> Result<()> {
        self.rely()?;
        self.part.operate(kind, self.key, value)
    }

    fn put_expiring(&mut self, value: &[u8], expiry: Expiry) -> Result<()> {
        self.rely()?;
        self.part.put_expiring(self.key, value, expiry)
    }

    fn locate(&mut self) -> Result<Option<Located>> {
        let TransactionFamily { tx, options, .. } = self.part;
        let (family, engine, mut life) = (self.part.family()?, tx.engine(), tx.enter()?);
        let found = life.locate_for_step(engine, family, self.key, options)?;
        self.holds_until = life.end_of_step();
        Ok(found)
    }

    fn put_located(&mut self, stream: Stream, expiry: Expiry) -> Result<()> {
        self.rely()?;
        let (family, engine) = (self.part.family()?, self.part.tx.engine());
        self.part.tx.enter()?.put_located(engine, family, (self.key, stream), expiry)
    }
}
