//! What can go wrong with earlier states: tails that were lost, clocks that were set back,
//! histories that change between opens, readers beside the writer, closed databases.

use super::*;

/// The log's tail that a power cut took is never read again, however far the next term has come.
#[test]
fn a_point_of_a_discarded_tail_is_too_old_and_those_before_it_are_not() {
    let mut world = World::new(Some(SPAN));
    world.commit(1, Some(1));
    world.flush();
    world.commit(1, Some(2));
    let [kept, lost] = [0, 1].map(|at| world.states[at].point);
    world.crash(Some(0));
    assert_eq!(world.lost, [lost]);
    for _ in 0..3 {
        world.check();
        assert!(world.db().snapshot_at(kept).is_ok());
        let error = world.db().snapshot_at(lost).unwrap_err();
        let ErrorKind::PointTooOld { oldest } = *error.kind() else { panic!("{error}") };
        assert_eq!(oldest, world.db().oldest_readable());
        assert!(error.to_string().contains(&oldest.to_string()), "{error}");
        world.commit(1, Some(3));
        world.reopen();
    }
}

#[test]
fn commits_that_only_the_log_held_at_a_crash_count_as_made_at_the_next_open() {
    let mut world = World::new(Some(SPAN));
    world.commit(1, Some(1));
    world.wait(1);
    world.flush();
    world.commit(1, Some(2));
    world.wait(2);
    world.commit(1, Some(3));
    let found = |world: &World, ms| world.count_at(ms).unwrap();
    let before_ms = world.now_ms();
    assert_eq!(found(&world, before_ms - 1), 1);
    world.clock.0.fetch_add(SECOND, Ordering::Relaxed);
    world.crash(None);
    let opened_ms = world.now_ms();
    world.clock.0.fetch_add(SECOND, Ordering::Relaxed);
    assert_eq!([before_ms, opened_ms - 1].map(|ms| found(&world, ms)), [1, 1]);
    assert_eq!(found(&world, opened_ms), 3);
    world.check();
}

/// A flush notes no moment at its end if the last one came just before.
#[test]
fn after_a_crash_an_idle_database_had_what_it_flushed_last_for_all_the_time() {
    let mut world = World::new(Some(HOUR));
    world.commit(1, Some(1));
    world.wait(1);
    world.db().put_ttl("ends", "early", Duration::from_secs(1)).unwrap();
    world.commit(1, Some(2));
    world.flush();
    for seconds in [1, 5] {
        // A read that ticks.
        assert!(world.db().range(..).count() > 0);
        world.wait(seconds);
        world.file();
    }
    world.crash(None);
    let idle_ms = world.now_ms() - SECOND;
    assert_eq!(world.count_at(idle_ms).unwrap(), 2);
}

/// Compacts what is in tables, without a flush.
fn versions_once_compacted(world: &World) -> u64 {
    let engine = world.db().engine();
    let everything = crate::key_range::bounds_of(..);
    crate::compact::compact_range(engine, &engine.default_family, &everything).unwrap();
    world.db().metrics().families[0].levels.iter().map(|level| level.entries).sum()
}

#[test]
fn a_history_that_is_switched_on_keeps_nothing_from_before() {
    let mut world = World::new(None);
    for value in 0..2 {
        world.commit(1, Some(value));
        world.flush();
    }
    world.history = Some(HOUR);
    world.reopen();
    assert_eq!(versions_once_compacted(&world), 2);
}

#[test]
fn a_moment_that_finds_no_room_is_filed_once_a_flush_has_found_some() {
    let mut world = World::new(Some(HOUR));
    world.commit(1, Some(1));
    world.wait(1);
    world.commit(1, Some(2));
    world.flush();
    world.wait(1);
    let full = std::io::ErrorKind::StorageFull;
    world.fs.inject(Fault::on(FileOp::Write).kind(full).forever());
    world.db().engine().file_late_moments();
    let tried = world.fs.struck();
    world.db().engine().file_late_moments();
    assert_eq!((tried > 0, world.fs.struck()), (true, tried), "it is not tried each second");
    world.fs.clear_faults();
    world.commit(1, Some(3));
    world.wait(1);
    world.commit(1, Some(4));
    world.flush();
    world.wait(1);
    world.file();
    world.wait(1);
    world.crash(None);
    assert_eq!(world.count_at(world.now_ms() - SECOND / 2).unwrap(), 4);
    world.check();
}

#[test]
fn a_compaction_longer_after_the_last_flush_than_the_history_takes_no_time_from_after_a_crash() {
    let mut world = World::new(Some(SPAN));
    for value in 0..2 {
        world.commit(1, Some(value));
        world.flush();
    }
    for seconds in [1, 7, 7] {
        world.commit(1, Some(seconds));
        world.wait(seconds);
    }
    // It asks for less to be kept. Another attempt may come by itself.
    world.fail_to_flush();
    versions_once_compacted(&world);
    assert!(is_too_old(&world.db().snapshot_at(world.states[0].point).unwrap_err()));
    world.crash(None);
    let within_ms = world.now_ms() - 2 * SECOND;
    assert!(world.count_at(within_ms).unwrap() >= 2);
    world.check();
}

#[test]
fn a_clock_that_is_set_back_takes_no_state_away_and_a_time_ahead_of_it_is_now() {
    let mut world = World::new(Some(SPAN));
    for value in 0..3 {
        world.commit(1, Some(value));
        world.wait(2);
        world.flush();
    }
    let noted = world.noted.clone();
    world.clock.0.fetch_sub(3600 * SECOND, Ordering::Relaxed);
    for value in 3..6 {
        world.commit(1, Some(value));
        world.wait(1);
        world.flush();
        world.db().compact().unwrap();
        world.reopen();
        world.check();
        assert!(world.states.iter().all(|of| world.db().snapshot_at(of.point).is_ok()));
        let ahead = world.db().engine().register_as_of(noted[0].0).unwrap();
        assert_eq!(ahead.point(), world.db().engine().newest_point());
        world.db().engine().points.release(&ahead);
    }
    // The time between is that of the last moment before the clock was set back.
    world.clock.0.fetch_add(3600 * SECOND + 5, Ordering::Relaxed);
    let hold = world.db().engine().register_as_of(noted[1].0).unwrap();
    assert!(hold.point() < world.states[2].point.lsn);
    world.db().engine().points.release(&hold);
    // It has caught up: what is due goes.
    world.wait(60);
    world.commit(1, Some(9));
    world.flush();
    world.db().compact().unwrap();
    assert!(is_too_old(&world.db().snapshot_at(world.states[0].point).unwrap_err()));
    world.check();
}

#[test]
fn the_longest_and_the_shortest_history_are_what_they_say() {
    let mut world = World::new(Some(Duration::MAX));
    for value in 0..3 {
        world.commit(1, Some(value));
        world.wait(250);
        world.reopen();
        world.db().compact().unwrap();
    }
    world.check();
    assert!(world.states.iter().all(|of| world.db().snapshot_at(of.point).is_ok()));
    // Less than the clock tells apart is none.
    world.history = Some(Duration::from_micros(999));
    world.reopen();
    assert!(is_too_old(&world.db().snapshot_at(world.states[2].point).unwrap_err()));
    assert!(world.db().engine().versions.lock().state().moments().is_empty());
}

#[test]
fn a_closed_database_has_no_earlier_states() {
    let mut world = World::new(Some(SPAN));
    world.commit(1, Some(1));
    let db = world.db.take().unwrap();
    db.clone().close().unwrap();
    let refused = [
        db.snapshot_at(world.states[0].point).map(drop).unwrap_err(),
        db.engine().register_as_of(world.now_ms() - 1).map(drop).unwrap_err(),
    ];
    assert_eq!(refused.map(|error| error.name()), ["CLOSED"; 2]);
}

#[test]
fn a_reader_beside_the_writer_refuses_points_that_it_cannot_serve() {
    let (mut world, mut other) = (World::new(None), World::new(None));
    other.commit(1, Some(1));
    world.commit(1, Some(1));
    world.commit(1, Some(2));
    world.flush();
    world.db().compact().unwrap();
    let reader = world.reader();
    let refused = |point| reader.snapshot_at(point).unwrap_err();
    assert!(is_too_old(&refused(world.states[0].point)));
    assert!(is_too_old(&reader.engine().register_as_of(STARTED_MS).unwrap_err()));
    assert_eq!(refused(other.states[0].point).name(), "INVALID_ARGUMENT");
    world.commit(1, Some(3));
    let ahead = refused(world.states[2].point);
    assert!(ahead.to_string().contains("ahead of the newest one"), "{ahead}");
    world.reopen();
    world.commit(1, Some(4));
    let ahead = refused(world.states[3].point);
    assert!(ahead.to_string().contains("catch_up"), "{ahead}");
    assert_eq!(ahead.name(), "INVALID_ARGUMENT");
    assert!(reader.catch_up().unwrap() >= world.states[3].point);
    let newest = &world.states[3];
    assert_eq!(content(&reader.snapshot_at(newest.point).unwrap()), newest.content);
    // The writer keeps no history, so its open has given up the point.
    assert!(is_too_old(&refused(world.states[2].point)));
}

#[test]
fn a_reader_that_catches_up_serves_the_history_of_all_terms() {
    let mut world = World::new(Some(SPAN));
    let reader = world.reader();
    for value in 0..6 {
        world.commit(1, Some(value));
        world.wait(1);
        match value % 3 {
            0 => world.flush(),
            1 => world.reopen(),
            _ => {}
        }
        reader.catch_up().unwrap();
        let held: Vec<_> =
            world.states.iter().map(|known| reader.snapshot_at(known.point).unwrap()).collect();
        world.db().compact().unwrap();
        reader.catch_up().unwrap();
        for (known, held) in world.states.iter().zip(&held) {
            assert_eq!(content(held), known.content);
            assert_eq!(content(&reader.snapshot_at(known.point).unwrap()), known.content);
        }
    }
}

#[test]
fn a_reader_beside_the_writer_reads_the_history_that_is_in_tables() {
    let mut world = World::new(Some(SPAN));
    for value in 0..3 {
        world.commit(1, Some(value));
        world.wait(1);
        world.flush();
    }
    world.db().compact().unwrap();
    world.clock.0.fetch_add(SECOND, Ordering::Relaxed);
    world.commit(1, Some(3));
    let reader = world.reader();
    for known in &world.states {
        assert_eq!(content(&reader.snapshot_at(known.point).unwrap()), known.content);
    }
    let as_of = |world: &World, ms| {
        let hold = reader.engine().register_as_of(ms).unwrap();
        let point = hold.point();
        reader.engine().points.release(&hold);
        world.states.iter().filter(|known| known.point.lsn <= point).count()
    };
    let check = |world: &World| {
        for (ms, count) in &world.noted {
            assert_eq!([0, 1, 999].map(|later| as_of(world, ms + later)), [*count; 3]);
        }
        assert_eq!(as_of(world, world.now_ms()), world.states.len());
    };
    check(&world);
    // It follows the log, and keeps the tables that it has.
    let tables = || {
        let line = reader.engine().shown.as_ref().unwrap().line.lock();
        line.as_ref().unwrap().file_numbers()
    };
    let before = tables();
    for value in 4..7 {
        world.commit(1, Some(value));
        world.wait(1);
        // The reader has all of the log before the flush is over.
        world.fail_to_flush();
        reader.catch_up().unwrap();
        world.flush();
        reader.catch_up().unwrap();
        world.clock.0.fetch_add(SECOND, Ordering::Relaxed);
        check(&world);
    }
    assert_eq!(tables(), before);
    assert!(is_too_old(&reader.engine().register_as_of(STARTED_MS - 1).unwrap_err()));
}

#[test]
fn a_history_goes_on_until_an_open_asks_for_none() {
    let mut world = World::new(Some(SPAN));
    world.commit(1, Some(1));
    world.commit(1, Some(2));
    let first = world.states[0].point;
    assert!(world.db().snapshot_at(first).is_ok());
    // The manifest remembers the span.
    world.history = None;
    world.reopen();
    assert!(world.db().snapshot_at(first).is_ok());
    world.history = Some(Duration::ZERO);
    world.reopen();
    assert!(is_too_old(&world.db().snapshot_at(first).unwrap_err()));
    world.history = Some(SPAN);
    world.reopen();
    assert!(is_too_old(&world.db().snapshot_at(first).unwrap_err()));
    world.states.clear();
    world.commit(1, Some(3));
    world.commit(1, Some(4));
    world.check();
}

#[test]
fn a_longer_history_brings_nothing_back() {
    let mut world = World::new(Some(SPAN));
    for value in 0..4 {
        world.commit(1, Some(value));
        world.flush();
    }
    let first = world.states[0].point;
    assert_eq!(content(&world.db().snapshot_at(first).unwrap()), world.states[0].content);
    world.wait(60);
    // Nothing is left to flush: the compaction's edit is the last one before the process dies.
    world.db().compact().unwrap();
    world.history = Some(SPAN * 1000);
    world.crash(None);
    assert!(is_too_old(&world.db().snapshot_at(first).unwrap_err()));
    assert_eq!(content(&world.db().snapshot()), world.states.last().unwrap().content);
}

/// Catching up takes over the writer's moments before it shows what belongs to them.
#[test]
fn a_reader_that_is_catching_up_shows_no_time_ahead_of_what_it_shows() {
    let mut world = World::new(Some(SPAN));
    world.commit(1, Some(1));
    let reader = world.reader();
    let newest = reader.engine().newest_point();
    world.commit(1, Some(2));
    world.wait(1);
    world.flush();
    world.clock.0.fetch_add(SECOND, Ordering::Relaxed);
    let state = world.db().engine().versions.lock().state().clone();
    reader.engine().history.follow(state.moments());
    let hold = reader.engine().register_as_of(world.now_ms() - 1).unwrap();
    assert_eq!(hold.point(), newest);
    reader.engine().points.release(&hold);
}
