//! Multi-version concurrency: what a version of a key is, and what follows from it for readers and for those who rewrite.
//!
//! - `kind`   what an operation does to its key; the one place that tells kinds apart

mod kind;

pub(crate) use kind::Effect;
pub use kind::OpKind;
