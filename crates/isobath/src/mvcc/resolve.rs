//! What a reader at a read point finds for a key.

use super::expiry::lives_at;
use super::{Cursor, Effect, Lsn, Moment, OpKind};
use crate::env::{Reach, preempt, reached_if};
use crate::error::Result;

/// The result of resolving the key at a cursor.
pub(crate) enum Resolved {
    /// The cursor stands on the version to show.
    Shown,
    /// The cursor stands on the version to show, whose value ends later.
    Expiring,
    /// The cursor stands on the version to show, whose value lies in a blob file.
    Separated,
    /// The cursor stands on the newest operand to show, which needs what lies beneath it.
    Operand,
    /// The key is deleted. The cursor still stands on a version of the key.
    Deleted,
    /// The cursor stands on the version to show, whose value has ended.
    Ended,
    /// No version is old enough. The cursor has left the key: it stands on the next key, or past
    /// the end.
    Passed,
}

impl Resolved {
    #[inline]
    fn of<C: Cursor>(cursor: &C, kind: OpKind, unix_ms: u64) -> Resolved {
        match kind.effect() {
            Effect::Value => Resolved::Shown,
            Effect::Separated => Resolved::Separated,
            Effect::Absent => Resolved::Deleted,
            Effect::Operand => Resolved::Operand,
            Effect::Expiring => Resolved::of_expiring(cursor, unix_ms),
        }
    }

    #[cold]
    fn of_expiring<C: Cursor>(cursor: &C, unix_ms: u64) -> Resolved {
        let lives = cursor.entry().is_some_and(|entry| lives_at(entry.value, unix_ms));
        reached_if(Reach::ExpiredInScan, || !lives);
        if lives { Resolved::Expiring } else { Resolved::Ended }
    }
}

/// Resolves a key for a reader at a moment. The cursor stands on the newest version of the key,
/// which has this sequence number and kind. After `Passed`, `scratch` holds the key. Otherwise the
/// content of `scratch` has no meaning.
#[inline(always)]
pub(crate) fn resolve<C: Cursor>(
    cursor: &mut C,
    (seq, kind): (Lsn, OpKind),
    at: Moment,
    scratch: &mut Vec<u8>,
) -> Result<Resolved> {
    preempt();
    reached_if(Reach::ReadAtPointInScan, || seq == at.point);
    debug_assert!(
        cursor.entry().is_some_and(|entry| (entry.seq, entry.kind) == (seq, kind)),
        "the cursor has left the version that is judged"
    );
    if seq < at.point {
        return Ok(Resolved::of(cursor, kind, at.unix_ms));
    }
    resolve_older(cursor, at, scratch)
}

/// Walks through the older versions of the current key.
#[cold]
fn resolve_older<C: Cursor>(cursor: &mut C, at: Moment, scratch: &mut Vec<u8>) -> Result<Resolved> {
    let Moment { point, unix_ms } = at;
    debug_assert!(cursor.key().is_some(), "a cursor without an entry is on no key");
    scratch.clear();
    scratch.extend_from_slice(cursor.key().unwrap_or_default());
    loop {
        cursor.next_below(point)?;
        match cursor.entry() {
            Some(entry) if entry.key == scratch.as_slice() => {
                if entry.seq < point {
                    let kind = entry.kind;
                    return Ok(Resolved::of(cursor, kind, unix_ms));
                }
            }
            _ => return Ok(Resolved::Passed),
        }
    }
}
