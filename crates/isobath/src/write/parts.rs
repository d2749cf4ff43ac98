//! Where the operations of an encoded commit lie in its record.

use crate::engine::Mention;
use crate::format::{FamilyId, Op, OpKind, put_op, varint_len};
use crate::options::Expiry;
use crate::version::LiveFile;
use std::sync::Arc;

/// Where an operation's parts lie in the record, so that applying it needs no decoding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpAt {
    pub(crate) family: FamilyId,
    pub(crate) kind: OpKind,
    pub(crate) key_len: u32,
    pub(crate) value_len: u32,
    /// The offset of the key in the record; the value, if any, ends the operation.
    pub(crate) key_at: usize,
    pub(crate) value_at: usize,
}

impl OpAt {
    #[inline]
    pub(crate) fn key<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        &record[self.key_at..self.key_at + self.key_len as usize]
    }

    #[inline]
    pub(crate) fn value<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        &record[self.value_at..self.value_at + self.value_len as usize]
    }
}

/// Appends an operation to a record and says where it lies there.
pub(crate) fn push_op(
    record: &mut Vec<u8>,
    family: FamilyId,
    kind: OpKind,
    key: &[u8],
    value: &[u8],
) -> OpAt {
    put_op(record, &Op { kind, family, key, value });
    let value_at = record.len() - value.len();
    let gap = if kind.has_value() { varint_len(value.len() as u64) } else { 0 };
    let (key_len, value_len) = (key.len() as u32, value.len() as u32);
    let key_at = value_at - gap - key.len();
    OpAt { family, kind, key_len, value_len, key_at, value_at }
}

/// The parts of an encoded batch.
pub(crate) struct Parts<'a> {
    /// Its record, with room for the header.
    pub(crate) record: &'a mut Vec<u8>,
    /// Where its operations lie in the record.
    pub(crate) ops: &'a [OpAt],
    /// The families that it names.
    pub(crate) named: &'a [Mention],
    /// The ends that puts state, by their place among the operations.
    pub(crate) ends: &'a [(u32, Expiry)],
    /// The files of its streams.
    pub(crate) streams: &'a [Arc<LiveFile>],
}

/// A record made anew, and where its operations lie in it.
pub(super) struct Changed {
    pub(super) record: Vec<u8>,
    pub(super) ops: Vec<OpAt>,
}
