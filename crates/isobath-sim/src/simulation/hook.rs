//! The commit hook of the simulation. It checks that each commit of a transaction passes it all
//! operations: each written key once, and the start of each deleted range.

use isobath::{CommitHook, OperationKind, Operations};
use std::error::Error;

/// Vetoes operations that no transaction can have written. Such a veto is not expected, and fails
/// the life.
pub(super) struct Witness;

impl CommitHook for Witness {
    fn before(&self, operations: &Operations<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        let is_range = |kind| matches!(kind, OperationKind::DeleteRange { .. });
        let places = operations.iter().map(|one| (one.family, is_range(one.kind), one.key));
        let places: Vec<_> = places.collect();
        let is_whole =
            places.len() == operations.len() && operations.is_empty() == places.is_empty();
        match is_whole && places.windows(2).all(|pair| pair[0] != pair[1]) {
            true => Ok(()),
            false => Err(format!("the hook is told of {places:?}").into()),
        }
    }
}
