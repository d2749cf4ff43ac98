//! What a reader at a read point finds of a key.

use super::{Cursor, Effect, Lsn, OpKind};
use crate::env::{Reach, preempt, reached_if};
use crate::error::Result;

/// What resolving the key that a cursor stands on has led to.
pub(crate) enum Resolved {
    /// The cursor stands on the version to show.
    Shown,
    /// Deleted. The cursor is still on a version of the key.
    Deleted,
    /// No version is old enough. The cursor has left the key: it is on the next, or past the end.
    Passed,
}

impl Resolved {
    #[inline]
    fn of(kind: OpKind) -> Resolved {
        match kind.effect() {
            Effect::Value => Resolved::Shown,
            Effect::Absent => Resolved::Deleted,
        }
    }
}

/// Resolves the key whose newest version `cursor` stands on, of this sequence and kind, for a
/// reader at `point`. After `Passed` the key is in `scratch`, whose content means nothing
/// otherwise.
#[inline(always)]
pub(crate) fn resolve<C: Cursor>(
    cursor: &mut C,
    (seq, kind): (Lsn, OpKind),
    point: Lsn,
    scratch: &mut Vec<u8>,
) -> Result<Resolved> {
    preempt();
    reached_if(Reach::ReadAtPointInScan, || seq == point);
    if seq < point { Ok(Resolved::of(kind)) } else { resolve_older(cursor, point, scratch) }
}

/// Walks down the versions of the current key.
#[cold]
fn resolve_older<C: Cursor>(cursor: &mut C, point: Lsn, scratch: &mut Vec<u8>) -> Result<Resolved> {
    scratch.clear();
    scratch.extend_from_slice(cursor.key().unwrap_or_default());
    loop {
        cursor.next()?;
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
