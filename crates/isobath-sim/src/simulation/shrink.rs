//! From a seed that fails to the least of it that still does: fewer lives, tasks, operations and troubles.
//!
//! Whatever is left out changes who runs when, so a smaller run is another run: one that fails is kept, whatever it
//! fails of, as long as a planted bug or none is the same.

use super::{Settings, Trim, simulate};

/// The least that fails.
pub(crate) struct Shrunk {
    pub(crate) settings: Settings,
    /// What it fails of.
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
        for trim in smaller(least.settings.trim) {
            if least.tries >= TRIES_MAX {
                return least;
            }
            least.tries += 1;
            let tried = Settings { trim, ..least.settings };
            if let Some(wrong) = fails(&tried) {
                (least.settings, least.wrong) = (tried, wrong);
                break;
            }
        }
        if least.settings == before {
            return least;
        }
    }
}

/// What is a step smaller, the greatest steps first.
fn smaller(trim: Trim) -> Vec<Trim> {
    let mut steps = Vec::new();
    let lives = trim.lives.min(32);
    let fewer = [lives / 2, lives * 3 / 4, lives - 1];
    let fewer = fewer.into_iter().filter(|fewer| (1..lives).contains(fewer));
    steps.extend(fewer.map(|lives| Trim { lives, ..trim }));
    if trim.troubles != 0 {
        steps.push(Trim { troubles: 0, ..trim });
    }
    let bits = (0..16).map(|bit| 1 << bit).filter(|bit| trim.troubles & bit != 0);
    steps.extend(bits.map(|bit| Trim { troubles: trim.troubles & 0xffff & !bit, ..trim }));
    if trim.janitor {
        steps.push(Trim { janitor: false, ..trim });
    }
    let tasks = |mask: u8| (0..3).map(|bit| 1 << bit).filter(move |bit| mask & bit != 0);
    steps.extend(tasks(trim.readers).map(|bit| Trim { readers: trim.readers & 7 & !bit, ..trim }));
    steps.extend(tasks(trim.writers).map(|bit| Trim { writers: trim.writers & 7 & !bit, ..trim }));
    let operations = trim.operations.min(512);
    let fewer = [operations / 4, operations / 2, operations * 3 / 4, operations.saturating_sub(1)];
    steps.extend(
        fewer
            .into_iter()
            .filter(|fewer| *fewer < operations)
            .map(|operations| Trim { operations, ..trim }),
    );
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_failure_needs_stays_and_all_else_goes() {
        let needs = |settings: &Settings| {
            let trim = settings.trim;
            let fails = trim.lives >= 2 && trim.writers & 2 != 0 && trim.operations >= 7;
            (fails && trim.troubles & 1 != 0).then(|| "lost".to_owned())
        };
        let shrunk = shrink_with(&Settings::default(), needs);
        let least =
            Trim { lives: 2, operations: 7, writers: 2, readers: 0, janitor: false, troubles: 1 };
        assert_eq!((shrunk.settings.trim, &*shrunk.wrong), (least, "lost"));
    }
}
