//! Reads of several keys at one point, which go through the sources together.
//!
//! ```text
//! memory    memtables and the files of large commits, key by key
//! then, of the keys that are left, by key: for each run of level 0, and for each level
//!   tables    the slice that may hold each key, and the line of its filter
//!   places    filters, then indexes: which block
//!   blocks    those in memory; those that are not are announced together
//!   answers   blocks that have to be read, and the search in each block
//! values    those in blob files, in the order in which they lie (`blob/batch.rs`); one that cannot
//!           be read fails them all
//! ```
//!
//! The processor waits for the memory of many keys at a time, and a device reads many blocks at a
//! time. Keys in one block need it once.

use super::begin::ReadAt;
use super::expiry::Settled;
use super::get::{Found, Wanted, find_above_tree, is_hidden_by};
use crate::cursor::Entry;
use crate::engine::View;
use crate::env::{Plant, Reach, planted, reached, reached_if};
use crate::error::{Error, Result};
use crate::format::{Lsn, checksum64};
use crate::mvcc::{Moment, OpKind};
use crate::pinned::Value;
use crate::table::cache::BlockRef;
use crate::table::{BlockHandle, Place, Table};
use crate::version::{OpenTable, Slice as TableSlice};
use std::sync::Arc;

/// So many keys go through the sources at a time: the blocks that they need at most are little to
/// keep in memory and to have read ahead.
const TOGETHER_MAX: usize = 1024;

/// A key that no source has answered yet.
struct Open<'k> {
    key: &'k [u8],
    hash: u64,
    /// Where its answer goes.
    at: usize,
    is_answered: bool,
}

/// A key that one source may hold.
struct Probe<'v> {
    /// The number of the key among those that are open.
    open: usize,
    table: OpenTable<'v>,
    place: Place,
    state: State,
}

/// How far a probe has come.
enum State {
    /// Its block is not in memory.
    Unread,
    InMemory(BlockRef),
    /// The block of the probe before.
    SameBlock,
    /// A range delete of the source hides the key, which stays absent.
    Hidden,
}

impl Probe<'_> {
    fn is_unread(&self) -> bool {
        matches!(self.state, State::Unread)
    }

    fn is_in_same_block(&self) -> bool {
        matches!(self.state, State::SameBlock)
    }

    fn is_in_block_of(&self, other: &Probe<'_>) -> bool {
        self.place == other.place && Arc::ptr_eq(&self.table, &other.table)
    }
}

/// A value that lies in a blob file.
struct Apart<'k> {
    at: usize,
    key: &'k [u8],
    kind: OpKind,
    stored: Value,
}

/// What is known of the keys so far.
struct Answers<'k> {
    values: Vec<Option<Value>>,
    apart: Vec<Apart<'k>>,
}

impl<'k> Answers<'k> {
    /// Takes the newest version of a key, which goes to this place.
    fn take(
        &mut self,
        reads: &ReadAt<'_>,
        (at, key): (usize, &'k [u8]),
        found: Found,
        (view, moment): (&View, Moment),
    ) -> Result<()> {
        debug_assert!(self.values[at].is_none(), "a key is answered once");
        self.values[at] = match found {
            Found::Absent => None,
            Found::Value(value) => Some(value),
            found => match reads.settle(key, found, view, moment)? {
                Settled::Read(read) => read.map(|read| read.value),
                Settled::Apart { kind, stored, .. } => {
                    self.apart.push(Apart { at, key, kind, stored });
                    None
                }
            },
        };
        Ok(())
    }

    /// Reads the values in blob files. The view from which their addresses come is pinned.
    fn fetch(&mut self, reads: &ReadAt<'_>) -> Result<()> {
        if self.apart.is_empty() {
            return Ok(());
        }
        reached(Reach::BlobValueGot);
        let entries: Vec<Entry<'_>> = self
            .apart
            .iter()
            .map(|Apart { key, kind, stored, .. }| Entry {
                key,
                seq: 0,
                kind: *kind,
                value: stored,
            })
            .collect();
        let fetched = reads.engine.fetcher(reads.options.fill_cache).fetch_all(&entries)?;
        for (Apart { at, .. }, value) in self.apart.iter().zip(fetched) {
            self.values[*at] = Some(Value::in_block(value));
        }
        Ok(())
    }
}

impl ReadAt<'_> {
    /// The values of several keys, all at one read point.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        let (view, at) = self.begin_at_moment()?;
        let keys = gather(keys);
        let mut answers = Answers { values: Vec::with_capacity(keys.len()), apart: Vec::new() };
        let mut open = Vec::new();
        for (nth, key) in keys.iter().enumerate() {
            let (key, mut hash) = (key.as_ref(), None);
            let above = find_above_tree(self, &view, (key, &mut hash), at.point, Wanted::Value)?;
            if above.is_none() && !view.tree.is_empty() {
                let hash = hash.unwrap_or_else(|| checksum64(key));
                open.push(Open { key, hash, at: nth, is_answered: false });
            }
            answers.values.push(None);
            if let Some(found) = above {
                answers.take(self, (nth, key), found, (&view, at))?;
            }
        }
        if !open.is_empty() {
            open.sort_unstable_by(|one, other| one.key.cmp(other.key));
            self.find_in_tree_each(&view, at.point, open, |of, found| {
                answers.take(self, (of.at, of.key), found, (&view, at))
            })?;
        }
        answers.fetch(self)?;
        Ok(answers.values)
    }

    fn find_in_tree_each<'k>(
        &self,
        view: &View,
        point: Lsn,
        open: Vec<Open<'k>>,
        mut answer: impl FnMut(&Open<'k>, Found) -> Result<()>,
    ) -> Result<()> {
        let mut probes = Vec::with_capacity(open.len().min(TOGETHER_MAX));
        let mut later = open.into_iter();
        while later.len() > 0 {
            let mut open: Vec<_> = later.by_ref().take(TOGETHER_MAX).collect();
            for run in &view.tree.runs {
                let of_run = |key: &[u8]| Some(run).filter(|run| run.meta.may_hold(key));
                self.ask(of_run, point, &mut open, &mut probes, &mut answer)?;
            }
            for level in &view.tree.levels {
                self.ask(|key| level.find(key), point, &mut open, &mut probes, &mut answer)?;
            }
        }
        Ok(())
    }

    /// Asks one run or level for the open keys, by ascending key. Those that it answers are open no
    /// longer.
    fn ask<'k, 'v>(
        &self,
        slice_of: impl Fn(&[u8]) -> Option<&'v Arc<TableSlice>>,
        point: Lsn,
        open: &mut Vec<Open<'k>>,
        probes: &mut Vec<Probe<'v>>,
        answer: &mut impl FnMut(&Open<'k>, Found) -> Result<()>,
    ) -> Result<()> {
        probes.clear();
        for (number, Open { key, hash, .. }) in open.iter().enumerate() {
            if let Some(slice) = slice_of(key).filter(|slice| slice.meta.min_seq < point) {
                let table = slice.table(&self.engine.tables)?;
                table.prefetch_filter(*hash);
                let (place, state) = (Place::default(), State::Unread);
                probes.push(Probe { open: number, table, place, state });
            }
        }
        self.find_places(open, probes, point)?;
        find_blocks(probes)?;
        let mut last = None;
        for number in 0..probes.len() {
            let is_shared = probes.get(number + 1).is_some_and(|next| next.is_in_same_block());
            let Probe { open: of, table, place, state } = &mut probes[number];
            let of = &mut open[*of];
            let block = match std::mem::replace(state, State::Unread) {
                State::Hidden => {
                    of.is_answered = true;
                    continue;
                }
                State::InMemory(block) => Ok(block),
                State::SameBlock | State::Unread => last
                    .take()
                    .map_or_else(|| table.read_data_block(*place, self.options.fill_cache), Ok),
            };
            if block.as_ref().is_err_and(Error::is_corruption) && planted(Plant::DamageSkipped) {
                continue;
            }
            let block = block?;
            last = is_shared.then(|| block.clone());
            if let Some(found) = table.get_in(block, place.at, of.key, point)? {
                debug_assert!(found.seq < point, "a reader sees what was written after its point");
                of.is_answered = true;
                answer(of, Found::in_table(found))?;
            }
        }
        open.retain(|key| !key.is_answered);
        Ok(())
    }

    /// Finds out which block each probe needs. Those that a filter or an index denies go.
    fn find_places(
        &self,
        open: &[Open<'_>],
        probes: &mut Vec<Probe<'_>>,
        point: Lsn,
    ) -> Result<()> {
        let mut failed = Ok(());
        probes.retain_mut(|probe| {
            let Open { key, hash, .. } = open[probe.open];
            if failed.is_err() {
                return false;
            }
            let (table, fills) = (&*probe.table, self.options.fill_cache);
            if let Some(spans) = table.spans() {
                match is_hidden_by((spans, table), (key, hash), point, fills) {
                    Ok(false) => {}
                    Ok(true) => {
                        probe.state = State::Hidden;
                        return true;
                    }
                    Err(error) => {
                        failed = Err(error);
                        return false;
                    }
                }
            }
            match table.place_of(key, hash, point) {
                Ok(Some(place)) => {
                    probe.place = place;
                    true
                }
                Ok(None) => false,
                Err(error) => {
                    failed = Err(error);
                    false
                }
            }
        });
        failed
    }
}

/// Collects the keys. `size_hint` is not to be trusted for any amount of memory.
fn gather<K>(keys: impl IntoIterator<Item = K>) -> Vec<K> {
    let keys = keys.into_iter();
    let mut gathered = Vec::with_capacity(keys.size_hint().0.min(1024));
    keys.for_each(|key| gathered.push(key));
    gathered
}

/// Takes the blocks that are in memory, and announces the others, if there are several.
fn find_blocks(probes: &mut [Probe<'_>]) -> Result<()> {
    let mut unread = 0;
    for number in 0..probes.len() {
        let (before, rest) = probes.split_at_mut(number);
        let probe = &mut rest[0];
        if matches!(probe.state, State::Hidden) {
            continue;
        }
        let is_same = before
            .last()
            .is_some_and(|last| !matches!(last.state, State::Hidden) && probe.is_in_block_of(last));
        reached_if(Reach::KeysInOneBlock, || is_same);
        probe.state = match is_same {
            true => State::SameBlock,
            false => probe.table.block_in_memory(probe.place).map_or(State::Unread, |block| {
                block.prefetch();
                State::InMemory(block)
            }),
        };
        unread += usize::from(probe.is_unread());
    }
    if unread < 2 {
        return Ok(());
    }
    reached(Reach::BlocksAnnounced);
    let unread = probes.iter().filter(|probe| probe.is_unread());
    let mut unread = unread.map(|probe| (&*probe.table, probe.place.at)).peekable();
    while let Some((table, first)) = unread.next() {
        let of_table = |next: &(&Arc<Table>, BlockHandle)| Arc::ptr_eq(next.0, table);
        let others = std::iter::from_fn(|| unread.next_if(of_table).map(|(_, place)| place));
        table.announce(std::iter::once(first).chain(others))?;
    }
    Ok(())
}
