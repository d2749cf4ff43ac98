//! The steps, written once: methods that read a key and write it or not, as one atomic operation.
//! On [`Db`](crate::Db), [`Family`](crate::Family), [`Writes`](crate::Writes) and [`WritesFamily`]
//! each is a small transaction of its own, which is run again when others change the key meanwhile.
//! On [`Transaction`](crate::Transaction) and [`TransactionFamily`](crate::TransactionFamily) it is
//! part of the transaction.

use crate::error::Result;
use crate::key_range::{KeyRange, bounds_of};
use crate::options::Expiry;
use crate::pinned::Value;
use crate::transact::{Way, fetch_update, pop, put_if, set_expiry, step};
use crate::write::Commit;
use crate::writes::WritesFamily;

impl WritesFamily<'_> {
    pub(crate) fn step_put_if(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<Option<Commit>> {
        let WritesFamily { engine, family, options } = *self;
        let (is_written, commit) =
            step(engine, family, key, options, |at| put_if(at, expected, value))?;
        Ok(is_written.then_some(commit))
    }

    pub(crate) fn step_fetch_update<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        mut update: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Value>> {
        let WritesFamily { engine, family, options } = *self;
        let (old, _) = step(engine, family, key, options, |at| fetch_update(at, &mut update))?;
        Ok(old)
    }

    pub(crate) fn step_set_expiry(&self, key: &[u8], expiry: Expiry) -> Result<bool> {
        let WritesFamily { engine, family, options } = *self;
        let (is_set, _) = step(engine, family, key, options, |at| set_expiry(at, expiry))?;
        Ok(is_set)
    }

    pub(crate) fn step_pop(
        &self,
        way: Way,
        range: impl KeyRange,
    ) -> Result<Option<(Value, Value)>> {
        let WritesFamily { engine, family, options } = *self;
        pop(engine, family, way, &bounds_of(range), options)
    }
}

/// Expands to the steps. `$part` is the [`WritesFamily`] or the part of a transaction that does
/// them.
macro_rules! steps {
    ($type:ty, $this:ident => $part:expr, $written:ty) => {
        impl $type {
            /// Sets `key` to `value` if its value is `expected`; `None` expects no value. Nothing
            /// comes between the comparison and the write. Tells whether it wrote. It writes as
            /// `put` does: the value ends as the family says. For another end, call this and
            /// `set_expiry` in one transaction.
            ///
            /// # Errors
            /// As those of a `put`; besides, what is written must fit into half of `write_buffer`
            /// ([`ErrorKind::TransactionTooLarge`](crate::ErrorKind::TransactionTooLarge)). In a
            /// transaction the commit fails if the value that was compared has ended by then.
            pub fn put_if(
                &$this,
                key: impl AsRef<[u8]>,
                expected: Option<&[u8]>,
                value: impl AsRef<[u8]>,
            ) -> $crate::Result<$written> {
                $part.step_put_if(key.as_ref(), expected, value.as_ref())
            }

            /// Replaces the value of `key` by what `update` makes of it, and returns the old value.
            /// If `update` returns `None`, the key is removed. Nothing comes between the read and
            /// the write. Outside a transaction `update` runs again if others change the key
            /// meanwhile, so it should have no other effects. It writes as `put` does: the new
            /// value ends as the family says, not when the old one would have. To keep that end,
            /// use `get_expiry` and `put_ttl` in a transaction.
            ///
            /// # Errors
            /// As those of `put_if`.
            pub fn fetch_update<V: AsRef<[u8]>>(
                &$this,
                key: impl AsRef<[u8]>,
                update: impl FnMut(Option<&[u8]>) -> Option<V>,
            ) -> $crate::Result<Option<$crate::Value>> {
                $part.step_fetch_update(key.as_ref(), update)
            }

            /// Gives the value of `key` another end, or none, and leaves the value as it is. False
            /// if the key has no value. Nothing comes between the read and the write, and to others
            /// it is a put. A value that has a file of its own, and no operands above it, is not
            /// read, and keeps its file; any other goes through memory, as by `put_if`.
            pub fn set_expiry(
                &$this,
                key: impl AsRef<[u8]>,
                expiry: impl Into<$crate::Expiry>,
            ) -> $crate::Result<bool> {
                $part.step_set_expiry(key.as_ref(), expiry.into())
            }

            /// Removes the smallest key within `range`, and returns it with its value; `None` if
            /// there is no key. Nothing comes between finding the key and removing it: of many
            /// callers, each gets another key, and no key is smaller at that moment. So a family
            /// can be a queue.
            ///
            /// In a transaction of the levels repeatable read and snapshot that moment is its read
            /// point: that others have put a smaller key since does not make its commit fail.
            ///
            /// # Errors
            /// If the value cannot be returned as a whole, the key stays, and so does each key
            /// behind it: read such a value by `get_reader`, and delete its key.
            pub fn pop_first(
                &$this,
                range: impl $crate::KeyRange,
            ) -> $crate::Result<Option<($crate::Key, $crate::Value)>> {
                $part.step_pop($crate::transact::Way::Forward, range)
            }

            /// Removes the largest key within `range`, and returns it with its value; `None` if
            /// there is no key. Like `pop_first` otherwise.
            pub fn pop_last(
                &$this,
                range: impl $crate::KeyRange,
            ) -> $crate::Result<Option<($crate::Key, $crate::Value)>> {
                $part.step_pop($crate::transact::Way::Backward, range)
            }
        }
    };
}
pub(crate) use steps;
