//! Bugs that a harness plants in flushes (`host/planted.rs`). Without the feature `simulation` none
//! of this code is compiled in.

use crate::engine::{Engine, Epoch};
use crate::env::{Plant, planted};
use std::time::Duration;

/// With [`Plant::LogRetiredEarly`], retires the log before the edit that makes it unnecessary.
#[inline]
pub(super) fn retire_early(engine: &Engine, epoch: &Epoch) {
    if planted(Plant::LogRetiredEarly) {
        engine.log.retire(epoch.end());
        // The pause makes it likely that a kill at a random moment hits between the two steps.
        engine.options.env.threads.sleep(Duration::from_millis(50));
    }
}
