//! Walks a block backward, key by key.
//!
//! Prefix compression works only forward, so in a chained block a step back walks again from a
//! restart. The walk keeps the keys it passed in a [`PassedKeys`], and the next steps back take
//! them from there. A slotted block (`slotted.rs`) needs none of it.

use super::block::{Block, RawEntry};
use super::key_buffer::KeyBuffer;
use crate::env::{Plant, planted};
use crate::error::{DecodeError, Decoded};
use crate::format::Lsn;
use std::cmp::Ordering;

/// The keys between a restart and a position, each with its newest version. A key of which the
/// interval before may hold a newer version is left out.
#[derive(Debug, Default)]
pub(super) struct PassedKeys {
    passed: Vec<Passed>,
    /// The keys, one after another.
    keys: Vec<u8>,
    /// The key of the entry at which a walk stands.
    key: KeyBuffer,
}

#[derive(Debug)]
struct Passed {
    index: u32,
    entry: RawEntry,
    key_start: usize,
}

impl PassedKeys {
    pub(super) fn clear(&mut self) {
        self.passed.clear();
        self.keys.clear();
    }

    #[inline(always)]
    fn push(&mut self, index: u32, entry: RawEntry) {
        debug_assert!(
            self.passed.last().is_none_or(|last| last.index < index),
            "entries are passed in their order"
        );
        self.passed.push(Passed { index, entry, key_start: self.keys.len() });
        self.keys.extend_from_slice(self.key.as_slice());
    }

    /// Drops the smallest key if it is the key of the restart at `index`: a newer version of it may
    /// stand before the restart.
    fn forget_first(&mut self, index: u32) {
        // The bytes of the key stay. The keys after it are found from their own start.
        if self.passed.first().is_some_and(|first| first.index == index) {
            self.passed.remove(0);
        }
    }

    /// Removes the largest key and puts it into `key`.
    #[inline]
    pub(super) fn pop(&mut self, key: &mut KeyBuffer) -> Option<(u32, RawEntry)> {
        let Passed { index, entry, key_start } = self.passed.pop()?;
        key.clear();
        key.replace_tail(0, &self.keys, key_start, self.keys.len());
        self.keys.truncate(key_start);
        Some((index, entry))
    }
}

impl Block {
    /// The newest version (in this block) of the largest key below `key`, or of the largest of all
    /// keys. Puts that key into `found`, and the other keys passed into `behind`.
    pub(super) fn search_before(
        &self,
        key: Option<&[u8]>,
        found: &mut KeyBuffer,
        behind: &mut PassedKeys,
    ) -> Decoded<Option<(u32, RawEntry)>> {
        behind.clear();
        if self.is_slotted() {
            return self.search_slots_before(key, found);
        }
        let restart = match key {
            None => self.restart_count() - 1,
            Some(key) => match self.last_restart_before(key)? {
                None => return Ok(None),
                Some(restart) => restart,
            },
        };
        self.pass_until(key, restart, u32::MAX, behind)?;
        let newest = behind.pop(found);
        let first = restart * self.interval();
        if first == 0 || newest.is_none_or(|(index, _)| index != first) {
            behind.forget_first(first);
            return Ok(newest);
        }
        // Newer versions of the restart's key may stand at the end of the interval before. The keys
        // of that interval are needed next in any case.
        behind.clear();
        if self.pass_until(Some(found.as_slice()), restart - 1, first, behind)? {
            behind.forget_first(first - self.interval());
            return Ok(newest);
        }
        behind.clear();
        Ok(self.search(found.as_slice(), Lsn::MAX)?.map(|hit| (hit.index, hit.entry)))
    }

    /// Puts the keys below `key` into `behind`, from a restart on and before the entry with ordinal
    /// `end`; at most one interval of them. Returns false if an entry before `end` is not below
    /// `key`.
    fn pass_until(
        &self,
        key: Option<&[u8]>,
        restart: u32,
        end: u32,
        behind: &mut PassedKeys,
    ) -> Decoded<bool> {
        let first = restart * self.interval();
        let (mut index, mut at) = (first, self.restart(restart));
        let mut matched = 0;
        behind.key.clear();
        while index < end && at < self.entries_end() {
            let entry = self.entry_at(at)?;
            if let Some(key) = key
                && self.compare(entry, key, &mut matched) != Ordering::Less
            {
                return Ok(false);
            }
            let is_same_key =
                entry.unshared_at == entry.value_at && entry.shared as usize == behind.key.len();
            if index - first == self.interval() {
                // In a forged block, these keys could fill the memory.
                return Err(DecodeError::damaged(
                    "a block has more entries behind a restart than it says",
                ));
            }
            if !is_same_key || behind.passed.is_empty() {
                if !behind.passed.is_empty() && !self.is_above(entry, behind.key.as_slice()) {
                    return Err(DecodeError::damaged("the keys of a block are out of order"));
                }
                self.extend_key(entry, &mut behind.key)?;
                behind.push(index, entry);
            }
            index += 1;
            at = entry.end;
        }
        Ok(true)
    }

    /// True if the key of an entry is above `before`, the key of the entry before it.
    #[inline]
    fn is_above(&self, entry: RawEntry, before: &[u8]) -> bool {
        let stored = self.unshared(entry);
        before.get(entry.shared as usize..).is_some_and(|rest| rest < stored)
            || planted(Plant::DescentBelieved)
    }

    /// The last restart with a key below `key`.
    fn last_restart_before(&self, key: &[u8]) -> Decoded<Option<u32>> {
        let count = self.restarts_before(key, Lsn::MAX)?;
        let entry = self.entry_at(self.restart(count.saturating_sub(1)))?;
        Ok(match self.compare_prefix(entry, key) {
            Ordering::Equal => count.checked_sub(1),
            Ordering::Less => Some(self.restart_count() - 1),
            Ordering::Greater => None,
        })
    }
}
