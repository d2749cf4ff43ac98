//! The result of work that another thread does. Who waits for it always gets one, also if the work
//! panics or is never done.

use crate::env::sync::{Condvar, Mutex, Rank};
use crate::error::{Error, Result};
use std::sync::Arc;

/// For the thread that waits.
pub(crate) struct Promised<T>(Arc<Promise<T>>);

/// For the thread that does the work. If it is dropped, the work counts as cancelled.
pub(crate) struct Answer<T>(Option<Arc<Promise<T>>>);

struct Promise<T> {
    result: Mutex<Option<Result<T>>>,
    kept: Condvar,
}

/// A result that is not there yet.
pub(crate) fn promise<T>() -> (Answer<T>, Promised<T>) {
    let result = Mutex::new(Rank::Promise, None);
    let promise = Arc::new(Promise { result, kept: Condvar::new() });
    (Answer(Some(promise.clone())), Promised(promise))
}

impl<T> Promised<T> {
    /// Waits for the result. Fails with [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) if
    /// there will be none.
    pub(crate) fn wait(self) -> Result<T> {
        let mut result = self.0.result.lock();
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            self.0.kept.wait(&mut result);
        }
    }
}

impl<T> Promise<T> {
    fn keep(&self, result: Result<T>) {
        *self.result.lock() = Some(result);
        self.kept.notify_one();
    }
}

impl<T> Answer<T> {
    pub(crate) fn give(mut self, result: Result<T>) {
        if let Some(promise) = self.0.take() {
            promise.keep(result);
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if let Some(promise) = self.0.take() {
            promise.keep(Err(Error::cancelled()));
        }
    }
}
