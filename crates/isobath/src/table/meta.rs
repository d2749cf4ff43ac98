//! What the rest of the engine knows about a table slice without opening it.

use super::extent::{End, Extent, ExtentRef};
use crate::env::{Plant, planted};
use crate::error::Decoded;
use crate::format::{Decoder, FamilyId, LSN_END, Lsn, put_varint};
use crate::span::{SpanSet, is_below_end};

/// A slice has fewer bytes and fewer entries than this. So sums over slices do not overflow.
const SLICE_SIZE_END: u64 = 1 << 42;

/// The position of a block in its file: its stored bytes, including the checksum trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockHandle {
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// The share of one family in a table file, as the manifest records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SliceMeta {
    /// The number of the file that holds the slice.
    pub(crate) file: u64,
    pub(crate) family: FamilyId,
    /// The slice's root, from which the reader finds index, filter and properties.
    pub(crate) root: BlockHandle,
    /// Bytes of the slice on disk.
    pub(crate) disk_bytes: u64,
    /// Bytes of keys and values before compression.
    pub(crate) raw_bytes: u64,
    /// Versions in the slice, including deletes.
    pub(crate) entries: u64,
    pub(crate) deletes: u64,
    /// The smallest and the largest user key.
    pub(crate) smallest: Box<[u8]>,
    pub(crate) largest: Box<[u8]>,
    /// The smallest and the largest sequence number.
    pub(crate) min_seq: Lsn,
    pub(crate) max_seq: Lsn,
    /// Where its range deletes begin and end, if it has any.
    pub(crate) spans: Option<Box<SpanMeta>>,
    /// When its values end, if any of them does.
    pub(crate) ends: Option<Ends>,
}

/// The ends of the values of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// How many values end.
    pub(crate) count: u64,
    /// The first and the last end, in milliseconds since 1970.
    pub(crate) least: u64,
    pub(crate) greatest: u64,
}

impl Ends {
    /// These and one more.
    pub(crate) fn with(before: Option<Ends>, expires_ms: u64) -> Ends {
        let one = Ends { count: 1, least: expires_ms, greatest: expires_ms };
        before.map_or(one, |ends| Ends {
            count: ends.count + 1,
            least: ends.least.min(expires_ms),
            greatest: ends.greatest.max(expires_ms),
        })
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.count);
        put_varint(out, self.least);
        put_varint(out, self.greatest);
    }

    pub(crate) fn take(field: &[u8]) -> Decoded<Ends> {
        let mut field = Decoder::new(field);
        let ends =
            Ends { count: field.varint()?, least: field.varint()?, greatest: field.varint()? };
        match field.is_done() {
            true => Ok(ends),
            false => Err(field.malformed("the ends of a slice's values are followed by something")),
        }
    }
}

/// The range deletes of a slice, as the manifest records them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SpanMeta {
    /// How many fragments there are.
    pub(crate) fragments: u64,
    /// Where the first one begins, and where the last one ends; `None` if it has no end.
    pub(crate) start: Box<[u8]>,
    pub(crate) end: Option<Box<[u8]>>,
}

impl SpanMeta {
    pub(crate) fn of(set: &SpanSet) -> Option<Box<SpanMeta>> {
        let (first, last) = (set.fragments().first()?, set.fragments().last()?);
        let meta = SpanMeta {
            fragments: set.fragments().len() as u64,
            start: (*first.start).into(),
            end: last.end.as_deref().map(Into::into),
        };
        debug_assert!(meta.is_sane(), "a manifest would refuse these range deletes: {meta:?}");
        Some(Box::new(meta))
    }

    fn extent(&self) -> ExtentRef<'_> {
        let end = self.end.as_deref().map_or(End::Unbounded, End::Excluded);
        Extent { start: &self.start, end }
    }

    fn is_sane(&self) -> bool {
        self.fragments > 0
            && self.fragments < SLICE_SIZE_END
            && is_below_end(&self.start, self.end.as_deref())
    }
}

impl SliceMeta {
    /// The extent of its keys and its range deletes.
    #[inline]
    pub(crate) fn extent(&self) -> ExtentRef<'_> {
        match &self.spans {
            None => self.points(),
            Some(spans) => self.extent_with(spans),
        }
    }

    #[inline]
    fn points(&self) -> ExtentRef<'_> {
        Extent { start: &*self.smallest, end: End::Included(&*self.largest) }
    }

    #[cold]
    #[inline(never)]
    fn extent_with<'a>(&'a self, spans: &'a SpanMeta) -> ExtentRef<'a> {
        if planted(Plant::ExtentsIgnoreSpans) {
            return self.points();
        }
        self.points().join(spans.extent())
    }

    /// True if the key lies below the whole extent.
    #[inline]
    pub(crate) fn starts_after(&self, key: &[u8]) -> bool {
        match &self.spans {
            None => *self.smallest > *key,
            Some(spans) => self.extent_with(spans).starts_after(key),
        }
    }

    /// True if the key lies above the whole extent.
    #[inline]
    pub(crate) fn ends_before(&self, key: &[u8]) -> bool {
        match &self.spans {
            None => *self.largest < *key,
            Some(spans) => self.extent_with(spans).ends_before(key),
        }
    }

    /// True if the key lies within the extent.
    #[inline]
    pub(crate) fn may_hold(&self, key: &[u8]) -> bool {
        !self.starts_after(key) && !self.ends_before(key)
    }

    /// True if it holds deletes of keys or of ranges, or values that have ended at this time.
    pub(crate) fn has_deletes(&self, unix_ms: u64) -> bool {
        self.deletes > 0
            || self.spans.is_some()
            || self.ends.is_some_and(|ends| ends.least <= unix_ms)
    }

    /// About how many of its entries only hide older ones at this time. Ends are taken to be spread
    /// evenly.
    pub(crate) fn deletes_at(&self, unix_ms: u64) -> u64 {
        let Some(ends) = self.ends.filter(|ends| ends.least <= unix_ms) else {
            return self.deletes;
        };
        let span = u128::from(ends.greatest - ends.least) + 1;
        let passed = u128::from(unix_ms.min(ends.greatest) - ends.least) + 1;
        self.deletes + (u128::from(ends.count) * passed / span) as u64
    }

    /// True if nothing in it is there any more at this time.
    pub(crate) fn has_ended(&self, unix_ms: u64) -> bool {
        self.spans.is_none()
            && self.ends.is_some_and(|ends| {
                ends.greatest <= unix_ms && ends.count + self.deletes == self.entries
            })
    }

    /// False if the fields contradict each other or exceed their bounds.
    pub(crate) fn is_sane(&self) -> bool {
        let end = self.root.offset.saturating_add(u64::from(self.root.len));
        let sizes = [end, self.disk_bytes, self.raw_bytes, self.entries];
        sizes.iter().all(|&size| size < SLICE_SIZE_END)
            && self.smallest <= self.largest
            && self.min_seq <= self.max_seq
            && self.max_seq < LSN_END
            && self.entries > 0
            && self.deletes <= self.entries
            && self.spans.as_ref().is_none_or(|spans| spans.is_sane())
            && self.ends.is_none_or(|ends| {
                let room = self.entries - self.deletes;
                (1..=room).contains(&ends.count) && ends.least <= ends.greatest
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> SliceMeta {
        SliceMeta {
            file: 1,
            family: 0,
            root: BlockHandle { offset: 128, len: 64 },
            disk_bytes: 1000,
            raw_bytes: 900,
            entries: 10,
            deletes: 3,
            smallest: (*b"b").into(),
            largest: (*b"d").into(),
            min_seq: 5,
            max_seq: 9,
            spans: None,
            ends: None,
        }
    }

    #[test]
    fn sizes_sequences_and_keys_are_sane_up_to_their_limits_and_no_further() {
        let root = |offset, len| BlockHandle { offset, len };
        let most = SLICE_SIZE_END - 1;
        let good = sample();
        for good in [
            good.clone(),
            SliceMeta { root: root(most - 64, 64), ..good.clone() },
            SliceMeta { disk_bytes: most, raw_bytes: most, entries: most, ..good.clone() },
            SliceMeta { smallest: (*b"d").into(), ..good.clone() },
            SliceMeta { min_seq: 9, ..good.clone() },
            SliceMeta { max_seq: LSN_END - 1, ..good.clone() },
            SliceMeta { entries: 1, deletes: 1, ..good.clone() },
        ] {
            assert!(good.is_sane(), "{good:?}");
        }
        for bad in [
            SliceMeta { root: root(most - 64, 65), ..good.clone() },
            SliceMeta { root: root(u64::MAX, 64), ..good.clone() },
            SliceMeta { disk_bytes: most + 1, ..good.clone() },
            SliceMeta { raw_bytes: most + 1, ..good.clone() },
            SliceMeta { entries: most + 1, ..good.clone() },
            SliceMeta { smallest: (*b"e").into(), ..good.clone() },
            SliceMeta { min_seq: 10, ..good.clone() },
            SliceMeta { max_seq: LSN_END, ..good.clone() },
            SliceMeta { entries: 0, deletes: 0, ..good.clone() },
            SliceMeta { deletes: 11, ..good.clone() },
        ] {
            assert!(!bad.is_sane(), "{bad:?}");
        }
    }
}
