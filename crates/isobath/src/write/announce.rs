//! How a commit makes itself known in the table of conflicts.
//!
//! A commit announces itself on the word of each slot that it writes to before it reserves its LSN,
//! and stamps these words once it has the LSN and cannot fail any more. Plain writers do so only
//! while the gate is not closed. An announcement that is not stamped is withdrawn when it is
//! dropped, whatever the reason for which the commit failed.

use crate::conflict::{Full, Gate, Look, Slot, Stamps};
use crate::engine::{Engine, Keyspace};
use crate::env::sync::atomic::{Ordering, fence};
use crate::env::{Plant, Point, planted, yield_point};
use crate::error::Result;
use crate::format::Lsn;
use crate::lock::{Locks, Owner};
use crate::write::ask::{Asker, Held, held_key};
use crate::write::key_locks::KeyLocks;
use std::sync::Arc;
use std::time::Duration;

/// The first and the longest pause of a wait that no other thread ends.
const PAUSE_MIN: Duration = Duration::from_micros(20);
const PAUSE_MAX: Duration = Duration::from_millis(5);

/// Pauses that become longer and longer, for waits until other commits withdraw or stamp their
/// announcements. Those may be waiting for room in the log, and wake only threads that wait for
/// their LSN.
pub(super) struct Pauses(Duration);

impl Pauses {
    pub(super) fn new() -> Pauses {
        Pauses(PAUSE_MIN)
    }

    #[cold]
    pub(super) fn pause(&mut self, engine: &Engine) {
        engine.options.env.threads.sleep(self.0);
        self.0 = (self.0 * 2).min(PAUSE_MAX);
    }
}

/// The wait of a commit that finds a word full.
fn wait_when_full(engine: &Engine) -> impl FnMut() -> Result<()> {
    let mut pauses = Pauses::new();
    move || {
        engine.log.check_healthy()?;
        engine.log.wait_predecessors(engine.log.tail())?;
        // Commits that have announced themselves may not have reserved an LSN yet.
        pauses.pause(engine);
        Ok(())
    }
}

/// What a commit does around its reservation, besides writing. The calls come in the order of the
/// methods; the first two repeat until `settle` returns true.
pub(crate) trait Course {
    /// Comes before a reservation for the encoded record. May wait and fail.
    fn prepare(&mut self, record: &[u8]) -> Result<()>;

    /// The commit has its LSN, and nothing is written yet. Waits for its predecessors at most.
    /// False: the LSN is given up, and the commit starts over.
    fn settle(&mut self, lsn: Lsn) -> Result<bool>;

    /// The commit is visible.
    fn finish(&mut self, lsn: Lsn);

    /// True if others may wait for locks that are held before the commit begins. Then it is paced
    /// once it has given them back: otherwise they would wait for the pace of one after the other.
    #[inline(always)]
    fn holds_locks(&self) -> bool {
        false
    }
}

/// The words that a commit changes.
pub(crate) enum Targets {
    One(Slot),
    /// Ascending, each once.
    Many(Vec<Slot>),
    /// The words of whole families, for a commit of very many keys.
    Families(Vec<Arc<Keyspace>>),
}

impl Targets {
    /// The slots, each once.
    pub(crate) fn of_slots(mut slots: Vec<Slot>) -> Targets {
        slots.sort_unstable();
        slots.dedup();
        Targets::Many(slots)
    }

    fn slots(&self) -> &[Slot] {
        match self {
            Targets::One(slot) => std::slice::from_ref(slot),
            Targets::Many(slots) => slots,
            Targets::Families(_) => &[],
        }
    }

    fn families(&self) -> &[Arc<Keyspace>] {
        match self {
            Targets::Families(families) => families,
            _ => &[],
        }
    }

    /// True if the commit changes this slot.
    pub(crate) fn has_slot(&self, slot: Slot) -> bool {
        debug_assert!(self.slots().is_sorted(), "slots are found by a binary search");
        self.slots().binary_search(&slot).is_ok()
    }

    /// True if the commit changes the word of this family.
    pub(crate) fn has_family(&self, family: &Keyspace) -> bool {
        self.families().iter().any(|other| other.id == family.id)
    }
}

/// The announcement of one commit.
pub(crate) struct Announcement<'a> {
    stamps: &'a Stamps,
    pub(crate) targets: Targets,
    is_made: bool,
    /// The number that changes with each lock that the commit may have overlooked, as it was when
    /// the commit looked for locks.
    ranges_seen: u64,
}

impl<'a> Announcement<'a> {
    /// Nothing is announced yet.
    pub(crate) fn new(stamps: &'a Stamps, targets: Targets) -> Announcement<'a> {
        Announcement { stamps, targets, is_made: false, ranges_seen: 0 }
    }

    /// Announces the commit on all its words. Where a word is full, it takes back what it has
    /// announced, and waits until everything that was reserved by now is visible. Where another
    /// has locked a key, it takes it back, too, waits for the lock and returns false: the
    /// commit begins again.
    pub(crate) fn make(
        &mut self,
        engine: &Engine,
        record: &[u8],
        asker: &mut Asker,
        locks: &mut KeyLocks,
    ) -> Result<bool> {
        asker.lock_if_overtaken(engine, record, locks)?;
        let (owner, wait) = (locks.owner().map(|owner| &**owner), wait_when_full(engine));
        let held = self.make_unless_held(&engine.locks, record, asker, owner, wait)?;
        if let Some(held) = held {
            asker.give_way(engine, record, held, locks)?;
            return Ok(false);
        }
        yield_point(Point::Announced);
        Ok(true)
    }

    /// Announces the commit. Where another has locked something of it, it takes the announcement
    /// back and tells what that is. Calls `wait` where a word is full, and tries again.
    pub(super) fn make_unless_held(
        &mut self,
        locks: &Locks,
        record: &[u8],
        asker: &Asker,
        owner: Option<&Owner>,
        wait: impl FnMut() -> Result<()>,
    ) -> Result<Option<Held>> {
        let is_any_locked = self.make_by(locks, wait)?;
        if (is_any_locked || locks.has_ranges())
            && !asker.has_all()
            && let Some(held) = held_key(self.stamps, locks, record, owner)
        {
            self.withdraw();
            return Ok(Some(held));
        }
        Ok(None)
    }

    /// Announces a commit that holds locks on all that it writes. True if a key of one of its words
    /// may be locked.
    pub(crate) fn make_unasked(&mut self, engine: &Engine) -> Result<bool> {
        self.make_by(&engine.locks, wait_when_full(engine))
    }

    fn make_by(&mut self, locks: &Locks, mut wait: impl FnMut() -> Result<()>) -> Result<bool> {
        self.ranges_seen = locks.ranges_version();
        loop {
            match self.try_make() {
                Ok(is_any_locked) => return Ok(is_any_locked),
                Err(Full) => wait()?,
            }
        }
    }

    /// Announces the commit on all its words, or on none. True if a key of one may be locked.
    fn try_make(&mut self) -> std::result::Result<bool, Full> {
        debug_assert!(!self.is_made, "a commit announces itself once");
        let mut is_any_locked = false;
        for (done, slot) in self.targets.slots().iter().enumerate() {
            match self.stamps.announce(*slot) {
                Ok(seen) => is_any_locked |= seen.locked,
                Err(full) => {
                    let made = &self.targets.slots()[..done];
                    made.iter().for_each(|slot| self.stamps.withdraw(*slot));
                    return Err(full);
                }
            }
        }
        for (done, family) in self.targets.families().iter().enumerate() {
            if let Err(full) = self.stamps.announce_word(&family.changed) {
                let made = &self.targets.families()[..done];
                made.iter().for_each(|family| self.stamps.withdraw_word(&family.changed));
                return Err(full);
            }
        }
        self.is_made = true;
        if !self.targets.families().is_empty() {
            // Slots are looked at after this; a locker sets the slot, then looks at the family.
            fence(Ordering::SeqCst);
            is_any_locked = true;
        }
        Ok(is_any_locked)
    }

    /// Takes the announcement back.
    pub(crate) fn withdraw(&mut self) {
        if std::mem::take(&mut self.is_made) {
            self.targets.slots().iter().for_each(|slot| self.stamps.withdraw(*slot));
            let families = self.targets.families();
            families.iter().for_each(|family| self.stamps.withdraw_word(&family.changed));
        }
    }

    /// True if a range was locked since the commit announced itself. The range may hold keys of the
    /// commit, so the commit, which has its LSN, must not go on. If the commit has locked all that
    /// it writes, the owner of such a range waits for it.
    pub(crate) fn is_overtaken(&self, locks: &Locks, asker: &Asker) -> bool {
        !asker.has_all() && locks.ranges_version() != self.ranges_seen
    }

    /// Stamps the words of a plain write, which has its LSN. False if it is overtaken: it has taken
    /// the announcement back, and must not go on.
    #[inline]
    pub(super) fn settle(&mut self, locks: &Locks, asker: &mut Asker, lsn: Lsn) -> bool {
        if self.is_overtaken(locks, asker) {
            self.withdraw();
            asker.note_overtaken();
            return false;
        }
        if !planted(Plant::StampedAfterPublish) {
            self.stamp(lsn);
        }
        true
    }

    /// Stamps all words with the commit's LSN. It cannot fail any more.
    pub(crate) fn stamp(&mut self, lsn: Lsn) {
        debug_assert!(self.is_made, "a commit stamps what it has announced, once");
        if std::mem::take(&mut self.is_made) {
            self.targets.slots().iter().for_each(|slot| self.stamps.stamp(*slot, lsn));
            let families = self.targets.families();
            families.iter().for_each(|family| self.stamps.stamp_word(&family.changed, lsn));
        }
        yield_point(Point::Stamped);
    }
}

impl Drop for Announcement<'_> {
    fn drop(&mut self) {
        if !planted(Plant::ReserveFailedStaysPending) {
            self.withdraw();
        }
    }
}

/// A plain write at the gate: what it has seen, and what it holds if the gate was not closed.
pub(super) struct AtGate<'a, A> {
    gate: &'a Gate,
    seen: Look,
    announced: Option<A>,
}

impl<'a, A> AtGate<'a, A> {
    #[inline(always)]
    pub(super) fn new(gate: &'a Gate) -> AtGate<'a, A> {
        AtGate { gate, seen: gate.look(), announced: None }
    }

    /// Comes before the reservation. Announces the write unless the gate was closed.
    #[inline(always)]
    pub(super) fn prepare(
        &mut self,
        announce: impl FnOnce(&mut Option<A>) -> Result<()>,
    ) -> Result<()> {
        if self.seen.is_closed() { Ok(()) } else { announce(&mut self.announced) }
    }

    /// Comes behind the reservation. Calls `settle` for a write that is announced; one that is not
    /// looks at the gate again. False: the write starts over.
    #[inline(always)]
    pub(super) fn settle(&mut self, settle: impl FnOnce(&mut A) -> bool) -> bool {
        if let Some(announced) = &mut self.announced {
            return settle(announced);
        }
        debug_assert!(self.seen.is_closed(), "a write saw an open gate and is not announced");
        let is_still = self.gate.is_still(self.seen);
        if !is_still {
            self.look_again();
        }
        is_still
    }

    #[cold]
    #[inline(never)]
    fn look_again(&mut self) {
        self.seen = self.gate.look();
    }
}

/// The course of a write without a transaction.
pub(crate) struct Plain<'a, T> {
    engine: &'a Engine,
    /// Says what the record changes. Called only while the gate is not closed.
    targets: T,
    /// The error if it would have to wait for a lock and must not.
    fail_fast: bool,
    at: AtGate<'a, Announced<'a>>,
}

/// What a plain write holds while the gate is not closed.
struct Announced<'a> {
    engine: &'a Engine,
    announcement: Announcement<'a>,
    asker: Asker,
    locks: KeyLocks,
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        self.locks.end(self.engine);
    }
}

impl<'a, T: Fn(&[u8]) -> Targets> Plain<'a, T> {
    #[inline(always)]
    pub(crate) fn new(engine: &'a Engine, fail_fast: bool, targets: T) -> Plain<'a, T> {
        Plain { engine, targets, fail_fast, at: AtGate::new(&engine.conflicts.gate) }
    }
}

impl<'a> Announced<'a> {
    #[cold]
    #[inline(never)]
    fn announce(
        announced: &mut Option<Announced<'a>>,
        engine: &'a Engine,
        targets: impl Fn(&[u8]) -> Targets,
        fail_fast: bool,
        record: &[u8],
    ) -> Result<()> {
        // One that starts over remembers how often and how long it has waited.
        let announced = announced.get_or_insert_with(|| Announced {
            engine,
            announcement: Announcement::new(&engine.conflicts.stamps, targets(record)),
            asker: Asker::new(fail_fast),
            locks: KeyLocks::of_write(engine),
        });
        let Announced { announcement, asker, locks, .. } = announced;
        while !announcement.make(engine, record, asker, locks)? {}
        Ok(())
    }
}

impl<T: Fn(&[u8]) -> Targets> Course for Plain<'_, T> {
    #[inline(always)]
    fn prepare(&mut self, record: &[u8]) -> Result<()> {
        let Plain { engine, targets, fail_fast, at } = self;
        at.prepare(|announced| {
            Announced::announce(announced, engine, &*targets, *fail_fast, record)
        })
    }

    #[inline(always)]
    fn settle(&mut self, lsn: Lsn) -> Result<bool> {
        let engine = self.engine;
        Ok(self.at.settle(|Announced { announcement, asker, locks, .. }| {
            let is_settled = announcement.settle(&engine.locks, asker, lsn);
            if is_settled {
                locks.release(engine);
            }
            is_settled
        }))
    }

    #[inline(always)]
    fn finish(&mut self, lsn: Lsn) {
        if let Some(announced) = &mut self.at.announced {
            if planted(Plant::StampedAfterPublish) {
                announced.announcement.stamp(lsn);
            }
            // Others need not wait for the sync.
            announced.locks.leave(self.engine);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Options;
    use crate::env::Env;
    use crate::error::{Error, PoisonCause};
    use crate::format::{
        DEFAULT_FAMILY, Op, OpKind, Payload, checksum64, put_batch_prefix, put_op, put_payload,
    };
    use crate::lock::{LockMode, Span};
    use crate::sizes::Sizes;
    use crate::vfs::MemoryFs;
    use crate::wal::RECORD_HEADER_LEN;

    /// A word counts few announcements: a commit that writes one key often must not fill it.
    #[test]
    fn a_commit_announces_itself_once_on_each_slot() {
        let stamps = Stamps::new(1 << 16, 1024, 4096);
        let slot = |key: &str| stamps.slot(0, checksum64(key.as_bytes()));
        let targets = Targets::of_slots(["b", "a", "b", "c", "a", "b"].map(slot).to_vec());
        let mut expected = ["a", "b", "c"].map(slot).to_vec();
        expected.sort_unstable();
        assert_eq!(targets.slots(), expected);
        assert!(targets.has_slot(slot("a")) && !targets.has_slot(slot("d")));
    }

    #[test]
    fn a_commit_counts_as_announced_in_the_families_of_its_range_deletes_alone() {
        let db = Options::in_memory().open("/db").unwrap();
        let family = |name: &str| {
            db.family(name).unwrap();
            db.engine().families.by_name(name).unwrap()
        };
        let (deleted, other) = (family("deleted"), family("other"));
        let targets = Targets::Families(vec![deleted.clone()]);
        assert!(targets.has_family(&deleted) && !targets.has_family(&other));
        assert!(!Targets::Many(Vec::new()).has_family(&deleted));
    }

    /// The gate is opened between the writer's first look and its LSN.
    #[test]
    fn a_writer_that_has_overlooked_an_open_gate_announces_itself_the_next_time() {
        let db = Options::in_memory().open("/db").unwrap();
        let engine = db.engine();
        let family = engine.default_family.clone();
        let mut plain = Plain::new(engine, false, |_| Targets::Families(vec![family.clone()]));
        plain.prepare(&[]).unwrap();
        assert!(plain.at.announced.is_none());
        let pass = engine.conflicts.gate.enter(|| Ok(engine.log.visible())).unwrap();
        let lsn = engine.log.tail();
        assert!(!plain.settle(lsn).unwrap());
        let mut record = vec![0; RECORD_HEADER_LEN];
        put_payload(&mut record, &Payload::EpochMarker);
        plain.prepare(&record).unwrap();
        assert!(plain.at.announced.as_ref().unwrap().announcement.is_made);
        assert!(plain.settle(lsn).unwrap());
        drop(pass);
    }

    #[test]
    fn who_finds_a_word_full_waits_for_others_and_hears_of_the_end_of_the_log() {
        let mut options = Options::in_memory();
        options.sizes = Sizes { pending_max: 1, ..Sizes::default() };
        let db = options.open("/db").unwrap();
        let engine = db.engine();
        // Beside a transaction writers announce themselves.
        let pass = engine.conflicts.gate.enter(|| Ok(engine.log.visible())).unwrap();
        let slot = engine.conflicts.stamps.slot(DEFAULT_FAMILY, checksum64(b"key"));
        for is_poisoned in [false, true] {
            let mut other = Announcement::new(&engine.conflicts.stamps, Targets::One(slot));
            other.make_unasked(engine).unwrap();
            std::thread::scope(|scope| {
                let put = scope.spawn(|| db.put("key", "value"));
                std::thread::sleep(Duration::from_millis(30));
                assert!(!put.is_finished(), "there is room for one");
                match is_poisoned {
                    false => other.withdraw(),
                    true => engine.log.poison(&Error::poisoned(PoisonCause::panicked("it", ""))),
                }
                assert_eq!(put.join().unwrap().is_err(), is_poisoned);
            });
        }
        drop(pass);
    }

    /// It could go on so for ever, and each time it gives up as much of the log.
    #[test]
    fn a_commit_that_is_overtaken_again_and_again_locks_what_it_writes() {
        let env = Env { fs: Arc::new(MemoryFs::new()), ..Env::system() };
        let db = Options::new().env(env).open("/db").unwrap();
        let engine = db.engine();
        let opens = db.begin();
        opens.get_for_update("another key").unwrap();
        let op = Op { kind: OpKind::Put, family: DEFAULT_FAMILY, key: b"key", value: b"value" };
        let mut record = vec![0; RECORD_HEADER_LEN];
        put_batch_prefix(&mut record, 1);
        put_op(&mut record, &op);
        let family = engine.default_family.clone();
        for fail_fast in [false, true] {
            let mut plain =
                Plain::new(engine, fail_fast, |_| Targets::Families(vec![family.clone()]));
            let mut times = 0;
            let told = loop {
                if let Err(error) = plain.prepare(&record) {
                    break Err(error.name());
                }
                engine.locks.overtake();
                let reserved = engine.log.reserve(64).unwrap();
                if plain.settle(reserved.start()).unwrap() {
                    let is_locked = plain.at.announced.as_ref().unwrap().asker.has_all();
                    plain.finish(reserved.start());
                    break Ok(is_locked);
                }
                times += 1;
                assert!(times < 10, "it starts over without end");
            };
            assert_eq!(told, if fail_fast { Err("WOULD_STALL") } else { Ok(true) });
        }
    }

    #[test]
    fn a_commit_is_overtaken_by_each_range_that_is_locked_since() {
        let env = Env { fs: Arc::new(MemoryFs::new()), ..Env::system() };
        let db = Options::new().env(env).open("/db").unwrap();
        let engine = db.engine();
        let targets = Targets::Many(Vec::new());
        let mut announcement = Announcement::new(&engine.conflicts.stamps, targets);
        let owner = Owner::transaction(engine.locks.next_id());
        let asker = Asker::new(false);
        for key in [&b"a"[..], b"b"] {
            announcement.ranges_seen = engine.locks.ranges_version();
            assert!(!announcement.is_overtaken(&engine.locks, &asker));
            let span = (DEFAULT_FAMILY, &Span::of_key(key));
            engine.locks.take_range(&owner, span, LockMode::Exclusive, 0).unwrap();
            assert!(announcement.is_overtaken(&engine.locks, &asker));
        }
        engine.locks.release_ranges(&owner);
    }
}
