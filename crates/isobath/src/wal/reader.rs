//! Reads the log back by LSN: finds the segment files, joins adjacent ones into runs, and decodes
//! the record at an LSN or the next one after it. Only reads.
//!
//! Memory: one window of [`WINDOW_LEN`] bytes, or of one record if that is longer. A record's
//! length is checked before memory is allocated for it: against the bytes that the segment files
//! hold (no segment has more than `SEGMENT_LEN_MAX`) and against the longest record that any log
//! takes.

use super::record::{RECORD_ALIGN, RECORD_HEADER_LEN, RecordHeader};
use super::segment::{
    HEADER_PAGE_LEN, SEGMENT_LEN_MAX, SegmentInfo, SegmentKind, file_name, inventory,
};
use super::segment_table::RECORD_LEN_MAX;
use crate::error::{Error, Result};
use crate::format::{FILE_HEADER_LEN, FileHeader, FileKind, Lsn};
use crate::vfs::{FileAccess, FileSystem, ReadFile, len_in_memory};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a reader of the log gets bytes of a segment: what [`ReadFile::read_at`] does, or more.
pub(crate) type ReadPiece<'a> = &'a dyn Fn(&dyn ReadFile, u64, &mut [u8]) -> Result<()>;

const WINDOW_LEN: u64 = 1 << 20;
/// The first window of a reader that goes on where it was: often there is nothing new.
const FIRST_WINDOW_LEN: u64 = 4 << 10;
const HEADER_LEN: u64 = RECORD_HEADER_LEN as u64;

/// A segment file and what its header page says.
struct Source {
    path: PathBuf,
    base: Lsn,
    end: Lsn,
    /// The generation of the segment, or what is wrong with the file.
    generation: Result<u16, String>,
    /// The end of the unbroken run of segments that this one belongs to.
    held_until: Lsn,
    /// The same for segments without damage; the base if this one is damaged.
    trusted_until: Lsn,
}

/// What was found at an LSN.
pub(super) enum Found<'a> {
    /// A record, verified. A skip record's payload has no meaning.
    Record { header: RecordHeader, payload: &'a [u8] },
    /// No valid record.
    Nothing,
}

/// A header that verifies, found somewhere in the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sighting {
    pub(super) header: RecordHeader,
    /// True if the payload verifies too.
    pub(super) whole: bool,
}

pub(super) struct LogReader<'a> {
    fs: &'a dyn FileSystem,
    read_piece: ReadPiece<'a>,
    dir: PathBuf,
    uuid: Option<[u8; 16]>,
    /// By base; no two overlap.
    sources: Vec<Source>,
    open: Option<(usize, Arc<dyn ReadFile>)>,
    window: Vec<u8>,
    window_start: Lsn,
    /// The least length of the next window, if the segments hold as much.
    window_len: u64,
}

impl<'a> LogReader<'a> {
    /// Finds the segments that hold LSNs from `from` on. With a `uuid`, all must belong to that
    /// database and have a length that segments can have.
    pub(super) fn open(
        fs: &'a dyn FileSystem,
        dir: &Path,
        uuid: Option<[u8; 16]>,
        from: Lsn,
    ) -> Result<LogReader<'a>> {
        let read_piece: ReadPiece<'a> = &|file, offset, buf| file.read_at(offset, buf);
        LogReader::open_to_read(fs, dir, uuid, from, read_piece)
    }

    /// The same, and reads bytes in the caller's way.
    pub(super) fn open_to_read(
        fs: &'a dyn FileSystem,
        dir: &Path,
        uuid: Option<[u8; 16]>,
        from: Lsn,
        read_piece: ReadPiece<'a>,
    ) -> Result<LogReader<'a>> {
        Ok(LogReader {
            fs,
            read_piece,
            dir: dir.to_owned(),
            uuid,
            sources: LogReader::find_sources(fs, dir, uuid, from, read_piece)?,
            open: None,
            window: Vec::new(),
            window_start: 0,
            window_len: WINDOW_LEN,
        })
    }

    /// Lets the first windows be short. Each is twice as long as the one before.
    pub(super) fn begin_small(&mut self) {
        self.window_len = FIRST_WINDOW_LEN;
    }

    /// Looks again for segments that hold LSNs from `from` on, and forgets what was read.
    pub(super) fn look_again(&mut self, from: Lsn) -> Result<()> {
        self.sources =
            LogReader::find_sources(self.fs, &self.dir, self.uuid, from, self.read_piece)?;
        self.open = None;
        self.window.clear();
        Ok(())
    }

    fn find_sources(
        fs: &dyn FileSystem,
        dir: &Path,
        uuid: Option<[u8; 16]>,
        from: Lsn,
        read_piece: ReadPiece<'_>,
    ) -> Result<Vec<Source>> {
        let mut infos = inventory(fs, dir)?;
        infos.retain(|info| info.kind == SegmentKind::Log);
        let mut sources = Vec::new();
        for (at, info) in infos.iter().enumerate() {
            // An earlier term's longer segment may overlap the beginning of a later one. The
            // earlier term never used the overlap.
            let next_base = infos.get(at + 1).map_or(Lsn::MAX, |next| next.base);
            let end = info.end().min(next_base);
            // A caller that inspects a damaged database gives no `uuid`, and also wants cut-off
            // segments.
            let is_needed = reach(info).min(next_base) > from;
            if uuid.is_some() && is_needed && info.data_len().is_none() {
                return Err(Error::corruption(&info.path, 0, wrong_len(info)));
            }
            if end > from {
                let generation = check_source(fs, info, uuid, read_piece)?;
                let (path, base) = (info.path.clone(), info.base);
                let (held_until, trusted_until) = (end, end);
                sources.push(Source { path, base, end, generation, held_until, trusted_until });
            }
        }
        join_adjacent(&mut sources);
        Ok(sources)
    }

    /// The LSN after the last that any segment can hold, or 0.
    pub(super) fn end(&self) -> Lsn {
        self.sources.last().map_or(0, |source| source.end)
    }

    /// The first LSN from `from` on that no segment holds.
    pub(super) fn first_gap(&self, from: Lsn) -> Lsn {
        self.source_at(from).map_or(from, |source| source.held_until)
    }

    /// The record at `lsn`, if it is valid and all its segments' header pages are sound.
    pub(super) fn record_at(&mut self, lsn: Lsn) -> Result<Found<'_>> {
        let end = self.source_at(lsn).map_or(lsn, |source| source.trusted_until);
        let Some(sighting) = self.sight(lsn, end)? else { return Ok(Found::Nothing) };
        if !sighting.whole {
            return Ok(Found::Nothing);
        }
        let header = sighting.header;
        let payload = self.payload(&header)?;
        Ok(Found::Record { header, payload })
    }

    /// The segment whose damaged header page is the only reason that the record at `lsn` cannot be
    /// trusted.
    pub(super) fn distrusted(&mut self, lsn: Lsn) -> Result<Option<Place>> {
        let end = self.first_gap(lsn);
        if !self.sight(lsn, end)?.is_some_and(|sighting| sighting.whole) {
            return Ok(None);
        }
        let damaged = |source: &&Source| source.end > lsn && source.generation.is_err();
        Ok(self.sources.iter().find(damaged).map(|source| Place {
            path: source.path.clone(),
            offset: 0,
            damage: source.generation.clone().err(),
        }))
    }

    /// The payload of a record that was seen whole.
    pub(super) fn payload(&mut self, header: &RecordHeader) -> Result<&[u8]> {
        let payload_len = if header.skip { 0 } else { header.payload_len };
        let bytes = self.bytes(header.lsn, HEADER_LEN + payload_len)?;
        Ok(&bytes[RECORD_HEADER_LEN..])
    }

    /// The padding that fills a record up to its length in the log. The record was seen whole and
    /// is not a skip record.
    pub(super) fn padding(&mut self, header: &RecordHeader) -> Result<&[u8]> {
        let bytes = self.bytes(header.lsn, header.record_len())?;
        Ok(&bytes[RECORD_HEADER_LEN + header.payload_len as usize..])
    }

    /// The first header at or after `lsn` that verifies, whatever the header pages say. `progress`
    /// receives the LSN reached.
    pub(super) fn next_sighting(
        &mut self,
        lsn: Lsn,
        progress: &mut dyn FnMut(Lsn),
    ) -> Result<Option<Sighting>> {
        Ok(self.next_sighting_within(lsn..Lsn::MAX, progress)?.ok())
    }

    /// The same for a header that begins within a range, whose end is aligned. If there is none,
    /// how far it was looked: to the end of the range, or of the log.
    pub(super) fn next_sighting_within(
        &mut self,
        range: std::ops::Range<Lsn>,
        progress: &mut dyn FnMut(Lsn),
    ) -> Result<Result<Sighting, Lsn>> {
        let mut lsn = range.start;
        while let Some(source) = self.sources.iter().find(|source| source.end > lsn) {
            lsn = lsn.max(source.base).next_multiple_of(RECORD_ALIGN);
            let end = source.held_until;
            while lsn + HEADER_LEN <= end {
                debug_assert!(lsn.is_multiple_of(RECORD_ALIGN), "no record begins at {lsn:#x}");
                if lsn >= range.end {
                    return Ok(Err(lsn));
                }
                let window = self.header_and_more(lsn)?;
                let within = (range.end - lsn).saturating_add(HEADER_LEN - RECORD_ALIGN);
                let window = &window[..window.len().min(within.try_into().unwrap_or(usize::MAX))];
                match first_candidate(window, lsn) {
                    Some(candidate) => {
                        if let Some(sighting) = self.sight(candidate, end)? {
                            return Ok(Ok(sighting));
                        }
                        lsn = candidate + RECORD_ALIGN;
                    }
                    None => lsn += places_in(window) * RECORD_ALIGN,
                }
                progress(lsn);
            }
            lsn = end;
        }
        Ok(Err(lsn))
    }

    /// Decodes the record at `lsn`, which must end by `end`, and says how much of it verifies.
    fn sight(&mut self, lsn: Lsn, end: Lsn) -> Result<Option<Sighting>> {
        if end.saturating_sub(lsn) < HEADER_LEN {
            return Ok(None);
        }
        let generation = self.source_at(lsn).and_then(|source| source.generation.as_ref().ok());
        let generation = generation.copied();
        let header = RecordHeader::decode(self.bytes(lsn, HEADER_LEN)?, lsn);
        let header = header.filter(|header| generation.is_none_or(|g| g == header.generation));
        let Some(header) = header else { return Ok(None) };
        let fits = header.record_len() <= RECORD_LEN_MAX.min(end - lsn);
        let whole = fits && {
            let payload = self.payload(&header)?;
            header.matches(payload)
        };
        Ok(Some(Sighting { header, whole }))
    }

    /// True if a header was written at `lsn` but no longer verifies.
    pub(super) fn has_remnant(&mut self, lsn: Lsn) -> Result<bool> {
        let is_there = self.first_gap(lsn) - lsn >= HEADER_LEN;
        Ok(is_there && RecordHeader::is_remnant(self.bytes(lsn, HEADER_LEN)?, lsn))
    }

    /// The bytes where a header would be at `lsn`, if none was begun there.
    pub(super) fn unused_at(&mut self, lsn: Lsn) -> Result<Option<[u8; RECORD_HEADER_LEN]>> {
        if self.first_gap(lsn) - lsn < HEADER_LEN || self.has_remnant(lsn)? {
            return Ok(None);
        }
        Ok(self.bytes(lsn, HEADER_LEN)?.first_chunk().copied())
    }

    fn index_at(&self, lsn: Lsn) -> Option<usize> {
        let at = self.sources.partition_point(|source| source.end <= lsn);
        self.sources.get(at).is_some_and(|source| source.base <= lsn).then_some(at)
    }

    fn source_at(&self, lsn: Lsn) -> Option<&Source> {
        self.index_at(lsn).map(|at| &self.sources[at])
    }

    /// The bytes `[lsn, lsn + len)`, all within one run of segments.
    fn bytes(&mut self, lsn: Lsn, len: u64) -> Result<&[u8]> {
        let window_end = self.window_start + self.window.len() as u64;
        if lsn < self.window_start || lsn + len > window_end {
            self.load(lsn, len)?;
        }
        let at = (lsn - self.window_start) as usize;
        Ok(&self.window[at..at + len as usize])
    }

    /// The bytes from `lsn` to the end of the window, at least a header's length.
    fn header_and_more(&mut self, lsn: Lsn) -> Result<&[u8]> {
        self.bytes(lsn, HEADER_LEN)?;
        Ok(&self.window[(lsn - self.window_start) as usize..])
    }

    /// Moves the window to `lsn` and keeps the bytes that it already has from there on.
    fn load(&mut self, lsn: Lsn, len: u64) -> Result<()> {
        let window_end = self.window_start + self.window.len() as u64;
        let kept = if (self.window_start..window_end).contains(&lsn) {
            self.window.drain(..(lsn - self.window_start) as usize);
            self.window.len() as u64
        } else {
            self.window.clear();
            0
        };
        self.window_start = lsn;
        let stretch = self.first_gap(lsn) - lsn;
        let path = self.locate(lsn).path;
        let window_len = len_in_memory(len.max(self.window_len).min(stretch), &path)?;
        self.window_len = (2 * self.window_len).min(WINDOW_LEN);
        self.window.resize(window_len, 0);
        let mut window = std::mem::take(&mut self.window);
        let outcome = self.read(lsn + kept, &mut window[kept as usize..]);
        if outcome.is_err() {
            window.clear();
        }
        self.window = window;
        outcome
    }

    fn read(&mut self, mut lsn: Lsn, mut buf: &mut [u8]) -> Result<()> {
        while !buf.is_empty() {
            let Some(at) = self.index_at(lsn) else {
                let detail = format!("no log segment holds LSN {lsn:#x}");
                return Err(Error::corruption(&self.locate(lsn).path, 0, detail));
            };
            let (base, end) = (self.sources[at].base, self.sources[at].end);
            let len = (end - lsn).min(buf.len() as u64);
            let (piece, rest) = buf.split_at_mut(len as usize);
            let read_piece = self.read_piece;
            read_piece(self.file(at)?, HEADER_PAGE_LEN + (lsn - base), piece)?;
            lsn += len;
            buf = rest;
        }
        Ok(())
    }

    fn file(&mut self, at: usize) -> Result<&dyn ReadFile> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != at) {
            let file = self.fs.open_read(&self.sources[at].path, FileAccess::Positional)?;
            self.open = Some((at, file));
        }
        Ok(&*self.open.as_ref().expect("just opened").1)
    }

    /// The file and offset of an LSN, and what is known to be wrong with the file.
    pub(super) fn locate(&self, lsn: Lsn) -> Place {
        match self.source_at(lsn) {
            Some(source) => {
                let path = source.path.clone();
                let offset = HEADER_PAGE_LEN + (lsn - source.base);
                Place { path, offset, damage: source.generation.clone().err() }
            }
            None => Place {
                path: self.dir.join(file_name(lsn, SegmentKind::Log)),
                offset: 0,
                damage: Some("the segment is missing".to_owned()),
            },
        }
    }
}

/// Computes where the adjacent segments from it on end, for each source.
fn join_adjacent(sources: &mut [Source]) {
    for at in (0..sources.len()).rev() {
        let next = sources.get(at + 1).map(|next| (next.base, next.held_until, next.trusted_until));
        let source = &mut sources[at];
        if let Some((_, held, trusted)) = next.filter(|next| next.0 == source.end) {
            source.held_until = held;
            source.trusted_until = trusted;
        }
        if source.generation.is_err() {
            source.trusted_until = source.base;
        }
    }
}

/// The file and offset of an LSN.
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    pub(super) damage: Option<String>,
}

/// How many places there are in `bytes` for a header, from the first byte on. What was read last
/// may be as long as any payload.
fn places_in(bytes: &[u8]) -> u64 {
    (bytes.len() as u64 - HEADER_LEN) / RECORD_ALIGN + 1
}

/// The first aligned place in `bytes`, which begin at `lsn`, whose LSN field equals its own LSN.
fn first_candidate(bytes: &[u8], lsn: Lsn) -> Option<Lsn> {
    let places = bytes.windows(RECORD_HEADER_LEN).step_by(RECORD_ALIGN as usize);
    (lsn..).step_by(RECORD_ALIGN as usize).zip(places).find_map(|(place, bytes)| {
        let field = u64::from_le_bytes(*bytes[12..].first_chunk().expect("8 bytes"));
        (field == place).then_some(place)
    })
}

/// The LSN after the last that the segment can ever have held. The length of a file that was cut
/// shows nothing, so such a file counts as the longest of all segments.
pub(crate) fn reach(info: &SegmentInfo) -> Lsn {
    match info.data_len() {
        Some(_) => info.end(),
        None => info.base.saturating_add(SEGMENT_LEN_MAX),
    }
}

fn wrong_len(info: &SegmentInfo) -> String {
    format!("no log segment has {} bytes", info.file_len)
}

/// Reads a segment's header page. Damage is returned as a finding about the segment; a foreign or
/// newer file is an error.
fn check_source(
    fs: &dyn FileSystem,
    info: &SegmentInfo,
    uuid: Option<[u8; 16]>,
    read_piece: ReadPiece<'_>,
) -> Result<Result<u16, String>> {
    if info.data_len().is_none() {
        return Ok(Err(wrong_len(info)));
    }
    let mut bytes = [0; FILE_HEADER_LEN];
    read_piece(&*fs.open_read(&info.path, FileAccess::Positional)?, 0, &mut bytes)?;
    match FileHeader::decode(&bytes, FileKind::Log) {
        Ok(header) if header.number != info.base => {
            Ok(Err(format!("its header says it begins at LSN {:#x}", header.number)))
        }
        Ok(header) if uuid.is_some_and(|uuid| uuid != header.uuid) => {
            Err(Error::corruption(&info.path, 32, "the log segment belongs to another database"))
        }
        Ok(header) => Ok(Ok(header.generation as u16)),
        Err(error) if error.is_damage() => Ok(Err(error.to_string())),
        Err(error) => Err(error.in_file(&info.path, 0)),
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_segments_ends_at_a_gap_and_trust_in_it_at_a_damaged_one() {
        let source = |base, end, is_sound: bool| Source {
            path: PathBuf::new(),
            base,
            end,
            generation: if is_sound { Ok(1) } else { Err("damaged".to_owned()) },
            held_until: end,
            trusted_until: end,
        };
        let mut sources = [
            source(10, 20, true),
            source(20, 30, true),
            source(30, 40, false),
            source(40, 50, true),
            source(60, 70, true),
            source(70, 80, false),
        ];
        join_adjacent(&mut sources);
        let joined = sources.map(|source| (source.held_until, source.trusted_until));
        assert_eq!(joined, [(50, 30), (50, 30), (50, 30), (50, 50), (80, 70), (80, 70)]);
    }

    #[test]
    fn a_candidate_names_its_own_place_and_has_room_for_a_header() {
        let lsn: Lsn = 0x1_0000;
        for at in [0, 8, 64, 4, 72] {
            let mut bytes = [0; 96];
            let field = at as usize + 12..at as usize + 20;
            bytes[field].copy_from_slice(&(lsn + at).to_le_bytes());
            let expected = (at % 8 == 0 && at <= 64).then_some(lsn + at);
            assert_eq!(first_candidate(&bytes, lsn), expected, "at {at}");
            assert_eq!(first_candidate(&bytes, lsn + 8), None, "at {at} of another place");
            bytes[76..84].copy_from_slice(&(lsn + 64).to_le_bytes());
            assert_eq!(
                first_candidate(&bytes, lsn),
                expected.or(Some(lsn + 64)),
                "the first counts"
            );
        }
        assert_eq!(first_candidate(&[0; 31], 0), None);
        assert_eq!(first_candidate(&[0; 32], 0), Some(0));
    }
}
