//! Checks the log: the header page of every segment, every record, and that no record is missing
//! that had been durable.
//!
//! There are two walks over the log. The scan that an open would do checks what the database needs
//! (from `replay from` on). It knows what a power cut may leave, and ends at the first damage. The
//! other walk visits everything that looks like a record in every segment, needed or not, and finds
//! the rest. There, a *break* is a position where a record should begin and no intact one does. A
//! break is damage if a later record (of the same term), or the manifest, says that the log was
//! durable beyond it. Otherwise the break is the torn end of the log, which is not a finding.

use super::super::created;
use super::super::spilled::check_spilled;
use super::super::streams;
use super::super::unreadable::Unreadable;
use super::Verification;
use crate::error::{DecodeError, Error, Result};
use crate::format::{
    FILE_HEADER_LEN, FamilyId, FileHeader, FileKind, Lsn, Op, Payload, Succession, decode_payload,
};
use crate::version::{LOG_DIR, State};
use crate::vfs::FileAccess;
use crate::wal::{self, Dumped, HEADER_PAGE_LEN, ReadPiece, SegmentInfo, SegmentKind, Tail};
use std::path::{Path, PathBuf};

/// Finds the segments, including those that wait to be reused.
pub(super) fn gather(verification: &mut Verification<'_>) -> Result<Vec<SegmentInfo>> {
    let (fs, dir) = (verification.fs, verification.db.join(LOG_DIR));
    if !fs.exists(&dir)? {
        verification.report.damage(&dir, None, "the log's directory is missing");
        return Ok(Vec::new());
    }
    let mut segments = wal::inventory(&**fs, &dir)?;
    segments.retain(|segment| segment.kind != SegmentKind::Unfinished);
    segments.iter().for_each(|segment| verification.expect(segment.file_len));
    Ok(segments)
}

pub(super) fn verify(
    verification: &mut Verification<'_>,
    state: Option<&State>,
    found: &[SegmentInfo],
) -> Result<()> {
    for segment in found {
        if let Err(error) = check_header(verification, state, segment) {
            verification.report.absorb(error)?;
        }
    }
    let in_use = found.iter().filter(|segment| segment.kind == SegmentKind::Log);
    let segments: &[SegmentInfo] = &in_use.cloned().collect::<Vec<_>>();
    let dir = verification.db.join(LOG_DIR);
    if !verification.fs.exists(&dir)? {
        return Ok(());
    }
    if let Some(state) = state
        && let Err(error) = scan(verification, state, segments)
    {
        verification.report.absorb(error)?;
    }
    let before = verification.done_bytes();
    let mut walk = Walk { verification, state, segments, chain: None };
    let fs = walk.verification.fs;
    let unreadable = Unreadable::default();
    let read_piece: ReadPiece<'_> = &|file, offset, buf| unreadable.read_around(file, offset, buf);
    let walked = wal::dump_by(&**fs, &dir, 0, read_piece, &mut |dumped| walk.visit(dumped, before));
    walk.end_chain();
    for (path, offset) in unreadable.places() {
        verification.report.damage(&path, Some(offset), "the device cannot read it");
    }
    if let Err(error) = walked {
        verification.report.absorb(error)?;
    }
    let len: u64 = found.iter().map(|segment| segment.file_len).sum();
    verification.advance_to(before + len);
    Ok(())
}

/// Checks a segment's length and header, and that the rest of the header page is zero.
fn check_header(
    verification: &mut Verification<'_>,
    state: Option<&State>,
    segment: &SegmentInfo,
) -> Result<()> {
    let path = &segment.path;
    if segment.data_len().is_none() {
        let detail = format!("no log segment has {} bytes", segment.file_len);
        // A repair that was cut short leaves such a file below the beginning of its own log.
        let is_over = state.is_some_and(|state| wal::reach(segment) <= state.replay_from());
        match segment.kind == SegmentKind::Spare || is_over {
            true => {
                let detail = format!("{detail}; nothing needs it any more");
                verification.report.note(path, None, detail);
            }
            false => verification.report.damage(path, None, detail),
        }
        return Ok(());
    }
    let mut page = vec![0; HEADER_PAGE_LEN as usize];
    verification.fs.open_read(path, FileAccess::Positional)?.read_at(0, &mut page)?;
    if segment.kind == SegmentKind::Spare {
        note_spare(verification, state, (path, &page));
        return Ok(());
    }
    let header =
        FileHeader::decode(&page, FileKind::Log).map_err(|error| error.in_file(path, 0))?;
    if header.number != segment.base {
        let detail = format!("its header says it begins at LSN {:#x}", header.number);
        // A segment that is reused gets its new header before its new name.
        if state.is_some_and(|state| segment.end() <= state.replay_from()) {
            verification.report.note(
                path,
                Some(48),
                format!("{detail}; nothing needs it any more"),
            );
        } else {
            verification.report.damage(path, Some(48), detail);
        }
    }
    if state.is_some_and(|state| state.uuid() != header.uuid) {
        verification.report.damage(path, Some(32), "the log segment belongs to another database");
    }
    if let Some(at) = held_behind_header(&page) {
        let detail = "the header page holds something behind the header";
        verification.report.damage(path, Some(at), detail);
    }
    Ok(())
}

/// Notes that the header page of a spare is not as one was written. A spare gets its new header
/// before its new name, so a power cut may tear it; nothing of a spare is ever read for records.
fn note_spare(
    verification: &mut Verification<'_>,
    state: Option<&State>,
    (path, page): (&Path, &[u8]),
) {
    let is_own = match FileHeader::decode(page, FileKind::Log) {
        Ok(header) => state.is_none_or(|state| state.uuid() == header.uuid),
        Err(_) => false,
    };
    if !is_own || held_behind_header(page).is_some() {
        let detail = "the header page of a spare segment is not whole, or not of this database; no data is lost: nothing \
                      reads a spare";
        verification.report.note(path, None, detail);
    }
}

/// Where a header page holds something behind the header.
fn held_behind_header(page: &[u8]) -> Option<u64> {
    let at = page[FILE_HEADER_LEN..].iter().position(|byte| *byte != 0)?;
    Some((FILE_HEADER_LEN + at) as u64)
}

/// Does what an open would do to find the end of the log.
fn scan(
    verification: &mut Verification<'_>,
    state: &State,
    segments: &[SegmentInfo],
) -> Result<()> {
    let dir = verification.db.join(LOG_DIR);
    let (from, durable) = (state.replay_from(), state.durable());
    let fs = &**verification.fs;
    if from < state.ceiling() {
        wal::demand_segment(fs, &dir, from)?;
    }
    let (mut unreadable, mut refused) = (Vec::new(), Vec::new());
    let mut succession = state.succession();
    let (files, db) = (verification.fs.clone(), verification.db);
    let is_dropped = |id: FamilyId| id < state.next_family() && state.family(id).is_none();
    let mut visit = |lsn: Lsn, payload: &[u8]| {
        let payload = decode_payload(payload);
        match &payload {
            Ok(payload) => match refusal(&mut succession, lsn, payload) {
                Some(error) => refused.push((lsn, error)),
                None => created::demand_options(lsn, payload, state.families_changed())?,
            },
            // That a record means nothing, the other walk tells.
            Err(_) => succession.note_gap(),
        }
        match payload {
            Ok(Payload::Spilled(named)) => match check_spilled(&files, db, state.uuid(), &named) {
                Ok(families) => {
                    let check = |of: &FamilyId| succession.demand_family(lsn, *of).err();
                    let unknown = families.iter().find_map(check);
                    unknown.iter().for_each(|_| succession.note_gap());
                    refused.extend(unknown.map(|error| (lsn, error)));
                }
                Err(error) => unreadable.push(error),
            },
            Ok(Payload::Batch(ops)) => {
                let of_live = |(_, op, _): &(u64, &Op<'_>, Error)| !is_dropped(op.family);
                let lost = streams::unreadable(&*files, db, &ops).into_iter().filter(of_live);
                unreadable.extend(lost.map(|(_, _, error)| error));
            }
            _ => {}
        }
        Ok(())
    };
    let scanned = wal::scan(fs, &dir, state.uuid(), from, durable, &mut visit, &mut |_, _| ())?;
    for (lsn, error) in refused {
        let (path, offset) = locate(segments, lsn).unwrap_or((dir.clone(), 0));
        let detail = format!("the log record at LSN {lsn:#x} is whole, yet {error}");
        verification.report.damage(&path, Some(offset), detail);
    }
    unreadable.into_iter().try_for_each(|error| verification.report.absorb(error))?;
    let detail = match scanned.tail {
        Tail::Clean => return Ok(()),
        Tail::Torn { len } => {
            format!("the log ends in a record of {len} bytes that was not written whole")
        }
        Tail::Hole { records, bytes, .. } => format!(
            "the log ends here, in front of {records} whole records ({bytes} bytes) behind one that is not"
        ),
    };
    let (path, offset) = locate(segments, scanned.end).unwrap_or((dir, 0));
    let detail = format!("{detail}; it was never promised to survive, the next open discards it");
    verification.report.note(&path, Some(offset), detail);
    Ok(())
}

/// Why no replay accepts the record.
fn refusal(succession: &mut Succession, lsn: Lsn, payload: &Payload<'_>) -> Option<DecodeError> {
    let unknown = succession.demand_families(lsn, payload).err();
    if unknown.is_some() {
        // Later operations of this family are not told again.
        succession.note_gap();
    }
    unknown.or(succession.follow(lsn, payload).err())
}

/// The file and offset of an LSN.
fn locate(segments: &[SegmentInfo], lsn: Lsn) -> Option<(PathBuf, u64)> {
    // Where a longer segment of an earlier term overlaps a later segment, the later one counts.
    let segment = segments.iter().rfind(|segment| segment.holds(lsn))?;
    Some((segment.path.clone(), HEADER_PAGE_LEN + (lsn - segment.base)))
}

/// Consecutive records of one term.
struct Chain {
    generation: u16,
    /// Where the next record should begin.
    next: Lsn,
    /// Positions where a record should begin but no intact one does, and where nothing has yet
    /// shown that the log was durable.
    breaks: Vec<Lsn>,
}

/// The walk over everything that looks like a record.
struct Walk<'a, 'b> {
    verification: &'a mut Verification<'b>,
    state: Option<&'a State>,
    segments: &'a [SegmentInfo],
    chain: Option<Chain>,
}

impl Walk<'_, '_> {
    fn visit(&mut self, dumped: &Dumped<'_>, done_before: u64) -> Result<()> {
        let header = &dumped.header;
        let goes_on = self.chain.as_ref().is_some_and(|chain| {
            chain.generation == header.generation && self.is_unbroken(chain.next, header.lsn)
        });
        if !goes_on {
            self.end_chain();
            let next = self.known_start(header.generation, header.lsn).unwrap_or(header.lsn);
            self.chain = Some(Chain { generation: header.generation, next, breaks: Vec::new() });
        }
        let mut proven = Vec::new();
        if let Some(chain) = &mut self.chain {
            if chain.next < header.lsn {
                chain.breaks.push(chain.next);
            }
            if dumped.payload.is_none() && !header.skip {
                chain.breaks.push(header.lsn);
            }
            // A record inside the payload of a damaged one must not move the position back.
            chain.next = chain.next.max(header.lsn + header.record_len());
            if let Some(durable) = header.durable {
                proven.extend(chain.breaks.extract_if(.., |lsn| *lsn < durable));
            }
        }
        for lsn in proven {
            self.damaged(lsn, &format!("the record at LSN {:#x}", header.lsn));
        }
        self.verification.report.log_records += u64::from(header.skip || dumped.payload.is_some());
        if let Some(Err(error)) = dumped.payload.map(decode_payload) {
            let error = error.unknown_as_damage(self.verification.counts_unknown);
            self.verification.report.absorb(error.in_file(&dumped.path, dumped.offset))?;
        }
        self.check_rim(dumped);
        let passed = self.segments.iter().take_while(|segment| segment.end() <= header.lsn);
        let passed: u64 = passed.map(|segment| segment.file_len).sum();
        self.verification.advance_to(done_before + passed);
        Ok(())
    }

    /// Checks what no checksum of a record covers.
    fn check_rim(&mut self, dumped: &Dumped<'_>) {
        let report = &mut self.verification.report;
        if !dumped.is_padded_with_zeros {
            let detail = "what fills the record up to its length is not zero; no data is lost";
            report.damage(&dumped.path, Some(dumped.offset), detail);
        }
        let end = dumped.header.lsn + dumped.header.record_len();
        if self.state.is_some_and(|state| end > state.ceiling()) {
            let detail = "a record beyond every LSN that the manifest says was given out";
            report.damage(&dumped.path, Some(dumped.offset), detail);
        }
    }

    /// Where the records of this term must have begun, if that is known and no segment is missing
    /// from there to `lsn`.
    fn known_start(&self, generation: u16, lsn: Lsn) -> Option<Lsn> {
        let state = self.state?;
        let term = state.terms().iter().rfind(|term| term.term as u16 == generation)?;
        let starts = [state.replay_from(), term.resumes_at];
        let known =
            |start: &Lsn| (term.resumes_at..=lsn).contains(start) && self.is_unbroken(*start, lsn);
        starts.into_iter().filter(known).min()
    }

    /// True if the segments hold everything from `from` to `to`.
    fn is_unbroken(&self, from: Lsn, to: Lsn) -> bool {
        let mut reached = from;
        for segment in self.segments {
            if segment.base <= reached {
                reached = reached.max(segment.end());
            }
        }
        from <= to && reached > to && self.segments.iter().any(|segment| segment.base <= from)
    }

    /// Judges the remaining breaks by what the manifest says.
    fn end_chain(&mut self) {
        let (Some(chain), Some(state)) = (self.chain.take(), self.state) else { return };
        if state.term().term as u16 != chain.generation {
            return;
        }
        for lsn in chain.breaks.iter().copied().chain([chain.next]) {
            if lsn < state.durable() {
                self.damaged(lsn, "the manifest");
            }
        }
    }

    fn damaged(&mut self, lsn: Lsn, witness: &str) {
        let Some((path, offset)) = locate(self.segments, lsn) else { return };
        let detail = format!(
            "no valid log record at LSN {lsn:#x}, but {witness} shows that the log was durable beyond it"
        );
        let report = &mut self.verification.report;
        if self.state.is_none_or(|state| lsn >= state.replay_from()) {
            report.damage(&path, Some(offset), detail);
        } else {
            // What a flush has written to tables counts as durable without a sync of the log, so a
            // power cut may leave this behind.
            report.note(
                &path,
                Some(offset),
                format!(
                    "{detail}; tables have what it held, no data is lost; a power cut or a failing disk did this"
                ),
            );
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::env::Env;
    use crate::vfs::MemoryFs;
    use crate::{Options, WriteOptions};
    use std::path::Path;
    use std::sync::Arc;

    /// What a flush wrote to tables needs no sync of the log, but later records call it durable.
    #[test]
    fn what_a_power_cut_took_from_the_log_after_it_was_flushed_is_no_damage() {
        let fs = MemoryFs::new();
        let over = |fs: &MemoryFs| Env { fs: Arc::new(fs.clone()), ..Env::system() };
        let options = Options::new().env(over(&fs));
        let db = options.open("/db").unwrap();
        for key in ["a", "b", "c"] {
            db.put(key, vec![7; 9000]).unwrap();
            db.flush().unwrap();
        }
        db.with(WriteOptions::sync()).put("d", "value").unwrap();
        let mut notes = 0;
        for nth in 0..40 {
            let mut at = 0;
            // Loses the nth of all changes, and no other.
            let left = fs.crashed(|unsynced| {
                let (from, steps) = (at, unsynced.steps.len());
                at += steps;
                if (from..at).contains(&nth) { nth - from } else { steps }
            });
            let report =
                crate::tools::verify(Path::new("/db"), &over(&left), &mut |_, _| ()).unwrap();
            assert!(report.is_clean(), "{report:?}");
            notes += report.notes.iter().filter(|note| note.detail.contains("tables have")).count();
        }
        assert!(notes > 0, "some cut leaves such a place");
    }
}
