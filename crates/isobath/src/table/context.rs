//! What the tables of one database are read with: where their files are found, where their blocks
//! are kept, and what their memory is charged to.

use super::block::Block;
use super::codec::Decompressor;
use super::recent::Recent;
use super::{SliceMeta, Table};
use crate::error::{MemoryClass, Result};
use crate::memory::{Budget, Charge, Reserve, Room, VALUES_AHEAD};
use crate::table::cache::{BlockCache, CacheId, FileCache};
use std::sync::Arc;

/// The bytes that a compaction reads with one system call where files are not mapped.
const READ_LEN: u64 = 256 << 10;

/// How the tables of one database find their files, and where they keep their blocks.
#[derive(Clone, Debug)]
pub(crate) struct TableContext {
    pub(crate) files: Arc<FileCache>,
    pub(crate) blocks: BlockCache,
    pub(crate) cache_id: CacheId,
    pub(crate) decompressor: Arc<Decompressor>,
    below: Option<Arc<MemoryBelow>>,
    /// Tables that do not stay open. An open table does not know of them: it may be one.
    recent: Option<Arc<Recent>>,
}

/// Below which ceiling the tables of a database are read.
#[derive(Debug)]
pub(crate) struct MemoryBelow {
    pub(crate) budget: Arc<Budget>,
    /// The most that tables may take that stay open, and half of it with filters among that.
    pub(crate) stay_max: u64,
    /// The bytes that a compaction reads from an input at once.
    pub(crate) read_len: u64,
    /// What is kept for tables that do not stay open.
    pub(crate) passing: Arc<Reserve>,
    /// What is kept for what jobs read: tables that do not stay open, and long blocks.
    pub(crate) of_jobs: Arc<Reserve>,
}

impl MemoryBelow {
    /// What open tables hold, without the reserve.
    fn held(&self) -> u64 {
        self.budget.held_by(MemoryClass::Tables).saturating_sub(self.passing.bytes())
    }
}

/// Who opens a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opener {
    /// Someone who keeps it, and does without if there is no memory.
    Keeper,
    /// Someone who keeps it, and cannot do without.
    Recovery,
    Reader,
    Job,
}

/// How long a table stays open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stay {
    /// As long as its slice is in use.
    Long,
    /// Until others are asked for more often.
    Recent,
    /// As long as who has opened it holds it.
    Short,
}

/// There is no memory for a filter. The table is read without.
pub(super) struct NoRoom;

impl TableContext {
    pub(crate) fn new(files: Arc<FileCache>, blocks: BlockCache) -> TableContext {
        let (cache_id, decompressor) = (blocks.new_id(), Arc::default());
        TableContext { files, blocks, cache_id, decompressor, below: None, recent: None }
    }

    /// The same, below a ceiling for memory.
    pub(crate) fn below(self, below: Option<MemoryBelow>) -> TableContext {
        let recent = below.as_ref().map(|below| Arc::new(Recent::new(below.passing.clone())));
        TableContext { below: below.map(Arc::new), recent, ..self }
    }

    /// The same, below the ceiling of another context.
    pub(crate) fn below_that_of(self, other: &TableContext) -> TableContext {
        TableContext { below: other.below.clone(), recent: None, ..self }
    }

    /// The context of an open table.
    pub(super) fn of_open(self) -> TableContext {
        TableContext { recent: None, ..self }
    }

    pub(crate) fn is_below(&self) -> bool {
        self.below.is_some()
    }

    /// The bytes that a compaction reads from an input at once.
    pub(super) fn read_len(&self) -> u64 {
        self.below.as_ref().map_or(READ_LEN, |below| below.read_len)
    }

    /// The most that a job keeps of what it reads ahead of values in blob files, below a ceiling.
    /// It has charged that, and a quarter for what is being read.
    pub(crate) fn values_ahead(&self) -> Option<u64> {
        self.below.as_ref().map(|below| VALUES_AHEAD * below.read_len / 5 * 4)
    }

    /// Charges what is about to be read: a value that lies apart, or what a scan reads ahead.
    pub(crate) fn charge_read(&self, bytes: u64) -> Result<Option<Charge>> {
        self.charge(MemoryClass::Blocks, bytes)
    }

    /// Charges memory, if there is a ceiling.
    pub(super) fn charge(&self, class: MemoryClass, bytes: u64) -> Result<Option<Charge>> {
        let charge = |below: &Arc<MemoryBelow>| below.budget.try_charge(class, bytes);
        self.below.as_ref().map(charge).transpose()
    }

    /// Charges a long block that a job reads. What is kept for that comes last.
    pub(super) fn charge_long_block(&self, bytes: u64) -> Result<Option<Room>> {
        let Some(below) = &self.below else { return Ok(None) };
        below.charge_to_job(MemoryClass::Jobs, bytes).map(Some)
    }

    /// What is left of what is kept for what jobs read.
    #[cfg(test)]
    pub(super) fn spare_for_jobs(&self) -> u64 {
        self.below.as_ref().map_or(0, |below| below.of_jobs.spare())
    }

    /// A block that is charged as long as someone holds it.
    pub(crate) fn charged(&self, block: Block) -> Result<Block> {
        let charge = self.charge(MemoryClass::Blocks, block.charged_bytes())?;
        Ok(block.charged(charge))
    }

    /// The same for one whose bytes were charged before they were read.
    pub(crate) fn charged_before(&self, block: Block, charge: Option<Charge>) -> Result<Block> {
        let Some(mut charge) = charge else { return Ok(block) };
        let bytes = block.charged_bytes();
        charge.shrink_to(bytes);
        charge.grow(bytes - charge.bytes())?;
        Ok(block.charged(Some(charge)))
    }

    /// Charges a filter that takes so many bytes. Without a charge there is no memory for it. Half
    /// of what is for tables that stay open is for their tops alone.
    pub(super) fn charge_filter(&self, bytes: u64) -> Result<Option<Charge>, NoRoom> {
        let Some(below) = &self.below else { return Ok(None) };
        if below.held() + bytes > below.stay_max / 2 {
            return Err(NoRoom);
        }
        below.budget.charge_with_room_made(MemoryClass::Tables, bytes).map(Some).ok_or(NoRoom)
    }

    /// Charges what a table takes beside its filter.
    pub(super) fn charge_table(&self, bytes: u64, opener: Opener) -> Result<(Option<Room>, Stay)> {
        let Some(below) = &self.below else { return Ok((None, Stay::Long)) };
        let charge = || below.budget.try_charge(MemoryClass::Tables, bytes).map(Room::from);
        if opener == Opener::Keeper {
            return Ok((Some(charge()?), Stay::Long));
        }
        if opener == Opener::Recovery {
            let mut charge = below.budget.try_charge(MemoryClass::Tables, 0)?;
            charge.grow_as_far_as_there_is_room(bytes);
            return Ok((Some(charge.into()), Stay::Long));
        }
        if below.held() + bytes <= below.stay_max
            && let Some(charge) = below.budget.charge_with_room_made(MemoryClass::Tables, bytes)
        {
            return Ok((Some(charge.into()), Stay::Long));
        }
        if opener == Opener::Job {
            return Ok((Some(below.charge_to_job(MemoryClass::Tables, bytes)?), Stay::Short));
        }
        match self.recent.as_ref().and_then(|recent| recent.take(bytes)) {
            Some(room) => Ok((Some(room), Stay::Recent)),
            None => Ok((Some(charge()?), Stay::Short)),
        }
    }

    /// Opens the table of a slice, in which scans are expected to pass so many bytes. True if it
    /// may stay open as long as the slice is in use.
    pub(crate) fn open(
        &self,
        meta: &SliceMeta,
        is_job: bool,
        usual_scan_bytes: u64,
    ) -> Result<(Arc<Table>, bool)> {
        if let Some(table) = self.recent.as_ref().and_then(|recent| recent.find(meta)) {
            return Ok((table, false));
        }
        let opener = if is_job { Opener::Job } else { Opener::Reader };
        let (table, stay) = Table::open_for(self.clone(), meta, opener)?;
        table.usual_scan.begin_with(usual_scan_bytes);
        if stay == Stay::Recent
            && let Some(recent) = &self.recent
        {
            recent.keep(meta, table.clone());
        }
        Ok((table, stay == Stay::Long))
    }
}

impl MemoryBelow {
    fn charge_to_job(&self, class: MemoryClass, bytes: u64) -> Result<Room> {
        if let Some(charge) = self.budget.charge_with_room_made(class, bytes) {
            return Ok(charge.into());
        }
        if let Some(reserved) = self.of_jobs.take(bytes) {
            return Ok(reserved.into());
        }
        if bytes <= self.of_jobs.bytes() {
            return self.budget.try_charge(class, bytes).map(Room::from);
        }
        // It was written without a ceiling, or below a greater one. No wait would help. The rest of
        // what the job reads at the same time needs room, too, and so do others.
        let left = self.of_jobs.bytes() + self.budget.ceiling() / 64;
        let mut charge = self.budget.try_charge(class, 0)?;
        charge.grow_and_leave(bytes, left);
        Ok(charge.into())
    }
}
