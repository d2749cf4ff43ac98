//! For how long states of the database can be read after they have passed, and which point belongs
//! to which time.
//!
//! [`Options::history`](crate::Options::history) is a span of time, which the manifest remembers.
//! Maintenance notes each second at which point the database is: a *moment*. The newest moment that
//! is at least the span old is the oldest retained point. Flushes, compactions and recovery keep
//! what readers from there on see. Without a history they keep nothing for such readers, and no
//! moment is noted.
//!
//! Each edit of a flush or a compaction raises the *oldest readable point* on disk to the horizon
//! that its table was written with. So it holds with the table or not at all. Each such edit
//! also adds the moments up to where replay begins: those points are in tables, and survive
//! whatever happens to the log. No other moment is the oldest retained point, or what is readable
//! could begin at one that a crash takes away. A moment of an idle database, behind the last
//! flush, gets an edit of its own. `docs/internals/time-travel.md` tells what is on disk at each
//! step.
//!
//! While a leap of the clock is doubted (`clock.rs`), moments are kept apart: if it is believed in
//! the end, they were so much later. Until then no edit has them.
//!
//! A time has the point of the newest moment at or before it. So a read as of a time sees no commit
//! that began later. It may miss those of the last second before, or, behind a crash, those that
//! only the log held: they count as made when the database was opened again.

use super::read_points::Hold;
use super::{Engine, TrustedClock, end_of_term, point_tag};
use crate::env::sync::{Mutex, Rank};
use crate::env::{Plant, planted};
use crate::error::{Error, Result};
use crate::events::BackgroundJob;
use crate::format::Lsn;
use crate::mvcc::ReaderPoints;
use crate::options::Options;
use crate::read_point::ReadPoint;
use crate::version::{Change, Edit, Moment, State, Term, thin_out};
use std::sync::Arc;
use std::time::Duration;

/// About how many moments are kept at most. In a long history they lie further apart.
const MOMENTS_MAX: u64 = 4096;

/// The moments of a database. One that is open for reading only notes none, and has those of the
/// manifest.
pub(crate) struct History {
    /// For how long states are kept, in milliseconds.
    span_ms: Option<u64>,
    moments: Mutex<Moments>,
}

#[derive(Default)]
struct Moments {
    /// Ascending.
    known: Vec<Moment>,
    /// How many of them the manifest has.
    filed: usize,
    /// Where replay begins, or a little before: what lies below is in tables.
    in_tables: Lsn,
    /// The oldest retained point of jobs that add no moment of their own. It never goes back.
    floor: Lsn,
    /// The end of the last flush, if it came too soon after a moment to be one. It becomes one just
    /// before the next: reads as of earlier times have been answered without it.
    end: Option<Lsn>,
    /// There was no room to file a moment.
    is_full: bool,
    /// Later ones, ascending, from while a leap is doubted.
    doubted: Vec<Moment>,
    /// By how much time had moved when they were put right last.
    moved_ms: u64,
}

impl Moments {
    /// The point of the newest moment at or before a time.
    fn point_at(&self, unix_ms: u64) -> Option<Lsn> {
        point_at(&self.doubted, unix_ms).or_else(|| point_at(&self.known, unix_ms))
    }

    /// True if it comes behind all others, by so many milliseconds.
    fn is_next(&self, apart_ms: u64, next: Moment) -> bool {
        self.known.last().is_none_or(|last| follows(*last, next, apart_ms))
    }

    /// Adds one, and before it the end of the last flush. If very many are not filed, every second
    /// of these goes.
    fn add(&mut self, apart_ms: u64, next: Moment) {
        if self.known.last().is_some_and(|last| !is_later(*last, next, apart_ms)) {
            return;
        }
        let unix_ms = next.unix_ms.saturating_sub(1);
        let end = self.end.take_if(|end| *end <= next.point);
        let end = end.map(|point| Moment { unix_ms, point });
        for moment in end.into_iter().chain([next]) {
            if self.is_next(0, moment) {
                self.known.push(moment);
            }
        }
        if (self.known.len() - self.filed) as u64 > 4 * MOMENTS_MAX {
            let mut unfiled = self.known.split_off(self.filed);
            thin_out(&mut unfiled);
            self.known.append(&mut unfiled);
        }
        debug_assert!(self.known.is_sorted_by_key(|moment| (moment.unix_ms, moment.point)));
    }

    /// An epoch that is about to be flushed ends here, above the last moment if that came too late.
    fn note_end(&mut self, end: Lsn) {
        if self.doubted.last().or(self.known.last()).is_none_or(|last| last.point < end) {
            self.end = Some(end);
        }
    }

    /// Adds one from while a leap is doubted. If there are very many, every second one goes.
    fn add_doubted(&mut self, apart_ms: u64, next: Moment) {
        let last = self.doubted.last().or(self.known.last());
        if !last.is_none_or(|last| follows(*last, next, apart_ms)) {
            return;
        }
        if self.doubted.len() as u64 == MOMENTS_MAX {
            thin_out(&mut self.doubted);
        }
        self.doubted.push(next);
        debug_assert!(self.doubted.len() as u64 <= MOMENTS_MAX);
    }

    /// How many there are up to `end`, or up to where replay begins, or filed.
    fn lasting(&self, end: Lsn) -> usize {
        let end = end.max(self.in_tables);
        self.known.partition_point(|moment| moment.point <= end).max(self.filed)
    }

    /// What time it is, and whether a leap is doubted. Those from before are put right if one is
    /// believed, and known from now on if none is doubted.
    fn look(&mut self, clock: &TrustedClock) -> (u64, bool) {
        let (unix_ms, doubt) = clock.look();
        let moved_ms = doubt.unwrap_or_else(|| clock.moved_ms());
        debug_assert!(self.moved_ms <= moved_ms, "time is moved ahead only");
        let by_ms = moved_ms - self.moved_ms;
        self.moved_ms = moved_ms;
        self.doubted.iter_mut().for_each(|moment| moment.unix_ms += by_ms);
        if doubt.is_none() {
            std::mem::take(&mut self.doubted).into_iter().for_each(|moment| self.add(0, moment));
        }
        (unix_ms, doubt.is_some())
    }
}

/// True if the times are more than so many milliseconds apart. So after the clock was set back, no
/// moment is noted until it has reached its old time.
fn is_later(last: Moment, next: Moment, apart_ms: u64) -> bool {
    last.unix_ms.saturating_add(apart_ms) < next.unix_ms
}

/// True if a moment is later than another by so many milliseconds, and its point lies above.
fn follows(last: Moment, next: Moment, apart_ms: u64) -> bool {
    is_later(last, next, apart_ms) && last.point < next.point
}

fn point_at(moments: &[Moment], unix_ms: u64) -> Option<Lsn> {
    let later = moments.partition_point(|moment| moment.unix_ms <= unix_ms);
    moments[..later].last().map(|moment| moment.point)
}

/// For how many milliseconds states are kept, according to the options or, if they do not say, to
/// the manifest. `None` if they are not kept.
pub(crate) fn span_ms(options: &Options, state: &State) -> Option<u64> {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Some(options.history.map_or(state.history_ms(), millis)).filter(|span_ms| *span_ms > 0)
}

/// The least point that must stay readable, if a history is kept: `None` keeps everything from the
/// oldest readable point on.
pub(crate) fn retained_from(moments: &[Moment], span_ms: u64, now_ms: u64) -> Option<Lsn> {
    point_at(moments, now_ms.checked_sub(span_ms)?)
}

impl History {
    /// The history of a database with this manifest.
    pub(crate) fn new(span_ms: Option<u64>, state: &State) -> History {
        let (known, filed) = (state.moments().to_vec(), state.moments().len());
        let (in_tables, floor) = (state.replay_from(), state.oldest_readable().unwrap_or(0));
        let moments = Moments { known, filed, in_tables, floor, ..Moments::default() };
        History { span_ms, moments: Mutex::new(Rank::Moments, moments) }
    }

    /// Takes over the moments of the manifest that a reader beside the writer has read.
    pub(crate) fn follow(&self, moments: &[Moment]) {
        let known = &mut self.moments.lock().known;
        // They ascend, and only the oldest go, or every second one.
        if known.len() != moments.len() || known.last() != moments.last() {
            known.clear();
            known.extend_from_slice(moments);
        }
    }

    /// Notes that everything below `point` is visible now, unless nothing was written since the
    /// last moment, or it is not so many milliseconds later. If `is_end`, an epoch ends there that
    /// is about to be flushed.
    fn note(&self, apart_ms: u64, clock: &TrustedClock, point: Lsn, is_end: bool) {
        let mut moments = self.moments.lock();
        let (unix_ms, is_doubted) = moments.look(clock);
        let next = Moment { unix_ms, point };
        match is_doubted {
            true => moments.add_doubted(apart_ms, next),
            false => moments.add(apart_ms, next),
        }
        if is_end {
            moments.note_end(point);
        }
    }

    /// The point of the newest moment at or before a time.
    fn point_at(&self, clock: &TrustedClock, unix_ms: u64) -> Option<Lsn> {
        let mut moments = self.moments.lock();
        moments.look(clock);
        moments.point_at(unix_ms)
    }

    /// The least point that must stay readable, for a job whose edit adds the moments up to `end`
    /// at least, or up to where replay begins. Moments go once no edit needs them, whatever
    /// becomes of this one.
    fn retained_from(&self, span_ms: u64, now_ms: u64, end: Lsn) -> Lsn {
        let mut moments = self.moments.lock();
        let from = |count: usize| retained_from(&moments.known[..count], span_ms, now_ms);
        let (lasting, added) = (from(moments.lasting(0)), from(moments.lasting(end)));
        let floor = moments.floor.max(lasting.unwrap_or(0));
        let gone = moments.known.partition_point(|moment| moment.point < floor);
        moments.floor = floor;
        moments.known.drain(..gone);
        moments.filed = moments.filed.saturating_sub(gone);
        debug_assert!(moments.known.first().is_none_or(|first| first.point >= floor));
        added.unwrap_or(0).max(floor)
    }

    /// The changes that tell the manifest what the tables of an edit were written for, and the
    /// moments up to `end`, below which this edit leaves nothing to the log, but for those that the
    /// manifest would forget at once. With them comes the last of these moments.
    pub(crate) fn changes(
        &self,
        state: &State,
        horizon: Lsn,
        end: Lsn,
    ) -> (Vec<Change>, Option<Moment>) {
        let mut changes = raised(state, horizon);
        let mut moments = self.unfiled(None, end);
        moments.retain(|moment| moment.point >= horizon);
        let last = moments.last().copied();
        if last.is_some() {
            changes.push(Change::Moments { moments });
        }
        (changes, last)
    }

    /// The change that adds the moments up to `end` to a manifest that has those up to `last`.
    pub(crate) fn changes_behind(&self, last: Option<Moment>, end: Lsn) -> Option<Change> {
        let moments = self.unfiled(last, end);
        (!moments.is_empty()).then_some(Change::Moments { moments })
    }

    /// The moments up to `end` that are not filed, and lie behind `last`.
    fn unfiled(&self, last: Option<Moment>, end: Lsn) -> Vec<Moment> {
        let moments = self.moments.lock();
        let unfiled = moments.known[moments.filed..].iter();
        let is_behind = |moment: &&Moment| last.is_none_or(|last| last.point < moment.point);
        unfiled.take_while(|moment| moment.point <= end).filter(is_behind).copied().collect()
    }

    /// Notes that all below `end` is in tables: edits from now on add the moments up to there.
    pub(crate) fn note_in_tables(&self, end: Lsn) {
        let mut moments = self.moments.lock();
        moments.in_tables = moments.in_tables.max(end);
        moments.is_full = false;
    }

    /// True if a moment is not filed though what it shows is in tables. Most are filed by the
    /// flush that brought it there.
    fn is_late(&self) -> bool {
        let moments = self.moments.lock();
        moments.lasting(0) > moments.filed && !moments.is_full
    }

    /// Notes that the manifest has the moments up to this one. Those that were noted after the edit
    /// was made have later points, and may lie below its end all the same.
    pub(crate) fn note_filed(&self, last: Moment) {
        let mut moments = self.moments.lock();
        let filed = moments.known.partition_point(|moment| moment.point <= last.point);
        debug_assert!(filed >= moments.filed, "the manifest loses no moment");
        (moments.filed, moments.is_full) = (filed, false);
    }
}

/// The changes of an open: the span, if it is another than before, and the open's moment.
pub(crate) fn opened(options: &Options, state: &State, point: Lsn) -> Vec<Change> {
    let span_ms = span_ms(options, state);
    let wanted = span_ms.unwrap_or(0);
    let mut changes = Vec::new();
    if wanted != state.history_ms() {
        changes.push(Change::History { span_ms: wanted });
    }
    let moment = Moment { unix_ms: options.env.clock.unix_ms(), point };
    let is_next = state.moments().last().is_none_or(|last| follows(*last, moment, 0));
    if span_ms.is_some() && is_next {
        changes.push(Change::Moments { moments: vec![moment] });
    }
    changes
}

/// The change that raises the oldest readable point, if it is not above `horizon` already.
pub(crate) fn raised(state: &State, horizon: Lsn) -> Vec<Change> {
    raised_from(state.oldest_readable(), horizon)
}

/// The same for a state with this oldest readable point.
pub(crate) fn raised_from(oldest: Option<Lsn>, horizon: Lsn) -> Vec<Change> {
    let is_above = oldest.is_none_or(|oldest| oldest < horizon);
    is_above.then_some(Change::OldestReadable { lsn: horizon }).into_iter().collect()
}

impl Engine {
    /// The read point at an LSN.
    pub(crate) fn read_point(&self, lsn: Lsn) -> ReadPoint {
        ReadPoint { lsn, tag: self.tag_at(lsn) }
    }

    /// Notes at which point the database is now.
    pub(crate) fn note_moment(&self) {
        self.note_point(self.log.visible(), MOMENTS_MAX, false);
    }

    /// Notes the end of an epoch that is about to be flushed; everything below it is visible.
    /// Otherwise a crash would leave what was written since the last moment without a time.
    pub(crate) fn note_end(&self, end: Lsn) {
        self.note_point(end, MOMENTS_MAX, true);
    }

    /// Files moments that came behind the last flush and show no more than it wrote. If nothing but
    /// ticks is written, no other edit may come for as long as the database is idle, and after a
    /// crash all of that time would have an earlier state. For threads of low priority.
    pub(crate) fn file_late_moments(self: &Arc<Engine>) {
        if !self.history.is_late() {
            return;
        }
        let engine = self.clone();
        let filed = self.change_versions(move |versions| {
            let (last, end) = {
                let state = versions.state();
                (state.moments().last().copied(), state.replay_from())
            };
            let Some(change) = engine.history.changes_behind(last, end) else { return Ok(()) };
            let mut edit = Edit::default();
            edit.push(change);
            if let Err(error) = versions.install(edit, &[]) {
                // Another attempt writes a whole manifest; the next job shows that there is room.
                engine.history.moments.lock().is_full = true;
                return Err(error);
            }
            let last = versions.state().moments().last().copied();
            last.into_iter().for_each(|last| engine.history.note_filed(last));
            Ok(())
        });
        if let Err(error) = filed
            && !error.is_retryable()
        {
            self.poison(BackgroundJob::Flush, error);
        }
    }

    /// Notes the last moment before the database closes, however soon it is.
    pub(crate) fn note_last_moment(&self) {
        self.note_point(self.log.visible(), u64::MAX, false);
    }

    /// Notes that everything below `point` is visible now, unless this part of the history has not
    /// passed since the last moment.
    fn note_point(&self, point: Lsn, share: u64, is_end: bool) {
        if let Some(span_ms) = self.history.span_ms {
            self.history.note(span_ms / share, &self.clock, point, is_end);
        }
    }

    /// The readers that a compaction that starts now must respect.
    pub(crate) fn readers(&self) -> ReaderPoints {
        self.readers_for(0)
    }

    /// The readers that a job which starts now must respect, if nothing below `end` is left to the
    /// log after its edit.
    pub(crate) fn readers_for(&self, end: Lsn) -> ReaderPoints {
        let readers = self.points.readers(&self.log, self.retained(end));
        let unix_ms = self.time_of_oldest(readers.oldest());
        let readers = readers.at_time(unix_ms);
        self.ticks.forget(&readers);
        readers
    }

    /// The lowest point of these readers and the time at that point. It lists no points, however
    /// many there are.
    pub(crate) fn oldest_reader(&self) -> (Lsn, u64) {
        let oldest = self.points.oldest(&self.log, self.retained(0));
        (oldest, self.time_of_oldest(oldest))
    }

    /// Points from this one on are kept for a history, by a job as in [`Engine::readers_for`].
    fn retained(&self, end: Lsn) -> Lsn {
        match self.history.span_ms {
            Some(span_ms) => self.history.retained_from(span_ms, self.clock_ms(), end),
            None => Lsn::MAX,
        }
    }

    fn time_of_oldest(&self, oldest: Lsn) -> u64 {
        let unix_ms = match planted(Plant::ExpiredTooEarly) {
            true => Some(self.ticks.newest()),
            false => self.ticks.time_at(oldest),
        };
        unix_ms.unwrap_or(0)
    }

    /// Registers an earlier read point.
    pub(crate) fn register_at(&self, point: ReadPoint) -> Result<Hold> {
        self.check_open()?;
        let lsn = self.locate(point)?;
        self.register_old(lsn).ok_or_else(|| self.too_old())
    }

    /// Registers an earlier point, if what it sees is there.
    fn register_old(&self, point: Lsn) -> Option<Hold> {
        match &self.shown {
            Some(shown) => shown.register_old(&self.points, point),
            None => self.points.register_old(point),
        }
    }

    /// Registers the point at which the database was at a time.
    pub(crate) fn register_as_of(&self, unix_ms: u64) -> Result<Hold> {
        self.check_open()?;
        if unix_ms >= self.clock_ms() {
            return Ok(self.register_point());
        }
        let point = match &self.shown {
            Some(_) => self.history.moments.lock().point_at(unix_ms),
            None => self.history.point_at(&self.clock, unix_ms),
        };
        // A reader that is catching up may know moments of what it does not show yet.
        let shown = |point: Lsn| point.min(self.newest_point());
        let held = point.and_then(|point| self.register_old(shown(point)));
        held.ok_or_else(|| self.too_old())
    }

    /// The LSN of a point of this database that no crash has lost.
    fn locate(&self, point: ReadPoint) -> Result<Lsn> {
        let newest = self.newest_point();
        if point.tag == self.tag_at(newest) {
            return match point.lsn <= newest {
                true => Ok(point.lsn),
                false => Err(Error::invalid_argument(format!(
                    "the read point {point} is ahead of the newest one, {}",
                    self.read_point(newest)
                ))),
            };
        }
        let versions = self.versions.lock();
        let ended_at = end_of_term(&self.uuid, versions.state().terms(), point.tag);
        drop(versions);
        match ended_at {
            Some(ended_at) if point.lsn <= ended_at => Ok(point.lsn),
            // A crash has lost what it showed.
            Some(_) => Err(self.too_old()),
            None => Err(Error::invalid_argument(format!(
                "the read point {point} was made in another database, in a later life of a copy, before a repair that lost \
                 something, or too long ago{}",
                match &self.shown {
                    Some(_) => ", or the writer was opened again since `Db::catch_up`",
                    None => "",
                }
            ))),
        }
    }

    #[cold]
    fn too_old(&self) -> Error {
        Error::point_too_old(self.oldest_readable())
    }

    /// The oldest point that can be read.
    pub(crate) fn oldest_readable(&self) -> ReadPoint {
        let oldest = self.points.horizon().min(self.newest_point());
        let versions = self.versions.lock();
        let (lsn, term) = place(versions.state().terms(), oldest);
        ReadPoint { lsn, tag: term.map_or(self.point_tag, |term| point_tag(&self.uuid, term)) }
    }
}

/// The term in which a reader at `oldest` reads, and its point: the first one from `oldest` on that
/// a term has.
fn place(terms: &[Term], oldest: Lsn) -> (Lsn, Option<Term>) {
    let Some(first) = terms.first() else { return (oldest, None) };
    let oldest = oldest.max(first.resumes_at);
    let later = terms.partition_point(|term| term.resumes_at <= oldest);
    match terms.get(later) {
        Some(next) if next.ended_at < oldest => (next.resumes_at, Some(*next)),
        _ => (oldest, Some(terms[later - 1])),
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
