//! A cooperative cancellation token.

use crate::env::sync::atomic::{AtomicBool, Ordering};
use crate::error::{Error, Result};
use std::sync::Arc;

/// The threads that may ask for a stop and the job that is asked share it. Once cancelled, it stays
/// cancelled.
#[derive(Clone, Debug)]
pub(crate) struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    pub(crate) fn new() -> CancelToken {
        CancelToken(Arc::new(AtomicBool::new(false)))
    }

    pub(crate) fn cancel(&self) {
        // The flag carries no data: the job reads it from time to time, and the canceller waits for
        // the job's end.
        self.0.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) if the job should stop. Cheap enough
    /// to call for every block of a compaction.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::cancelled()) } else { Ok(()) }
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        CancelToken::new()
    }
}
