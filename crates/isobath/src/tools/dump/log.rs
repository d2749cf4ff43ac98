//! Shows the records that begin in one segment of the log.

use super::{Dump, Field, prepared};
use crate::error::{Error, Result};
use crate::format::{
    FILE_HEADER_LEN, FileHeader, FileKind, Lsn, Payload, decode_payload, spilled_seq,
};
use crate::vfs::FileAccess;
use crate::wal::{self, Dumped, HEADER_PAGE_LEN, RecordHeader, SegmentInfo, SegmentKind};
use std::path::Path;

pub(super) fn segment(dump: &mut Dump<'_>) -> Result<()> {
    header(dump)?;
    let info = find(dump)?;
    if info.kind != SegmentKind::Log {
        let why = "it waits to be written again: nothing reads what it still holds";
        return dump.show(HEADER_PAGE_LEN, 0, "spare", &[("detail", Field::Text(why))]);
    }
    let dir = info.path.parent().unwrap_or(Path::new("")).to_owned();
    let mut last: Option<RecordHeader> = None;
    // The first record after this segment.
    let mut behind: Option<RecordHeader> = None;
    let walked = wal::dump(dump.fs, &dir, info.base, &mut |dumped| {
        if dumped.path != info.path {
            behind = Some(dumped.header);
            return Err(Error::cancelled());
        }
        if let Some(last) = last {
            gap(dump, &info, last.lsn + last.record_len(), dumped.header.lsn)?;
        }
        last = Some(dumped.header);
        record(dump, dumped)
    });
    match (last, behind) {
        // Records of one term follow each other without a gap.
        (Some(last), Some(behind)) if last.generation == behind.generation => {
            gap(dump, &info, last.lsn + last.record_len(), info.end())
        }
        (_, Some(_)) => Ok(()),
        (_, None) => walked,
    }
}

fn header(dump: &mut Dump<'_>) -> Result<()> {
    let file = dump.fs.open_read(dump.path, FileAccess::Positional)?;
    let mut bytes = vec![0; file.len().min(FILE_HEADER_LEN as u64) as usize];
    file.read_at(0, &mut bytes)?;
    match FileHeader::decode(&bytes, FileKind::Log) {
        Ok(header) => dump.header(&header),
        Err(error) => dump.absorb(&error.in_file(dump.path, 0)),
    }
}

/// Finds the segment by its name, as the log does.
fn find(dump: &Dump<'_>) -> Result<SegmentInfo> {
    let dir = match dump.path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let segments = wal::inventory(dump.fs, dir)?;
    let found = segments.into_iter().find(|info| info.path.file_name() == dump.path.file_name());
    found.ok_or_else(|| {
        Error::invalid_argument(format!(
            "{} is a log segment under another name; give it the one that says its base, 16 hexadecimal \
             digits and .wal",
            dump.path.display()
        ))
    })
}

/// Shows that there is no record between two records.
fn gap(dump: &mut Dump<'_>, info: &SegmentInfo, from: Lsn, to: Lsn) -> Result<()> {
    if from >= to {
        return Ok(());
    }
    let offset = HEADER_PAGE_LEN + (from - info.base);
    dump.damage(offset, &format!("no record begins in these {} bytes", to - from))
}

fn record(dump: &mut Dump<'_>, dumped: &Dumped<'_>) -> Result<()> {
    let header = &dumped.header;
    let fields = [
        ("lsn", Field::Lsn(header.lsn)),
        ("generation", Field::Number(header.generation.into())),
        ("payload_len", Field::Number(header.payload_len)),
        ("durable", Field::Lsn(header.durable.unwrap_or(0))),
    ];
    let shown = if header.durable.is_some() { &fields[..] } else { &fields[..3] };
    let name = if header.skip { "skip record" } else { "record" };
    dump.show(dumped.offset, 0, name, shown)?;
    let Some(payload) = dumped.payload else {
        if header.skip {
            return Ok(());
        }
        return dump.damage(dumped.offset, "the record's payload does not match its checksum");
    };
    match decode_payload(payload) {
        Ok(payload) => content(dump, (dumped.offset, header.lsn), &payload),
        Err(error) => dump.absorb(&error.in_file(&dumped.path, dumped.offset)),
    }
}

/// Shows what a record says, which is at this LSN and this offset of the file.
pub(super) fn content(
    dump: &mut Dump<'_>,
    (at, lsn): (u64, Lsn),
    payload: &Payload<'_>,
) -> Result<()> {
    match payload {
        Payload::Batch(ops) => {
            let mut ops = ops.iter().zip(lsn..);
            ops.try_for_each(|(op, seq)| prepared::op(dump, at, Some(seq), op))
        }
        Payload::EpochMarker => dump.show(at, 1, "epoch marker", &[]),
        Payload::Tick { unix_ms } => {
            dump.show(at, 1, "tick", &[("unix_ms", Field::Number(*unix_ms))])
        }
        Payload::FamilyCreate { id, name, options } => {
            let id = ("id", Field::Number((*id).into()));
            let options = ("options", Field::Bytes(options));
            dump.show(at, 1, "create family", &[id, ("name", Field::Text(name)), options])
        }
        Payload::FamilyDrop { id } => {
            dump.show(at, 1, "drop family", &[("id", Field::Number((*id).into()))])
        }
        Payload::FamilyRename { id, name } => {
            let id = ("id", Field::Number((*id).into()));
            dump.show(at, 1, "rename family", &[id, ("name", Field::Text(name))])
        }
        Payload::Prepare(prepare) => prepared::prepare(dump, at, prepare),
        Payload::Decide(decision) => prepared::decision(dump, at, decision),
        Payload::Spilled(files) => files.iter().enumerate().try_for_each(|(nth, file)| {
            let seq = ("seq", Field::Number(spilled_seq(lsn, nth)));
            let number = ("number", Field::Number(file.number));
            dump.show(at, 1, "spill file", &[seq, number, ("len", Field::Number(file.len))])
        }),
    }
}
