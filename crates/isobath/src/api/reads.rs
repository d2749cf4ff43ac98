//! The methods that read, written once: on [`Db`](crate::Db) (its default family), [`Family`],
//! [`Snapshot`](crate::Snapshot) (again its default family) and [`Reads`].

use crate::engine::{Engine, Registered};
use crate::error::{Error, Result};
use crate::family::Family;
use crate::iter::{Cursor, Range};
use crate::key_range::KeyRange;
use crate::options::Expiry;
use crate::options::ReadOptions;
use crate::pinned::Value;
use crate::read::ReadAt;
use crate::sealed::Sealed;
use crate::stream::ValueReader;
use std::sync::Arc;

/// Reads of a family with given options. [`Snapshot::of`](crate::Snapshot::of),
/// [`Snapshot::with`](crate::Snapshot::with), [`Db::with`](crate::Db::with) and [`Family::with`]
/// return it, for one call or for many. Copying it costs nothing.
///
/// Reads of a snapshot, with their copies and parts, all see the snapshot's read point. Reads of a
/// database or of a family see the newest data at each call. To read several values at one moment,
/// use a snapshot.
#[derive(Clone, Copy)]
pub struct Reads<'a> {
    place: Place<'a>,
    engine: &'a Arc<Engine>,
}

/// Where to read.
#[derive(Clone, Copy)]
enum Place<'a> {
    At(ReadAt<'a>),
    /// The handle belongs to another database. Each read refuses it.
    Foreign(&'a Family, Option<Registered>, ReadOptions),
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
        point: Option<Registered>,
        options: ReadOptions,
    ) -> Reads<'a> {
        let place = match family.of(engine) {
            Ok(family) => Place::At(ReadAt { engine, family, point, options }),
            Err(_) => Place::Foreign(family, point, options),
        };
        Reads { engine, place }
    }

    /// Reads of `family` with the same options. They use the same read point if these are the reads
    /// of a snapshot; otherwise each read sees the newest data.
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

/// Everything that can be read, for functions that accept any of it: `fn load(from: &impl Readable,
/// users: &Family)`. Every method also exists on each type without this trait. The argument decides
/// whether two reads see the same moment: with a [`Snapshot`](crate::Snapshot) or a part of one
/// they do; with a [`Db`](crate::Db) or a [`Family`] they need not.
pub trait Readable: Sealed {
    /// Reads of one family.
    type Of<'a>: Readable
    where
        Self: 'a;

    /// Reads of `family`. A snapshot reads it at the snapshot's read point; a database or a family
    /// reads the newest data at each call.
    fn of<'a>(&'a self, family: &'a Family) -> Self::Of<'a>;
    /// The value of `key`.
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>>;
    /// The value of `key`, to be read piece by piece.
    fn get_reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>>;
    /// The value of `key`, and when it ends.
    fn get_expiry(&self, key: impl AsRef<[u8]>) -> Result<Option<(Value, Expiry)>>;
    /// True if `key` has a value.
    fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool>;
    /// The values of several keys, in the order of the keys, all read at one moment.
    fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>>;
    /// The smallest key and its value.
    fn first(&self) -> Result<Option<(Value, Value)>>;
    /// The largest key and its value.
    fn last(&self) -> Result<Option<(Value, Value)>>;
    /// The number of keys within `range`. It walks over all of them.
    fn count(&self, range: impl KeyRange) -> Result<u64>;
    /// All keys with their values.
    fn iter(&self) -> Range<'_>;
    /// The keys within `range` with their values.
    fn range(&self, range: impl KeyRange) -> Range<'_>;
    /// The keys that begin with `prefix`, with their values.
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Range<'_>;
    /// A cursor over `range`.
    fn cursor(&self, range: impl KeyRange) -> Result<Cursor<'_>>;
}

/// Expands to the methods that read, and to the trait that forwards to them. `self.at()` says where
/// to read.
macro_rules! reads {
    ($type:ty) => {
        impl $type {
            /// The value of `key`.
            #[inline]
            pub fn get(&self, key: impl AsRef<[u8]>) -> $crate::Result<Option<$crate::Value>> {
                self.at()?.get(key.as_ref())
            }

            /// The value of `key`, and when it ends: [`Expiry::Never`]($crate::Expiry::Never) or
            /// [`Expiry::At`]($crate::Expiry::At).
            pub fn get_expiry(
                &self,
                key: impl AsRef<[u8]>,
            ) -> $crate::Result<Option<($crate::Value, $crate::Expiry)>> {
                Ok(self.at()?.get_expiry(key.as_ref())?.map($crate::read::Read::told))
            }

            /// The value of `key`, to be read piece by piece and from any place on. It may have any
            /// length. Of a value that is not in a file of its own, all is in memory; so it is if
            /// operands lie above it, and then it can only be read if it can be as a whole.
            pub fn get_reader(
                &self,
                key: impl AsRef<[u8]>,
            ) -> $crate::Result<Option<$crate::ValueReader>> {
                let read = self.at()?.get_stream(key.as_ref())?;
                Ok(read.map($crate::ValueReader::new))
            }

            /// True if `key` has a value.
            #[inline]
            pub fn contains(&self, key: impl AsRef<[u8]>) -> $crate::Result<bool> {
                self.at()?.contains(key.as_ref())
            }

            /// The values of several keys, in the order of the keys, all read at one moment.
            ///
            /// # Errors
            /// If one of the values cannot be read, the call is that error and returns none. Of a
            /// value in a blob file it names file, offset and key: ask for the others without it.
            pub fn multi_get<K: AsRef<[u8]>>(
                &self,
                keys: impl IntoIterator<Item = K>,
            ) -> $crate::Result<Vec<Option<$crate::Value>>> {
                self.at()?.multi_get(keys)
            }

            /// The smallest key and its value.
            pub fn first(&self) -> $crate::Result<Option<($crate::Value, $crate::Value)>> {
                self.iter().next().transpose()
            }

            /// The largest key and its value.
            pub fn last(&self) -> $crate::Result<Option<($crate::Value, $crate::Value)>> {
                self.iter().next_back().transpose()
            }

            /// The number of keys within `range`. It walks over all of them, and reads no value.
            pub fn count(&self, range: impl $crate::KeyRange) -> $crate::Result<u64> {
                self.at()?.count(&$crate::key_range::bounds_of(range))
            }

            /// All keys with their values.
            pub fn iter(&self) -> $crate::Range<'static> {
                self.range(..)
            }

            /// The keys within `range` with their values. If the family cannot be read, the first
            /// item is the error.
            pub fn range(&self, range: impl $crate::KeyRange) -> $crate::Range<'static> {
                $crate::Range::new(self.at(), $crate::key_range::bounds_of(range))
            }

            /// The keys that begin with `prefix`, with their values. Errors as for `range`.
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> $crate::Range<'static> {
                self.range($crate::Prefix(prefix))
            }

            /// A cursor over `range`.
            pub fn cursor(
                &self,
                range: impl $crate::KeyRange,
            ) -> $crate::Result<$crate::Cursor<'static>> {
                $crate::Cursor::new(self.at()?, &$crate::key_range::bounds_of(range))
            }
        }

        impl $crate::sealed::Sealed for $type {}

        $crate::reads::forward!($type => Reads);
    };
}

/// Implements the trait by calling the methods of the same names.
macro_rules! forward {
    ($type:ty => $part:ident) => {
        impl $crate::Readable for $type {
            type Of<'a>
                = $crate::$part<'a>
            where
                Self: 'a;

            fn of<'a>(&'a self, family: &'a $crate::Family) -> $crate::$part<'a> {
                self.part(family)
            }
            fn get(&self, key: impl AsRef<[u8]>) -> $crate::Result<Option<$crate::Value>> {
                self.get(key)
            }
            fn get_reader(
                &self,
                key: impl AsRef<[u8]>,
            ) -> $crate::Result<Option<$crate::ValueReader>> {
                self.get_reader(key)
            }
            fn get_expiry(
                &self,
                key: impl AsRef<[u8]>,
            ) -> $crate::Result<Option<($crate::Value, $crate::Expiry)>> {
                self.get_expiry(key)
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
            fn iter(&self) -> $crate::Range<'_> {
                self.iter()
            }
            fn range(&self, range: impl $crate::KeyRange) -> $crate::Range<'_> {
                self.range(range)
            }
            fn prefix(&self, prefix: impl AsRef<[u8]>) -> $crate::Range<'_> {
                self.prefix(prefix)
            }
            fn cursor(&self, range: impl $crate::KeyRange) -> $crate::Result<$crate::Cursor<'_>> {
                self.cursor(range)
            }
        }
    };
}
pub(crate) use {forward, reads};

reads!(Reads<'_>);
