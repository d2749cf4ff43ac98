//! The block cache: bounds, who stays, who is found by which hint, and what outlives what.

use super::*;
use crate::table::block_of_len;
use std::collections::BTreeSet;

fn key(file: u64, offset: u64) -> BlockKey {
    BlockKey { id: 0, file, offset }
}

fn insert(cache: &BlockCache, key: BlockKey, len: usize) -> BlockRef {
    cache.insert(None, key, block_of_len(len))
}

/// What blocks of this length are charged.
fn charge(len: usize) -> u64 {
    block_of_len(len).charge() as u64 + ENTRY_OVERHEAD
}

/// Looks whether a block is there, without counting as a use.
fn has(cache: &BlockCache, key: BlockKey) -> bool {
    let mixed = key.mixed();
    cache.0.shards[cache.0.shard_of(mixed)].lock().number_of(mixed).is_some()
}

#[test]
fn the_charges_never_exceed_the_capacity() {
    for capacity in [0, 5_000, 100_000, 1 << 20, 9_999_999] {
        let cache = BlockCache::new(capacity);
        for i in 0..6_000 {
            insert(&cache, key(i % 7, i * 4096), 100 + i as usize % 9000);
            assert!(cache.used_bytes() <= capacity, "{} of {capacity}", cache.used_bytes());
        }
        assert!(cache.used_bytes() >= capacity / 2 || capacity < 20_000);
    }
}

#[test]
fn charges_are_the_bytes_really_held() {
    let cache = BlockCache::new(1 << 20);
    let mut block = insert(&cache, key(1, 0), 3000);
    assert_eq!(cache.used_bytes(), block.charge() as u64 + ENTRY_OVERHEAD);
    drop(cache);
    let charge = block.charge();
    let bytes = std::mem::take(block.get_mut().unwrap()).into_bytes().capacity();
    assert_eq!(charge, bytes + size_of::<Block>() + 2 * size_of::<usize>());
    assert!(charge >= 3000);
}

#[test]
fn frames_below_a_ceiling_are_charged_and_without_more_one_of_those_there_are_is_used() {
    let budget = Budget::new(1 << 20, &[]);
    let frame = Frames::<BlockKey, Block>::FRAME_LEN as u64;
    // Two chunks, of 64 and 128 frames.
    let cache = BlockCache::below(1 << 20, &budget, 256 * frame);
    for i in 0..500 {
        insert(&cache, key(1, i * 4096), 100);
        assert!(has(&cache, key(1, i * 4096)), "{i}");
    }
    assert_eq!((cache.0.frames.made(), budget.held()), (192, 192 * frame));
    let held = insert(&cache, key(2, 0), 100);
    drop(cache);
    assert_eq!(budget.held(), 128 * frame, "a block keeps its chunk");
    drop(held);
    assert_eq!(budget.held(), 0);
    let _all = budget.try_charge(MemoryClass::Memtables, 1 << 20).unwrap();
    let cache = BlockCache::below(1 << 20, &budget, 256 * frame);
    assert_eq!(insert(&cache, key(1, 0), 100).bytes().len(), block_of_len(100).bytes().len());
    assert!(!has(&cache, key(1, 0)) && budget.refusals() == 0);
}

#[test]
fn databases_do_not_see_each_others_blocks() {
    let cache = BlockCache::new(1 << 20);
    let (a, b) = (cache.new_id(), cache.new_id());
    assert_ne!(a, b);
    let hints = Hints::new(2);
    cache.insert(hints.of(0), BlockKey { id: a, file: 1, offset: 0 }, block_of_len(100));
    assert!(cache.get(hints.of(0), BlockKey { id: b, file: 1, offset: 0 }).is_none());
    assert!(cache.clone().find(BlockKey { id: a, file: 1, offset: 0 }).is_some());
    assert_eq!((cache.hits(), cache.misses()), (1, 1));
}

#[test]
fn hashes_of_neighbouring_blocks_spread_over_all_bits() {
    let mut ones = [0u32; 64];
    for i in 0..4096 {
        let hash = key(3, 128 + i * 2048).mixed();
        for (bit, count) in ones.iter_mut().enumerate() {
            *count += (hash >> bit & 1) as u32;
        }
    }
    assert!(ones.iter().all(|count| (1800..2300).contains(count)), "{ones:?}");
}

#[test]
fn resident_bytes_are_released_on_drop() {
    let cache = BlockCache::new(0);
    let charge = cache.charge_resident(700);
    assert_eq!(cache.filter_index_bytes(), 700);
    drop(charge);
    assert_eq!(cache.filter_index_bytes(), 0);
}

#[test]
fn a_stale_hint_leads_to_no_other_block_and_is_replaced() {
    let cache = BlockCache::new(charge(4000) * 2);
    let hints = Hints::new(3);
    // Three blocks in turn through two places: each hint is stale most of the time.
    for round in 0..300u64 {
        let nth = (round * round % 3) as u32;
        let key = key(1, u64::from(nth) * 5000);
        let len = 3500 + nth as usize;
        let held = match cache.get(hints.of(nth), key) {
            Some(held) => held,
            None => cache.insert(hints.of(nth), key, block_of_len(len)),
        };
        assert_eq!(held.bytes().len(), block_of_len(len).bytes().len(), "round {round}");
    }
    // A second reader of the file has no hints yet, and gets one from the shard.
    let other = Hints::new(3);
    let nth = (0..3).find(|nth| has(&cache, key(1, nth * 5000))).unwrap() as u32;
    let key = key(1, u64::from(nth) * 5000);
    assert!(cache.get(other.of(nth), key).is_some());
    assert_ne!(other.of(nth).unwrap().load(Ordering::Relaxed), 0);
    assert!(Hints::default().of(0).is_none() && hints.of(u32::MAX).is_none());
}

#[test]
fn the_same_file_number_in_a_database_opened_again_is_another_file() {
    let cache = BlockCache::new(1 << 20);
    let hints = Hints::new(1);
    for (nth, len) in [(0, 500), (1, 900)] {
        let key = BlockKey { id: cache.new_id(), file: 7, offset: 128 };
        assert!(cache.get(hints.of(0), key).is_none(), "opening {nth}");
        cache.insert(hints.of(0), key, block_of_len(len));
        let found = cache.get(hints.of(0), key).unwrap();
        assert_eq!(found.bytes().len(), block_of_len(len).bytes().len());
    }
}

#[test]
fn a_block_of_any_size_is_kept_that_fits_at_all() {
    let cache = BlockCache::new(8 << 20);
    for i in 0..3000 {
        insert(&cache, key(1, i * 4096), 4000);
    }
    drop(insert(&cache, key(2, 0), 8_000_000));
    assert!(cache.find(key(2, 0)).is_some());
    assert!(cache.used_bytes() <= 8 << 20);
    let too_long = insert(&cache, key(3, 0), 9_000_000);
    assert!(too_long.bytes().len() > 8_999_000, "the reader has it nevertheless");
    assert!(cache.find(key(3, 0)).is_none() && has(&cache, key(2, 0)), "nothing left for it");
    for i in 0..3000 {
        insert(&cache, key(1, i * 4096), 4000);
    }
    assert!(!has(&cache, key(2, 0)), "it leaves like any other");
    assert!(cache.used_bytes() > (8 << 20) - 5000);
}

#[test]
fn a_lower_capacity_holds_at_once_and_a_higher_one_is_used() {
    let cache = BlockCache::new(4 << 20);
    let fill = |from: u64| (0..3000).for_each(|i| drop(insert(&cache, key(from, i * 4096), 4000)));
    fill(1);
    assert!(cache.used_bytes() > (4 << 20) - 5000);
    for capacity in [3_000_000, 2_999_999, 100_000, 4_000, 0] {
        cache.set_capacity(capacity);
        assert!(cache.used_bytes() <= capacity && cache.capacity() == capacity);
        assert!(cache.used_bytes() + 5000 > capacity, "it lets no more go than it has to");
    }
    fill(2);
    assert_eq!((cache.used_bytes(), has(&cache, key(2, 0))), (0, false));
    cache.set_capacity(6 << 20);
    fill(3);
    assert!(cache.used_bytes() > (6 << 20) - 5000 && cache.used_bytes() <= 6 << 20);
}

/// What a scan of a file of ten times the cache leaves of blocks that are used all the time.
#[test]
fn a_long_scan_does_not_push_out_what_is_used_again() {
    for capacity in [600_000, 8 << 20] {
        let cache = BlockCache::new(capacity);
        let hot = capacity / charge(4000) / 2;
        // From the second round on the scan's hints are all old, and lead to frames of others.
        let hints = Hints::new(hot as u32 * 20);
        let look = |file: u64, nth: u64| {
            let (hint, key) = (hints.of(nth as u32), key(file, nth * 4096));
            cache.get(hint, key).unwrap_or_else(|| cache.insert(hint, key, block_of_len(4000)))
        };
        for nth in (0..hot).chain(0..hot) {
            look(1, nth);
        }
        for _ in 0..3 {
            let before = cache.misses();
            for nth in 0..hot * 20 {
                look(2, nth);
            }
            assert_eq!(cache.misses() - before, hot * 20, "the scan finds nothing");
        }
        let left = (0..hot).filter(|nth| has(&cache, key(1, nth * 4096))).count() as u64;
        assert!(left * 100 >= hot * 97, "{left} of {hot} blocks are left");
        // A new hot set takes the place of the old one: what is asked for again is kept.
        for _ in 0..8 {
            (0..hot).for_each(|nth| drop(look(3, nth)));
        }
        let kept = (0..hot).filter(|nth| has(&cache, key(3, nth * 4096))).count() as u64;
        assert!(kept * 100 >= hot * 95, "{kept} of {hot} new ones are kept");
    }
}

/// Blocks that all lie in one shard, and a long one in another.
#[test]
fn a_long_block_has_room_made_for_it_wherever_the_others_lie() {
    let cache = BlockCache::new(8 << 20);
    let of = |shard: usize| {
        let cache = &cache;
        move |key: &BlockKey| cache.0.shard_of(key.mixed()) == shard
    };
    let mut first = (0..).map(|nth| key(1, nth * 4096)).filter(of(0));
    first.by_ref().take(300).for_each(|key| drop(insert(&cache, key, 4000)));
    let (longer, own) = (first.next().unwrap(), (0..).map(|nth| key(2, nth)).find(of(1)).unwrap());
    insert(&cache, longer, 6_000_000);
    insert(&cache, own, 2_000_000);
    assert!(has(&cache, own));
}

#[test]
fn long_blocks_take_a_little_of_all() {
    let cache = BlockCache::new(64 << 20);
    let hot = (64 << 20) / charge(4000);
    (0..hot).for_each(|nth| drop(insert(&cache, key(1, nth * 4096), 4000)));
    let is_there = |nth: &u64| cache.find(key(1, nth * 4096)).is_some();
    let before = (0..hot).filter(is_there).filter(is_there).count();
    for nth in 0..16 {
        insert(&cache, key(2, nth << 22), 4 << 20);
    }
    let bytes = cache.0.shards.iter().map(|shard| shard.lock().bytes());
    assert!(bytes.min().unwrap() > 256 << 10, "a shard is all but empty");
    let left = (0..hot).filter(is_there).count();
    assert!(left * 10 > before * 8, "{left} of {before} are left");
}

#[test]
fn a_lower_capacity_is_shared_by_all() {
    let cache = BlockCache::new(64 << 20);
    (0..20_000).for_each(|nth| drop(insert(&cache, key(1, nth * 4096), 4000)));
    cache.set_capacity(16 << 20);
    let bytes: Vec<u64> = cache.0.shards.iter().map(|shard| shard.lock().bytes()).collect();
    let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
    assert!(*least > 200 << 10 && *most < 2 << 20, "{least} to {most}");
}

#[test]
fn what_is_used_all_the_time_gives_way_in_the_end() {
    let cache = BlockCache::new(charge(1000) * 200);
    let read_all = || (0..200).for_each(|nth| drop(cache.find(key(1, nth))));
    (0..200).for_each(|nth| drop(insert(&cache, key(1, nth), 1000)));
    for nth in 0..300 {
        read_all();
        insert(&cache, key(2, nth), 1000);
        assert!(has(&cache, key(2, nth)));
    }
}

#[test]
fn everything_pinned_can_still_be_evicted() {
    let cache = BlockCache::new(charge(2000) * 50);
    let held: Vec<_> =
        (0..1000).map(|nth| insert(&cache, key(1, nth), 2000 + nth as usize % 9)).collect();
    assert!(cache.used_bytes() <= cache.capacity());
    let cached = (0..1000).filter(|nth| has(&cache, key(1, *nth))).count();
    assert!((45..=50).contains(&cached), "{cached}");
    cache.set_capacity(0);
    assert_eq!(cache.used_bytes(), 0);
    for (nth, block) in held.iter().enumerate() {
        assert_eq!(block.bytes().len(), block_of_len(2000 + nth % 9).bytes().len());
    }
    drop(cache);
    assert!(held.iter().all(|block| block.entry_count() == 1));
}

#[test]
fn two_who_read_the_same_block_at_once_share_one() {
    let cache = BlockCache::new(1 << 20);
    let first = insert(&cache, key(1, 0), 1000);
    let second = insert(&cache, key(1, 0), 1000);
    assert!(std::ptr::eq(&*first, &*second));
    assert_eq!(cache.used_bytes(), charge(1000));
}

/// A program drawn from a seed, as the numbers of the blocks that it leaves.
fn leave(seed: u64, capacity: u64) -> (BTreeSet<u64>, u64, u64) {
    let cache = BlockCache::new(capacity);
    let hints = Hints::new(900);
    let mut state = seed;
    for _ in 0..20_000 {
        state = fold(state ^ 0x1234_5678, 0x9e37_79b9_7f4a_7c15);
        let nth = (state >> 8) % 30 * ((state >> 16) % 30);
        let (hint, key) = (hints.of(nth as u32), key(1, nth));
        if state.is_multiple_of(997) {
            cache.set_capacity(capacity / (1 + state % 3));
        }
        if cache.get(hint, key).is_none() {
            cache.insert(hint, key, block_of_len(100 + (nth as usize * 37) % 7000));
        }
        assert!(cache.used_bytes() <= cache.capacity());
    }
    let left = (0..900).filter(|nth| has(&cache, key(1, *nth))).collect();
    (left, cache.hits(), cache.used_bytes())
}

#[test]
fn the_same_calls_leave_the_same_blocks() {
    for (seed, capacity) in [(1, 50_000), (2, 400_000), (3, 3 << 20)] {
        let first = leave(seed, capacity);
        assert!(!first.0.is_empty() && first.1 > 0);
        assert_eq!(first, leave(seed, capacity));
    }
}

/// Threads that look up, insert, keep and let go, while the capacity changes.
#[test]
fn the_bound_holds_with_several_threads_and_no_block_is_taken_for_another() {
    let cache = BlockCache::new(2 << 20);
    let rounds = 20_000;
    let len_of = |nth: u64| 100 + (nth as usize * 131) % 9000;
    let hints = Hints::new(2000);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (cache, hints) = (&cache, &hints);
            scope.spawn(move || {
                let mut state = thread + 1;
                let mut kept = std::collections::VecDeque::new();
                for round in 0..rounds {
                    state = fold(state ^ 0x1234_5678, 0x9e37_79b9_7f4a_7c15);
                    let nth = (state >> 8) % 45 * ((state >> 16) % 45);
                    let hint = hints.of(nth as u32).filter(|_| !state.is_multiple_of(5));
                    let found = cache.get(hint, key(1, nth)).unwrap_or_else(|| {
                        cache.insert(hint, key(1, nth), block_of_len(len_of(nth)))
                    });
                    kept.push_back((nth, found));
                    if kept.len() > 20 {
                        kept.pop_front();
                    }
                    let (nth, held) = &kept[kept.len() / 2];
                    assert!(held.bytes().len().abs_diff(len_of(*nth)) < 60);
                    if thread == 0 && round % 500 == 0 {
                        cache.set_capacity([2 << 20, 300_000, 0, 1 << 20][round / 500 % 4]);
                        assert!(cache.used_bytes() <= cache.capacity());
                    }
                    assert!(cache.used_bytes() <= 2 << 20);
                }
            });
        }
    });
    let charged: u64 = cache.0.shards.iter().map(|shard| shard.lock().bytes()).sum();
    assert_eq!(charged, cache.used_bytes());
    cache.set_capacity(0);
    assert_eq!(cache.used_bytes(), 0);
}
