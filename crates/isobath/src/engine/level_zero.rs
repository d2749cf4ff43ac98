//! How full level 0 of each family is, and how fast merges empty it: what writers are paced by.

use crate::format::FamilyId;
use std::collections::BTreeMap;

/// Runs in level 0 at which it counts as full, for a trigger of one merge: reads get slow beyond.
const FULL_TRIGGERS: f64 = 3.0;

/// The level zeros of all families.
#[derive(Debug, Default)]
pub(crate) struct LevelZero {
    /// Only families whose level 0 is more than a third full.
    fullness: BTreeMap<FamilyId, f64>,
    /// Bytes a second, smoothed.
    drain: f64,
    last_drained_ns: u64,
}

impl LevelZero {
    /// Notes the runs of a family.
    pub(crate) fn note(&mut self, family: FamilyId, runs: usize, trigger_runs: usize) {
        let fullness = runs as f64 / (trigger_runs as f64 * FULL_TRIGGERS);
        if fullness > 1.0 / FULL_TRIGGERS {
            self.fullness.insert(family, fullness.min(1.0));
        } else {
            self.fullness.remove(&family);
        }
    }

    /// Notes that `bytes` have left level 0 at `now_ns`, in a merge that took `took_ns`.
    pub(crate) fn note_drain(&mut self, bytes: u64, now_ns: u64, took_ns: u64) {
        // Between two merges of level 0 the levels below have had their turn too: that time counts, but time
        // without work doesn't, which the bound takes care of.
        let since = now_ns.saturating_sub(self.last_drained_ns).clamp(took_ns, took_ns * 4).max(1);
        let rate = bytes as f64 * 1e9 / since as f64;
        self.drain = if self.drain == 0.0 { rate } else { 0.7 * self.drain + 0.3 * rate };
        self.last_drained_ns = now_ns;
    }

    /// The fullest, and the rate at which it empties.
    pub(crate) fn pressure(&self) -> (f64, f64) {
        let fullest = self.fullness.values().fold(0.0, |a: f64, b| a.max(*b));
        (fullest, if self.drain == 0.0 { 1e9 } else { self.drain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_crowded_level_zeros_count() {
        let mut level_zero = LevelZero::default();
        level_zero.note(1, 4, 8);
        assert_eq!(level_zero.pressure().0, 0.0);
        level_zero.note(2, 12, 8);
        level_zero.note(3, 24, 8);
        assert_eq!(level_zero.pressure().0, 1.0);
        level_zero.note(3, 0, 8);
        assert_eq!(level_zero.pressure().0, 0.5);
    }
}
