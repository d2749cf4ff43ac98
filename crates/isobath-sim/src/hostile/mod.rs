//! Hostile bytes: `flip` damages a small database in every listed way, one at a time, and checks
//! how the engine handles it.
//!
//! `image.rs` makes the database and knows what is in it (`filler.rs` writes it), `damage.rs` lists
//! the ways (every bit flipped, every file cut at every length, every file missing), `examine.rs`
//! opens the damaged database, reads it in every way, verifies it, and judges the results.
//! `flip.rs` does one damage after the other, and `memory.rs` counts the memory that this
//! allocates. All of it runs in the simulator: on one thread, and the same each time.
//!
//! Each damaged database must meet these demands:
//!
//! - opening and reading give the right answer, or an error that names the damaged file; of the log
//!   also the state at an earlier moment, if the open reported it and no record that was known
//!   durable is missing;
//! - nothing panics, and nothing takes more memory than reading the sound database does, apart from
//!   a fixed allowance;
//! - `verify` finds the damage and names the file, wherever it touches bytes that mean something.

mod damage;
mod examine;
mod filler;
mod flip;
mod image;
mod memory;

pub(crate) use damage::Mode;
pub(crate) use flip::{Asked, examine_all};
