//! The ceiling for the memory of a database: who holds how much of it, and how much is left.
//!
//! A [`Charge`] is taken from the [`Budget`] before the memory is, and gives it back when it is
//! dropped. A charge lies beside the memory that it is for. The sum of all charges never passes
//! the ceiling. `docs/internals/memory.md` says what is charged and what is not, and [`Shares`] how
//! a ceiling is divided.

mod allowance;
mod budget;
mod charge;
#[cfg(all(test, shuttle))]
mod model;
mod reserve;
mod shares;

pub(crate) use allowance::Allowance;
pub(crate) use budget::Budget;
pub(crate) use charge::Charge;
pub(crate) use reserve::{Reserve, Room};
pub(crate) use shares::{CEILING_MIN, Shares, VALUES_AHEAD, commit_bytes};
