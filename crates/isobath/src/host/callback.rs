//! Whether the calling thread is in a callback of the program. A call that would wait for its own
//! thread can find that out here. Tasks of a simulator share one thread of the system, so no task
//! may give way inside a callback.

use super::lock_order::demand_no_locks;
use std::cell::Cell;
use std::ptr;

/// How many databases are remembered whose callbacks run within each other.
const DEPTH: usize = 8;

thread_local! {
    /// The last ones first. It needs no drop, so it is there while a thread ends, too.
    static CALLERS: Cell<[*const (); DEPTH]> = const { Cell::new([ptr::null(); DEPTH]) };
}

/// Restores the earlier callers, even if the callback panics.
struct Back([*const (); DEPTH]);

impl Drop for Back {
    fn drop(&mut self) {
        CALLERS.set(self.0);
    }
}

/// Runs a callback on behalf of `caller`, possibly within a callback of another database. The
/// calling thread holds no lock of the engine: the callback may close the database.
#[track_caller]
pub(crate) fn call_back<T>(caller: &T, callback: impl FnOnce()) {
    demand_no_locks();
    let before = CALLERS.get();
    let _back = Back(before);
    let caller = ptr::from_ref(caller).cast();
    if !before.contains(&caller) {
        let mut callers = before;
        callers.rotate_right(1);
        callers[0] = caller;
        CALLERS.set(callers);
    }
    callback();
}

/// True within a callback on behalf of `caller`, even if callbacks of others run within it.
pub(crate) fn is_called_back_by<T>(caller: &T) -> bool {
    CALLERS.get().contains(&ptr::from_ref(caller).cast())
}

/// True within a callback on behalf of any caller.
pub(crate) fn is_called_back() -> bool {
    !CALLERS.get()[0].is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_within_one_of_another_is_of_both() {
        let (outer, inner) = (1u8, 2u8);
        let now = || {
            let of_each = [&outer, &inner].map(is_called_back_by);
            assert_eq!(is_called_back(), of_each.contains(&true));
            of_each
        };
        call_back(&outer, || {
            assert_eq!(now(), [true, false]);
            call_back(&inner, || {
                assert_eq!(now(), [true, true]);
                call_back(&outer, || assert_eq!(now(), [true, true]));
                assert_eq!(now(), [true, true]);
            });
            assert_eq!(now(), [true, false]);
        });
        assert_eq!(now(), [false, false]);
    }
}
