//! The keys to which a call applies: ranges of the standard library over any
//! `AsRef<[u8]>`, and prefixes.

use crate::env::{Plant, planted};
use crate::error::{Error, Result};
use crate::limits::check_key;
use crate::read::ScanBounds;
use crate::sealed::Sealed;
use crate::span;
use std::ops::{self, Bound};

/// A range of keys: a range of the standard library, a pair of bounds, a [`Prefix`], or `..` for
/// all keys. A range whose end is below its start holds no keys, and a range delete refuses it.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("ranges")?;
/// for key in ["a", "b", "bc", "c"] {
///     db.put(key, "value")?;
/// }
/// assert_eq!(db.count(..)?, 4);
/// assert_eq!(db.count("b".."c")?, 2);
/// assert_eq!(db.count(isobath::Prefix("b"))?, 2);
/// # Ok(())
/// # }
/// ```
pub trait KeyRange: Sealed {
    /// Copies of the lower and the upper bound.
    #[doc(hidden)]
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

/// The keys that begin with these bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix<K>(pub K);

/// The bounds of a range, in the form the engine uses.
pub(crate) fn bounds_of(range: impl KeyRange) -> ScanBounds {
    let (lower, upper) = range.into_bounds();
    ScanBounds { lower, upper }
}

/// The first key within the bounds and the first one behind them, which is empty if there is none;
/// `None` if no key lies within. Fails if the upper bound lies below the lower one, or if a bound
/// is longer than a key may be.
pub(crate) fn span_within(bounds: &ScanBounds) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let key_of = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
        Bound::Unbounded => None,
    };
    let (lower, upper) = (key_of(&bounds.lower), key_of(&bounds.upper));
    lower.iter().chain(&upper).try_for_each(|key| check_key(key))?;
    if lower.zip(upper).is_some_and(|(lower, upper)| upper < lower) {
        return Err(Error::invalid_argument(
            "the range ends below its start: exchange the two bounds".to_owned(),
        ));
    }
    let (lower, upper) = (&bounds.lower, &bounds.upper);
    let span = span::within(lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
    Ok(span.map(|(start, end)| (start, end.unwrap_or_default())))
}

fn own(bound: Bound<impl AsRef<[u8]>>) -> Bound<Vec<u8>> {
    bound.map(|key| key.as_ref().to_vec())
}

impl Sealed for ops::RangeFull {}

impl KeyRange for ops::RangeFull {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<L: AsRef<[u8]>, U: AsRef<[u8]>> Sealed for (Bound<L>, Bound<U>) {}

impl<L: AsRef<[u8]>, U: AsRef<[u8]>> KeyRange for (Bound<L>, Bound<U>) {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (own(self.0), own(self.1))
    }
}

/// Implements [`KeyRange`] for a range type of the standard library.
macro_rules! key_range {
    ($type:ident, $range:ident => $lower:expr, $upper:expr) => {
        impl<K: AsRef<[u8]>> Sealed for ops::$type<K> {}

        impl<K: AsRef<[u8]>> KeyRange for ops::$type<K> {
            fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
                let $range = self;
                ($lower, $upper)
            }
        }
    };
}

key_range!(Range, range => own(Bound::Included(range.start)), own(Bound::Excluded(range.end)));
key_range!(RangeFrom, range => own(Bound::Included(range.start)), Bound::Unbounded);
key_range!(RangeTo, range => Bound::Unbounded, own(Bound::Excluded(range.end)));
key_range!(RangeToInclusive, range => Bound::Unbounded, own(Bound::Included(range.end)));
key_range!(RangeInclusive, range => own(Bound::Included(range.start())), own(Bound::Included(range.end())));

impl<K: AsRef<[u8]>> Sealed for Prefix<K> {}

impl<K: AsRef<[u8]>> KeyRange for Prefix<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let prefix = self.0.as_ref();
        let mut after = prefix.to_vec();
        while let Some(last) = after.last_mut() {
            if *last < 0xff || planted(Plant::PrefixWraps) {
                *last = last.wrapping_add(1);
                break;
            }
            after.pop();
        }
        let upper = if after.is_empty() { Bound::Unbounded } else { Bound::Excluded(after) };
        (Bound::Included(prefix.to_vec()), upper)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::ops::RangeBounds;

    #[test]
    fn the_bounds_of_a_prefix_hold_the_keys_that_begin_with_it() {
        let keys: [&[u8]; 10] = [
            b"",
            b"\x00",
            b"a",
            b"a\x00",
            b"a\xff",
            b"a\xff\xff",
            b"b",
            b"\xfe\xff",
            b"\xff",
            b"\xff\xff",
        ];
        for prefix in keys {
            let bounds = Prefix(prefix).into_bounds();
            for key in keys {
                let is_inside = bounds.contains(&key.to_vec());
                assert_eq!(is_inside, key.starts_with(prefix), "{key:?} by {prefix:?}");
            }
        }
    }

    #[test]
    fn every_kind_of_range_holds_the_keys_that_it_holds_in_the_standard_library() {
        fn held(range: impl KeyRange) -> String {
            let bounds = range.into_bounds();
            let keys = ["a", "b", "c", "d", "e"];
            keys.into_iter().filter(|key| bounds.contains(&key.as_bytes().to_vec())).collect()
        }
        assert_eq!(held(..), "abcde");
        assert_eq!(held("b".."d"), "bc");
        assert_eq!(held("b"..="d"), "bcd");
        assert_eq!(held("b"..), "bcde");
        assert_eq!(held(.."d"), "abc");
        assert_eq!(held(..="d"), "abcd");
        assert_eq!(held((Bound::Excluded("b"), Bound::Included(b"d"))), "cd");
        assert_eq!(held((Bound::<&str>::Unbounded, Bound::Excluded(vec![b'b']))), "a");
        assert_eq!(held("d".."b"), "");
    }
}
