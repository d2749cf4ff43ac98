//! Background threads that run whatever they are given.
//!
//! [`Workers`] run jobs in the order of their submission; a [`Ticker`] does one thing again and
//! again. Neither knows what a job is. A job is asked to stop by a [`CancelToken`] and is then
//! waited for; a job that panics is reported to the owner, who no longer trusts its own state, and
//! the thread goes on.

mod cancel;
mod panics;
mod ticker;
mod workers;

#[cfg(all(test, shuttle))]
mod model;

pub(crate) use cancel::CancelToken;
pub(crate) use panics::PanicReport;
pub(crate) use ticker::Ticker;
pub(crate) use workers::Workers;
