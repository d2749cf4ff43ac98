//! Keeps the tree in shape: merges what writers pile up, drops what nobody can read, moves what fits as it is.
//!
//! Deciding is pure and returns a value; doing takes the value; installing is one manifest edit, made by
//! whoever called:
//!
//! - `retain`    which versions somebody can still read

mod retain;

pub(crate) use retain::{Retain, Verdict};
