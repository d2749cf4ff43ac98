//! Shuttle models: whatever threads charge and give back at once, the sum never passes the ceiling,
//! and in the end nothing is held.
//!
//! These bugs were planted and found: a sum that is added to first and looked at then; a refusal
//! that leaves its bytes in the sum.

use super::Budget;
use crate::env::model::check;
use crate::error::MemoryClass;
use std::sync::Arc;

const SCHEDULES: usize = 2_000;

fn sum(budget: &Budget) -> u64 {
    MemoryClass::ALL.into_iter().map(|class| budget.held_by(class)).sum()
}

#[test]
fn charges_of_several_threads_never_pass_the_ceiling() {
    check(SCHEDULES, || {
        let budget = Budget::new(12, &[(MemoryClass::Tables, 2)]);
        let cached = Arc::new(crate::env::sync::Mutex::unranked(vec![
            budget.try_charge(MemoryClass::Blocks, 4).unwrap(),
            budget.try_charge(MemoryClass::Blocks, 4).unwrap(),
        ]));
        let cache = cached.clone();
        budget.on_lack(move |_, _| cache.lock().pop().is_some());
        let threads: Vec<_> = (0..3)
            .map(|thread| {
                let budget = budget.clone();
                shuttle::thread::spawn(move || {
                    let mut got = 0;
                    for bytes in [6, 3] {
                        let charge = budget.try_charge(MemoryClass::Jobs, bytes + thread % 2);
                        let tops = budget.try_charge(MemoryClass::Tables, 1 + thread);
                        assert!(sum(&budget) <= budget.held() && budget.held() <= 12, "{budget:?}");
                        got += u64::from(charge.is_ok());
                        drop(tops);
                    }
                    got
                })
            })
            .collect();
        let got: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        cached.lock().clear();
        assert!(got > 0, "who comes first gets what the cache has");
        assert_eq!((budget.held(), sum(&budget)), (2, 0));
        assert!(MemoryClass::ALL.into_iter().all(|class| budget.held_by(class) == 0));
    });
}
