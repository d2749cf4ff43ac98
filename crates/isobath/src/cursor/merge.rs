//! Merges several cursors into one, in key order and, for equal keys, newest source first.
//!
//! Sources are given newest first: for each key, every version in an earlier source is newer than
//! every version in a later one. So equal keys order by source, and sequence numbers of different
//! sources are never compared.
//!
//! # The ladder
//!
//! The sources that have an entry stand on a ladder: an array sorted by (key, source). Each rung
//! caches the first eight bytes of its key as an integer, its head. So most comparisons touch
//! neither the source nor the key. The merge stands on the first rung; the second rung is the
//! runner-up. If the first source moves and still comes before the second, one comparison is
//! enough. Otherwise its rung sinks to its place: past the first few rungs one by one, then by
//! bisection. So even a merge of dozens of runs pays about log2(sources) comparisons, like a loser
//! tree, and a move of a few contiguous bytes. Going backward, the ladder is sorted by descending
//! key, with the newest source first among equal keys. Heads are inverted then, so that the same
//! integer comparison works.
//!
//! Keys often begin alike, for example with the name of a table or with a time. Their heads would
//! be equal, and whole keys would have to be compared. So the head is taken after a prefix: the
//! bytes that all keys on the ladder share, without the last few, so that the scan does not leave
//! the prefix at once. A key without the prefix gets the smallest or the largest head. So unequal
//! heads always order as their keys do. When there are many ties, a new prefix is chosen.
//!
//! # Laziness
//!
//! A source that cannot change the answer yet is not positioned. There are two cases. First,
//! [`Cursor::seek`] asks the sources newest first, and stops at the first one that holds exactly
//! the key sought; before that, it skips sources whose filter excludes the key. Second, when a
//! backward reader looks at older versions of the current key, the sources that stand before that
//! key stay there. Both kinds of sources are positioned when the merge leaves the key.

use super::steps::{Skips, step_below};
use super::{Cursor, Entry, key_head};
use crate::error::Result;
use crate::format::{checksum64, common_prefix_len};
use crate::mvcc::Lsn;
use std::cell::Cell;
use std::cmp::Ordering;

/// A moving source is compared with this many rungs one by one before bisection.
const LINEAR_RUNGS: usize = 4;

/// This many of the bytes that all keys share are left out of the prefix.
const SHARED_IN_HEAD: usize = 4;
/// The prefix is checked again after this many ties, and after more of them each time it stays.
const TIES_MIN: u32 = 8;
const TIES_MAX: u32 = 1 << 12;

/// Merges cursors. Nothing is copied: entries borrow from the source on the first rung.
#[derive(Debug)]
pub(crate) struct MergeCursor<C> {
    sources: Vec<C>,
    stances: Vec<Stance>,
    ladder: Vec<Rung>,
    direction: Direction,
    /// Heads start after this prefix.
    prefix: Vec<u8>,
    /// The number of comparisons since the last check of the prefix that heads did not decide.
    ties: Cell<u32>,
    ties_max: u32,
    /// The number of sources that are not `Stance::Placed`. Above zero only when going forward.
    waiting: usize,
    /// How many moves were made since another source came first.
    lead: u32,
    /// How often `next_key` moved a source other than the first past the current key.
    shadowed_count: u64,
    scratch: Vec<u8>,
    skips: Skips,
}

#[derive(Clone, Copy, Debug)]
struct Rung {
    head: u64,
    source: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

/// Where a source stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stance {
    /// On the ladder, or past the end toward which the merge moves.
    Placed,
    /// At no defined position. It comes after every source that holds the current key.
    Unplaced,
    /// On its largest key before the current key, or on none if there is no such key. Lower where a
    /// skip has passed what the reader is not shown, be it of the current key.
    Behind,
}

impl<C: Cursor> MergeCursor<C> {
    /// Merges `sources`, newest first. There is no entry until a seek.
    pub(crate) fn new(sources: Vec<C>) -> Self {
        MergeCursor {
            stances: vec![Stance::Placed; sources.len()],
            ladder: Vec::with_capacity(sources.len()),
            sources,
            direction: Direction::Forward,
            prefix: Vec::new(),
            ties: Cell::new(0),
            ties_max: TIES_MIN,
            waiting: 0,
            lead: 0,
            shadowed_count: 0,
            scratch: Vec::new(),
            skips: Skips::default(),
        }
    }

    /// How many keys `next_key` skipped because a newer source holds an equal key.
    pub(crate) fn shadowed_count(&self) -> u64 {
        self.shadowed_count
    }

    /// The sources, each where it stands.
    pub(crate) fn into_sources(self) -> Vec<C> {
        self.sources
    }

    /// How many moves were made since another source came first.
    #[inline(always)]
    pub(crate) fn lead(&self) -> u32 {
        self.lead
    }

    /// The source that holds the current entry.
    #[inline(always)]
    pub(crate) fn source(&self) -> Option<&C> {
        self.ladder.first().map(|rung| &self.sources[rung.source as usize])
    }

    fn start(&mut self, direction: Direction) {
        self.ladder.clear();
        self.stances.fill(Stance::Placed);
        self.waiting = 0;
        self.direction = direction;
        self.skips.forget();
    }

    /// After an error the positions of the sources are unknown, so there is no entry until a seek.
    fn give_up_on_error(&mut self, moved: Result<()>) -> Result<()> {
        if moved.is_err() {
            self.start(Direction::Forward);
        }
        moved
    }

    fn position_all(
        &mut self,
        direction: Direction,
        position: impl FnMut(&mut C) -> Result<()>,
    ) -> Result<()> {
        self.start(direction);
        let moved = self.sources.iter_mut().try_for_each(position);
        self.give_up_on_error(moved)?;
        self.build_ladder();
        Ok(())
    }

    fn build_ladder(&mut self) {
        self.lead = 0;
        self.ladder.clear();
        for source in 0..self.sources.len() {
            if self.stances[source] == Stance::Placed {
                self.insert(source);
            }
        }
        debug_assert!(self.are_in_order(&self.ladder), "the heads order sources as their keys do");
        debug_assert_eq!(
            self.waiting,
            self.stances.iter().filter(|stance| **stance != Stance::Placed).count(),
            "each source that waits is counted"
        );
        if self.ties.get() >= self.ties_max {
            self.choose_prefix();
        }
    }

    /// True if these rungs are in order by the keys themselves.
    fn are_in_order(&self, rungs: &[Rung]) -> bool {
        rungs.is_sorted_by(|a, b| {
            let order = self.key_on(*a).cmp(&self.key_on(*b));
            let order = if self.direction == Direction::Forward { order } else { order.reverse() };
            order.then(a.source.cmp(&b.source)) == Ordering::Less
        })
    }

    /// Sets the prefix to what all keys on the ladder share now, and takes new heads.
    #[cold]
    fn choose_prefix(&mut self) {
        self.ties.set(0);
        let ends = (self.ladder.first(), self.ladder.last());
        let (Some(first), Some(last)) =
            (ends.0.and_then(|a| self.key_on(*a)), ends.1.and_then(|b| self.key_on(*b)))
        else {
            return;
        };
        let len = common_prefix_len(first, last).saturating_sub(SHARED_IN_HEAD);
        if first[..len] == self.prefix[..] {
            self.ties_max = (self.ties_max * 2).min(TIES_MAX);
            return;
        }
        self.prefix = first[..len].to_vec();
        self.ties_max = TIES_MIN;
        for at in 0..self.ladder.len() {
            if let Some(rung) = self.rung(self.ladder[at].source as usize) {
                self.ladder[at] = rung;
            }
        }
    }

    /// Inserts a source that is not on the ladder at its place.
    fn insert(&mut self, source: usize) {
        if let Some(rung) = self.rung(source) {
            let at = self.ladder.partition_point(|other| self.is_before(*other, rung));
            self.ladder.insert(at, rung);
        }
    }

    #[inline(always)]
    fn rung(&self, source: usize) -> Option<Rung> {
        let key = self.sources[source].key()?;
        let head =
            if self.prefix.is_empty() { key_head(key) } else { self.head_behind_prefix(key) };
        let head = if self.direction == Direction::Forward { head } else { !head };
        Some(Rung { head, source: source as u32 })
    }

    fn head_behind_prefix(&self, key: &[u8]) -> u64 {
        match key.strip_prefix(self.prefix.as_slice()) {
            Some(rest) => key_head(rest),
            None if key < self.prefix.as_slice() => 0,
            None => u64::MAX,
        }
    }

    #[inline]
    fn is_before(&self, a: Rung, b: Rung) -> bool {
        if a.head != b.head { a.head < b.head } else { self.is_before_by_key(a, b) }
    }

    fn is_before_by_key(&self, a: Rung, b: Rung) -> bool {
        self.ties.set(self.ties.get() + 1);
        let order = self.key_on(a).cmp(&self.key_on(b));
        let order = if self.direction == Direction::Forward { order } else { order.reverse() };
        order.then(a.source.cmp(&b.source)) == Ordering::Less
    }

    #[inline]
    fn key_on(&self, rung: Rung) -> Option<&[u8]> {
        self.sources[rung.source as usize].key()
    }

    /// True if rungs `at` and `at + 1` hold the same key.
    #[inline(always)]
    fn is_tied(&self, at: usize) -> bool {
        match (self.ladder.get(at), self.ladder.get(at + 1)) {
            (Some(a), Some(b)) => a.head == b.head && self.have_one_key(*a, *b),
            _ => false,
        }
    }

    #[inline(never)]
    fn have_one_key(&self, a: Rung, b: Rung) -> bool {
        self.key_on(a) == self.key_on(b)
    }

    /// Restores the order after the source on rung `at` has moved further from the front.
    #[inline(always)]
    fn sink(&mut self, at: usize) {
        let source = self.ladder[at].source as usize;
        self.lead = self.lead.wrapping_add(1);
        if self.ladder.len() == 1 {
            // The head of a lone rung is not kept, because nothing is compared with it. Other rungs
            // join it only when the ladder is rebuilt.
            if self.sources[source].key().is_none() {
                self.ladder.clear();
            }
            return;
        }
        let Some(rung) = self.rung(source) else {
            self.ladder.remove(at);
            self.lead = 0;
            return;
        };
        match self.ladder.get(at + 1) {
            Some(runner_up) if self.is_before(*runner_up, rung) => self.sink_deep(at, rung),
            _ => self.ladder[at] = rung,
        }
    }

    fn sink_deep(&mut self, at: usize, rung: Rung) {
        self.lead = 0;
        let mut to = at + 2;
        let linear_end = (at + 1 + LINEAR_RUNGS).min(self.ladder.len());
        while to < linear_end && self.is_before(self.ladder[to], rung) {
            to += 1;
        }
        if to == linear_end {
            to += self.ladder[to..].partition_point(|other| self.is_before(*other, rung));
        }
        self.ladder.copy_within(at + 1..to, at);
        self.ladder[to - 1] = rung;
        debug_assert!(
            self.are_in_order(&self.ladder[at..]),
            "a source sank past its place, or not far enough"
        );
    }

    /// Moves the source on rung `at`.
    #[inline]
    fn advance(&mut self, at: usize, step: impl FnOnce(&mut C) -> Result<()>) -> Result<()> {
        match step(&mut self.sources[self.ladder[at].source as usize]) {
            Ok(()) => {
                self.sink(at);
                if self.ties.get() >= self.ties_max {
                    self.choose_prefix();
                }
                Ok(())
            }
            Err(error) => self.give_up_on_error(Err(error)),
        }
    }

    fn seek_lazily(&mut self, key: &[u8]) -> Result<()> {
        // Filters are asked for no seek of the last source, which is made in any case.
        let (mut holder, last) = (None, self.sources.len().saturating_sub(1));
        let hash = if last > 0 { checksum64(key) } else { 0 };
        for (at, source) in self.sources.iter_mut().enumerate() {
            if at < last && !source.may_hold(key, hash)? {
                self.stances[at] = Stance::Unplaced;
                self.waiting += 1;
                continue;
            }
            source.seek(key)?;
            if source.key().is_some_and(|stands| stands == key) {
                holder = Some(at);
                break;
            }
        }
        if let Some(holder) = holder {
            self.stances[holder + 1..].fill(Stance::Unplaced);
            self.waiting += self.sources.len() - holder - 1;
        } else if self.waiting > 0 {
            self.seek_waiting(key)?;
        }
        self.build_ladder();
        Ok(())
    }

    /// Positions the waiting sources at or above `key` without putting them on the ladder.
    fn seek_waiting(&mut self, key: &[u8]) -> Result<()> {
        debug_assert_eq!(
            self.waiting,
            self.stances.iter().filter(|stance| **stance != Stance::Placed).count(),
            "each source that waits is counted"
        );
        for (source, stance) in self.sources.iter_mut().zip(&mut self.stances) {
            if *stance != Stance::Placed {
                source.seek(key)?;
                *stance = Stance::Placed;
            }
        }
        self.waiting = 0;
        Ok(())
    }

    /// Positions the waiting sources at or above `key` and puts them on the ladder.
    fn place_waiting(&mut self, key: &[u8]) -> Result<()> {
        let moved = self.seek_waiting(key);
        self.give_up_on_error(moved)?;
        self.build_ladder();
        Ok(())
    }

    /// Turns forward if needed, and positions the waiting sources at or above the current key.
    #[cold]
    fn place_all(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        if self.direction == Direction::Backward {
            self.turn_forward();
        }
        if self.waiting > 0 {
            scratch.clear();
            scratch.extend_from_slice(Cursor::key(self).unwrap_or_default());
            self.place_waiting(scratch)?;
        }
        Ok(())
    }

    /// Moves the source that holds the entry forward by `step`.
    #[inline(always)]
    fn go_on(&mut self, step: impl FnOnce(&mut C) -> Result<()>) -> Result<()> {
        if self.ladder.is_empty() {
            return Ok(());
        }
        if self.direction == Direction::Backward {
            self.turn_forward();
        }
        if self.waiting > 0 { self.step_while_waiting(step) } else { self.advance(0, step) }
    }

    /// Steps forward while sources wait. They are placed only if the merge leaves the current key.
    fn step_while_waiting(&mut self, step: impl FnOnce(&mut C) -> Result<()>) -> Result<()> {
        debug_assert_eq!(self.direction, Direction::Forward, "no source waits going backward");
        let mut key = std::mem::take(&mut self.scratch);
        key.clear();
        key.extend_from_slice(self.key_on(self.ladder[0]).unwrap_or_default());
        let mut moved = self.advance(0, step);
        let stays =
            |merge: &Self| merge.ladder.first().and_then(|rung| merge.key_on(*rung)) == Some(&key);
        if moved.is_ok() && !stays(self) {
            moved = self.place_waiting(&key);
        }
        self.scratch = key;
        moved
    }

    /// Has `go` move the source that holds the entry on, to a key below the one it is given: the
    /// next of another source, if there is one. `None` where another source may have to move, too.
    pub(crate) fn go_alone<R>(&mut self, go: impl FnOnce(&mut C, Option<&[u8]>) -> R) -> Option<R> {
        if self.direction == Direction::Backward || self.waiting > 0 {
            return None;
        }
        let gone = match self.ladder[..] {
            [] => return None,
            [Rung { source, .. }] => go(&mut self.sources[source as usize], None),
            [first, second, ..] => {
                let both = [first.source as usize, second.source as usize];
                let [first, second] = self.sources.get_disjoint_mut(both).ok()?;
                go(first, second.key())
            }
        };
        self.sink(0);
        Some(gone)
    }

    /// Turns from backward to forward without leaving the current entry. The sources that hold the
    /// current key are on the first rungs and stand on their newest version of it, as forward
    /// movement needs. All others are `Behind`.
    fn turn_forward(&mut self) {
        debug_assert_eq!(self.direction, Direction::Backward, "it turns only where it came from");
        let mut tied = 1;
        while self.is_tied(tied - 1) {
            tied += 1;
        }
        self.ladder.truncate(tied);
        self.direction = Direction::Forward;
        self.stances.fill(Stance::Behind);
        for rung in &mut self.ladder {
            rung.head = !rung.head;
            self.stances[rung.source as usize] = Stance::Placed;
        }
        self.waiting = self.sources.len() - tied;
        debug_assert!(
            self.are_in_order(&self.ladder),
            "what holds the current key stands newest first"
        );
    }

    /// Turns from forward to backward: moves every source to its largest key before the current
    /// one.
    fn turn_backward(&mut self) -> Result<()> {
        debug_assert_eq!(self.direction, Direction::Forward, "it turns only where it came from");
        let current = self.ladder[0].source as usize;
        let (newer, rest) = self.sources.split_at_mut(current);
        let (holder, older) = rest.split_first_mut().expect("the ladder names a source");
        let key = holder.key().unwrap_or_default();
        let others = newer.iter_mut().zip(&self.stances);
        for (source, stance) in others.chain(older.iter_mut().zip(&self.stances[current + 1..])) {
            match stance {
                Stance::Behind => {}
                Stance::Placed if source.key().is_some() => step_below(source, key)?,
                Stance::Placed | Stance::Unplaced => {
                    source.seek_for_prev(key)?;
                    step_below(source, key)?;
                }
            }
        }
        holder.prev_key()?;
        self.start(Direction::Backward);
        self.build_ladder();
        debug_assert_eq!(self.waiting, 0, "a source waits, and would be left out going backward");
        Ok(())
    }
}

impl<C: Cursor> Cursor for MergeCursor<C> {
    fn seek_first(&mut self) -> Result<()> {
        self.position_all(Direction::Forward, C::seek_first)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.position_all(Direction::Backward, C::seek_last)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.start(Direction::Forward);
        let moved = self.seek_lazily(key);
        self.give_up_on_error(moved)
    }

    fn seek_for_prev(&mut self, key: &[u8]) -> Result<()> {
        self.position_all(Direction::Backward, |source| source.seek_for_prev(key))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.go_on(C::next)
    }

    fn next_below(&mut self, point: Lsn) -> Result<()> {
        self.go_on(|source| source.next_below(point))
    }

    fn prev_key(&mut self) -> Result<()> {
        if self.ladder.is_empty() {
            return Ok(());
        }
        if self.direction == Direction::Forward {
            let moved = self.turn_backward();
            return self.give_up_on_error(moved);
        }
        while self.is_tied(0) {
            self.advance(1, C::prev_key)?;
        }
        self.advance(0, C::prev_key)
    }

    #[inline(always)]
    fn entry(&self) -> Option<Entry<'_>> {
        self.source()?.entry()
    }

    #[inline(always)]
    fn key(&self) -> Option<&[u8]> {
        self.source()?.key()
    }

    #[inline]
    fn next_key(&mut self, scratch: &mut Vec<u8>) -> Result<()> {
        if self.ladder.is_empty() {
            return Ok(());
        }
        if self.direction == Direction::Backward || self.waiting > 0 {
            self.place_all(scratch)?;
        }
        while self.is_tied(0) {
            self.shadowed_count += 1;
            self.advance(1, |source| source.next_key(scratch))?;
        }
        self.advance(0, |source| source.next_key(scratch))
    }

    fn skip_forward(&mut self, first: usize, to: Option<&[u8]>) -> Result<()> {
        if self.direction == Direction::Backward || self.waiting > 0 || self.ladder.is_empty() {
            return Ok(());
        }
        let stands_before =
            |source: &C| source.key().is_some_and(|key| to.is_none_or(|to| key < to));
        let behind = self.sources.iter_mut().enumerate().skip(first);
        let mut moving = behind.filter(|(_, source)| stands_before(source));
        let moved = moving.try_for_each(|source| self.skips.skip(source, to));
        self.give_up_on_error(moved)?;
        self.build_ladder();
        Ok(())
    }

    fn skip_backward(&mut self, first: usize, to: &[u8]) -> Result<()> {
        if self.direction == Direction::Forward || self.waiting > 0 || self.ladder.is_empty() {
            return Ok(());
        }
        let stands_above = |source: &C| source.key().is_some_and(|key| key >= to);
        let behind = self.sources.get_mut(first..).unwrap_or_default();
        let moved =
            behind.iter_mut().filter(|source| stands_above(source)).try_for_each(|source| {
                source.seek_for_prev(to)?;
                step_below(source, to)
            });
        self.give_up_on_error(moved)?;
        self.build_ladder();
        Ok(())
    }

    fn may_hold(&self, key: &[u8], hash: u64) -> Result<bool> {
        for source in &self.sources {
            if source.may_hold(key, hash)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
pub(super) mod tests;
