//! Which points compactions see, and what points keep of dropped families.

use super::*;
use crate::Options;
use crate::engine::Epochs;
use crate::memtable::ChunkPool;
use crate::options::FamilyOptions;
use crate::version::{Tree, fixtures};

/// The first LSNs of the epochs in which the family was written.
const STARTS: [Lsn; 4] = [90, 120, 150, 180];
const CREATED_AT: Lsn = 100;
const DROPPED_AT: Lsn = 200;

/// A dropped family with a run and a memtable in each epoch.
fn dropped_family() -> Arc<Keyspace> {
    let run = fixtures::slice(1, "a", "z", (100, 110));
    let tree = Arc::new(Tree::default().with(&[], vec![(0, run)]).unwrap());
    let options = FamilyOptions::default();
    let family = Arc::new(Keyspace::new(1, "brief", options, CREATED_AT, tree));
    let epochs = Epochs::new(Arc::new(ChunkPool::new(16 << 10, 0, 0)), STARTS[0]);
    for next in &STARTS[1..] {
        family.memtable_in(&epochs.list().open);
        epochs.seal(&epochs.lock(), || Ok::<Lsn, ()>(*next)).unwrap();
    }
    family.memtable_in(&epochs.list().open);
    family.mark_dropped(DROPPED_AT);
    family
}

/// The first LSNs of the epochs whose memtables the family holds, and the number of its runs.
fn held_by(family: &Keyspace) -> (Vec<Lsn>, usize) {
    let view = family.view();
    let mut starts: Vec<Lsn> = view.memtables.iter().map(|of| of.epoch.start).collect();
    starts.reverse();
    (starts, view.tree.runs.len())
}

#[test]
fn a_dropped_family_holds_what_its_points_see_until_the_last_of_them_goes() {
    let known = [99, 100, 101, 120, 121, 180, 200, 201];
    let seen = |point: Lsn| CREATED_AT < point && point <= DROPPED_AT;
    for choice in 0..1u32 << known.len() {
        let chosen = |(at, _): &(usize, &Lsn)| choice & 1 << at != 0;
        let mut taken: Vec<Lsn> =
            known.iter().enumerate().filter(chosen).map(|(_, point)| *point).collect();
        // One point is held twice.
        taken.extend(taken.first().copied());
        let points = ReadPoints::default();
        let in_map = |place: usize| (choice as usize + place).is_multiple_of(3);
        let mut holds: Vec<Hold> = (taken.iter().enumerate())
            .map(|(at, point)| match in_map(at) {
                true => points.hold_in_map(*point),
                false => points.hold(*point),
            })
            .collect();
        let family = dropped_family();
        points.let_go(&family);
        let expected = match taken.iter().copied().filter(|point| seen(*point)).max() {
            Some(last) => (STARTS.into_iter().filter(|start| *start < last).collect(), 1),
            None => (Vec::new(), 0),
        };
        let turn = choice as usize % holds.len().max(1);
        holds.rotate_left(turn);
        while let Some(hold) = holds.pop() {
            assert_eq!(held_by(&family), expected, "{holds:?} and {hold:?}");
            points.release(&hold);
            if !holds.iter().any(|hold| seen(hold.point())) {
                break;
            }
        }
        assert_eq!(held_by(&family), (Vec::new(), 0), "with {holds:?} left");
        holds.drain(..).for_each(|hold| points.release(&hold));
        assert_eq!(points.held(), (0, None));
        assert_eq!(points.dropped_count(), 0);
        assert_eq!(points.shared.gate.look_below.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn the_greatest_point_that_is_awaited_says_which_releases_look_after_families() {
    let points = ReadPoints::new(0);
    let registry = Registry { awaited: [10, 20].into(), ..Registry::default() };
    points.note_waiting(&registry);
    assert_eq!(points.shared.gate.look_below.load(Ordering::SeqCst), 21);
}

#[test]
fn a_close_releases_dropped_families_though_points_see_them() {
    let (points, family) = (ReadPoints::default(), dropped_family());
    let hold = points.hold(150);
    points.let_go(&family);
    assert_ne!(held_by(&family), (Vec::new(), 0));
    points.shut();
    assert_eq!(held_by(&family), (Vec::new(), 0));
    points.release(&hold);
}

#[test]
fn a_point_is_kept_until_its_last_holder_gives_it_back() {
    let db = Options::in_memory().open("/db").unwrap();
    let log = &db.engine().log;
    let points = ReadPoints::default();
    let kept = || {
        let readers = points.readers(log, Lsn::MAX);
        assert_eq!(readers.horizon(), log.visible());
        readers.registered().to_vec()
    };
    assert_eq!((kept(), points.held()), (vec![], (0, None)));
    let first = points.register(log);
    let older = first.point();
    assert_eq!(older, log.visible());
    let second = points.register(log);
    assert_eq!(second.point(), older);
    db.put("key", "value").unwrap();
    let third = points.register(log);
    let newer = third.point();
    assert_eq!(newer, log.visible());
    assert!(older < newer);
    assert_eq!((kept(), points.held()), (vec![older, newer], (3, Some(older))));
    points.release(&first);
    assert_eq!((kept(), points.held()), (vec![older, newer], (2, Some(older))));
    points.release(&second);
    assert_eq!((kept(), points.held()), (vec![newer], (1, Some(newer))));
    points.release(&third);
    assert_eq!((kept(), points.held()), (vec![], (0, None)));
}

#[test]
fn a_point_that_is_held_again_stays_in_its_place_until_all_holders_have_gone() {
    let points = ReadPoints::default();
    for in_map in [false, true] {
        let mut holds = vec![if in_map { points.hold_in_map(70) } else { points.hold(70) }];
        let place = holds[0].place;
        for count in 1..4 {
            assert_eq!(points.held(), (count, Some(70)));
            holds.push(points.hold_again(&holds[count / 2]));
            assert_eq!((holds[count].point(), holds[count].place), (70, place));
        }
        for (gone, hold) in holds.iter().enumerate() {
            assert_eq!(points.held(), (holds.len() - gone, Some(70)));
            points.release(hold);
        }
        assert_eq!(points.held(), (0, None));
    }
}

#[test]
fn points_beyond_the_slots_near_a_thread_are_kept_as_well() {
    let points = ReadPoints::default();
    let count = TRIED_MAX as u64 + 3;
    let holds: Vec<Hold> = (1..=count).map(|point| points.register_at(|| point)).collect();
    assert_eq!(points.held(), (count as usize, Some(1)));
    let in_map = holds.iter().filter(|hold| hold.place == SLOTS as u32).count();
    assert_eq!((in_map, points.registry.lock().points.len()), (3, 3));
    assert!(points.readers_from(count + 1).registered().iter().copied().eq(1..=count));
    assert!(points.close_for(4, 4).into_iter().eq(1..=count));
    holds.iter().for_each(|hold| points.release(hold));
    assert_eq!(points.held(), (0, None));
}

#[test]
fn threads_begin_with_slots_that_lie_apart() {
    let first_of = |number: usize| (number.wrapping_mul(STRIDE) % SLOTS) as u32;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || {
                let points = ReadPoints::default();
                let holds = [points.hold(5), points.hold(5)];
                let first = first_of(thread_number());
                assert_eq!(
                    holds.each_ref().map(|at| at.place),
                    [first, (first + 1) % SLOTS as u32]
                );
                holds.iter().for_each(|hold| points.release(hold));
            });
        }
    });
    // In a simulation there are few slots, so that they are used up.
    if cfg!(feature = "simulation") {
        return;
    }
    // Threads of other tests take numbers, too, so those of the threads above may be any.
    let mut firsts: Vec<u32> = (0..8).map(first_of).collect();
    firsts.sort_unstable();
    assert!(firsts.is_sorted_by(|one, next| one + 1 < *next), "{firsts:?}");
}

/// What a compaction does between a reader's load of its point and its look at the horizon.
#[test]
fn a_reader_whose_point_a_compaction_has_passed_begins_again() {
    let points = ReadPoints::default();
    let loads = std::cell::Cell::new(0);
    let hold = points.register_at(|| {
        loads.set(loads.get() + 1);
        let point = 100 * loads.get();
        if loads.get() < 3 {
            assert!(points.readers_from(point + 50).registered().is_empty());
        }
        point
    });
    assert_eq!((hold.point(), loads.get()), (300, 3));
    assert_eq!(points.held(), (1, Some(300)));
    points.release(&hold);
}

/// The drop of a family, in place of the compaction.
#[test]
fn a_reader_whose_point_the_drop_of_a_family_did_not_see_begins_above_it() {
    let points = ReadPoints::default();
    let family = dropped_family();
    let is_over = std::cell::Cell::new(false);
    let hold = points.register_at(|| match is_over.replace(true) {
        false => {
            points.let_go(&family);
            DROPPED_AT
        }
        true => DROPPED_AT + 32,
    });
    assert_eq!(hold.point(), DROPPED_AT + 32);
    assert_eq!(held_by(&family), (Vec::new(), 0));
    points.release(&hold);
}

#[test]
#[should_panic(expected = "a reader begins at 0x63")]
fn no_reader_begins_below_what_compactions_have_dropped() {
    let points = ReadPoints::default();
    assert_eq!(points.readers_from(100).horizon(), 100);
    points.release(&points.register_at(|| 100));
    drop(points.register_at(|| 99));
}

#[test]
fn a_job_keeps_what_it_has_to_though_no_reader_begins_there_because_of_another_job() {
    let points = ReadPoints::default();
    assert_eq!(points.readers_from(100).horizon(), 100);
    assert_eq!(points.readers_from(99).horizon(), 99);
    assert!(points.register_old(99).is_none());
    assert_eq!(points.readers_from(101).horizon(), 101);
    assert!(points.register_old(100).is_none());
}

#[test]
fn who_comes_after_other_tables_are_shown_begins_at_their_point_or_in_the_history() {
    let points = ReadPoints::default();
    let holds = [9, 7, 9, 12].map(|point| points.register_at(|| point));
    assert_eq!(points.close_for(8, 13), [7, 9, 12]);
    assert!(points.register_old(7).is_none());
    let old = points.register_old(8).unwrap();
    let newest = std::cell::Cell::new(11);
    let later = points.register_at(|| {
        newest.set(newest.get() + 1);
        newest.get()
    });
    assert_eq!((old.point(), later.point()), (8, 13));
    assert_eq!(points.close_for(8, 13), [7, 8, 9, 12, 13]);
    holds.iter().chain([&old, &later]).for_each(|hold| points.release(hold));
}

#[test]
#[should_panic(expected = "a point is released once by each holder")]
fn a_point_that_is_released_twice_is_noticed() {
    let points = ReadPoints::default();
    let hold = points.register_at(|| 77);
    points.release(&hold);
    points.release(&hold);
}

#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "read points outlive the database: [77]")]
fn a_point_that_is_never_released_is_noticed() {
    drop(ReadPoints::default().register_at(|| 77));
}

/// A panic while another one unwinds would end the process.
#[test]
#[should_panic(expected = "the first panic")]
fn a_point_that_a_panic_leaves_behind_causes_no_second_one() {
    let points = ReadPoints::default();
    let _hold = points.register_at(|| 77);
    panic!("the first panic");
}

#[test]
fn the_points_in_use_are_listed_once_no_reader_begins_below_the_horizon() {
    let points = ReadPoints::default();
    let earlier = points.register_old(70).unwrap();
    let in_use = points.close_and(80, || {
        assert!(points.register_old(79).is_none(), "a point that is not listed is below");
        let newest = std::cell::Cell::new(79);
        let later = points.register_at(|| newest.replace(80));
        points.release(&later);
        (later.point(), points.list(&points.registry.lock()))
    });
    assert_eq!(in_use, (80, vec![70]));
    points.release(&earlier);
}

/// A reader that is listed may have its point from just before.
#[test]
fn what_a_held_view_serves_is_asked_for_behind_the_points() {
    let (points, options) = (ReadPoints::default(), FamilyOptions::default());
    let family = Arc::new(Keyspace::new(1, "f", options, 1, Arc::default()));
    let reader = points.register_at(|| 70);
    let before = LOOKS.get();
    points.install_filtered(&family, Arc::default(), 60, || {
        assert!(LOOKS.get() > before, "no point has been looked at");
        80
    });
    points.release(&reader);
}

/// A thread that gives up views has listed the points, and comes on after a reader has begun and a
/// view is held for that reader.
#[test]
fn a_view_that_was_held_after_the_points_were_listed_stays() {
    let (points, options) = (ReadPoints::default(), FamilyOptions::default());
    let family = Arc::new(Keyspace::new(1, "f", options, 1, Arc::default()));
    let install = || points.install_filtered(&family, Arc::default(), 60, || 80);
    let first = points.register_at(|| 70);
    install();
    let era = points.era();
    let second = points.register_at(|| 80);
    install();
    family.release_held(&family.unneeded_views(era, |_| false));
    assert_eq!(family.held_views(), 1);
    assert!(family.view().held_for(second.registered()).is_some());
    points.release(&first);
    points.release(&second);
    assert_eq!(family.held_views(), 0);
}

/// A thread that releases views meanwhile compares their eras with this one.
#[test]
fn the_era_in_which_nobody_registers_lies_between_its_neighbours() {
    let points = ReadPoints::default();
    for _ in 0..3 {
        let before = points.era();
        let coming = points.begin_era();
        let now = points.shared.gate.era.load(Ordering::SeqCst);
        assert_eq!((now, coming.number()), (before + 1, before + 2));
        drop(coming);
        assert_eq!(points.shared.gate.era.load(Ordering::SeqCst), before + 2);
    }
}

#[test]
fn an_installation_that_panics_keeps_no_reader_waiting() {
    let (points, options) = (ReadPoints::default(), FamilyOptions::default());
    let family = Arc::new(Keyspace::new(1, "f", options, 1, Arc::default()));
    let first = points.register_at(|| 70);
    let install = || points.install_filtered(&family, Arc::default(), 60, || panic!("planted"));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(install)).is_err());
    assert!(!points.is_between_eras(), "readers wait");
    let second = points.register_at(|| 80);
    assert_eq!((second.point(), family.held_views()), (80, 0));
    points.install_filtered(&family, Arc::default(), 60, || 80);
    assert!(family.view().held_for(first.registered()).is_some());
    [first, second].iter().for_each(|hold| points.release(hold));
}

#[test]
fn a_point_that_sees_no_dropped_family_goes_without_a_look_at_them() {
    let (points, family) = (ReadPoints::default(), dropped_family());
    let [old, last, newer] = [150, DROPPED_AT, DROPPED_AT + 1].map(|point| points.hold(point));
    points.let_go(&family);
    // A release that took this lock would wait for ever.
    let registry = points.registry.lock();
    points.release(&newer);
    drop(registry);
    assert_ne!(held_by(&family), (Vec::new(), 0));
    points.release(&old);
    assert_ne!(held_by(&family), (Vec::new(), 0));
    points.release(&last);
    assert_eq!((held_by(&family), points.dropped_count()), ((Vec::new(), 0), 0));
}

#[test]
fn the_last_drop_of_several_says_which_points_look_after_dropped_families() {
    let points = ReadPoints::default();
    let (early, late) = (dropped_family(), {
        let options = FamilyOptions::default();
        let family = Arc::new(Keyspace::new(2, "late", options, CREATED_AT, Arc::default()));
        family.mark_dropped(300);
        family
    });
    let [first, second] = [150, 250].map(|point| points.hold(point));
    points.let_go(&late);
    points.let_go(&early);
    assert_eq!(points.dropped_count(), 2);
    points.release(&second);
    assert_eq!(points.dropped_count(), 2, "both are seen by the first");
    let third = points.hold(250);
    points.release(&first);
    assert_eq!(points.dropped_count(), 1);
    points.release(&third);
    assert_eq!(points.dropped_count(), 0);
}

/// A drop notes the last point that sees the family, and only then has it end there. In between
/// another reader may hold a later point, if only to find that it is too old.
#[test]
fn a_point_that_is_held_while_a_drop_is_noted_hides_no_other_that_sees_the_family() {
    let (points, family) = (ReadPoints::default(), dropped_family());
    let [first, last] = [110, 150].map(|point| points.hold(point));
    assert_eq!(points.note_dropped(&family), Some(150));
    let between = points.hold(180);
    points.release(&last);
    family.cut(150);
    let other = {
        let options = FamilyOptions::default();
        let family = Arc::new(Keyspace::new(2, "other", options, 300, Arc::default()));
        family.mark_dropped(310);
        family
    };
    points.let_go(&other);
    points.release(&between);
    assert_eq!(points.dropped_count(), 1);
    points.release(&first);
    assert_eq!((held_by(&family), points.dropped_count()), ((Vec::new(), 0), 0));
    assert_eq!(points.shared.gate.look_below.load(Ordering::Relaxed), 0);
}

#[test]
fn points_that_go_after_a_drop_are_not_listed_for_each_that_goes() {
    const POINTS: u64 = 500;
    for (is_descending, is_view) in [(false, false), (true, false), (false, true), (true, true)] {
        let (points, family) = (ReadPoints::default(), dropped_family());
        let mut holds: Vec<Hold> =
            (1..=POINTS).map(|_| points.register_at(|| DROPPED_AT)).collect();
        holds.extend((1..=POINTS).map(|point| points.register_at(|| DROPPED_AT - 50 + point)));
        if is_view {
            let family =
                Arc::new(Keyspace::new(1, "f", FamilyOptions::default(), 1, Arc::default()));
            points.install_filtered(&family, Arc::default(), 60, || DROPPED_AT + POINTS);
        }
        points.let_go(&family);
        if is_descending {
            holds.reverse();
        }
        LOOKS.set(0);
        holds.iter().for_each(|hold| points.release(hold));
        let looks = LOOKS.get();
        assert!(looks <= 40 * POINTS as usize, "{looks} looks, view: {is_view}");
        assert_eq!((points.dropped_count(), points.held()), (0, (0, None)));
        assert_eq!(points.shared.gate.look_below.load(Ordering::Relaxed), 0);
    }
}

#[test]
fn the_oldest_reader_is_that_of_all_readers() {
    let db = Options::in_memory().open("/db").unwrap();
    let engine = db.engine();
    let (points, log) = (&engine.points, &engine.log);
    let agree = || {
        let oldest = points.oldest(log, Lsn::MAX);
        assert_eq!(oldest, points.readers(log, Lsn::MAX).oldest());
        assert_eq!(engine.oldest_reader(), (oldest, engine.readers().unix_ms()));
        oldest
    };
    assert_eq!(agree(), log.visible());
    let mut holds = Vec::new();
    for n in 0..4 * TRIED_MAX {
        holds.push(points.register(log));
        db.put(n.to_be_bytes(), "value").unwrap();
        assert_eq!(agree(), holds[0].point());
    }
    LOOKS.set(0);
    engine.oldest_reader();
    assert!(LOOKS.get() <= TRIED_MAX, "those in the map are not listed");
    for hold in holds {
        assert_eq!(agree(), hold.point());
        points.release(&hold);
    }
    assert_eq!(agree(), log.visible());
}

/// What it was to show may be shown already.
#[test]
fn after_an_era_that_a_panic_ended_no_reader_begins_below_what_it_was_to_show() {
    let points = ReadPoints::default();
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        points.begin_era().serves(70, 80);
        let mut coming = points.begin_era();
        coming.serves(90, 95);
        panic!("planted");
    }));
    assert!(ended.is_err() && !points.is_between_eras());
    assert!(points.register_old(89).is_none());
    points.release(&points.register_old(90).expect("an earlier point"));
    let newest = std::cell::Cell::new(94);
    let hold = points.register_at(|| newest.replace(95));
    assert_eq!(hold.point(), 95);
    points.release(&hold);
}
