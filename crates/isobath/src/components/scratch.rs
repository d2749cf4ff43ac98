//! A byte buffer that a thread keeps between calls, so that encoding a record allocates nothing.

use std::cell::Cell;

/// A buffer above this is given back rather than kept.
const KEEP_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Runs `body` with the thread's buffer, emptied. A call within a call gets a fresh one.
pub(crate) fn with_scratch<R>(body: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut buffer = SCRATCH.take();
    buffer.clear();
    let result = body(&mut buffer);
    if buffer.capacity() <= KEEP_BYTES_MAX {
        SCRATCH.set(buffer);
    }
    result
}
