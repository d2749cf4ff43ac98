//! The life of a commit.
//!
//! ```text
//! sort     a batch, by key
//! admit    pacing, memory, log room: everything that can wait or fail; who holds locks is paced at
//!          the end
//! encode   record and payload checksum, outside any lock
//! prepare  a transaction looks for conflicts; the commit announces itself if transactions run
//! reserve  the log's tail moves on: the commit has its LSN
//! settle   a transaction validates; the commit stamps what it has announced, or starts over
//! copy     the record goes into the mapped segment: no system call
//! apply    the operations go into the memtable of the epoch that owns the LSN; infallible
//! publish  the commit marks itself finished and helps the frontier along
//! sync     Sync only: returns once `durable` has passed
//! ```
//!
//! Why in this order, and what a failure at each stage leaves: `docs/internals/commit.md`.

use crate::engine::{Engine, Keyspace, Mention};
use crate::env::{Plant, Point, Reach, planted, reached, reached_if, with_scratch, yield_point};
use crate::error::{Error, Result};
use crate::format::{
    FamilyId, Lsn, Op, OpKind, Payload, batch_count, checksum64, decode_payload, put_batch_prefix,
    put_op,
};
use crate::limits::{check_key, check_value, note_written};
use crate::memory::commit_bytes;
use crate::memtable::{Landed, Promise};
use crate::options::{Durability, WriteOptions};
use crate::read_point::ReadPoint;
use crate::wal::{self, Patience, RECORD_HEADER_LEN, Reservation};
use crate::write::announce::{Course, Plain, Targets};
use crate::write::apply::{Order, apply_batch, family_of, in_memtable};
use crate::write::expiry::{commit_expiring, default_expiry, with_ends};
use crate::write::parts::{Changed, OpAt, Parts};
use crate::write::seal;
use crate::write::stream::hand_over;
use crate::write::together::Together;
use std::sync::Arc;

/// The result of a write that succeeded. Only writes make one, and [`crate::Db::sync_to`] accepts
/// only commits of its own database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Commit {
    /// The read point just after it: a reader at this point or later sees the commit.
    pub(crate) point: Lsn,
    pub(super) tag: u64,
}

impl Commit {
    #[inline]
    pub(crate) fn new(engine: &Engine, point: Lsn) -> Commit {
        Commit { point, tag: engine.point_tag }
    }

    /// One that has written nothing, at a read point, which may be of an earlier term than that in
    /// which the database was opened, or of a later one.
    pub(crate) fn at(engine: &Engine, point: Lsn) -> Commit {
        Commit { point, tag: engine.tag_at(point) }
    }
}

impl From<Commit> for ReadPoint {
    #[inline]
    fn from(Commit { point, tag }: Commit) -> ReadPoint {
        ReadPoint { lsn: point, tag }
    }
}

/// Commits one operation, a put with the end that its family gives it.
#[inline]
pub(crate) fn commit_one(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    kind: OpKind,
    key: &[u8],
    value: &[u8],
    options: WriteOptions,
) -> Result<Commit> {
    if kind.is_lasting_put() && family.ttl_ms() > 0 {
        return commit_expiring(engine, family, (key, value), default_expiry(family), options);
    }
    commit_op(engine, family, (kind, key, value), options, |_| ())
}

/// Commits one operation as it is. `before` is called with its LSN before it is in a memtable.
pub(super) fn commit_op(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    (kind, key, value): (OpKind, &[u8], &[u8]),
    options: WriteOptions,
    before: impl Fn(Lsn),
) -> Result<Commit> {
    check_key(key)?;
    check_value(value)?;
    engine.ceiling.check_entry(key, value)?;
    check_family(family)?;
    note_written(key, value);
    with_scratch(|record| {
        record.resize(RECORD_HEADER_LEN, 0);
        put_batch_prefix(record, 1);
        put_op(record, &Op { kind, family: family.id, key, value });
        let stamps = &engine.conflicts.stamps;
        let targets = |_: &[u8]| Targets::One(stamps.slot(family.id, checksum64(key)));
        commit(
            engine,
            record,
            options,
            &mut Plain::new(engine, options.fail_fast, targets),
            |_, lsn| {
                before(lsn);
                let put = kind.puts_value().then_some(key);
                in_memtable(engine, family, lsn, put, |memtable| {
                    memtable.insert(key, lsn, kind, value);
                });
            },
        )
    })
}

/// An error if the family cannot merge.
#[cold]
pub(crate) fn check_merges(engine: &Engine, family: &Keyspace, key: &[u8]) -> Result<()> {
    match family.merging(&engine.options.operators) {
        Some(merging) => merging.demand(&family.name(), key),
        None => Err(Error::invalid_argument(format!(
            "column family {:?} has no merge operator; set `FamilyOptions::merge_operator`",
            &*family.name()
        ))),
    }
}

/// Deletes the keys from a start on and below an end; an empty end is none. Without a span it only
/// checks what a write checks.
pub(crate) fn commit_range(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    span: Option<(&[u8], &[u8])>,
    options: WriteOptions,
) -> Result<Commit> {
    check_family(family)?;
    let Some((start, end)) = span else { return commit_nothing(engine, options) };
    debug_assert!(end.is_empty() || start < end, "a range ends before it begins");
    reached(Reach::SpanWritten);
    with_scratch(|record| {
        record.resize(RECORD_HEADER_LEN, 0);
        put_batch_prefix(record, 1);
        put_op(
            record,
            &Op { kind: OpKind::DeleteRange, family: family.id, key: start, value: end },
        );
        let targets = |_: &[u8]| Targets::Families(vec![family.clone()]);
        let course = &mut Plain::new(engine, options.fail_fast, targets);
        commit(engine, record, options, course, |_, lsn| {
            in_memtable(engine, family, lsn, None, |memtable| {
                memtable.delete_range(start, end, lsn);
            });
        })
    })
}

/// Commits a batch, atomically over all the families it names.
pub(crate) fn commit_batch(
    engine: &Arc<Engine>,
    default: &Arc<Keyspace>,
    parts: Parts<'_>,
    options: WriteOptions,
) -> Result<Commit> {
    let drops = engine.families.drops();
    let mut may_end = !parts.ends.is_empty() || default.ttl_ms() > 0;
    for family in parts.named {
        let family = family.of(engine)?;
        check_family(family)?;
        may_end |= family.ttl_ms() > 0;
    }
    if may_end {
        let Changed { mut record, ops } = with_ends(engine, default, &parts)?;
        let parts = Parts { record: &mut record, ops: &ops, ..parts };
        return commit_ops(engine, default, (parts, drops), options);
    }
    commit_ops(engine, default, (parts, drops), options)
}

fn commit_ops(
    engine: &Arc<Engine>,
    default: &Arc<Keyspace>,
    (Parts { record, ops, named, streams, .. }, drops): (Parts<'_>, u64),
    options: WriteOptions,
) -> Result<Commit> {
    if ops.is_empty() {
        return commit_nothing(engine, options);
    }
    reached_if(Reach::BatchLarge, || ops.len() > 1000);
    if record.len() as u64 > engine.ceiling.entry_max {
        ops.iter()
            .try_for_each(|op| engine.ceiling.check_entry(op.key(record), op.value(record)))?;
    }
    let targets = |record: &[u8]| targets_of(engine, default, named, record, ops);
    let order = Order::of(record, ops);
    let plain = Plain::new(engine, options.fail_fast, targets);
    let drops = Some(drops).filter(|_| !named.is_empty());
    let families = || named.iter().filter_map(|family| Some(&**family.of(engine).ok()?));
    let mut course = Together::new(engine, drops, families, plain);
    commit(engine, record, options, &mut course, |record, lsn| {
        hand_over(engine, lsn, streams);
        apply_batch(engine, default, named, (record, ops, &order), lsn);
    })
}

/// A write without operations. If it asks for durability, the writes before it become durable.
#[cold]
fn commit_nothing(engine: &Engine, options: WriteOptions) -> Result<Commit> {
    engine.check_writable()?;
    let point = engine.log.visible();
    if is_synced(engine, options) {
        engine.log.sync_to(point)?;
    }
    Ok(Commit::new(engine, point))
}

#[inline]
fn is_synced(engine: &Engine, options: WriteOptions) -> bool {
    options.durability.unwrap_or(engine.options.durability) == Durability::Sync
}

/// The words that a batch changes.
#[cold]
fn targets_of(
    engine: &Engine,
    default: &Arc<Keyspace>,
    named: &[Mention],
    record: &[u8],
    ops: &[OpAt],
) -> Targets {
    let has_span = ops.iter().any(|op| op.kind.is_span());
    if has_span || ops.len() > engine.options.sizes.slots_written_max {
        let mut ids: Vec<FamilyId> = ops.iter().map(|op| op.family).collect();
        ids.sort_unstable();
        ids.dedup();
        let family_of = |id| family_of(engine, default, named, id).clone();
        return Targets::Families(ids.into_iter().map(family_of).collect());
    }
    let stamps = &engine.conflicts.stamps;
    let slot = |op: &OpAt| stamps.slot(op.family, checksum64(op.key(record)));
    Targets::of_slots(ops.iter().map(slot).collect())
}

pub(super) fn check_family(family: &Keyspace) -> Result<()> {
    if family.is_dropped() { Err(Error::unknown_family(&family.name())) } else { Ok(()) }
}

/// Commits an encoded record. `course` says what comes before and after the reservation.
#[inline(always)]
pub(super) fn commit(
    engine: &Arc<Engine>,
    record: &mut Vec<u8>,
    options: WriteOptions,
    course: &mut impl Course,
    apply: impl FnOnce(&[u8], Lsn),
) -> Result<Commit> {
    let ops = batch_count(record.get(RECORD_HEADER_LEN..).unwrap_or_default());
    // Any other record takes nothing of a memtable when it is applied.
    let takes = ops.map_or(0, |ops| commit_bytes(record.len() as u64, ops));
    // Who must not wait is refused before the commit.
    let pays_late = !options.fail_fast && course.holds_locks();
    let bytes = record.len() as u64;
    let promise = admit(engine, (bytes, takes), options.fail_fast, !pays_late)?;
    let owed = if pays_late { bytes } else { 0 };
    commit_admitted(engine, record, (options, promise, owed), course, apply)
}

/// Commits an encoded record that has been admitted, and still waits for the pace of so many bytes
/// that it owes.
#[inline(always)]
pub(super) fn commit_admitted(
    engine: &Arc<Engine>,
    record: &mut Vec<u8>,
    (options, promise, owed): (WriteOptions, Option<Promise>, u64),
    course: &mut impl Course,
    apply: impl FnOnce(&[u8], Lsn),
) -> Result<Commit> {
    let log = &engine.log;
    let mut record = wal::seal(record);
    check_decodes(record.payload());
    let len = record.len() as u64;
    let mut reservation = reserve(engine, (&record, len), options.fail_fast, course)?;
    reservation.write(&mut record);
    let landed = promise.map(|promise| land(engine, reservation.start(), promise));
    apply(&record, reservation.start());
    drop(landed);
    yield_point(Point::Applied);
    let (lsn, point) = (reservation.start(), reservation.end());
    debug_assert!(point - lsn == len, "a record is as long as its place in the log");
    reservation.publish();
    if !planted(Plant::FrontierSkipped) {
        log.wait_visible(point)?;
    }
    course.finish(lsn);
    if is_synced(engine, options) {
        log.sync_to(point)?;
    }
    if owed > 0 {
        // It is committed, whatever ends the wait.
        let _ = pace(engine, owed, false);
    }
    Ok(Commit::new(engine, point))
}

/// Reserves so many bytes for a record, at an LSN that `course` accepts. One that it does not
/// becomes a skip record.
#[inline(always)]
pub(super) fn reserve<'log>(
    engine: &'log Engine,
    (record, len): (&[u8], u64),
    fail_fast: bool,
    course: &mut impl Course,
) -> Result<Reservation<'log>> {
    let take = || {
        if fail_fast {
            engine.log.check_prompt()?;
        }
        engine.log.reserve_with(len, Patience::of(fail_fast))
    };
    reserve_by(record, course, take, Reservation::start)
}

/// The same by `take`, for a record that `take` knows; `start` tells the LSN.
#[inline(always)]
pub(super) fn reserve_by<R>(
    record: &[u8],
    course: &mut impl Course,
    mut take: impl FnMut() -> Result<R>,
    start: impl Fn(&R) -> Lsn,
) -> Result<R> {
    loop {
        course.prepare(record)?;
        let reservation = take()?;
        if course.settle(start(&reservation))? {
            return Ok(reservation);
        }
    }
}

/// A commit that does not decode would make every later open fail. The check costs another pass
/// over a batch, so releases leave it out: in them only the code that builds records ensures this.
fn check_decodes(payload: &[u8]) {
    if cfg!(any(debug_assertions, feature = "simulation", feature = "paranoid")) {
        let decoded = decode_payload(payload);
        let is_commit = decoded.as_ref().is_ok_and(Payload::is_commit);
        assert!(is_commit, "a commit that decodes as {decoded:?}");
    }
}

/// Hands what a commit has spoken for to the epoch that owns its LSN, while it is applied.
#[cold]
fn land(engine: &Engine, lsn: Lsn, promise: Promise) -> Landed {
    engine.epochs.owner(lsn).arena.land(promise)
}

/// Does everything that can wait or fail before an LSN is taken, for a record of so many bytes that
/// takes so much of a memtable. If that is much, it is spoken for then. `is_paced` is false for a
/// commit that is paced later.
#[inline(always)]
pub(super) fn admit(
    engine: &Arc<Engine>,
    (bytes, takes): (u64, u64),
    fail_fast: bool,
    is_paced: bool,
) -> Result<Option<Promise>> {
    engine.check_writable()?;
    if is_paced {
        pace(engine, bytes, fail_fast)?;
    }
    find_room(engine, fail_fast)?;
    if takes <= engine.ceiling.small_commit {
        return Ok(None);
    }
    seal::promise(engine, fail_fast, takes)
}

/// The same for a record that takes nothing of a memtable.
#[inline(always)]
pub(super) fn admit_record(engine: &Arc<Engine>, bytes: u64, fail_fast: bool) -> Result<()> {
    engine.check_writable()?;
    pace(engine, bytes, fail_fast)?;
    find_room(engine, fail_fast)
}

#[inline(always)]
fn pace(engine: &Engine, bytes: u64, fail_fast: bool) -> Result<()> {
    let check = || engine.check_writable();
    engine.pacer.admit_if(check, bytes, fail_fast, || engine.memory_fullness())
}

#[inline(always)]
fn find_room(engine: &Arc<Engine>, fail_fast: bool) -> Result<()> {
    if seal::is_full(engine) { seal::make_room(engine, fail_fast) } else { Ok(()) }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::format::DEFAULT_FAMILY;
    use crate::write::parts::push_op;

    #[test]
    #[should_panic = "a commit that decodes as"]
    fn a_record_that_would_not_decode_is_never_acknowledged() {
        check_decodes(b"no payload of a log record");
    }

    #[test]
    #[should_panic = "a commit that decodes as"]
    fn a_record_that_is_no_batch_is_no_commit() {
        let mut record = Vec::new();
        crate::format::put_payload(&mut record, &Payload::EpochMarker);
        check_decodes(&record);
    }

    /// A word counts few announcements.
    #[test]
    fn a_commit_of_very_many_keys_is_announced_once_on_each_family() {
        let db = crate::Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        let default = engine.families.by_id(DEFAULT_FAMILY).unwrap();
        let mut record = Vec::new();
        let count = engine.options.sizes.slots_written_max as u32 + 1;
        let put =
            |n: u32| push_op(&mut record, DEFAULT_FAMILY, OpKind::Put, &n.to_be_bytes(), b"value");
        let ops: Vec<OpAt> = (0..count).map(put).collect();
        match targets_of(engine, &default, &[], &record, &ops) {
            Targets::Families(families) => assert_eq!(families.len(), 1),
            _ => panic!("it is announced on each key"),
        }
    }

    #[test]
    fn a_read_point_comes_back_from_its_bytes_which_compare_as_points_do() {
        let point = |lsn, tag| ReadPoint { lsn, tag };
        let points =
            [point(0, 0), point(0, 7), point(1, 2 << 32), point(1, 3 << 32), point(256, 0)];
        let last = point(u64::MAX, u64::MAX);
        for pair in [&points[..], &[last]].concat().windows(2) {
            assert!(pair[0] < pair[1] && pair[0].to_bytes() < pair[1].to_bytes(), "{pair:?}");
            assert_eq!(ReadPoint::from_bytes(pair[1].to_bytes()), pair[1]);
        }
        let bytes = *b"\0\0\0\0\0\0\x01\x02\0\0\0\x03\0\0\0\x04";
        assert_eq!(ReadPoint::from_bytes(bytes), point(0x102, 3 << 32 | 4));
    }
}
