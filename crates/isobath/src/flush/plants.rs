//! Bugs of flushes that a harness plants (`host/planted.rs`); without the feature `simulation`
//! nothing of this is left.

use crate::engine::{Engine, Epoch};
use crate::env::{Plant, planted};
use std::time::Duration;

/// [`Plant::LogRetiredEarly`]: gives the log up before the edit that does without it.
#[inline]
pub(super) fn retire_early(engine: &Engine, epoch: &Epoch) {
    if planted(Plant::LogRetiredEarly) {
        engine.log.retire(epoch.end());
        // A process that is killed at any moment dies between the two often enough to be seen.
        engine.options.env.threads.sleep(Duration::from_millis(50));
    }
}
