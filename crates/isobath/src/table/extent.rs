//! The extent of a table's share: where its keys begin and where they end.
//!
//! All code that asks whether tables, jobs, ranges and keys overlap uses this type: levels, plans,
//! parts of compactions, scans, repair. An end is included, excluded or absent. So `[a, k)` and
//! `[k, z]` are neighbours and do not overlap. No end is converted to another by adding a byte,
//! because keys may have the maximum length.
//!
//! The points of a slice have their own ends, for filters and seeks: `SliceMeta::smallest` and
//! `largest`.

use std::ops::{Bound, Deref};

/// A contiguous part of the key space. The default is all keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent<K = Box<[u8]>> {
    /// The first key that may be in it. The empty key is the smallest possible key, so it excludes
    /// nothing.
    pub(crate) start: K,
    pub(crate) end: End<K>,
}

/// The end of an extent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End<K = Box<[u8]>> {
    /// Directly after the key.
    Included(K),
    /// Directly before the key.
    Excluded(K),
    /// After all keys.
    #[default]
    Unbounded,
}

/// An extent that borrows its keys.
pub(crate) type ExtentRef<'a> = Extent<&'a [u8]>;

impl<K: Deref<Target = [u8]>> End<K> {
    /// The key of the end.
    #[inline]
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self {
            End::Included(key) | End::Excluded(key) => Some(key),
            End::Unbounded => None,
        }
    }
}

impl<K: Deref<Target = [u8]>> Extent<K> {
    /// True if the key lies below the whole extent.
    #[inline]
    pub(crate) fn starts_after(&self, key: &[u8]) -> bool {
        *self.start > *key
    }

    /// True if the key lies above the whole extent.
    #[inline]
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        match &self.end {
            End::Included(end) => **end < *key,
            End::Excluded(end) => **end <= *key,
            End::Unbounded => false,
        }
    }

    #[inline]
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        !self.starts_after(key) && !self.ends_before(key)
    }

    /// True if this whole extent lies below the whole other one.
    #[inline]
    pub(crate) fn is_below<L: Deref<Target = [u8]>>(&self, other: &Extent<L>) -> bool {
        self.ends_before(&other.start)
    }

    /// True if there may be a key in both.
    #[inline]
    pub(crate) fn overlaps<L: Deref<Target = [u8]>>(&self, other: &Extent<L>) -> bool {
        !self.is_below(other) && !other.is_below(self)
    }

    /// True if a key within the bounds may be in the extent.
    pub(crate) fn meets<L: Deref<Target = [u8]>>(
        &self,
        lower: &Bound<L>,
        upper: &Bound<L>,
    ) -> bool {
        let is_above = match (lower, &self.end) {
            (Bound::Unbounded, _) | (_, End::Unbounded) => true,
            (Bound::Included(lower), End::Included(end)) => **lower <= **end,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                End::Included(end) | End::Excluded(end),
            ) => **lower < **end,
        };
        let is_below = match upper {
            Bound::Included(upper) => *self.start <= **upper,
            Bound::Excluded(upper) => *self.start < **upper,
            Bound::Unbounded => true,
        };
        is_above && is_below
    }

    pub(crate) fn borrowed(&self) -> ExtentRef<'_> {
        let end = match &self.end {
            End::Included(end) => End::Included(&**end),
            End::Excluded(end) => End::Excluded(&**end),
            End::Unbounded => End::Unbounded,
        };
        Extent { start: &self.start, end }
    }
}

impl ExtentRef<'_> {
    pub(crate) fn owned(self) -> Extent {
        let end = match self.end {
            End::Included(end) => End::Included(end.into()),
            End::Excluded(end) => End::Excluded(end.into()),
            End::Unbounded => End::Unbounded,
        };
        Extent { start: self.start.into(), end }
    }

    /// The smallest extent that contains both.
    pub(crate) fn join(self, other: Self) -> Self {
        let end = match (self.end, other.end) {
            (End::Unbounded, _) | (_, End::Unbounded) => End::Unbounded,
            (End::Included(a), End::Included(b)) => End::Included(a.max(b)),
            (End::Excluded(a), End::Excluded(b)) => End::Excluded(a.max(b)),
            (End::Included(included), End::Excluded(excluded))
            | (End::Excluded(excluded), End::Included(included)) => match included < excluded {
                true => End::Excluded(excluded),
                false => End::Included(included),
            },
        };
        let joined = Extent { start: self.start.min(other.start), end };
        let holds = |end: &End<&[u8]>| match end {
            End::Included(key) => !joined.ends_before(key),
            End::Excluded(key) => joined.end.key().is_none_or(|end| end >= *key),
            End::Unbounded => joined.end == End::Unbounded,
        };
        debug_assert!(holds(&self.end) && holds(&other.end), "a key is in no part of the whole");
        joined
    }

    /// The smallest extent that contains all of them; `None` if there are none.
    pub(crate) fn hull(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.reduce(Self::join)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys at each end and next to it.
    static KEYS: [&[u8]; 8] = [b"a", b"a\0", b"b", b"b\0", b"bb", b"c", b"c\0", b"d"];

    fn extents() -> Vec<ExtentRef<'static>> {
        let ends = |start| {
            let included =
                KEYS.iter().filter(move |end| **end >= start).map(|end| End::Included(*end));
            let excluded =
                KEYS.iter().filter(move |end| **end > start).map(|end| End::Excluded(*end));
            included.chain(excluded).chain([End::Unbounded])
        };
        let starts = KEYS.into_iter().chain([&b""[..]]);
        starts.flat_map(|start| ends(start).map(move |end| Extent { start, end })).collect()
    }

    fn keys_in(extent: ExtentRef<'_>) -> Vec<&'static [u8]> {
        KEYS.into_iter().filter(|key| extent.contains(key)).collect()
    }

    #[test]
    fn an_extent_holds_its_start_and_its_end_if_that_is_included() {
        let of = |end| Extent { start: &b"b"[..], end };
        assert_eq!(keys_in(of(End::Included(b"bb"))), [&b"b"[..], b"b\0", b"bb"]);
        assert_eq!(keys_in(of(End::Excluded(b"bb"))), [&b"b"[..], b"b\0"]);
        assert_eq!(keys_in(of(End::Unbounded)).len(), 6);
        assert_eq!(keys_in(Extent::default()).len(), KEYS.len());
    }

    #[test]
    fn extents_overlap_where_the_later_start_is_in_both() {
        for (a, b) in extents().into_iter().flat_map(|a| extents().into_iter().map(move |b| (a, b)))
        {
            let start = a.start.max(b.start);
            assert_eq!(a.overlaps(&b), a.contains(start) && b.contains(start), "{a:?} {b:?}");
            assert_eq!(a.owned().overlaps(&b.owned()), b.overlaps(&a), "{a:?} {b:?}");
            let (first, second) = (keys_in(a), keys_in(b));
            if a.is_below(&b) {
                assert!(first.last() < second.first() || second.is_empty(), "{a:?} {b:?}");
                assert!(!b.is_below(&a));
            }
        }
    }

    #[test]
    fn neighbours_do_not_overlap() {
        let left = Extent { start: &b"a"[..], end: End::Excluded(&b"b"[..]) };
        let right = Extent { start: &b"b"[..], end: End::Included(&b"d"[..]) };
        assert!(left.is_below(&right) && !left.overlaps(&right));
        let touching = Extent { end: End::Included(&b"b"[..]), ..left };
        assert!(!touching.is_below(&right) && touching.overlaps(&right));
    }

    #[test]
    fn a_hull_is_the_least_extent_that_holds_all() {
        assert_eq!(ExtentRef::hull([].into_iter()), None);
        for (a, b) in extents().into_iter().flat_map(|a| extents().into_iter().map(move |b| (a, b)))
        {
            let hull = ExtentRef::hull([a, b].into_iter()).unwrap();
            assert_eq!(hull, b.join(a));
            assert!(hull.start == a.start || hull.start == b.start);
            assert!(hull.end == a.end || hull.end == b.end);
            for extent in [a, b] {
                assert!(hull.start <= extent.start);
                assert!(KEYS.iter().all(|key| !hull.ends_before(key) || extent.ends_before(key)));
            }
        }
    }

    #[test]
    fn an_extent_meets_bounds_that_leave_room_for_a_key() {
        let bounds = |key| [Bound::Included(key), Bound::Excluded(key)];
        for extent in extents() {
            for (lower, upper) in KEYS.iter().flat_map(|a| KEYS.iter().map(move |b| (*a, *b))) {
                let (start, end) = (Bound::Included(lower), Bound::Included(upper));
                let within = Extent { start: lower, end: End::Included(upper) };
                if lower <= upper {
                    assert_eq!(extent.meets(&start, &end), extent.overlaps(&within), "{within:?}");
                }
                assert_eq!(extent.meets(&start, &Bound::Unbounded), !extent.ends_before(lower));
                assert_eq!(extent.meets(&Bound::Unbounded, &end), !extent.starts_after(upper));
            }
            for lower in KEYS.into_iter().flat_map(bounds) {
                // Only an included end can meet a bound at exactly that key.
                let Bound::Excluded(key) = lower else { continue };
                let is_last =
                    matches!(extent.end, End::Included(end) | End::Excluded(end) if end <= key);
                assert_eq!(extent.meets(&lower, &Bound::Unbounded), !is_last, "{extent:?} {key:?}");
                let upper = Bound::Excluded(key);
                assert_eq!(extent.meets(&Bound::Unbounded, &upper), extent.start < key);
            }
        }
    }
}
