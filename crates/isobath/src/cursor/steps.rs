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

/// Where the sources of a merge have been skipped to, since it was last sought or turned.
///
/// A source that is skipped to a key comes to none below it again. In a forged table a seek may
/// lead back to where the keys are out of order, so the source would be skipped again and again.
/// Hence no source is skipped twice to a key, or then to a smaller one.
#[derive(Debug, Default)]
pub(super) struct Skips(Vec<Vec<u8>>);

impl Skips {
    #[inline]
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// Moves source number `nth`, which stands below `key`, to the first key at or above it, or
    /// past its last key.
    pub(super) fn skip<C: Cursor>(
        &mut self,
        (nth, source): (usize, &mut C),
        key: Option<&[u8]>,
    ) -> Result<()> {
        let Some(key) = key else { return past_end(source) };
        debug_assert!(
            source.key().is_some_and(|stands| stands < key),
            "a source is skipped forward to where it has been"
        );
        if self.0.len() <= nth {
            self.0.resize(nth + 1, Vec::new());
        }
        let last = &mut self.0[nth];
        if key <= last.as_slice() {
            return Ok(());
        }
        last.clear();
        last.extend_from_slice(key);
        source.seek(key)
    }
}

/// Moves a cursor past its last key.
fn past_end<C: Cursor>(cursor: &mut C) -> Result<()> {
    cursor.seek_last()?;
    while cursor.key().is_some() {
        cursor.next()?;
    }
    Ok(())
}
