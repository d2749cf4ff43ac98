//! Reading earlier states, against a model that keeps every state: across flushes, compactions,
//! closes, deaths of the process and power cuts, while time passes.

mod trims;
mod trouble;

use super::*;
use crate::env::fixtures::Wall;
use crate::env::sync::atomic::{AtomicU64, Ordering};
use crate::env::{Clock, Env};
use crate::error::ErrorKind;
use crate::options::Options;
use crate::vfs::{Fault, FileOp, MemoryFs};
use crate::{Batch, Db, ReadPoint, Snapshot};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const SECOND: u64 = 1000;
const SPAN: Duration = Duration::from_secs(10);
/// As of three times [`SPAN`], its moments lie further apart than a flush and the moment before.
const HOUR: Duration = Duration::from_secs(3600);
const STARTED_MS: u64 = 1_700_000_000_000;
/// Each commit writes its number here.
const NUMBER: &[u8] = b"number";

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a commit left.
struct Known {
    point: ReadPoint,
    content: Content,
    made_ms: u64,
}

/// A database, and every state that it had.
struct World {
    fs: MemoryFs,
    clock: Arc<Wall>,
    history: Option<Duration>,
    db: Option<Db>,
    states: Vec<Known>,
    /// Points that a power cut has lost.
    lost: Vec<ReadPoint>,
    /// When the database had which number of states, as far as it must know.
    noted: Vec<(u64, usize)>,
    /// The number of states in tables, and of what was noted when they came there.
    filed: usize,
    noted_filed: usize,
}

fn open(fs: &MemoryFs, clock: &Arc<Wall>, history: Option<Duration>) -> Db {
    let env = Env { fs: Arc::new(fs.clone()), clock: clock.clone(), ..Env::system() };
    let options = Options::new().write_buffer(64 << 10).compaction_threads(1).history(history);
    let db = options.env(env).open("/db").unwrap();
    // It would note moments of its own.
    db.engine().maintenance.close();
    db
}

fn content(snapshot: &Snapshot) -> Content {
    let items = snapshot.range(..).map(|item| item.unwrap());
    items.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn is_too_old(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::PointTooOld { .. })
}

impl World {
    fn new(history: Option<Duration>) -> World {
        let (fs, clock) = (MemoryFs::new(), Arc::new(Wall(AtomicU64::new(STARTED_MS))));
        let db = Some(open(&fs, &clock, history));
        let (states, lost, noted) = (Vec::new(), Vec::new(), Vec::new());
        World { fs, clock, history, db, states, lost, noted, filed: 0, noted_filed: 0 }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("it is open")
    }

    fn now_ms(&self) -> u64 {
        self.clock.unix_ms()
    }

    /// The database, open for reading only beside the writer.
    fn reader(&self) -> Db {
        let env = Env { fs: Arc::new(self.fs.clone()), clock: self.clock.clone(), ..Env::system() };
        Options::new().read_only(true).env(env).open("/db").unwrap()
    }

    fn commit(&mut self, key: u8, value: Option<u8>) {
        let mut content = self.states.last().map(|known| known.content.clone()).unwrap_or_default();
        let mut batch = Batch::new();
        match value {
            Some(value) => {
                batch.put([key], [value; 200]);
                content.insert(vec![key], vec![value; 200]);
            }
            None => {
                batch.delete([key]);
                content.remove(&vec![key]);
            }
        }
        let number = (self.states.len() as u64 + 1).to_be_bytes();
        batch.put(NUMBER, number);
        content.insert(NUMBER.to_vec(), number.to_vec());
        let point = self.db().write(batch).unwrap().into();
        self.states.push(Known { point, content, made_ms: self.now_ms() });
    }

    fn wait(&mut self, seconds: u8) {
        self.clock.0.fetch_add(u64::from(seconds) * SECOND, Ordering::Relaxed);
        self.db().engine().note_moment();
        self.noted.push((self.now_ms(), self.states.len()));
    }

    /// What maintenance does after it has noted a moment.
    fn file(&mut self) {
        self.db().engine().file_late_moments();
        if self.filed == self.states.len() {
            self.note_filed();
        }
    }

    /// Finds no room for a table.
    fn fail_to_flush(&self) {
        self.tick();
        let full = std::io::ErrorKind::StorageFull;
        self.fs.inject(Fault::on(FileOp::Create).suffix(".tbl").kind(full).forever());
        if let Err(error) = self.db().flush() {
            assert!(error.is_out_of_space(), "{error}");
        }
        self.fs.clear_faults();
    }

    /// A flush or an open comes at another time than the moment before.
    fn tick(&self) {
        self.clock.0.fetch_add(5, Ordering::Relaxed);
    }

    fn flush(&mut self) {
        self.tick();
        self.db().flush().unwrap();
        self.note_flushed();
    }

    fn compact(&mut self) {
        self.tick();
        self.db().compact().unwrap();
        self.note_flushed();
    }

    /// If nothing was written since the last flush, it has filed no moment either.
    fn note_flushed(&mut self) {
        if self.filed < self.states.len() {
            self.note_filed();
        }
    }

    fn note_filed(&mut self) {
        (self.filed, self.noted_filed) = (self.states.len(), self.noted.len());
    }

    fn reopen(&mut self) {
        self.tick();
        self.db.take().expect("it is open").close().unwrap();
        self.note_filed();
        self.db = Some(open(&self.fs, &self.clock, self.history));
    }

    /// Goes on with what the death of the process or a power cut leaves.
    fn crash(&mut self, cut: Option<u8>) {
        self.tick();
        let left = match cut {
            None => self.fs.killed(),
            Some(share) => {
                self.fs.crashed(|unsynced| unsynced.steps.len() * usize::from(share) / 255)
            }
        };
        // The old database goes on for a moment on the old disk.
        self.db.take();
        (self.fs, self.db) = (left.clone(), Some(open(&left, &self.clock, self.history)));
        let number = self.db().get(NUMBER).unwrap();
        let kept = number.map_or(0, |number| u64::from_be_bytes(number[..].try_into().unwrap()));
        assert!(kept as usize >= self.filed, "{kept} states are left of {}", self.filed);
        self.lost.extend(self.states.drain(kept as usize..).map(|known| known.point));
        self.noted.truncate(self.noted_filed);
        self.note_filed();
    }

    /// Checks every point that there was.
    fn check(&self) {
        let db = self.db();
        let oldest = db.oldest_readable();
        if let Err(error) = db.snapshot_at(oldest) {
            // A compaction that began since may have raised it.
            assert!(is_too_old(&error) && db.oldest_readable().lsn > oldest.lsn, "{error}");
        }
        let span_ms = self.history.map_or(0, |span| span.as_millis() as u64);
        for (at, known) in self.states.iter().enumerate() {
            match db.snapshot_at(known.point) {
                Ok(snapshot) => {
                    assert_eq!(content(&snapshot), known.content, "at {}", known.point);
                    assert!(oldest.lsn <= known.point.lsn);
                }
                Err(error) => {
                    assert!(is_too_old(&error), "{error}");
                    assert!(db.oldest_readable().lsn > known.point.lsn);
                    let is_due = self.history.is_none() || known.made_ms + span_ms <= self.now_ms();
                    assert!(is_due, "state {at} is gone at {}", self.now_ms());
                }
            }
        }
        for point in &self.lost {
            assert!(is_too_old(&db.snapshot_at(*point).unwrap_err()));
        }
        assert_eq!(content(&db.snapshot()), self.content_of(self.states.len()));
    }

    fn content_of(&self, count: usize) -> Content {
        let last = count.checked_sub(1).map(|last| self.states[last].content.clone());
        last.unwrap_or_default()
    }

    /// The number of states that are there as of a time.
    fn count_at(&self, asked_ms: u64) -> Result<usize> {
        let engine = self.db().engine();
        let hold = engine.register_as_of(asked_ms)?;
        engine.points.release(&hold);
        Ok(self.states.iter().filter(|known| known.point.lsn <= hold.point()).count())
    }

    /// Checks what is read as of each second of the history.
    fn check_times(&self, span: Duration) {
        let now_ms = self.now_ms();
        for seconds in 1..14 {
            let asked_ms = now_ms - seconds * SECOND;
            let least = self.noted.iter().rev().find(|(ms, _)| *ms <= asked_ms);
            let most = self.states.iter().filter(|known| known.made_ms <= asked_ms).count();
            match self.count_at(asked_ms) {
                Ok(found) => {
                    let least = least.map_or(0, |(_, count)| *count);
                    assert!((least..=most).contains(&found), "{found}: {least} to {most}");
                }
                Err(error) => {
                    assert!(is_too_old(&error), "{error}");
                    assert!(least.is_none() || Duration::from_secs(seconds) > span);
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Commit(u8, Option<u8>),
    Wait(u8),
    File,
    Flush,
    FailToFlush,
    Compact,
    Reopen,
    Crash(Option<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0u8..6, prop::option::weighted(0.7, any::<u8>())).prop_map(|(k, v)| Step::Commit(k, v)),
        5 => (1u8..8).prop_map(Step::Wait),
        3 => Just(Step::File),
        3 => Just(Step::Flush),
        1 => Just(Step::FailToFlush),
        2 => Just(Step::Compact),
        1 => Just(Step::Reopen),
        1 => prop::option::of(any::<u8>()).prop_map(Step::Crash),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_state_within_the_history_can_be_read_and_none_is_ever_wrong(
        steps in steps(),
        history in prop_oneof![
            1 => Just(None),
            2 => Just(Some(SPAN)),
            3 => Just(Some(3 * SPAN)),
            1 => Just(Some(HOUR)),
        ],
    ) {
        let mut world = World::new(history);
        for step in steps {
            match step {
                Step::Commit(key, value) => world.commit(key, value),
                Step::Wait(seconds) => world.wait(seconds),
                Step::File => world.file(),
                Step::Flush => world.flush(),
                Step::FailToFlush => world.fail_to_flush(),
                Step::Compact => world.compact(),
                Step::Reopen => world.reopen(),
                Step::Crash(cut) => world.crash(cut),
            }
            world.check();
            history.into_iter().for_each(|span| world.check_times(span));
        }
    }
}

#[test]
fn states_are_gone_once_the_history_has_passed_them_and_not_before() {
    let mut world = World::new(Some(SPAN));
    for value in 0..4 {
        world.commit(1, Some(value));
        world.wait(3);
        world.flush();
    }
    world.db().compact().unwrap();
    let is_kept = |world: &World, at: usize| world.db().snapshot_at(world.states[at].point).is_ok();
    // 12 seconds have passed; the second state came after 3 of them, and its moment after 6.
    assert_eq!([0, 1, 2, 3].map(|at| is_kept(&world, at)), [true, true, true, true]);
    world.wait(9);
    world.commit(1, Some(9));
    world.db().compact().unwrap();
    assert_eq!([0, 1, 2, 3].map(|at| is_kept(&world, at)), [false, false, false, true]);
    let versions =
        world.db().metrics().families[0].levels.iter().map(|level| level.entries).sum::<u64>();
    assert_eq!(versions, 6, "three states of two keys");
}

#[test]
fn points_ahead_and_points_of_other_databases_are_invalid() {
    let (mut world, mut other) = (World::new(Some(SPAN)), World::new(Some(SPAN)));
    world.commit(1, Some(1));
    other.commit(1, Some(1));
    let point = world.states[0].point;
    let refused = |point| {
        let error = world.db().snapshot_at(point).unwrap_err();
        assert_eq!(error.name(), "INVALID_ARGUMENT");
        error.to_string()
    };
    let ahead = refused(ReadPoint { lsn: point.lsn + 32, ..point });
    assert!(ahead.contains("ahead of the newest one"), "{ahead}");
    assert!(refused(other.states[0].point).contains("another database"));
    assert_eq!(world.db().snapshot_at(point).unwrap().read_point(), point);
}

/// A family that is dropped takes its history with it, and leaves that of the others.
#[test]
fn an_earlier_snapshot_has_no_family_that_was_dropped_since() {
    let mut world = World::new(Some(SPAN));
    let family = world.db().family("brief").unwrap();
    family.put("key", "value").unwrap();
    world.commit(1, Some(1));
    let held = world.db().snapshot();
    family.put("key", "later").unwrap();
    world.commit(1, Some(2));
    let [first, second] = [0, 1].map(|at| world.states[at].point);
    world.db().drop_family(&family).unwrap();
    let early = world.db().snapshot_at(first).unwrap();
    assert_eq!(early.of(&family).get("key").unwrap().unwrap(), b"value");
    // What only later points saw is released.
    let late = world.db().snapshot_at(second).unwrap();
    assert_eq!(late.of(&family).get("key").unwrap_err().name(), "UNKNOWN_FAMILY");
    drop((held, early));
    let early = world.db().snapshot_at(first).unwrap();
    assert_eq!(early.of(&family).get("key").unwrap_err().name(), "UNKNOWN_FAMILY");
    assert_eq!(early.get([1]).unwrap().unwrap(), [1; 200]);
}

#[test]
fn moments_lie_apart_and_only_where_something_was_written() {
    let history = History::new(Some(SECOND), &State::default());
    let note = |unix_ms, point| {
        let mut moments = history.moments.lock();
        moments.add(3000, Moment { unix_ms, point });
        moments.known.len()
    };
    assert_eq!([note(5000, 10), note(8000, 20), note(8001, 20), note(11_002, 20)], [1, 1, 2, 2]);
    // The clock was set back.
    assert_eq!([note(100, 30), note(11_002, 30)], [2, 3]);
}

#[test]
fn without_a_history_no_moment_is_noted() {
    let mut world = World::new(None);
    world.commit(1, Some(1));
    world.wait(3);
    world.flush();
    assert!(world.db().engine().history.moments.lock().known.is_empty());
    assert!(world.db().engine().versions.lock().state().moments().is_empty());
}

#[test]
fn the_first_oldest_point_is_written_down_like_every_later_one() {
    let raised = raised(&State::default(), 77);
    assert!(matches!(raised[..], [Change::OldestReadable { lsn: 77 }]), "{raised:?}");
}

#[test]
fn the_oldest_point_is_one_that_some_term_has() {
    let term = |term, ended_at, resumes_at| Term { term, ended_at, resumes_at, seed: 0 };
    let terms = [term(3, 80, 100), term(4, 150, 200), term(5, 250, 300)];
    for (oldest, expected) in [
        (10, (100, Some(3))),
        (100, (100, Some(3))),
        (150, (150, Some(3))),
        (151, (200, Some(4))),
        (200, (200, Some(4))),
        (250, (250, Some(4))),
        (299, (300, Some(5))),
        (1000, (1000, Some(5))),
    ] {
        let (lsn, term) = place(&terms, oldest);
        assert_eq!((lsn, term.map(|term| term.term)), expected, "{oldest}");
    }
    assert_eq!(place(&[], 7), (7, None));
}

/// The point of a moment is read before it is noted, so an edit up to a later one may come between.
#[test]
fn a_moment_that_comes_while_an_edit_is_installed_is_left_to_the_next_edit() {
    let (history, state) = (History::new(Some(60_000), &State::default()), State::default());
    let moment = |unix_ms| Moment { unix_ms, point: 10 * unix_ms };
    let moments_of = |changes: &[Change]| match changes {
        [.., Change::Moments { moments }] => moments.clone(),
        _ => Vec::new(),
    };
    history.moments.lock().add(0, moment(1));
    let (changes, last) = history.changes(&state, 0, 100);
    assert_eq!((moments_of(&changes), last), (vec![moment(1)], Some(moment(1))));
    history.moments.lock().add(0, moment(2));
    history.note_filed(last.unwrap());
    let (changes, last) = history.changes(&state, 0, 100);
    assert_eq!((moments_of(&changes), last), (vec![moment(2)], Some(moment(2))));
    assert_eq!(history.retained_from(1, 3, 19), 10, "a crash would take the second away");
    assert_eq!(history.retained_from(1, 3, 20), 20);
    assert_eq!(history.retained_from(1, 3, 0), 10, "the edit that adds the second may fail");
    assert_eq!(history.moments.lock().known.len(), 2);
    // The first is gone before the second is known to be filed.
    history.note_in_tables(20);
    assert_eq!(history.retained_from(1, 3, 0), 20);
    assert_eq!(history.moments.lock().known, [moment(2)]);
    history.note_filed(last.unwrap());
    assert_eq!(history.changes(&state, 0, 100).1, None);
}

#[test]
fn an_edit_adds_no_moment_that_the_manifest_forgets_at_once() {
    let history = History::new(Some(60_000), &State::default());
    let moment = |unix_ms| Moment { unix_ms, point: 10 * unix_ms };
    (1..5).for_each(|unix_ms| history.moments.lock().add(0, moment(unix_ms)));
    let (changes, last) = history.changes(&State::default(), 20, 30);
    let added = Change::Moments { moments: vec![moment(2), moment(3)] };
    assert_eq!((changes.last(), last), (Some(&added), Some(moment(3))));
    history.note_filed(last.unwrap());
    assert_eq!(history.changes(&State::default(), 50, 40).1, None);
}

/// As in a database that writes little for days, and flushes nothing.
#[test]
fn very_many_moments_that_are_not_filed_thin_out_and_the_newest_stays() {
    let history = History::new(Some(60_000), &State::default());
    let moment = |unix_ms| Moment { unix_ms, point: 10 * unix_ms };
    let mut moments = history.moments.lock();
    moments.add(0, moment(1));
    moments.filed = 1;
    for unix_ms in 2..10 * MOMENTS_MAX {
        moments.add(0, moment(unix_ms));
        assert_eq!(moments.known.last(), Some(&moment(unix_ms)));
        assert!(moments.known.len() as u64 <= 4 * MOMENTS_MAX + 1);
    }
    assert!(moments.known.starts_with(&[moment(1), moment(2)]) && moments.filed == 1);
    assert!(moments.known.len() as u64 > MOMENTS_MAX);
}

#[test]
fn the_end_of_a_flush_soon_after_a_moment_changes_no_answer_that_was_given() {
    let history = History::new(Some(60_000), &State::default());
    let mut moments = history.moments.lock();
    let moment = |unix_ms, point| Moment { unix_ms, point };
    moments.add(100, moment(10, 10));
    moments.note_end(10);
    assert_eq!(moments.end, None, "it is a moment");
    moments.note_end(20);
    assert_eq!(moments.point_at(60), Some(10));
    // The clock may have been set back meanwhile.
    moments.note_end(30);
    moments.add(100, moment(110, 35));
    moments.add(100, moment(200, 40));
    assert_eq!(moments.known, [moment(10, 10), moment(199, 30), moment(200, 40)]);
    // A leap is doubted, and believed in the end.
    moments.add_doubted(100, moment(400, 50));
    moments.note_end(60);
    let doubted = std::mem::take(&mut moments.doubted);
    doubted.into_iter().for_each(|moment| moments.add(0, moment));
    moments.add(100, moment(600, 70));
    assert_eq!(moments.known[3..], [moment(400, 50), moment(599, 60), moment(600, 70)]);
}

/// Edits that share a record come before any of them is filed.
#[test]
fn a_compaction_adds_the_moments_of_tables_that_no_edit_before_it_adds() {
    let history = History::new(Some(60_000), &State::default());
    let moment = |unix_ms| Moment { unix_ms, point: 10 * unix_ms };
    (1..4).for_each(|unix_ms| history.moments.lock().add(0, moment(unix_ms)));
    for (last, end, expected) in [
        (None, 9, vec![]),
        (None, 20, vec![moment(1), moment(2)]),
        (Some(moment(1)), 20, vec![moment(2)]),
        (Some(moment(2)), 20, vec![]),
        (Some(moment(2)), 100, vec![moment(3)]),
    ] {
        let changes = history.changes_behind(last, end);
        let expected = (!expected.is_empty()).then_some(Change::Moments { moments: expected });
        assert_eq!(changes, expected, "{last:?} {end}");
    }
}

/// The wall clock, and the other one, in milliseconds.
struct Hands(AtomicU64, AtomicU64);

impl Hands {
    fn new() -> Arc<Hands> {
        Arc::new(Hands(AtomicU64::new(STARTED_MS), AtomicU64::new(SECOND)))
    }
}

impl Clock for Hands {
    fn now_ns(&self) -> u64 {
        self.1.load(Ordering::Relaxed) * 1_000_000
    }

    fn unix_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A machine slept for eight hours, and for forty minutes more soon after it woke.
#[test]
fn what_is_noted_between_two_steps_of_a_leap_shows_no_later_commit() {
    let minutes = |count: u64| count * 60_000;
    let hands = Hands::new();
    let history = History::new(Some(minutes(6000)), &State::default());
    let clock = TrustedClock::new(hands.clone(), 0, 0);
    let pass = |slept_ms: u64, passed_ms: u64| {
        hands.0.fetch_add(slept_ms + passed_ms, Ordering::Relaxed);
        hands.1.fetch_add(passed_ms, Ordering::Relaxed);
    };
    history.note(0, &clock, 10, false);
    pass(minutes(480), minutes(1));
    history.note(0, &clock, 20, false);
    pass(minutes(40), minutes(30));
    let between_ms = hands.0.load(Ordering::Relaxed) - minutes(20);
    history.note(0, &clock, 30, false);
    pass(0, minutes(31));
    history.note(0, &clock, 40, false);
    let known = history.moments.lock().known.clone();
    assert_eq!(known.iter().map(|moment| moment.point).collect::<Vec<_>>(), [10, 20, 30, 40]);
    assert!(history.point_at(&clock, between_ms) < Some(30), "{known:?}");
    let now_ms = hands.0.load(Ordering::Relaxed);
    assert!(known.iter().all(|moment| moment.unix_ms <= now_ms), "{known:?}");
}

#[test]
fn no_edit_has_moments_from_while_a_leap_is_doubted() {
    let day_ms = 86_400_000;
    let wall = Hands::new();
    let history = History::new(Some(60_000), &State::default());
    let clock = TrustedClock::new(wall.clone(), 0, 0);
    let filed = || match &history.changes(&State::default(), 0, 1000).0[..] {
        [.., Change::Moments { moments }] => moments.iter().map(|moment| moment.point).collect(),
        _ => Vec::new(),
    };
    history.note(10, &clock, 10, false);
    wall.0.fetch_add(day_ms, Ordering::Relaxed);
    history.note(0, &clock, 20, false);
    assert_eq!(filed(), [10]);
    {
        let mut moments = history.moments.lock();
        (1..9000).for_each(|n| {
            let next = Moment { unix_ms: STARTED_MS + n * 8, point: 20 + n };
            moments.add_doubted(10, next);
        });
        let (count, last) = (moments.doubted.len() as u64, moments.doubted.last().unwrap());
        assert_eq!((count, last.point), (MOMENTS_MAX / 2 + 404, 20 + 8998), "those 16 ms apart");
        moments.doubted.truncate(2);
    }
    assert_eq!(history.point_at(&clock, STARTED_MS + 16), Some(22));
    wall.0.fetch_sub(day_ms, Ordering::Relaxed);
    assert_eq!(history.point_at(&clock, STARTED_MS + 15), Some(10));
    assert_eq!(filed(), [10, 22, 24]);
}
