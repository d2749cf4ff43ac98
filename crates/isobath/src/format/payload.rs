//! The payload of a log record: the bytes after the record header of `wal/record.rs`.
//!
//! ```text
//! payload := kind:u8 body
//!   1 batch          count:u32  op*count      op i has sequence = record's LSN + i
//!   2 epoch marker   (nothing)                the record's LSN is the epoch's boundary
//!   3 family create  id:varint name:bytes options:bytes(JSON)
//!   4 family drop    id:varint
//!   5 family rename  id:varint name:bytes
//!   6 to 8: a prepared transaction, and what becomes of it (`prepared.rs`)
//!   9 spilled commit count:varint (number:varint length:varint)*count
//!                    spill files, oldest first; what file i has is at the record's LSN: its range
//!                    deletes at + 2i, its keys at + 2i + 1
//!  11 tick          time:u64                 milliseconds since 1970 from the record's LSN on
//! op      := kind:u8 family:varint key:bytes [value:bytes, if the kind has one]
//!            a merge (kind 4) has its operand as the value;
//!            a put with expiry (kind 5) has before its value when that ends, as in `mvcc/expiry.rs`;
//!            a stream (kinds 8 and 9) has its address as the value, as in `stream.rs`;
//!            a range delete (kind 3) is of the keys from `key` on and below `value`; an empty value is no end
//! bytes   := length:varint, then that many bytes
//! ```
//!
//! Kind 10 is reserved for ingest.

use super::prepared::{
    Decision, PREPARE, Prepare, decode_decision, decode_prepare, put_decision, put_prepare,
};
use super::{Decoder, FamilyId, Lsn, OpKind, StreamAddress, put_bytes, put_varint};
use crate::env::{Plant, planted};
use crate::error::{DecodeError, Decoded};
use crate::limits::MAX_KEY_LEN;
use crate::mvcc::expiry::EXPIRY_LEN;

const BATCH: u8 = 1;
const EPOCH_MARKER: u8 = 2;
const FAMILY_CREATE: u8 = 3;
const FAMILY_DROP: u8 = 4;
const FAMILY_RENAME: u8 = 5;
const SPILLED: u8 = 9;
const TICK: u8 = 11;

/// The bytes of a batch payload before its first operation.
pub(crate) const BATCH_PREFIX_LEN: usize = 5;

/// A decoded payload.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Payload<'a> {
    Batch(Vec<Op<'a>>),
    EpochMarker,
    FamilyCreate {
        id: FamilyId,
        name: &'a str,
        options: &'a [u8],
    },
    FamilyDrop {
        id: FamilyId,
    },
    FamilyRename {
        id: FamilyId,
        name: &'a str,
    },
    Prepare(Prepare<'a>),
    Decide(Decision<'a>),
    Spilled(Vec<SpilledFile>),
    /// From the record's LSN on it is this time, in milliseconds since 1970.
    Tick {
        unix_ms: u64,
    },
}

impl Payload<'_> {
    /// True if it is of a transaction, and no change of families or epochs.
    pub(crate) fn is_commit(&self) -> bool {
        use Payload::{Batch, Decide, Prepare, Spilled};
        matches!(self, Batch(_) | Prepare(_) | Decide(_) | Spilled(_))
    }
}

/// A file with a part of what a large commit has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpilledFile {
    pub(crate) number: u64,
    /// The length in bytes.
    pub(crate) len: u64,
}

/// The sequence number of the keys in the `nth` file, counted from the oldest, of a large commit at
/// `lsn`. The file's range deletes have the one below.
#[inline]
pub(crate) fn spilled_seq(lsn: Lsn, nth: usize) -> Lsn {
    lsn + 2 * nth as u64 + 1
}

/// One operation of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op<'a> {
    pub(crate) kind: OpKind,
    pub(crate) family: FamilyId,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl Op<'_> {
    /// The sequence of an operation of a prepared transaction that is committed at `lsn`: range
    /// deletes come before what is put into their ranges. Each key occurs once.
    #[inline]
    pub(crate) fn decided_at(&self, lsn: Lsn) -> Lsn {
        if self.kind.is_span() { lsn } else { lsn + 1 }
    }
}

/// Appends the prefix of a batch of `count` operations.
pub(crate) fn put_batch_prefix(out: &mut Vec<u8>, count: u32) {
    out.push(BATCH);
    out.extend_from_slice(&count.to_le_bytes());
}

/// The number of operations of a batch; `None` for any other payload.
#[inline]
pub(crate) fn batch_count(payload: &[u8]) -> Option<u64> {
    match payload.first_chunk::<BATCH_PREFIX_LEN>() {
        Some([BATCH, count @ ..]) => Some(u64::from(u32::from_le_bytes(*count))),
        _ => None,
    }
}

/// Overwrites the count in a batch prefix that starts at `at`.
pub(crate) fn set_batch_count(out: &mut [u8], at: usize, count: u32) {
    out[at + 1..at + BATCH_PREFIX_LEN].copy_from_slice(&count.to_le_bytes());
}

/// Appends one operation.
#[inline]
pub(crate) fn put_op(out: &mut Vec<u8>, op: &Op<'_>) {
    out.push(op.kind as u8);
    put_varint(out, u64::from(op.family));
    put_bytes(out, op.key);
    if op.kind.has_value() {
        put_bytes(out, op.value);
    }
}

/// Appends any payload except a batch.
pub(crate) fn put_payload(out: &mut Vec<u8>, payload: &Payload<'_>) {
    match payload {
        Payload::Batch(ops) => {
            put_batch_prefix(out, ops.len() as u32);
            ops.iter().for_each(|op| put_op(out, op));
        }
        Payload::EpochMarker => out.push(EPOCH_MARKER),
        Payload::FamilyCreate { id, name, options } => {
            out.push(FAMILY_CREATE);
            put_varint(out, u64::from(*id));
            put_bytes(out, name.as_bytes());
            put_bytes(out, options);
        }
        Payload::FamilyDrop { id } => {
            out.push(FAMILY_DROP);
            put_varint(out, u64::from(*id));
        }
        Payload::FamilyRename { id, name } => {
            out.push(FAMILY_RENAME);
            put_varint(out, u64::from(*id));
            put_bytes(out, name.as_bytes());
        }
        Payload::Prepare(prepare) => put_prepare(out, prepare),
        Payload::Decide(decision) => put_decision(out, decision),
        Payload::Spilled(files) => put_spilled(out, files),
        Payload::Tick { unix_ms } => {
            out.push(TICK);
            out.extend_from_slice(&unix_ms.to_le_bytes());
        }
    }
}

fn put_spilled(out: &mut Vec<u8>, files: &[SpilledFile]) {
    let start = out.len();
    out.push(SPILLED);
    put_varint(out, files.len() as u64);
    for file in files {
        put_varint(out, file.number);
        put_varint(out, file.len);
    }
    debug_assert!(out.len() - start > 2 * files.len(), "a record is too short for its numbers");
}

fn decode_spilled(decoder: &mut Decoder<'_>) -> Decoded<Vec<SpilledFile>> {
    let count = decoder.varint()?;
    if count == 0 || count > (decoder.remaining() / 2) as u64 {
        return Err(decoder.malformed("a commit names more files than it has room for, or none"));
    }
    let file = |_| Ok(SpilledFile { number: decoder.varint()?, len: decoder.varint()? });
    (0..count).map(file).collect()
}

/// Decodes a payload whose checksum has been verified.
pub(crate) fn decode_payload(bytes: &[u8]) -> Decoded<Payload<'_>> {
    let mut decoder = Decoder::new(bytes);
    let payload = match decoder.u8()? {
        BATCH => Payload::Batch(decode_ops(&mut decoder)?),
        EPOCH_MARKER => Payload::EpochMarker,
        FAMILY_CREATE => Payload::FamilyCreate {
            id: decoder.varint32()?,
            name: decode_name(&mut decoder)?,
            options: decoder.bytes()?,
        },
        FAMILY_DROP => Payload::FamilyDrop { id: decoder.varint32()? },
        FAMILY_RENAME => {
            Payload::FamilyRename { id: decoder.varint32()?, name: decode_name(&mut decoder)? }
        }
        PREPARE => Payload::Prepare(decode_prepare(&mut decoder)?),
        SPILLED => Payload::Spilled(decode_spilled(&mut decoder)?),
        TICK => Payload::Tick { unix_ms: decoder.u64()? },
        other => match decode_decision(other, &mut decoder)? {
            Some(decision) => Payload::Decide(decision),
            None => {
                return Err(DecodeError::newer_format(format!(
                    "a log record of kind {other} is unknown to this version"
                )));
            }
        },
    };
    if !decoder.is_done() {
        return Err(decoder.malformed("a log record has bytes left over"));
    }
    Ok(payload)
}

fn decode_name<'a>(decoder: &mut Decoder<'a>) -> Decoded<&'a str> {
    let bytes = decoder.bytes()?;
    std::str::from_utf8(bytes).map_err(|_| decoder.malformed("a family's name is not UTF-8"))
}

/// The length of the shortest operation, a delete of an empty key: kind, family, key length.
const OP_LEN_MIN: usize = 3;

pub(super) fn decode_ops<'a>(decoder: &mut Decoder<'a>) -> Decoded<Vec<Op<'a>>> {
    let count = decoder.u32()? as usize;
    // An operation takes at least three bytes, so a damaged count cannot ask for much memory.
    if count > decoder.remaining() / OP_LEN_MIN {
        return Err(decoder.malformed("a batch counts more operations than it has room for"));
    }
    let mut ops = Vec::with_capacity(count);
    for _ in 0..count {
        let kind = OpKind::decode(decoder.u8()?)?;
        let family = decoder.varint32()?;
        let key = decoder.bytes()?;
        // No write with such a key is accepted, and tables rely on that.
        if key.len() > MAX_KEY_LEN && !planted(Plant::KeyLengthBelieved) {
            return Err(decoder.malformed("an operation has a key of an impossible length"));
        }
        let value = if kind.has_value() { decoder.bytes()? } else { &[] };
        if kind.is_span() && !is_range(key, value) {
            return Err(decoder.malformed("a range delete ends before it begins"));
        }
        if kind.is_expiring() && value.len() < EXPIRY_LEN {
            return Err(decoder.malformed("a value that ends is shorter than its end"));
        }
        if kind.is_streamed() {
            StreamAddress::of(kind, value)?;
        }
        ops.push(Op { kind, family, key, value });
    }
    Ok(ops)
}

/// True if a range delete may begin and end there.
fn is_range(start: &[u8], end: &[u8]) -> bool {
    end.is_empty() || start < end && end.len() <= MAX_KEY_LEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes_of_a_batch() {
        let mut out = Vec::new();
        let put = Op { kind: OpKind::Put, family: 0, key: b"k", value: b"vv" };
        let delete = Op { kind: OpKind::Delete, family: 300, key: b"gone", value: b"" };
        put_payload(&mut out, &Payload::Batch(vec![put, delete]));
        assert_eq!(out, b"\x01\x02\0\0\0\x01\x00\x01k\x02vv\x00\xac\x02\x04gone");
        assert_eq!(decode_payload(&out).unwrap(), Payload::Batch(vec![put, delete]));
    }

    #[test]
    fn golden_bytes_of_the_shortest_operations() {
        let delete = Op { kind: OpKind::Delete, family: 0, key: b"", value: b"" };
        let put = Op { kind: OpKind::Put, ..delete };
        for (ops, golden) in [
            (vec![delete; 2], &b"\x01\x02\0\0\0\0\0\0\0\0\0"[..]),
            (vec![delete, put], b"\x01\x02\0\0\0\0\0\0\x01\0\0\0"),
        ] {
            let mut out = Vec::new();
            put_payload(&mut out, &Payload::Batch(ops.clone()));
            assert_eq!(out, golden);
            assert_eq!(decode_payload(&out).unwrap(), Payload::Batch(ops));
            assert!(decode_payload(&out[..out.len() - 1]).is_err());
        }
    }

    #[test]
    fn golden_bytes_of_range_deletes() {
        let mut out = Vec::new();
        let all = Op { kind: OpKind::DeleteRange, family: 0, key: b"", value: b"" };
        let some = Op { kind: OpKind::DeleteRange, family: 7, key: b"a", value: b"bc" };
        put_payload(&mut out, &Payload::Batch(vec![all, some]));
        assert_eq!(out, b"\x01\x02\0\0\0\x03\x00\0\0\x03\x07\x01a\x02bc");
        assert_eq!(decode_payload(&out).unwrap(), Payload::Batch(vec![all, some]));
    }

    #[test]
    fn golden_bytes_of_a_merge() {
        let mut out = Vec::new();
        let merge = Op { kind: OpKind::Merge, family: 7, key: b"a", value: b"bc" };
        put_payload(&mut out, &Payload::Batch(vec![merge]));
        assert_eq!(out, b"\x01\x01\0\0\0\x04\x07\x01a\x02bc");
        assert_eq!(decode_payload(&out).unwrap(), Payload::Batch(vec![merge]));
    }

    #[test]
    fn golden_bytes_of_a_value_that_ends_and_of_a_tick() {
        let mut out = Vec::new();
        let put = |value| Op { kind: OpKind::PutExpiring, family: 7, key: b"a", value };
        put_payload(&mut out, &Payload::Batch(vec![put(b"\x01\x02\0\0\0\0\0\0v")]));
        assert_eq!(out, b"\x01\x01\0\0\0\x05\x07\x01a\x09\x01\x02\0\0\0\0\0\0v");
        assert!(matches!(decode_payload(&out).unwrap(), Payload::Batch(_)));
        let mut short = Vec::new();
        put_payload(&mut short, &Payload::Batch(vec![put(b"7 bytes")]));
        assert!(decode_payload(&short).unwrap_err().is_damage());
        let mut tick = Vec::new();
        put_payload(&mut tick, &Payload::Tick { unix_ms: 0x0102 });
        assert_eq!(tick, b"\x0b\x02\x01\0\0\0\0\0\0");
        assert_eq!(decode_payload(&tick).unwrap(), Payload::Tick { unix_ms: 0x0102 });
        assert!(decode_payload(&tick[..8]).unwrap_err().is_damage());
    }

    #[test]
    fn golden_bytes_of_streams_whose_addresses_are_checked() {
        let address = b"\x05\x07\x80\x02\x01\x02\0\0\0\0\0\0";
        let ends = [&[9, 0, 0, 0, 0, 0, 0, 0], &address[..]].concat();
        let put = |kind, value| Op { kind, family: 7, key: b"a", value };
        let ops = vec![put(OpKind::PutStreamed, address), put(OpKind::PutExpiringStreamed, &ends)];
        let mut out = Vec::new();
        put_payload(&mut out, &Payload::Batch(ops.clone()));
        let golden =
            [&b"\x01\x02\0\0\0\x08\x07\x01a\x0c"[..], address, b"\x09\x07\x01a\x14", &ends];
        assert_eq!(out, golden.concat());
        assert_eq!(decode_payload(&out).unwrap(), Payload::Batch(ops));
        for (kind, value) in [
            (OpKind::PutStreamed, &b""[..]),
            (OpKind::PutStreamed, &ends),
            (OpKind::PutExpiringStreamed, address),
            (OpKind::PutExpiringStreamed, &ends[..19]),
        ] {
            let mut out = Vec::new();
            put_payload(&mut out, &Payload::Batch(vec![put(kind, value)]));
            assert!(decode_payload(&out).unwrap_err().is_damage(), "{kind:?} {value:?}");
        }
    }

    #[test]
    fn golden_bytes_of_a_large_commit() {
        let mut out = Vec::new();
        let files = [(5 << 32, 300), (5 << 32 | 1, 7)];
        let files = files.map(|(number, len)| SpilledFile { number, len }).to_vec();
        put_payload(&mut out, &Payload::Spilled(files.clone()));
        assert_eq!(out, b"\x09\x02\x80\x80\x80\x80\x50\xac\x02\x81\x80\x80\x80\x50\x07");
        assert_eq!(decode_payload(&out).unwrap(), Payload::Spilled(files));
        assert_eq!((spilled_seq(4096, 0), spilled_seq(4096, 3)), (4097, 4103));
    }

    #[test]
    fn a_range_delete_without_a_key_in_it_is_refused() {
        let longest = vec![b'c'; MAX_KEY_LEN];
        let too_long = vec![b'c'; MAX_KEY_LEN + 1];
        for (key, value, is_refused) in [
            (&b"b"[..], &b"c"[..], false),
            (b"b", b"b", true),
            (b"b", b"a", true),
            (b"b", b"", false),
            (b"b", &longest, false),
            (b"b", &too_long, true),
        ] {
            let mut out = Vec::new();
            let op = Op { kind: OpKind::DeleteRange, family: 0, key, value };
            put_payload(&mut out, &Payload::Batch(vec![op]));
            let decoded = decode_payload(&out);
            assert_eq!(
                decoded.is_err_and(|error| error.is_damage()),
                is_refused,
                "{}",
                value.len()
            );
        }
    }

    #[test]
    fn every_kind_comes_back() {
        for payload in [
            Payload::EpochMarker,
            Payload::FamilyCreate { id: 7, name: "users", options: b"{}" },
            Payload::FamilyDrop { id: 7 },
            Payload::FamilyRename { id: 7, name: "people" },
            Payload::Spilled(vec![SpilledFile { number: 3 << 32, len: 700 }]),
            Payload::Tick { unix_ms: 1 << 60 },
        ] {
            let mut out = Vec::new();
            put_payload(&mut out, &payload);
            assert_eq!(decode_payload(&out).unwrap(), payload);
            assert!(decode_payload(&out[..out.len() - 1]).is_err());
        }
    }

    #[test]
    fn an_unknown_kind_of_operation_is_a_newer_format() {
        for kind in (2..=u8::MAX).filter(|kind| ![3, 4, 5, 8, 9].contains(kind)) {
            let record = [1, 1, 0, 0, 0, kind, 0, 1, b'k', 1, b'v'];
            let error = decode_payload(&record).unwrap_err();
            assert!(error.is_newer_format(), "{kind}: {error}");
        }
    }

    #[test]
    fn keys_that_no_write_may_have_are_refused() {
        for (len, is_refused) in [(0, false), (MAX_KEY_LEN, false), (MAX_KEY_LEN + 1, true)] {
            let (mut out, key) = (Vec::new(), vec![7; len]);
            let op = Op { kind: OpKind::Put, family: 0, key: &key, value: b"value" };
            put_payload(&mut out, &Payload::Batch(vec![op]));
            let decoded = decode_payload(&out);
            assert_eq!(decoded.is_err_and(|error| error.is_damage()), is_refused, "{len}");
        }
    }

    #[test]
    fn a_count_beyond_the_bytes_is_refused_before_memory_is_taken() {
        assert!(decode_payload(b"\x01\xff\xff\xff\xff\x00\x00\x01k").is_err());
        assert!(decode_payload(b"\x09\x02\x07\x07\x07").unwrap_err().is_damage());
        assert!(decode_payload(b"\x09\x00").unwrap_err().is_damage());
        assert!(decode_payload(b"\x0a").unwrap_err().is_newer_format());
    }
}
