//! What the machine provides beside files: time, randomness, threads, locks and waiting.
//!
//! Nothing else in the crate may use the standard library's versions (`clippy.toml` bans them), so
//! a simulator or a model checker can replace every one. Locks, condition variables and atomics
//! switch by build (`cfg(loom)`, `cfg(shuttle)`, the `simulation` feature). Clock, randomness and
//! threads are values in [`Env`](crate::Env). [`crate::vfs`] uses this room, because files need
//! locks. [`crate::env`] uses both and exports all of this room, so other rooms name only `env`.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // They are banned everywhere else.

#[cfg(all(feature = "simulation", not(any(loom, shuttle))))]
pub(crate) mod atomics;
mod callback;
mod clock;
#[cfg(test)]
pub(crate) mod fixtures;
mod lock_order;
#[cfg(feature = "simulation")]
pub mod planted;
#[cfg(not(feature = "simulation"))]
#[allow(unreachable_pub)] // Public in the other build.
pub(crate) mod planted;
mod points;
mod prefetch;
mod process;
mod random;
#[cfg(feature = "simulation")]
pub mod reach;
#[cfg(not(feature = "simulation"))]
#[allow(unreachable_pub)] // Public in the other build.
pub(crate) mod reach;
mod scratch;
#[cfg(feature = "simulation")]
pub mod simulation;
pub(crate) mod sync;
mod threads;

pub(crate) use callback::{call_back, is_called_back, is_called_back_by};
pub use clock::{Clock, SystemClock};
pub(crate) use clock::{SystemTime, unix_ms_of};
pub(crate) use planted::{Plant, planted};
pub use points::Point;
pub(crate) use points::{note_reserved, preempt, without_preemption, yield_point};
pub(crate) use prefetch::prefetch;
pub(crate) use process::Process;
pub use random::{Random, SystemRandom};
pub(crate) use reach::{Reach, reached, reached_if};
pub(crate) use scratch::with_scratch;
pub use threads::{Priority, SystemThreads, ThreadHandle, Threads};
pub(crate) use threads::{
    demand_no_locks_at_low_priority, demand_normal_priority, is_unwinding, thread_number,
};
