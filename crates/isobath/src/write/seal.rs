//! Sealing the open epoch: when its memory or its log bytes reach the budget, or when asked to.
//!
//! On disk: a marker record in the log, nothing else. A crash before the marker is in the log
//! leaves the epoch open for recovery, one after it changes nothing that recovery does: it replays
//! by its own budget.

use crate::engine::{Engine, Epoch, MAX_SEALED};
use crate::env::sync::MutexGuard;
use crate::env::{Point, Reach, demand_normal_priority, reached, yield_point};
use crate::error::{Error, Result, StallCause};
use crate::flush;
use crate::format::{Payload, put_payload};
use crate::wal::{self, RECORD_HEADER_LEN};
use std::sync::Arc;

/// True if the open epoch has used up its share of memory or of the log.
#[inline]
pub(crate) fn is_full(engine: &Engine) -> bool {
    let list = engine.epochs.list();
    let budget = engine.options.write_buffer;
    list.open.bytes() >= budget || engine.log.tail().saturating_sub(list.open.start) >= 2 * budget
}

/// Seals the open epoch if it is full, waiting while too many sealed ones await their flush.
#[cold]
pub(crate) fn make_room(engine: &Arc<Engine>, fail_fast: bool) -> Result<()> {
    let mut right = engine.epochs.lock();
    let (mut waiting_since, mut is_retried) = (None, false);
    let result = loop {
        if let Err(error) = engine.check_writable() {
            break Err(error);
        }
        if !is_full(engine) {
            break Ok(());
        }
        if engine.epochs.list().sealed.len() < MAX_SEALED {
            break seal(engine, right).map(|_| ());
        }
        if let Err(error) = engine.epochs.check_flushes() {
            // What made that flush fail may be over: it is tried once more before a caller that can
            // wait is told, unless it was tried just now.
            if is_retried || !engine.epochs.is_retry_due(engine.pacer.now_ns()) {
                break Err(error);
            }
            is_retried = true;
            flush::retry(engine);
            if fail_fast {
                break Err(error);
            }
        }
        if fail_fast {
            break Err(Error::would_stall(StallCause::MemoryFull));
        }
        reached(Reach::StallMemory);
        waiting_since.get_or_insert_with(|| engine.pacer.now_ns());
        engine.epochs.wait_for_room(&mut right);
    };
    if let Some(since) = waiting_since {
        engine.pacer.count(StallCause::MemoryFull, engine.pacer.now_ns() - since);
    }
    result
}

/// True if the log holds something of the open epoch.
pub(crate) fn is_anything_unsealed(engine: &Engine) -> bool {
    let list = engine.epochs.list();
    !list.open.is_empty() || engine.log.tail() != list.open.start
}

/// Seals the open epoch if anything was written in it and, unlike [`seal_if_written`], waits for no
/// flush: not while too many sealed epochs await theirs.
pub(crate) fn seal_if_room(engine: &Arc<Engine>) -> Result<()> {
    let right = engine.epochs.lock();
    engine.log.check_healthy()?;
    if is_anything_unsealed(engine) && engine.epochs.list().sealed.len() < MAX_SEALED {
        seal(engine, right)?;
    }
    Ok(())
}

/// Seals the open epoch if anything was written in it.
pub(crate) fn seal_if_written(engine: &Arc<Engine>) -> Result<Option<Arc<Epoch>>> {
    let (mut right, mut failures) = (engine.epochs.lock(), Failures::default());
    loop {
        engine.log.check_healthy()?;
        if !is_anything_unsealed(engine) {
            return Ok(None);
        }
        if engine.epochs.list().sealed.len() < MAX_SEALED {
            return seal(engine, right).map(Some);
        }
        failures.check(engine)?;
        engine.epochs.wait_for_room(&mut right);
    }
}

/// Failed flushes, as one call meets them that asks for a flush.
#[derive(Default)]
struct Failures {
    is_retried: bool,
}

impl Failures {
    /// Fails if flushes fail. The first failure is tried again: that flush may have begun before
    /// this call, and what made it fail may have been over by then.
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

/// Seals an epoch in which something was reserved, and has it flushed. That record left room in the
/// log for the marker, so this waits for none: with the right held, writers that must not wait
/// would wait for it, too. Later commits become visible once the marker is published, so they wait
/// for this thread.
fn seal(engine: &Arc<Engine>, right: MutexGuard<'_, ()>) -> Result<Arc<Epoch>> {
    demand_normal_priority("seals an epoch");
    let mut marker = vec![0; RECORD_HEADER_LEN];
    put_payload(&mut marker, &Payload::EpochMarker);
    let mut marker = wal::seal(&mut marker);
    yield_point(Point::Sealing);
    let reserve = || engine.log.reserve_internal(marker.len() as u64);
    let (sealed, mut reservation) = engine.epochs.seal(&right, reserve)?;
    // Publishing waits for commits that are far behind, and those may wait for the right to learn
    // their epoch.
    drop(right);
    yield_point(Point::Sealed);
    reservation.write(&mut marker);
    reservation.publish();
    engine.pacer.set_flush(|| engine.epochs.list().sealed.len() > 1, None);
    flush::submit(engine);
    Ok(sealed)
}

/// Flushes everything written so far and waits until it is in tables, and until flushes of others
/// that hold some of it are over.
pub(crate) fn flush_now(engine: &Arc<Engine>) -> Result<()> {
    flush::retry(engine);
    let last = match seal_if_written(engine)? {
        Some(epoch) => epoch.id,
        None => engine.epochs.list().open.id - 1,
    };
    let (mut right, mut failures) = (engine.epochs.lock(), Failures::default());
    while engine.epochs.flushed() < last {
        engine.log.check_healthy()?;
        failures.check(engine)?;
        engine.epochs.wait_for_room(&mut right);
    }
    Ok(())
}
