//! Moves of a cursor that take several steps.

use super::Cursor;
use crate::error::Result;

/// The most steps to what lies below a key from the first entry at or above it, or from a later
/// version of that one.
const STEPS_NEAR: usize = 2;

/// Moves a cursor backward until it stands below `key`. Most often it stands near. If it was moved
/// past what something newer hides, it may stand far above, and seeks.
pub(super) fn step_below<C: Cursor>(cursor: &mut C, key: &[u8]) -> Result<()> {
    let mut steps = 0;
    while cursor.key().is_some_and(|stands| stands >= key) {
        match steps == STEPS_NEAR {
            true => cursor.seek_for_prev(key)?,
            false => cursor.prev_key()?,
        }
        steps += 1;
    }
    Ok(())
}

/// Moves a cursor to the first key at or above `key`, or past its last key. An index that a forger
/// wrote may lead to keys below; who skips what lies between must not come to them again and again.
pub(super) fn step_to<C: Cursor>(cursor: &mut C, key: Option<&[u8]>) -> Result<()> {
    let Some(key) = key else { return past_end(cursor) };
    cursor.seek(key)?;
    while cursor.key().is_some_and(|stands| stands < key) {
        cursor.next()?;
    }
    Ok(())
}

/// Moves a cursor past its last key.
fn past_end<C: Cursor>(cursor: &mut C) -> Result<()> {
    cursor.seek_last()?;
    while cursor.key().is_some() {
        cursor.next()?;
    }
    Ok(())
}
