//! Compactions that a caller waits for: that they end, and leave room for others.

use super::*;
use crate::env::fixtures::Wall;
use crate::env::sync::atomic::{AtomicBool, AtomicU64};

#[test]
fn a_compaction_ends_although_values_go_on_ending() {
    let clock = Arc::new(Wall(AtomicU64::new(1_700_000_000_000)));
    let fs = MemoryFs::new();
    let env = Env { fs: Arc::new(fs.clone()), clock: clock.clone(), ..Env::system() };
    let bench = Bench::on(fs, |options| options.env(env));
    for n in 0..5000 {
        let ttl = Duration::from_secs(60 + n);
        bench.db.put_ttl(format!("key{n:06}"), vec![b'v'; 100], ttl).unwrap();
    }
    bench.db.flush().unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                clock.0.fetch_add(1000, Ordering::Relaxed);
                assert_eq!(bench.db.count("x"..).unwrap(), 0);
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        bench.compact();
        is_done.store(true, Ordering::Relaxed);
    });
    let jobs = bench.told(|event| matches!(event, Event::Compacted { .. }).then_some(())).len();
    assert!((1..=4).contains(&jobs), "{jobs}");
}

#[test]
fn a_compaction_has_no_more_jobs_under_way_than_there_are_threads() {
    let bench = Bench::new(|options| options);
    bench.flush(0, 4, 300_000);
    bench.compact();
    (1..4).for_each(|round| bench.flush(round, 40, 30_000));
    bench.wait();
    let levels = bench.levels();
    assert!(levels[5] > 1, "no level in the middle has work for several jobs: {levels:?}");
    let family = bench.family();
    let is_done = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut most = 0;
            while !is_done.load(Ordering::Relaxed) {
                most = most.max(family.compactions.state.lock().running);
                std::thread::yield_now();
            }
            most
        });
        bench.compact();
        is_done.store(true, Ordering::Relaxed);
        looks.join().unwrap()
    });
    assert!(most <= 2, "{most} jobs, of which one may have been planned after another's end");
}
