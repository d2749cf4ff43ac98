//! The commit of a transaction that has written more than a write buffer: its spill files become a
//! layer of the views, and nothing goes through memory.
//!
//! ```text
//! file    what is still in memory becomes the last file
//! lock    the hull of each file, and what the level relies on, in the order of prepares
//! flush   so that in the hulls the memtables have only what will be newer
//! look    from the read point up to now: what is locked stays unchanged from here on
//! commit  announce on the words of the families; one small record (`write/spilled.rs`)
//! ```
//!
//! `docs/internals/spilled.md` has the protocol, and what power cuts leave. A flush before the
//! locks makes the one behind them short: while it lasts, writers in the hulls wait.

use super::begin::Life;
use super::commit::decide;
use super::lock::span_of;
use super::ranges::Ranges;
use super::validate::{Validation, check_lives, judge_end};
use crate::engine::{Engine, Keyspace, SpillFile, Watch};
use crate::env::{Plant, Reach, planted, reached};
use crate::error::{ConflictKind, Result};
use crate::footprint::{Cut, Interval, Operation};
use crate::format::{FamilyId, Lsn};
use crate::limits::MAX_BATCH_LEN;
use crate::lock::{LockMode, OwnRanges, Span};
use crate::memory::commit_bytes;
use crate::mvcc::FirstEnd;
use crate::options::Isolation;
use crate::table::{Codec, End, SliceMeta};
use crate::write::{self, Announcement, Commit, Course, KeyLocks, Targets};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a file may write: a part of a family.
type Hull = (FamilyId, Interval);

/// The most that goes back into memory at the commit.
fn unspilled_max(engine: &Engine) -> u64 {
    let options = &engine.options;
    options.sizes.large_from.min(options.buffer_len()).min(MAX_BATCH_LEN as u64)
}

impl Life {
    /// True if the commit does not put back what was spilled. A hook is told of all operations at
    /// once, so they have to be in memory.
    pub(super) fn is_large(&self, engine: &Engine) -> bool {
        let charge = self.spilled_charge() + self.footprint.writes_charge();
        let is_long = !self.spilled.is_empty() && charge > unspilled_max(engine);
        engine.options.commit_hook.is_none() && (is_long || self.is_beyond_memory(engine, charge))
    }

    /// Of a commit that does not put back what was spilled: the memory that it would take, and how
    /// much it may take.
    pub(super) fn beyond_memory(&self, engine: &Engine) -> (u64, u64) {
        let charge = self.spilled_charge() + self.footprint.writes_charge();
        match unspilled_max(engine) {
            max if charge > max => (charge, max),
            _ => (commit_bytes(charge, self.op_count()), engine.ceiling.commit_max),
        }
    }

    /// The number of operations, in files and in memory.
    fn op_count(&self) -> u64 {
        let slices = self.spilled.iter().flat_map(|file| file.slices());
        slices.map(|meta| meta.entries).sum::<u64>() + self.footprint.len() as u64
    }

    /// True if a commit through memory would take more of it than one may, below a ceiling, and the
    /// operations can be in files.
    fn is_beyond_memory(&self, engine: &Engine, charge: u64) -> bool {
        let most = engine.ceiling.commit_max;
        let ops = self.op_count();
        if commit_bytes(charge, ops) <= most {
            return false;
        }
        // The charge has more than keys and values. Operands alone are not spilled.
        let is_operand = |write: Operation<'_>| write.kind.is_operand();
        !self.spilled.is_empty()
            || commit_bytes(self.written_bytes(), ops) > most
                && !self.footprint.writes().any(is_operand)
    }

    /// The bytes of keys and values of what is written and in memory.
    pub(super) fn written_bytes(&self) -> u64 {
        self.footprint.writes().map(|write| (write.key.len() + write.value.len()) as u64).sum()
    }

    /// The memory that everything takes which is in files.
    pub(super) fn spilled_charge(&self) -> u64 {
        self.spilled.iter().map(|file| file.charge).sum()
    }

    pub(super) fn commit_large(&mut self, engine: &Arc<Engine>) -> Result<Commit> {
        engine.check_writable()?;
        reached(Reach::CommittedLarge);
        self.footprint.settle_reads();
        let mut files = self.spilled.clone();
        if self.footprint.len() > 0 {
            files.push(self.write_spill(engine, false)?);
        }
        let hulls = hulls_of(&files);
        let flush = || match planted(Plant::HullNotFlushed) {
            true => Ok(()),
            false => write::flush_now(engine),
        };
        flush()?;
        self.lock_hulls(engine, &hulls)?;
        flush()?;
        engine.admit_layer(self.flushed_bytes(&files))?;
        self.look_large(engine, &hulls)?;
        let first_end = self.footprint.first_end();
        let is_written =
            |family: &&Arc<Keyspace>| hulls.binary_search_by_key(&family.id, |(id, _)| *id).is_ok();
        let families: Vec<_> = self.families.iter().filter(is_written).cloned().collect();
        let targets = Targets::Families(families.clone());
        let course = &mut Large {
            engine,
            announcement: Announcement::new(&engine.conflicts.stamps, targets),
            locks: &mut self.locks,
            watch: self.watch.as_deref(),
            first_end,
            named: &self.families,
        };
        // What others have written meanwhile is flushed first, so that the epoch of the files takes
        // little memory. If there is no room, or the log has ended, the commit finds out.
        let _ = write::seal_if_room(engine);
        write::commit_spilled(engine, &families, &files, self.options.write, course)
    }

    /// What a flush writes of the files, about: as much as they have, where they have a codec which
    /// is that of level 0, and values stay with their keys.
    fn flushed_bytes(&self, files: &[Arc<SpillFile>]) -> u64 {
        let of_slice = |meta: &SliceMeta| {
            let options = self.family_of(meta.family).options();
            let [first, next] = [0, 1].map(|level| options.codec_at(level));
            let is_apart = options.separate_from.is_some();
            if first == next && first != Codec::None && !is_apart {
                return meta.disk_bytes;
            }
            // What an entry takes beside key and value: its share of the filter, and its place if
            // the value lies apart.
            let entry_len = if is_apart { 32 } else { 16 };
            meta.disk_bytes.max(meta.raw_bytes + entry_len * meta.entries)
        };
        files.iter().flat_map(|file| file.slices()).map(of_slice).sum()
    }

    /// Locks the hulls, and what the level relies on outside of them.
    fn lock_hulls(&mut self, engine: &Arc<Engine>, hulls: &[Hull]) -> Result<()> {
        let hulls: Vec<(FamilyId, Span)> =
            hulls.iter().map(|(family, hull)| (*family, span_of(hull))).collect();
        let mut wanted = self.wanted();
        let mut by_family: BTreeMap<FamilyId, OwnRanges> = BTreeMap::new();
        for (family, hull) in &hulls {
            by_family.entry(*family).or_default().add(hull, LockMode::Exclusive);
        }
        wanted.retain_mut(|(family, key, span, mode)| {
            let Some(hulls) = by_family.get(family) else { return true };
            let Some(span) = span else { return !hulls.contains(key) };
            if hulls.meet(span) {
                // Two that share it would wait for each other.
                *mode = LockMode::Exclusive;
            }
            !hulls.give(span, LockMode::Exclusive)
        });
        wanted.extend(
            hulls.into_iter().map(|(family, hull)| {
                (family, hull.lower.clone(), Some(hull), LockMode::Exclusive)
            }),
        );
        self.lock_wanted(engine, wanted)
    }

    /// Looks for changes. What it relies on is locked; what it writes is, too.
    fn look_large(&self, engine: &Arc<Engine>, hulls: &[Hull]) -> Result<()> {
        let (point, valid) = (self.began_at, engine.conflicts.gate.valid());
        if self.options.isolation != Isolation::Snapshot {
            let validation = self.validation(engine);
            return validation.map_or(Ok(()), |mut relied_on| relied_on.look(point, valid));
        }
        let kind = ConflictKind::Write;
        let ranges = Ranges::new(kind, &self.families, hulls.iter().cloned());
        let keys = std::iter::empty();
        Validation::new(engine, kind, &self.families, keys, ranges).look(point, valid)
    }
}

/// The hulls of the files: by family ascending, those of a family apart from each other.
fn hulls_of(files: &[Arc<SpillFile>]) -> Vec<Hull> {
    let hull = |meta: &SliceMeta| {
        let extent = meta.extent();
        let end = match extent.end {
            End::Included(last) => Some(Cut::after(last)),
            End::Excluded(end) => Some(Cut::before(end)),
            End::Unbounded => None,
        };
        (meta.family, Interval { start: Cut::before(extent.start), end })
    };
    let mut hulls: Vec<Hull> = files.iter().flat_map(|file| file.slices()).map(hull).collect();
    hulls.sort_by(|one, other| (one.0, &one.1.start).cmp(&(other.0, &other.1.start)));
    hulls.dedup_by(|next, before| {
        let meets =
            next.0 == before.0 && before.1.end.as_ref().is_none_or(|end| next.1.start <= *end);
        if meets && before.1.end.is_some() {
            before.1.end = match next.1.end.take() {
                None => None,
                end => before.1.end.take().max(end),
            };
        }
        meets
    });
    hulls
}

/// The course of a commit that has locked all that it relies on and all that it writes.
struct Large<'a> {
    engine: &'a Arc<Engine>,
    announcement: Announcement<'a>,
    locks: &'a mut KeyLocks,
    watch: Option<&'a Watch>,
    first_end: Option<(FamilyId, FirstEnd)>,
    /// The families that it writes, or relies on.
    named: &'a [Arc<Keyspace>],
}

impl Large<'_> {
    /// What it relies on is locked, so that nothing there has changed since it looked. But locks
    /// hold up no drop of a family, nor the end of a value.
    fn judge(&self, lsn: Lsn) -> Result<()> {
        judge_end(self.engine, self.first_end.as_ref(), lsn)?;
        self.engine.log.wait_predecessors(lsn)?;
        self.named.iter().try_for_each(|family| check_lives(family))
    }
}

impl Course for Large<'_> {
    fn prepare(&mut self, _record: &[u8]) -> Result<()> {
        self.announcement.make_unasked(self.engine)?;
        decide(self.watch)
    }

    fn settle(&mut self, lsn: Lsn) -> Result<bool> {
        if let Err(error) = self.judge(lsn) {
            self.announcement.withdraw();
            return Err(error);
        }
        self.announcement.stamp(lsn);
        self.locks.release(self.engine);
        Ok(true)
    }

    fn finish(&mut self, _lsn: Lsn) {
        self.locks.leave(self.engine);
    }

    fn holds_locks(&self) -> bool {
        self.locks.holds_any()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::options::Options;

    /// After it has looked it syncs names and waits for room, which may last.
    #[test]
    fn a_large_commit_behind_the_drop_of_a_family_that_it_names_fails() {
        let db = Options::in_memory().open("/db").unwrap();
        let (engine, side) = (db.engine(), db.family("side").unwrap());
        let named = [engine.families.by_name("side").unwrap()];
        for is_dropped in [false, true] {
            if is_dropped {
                db.drop_family(&side).unwrap();
            }
            let mut locks = KeyLocks::of_write(engine);
            let mut course = Large {
                engine,
                announcement: Announcement::new(
                    &engine.conflicts.stamps,
                    Targets::Families(named.to_vec()),
                ),
                locks: &mut locks,
                watch: None,
                first_end: None,
                named: &named,
            };
            course.prepare(&[]).unwrap();
            let reservation = engine.log.reserve(64).unwrap();
            match course.settle(reservation.start()) {
                Ok(is_settled) => assert!(is_settled && !is_dropped),
                Err(error) => assert!(is_dropped && error.name() == "UNKNOWN_FAMILY", "{error}"),
            }
            drop(reservation);
            let seen = engine.conflicts.stamps.load_word(&named[0].changed);
            assert_eq!(seen.pending, 0, "it is announced no more");
        }
    }
}
