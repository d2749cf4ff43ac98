//! Locks on ranges, beside each other, keys and writes.

use super::*;

fn span(lower: &str, upper: &str) -> Span {
    let upper = (!upper.is_empty()).then(|| upper.as_bytes().into());
    Span { lower: lower.as_bytes().into(), upper }
}

impl Table {
    fn take_span(&self, owner: &Arc<Owner>, of: &Span, mode: LockMode) -> Result<(), LockRefusal> {
        self.locks.take_range(owner, (0, of), mode, NEVER)
    }
}

#[test]
fn spans_overlap_where_they_have_a_key_in_common() {
    let cases = [("b", "d", "d", "", false), ("b", "d", "c", "", true), ("", "", "z", "", true)];
    for (lower, upper, other_lower, other_upper, is) in cases {
        let table = Table::new();
        let [one, other] = [owner(1), owner(2)];
        table.take_span(&one, &span(lower, upper), Exclusive).unwrap();
        let told = table.locks.take_range(&other, (0, &span(other_lower, other_upper)), Shared, 0);
        assert_eq!(told.is_err(), is, "{lower}..{upper} and {other_lower}..{other_upper}");
        table.release([&one, &other]);
        assert!(table.is_free());
    }
    assert!(Span::of_key(b"k").contains(b"k") && !Span::of_key(b"k").contains(b"k\0"));
}

#[test]
fn a_shared_range_stands_beside_shared_ranges_and_keys_and_keeps_writes_out() {
    let table = Table::new();
    let [one, other] = [owner(1), owner(2)];
    let version = table.locks.ranges_version();
    assert!(!table.locks.has_ranges());
    table.take_span(&one, &span("b", "d"), Shared).unwrap();
    assert!(table.locks.has_ranges() && table.locks.ranges_version() != version);
    table.take_span(&other, &span("a", "c"), Shared).unwrap();
    table.take(&other, "b", Shared).unwrap();
    let against = |owner: &Owner, key: &str| {
        table.locks.is_in_range_against(Some(owner), (0, key.as_bytes()))
    };
    assert!(against(&one, "b") && against(&other, "b") && against(&one, "a"));
    assert!(!against(&one, "c") && against(&other, "c") && !against(&other, "d"));
    assert!(!table.locks.is_in_range_against(None, (1, b"b")), "another family");
    table.release([&one, &other]);
    assert!(table.is_free());
}

#[test]
fn a_range_waits_for_keys_in_it_and_later_keys_wait_for_the_range() {
    let table = Table::new();
    let [holder, ranger, later] = [owner(1), owner(2), owner(3)];
    table.take(&holder, "bb", Exclusive).unwrap();
    table.take(&holder, "z", Exclusive).unwrap();
    std::thread::scope(|scope| {
        let range = table.ask(scope, &ranger, |locks, owner| {
            locks.take_range(owner, (0, &span("b", "d")), Shared, NEVER)
        });
        let key =
            table.ask(scope, &later, |locks, owner| locks.take(owner, (0, b"c"), Exclusive, NEVER));
        assert!(!range.is_finished() && !key.is_finished());
        table.take(&holder, "bb", Shared).unwrap();
        table.locks.release(&holder, (0, b"bb"));
        range.join().unwrap().unwrap();
        assert!(!key.is_finished() && later.holds(0, b"c").is_none(), "it is given back meanwhile");
        table.release([&ranger]);
        key.join().unwrap().unwrap();
        assert_eq!(later.holds(0, b"c"), Some(Exclusive));
    });
    table.release([&holder, &later]);
    assert!(table.is_free());
}

#[test]
fn a_shared_key_in_a_shared_range_is_not_held_alone_when_the_wait_for_that_fails() {
    let table = Table::new();
    let [reader, ranger, other] = [owner(1), owner(2), owner(3)];
    table.take(&reader, "c", Shared).unwrap();
    table.take_span(&ranger, &span("b", "d"), Shared).unwrap();
    let upgraded = table.locks.take(&reader, (0, b"c"), Exclusive, 0);
    assert_eq!(holder_of(upgraded), Some(2));
    assert_eq!(reader.holds(0, b"c"), Some(Shared));
    table.take(&other, "c", Shared).unwrap();
    table.release([&other]);
    std::thread::scope(|scope| {
        let upgrade = table
            .ask(scope, &reader, |locks, owner| locks.take(owner, (0, b"c"), Exclusive, NEVER));
        assert_eq!(reader.holds(0, b"c"), Some(Shared), "it is kept shared meanwhile");
        table.take(&ranger, "c", Shared).unwrap();
        table.release([&ranger]);
        upgrade.join().unwrap().unwrap();
    });
    assert_eq!(reader.holds(0, b"c"), Some(Exclusive));
    table.release([&reader]);
    assert!(table.is_free());
}

/// What locks ranges one after the other has each one when the one before gives it back.
#[test]
fn a_locker_of_a_key_has_its_turn_among_those_who_lock_ranges_around_it() {
    const LONG: Duration = Duration::from_secs(120);
    let table = Table::new();
    let [one, two, three, keyed, bystander] = [owner(1), owner(2), owner(3), owner(4), owner(5)];
    let around = span("b", "d");
    // While any range is held a key is not got by luck, between a release and the next grant.
    table.take_span(&bystander, &span("x", "z"), Exclusive).unwrap();
    let asks = |locks: &Locks, owner: &Arc<Owner>| {
        locks.take_range(owner, (0, &span("b", "d")), Exclusive, NEVER)
    };
    table.take_span(&one, &around, Exclusive).unwrap();
    std::thread::scope(|scope| {
        let key = table.ask(scope, &keyed, |locks, owner| {
            locks.take(owner, (0, b"c"), Exclusive, locks.deadline_ns(LONG))
        });
        let second = table.ask(scope, &two, asks);
        table.release([&one]);
        second.join().unwrap().unwrap();
        while !keyed.is_waiting() || table.locks.is_held_against(None, (0, b"c"), Shared) {
            std::thread::yield_now();
        }
        let third = table.ask(scope, &three, asks);
        table.release([&two]);
        key.join().unwrap().unwrap();
        assert!(!third.is_finished() && keyed.holds(0, b"c") == Some(Exclusive));
        assert_eq!(table.locks.ranges_held_by(&keyed), 0, "the turn is over");
        table.release([&keyed]);
        third.join().unwrap().unwrap();
    });
    table.release([&three, &bystander]);
    assert!(table.is_free());
}

/// A turn ends with nothing held if the key is not free, or if it never comes.
#[test]
fn a_turn_among_ranges_is_given_back_whatever_comes_of_it() {
    let table = Table::new();
    let [ranger, holder, keyed] = [owner(1), owner(2), owner(3)];
    let take = || table.locks.take_in_turn(&keyed, (0, b"c"), Exclusive, 0, false);
    table.take_span(&ranger, &span("b", "d"), Shared).unwrap();
    assert_eq!(holder_of(take().map(drop)), Some(1));
    table.take(&holder, "c", Shared).unwrap();
    table.release([&ranger]);
    assert_eq!(take(), Ok(None), "it waits for no key");
    table.take_span(&keyed, &span("x", "z"), Exclusive).unwrap();
    assert_eq!(take(), Ok(None));
    assert!(table.locks.is_in_range_against(None, (0, b"y")), "what it held before stays");
    table.release([&holder, &keyed]);
    assert_eq!((take(), keyed.holds(0, b"c")), (Ok(Some(Got::New)), Some(Exclusive)));
    assert!(!table.locks.has_ranges());
    table.release([&keyed]);
    assert!(table.is_free());
}

/// Others hold the key whenever it has its turn, and the range whenever it has the key.
#[test]
fn who_has_had_a_turn_in_vain_keeps_the_next_one_until_the_key_is_free() {
    let table = Table::new();
    let [one, two, sharer, late, keyed] = [owner(1), owner(2), owner(3), owner(4), owner(5)];
    table.take_span(&one, &span("b", "d"), Shared).unwrap();
    table.take(&sharer, "c", Shared).unwrap();
    std::thread::scope(|scope| {
        let key = table.ask(scope, &keyed, |locks, owner| {
            locks.take_in_turn(owner, (0, b"c"), Exclusive, NEVER, true).map(drop)
        });
        table.release([&one]);
        while !table.locks.is_in_range_against(None, (0, b"c")) || !keyed.is_waiting() {
            std::thread::yield_now();
        }
        let refused = table.locks.take(&late, (0, b"c"), Shared, 0);
        assert!(refused.is_err(), "no other comes before it any more");
        assert!(table.locks.take_range(&two, (0, &span("b", "d")), Shared, 0).is_err());
        table.release([&sharer]);
        key.join().unwrap().unwrap();
    });
    assert!(!table.locks.has_ranges() && keyed.holds(0, b"c") == Some(Exclusive));
    table.release([&keyed, &late, &two]);
    assert!(table.is_free());
}

/// A put that waits in its turn for a key, and the owner of a range that does.
#[test]
fn who_holds_a_key_strengthens_it_though_others_wait_with_a_range_around_it() {
    for is_in_turn in [true, false] {
        let table = Table::new();
        let [sharer, ranger] = [owner(1), owner(2)];
        table.take(&sharer, "c", Shared).unwrap();
        std::thread::scope(|scope| {
            let waits = table.ask(scope, &ranger, move |locks, owner| match is_in_turn {
                true => locks.take_in_turn(owner, (0, b"c"), Exclusive, NEVER, true).map(drop),
                false => locks.take_range(owner, (0, &span("b", "d")), Exclusive, NEVER),
            });
            assert!(table.locks.is_in_range_against(Some(&sharer), (0, b"c")));
            table.take(&sharer, "c", Exclusive).unwrap();
            assert!(!waits.is_finished() && sharer.holds(0, b"c") == Some(Exclusive));
            table.release([&sharer]);
            waits.join().unwrap().unwrap();
        });
        table.release([&ranger]);
        assert!(table.is_free());
    }
}

/// It waits in its turn for the key, behind a write that waits for all who share the key.
#[test]
fn who_strengthens_a_key_does_not_wait_for_one_who_only_has_its_turn_to_share_it() {
    let table = Table::new();
    let [sharer, writer, keyed] = [owner(1), owner(2), owner(3)];
    table.take(&sharer, "c", Shared).unwrap();
    std::thread::scope(|scope| {
        let passes =
            table.ask(scope, &writer, |locks, owner| locks.await_key(owner, (0, b"c"), NEVER));
        let turn = table.ask(scope, &keyed, |locks, owner| {
            locks.take_in_turn(owner, (0, b"c"), Shared, NEVER, true).map(drop)
        });
        assert!(table.locks.is_in_range_against(Some(&sharer), (0, b"c")));
        table.take(&sharer, "c", Exclusive).unwrap();
        assert!(!turn.is_finished() && sharer.holds(0, b"c") == Some(Exclusive));
        table.release([&sharer]);
        passes.join().unwrap().unwrap();
        turn.join().unwrap().unwrap();
    });
    // A range that it has locked is another thing, though the turn was in it.
    table.take_span(&keyed, &span("b", "d"), Shared).unwrap();
    table.take(&sharer, "cc", Shared).unwrap();
    assert!(table.locks.take(&sharer, (0, b"cc"), Exclusive, 0).is_err());
    table.release([&sharer, &keyed]);
    assert!(table.is_free());
}

/// The owner waits for keys that others share when it asks for the range alone, not when it shares.
#[test]
fn who_strengthens_a_key_waits_for_a_range_that_is_shared_within_an_exclusive_one() {
    let table = Table::new();
    let [sharer, ranger] = [owner(1), owner(2)];
    table.take(&sharer, "c", Shared).unwrap();
    let refused = table.locks.take_range(&ranger, (0, &span("b", "d")), Exclusive, 0);
    assert_eq!(holder_of(refused), Some(1), "and the range is held");
    let version = table.locks.ranges_version();
    table.take_span(&ranger, &span("c", "cc"), Shared).unwrap();
    assert_ne!(table.locks.ranges_version(), version, "who has looked already looks again");
    assert!(table.locks.take(&sharer, (0, b"c"), Exclusive, 0).is_err());
    let version = table.locks.ranges_version();
    table.take_span(&ranger, &span("c", "cc"), Shared).unwrap();
    assert_eq!(table.locks.ranges_version(), version, "that is known");
    table.release([&ranger]);
    table.take(&sharer, "c", Exclusive).unwrap();
    table.release([&sharer]);
    assert!(table.is_free());
}

/// Where the range is shared, its owner does not wait for those who share a key in it.
#[test]
fn who_strengthens_a_key_waits_for_a_shared_range_around_it() {
    let table = Table::new();
    let [sharer, ranger] = [owner(1), owner(2)];
    table.take(&sharer, "c", Shared).unwrap();
    table.take_span(&ranger, &span("b", "d"), Shared).unwrap();
    assert!(table.locks.take(&sharer, (0, b"c"), Exclusive, 0).is_err());
    assert_eq!(sharer.holds(0, b"c"), Some(Shared));
    table.release([&ranger]);
    table.take(&sharer, "c", Exclusive).unwrap();
    table.release([&sharer]);
    assert!(table.is_free());
}

#[test]
fn a_writer_waits_for_ranges_that_others_hold_and_locks_none() {
    let table = Table::new();
    let [one, other] = [owner(1), owner(2)];
    let writer = Owner::write(3);
    let passes = |owner: &Arc<Owner>| table.locks.await_ranges(owner, (0, b"k"), Exclusive, 0);
    passes(&writer).unwrap();
    for holder in [&one, &other] {
        table.take_span(holder, &span("", ""), Shared).unwrap();
    }
    std::thread::scope(|scope| {
        let waits = table.ask(scope, &writer, |locks, owner| {
            locks.await_ranges(owner, (0, b"k"), Exclusive, NEVER)
        });
        table.release([&one, &other]);
        waits.join().unwrap().unwrap();
    });
    table.take_span(&one, &span("", ""), Exclusive).unwrap();
    passes(&one).unwrap();
    assert_eq!(holder_of(passes(&other)), Some(1));
    table.release([&one]);
    assert!(table.is_free());
}

#[test]
fn a_cycle_over_a_key_and_a_range_is_a_deadlock() {
    let table = Table::new();
    let [one, other] = [owner(1), owner(2)];
    table.take_span(&one, &span("b", "d"), Shared).unwrap();
    table.take(&other, "x", Exclusive).unwrap();
    std::thread::scope(|scope| {
        let first =
            table.ask(scope, &one, |locks, owner| locks.take(owner, (0, b"x"), Shared, NEVER));
        let second =
            table.ask(scope, &other, |locks, owner| locks.take(owner, (0, b"c"), Exclusive, NEVER));
        let told = cycle_of(second.join().unwrap());
        assert_eq!(told, [(Some(2), "c".to_owned()), (Some(1), "x".to_owned())]);
        table.release([&other]);
        first.join().unwrap().unwrap();
    });
    table.release([&one]);
    assert!(table.is_free());
}

#[test]
fn ranges_are_granted_in_the_order_of_arrival_and_one_that_gives_up_lets_others_go_on() {
    let table = Table::new();
    let [one, other, third] = [owner(1), owner(2), owner(3)];
    let all = span("", "");
    table.take_span(&one, &all, Shared).unwrap();
    std::thread::scope(|scope| {
        let of = |mode| {
            move |locks: &Locks, owner: &Arc<Owner>| {
                locks.take_range(owner, (0, &span("", "")), mode, NEVER)
            }
        };
        let exclusive = table.ask(scope, &other, of(Exclusive));
        let behind = table.ask(scope, &third, of(Shared));
        assert!(!behind.is_finished());
        other.abort();
        assert_eq!(exclusive.join().unwrap(), Err(LockRefusal::Aborted));
        behind.join().unwrap().unwrap();
    });
    table.release([&one, &third]);
    assert!(table.is_free());
}

/// Asks for a range in a thread of its own.
fn asks<'s, 'e>(
    table: &'e Table,
    scope: &'s Scope<'s, 'e>,
    owner: &Arc<Owner>,
    (of, mode): (Span, LockMode),
) -> ScopedJoinHandle<'s, Result<(), LockRefusal>> {
    table.ask(scope, owner, move |locks, owner| locks.take_range(owner, (0, &of), mode, NEVER))
}

/// In both orders of age, because the youngest of a deadlock fails.
const AGES: [[u64; 3]; 2] = [[1, 2, 3], [3, 2, 1]];

#[test]
fn who_holds_a_range_gets_more_of_it_before_those_who_wait_for_it() {
    for ages in AGES {
        let table = Table::new();
        let [one, other, third] = ages.map(owner);
        table.take_span(&one, &span("b", "d"), Exclusive).unwrap();
        std::thread::scope(|scope| {
            let waits = asks(&table, scope, &other, (span("c", "f"), Exclusive));
            // It waits for the other, and so for the first.
            let behind = asks(&table, scope, &third, (span("e", "h"), Shared));
            table.take_span(&one, &span("d", "e"), Exclusive).unwrap();
            table.take_span(&one, &span("d", "g"), Shared).unwrap();
            assert!(!waits.is_finished() && !behind.is_finished());
            table.release([&one]);
            waits.join().unwrap().unwrap();
            assert!(!behind.is_finished());
            table.release([&other]);
            behind.join().unwrap().unwrap();
        });
        table.release([&third]);
        assert!(table.is_free());
    }
}

#[test]
fn who_shares_a_range_and_wants_it_alone_goes_before_those_who_wait_for_it() {
    for ages in AGES {
        let table = Table::new();
        let [one, other, third] = ages.map(owner);
        table.take_span(&one, &span("b", "d"), Shared).unwrap();
        std::thread::scope(|scope| {
            let waits = asks(&table, scope, &third, (span("a", "z"), Exclusive));
            table.take_span(&one, &span("b", "d"), Exclusive).unwrap();
            table.release([&one]);
            waits.join().unwrap().unwrap();
            table.release([&third]);
        });
        // It waits for another who shares the range, and not for who came in between.
        for owner in [&one, &other] {
            table.take_span(owner, &span("b", "d"), Shared).unwrap();
        }
        std::thread::scope(|scope| {
            let waits = asks(&table, scope, &third, (span("a", "z"), Exclusive));
            let alone = asks(&table, scope, &one, (span("b", "d"), Exclusive));
            assert!(!waits.is_finished() && !alone.is_finished());
            table.release([&other]);
            alone.join().unwrap().unwrap();
            assert!(!waits.is_finished());
            table.release([&one]);
            waits.join().unwrap().unwrap();
        });
        table.release([&third]);
        assert!(table.is_free());
    }
}

#[test]
fn two_who_share_a_range_and_both_want_it_alone_are_a_deadlock() {
    let table = Table::new();
    let [one, other, third] = [owner(1), owner(2), owner(3)];
    let all = span("b", "d");
    for owner in [&one, &other] {
        table.take_span(owner, &all, Shared).unwrap();
    }
    std::thread::scope(|scope| {
        let waits = asks(&table, scope, &third, (span("a", "z"), Exclusive));
        let first = asks(&table, scope, &one, (all.clone(), Exclusive));
        let second = asks(&table, scope, &other, (all.clone(), Exclusive));
        let told = cycle_of(second.join().unwrap());
        assert_eq!(told, [(Some(2), "b".to_owned()), (Some(1), "b".to_owned())]);
        assert!(!first.is_finished());
        table.release([&other]);
        first.join().unwrap().unwrap();
        table.release([&one]);
        waits.join().unwrap().unwrap();
    });
    table.release([&third]);
    assert!(table.is_free());
}

#[test]
fn who_holds_a_range_waits_behind_those_who_do_not_wait_for_it() {
    let table = Table::new();
    let [one, holder, other] = [owner(1), owner(2), owner(3)];
    table.take_span(&one, &span("b", "d"), Exclusive).unwrap();
    table.take_span(&holder, &span("x", "z"), Exclusive).unwrap();
    std::thread::scope(|scope| {
        let earlier = asks(&table, scope, &other, (span("e", "z"), Exclusive));
        let more = asks(&table, scope, &one, (span("d", "f"), Exclusive));
        assert!(!earlier.is_finished() && !more.is_finished());
        table.release([&holder]);
        earlier.join().unwrap().unwrap();
        assert!(!more.is_finished());
        table.release([&other]);
        more.join().unwrap().unwrap();
    });
    table.release([&one]);
    assert!(table.is_free());
}

#[test]
fn threads_never_write_into_a_range_that_another_has_locked() {
    let table = Table::new();
    let values: [AtomicU64; 4] = Default::default();
    let keys = ["a", "b", "c", "d"];
    let ids = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (table, values, ids) = (&table, &values, &ids);
            scope.spawn(move || {
                let mut draw = crate::env::fixtures::Draw::new(seed);
                for _ in 0..if cfg!(miri) { 5 } else { 300 } {
                    let owner = Owner::transaction(ids.fetch_add(1, Ordering::Relaxed));
                    let at = draw.index(4);
                    let is_ranger = draw.below(3) == 0;
                    let told = match is_ranger {
                        true => {
                            table.take_span(&owner, &span("b", "d"), draw.one(&[Shared, Exclusive]))
                        }
                        false => table.take(&owner, keys[at], Exclusive),
                    };
                    if told.is_ok() && is_ranger {
                        let sum = || [1, 2].map(|at: usize| values[at].load(Ordering::Relaxed));
                        let before = sum();
                        std::thread::yield_now();
                        assert_eq!(sum(), before);
                    } else if told.is_ok() {
                        let seen = values[at].load(Ordering::Relaxed);
                        std::thread::yield_now();
                        values[at].store(seen + 1, Ordering::Relaxed);
                        assert_eq!(values[at].load(Ordering::Relaxed), seen + 1);
                    }
                    table.release([&owner]);
                }
            });
        }
    });
    assert!(table.is_free());
}

/// Range `n` of many that lie apart, each of which holds the key `n`.
fn nth(n: u32) -> Span {
    let upper = [&n.to_be_bytes()[..], b"x"].concat();
    Span { lower: n.to_be_bytes()[..].into(), upper: Some(upper.into()) }
}

#[test]
fn what_a_range_or_a_write_costs_does_not_grow_with_the_ranges_that_are_held() {
    const COUNT: u32 = 2000;
    let table = Table::new();
    let (one, other) = (owner(1), owner(2));
    let looks = || table.locks.ranges.looks();
    for n in 0..COUNT {
        table.take_span(&one, &nth(n * 7 % COUNT), Exclusive).unwrap();
    }
    assert!(looks() <= 4 * COUNT as usize, "{} looks for {COUNT} ranges", looks());
    let before = looks();
    for n in 0..COUNT {
        let key = (0, &n.to_be_bytes()[..]);
        assert!(table.locks.is_in_range_against(Some(&other), key));
        assert!(!table.locks.is_in_range_against(Some(&one), key));
        assert!(!table.locks.is_in_range_against(None, (0, &[key.1, b"y"].concat())));
        assert!(!table.locks.is_range_against(Some(&one), (0, &nth(n))));
    }
    assert!(looks() - before <= 8 * COUNT as usize, "{} looks", looks() - before);
    assert_eq!(table.locks.ranges_held_by(&one), COUNT as usize);
    table.release([&one]);
    assert!(table.is_free());
}

#[test]
fn a_commit_of_many_range_deletes_looks_at_each_locked_key_once() {
    let table = Table::new();
    let holder = owner(1);
    let mut deleted = OwnRanges::default();
    (0..1000).for_each(|n| deleted.add(&nth(n), Exclusive));
    for n in 0..50u32 {
        let beside = [&n.to_be_bytes()[..], b"y"].concat();
        table.locks.take(&holder, (0, &beside), Exclusive, NEVER).unwrap();
    }
    let before = deleted.looks();
    let spans = BTreeMap::from([(0, deleted)]);
    assert_eq!(table.locks.key_in_any(&spans, None), None);
    assert_eq!(spans[&0].looks() - before, 2 * 50, "in either mode");
    let key = 7u32.to_be_bytes();
    table.locks.take(&holder, (0, &key), Shared, NEVER).unwrap();
    table.locks.take(&holder, (1, &3u32.to_be_bytes()), Shared, NEVER).unwrap();
    assert_eq!(table.locks.key_in_any(&spans, None), Some((0, key[..].into())));
    assert_eq!(table.locks.key_in_any(&spans, Some(&holder)), None);
    table.release([&holder]);
    assert!(table.is_free());
}

#[test]
fn a_range_looks_at_the_locked_keys_in_it_alone() {
    const COUNT: u32 = 300;
    let table = Table::new();
    let [one, other] = [owner(1), owner(2)];
    let take = |owner, n: u32, mode| table.locks.take(owner, (0, &n.to_be_bytes()), mode, NEVER);
    let looks = || table.locks.shards.iter().map(|shard| shard.lock().looks.get()).sum::<usize>();
    for n in 0..COUNT {
        take(&one, n * 7 % COUNT, Exclusive).unwrap();
        table.take_span(&one, &nth(n), Exclusive).unwrap();
    }
    assert!(looks() <= COUNT as usize, "{} looks", looks());
    table.locks.release(&one, (0, &9u32.to_be_bytes()));
    take(&other, COUNT, Shared).unwrap();
    take(&other, COUNT + 1, Exclusive).unwrap();
    let held = |n: u32, mode| table.locks.key_against((0, &nth(n)), Some(&one), mode).is_some();
    let is_held: [bool; 3] = [9, COUNT, COUNT + 1].map(|n| held(n, Shared));
    assert_eq!(is_held, [false, false, true]);
    assert!(held(COUNT, Exclusive) && !held(COUNT + 2, Exclusive));
    assert!(table.locks.key_against((0, &span("", "")), Some(&other), Shared).is_some());
    assert!(table.locks.key_against((1, &span("", "")), Some(&other), Shared).is_none());
    table.release([&one, &other]);
    assert!(table.is_free());
}
