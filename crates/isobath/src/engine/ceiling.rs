//! The ceiling for memory of an open database: its budget, what is reserved from the open on, and
//! how the block cache gives way to everything else.
//!
//! Without the option there is no budget, and what asks here is never refused.

use crate::background::CancelToken;
use crate::env::Threads;
use crate::env::sync::atomic::{AtomicBool, Ordering};
use crate::error::{Error, MemoryClass, Result};
use crate::memory::{Allowance, Budget, Charge, Reserve, Shares, commit_bytes};
use crate::metrics::MemoryMetrics;
use crate::options::Options;
use crate::table::{BlockCache, MemoryBelow, TableContext, TableOptions};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How long a part of a compaction waits before it asks again.
const PART_PAUSE: Duration = Duration::from_millis(20);

/// Blocks that are pressed for others keep a cache of so many bytes, so that the next ones have a
/// place before the cache gets back what is left.
const CACHE_LEAST: u64 = 64 << 10;

/// More than the top of an index takes that is written below a ceiling.
const TABLE_LEAST: u64 = 4 << 10;

/// A part that has memory for fewer keys of a table than this does not begin. The reserve suffices
/// for that with so many inputs as the planner gives a job.
const TABLE_KEYS_LEAST: u64 = 1024;

/// The ceiling, if there is one.
pub(crate) struct Ceiling {
    /// The longest key and value together.
    pub(crate) entry_max: u64,
    /// A commit that may take more is spoken for by itself.
    pub(crate) small_commit: u64,
    /// The most memory that one commit may take.
    pub(crate) commit_max: u64,
    /// A stream that is longer never fits, so it is not read as a whole.
    pub(crate) whole_max: u64,
    below: Option<Below>,
}

struct Below {
    budget: Arc<Budget>,
    shares: Shares,
    /// The most that the block cache may hold.
    cache_max: u64,
    parts: Arc<PartMemory>,
    /// For tables that do not stay open, and for what jobs read.
    passing: Arc<Reserve>,
    of_jobs: Arc<Reserve>,
    /// The memory of a flush.
    _of_flush: Charge,
}

impl Ceiling {
    /// No ceiling.
    pub(crate) fn none() -> Ceiling {
        let most = u64::MAX;
        let (entry_max, small_commit, commit_max, whole_max) = (most, most, most, most);
        Ceiling { entry_max, small_commit, commit_max, whole_max, below: None }
    }

    /// The ceiling that the options set, with all that is reserved below it; and the charge for
    /// what memtables always have.
    pub(crate) fn of(options: &Options) -> Result<(Ceiling, Option<(Charge, Shares)>)> {
        let Some(shares) = options.shares() else { return Ok((Ceiling::none(), None)) };
        let budget = Budget::new(shares.ceiling, &[(MemoryClass::Blocks, shares.blocks_min())]);
        let reserve = |class, bytes| budget.try_charge(class, bytes);
        let lease = reserve(MemoryClass::Memtables, shares.lease())?;
        let cache_max = options.block_cache.unwrap_or(u64::MAX).min(shares.cache_most());
        let below = Below {
            parts: Arc::new(PartMemory {
                reserve: reserve(MemoryClass::Jobs, shares.reserved_part())?,
                most: shares.ceiling - shares.reserved() + shares.reserved_part(),
                is_reserve_taken: AtomicBool::new(false),
                budget: budget.clone(),
                shares,
                threads: options.env.threads.clone(),
            }),
            passing: Reserve::new(reserve(MemoryClass::Tables, shares.passing_tables())?),
            of_jobs: Reserve::new(reserve(MemoryClass::Jobs, shares.read_by_jobs())?),
            _of_flush: reserve(MemoryClass::Jobs, shares.flush())?,
            budget,
            shares,
            cache_max,
        };
        let ceiling = Ceiling {
            entry_max: shares.entry_max,
            small_commit: shares.small_commit(),
            commit_max: shares.commit_max(),
            whole_max: shares.ceiling - (shares.reserved() - shares.blocks_min()),
            below: Some(below),
        };
        Ok((ceiling, Some((lease, shares))))
    }

    /// The cache of blocks that has its place below the ceiling.
    pub(crate) fn cache(&self) -> Option<BlockCache> {
        let below = self.below.as_ref()?;
        let frames_max = below.shares.frames_max();
        debug_assert!(frames_max < below.shares.blocks_min(), "frames leave nothing to blocks");
        let cache = BlockCache::below(below.cache_max, &below.budget, frames_max);
        cache.set_capacity(below.cache_target(0));
        Some(cache)
    }

    /// What tables charge.
    pub(crate) fn of_tables(&self) -> Option<MemoryBelow> {
        let below = self.below.as_ref()?;
        Some(MemoryBelow {
            budget: below.budget.clone(),
            stay_max: below.shares.staying_tables(),
            read_len: below.shares.read_len,
            passing: below.passing.clone(),
            of_jobs: below.of_jobs.clone(),
        })
    }

    /// How slices are written: below a ceiling with short tops, because open tables keep these. The
    /// rest of an index is in blocks, which the cache gives up. And nothing that is made there is
    /// longer than what a program may write: jobs must have memory to read it.
    pub(crate) fn fit(&self, options: TableOptions) -> TableOptions {
        let Some(below) = &self.below else { return options };
        let index_block_len = below.shares.index_block_len();
        TableOptions { flat_index_part: 0, index_block_len, made_max: self.entry_max, ..options }
    }

    /// What parts of compactions charge.
    pub(crate) fn of_parts(&self) -> Option<Arc<PartMemory>> {
        self.below.as_ref().map(|below| below.parts.clone())
    }

    /// The same for one job. `check` fails once nothing can come of a job.
    pub(crate) fn of_job(
        &self,
        check: impl Fn() -> Result<()> + Send + Sync + 'static,
    ) -> Option<JobMemory> {
        Some(JobMemory { parts: self.of_parts()?, check: Arc::new(check) })
    }

    /// How many inputs a part of a compaction may have: for so many the reserve suffices, whatever
    /// else is held.
    pub(crate) fn inputs_max(&self) -> usize {
        let of = |shares: &Shares| shares.inputs_within(shares.reserved_part(), TABLE_KEYS_LEAST);
        let most = self.below.as_ref().map(|below| of(&below.shares));
        debug_assert!(most.is_none_or(|most| most > 2), "no two runs go down together");
        most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX))
    }

    /// With how many keys an output of a compaction may have to end for lack of memory.
    pub(crate) fn output_keys_min(&self) -> u64 {
        let of = |shares: &Shares| shares.keys_within(shares.reserved_part(), 1);
        self.below.as_ref().map_or(u64::MAX, |below| of(&below.shares))
    }

    /// The same tables, whose cache gives way when something else needs memory.
    pub(crate) fn press(&self, tables: TableContext) -> Arc<TableContext> {
        let pressed = Arc::new(tables);
        let Some(below) = &self.below else { return pressed };
        let (tables, shares): (Weak<TableContext>, _) = (Arc::downgrade(&pressed), below.shares);
        below.budget.on_lack(move |class, missing| {
            // A block takes the place of another, however few there are. For everything else
            // so many stay.
            let least = match class {
                MemoryClass::Blocks => CACHE_LEAST,
                _ => shares.blocks_min(),
            };
            let more = shares.ceiling / 64;
            tables.upgrade().is_some_and(|tables| give_way(&tables.blocks, missing, more, least))
        });
        pressed
    }

    /// Gives the cache what is left.
    pub(crate) fn settle(&self, cache: &BlockCache) {
        let Some(below) = &self.below else { return };
        let target = below.cache_target(cache.used_bytes());
        if target.abs_diff(cache.capacity()) > below.shares.ceiling / 64 {
            cache.set_capacity(target);
        }
    }

    /// Charges what the list of tables takes, as far as there is room: it is in memory anyhow, and
    /// so other things have to take less.
    pub(crate) fn charge_list(&self, charge: &mut Option<Charge>, listed: impl FnOnce() -> u64) {
        let Some(below) = &self.below else { return };
        if charge.is_none() {
            *charge = below.budget.charge_with_room_made(MemoryClass::Tables, 0);
        }
        let (Some(charge), bytes) = (charge, listed()) else { return };
        charge.shrink_to(bytes);
        charge.grow_as_far_as_there_is_room(bytes);
    }

    /// True if there is a ceiling.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.below.is_some()
    }

    /// What a transaction may take, or its locks or its name in doubt: nothing yet.
    pub(crate) fn allowance(&self) -> Allowance {
        let below = self.below.as_ref();
        below.map_or_else(Allowance::endless, |below| Allowance::below(&below.budget))
    }

    /// Charges what writing a spill file takes, or fails if it `may_fail`; otherwise it charges as
    /// much as there is room for.
    pub(crate) fn of_spill(&self, needs: SpillNeeds, may_fail: bool) -> Result<SpillMemory> {
        let Some(below) = &self.below else { return Ok(SpillMemory::default()) };
        let SpillNeeds { inputs, len, longest, keys } = needs;
        debug_assert!(inputs != 1, "a merge makes one file of several");
        let (least, filter) = (below.shares.spill(inputs, len, longest), Shares::filter(keys));
        let class = MemoryClass::Jobs;
        if let Some(charge) = below.budget.charge_if_free(class, least + filter) {
            return Ok(SpillMemory { is_tight: false, _charge: Some(charge) });
        }
        let charge = match may_fail {
            true => below.budget.try_charge(class, least)?,
            false => {
                let mut charge = below.budget.try_charge(class, 0)?;
                charge.grow_as_far_as_there_is_room(least);
                charge
            }
        };
        Ok(SpillMemory { is_tight: true, _charge: Some(charge) })
    }

    /// Fails if there is no room for what one more open table takes.
    pub(crate) fn check_table(&self) -> Result<()> {
        let Some(below) = &self.below else { return Ok(()) };
        below.budget.try_charge(MemoryClass::Tables, TABLE_LEAST).map(drop)
    }

    /// Fails if a key and its value are longer together than may be.
    #[inline]
    pub(crate) fn check_entry(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let len = (key.len() + value.len()) as u64;
        if len > self.entry_max { Err(self.refuse_entry(len)) } else { Ok(()) }
    }

    /// Fails if a commit of so many bytes and operations takes more than one may.
    pub(crate) fn check_commit(&self, bytes: u64, ops: u64) -> Result<()> {
        let takes = commit_bytes(bytes, ops);
        match takes <= self.commit_max {
            true => Ok(()),
            false => Err(Error::beyond_memory(takes, self.commit_max, MemoryClass::Memtables)),
        }
    }

    #[cold]
    fn refuse_entry(&self, len: u64) -> Error {
        Error::beyond_memory(len, self.entry_max, MemoryClass::Memtables)
    }

    /// The figures, if there is a ceiling.
    pub(crate) fn metrics(&self) -> Option<MemoryMetrics> {
        let below = self.below.as_ref()?;
        let budget = &below.budget;
        Some(MemoryMetrics {
            ceiling: budget.ceiling(),
            held: budget.held(),
            memtables: budget.held_by(MemoryClass::Memtables),
            blocks: budget.held_by(MemoryClass::Blocks),
            tables: budget.held_by(MemoryClass::Tables) - below.passing.spare(),
            jobs: budget.held_by(MemoryClass::Jobs),
            transactions: budget.held_by(MemoryClass::Transactions),
            refusals: budget.refusals(),
        })
    }
}

impl Below {
    /// What is left for a cache that holds so much.
    fn cache_target(&self, cached: u64) -> u64 {
        let cached = cached.max(self.shares.blocks_min());
        let others = self.budget.held().saturating_sub(cached);
        let left = self.shares.ceiling.saturating_sub(others + self.shares.headroom());
        left.max(self.shares.blocks_min() / 2).min(self.cache_max)
    }
}

/// Makes the cache give up as much as is missing, and some more. False if it holds no more than the
/// least.
fn give_way(cache: &BlockCache, missing: u64, more: u64, least: u64) -> bool {
    let used = cache.used_bytes();
    let target = used.saturating_sub(missing.saturating_add(more)).max(least);
    if target >= used {
        return false;
    }
    cache.set_capacity(target);
    true
}

/// What a spill file is made of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpillNeeds {
    /// The number of files that are merged to it.
    pub(crate) inputs: u64,
    /// Its length in bytes, about.
    pub(crate) len: u64,
    /// The length of the longest key and value together.
    pub(crate) longest: u64,
    pub(crate) keys: u64,
}

/// What the writing of a spill file has charged.
#[derive(Debug, Default)]
pub(crate) struct SpillMemory {
    /// There is no memory for a filter.
    pub(crate) is_tight: bool,
    _charge: Option<Charge>,
}

/// The memory of parts of compactions.
pub(crate) struct PartMemory {
    /// What is kept for one part, whatever else needs memory.
    reserve: Charge,
    /// The most that a part can ever have.
    most: u64,
    is_reserve_taken: AtomicBool,
    budget: Arc<Budget>,
    shares: Shares,
    threads: Arc<dyn Threads>,
}

/// The memory of the parts of one job.
#[derive(Clone)]
pub(crate) struct JobMemory {
    parts: Arc<PartMemory>,
    check: Arc<dyn Fn() -> Result<()> + Send + Sync>,
}

impl JobMemory {
    /// Waits for the memory of a part: [`PartMemory::admit`].
    pub(crate) fn admit(&self, needs: (u64, u64), cancel: &CancelToken) -> Result<PartCharge> {
        self.parts.admit(needs, &|| cancel.check().and_then(|()| (self.check)()))
    }
}

/// What a part holds while it runs.
pub(crate) struct PartCharge {
    /// A table that it writes gets no more keys than this, or no filter.
    pub(crate) table_keys: u64,
    _charge: Option<Charge>,
    of_reserve: Option<Arc<PartMemory>>,
}

impl Drop for PartCharge {
    fn drop(&mut self) {
        if let Some(memory) = &self.of_reserve {
            let was_taken = memory.is_reserve_taken.swap(false, Ordering::AcqRel);
            debug_assert!(was_taken, "the reserve is given back twice");
        }
    }
}

impl PartMemory {
    /// Waits for the memory of a part with so many inputs, of which a table gets so many keys. If
    /// there is nothing but the reserve, it gets fewer, which the answer says. The wait ends with
    /// the error of `check`.
    pub(crate) fn admit(
        self: &Arc<Self>,
        (inputs, table_keys): (u64, u64),
        check: &dyn Fn() -> Result<()>,
    ) -> Result<PartCharge> {
        let least = self.shares.part(inputs, table_keys.min(TABLE_KEYS_LEAST));
        if least > self.most {
            return Err(Error::beyond_memory(least, self.most, MemoryClass::Jobs));
        }
        let of_others = || self.charge(self.shares.part(inputs, table_keys), table_keys);
        loop {
            if let Some(admitted) = self.take_reserve(inputs, table_keys).or_else(of_others) {
                return Ok(admitted);
            }
            check()?;
            self.threads.sleep(PART_PAUSE);
        }
    }

    /// The reserve, with a charge for what is needed beyond it. Without that there is memory for
    /// fewer keys.
    fn take_reserve(self: &Arc<Self>, inputs: u64, table_keys: u64) -> Option<PartCharge> {
        if self.is_reserve_taken.swap(true, Ordering::AcqRel) {
            return None;
        }
        let mut taken = PartCharge { table_keys, _charge: None, of_reserve: Some(self.clone()) };
        let reserved = self.reserve.bytes();
        let within = self.shares.keys_within(reserved, inputs).max(TABLE_KEYS_LEAST);
        for keys in [table_keys, table_keys.min(within)] {
            let beyond = self.shares.part(inputs, keys).saturating_sub(reserved);
            taken.table_keys = keys;
            taken._charge = self.budget.charge_with_room_made(MemoryClass::Jobs, beyond);
            if taken._charge.is_some() {
                debug_assert!(taken.table_keys <= table_keys, "a part gets more than it asks for");
                return Some(taken);
            }
        }
        None
    }

    fn charge(&self, needed: u64, table_keys: u64) -> Option<PartCharge> {
        let charge = self.budget.charge_if_free(MemoryClass::Jobs, needed)?;
        Some(PartCharge { table_keys, _charge: Some(charge), of_reserve: None })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::table::block_of_len;
    use crate::table::cache::{BlockKey, FileCache};
    use crate::vfs::FileAccess;

    fn parts() -> (Ceiling, Arc<PartMemory>, Arc<Budget>) {
        let (ceiling, _lease) = Ceiling::of(&Options::in_memory().memory(24 << 20)).unwrap();
        let (parts, budget) =
            (ceiling.of_parts().unwrap(), ceiling.below.as_ref().unwrap().budget.clone());
        (ceiling, parts, budget)
    }

    #[test]
    fn a_spill_is_charged_with_its_filter_or_without_or_as_far_as_there_is_room() {
        let (ceiling, _parts, budget) = parts();
        let needs = || SpillNeeds { inputs: 0, len: 1 << 20, longest: 100, keys: 20_000 };
        let shares = ceiling.below.as_ref().unwrap().shares;
        let (least, filter) = (shares.spill(0, 1 << 20, 100), Shares::filter(20_000));
        let before = budget.held();
        let all = budget.ceiling() - before;
        for (left, taken) in [
            (all, (least + filter, false)),
            (least + filter, (least + filter, false)),
            (least + filter - 1, (least, true)),
            (least, (least, true)),
        ] {
            let _others = budget.try_charge(MemoryClass::Memtables, all - left).unwrap();
            let others = budget.held();
            let spill = ceiling.of_spill(needs(), true).unwrap();
            assert_eq!((budget.held() - others, spill.is_tight), taken, "{left}");
        }
        let _others = budget.try_charge(MemoryClass::Memtables, all - least + 1).unwrap();
        assert!(ceiling.of_spill(needs(), true).is_err());
        let spill = ceiling.of_spill(needs(), false).unwrap();
        assert!(spill.is_tight && budget.held() == budget.ceiling());
    }

    #[test]
    fn one_part_always_gets_its_reserve_and_others_what_is_free() {
        let (_ceiling, parts, budget) = parts();
        let free = budget.ceiling() - budget.held();
        let all = budget.try_charge(MemoryClass::Memtables, free).unwrap();
        let first = parts.take_reserve(1, 1).unwrap();
        assert!(parts.take_reserve(1, 1).is_none() && parts.charge(1, 1).is_none());
        drop(first);
        // So many inputs that the reserve does not suffice for the fewest keys.
        assert!(parts.take_reserve(40, 1).is_none());
        let again = parts.take_reserve(16, 1).expect("the failure kept nothing");
        drop(all);
        let beside = parts.charge(1000, 1).unwrap();
        assert_eq!(budget.ceiling() - budget.held(), free - 1000);
        drop((again, beside));
        assert_eq!(budget.ceiling() - budget.held(), free);
    }

    #[test]
    fn a_part_for_which_only_the_reserve_is_left_begins_with_fewer_keys_a_table() {
        let (_ceiling, parts, budget) = parts();
        let free = budget.ceiling() - budget.held();
        let go_on = || Ok(());
        let whole = parts.admit((16, 50_000), &go_on).unwrap();
        assert_eq!(whole.table_keys, 50_000);
        drop(whole);
        // Small entries: half a million of them make an output of half a buffer.
        let all = budget.try_charge(MemoryClass::Memtables, free).unwrap();
        for (inputs, wanted) in [(16, 500_000), (3, 100_000_000)] {
            let fewer = parts.admit((inputs, wanted), &go_on).unwrap().table_keys;
            assert!((26_000..60_000).contains(&fewer), "{fewer}");
            assert_eq!(parts.admit((inputs, 500), &go_on).unwrap().table_keys, 500);
        }
        drop(all);
        assert_eq!(budget.ceiling() - budget.held(), free);
        // What no ceiling of this length can hold is told, not waited for.
        let hopeless = parts.admit((1000, 1), &go_on).map(drop).unwrap_err();
        assert!(!hopeless.is_retryable(), "{hopeless}");
    }

    #[test]
    fn a_part_that_waits_ends_when_it_is_cancelled_or_nothing_can_come_of_it() {
        let (ceiling, parts, budget) = parts();
        let free = budget.ceiling() - budget.held();
        let _all = budget.try_charge(MemoryClass::Memtables, free).unwrap();
        let _reserve = parts.take_reserve(1, 1).unwrap();
        let cancel = CancelToken::default();
        let of_job = ceiling.of_job(|| Err(Error::closed())).unwrap();
        assert!(of_job.admit((1, 1), &cancel).is_err_and(|error| error.is_closed()));
        cancel.cancel();
        let of_job = ceiling.of_job(|| Ok(())).unwrap();
        assert!(of_job.admit((1, 1), &cancel).is_err_and(|error| error.is_cancelled()));
    }

    #[test]
    fn a_part_with_the_most_inputs_never_waits_for_what_others_hold() {
        for (memory, most) in [(24 << 20, 27), (64 << 20, 34), (256 << 20, 40)] {
            let (ceiling, _lease) = Ceiling::of(&Options::in_memory().memory(memory)).unwrap();
            assert_eq!(ceiling.inputs_max(), most);
            let (parts, below) = (ceiling.of_parts().unwrap(), ceiling.below.as_ref().unwrap());
            let free = below.budget.ceiling() - below.budget.held();
            let _all = below.budget.try_charge(MemoryClass::Memtables, free).unwrap();
            let of_most = parts.take_reserve(most as u64, u64::MAX >> 8).unwrap();
            assert!(of_most.table_keys >= TABLE_KEYS_LEAST);
            drop(of_most);
            assert!(parts.take_reserve(most as u64 + 1, u64::MAX >> 8).is_none());
        }
        assert_eq!(Ceiling::none().inputs_max(), usize::MAX);
    }

    #[test]
    fn the_list_of_tables_is_charged_as_far_as_there_is_room() {
        let (ceiling, _parts, budget) = parts();
        let (free, mut charge) = (budget.ceiling() - budget.held(), None);
        for (listed, charged) in [(1000, 1000), (900, 900), (u64::MAX / 2, free), (0, 0)] {
            ceiling.charge_list(&mut charge, || listed);
            assert_eq!(budget.ceiling() - budget.held(), free - charged);
            assert_eq!(ceiling.metrics().unwrap().tables, charged);
        }
        Ceiling::none().charge_list(&mut None, || unreachable!("there is no ceiling"));
    }

    #[test]
    fn the_cache_gives_way_but_keeps_what_is_for_blocks_and_gets_back_what_is_left() {
        let options = Options::in_memory().memory(24 << 20);
        let (ceiling, _lease) = Ceiling::of(&options).unwrap();
        let budget = ceiling.below.as_ref().unwrap().budget.clone();
        let fs = options.env.fs.clone();
        let files = FileCache::new(fs, "dir".into(), FileAccess::Positional, 8);
        let tables = TableContext::new(Arc::new(files), ceiling.cache().unwrap());
        let tables = ceiling.press(tables.below(ceiling.of_tables()));
        let read = |nth| {
            let block = tables.charged(block_of_len(4000))?;
            let key = BlockKey { id: tables.cache_id, file: 1, offset: nth * 4096 };
            Ok::<_, Error>(tables.blocks.insert(None, key, block))
        };
        (0..8000).for_each(|nth| drop(read(nth).unwrap()));
        let full = tables.blocks.used_bytes();
        assert!(full > 3 << 20 && budget.held_by(MemoryClass::Blocks) >= full, "{full}");
        // Something else gets all but a 16th of the ceiling.
        let free = budget.ceiling() - budget.held();
        let taken = budget.try_charge(MemoryClass::Memtables, free + (1 << 20)).unwrap();
        assert!(tables.blocks.used_bytes() < full);
        let rest = budget.ceiling() - budget.held() + budget.held_by(MemoryClass::Blocks);
        assert!(budget.try_charge(MemoryClass::Memtables, rest).is_err());
        let kept = tables.blocks.used_bytes();
        assert!((1 << 20..=3 << 19).contains(&kept), "{kept}");
        let others = budget.ceiling() - budget.held();
        let all = budget.try_charge(MemoryClass::Memtables, others).unwrap();
        // Blocks take the place of others until all are held.
        let mut held = Vec::new();
        let refused = loop {
            match read(8000 + held.len() as u64) {
                Ok(block) => held.push(block),
                Err(refused) => break refused,
            }
        };
        assert!(refused.is_retryable() && held.len() > 250, "{} {refused}", held.len());
        drop((taken, all, held));
        ceiling.settle(&tables.blocks);
        (0..8000).for_each(|nth| drop(read(nth).unwrap()));
        assert!(tables.blocks.used_bytes() > full / 8 * 7);
    }
}
