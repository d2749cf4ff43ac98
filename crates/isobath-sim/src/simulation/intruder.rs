//! Other processes at a database that is open: one that would write is refused as locked, with no
//! harm done to anything, and one that reads is shown moments of its history, each no older than
//! the one before.

use super::edits::editing;
use super::observe::Sight;
use super::workload::{self, Stage};
use crate::existing::Existing;
use isobath::env::reach::{Reach, reached};
use isobath::{ErrorKind, Options};

impl Stage {
    /// Tries to open the database of this life a second time.
    pub(crate) fn intrude(&self, db: &str) {
        let opened = Options::new().env(self.life.env()).open(db);
        // Once a close has begun, or the machine is dead, every answer is allowed.
        if self.is_over() || self.is_closing() {
            return;
        }
        match opened {
            Err(error) if matches!(error.kind(), ErrorKind::Locked { .. }) => {
                reached(Reach::OpenedTwice);
            }
            Err(error) => self.judge_write("a second open", &error),
            Ok(_) => self.fail("a second open succeeded".to_owned()),
        }
    }

    /// Reads beside the database of this life, and goes on to newer moments. Not on a damaged disk,
    /// whose manifest may be an old one.
    pub(crate) fn follow(&self, db: &str, rng: &mut fastrand::Rng) {
        if self.is_damaged {
            return;
        }
        if let Err(error) = self.try_follow(db, rng) {
            // The log may be too large for a reader with little memory, and a writer may outrun a
            // slow reader.
            let gives_up =
                matches!(error.kind(), ErrorKind::MemoryLimit { .. } | ErrorKind::Outrun { .. });
            if !gives_up && !self.is_closing() {
                self.judge_write("a reader beside", &error);
            }
        }
    }

    fn try_follow(&self, db: &str, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let mut look = self.look().beside();
        let reader = editing(Options::new().read_only(true).env(self.life.env())).open(db)?;
        let side = reader.existing("side")?;
        let mut point = reader.snapshot().read_point();
        for _ in 0..rng.u8(1..4) {
            let found = workload::everything(&reader, &side)?;
            let sights = vec![Sight::of_family(0, &found), Sight::of_family(1, &found)];
            self.saw("a reader beside", look, (sights, Ok(())))?;
            look = self.look().beside();
            let newer = reader.catch_up()?;
            if newer < point {
                self.fail(format!("a reader beside went back from {point:?} to {newer:?}"));
            }
            point = newer;
        }
        Ok(())
    }
}
