//! Recovery's scan of the log: every valid record in order, and the meaning of the first invalid
//! one.
//!
//! The scan ends at the first record that does not verify, the *stop*. Then it searches on to the
//! end of every segment. It reports corruption in these cases:
//!
//! - A later header or the manifest names a durable LSN above the stop: bytes that were synced are
//!   not what was written.
//! - A whole segment is missing before a record, or after a record that continues in it: a
//!   segment's name is durable before the segment is used.
//! - The record at the stop is whole, and only a damaged header page keeps it from being trusted:
//!   that page is durable before the name.
//! - The header at the stop verifies, yet names more bytes than any record has.
//!
//! Anything else after the stop is a tail, as a power cut leaves it. No commit in it was promised
//! to survive power loss. The scan reports it.
//!
//! Nothing here writes, renames or removes: a second recovery sees the same bytes.

use super::reader::{Found, LogReader, ReadPiece};
use super::record::{RECORD_HEADER_LEN, RecordHeader};
use super::segment_table::RECORD_LEN_MAX;
use crate::env::{Plant, planted};
use crate::error::{Error, ReadError, Result};
use crate::format::Lsn;
use crate::vfs::FileSystem;
use std::path::{Path, PathBuf};

/// The most bytes that a reader that follows the log looks at behind a new end in one call.
const LOOK_LEN: u64 = 1 << 20;

/// Progress is reported after at least this many bytes.
const PROGRESS_STEP: u64 = 1 << 20;

/// Receives a record: its LSN and its payload.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(Lsn, &[u8]) -> Result<(), ReadError>;

/// Where a scan ended, and what lay after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanEnd {
    /// The LSN after the last valid record.
    pub(crate) end: Lsn,
    /// The records visited.
    pub(crate) records: u64,
    pub(crate) tail: Tail,
}

/// What follows the last valid record. Nothing in it was promised to survive power
/// loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing that looks like a record.
    Clean,
    /// A record that was not written whole.
    Torn {
        /// The bytes the record would take; the length of a header if its header is damaged.
        len: u64,
    },
    /// Whole records after one that is not whole.
    Hole {
        /// The whole records that are discarded.
        records: u64,
        /// The bytes they take.
        bytes: u64,
        /// The end of the last.
        last_end: Lsn,
    },
}

/// Visits every valid record from `from` on, verified, in LSN order. According to the manifest, the
/// log is durable below `manifest_durable` (0 if the manifest knows nothing). `progress` receives
/// the bytes done and the total. If `visit` fails because of a record's contents, the scan ends
/// with an error that names the record's file and offset.
pub(crate) fn scan(
    fs: &dyn FileSystem,
    dir: &Path,
    uuid: [u8; 16],
    from: Lsn,
    manifest_durable: Lsn,
    visit: Visit<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<ScanEnd> {
    let mut reader = LogReader::open(fs, dir, Some(uuid), from)?;
    let durable = manifest_durable;
    scan_by(&mut reader, from, durable, visit, progress, &mut judge)
}

/// Judges what lies after the stop.
type Judge<'a> = &'a mut dyn FnMut(&mut LogReader<'_>, Lsn, &mut dyn FnMut(Lsn)) -> Result<Tail>;

fn scan_by(
    reader: &mut LogReader<'_>,
    from: Lsn,
    manifest_durable: Lsn,
    visit: Visit<'_>,
    progress: &mut dyn FnMut(u64, u64),
    judge: Judge<'_>,
) -> Result<ScanEnd> {
    let total = reader.end().saturating_sub(from);
    let mut told = from;
    let mut tell = |lsn: Lsn| {
        if lsn >= told + PROGRESS_STEP {
            told = lsn;
            progress(lsn - from, total);
        }
    };
    let mut stop = from;
    let mut records = 0;
    loop {
        if let Found::Record { header, payload } = reader.record_at(stop)? {
            if !header.skip {
                if let Err(error) = visit(stop, payload) {
                    return Err(undecodable(reader, stop, error));
                }
                records += 1;
            }
            stop += header.record_len();
            tell(stop);
            continue;
        }
        match planted(Plant::HoleAccepted).then(|| reader.next_sighting(stop, &mut tell)) {
            Some(Ok(Some(behind))) if behind.whole && behind.header.lsn > stop => {
                stop = behind.header.lsn;
            }
            _ => break,
        }
    }
    if let Some(place) = reader.distrusted(stop)? {
        let damage = place.damage.unwrap_or_default();
        let detail = format!("{damage}, yet records from LSN {stop:#x} on lie behind it");
        return Err(Error::corruption(&place.path, place.offset, detail));
    }
    if manifest_durable > stop {
        return Err(damaged(reader, stop, manifest_durable, "the manifest".to_owned()));
    }
    let tail = judge(reader, stop, &mut tell)?;
    progress(total, total);
    Ok(ScanEnd { end: stop, records, tail })
}

/// Where no one else writes: bytes that tell one thing now and another a moment later are damage,
/// no end of the log. What lies behind it would be given up for good.
fn judge(reader: &mut LogReader<'_>, stop: Lsn, tell: &mut dyn FnMut(Lsn)) -> Result<Tail> {
    let tail = look_on(reader, stop, tell, &mut false)?;
    if tail != Tail::Clean && has_grown(reader, stop)? {
        let place = reader.locate(stop);
        let detail = format!("what lies at LSN {stop:#x} was read as no record, and then as one");
        return Err(Error::corruption(&place.path, place.offset, detail));
    }
    Ok(tail)
}

/// How far a reader that follows the log has looked behind its end, and has seen no record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    stop: Lsn,
    /// What was at the stop, where no record was begun. `None` if one was, or if something was seen
    /// behind it: then the next look is a whole one again.
    unused: Option<[u8; RECORD_HEADER_LEN]>,
    upto: Lsn,
}

#[cfg(all(test, not(any(loom, shuttle))))]
impl Looked {
    pub(super) fn is_same_stop(&self, other: &Looked) -> bool {
        (self.stop, self.unused) == (other.stop, other.unused) && self.upto >= other.upto
    }
}

/// Like [`scan`] from the end of an earlier scan on, with what that has `looked` at.
///
/// No commit is acknowledged before all earlier ones are in the log. So where the bytes at the stop
/// are still those of no record, none was written there, and no record behind it was promised to
/// anyone: what was looked at needs no other look. Behind a new stop it looks at [`LOOK_LEN`] bytes
/// in one call, and goes on in the next calls. What it sees there it judges as [`scan`] does.
pub(crate) fn follow(
    looked: &mut Looked,
    (fs, dir, uuid): (&dyn FileSystem, &Path, [u8; 16]),
    (from, manifest_durable): (Lsn, Lsn),
    visit: Visit<'_>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<ScanEnd> {
    let mut reader = LogReader::open(fs, dir, Some(uuid), from)?;
    reader.begin_small();
    scan_by(&mut reader, from, manifest_durable, visit, progress, &mut |reader, stop, tell| {
        look_further(reader, stop, looked, tell)
    })
}

fn look_further(
    reader: &mut LogReader<'_>,
    stop: Lsn,
    looked: &mut Looked,
    tell: &mut dyn FnMut(Lsn),
) -> Result<Tail> {
    let before = std::mem::take(looked);
    let unused = reader.unused_at(stop)?;
    let from = match (before.unused, unused) {
        (Some(known), Some(now)) if before.stop == stop => (known == now).then_some(before.upto),
        (Some(_), Some(_)) => Some(stop),
        _ => None,
    };
    if let Some(from) = from
        && let Err(upto) = reader.next_sighting_within(from..from + LOOK_LEN, tell)?
    {
        *looked = Looked { stop, unused, upto };
        return Ok(Tail::Clean);
    }
    let (upto, mut has_seen) = (reader.end(), false);
    match look_on(reader, stop, tell, &mut has_seen) {
        // What was seen is no proof, and the next look has to tell.
        Err(error) if error.is_corruption() && has_grown(reader, stop)? => Ok(Tail::Clean),
        Ok(Tail::Clean) if !has_seen => {
            *looked = Looked { stop, unused, upto };
            Ok(Tail::Clean)
        }
        tail => tail,
    }
}

/// True if a process that writes has written the record at the stop, or made the segment that it
/// goes on in, since the reader was there. Then what lies behind the stop is no sign of damage: the
/// log ended there when it was read.
fn has_grown(reader: &mut LogReader<'_>, stop: Lsn) -> Result<bool> {
    let gap = reader.first_gap(stop);
    reader.look_again(stop)?;
    let has_record = matches!(reader.record_at(stop)?, Found::Record { .. });
    Ok(has_record || reader.first_gap(stop) > gap)
}

/// Judges what lies after the stop, and notes whether anything there looks like a record: that may
/// be one that is still being written.
fn look_on(
    reader: &mut LogReader<'_>,
    stop: Lsn,
    tell: &mut dyn FnMut(Lsn),
    has_seen: &mut bool,
) -> Result<Tail> {
    let gap = reader.first_gap(stop);
    let mut tail = Tail::Clean;
    let (mut lsn, mut known) = (stop, stop);
    while let Some(sighting) = reader.next_sighting(lsn, tell)? {
        *has_seen = true;
        let at = sighting.header.lsn;
        let len = sighting.header.record_len();
        if gap < at {
            return Err(damaged(reader, gap, at, format!("the record at {at:#x}")));
        }
        if let Some(durable) = sighting.header.durable.filter(|durable| *durable > stop) {
            return Err(damaged(reader, stop, durable, format!("the record at {at:#x}")));
        }
        if !sighting.whole {
            if at == stop && len > RECORD_LEN_MAX {
                return Err(too_long(reader, at, len));
            }
            if at == stop && gap < at.saturating_add(len) {
                return Err(missing(reader, gap, at));
            }
            if at == stop {
                tail = Tail::Torn { len };
                if planted(Plant::TornTailFatal) {
                    return Err(damaged(reader, stop, at, "a torn record".to_owned()));
                }
            }
            // The bytes of a record are its writer's: what looks like a header there may be part of
            // a value. A record begins at the stop, and where one ends that is known to begin.
            lsn = at + super::RECORD_ALIGN;
            if at == known {
                (lsn, known) = (at + len, at + len);
            }
            continue;
        }
        let (records, bytes) = match tail {
            Tail::Hole { records, bytes, .. } => (records, bytes),
            Tail::Clean | Tail::Torn { .. } => (0, 0),
        };
        lsn = at + len;
        known = if at == known { lsn } else { known };
        tail = Tail::Hole { records: records + 1, bytes: bytes + len, last_end: lsn };
    }
    if tail == Tail::Clean && reader.has_remnant(stop)? {
        tail = Tail::Torn { len: RECORD_HEADER_LEN as u64 };
    }
    Ok(tail)
}

fn damaged(reader: &LogReader<'_>, stop: Lsn, durable: Lsn, named_by: String) -> Error {
    let place = reader.locate(stop);
    let damage = place.damage.map_or_else(String::new, |damage| format!(" ({damage})"));
    Error::corruption(
        &place.path,
        place.offset,
        format!(
            "no valid log record at LSN {stop:#x}{damage}, but {named_by} shows that the log was durable up to {durable:#x}"
        ),
    )
}

/// The error of a missing segment. An LSN is handed out only after its segment exists under a name
/// that survives power loss, so a crash cannot leave this.
fn missing(reader: &LogReader<'_>, gap: Lsn, at: Lsn) -> Error {
    let path = reader.locate(gap).path;
    let detail = format!("the log segment is missing: the record at LSN {at:#x} goes on in it");
    Error::corruption(&path, 0, detail)
}

/// The error of a header with an impossible length. A crash cannot leave such a header: a header is
/// written whole or does not verify.
fn too_long(reader: &LogReader<'_>, at: Lsn, len: u64) -> Error {
    let place = reader.locate(at);
    let detail = format!(
        "the header of the record at LSN {at:#x} names {len} bytes, and no record has more than {RECORD_LEN_MAX}"
    );
    Error::corruption(&place.path, place.offset, detail)
}

/// Adds the place to the error of a record that verifies but cannot be decoded.
fn undecodable(reader: &LogReader<'_>, lsn: Lsn, error: ReadError) -> Error {
    let place = reader.locate(lsn);
    match error {
        ReadError::Decode(error) if error.is_damage() => {
            let detail = format!("the log record at LSN {lsn:#x} is whole, yet {error}");
            Error::corruption(&place.path, place.offset, detail)
        }
        other => other.in_file(&place.path, place.offset),
    }
}

/// A record as tools show it.
#[derive(Debug)]
pub(crate) struct Dumped<'a> {
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    pub(crate) header: RecordHeader,
    /// `None` if the payload does not verify, or is a skip record's.
    pub(crate) payload: Option<&'a [u8]>,
    /// True if the padding after the payload, which no checksum covers, is all zeros. True as well
    /// without a payload.
    pub(crate) is_padded_with_zeros: bool,
}

/// Visits everything from `from` on that looks like a record, damaged or not, of any term.
pub(crate) fn dump(
    fs: &dyn FileSystem,
    dir: &Path,
    from: Lsn,
    visit: &mut dyn FnMut(&Dumped<'_>) -> Result<()>,
) -> Result<()> {
    dump_by(fs, dir, from, &|file, offset, buf| file.read_at(offset, buf), visit)
}

/// The same. `read_piece` reads the bytes, and may go around places that the device cannot read.
pub(crate) fn dump_by(
    fs: &dyn FileSystem,
    dir: &Path,
    from: Lsn,
    read_piece: ReadPiece<'_>,
    visit: &mut dyn FnMut(&Dumped<'_>) -> Result<()>,
) -> Result<()> {
    let mut reader = LogReader::open_to_read(fs, dir, None, from, read_piece)?;
    let mut lsn = from;
    while let Some(sighting) = reader.next_sighting(lsn, &mut |_| ())? {
        let header = sighting.header;
        let place = reader.locate(header.lsn);
        let shown = sighting.whole && !header.skip;
        let is_padded_with_zeros = !shown || reader.padding(&header)?.iter().all(|byte| *byte == 0);
        let payload = if shown { Some(reader.payload(&header)?) } else { None };
        let (path, offset) = (place.path, place.offset);
        visit(&Dumped { path, offset, header, payload, is_padded_with_zeros })?;
        lsn = header.lsn + if sighting.whole { header.record_len() } else { super::RECORD_ALIGN };
    }
    Ok(())
}
