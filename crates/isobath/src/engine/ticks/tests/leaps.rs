//! What a wall clock that leaps ahead does to values that end, and to a history.

use super::{STARTED_MS, World, get, moment, ms};
use crate::env::Env;
use crate::env::sync::Mutex;
use crate::env::sync::atomic::Ordering;
use crate::events::Event;
use crate::{Db, Expiry, Options, Snapshot};
use std::sync::Arc;
use std::time::Duration;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const YEAR_MS: u64 = 365 * 24 * HOUR_MS;

impl World {
    /// Sets the wall clock ahead, while no time passes.
    fn leap(&self, ms: u64) {
        self.clock.0.fetch_add(ms, Ordering::Relaxed);
    }

    fn set_back(&self, ms: u64) {
        self.clock.0.fetch_sub(ms, Ordering::Relaxed);
    }
}

/// Has everything done that may drop values that have ended.
fn tidy(db: &Db) {
    db.engine().tick_for_others();
    db.put("tidy", "up").unwrap();
    db.flush().unwrap();
    db.compact().unwrap();
}

#[test]
fn a_year_for_a_minute_ends_no_value_and_no_lifetime_lasts_so_long() {
    let world = World::new();
    let db = world.open();
    let day = ms(24 * HOUR_MS);
    for key in ["get", "scan", "flushed"] {
        db.put_ttl(key, "v", day).unwrap();
    }
    db.flush().unwrap();
    world.leap(YEAR_MS);
    assert_eq!(get(&db, "get").as_deref(), Some("v"));
    assert_eq!(db.count("s"..).unwrap(), 1);
    assert_eq!(db.snapshot().count(..).unwrap(), 3);
    db.put_ttl("meanwhile", "v", day).unwrap();
    tidy(&db);
    world.clock.go(MINUTE_MS);
    tidy(&db);
    world.set_back(YEAR_MS);
    tidy(&db);
    assert_eq!(db.range(..).keys().count(), 5);
    let ends = |key| db.get_expiry(key).unwrap().unwrap().1;
    assert_eq!(ends("meanwhile"), Expiry::At(moment(STARTED_MS) + day));
    db.put_ttl("near", "v", ms(10)).unwrap();
    assert_eq!(ends("near"), Expiry::At(moment(STARTED_MS + MINUTE_MS + 10)));
    world.clock.go(9);
    assert_eq!(get(&db, "near").as_deref(), Some("v"));
    world.clock.go(1);
    assert_eq!(get(&db, "near"), None);
    world.clock.go(24 * HOUR_MS);
    assert_eq!(db.range(..).keys().count(), 1);
}

#[test]
fn what_a_leap_that_stands_for_an_hour_has_ended_is_gone() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("hour", "v", ms(HOUR_MS)).unwrap();
    db.put_ttl("day", "v", ms(24 * HOUR_MS)).unwrap();
    world.leap(YEAR_MS);
    assert_eq!(db.count(..).unwrap(), 2);
    world.clock.go(HOUR_MS - 1);
    assert_eq!(db.count(..).unwrap(), 2, "time goes on as before the leap");
    world.clock.go(1);
    assert_eq!(db.count(..).unwrap(), 0);
    db.put_ttl("next", "v", ms(10)).unwrap();
    let ends = db.get_expiry("next").unwrap().unwrap().1;
    assert_eq!(ends, Expiry::At(moment(STARTED_MS + YEAR_MS + HOUR_MS + 10)));
}

#[test]
fn small_steps_of_the_clock_end_values_at_once() {
    let world = World::new();
    let db = world.open();
    for minutes in [1, 60, 119, 179] {
        db.put_ttl(format!("{minutes:03}"), "v", ms(minutes * MINUTE_MS)).unwrap();
    }
    for (step, left) in [(1, 3), (59, 2), (59, 1), (61, 1), (-1, 0)] {
        match step < 0 {
            true => world.set_back(MINUTE_MS),
            false => world.leap(step as u64 * MINUTE_MS),
        }
        assert_eq!(db.count(..).unwrap(), left, "after {step} minutes");
    }
}

/// It may have been closed for years.
#[test]
fn a_clock_is_believed_at_an_open() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("k", "v", ms(24 * HOUR_MS)).unwrap();
    world.leap(YEAR_MS);
    assert_eq!(get(&db, "k").as_deref(), Some("v"));
    drop(db);
    assert_eq!(get(&world.open(), "k"), None);
}

/// The machine knows no time until it has asked for it.
#[test]
fn a_clock_that_was_far_behind_at_the_open_is_believed_once_it_is_set() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("k", "v", ms(MINUTE_MS)).unwrap();
    world.clock.go(MINUTE_MS);
    assert_eq!(db.count(..).unwrap(), 0);
    drop(db);
    world.set_back(STARTED_MS);
    let db = world.open();
    db.put_ttl("k", "v", ms(MINUTE_MS)).unwrap();
    assert_eq!(db.count(..).unwrap(), 1);
    world.leap(STARTED_MS + 30 * MINUTE_MS);
    assert_eq!(db.count(..).unwrap(), 0);
}

#[test]
fn a_history_is_kept_through_a_leap() {
    let world = World { history: Some(ms(24 * HOUR_MS)), ..World::new() };
    let db = world.open();
    db.put("k", "old").unwrap();
    let point = db.snapshot().read_point();
    world.clock.go(MINUTE_MS);
    db.engine().note_moment();
    world.clock.go(MINUTE_MS);
    db.put("k", "new").unwrap();
    world.leap(YEAR_MS);
    tidy(&db);
    world.clock.go(MINUTE_MS);
    world.set_back(YEAR_MS);
    db.put("k", "newest").unwrap();
    world.clock.go(MINUTE_MS);
    tidy(&db);
    assert_eq!(db.snapshot_at(point).unwrap().get("k").unwrap().unwrap(), b"old");
    world.clock.go(1);
    for (minutes, value) in [(1, "old"), (2, "new"), (4, "newest")] {
        let past = db.snapshot_as_of(moment(STARTED_MS + minutes * MINUTE_MS)).unwrap();
        assert_eq!(get_of(&past), value, "at {minutes} minutes");
    }
}

/// A leap that a sleep has made.
#[test]
fn states_from_while_a_leap_was_doubted_are_as_old_as_they_are() {
    let world = World { history: Some(ms(2 * HOUR_MS)), ..World::new() };
    let db = world.open();
    let put = |value: &str| {
        db.put("k", value).unwrap();
        db.engine().note_moment();
    };
    let at = |minutes: u64| db.snapshot_as_of(moment(STARTED_MS + minutes * MINUTE_MS));
    world.clock.go(MINUTE_MS);
    put("old");
    world.clock.go(MINUTE_MS);
    world.leap(8 * HOUR_MS);
    put("early");
    world.clock.go(10 * MINUTE_MS);
    put("late");
    db.flush().unwrap();
    assert_eq!([1, 5].map(|minutes| get_of(&at(minutes).unwrap())), ["old", "early"]);
    world.clock.go(50 * MINUTE_MS);
    tidy(&db);
    world.clock.go(MINUTE_MS);
    put("after");
    let awake = 8 * 60;
    for (minutes, value) in [(5, "old"), (30, "old"), (awake + 5, "early"), (awake + 30, "late")] {
        assert_eq!(get_of(&at(minutes).unwrap()), value, "at {minutes} minutes");
    }
    world.clock.go(75 * MINUTE_MS);
    tidy(&db);
    assert!(at(5).is_err());
    assert_eq!(get_of(&at(awake + 30).unwrap()), "late");
}

/// Nothing ends in it, so it has no tick.
#[test]
fn a_history_tells_a_clock_that_was_far_behind_at_the_open_what_time_it_was() {
    let world = World { history: Some(ms(24 * HOUR_MS)), ..World::new() };
    let db = world.open();
    db.put("k", "v").unwrap();
    world.clock.go(MINUTE_MS);
    db.close().unwrap();
    world.set_back(STARTED_MS);
    let db = world.open();
    let env = Env { fs: Arc::new(world.fs.clone()), clock: world.clock.clone(), ..Env::system() };
    let reader = Options::new().read_only(true).env(env).open("/db").unwrap();
    world.leap(STARTED_MS + 30 * MINUTE_MS);
    let now_ms = STARTED_MS + 31 * MINUTE_MS;
    assert_eq!([&db, &reader].map(|db| db.engine().clock_ms()), [now_ms; 2]);
    world.leap(YEAR_MS);
    assert_eq!([&db, &reader].map(|db| db.engine().clock_ms()), [now_ms; 2]);
}

#[test]
fn a_leap_that_is_doubted_ends_nothing_up_to_where_the_clock_once_was() {
    let world = World::new();
    let db = world.open();
    db.engine().maintenance.close();
    db.put_ttl("k", "v", ms(30 * MINUTE_MS)).unwrap();
    world.leap(45 * MINUTE_MS);
    db.engine().clock_ms();
    world.set_back(45 * MINUTE_MS);
    assert_eq!(get(&db, "k").as_deref(), Some("v"));
    assert_eq!(db.engine().clock_ms(), STARTED_MS);
    world.leap(YEAR_MS);
    assert_eq!(get(&db, "k").as_deref(), Some("v"));
    assert_eq!(db.count(..).unwrap(), 1);
    world.clock.go(30 * MINUTE_MS);
    assert_eq!(get(&db, "k"), None);
}

fn get_of(past: &Snapshot) -> String {
    String::from_utf8(past.get("k").unwrap().unwrap().to_vec()).unwrap()
}

#[test]
fn a_reader_that_may_not_write_believes_no_leap_either() {
    let world = World::new();
    let db = world.open();
    db.put_ttl("k", "v", ms(24 * HOUR_MS)).unwrap();
    db.flush().unwrap();
    let env = Env { fs: Arc::new(world.fs.clone()), clock: world.clock.clone(), ..Env::system() };
    let reader = Options::new().read_only(true).env(env).open("/db").unwrap();
    world.leap(YEAR_MS);
    db.put("other", "v").unwrap();
    for _ in 0..2 {
        assert_eq!(get(&reader, "k").as_deref(), Some("v"));
        assert_eq!(reader.snapshot().get("k").unwrap().unwrap(), b"v");
        reader.catch_up().unwrap();
    }
    world.clock.go(MINUTE_MS);
    world.set_back(YEAR_MS);
    assert_eq!(get(&reader, "k").as_deref(), Some("v"));
    world.leap(YEAR_MS);
    assert_eq!(get(&reader, "k").as_deref(), Some("v"));
    world.clock.go(HOUR_MS);
    assert_eq!(get(&reader, "k"), None);
}

#[test]
fn each_leap_is_told_once() {
    let world = World::new();
    let told = Arc::new(Mutex::unranked(Vec::new()));
    let (heard, clock) = (told.clone(), world.clock.clone());
    let env = Env { fs: Arc::new(world.fs.clone()), clock, ..Env::system() };
    let options = Options::new().env(env).on_event(move |event| {
        if let Event::ClockLeapt { ahead_us } = event {
            heard.lock().push(*ahead_us);
        }
    });
    let db = options.open("/db").unwrap();
    let is_told = |count: usize| {
        for _ in 0..120_000 {
            if told.lock().len() >= count {
                return;
            }
            db.engine().maintenance.kick();
            db.engine().options.env.threads.sleep(Duration::from_millis(1));
        }
        panic!("{count} leaps are not told");
    };
    world.leap(YEAR_MS);
    is_told(1);
    for _ in 0..20 {
        db.engine().maintenance.kick();
        db.engine().options.env.threads.sleep(Duration::from_millis(1));
    }
    world.set_back(YEAR_MS);
    db.engine().clock_ms();
    world.leap(2 * HOUR_MS);
    is_told(2);
    assert_eq!(*told.lock(), [YEAR_MS * 1000, 2 * HOUR_MS * 1000]);
}
