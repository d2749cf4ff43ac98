//! The merge operators that come with the engine. Every database knows them by their names, which
//! [`FamilyOptions::merge_operator`](crate::FamilyOptions::merge_operator) takes.

pub use crate::mvcc::operator::bundled::{Append, Counter, Max, Min, SetUnion};
