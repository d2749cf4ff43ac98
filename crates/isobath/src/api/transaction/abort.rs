//! Ending a transaction from another thread.

use crate::engine::{Engine, Watch};
use crate::error::AbortReason;
use std::sync::{Arc, Weak};

/// Ends a transaction from any thread:
/// [`Transaction::abort_handle`](crate::Transaction::abort_handle) returns it. It does not keep the
/// database open.
#[derive(Clone)]
pub struct AbortHandle {
    pub(super) watch: Arc<Watch>,
    pub(super) engine: Weak<Engine>,
}

impl AbortHandle {
    /// Ends the transaction. True if it is ended: then nothing of it is written, now or later.
    /// False if it has been committed or rolled back, or if its commit has come so far that it may
    /// be written; nothing changes then.
    ///
    /// A transaction that is not being called gives back its locks and its read point at once. One
    /// that waits for a lock is woken. Any other call goes on to its next step, or to its end;
    /// until then its locks stay. From then on calls fail with
    /// [`ErrorKind::TransactionAborted`](crate::ErrorKind::TransactionAborted), up to
    /// [`Transaction::reset`](crate::Transaction::reset). An iterator that is open may go on.
    /// [`Db::transact`](crate::Db::transact) does not run an aborted transaction again.
    pub fn abort(&self) -> bool {
        let engine = self.engine.upgrade();
        engine.is_some_and(|engine| self.watch.abort(&engine, AbortReason::Asked))
    }
}

impl std::fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AbortHandle({:?})", self.watch)
    }
}
