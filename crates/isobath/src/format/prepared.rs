//! The records of two-phase commit: what a prepared transaction is, and what becomes of it.
//!
//! ```text
//! payload  := kind:u8 body
//!   6 prepare    xid:bytes isolation:u8 count:u32 op*count keys:varint key*keys ranges:varint range*ranges
//!   7 commit     xid:bytes prepared:varint(LSN)
//!   8 roll back  the same
//! key      := family:varint mode:u8 key:bytes
//! range    := family:varint mode:u8 lower:bytes ends:u8 [upper:bytes, if it ends]
//! mode     := 0 shared, 1 exclusive
//! ```
//!
//! Operations are encoded as in a batch, by ascending family and key, each key once. The keys and
//! ranges are locks; a key that an operation writes is locked without being listed. The LSN of the
//! prepare names what is decided, because an xid may be used again.

use super::payload::{decode_ops, put_op};
use super::{Decoder, FamilyId, Lsn, Op, put_bytes, put_varint};
use crate::error::{DecodeError, Decoded};
use crate::limits::{MAX_KEY_LEN, MAX_XID_LEN};

pub(super) const PREPARE: u8 = 6;
const COMMIT: u8 = 7;
const ROLL_BACK: u8 = 8;

/// The greatest number of an isolation level.
const ISOLATION_MAX: u8 = 4;

/// A prepared transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prepare<'a> {
    pub(crate) xid: &'a [u8],
    /// The number of its isolation level.
    pub(crate) isolation: u8,
    pub(crate) ops: Vec<Op<'a>>,
    /// Keys that it has locked and does not write.
    pub(crate) keys: Vec<LockedKey<'a>>,
    pub(crate) ranges: Vec<LockedRange<'a>>,
}

/// A key that is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockedKey<'a> {
    pub(crate) family: FamilyId,
    pub(crate) is_exclusive: bool,
    pub(crate) key: &'a [u8],
}

/// A range that is locked, from `lower` on and, if there is an `upper`, below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockedRange<'a> {
    pub(crate) family: FamilyId,
    pub(crate) is_exclusive: bool,
    pub(crate) lower: &'a [u8],
    pub(crate) upper: Option<&'a [u8]>,
}

/// What becomes of a prepared transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision<'a> {
    pub(crate) is_commit: bool,
    pub(crate) xid: &'a [u8],
    /// The LSN of its prepare.
    pub(crate) prepared: Lsn,
}

impl Prepare<'_> {
    /// The families whose keys it writes or locks, ascending, each once.
    pub(crate) fn families(&self) -> Vec<FamilyId> {
        let written = self.ops.iter().map(|op| op.family);
        let locked = self.keys.iter().map(|key| key.family);
        let ranged = self.ranges.iter().map(|range| range.family);
        let mut all: Vec<FamilyId> = written.chain(locked).chain(ranged).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Appends a prepared transaction.
pub(super) fn put_prepare(out: &mut Vec<u8>, prepare: &Prepare<'_>) {
    out.push(PREPARE);
    put_bytes(out, prepare.xid);
    out.push(prepare.isolation);
    out.extend_from_slice(&(prepare.ops.len() as u32).to_le_bytes());
    prepare.ops.iter().for_each(|op| put_op(out, op));
    put_varint(out, prepare.keys.len() as u64);
    for LockedKey { family, is_exclusive, key } in &prepare.keys {
        put_varint(out, u64::from(*family));
        out.push(u8::from(*is_exclusive));
        put_bytes(out, key);
    }
    put_varint(out, prepare.ranges.len() as u64);
    for LockedRange { family, is_exclusive, lower, upper } in &prepare.ranges {
        put_varint(out, u64::from(*family));
        out.push(u8::from(*is_exclusive));
        put_bytes(out, lower);
        out.push(u8::from(upper.is_some()));
        upper.iter().for_each(|upper| put_bytes(out, upper));
    }
}

/// Appends a decision.
pub(super) fn put_decision(out: &mut Vec<u8>, decision: &Decision<'_>) {
    out.push(if decision.is_commit { COMMIT } else { ROLL_BACK });
    put_bytes(out, decision.xid);
    put_varint(out, decision.prepared);
}

/// Decodes what follows the kind of a prepared transaction.
pub(super) fn decode_prepare<'a>(decoder: &mut Decoder<'a>) -> Decoded<Prepare<'a>> {
    let xid = decode_xid(decoder)?;
    let isolation = decoder.u8()?;
    if isolation > ISOLATION_MAX {
        return Err(DecodeError::newer_format(format!(
            "a prepared transaction has the isolation level {isolation}"
        )));
    }
    let ops = decode_ops(decoder)?;
    let mut keys = Vec::new();
    for _ in 0..decoder.varint()? {
        let (family, is_exclusive) = (decoder.varint32()?, decode_flag(decoder)?);
        keys.push(LockedKey { family, is_exclusive, key: decode_bound(decoder)? });
    }
    let mut ranges = Vec::new();
    for _ in 0..decoder.varint()? {
        let (family, is_exclusive) = (decoder.varint32()?, decode_flag(decoder)?);
        let lower = decode_bound(decoder)?;
        let upper = if decode_flag(decoder)? { Some(decode_bound(decoder)?) } else { None };
        ranges.push(LockedRange { family, is_exclusive, lower, upper });
    }
    Ok(Prepare { xid, isolation, ops, keys, ranges })
}

/// Decodes a decision, if `kind` is that of one.
pub(super) fn decode_decision<'a>(
    kind: u8,
    decoder: &mut Decoder<'a>,
) -> Decoded<Option<Decision<'a>>> {
    if kind != COMMIT && kind != ROLL_BACK {
        return Ok(None);
    }
    let (xid, prepared) = (decode_xid(decoder)?, decoder.varint()?);
    Ok(Some(Decision { is_commit: kind == COMMIT, xid, prepared }))
}

fn decode_xid<'a>(decoder: &mut Decoder<'a>) -> Decoded<&'a [u8]> {
    let xid = decoder.bytes()?;
    match (1..=MAX_XID_LEN).contains(&xid.len()) {
        true => Ok(xid),
        false => {
            Err(decoder.malformed("a prepared transaction has a name of an impossible length"))
        }
    }
}

fn decode_flag(decoder: &mut Decoder<'_>) -> Decoded<bool> {
    match decoder.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(decoder.malformed("a lock has a flag that is neither set nor clear")),
    }
}

/// A key, or the place directly behind one.
fn decode_bound<'a>(decoder: &mut Decoder<'a>) -> Decoded<&'a [u8]> {
    let bound = decoder.bytes()?;
    match bound.len() <= MAX_KEY_LEN + 1 {
        true => Ok(bound),
        false => Err(decoder.malformed("a lock has a key of an impossible length")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OpKind, Payload, decode_payload, put_payload};
    use super::*;

    fn prepare() -> Prepare<'static> {
        let put = Op { kind: OpKind::Put, family: 0, key: b"k", value: b"vv" };
        let delete = Op { kind: OpKind::Delete, family: 300, key: b"gone", value: b"" };
        let all = Op { kind: OpKind::DeleteRange, family: 300, key: b"x", value: b"" };
        Prepare {
            xid: b"id",
            isolation: 4,
            ops: vec![put, delete, all],
            keys: vec![LockedKey { family: 1, is_exclusive: false, key: b"read" }],
            ranges: vec![
                LockedRange { family: 1, is_exclusive: false, lower: b"a", upper: Some(b"b") },
                LockedRange { family: 2, is_exclusive: true, lower: b"", upper: None },
            ],
        }
    }

    #[test]
    fn golden_bytes_of_a_prepared_transaction() {
        let mut out = Vec::new();
        put_payload(&mut out, &Payload::Prepare(prepare()));
        let golden =
            b"\x06\x02id\x04\x03\0\0\0\x01\x00\x01k\x02vv\x00\xac\x02\x04gone\x03\xac\x02\x01x\0\
            \x01\x01\0\x04read\x02\x01\0\x01a\x01\x01b\x02\x01\0\0";
        assert_eq!(out, golden);
        assert_eq!(decode_payload(&out).unwrap(), Payload::Prepare(prepare()));
        assert_eq!(prepare().families(), [0, 1, 2, 300]);
        for len in 0..out.len() {
            assert!(decode_payload(&out[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn golden_bytes_of_decisions() {
        for (is_commit, golden) in [(true, b"\x07\x02id\x80\x20"), (false, b"\x08\x02id\x80\x20")] {
            let decision = Decision { is_commit, xid: b"id", prepared: 4096 };
            let mut out = Vec::new();
            put_payload(&mut out, &Payload::Decide(decision));
            assert_eq!(out, golden);
            assert_eq!(decode_payload(&out).unwrap(), Payload::Decide(decision));
        }
    }

    #[test]
    fn names_levels_flags_and_keys_that_no_prepare_has_are_refused() {
        let long = vec![7; MAX_XID_LEN + 1];
        let (longest, too_long) = (vec![7; MAX_KEY_LEN + 1], vec![7; MAX_KEY_LEN + 2]);
        let with_key = |key| {
            let keys = vec![LockedKey { family: 0, is_exclusive: true, key }];
            Prepare { keys, ..prepare() }
        };
        for (prepare, is_refused) in [
            (Prepare { xid: &long[1..], ..prepare() }, false),
            (Prepare { xid: &long, ..prepare() }, true),
            (Prepare { xid: b"", ..prepare() }, true),
            (Prepare { isolation: 5, ..prepare() }, true),
            (with_key(&longest), false),
            (with_key(&too_long), true),
        ] {
            let mut out = Vec::new();
            put_payload(&mut out, &Payload::Prepare(prepare));
            assert_eq!(decode_payload(&out).is_err(), is_refused);
        }
        assert!(decode_payload(b"\x06\x01i\x00\0\0\0\0\x01\x00\x02\x01k\0").is_err());
    }
}
