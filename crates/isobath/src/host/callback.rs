//! Whether the calling thread is in a callback of the program, so that a call which would wait for this very thread can
//! tell. Tasks of a simulator share a thread, so none may give way in a callback.

use std::cell::Cell;
use std::ptr;

thread_local! {
    static CALLER: Cell<*const ()> = const { Cell::new(ptr::null()) };
}

/// Puts the caller back that was there before, also if the callback panics.
struct Back(*const ());

impl Drop for Back {
    fn drop(&mut self) {
        CALLER.set(self.0);
    }
}

/// Runs a callback on behalf of `caller`.
pub(crate) fn call_back<T>(caller: &T, callback: impl FnOnce()) {
    let _back = Back(CALLER.replace(ptr::from_ref(caller).cast()));
    callback();
}

/// True within a callback that runs on behalf of `caller`.
pub(crate) fn is_called_back_by<T>(caller: &T) -> bool {
    CALLER.get() == ptr::from_ref(caller).cast()
}
