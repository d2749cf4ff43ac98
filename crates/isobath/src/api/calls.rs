//! Options of single calls. `with(options)` returns a handle that has the methods to which the
//! options apply, so no method needs a second version that takes options.

use crate::db::Owner;
use crate::engine::{Engine, Keyspace};
use crate::options::{ReadOptions, TransactionOptions, WriteOptions};
use crate::read::ReadAt;
use crate::reads::Reads;
use crate::sealed::Sealed;
use crate::transaction::Transactions;
use crate::writes::{Writes, WritesFamily};
use std::sync::Arc;

/// Options of single calls, for [`Db::with`](crate::Db::with). [`ReadOptions`] give a [`Reads`],
/// [`WriteOptions`] a [`Writes`], [`TransactionOptions`] a [`Transactions`].
pub trait CallOptions: Sealed {
    /// The handle for calls on a database.
    type Handle<'a>;

    /// Makes the handle for a database.
    #[doc(hidden)]
    fn on(self, lender: Lender<'_>) -> Self::Handle<'_>;
}

/// Options of single calls on one family, for [`Family::with`](crate::Family::with).
/// [`ReadOptions`] give a [`Reads`], [`WriteOptions`] a [`WritesFamily`]. A transaction belongs to
/// no family, and is begun at the database:
///
/// ```compile_fail,E0277
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("/db")?;
/// let users = db.family("users")?;
/// let tx = users.with(isobath::TransactionOptions::new()).begin();
/// # Ok(())
/// # }
/// ```
pub trait FamilyCallOptions: CallOptions {
    /// The handle for calls on one family.
    type Part<'a>;

    /// Makes the handle for a family.
    #[doc(hidden)]
    fn on_family(self, lender: Lender<'_>) -> Self::Part<'_>;
}

/// The engine and the family to which options apply.
#[derive(Clone, Copy)]
pub struct Lender<'a> {
    pub(crate) owner: &'a Arc<Owner>,
    pub(crate) engine: &'a Arc<Engine>,
    pub(crate) family: &'a Arc<Keyspace>,
}

impl Sealed for ReadOptions {}

impl CallOptions for ReadOptions {
    type Handle<'a> = Reads<'a>;

    #[inline]
    fn on(self, lender: Lender<'_>) -> Reads<'_> {
        self.on_family(lender)
    }
}

impl FamilyCallOptions for ReadOptions {
    type Part<'a> = Reads<'a>;

    #[inline]
    fn on_family(self, lender: Lender<'_>) -> Reads<'_> {
        let newest = ReadAt::newest(lender.engine, lender.family);
        Reads::at_place(ReadAt { options: self, ..newest })
    }
}

impl Sealed for WriteOptions {}

impl CallOptions for WriteOptions {
    type Handle<'a> = Writes<'a>;

    #[inline]
    fn on(self, lender: Lender<'_>) -> Writes<'_> {
        Writes { default: self.on_family(lender) }
    }
}

impl FamilyCallOptions for WriteOptions {
    type Part<'a> = WritesFamily<'a>;

    #[inline]
    fn on_family(self, lender: Lender<'_>) -> WritesFamily<'_> {
        WritesFamily { engine: lender.engine, family: lender.family, options: self }
    }
}

impl Sealed for TransactionOptions {}

impl CallOptions for TransactionOptions {
    type Handle<'a> = Transactions<'a>;

    #[inline]
    fn on(self, lender: Lender<'_>) -> Transactions<'_> {
        Transactions { owner: lender.owner, options: self }
    }
}
