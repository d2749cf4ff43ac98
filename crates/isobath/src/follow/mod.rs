//! Reading a database without touching it, alone or beside the process that writes.
//!
//! 1. the manifest is read, and with it the tables there are; each is opened, and held open while a
//!    reader may need it
//! 2. the log is replayed into memory from `replay from` to the first record that is not whole
//! 3. what was found is shown, as one moment (`engine/shown.rs`)
//!
//! [`catch_up`] goes on along the log, or begins anew from a newer manifest: where the log in front
//! of the reader is gone because tables hold it, where a new term has begun, and where that gives
//! back memory.
//!
//! A writer may take away any file between two steps. Whatever it takes away, an edit of the
//! manifest says so first: so an error while the manifest changed means "look again", and one while
//! it did not is told. What may be met at each step, and why what is shown is a prefix of the
//! commits: `docs/internals/read-only.md`.

mod catch_up;
mod open;
mod replay;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub(crate) use catch_up::catch_up;
pub(crate) use open::open;
pub(crate) use replay::look_until_steady;
