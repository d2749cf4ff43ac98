//! What happens after a panic on a background thread.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Called after each panic, with the name of the threads and the message. It must not panic itself.
/// The owner should assume that what the job worked on is broken.
pub(crate) type PanicReport = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// Runs `body`. A panic ends `body` but not the thread.
pub(super) fn guard(name: &str, report: &PanicReport, body: impl FnOnce()) {
    // `body` may leave things half done. The report tells the owner, which stops using them.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        report(name, message(&*panic));
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}
