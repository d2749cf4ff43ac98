//! The life of a commit.
//!
//! ```text
//! admit    pacing, memory, log room: everything that can wait or fail
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

use crate::engine::{Engine, Keyspace, Mention, Notice, point_tag};
use crate::env::{Plant, Point, Reach, planted, reached, reached_if, with_scratch, yield_point};
use crate::error::{Error, Result};
use crate::format::{
    DEFAULT_FAMILY, FamilyId, Lsn, Op, OpKind, Payload, checksum64, decode_payload,
    put_batch_prefix, put_op,
};
use crate::limits::{check_key, check_value, note_written};
use crate::memtable::Memtable;
use crate::options::{Durability, WriteOptions};
use crate::read_point::ReadPoint;
use crate::version::Term;
use crate::wal::{self, Patience, RECORD_HEADER_LEN, Reservation};
use crate::write::announce::{Course, Plain, Targets};
use crate::write::seal;
use std::sync::Arc;

/// A batch of at least this many operations is sorted before it is applied: neighbouring keys then
/// share most of the search in the memtable.
const SORT_MIN: usize = 4;

/// The result of a write that succeeded. Only writes make one, and [`crate::Db::sync_to`] accepts
/// only commits of its own database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Commit {
    /// The read point just after it: a reader at this point or later sees the commit.
    pub(crate) point: Lsn,
    tag: u64,
}

impl Commit {
    #[inline]
    pub(crate) fn new(engine: &Engine, point: Lsn) -> Commit {
        Commit { point, tag: engine.point_tag }
    }
}

impl From<Commit> for ReadPoint {
    #[inline]
    fn from(Commit { point, tag }: Commit) -> ReadPoint {
        ReadPoint { lsn: point, tag }
    }
}

/// Where an operation's parts lie in the record, so that applying it needs no decoding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpAt {
    pub(crate) family: FamilyId,
    pub(crate) kind: OpKind,
    pub(crate) key_len: u32,
    pub(crate) value_len: u32,
    /// The offset of the key in the record; the value, if any, ends the operation.
    pub(crate) key_at: usize,
    pub(crate) value_at: usize,
}

impl OpAt {
    #[inline]
    pub(crate) fn key<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        &record[self.key_at..self.key_at + self.key_len as usize]
    }

    #[inline]
    pub(crate) fn value<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        &record[self.value_at..self.value_at + self.value_len as usize]
    }
}

/// The parts of an encoded batch: its record (with room for the header), where its operations lie
/// in the record, and the families it names.
pub(crate) type Parts<'a> = (&'a mut Vec<u8>, &'a [OpAt], &'a [Mention]);

/// Commits one operation.
pub(crate) fn commit_one(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    kind: OpKind,
    key: &[u8],
    value: &[u8],
    options: WriteOptions,
) -> Result<Commit> {
    check_key(key)?;
    check_value(value)?;
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
    let Some((start, end)) = span else {
        engine.check_writable()?;
        return Ok(Commit::new(engine, engine.log.visible()));
    };
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
    let (record, ops, named) = parts;
    if ops.is_empty() {
        engine.check_writable()?;
        return Ok(Commit::new(engine, engine.log.visible()));
    }
    for family in named {
        check_family(family.of(engine)?)?;
    }
    reached_if(Reach::BatchLarge, || ops.len() > 1000);
    let targets = |record: &[u8]| targets_of(engine, default, named, record, ops);
    commit(
        engine,
        record,
        options,
        &mut Plain::new(engine, options.fail_fast, targets),
        |record, lsn| {
            apply_batch(engine, default, named, record, ops, lsn);
        },
    )
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

/// The family of an operation of a batch.
fn family_of<'a>(
    engine: &Engine,
    default: &'a Arc<Keyspace>,
    named: &'a [Mention],
    id: FamilyId,
) -> &'a Arc<Keyspace> {
    match id {
        DEFAULT_FAMILY => default,
        id => named
            .iter()
            .find(|family| family.id() == id)
            .and_then(|family| family.of(engine).ok())
            .expect("named when added, and checked since"),
    }
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
    admit(engine, record.len() as u64, options.fail_fast)?;
    let log = &engine.log;
    let mut record = wal::seal(record);
    check_decodes(record.payload());
    let len = record.len() as u64;
    let mut reservation = reserve(engine, (&record, len), options.fail_fast, course)?;
    reservation.write(&mut record);
    apply(&record, reservation.start());
    yield_point(Point::Applied);
    let (lsn, point) = (reservation.start(), reservation.end());
    debug_assert!(point - lsn == len, "a record is as long as its place in the log");
    reservation.publish();
    if !planted(Plant::FrontierSkipped) {
        log.wait_visible(point)?;
    }
    course.finish(lsn);
    if options.durability.unwrap_or(engine.options.durability) == Durability::Sync {
        log.sync_to(point)?;
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
    loop {
        course.prepare(record)?;
        let reservation = engine.log.reserve_with(len, Patience::of(fail_fast))?;
        if course.settle(reservation.start())? {
            return Ok(reservation);
        }
    }
}

/// A commit that does not decode would make every later open fail. The check costs another pass
/// over a batch, so releases leave it out: in them only the code that builds records ensures this.
fn check_decodes(payload: &[u8]) {
    if cfg!(any(debug_assertions, feature = "simulation", feature = "paranoid")) {
        let decoded = decode_payload(payload);
        let is_commit =
            matches!(decoded, Ok(Payload::Batch(_) | Payload::Prepare(_) | Payload::Decide(_)));
        assert!(is_commit, "a commit that decodes as {decoded:?}");
    }
}

/// Does everything that can wait or fail before an LSN is taken.
#[inline(always)]
pub(super) fn admit(engine: &Arc<Engine>, bytes: u64, fail_fast: bool) -> Result<()> {
    engine.check_writable()?;
    let check = || engine.check_writable();
    engine.pacer.admit_if(check, bytes, fail_fast, || engine.memory_fullness())?;
    if seal::is_full(engine) {
        seal::make_room(engine, fail_fast)?;
    }
    Ok(())
}

/// Runs `insert` on the memtable of `family` in the epoch that owns the reserved `lsn`. `puts` are
/// the keys that get a value.
#[inline]
pub(super) fn in_memtable<'k>(
    engine: &Engine,
    family: &Keyspace,
    lsn: Lsn,
    puts: impl IntoIterator<Item = &'k [u8]>,
    insert: impl FnOnce(&Memtable),
) {
    let view = family.view();
    if let Some(gaps) = &view.gaps {
        let cut_count = family.cut_gaps(gaps, puts.into_iter());
        if cut_count > 0 {
            engine.gauges.gaps_cut.add(cut_count);
        }
    }
    if let Some(newest) = view.memtables.first()
        && newest.epoch.owns_while_open(lsn)
    {
        return insert(&newest.memtable);
    }
    drop(view);
    let owner = engine.epochs.owner(lsn);
    reached_if(Reach::SealRaced, || owner.end() != Lsn::MAX);
    insert(&family.memtable_in(&owner));
}

fn apply_batch(
    engine: &Engine,
    default: &Arc<Keyspace>,
    named: &[Mention],
    record: &[u8],
    ops: &[OpAt],
    lsn: Lsn,
) {
    let family_of = |id: FamilyId| family_of(engine, default, named, id);
    if ops.len() < SORT_MIN {
        for (ordinal, op) in ops.iter().enumerate() {
            let put = op.kind.puts_value().then(|| op.key(record));
            in_memtable(engine, family_of(op.family), lsn, put, |memtable| {
                memtable.apply(op.key(record), lsn + ordinal as u64, op.kind, op.value(record));
            });
        }
        return;
    }
    // Where a range delete and a key begin alike, both stay.
    for (ordinal, op) in ops.iter().enumerate().filter(|(_, op)| op.kind.is_span()) {
        in_memtable(engine, family_of(op.family), lsn, None, |memtable| {
            memtable.apply(op.key(record), lsn + ordinal as u64, op.kind, op.value(record));
        });
    }
    let order = sorted_last_wins(record, ops);
    let place = |at: &Placed| (at.family, ops[at.ordinal as usize].key(record));
    debug_assert!(
        order.is_sorted_by(|a, b| place(a) < place(b) || ops[a.ordinal as usize].kind.is_operand()),
        "a memtable takes each key of a batch in order, and once, but for what operands need"
    );
    reached_if(Reach::BatchRepeats, || order.len() < ops.len());
    for group in order.chunk_by(|a, b| a.family == b.family) {
        let ops_of = group.iter().map(|at| &ops[at.ordinal as usize]);
        let puts = ops_of.filter(|op| op.kind.puts_value()).map(|op| op.key(record));
        in_memtable(engine, family_of(group[0].family), lsn, puts, |memtable| {
            memtable.insert_sorted(group.iter().map(|&Placed { ordinal, .. }| {
                let op = &ops[ordinal as usize];
                (op.key(record), lsn + u64::from(ordinal), op.kind, op.value(record))
            }));
        });
    }
}

/// An operation on a key, as a batch is sorted.
#[derive(Clone, Copy, Debug)]
struct Placed {
    family: FamilyId,
    /// Its number in the batch.
    ordinal: u32,
    /// The first 8 bytes of the key, so that most comparisons do not read the record.
    head: u64,
}

/// A batch's operations on keys, by family and key, without those that a later one on the same key
/// replaces (a merge replaces none): no reader can read between two operations of one commit.
fn sorted_last_wins(record: &[u8], ops: &[OpAt]) -> Vec<Placed> {
    let head = |op: &OpAt| {
        let key = op.key(record);
        let mut bytes = [0; 8];
        let len = key.len().min(8);
        bytes[..len].copy_from_slice(&key[..len]);
        u64::from_be_bytes(bytes)
    };
    let keyed = ops.iter().enumerate().filter(|(_, op)| !op.kind.is_span());
    let mut order = Vec::with_capacity(ops.len());
    order.extend(keyed.map(|(i, op)| Placed {
        family: op.family,
        ordinal: i as u32,
        head: head(op),
    }));
    let key = |at: &Placed| ops[at.ordinal as usize].key(record);
    let by_key = |a: &Placed, b: &Placed| {
        let heads = (a.family, a.head).cmp(&(b.family, b.head));
        reached_if(Reach::BatchSharedHeads, || heads.is_eq() && key(a) != key(b));
        heads.then_with(|| key(a).cmp(key(b))).then(b.ordinal.cmp(&a.ordinal))
    };
    if !order.is_sorted_by(|a, b| by_key(a, b).is_lt()) {
        order.sort_unstable_by(by_key);
    }
    // Of equal keys the last operation comes first, so it is the one that stays, with all that it
    // needs if it is an operand.
    order.dedup_by(|older, kept| {
        let is_same = older.family == kept.family && key(older) == key(kept);
        is_same && !ops[kept.ordinal as usize].kind.is_operand()
    });
    order
}

/// Waits until every commit up to `point` survives power loss.
pub(crate) fn sync_to(engine: &Engine, point: ReadPoint) -> Result<()> {
    engine.check_open()?;
    engine.check_not_read_only()?;
    engine.log.sync_to(wanted_durable(engine, point)?)
}

/// Runs `notice` once every commit up to `point` survives power loss, or once it is known that they
/// never will. If this returns an error, `notice` does not run.
pub(crate) fn on_durable(engine: &Arc<Engine>, point: ReadPoint, notice: Notice) -> Result<()> {
    engine.check_open()?;
    engine.check_not_read_only()?;
    engine.notices.add(engine, wanted_durable(engine, point)?, notice)
}

/// True if every commit up to `point` is known to survive power loss.
pub(crate) fn is_durable(engine: &Engine, point: ReadPoint) -> bool {
    // A reader does not know what the writing process has synced.
    let durable = if engine.shown.is_some() { 0 } else { engine.log.durable() };
    wanted_durable(engine, point).is_ok_and(|lsn| lsn <= durable)
}

/// The LSN below which this term's log must be durable so that every commit up to `point` survives
/// power loss: 0 if they survive already, as commits of an earlier term do. Fails if the point does
/// not belong to this database, or if its commits may be lost.
fn wanted_durable(engine: &Engine, point: ReadPoint) -> Result<Lsn> {
    let refuse =
        |why: String| Err(Error::invalid_argument(format!("the point {:#x} {why}", point.lsn)));
    if point.tag == engine.point_tag {
        let tail = engine.log.tail();
        return match point.lsn <= tail {
            true => Ok(point.lsn),
            false => refuse(format!(
                "is none of this database, whose log ends at {tail:#x}: it was made after this copy of it"
            )),
        };
    }
    // What recovery took from the log of an earlier term is in tables, and synced.
    let versions = engine.versions.lock();
    let is_of_term_before =
        |next: &&Term| point.tag == point_tag(&engine.uuid, next.term.wrapping_sub(1));
    match versions.state().terms().iter().find(is_of_term_before) {
        Some(next) if point.lsn <= next.ended_at => Ok(0),
        Some(next) => refuse(format!(
            "may be lost: when the database was opened again, all of its log was there up to {:#x} only",
            next.ended_at
        )),
        None => refuse(
            "was made in another database or in a later life of a copy, or too long ago: nothing tells whether it survived"
                .to_owned(),
        ),
    }
}

/// Waits until everything below `point`, an LSN of this term, survives power loss.
pub(crate) fn sync_to_lsn(engine: &Engine, point: Lsn) -> Result<()> {
    engine.check_open()?;
    engine.check_not_read_only()?;
    engine.log.sync_to(point)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::error::ErrorKind;

    #[test]
    fn a_batch_is_sorted_by_whole_keys_and_the_last_operation_on_a_key_wins() {
        let mut batch = Batch::new();
        for end in ["c", "a", "b", "a", ""] {
            batch.put(format!("the same{end}"), "value");
        }
        let (record, ops, _) = batch.parts();
        let ordinals =
            sorted_last_wins(record, ops).iter().map(|at| at.ordinal).collect::<Vec<_>>();
        assert_eq!(ordinals, [4, 3, 2, 0]);
    }

    #[test]
    fn a_sorted_batch_keeps_what_its_operands_need_and_no_more() {
        let mut batch = Batch::new();
        batch.merge("a", "0").put("a", "1").merge("a", "2").merge("a", "3");
        batch.merge("b", "4").put("b", "5").delete("c").merge("c", "6");
        let (record, ops, _) = batch.parts();
        let ordinals: Vec<_> = sorted_last_wins(record, ops).iter().map(|at| at.ordinal).collect();
        assert_eq!(ordinals, [3, 2, 1, 5, 7, 6]);
    }

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

    #[track_caller]
    fn assert_refused(engine: &Engine, commit: Commit, why: &str) {
        let told = sync_to(engine, commit.into());
        let is_refused = matches!(
            told.as_ref().map_err(Error::kind),
            Err(ErrorKind::InvalidArgument { detail: what, .. }) if what.contains(why)
        );
        assert!(is_refused, "{told:?}");
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

    #[test]
    fn a_commit_is_judged_by_where_its_log_and_its_term_end() {
        let fs = crate::vfs::MemoryFs::new();
        let open = |fs: &crate::vfs::MemoryFs| {
            let fs = Arc::new(fs.clone());
            let env = crate::env::Env { fs, ..crate::env::Env::system() };
            crate::Options::new().env(env).open("/db").unwrap()
        };
        let db = open(&fs);
        let commit = db.put("key", "value").unwrap();
        let engine = db.engine();
        let tail = engine.log.tail();
        let term_of = |engine: &Engine| engine.versions.lock().state().term().term;
        let (uuid, term) = (engine.uuid, term_of(engine));
        assert_eq!((commit.point, commit.tag), (tail, point_tag(&uuid, term)));
        sync_to(engine, commit.into()).unwrap();
        assert_eq!(engine.log.durable(), tail);
        assert_refused(engine, Commit { point: tail + 8, ..commit }, "none of this database");
        for (point, term) in [(tail, term + 1), (0, u64::MAX)] {
            let tag = point_tag(&uuid, term);
            assert_refused(engine, Commit { point, tag }, "a later life of a copy");
        }
        for bit in 0..64 {
            let foreign = Commit { tag: commit.tag ^ 1 << bit, ..commit };
            assert_refused(engine, foreign, "another database");
        }
        for bit in 0..128 {
            let mut other = uuid;
            other[bit / 8] ^= 1 << (bit % 8);
            let foreign = Commit { tag: point_tag(&other, term), ..commit };
            assert_refused(engine, foreign, "another database");
        }
        // The last point of its term lies beyond the end of the next term's log, which is short.
        let db = open(&fs.killed());
        let engine = db.engine();
        let ended_at = engine.versions.lock().state().term().ended_at;
        assert_eq!((term_of(engine), ended_at), (term + 1, tail));
        sync_to(engine, commit.into()).unwrap();
        assert_refused(engine, Commit { point: tail + 8, ..commit }, "may be lost");
        assert_refused(engine, Commit { point: u64::MAX, ..commit }, "may be lost");
        let own = Commit { point: engine.log.tail() + 8, ..db.put("key", "value").unwrap() };
        sync_to(engine, Commit { point: engine.log.tail(), ..own }.into()).unwrap();
        let beyond = Commit { point: engine.log.tail() + 8, ..own };
        assert_refused(engine, beyond, "none of this database");
    }
}
