//! A byte buffer that a thread keeps between calls, so that encoding a record needs no allocation.

use std::cell::Cell;

/// A buffer that is larger than this is freed after use.
const KEEP_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Runs `body` with the thread's buffer, emptied. A call within a call gets a new buffer. So does a
/// thread that is ending: the program's thread-local values may write when they are dropped.
pub(crate) fn with_scratch<R>(body: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut buffer = SCRATCH.try_with(Cell::take).unwrap_or_default();
    buffer.clear();
    let result = body(&mut buffer);
    if buffer.capacity() <= KEEP_BYTES_MAX {
        let _ = SCRATCH.try_with(|kept| kept.set(buffer));
    }
    result
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    /// Uses the buffer after its thread has dropped it.
    struct Late(mpsc::Sender<usize>);

    impl Drop for Late {
        fn drop(&mut self) {
            let len = with_scratch(|buffer| {
                buffer.extend_from_slice(b"late");
                buffer.len()
            });
            self.0.send(len).unwrap();
        }
    }

    thread_local! {
        static LATE: Cell<Option<Late>> = const { Cell::new(None) };
    }

    #[test]
    fn a_thread_that_is_ending_has_a_buffer_too() {
        let (sender, lens) = mpsc::channel();
        thread::spawn(move || {
            LATE.set(Some(Late(sender)));
            with_scratch(|buffer| buffer.push(1));
        });
        assert_eq!(lens.recv().unwrap(), 4);
    }
}
