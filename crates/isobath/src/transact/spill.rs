//! Transactions that have written more than memory may hold: what they wrote goes to spill files.
//!
//! ```text
//! spill    the write set is full: it becomes a spill file (`engine/spill.rs`), and is empty
//! read     the write set, then the spill files, newest first, then the database
//! merge    there are as many files as there may be: the newest become one
//! unspill  at the commit they go back into memory, beneath the write set, if a write buffer holds
//!          all of it; otherwise the commit names the files (`large.rs`)
//! ```
//!
//! What a savepoint may go back to stays in memory: while there is one, nothing is spilled. Nor is
//! anything while there are operands, as what comes back from a later file replaces what an earlier
//! one has, or streams, whose files no spill file keeps.

use super::begin::{Life, footprint_max, too_large};
use crate::engine::{Engine, Keyspace, SpillFile};
use crate::env::{Plant, Reach, planted, reached};
use crate::error::{Error, Result};
use crate::footprint::{Operation, TooLarge};
use crate::format::{FamilyId, OpKind};
use crate::limits::MAX_BATCH_LEN;
use crate::pinned::Value;
use crate::table::TableOptions;
use std::sync::Arc;

impl Life {
    /// Makes room for a write of so many bytes, which the write set has refused.
    #[cold]
    pub(super) fn spill(&mut self, engine: &Engine, refused: TooLarge, bytes: u64) -> Result<()> {
        let charge = self.footprint.writes_charge();
        let needed = self.spilled_charge() + charge + bytes;
        if engine.options.commit_hook.is_some() && needed > MAX_BATCH_LEN as u64 {
            // The hook is told of all operations at once.
            return Err(Error::transaction_too_large(needed, needed - bytes));
        }
        let of_ranges: u64 = self.spilled.iter().map(|file| file.spans_charge()).sum();
        if of_ranges > engine.options.buffer_len() {
            // Who reads a file has its range deletes in memory.
            return Err(Error::transaction_too_large(of_ranges, engine.options.buffer_len()));
        }
        let is_alone_too_large = bytes > footprint_max(engine);
        let has_operands = self.footprint.writes().any(|operation| operation.kind.is_operand());
        let keeps_all = self.footprint.has_savepoints() || has_operands || self.has_streams();
        if self.footprint.len() == 0 || keeps_all || is_alone_too_large {
            return Err(too_large(refused));
        }
        engine.admit_file()?;
        if self.spilled.len() >= engine.options.sizes.spill_files_max {
            self.merge_spilled(engine)?;
        }
        let file = self.write_spill(engine)?;
        reached(Reach::Spilled);
        self.spilled.push(file);
        self.footprint.drain_writes();
        Ok(())
    }

    /// Makes one file of the newest ones: of so many that the next older one is more than twice as
    /// large as they are together. So what was written first is written again only as often as the
    /// transaction has doubled.
    fn merge_spilled(&mut self, engine: &Engine) -> Result<()> {
        let mut first = self.spilled.len() - 1;
        let mut together = self.spilled[first].charge;
        while first > 0
            && (self.spilled[first - 1].charge <= 2 * together || first + 1 == self.spilled.len())
        {
            first -= 1;
            together += self.spilled[first].charge;
        }
        let merged =
            engine.spills.merge(&self.spilled[first..], |id| self.options_of(engine, id))?;
        reached(Reach::SpillsMerged);
        self.spilled.truncate(first);
        self.spilled.push(merged);
        Ok(())
    }

    /// Writes the write set to a file.
    pub(super) fn write_spill(&self, engine: &Engine) -> Result<Arc<SpillFile>> {
        let (writes, charge) = (self.footprint.writes(), self.footprint.writes_charge());
        engine.spills.write(writes, |id| self.options_of(engine, id), charge)
    }

    pub(super) fn family_of(&self, id: FamilyId) -> &Arc<Keyspace> {
        let at = self.families.binary_search_by_key(&id, |family| family.id);
        &self.families[at.expect("every family of a transaction is named")]
    }

    /// What the table of a family is written with.
    fn options_of(&self, engine: &Engine, id: FamilyId) -> TableOptions {
        let family = self.family_of(id);
        engine.ceiling.fit(family.options().table_options(id, &family.name(), 0))
    }

    /// What the spill files say of a key: nothing, or its value if it has one.
    #[cold]
    pub(super) fn own_spilled(
        &self,
        family: &Keyspace,
        key: &[u8],
    ) -> Result<Option<(OpKind, Value)>> {
        let answer = |file: &Arc<SpillFile>| {
            let own = file.get(family.id, key).transpose()?;
            Some(own.map(|own| match own {
                None => (OpKind::Delete, Value::default()),
                Some((kind, stored)) => (kind, Value::in_block(stored)),
            }))
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
        let spilled = self.spilled_charge();
        match spilled {
            0 => Ok(()),
            _ => {
                let needed = spilled + self.footprint.writes_charge();
                Err(Error::transaction_too_large(needed, footprint_max(engine)))
            }
        }
    }
}
