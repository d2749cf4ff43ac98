//! How often to repeat: a count, or as often as a time allows.

use anyhow::{Result, bail};
use std::time::{Duration, Instant};

/// The most repeats of a run that is given a time but no count.
const REPEATS_MAX: u64 = 1000;

/// Count and minutes, those of the flags over those of the file.
pub(super) fn repeats(
    flags: (Option<u64>, Option<f64>),
    file: (u64, Option<f64>),
) -> (u64, Option<f64>) {
    let minutes = flags.1.or(file.1);
    let count = match flags.0 {
        Some(count) => count,
        None if flags.1.is_some() => REPEATS_MAX,
        None => file.0,
    };
    (count, minutes)
}

pub(super) fn check_minutes(minutes: Option<f64>) -> Result<()> {
    match minutes {
        Some(minutes) if !(0.0..1e5).contains(&minutes) => bail!("minutes go from 0 to 1e5"),
        _ => Ok(()),
    }
}

/// Whether another repeat, as long as those before, still fits.
pub(super) struct Budget {
    start: Instant,
    whole: Option<Duration>,
}

impl Budget {
    pub(super) fn new(minutes: Option<f64>) -> Budget {
        let whole = minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
        Budget { start: Instant::now(), whole }
    }

    /// `done` repeats are over.
    pub(super) fn allows_another(&self, done: u64) -> bool {
        fits(self.start.elapsed(), self.whole, done)
    }
}

fn fits(elapsed: Duration, whole: Option<Duration>, done: u64) -> bool {
    match whole {
        Some(whole) if done > 0 => {
            elapsed.as_secs_f64() * (1.0 + 1.0 / done as f64) <= whole.as_secs_f64()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_go_on_while_one_more_fits() {
        let minute = Duration::from_secs(60);
        assert!(fits(minute * 9, Some(minute), 0), "the first is always whole");
        assert!(fits(minute * 4, Some(minute * 6), 2));
        assert!(!fits(minute * 4, Some(minute * 5), 2));
        assert!(fits(minute * 400, None, 7));
    }

    #[test]
    fn flags_win_over_the_file_and_a_time_alone_repeats_freely() {
        assert_eq!(repeats((None, None), (3, Some(1.0))), (3, Some(1.0)));
        assert_eq!(repeats((Some(2), None), (3, None)), (2, None));
        assert_eq!(repeats((None, Some(5.0)), (3, None)), (REPEATS_MAX, Some(5.0)));
    }
}
