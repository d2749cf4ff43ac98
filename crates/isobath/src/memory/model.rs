//! Shuttle models: whatever threads charge and give back at once, what they hold together and the
//! sum never pass the ceiling, and in the end nothing is held.
//!
//! These bugs were planted and found: a sum that is added to first and looked at then; a sum that
//! stays raised when another thread has moved the class meanwhile.

use super::{Budget, Charge};
use crate::env::model::check;
use crate::env::sync::Mutex;
use crate::env::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::error::MemoryClass;
use std::sync::Arc;

const SCHEDULES: usize = 2_000;
const CEILING: u64 = 12;
const KEPT: u64 = 2;

/// A charge, and the memory that it is for.
struct Held(Charge, Arc<AtomicU64>);

impl Held {
    fn take(
        budget: &Arc<Budget>,
        class: MemoryClass,
        bytes: u64,
        live: &Arc<AtomicU64>,
    ) -> Option<Held> {
        let charge = budget.try_charge(class, bytes).ok()?;
        let all = live.fetch_add(bytes, SeqCst) + bytes;
        assert!(all <= CEILING && budget.held() <= CEILING, "{all} bytes are live, {budget:?}");
        Some(Held(charge, live.clone()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.bytes(), SeqCst);
    }
}

#[test]
fn charges_of_several_threads_never_pass_the_ceiling() {
    check(SCHEDULES, || {
        let budget = Budget::new(CEILING, &[(MemoryClass::Tables, KEPT)]);
        let live = Arc::new(AtomicU64::new(0));
        let block = || Held::take(&budget, MemoryClass::Blocks, 4, &live);
        let cached = Arc::new(Mutex::unranked(vec![block(), block()]));
        let cache = cached.clone();
        budget.on_lack(move |_, _| cache.lock().pop().is_some());
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let (budget, live) = (budget.clone(), live.clone());
                shuttle::thread::spawn(move || {
                    let mut got = 0;
                    for bytes in [6, 3] {
                        let job = Held::take(&budget, MemoryClass::Jobs, bytes + thread % 2, &live);
                        let tops = Held::take(&budget, MemoryClass::Tables, 1 + thread, &live);
                        got += u64::from(job.is_some());
                        drop((tops, job));
                    }
                    got
                })
            })
            .collect();
        let got: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        cached.lock().clear();
        assert!(got > 0, "who comes first gets what the cache has");
        assert_eq!((budget.held(), live.load(SeqCst)), (KEPT, 0));
        assert!(MemoryClass::ALL.into_iter().all(|class| budget.held_by(class) == 0));
    });
}
