//! Edits: one atomic step of the database's state, as memory and the manifest hold it.
//!
//! ```text
//! edit    change *
//! change       0   1  tag; bit 7 set: a reader that does not know the tag may skip the change
//!              1   *  length of the body, varint
//!              *   *  body; integers are varints, strings are length-prefixed
//!
//! tag  change               body
//!   1  database             UUID (16 bytes)
//!   2  create family        family, name, options (JSON), LSN
//!   3  drop family          family, LSN
//!   4  rename family        family, name, LSN
//!   5  set family options   family, options (JSON)
//!   6  add slice            level, family, file, root offset, root length, disk bytes, raw bytes, entries,
//!                           deletes, smallest key, largest key, least sequence, greatest sequence
//!   7  remove slice         family, level, file
//!   8  replay from          LSN
//!   9  LSN ceiling          LSN
//!  10  next file            number
//!  11  next family          family
//!  12  term                 term, ended at (LSN), resumes at (LSN)
//!  13  durable LSN          LSN
//!  14  clean close          end (LSN)
//!  15  families changed     LSN
//!  16  oldest readable      LSN
//!  17  moments              (milliseconds since 1970, LSN) *
//!  18  history              milliseconds
//!  20  add slice            as 6, then fields: tag (varint), length (varint), bytes. A slice with range deletes
//!                           field 1: fragments, start, 0 or 1: whether there is an end, end. One with values that
//!                           end field 2: how many, the first and the last end in milliseconds since 1970. One with
//!                           values in blob files field 3, as field 5 of its root. One with streams field 4, as
//!                           field 9 of its root. One with deletes field 64, as field 70 of its root; a reader
//!                           ignores unknown fields from 64 on
//!  21  add prepared         LSN of the prepare, xid, file, length of the file
//!  22  remove prepared      LSN of the prepare
//!  23  ticks                (LSN, milliseconds since 1970, each less that of the one before) *
//!  24  clone family         family, the family that it is a clone of, name, options (JSON), LSN
//!  25  add shared slice     the family that holds it, then as 20, whose family is the one that the table names
//!  27                       no change: a payload that begins with it is a part of an edit (`parts.rs`)
//!  28  term                 as 12, then seed
//! 154  lineage              family, the family that the first of its ancestors is
//! ```
//!
//! Tags are never reused. A change that must not be lost when an older version rewrites the
//! manifest keeps bit 7 clear, and older versions refuse the manifest as too new.

use super::slice_change::{fmt_slice, put_add_slice, take_slice_meta, take_slice_with_fields};
use super::tree::LEVELS_MAX;
use crate::error::{DecodeError, Decoded};
use crate::format::{Decoder, FamilyId, Lsn, put_bytes, put_varint};
use crate::table::SliceMeta;
use std::fmt;

/// Changes that take effect together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) changes: Vec<Change>,
}

/// One change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Which database this is. The first change of every manifest.
    Database {
        uuid: [u8; 16],
    },
    /// A family exists from the log record at `lsn` on.
    CreateFamily {
        family: FamilyId,
        name: String,
        options: Vec<u8>,
        lsn: Lsn,
    },
    /// A family exists that has all slices of `source`, and whose readers at points above `lsn` see
    /// what that holds.
    CloneFamily {
        family: FamilyId,
        source: FamilyId,
        name: String,
        options: Vec<u8>,
        lsn: Lsn,
    },
    /// The family is a clone, of `root` or of a clone of it.
    Lineage {
        family: FamilyId,
        root: FamilyId,
    },
    /// A family and all its slices are removed.
    DropFamily {
        family: FamilyId,
        lsn: Lsn,
    },
    RenameFamily {
        family: FamilyId,
        name: String,
        lsn: Lsn,
    },
    SetFamilyOptions {
        family: FamilyId,
        options: Vec<u8>,
    },
    AddSlice {
        level: usize,
        meta: SliceMeta,
    },
    /// A slice of another family's, or that was another family's, which a clone has.
    AddShared {
        family: FamilyId,
        level: usize,
        meta: SliceMeta,
    },
    RemoveSlice {
        family: FamilyId,
        level: usize,
        file: u64,
    },
    /// All epochs below `lsn` are installed; replay of the log starts there.
    ReplayFrom {
        lsn: Lsn,
    },
    /// LSNs below `lsn` may have been given out.
    LsnCeiling {
        lsn: Lsn,
    },
    /// Files below `number` may exist or have existed.
    NextFile {
        number: u64,
    },
    /// Families below `family` exist or have existed.
    NextFamily {
        family: FamilyId,
    },
    /// A recovery or repair kept all up to `ended_at`; new LSNs begin at `resumes_at`.
    Term(Term),
    /// The log was durable up to `lsn`: invalid bytes below it are corruption, not a torn tail.
    DurableLsn {
        lsn: Lsn,
    },
    /// Creations, drops and renames of families by log records up to `lsn` are part of the state.
    FamiliesChanged {
        lsn: Lsn,
    },
    /// Versions that only points below `lsn` see may be gone from the tables.
    OldestReadable {
        lsn: Lsn,
    },
    /// When the database was at which point, ascending.
    Moments {
        moments: Vec<Moment>,
    },
    /// For how long points stay readable; 0 for no longer than snapshots hold them.
    History {
        span_ms: u64,
    },
    /// The transaction that was prepared at `lsn` is in doubt, and in this file.
    AddPrepared {
        lsn: Lsn,
        xid: Vec<u8>,
        file: u64,
        len: u64,
    },
    /// The transaction that was prepared at `lsn` is decided.
    RemovePrepared {
        lsn: Lsn,
    },
    /// What time it was from which LSN on, ascending.
    Ticks {
        ticks: Vec<Tick>,
    },
    /// The log ends at `end` and is synced, and no LSN at or above `end` is in use.
    CleanClose {
        end: Lsn,
    },
}

/// The LSNs that are given out between two recoveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    /// The number of the term; the first is 1.
    pub(crate) term: u64,
    /// Where the term before ended. LSNs of that term at or above it were discarded, or a repair
    /// has lost some of them.
    pub(crate) ended_at: Lsn,
    /// The least LSN of this term.
    pub(crate) resumes_at: Lsn,
    /// Random bits, which tell a term of a copy of the database from this one; 0 for none.
    pub(crate) seed: u64,
}

/// All commits below `point` were visible at this time, and no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) unix_ms: u64,
    pub(crate) point: Lsn,
}

/// A record of the log that tells the time: readers above `lsn` read at this time or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tick {
    pub(crate) lsn: Lsn,
    pub(crate) unix_ms: u64,
}

const MAY_SKIP: u8 = 0x80;

/// A version that forgets whose clone a family is takes its values for others than its source's:
/// it collects less garbage.
const LINEAGE: u8 = MAY_SKIP | 26;

impl Edit {
    pub(crate) fn new(changes: Vec<Change>) -> Edit {
        Edit { changes }
    }

    pub(crate) fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut body = Vec::new();
        self.changes.iter().for_each(|change| change.encode(&mut out, &mut body));
        out
    }

    /// Decodes what [`Edit::encode`] has written. A change with an unknown tag is skipped if its
    /// tag allows that.
    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Edit> {
        let mut decoder = Decoder::new(bytes);
        let mut changes = Vec::new();
        while !decoder.is_done() {
            let tag = decoder.u8()?;
            let mut body = Decoder::new(decoder.bytes()?);
            if let Some(change) = Change::decode(tag, &mut body)? {
                if !body.is_done() {
                    return Err(DecodeError::damaged(format!(
                        "a change of tag {tag} has {} bytes too many",
                        body.remaining()
                    )));
                }
                changes.push(change);
            }
        }
        Ok(Edit { changes })
    }
}

impl Change {
    /// Adds a slice to `family`, whichever family it was written for.
    pub(crate) fn add_slice(family: FamilyId, level: usize, meta: SliceMeta) -> Change {
        match meta.family == family {
            true => Change::AddSlice { level, meta },
            false => Change::AddShared { family, level, meta },
        }
    }

    /// Appends the change. `body` is room to work in.
    pub(super) fn encode(&self, out: &mut Vec<u8>, body: &mut Vec<u8>) {
        body.clear();
        out.push(self.put_body(body));
        put_bytes(out, body);
    }

    /// Appends the body and returns the tag.
    fn put_body(&self, out: &mut Vec<u8>) -> u8 {
        match self {
            Change::Database { uuid } => {
                out.extend_from_slice(uuid);
                1
            }
            Change::CreateFamily { family, name, options, lsn } => {
                put_varint(out, u64::from(*family));
                put_bytes(out, name.as_bytes());
                put_bytes(out, options);
                put_varint(out, *lsn);
                2
            }
            Change::DropFamily { family, lsn } => put_integers(out, 3, &[u64::from(*family), *lsn]),
            Change::RenameFamily { family, name, lsn } => {
                put_varint(out, u64::from(*family));
                put_bytes(out, name.as_bytes());
                put_varint(out, *lsn);
                4
            }
            Change::SetFamilyOptions { family, options } => {
                put_varint(out, u64::from(*family));
                put_bytes(out, options);
                5
            }
            Change::AddSlice { level, meta } => put_add_slice(out, *level, meta),
            Change::AddShared { family, level, meta } => put_shared(out, *family, *level, meta),
            Change::CloneFamily { family, source, name, options, lsn } => {
                put_varint(out, u64::from(*family));
                put_varint(out, u64::from(*source));
                put_bytes(out, name.as_bytes());
                put_bytes(out, options);
                put_varint(out, *lsn);
                24
            }
            Change::Lineage { family, root } => {
                put_integers(out, LINEAGE, &[u64::from(*family), u64::from(*root)])
            }
            Change::RemoveSlice { family, level, file } => {
                put_integers(out, 7, &[u64::from(*family), *level as u64, *file])
            }
            Change::ReplayFrom { lsn } => put_integers(out, 8, &[*lsn]),
            Change::LsnCeiling { lsn } => put_integers(out, 9, &[*lsn]),
            Change::NextFile { number } => put_integers(out, 10, &[*number]),
            Change::NextFamily { family } => put_integers(out, 11, &[u64::from(*family)]),
            Change::Term(term) => put_term(out, term),
            Change::DurableLsn { lsn } => put_integers(out, 13, &[*lsn]),
            Change::CleanClose { end } => put_integers(out, 14, &[*end]),
            Change::FamiliesChanged { lsn } => put_integers(out, 15, &[*lsn]),
            Change::OldestReadable { lsn } => put_integers(out, 16, &[*lsn]),
            Change::Moments { moments } => {
                for moment in moments {
                    put_varint(out, moment.unix_ms);
                    put_varint(out, moment.point);
                }
                17
            }
            Change::History { span_ms } => put_integers(out, 18, &[*span_ms]),
            Change::AddPrepared { lsn, xid, file, len } => {
                put_varint(out, *lsn);
                put_bytes(out, xid);
                put_integers(out, 21, &[*file, *len])
            }
            Change::RemovePrepared { lsn } => put_integers(out, 22, &[*lsn]),
            Change::Ticks { ticks } => put_ticks(out, ticks),
        }
    }

    /// `None` if the tag is unknown and the change may be skipped.
    fn decode(tag: u8, body: &mut Decoder<'_>) -> Decoded<Option<Change>> {
        let change = match tag {
            1 => Change::Database { uuid: body.take(16)?.try_into().expect("16 bytes") },
            2 => Change::CreateFamily {
                family: body.varint32()?,
                name: take_name(body)?,
                options: body.bytes()?.to_vec(),
                lsn: body.varint()?,
            },
            3 => Change::DropFamily { family: body.varint32()?, lsn: body.varint()? },
            4 => Change::RenameFamily {
                family: body.varint32()?,
                name: take_name(body)?,
                lsn: body.varint()?,
            },
            5 => Change::SetFamilyOptions {
                family: body.varint32()?,
                options: body.bytes()?.to_vec(),
            },
            6 => Change::AddSlice { level: take_level(body)?, meta: take_slice_meta(body)? },
            20 => {
                Change::AddSlice { level: take_level(body)?, meta: take_slice_with_fields(body)? }
            }
            7 => Change::RemoveSlice {
                family: body.varint32()?,
                level: take_level(body)?,
                file: body.varint()?,
            },
            8 => Change::ReplayFrom { lsn: body.varint()? },
            9 => Change::LsnCeiling { lsn: body.varint()? },
            10 => Change::NextFile { number: body.varint()? },
            11 => Change::NextFamily { family: body.varint32()? },
            12 => Change::Term(take_term(body, false)?),
            28 => Change::Term(take_term(body, true)?),
            13 => Change::DurableLsn { lsn: body.varint()? },
            14 => Change::CleanClose { end: body.varint()? },
            15 => Change::FamiliesChanged { lsn: body.varint()? },
            16 => Change::OldestReadable { lsn: body.varint()? },
            17 => Change::Moments { moments: take_moments(body)? },
            18 => Change::History { span_ms: body.varint()? },
            21 => Change::AddPrepared {
                lsn: body.varint()?,
                xid: body.bytes()?.to_vec(),
                file: body.varint()?,
                len: body.varint()?,
            },
            22 => Change::RemovePrepared { lsn: body.varint()? },
            23 => Change::Ticks { ticks: take_ticks(body)? },
            24 => Change::CloneFamily {
                family: body.varint32()?,
                source: body.varint32()?,
                name: take_name(body)?,
                options: body.bytes()?.to_vec(),
                lsn: body.varint()?,
            },
            25 => take_shared(body)?,
            LINEAGE => Change::Lineage { family: body.varint32()?, root: body.varint32()? },
            unknown if unknown & MAY_SKIP != 0 => return Ok(None),
            unknown => {
                return Err(DecodeError::newer_format(format!(
                    "the manifest holds a change of tag {unknown}"
                )));
            }
        };
        Ok(Some(change))
    }
}

fn put_term(out: &mut Vec<u8>, term: &Term) -> u8 {
    let Term { term, ended_at, resumes_at, seed } = *term;
    match seed {
        0 => put_integers(out, 12, &[term, ended_at, resumes_at]),
        _ => put_integers(out, 28, &[term, ended_at, resumes_at, seed]),
    }
}

fn take_term(body: &mut Decoder<'_>, has_seed: bool) -> Decoded<Term> {
    let (term, ended_at, resumes_at) = (body.varint()?, body.varint()?, body.varint()?);
    let seed = if has_seed { body.varint()? } else { 0 };
    Ok(Term { term, ended_at, resumes_at, seed })
}

fn put_integers(out: &mut Vec<u8>, tag: u8, integers: &[u64]) -> u8 {
    for &integer in integers {
        put_varint(out, integer);
    }
    tag
}

fn put_shared(out: &mut Vec<u8>, family: FamilyId, level: usize, meta: &SliceMeta) -> u8 {
    put_varint(out, u64::from(family));
    put_add_slice(out, level, meta);
    25
}

fn take_shared(body: &mut Decoder<'_>) -> Decoded<Change> {
    let (family, level) = (body.varint32()?, take_level(body)?);
    Ok(Change::AddShared { family, level, meta: take_slice_with_fields(body)? })
}

fn put_ticks(out: &mut Vec<u8>, ticks: &[Tick]) -> u8 {
    let mut before = Tick { lsn: 0, unix_ms: 0 };
    for tick in ticks {
        put_varint(out, tick.lsn - before.lsn);
        put_varint(out, tick.unix_ms - before.unix_ms);
        before = *tick;
    }
    23
}

fn take_moments(body: &mut Decoder<'_>) -> Decoded<Vec<Moment>> {
    let mut moments = Vec::new();
    while !body.is_done() {
        moments.push(Moment { unix_ms: body.varint()?, point: body.varint()? });
    }
    Ok(moments)
}

fn take_ticks(body: &mut Decoder<'_>) -> Decoded<Vec<Tick>> {
    let mut ticks: Vec<Tick> = Vec::new();
    while !body.is_done() {
        let before = ticks.last().copied().unwrap_or(Tick { lsn: 0, unix_ms: 0 });
        let lsn = before.lsn.checked_add(body.varint()?);
        let unix_ms = before.unix_ms.checked_add(body.varint()?);
        match (lsn, unix_ms) {
            (Some(lsn), Some(unix_ms)) => ticks.push(Tick { lsn, unix_ms }),
            _ => return Err(body.malformed("a tick lies beyond all numbers")),
        }
    }
    Ok(ticks)
}

fn take_name(body: &mut Decoder<'_>) -> Decoded<String> {
    String::from_utf8(body.bytes()?.to_vec())
        .map_err(|_| body.malformed("a family's name is not UTF-8"))
}

fn take_level(body: &mut Decoder<'_>) -> Decoded<usize> {
    let level = body.varint()?;
    usize::try_from(level)
        .ok()
        .filter(|&level| level < LEVELS_MAX)
        .ok_or_else(|| body.malformed("a level is out of range"))
}

/// One line for people to read.
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Database { uuid } => {
                write!(f, "database {:032x}", u128::from_be_bytes(*uuid))
            }
            Change::CreateFamily { family, name, options, lsn } => write!(
                f,
                "create family {family} {name:?} at {lsn} with {}",
                String::from_utf8_lossy(options)
            ),
            Change::DropFamily { family, lsn } => write!(f, "drop family {family} at {lsn}"),
            Change::RenameFamily { family, name, lsn } => {
                write!(f, "rename family {family} to {name:?} at {lsn}")
            }
            Change::SetFamilyOptions { family, options } => {
                write!(f, "set options of family {family} to {}", String::from_utf8_lossy(options))
            }
            Change::AddSlice { level, meta } => fmt_slice(f, *level, meta),
            Change::AddShared { family, level, meta } => {
                write!(f, "share with family {family}: ")?;
                fmt_slice(f, *level, meta)
            }
            Change::CloneFamily { family, source, name, options, lsn } => write!(
                f,
                "clone family {source} as family {family} {name:?} at {lsn} with {}",
                String::from_utf8_lossy(options)
            ),
            Change::Lineage { family, root } => {
                write!(f, "family {family} is a clone of family {root} or of a clone of it")
            }
            Change::RemoveSlice { family, level, file } => {
                write!(f, "remove file {file} from level {level} of family {family}")
            }
            Change::ReplayFrom { lsn } => write!(f, "replay from {lsn}"),
            Change::LsnCeiling { lsn } => write!(f, "LSN ceiling {lsn}"),
            Change::NextFile { number } => write!(f, "next file {number}"),
            Change::NextFamily { family } => write!(f, "next family {family}"),
            Change::Term(Term { term, ended_at, resumes_at, seed }) => {
                let (seeded, of) = match seed {
                    0 => ("", String::new()),
                    seed => ("seeded ", format!(" ({seed:#x})")),
                };
                write!(
                    f,
                    "{seeded}term {term}{of}: the one before ended at {ended_at}, resumes at {resumes_at}"
                )
            }
            Change::DurableLsn { lsn } => write!(f, "log durable through {lsn}"),
            Change::FamiliesChanged { lsn } => write!(f, "families changed up to {lsn}"),
            Change::OldestReadable { lsn } => write!(f, "oldest readable point {lsn}"),
            Change::Moments { moments } => {
                write!(f, "moments")?;
                moments
                    .iter()
                    .try_for_each(|moment| write!(f, " {} at {} ms", moment.point, moment.unix_ms))
            }
            Change::History { span_ms } => write!(f, "history of {span_ms} ms"),
            Change::AddPrepared { lsn, xid, file, len } => write!(
                f,
                "add the prepared transaction \"{}\" of {lsn}, {len} bytes in file {file}",
                xid.escape_ascii()
            ),
            Change::RemovePrepared { lsn } => write!(f, "remove the prepared transaction of {lsn}"),
            Change::Ticks { ticks } => {
                write!(f, "ticks")?;
                ticks.iter().try_for_each(|tick| write!(f, " {} ms at {}", tick.unix_ms, tick.lsn))
            }
            Change::CleanClose { end } => write!(f, "clean close, log ends at {end}"),
        }
    }
}

#[cfg(test)]
mod tests;
