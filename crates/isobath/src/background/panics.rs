//! What becomes of a panic on a background thread.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Told of each panic: which threads' job it was, and the message. Must not panic itself. The owner
/// should take it that what the job worked on is broken.
pub(crate) type PanicReport = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// Runs `body`; a panic ends it, not the thread.
pub(super) fn guard(name: &str, report: &PanicReport, body: impl FnOnce()) {
    // What the body leaves half done is the report's business: the owner stops using it.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        report(name, message(&*panic));
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}
