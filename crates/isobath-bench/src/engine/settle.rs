//! Waiting until an engine's background work is done: memory flushed, compactions finished.

use super::{Drained, Engine};
use crate::drive::Stop;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// How a settle phase ended.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Settled {
    pub(crate) seconds: f64,
    /// The work that was left when the time ran out; 0 when all was done.
    pub(crate) debt_left: u64,
}

/// Flushes, then waits until no debt is left and stays so. `report` gets the debt now and then.
/// Gives up at `limit` or when asked to stop, which the caller must show.
pub(crate) fn settle(
    engine: &dyn Engine,
    limit: Duration,
    stop: &Stop,
    report: impl Fn(u64),
) -> Result<Settled> {
    const POLL: Duration = Duration::from_millis(20);
    const QUIET_POLLS: u32 = 5;
    let start = Instant::now();
    let give_up = || stop.requested() || start.elapsed() >= limit;
    if stop.requested() {
        return Ok(Settled { seconds: 0.0, debt_left: engine.debt()? });
    }
    engine.flush()?;
    let mut go_on = || {
        report(engine.debt().unwrap_or(0));
        !give_up()
    };
    let (mut debt, mut paid) = (0, None);
    if engine.drain(&mut go_on)? != Drained::Done {
        let mut quiet = 0;
        debt = engine.debt()?;
        paid = Some(start.elapsed());
        while quiet < QUIET_POLLS && !give_up() {
            std::thread::sleep(POLL);
            debt = engine.debt()?;
            quiet = if debt == 0 { quiet + 1 } else { 0 };
            if debt > 0 {
                paid = Some(start.elapsed());
            }
            report(debt);
        }
    }
    // Making sure that no debt comes back isn't part of paying it.
    let seconds = paid.filter(|_| debt == 0).unwrap_or_else(|| start.elapsed()).as_secs_f64();
    Ok(Settled { seconds, debt_left: debt })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Session;
    use anyhow::bail;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// An engine whose debt stays at five. The flag says whether it can wait by itself.
    struct Debtor {
        waits: bool,
    }

    impl Engine for Debtor {
        fn session(&self) -> Result<Box<dyn Session>> {
            bail!("nothing is asked of it")
        }

        fn drain(&self, go_on: &mut dyn FnMut() -> bool) -> Result<Drained> {
            while self.waits && go_on() {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(if self.waits { Drained::Stopped } else { Drained::Unknown })
        }

        fn debt(&self) -> Result<u64> {
            Ok(5)
        }

        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_wait_without_end_ends_at_the_limit_and_says_what_is_left() {
        for waits in [false, true] {
            let limit = Duration::from_millis(80);
            let settled = settle(&Debtor { waits }, limit, &Stop::default(), |_| {}).unwrap();
            assert_eq!(settled.debt_left, 5);
            assert!(settled.seconds >= 0.08, "{}", settled.seconds);
        }
    }

    /// An engine whose debt is paid after so many looks at it.
    struct Payer {
        looks: AtomicU64,
    }

    impl Engine for Payer {
        fn session(&self) -> Result<Box<dyn Session>> {
            bail!("nothing is asked of it")
        }

        fn debt(&self) -> Result<u64> {
            let left = self.looks.load(Ordering::Relaxed);
            self.looks.store(left.saturating_sub(1), Ordering::Relaxed);
            Ok(left)
        }

        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_time_ends_when_the_debt_is_paid_and_not_when_that_is_sure() {
        let settled = |looks| {
            let payer = Payer { looks: AtomicU64::new(looks) };
            settle(&payer, Duration::from_secs(60), &Stop::default(), |_| {}).unwrap()
        };
        // A busy machine may delay one run, but not each.
        let is_prompt = |_| {
            let nothing = settled(0);
            assert_eq!(nothing.debt_left, 0);
            nothing.seconds < 0.02
        };
        assert!((0..300).any(is_prompt));
        let some = settled(5);
        assert!(some.debt_left == 0 && some.seconds >= 0.06, "{}", some.seconds);
    }

    #[test]
    fn a_wait_without_end_ends_when_told_to_stop() {
        for waits in [false, true] {
            let stop = Stop::default();
            let settled = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(50));
                    stop.request();
                });
                settle(&Debtor { waits }, Duration::from_secs(600), &stop, |_| {}).unwrap()
            });
            assert_eq!(settled.debt_left, 5);
            assert!(settled.seconds < 60.0, "{}", settled.seconds);
        }
    }
}
