//! Transactions that have written more than memory may hold: what they wrote goes to files, in
//! runs, and comes back when they commit.
//!
//! ```text
//! spill    the write set is full: it becomes a run (`engine/spill.rs`), and is empty
//! read     the write set, then the runs, newest first, then the database
//! unspill  at the commit all runs go back into memory, beneath the write set
//! ```
//!
//! So a commit is the same whatever was spilled, and takes as much memory as that of an equal
//! batch. Only in the time before does a transaction keep to its limit. What a savepoint may go
//! back to stays in memory: while there is one, nothing is spilled.

use super::begin::{Life, footprint_max, too_large};
use crate::engine::{Engine, Keyspace, RUNS_MAX, SpilledRun};
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
        let needed = self.runs.iter().map(|run| run.charge).sum::<u64>() + charge + bytes;
        if self.runs.len() == RUNS_MAX || needed > MAX_BATCH_LEN as u64 {
            return Err(Error::transaction_too_large(needed, needed - bytes));
        }
        let is_alone_too_large = bytes > footprint_max(engine);
        if self.footprint.len() == 0 || self.footprint.has_savepoints() || is_alone_too_large {
            return Err(too_large(refused));
        }
        let options = |id: FamilyId| {
            let at = self.families.binary_search_by_key(&id, |family| family.id);
            let family = &self.families[at.expect("every family of a transaction is named")];
            family.options().table_options(id, &family.name(), 0)
        };
        let run = engine.spills.write(self.footprint.writes(), options, charge)?;
        reached(Reach::Spilled);
        self.runs.push(run);
        self.footprint.drain_writes();
        Ok(())
    }

    /// What the runs say of a key: nothing, or its value if it has one.
    #[cold]
    pub(super) fn own_spilled(
        &self,
        family: &Keyspace,
        key: &[u8],
    ) -> Result<Option<Option<Value>>> {
        let answer = |run: &Arc<SpilledRun>| {
            let own = run.get(family.id, key).transpose()?;
            Some(own.map(|own| own.map(Value::in_block)))
        };
        let own = match planted(Plant::RunsReadOldestFirst) {
            true => self.runs.iter().find_map(answer),
            false => self.runs.iter().rev().find_map(answer),
        };
        own.transpose()
    }

    /// Brings everything back into memory. If that fails, the transaction is as it was.
    pub(super) fn unspill(&mut self) -> Result<()> {
        if self.runs.is_empty() {
            return Ok(());
        }
        let runs = &self.runs;
        let each = |add: &mut dyn FnMut(Operation<'_>) -> Result<()>| match planted(
            Plant::RunsPutBackwards,
        ) {
            true => runs.iter().rev().try_for_each(|run| run.each(&mut *add)),
            false => runs.iter().try_for_each(|run| run.each(&mut *add)),
        };
        self.footprint.put_beneath(each)?;
        self.runs.clear();
        Ok(())
    }

    /// Fails if something was spilled. A prepared transaction is kept in memory until a flush, so
    /// it must be no larger than what memory may hold.
    pub(super) fn check_unspilled(&self, engine: &Engine) -> Result<()> {
        let spilled: u64 = self.runs.iter().map(|run| run.charge).sum();
        match spilled {
            0 => Ok(()),
            _ => {
                let needed = spilled + self.footprint.writes_charge();
                Err(Error::transaction_too_large(needed, footprint_max(engine)))
            }
        }
    }
}
