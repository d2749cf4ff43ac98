//! Options of single calls. They double no method: `with(options)` lends a handle that offers what they apply to.

use crate::engine::{Engine, Keyspace};
use crate::options::{ReadOptions, WriteOptions};
use crate::read::ReadAt;
use crate::reads::Reads;
use crate::sealed::Sealed;
use crate::writes::Writes;
use std::sync::Arc;

/// Options of single calls, which [`Db::with`](crate::Db::with) and [`Family::with`](crate::Family::with) take:
/// [`ReadOptions`] lend [`Reads`], [`WriteOptions`] lend [`Writes`].
pub trait CallOptions: Sealed {
    /// What offers the calls.
    type Handle<'a>;

    /// Lends the handle.
    #[doc(hidden)]
    fn on(self, lender: Lender<'_>) -> Self::Handle<'_>;
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

    #[inline]
    fn on(self, lender: Lender<'_>) -> Reads<'_> {
        let newest = ReadAt::newest(lender.engine, lender.family);
        Reads::at_place(ReadAt { options: self, ..newest })
    }
}

impl Sealed for WriteOptions {}

impl CallOptions for WriteOptions {
    type Handle<'a> = Writes<'a>;

    #[inline]
    fn on(self, lender: Lender<'_>) -> Writes<'_> {
        Writes { engine: lender.engine, family: lender.family, options: self }
    }
}
