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
//! If it meets a range, or writes one, it locks each key as a range of its own, and all in one
//! order. A commit of very many keys locks the range around them instead.

use crate::conflict::Stamps;
use crate::engine::Engine;
use crate::env::{Plant, planted};
use crate::error::{Error, ErrorKind, Result, StallCause};
use crate::format::{FamilyId, Op, Payload, checksum64, decode_payload};
use crate::lock::{Got, LockMode, OwnRanges, Owner, Span};
use crate::wal;
use crate::write::key_locks::KeyLocks;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// After how many sleeps a commit locks its keys.
const ROUNDS_MAX: u32 = 3;

/// How often a plain write gives back what it has locked, for a deadlock, and tries again.
const DEADLOCKS_MAX: u32 = 16;

/// For how many keys in its ranges a commit waits, one after the other, before it locks the ranges.
const AWAITED_MAX: usize = 4;

/// How long a commit waits for keys before it locks the ranges around them, and how long it then
/// keeps these for the rest of the keys, at first.
const PATIENCE_MIN: Duration = Duration::from_millis(20);

/// Before it locks them for the first time, it waits for one part in so many of its time.
const FIRST_SHARE: u32 = 4;

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
        let deadline_ns = *self.deadline_ns.get_or_insert_with(|| locks.deadline_ns(engine));
        let ops = operations(record);
        if self.rounds > ROUNDS_MAX {
            let locked = lock_all(engine, ops, deadline_ns, locks);
            self.has_all = locked.is_ok();
            return locked.or_else(|why| self.give_all_back(engine, locks, why));
        }
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
    // Who is locking the range waits for keys that the owner had locked before.
    let is_own = || match owner.and_then(|owner| Some((owner, owner.holds(key.0, key.1)?))) {
        Some((_, LockMode::Exclusive)) => true,
        Some((owner, LockMode::Shared)) => !engine.locks.is_range_against_sharer(owner, key),
        None => false,
    };
    if engine.locks.has_ranges() && engine.locks.is_in_range_against(owner, key) && !is_own() {
        return Some(Held::Range(op.family, Span::of_key(op.key)));
    }
    is_held().then(|| Held::Key(op.family, op.key.into()))
}

fn span_of(op: &Op<'_>) -> Span {
    if !op.kind.is_span() {
        return Span::of_key(op.key);
    }
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

/// What a commit locks of a family as ranges.
type Spans = BTreeMap<FamilyId, OwnRanges>;

/// In each family of a record with very many keys, the range from the first to the last.
#[cold]
fn hulls_of(ops: &[Op<'_>]) -> Spans {
    let mut hulls: BTreeMap<FamilyId, Span> = BTreeMap::new();
    for op in ops {
        match hulls.get_mut(&op.family) {
            None => _ = hulls.insert(op.family, span_of(op)),
            Some(hull) => hull.reach_over(&span_of(op)),
        }
    }
    let mut spans = Spans::new();
    for (family, hull) in &hulls {
        spans.entry(*family).or_default().add(hull, LockMode::Exclusive);
    }
    debug_assert!(
        ops.iter().all(|op| spans[&op.family].contains(op.key)),
        "a key is written that is not locked"
    );
    spans
}

/// Each key and each range of a record as a range. Those that overlap or touch are one.
fn spans_of(ops: &[Op<'_>]) -> Spans {
    let mut spans = Spans::new();
    for op in ops {
        spans.entry(op.family).or_default().add(&span_of(op), LockMode::Exclusive);
    }
    debug_assert_eq!(spans.is_empty(), ops.is_empty(), "each operation writes somewhere");
    spans
}

/// Locks all that a record writes.
fn lock_all(
    engine: &Engine,
    mut ops: Vec<Op<'_>>,
    deadline_ns: u64,
    locks: &mut KeyLocks,
) -> Result<()> {
    if ops.len() > engine.options.sizes.slots_written_max {
        return lock_spans(engine, &hulls_of(&ops), deadline_ns, locks);
    }
    let has_spans = ops.iter().any(|op| op.kind.is_span());
    if !has_spans && lock_keys(engine, &mut ops, deadline_ns, locks)? {
        return Ok(());
    }
    lock_spans(engine, &spans_of(&ops), deadline_ns, locks)
}

/// Locks all keys of a record, in an order that all commits keep to. False if a range was in the
/// way. Then all is given back: the owner of the range waits for keys in it, and who kept one
/// of them and waited for the range would be a deadlock with each owner that locks it next.
fn lock_keys(
    engine: &Engine,
    ops: &mut Vec<Op<'_>>,
    deadline_ns: u64,
    locks: &mut KeyLocks,
) -> Result<bool> {
    ops.sort_unstable_by_key(|op| (op.family, op.key));
    ops.dedup_by_key(|op| (op.family, op.key));
    debug_assert!(
        ops.is_sorted_by(|one, next| (one.family, one.key) < (next.family, next.key)),
        "two commits that lock in different orders wait for each other"
    );
    let mut taken: Vec<((FamilyId, &[u8]), Got)> = Vec::new();
    for op in &*ops {
        let family = engine.families.by_id(op.family);
        let family = family.ok_or_else(|| Error::unknown_family("(dropped)"))?;
        match locks.take_beside_ranges(engine, &family, op.key, deadline_ns)? {
            Some(got) => taken.push(((op.family, op.key), got)),
            None => {
                taken.into_iter().for_each(|(at, got)| locks.take_back(engine, at, got));
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Locks all that a record writes as ranges: first among ranges, in one order, so that those who
/// wait for one of them are overtaken; then it waits for keys in them that others hold. Meanwhile
/// no other writes there. So it waits for some of these keys before it locks anything, and if the
/// rest lasts long, it gives the ranges back and begins again, with more patience each time. Where
/// a key goes from hand to hand, no wait before the ranges ends by itself, so that has an end, too.
fn lock_spans(
    engine: &Engine,
    spans: &Spans,
    deadline_ns: u64,
    locks: &mut KeyLocks,
) -> Result<()> {
    for family in spans.keys() {
        engine.families.by_id(*family).ok_or_else(|| Error::unknown_family("(dropped)"))?;
    }
    // Joined ranges cannot be taken apart, so who had some before gives none back.
    let had_ranges = locks.has_ranges();
    debug_assert!(!spans.is_empty(), "a commit that writes nothing asks for no lock");
    // Who waits for the ranges meanwhile still gets them in time.
    let patience_max = PATIENCE_MIN.max(engine.options.lock_timeout / 2);
    let mut patience = PATIENCE_MIN;
    let is_more_time = |why: &Error, until_ns| {
        until_ns < deadline_ns && matches!(why.kind(), ErrorKind::LockTimeout { .. })
    };
    // The owner of such a key may want another one in the ranges, which then would be a deadlock.
    let left_ns = deadline_ns.saturating_sub(engine.locks.deadline_ns(Duration::ZERO));
    let left = Duration::from_nanos(left_ns).min(engine.options.lock_timeout);
    let mut first = left / FIRST_SHARE;
    loop {
        let until_ns = engine.locks.deadline_ns(patience.max(first)).min(deadline_ns);
        first = Duration::ZERO;
        match await_keys(engine, spans, AWAITED_MAX, until_ns, locks) {
            Err(why) if !is_more_time(&why, until_ns) => return Err(why),
            _ => {}
        }
        for (family, spans) in spans {
            let mut spans = spans.all();
            spans.try_for_each(|(span, _)| {
                locks.ask_among_ranges(engine, (*family, &span), deadline_ns)
            })?;
        }
        let until_ns = match had_ranges {
            true => deadline_ns,
            false => engine.locks.deadline_ns(patience).min(deadline_ns),
        };
        match await_keys(engine, spans, usize::MAX, until_ns, locks) {
            Ok(()) => return locks.settle_ranges(engine),
            Err(why) if !is_more_time(&why, until_ns) => return Err(why),
            Err(_) => {}
        }
        debug_assert!(!had_ranges, "a range is given back on which the commit relies");
        locks.release_ranges(engine);
        patience = (patience * 2).min(patience_max);
    }
}

/// Waits until no other holds a key in the ranges, or so many waits are over.
fn await_keys(
    engine: &Engine,
    spans: &Spans,
    waits_max: usize,
    until_ns: u64,
    locks: &mut KeyLocks,
) -> Result<()> {
    for _ in 0..waits_max {
        let owner = locks.known(engine);
        let Some((family, key)) = engine.locks.key_in_any(spans, Some(owner)) else {
            return Ok(());
        };
        locks.wait_for(engine, Held::Key(family, key), until_ns)?;
    }
    Ok(())
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
        lock_all(engine, ops, u64::MAX, &mut locks).unwrap();
        let key = |key: &'static str| (DEFAULT_FAMILY, key.as_bytes());
        let is_held = |name| engine.locks.is_held_against(None, key(name), LockMode::Shared);
        let is_in_range = |name| engine.locks.is_in_range_against(None, key(name));
        assert_eq!(["a", "b", "c", "p"].map(is_held), [false; 4], "keys are ranges of their own");
        assert_eq!(["a", "b", "b1", "c"].map(is_in_range), [true, true, false, false]);
        assert_eq!(["o", "p", "s", "t", "z"].map(is_in_range), [false, true, true, true, false]);
        locks.end(engine);
        assert!(engine.locks.is_free());
    }

    /// One wants keys in the range that the others lock, writes or transactions.
    #[test]
    fn writes_of_keys_and_those_who_lock_ranges_around_them_lock_all_without_a_deadlock() {
        let db = Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        let op = |kind, key, value| Op { kind, family: DEFAULT_FAMILY, key, value };
        let range = record_of(vec![op(OpKind::DeleteRange, b"m", &b"z"[..])]);
        let keys = ["p", "q"].map(|key| op(OpKind::Put, key.as_bytes(), b"value"));
        let keys = record_of(keys.to_vec());
        let lock_once = |record: &[u8]| {
            let (mut locks, mut asker) = (KeyLocks::of_write(engine), Asker::new(false));
            asker.rounds = ROUNDS_MAX;
            let mut told = Ok(());
            while told.is_ok() && !asker.has_all() {
                let held = Held::Key(DEFAULT_FAMILY, b"p"[..].into());
                told = asker.give_way(engine, record, held, &mut locks);
                std::thread::sleep(Duration::from_micros(200));
            }
            locks.end(engine);
            told
        };
        let lock_range = || {
            let tx = db.begin();
            let told = tx.lock_range("m".."z", LockMode::Exclusive);
            std::thread::sleep(Duration::from_micros(200));
            told
        };
        for are_writes in [true, false] {
            let is_over = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                let rangers = [(); 3].map(|()| {
                    scope.spawn(|| {
                        let mut told = Ok(());
                        while told.is_ok() && !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                            told = if are_writes { lock_once(&range) } else { lock_range() };
                        }
                        told
                    })
                });
                let told: Result<Vec<()>> = (0..100).map(|_| lock_once(&keys)).collect();
                is_over.store(true, std::sync::atomic::Ordering::Relaxed);
                let rangers = rangers.map(|ranger| ranger.join().unwrap());
                assert!(told.is_ok() && rangers.iter().all(Result::is_ok), "{told:?} {rangers:?}");
            });
            assert!(engine.locks.is_free());
        }
        assert_eq!(engine.locks.counts().deadlocks.load(Ordering::Relaxed), 0);
    }

    /// Other writers in the range of very many keys go on while one of the keys is locked.
    #[test]
    fn a_commit_of_very_many_keys_holds_no_others_up_while_it_waits_for_a_key() {
        const LONG: Duration = Duration::from_secs(30);
        let mut options = Options::in_memory().lock_timeout(LONG / 300);
        options.sizes.slots_written_max = 2;
        let db = options.open("/db").unwrap();
        let engine = db.engine();
        let put = |key| Op { kind: OpKind::Put, family: DEFAULT_FAMILY, key, value: &b"value"[..] };
        let record = record_of(["a", "m", "z"].map(|key| put(key.as_bytes())).to_vec());
        let holder = Owner::transaction(engine.locks.next_id());
        holder.leave_thread();
        for nth in 0..8 {
            let key = (DEFAULT_FAMILY, format!("m{nth}"));
            let locked =
                engine.locks.take(&holder, (key.0, key.1.as_bytes()), LockMode::Exclusive, 0);
            locked.unwrap();
        }
        std::thread::scope(|scope| {
            let long = scope.spawn(|| {
                let isolation = crate::options::Isolation::ReadCommitted;
                let mut locks = KeyLocks::of_transaction(isolation, LONG);
                let mut asker = Asker::new(false);
                asker.rounds = ROUNDS_MAX;
                let held = Held::Key(DEFAULT_FAMILY, b"m"[..].into());
                let told = asker.give_way(engine, &record, held, &mut locks);
                locks.end(engine);
                told
            });
            let mut spans: BTreeMap<FamilyId, OwnRanges> = BTreeMap::new();
            let around = Span::of_delete(b"a", b"z");
            spans.entry(DEFAULT_FAMILY).or_default().add(&around, LockMode::Exclusive);
            // In the order in which they are found. It waits for a few before it locks.
            while let Some((family, key)) = engine.locks.key_in_any(&spans, None) {
                while engine.locks.sleepers() == 0 {
                    std::thread::yield_now();
                }
                for _ in 0..3 {
                    std::thread::sleep(Duration::from_millis(5));
                    db.put("c", "value").unwrap();
                }
                engine.locks.release(&holder, (family, &key));
            }
            long.join().unwrap().unwrap();
        });
        assert!(engine.locks.is_free());
    }

    /// A commit that locked the ranges while it holds a key in them would be a deadlock.
    #[test]
    fn who_holds_a_key_for_long_and_then_wants_another_does_not_die_of_a_range_around_both() {
        let db = Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        let range =
            Op { kind: OpKind::DeleteRange, family: DEFAULT_FAMILY, key: b"a", value: b"z" };
        let record = record_of(vec![range]);
        let tx = db.begin();
        tx.get_for_update("m").unwrap();
        std::thread::scope(|scope| {
            let long = scope.spawn(|| {
                let (mut locks, mut asker) = (KeyLocks::of_write(engine), Asker::new(false));
                asker.rounds = ROUNDS_MAX;
                let held = Held::Key(DEFAULT_FAMILY, b"m"[..].into());
                let told = asker.give_way(engine, &record, held, &mut locks);
                locks.end(engine);
                told
            });
            std::thread::sleep(PATIENCE_MIN * 26);
            tx.get_for_update("n").unwrap();
            tx.commit().unwrap();
            long.join().unwrap().unwrap();
        });
        assert!(engine.locks.is_free());
    }

    /// The key is never free of others that came before, and each wait for it lasts 400 ms.
    #[test]
    fn a_commit_locks_its_ranges_in_time_though_a_key_in_them_goes_from_hand_to_hand() {
        let patience = Duration::from_millis(1200);
        let db = Options::in_memory().lock_timeout(patience).open("/db").unwrap();
        let engine = db.engine();
        let range =
            Op { kind: OpKind::DeleteRange, family: DEFAULT_FAMILY, key: b"a", value: b"z" };
        let record = record_of(vec![range]);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                        let tx = db
                            .with(crate::TransactionOptions::new().lock_timeout(patience * 9))
                            .begin();
                        tx.get_for_update("m").unwrap();
                        std::thread::sleep(Duration::from_millis(100));
                    }
                });
            }
            while engine.locks.sleepers() < 3 {
                std::thread::yield_now();
            }
            let (mut locks, mut asker) = (KeyLocks::of_write(engine), Asker::new(false));
            asker.rounds = ROUNDS_MAX;
            let held = Held::Key(DEFAULT_FAMILY, b"m"[..].into());
            let told = asker.give_way(engine, &record, held, &mut locks);
            locks.end(engine);
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(told.is_ok() && asker.has_all(), "{told:?}");
        });
        assert!(engine.locks.is_free());
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
