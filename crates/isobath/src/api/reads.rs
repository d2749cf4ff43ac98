//! The methods that read, written once: on [`Db`](crate::Db) (its default family), [`Family`],
//! [`Snapshot`](crate::Snapshot) (again its default family) and [`Reads`].

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::family::Family;
use crate::format::Lsn;
use crate::iter::{Cursor, Range};
use crate::key_range::KeyRange;
use crate::options::ReadOptions;
use crate::pinned::Value;
use crate::read::ReadAt;
use crate::sealed::Sealed;
use std::sync::Arc;

/// Reads of a family, by options: what [`Snapshot::of`](crate::Snapshot::of),
/// [`Snapshot::with`](crate::Snapshot::with), [`Db::with`](crate::Db::with) and [`Family::with`]
/// lend. Made for one call or kept for many: a copy costs nothing.
///
/// Those of a snapshot, and their copies and parts, all see its moment. Those of a database or a
/// family see at each call what is newest then: what belongs together is read through a snapshot.
#[derive(Clone, Copy)]
pub struct Reads<'a> {
    place: Place<'a>,
    engine: &'a Arc<Engine>,
}

/// Where to read.
#[derive(Clone, Copy)]
enum Place<'a> {
    At(ReadAt<'a>),
    /// The handle of another database, which each read refuses.
    Foreign(&'a Family, Option<Lsn>, ReadOptions),
}

impl<'a> Reads<'a> {
    #[inline]
    pub(crate) fn at_place(at: ReadAt<'a>) -> Reads<'a> {
        Reads { engine: at.engine, place: Place::At(at) }
    }

    #[inline]
    pub(crate) fn new(
        engine: &'a Arc<Engine>,
        family: &'a Family,
        point: Option<Lsn>,
        options: ReadOptions,
    ) -> Reads<'a> {
        let place = match family.of(engine) {
            Ok(family) => Place::At(ReadAt { engine, family, point, options }),
            Err(_) => Place::Foreign(family, point, options),
        };
        Reads { engine, place }
    }

    /// `family` by the same options: at the same moment if these are the reads of a snapshot,
    /// otherwise as it is at each call.
    pub fn of<'b>(&self, family: &'b Family) -> Reads<'b>
    where
        'a: 'b,
    {
        let (point, options) = match self.place {
            Place::At(at) => (at.point, at.options),
            Place::Foreign(_, point, options) => (point, options),
        };
        Reads::new(self.engine, family, point, options)
    }

    #[inline]
    fn at(&self) -> Result<ReadAt<'a>> {
        match self.place {
            Place::At(at) => Ok(at),
            Place::Foreign(family, ..) => Err(self.refuse(family)),
        }
    }

    #[cold]
    fn refuse(&self, family: &Family) -> Error {
        family.of(self.engine).err().expect("it is refused as before")
    }

    fn part<'b>(&'b self, family: &'b Family) -> Reads<'b> {
        self.of(family)
    }
}

impl std::fmt::Debug for Reads<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.place {
            Place::At(at) => write!(f, "Reads({:?}, {:?})", at.family.name(), at.options),
            Place::Foreign(family, ..) => write!(f, "Reads(foreign {family:?})"),
        }
    }
}

/// What can be read, for functions that take any of it: `fn load(from: &impl Readable, users:
/// &Family)`. Every method is also there without the trait, on each type. Only what a caller passes
/// decides whether two reads see one moment: a [`Snapshot`](crate::Snapshot) and its parts do, a
/// [`Db`](crate::Db) or a [`Family`] does not.
pub trait Readable: Sealed {
    /// The part of a family.
    type Of<'a>: Readable
    where
        Self: 'a;

    /// The part of `family`: of a snapshot, at its moment; of a database or a family, as it is at
    /// each call.
    fn of<'a>(&'a self, family: &'a Family) -> Self::Of<'a>;
    /// The value of `key`.
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>>;
    /// True if `key` has a value.
    fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool>;
    /// The values of several keys, in their order, all as of one moment.
    fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>>;
    /// The least key and its value.
    fn first(&self) -> Result<Option<(Value, Value)>>;
    /// The greatest key and its value.
    fn last(&self) -> Result<Option<(Value, Value)>>;
    /// The number of keys within `range`, counted one by one.
    fn count(&self, range: impl KeyRange) -> Result<u64>;
    /// All keys with their values.
    fn iter(&self) -> Range;
    /// The keys within `range` with their values.
    fn range(&self, range: impl KeyRange) -> Range;
    /// The keys that begin with `prefix`, with their values.
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range;
    /// A cursor over `range`.
    fn cursor(&self, range: impl KeyRange) -> Result<Cursor>;
}

/// Expands the methods that read, and the trait that forwards to them. `self.at()` says where to
/// read.
macro_rules! reads {
    ($type:ty) => {
        impl $type {
            /// The value of `key`.
            #[inline]
            pub fn get(&self, key: impl AsRef<[u8]>) -> $crate::Result<Option<$crate::Value>> {
                self.at()?.get(key.as_ref())
            }

            /// True if `key` has a value.
            #[inline]
            pub fn contains(&self, key: impl AsRef<[u8]>) -> $crate::Result<bool> {
                self.at()?.contains(key.as_ref())
            }

            /// The values of several keys, in their order, all as of one moment.
            pub fn multi_get<K: AsRef<[u8]>>(
                &self,
                keys: impl IntoIterator<Item = K>,
            ) -> $crate::Result<Vec<Option<$crate::Value>>> {
                self.at()?.multi_get(keys)
            }

            /// The least key and its value.
            pub fn first(&self) -> $crate::Result<Option<($crate::Value, $crate::Value)>> {
                self.iter().next().transpose()
            }

            /// The greatest key and its value.
            pub fn last(&self) -> $crate::Result<Option<($crate::Value, $crate::Value)>> {
                self.iter().next_back().transpose()
            }

            /// The number of keys within `range`, counted one by one. Touches no value.
            pub fn count(&self, range: impl $crate::KeyRange) -> $crate::Result<u64> {
                self.at()?.count(&$crate::key_range::bounds_of(range))
            }

            /// All keys with their values.
            pub fn iter(&self) -> $crate::Range {
                self.range(..)
            }

            /// The keys within `range` with their values. A family that cannot be read is the first
            /// item's error.
            pub fn range(&self, range: impl $crate::KeyRange) -> $crate::Range {
                $crate::Range::new(self.at(), $crate::key_range::bounds_of(range))
            }

            /// The keys that begin with `prefix`, with their values; errors as for `range`.
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> $crate::Range {
                self.range($crate::Prefix(prefix))
            }

            /// A cursor over `range`.
            pub fn cursor(&self, range: impl $crate::KeyRange) -> $crate::Result<$crate::Cursor> {
                $crate::Cursor::new(self.at()?, &$crate::key_range::bounds_of(range))
            }
        }

        impl $crate::sealed::Sealed for $type {}

        $crate::reads::forward!($type);
    };
}

/// The trait, by the methods of the same names.
macro_rules! forward {
    ($type:ty) => {
        impl $crate::Readable for $type {
            type Of<'a>
                = $crate::Reads<'a>
            where
                Self: 'a;

            fn of<'a>(&'a self, family: &'a $crate::Family) -> $crate::Reads<'a> {
                self.part(family)
            }
            fn get(&self, key: impl AsRef<[u8]>) -> $crate::Result<Option<$crate::Value>> {
                self.get(key)
            }
            fn contains(&self, key: impl AsRef<[u8]>) -> $crate::Result<bool> {
                self.contains(key)
            }
            fn multi_get<K: AsRef<[u8]>>(
                &self,
                keys: impl IntoIterator<Item = K>,
            ) -> $crate::Result<Vec<Option<$crate::Value>>> {
                self.multi_get(keys)
            }
            fn first(&self) -> $crate::Result<Option<($crate::Value, $crate::Value)>> {
                self.first()
            }
            fn last(&self) -> $crate::Result<Option<($crate::Value, $crate::Value)>> {
                self.last()
            }
            fn count(&self, range: impl $crate::KeyRange) -> $crate::Result<u64> {
                self.count(range)
            }
            fn iter(&self) -> $crate::Range {
                self.iter()
            }
            fn range(&self, range: impl $crate::KeyRange) -> $crate::Range {
                self.range(range)
            }
            fn prefix(&self, prefix: impl AsRef<[u8]>) -> $crate::Range {
                self.prefix(prefix)
            }
            fn cursor(&self, range: impl $crate::KeyRange) -> $crate::Result<$crate::Cursor> {
                self.cursor(range)
            }
        }
    };
}
pub(crate) use {forward, reads};

reads!(Reads<'_>);
