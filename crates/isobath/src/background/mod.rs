//! Background threads that run the jobs they are given.
//!
//! [`Workers`] run jobs in the order of their submission; a [`Ticker`] repeats one body. Neither
//! knows what a job does. A close asks jobs to stop by a [`CancelToken`] and then waits for them.
//! If a job panics, the thread goes on, and the owner gets a report; it should no longer trust what
//! the job worked on.

mod cancel;
mod panics;
mod promise;
mod ticker;
mod workers;

#[cfg(all(test, shuttle))]
mod model;

pub(crate) use cancel::CancelToken;
pub(crate) use panics::PanicReport;
pub(crate) use promise::{Answer, Promised, promise};
pub(crate) use ticker::Ticker;
pub(crate) use workers::Workers;
