//! Reads beside a clock that goes on while they ask it.

use super::*;

/// Goes on by a millisecond with each look at it, for a while.
struct Restless(AtomicU64);

const LOOKS_MAX: u64 = 100_000;

impl Clock for Restless {
    fn now_ns(&self) -> u64 {
        (STARTED_MS + self.0.load(Ordering::Relaxed)) * 1_000_000
    }

    fn unix_ms(&self) -> u64 {
        STARTED_MS + self.0.fetch_add(1, Ordering::Relaxed).min(LOOKS_MAX)
    }
}

#[test]
fn a_read_of_operands_ends_however_fast_time_goes_on() {
    let clock = Arc::new(Restless(AtomicU64::new(0)));
    let env = Env { fs: Arc::new(MemoryFs::new()), clock: clock.clone(), ..Env::system() };
    let db = Options::new().compaction_threads(1).env(env).open("/db").unwrap();
    db.put_ttl("far", "end", ms(1 << 40)).unwrap();
    let words = FamilyOptions::new().merge_operator("isobath.append");
    let words = db.family(("words", words)).unwrap();
    words.merge("k", "a").unwrap();
    for _ in 0..3 {
        let before = clock.0.load(Ordering::Relaxed);
        assert_eq!(words.get("k").unwrap().unwrap(), b"a");
        assert!(words.contains("k").unwrap());
        let looks = clock.0.load(Ordering::Relaxed) - before;
        assert!((1..1000).contains(&looks), "{looks}");
    }
}
