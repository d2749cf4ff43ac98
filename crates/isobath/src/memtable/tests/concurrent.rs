//! Tests threads that insert and read at once.

use super::*;
use crate::env::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread;

const PER_THREAD: u64 = if cfg!(miri) { 60 } else { 20_000 };

fn mixed(i: u64) -> u64 {
    (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn nothing_is_lost_when_threads_insert_disjoint_keys() {
    for table in tables() {
        thread::scope(|scope| {
            for id in 0..4u64 {
                let table = &table;
                scope.spawn(move || {
                    for i in 0..PER_THREAD {
                        put(
                            table,
                            &mixed(id * PER_THREAD + i).to_be_bytes(),
                            id * PER_THREAD + i + 1,
                        );
                    }
                });
            }
        });
        let all = forward(&table);
        assert_eq!(all.len() as u64, 4 * PER_THREAD);
        assert!(all.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(table.len(), 4 * PER_THREAD);
        let seq = |i: u64| table.get(&mixed(i).to_be_bytes(), Lsn::MAX).map(|found| found.seq);
        assert!((0..4 * PER_THREAD).all(|i| seq(i) == Some(i + 1)));
    }
}

#[test]
fn all_versions_survive_when_threads_write_the_same_keys() {
    for table in tables() {
        let seqs = AtomicU64::new(1);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 0..PER_THREAD {
                        put(&table, &(mixed(i) % 97).to_be_bytes(), seqs.fetch_add(1, Relaxed));
                    }
                });
            }
        });
        let all = forward(&table);
        assert_eq!(all.len() as u64, 4 * PER_THREAD);
        assert!(all.is_sorted_by(|a, b| (&a.0, Reverse(a.1)) < (&b.0, Reverse(b.1))));
    }
}

/// One writer at a time owns a stride of keys and inserts them in a scattered but known order. If a
/// reader finds a key, it must also find all keys that this writer inserted before it.
#[test]
fn what_a_reader_sees_is_ordered_and_has_no_holes() {
    for table in tables() {
        let done = AtomicBool::new(false);
        let finished: [AtomicU64; 2] = Default::default();
        thread::scope(|scope| {
            let writers: Vec<_> = (0..2u64)
                .map(|id| {
                    let (table, finished) = (&table, &finished[id as usize]);
                    scope.spawn(move || {
                        for i in 0..PER_THREAD {
                            put(table, &mixed(i * 2 + id).to_be_bytes(), i * 2 + id + 1);
                            finished.store(i + 1, Release);
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !done.load(Acquire) {
                    check_forward_scan(&table, &finished);
                    check_backward_scan(&table, &finished);
                    check_gets(&table, &finished);
                }
            });
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            done.store(true, Release);
        });
    }
}

fn before(finished: &[AtomicU64; 2]) -> u64 {
    finished.iter().map(|count| count.load(Acquire)).sum()
}

/// Counts the entries that were complete before the scan began. The scan must return all of them,
/// in order.
fn check_forward_scan(table: &Arc<Memtable>, finished: &[AtomicU64; 2]) {
    let known: Vec<u64> = finished.iter().map(|count| count.load(Acquire)).collect();
    let all = forward(table);
    assert!(all.is_sorted_by(|a, b| a.0 < b.0));
    let met = all.iter().filter(|(_, seq)| (seq - 1) / 2 < known[((seq - 1) % 2) as usize]).count();
    assert_eq!(met as u64, known.iter().sum::<u64>());
}

fn check_backward_scan(table: &Arc<Memtable>, finished: &[AtomicU64; 2]) {
    let known = before(finished);
    let all = backward_keys(table);
    assert!(all.is_sorted_by(|a, b| a > b));
    assert!(all.len() as u64 >= known);
}

fn check_gets(table: &Memtable, finished: &[AtomicU64; 2]) {
    for (id, count) in finished.iter().enumerate() {
        let count = count.load(Acquire);
        for i in (0..count).step_by(1 + count as usize / 100) {
            let i = i * 2 + id as u64;
            assert_eq!(
                table.get(&mixed(i).to_be_bytes(), Lsn::MAX).map(|found| found.seq),
                Some(i + 1)
            );
        }
    }
}

#[test]
fn ascending_writers_share_the_right_edge() {
    let count = 4 * PER_THREAD;
    for table in tables() {
        let next = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let i = next.fetch_add(1, Relaxed);
                        if i >= count {
                            break;
                        }
                        put(&table, format!("user/{i:012}").as_bytes(), i + 1);
                    }
                });
            }
        });
        let expected: Vec<_> =
            (0..count).map(|i| (format!("user/{i:012}").into_bytes(), i + 1)).collect();
        assert_eq!(forward(&table), expected);
    }
}

#[test]
fn many_more_threads_than_processors_get_through() {
    let table = small_table();
    let per_thread = PER_THREAD / 16;
    thread::scope(|scope| {
        for id in 0..32u64 {
            let table = &table;
            scope.spawn(move || {
                for i in 0..per_thread {
                    put(table, &(mixed(i) % 50).to_be_bytes(), i * 32 + id + 1);
                }
            });
        }
    });
    assert_eq!(forward(&table).len() as u64, 32 * per_thread);
}

#[test]
fn tables_of_one_arena_do_not_mix() {
    let arena = arena();
    let tables: Vec<_> = (0..8).map(|_| Arc::new(Memtable::new(arena.clone()))).collect();
    thread::scope(|scope| {
        for (id, table) in tables.iter().enumerate() {
            scope.spawn(move || {
                (0..PER_THREAD / 8)
                    .for_each(|i| put(table, &mixed(i).to_be_bytes(), i * 8 + id as u64 + 1));
            });
        }
    });
    for (id, table) in tables.iter().enumerate() {
        let all = forward(table);
        assert_eq!(all.len() as u64, PER_THREAD / 8);
        assert!(all.iter().all(|(_, seq)| (seq - 1) % 8 == id as u64));
    }
}
