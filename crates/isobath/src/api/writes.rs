//! The methods that write, written once: on [`Db`](crate::Db) (its default family),
//! [`Family`](crate::Family), [`Writes`], [`WritesFamily`], [`Batch`](crate::Batch),
//! [`BatchFamily`](crate::BatchFamily), [`Transaction`](crate::Transaction) and
//! [`TransactionFamily`](crate::TransactionFamily).

use crate::batch::Batch;
use crate::engine::{Engine, Keyspace};
use crate::error::Result;
use crate::format::OpKind;
use crate::key_range::span_within;
use crate::options::Expiry;
use crate::options::WriteOptions;
use crate::read::ScanBounds;
use crate::steps::steps;
use crate::stream::stream_writes;
use crate::write::{self, Commit, StreamSink};
use std::borrow::BorrowMut;
use std::io::Read;
use std::sync::Arc;

/// Writes with given options: [`Db::with`](crate::Db::with) returns it for [`WriteOptions`]. Single
/// writes go to the default family; a batch goes to the families it names. It is for one call or
/// for many. Copying it costs nothing.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// use isobath::{Batch, WriteOptions};
/// # let db = isobath::Options::in_memory().open("writes")?;
/// db.with(WriteOptions::sync()).put("key", "survives power loss")?;
/// let careful = db.with(WriteOptions::sync());
/// careful.delete("key")?;
/// careful.write(Batch::new().put("a", "1").put("b", "2"))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Writes<'a> {
    pub(crate) default: WritesFamily<'a>,
}

impl Writes<'_> {
    /// Like [`Db::write`](crate::Db::write), with these options.
    pub fn write(&self, mut batch: impl BorrowMut<Batch>) -> Result<Commit> {
        let WritesFamily { engine, family, options } = self.default;
        let parts = batch.borrow_mut().checked_parts(engine, family)?;
        write::commit_batch(engine, family, parts, options)
    }

    #[inline]
    fn operate(&self, kind: OpKind, key: &[u8], value: &[u8]) -> Result<Commit> {
        self.default.operate(kind, key, value)
    }

    fn put_read(&self, key: &[u8], value: &mut dyn Read) -> Result<Commit> {
        self.default.put_read(key, value)
    }

    fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<Commit> {
        self.default.put_expiring(key, value, expiry)
    }

    fn delete_within(&self, bounds: &ScanBounds) -> Result<Commit> {
        self.default.delete_within(bounds)
    }
}

impl std::fmt::Debug for Writes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Writes({:?})", self.default.options)
    }
}

/// Writes to one family with given options: [`Family::with`](crate::Family::with) returns it for
/// [`WriteOptions`].
///
/// It does not take a batch, because a batch names its families itself: name them with
/// [`Batch::of`], and commit the batch with [`Writes::write`].
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("writes of a family")?;
/// # let users = db.family("users")?;
/// users.with(isobath::WriteOptions::sync()).put("u1", "Ada")?;
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0599
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("writes of a family")?;
/// # let users = db.family("users")?;
/// users.with(isobath::WriteOptions::sync()).write(isobath::Batch::new())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct WritesFamily<'a> {
    pub(crate) engine: &'a Arc<Engine>,
    pub(crate) family: &'a Arc<Keyspace>,
    pub(crate) options: WriteOptions,
}

impl WritesFamily<'_> {
    #[inline]
    fn operate(&self, kind: OpKind, key: &[u8], value: &[u8]) -> Result<Commit> {
        if kind.is_operand() {
            write::check_merges(self.engine, self.family, key)?;
        }
        write::commit_one(self.engine, self.family, kind, key, value, self.options)
    }

    pub(crate) fn put_read(&self, key: &[u8], value: &mut dyn Read) -> Result<Commit> {
        let sink = StreamSink::for_key(self.engine, self.family, key)?;
        let written = write::write_all_of(sink, value)?;
        write::commit_streamed(self.engine, self.family, (key, written), self.options)
    }

    pub(crate) fn put_expiring(&self, key: &[u8], value: &[u8], expiry: Expiry) -> Result<Commit> {
        write::commit_expiring(self.engine, self.family, (key, value), expiry, self.options)
    }

    pub(crate) fn delete_within(&self, bounds: &ScanBounds) -> Result<Commit> {
        let span = span_within(bounds)?;
        let span = span.as_ref().map(|(start, end)| (&**start, &**end));
        write::commit_range(self.engine, self.family, span, self.options)
    }
}

impl std::fmt::Debug for WritesFamily<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WritesFamily({:?}, {:?})", self.family.name(), self.options)
    }
}

/// Expands to the methods that write. `$this.operate(kind, key, value)` does the write.
macro_rules! writes {
    ($type:ty, $this:ident : $receiver:ty => $answer:ty) => {
        impl $type {
            /// Sets `key` to `value`.
            #[inline]
            pub fn put(
                $this: $receiver,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> $answer {
                $this.operate($crate::format::OpKind::Put, key.as_ref(), value.as_ref())
            }

            /// Sets `key` to `value` until a moment, or for so long from now on: a
            /// [`Duration`](std::time::Duration), a [`SystemTime`](std::time::SystemTime) or an
            /// [`Expiry`]($crate::Expiry). The family's
            /// [`ttl`]($crate::FamilyOptions::ttl) does not count.
            ///
            /// # Errors
            ///
            /// [`ErrorKind::InvalidArgument`]($crate::ErrorKind::InvalidArgument) for a time to
            /// live of zero, a moment before 1970, and one beyond all time.
            pub fn put_ttl(
                $this: $receiver,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                expiry: impl Into<$crate::Expiry>,
            ) -> $answer {
                $this.put_expiring(key.as_ref(), value.as_ref(), expiry.into())
            }

            /// Removes `key`. It is not an error if the key does not exist.
            #[inline]
            pub fn delete($this: $receiver, key: impl AsRef<[u8]>) -> $answer {
                $this.operate($crate::format::OpKind::Delete, key.as_ref(), &[])
            }
        }
    };
}
pub(crate) use writes;

/// Expands to the method that merges. `$this.operate(kind, key, operand)` does it.
macro_rules! merges {
    ($type:ty, $this:ident : $receiver:ty => $answer:ty) => {
        impl $type {
            /// Adds `operand` to `key`. From then on the value of the key is what the family's
            /// merge operator makes of the value before and of the operand. Nothing is read, and
            /// two merges never conflict with one another.
            ///
            /// The family needs an operator:
            /// [`FamilyOptions::merge_operator`]($crate::FamilyOptions::merge_operator).
            ///
            /// # Errors
            ///
            /// [`ErrorKind::InvalidArgument`]($crate::ErrorKind::InvalidArgument) if the family has
            /// none, and [`ErrorKind::MergeFailed`]($crate::ErrorKind::MergeFailed) if the database
            /// was opened without it. What the operator says of this operand, reads tell.
            #[inline]
            pub fn merge(
                $this: $receiver,
                key: impl AsRef<[u8]>,
                operand: impl AsRef<[u8]>,
            ) -> $answer {
                $this.operate($crate::format::OpKind::Merge, key.as_ref(), operand.as_ref())
            }
        }
    };
}
pub(crate) use merges;

/// Expands to the methods that delete ranges of keys. `$this.delete_within(bounds)` does it.
macro_rules! range_deletes {
    ($type:ty, $this:ident : $receiver:ty => $answer:ty) => {
        impl $type {
            /// Removes all keys within `range`, those that are there and no others, in the same
            /// time however many there are. Every kind of range is taken, also without ends. A
            /// range that is turned round, whose end is below its start, is an error; one that
            /// holds no key otherwise deletes nothing.
            ///
            /// Readers with a snapshot or an iterator from before go on seeing the keys. The space
            /// is given back by compactions.
            pub fn delete_range($this: $receiver, range: impl $crate::KeyRange) -> $answer {
                $this.delete_within(&$crate::key_range::bounds_of(range))
            }

            /// Removes all keys that begin with `prefix`. An empty prefix removes all keys.
            pub fn delete_prefix($this: $receiver, prefix: impl AsRef<[u8]>) -> $answer {
                $this.delete_range($crate::Prefix(prefix))
            }
        }
    };
}
pub(crate) use range_deletes;

range_deletes!(Writes<'_>, self: &Self => Result<Commit>);
range_deletes!(WritesFamily<'_>, self: &Self => Result<Commit>);

merges!(Writes<'_>, self: &Self => Result<Commit>);
merges!(WritesFamily<'_>, self: &Self => Result<Commit>);

writes!(Writes<'_>, self: &Self => Result<Commit>);
writes!(WritesFamily<'_>, self: &Self => Result<Commit>);
stream_writes!(Writes<'_>, self: &Self);
stream_writes!(WritesFamily<'_>, self: &Self);
steps!(Writes<'_>, self => self.default, Option<Commit>);
steps!(WritesFamily<'_>, self => self, Option<Commit>);
