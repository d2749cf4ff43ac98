//! Waiting until an engine has paid its debt: memory flushed, merges finished.

use super::Engine;
use crate::drive::Stop;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// How a settle phase ended.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Settled {
    pub(crate) seconds: f64,
    /// What was still owed when the time ran out; 0 when all was paid.
    pub(crate) debt_left: u64,
}

/// Flushes, then waits for the debt to reach zero and stay there. `report` hears the debt now and
/// then. Gives up at `limit`, which the caller must show.
pub(crate) fn settle(
    engine: &dyn Engine,
    limit: Duration,
    stop: &Stop,
    mut report: impl FnMut(u64),
) -> Result<Settled> {
    const POLL: Duration = Duration::from_millis(20);
    const QUIET_POLLS: u32 = 5;
    let start = Instant::now();
    engine.flush()?;
    if engine.drain()? {
        return Ok(Settled { seconds: start.elapsed().as_secs_f64(), debt_left: 0 });
    }
    let mut quiet = 0;
    let mut debt = engine.debt()?;
    while quiet < QUIET_POLLS && start.elapsed() < limit && !stop.requested() {
        std::thread::sleep(POLL);
        debt = engine.debt()?;
        quiet = if debt == 0 { quiet + 1 } else { 0 };
        report(debt);
    }
    Ok(Settled { seconds: start.elapsed().as_secs_f64(), debt_left: debt })
}
