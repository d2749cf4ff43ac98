//! The only way to write: how a commit gets from its caller into the log and the memtables.
//!
//! `docs/internals/commit.md` explains it: the invariants, the stages and what each may wait for,
//! what a failure at each stage leaves, the race with a seal, and what was tried and rejected.

mod announce;
mod apply;
mod ask;
mod changing;
mod clone;
mod commit;
mod drain;
mod durable;
mod expiry;
mod families;
mod key_locks;
#[cfg(all(test, any(loom, shuttle)))]
mod model;
mod parts;
mod prepared;
mod seal;
mod sorted;
mod spilled;
mod stream;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod together;

pub(crate) use announce::{Announcement, Course, Plain, Targets};
pub(crate) use ask::Asker;
pub(crate) use clone::clone_family;
pub use commit::Commit;
pub(crate) use commit::{check_merges, commit_batch, commit_one, commit_range};
pub(crate) use drain::Changed;
pub(crate) use durable::{is_durable, on_durable, sync_to, sync_to_lsn};
pub(crate) use expiry::{commit_expiring, default_expiry, stored};
pub(crate) use families::{drop_family, open_families, rename_family, set_family_options};
pub(crate) use key_locks::KeyLocks;
pub(crate) use parts::{OpAt, Parts, push_op};
pub(crate) use prepared::{admit_prepared, log_decision, log_prepare};
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use seal::seal_if_written;
pub(crate) use seal::{flush_now, flush_on_request, is_anything_written, is_long, seal_if_room};
pub(crate) use sorted::commit_sorted;
pub(crate) use spilled::commit_spilled;
pub(crate) use stream::{StreamSink, Written, commit_streamed, stored_stream, write_all_of};
pub(crate) use together::Together;
