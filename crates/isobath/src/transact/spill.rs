//! Transactions that have written more than memory may hold: what they wrote goes to spill
//! files, and comes back when they commit.
//!
//! ```text
//! spill    the write set is full: it becomes a spill file (`engine/spill.rs`), and is empty
//! read     the write set, then the spill files, newest first, then the database
//! unspill  at the commit all spill files go back into memory, beneath the write set
//! ```
//!
//! So a commit is the same whatever was spilled, and takes as much memory as that of an equal
//! batch. Only in the time before does a transaction keep to its limit. What a savepoint may go
//! back to stays in memory: while there is one, nothing is spilled. Nor is anything while there are
//! operands, as what comes back from a later file replaces what an earlier one has.

use super::begin::{Life, footprint_max, too_large};
use crate::engine::{Engine, Keyspace, SPILL_FILES_MAX, SpillFile};
use crate::env::{Plant, Reach, planted, reached};
use crate::error::{Error, Result};
use crate::footprint::{Operation, TooLarge};
use crate::format::FamilyId;
use crate::limits::MAX_BATCH_LEN;
use crate::pinned::Value;
use std::sync::Arc;

impl Life {
    /// Makes room for a write of so many bytes, which the write set has refused.
    #[cold]
    pub(super) fn spill(&mut self, engine: &Engine, refused: TooLarge, bytes: u64) -> Result<()> {
        let charge = self.footprint.writes_charge();
        let needed = self.spilled.iter().map(|file| file.charge).sum::<u64>() + charge + bytes;
        if self.spilled.len() == SPILL_FILES_MAX || needed > MAX_BATCH_LEN as u64 {
            return Err(Error::transaction_too_large(needed, needed - bytes));
        }
        let is_alone_too_large = bytes > footprint_max(engine);
        let has_operands = self.footprint.writes().any(|operation| operation.kind.is_operand());
        let keeps_all = self.footprint.has_savepoints() || has_operands;
        if self.footprint.len() == 0 || keeps_all || is_alone_too_large {
            return Err(too_large(refused));
        }
        let options = |id: FamilyId| {
            let at = self.families.binary_search_by_key(&id, |family| family.id);
            let family = &self.families[at.expect("every family of a transaction is named")];
            family.options().table_options(id, &family.name(), 0)
        };
        let file = engine.spills.write(self.footprint.writes(), options, charge)?;
        reached(Reach::Spilled);
        self.spilled.push(file);
        self.footprint.drain_writes();
        Ok(())
    }

    /// What the spill files say of a key: nothing, or its value if it has one.
    #[cold]
    pub(super) fn own_spilled(
        &self,
        family: &Keyspace,
        key: &[u8],
    ) -> Result<Option<Option<Value>>> {
        let answer = |file: &Arc<SpillFile>| {
            let own = file.get(family.id, key).transpose()?;
            Some(own.map(|own| own.map(Value::in_block)))
        };
        let own = match planted(Plant::SpillsReadOldestFirst) {
            true => self.spilled.iter().find_map(answer),
            false => self.spilled.iter().rev().find_map(answer),
        };
        own.transpose()
    }

    /// Brings everything back into memory. If that fails, the transaction is as it was.
    pub(super) fn unspill(&mut self) -> Result<()> {
        if self.spilled.is_empty() {
            return Ok(());
        }
        let files = &self.spilled;
        let each = |add: &mut dyn FnMut(Operation<'_>) -> Result<()>| match planted(
            Plant::SpillsPutBackwards,
        ) {
            true => files.iter().rev().try_for_each(|file| file.each(&mut *add)),
            false => files.iter().try_for_each(|file| file.each(&mut *add)),
        };
        self.footprint.put_beneath(each)?;
        self.spilled.clear();
        Ok(())
    }

    /// Fails if something was spilled. A prepared transaction is kept in memory until a flush, so
    /// it must be no larger than what memory may hold.
    pub(super) fn check_unspilled(&self, engine: &Engine) -> Result<()> {
        let spilled: u64 = self.spilled.iter().map(|file| file.charge).sum();
        match spilled {
            0 => Ok(()),
            _ => {
                let needed = spilled + self.footprint.writes_charge();
                Err(Error::transaction_too_large(needed, footprint_max(engine)))
            }
        }
    }
}
