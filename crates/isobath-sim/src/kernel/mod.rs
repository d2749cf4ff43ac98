//! The real engine on the real kernel: processes that are killed, file systems that are cut off
//! their device, fill up, or sit on a device that fails.
//!
//! A parent (`powercut.rs`, `kill.rs`, `enospc.rs`, `failing.rs`, on the ground of `campaign.rs`)
//! starts processes that write (`writer.rs`, or a program from elsewhere, `outside.rs`; seen from
//! outside in `life.rs`) and brings about their end in a `sandbox.rs`, after `disturb.rs`.
//! What is written follows from seeds (`history.rs`); what was acknowledged is noted in memory that
//! both share (`notes.rs`); so the process that opens a database next can tell what it must find
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
