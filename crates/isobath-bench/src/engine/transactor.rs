//! Transactions, as a workload asks for them.
//!
//! A [`Transactor`] is one thread's way of working in transactions: the verbs of [`Session`] act in
//! the one that has begun. All engines serve them serializable: nothing that a transaction has
//! read, rows that a scan did not find included, has changed when it commits. An engine tells a
//! conflict by [`Conflict`] from any verb, or by `false` from the commit; nothing was written then,
//! and the work is to be done again from its first read.

use super::Session;
use anyhow::Result;
use std::time::Duration;

/// What a transaction is begun for. Engines with one writer at a time need to know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The transaction conflicts with another one.
#[derive(Debug)]
pub(crate) struct Conflict;

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("another transaction is in the way: run this one again")
    }
}

impl std::error::Error for Conflict {}

/// What is done in a transaction, perhaps several times.
pub(crate) type Body<'a> = &'a mut dyn FnMut(&mut dyn Session) -> Result<()>;

pub(crate) trait Transactor: Session {
    fn begin(&mut self, access: Access) -> Result<()>;

    /// Ends the transaction. `false` if it conflicts and nothing was written.
    fn commit(&mut self) -> Result<bool>;

    fn rollback(&mut self);

    /// Does `body` in transactions until one commits; returns how many did not. An engine that has
    /// a way of its own to run a transaction again uses it, the others [`rerun`].
    fn transact(&mut self, access: Access, body: Body<'_>) -> Result<u64>;
}

/// Begins, does `body` and commits, again and again until it succeeds.
pub(super) fn rerun<T: Transactor>(
    transactor: &mut T,
    access: Access,
    body: Body<'_>,
) -> Result<u64> {
    let mut aborts = 0;
    loop {
        transactor.begin(access)?;
        match body(transactor) {
            Ok(()) => {
                if transactor.commit()? {
                    return Ok(aborts);
                }
            }
            Err(error) => {
                transactor.rollback();
                if !error.is::<Conflict>() {
                    return Err(error);
                }
            }
        }
        aborts += 1;
        back_off(aborts);
    }
}

const PAUSE_MAX_US: u64 = 1000;

/// Waits before the next attempt: not at all the first time, then ever longer up to a millisecond.
pub(crate) fn back_off(aborts: u64) {
    match aborts {
        0 | 1 => std::thread::yield_now(),
        _ => {
            let doubled = 1u64.checked_shl(aborts.min(16) as u32).unwrap_or(PAUSE_MAX_US);
            std::thread::sleep(Duration::from_micros(doubled.min(PAUSE_MAX_US)));
        }
    }
}
