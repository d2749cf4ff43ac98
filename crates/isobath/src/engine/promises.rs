//! Large commits that wait until they can speak for their memory, first come first served.
//!
//! Below a ceiling a large commit needs memory that comes free when an epoch is flushed, and the
//! next epoch needs the same memory. Many small commits fill the open epoch while a flush is under
//! way, and seal it as soon as there is room. So who seals asks for those who wait here before it
//! asks for the next epoch, and while a flush may still give back what the first of them needs, no
//! epoch is sealed (`Epochs::next_arena`).
//!
//! The seal lock guards it.

use crate::error::Result;
use crate::memtable::{ChunkPool, Promise};
use std::collections::VecDeque;
use std::sync::Arc;

/// How often the next epoch may get memory that does not suffice for who waits, with nothing left
/// to be flushed.
const PASSES_MAX: u32 = 5;

/// Those who wait, in the order in which they came.
#[derive(Default)]
pub(crate) struct PromiseQueue {
    waiting: VecDeque<Waiting>,
    next: u64,
    /// For how many it has spoken.
    spoken: u64,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

struct Waiting {
    ticket: Ticket,
    bytes: u64,
    /// What was spoken for on its behalf.
    promise: Option<Promise>,
    passes: u32,
}

impl PromiseQueue {
    /// A commit begins to wait until it can speak for so many bytes.
    pub(crate) fn enter(&mut self, bytes: u64) -> Ticket {
        debug_assert!(bytes > 0, "who needs nothing has nothing to wait for");
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiting.push_back(Waiting { ticket, bytes, promise: None, passes: 0 });
        ticket
    }

    /// What was spoken for on behalf of a commit, if it was.
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Promise> {
        self.find(ticket).promise.take()
    }

    /// True if the next epoch got its memory too often while this commit was the first to wait.
    pub(crate) fn is_passed_over(&mut self, ticket: Ticket) -> bool {
        self.find(ticket).passes > PASSES_MAX
    }

    /// For how many it has spoken so far. What one of them got may come free again soon.
    pub(crate) fn spoken(&self) -> u64 {
        self.spoken
    }

    /// True if nothing was spoken for on behalf of this commit, and something for all before it.
    pub(crate) fn is_first(&self, ticket: Ticket) -> bool {
        let first = self.waiting.iter().find(|waiting| waiting.promise.is_none());
        first.is_some_and(|waiting| waiting.ticket == ticket)
    }

    /// A commit waits no longer. What it has not taken is given back.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| waiting.ticket != ticket);
        debug_assert_eq!(self.waiting.len() + 1, before, "a place is left once");
    }

    /// Speaks for those who wait, until the memory does not suffice for the next of them. Returns
    /// whether it has spoken for any, and the refusal.
    pub(super) fn serve(&mut self, pool: &Arc<ChunkPool>) -> (bool, Result<()>) {
        let mut has_spoken = false;
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.promise.is_none()) {
            match pool.promise(waiting.bytes) {
                Ok(promise) => waiting.promise = promise,
                Err(full) => return (has_spoken, Err(full)),
            }
            has_spoken = true;
            self.spoken += 1;
        }
        (has_spoken, Ok(()))
    }

    /// The next epoch has got its memory, and the first who waits has not.
    pub(super) fn pass_over(&mut self) {
        let first = self.waiting.iter_mut().find(|waiting| waiting.promise.is_none());
        first.into_iter().for_each(|waiting| waiting.passes += 1);
    }

    fn find(&mut self, ticket: Ticket) -> &mut Waiting {
        let found = self.waiting.iter_mut().find(|waiting| waiting.ticket == ticket);
        found.expect("who waits stays in the queue until it leaves")
    }
}
