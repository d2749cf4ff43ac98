//! What a transaction reads in order: the same methods as on every other handle, with its own
//! writes in them. Iterators borrow the transaction, so it cannot be committed while one is open.

use super::{Transaction, TransactionFamily};
use crate::error::Result;
use crate::family::Family;
use crate::iter::{Cursor, Range};
use crate::key_range::{KeyRange, bounds_of};
use crate::pinned::Value;
use crate::read::ScanBounds;
use crate::reads::forward;
use crate::sealed::Sealed;
use crate::transact::{Opened, Way};

impl<'a> TransactionFamily<'a> {
    fn scan(&self, bounds: &ScanBounds) -> Result<Opened<'a>> {
        let (family, engine) = (self.family()?, self.tx.engine());
        self.tx.enter()?.scan(engine, family, bounds, self.options)
    }

    fn scan_range(&self, range: impl KeyRange) -> Range<'a> {
        let bounds = bounds_of(range);
        Range::in_transaction(self.scan(&bounds), bounds)
    }

    fn scan_cursor(&self, range: impl KeyRange) -> Result<Cursor<'a>> {
        let bounds = bounds_of(range);
        Cursor::in_transaction(self.scan(&bounds)?, &bounds)
    }

    fn scan_count(&self, range: impl KeyRange) -> Result<u64> {
        let (family, engine) = (self.family()?, self.tx.engine());
        let bounds = bounds_of(range);
        self.tx.enter()?.count(engine, family, &bounds, self.options)
    }

    pub(super) fn step_pop(
        &self,
        way: Way,
        range: impl KeyRange,
    ) -> Result<Option<(Value, Value)>> {
        let (family, engine) = (self.family()?, self.tx.engine());
        self.tx.enter()?.pop(engine, family, way, &bounds_of(range), self.options)
    }

    fn part<'b>(&'b self, family: &'b Family) -> TransactionFamily<'b> {
        TransactionFamily { options: self.options, ..self.tx.of(family) }
    }
}

impl Transaction {
    fn part<'b>(&'b self, family: &'b Family) -> TransactionFamily<'b> {
        self.of(family)
    }
}

/// Expands to the methods that read in order. `$part` is the part of the transaction that is read,
/// and `$life` how long the transaction is borrowed.
macro_rules! scans {
    ([$($generic:lifetime)?] $type:ty, $life:lifetime, $this:ident => $part:expr) => {
        impl$(<$generic>)? $type {
            /// The smallest key and its value.
            pub fn first(&self) -> $crate::Result<Option<($crate::Value, $crate::Value)>> {
                self.iter().next().transpose()
            }

            /// The largest key and its value.
            pub fn last(&self) -> $crate::Result<Option<($crate::Value, $crate::Value)>> {
                self.iter().next_back().transpose()
            }

            /// The number of keys within `range`. It walks over all of them, and reads no value.
            pub fn count(&$this, range: impl $crate::KeyRange) -> $crate::Result<u64> {
                $part.scan_count(range)
            }

            /// All keys with their values.
            pub fn iter(&self) -> $crate::Range<$life> {
                self.range(..)
            }

            /// The keys within `range` with their values, those that the transaction has written
            /// included: as it is now, not with what it writes while the range is open. If the
            /// family cannot be read, the first item is the error.
            ///
            /// The range borrows the transaction, which cannot be committed before the range is
            /// dropped. What the range passes counts as read, gaps between keys included.
            pub fn range(&$this, range: impl $crate::KeyRange) -> $crate::Range<$life> {
                $part.scan_range(range)
            }

            /// The keys that begin with `prefix`, with their values, as for `range`.
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> $crate::Range<$life> {
                self.range($crate::Prefix(prefix))
            }

            /// A cursor over `range`. It borrows the transaction, as a range does.
            pub fn cursor(
                &$this,
                range: impl $crate::KeyRange,
            ) -> $crate::Result<$crate::Cursor<$life>> {
                $part.scan_cursor(range)
            }
        }
    };
}

scans!([] Transaction, '_, self => self.default_part());
scans!(['a] TransactionFamily<'a>, 'a, self => self);

impl Sealed for Transaction {}
impl Sealed for TransactionFamily<'_> {}

forward!(Transaction => TransactionFamily);
forward!(TransactionFamily<'_> => TransactionFamily);
