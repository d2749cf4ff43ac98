//! Other processes at a database that is open: one that would write is refused as locked, with no
//! harm done to anything, and one that reads is shown moments of its history, each no older than
//! the one before, while one of its threads catches up and another one reads.

use super::edits::editing;
use super::observe::Sight;
use super::oracle::Look;
use super::runtime;
use super::values::{Value, Values};
use super::workload::Stage;
use crate::existing::Existing;
use isobath::env::reach::{Reach, reached};
use isobath::{Db, ErrorKind, Family, Options, ReadPoint};
use std::cell::Cell;
use std::io;
use std::rc::Rc;

/// A database that is open for reading beside the one of a life.
struct Beside {
    db: Db,
    side: Family,
    /// From before the last call that has caught up.
    caught_up: Cell<Look>,
    point: Cell<ReadPoint>,
    is_over: Cell<bool>,
    /// It holds fewer files open than there may be, so some that it needs may be gone.
    has_few_files: bool,
}

/// More files than a database of the simulation has.
const FILES_MAX: usize = 8192;

/// More reads than fit, with a pause behind each one that grows by a microsecond, into the time in
/// which a reader catches up: 200 seconds.
const READS_MAX: u32 = 20_000;

impl Beside {
    /// A read that has met a file which is gone tells nothing, where that may be.
    fn forgive(&self, read: isobath::Result<()>) -> isobath::Result<()> {
        let is_gone = |error: &isobath::Error| match error.kind() {
            ErrorKind::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        };
        match read {
            Err(error) if self.has_few_files && is_gone(&error) => Ok(()),
            read => read,
        }
    }
}

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
    pub(crate) fn follow(self: &Rc<Self>, db: &str, rng: &mut fastrand::Rng) {
        if self.is_damaged {
            return;
        }
        if let Err(error) = self.try_follow(db, rng) {
            self.judge_beside(&error);
        }
    }

    fn judge_beside(&self, error: &isobath::Error) {
        // The log may be too large for a reader with little memory, and a writer may outrun a slow
        // reader.
        let gives_up =
            matches!(error.kind(), ErrorKind::MemoryLimit { .. } | ErrorKind::Outrun { .. });
        if !gives_up && !self.is_closing() {
            self.judge_write("a reader beside", error);
        }
    }

    fn try_follow(self: &Rc<Self>, db: &str, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        let caught_up = Cell::new(self.look().beside());
        let has_few_files = rng.u8(..4) == 0;
        let files = if has_few_files { rng.usize(8..64) } else { FILES_MAX };
        let options = Options::new().read_only(true).max_open_files(files);
        let reader = editing(options.env(self.life.env())).open(db)?;
        let (side, point) = (reader.existing("side")?, reader.snapshot().read_point());
        let (point, is_over) = (Cell::new(point), Cell::new(false));
        let beside = Beside { db: reader, side, caught_up, point, is_over, has_few_files };
        let beside = Rc::new(beside);
        let (stage, other) = (self.clone(), beside.clone());
        let reads = Box::new(move || {
            for nth in 0u32.. {
                if other.is_over.get() {
                    return;
                }
                if nth == READS_MAX {
                    return stage.fail("a reader beside goes on catching up".to_owned());
                }
                let read = match nth % 3 {
                    0 => stage.read_beside(&other),
                    1 => stage.scan_beside(0, &other),
                    _ => stage.scan_beside(1, &other),
                };
                if let Err(error) = other.forgive(read) {
                    return stage.judge_beside(&error);
                }
                // All that it sees is remembered, and who catches up may wait for the disk for
                // seconds, which pass quickly only while others sleep.
                runtime::sleep_ns(u64::from(nth) * 1_000);
            }
        });
        let task = runtime::spawn("beside".to_owned(), reads);
        let followed = self.catch_up(&beside, rng);
        beside.is_over.set(true);
        runtime::join(task);
        followed
    }

    fn catch_up(&self, beside: &Beside, rng: &mut fastrand::Rng) -> isobath::Result<()> {
        for _ in 0..rng.u8(1..4) {
            beside.forgive(self.read_beside(beside))?;
            let look = self.look().beside();
            let newer = beside.db.catch_up()?;
            beside.caught_up.set(look);
            self.demand_newer(beside, newer);
        }
        Ok(())
    }

    /// A look at everything, of one moment.
    fn read_beside(&self, beside: &Beside) -> isobath::Result<()> {
        let (look, before) = (beside.caught_up.get(), beside.point.get());
        let snapshot = beside.db.snapshot();
        if snapshot.read_point() < before {
            let point = snapshot.read_point();
            self.fail(format!("a snapshot beside went back from {before:?} to {point:?}"));
        }
        let mut found = Values::new();
        let ranges = [snapshot.range(..), snapshot.of(&beside.side).range(..)];
        for (family, range) in (0..).zip(ranges) {
            for item in range {
                let (key, value) = item?;
                found.insert((family, key[..].into()), Value::of(&value));
            }
        }
        let sights = vec![Sight::of_family(0, &found), Sight::of_family(1, &found)];
        self.saw("a reader beside", look, (sights, Ok(())))
    }

    /// A scan of one family, without a snapshot.
    fn scan_beside(&self, family: u8, beside: &Beside) -> isobath::Result<()> {
        let look = beside.caught_up.get();
        let range = if family == 0 { beside.db.range(..) } else { beside.side.range(..) };
        let mut found = Values::new();
        for item in range {
            let (key, value) = item?;
            found.insert((family, key[..].into()), Value::of(&value));
        }
        self.saw("a scan beside", look, (vec![Sight::of_family(family, &found)], Ok(())))
    }

    fn demand_newer(&self, beside: &Beside, newer: ReadPoint) {
        let point = beside.point.replace(newer);
        if newer < point {
            self.fail(format!("a reader beside went back from {point:?} to {newer:?}"));
        }
    }
}
