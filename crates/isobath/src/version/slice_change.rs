//! How the change *add slice* of an edit tells of a slice: tags 6 and 20 in `edit.rs`, which has
//! their bytes.

use crate::error::{DecodeError, Decoded};
use crate::format::{Decoder, put_bytes, put_varint};
use crate::table::{BlobShare, BlockHandle, Ends, OldestDelete, SliceMeta, SpanMeta, StreamShare};
use std::fmt;

pub(super) fn put_add_slice(out: &mut Vec<u8>, level: usize, meta: &SliceMeta) -> u8 {
    put_varint(out, level as u64);
    put_slice_meta(out, meta);
    if let Some(spans) = &meta.spans {
        put_varint(out, FIELD_SPANS);
        put_bytes(out, &encode_span_meta(spans));
    }
    if let Some(ends) = &meta.ends {
        let mut field = Vec::new();
        ends.put(&mut field);
        put_varint(out, FIELD_ENDS);
        put_bytes(out, &field);
    }
    if !meta.blobs.is_empty() {
        let mut field = Vec::new();
        BlobShare::put_all(&meta.blobs, &mut field);
        put_varint(out, FIELD_BLOBS);
        put_bytes(out, &field);
    }
    if !meta.streams.is_empty() {
        let mut field = Vec::new();
        StreamShare::put_all(&meta.streams, &mut field);
        put_varint(out, FIELD_STREAMS);
        put_bytes(out, &field);
    }
    if let Some(oldest) = &meta.oldest_delete {
        let mut field = Vec::new();
        oldest.put(&mut field);
        put_varint(out, FIELD_OLDEST_DELETE);
        put_bytes(out, &field);
    }
    let has_fields = meta.spans.is_some()
        || meta.ends.is_some()
        || meta.oldest_delete.is_some()
        || !meta.blobs.is_empty()
        || !meta.streams.is_empty();
    if has_fields { 20 } else { 6 }
}

fn put_slice_meta(out: &mut Vec<u8>, meta: &SliceMeta) {
    put_varint(out, u64::from(meta.family));
    put_varint(out, meta.file);
    put_varint(out, meta.root.offset);
    put_varint(out, u64::from(meta.root.len));
    put_varint(out, meta.disk_bytes);
    put_varint(out, meta.raw_bytes);
    put_varint(out, meta.entries);
    put_varint(out, meta.deletes);
    put_bytes(out, &meta.smallest);
    put_bytes(out, &meta.largest);
    put_varint(out, meta.min_seq);
    put_varint(out, meta.max_seq);
}

pub(super) fn take_slice_meta(body: &mut Decoder<'_>) -> Decoded<SliceMeta> {
    Ok(SliceMeta {
        family: body.varint32()?,
        file: body.varint()?,
        root: BlockHandle { offset: body.varint()?, len: body.varint32()? },
        disk_bytes: body.varint()?,
        raw_bytes: body.varint()?,
        entries: body.varint()?,
        deletes: body.varint()?,
        smallest: body.bytes()?.into(),
        largest: body.bytes()?.into(),
        min_seq: body.varint()?,
        max_seq: body.varint()?,
        spans: None,
        ends: None,
        oldest_delete: None,
        blobs: Box::default(),
        streams: Box::default(),
    })
}

/// A field of *add slice* with fields. An unknown one below 64 makes the manifest too new.
const FIELD_SPANS: u64 = 1;
const FIELD_ENDS: u64 = 2;
const FIELD_BLOBS: u64 = 3;
const FIELD_STREAMS: u64 = 4;
const FIELD_OLDEST_DELETE: u64 = 64;
const FIELD_IGNORABLE_MIN: u64 = 64;

pub(super) fn take_slice_with_fields(body: &mut Decoder<'_>) -> Decoded<SliceMeta> {
    let mut meta = take_slice_meta(body)?;
    while !body.is_done() {
        match (body.varint()?, body.bytes()?) {
            (FIELD_SPANS, field) => {
                meta.spans = Some(Box::new(take_span_meta(&mut Decoder::new(field))?));
            }
            (FIELD_ENDS, field) => meta.ends = Some(Ends::take(field)?),
            (FIELD_BLOBS, field) => meta.blobs = BlobShare::take_all(field)?,
            (FIELD_STREAMS, field) => meta.streams = StreamShare::take_all(field)?,
            (FIELD_OLDEST_DELETE, field) => meta.oldest_delete = Some(OldestDelete::take(field)?),
            (tag, _) if tag >= FIELD_IGNORABLE_MIN => {}
            (tag, _) => {
                return Err(DecodeError::newer_format(format!(
                    "the manifest holds a slice with field {tag}"
                )));
            }
        }
    }
    Ok(meta)
}

fn encode_span_meta(spans: &SpanMeta) -> Vec<u8> {
    let mut field = Vec::new();
    put_varint(&mut field, spans.fragments);
    put_bytes(&mut field, &spans.start);
    field.push(u8::from(spans.end.is_some()));
    if let Some(end) = &spans.end {
        put_bytes(&mut field, end);
    }
    field
}

fn take_span_meta(field: &mut Decoder<'_>) -> Decoded<SpanMeta> {
    let (fragments, start) = (field.varint()?, field.bytes()?.into());
    let end = match field.u8()? {
        0 => None,
        1 => Some(field.bytes()?.into()),
        _ => return Err(field.malformed("a range delete has neither an end nor none")),
    };
    if !field.is_done() {
        return Err(field.malformed("the range deletes of a slice are followed by something"));
    }
    Ok(SpanMeta { fragments, start, end })
}

pub(super) fn fmt_slice(f: &mut fmt::Formatter<'_>, level: usize, meta: &SliceMeta) -> fmt::Result {
    write!(
        f,
        "add file {} to level {level} of family {}: \"{}\"..=\"{}\", sequences {}..={}, \
         {} entries ({} deletes), {} bytes on disk at {}+{}",
        meta.file,
        meta.family,
        meta.smallest.escape_ascii(),
        meta.largest.escape_ascii(),
        meta.min_seq,
        meta.max_seq,
        meta.entries,
        meta.deletes,
        meta.disk_bytes,
        meta.root.offset,
        meta.root.len
    )?;
    if let Some(ends) = &meta.ends {
        write!(f, ", {} values end from {} to {} ms", ends.count, ends.least, ends.greatest)?;
    }
    if let Some(OldestDelete { seq, flushed_ms }) = &meta.oldest_delete {
        write!(f, ", the oldest delete {seq} of {flushed_ms} ms")?;
    }
    for share in &meta.blobs {
        let BlobShare { file, values, bytes } = share;
        write!(f, ", {values} values in blob file {file} ({bytes} bytes)")?;
    }
    for StreamShare { file, len } in &meta.streams {
        write!(f, ", a stream in file {file} ({len} bytes)")?;
    }
    let Some(spans) = &meta.spans else { return Ok(()) };
    let (fragments, start) = (spans.fragments, spans.start.escape_ascii());
    write!(f, ", {fragments} range deletes from \"{start}\"")?;
    match &spans.end {
        Some(end) => write!(f, " to \"{}\"", end.escape_ascii()),
        None => write!(f, " on"),
    }
}
