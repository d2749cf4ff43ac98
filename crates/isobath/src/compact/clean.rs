//! Looks for table files that are mostly dead, and has slices leave them.
//!
//! What is chosen is noted at each family that has slices in these files. The jobs are planned and
//! carried out as all other compactions of the family are, after those that are due.

use super::garbage::Holdings;
use super::plan::{CleaningLimits, choose_files};
use super::schedule::start_jobs;
use crate::engine::{Engine, Keyspace};
use std::sync::Arc;

/// A look is due after so many rounds of maintenance if a file was written meanwhile ...
const LOOK_ROUNDS: u32 = 5;
/// ... and after so many if none was: slices also go without.
const LOOK_ROUNDS_MAX: u32 = 60;

/// The most slices that one look chooses, and how many write buffers of bytes.
const SLICES_MAX: usize = 32;
const BUFFERS_MAX: u64 = 4;

/// One part in this many of the shortest output: what the syncs of a job are worth, for each slice.
const TOLL_SHARE: u64 = 16;

/// What maintenance remembers from round to round.
#[derive(Default)]
pub(crate) struct Cleaner {
    rounds: u32,
    next_file: u64,
    has_chosen: bool,
}

impl Cleaner {
    /// Called once a round: looks if that is due.
    pub(crate) fn round(&mut self, engine: &Arc<Engine>) {
        self.rounds += 1;
        let next_file = engine.files.next();
        let is_changed = next_file != self.next_file && self.rounds >= LOOK_ROUNDS;
        if is_changed || self.has_chosen || self.rounds >= LOOK_ROUNDS_MAX {
            let families = clean(engine);
            *self = Cleaner { rounds: 0, next_file, has_chosen: !families.is_empty() };
        }
    }
}

/// Chooses files, and starts jobs of the families that have slices in them. Returns these families.
pub(crate) fn clean(engine: &Arc<Engine>) -> Vec<Arc<Keyspace>> {
    let mut families = choose(engine);
    families.retain(|family| !family.compactions.state.lock().cleaned.is_empty());
    let holdings = Holdings::of(engine, &families);
    families.iter().for_each(|family| start_jobs(engine, family, false, &holdings));
    families
}

/// Notes at each family what it is to leave. Returns all families.
fn choose(engine: &Engine) -> Vec<Arc<Keyspace>> {
    let of = |family: Arc<Keyspace>| {
        let tree = family.view().tree.clone();
        (family, tree)
    };
    let trees: Vec<_> = engine.families.all().into_iter().map(of).collect();
    let tables = engine.tables_in_use(&trees);
    let limits = limits_of(engine);
    // Families are in ascending order.
    let family_of = |id| trees.binary_search_by_key(&id, |(family, _)| family.id);
    let is_stuck = |id, file| match family_of(id) {
        Ok(at) => {
            let state = trees[at].0.compactions.state.lock();
            state.is_suspended() || state.busy.is_damaged(file)
        }
        Err(_) => true,
    };
    let mut chosen = choose_files(&tables, &limits, is_stuck);
    let families = trees.into_iter().map(|(family, _)| {
        let files = chosen.remove(&family.id).unwrap_or_default();
        family.compactions.state.lock().cleaned = files;
        family
    });
    families.collect()
}

fn limits_of(engine: &Engine) -> CleaningLimits {
    let write_buffer = engine.options.write_buffer;
    CleaningLimits {
        dead_bytes: write_buffer.min(engine.options.sizes.dead_space_max),
        toll: (engine.options.sizes.table_len_min / TOLL_SHARE).max(1),
        slices_max: SLICES_MAX,
        bytes_max: write_buffer.saturating_mul(BUFFERS_MAX),
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
