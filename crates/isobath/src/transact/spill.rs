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
//!
//! Below a ceiling for memory a write set may be full much earlier. Then it is spilled if it is
//! worth a file, and if there is memory for writing one: transactions leave as much to others.

use super::begin::{Life, footprint_max};
use crate::engine::{Engine, Keyspace, SpillFile, SpillMemory, SpillNeeds};
use crate::env::{Plant, Reach, planted, reached};
use crate::error::{Error, Result};
use crate::footprint::{NoRoom, Operation};
use crate::format::{FamilyId, OpKind};
use crate::limits::MAX_BATCH_LEN;
use crate::pinned::Value;
use crate::table::TableOptions;
use std::sync::Arc;

/// A write set that takes less of what a transaction may take than one part in so many is not worth
/// a file.
const SPILLED_PART_MIN: u64 = 16;

impl Life {
    /// Makes room for a write of so many bytes, which the write set has refused.
    #[cold]
    pub(super) fn spill(&mut self, engine: &Engine, refused: NoRoom, bytes: u64) -> Result<()> {
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
        let is_small = matches!(refused, NoRoom::Memory(_))
            && charge < footprint_max(engine) / SPILLED_PART_MIN;
        if self.footprint.len() == 0 || keeps_all || is_alone_too_large || is_small {
            return Err(refused.into_error());
        }
        engine.admit_file()?;
        if self.spilled.len() >= engine.options.sizes.spill_files_max {
            self.merge_spilled(engine)?;
        }
        let file = self.write_spill(engine, true)?;
        reached(Reach::Spilled);
        self.spilled.push(file);
        self.footprint.drain_writes();
        Ok(())
    }

    /// Makes one file of the newest ones: of so many that the next older one is more than twice as
    /// large as they are together. So what was written first is written again only as often as the
    /// transaction has doubled. Without memory for so many it makes one of fewer.
    fn merge_spilled(&mut self, engine: &Engine) -> Result<()> {
        let mut first = self.spilled.len() - 1;
        let mut together = self.spilled[first].charge;
        while first > 0
            && (self.spilled[first - 1].charge <= 2 * together || first + 1 == self.spilled.len())
        {
            first -= 1;
            together += self.spilled[first].charge;
        }
        let memory = loop {
            let count = self.spilled.len() - first;
            match engine.ceiling.of_spill(self.merge_needs(first), true) {
                Err(_) if count > 2 => first += count / 2,
                charged => break charged?,
            }
        };
        let options = |id| self.spill_options(engine, &memory, id);
        let merged = engine.spills.merge(&self.spilled[first..], options)?;
        reached(Reach::SpillsMerged);
        self.spilled.truncate(first);
        self.spilled.push(merged);
        Ok(())
    }

    /// What a merge of all files from the `first` one on takes.
    pub(super) fn merge_needs(&self, first: usize) -> SpillNeeds {
        let files = &self.spilled[first..];
        let slices = files.iter().flat_map(|file| file.slices());
        SpillNeeds {
            inputs: files.len() as u64,
            len: files.iter().map(|file| file.charge).sum(),
            longest: self.spilled_longest,
            keys: slices.map(|meta| meta.entries).sum(),
        }
    }

    /// Writes the write set to a file, also without memory for that unless it `may_fail`.
    pub(super) fn write_spill(
        &mut self,
        engine: &Engine,
        may_fail: bool,
    ) -> Result<Arc<SpillFile>> {
        let (writes, charge) = (self.footprint.writes(), self.footprint.writes_charge());
        let longest = writes.clone().map(|write| (write.key.len() + write.value.len()) as u64);
        let longest = longest.max().unwrap_or(0);
        let keys = self.footprint.len() as u64;
        let needs = SpillNeeds { inputs: 0, len: charge, longest, keys };
        let memory = engine.ceiling.of_spill(needs, may_fail)?;
        let options = |id| self.spill_options(engine, &memory, id);
        let file = engine.spills.write(writes, options, (charge, may_fail))?;
        self.spilled_longest = self.spilled_longest.max(longest);
        Ok(file)
    }

    /// What the table of a family is written with in a spill file.
    fn spill_options(&self, engine: &Engine, memory: &SpillMemory, id: FamilyId) -> TableOptions {
        let options = self.options_of(engine, id);
        let bits = if memory.is_tight { 0 } else { options.filter_bits_per_key };
        TableOptions { filter_bits_per_key: bits, ..options }
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

    /// Charges what it takes to bring everything back into memory. False if there is no room for
    /// that, and the commit can do without.
    pub(super) fn has_room_to_unspill(&mut self, engine: &Engine) -> Result<bool> {
        if self.spilled.is_empty() {
            return Ok(true);
        }
        match self.charge_unspilled() {
            Ok(()) => Ok(true),
            Err(refused) if engine.options.commit_hook.is_some() || self.has_streams() => {
                Err(refused)
            }
            Err(_) => Ok(false),
        }
    }

    fn charge_unspilled(&mut self) -> Result<()> {
        // While it is brought back, what is in memory is there twice.
        let more = self.spilled_charge() + self.footprint.writes_charge();
        let needed = self.footprint.charge() + more;
        self.footprint.allow(needed)
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

    /// Brings everything back into memory, for a prepare. A prepared transaction is kept in memory
    /// until a flush, so it must be no larger than what memory may hold: it can have spilled only
    /// for lack of memory.
    pub(super) fn unspill_to_prepare(&mut self, engine: &Engine) -> Result<()> {
        if self.spilled.is_empty() {
            return Ok(());
        }
        let needed = self.spilled_charge() + self.footprint.writes_charge();
        if needed > footprint_max(engine) {
            return Err(Error::transaction_too_large(needed, footprint_max(engine)));
        }
        self.charge_unspilled()?;
        self.unspill()
    }
}
