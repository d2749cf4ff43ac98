//! What a reader at a read point finds for a key.

use super::{Cursor, Effect, Lsn, OpKind};
use crate::env::{Reach, preempt, reached_if};
use crate::error::Result;

/// The result of resolving the key at a cursor.
pub(crate) enum Resolved {
    /// The cursor stands on the version to show.
    Shown,
    /// The cursor stands on the newest operand to show, which needs what lies beneath it.
    Operand,
    /// The key is deleted. The cursor still stands on a version of the key.
    Deleted,
    /// No version is old enough. The cursor has left the key: it stands on the next key, or past
    /// the end.
    Passed,
}

impl Resolved {
    #[inline]
    fn of(kind: OpKind) -> Resolved {
        match kind.effect() {
            Effect::Value => Resolved::Shown,
            Effect::Absent => Resolved::Deleted,
            Effect::Operand => Resolved::Operand,
        }
    }
}

/// Resolves a key for a reader at `point`. The cursor stands on the newest version of the key,
/// which has this sequence number and kind. After `Passed`, `scratch` holds the key. Otherwise the
/// content of `scratch` has no meaning.
#[inline(always)]
pub(crate) fn resolve<C: Cursor>(
    cursor: &mut C,
    (seq, kind): (Lsn, OpKind),
    point: Lsn,
    scratch: &mut Vec<u8>,
) -> Result<Resolved> {
    preempt();
    reached_if(Reach::ReadAtPointInScan, || seq == point);
    debug_assert!(
        cursor.entry().is_some_and(|entry| (entry.seq, entry.kind) == (seq, kind)),
        "the cursor has left the version that is judged"
    );
    if seq < point { Ok(Resolved::of(kind)) } else { resolve_older(cursor, point, scratch) }
}

/// Walks through the older versions of the current key.
#[cold]
fn resolve_older<C: Cursor>(cursor: &mut C, point: Lsn, scratch: &mut Vec<u8>) -> Result<Resolved> {
    debug_assert!(cursor.key().is_some(), "a cursor without an entry is on no key");
    scratch.clear();
    scratch.extend_from_slice(cursor.key().unwrap_or_default());
    loop {
        cursor.next_below(point)?;
        match cursor.entry() {
            Some(entry) if entry.key == scratch.as_slice() => {
                if entry.seq < point {
                    return Ok(Resolved::of(entry.kind));
                }
            }
            _ => return Ok(Resolved::Passed),
        }
    }
}
