//! A slice's root: its properties, and the way to all its other parts.
//!
//! The payload of a stored block (`frame.rs`), never compressed: fields, each a varint tag, a
//! varint length and that many bytes.
//!
//! ```text
//! tag  field
//!   1  summary, varints: family, entries, deletes, raw bytes, least sequence, greatest - least sequence,
//!      data blocks, bytes of them on disk, bytes of the slice before this root; then the least user
//!      key (length, bytes) and the greatest (length shared with the least, length of the rest, rest)
//!   2  index: u8 levels (1: leads to data blocks, 2: to index blocks that do), then an index block
//!   3  the only data block itself, decoded form, instead of field 2
//!   5  blob files, as in `meta.rs`, by ascending number, varints for each: number less the number before,
//!      values of the slice in it, bytes of them on disk; only if there are any
//!   6  range deletes, as in `spans.rs`; only if there are any. The sequences in the summary include them
//!   7  ends of values, varints: how many values end, the first and the last end in milliseconds since 1970;
//!      only if there are any
//!   8  the greatest form of the data blocks, varint: 2 if some are slotted (`slotted.rs`); only then
//!   9  streams, as in `meta.rs`, by ascending number of their files, varints for each: number less the number
//!      before, length of the file; only if there are any
//!  64  filter, as in `filter.rs`
//!  65  handle of the stored block that holds the filter: varint offset in the slice, varint length
//!  66  label of the family, as in `origin.rs`
//!  67  inputs of the compaction that made the slice, as in `origin.rs`
//!  68  ancestors, as in `origin.rs`
//!  69  sketch of the keys, as in `sketch.rs`; a slice whose only data block is field 3 has none
//!  70  oldest delete, of a key or of a range, varints: its sequence, and a time in milliseconds since 1970 at
//!      which or after which it was flushed; only if there are any and a time is known
//! ```
//!
//! A reader refuses an unknown tag below 64 and keeps, but ignores, an unknown one from 64 on.

use super::meta::SpanMeta;
use super::origin::{Label, Origin, decode_files, encode_files};
use super::sketch::Sketch;
use super::slotted::FORM;
use super::spans::{decode_spans, encode_spans};
use super::{BlobShare, BlockHandle, Ends, OldestDelete, SliceMeta, StreamShare};
use crate::error::{DecodeError, Decoded};
use crate::format::{Decoder, FILE_HEADER_LEN, FamilyId, Lsn, put_bytes, put_varint};
use crate::span::SpanSet;

const TAG_SUMMARY: u64 = 1;
const TAG_INDEX: u64 = 2;
const TAG_DATA: u64 = 3;
const TAG_BLOBS: u64 = 5;
const TAG_SPANS: u64 = 6;
const TAG_ENDS: u64 = 7;
const TAG_FORM: u64 = 8;
const TAG_STREAMS: u64 = 9;
const TAG_FILTER: u64 = 64;
const TAG_FILTER_HANDLE: u64 = 65;
const TAG_LABEL: u64 = 66;
const TAG_INPUTS: u64 = 67;
const TAG_ANCESTORS: u64 = 68;
const TAG_SKETCH: u64 = 69;
const TAG_OLDEST_DELETE: u64 = 70;
const TAG_IGNORABLE_MIN: u64 = 64;

/// The way to the entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// The only data block.
    Data(Vec<u8>),
    /// An index block over data blocks (`levels` 1) or over index blocks (2).
    Index { levels: u8, top: Vec<u8> },
}

/// The place of the filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterPlace {
    None,
    Inline(Vec<u8>),
    /// The offset is relative to the slice.
    At(BlockHandle),
}

/// The decoded root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) family: FamilyId,
    pub(crate) entries: u64,
    pub(crate) deletes: u64,
    pub(crate) raw_bytes: u64,
    pub(crate) min_seq: Lsn,
    pub(crate) max_seq: Lsn,
    pub(crate) data_blocks: u64,
    pub(crate) data_len: u64,
    /// Bytes of the slice before its root.
    pub(crate) body_len: u64,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
    pub(crate) content: Content,
    /// True if some data blocks are slotted.
    pub(crate) has_slotted: bool,
    pub(crate) filter: FilterPlace,
    pub(crate) spans: SpanSet,
    pub(crate) ends: Option<Ends>,
    pub(crate) oldest_delete: Option<OldestDelete>,
    pub(crate) blobs: Box<[BlobShare]>,
    pub(crate) streams: Box<[StreamShare]>,
    pub(crate) origin: Origin,
    /// The sketch of the keys, as it is stored.
    pub(crate) sketch: Option<Box<[u8]>>,
    /// Fields of a later version that this version may ignore.
    pub(crate) unknown: Vec<(u64, Vec<u8>)>,
}

impl Root {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_field(out, TAG_SUMMARY, &self.summary());
        match &self.content {
            Content::Data(block) => put_field(out, TAG_DATA, block),
            Content::Index { levels, top } => {
                put_varint(out, TAG_INDEX);
                put_varint(out, 1 + top.len() as u64);
                out.push(*levels);
                out.extend_from_slice(top);
            }
        }
        if !self.blobs.is_empty() {
            let mut field = Vec::new();
            BlobShare::put_all(&self.blobs, &mut field);
            put_field(out, TAG_BLOBS, &field);
        }
        if !self.spans.is_empty() {
            let mut field = Vec::new();
            encode_spans(&self.spans, &mut field);
            put_field(out, TAG_SPANS, &field);
        }
        if let Some(ends) = &self.ends {
            let mut field = Vec::new();
            ends.put(&mut field);
            put_field(out, TAG_ENDS, &field);
        }
        if self.has_slotted {
            put_field(out, TAG_FORM, &[FORM]);
        }
        if !self.streams.is_empty() {
            let mut field = Vec::new();
            StreamShare::put_all(&self.streams, &mut field);
            put_field(out, TAG_STREAMS, &field);
        }
        match &self.filter {
            FilterPlace::None => {}
            FilterPlace::Inline(filter) => put_field(out, TAG_FILTER, filter),
            FilterPlace::At(handle) => {
                let mut field = Vec::new();
                put_varint(&mut field, handle.offset);
                put_varint(&mut field, u64::from(handle.len));
                put_field(out, TAG_FILTER_HANDLE, &field);
            }
        }
        if let Some(label) = &self.origin.label {
            put_field(out, TAG_LABEL, &label.encode());
        }
        if !self.origin.inputs.is_empty() {
            put_field(out, TAG_INPUTS, &encode_files(&self.origin.inputs));
        }
        if !self.origin.ancestors.is_empty() {
            put_field(out, TAG_ANCESTORS, &encode_files(&self.origin.ancestors));
        }
        if let Some(sketch) = &self.sketch {
            put_field(out, TAG_SKETCH, sketch);
        }
        if let Some(oldest) = &self.oldest_delete {
            let mut field = Vec::new();
            oldest.put(&mut field);
            put_field(out, TAG_OLDEST_DELETE, &field);
        }
        for (tag, field) in &self.unknown {
            put_field(out, *tag, field);
        }
    }

    fn summary(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.smallest.len() + self.largest.len());
        for number in [
            u64::from(self.family),
            self.entries,
            self.deletes,
            self.raw_bytes,
            self.min_seq,
            self.max_seq - self.min_seq,
            self.data_blocks,
            self.data_len,
            self.body_len,
        ] {
            put_varint(&mut out, number);
        }
        put_bytes(&mut out, &self.smallest);
        let shared = super::common_prefix_len(&self.smallest, &self.largest);
        put_varint(&mut out, shared as u64);
        put_bytes(&mut out, &self.largest[shared..]);
        out
    }

    /// Decodes the root stored at `handle`.
    pub(crate) fn decode(payload: &[u8], handle: BlockHandle) -> Decoded<Root> {
        let mut decoder = Decoder::new(payload);
        let mut root: Option<Root> = None;
        let mut content = None;
        let mut has_slotted = false;
        let mut filter = FilterPlace::None;
        let mut spans = SpanSet::default();
        let mut ends = None;
        let mut oldest_delete = None;
        let (mut blobs, mut streams) = (Box::default(), Box::default());
        let mut origin = Origin::default();
        let mut sketch = None;
        let mut unknown = Vec::new();
        while !decoder.is_done() {
            let tag = decoder.varint()?;
            let field = decoder.bytes()?;
            match tag {
                TAG_SUMMARY => root = Some(decode_summary(field)?),
                TAG_INDEX => content = Some(decode_index(field)?),
                TAG_BLOBS => blobs = BlobShare::take_all(field)?,
                TAG_STREAMS => streams = StreamShare::take_all(field)?,
                TAG_SPANS => spans = decode_spans(field)?,
                TAG_ENDS => ends = Some(Ends::take(field)?),
                TAG_FORM => has_slotted = take_form(field)?,
                TAG_DATA => content = Some(Content::Data(field.to_vec())),
                TAG_FILTER => filter = FilterPlace::Inline(field.to_vec()),
                TAG_FILTER_HANDLE => {
                    let mut field = Decoder::new(field);
                    let (offset, len) = (field.varint()?, field.varint32()?);
                    filter = FilterPlace::At(BlockHandle { offset, len });
                }
                TAG_LABEL => origin.label = Some(Label::decode(field)?.into()),
                TAG_INPUTS => origin.inputs = decode_files(field)?,
                TAG_ANCESTORS => origin.ancestors = decode_files(field)?,
                TAG_OLDEST_DELETE => oldest_delete = Some(OldestDelete::take(field)?),
                TAG_SKETCH => sketch = Some(take_sketch(field)?),
                tag if tag < TAG_IGNORABLE_MIN => {
                    return Err(DecodeError::newer_format(format!("field {tag} of a table slice")));
                }
                tag => unknown.push((tag, field.to_vec())),
            }
        }
        let (Some(mut root), Some(content)) = (root, content) else {
            return Err(DecodeError::damaged("a slice's root lacks a field"));
        };
        root.content = content;
        root.has_slotted = has_slotted;
        root.filter = filter;
        root.spans = spans;
        root.ends = ends;
        root.oldest_delete = oldest_delete;
        root.blobs = blobs;
        root.streams = streams;
        root.origin = origin;
        root.sketch = sketch;
        root.unknown = unknown;
        root.check(handle)?;
        Ok(root)
    }

    fn check(&self, handle: BlockHandle) -> Decoded<()> {
        let room = handle.offset.checked_sub(FILE_HEADER_LEN as u64);
        let is_possible = self.entries > 0
            && self.deletes <= self.entries
            && self.data_blocks > 0
            && self.data_blocks <= self.entries
            && self.smallest <= self.largest
            && self.data_len <= self.body_len
            && self
                .spans
                .seqs()
                .is_none_or(|(least, greatest)| self.min_seq <= least && greatest <= self.max_seq)
            && room.is_some_and(|room| self.body_len <= room);
        if is_possible && self.meta(0, handle).is_sane() {
            Ok(())
        } else {
            Err(DecodeError::damaged("a slice's summary contradicts itself"))
        }
    }

    /// The start of the slice, computed from the place of its root.
    pub(crate) fn base(&self, handle: BlockHandle) -> u64 {
        handle.offset - self.body_len
    }

    /// What the manifest records of this slice.
    pub(crate) fn meta(&self, file: u64, handle: BlockHandle) -> SliceMeta {
        SliceMeta {
            file,
            family: self.family,
            root: handle,
            disk_bytes: self.body_len.saturating_add(u64::from(handle.len)),
            raw_bytes: self.raw_bytes,
            entries: self.entries,
            deletes: self.deletes,
            smallest: self.smallest.as_slice().into(),
            largest: self.largest.as_slice().into(),
            min_seq: self.min_seq,
            max_seq: self.max_seq,
            spans: SpanMeta::of(&self.spans),
            ends: self.ends,
            oldest_delete: self.oldest_delete,
            blobs: self.blobs.clone(),
            streams: self.streams.clone(),
        }
    }
}

fn put_field(out: &mut Vec<u8>, tag: u64, field: &[u8]) {
    put_varint(out, tag);
    put_bytes(out, field);
}

fn take_form(field: &[u8]) -> Decoded<bool> {
    match Decoder::new(field).varint()? {
        form if form == u64::from(FORM) => Ok(true),
        form if form > u64::from(FORM) => {
            Err(DecodeError::newer_format(format!("form {form} of data blocks")))
        }
        _ => Err(DecodeError::damaged("a slice's root names a form that no data block has")),
    }
}

fn take_sketch(field: &[u8]) -> Decoded<Box<[u8]>> {
    Sketch::default().add_stored(field)?;
    Ok(field.into())
}

fn decode_index(field: &[u8]) -> Decoded<Content> {
    match field.split_first() {
        Some((&levels @ 1..=2, top)) => Ok(Content::Index { levels, top: top.to_vec() }),
        Some((levels, _)) => Err(DecodeError::newer_format(format!("an index of {levels} levels"))),
        None => Err(DecodeError::damaged("an index field is empty")),
    }
}

fn decode_summary(field: &[u8]) -> Decoded<Root> {
    let mut decoder = Decoder::new(field);
    let family = decoder.varint32()?;
    let entries = decoder.varint()?;
    let deletes = decoder.varint()?;
    let raw_bytes = decoder.varint()?;
    let min_seq = decoder.varint()?;
    let max_seq = min_seq.checked_add(decoder.varint()?);
    let data_blocks = decoder.varint()?;
    let data_len = decoder.varint()?;
    let body_len = decoder.varint()?;
    let smallest = decoder.bytes()?.to_vec();
    let shared = decoder.varint()?;
    let rest = decoder.bytes()?;
    let largest = match usize::try_from(shared).ok().and_then(|shared| smallest.get(..shared)) {
        Some(shared) => [shared, rest].concat(),
        None => return Err(decoder.malformed("the greatest key shares more than the least has")),
    };
    let Some(max_seq) = max_seq else {
        return Err(decoder.malformed("the greatest sequence overflows"));
    };
    if !decoder.is_done() {
        return Err(decoder.malformed("the summary is followed by something"));
    }
    Ok(Root {
        family,
        entries,
        deletes,
        raw_bytes,
        min_seq,
        max_seq,
        data_blocks,
        data_len,
        body_len,
        smallest,
        largest,
        content: Content::Data(Vec::new()),
        has_slotted: false,
        filter: FilterPlace::None,
        spans: SpanSet::default(),
        ends: None,
        oldest_delete: None,
        blobs: Box::default(),
        streams: Box::default(),
        origin: Origin::default(),
        sketch: None,
        unknown: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANDLE: BlockHandle = BlockHandle { offset: 5000, len: 90 };

    #[test]
    fn a_sketch_is_taken_as_it_is_stored_if_it_is_whole_or_of_a_later_form() {
        let (mut sketch, mut stored) = (Sketch::default(), Vec::new());
        (0..9).for_each(|key| sketch.add(crate::format::checksum64(&[key])));
        sketch.encode(&mut stored);
        for whole in [&stored[..], &[200, 1, 2]] {
            assert_eq!(&*take_sketch(whole).unwrap(), whole);
        }
        // The first byte says which form it has.
        let torn = [&stored[..], &[0x80]].concat();
        for damaged in [&b""[..], &torn] {
            assert!(take_sketch(damaged).unwrap_err().is_damage(), "{damaged:?}");
        }
    }

    fn sample() -> Root {
        Root {
            family: 7,
            entries: 300,
            deletes: 2,
            raw_bytes: 9000,
            min_seq: 4096,
            max_seq: 4396,
            data_blocks: 3,
            data_len: 4000,
            body_len: 4100,
            smallest: b"key-a".to_vec(),
            largest: b"key-bcd".to_vec(),
            content: Content::Index { levels: 1, top: b"TOP".to_vec() },
            has_slotted: false,
            filter: FilterPlace::At(BlockHandle { offset: 4000, len: 100 }),
            spans: SpanSet::default(),
            ends: None,
            oldest_delete: Some(OldestDelete { seq: 4096, flushed_ms: 1_800_000_000_000 }),
            blobs: Box::default(),
            streams: Box::default(),
            origin: Origin {
                label: Some(Label { name: "f".to_owned(), options: Vec::new() }.into()),
                inputs: [3, 4].into(),
                ancestors: [1].into(),
            },
            sketch: Some([1, 0x41].into()),
            unknown: vec![(77, b"later".to_vec())],
        }
    }

    fn encoded(root: &Root) -> Vec<u8> {
        let mut out = Vec::new();
        root.encode(&mut out);
        out
    }

    #[test]
    fn golden_bytes_hold() {
        let mut expected =
            b"\x01\x1a\x07\xac\x02\x02\xa8\x46\x80\x20\xac\x02\x03\xa0\x1f\x84\x20".to_vec();
        expected.extend_from_slice(b"\x05key-a\x04\x03bcd");
        expected.extend_from_slice(b"\x02\x04\x01TOP");
        expected.extend_from_slice(b"\x41\x03\xa0\x1f\x64");
        expected.extend_from_slice(b"\x42\x03\x01f\x00\x43\x03\x02\x03\x01\x44\x02\x01\x01");
        expected.extend_from_slice(b"\x45\x02\x01\x41");
        expected.extend_from_slice(b"\x46\x08\x80\x20\x80\xa0\xf1\xc2\xb1\x34");
        expected.extend_from_slice(b"\x4d\x05later");
        assert_eq!(encoded(&sample()), expected);
    }

    #[test]
    fn the_form_of_data_blocks_is_told_to_builds_that_do_not_know_it() {
        let root = Root { has_slotted: true, ..sample() };
        let bytes = encoded(&root);
        let at = bytes.windows(3).position(|field| field == b"\x08\x01\x02").unwrap();
        assert_eq!([&bytes[..at], &bytes[at + 3..]].concat(), encoded(&sample()));
        assert_eq!(Root::decode(&bytes, HANDLE).unwrap(), root);
        let with = |form: u8| {
            let mut changed = bytes.clone();
            changed[at + 2] = form;
            Root::decode(&changed, HANDLE).unwrap_err()
        };
        assert!(with(3).is_newer_format() && with(1).is_damage() && with(0).is_damage());
    }

    #[test]
    fn the_streams_of_a_slice_are_told_to_builds_that_do_not_know_them() {
        let streams = [StreamShare { file: 300, len: 70 }, StreamShare { file: 301, len: 5 }];
        let root = Root { streams: streams.into(), ..sample() };
        let bytes = encoded(&root);
        let field = b"\x09\x05\xac\x02\x46\x01\x05";
        let at = bytes.windows(field.len()).position(|found| found == field).unwrap();
        assert_eq!([&bytes[..at], &bytes[at + field.len()..]].concat(), encoded(&sample()));
        assert_eq!(Root::decode(&bytes, HANDLE).unwrap(), root);
        assert_eq!(*root.meta(12, HANDLE).streams, streams);
    }

    #[test]
    fn every_form_comes_back_with_unknown_fields_kept() {
        let mut root = sample();
        assert_eq!(Root::decode(&encoded(&root), HANDLE).unwrap(), root);
        root.content = Content::Data(b"block".to_vec());
        root.filter = FilterPlace::Inline(b"filter".to_vec());
        assert_eq!(Root::decode(&encoded(&root), HANDLE).unwrap(), root);
        root.filter = FilterPlace::None;
        assert_eq!(Root::decode(&encoded(&root), HANDLE).unwrap(), root);
        let meta = root.meta(12, HANDLE);
        assert_eq!((meta.file, meta.disk_bytes, root.base(HANDLE)), (12, 4190, 900));
    }

    #[test]
    fn an_unknown_field_that_matters_is_a_newer_format() {
        let mut bytes = encoded(&sample());
        put_field(&mut bytes, 10, b"range deletes, say");
        let error = Root::decode(&bytes, HANDLE).unwrap_err();
        assert!(error.is_newer_format(), "{error}");
    }

    #[test]
    fn what_a_summary_may_say_at_most_is_taken() {
        let good = sample();
        for good in [
            Root { deletes: 300, ..good.clone() },
            Root { data_blocks: 300, ..good.clone() },
            Root { data_len: 4100, ..good.clone() },
            Root { body_len: 5000 - FILE_HEADER_LEN as u64, ..good.clone() },
            Root { largest: good.smallest.clone(), ..good.clone() },
            Root { max_seq: good.min_seq, ..good.clone() },
        ] {
            assert_eq!(Root::decode(&encoded(&good), HANDLE).unwrap(), good);
        }
        for bad in [
            Root { data_blocks: 0, ..good.clone() },
            Root { data_len: 4101, ..good.clone() },
            Root { body_len: 5001 - FILE_HEADER_LEN as u64, ..good.clone() },
        ] {
            assert!(Root::decode(&encoded(&bad), HANDLE).unwrap_err().is_damage());
        }
        let at = BlockHandle { offset: FILE_HEADER_LEN as u64 - 1, len: 90 };
        let least = Root { data_len: 0, body_len: 0, ..good };
        assert!(Root::decode(&encoded(&least), at).is_err());
        assert!(
            Root::decode(&encoded(&least), BlockHandle { offset: at.offset + 1, ..at }).is_ok()
        );
    }

    #[test]
    fn contradictions_and_truncation_are_errors() {
        let good = sample();
        for bad in [
            Root { entries: 0, ..good.clone() },
            Root { deletes: 301, ..good.clone() },
            Root { data_blocks: 301, ..good.clone() },
            Root { body_len: 4900, ..good.clone() },
            Root { raw_bytes: u64::MAX, ..good.clone() },
            Root { max_seq: u64::MAX, ..good.clone() },
            Root { smallest: b"z".to_vec(), ..good.clone() },
        ] {
            assert!(Root::decode(&encoded(&bad), HANDLE).is_err());
        }
        let bytes = encoded(&good);
        for len in 0..bytes.len() {
            // Only whole ignorable fields at the end can be cut off without an error here. The
            // frame detects that.
            if let Ok(root) = Root::decode(&bytes[..len], HANDLE) {
                assert_eq!(root.entries, good.entries);
            }
        }
    }
}
