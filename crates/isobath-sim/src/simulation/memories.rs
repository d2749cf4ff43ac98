//! Read points that are remembered after their snapshots have gone, in this life and in later ones,
//! with what was seen there. Later a point may be too old to be read. As long as it can be read, it
//! must show the same. With a history that covers all lives it must be readable until the power
//! fails or the disk is damaged.

use super::values::Values;
use super::workload::Stage;
use crate::position::position;
use isobath::{ErrorKind, ReadPoint, Snapshot};
use std::time::{Duration, UNIX_EPOCH};

/// As many are remembered at once.
const KEPT_MAX: usize = 24;

/// What was seen at a point.
#[derive(Debug)]
pub(crate) struct Memory {
    point: ReadPoint,
    values: Values,
    /// True if no life has since ended in a way that may lose what was seen.
    is_sure: bool,
}

impl Memory {
    /// In the next life, which finds all of the last one or not.
    pub(crate) fn grow_old(&mut self, is_kept: bool) {
        self.is_sure &= is_kept;
    }
}

impl Stage {
    /// Remembers what a snapshot shows.
    pub(crate) fn remember(&self, snapshot: &Snapshot, values: &Values, rng: &mut fastrand::Rng) {
        let memories = &mut self.history.borrow_mut().memories;
        if memories.len() == KEPT_MAX {
            memories.swap_remove(rng.usize(..KEPT_MAX));
        }
        let (point, values) = (snapshot.read_point(), values.clone());
        memories.push(Memory { point, values, is_sure: true });
    }

    /// Looks at one of the points again.
    pub(crate) fn look_back(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        if rng.u8(..8) == 0 {
            self.look_at_time(rng)?;
        }
        let drawn = {
            let memories = &mut self.history.borrow_mut().memories;
            let count = memories.len();
            (count > 0).then(|| memories.swap_remove(rng.usize(..count)))
        };
        let Some(memory) = drawn else { return Ok(()) };
        let seen = self.compare_memory(&memory);
        self.history.borrow_mut().memories.push(memory);
        seen
    }

    /// Looks at the database as of a time.
    fn look_at_time(&self, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let oldest = self.db.oldest_readable();
        let since = Duration::from_millis(rng.u64(..4_000_000_000_000));
        match self.db.snapshot_as_of(UNIX_EPOCH + since) {
            Err(error) if matches!(error.kind(), ErrorKind::PointTooOld { .. }) => Ok(()),
            Err(error) => Err(error),
            Ok(snapshot) if snapshot.read_point() < oldest => {
                let (at, oldest) = (position(snapshot.read_point()), position(oldest));
                self.fail(format!("a time has point {at}, and the oldest is {oldest}"));
                Ok(())
            }
            Ok(snapshot) => self.all_of(&snapshot).map(drop),
        }
    }

    fn compare_memory(&self, memory: &Memory) -> isobath::Result<()> {
        let at = position(memory.point);
        let must_be_there = memory.is_sure && !self.is_damaged && self.terrain.keeps_all();
        let snapshot = match self.db.snapshot_at(memory.point) {
            Ok(snapshot) => snapshot,
            Err(error) => match error.kind() {
                ErrorKind::PointTooOld { .. } if !must_be_there => return Ok(()),
                // The manifest is that of an earlier life.
                ErrorKind::InvalidArgument { .. } if self.is_damaged => return Ok(()),
                _ => return Err(error),
            },
        };
        let values = self.all_of(&snapshot)?;
        if values != memory.values {
            let other =
                values.iter().find(|(place, value)| memory.values.get(*place) != Some(*value));
            let lost = memory.values.keys().find(|place| !values.contains_key(place));
            self.fail(format!(
                "point {at} answers otherwise than it did: it has {other:?}, and no {lost:?}"
            ));
        }
        Ok(())
    }
}
