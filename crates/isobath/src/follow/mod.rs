//! Reading a database without changing it, alone or beside the process that writes.
//!
//! 1. The manifest and the list of existing tables are read. Tables are opened, as many as the
//!    options allow, and stay open while a reader may need them.
//! 2. The log is replayed into memory from `replay from` to the first record that is not whole.
//! 3. The result is shown to readers, as one moment (`engine/shown.rs`).
//!
//! [`catch_up`] continues along the log, or begins anew from a newer manifest. It begins anew if
//! the next part of the log is gone because tables hold it, if a new term has begun, if the log
//! does not tell of a clone that the manifest has, if tables that it does not hold open are gone,
//! or if that frees memory.
//!
//! A writer may remove any file between two steps, but an edit of the manifest always says so
//! first. So an error while the manifest changed means "look again". An error that repeats while
//! the manifest stays the same is reported. `docs/internals/read-only.md` lists what may happen at
//! each step, and explains why readers see a prefix of the commits.

mod catch_up;
mod open;
mod replay;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub(crate) use catch_up::catch_up;
pub(crate) use open::open;
pub(crate) use replay::look_until_steady;
