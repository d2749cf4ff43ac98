//! What came before a life. It also decides how the life is to end.

use super::trouble::Damage;
use super::world::{Death, Doom, Life, Moment};
use isobath::env::reach::{Reach, reached};
use std::ops::Range;

/// What came before a life, as far as it matters for what is drawn.
#[derive(Clone, Copy, Default)]
pub(super) struct Past {
    pub(super) was_killed: bool,
    /// It was killed at an edit of a compaction that the kernel had and the disk had not.
    pub(super) was_killed_compacting: bool,
    pub(super) is_damaged: bool,
    /// It was damaged after the last life.
    pub(super) is_newly_damaged: bool,
    pub(super) may_lose: bool,
    /// The number of opens in a row, up to now, during which the machine died.
    pub(super) opens_died: u32,
    /// The number of opens in a row during which the machine is to die from now on.
    pub(super) opens_to_die: u32,
}

impl Past {
    /// A life has ended, in which the edit of a compaction may have been the end (`compacts`).
    pub(super) fn note(&mut self, life: &Life, compacts: bool, died_opening: bool) {
        self.was_killed = life.death() == Some(Death::Kill);
        self.was_killed_compacting = self.was_killed && compacts;
        self.is_damaged |= life.rot().is_some();
        self.may_lose |= life.rot().as_ref().is_some_and(Damage::is_of_log);
        self.opens_died = if died_opening { self.opens_died + 1 } else { 0 };
        self.opens_to_die = self.opens_to_die.saturating_sub(1);
        match self.opens_died {
            0 | 1 => {}
            2 => reached(Reach::OpenKilledTwice),
            _ => reached(Reach::OpenKilledThrice),
        }
    }
}

/// Draws how and when the machine dies. If it is not to die at one of the special moments, it dies
/// at an operation on files whose number is drawn from `working`.
pub(super) fn draw_doom(working: Range<u64>, past: Past, rng: &mut fastrand::Rng) -> Option<Doom> {
    let death = if rng.bool() { Death::Kill } else { Death::Power };
    let moments = [
        Moment::Edit,
        Moment::Edit,
        Moment::CompactionEdit,
        Moment::CompactionEdit,
        Moment::TableSync,
        Moment::SegmentSync,
        Moment::Rename,
        Moment::Remove,
        Moment::SyncDir,
        Moment::SpillNames,
        Moment::SpillNames,
    ];
    if past.opens_to_die > 0 {
        let moment =
            if rng.u8(..3) == 0 { moments[rng.usize(..moments.len())] } else { Moment::Any };
        let nth_max = if moment == Moment::Any { 1 << rng.u32(3..9) } else { 4 };
        return Some(Doom { death, moment, nth: rng.u64(1..=nth_max) });
    }
    if past.was_killed_compacting {
        // The open removes tables that the dead process compacted. If the power fails meanwhile, an
        // older manifest may come back that needs them.
        let (moment, nth_max) = if rng.bool() { (Moment::Remove, 5) } else { (Moment::Any, 60) };
        return Some(Doom { death: Death::Power, moment, nth: rng.u64(1..nth_max) });
    }
    if past.was_killed && rng.u8(..3) == 0 {
        // The power fails during the recovery, and takes what the dead process wrote and only the
        // page cache had.
        let nth = rng.u64(5..30);
        return Some(Doom { death: Death::Power, moment: Moment::Any, nth });
    }
    let nth_log = rng.u32(0..6);
    let (moment, nth) = match rng.u8(..10) {
        0 => return None,
        // An early operation: most likely the database is still being opened.
        1..3 => (Moment::Any, rng.u64(1..40)),
        3..6 => (moments[rng.usize(..moments.len())], rng.u64(1..=1 << nth_log)),
        _ => (Moment::Any, rng.u64(working)),
    };
    let death = if moment == Moment::CompactionEdit { Death::Kill } else { death };
    Some(Doom { death, moment, nth })
}
