//! Cycles of waits that a request hides from those behind it, and what it costs to look for them.

use super::*;

/// Asks for a key that is not free, without a sleep.
fn stand(table: &Table, owner: &Arc<Owner>, key: &str, mode: LockMode) -> Place {
    let (locks, key) = (&table.locks, key.as_bytes());
    let slot = locks.slots.slot(0, key);
    let (want, tickets) = (Want::Hold(mode), Some(&locks.ticket));
    let mut shard = locks.shard(slot).lock();
    match shard.request(&*locks.slots, (slot, 0, key), owner, want, tickets) {
        Ok(Answer::Queued(place)) => place,
        other => panic!("{other:?}"),
    }
}

/// Enters the graph of waits as one who is about to sleep does. Returns the number of cycles.
fn enter(table: &Table, owner: &Arc<Owner>, place: &Place) -> u64 {
    let locks = &table.locks;
    let blockers = |at: &Place| locks.shard(at.name.slot).lock().blockers(&at.name, at.ticket);
    locks.waits.enter(owner, place.clone(), &blockers)
}

fn stand_and_enter(table: &Table, owner: &Arc<Owner>, key: &str, mode: LockMode) -> Place {
    let place = stand(table, owner, key, mode);
    assert_eq!(enter(table, owner, &place), 0);
    place
}

#[test]
fn one_that_steps_before_others_and_fails_hides_no_cycle_from_them() {
    let table = Table::new();
    let [elder, crosses, reader, steps_before] = [1, 2, 3, 4].map(owner);
    for sharer in [&elder, &crosses, &steps_before] {
        table.take(sharer, "k", Shared).unwrap();
    }
    table.take(&reader, "j", Exclusive).unwrap();
    let of_elder = stand_and_enter(&table, &elder, "k", Exclusive);
    let of_reader = stand_and_enter(&table, &reader, "k", Shared);
    let of_last = stand(&table, &steps_before, "k", Exclusive);
    let of_crosses = stand_and_enter(&table, &crosses, "j", Exclusive);
    assert_eq!(enter(&table, &steps_before, &of_last), 2);
    assert!(!steps_before.waits(of_last.ticket) && !reader.waits(of_reader.ticket));
    assert!(elder.waits(of_elder.ticket) && crosses.waits(of_crosses.ticket));
}

#[test]
fn who_was_granted_a_key_and_has_not_left_costs_no_look_at_all_who_wait_for_it() {
    for waiters in [100, 400] {
        let table = Table::new();
        let holder = owner(1);
        table.take(&holder, "k", Exclusive).unwrap();
        for id in 0..waiters {
            stand_and_enter(&table, &owner(id + 2), "k", Shared);
        }
        table.release([&holder]);
        stand_and_enter(&table, &owner(waiters + 2), "k", Exclusive);
        for id in 1..waiters {
            stand_and_enter(&table, &owner(waiters + 2 + id), "k", Shared);
        }
        let last = owner(2 * waiters + 2);
        let place = stand(&table, &last, "k", Shared);
        waits::LOOKS.set(0);
        assert_eq!(enter(&table, &last, &place), 0);
        let looks = waits::LOOKS.get();
        assert!(looks <= waiters as usize * 20, "{looks} looks, {waiters} of each");
    }
}

#[test]
fn one_walk_finds_what_a_request_has_hidden_from_all_behind_it() {
    for waiters in [100, 400] {
        let table = Table::new();
        let [elder, younger] = [1, waiters + 2].map(owner);
        for sharer in [&elder, &younger] {
            table.take(sharer, "k", Shared).unwrap();
        }
        stand_and_enter(&table, &elder, "k", Exclusive);
        for id in 0..waiters {
            stand_and_enter(&table, &Owner::transaction(id + 2), "k", Exclusive);
        }
        let place = stand(&table, &younger, "k", Exclusive);
        waits::LOOKS.set(0);
        assert_eq!(enter(&table, &younger, &place), 1);
        let looks = waits::LOOKS.get();
        assert!(looks <= waiters as usize * 40, "{looks} looks of {waiters} waiters");
    }
}
