//! Scans of a transaction: they show its own writes and, when they end, record which keys and
//! stretches they have passed.
//!
//! At [`Isolation::Serializable`] a scan has read its whole bounds from the moment it is opened,
//! and at its end the stretches that it passed, between which nothing was looked at. An empty
//! stretch was passed like any other: that nothing is there was seen. At
//! [`Isolation::RepeatableRead`] it has read the keys that it returned. At the other levels nothing
//! is kept. A scan that met an error, or that was leaked, has read its whole bounds. Where the
//! error is of the value of one key, the scan has read that key like others.
//!
//! Iterators borrow the transaction, so it cannot end before them. They do not reach into it: what
//! they pass goes into a [`Watch`] of their own. So they may be moved to another thread. Below a
//! ceiling for memory each charges its record, as far as memory is free; else it gets coarser.

use super::begin::Life;
use super::lock::span_of;
use super::plants::pass_to_key;
use crate::engine::{Engine, Keyspace};
use crate::env::{Plant, planted};
use crate::error::Result;
use crate::footprint::{Cut, Interval, Intervals, Keys, Passed, RECORD_CHARGE, ReadKey, Watch};
use crate::memory::Allowance;
use crate::mvcc::FirstEnd;
use crate::options::{Isolation, ReadOptions};
use crate::read::{Pin, ReadAt, ScanBounds};
use std::marker::PhantomData;
use std::sync::Arc;

impl Life {
    /// Opens a scan.
    pub(crate) fn scan<'t>(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        bounds: &ScanBounds,
        options: ReadOptions,
    ) -> Result<Opened<'t>> {
        self.check()?;
        let at = ReadAt { engine, family, point: self.registered(), options };
        let mut pin = Pin::with_own(at, self.footprint.write_set(), &self.spilled)?;
        pin.keep_streams(&self.streams);
        let room = self.footprint.room() / 4;
        let bounds = Interval::within(&bounds.lower, &bounds.upper);
        let is_locked =
            self.locks.holds_any() && self.locks.is_range_covered(family.id, &span_of(&bounds));
        let is_watched = self.checks_reads() && (!is_locked || engine.ticks.last_end() > 0);
        if self.checks_reads() {
            self.name_family(family);
        }
        let recorder = is_watched.then(|| {
            pin.note_ends();
            let watch = match is_locked {
                true => self.footprint.watch_locked(family.id, bounds),
                false => self.footprint.watch(family.id, bounds),
            };
            let keeps_keys = self.options.isolation == Isolation::RepeatableRead;
            Recorder::new(watch, keeps_keys, room, engine.ceiling.allowance())
        });
        // A record that is dropped here has passed nothing.
        self.footprint.check_reads()?;
        Ok((pin, recorder))
    }

    /// The number of keys within `bounds`.
    pub(crate) fn count(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        bounds: &ScanBounds,
        options: ReadOptions,
    ) -> Result<u64> {
        let (pin, mut recorder) = self.scan(engine, family, bounds, options)?;
        let mut count = 0;
        let counted = pin.each_key(bounds, |key| {
            count += 1;
            if let Some(recorder) = &mut recorder {
                recorder.return_key(key);
            }
        });
        if let Some(recorder) = &mut recorder {
            match &counted {
                Ok(end) => {
                    recorder.note_end(end.as_ref());
                    recorder.pass_all();
                }
                Err(_) => recorder.fail(),
            }
        }
        counted.map(|_| count)
    }
}

/// What an iterator of a transaction reads, and the recorder of what it passes, if the level checks
/// that.
pub(crate) type Opened<'t> = (Pin, Option<Recorder<'t>>);

/// Records what one iterator passes, and reports it to the transaction when the iterator is
/// dropped.
#[derive(Debug)]
pub(crate) struct Recorder<'t> {
    watch: Arc<Watch>,
    passed: Passed,
    /// The memory that the record may take.
    room: u64,
    /// What is charged of it.
    allowance: Allowance,
    has_failed: bool,
    /// Of the values that it has returned, the one that ends first.
    first_end: Option<FirstEnd>,
    _transaction: PhantomData<&'t ()>,
}

impl Recorder<'_> {
    fn new(watch: Arc<Watch>, keeps_keys: bool, room: u64, allowance: Allowance) -> Self {
        let passed = match keeps_keys {
            true => Passed::Keys(Keys::default()),
            false => Passed::Intervals(Intervals::default()),
        };
        let (has_failed, first_end) = (false, None);
        let _transaction = PhantomData;
        Recorder { watch, passed, room, allowance, has_failed, first_end, _transaction }
    }

    /// The memory that the record may take without looking further.
    fn granted(&self) -> u64 {
        self.allowance.bytes().max(RECORD_CHARGE).min(self.room)
    }

    /// Makes sure that the record takes no more than it may and is charged. False if there is no
    /// room.
    #[inline]
    fn fits(&mut self) -> bool {
        let charge = self.passed.charge();
        charge <= self.granted() || (charge <= self.room && self.allowance.grow_if_free(charge))
    }

    /// True if each item that a range returns has to be told.
    pub(crate) fn wants_items(&self) -> bool {
        matches!(self.passed, Passed::Keys(_)) || planted(Plant::RangeToLastKey)
    }

    /// One end of a range returned a key.
    pub(crate) fn return_item(&mut self, way: Way, key: &[u8]) {
        pass_to_key(self, way, key);
        self.return_key(key);
    }

    /// The iterator returned a key.
    pub(crate) fn return_key(&mut self, key: &[u8]) {
        if let Passed::Keys(keys) = &mut self.passed {
            keys.add(ReadKey::new(self.watch.family(), key));
            if !self.fits() {
                // There is no room for so many keys, so the whole bounds count as read.
                self.has_failed = true;
                self.passed = Passed::Intervals(Intervals::default());
            }
        }
    }

    /// The iterator passed a stretch of its bounds.
    pub(crate) fn pass(&mut self, stretch: Interval) {
        if let Passed::Intervals(passed) = &mut self.passed {
            passed.add(stretch);
            if !self.fits() {
                self.coarsen();
            }
        }
    }

    #[cold]
    fn coarsen(&mut self) {
        let granted = self.granted();
        if let Passed::Intervals(passed) = &mut self.passed {
            passed.coarsen(granted);
        }
    }

    /// The iterator passed all of its bounds.
    pub(crate) fn pass_all(&mut self) {
        if planted(Plant::RangeToLastKey) {
            return;
        }
        self.pass(self.watch.bounds().clone());
    }

    /// Of the values that the iterator has returned, this one ends first, if any does.
    pub(crate) fn note_end(&mut self, end: Option<&FirstEnd>) {
        if let Some(end) = end
            && self.first_end.as_ref().is_none_or(|first| end.unix_ms < first.unix_ms)
        {
            self.first_end = Some(end.clone());
        }
    }

    /// The iterator met an error, so what it has passed is not known exactly.
    pub(crate) fn fail(&mut self) {
        self.has_failed = true;
    }

    pub(crate) fn bounds(&self) -> &Interval {
        self.watch.bounds()
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        debug_assert!(
            self.has_failed
                || !matches!(&self.passed, Passed::Keys(keys) if keys.charge() > self.room),
            "a scan keeps more keys than it has room for"
        );
        self.watch.set_end(self.first_end.take());
        if !self.has_failed {
            let nothing = Passed::Intervals(Intervals::default());
            let passed = std::mem::replace(&mut self.passed, nothing);
            self.watch.narrow(passed, std::mem::take(&mut self.allowance));
        }
    }
}

/// The way of a cursor. Each seek begins a stretch, which steps extend in both directions.
#[derive(Debug)]
pub(crate) struct Trail<'t> {
    recorder: Recorder<'t>,
    stretch: Option<Interval>,
}

/// The direction of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Forward,
    Backward,
}

impl<'t> Trail<'t> {
    pub(crate) fn new(recorder: Recorder<'t>) -> Trail<'t> {
        Trail { recorder, stretch: None }
    }

    /// The cursor went to a target, or to an end of its bounds, and from there on to `found`, or to
    /// the other end.
    pub(crate) fn seek(&mut self, way: Way, target: Option<&[u8]>, found: Option<&[u8]>) {
        self.end_stretch();
        let bounds = self.recorder.bounds();
        let mut stretch = match way {
            Way::Forward => {
                let start = target.map_or(Cut::default(), Cut::before).max(bounds.start.clone());
                Interval { end: Some(start.clone()), start }
            }
            Way::Backward => {
                let end = match (target.map(Cut::after), bounds.end.clone()) {
                    (Some(target), Some(end)) => Some(target.min(end)),
                    (target, end) => target.or(end),
                };
                Interval { start: end.clone().unwrap_or_default(), end }
            }
        };
        if way == Way::Backward && stretch.end.is_none() {
            // No cut marks the end of all keys, so the stretch begins at the key that was found.
            stretch.start = found.map_or(bounds.start.clone(), Cut::before);
        }
        self.stretch = Some(stretch);
        self.step(way, found);
    }

    /// The cursor went one key on, or to the end.
    pub(crate) fn step(&mut self, way: Way, found: Option<&[u8]>) {
        if let Some(key) = found {
            self.recorder.return_key(key);
        }
        let bounds = self.recorder.watch.bounds();
        let Some(stretch) = &mut self.stretch else { return };
        match (way, found) {
            (_, None) if planted(Plant::RangeToLastKey) => {}
            (Way::Forward, None) => stretch.end = bounds.end.clone(),
            (Way::Backward, None) => stretch.start = bounds.start.clone(),
            (Way::Forward, Some(key)) => {
                if !stretch.ends_before(key) {
                    return;
                }
                let end = stretch.end.get_or_insert_default();
                end.set(key, true);
            }
            (Way::Backward, Some(key)) => {
                if !stretch.starts_after(key) {
                    return;
                }
                stretch.start.set(key, false);
            }
        }
    }

    /// A move failed.
    pub(crate) fn fail(&mut self) {
        self.recorder.fail();
    }

    /// As [`Recorder::note_end`].
    pub(crate) fn note_end(&mut self, end: Option<&FirstEnd>) {
        self.recorder.note_end(end);
    }

    fn end_stretch(&mut self) {
        if let Some(stretch) = self.stretch.take() {
            self.recorder.pass(stretch);
        }
    }
}

impl Drop for Trail<'_> {
    fn drop(&mut self) {
        self.end_stretch();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
