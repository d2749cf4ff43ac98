//! What the rest of the engine knows about a table slice without opening it.

use super::extent::{End, Extent, ExtentRef};
use super::flush_times::OldestDelete;
use crate::env::{Plant, planted};
use crate::error::Decoded;
use crate::format::{Address, StreamAddress};
use crate::format::{Decoder, FamilyId, LSN_END, Lsn, put_varint};
use crate::span::{SpanSet, is_below_end};
use std::collections::BTreeMap;

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
    /// Its oldest delete of a key or a range, if it has any and their age is known.
    pub(crate) oldest_delete: Option<OldestDelete>,
    /// The blob files in which values of it lie, by ascending number.
    pub(crate) blobs: Box<[BlobShare]>,
    /// The values of it that have a blob file of their own, by the ascending number of that.
    pub(crate) streams: Box<[StreamShare]>,
}

/// A value of a slice that has a blob file of its own. Several entries may have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamShare {
    /// The number of the file.
    pub(crate) file: u64,
    /// Its length.
    pub(crate) len: u64,
}

/// The streams of a slice that is being written.
#[derive(Debug, Default)]
pub(crate) struct StreamShares {
    by_file: BTreeMap<u64, u64>,
    bytes: u64,
}

impl StreamShares {
    pub(super) fn note(&mut self, address: &StreamAddress) {
        if self.by_file.insert(address.file, address.file_len).is_none() {
            self.bytes = self.bytes.saturating_add(address.file_len);
        }
    }

    /// Bytes of the files.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// By ascending number.
    pub(super) fn shares(&self) -> impl Iterator<Item = StreamShare> {
        self.by_file.iter().map(|(&file, &len)| StreamShare { file, len })
    }
}

impl StreamShare {
    pub(crate) fn put_all(shares: &[StreamShare], out: &mut Vec<u8>) {
        let mut before = 0;
        for share in shares {
            put_varint(out, share.file - before);
            put_varint(out, share.len);
            before = share.file;
        }
    }

    pub(crate) fn take_all(field: &[u8]) -> Decoded<Box<[StreamShare]>> {
        let mut field = Decoder::new(field);
        let (mut shares, mut before) = (Vec::new(), 0_u64);
        while !field.is_done() {
            let file = before.checked_add(field.varint()?).filter(|file| *file > before);
            let len = field.varint()?;
            let Some(file) = file else {
                return Err(field.malformed("the streams of a slice do not ascend"));
            };
            shares.push(StreamShare { file, len });
            before = file;
        }
        Ok(shares.into())
    }
}

/// What a slice has in a blob file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlobShare {
    /// The number of the blob file.
    pub(crate) file: u64,
    pub(crate) values: u64,
    /// Bytes of these values as they are stored.
    pub(crate) bytes: u64,
}

/// What a slice that is being written has in blob files.
#[derive(Debug, Default)]
pub(crate) struct BlobShares {
    by_file: BTreeMap<u64, BlobShare>,
    bytes: u64,
}

impl BlobShares {
    pub(super) fn note(&mut self, address: &Address) {
        let none = BlobShare { file: address.file, values: 0, bytes: 0 };
        let share = self.by_file.entry(address.file).or_insert(none);
        share.values += 1;
        share.bytes += u64::from(address.stored_len);
        self.bytes += u64::from(address.stored_len);
    }

    pub(crate) fn count(&self) -> usize {
        self.by_file.len()
    }

    pub(crate) fn contains(&self, file: u64) -> bool {
        self.by_file.contains_key(&file)
    }

    /// Bytes of all values.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// By ascending number.
    pub(super) fn shares(&self) -> impl Iterator<Item = &BlobShare> {
        self.by_file.values()
    }
}

impl BlobShare {
    pub(crate) fn put_all(shares: &[BlobShare], out: &mut Vec<u8>) {
        let mut before = 0;
        for share in shares {
            put_varint(out, share.file - before);
            put_varint(out, share.values);
            put_varint(out, share.bytes);
            before = share.file;
        }
    }

    pub(crate) fn take_all(field: &[u8]) -> Decoded<Box<[BlobShare]>> {
        let mut field = Decoder::new(field);
        let (mut shares, mut before) = (Vec::new(), 0_u64);
        while !field.is_done() {
            let file = before.checked_add(field.varint()?).filter(|file| *file > before);
            let (values, bytes) = (field.varint()?, field.varint()?);
            let Some(file) = file else {
                return Err(field.malformed("the blob files of a slice do not ascend"));
            };
            shares.push(BlobShare { file, values, bytes });
            before = file;
        }
        Ok(shares.into())
    }
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

    /// True if this is the slice that `other` describes. Of the oldest delete one may know nothing:
    /// an older version may have written it.
    pub(crate) fn is_same_as(&self, other: &SliceMeta) -> bool {
        if self.oldest_delete == other.oldest_delete {
            return self == other;
        }
        let unknown = |meta: &SliceMeta| SliceMeta { oldest_delete: None, ..meta.clone() };
        (self.oldest_delete.is_none() || other.oldest_delete.is_none())
            && unknown(self) == unknown(other)
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
            && self.oldest_delete.is_none_or(|oldest| {
                (self.min_seq..=self.max_seq).contains(&oldest.seq)
                    && (self.deletes > 0 || self.spans.is_some())
            })
            && self.has_sane_blobs()
            && self.has_sane_streams()
    }

    fn has_sane_blobs(&self) -> bool {
        let values = self.blobs.iter().try_fold(0_u64, |sum, share| sum.checked_add(share.values));
        self.blobs.is_sorted_by(|one, next| one.file < next.file)
            && self.blobs.iter().all(|share| share.values > 0 && share.bytes < SLICE_SIZE_END)
            && values.is_some_and(|values| values <= self.entries - self.deletes)
    }

    fn has_sane_streams(&self) -> bool {
        self.streams.is_sorted_by(|one, next| one.file < next.file)
            && self.streams.iter().all(|share| share.len > 0 && share.len < SLICE_SIZE_END)
            && self.streams.len() as u64 <= self.entries - self.deletes
    }

    /// Bytes of the files that are streams.
    pub(crate) fn stream_bytes(&self) -> u64 {
        self.streams.iter().fold(0, |sum, share| sum.saturating_add(share.len))
    }

    /// The files in which values of it lie.
    pub(crate) fn value_files(&self) -> impl Iterator<Item = u64> {
        let blobs = self.blobs.iter().map(|share| share.file);
        blobs.chain(self.streams.iter().map(|share| share.file))
    }

    /// Bytes of the values that lie in blob files, as they are stored.
    pub(crate) fn blob_bytes(&self) -> u64 {
        self.blobs.iter().map(|share| share.bytes).sum()
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
            oldest_delete: None,
            blobs: Box::default(),
            streams: Box::default(),
        }
    }

    #[test]
    fn sizes_sequences_and_keys_are_sane_up_to_their_limits_and_no_further() {
        let root = |offset, len| BlockHandle { offset, len };
        let share = |file, values| BlobShare { file, values, bytes: 5000 };
        let most = SLICE_SIZE_END - 1;
        let streams = |all: &[(u64, u64)]| -> Box<[StreamShare]> {
            all.iter().map(|&(file, len)| StreamShare { file, len }).collect()
        };
        let good = sample();
        for good in [
            good.clone(),
            SliceMeta { root: root(most - 64, 64), ..good.clone() },
            SliceMeta { disk_bytes: most, raw_bytes: most, entries: most, ..good.clone() },
            SliceMeta { smallest: (*b"d").into(), ..good.clone() },
            SliceMeta { min_seq: 9, ..good.clone() },
            SliceMeta { max_seq: LSN_END - 1, ..good.clone() },
            SliceMeta { entries: 1, deletes: 1, ..good.clone() },
            SliceMeta { blobs: [share(1, 3), share(2, 4)].into(), ..good.clone() },
            SliceMeta { streams: streams(&[(1, 9), (2, most)]), ..good.clone() },
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
            SliceMeta { blobs: [share(1, 3), share(2, 5)].into(), ..good.clone() },
            SliceMeta { blobs: [share(1, u64::MAX), share(2, 5)].into(), ..good.clone() },
            SliceMeta { blobs: [share(2, 3), share(2, 3)].into(), ..good.clone() },
            SliceMeta { blobs: [share(2, 0)].into(), ..good.clone() },
            SliceMeta { streams: streams(&[(2, 9), (2, 9)]), ..good.clone() },
            SliceMeta { streams: streams(&[(2, 0)]), ..good.clone() },
            SliceMeta { streams: streams(&[(2, most + 1)]), ..good.clone() },
            SliceMeta { entries: 4, streams: streams(&[(2, 9), (3, 9)]), ..good.clone() },
            SliceMeta {
                blobs: [BlobShare { bytes: SLICE_SIZE_END, ..share(2, 1) }].into(),
                ..good.clone()
            },
        ] {
            assert!(!bad.is_sane(), "{bad:?}");
        }
    }

    #[test]
    fn golden_bytes_of_shares_and_what_is_refused() {
        let share = |file, values, bytes| BlobShare { file, values, bytes };
        let shares = [share(7, 1, 300), share(9, 200, 5)];
        let mut field = Vec::new();
        BlobShare::put_all(&shares, &mut field);
        assert_eq!(field, b"\x07\x01\xac\x02\x02\xc8\x01\x05");
        assert_eq!(*BlobShare::take_all(&field).unwrap(), shares);
        for (len, whole) in [(0, 0), (4, 1), (8, 2)] {
            assert_eq!(BlobShare::take_all(&field[..len]).unwrap().len(), whole);
        }
        for bad in [&field[..1], &field[..7], b"\0\x01\x01", b"\x01\x01\x01\0\x01\x01"] {
            assert!(BlobShare::take_all(bad).unwrap_err().is_damage(), "{bad:?}");
        }
    }

    #[test]
    fn golden_bytes_of_the_streams_of_a_slice_and_what_is_refused() {
        let share = |file, len| StreamShare { file, len };
        let shares = [share(7, 300), share(9, 5)];
        let mut field = Vec::new();
        StreamShare::put_all(&shares, &mut field);
        assert_eq!(field, b"\x07\xac\x02\x02\x05");
        assert_eq!(*StreamShare::take_all(&field).unwrap(), shares);
        assert!(StreamShare::take_all(b"").unwrap().is_empty());
        for bad in [&field[..1], &field[..4], b"\0\x01", b"\x01\x01\0\x01"] {
            assert!(StreamShare::take_all(bad).unwrap_err().is_damage(), "{bad:?}");
        }
    }

    #[test]
    fn the_oldest_delete_is_the_only_thing_of_which_one_description_may_know_nothing() {
        let oldest = |seq| Some(OldestDelete { seq, flushed_ms: 70 });
        let (unknown, known) = (sample(), SliceMeta { oldest_delete: oldest(6), ..sample() });
        assert!(known.is_same_as(&unknown) && unknown.is_same_as(&known));
        assert!(known.is_same_as(&known) && unknown.is_same_as(&unknown));
        assert!(!known.is_same_as(&SliceMeta { oldest_delete: oldest(7), ..sample() }));
        let other = SliceMeta { entries: 11, ..sample() };
        assert!(!known.is_same_as(&other) && !other.is_same_as(&known));
        for bad in [
            SliceMeta { oldest_delete: oldest(4), ..sample() },
            SliceMeta { oldest_delete: oldest(10), ..sample() },
            SliceMeta { deletes: 0, ..known.clone() },
        ] {
            assert!(known.is_sane() && !bad.is_sane(), "{bad:?}");
        }
    }
}
