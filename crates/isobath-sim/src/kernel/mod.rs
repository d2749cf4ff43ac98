//! The real engine on the real kernel: processes that are killed, file systems that are cut off
//! their device, fill up, or sit on a device that fails.
//!
//! A parent (`powercut.rs`, `kill.rs`, `enospc.rs`, `failing.rs`, which share `campaign.rs`) starts
//! processes that write: `writer.rs`, or another program by `outside.rs`. `life.rs` is such a
//! process as the parent sees it. The parent ends them in a `sandbox.rs`, after `disturb.rs`. The
//! data is computed from seeds (`history.rs`), and acknowledgements are recorded in memory that
//! both share (`notes.rs`). So the process that opens a database next knows what it must find
//! (`check.rs`).

mod calls;
mod campaign;
mod check;
mod disturb;
pub(crate) mod enospc;
pub(crate) mod failing;
mod history;
pub(crate) mod kill;
mod life;
mod notes;
mod outside;
pub(crate) mod powercut;
mod sandbox;
mod store;
mod writer;

pub(crate) use campaign::Outcome;
pub(crate) use outside::Outside;
pub(crate) use sandbox::Sandbox;
pub(crate) use store::Engine;
pub(crate) use writer::Writer;
