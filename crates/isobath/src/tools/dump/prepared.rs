//! Shows a prepared transaction: the file of one that is in doubt, and its records in the log.

use super::{Dump, Field, log};
use crate::error::Result;
use crate::format::{
    Decision, FILE_HEADER_LEN, Lsn, Op, OpKind, Prepare, StreamAddress, decode_payload,
};
use crate::mvcc::Expiring;
use crate::mvcc::expiry::value_of;
use crate::version::read_entry;

/// Shows the file.
pub(super) fn entry(dump: &mut Dump<'_>) -> Result<()> {
    let entry = match read_entry(dump.fs, dump.path) {
        Ok(entry) => entry,
        Err(error) => return dump.absorb(&error),
    };
    dump.header(&entry.header)?;
    let at = FILE_HEADER_LEN as u64;
    dump.show(at, 0, "prepared transaction", &[("lsn", Field::Lsn(entry.lsn))])?;
    match decode_payload(&entry.payload) {
        Ok(payload) => log::content(dump, (at, entry.lsn), &payload),
        Err(error) => dump.absorb(&error.in_file(dump.path, at)),
    }
}

/// Shows an operation.
pub(super) fn op(dump: &mut Dump<'_>, at: u64, seq: Option<Lsn>, op: &Op<'_>) -> Result<()> {
    let mut fields = vec![("family", Field::Number(op.family.into()))];
    fields.extend(seq.map(|seq| ("seq", Field::Lsn(seq))));
    fields.push(("key", Field::Bytes(op.key)));
    match op.kind.is_streamed().then(|| StreamAddress::of(op.kind, op.value)) {
        Some(Ok(address)) => fields.extend(stream(op.kind, op.value, &address)),
        _ => fields.extend(value(op.kind, op.value)),
    }
    dump.show(at, 1, op.kind.name(), &fields)
}

/// A value that lies with its key, and before it when it ends.
pub(super) fn value(
    kind: OpKind,
    stored: &[u8],
) -> impl Iterator<Item = (&'static str, Field<'_>)> {
    let value = ("value", Field::Bytes(value_of(kind, stored)));
    end(kind, stored).into_iter().chain(kind.has_value().then_some(value))
}

/// When the value ends that is stored so, or lies at the address which is.
pub(super) fn end<'a>(kind: OpKind, stored: &[u8]) -> Option<(&'static str, Field<'a>)> {
    let ends = Expiring::split(stored).filter(|_| kind.is_expiring())?;
    Some(("expires_ms", Field::Number(ends.expires_ms)))
}

/// What is stored of a stream, and when it ends.
pub(super) fn stream<'a>(
    kind: OpKind,
    stored: &[u8],
    address: &StreamAddress,
) -> Vec<(&'static str, Field<'a>)> {
    let mut fields: Vec<_> = end(kind, stored).into_iter().collect();
    fields.extend([
        ("file", Field::Number(address.file)),
        ("value_len", Field::Number(address.value_len)),
        ("file_len", Field::Number(address.file_len)),
        ("checksum", Field::Number(address.checksum)),
    ]);
    fields
}

/// Shows the record of a prepare: its operations have no sequence before they are committed.
pub(super) fn prepare(dump: &mut Dump<'_>, at: u64, prepare: &Prepare<'_>) -> Result<()> {
    let isolation = ("isolation", Field::Number(prepare.isolation.into()));
    dump.show(at, 1, "prepare", &[("xid", Field::Bytes(prepare.xid)), isolation])?;
    prepare.ops.iter().try_for_each(|one| op(dump, at, None, one))?;
    let mode =
        |is_exclusive| ("mode", Field::Text(if is_exclusive { "exclusive" } else { "shared" }));
    for key in &prepare.keys {
        let fields = [
            ("family", Field::Number(key.family.into())),
            mode(key.is_exclusive),
            ("key", Field::Bytes(key.key)),
        ];
        dump.show(at, 1, "locked key", &fields)?;
    }
    for range in &prepare.ranges {
        let mut fields = vec![
            ("family", Field::Number(range.family.into())),
            mode(range.is_exclusive),
            ("lower", Field::Bytes(range.lower)),
        ];
        fields.extend(range.upper.map(|upper| ("upper", Field::Bytes(upper))));
        dump.show(at, 1, "locked range", &fields)?;
    }
    Ok(())
}

/// Shows the record of a decision.
pub(super) fn decision(dump: &mut Dump<'_>, at: u64, decision: &Decision<'_>) -> Result<()> {
    let name = if decision.is_commit { "commit prepared" } else { "roll back prepared" };
    let prepared = ("prepared", Field::Lsn(decision.prepared));
    dump.show(at, 1, name, &[("xid", Field::Bytes(decision.xid)), prepared])
}
