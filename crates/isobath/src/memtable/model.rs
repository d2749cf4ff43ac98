//! Models of the tree's protocol: exhaustive ones for the lock and for one leaf, and random
//! schedules for whole trees.
//!
//! Loom simulates the memory model and tries every execution, so its models are tiny. Shuttle
//! switches threads at every atomic access, but always in one total order; it can afford splits at
//! every level.
//!
//! Each of these planted bugs made a model fail: a fence of `lock.rs` removed (either one), or its
//! unlocking store relaxed; a descent that does not check the root again, or the parent again;
//! `Memtable::get` and `slot_or_right` without validation; `left_neighbour` that takes the first
//! leaf it finds; a batch's finger that does not check the bound.

use super::*;
use crate::env::model::check;
use std::sync::Arc;

fn table(first_leaf: usize) -> Arc<Memtable> {
    let arena = Arc::new(Arena::new(Arc::new(ChunkPool::new(64 << 10, 0, 0))));
    Arc::new(Memtable::with_fanout(arena, first_leaf, 4))
}

fn put(table: &Memtable, key: &[u8], seq: Lsn) {
    table.insert(key, seq, OpKind::Put, &[seq as u8]);
}

#[cfg(loom)]
mod exhaustive {
    use super::*;
    use crate::env::sync::atomic::AtomicU64;
    use crate::memtable::lock::VersionLock;
    use loom::thread;

    struct Pair {
        lock: VersionLock,
        words: [AtomicU64; 2],
    }

    fn pair() -> Arc<Pair> {
        Arc::new(Pair { lock: VersionLock::new(), words: [AtomicU64::new(0), AtomicU64::new(0)] })
    }

    /// Adds one to both words, and retries until it succeeds.
    fn bump(pair: &Pair) {
        loop {
            let stamp = pair.lock.read().unwrap();
            let seen = pair.words[0].load(Relaxed);
            if pair.lock.try_lock(stamp) {
                assert_eq!(pair.words[1].load(Relaxed), seen);
                pair.words.iter().for_each(|word| word.store(seen + 1, Relaxed));
                return pair.lock.unlock_changed(stamp);
            }
            thread::yield_now();
        }
    }

    // In all of these models the spawned thread reads, or runs after the main thread wrote. Loom
    // (0.7) forgets a thread's earlier loads of a word once another thread loads the same word. So
    // it would miss the races of a reader that it runs first.

    /// Fails if either fence of `lock.rs` is removed, or if the ordering of any access in it is
    /// weakened.
    #[test]
    fn a_validated_read_is_never_torn() {
        check(3, || {
            let shared = pair();
            let reader = thread::spawn({
                let shared = shared.clone();
                move || {
                    let Some(stamp) = shared.lock.read() else { return };
                    let seen = [1, 0].map(|i: usize| shared.words[i].load(Relaxed));
                    if shared.lock.validate(stamp) {
                        assert_eq!(seen[0], seen[1]);
                    }
                }
            });
            bump(&shared);
            bump(&shared);
            reader.join().unwrap();
        });
    }

    #[test]
    fn what_was_read_before_locking_still_holds_under_the_lock() {
        check(3, || {
            let shared = pair();
            let other = thread::spawn({
                let shared = shared.clone();
                move || bump(&shared)
            });
            bump(&shared);
            other.join().unwrap();
            assert_eq!(shared.words[1].load(Relaxed), 2);
        });
    }

    #[test]
    fn a_reader_finds_what_was_there_while_a_key_goes_in_before_it() {
        check(2, || {
            let table = table(2);
            put(&table, b"m", 1);
            let reader = thread::spawn({
                let table = table.clone();
                move || {
                    assert_eq!(table.get(b"m", Lsn::MAX).map(|found| found.seq), Some(1));
                    if let Some(found) = table.get(b"a", Lsn::MAX) {
                        assert_eq!((found.seq, found.value), (2, &[2][..]));
                    }
                }
            });
            put(&table, b"a", 2);
            reader.join().unwrap();
        });
    }

    #[test]
    fn versions_linked_at_once_are_all_there_in_order() {
        check(2, || {
            let table = table(2);
            put(&table, b"k", 5);
            let writer = thread::spawn({
                let table = table.clone();
                move || put(&table, b"k", 7)
            });
            put(&table, b"k", 6);
            writer.join().unwrap();
            let seqs = [8, 7, 6].map(|point| table.get(b"k", point).map(|found| found.seq));
            assert_eq!(seqs, [Some(7), Some(6), Some(5)]);
        });
    }

    /// One of the versions that are linked is a milestone, and the other comes behind it.
    #[test]
    fn an_old_reader_finds_its_version_while_milestones_are_linked() {
        check(2, || {
            let table = table(2);
            (1..=5).for_each(|seq| put(&table, b"k", seq));
            let reader = thread::spawn({
                let table = table.clone();
                move || {
                    let seqs = [2, 4].map(|point| table.get(b"k", point).map(|found| found.seq));
                    assert_eq!(seqs, [Some(1), Some(3)]);
                }
            });
            put(&table, b"k", 7);
            put(&table, b"k", 6);
            reader.join().unwrap();
            let all = (1..=8).map(|point| table.get(b"k", point).map_or(0, |found| found.seq));
            assert!(all.eq(0..=7));
        });
    }
}

#[cfg(shuttle)]
mod random {
    use super::*;
    use crate::cursor::Cursor;
    use shuttle::thread;
    use std::ops::Bound;

    const SCHEDULES: usize = 4000;

    fn keys_forward(table: &Arc<Memtable>) -> Vec<u8> {
        let mut cursor = MemtableCursor::new(table.clone());
        cursor.seek_first().unwrap();
        let mut keys = Vec::new();
        while let Some(entry) = cursor.entry() {
            keys.push(entry.key[0]);
            cursor.next().unwrap();
        }
        keys
    }

    fn keys_backward(table: &Arc<Memtable>) -> Vec<u8> {
        let mut cursor = MemtableCursor::new(table.clone());
        cursor.seek_last().unwrap();
        let mut keys = Vec::new();
        while let Some(entry) = cursor.entry() {
            keys.push(entry.key[0]);
            cursor.prev_key().unwrap();
        }
        keys
    }

    /// Three threads insert while a fourth scans in both directions. Checks the order, that nothing
    /// is repeated, and that nothing that was there before is missed.
    fn insert_and_scan(orders: [&'static [u8]; 3]) {
        let table = table(2);
        let before = [20, 60, 100, 140];
        before.iter().for_each(|&key| put(&table, &[key], u64::from(key)));
        let writers = orders.map(|order| {
            let table = table.clone();
            thread::spawn(move || {
                order.iter().for_each(|&key| put(&table, &[key], u64::from(key)));
            })
        });
        let forward = keys_forward(&table);
        let backward = keys_backward(&table);
        assert!(forward.is_sorted_by(|a, b| a < b), "{forward:?}");
        assert!(backward.is_sorted_by(|a, b| a > b), "{backward:?}");
        for key in before {
            assert!(forward.contains(&key) && backward.contains(&key));
            assert_eq!(table.get(&[key], Lsn::MAX).map(|found| found.seq), Some(u64::from(key)));
        }
        assert!(forward.iter().all(|key| backward.contains(key)), "what was met once stays");
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        let mut all: Vec<u8> = orders.concat();
        all.extend(before);
        all.sort_unstable();
        all.dedup();
        assert_eq!(keys_forward(&table), all);
        all.reverse();
        assert_eq!(keys_backward(&table), all);
    }

    #[test]
    fn scans_are_right_while_leaves_split_everywhere() {
        check(SCHEDULES, || {
            insert_and_scan([
                &[1, 30, 90, 150, 61, 62, 63],
                &[141, 142, 143, 144, 2, 3, 4],
                &[59, 58, 57, 101, 99, 98, 21],
            ]);
        });
    }

    /// The walk for changes finds one that was there before, though the leaf that holds it is split
    /// by keys which are older.
    #[test]
    fn a_change_is_found_while_its_leaf_splits() {
        check(SCHEDULES, || {
            let table = table(2);
            [20, 60, 100].iter().for_each(|&key| put(&table, &[key], 10));
            put(&table, &[61], 99);
            let writers = [&[1, 62, 63, 30], &[59, 58, 101, 60]].map(|order: &'static [u8; 4]| {
                let table = table.clone();
                thread::spawn(move || order.iter().for_each(|&key| put(&table, &[key], 20)))
            });
            let (lower, upper) = (Bound::Included(&[40][..]), Bound::Excluded(&[70][..]));
            let changes = Changes { lower, upper, from: 99, below: 100 };
            for _ in 0..2 {
                let found = table.walk().find_change(&changes, &mut usize::MAX.clone());
                assert_eq!(found, Ok(Some(&[61][..])));
            }
            let none = Changes { from: 100, below: 200, ..changes };
            assert_eq!(table.walk().find_change(&none, &mut usize::MAX.clone()), Ok(None));
            writers.into_iter().for_each(|writer| writer.join().unwrap());
        });
    }

    #[test]
    fn ascending_writers_share_the_right_edge() {
        check(SCHEDULES, || {
            insert_and_scan([&[150, 153, 156, 159, 162], &[151, 154, 157, 160], &[152, 155, 158]]);
        });
    }

    #[test]
    fn writers_of_one_key_and_of_its_neighbours_lose_nothing() {
        check(SCHEDULES, || {
            let table = table(2);
            let writers = [1u64, 2, 3].map(|id| {
                let table = table.clone();
                thread::spawn(move || {
                    for i in 0..4 {
                        put(&table, b"hot", i * 10 + id);
                        put(&table, &[b'h', (i * 10 + id) as u8], 100 + i * 10 + id);
                    }
                })
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            assert_eq!((table.len(), table.keys()), (24, 13));
            let (mut point, mut seqs) = (Lsn::MAX, 0);
            while let Some(found) = table.get(b"hot", point) {
                assert!(found.seq < point);
                (point, seqs) = (found.seq, seqs + 1);
            }
            assert_eq!(seqs, 12);
        });
    }

    /// A batch keeps its leaf between keys while the other thread splits that leaf, sometimes below
    /// the batch's last key. After that, the prefix of the leaf's keys says nothing about that key.
    #[test]
    fn a_sorted_batch_survives_splits_under_its_finger() {
        check(SCHEDULES, || {
            let table = table(2);
            let key = |i: u64| format!("aaa{:02}", i * 37 % 100);
            (0..5).for_each(|i| put(&table, key(i).as_bytes(), 1));
            let writer = thread::spawn({
                let table = table.clone();
                move || (5..8).for_each(|i| put(&table, key(i).as_bytes(), 1))
            });
            let batch: [&[u8]; 4] = [b"bbb00", b"bbb01", b"bbb02", b"bbb03"];
            table.insert_sorted(batch.iter().map(|key| (*key, 2, OpKind::Put, &b""[..])));
            assert!(batch.iter().all(|key| table.get(key, Lsn::MAX).is_some()));
            writer.join().unwrap();
            let mut cursor = MemtableCursor::new(table);
            cursor.seek_first().unwrap();
            let (mut before, mut count) = (Vec::new(), 0);
            while let Some(entry) = cursor.entry() {
                assert!(*before < *entry.key, "out of order");
                (before, count) = (entry.key.to_vec(), count + 1);
                cursor.next().unwrap();
            }
            assert_eq!(count, 12);
        });
    }
}
