//! The hook that sees each commit of a transaction before it happens: it must be told all that is
//! written, each key once,
//! and where each deleted range begins.

use isobath::{CommitHook, OperationKind, Operations};
use std::error::Error;

/// Vetoes what cannot be. An unexpected veto fails the life.
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
