//! Whether what a transaction relies on is unchanged: before its commit has an LSN, over all its
//! keys (`look`), and once it has one, over the moments in between (`judge`).
//!
//! `look` ends at `v0`, a visible frontier: no key that the transaction relies on has a version
//! from its read point up to `v0`. `judge` extends this to the commit's LSN. Commits between the
//! two have announced themselves before their reservation, which precedes that of this commit; so
//! each is still pending here, or stamped. Where a word shows one, the versions decide. If there is
//! none yet, the commit waits for its predecessors, which then are all applied, and looks again.
//!
//! `judge` reads memtables alone, because later commits wait behind it: those of the views that
//! `look` pinned, and those of the current views. Both together hold every version from `v0` on,
//! unless the tree took in an epoch that the pinned view did not know, or a large commit came,
//! whose files `judge` does not read (`engine/layer.rs`); then the commit starts over.

use super::Life;
use super::probe::{Since, in_memory, is_written, pin_open};
use super::ranges::{RANGE_LEAVES_MAX, RETRIES_MAX, Ranges};
use crate::conflict::Slot;
use crate::engine::{Engine, Keyspace, View};
use crate::env::{Plant, Reach, planted, reached};
use crate::error::{ConflictKind, Error, Result};
use crate::footprint::{Interval, ReadKey};
use crate::format::{FamilyId, Lsn};
use crate::mvcc::FirstEnd;
use crate::write::Targets;
use arc_swap::Guard;
use smallvec::SmallVec;
use std::sync::Arc;

/// `look` repeats while at least so many keys may have changed since it began. (A simulator has few
/// keys.)
const UNSURE_MAX: usize = if cfg!(feature = "simulation") { 2 } else { 64 };
/// How often `look` repeats at most.
const ROUNDS_MAX: usize = 4;

/// The most keys of which `judge` looks up versions, because later commits wait behind it. A commit
/// that needs more gives up its LSN, and locks its keys before it tries again. One that must not
/// wait for locks looks at all of them again, and fails after [`RETRIES_MAX`] such attempts.
const JUDGED_MAX: usize = 64;

/// A key that must be unchanged.
struct Tracked<'a> {
    family: FamilyId,
    key: &'a [u8],
    slot: Slot,
}

/// A family of the transaction.
struct Part<'a> {
    family: &'a Arc<Keyspace>,
    /// Where the tracked keys of the family end.
    end: usize,
    /// The view that `look` pinned.
    view: Option<Guard<Arc<View>>>,
}

/// What `judge` says if it finds no change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    Unchanged,
    /// It cannot decide: the commit starts over.
    Unknown,
    /// There are too many keys to look at, and this one was not: the commit starts over, and locks
    /// them first.
    TooMany(usize),
}

/// What a transaction relies on.
pub(super) struct Validation<'a> {
    engine: &'a Arc<Engine>,
    kind: ConflictKind,
    parts: SmallVec<[Part<'a>; 1]>,
    tracked: SmallVec<[Tracked<'a>; 2]>,
    /// What scans have passed, or what range deletes deleted.
    ranges: Ranges,
    /// The value that ends first, of those that it relies on.
    first_end: Option<(FamilyId, FirstEnd)>,
    /// Up to this frontier nothing has changed.
    v0: Lsn,
    /// True if the last `look` ended although the slots of many keys were still changing.
    is_unsure: bool,
    /// How often the commit started over because of too many keys, without locks.
    retries: u32,
}

impl<'a> Validation<'a> {
    /// Relies on `keys`. `families` are those that the transaction named, by ascending id.
    pub(super) fn new(
        engine: &'a Arc<Engine>,
        kind: ConflictKind,
        families: &'a [Arc<Keyspace>],
        keys: impl Iterator<Item = ReadKey<'a>>,
        ranges: Ranges,
    ) -> Validation<'a> {
        debug_assert!(
            families.is_sorted_by(|one, next| one.id < next.id),
            "keys are given to families by their order"
        );
        let stamps = &engine.conflicts.stamps;
        let track = |ReadKey { family, hash, key }| Tracked {
            family,
            key,
            slot: stamps.slot(family, hash),
        };
        let mut tracked: SmallVec<[_; 2]> = keys.map(track).collect();
        if families.len() > 1 {
            tracked.sort_by_key(|tracked| tracked.family);
        }
        let part = |family: &'a Arc<Keyspace>| {
            let end = tracked.partition_point(|tracked| tracked.family <= family.id);
            Part { family, end, view: None }
        };
        let parts: SmallVec<[_; 1]> = families.iter().map(part).collect();
        debug_assert!(parts.last().is_none_or(|last| last.end == tracked.len()));
        let (parts, tracked, ranges) = match planted(Plant::ReadsNotValidated) {
            true => (SmallVec::new(), SmallVec::new(), Ranges::none()),
            false => (parts, tracked, ranges),
        };
        let (first_end, v0, is_unsure, retries) = (None, 0, false, 0);
        Validation { engine, kind, parts, tracked, ranges, first_end, v0, is_unsure, retries }
    }

    /// Relies on nothing but the families.
    pub(super) fn of_nothing(
        engine: &'a Arc<Engine>,
        families: &'a [Arc<Keyspace>],
    ) -> Validation<'a> {
        let keys = std::iter::empty();
        Validation::new(engine, ConflictKind::Read, families, keys, Ranges::none())
    }

    /// True if the transaction relies on nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.tracked.is_empty() && self.ranges.is_empty() && self.first_end.is_none()
    }

    /// Relies on values, of which this one ends first.
    pub(super) fn with_end(mut self, first_end: Option<(FamilyId, FirstEnd)>) -> Validation<'a> {
        self.first_end = first_end;
        self
    }

    /// Fails if anything has changed from `point` on, up to a frontier of this moment. Below
    /// `valid` the table of conflicts knows nothing.
    pub(super) fn look(&mut self, point: Lsn, valid: Lsn) -> Result<()> {
        let mut from = point;
        let mut is_known = point >= valid || planted(Plant::StampsBelievedBelowValid);
        self.is_unsure = false;
        for _ in 0..ROUNDS_MAX {
            self.pin()?;
            self.look_once(from, is_known)?;
            let views = self.parts.iter().map(|part| (part.family, part.pinned()));
            self.ranges.look(self.engine, views, from, self.v0)?;
            let is_unsure = |tracked: &&Tracked<'_>| {
                self.engine.conflicts.stamps.load(tracked.slot).stamp >= self.v0
            };
            if self.tracked.len() <= UNSURE_MAX
                || self.tracked.iter().filter(is_unsure).count() <= UNSURE_MAX
            {
                return Ok(());
            }
            reached(Reach::LookedAgain);
            (from, is_known) = (self.v0, true);
        }
        self.is_unsure = true;
        Ok(())
    }

    /// The tracked keys that the commit should lock, now that it has announced itself: those on
    /// whose slots other commits are announced, too. If `look` gave up, also all keys that may have
    /// changed. The reason: a commit that waits for others after it has taken its LSN delays all
    /// commits behind it.
    pub(super) fn crowded(&self, own: &Targets) -> Vec<usize> {
        let is_crowded = |tracked: &Tracked<'_>| {
            let seen = self.engine.conflicts.stamps.load(tracked.slot);
            let own_share = u32::from(seen.pending > 0 && own.has_slot(tracked.slot));
            seen.pending > own_share || self.is_unsure && seen.stamp >= self.v0
        };
        (0..self.tracked.len()).filter(|at| is_crowded(&self.tracked[*at])).collect()
    }

    /// The ranges that the commit should lock: all of them if `judge` would have to read too many
    /// leaves, otherwise none.
    pub(super) fn wide_ranges(&self) -> Vec<(&'a Arc<Keyspace>, Interval)> {
        if !self.ranges.are_wide() || self.ranges.are_locked {
            return Vec::new();
        }
        let of = |(at, range): (usize, Interval)| (self.parts[at].family, range);
        self.ranges.all().into_iter().map(of).collect()
    }

    /// Notes that all ranges are locked. `look` comes once more.
    pub(super) fn note_ranges_locked(&mut self) {
        self.ranges.are_locked = true;
    }

    /// All tracked keys.
    pub(super) fn all(&self) -> Vec<usize> {
        (0..self.tracked.len()).collect()
    }

    /// The family and key of a tracked key.
    pub(super) fn tracked(&self, at: usize) -> (&'a Arc<Keyspace>, &'a [u8]) {
        let part = self.parts.partition_point(|part| part.end <= at);
        debug_assert_eq!(self.parts[part].family.id, self.tracked[at].family, "a key's family");
        (self.parts[part].family, self.tracked[at].key)
    }

    /// The error for a tracked key that was changed.
    pub(super) fn conflict_at(&self, at: usize) -> Error {
        let (family, key) = self.tracked(at);
        Error::conflict(&family.name(), key, self.kind)
    }

    /// Notes that the commit starts over because of too many keys, and cannot lock them. An error,
    /// which names one of them, if that has happened too often: nothing is known to have changed.
    pub(super) fn note_retry(&mut self, at: usize) -> Result<()> {
        debug_assert!(at < self.tracked.len(), "a key is named that is not tracked");
        self.retries += 1;
        if self.retries > RETRIES_MAX { Err(self.conflict_at(at)) } else { Ok(()) }
    }

    /// Forgets tracked keys, by ascending place: locks cover them now.
    pub(super) fn forget(&mut self, covered: &[usize]) {
        debug_assert!(covered.is_sorted(), "covered keys are found by a binary search");
        for part in &mut self.parts {
            part.end -= covered.partition_point(|at| *at < part.end);
        }
        let mut at = 0..;
        self.tracked.retain(|_| at.next().is_some_and(|at| covered.binary_search(&at).is_err()));
        debug_assert!(
            self.parts.last().is_none_or(|last| last.end == self.tracked.len()),
            "a key that is left belongs to no family"
        );
    }

    /// Moves `v0` on, and pins views that hold everything below it. The words of the table are
    /// compared after this: a commit that came before it is stamped then.
    fn pin(&mut self) -> Result<()> {
        self.v0 = self.engine.log.visible();
        for part in &mut self.parts {
            part.view = Some(pin_open(self.engine, part.family)?);
            check_lives(part.family)?;
        }
        Ok(())
    }

    fn look_once(&self, from: Lsn, is_known: bool) -> Result<()> {
        let stamps = &self.engine.conflicts.stamps;
        let since = Since { from, bound: Lsn::MAX };
        let mut start = 0;
        for part in &self.parts {
            let is_all = !is_known || stamps.load_word(&part.family.changed).stamp >= from;
            for tracked in &self.tracked[start..part.end] {
                if (is_all || stamps.load(tracked.slot).stamp >= from)
                    && is_written(self.engine, part.pinned(), tracked.key, since)?
                {
                    return Err(self.conflict(part, tracked));
                }
            }
            start = part.end;
        }
        Ok(())
    }

    /// Fails if anything has changed from `v0` up to the commit's own LSN. `own` are the words on
    /// which the commit announced itself. It does not look up the versions of very many keys.
    pub(super) fn judge(&self, lsn: Lsn, own: &Targets) -> Result<Judged> {
        debug_assert!(self.v0 <= lsn, "a commit has looked at what comes after it");
        judge_end(self.engine, self.first_end.as_ref(), lsn)?;
        let stamps = &self.engine.conflicts.stamps;
        let mut has_waited = false;
        let mut room = JUDGED_MAX;
        let mut start = 0;
        for part in &self.parts {
            let seen = stamps.load_word(&part.family.changed);
            let own_share = u32::from(seen.pending > 0 && own.has_family(part.family));
            let is_all = !seen.is_unchanged_since(self.v0, own_share);
            if is_all {
                // The change seen here may be the drop of the family.
                self.wait(lsn, &mut has_waited)?;
                check_lives(part.family)?;
                if part.family.view().has_layer_from(self.v0) {
                    reached(Reach::LayerMetByJudge);
                    return Ok(Judged::Unknown);
                }
            }
            for (at, tracked) in (start..).zip(&self.tracked[start..part.end]) {
                let seen = stamps.load(tracked.slot);
                let own_share = match planted(Plant::PendingMiscounted) {
                    true => 1,
                    false => u32::from(seen.pending > 0 && own.has_slot(tracked.slot)),
                };
                if !is_all && seen.is_unchanged_since(self.v0, own_share) {
                    continue;
                }
                let Some(left) = room.checked_sub(1) else { return Ok(Judged::TooMany(at)) };
                room = left;
                if !self.judge_one(part, tracked, lsn, &mut has_waited)? {
                    return Ok(Judged::Unknown);
                }
            }
            start = part.end;
        }
        match self.judge_ranges(lsn, &mut has_waited)? {
            true => Ok(Judged::Unchanged),
            false => Ok(Judged::Unknown),
        }
    }

    /// Judges what scans have passed. Nothing has changed there if no commit came in between.
    fn judge_ranges(&self, lsn: Lsn, has_waited: &mut bool) -> Result<bool> {
        if self.ranges.is_empty() || self.ranges.are_locked || lsn == self.v0 {
            return Ok(true);
        }
        let is_judged = !self.ranges.are_wide() && self.judge_in_memory(lsn, has_waited)?;
        if !is_judged {
            self.ranges.note_retry();
        }
        Ok(is_judged)
    }

    fn judge_in_memory(&self, lsn: Lsn, has_waited: &mut bool) -> Result<bool> {
        self.wait(lsn, has_waited)?;
        debug_assert!(
            self.engine.log.visible() <= lsn || planted(Plant::ValidatedBeforeReserve),
            "a later commit became visible before this one"
        );
        let since = Since { from: self.v0, bound: lsn };
        let mut leaves = RANGE_LEAVES_MAX;
        for (at, part) in self.parts.iter().enumerate() {
            check_lives(part.family)?;
            let current = part.family.view();
            self.engine.check_open()?;
            let views = (part.pinned(), &**current);
            if current.has_layer_from(self.v0)
                || !self.ranges.judge(at, part.family, views, since, &mut leaves)?
                || !part.holds_all(&current)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Judges one key whose word has changed. A version that is found at once is final: nothing
    /// enters a memtable that may still fail.
    fn judge_one(
        &self,
        part: &Part<'_>,
        tracked: &Tracked<'_>,
        lsn: Lsn,
        has_waited: &mut bool,
    ) -> Result<bool> {
        reached(Reach::JudgedByVersions);
        let since = Since { from: self.v0, bound: lsn };
        loop {
            let current = part.family.view();
            self.engine.check_open()?;
            let is_in = |view: &View| in_memory(view, tracked.key, since) == Some(true);
            if is_in(part.pinned()) || is_in(&current) {
                return Err(self.conflict(part, tracked));
            }
            if *has_waited {
                return Ok(part.holds_all(&current));
            }
            self.wait(lsn, has_waited)?;
        }
    }

    /// Waits once until all commits before this one are applied.
    fn wait(&self, lsn: Lsn, has_waited: &mut bool) -> Result<()> {
        if !std::mem::replace(has_waited, true) && !planted(Plant::ProbeNotWaiting) {
            self.engine.gauges.validation_waits.add(1);
            self.engine.log.wait_predecessors(lsn)?;
        }
        Ok(())
    }

    fn conflict(&self, part: &Part<'_>, tracked: &Tracked<'_>) -> Error {
        Error::conflict(&part.family.name(), tracked.key, self.kind)
    }
}

impl Part<'_> {
    fn pinned(&self) -> &View {
        self.view.as_ref().expect("`look` comes first")
    }

    /// True if the pinned view and the `current` one together have every memtable that was there
    /// since the view was pinned.
    fn holds_all(&self, current: &View) -> bool {
        let pinned = self.pinned();
        let is_known = |id: u64| pinned.memtables.iter().any(|of| of.epoch.id == id);
        (pinned.flushed + 1..=current.flushed).all(is_known)
    }
}

/// Fails if a value on which a commit relies has ended at the commit's own LSN.
pub(super) fn judge_end(
    engine: &Engine,
    first_end: Option<&(FamilyId, FirstEnd)>,
    lsn: Lsn,
) -> Result<()> {
    let Some((family, first)) = first_end else { return Ok(()) };
    if engine.ticks.time_of_commit(lsn) < first.unix_ms || planted(Plant::ExpiryNotValidated) {
        return Ok(());
    }
    reached(Reach::ExpiredRelied);
    let name = engine.families.by_id(*family).map(|family| family.name()).unwrap_or_default();
    Err(Error::conflict(&name, &first.key, ConflictKind::Expired))
}

impl Life {
    /// Fails if a value that was read has ended at `point`. Of what scans show that have not ended
    /// nothing is known yet. Reads must be settled.
    pub(super) fn judge_known_end(&self, engine: &Engine, point: Lsn) -> Result<()> {
        judge_end(engine, self.footprint.known_end(), point)
    }
}

/// Fails if the family was dropped: its view is empty, and would look unchanged.
pub(super) fn check_lives(family: &Keyspace) -> Result<()> {
    if family.is_dropped() && !planted(Plant::DroppedFamilyValidated) {
        return Err(Error::unknown_family(&family.name()));
    }
    Ok(())
}
