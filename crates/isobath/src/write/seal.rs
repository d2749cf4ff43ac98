//! Seals the open epoch: when its memory or its log bytes reach the budget, or on request.
//!
//! On disk: a marker record in the log, nothing else. Recovery skips markers and divides the log by
//! its own budget, so a crash before or after the marker leads to the same result.

use crate::engine::{Engine, Epoch, MAX_SEALED, SealRight, Ticket};
use crate::env::{Point, Reach, demand_normal_priority, reached, yield_point};
use crate::error::{Error, Result, StallCause};
use crate::flush;
use crate::format::{Payload, put_payload};
use crate::memtable::{Arena, Promise};
use crate::wal::{self, RECORD_HEADER_LEN};
use std::sync::Arc;

/// True if the open epoch has used up its share of memory or of the log, or holds many streams.
#[inline]
pub(crate) fn is_full(engine: &Engine) -> bool {
    let list = engine.epochs.list();
    let budget = engine.options.buffer_len();
    list.open.bytes() >= budget
        || engine.log.tail().saturating_sub(list.open.start) >= 2 * budget
        || list.open.is_full_of_streams(budget)
}

/// Seals the open epoch if it is full, waiting while too many sealed ones await their flush.
#[cold]
pub(crate) fn make_room(engine: &Arc<Engine>, fail_fast: bool) -> Result<()> {
    let mut right = engine.epochs.lock();
    let (mut waiting_since, mut doubts, mut again) = (None, Doubts::new(engine), Again::default());
    let result = loop {
        if let Err(error) = engine.check_writable() {
            break Err(error);
        }
        if !is_full(engine) {
            break Ok(());
        }
        if engine.heavy_epochs() < MAX_SEALED {
            let is_flushed = engine.epochs.is_flushed();
            match engine.epochs.next_arena(&mut right) {
                Ok(arena) => break seal(engine, right, arena).map(|_| ()),
                Err(full) if doubts.are_over(is_flushed, fail_fast) => break Err(full),
                Err(_) => {} // The memory of an epoch that is being flushed comes free.
            }
        }
        if let Err(error) = again.check(engine, fail_fast) {
            break Err(error);
        }
        if fail_fast {
            break Err(Error::would_stall(StallCause::MemoryFull));
        }
        reached(Reach::StallMemory);
        waiting_since.get_or_insert_with(|| engine.pacer.now_ns());
        engine.epochs.wait_for_room(&mut right);
    };
    count_stall(engine, waiting_since);
    result
}

fn count_stall(engine: &Engine, since: Option<u64>) {
    if let Some(since) = since {
        engine.pacer.count(StallCause::MemoryFull, engine.pacer.now_ns() - since);
    }
}

/// Failed flushes that a write meets while it waits for room.
#[derive(Default)]
struct Again {
    is_retried: bool,
}

impl Again {
    /// Fails if flushes fail. The cause of the failure may be over. So it tries the flush once more
    /// before an error goes to a caller that can wait, unless it was tried just now.
    fn check(&mut self, engine: &Arc<Engine>, fail_fast: bool) -> Result<()> {
        let Err(error) = engine.epochs.check_flushes() else { return Ok(()) };
        if self.is_retried || !engine.epochs.is_retry_due(engine.pacer.now_ns()) {
            return Err(error);
        }
        self.is_retried = true;
        flush::retry(engine);
        if fail_fast { Err(error) } else { Ok(()) }
    }
}

/// For how long a refusal is doubted when all is flushed, in nanoseconds.
const DOUBTED_NS: u64 = 500_000_000;

/// Refusals of memory after all was flushed. What the last flush read, and what commits under way
/// have spoken for, may come free a moment later. A commit may wait for a key whose holder waits
/// here, so it is not waited for without an end.
struct Doubts<'a> {
    engine: &'a Engine,
    since_ns: Option<u64>,
}

impl Doubts<'_> {
    fn new(engine: &Engine) -> Doubts<'_> {
        Doubts { engine, since_ns: None }
    }

    /// Notes a refusal. `is_flushed` was true before that if no flush was under way. True if there
    /// is nothing to wait for.
    fn are_over(&mut self, is_flushed: bool, fail_fast: bool) -> bool {
        if !is_flushed {
            self.since_ns = None;
            return false;
        }
        let now_ns = self.engine.pacer.now_ns();
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        fail_fast || now_ns.saturating_sub(since_ns) >= DOUBTED_NS
    }
}

/// When a commit that waits in turn is refused.
struct Turn<'a> {
    doubts: Doubts<'a>,
    /// For how many the queue had spoken when the doubts began.
    spoken: u64,
    /// Since when it is the first that waits.
    first_since_ns: Option<u64>,
}

impl Turn<'_> {
    fn new<'a>(engine: &'a Engine, right: &SealRight<'_>) -> Turn<'a> {
        Turn { doubts: Doubts::new(engine), spoken: right.spoken(), first_since_ns: None }
    }

    /// Notes that the memory did not suffice for the first that waits. True if `ticket` is that,
    /// and has nothing to wait for. All who wait count the time, so that their waits do not add up.
    fn is_over(
        &mut self,
        right: &mut SealRight<'_>,
        ticket: Ticket,
        (is_flushed, fail_fast): (bool, bool),
    ) -> bool {
        let engine = self.doubts.engine;
        if right.spoken() != self.spoken {
            (self.doubts, self.spoken) = (Doubts::new(engine), right.spoken());
        }
        let is_over = self.doubts.are_over(is_flushed, fail_fast);
        if !right.is_first(ticket) {
            return false;
        }
        let now_ns = engine.pacer.now_ns();
        let since_ns = *self.first_since_ns.get_or_insert(now_ns);
        // Others may seal many times within a millisecond.
        is_over || right.is_passed_over(ticket) && now_ns.saturating_sub(since_ns) >= DOUBTED_NS
    }
}

/// A place in the queue of those who wait for memory. It is left also if the thread panics.
struct Place<'a> {
    engine: &'a Engine,
    ticket: Ticket,
    is_left: bool,
}

impl<'a> Place<'a> {
    fn enter(engine: &'a Engine, right: &mut SealRight<'_>, bytes: u64) -> Place<'a> {
        Place { engine, ticket: engine.epochs.enter(right, bytes), is_left: false }
    }

    fn leave(&mut self, right: &mut SealRight<'_>) {
        self.is_left = true;
        self.engine.epochs.leave(right, self.ticket);
    }
}

impl Drop for Place<'_> {
    /// Not while the thread has the seal lock.
    fn drop(&mut self) {
        if !self.is_left {
            self.leave(&mut self.engine.epochs.lock());
        }
        // Those who were to come behind may go on.
        self.engine.epochs.wake_all();
    }
}

/// Speaks for the memory of a commit that may take much, waiting for flushes to give some back.
#[cold]
pub(crate) fn promise(
    engine: &Arc<Engine>,
    fail_fast: bool,
    bytes: u64,
) -> Result<Option<Promise>> {
    // What never fits is refused, and holds no one up.
    if bytes <= engine.ceiling.commit_max && engine.epochs.are_promises_awaited() {
        return wait_for_promise(engine, fail_fast, bytes);
    }
    match engine.epochs.pool().promise(bytes) {
        Err(full) if full.is_retryable() => wait_for_promise(engine, fail_fast, bytes),
        other => other,
    }
}

/// Waits in turn. It asks under the seal lock before each seal, so that no other takes what a flush
/// gives back unseen. If the open epoch is full it is sealed here: those that wait may be all who
/// write.
fn wait_for_promise(engine: &Arc<Engine>, fail_fast: bool, bytes: u64) -> Result<Option<Promise>> {
    let mut entering = engine.epochs.lock();
    let mut place = Place::enter(engine, &mut entering, bytes);
    // Declared after the place, so that a panic gives the lock back before it leaves the place.
    let mut right = entering;
    let (ticket, mut turn) = (place.ticket, Turn::new(engine, &right));
    let (mut waiting_since, mut again) = (None, Again::default());
    let result = loop {
        let is_flushed = engine.epochs.is_flushed();
        let served = engine.epochs.serve(&mut right);
        if let Some(promise) = right.take(ticket) {
            break Ok(Some(promise));
        }
        // The refusal is that of the first who waits.
        if let Err(full) = served
            && turn.is_over(&mut right, ticket, (is_flushed, fail_fast))
        {
            break Err(full);
        }
        if let Err(error) = engine.check_writable() {
            break Err(error);
        }
        if let Err(error) = again.check(engine, fail_fast) {
            break Err(error);
        }
        if is_full(engine)
            && engine.heavy_epochs() < MAX_SEALED
            && let Ok(arena) = engine.epochs.next_arena(&mut right)
        {
            let sealed = seal(engine, right, arena);
            right = engine.epochs.lock();
            match sealed {
                Ok(_) => continue,
                Err(error) => break Err(error),
            }
        }
        // Who asked for the next epoch has spoken for this commit, perhaps.
        if let Some(promise) = right.take(ticket) {
            break Ok(Some(promise));
        }
        if fail_fast {
            break Err(Error::would_stall(StallCause::MemoryFull));
        }
        waiting_since.get_or_insert_with(|| engine.pacer.now_ns());
        engine.epochs.wait_for_room(&mut right);
    };
    place.leave(&mut right);
    drop(right);
    drop(place);
    count_stall(engine, waiting_since);
    result
}

/// True if the log holds something of the open epoch.
pub(crate) fn is_anything_unsealed(engine: &Engine) -> bool {
    let list = engine.epochs.list();
    !list.open.is_empty() || engine.log.tail() != list.open.start
}

/// True if the log holds more of the open epoch than ticks.
pub(crate) fn is_anything_written(engine: &Engine) -> bool {
    let (is_empty, start) = {
        let list = engine.epochs.list();
        (list.open.is_empty(), list.open.start)
    };
    !is_empty || engine.log.tail() > start + engine.ticks.logged_from(start)
}

/// True if the open epoch has to be let go although it takes little memory: so much of it is in the
/// log, ticks for one, or it holds many streams.
pub(crate) fn is_long(engine: &Engine) -> bool {
    let (list, budget) = (engine.epochs.list(), engine.options.buffer_len());
    engine.log.tail().saturating_sub(list.open.start) > 2 * budget
        || list.open.is_full_of_streams(budget)
}

/// Seals the open epoch if anything was written in it. Unlike [`seal_epoch`] it never waits
/// for a flush: while too many sealed epochs await theirs, it does nothing.
pub(crate) fn seal_if_room(engine: &Arc<Engine>) -> Result<()> {
    let mut right = engine.epochs.lock();
    engine.log.check_healthy()?;
    if is_anything_unsealed(engine)
        && engine.may_seal_early()
        && let Ok(arena) = engine.epochs.next_arena(&mut right)
    {
        seal(engine, right, arena)?;
    }
    Ok(())
}

/// Seals the open epoch if anything was written in it.
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) fn seal_if_written(engine: &Arc<Engine>) -> Result<Option<Arc<Epoch>>> {
    let open = engine.epochs.list().open.id;
    seal_epoch(engine, open)
}

/// Seals the epoch with this id if it is still the open one, and anything was written in it. Who
/// waits for room to seal it must not insist once another has sealed it: beside many writers there
/// would never be room.
pub(super) fn seal_epoch(engine: &Arc<Engine>, id: u64) -> Result<Option<Arc<Epoch>>> {
    let (mut right, mut failures) = (engine.epochs.lock(), Failures::default());
    let mut doubts = Doubts::new(engine);
    loop {
        engine.log.check_healthy()?;
        if engine.epochs.list().open.id > id || !is_anything_unsealed(engine) {
            return Ok(None);
        }
        if engine.may_seal_early() {
            let is_flushed = engine.epochs.is_flushed();
            match engine.epochs.next_arena(&mut right) {
                Ok(arena) => return seal(engine, right, arena).map(Some),
                // No write comes any more, so the next epoch needs no memory.
                Err(_) if engine.check_open().is_err() => {
                    let arena = engine.epochs.last_arena();
                    return seal(engine, right, arena).map(Some);
                }
                Err(full) if doubts.are_over(is_flushed, false) => return Err(full),
                Err(_) => {}
            }
        }
        failures.check(engine)?;
        engine.epochs.wait_for_room(&mut right);
    }
}

/// Failed flushes that one request for a flush meets.
#[derive(Default)]
struct Failures {
    is_retried: bool,
}

impl Failures {
    /// Fails if flushes fail. It retries the first failure: that flush may have begun before this
    /// call, and its cause may be over by now.
    fn check(&mut self, engine: &Arc<Engine>) -> Result<()> {
        let Err(error) = engine.epochs.check_flushes() else { return Ok(()) };
        if self.is_retried {
            return Err(error);
        }
        self.is_retried = true;
        flush::retry(engine);
        Ok(())
    }
}

/// Seals an epoch in which something was reserved, and submits its flush. The reservation left room
/// in the log for the marker, so the marker does not wait for room. It must not: this thread holds
/// the seal lock, so writers that must not wait would wait for the room, too. Later commits become
/// visible only once this thread has published the marker.
fn seal(engine: &Arc<Engine>, right: SealRight<'_>, arena: Arc<Arena>) -> Result<Arc<Epoch>> {
    demand_normal_priority("seals an epoch");
    let mut marker = vec![0; RECORD_HEADER_LEN];
    put_payload(&mut marker, &Payload::EpochMarker);
    let mut marker = wal::seal(&mut marker);
    yield_point(Point::Sealing);
    let reserve = || engine.log.reserve_internal(marker.len() as u64);
    debug_assert!(
        engine.heavy_epochs() < MAX_SEALED,
        "an epoch is sealed beyond the memory for writes"
    );
    let (sealed, mut reservation) = engine.epochs.seal_into(&right, arena, reserve)?;
    debug_assert_eq!(sealed.end(), reservation.end(), "its marker is the last of an epoch");
    // Release the seal lock before publishing: publishing may wait for commits far behind, and
    // those may need the lock to learn their epoch.
    drop(right);
    yield_point(Point::Sealed);
    reservation.write(&mut marker);
    reservation.publish();
    // The epoch may turn out to take little memory, and then another one may be sealed.
    engine.epochs.wake_all();
    engine.pacer.set_flush(|| engine.epochs.list().sealed.len() > 1, None);
    flush::submit(engine);
    Ok(sealed)
}

/// Flushes everything written so far. Waits until it is in tables, and until other flushes that
/// contain part of it have ended.
pub(crate) fn flush_now(engine: &Arc<Engine>) -> Result<()> {
    if engine.epochs.check_flushes().is_err() {
        engine.remove_obsolete_files();
    }
    flush::retry(engine);
    // What is visible by now is in this epoch or an earlier one.
    let open = engine.epochs.list().open.id;
    flush_up_to(engine, open)
}

/// Flushes the epoch with this id, if anything was written in it, and all before it.
pub(super) fn flush_up_to(engine: &Arc<Engine>, id: u64) -> Result<()> {
    seal_epoch(engine, id)?;
    let is_sealed = engine.epochs.list().open.id > id;
    let last = if is_sealed { id } else { id - 1 };
    let (mut right, mut failures) = (engine.epochs.lock(), Failures::default());
    while engine.epochs.flushed() < last {
        engine.log.check_healthy()?;
        failures.check(engine)?;
        engine.epochs.wait_for_room(&mut right);
    }
    Ok(())
}

/// The same for a caller who asks for nothing else, so that no writer waits for this thread. What
/// large commits have left takes room until it is removed.
pub(crate) fn flush_on_request(engine: &Arc<Engine>) -> Result<()> {
    flush_now(engine)?;
    engine.spills.remove_obsolete();
    Ok(())
}
