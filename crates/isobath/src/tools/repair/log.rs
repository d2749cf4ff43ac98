//! Reads what can be read of the log.
//!
//! If an open could replay the log, the repair leaves it to the next open. If not, or if it is
//! unknown where replay begins, every intact record counts: those before the damage, and those
//! after it, since each record's LSN tells where it belongs. A record with a valid checksum but
//! without a meaning, or one that no replay accepts, is lost like one that cannot be read. Without
//! the manifest, only records of the newest term count: the records of an earlier term were taken
//! into tables, or given up, before the next term could begin.

use super::super::created;
use super::super::report::is_loss_of;
use super::super::spilled::check_spilled;
use super::super::streams;
use super::super::unreadable::SECTOR_LEN;
use super::facts::Facts;
use super::floors::{Floors, replayable};
use super::prepared::{Entries, InDoubt};
use super::report::Loss;
use super::tables::FoundTable;
use super::{LSN_MARGIN, Repair};
use crate::error::{Decoded, Error, ErrorKind, Result};
use crate::format::{
    FamilyId, Lsn, Payload, SpilledFile, Succession, decode_payload, spilled_seq, streams_of,
};
use crate::table::cache::table_path;
use crate::version::{LOG_DIR, SPILL_DIR};
use crate::wal::{
    self, Dumped, HEADER_PAGE_LEN, RECORD_HEADER_LEN, ReadPiece, SegmentInfo, SegmentKind,
};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Files whose name has an LSN above this are ignored.
const BASE_MAX: Lsn = 1 << 61;

/// What was found of the log.
#[derive(Default)]
pub(super) struct FoundLog {
    /// The log has to be moved into tables now.
    pub(super) must_replay: bool,
    /// Above every LSN that was given out.
    pub(super) end: Lsn,
    /// The largest generation of a record that was seen.
    pub(super) generation: u16,
    /// No record below this is missing, as far as the log shows. What records name may be lost, and
    /// without the manifest it has no meaning.
    pub(super) whole_until: Lsn,
    /// Files that are not needed once the log is in tables.
    pub(super) replaced: Vec<PathBuf>,
    /// Large commits whose files are not whole, by their LSNs.
    pub(super) lost_commits: BTreeSet<Lsn>,
    /// Operations that put streams whose files are not whole, by their sequences.
    pub(super) lost_streams: BTreeSet<Lsn>,
    /// The files of streams that the next open needs, as the log is left to it.
    pub(super) streams: BTreeSet<u64>,
    from: Lsn,
    /// Where an open would stop reading, if nothing is damaged before.
    stop: Option<Lsn>,
    /// Where the last record ends that counts.
    read_until: Lsn,
    /// An open would read all of it but for records that no replay accepts.
    is_whole: bool,
    /// Which operations are in tables.
    pub(super) floors: Floors,
    segments: Vec<SegmentInfo>,
    /// The losses that were reported.
    told: Vec<(Lsn, Lsn)>,
}

/// Takes an intact record.
pub(super) type Apply<'a> = &'a mut dyn FnMut(Lsn, &Payload<'_>) -> Result<()>;

/// Finds the log. `floors` say how far tables go, and all transactions in files were prepared below
/// `entries_end`. Without the manifest, the log itself shows which part of it counts.
pub(super) fn find(
    repair: &mut Repair<'_>,
    facts: &Facts,
    (floors, entries_end): (Floors, Lsn),
) -> Result<FoundLog> {
    let dir = repair.db.join(LOG_DIR);
    let mut log = FoundLog { from: facts.replay_from, ..FoundLog::default() };
    if repair.fs.exists(&dir)? {
        log.segments = wal::inventory(&*repair.fs, &dir)?;
        log.segments.retain(|info| info.base < BASE_MAX);
    }
    // The new manifest begins above all that a segment can have held before it was cut, so that
    // what is left of it does no harm.
    let is_placed = |info: &&SegmentInfo| match info.kind {
        SegmentKind::Log => true,
        SegmentKind::Unfinished => info.data_len().is_some(),
        SegmentKind::Spare => false,
    };
    let placed = log.segments.iter().filter(is_placed);
    let ends = placed.map(wal::reach);
    log.end = ends.chain([facts.ceiling, floors.all, entries_end]).max().unwrap_or(0);
    log.replaced = log.segments.iter().map(|info| info.path.clone()).collect();
    log.segments.retain(|info| info.kind == SegmentKind::Log);
    if !facts.is_exact {
        log.must_replay = true;
        log.floors = floors;
        log.find_newest_term(repair, facts)?;
        let scanned = scan(repair, facts, log.from, &mut Named::default());
        log.stop = repair.absorb(scanned)?;
    }
    Ok(log)
}

/// Visits everything from `from` on that looks like a record. What cannot be read counts as zeros.
pub(super) fn dump(
    repair: &Repair<'_>,
    from: Lsn,
    visit: &mut dyn FnMut(&Dumped<'_>) -> Result<()>,
) -> Result<()> {
    let dir = repair.db.join(LOG_DIR);
    let read_piece: ReadPiece<'_> =
        &|file, offset, buf| repair.unreadable.read_around(file, offset, buf);
    wal::dump_by(&*repair.fs, &dir, from, read_piece, visit)
}

/// What records name beside the log.
#[derive(Default)]
struct Named {
    /// Why files of large commits, and streams, cannot be read.
    unreadable: Vec<Error>,
    /// The files of all streams.
    streams: BTreeSet<u64>,
    /// What is in doubt, and locked.
    in_doubt: InDoubt,
}

/// Where an open would stop reading.
fn scan(repair: &Repair<'_>, facts: &Facts, from: Lsn, named: &mut Named) -> Result<Lsn> {
    let (fs, dir) = (&*repair.fs, repair.db.join(LOG_DIR));
    if facts.is_exact && from < facts.ceiling {
        if !fs.exists(&dir)? {
            return Err(Error::corruption(&dir, 0, "the log's directory is missing"));
        }
        wal::demand_segment(fs, &dir, from)?;
    }
    if !fs.exists(&dir)? {
        return Ok(from);
    }
    let uuid = facts.uuid.unwrap_or_default();
    let mut succession = facts.succession();
    let mut visit = |lsn: Lsn, payload: &[u8]| {
        let payload = decode_payload(payload)
            .map_err(|error| error.unknown_as_damage(repair.loses_unknown))?;
        succession.follow(lsn, &payload)?;
        named.in_doubt.note(lsn, &payload);
        match payload {
            Payload::Spilled(files) => match check_spilled(&repair.fs, repair.db, uuid, &files) {
                Ok(families) => {
                    families.iter().try_for_each(|of| succession.demand_family(lsn, *of))?;
                }
                Err(error) => named.unreadable.push(error),
            },
            Payload::Batch(ops) => {
                let lost = streams::unreadable(&*repair.fs, repair.db, &ops).into_iter();
                let lost = lost.filter(|(_, op, _)| !facts.is_dropped(op.family));
                named.unreadable.extend(lost.map(|(_, _, error)| error));
                named.streams.extend(streams_of(&ops).map(|(_, _, address)| address.file));
            }
            _ => {}
        }
        Ok(())
    };
    let scanned = wal::scan(fs, &dir, uuid, from, facts.durable, &mut visit, &mut |_, _| ())?;
    Ok(scanned.end)
}

/// Tells which records have a meaning.
struct Judge {
    succession: Succession,
    /// The families are known as changes up to here have made them.
    changes_known: Lsn,
    /// Nothing is missing so far.
    is_whole: bool,
    /// A record that this version does not know is lost. Options that it does not know are not.
    loses_unknown: bool,
}

impl Judge {
    /// What is missing may explain what comes later.
    fn note_gap(&mut self) {
        self.is_whole = false;
        self.succession.note_gap();
    }

    /// Decodes a record, unless no replay accepts it. One of a family that is not known is kept:
    /// that may be a clone, which no record makes, and the manifest's edit of it may be gone.
    fn decode<'p>(&mut self, lsn: Lsn, payload: &'p [u8]) -> Decoded<Payload<'p>> {
        let decoded = decode_payload(payload).inspect_err(|_| self.note_gap());
        let payload = decoded.map_err(|error| error.unknown_as_damage(self.loses_unknown))?;
        if self.succession.demand_families(lsn, &payload).is_err() {
            self.note_gap();
        }
        self.succession.follow(lsn, &payload)?;
        created::demand_options(lsn, &payload, self.changes_known)?;
        Ok(payload)
    }
}

impl FoundLog {
    /// Examines the log. If a prepared transaction is lost, it is not left to the next open, which
    /// would refuse its commit.
    pub(super) fn examine(
        &mut self,
        repair: &mut Repair<'_>,
        facts: &mut Facts,
        entries: &mut Entries,
    ) -> Result<()> {
        if !facts.is_exact {
            self.learn_changes(repair, facts)?;
            return self.look_at_all(repair, facts, entries);
        }
        self.generation = facts.terms.last().map_or(0, |term| term.term as u16);
        let mut named = Named { in_doubt: entries.in_doubt(), ..Named::default() };
        let scanned = scan(repair, facts, self.from, &mut named);
        self.stop = repair.absorb(scanned)?;
        let has_excluded = !named.in_doubt.excluded(facts).is_empty();
        let has_lost_files = !named.unreadable.is_empty();
        for error in named.unreadable {
            repair.absorb(Err::<(), _>(error))?;
        }
        // If any part of the log is damaged, the log is not left to the next open.
        let dir = repair.db.join(LOG_DIR);
        let is_damaged = repair.report.findings.iter().any(|found| found.path.starts_with(&dir));
        self.must_replay = self.stop.is_none()
            || is_damaged
            || has_lost_files
            || has_excluded
            || !entries.lost.is_empty();
        match self.must_replay {
            true => self.look_at_all(repair, facts, entries),
            false => {
                self.streams = named.streams;
                Ok(())
            }
        }
    }

    /// True if an open would discard a record, with the end of the log that it lies in. If tables
    /// go further than where it would stop to read, it would not even come there.
    pub(super) fn discards(&self, generation: u16, lsn: Lsn) -> bool {
        let stop = self.stop.filter(|stop| *stop >= self.floors.finished);
        generation == self.generation && stop.is_some_and(|stop| lsn >= stop)
    }

    /// Looks at what a replay will need beside the log.
    fn look_at_all(
        &mut self,
        repair: &mut Repair<'_>,
        facts: &Facts,
        entries: &mut Entries,
    ) -> Result<()> {
        let (finished, mut large, mut unknown) = (self.floors.finished, Vec::new(), Vec::new());
        let (fs, db, mut lost) = (repair.fs.clone(), repair.db.to_owned(), Vec::new());
        let mut in_doubt = entries.in_doubt();
        self.floors.note_gap(0, self.from);
        self.read_until = self.walk(repair, facts, &mut |lsn, payload| {
            if let Payload::Spilled(files) = payload {
                large.push((lsn, files.clone()));
            }
            if let Payload::Batch(ops) = payload {
                for (at, op, error) in streams::unreadable(&*fs, &db, ops) {
                    lost.push((lsn + at, op.family, op.key.to_vec(), error));
                }
            }
            if !entries.look(lsn, payload, finished) {
                unknown.push(lsn);
            }
            in_doubt.note(lsn, payload);
            Ok(())
        })?;
        if self.is_whole {
            entries.put_aside(repair, facts, (&*self, &in_doubt));
        }
        if self.read_until < finished {
            self.floors.note_gap(self.read_until, finished);
        }
        unknown.into_iter().for_each(|lsn| self.floors.note_gap(lsn, lsn + 2));
        for (seq, family, key, error) in lost {
            self.lose_stream(repair, facts, (seq, family, key), error)?;
        }
        large.iter().try_for_each(|(lsn, files)| self.check_files(repair, facts, *lsn, files))
    }

    /// Judges without the manifest which operations are in tables. Returns the damaged slices, by
    /// family and file, for which the log stands.
    pub(super) fn judge(
        &mut self,
        facts: &Facts,
        tables: &[FoundTable],
    ) -> BTreeSet<(FamilyId, u64)> {
        match facts.is_exact {
            true => BTreeSet::new(),
            false => self.floors.judge(tables, replayable(facts, tables), self.read_until),
        }
    }

    /// Reports a large commit as lost unless its files are whole, or were removed because tables
    /// have it. Those that there are go to the replaced ones, because the next open removes what it
    /// finds.
    fn check_files(
        &mut self,
        repair: &mut Repair<'_>,
        facts: &Facts,
        lsn: Lsn,
        files: &[SpilledFile],
    ) -> Result<()> {
        let checked = check_spilled(&repair.fs, repair.db, facts.uuid.unwrap_or_default(), files);
        if let Err(error) = &checked {
            // What may be there at the next try was not removed.
            if !error.is_corruption() && !is_loss_of(error) {
                return checked.map(drop);
            }
            self.lost_commits.insert(lsn);
            self.floors.note_gap(lsn, spilled_seq(lsn, files.len()));
            if lsn < self.floors.finished {
                return Ok(());
            }
        }
        let why = checked.as_ref().err().map(Error::to_string);
        if repair.absorb(checked)?.is_some() {
            return Ok(());
        }
        let detail = format!(
            "a commit is lost with a file that its log record names: {}",
            why.unwrap_or_default()
        );
        let (path, lsns) = (repair.db.join(SPILL_DIR), Some((lsn, lsn + 1)));
        for file in files.iter().map(|file| table_path(&path, file.number)) {
            if repair.fs.exists(&file)? {
                self.replaced.push(file);
            }
        }
        repair.lose(facts, Loss { path, lsns, detail, ..Loss::default() });
        Ok(())
    }

    /// Reports an operation as lost whose stream is not whole, unless tables have it: then the file
    /// may be gone. The other operations of its record stay.
    fn lose_stream(
        &mut self,
        repair: &mut Repair<'_>,
        facts: &Facts,
        (seq, family, key): (Lsn, FamilyId, Vec<u8>),
        error: Error,
    ) -> Result<()> {
        self.lost_streams.insert(seq);
        self.floors.note_gap(seq, seq + 1);
        if seq < self.floors.finished || facts.is_dropped(family) {
            return Ok(());
        }
        let detail = format!("a stream is lost that a log record puts: {error}");
        let path = match error.kind() {
            ErrorKind::Corruption { path, .. } | ErrorKind::Io { path, .. } => path.clone(),
            _ => return Err(error),
        };
        repair.absorb(Err::<(), _>(error))?;
        if repair.fs.exists(&path)? {
            self.replaced.push(path.clone());
        }
        let (family, keys) = (Some(family), Some((key.clone(), key)));
        let (lsns, entries) = (Some((seq, seq + 1)), Some(1));
        repair.lose(facts, Loss { path, family, keys, lsns, entries, detail, ..Loss::default() });
        Ok(())
    }

    /// Finds where the records of the newest term begin.
    fn find_newest_term(&mut self, repair: &Repair<'_>, facts: &Facts) -> Result<()> {
        let mut first: Option<Lsn> = None;
        let mut begins_where_replay_does = false;
        let mut begins_term = false;
        let finished = self.floors.finished;
        self.dump(repair, 0, &mut |log, dumped| {
            let header = &dumped.header;
            if first.is_none() || header.generation > log.generation {
                (log.generation, first, begins_where_replay_does) =
                    (header.generation, None, false);
            }
            if header.generation == log.generation {
                if first.is_none() {
                    // Where a term begins, all below is durable.
                    let has_predecessors = header.durable.is_some_and(|lsn| lsn < header.lsn);
                    begins_term = dumped.offset == HEADER_PAGE_LEN && !has_predecessors;
                    first = Some(header.lsn);
                }
                begins_where_replay_does |= header.lsn == facts.replay_from;
            }
            Ok(())
        })?;
        self.from = match first {
            Some(_) if begins_where_replay_does => facts.replay_from,
            // A term begins with a segment, so a first record inside a segment has predecessors,
            // and so has one that knows of some. They are in tables or lost.
            Some(first) if !begins_term && first > finished => finished,
            Some(first) => first,
            None => facts.replay_from.max(finished),
        };
        Ok(())
    }

    pub(super) fn dump(
        &mut self,
        repair: &Repair<'_>,
        from: Lsn,
        visit: &mut dyn FnMut(&mut FoundLog, &Dumped<'_>) -> Result<()>,
    ) -> Result<()> {
        if self.segments.is_empty() {
            return Ok(());
        }
        dump(repair, from, &mut |dumped| visit(self, dumped))
    }

    /// Visits every intact record that counts, and reports what is missing between them. Returns
    /// where the last one ends.
    pub(super) fn walk(
        &mut self,
        repair: &mut Repair<'_>,
        facts: &Facts,
        apply: Apply<'_>,
    ) -> Result<Lsn> {
        let (mut next, mut records) = (self.from, 0);
        let (mut holes, mut undecodable) = (Vec::new(), Vec::new());
        let (succession, changes_known) = (facts.succession(), facts.families_changed);
        let (is_whole, loses_unknown) = (facts.is_exact, repair.loses_unknown);
        let mut judge = Judge { succession, changes_known, is_whole, loses_unknown };
        let mut goes_on_until = None;
        self.dump(repair, self.from, &mut |log, dumped| {
            let header = &dumped.header;
            let is_whole = header.skip || dumped.payload.is_some();
            let counts = header.generation == log.generation
                && header.lsn >= next
                && log.stop.is_none_or(|stop| header.lsn < stop);
            if counts && !is_whole && header.lsn == next {
                goes_on_until = Some(header.lsn.saturating_add(header.record_len()));
            }
            if !counts || !is_whole {
                return Ok(());
            }
            if header.lsn > next {
                holes.push((next, header.lsn));
                judge.note_gap();
            }
            next = header.lsn + header.record_len();
            let Some(payload) = dumped.payload else { return Ok(()) };
            match judge.decode(header.lsn, payload) {
                Ok(payload) => {
                    records += 1;
                    apply(header.lsn, &payload)
                }
                Err(error) if error.is_damage() => {
                    undecodable.push((header.lsn, next, error.to_string()));
                    Ok(())
                }
                Err(error) => Err(error.in_file(&dumped.path, dumped.offset)),
            }
        })?;
        let goes_on = goes_on_until.filter(|end| *end > next);
        let is_gone = |lsn: Lsn| self.holds(lsn).is_none();
        let segment_is_gone = is_gone(next) || goes_on.is_some_and(|end| is_gone(end - 1));
        if next < facts.durable {
            holes.push((next, facts.durable));
        } else if facts.is_exact && next < facts.ceiling && segment_is_gone {
            // The segment is missing, and nothing shows how much was in it.
            holes.push((next, facts.ceiling));
        }
        holes.extend(self.hole_at_end(repair, next, goes_on));
        // A file that was cut or is missing does not show how far its records went.
        let is_short = |info: &SegmentInfo| {
            info.data_len().is_none() && !self.is_passed(info, next) && wal::reach(info) > self.from
        };
        let is_cut = self.segments.iter().any(is_short);
        let ends_cut = self.segments.is_empty() || goes_on.is_some_and(|end| is_gone(end - 1));
        if is_cut || (ends_cut && !facts.is_exact) {
            let margin = if facts.is_exact { 1 } else { LSN_MARGIN };
            holes.push((next.max(self.floors.finished), self.end.max(next) + margin));
        }
        self.is_whole = judge.is_whole && holes.is_empty();
        let lost = holes.iter().copied().chain(undecodable.iter().map(|it| (it.0, it.1)));
        lost.clone().for_each(|(from, to)| self.floors.note_gap(from, to));
        self.whole_until = lost.map(|lost| lost.0).chain([next]).min().unwrap_or(next);
        repair.report.records_saved = records;
        self.say_losses(repair, facts, holes, undecodable);
        Ok(next)
    }

    /// The LSNs behind the last record where a record lay, or may have lain, that the device cannot
    /// read. If a record begins there whose header can be read, it ends at `goes_on`.
    fn hole_at_end(
        &self,
        repair: &Repair<'_>,
        next: Lsn,
        goes_on: Option<Lsn>,
    ) -> Option<(Lsn, Lsn)> {
        // The header of a record there may go on in the next sector.
        let reach = goes_on.unwrap_or(next + RECORD_HEADER_LEN as Lsn);
        let places = repair.unreadable.places().into_iter().filter_map(|(path, offset)| {
            let info = self.segments.iter().find(|info| info.path == path)?;
            Some(info.base + offset.checked_sub(HEADER_PAGE_LEN)?)
        });
        let ends = places.filter(|at| *at < reach).map(|at| at + SECTOR_LEN as u64);
        ends.filter(|end| *end > next).max().map(|end| (next, end.max(reach)))
    }

    /// Reports what was not reported by an earlier walk.
    fn say_losses(
        &mut self,
        repair: &mut Repair<'_>,
        facts: &Facts,
        holes: Vec<(Lsn, Lsn)>,
        undecodable: Vec<(Lsn, Lsn, String)>,
    ) {
        let unreadable = "log records cannot be read; commits in them are lost, those before and behind are kept";
        for (from, to) in holes {
            if self.is_news(from, to) {
                self.lost(repair, facts, from, to, unreadable.to_owned());
            }
        }
        for (from, to, why) in undecodable {
            if self.is_news(from, to) {
                let detail = format!("a whole log record means nothing, its commit is lost: {why}");
                self.lost(repair, facts, from, to, detail);
            }
        }
    }

    /// True if the loss is new to the report, and takes it to be there from then on.
    fn is_news(&mut self, from: Lsn, to: Lsn) -> bool {
        let is_told = self.told.iter().any(|told| told.0 <= from && to <= told.1);
        self.told.extend((!is_told).then_some((from, to)));
        !is_told
    }

    /// True if everything that the segment ever held lies below `next`, because a later segment
    /// begins at or below `next`. The length of the file shows nothing if the file was cut.
    fn is_passed(&self, info: &SegmentInfo, next: Lsn) -> bool {
        self.segments.iter().any(|later| info.base < later.base && later.base <= next)
    }

    fn holds(&self, lsn: Lsn) -> Option<&SegmentInfo> {
        self.segments.iter().rfind(|info| info.holds(lsn))
    }

    /// The file that holds an LSN, and the offset there.
    pub(super) fn place(&self, repair: &Repair<'_>, lsn: Lsn) -> (PathBuf, Option<u64>) {
        match self.holds(lsn) {
            Some(info) => (info.path.clone(), Some(HEADER_PAGE_LEN + (lsn - info.base))),
            None => (repair.db.join(LOG_DIR), None),
        }
    }

    fn lost(&self, repair: &mut Repair<'_>, facts: &Facts, from: Lsn, to: Lsn, detail: String) {
        let (path, offset) = self.place(repair, from);
        let lsns = Some((from, to));
        repair.lose(facts, Loss { path, offset, lsns, detail, ..Loss::default() });
    }
}
