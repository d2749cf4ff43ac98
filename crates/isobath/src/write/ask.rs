//! What a commit does about keys that others have locked.
//!
//! It finds out after it has announced itself: a slot says that some key of it is locked, and the
//! map of locks knows which. If no key of the commit is locked, the commit goes on; a transaction
//! that locks one of its keys later sees the announcement and waits. Otherwise the commit withdraws
//! all its announcements, because the owner of the lock waits for that, and sleeps in the queue of
//! the key. Then it begins again.
//!
//! Between its sleep and its next announcement another transaction may lock the key. A commit to
//! which this happens three times locks its keys itself, in their order, and so gets its turn in
//! the queue. From then on it need not ask: who wants a key of it, or a range around one, waits.
//! A commit of very many keys locks the range around them instead.

use crate::conflict::Stamps;
use crate::engine::Engine;
use crate::env::{Plant, planted};
use crate::error::{Error, ErrorKind, Result, StallCause};
use crate::format::{FamilyId, Op, Payload, checksum64, decode_payload};
use crate::lock::{LockMode, OwnRanges, Owner, Span};
use crate::wal;
use crate::write::key_locks::KeyLocks;
use std::collections::BTreeMap;
use std::sync::Arc;

/// After how many sleeps a commit locks its keys.
const ROUNDS_MAX: u32 = 3;

/// How often a plain write gives back what it has locked, for a deadlock, and tries again.
const DEADLOCKS_MAX: u32 = 16;

/// What one commit has met of locks so far.
#[derive(Debug)]
pub(crate) struct Asker {
    rounds: u32,
    deadlocks: u32,
    /// The moment at which all its waits together have lasted too long.
    deadline_ns: Option<u64>,
    /// True if it must fail rather than wait (`fail_fast`).
    fail_fast: bool,
    /// True once it has locked all that it writes.
    has_all: bool,
}

impl Asker {
    pub(crate) fn new(fail_fast: bool) -> Asker {
        Asker { rounds: 0, deadlocks: 0, deadline_ns: None, fail_fast, has_all: false }
    }

    /// True if the commit has locked all that it writes.
    pub(super) fn has_all(&self) -> bool {
        self.has_all
    }

    /// Deals with a lock that stands in the way, for a commit that has taken back its announcement.
    pub(super) fn give_way(
        &mut self,
        engine: &Engine,
        record: &[u8],
        held: Held,
        locks: &mut KeyLocks,
    ) -> Result<()> {
        if self.fail_fast {
            return Err(Error::would_stall(StallCause::KeyLocked));
        }
        self.rounds += 1;
        let ops = operations(record);
        if self.rounds > ROUNDS_MAX {
            let is_few = ops.len() <= engine.options.sizes.slots_written_max;
            let locked =
                if is_few { lock_all(engine, ops, locks) } else { lock_hulls(engine, &ops, locks) };
            self.has_all = locked.is_ok();
            return locked.or_else(|why| self.give_all_back(engine, locks, why));
        }
        let deadline_ns = *self.deadline_ns.get_or_insert_with(|| locks.deadline_ns(engine));
        locks.wait_for(engine, held, deadline_ns)
    }
}

impl Asker {
    /// A plain write is in no hurry to fail: if it gives back all that it has locked, the others of
    /// a deadlock can go on, and it begins again.
    #[cold]
    fn give_all_back(&mut self, engine: &Engine, locks: &mut KeyLocks, why: Error) -> Result<()> {
        // A cycle of one leads through its thread, and does not end.
        let is_among_others =
            matches!(why.kind(), ErrorKind::Deadlock { cycle } if cycle.len() > 1);
        if !locks.is_of_write() || !is_among_others || self.deadlocks == DEADLOCKS_MAX {
            return Err(why);
        }
        self.deadlocks += 1;
        locks.end(engine);
        debug_assert!(!locks.holds_any(), "a write waits again while others wait for it");
        Ok(())
    }
}

/// What others have locked of what a commit writes.
pub(super) enum Held {
    /// A key.
    Key(FamilyId, Arc<[u8]>),
    /// A range that overlaps this one.
    Range(FamilyId, Span),
}

/// A key of the record that an owner other than `owner` has locked, or a range around it.
pub(super) fn held_key(engine: &Engine, record: &[u8], owner: Option<&Owner>) -> Option<Held> {
    if planted(Plant::PutIgnoresLock) && owner.is_none() {
        return None;
    }
    let mut spans: BTreeMap<FamilyId, OwnRanges> = BTreeMap::new();
    for op in operations(record) {
        if !op.kind.is_span() {
            if let Some(held) = held_at_key(engine, &op, owner) {
                return Some(held);
            }
            continue;
        }
        let span = span_of(&op);
        if engine.locks.has_ranges() && engine.locks.is_range_against(owner, (op.family, &span)) {
            return Some(Held::Range(op.family, span));
        }
        spans.entry(op.family).or_default().add(&span, LockMode::Exclusive);
    }
    if spans.is_empty() {
        return None;
    }
    // Keys have no slot in common with a range delete, so the whole map is asked.
    let (family, key) = engine.locks.key_in_any(&spans, owner)?;
    Some(Held::Key(family, key))
}

fn held_at_key(engine: &Engine, op: &Op<'_>, owner: Option<&Owner>) -> Option<Held> {
    let stamps: &Stamps = &engine.conflicts.stamps;
    let key = (op.family, op.key);
    let is_held = || {
        let slot = stamps.slot(op.family, checksum64(op.key));
        stamps.load(slot).locked && engine.locks.is_held_against(owner, key, LockMode::Exclusive)
    };
    // A transaction that is locking the range waits for keys that the owner had locked before.
    let is_own = || owner.and_then(|owner| owner.holds(key.0, key.1)) == Some(LockMode::Exclusive);
    if engine.locks.has_ranges() && engine.locks.is_in_range_against(owner, key) && !is_own() {
        return Some(Held::Range(op.family, Span::of_key(op.key)));
    }
    is_held().then(|| Held::Key(op.family, op.key.into()))
}

fn span_of(op: &Op<'_>) -> Span {
    let upper = (!op.value.is_empty()).then(|| op.value.into());
    Span { lower: op.key.into(), upper }
}

/// The operations of a sealed record. A change of families has none.
fn operations(record: &[u8]) -> Vec<Op<'_>> {
    match wal::payload_of(record).map(decode_payload) {
        Some(Ok(Payload::Batch(ops))) => ops,
        _ => Vec::new(),
    }
}

/// Locks, in each family of a record with very many keys, the range from the first to the last.
#[cold]
fn lock_hulls(engine: &Engine, ops: &[Op<'_>], locks: &mut KeyLocks) -> Result<()> {
    let mut hulls: BTreeMap<FamilyId, Span> = BTreeMap::new();
    for op in ops {
        let own = if op.kind.is_span() { span_of(op) } else { Span::of_key(op.key) };
        match hulls.get_mut(&op.family) {
            None => _ = hulls.insert(op.family, own),
            Some(hull) => hull.reach_over(&own),
        }
    }
    for (family, hull) in &hulls {
        engine.families.by_id(*family).ok_or_else(|| Error::unknown_family("(dropped)"))?;
        locks.ask_range(engine, (*family, hull), LockMode::Exclusive)?;
    }
    locks.settle_ranges(engine)
}

/// Locks all keys of a record, in an order that all commits keep to.
fn lock_all(engine: &Engine, mut ops: Vec<Op<'_>>, locks: &mut KeyLocks) -> Result<()> {
    // Ranges first: an owner that holds a key in a range while it waits for the range can be part
    // of a deadlock.
    ops.sort_unstable_by_key(|op| (!op.kind.is_span(), op.family, op.key));
    ops.dedup_by(|a, b| !a.kind.is_span() && (a.family, a.key) == (b.family, b.key));
    for op in ops {
        let family = engine.families.by_id(op.family);
        let family = family.ok_or_else(|| Error::unknown_family("(dropped)"))?;
        match op.kind.is_span() {
            true => {
                locks.ask_range(engine, (op.family, &span_of(&op)), LockMode::Exclusive)?;
            }
            false => {
                locks.take(engine, &family, op.key, LockMode::Exclusive)?;
            }
        }
    }
    locks.settle_ranges(engine)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Options;
    use crate::env::sync::atomic::Ordering;
    use crate::format::{DEFAULT_FAMILY, OpKind, put_payload};
    use crate::wal::RECORD_HEADER_LEN;
    use crate::write::Targets;
    use crate::write::announce::Announcement;

    fn record_of(ops: Vec<Op<'_>>) -> Vec<u8> {
        let mut record = vec![0; RECORD_HEADER_LEN];
        put_payload(&mut record, &Payload::Batch(ops));
        wal::seal(&mut record);
        record
    }

    /// A range that is locked around a key of it waits for that key, so it need not start over.
    #[test]
    fn a_commit_that_has_locked_what_it_writes_is_not_overtaken_by_ranges() {
        let db = Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        let op = Op { kind: OpKind::Put, family: DEFAULT_FAMILY, key: b"k", value: b"value" };
        let record = record_of(vec![op]);
        let mut announcement = Announcement::new(engine, Targets::Many(Vec::new()));
        let (mut locks, mut asker) = (KeyLocks::of_write(engine), Asker::new(false));
        asker.rounds = ROUNDS_MAX;
        let held = Held::Key(DEFAULT_FAMILY, b"k"[..].into());
        asker.give_way(engine, &record, held, &mut locks).unwrap();
        let other = Owner::transaction(engine.locks.next_id());
        let around = Span::of_delete(b"", b"");
        let range = (DEFAULT_FAMILY, &around);
        for (asker, is_overtaken) in [(&asker, false), (&Asker::new(false), true)] {
            announcement.make_unasked(engine).unwrap();
            let locked = engine.locks.take_range(&other, range, LockMode::Exclusive, 0);
            assert!(locked.is_err() && engine.locks.is_in_range_against(None, (0, b"k")));
            assert_eq!(announcement.is_overtaken(engine, asker), is_overtaken);
            announcement.withdraw();
            engine.locks.release_ranges(&other);
        }
        locks.end(engine);
        assert!(engine.locks.is_free());
    }

    #[test]
    fn a_commit_that_locks_what_it_writes_locks_every_key_and_every_range_of_it() {
        let db = Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        let op = |kind, key, value| Op { kind, family: DEFAULT_FAMILY, key, value };
        let ops = vec![
            op(OpKind::Put, b"b", &b"value"[..]),
            op(OpKind::Put, b"a", b"value"),
            op(OpKind::DeleteRange, b"p", b"t"),
            op(OpKind::Delete, b"b", b""),
            op(OpKind::DeleteRange, b"p", b"z"),
        ];
        let mut locks = KeyLocks::of_write(engine);
        lock_all(engine, ops, &mut locks).unwrap();
        let key = |key: &'static str| (DEFAULT_FAMILY, key.as_bytes());
        let is_held = |name| engine.locks.is_held_against(None, key(name), LockMode::Shared);
        let is_in_range = |name| engine.locks.is_in_range_against(None, key(name));
        assert_eq!(["a", "b", "c"].map(is_held), [true, true, false]);
        assert_eq!(["o", "p", "s", "t", "z"].map(is_in_range), [false, true, true, true, false]);
        locks.end(engine);
        assert!(engine.locks.is_free());
    }
    /// One holds a key in the range that the other locks, and wants another key there.
    #[test]
    fn a_write_that_cannot_lock_all_beside_another_write_gives_all_back_and_tries_again() {
        let db = Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        let op = |kind, key, value| Op { kind, family: DEFAULT_FAMILY, key, value };
        let range = record_of(vec![op(OpKind::DeleteRange, b"m", &b"z"[..])]);
        let keys = ["p", "q"].map(|key| op(OpKind::Put, key.as_bytes(), b"value"));
        let keys = record_of(keys.to_vec());
        let held = |key: &str| Held::Key(DEFAULT_FAMILY, key.as_bytes().into());
        let ready = || {
            let mut asker = Asker::new(false);
            asker.rounds = ROUNDS_MAX;
            (KeyLocks::of_write(engine), asker)
        };
        let (mut locks, mut asker) = ready();
        locks.take(engine, &engine.default_family, b"p", LockMode::Exclusive).unwrap();
        std::thread::scope(|scope| {
            let ranger = scope.spawn(|| {
                let (mut locks, mut asker) = ready();
                while !asker.has_all() {
                    let told = asker.give_way(engine, &range, held("p"), &mut locks);
                    if told.is_err() {
                        locks.end(engine);
                        return told;
                    }
                    let is_free = !locks.holds_any();
                    assert!(is_free != asker.has_all(), "it holds a part of what it wants");
                }
                locks.end(engine);
                Ok(())
            });
            while engine.locks.sleepers() == 0 && !ranger.is_finished() {
                std::thread::yield_now();
            }
            let mut told = Ok(());
            while told.is_ok() && !asker.has_all() {
                told = asker.give_way(engine, &keys, held("p"), &mut locks);
            }
            locks.end(engine);
            told.unwrap();
            ranger.join().unwrap().unwrap();
        });
        assert!(engine.locks.is_free());
        assert!(engine.locks.counts().deadlocks.load(Ordering::Relaxed) > 0);
    }

    #[test]
    fn a_commit_of_very_many_keys_locks_the_range_from_its_first_to_its_last_in_each_family() {
        let mut options = Options::in_memory();
        options.sizes.slots_written_max = 2;
        let db = options.open("/db").unwrap();
        let other = db.family("other").unwrap().id();
        let engine = db.engine();
        let put = |family, key| Op { kind: OpKind::Put, family, key, value: &b"value"[..] };
        let delete = |family, key, value| Op { kind: OpKind::DeleteRange, family, key, value };
        let ops = |is_open: bool| {
            let end = if is_open { &b""[..] } else { b"r" };
            vec![put(0, &b"k"[..]), put(0, b"c"), delete(other, b"p", end), put(other, b"q")]
        };
        for is_open in [false, true] {
            let (mut locks, mut asker) = (KeyLocks::of_write(engine), Asker::new(false));
            asker.rounds = ROUNDS_MAX;
            let held = Held::Key(DEFAULT_FAMILY, b"k"[..].into());
            asker.give_way(engine, &record_of(ops(is_open)), held, &mut locks).unwrap();
            let is_in = |family, key: &str| {
                engine.locks.is_in_range_against(None, (family, key.as_bytes()))
            };
            assert_eq!(
                ["b", "c", "d", "k", "k1"].map(|key| is_in(0, key)),
                [false, true, true, true, false]
            );
            assert_eq!(
                ["o", "p", "q", "r"].map(|key| is_in(other, key)),
                [false, true, true, is_open]
            );
            assert!(asker.has_all());
            locks.end(engine);
            assert!(engine.locks.is_free());
        }
    }
}
