//! Trees that are deep before the tasks begin. Left to the tasks, a tree of four levels is rare,
//! and its life then nearly over.

use super::oracle::marker;
use super::values::{Draft, Write};
use super::workload::Stage;
use isobath::{Db, WriteOptions};

/// Levels below level 0, all of which have slices.
const LEVELS_MIN: usize = 4;

/// Keys of a commit, which makes a run of some ten kilobytes.
const COMMIT_LEN: usize = 40;

/// Commits at most: each key comes twice then.
const COMMITS_MAX: usize = 150;

/// Level ratios up to this lead to so many levels.
pub(crate) const RATIO_MAX: u32 = 2;

/// The writer that it writes as.
const WRITER: usize = 0;

impl Stage {
    /// Writes to the default family and waits for compactions until its tree has four levels. False
    /// if the outcome of a commit is unknown.
    pub(crate) fn preload(&self, rng: &mut fastrand::Rng) -> bool {
        for _ in 0..COMMITS_MAX {
            if self.is_over() || depth(&self.db) >= LEVELS_MIN {
                return true;
            }
            let number = self.history.borrow().next_number(WRITER);
            let mut writes = vec![(marker(WRITER), Some(Draft::text(number.to_string())))];
            writes.extend(self.draw_load(number, rng));
            if !self.write_once(WRITER, &writes, WriteOptions::default()) {
                return false;
            }
            let settled = self.db.flush().and_then(|()| self.db.wait_for_compactions(None));
            if let Err(error) = settled {
                self.judge_write("filling a tree", &error);
                return true;
            }
        }
        true
    }

    /// Keys all over the tree, ascending.
    fn draw_load(&self, number: u64, rng: &mut fastrand::Rng) -> Vec<Write> {
        let keys = self.keys.all();
        let step = keys.len().div_ceil(COMMIT_LEN);
        let keys = keys[rng.usize(..step)..].iter().step_by(step);
        let mut value = |nth| Some(Draft::of(WRITER, number, nth, rng.usize(100..400)));
        keys.enumerate().map(|(nth, key)| ((0, key.clone()), value(nth))).collect()
    }
}

/// How many levels below level 0 have slices, in the default family.
fn depth(db: &Db) -> usize {
    let families = db.metrics().families;
    let levels = families.into_iter().find(|family| family.id == 0).map(|family| family.levels);
    let below = levels.into_iter().flatten().skip(1);
    below.filter(|level| level.slices > 0).count()
}
