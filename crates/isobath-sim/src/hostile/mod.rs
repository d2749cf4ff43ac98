//! Hostile bytes: `flip` damages a small database in every way there is, one at a time, and asks
//! what the engine makes of it.
//!
//! `image.rs` makes the database and knows what is in it, `damage.rs` lists the ways (every bit
//! flipped, every file cut at every length, every file missing), `examine.rs` opens what is left,
//! reads all of it in every way, has it verified, and judges, `flip.rs` does one after the other,
//! `memory.rs` counts what that allocates. All of it runs in the simulator: one thread, the same
//! each time.
//!
//! What is asked of each damaged database:
//!
//! - opening and reading give the right answer, or an error that names the damaged file; of the log
//!   also the state at an earlier moment, if the open reported it and no record that was known
//!   durable is missing;
//! - nothing panics, and nothing takes more memory than reading the sound database does, but for a
//!   fixed allowance;
//! - `verify` finds the damage and names the file, wherever it touches bytes that mean something.

mod damage;
mod examine;
mod flip;
mod image;
mod memory;

pub(crate) use damage::Mode;
pub(crate) use flip::{Asked, examine_all};
