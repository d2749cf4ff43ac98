//! Runs a closure in a transaction until the transaction commits, or fails with an error that is no
//! conflict.

use super::begin::Life;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::write::Commit;
use std::sync::Arc;
use std::time::Duration;

/// The longest pause before the second attempt. It doubles for each further attempt.
const PAUSE_NS_MIN: u64 = 10_000;
/// The longest pause.
const PAUSE_NS_MAX: u64 = 10_000_000;

/// How one run of a body ended.
pub(crate) enum Outcome<T, E> {
    Committed(T, Commit),
    /// Another attempt may succeed.
    Conflict(E, Next),
    Failed(E),
}

/// How the next attempt begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// After a pause.
    Pause,
    /// At once, with a lock on the key on which the last attempt met a conflict.
    Lock,
}

impl Life {
    /// Ends a run of the body: commits, or returns the reason why not. A conflict counts even if
    /// the body ignored it and returned something else.
    pub(crate) fn conclude<T, E: From<Error>>(
        &mut self,
        engine: &Arc<Engine>,
        ran: std::result::Result<T, E>,
    ) -> Outcome<T, E> {
        if let Some(fatal) = self.fatal().cloned() {
            return Outcome::Failed(ran.err().unwrap_or_else(|| fatal.into()));
        }
        if let Some(conflict) = self.doom().cloned() {
            return self.conflict(engine, &conflict, ran.err());
        }
        match ran {
            Err(error) => Outcome::Failed(error),
            Ok(value) => match self.commit(engine) {
                Ok(commit) => Outcome::Committed(value, commit),
                Err(error) if error.is_conflict() => self.conflict(engine, &error, None),
                Err(error) => Outcome::Failed(error.into()),
            },
        }
    }

    /// The end of a run that met this conflict. `told` is what the body made of it.
    fn conflict<T, E: From<Error>>(
        &mut self,
        engine: &Engine,
        met: &Error,
        told: Option<E>,
    ) -> Outcome<T, E> {
        // A coordinator decides of its key, sooner or much later. One wait for that is enough.
        let is_in_doubt = matches!(met.kind(), ErrorKind::LockTimeout { xid: Some(_), .. });
        let told = told.unwrap_or_else(|| met.clone().into());
        match is_in_doubt {
            true => Outcome::Failed(told),
            false => Outcome::Conflict(told, self.after_conflict(engine)),
        }
    }

    /// How to go on after the conflict that dooms the transaction. Before a pause it gives all
    /// locks back. If the victim of a deadlock kept what the others of the cycle wait for, its next
    /// attempt would only close the cycle again.
    fn after_conflict(&mut self, engine: &Engine) -> Next {
        debug_assert!(self.doom().is_some(), "only who met a conflict runs again");
        let is_of_key = matches!(self.doom().map(Error::kind), Some(ErrorKind::Conflict { .. }));
        if is_of_key && self.has_firsts() {
            return Next::Lock;
        }
        if self.enter(engine).is_ok() {
            self.locks.end(engine);
            self.leave(engine);
        }
        Next::Pause
    }
}

/// Calls `attempt`, at most `attempts` times, until it ends without a conflict. Before each call
/// but the first it pauses, longer each time, unless the next attempt begins with a lock.
pub(crate) fn rerun<T, E>(
    engine: &Engine,
    attempts: u32,
    mut attempt: impl FnMut() -> Outcome<T, E>,
) -> std::result::Result<(T, Commit), E> {
    let mut nth = 0;
    loop {
        nth += 1;
        match attempt() {
            Outcome::Committed(value, commit) => return Ok((value, commit)),
            Outcome::Failed(error) => return Err(error),
            Outcome::Conflict(error, _) if nth >= attempts => return Err(error),
            Outcome::Conflict(_, Next::Lock) => engine.gauges.escalations.add(1),
            Outcome::Conflict(_, Next::Pause) => {
                let env = &engine.options.env;
                env.threads.sleep(pause(nth, env.random.next_u64()));
            }
        }
    }
}

/// The pause after the `nth` conflict: between half of its greatest length and all of it.
fn pause(nth: u32, random: u64) -> Duration {
    let longest_ns = (PAUSE_NS_MIN << (nth - 1).min(16)).min(PAUSE_NS_MAX);
    Duration::from_nanos(longest_ns / 2 + random % (longest_ns / 2 + 1))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_ten_milliseconds_and_half_of_each_is_chance() {
        let pauses = |nth| [0, u64::MAX].map(|random| pause(nth, random));
        let micros = |from, to| [Duration::from_micros(from), Duration::from_micros(to)];
        let within = |nth, [from, to]: [Duration; 2]| {
            assert!(pauses(nth).iter().all(|pause| (from..=to).contains(pause)), "{nth}");
            assert_eq!(pauses(nth)[0], from);
        };
        within(1, micros(5, 10));
        within(2, micros(10, 20));
        within(10, micros(2560, 5120));
        within(11, micros(5000, 10_000));
        within(u32::MAX, micros(5000, 10_000));
    }
}
