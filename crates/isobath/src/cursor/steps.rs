//! Moves of a cursor that take several steps.

use super::Cursor;
use crate::error::Result;

/// Moves a cursor backward until it stands below `key`. This takes at most two steps if the cursor
/// stands on its first entry at or above the key, or on a later version of that first key.
pub(super) fn step_below<C: Cursor>(cursor: &mut C, key: &[u8]) -> Result<()> {
    while cursor.key().is_some_and(|stands| stands >= key) {
        cursor.prev_key()?;
    }
    Ok(())
}

/// Moves a cursor past its last key.
pub(super) fn past_end<C: Cursor>(cursor: &mut C) -> Result<()> {
    cursor.seek_last()?;
    while cursor.key().is_some() {
        cursor.next()?;
    }
    Ok(())
}
