//! What an operation does to its key. This is the only file that distinguishes kinds.
//!
//! Each question that the engine asks about a kind is a function here. Each function matches every
//! kind, so a new kind does not compile until every question is answered. No other file compares
//! kinds or matches on some of them (`xtask/src/tidy/kinds.rs`).

use crate::error::{DecodeError, Decoded};

/// The kind of an operation, as stored in log records, memtables and tables.
///
/// Tables store four bits of it, so there can be 16 kinds. Values 2 and 10 to 15 are free; 2 was
/// meant for a single delete (`docs/internals/deletes.md`). A newer version wrote a file that
/// holds a kind unknown to this version; the file is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum OpKind {
    /// From here on the key has no value.
    Delete = 0,
    /// The key has the value that follows.
    Put = 1,
    /// From here on no key from the operation's key on, and below its value, has a value. An empty
    /// value is no end. It stands in the log alone: memtables and tables keep spans apart from the
    /// versions of keys.
    DeleteRange = 3,
    /// The key has the value that the family's merge operator makes of the value before and of the
    /// operand that follows.
    Merge = 4,
    /// The key has a value until a moment. What is stored is that moment, then the value: see
    /// [`super::expiry`].
    PutExpiring = 5,
    /// The key has a value that lies in a blob file. What is stored is its address: see
    /// `format/address.rs`. It stands in tables alone.
    PutSeparated = 6,
    /// The same of a value that ends. What is stored is the moment, then the address.
    PutExpiringSeparated = 7,
    /// The key has a value that has a blob file of its own. What is stored is its address: see
    /// `format/stream.rs`. It stands in the log, in memtables and in tables.
    PutStreamed = 8,
    /// The same of a value that ends. What is stored is the moment, then the address.
    PutExpiringStreamed = 9,
}

/// What an operation means to a reader for which it is the newest visible operation of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The key has the value stored with the operation.
    Value,
    /// The key has no value.
    Absent,
    /// The key has a value if the moment that is stored with the operation has not come.
    Expiring,
    /// The key has the value that its operands make of what lies beneath them. The operation has
    /// the newest of these operands.
    Operand,
    /// The key has the value that lies where the operation says.
    Separated,
}

impl OpKind {
    /// The kind of a version stored as `number`; `None` if this version knows no such kind of
    /// version.
    #[inline(always)]
    pub(crate) fn known(number: u64) -> Option<OpKind> {
        match number {
            0 => Some(OpKind::Delete),
            1 => Some(OpKind::Put),
            4 => Some(OpKind::Merge),
            5 => Some(OpKind::PutExpiring),
            6 => Some(OpKind::PutSeparated),
            7 => Some(OpKind::PutExpiringSeparated),
            8 => Some(OpKind::PutStreamed),
            9 => Some(OpKind::PutExpiringStreamed),
            _ => None,
        }
    }

    /// Decodes the kind of an operation in the log.
    #[inline]
    pub(crate) fn decode(number: u8) -> Decoded<OpKind> {
        match number {
            3 => Ok(OpKind::DeleteRange),
            6 | 7 => Err(OpKind::unknown(number)),
            _ => OpKind::known(u64::from(number)).ok_or_else(|| OpKind::unknown(number)),
        }
    }

    /// The error for a stored kind that this version does not know.
    #[cold]
    pub(crate) fn unknown(number: u8) -> DecodeError {
        DecodeError::newer_format(format!("operation kind {number} is unknown to this version"))
    }

    /// The name in dumps.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OpKind::Delete => "delete",
            OpKind::Put => "put",
            OpKind::DeleteRange => "range delete",
            OpKind::Merge => "merge",
            OpKind::PutExpiring => "put with expiry",
            OpKind::PutSeparated => "put, separated",
            OpKind::PutExpiringSeparated => "put with expiry, separated",
            OpKind::PutStreamed => "put, streamed",
            OpKind::PutExpiringStreamed => "put with expiry, streamed",
        }
    }

    /// What the operation means to a reader that sees it first.
    #[inline(always)]
    pub(crate) fn effect(self) -> Effect {
        match self {
            OpKind::Delete | OpKind::DeleteRange => Effect::Absent,
            OpKind::Put => Effect::Value,
            OpKind::Merge => Effect::Operand,
            OpKind::PutExpiring | OpKind::PutExpiringSeparated | OpKind::PutExpiringStreamed => {
                Effect::Expiring
            }
            OpKind::PutSeparated | OpKind::PutStreamed => Effect::Separated,
        }
    }

    /// True if a value is stored with the key.
    #[inline(always)]
    pub(crate) fn has_value(self) -> bool {
        match self {
            OpKind::Delete => false,
            OpKind::Put
            | OpKind::DeleteRange
            | OpKind::Merge
            | OpKind::PutExpiring
            | OpKind::PutSeparated
            | OpKind::PutExpiringSeparated
            | OpKind::PutStreamed
            | OpKind::PutExpiringStreamed => true,
        }
    }

    /// True if the key of the operation may have a value from then on.
    #[inline(always)]
    pub(crate) fn puts_value(self) -> bool {
        match self {
            OpKind::Put
            | OpKind::Merge
            | OpKind::PutExpiring
            | OpKind::PutSeparated
            | OpKind::PutExpiringSeparated
            | OpKind::PutStreamed
            | OpKind::PutExpiringStreamed => true,
            OpKind::Delete | OpKind::DeleteRange => false,
        }
    }

    /// True if the key gets the value that is stored with it, and that stays: a put that says
    /// nothing of an end.
    #[inline(always)]
    pub(crate) fn is_lasting_put(self) -> bool {
        match self {
            OpKind::Put => true,
            OpKind::Delete
            | OpKind::DeleteRange
            | OpKind::Merge
            | OpKind::PutExpiring
            | OpKind::PutSeparated
            | OpKind::PutExpiringSeparated
            | OpKind::PutStreamed
            | OpKind::PutExpiringStreamed => false,
        }
    }

    /// True if the key gets a value that does not depend on what lies beneath, whether it ends or
    /// not.
    #[inline(always)]
    pub(crate) fn is_put(self) -> bool {
        match self {
            OpKind::Put
            | OpKind::PutExpiring
            | OpKind::PutSeparated
            | OpKind::PutExpiringSeparated
            | OpKind::PutStreamed
            | OpKind::PutExpiringStreamed => true,
            OpKind::Delete | OpKind::DeleteRange | OpKind::Merge => false,
        }
    }

    /// True if what is stored says when the value ends.
    #[inline(always)]
    pub(crate) fn is_expiring(self) -> bool {
        match self {
            OpKind::PutExpiring | OpKind::PutExpiringSeparated | OpKind::PutExpiringStreamed => {
                true
            }
            OpKind::Delete
            | OpKind::Put
            | OpKind::DeleteRange
            | OpKind::Merge
            | OpKind::PutSeparated
            | OpKind::PutStreamed => false,
        }
    }

    /// True if what is stored says where the value lies, instead of the value: among others in a
    /// blob file, or in one of its own.
    #[inline(always)]
    pub(crate) fn is_apart(self) -> bool {
        self.is_separated() || self.is_streamed()
    }

    /// True if the value lies among others in a blob file.
    #[inline(always)]
    pub(crate) fn is_separated(self) -> bool {
        match self {
            OpKind::PutSeparated | OpKind::PutExpiringSeparated => true,
            OpKind::Delete
            | OpKind::Put
            | OpKind::DeleteRange
            | OpKind::Merge
            | OpKind::PutExpiring
            | OpKind::PutStreamed
            | OpKind::PutExpiringStreamed => false,
        }
    }

    /// True if the value has a blob file of its own.
    #[inline(always)]
    pub(crate) fn is_streamed(self) -> bool {
        match self {
            OpKind::PutStreamed | OpKind::PutExpiringStreamed => true,
            OpKind::Delete
            | OpKind::Put
            | OpKind::DeleteRange
            | OpKind::Merge
            | OpKind::PutExpiring
            | OpKind::PutSeparated
            | OpKind::PutExpiringSeparated => false,
        }
    }

    /// The kind of a put that says nothing of an end, once its value gets one; `None` of any other
    /// operation, and of those that no commit has.
    #[inline(always)]
    pub(crate) fn expiring(self) -> Option<OpKind> {
        match self {
            OpKind::Put => Some(OpKind::PutExpiring),
            OpKind::PutStreamed => Some(OpKind::PutExpiringStreamed),
            OpKind::Delete
            | OpKind::DeleteRange
            | OpKind::Merge
            | OpKind::PutExpiring
            | OpKind::PutSeparated
            | OpKind::PutExpiringSeparated
            | OpKind::PutExpiringStreamed => None,
        }
    }

    /// The kind of the operation once its value lies in a blob file; `None` if it has no value that
    /// may lie there, or one that does.
    #[inline(always)]
    pub(crate) fn separated(self) -> Option<OpKind> {
        match self {
            OpKind::Put => Some(OpKind::PutSeparated),
            OpKind::PutExpiring => Some(OpKind::PutExpiringSeparated),
            OpKind::Delete
            | OpKind::DeleteRange
            | OpKind::Merge
            | OpKind::PutSeparated
            | OpKind::PutExpiringSeparated
            | OpKind::PutStreamed
            | OpKind::PutExpiringStreamed => None,
        }
    }

    /// The kind of the operation if its value is stored with it.
    pub(crate) fn joined(self) -> OpKind {
        match self {
            OpKind::PutSeparated | OpKind::PutStreamed => OpKind::Put,
            OpKind::PutExpiringSeparated | OpKind::PutExpiringStreamed => OpKind::PutExpiring,
            OpKind::Delete
            | OpKind::Put
            | OpKind::DeleteRange
            | OpKind::Merge
            | OpKind::PutExpiring => self,
        }
    }

    /// True if the operation is about a range of keys, not about one.
    #[inline(always)]
    pub(crate) fn is_span(self) -> bool {
        match self {
            OpKind::DeleteRange => true,
            OpKind::Delete
            | OpKind::Put
            | OpKind::Merge
            | OpKind::PutExpiring
            | OpKind::PutSeparated
            | OpKind::PutExpiringSeparated
            | OpKind::PutStreamed
            | OpKind::PutExpiringStreamed => false,
        }
    }

    /// True if the operation says nothing without what lies beneath it, unless that is known.
    #[inline(always)]
    pub(crate) fn is_operand(self) -> bool {
        match self {
            OpKind::Merge => true,
            OpKind::Delete
            | OpKind::Put
            | OpKind::DeleteRange
            | OpKind::PutExpiring
            | OpKind::PutSeparated
            | OpKind::PutExpiringSeparated
            | OpKind::PutStreamed
            | OpKind::PutExpiringStreamed => false,
        }
    }

    /// True if the operation only hides older versions. It serves no reader once there is no older
    /// version of its key. A slice counts such entries as its deletes.
    #[inline(always)]
    pub(crate) fn is_tombstone(self) -> bool {
        match self {
            OpKind::Delete | OpKind::DeleteRange => true,
            OpKind::Put
            | OpKind::Merge
            | OpKind::PutExpiring
            | OpKind::PutSeparated
            | OpKind::PutExpiringSeparated
            | OpKind::PutStreamed
            | OpKind::PutExpiringStreamed => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_number_is_that_of_its_kind_and_all_others_are_a_newer_format() {
        for number in 0..=u8::MAX {
            match OpKind::decode(number) {
                Ok(kind) => assert_eq!(kind as u8, number),
                Err(error) => {
                    assert!([2, 6, 7].contains(&number) || number > 9, "{number}");
                    assert!(error.is_newer_format(), "{number}");
                    let is_in_tables = number == 6 || number == 7;
                    assert_eq!(OpKind::known(number.into()).is_some(), is_in_tables);
                }
            }
        }
    }

    #[test]
    fn a_range_delete_is_no_kind_of_version() {
        assert_eq!(OpKind::decode(3).unwrap(), OpKind::DeleteRange);
        assert_eq!(OpKind::known(3), None);
        assert!((0..16).filter_map(OpKind::known).all(|kind| !kind.is_span()));
    }

    #[test]
    fn a_kind_that_shows_a_value_stores_one_and_is_no_tombstone() {
        for kind in (0..16).filter_map(OpKind::known) {
            let effects = [Effect::Value, Effect::Expiring, Effect::Separated];
            let shows_value = effects.contains(&kind.effect());
            assert!(!shows_value || (kind.has_value() && !kind.is_tombstone()), "{kind:?}");
            assert_eq!(kind.effect() == Effect::Absent, !kind.puts_value(), "{kind:?}");
            assert!(!kind.is_tombstone() || kind.effect() == Effect::Absent, "{kind:?}");
        }
    }

    #[test]
    fn a_streamed_kind_is_that_of_a_put_whose_value_moves_nowhere() {
        for kind in (0..16).filter_map(OpKind::known).filter(|kind| kind.is_streamed()) {
            assert!(kind.is_put() && kind.puts_value() && kind.has_value(), "{kind:?}");
            assert!(!kind.is_separated() && kind.separated().is_none() && kind.joined().is_put());
            assert!(OpKind::decode(kind as u8).is_ok_and(|decoded| decoded == kind));
        }
        for kind in (0..16).filter_map(OpKind::known) {
            let Some(ends) = kind.expiring() else { continue };
            assert!(ends.is_expiring() && !kind.is_expiring() && ends.expiring().is_none());
            assert_eq!((ends.is_streamed(), ends.is_put()), (kind.is_streamed(), kind.is_put()));
        }
    }

    #[test]
    fn a_separated_kind_is_that_of_a_put_and_says_the_same_of_its_key() {
        for kind in (0..16).filter_map(OpKind::known) {
            let separated = kind.separated();
            assert_eq!(separated.is_some(), kind.is_put() && !kind.is_apart(), "{kind:?}");
            if let Some(separated) = separated {
                assert!(separated.is_separated() && separated.joined() == kind);
                assert_eq!(separated.is_expiring(), kind.is_expiring());
                assert!(!separated.is_lasting_put(), "its value is not stored with it");
                assert!(separated.is_put() && separated.separated().is_none());
            }
            assert!(!kind.joined().is_apart());
            assert_eq!(kind.joined().is_expiring(), kind.is_expiring());
        }
    }
}
