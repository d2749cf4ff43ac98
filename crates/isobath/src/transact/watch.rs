//! Transactions that another thread may end: what each call of such a transaction does when it
//! begins and ends, and what an abort does. A transaction without timeouts and without a handle
//! pays one branch.

use super::begin::Life;
use crate::engine::{Engine, Kept, KeptMemory, Watch};
use crate::error::{Error, Result};
use crate::footprint::Footprint;
use std::sync::Arc;

impl Life {
    /// Lets other threads abort the transaction while one of its calls is running.
    pub(super) fn be_watched(&mut self, engine: &Engine) -> &Arc<Watch> {
        debug_assert!(self.watch.is_none(), "a transaction is watched once");
        let (timeout, idle_timeout) = (self.options.timeout, self.options.idle_timeout);
        let owner = self.locks.known(engine).clone();
        let id = owner.id;
        let watch = Arc::new(Watch::new(engine, owner, timeout, idle_timeout));
        engine.running.watch(id, &watch);
        self.locks.end_at(watch.deadline_ns());
        self.watch.insert(watch)
    }

    /// What other threads abort the transaction through. No call of the transaction is running.
    pub(crate) fn handle(&mut self, engine: &Engine) -> Arc<Watch> {
        if let Some(watch) = &self.watch {
            return watch.clone();
        }
        let watch = self.be_watched(engine).clone();
        self.leave(engine);
        watch
    }

    /// Begins a call. Fails if the transaction was aborted.
    #[inline]
    pub(crate) fn enter(&mut self, engine: &Engine) -> Result<()> {
        if self.watch.is_some() { self.enter_watched(engine) } else { Ok(()) }
    }

    #[cold]
    fn enter_watched(&mut self, engine: &Engine) -> Result<()> {
        let Some(watch) = &self.watch else { return Ok(()) };
        match watch.enter(engine) {
            Ok(kept) => {
                self.take_back(kept);
                Ok(())
            }
            Err(reason) => Err(self.doom_by(Error::transaction_aborted(reason))),
        }
    }

    /// Ends a call that [`Life::enter`] has begun.
    #[inline]
    pub(crate) fn leave(&mut self, engine: &Engine) {
        if self.watch.is_some() {
            self.leave_watched(engine);
        }
    }

    #[cold]
    fn leave_watched(&mut self, engine: &Engine) {
        debug_assert!(self.watch.is_some(), "the read point would be held for ever");
        let memory = KeptMemory {
            footprint: std::mem::replace(&mut *self.footprint, Footprint::new(0)),
            spilled: std::mem::take(&mut self.spilled),
            streams: std::mem::take(&mut self.streams),
        };
        let (point, gate) = (self.hold.take(), self.locks.lend_gate());
        let kept = Kept { point, gate, memory: Some(memory) };
        if let Some(watch) = &self.watch {
            let memory = watch.leave(engine, kept);
            self.take_memory(memory);
        }
    }

    /// Takes back what the watch holds. From now on no other thread can abort the transaction.
    pub(super) fn be_unwatched(&mut self) {
        if let Some(watch) = &self.watch {
            let kept = watch.end();
            self.take_back(kept);
        }
    }

    /// Lets other threads abort the transaction again, after it has begun anew.
    pub(super) fn be_watched_again(&mut self) {
        if let Some(watch) = &self.watch {
            watch.restart();
            self.locks.end_at(watch.deadline_ns());
        }
    }

    fn take_back(&mut self, Kept { point, gate, memory }: Kept) {
        debug_assert!(point.is_none() || self.hold.is_none(), "it has one read point");
        self.take_memory(memory);
        self.hold = point.or(self.hold.take());
        self.locks.take_gate_back(gate);
    }

    fn take_memory(&mut self, memory: Option<KeptMemory>) {
        let Some(KeptMemory { footprint, spilled, streams }) = memory else { return };
        debug_assert!(self.footprint.len() == 0, "what was written between two calls is lost");
        (*self.footprint, self.spilled, self.streams) = (footprint, spilled, streams);
    }

    /// The error of a call that was ended by an abort; any other error as it is.
    pub(super) fn or_aborted(&self, error: Error) -> Error {
        let is_of_wait = error.is_conflict() || error.is_transaction_aborted();
        match self.watch.as_ref().filter(|_| is_of_wait).map(|watch| watch.check()) {
            Some(Err(reason)) => Error::transaction_aborted(reason),
            _ => error,
        }
    }
}
