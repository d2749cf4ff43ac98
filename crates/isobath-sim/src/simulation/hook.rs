//! The commit hook of the simulation. It checks that each commit of a transaction passes it all
//! operations: each written key once, and the start of each deleted range; and that it is told of
//! the commit that was made.

use super::runtime;
use crate::position::position;
use isobath::{Commit, CommitHook, OperationKind, Operations};
use std::error::Error;
use std::sync::Mutex;

/// Vetoes operations that no transaction can have written. Such a veto is not expected, and fails
/// the life.
#[derive(Default)]
pub(super) struct Witness {
    /// What was wrong after a commit. The next one is vetoed, as this one cannot be any more.
    wrong: Mutex<Option<String>>,
}

/// What is wrong with the operations of a transaction.
fn check(operations: &Operations<'_>) -> Result<(), String> {
    let is_range = |kind| matches!(kind, OperationKind::DeleteRange { .. });
    let places = operations.iter().map(|one| (one.family, is_range(one.kind), one.key));
    let places: Vec<_> = places.collect();
    let is_whole = places.len() == operations.len() && operations.is_empty() == places.is_empty();
    match is_whole && places.windows(2).all(|pair| pair[0] != pair[1]) {
        true => Ok(()),
        false => Err(format!("the hook is told of {places:?}")),
    }
}

impl CommitHook for Witness {
    fn before(&self, operations: &Operations<'_>) -> Result<(), Box<dyn Error + Send + Sync>> {
        if let Some(wrong) = self.wrong.lock().expect("nothing panics with it").clone() {
            return Err(wrong.into());
        }
        Ok(check(operations)?)
    }

    fn after(&self, commit: Commit, operations: &Operations<'_>) {
        let (told, reserved) = (position(commit), runtime::last_reserved());
        let is_other = reserved.is_some_and(|reserved| reserved != told);
        let other = || format!("the hook is told of a commit at {told}, not at {reserved:?}");
        let checked = if is_other { Err(other()) } else { check(operations) };
        if let Err(wrong) = checked {
            self.wrong.lock().expect("nothing panics with it").get_or_insert(wrong);
        }
    }
}
