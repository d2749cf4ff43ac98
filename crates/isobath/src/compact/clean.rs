//! Looks for table files that are mostly dead, and has slices leave them.
//!
//! What is chosen is noted at each family that has slices in these files. The jobs are planned and
//! carried out as all other compactions of the family are, after those that are due.

use super::garbage::Holdings;
use super::plan::{CleaningLimits, choose_files};
use super::schedule::{Jobs, Start, start_jobs};
use crate::engine::{Engine, Keyspace};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A look is due after so many rounds of maintenance if a file was written meanwhile ...
const LOOK_ROUNDS: u32 = 5;
/// ... and after so many if none was: slices also go without.
const LOOK_ROUNDS_MAX: u32 = 60;

/// The most slices that one look chooses, and how many write buffers of bytes.
const SLICES_MAX: usize = 32;
const BUFFERS_MAX: u64 = 4;

/// In so many families at most one look starts jobs. One that writers wait for may come behind.
const FAMILIES_MAX: usize = 8;

/// One part in this many of the shortest output: what the syncs of a job are worth, for each slice.
const TOLL_SHARE: u64 = 16;

/// What maintenance remembers from round to round.
#[derive(Default)]
pub(crate) struct Cleaner {
    rounds: u32,
    next_file: u64,
    has_begun: bool,
}

impl Cleaner {
    /// Called once a round: looks if that is due.
    pub(crate) fn round(&mut self, engine: &Arc<Engine>) {
        self.rounds += 1;
        let next_file = engine.files.next();
        let is_changed = next_file != self.next_file && self.rounds >= LOOK_ROUNDS;
        let is_due = is_changed || self.has_begun || self.rounds >= LOOK_ROUNDS_MAX;
        if is_due && may_begin(engine) {
            *self = Cleaner { rounds: 0, next_file, has_begun: clean(engine) };
        }
    }
}

/// False while jobs wait for a thread, or for room on the disk, and if nothing is written any more.
fn may_begin(engine: &Engine) -> bool {
    let waits_for_room =
        |family: Arc<Keyspace>| family.compactions.state.lock().is_suspended_for_now();
    engine.check_writable().is_ok()
        && engine.compactors.queued_count() == 0
        && !engine.families.all().into_iter().any(waits_for_room)
}

/// Chooses files, and starts jobs of the families that have slices in them. True if any has begun.
fn clean(engine: &Arc<Engine>) -> bool {
    let families: Vec<_> = choose(engine).into_iter().map(|(family, _)| family).collect();
    let (mut begun, holdings) = (0, Holdings::of(engine, &families));
    let mut jobs = Jobs::new(engine);
    // The first ones may not be able to begin.
    for family in &families {
        let started = start_jobs(&mut jobs, engine, family, Start::Due, &holdings);
        begun += usize::from(started.begun > 0);
        if begun >= FAMILIES_MAX {
            break;
        }
    }
    begun > 0
}

/// What a family is to leave, and what that is worth.
pub(super) type Chosen = (Arc<Keyspace>, BTreeMap<u64, u64>);

/// Notes at each family what it is to leave. Returns the families that are to leave anything.
pub(super) fn choose(engine: &Engine) -> Vec<Chosen> {
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
        family.compactions.state.lock().cleaned.clone_from(&files);
        (family, files)
    });
    families.filter(|(_, files)| !files.is_empty()).collect()
}

fn limits_of(engine: &Engine) -> CleaningLimits {
    let write_buffer = engine.options.buffer_len();
    CleaningLimits {
        dead_bytes: write_buffer.min(engine.options.sizes.dead_space_max),
        toll: (engine.options.sizes.table_len_min / TOLL_SHARE).max(1),
        slices_max: SLICES_MAX,
        bytes_max: write_buffer.saturating_mul(BUFFERS_MAX),
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
