//! Options of single calls. They double no method: `with(options)` lends a handle that offers what
//! they apply to.

use crate::engine::{Engine, Keyspace};
use crate::options::{ReadOptions, WriteOptions};
use crate::read::ReadAt;
use crate::reads::Reads;
use crate::sealed::Sealed;
use crate::writes::{Writes, WritesFamily};
use std::sync::Arc;

/// Options of single calls, which [`Db::with`](crate::Db::with) and
/// [`Family::with`](crate::Family::with) take: [`ReadOptions`] lend [`Reads`], [`WriteOptions`]
/// lend [`Writes`] and [`WritesFamily`].
pub trait CallOptions: Sealed {
    /// What offers the calls of a database.
    type Handle<'a>;

    /// What offers the calls of one family.
    type Part<'a>;

    /// Lends the handle of a database.
    #[doc(hidden)]
    fn on(self, lender: Lender<'_>) -> Self::Handle<'_>;

    /// Lends the handle of a family.
    #[doc(hidden)]
    fn on_family(self, lender: Lender<'_>) -> Self::Part<'_>;
}

/// The family that options are to apply to.
#[derive(Clone, Copy)]
pub struct Lender<'a> {
    pub(crate) engine: &'a Arc<Engine>,
    pub(crate) family: &'a Arc<Keyspace>,
}

impl Sealed for ReadOptions {}

impl CallOptions for ReadOptions {
    type Handle<'a> = Reads<'a>;
    type Part<'a> = Reads<'a>;

    #[inline]
    fn on(self, lender: Lender<'_>) -> Reads<'_> {
        self.on_family(lender)
    }

    #[inline]
    fn on_family(self, lender: Lender<'_>) -> Reads<'_> {
        let newest = ReadAt::newest(lender.engine, lender.family);
        Reads::at_place(ReadAt { options: self, ..newest })
    }
}

impl Sealed for WriteOptions {}

impl CallOptions for WriteOptions {
    type Handle<'a> = Writes<'a>;
    type Part<'a> = WritesFamily<'a>;

    #[inline]
    fn on(self, lender: Lender<'_>) -> Writes<'_> {
        Writes { default: self.on_family(lender) }
    }

    #[inline]
    fn on_family(self, lender: Lender<'_>) -> WritesFamily<'_> {
        WritesFamily { engine: lender.engine, family: lender.family, options: self }
    }
}
