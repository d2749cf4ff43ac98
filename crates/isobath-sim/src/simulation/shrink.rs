//! Reduces a failing seed to the smallest run that still fails: fewer lives, tasks, operations and
//! troubles.
//!
//! Leaving a part out changes which task runs when, so a smaller run is another run. A smaller run
//! that fails is kept, whatever the failure is, as long as the planted bug, or none, is the same.

use super::{Settings, Trim, simulate};

/// The smallest settings that still fail.
pub(crate) struct Shrunk {
    pub(crate) settings: Settings,
    /// The failure.
    pub(crate) wrong: String,
    /// Runs it took.
    pub(crate) tries: u32,
}

const TRIES_MAX: u32 = 150;

/// Shrinks a seed that fails under `settings`.
pub(crate) fn shrink(seed: u64, settings: &Settings) -> Shrunk {
    shrink_with(settings, |settings| simulate(seed, settings).err())
}

fn shrink_with(settings: &Settings, fails: impl Fn(&Settings) -> Option<String>) -> Shrunk {
    let wrong = fails(settings).unwrap_or_else(|| "it does not fail again".to_owned());
    let mut least = Shrunk { settings: *settings, wrong, tries: 1 };
    loop {
        let before = least.settings;
        for dimension in DIMENSIONS {
            // After a step that succeeds, try another in the same direction.
            while let Some(trim) = step(&mut least, dimension, &fails) {
                least.settings.trim = trim;
            }
        }
        if least.settings == before || least.tries >= TRIES_MAX {
            return least;
        }
    }
}

/// The greatest step that still fails, if any does.
fn step(
    least: &mut Shrunk,
    dimension: fn(Trim) -> Vec<Trim>,
    fails: &impl Fn(&Settings) -> Option<String>,
) -> Option<Trim> {
    for trim in dimension(least.settings.trim) {
        if least.tries >= TRIES_MAX {
            return None;
        }
        least.tries += 1;
        let tried = Settings { trim, ..least.settings };
        if let Some(wrong) = fails(&tried) {
            least.wrong = wrong;
            return Some(trim);
        }
    }
    None
}

/// The parts that can be made smaller. Each returns its possible steps, the greatest first.
const DIMENSIONS: [fn(Trim) -> Vec<Trim>; 5] =
    [fewer_lives, fewer_troubles, no_janitor, fewer_tasks, fewer_operations];

fn fewer_lives(trim: Trim) -> Vec<Trim> {
    let lives = trim.lives.min(32);
    let fewer = [lives / 2, lives * 3 / 4, lives.saturating_sub(1)];
    let fewer = fewer.into_iter().filter(|fewer| (1..lives).contains(fewer));
    fewer.map(|lives| Trim { lives, ..trim }).collect()
}

fn fewer_troubles(trim: Trim) -> Vec<Trim> {
    let reach = (1 << trim.lives.min(31)) - 1;
    let troubles = trim.troubles & reach;
    let bits = (0..31).map(|bit| 1 << bit).filter(|bit| troubles & bit != 0);
    let none = (troubles != 0).then_some(0);
    let fewer = none.into_iter().chain(bits.map(|bit| troubles & !bit));
    fewer.map(|troubles| Trim { troubles, ..trim }).collect()
}

fn no_janitor(trim: Trim) -> Vec<Trim> {
    if trim.janitor { vec![Trim { janitor: false, ..trim }] } else { Vec::new() }
}

fn fewer_tasks(trim: Trim) -> Vec<Trim> {
    let bits = |mask: u8| (0..4).map(|bit| 1 << bit).filter(move |bit| mask & bit != 0);
    let (readers, writers) = (trim.readers & 15, trim.writers & 7);
    let without_readers = bits(readers).map(|bit| Trim { readers: readers & !bit, ..trim });
    let without_writers = bits(writers).map(|bit| Trim { writers: writers & !bit, ..trim });
    let transactors = trim.transactors;
    let there = (0..8).map(|bit| 1 << bit).filter(|bit| transactors & bit != 0);
    let without = there.map(|bit| Trim { transactors: transactors & !bit, ..trim });
    let none = (transactors != 0).then_some(Trim { transactors: 0, ..trim });
    none.into_iter().chain(without_readers).chain(without_writers).chain(without).collect()
}

fn fewer_operations(trim: Trim) -> Vec<Trim> {
    let operations = trim.operations.min(512);
    let fewer = [operations / 4, operations / 2, operations * 3 / 4, operations.saturating_sub(1)];
    let fewer = fewer.into_iter().filter(|fewer| *fewer < operations);
    fewer.map(|operations| Trim { operations, ..trim }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_failure_needs_stays_and_all_else_goes() {
        let needs = |settings: &Settings| {
            let trim = settings.trim;
            let fails = trim.lives >= 2 && trim.writers & 2 != 0 && trim.operations >= 7;
            let fails = fails && trim.transactors & 4 != 0;
            (fails && trim.troubles & 1 != 0).then(|| "lost".to_owned())
        };
        let shrunk = shrink_with(&Settings::default(), needs);
        let least = Trim {
            lives: 2,
            operations: 7,
            writers: 2,
            readers: 0,
            janitor: false,
            troubles: 1,
            transactors: 4,
        };
        assert_eq!((shrunk.settings.trim, &*shrunk.wrong), (least, "lost"));
    }
}
