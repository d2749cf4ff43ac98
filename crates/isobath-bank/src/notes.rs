//! The acknowledgements that the bank got, recorded in a file that no power cut reaches: the file
//! belongs to the driver, and the bank inherits it as standard input.
//!
//! The file is made of cells of eight bytes. The first sixteen are shared with the driver
//! (`kernel/notes.rs` of `isobath-sim`), the others are the bank's own.
//!
//! ```text
//! cell 0       1 after a failure that nothing explains
//! cell 4       lives begun
//! cell 6       1 if the power is off: an answer that comes later was never heard
//! cell 8..16   commits acknowledged, by the thread that made them
//! cell 16      1 once the bank is founded
//! then, for each line of commits: how many were acknowledged, how many of these as synced, how many the life began with
//! cells 40..43 by teller: the last step of its last transfer in two phases (`doubt.rs`)
//! cell 64..    for each teller and transfer: the read point that the engine answered
//! ```
//!
//! A line is a sequence of commits that are made one after the other: the transfers of each teller,
//! the jobs done for each teller, the days.

use crate::doubt::{Phase, Step};
use crate::ledger::TELLERS;
use isobath::ReadPoint;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

/// Lines of commits: transfers and jobs of each teller, days.
pub(crate) const LINES: usize = TELLERS * 2 + 1;
/// The line of days.
pub(crate) const DAYS: usize = TELLERS * 2;
/// Transfers of a teller at most.
pub(crate) const TRANSFERS_MAX: u64 = 1 << 16;

const UNEXPLAINED: u64 = 0;
const LIVES: u64 = 4;
const POWER_IS_OFF: u64 = 6;
const COMMITS: u64 = 8;
const FOUNDED: u64 = 16;
const ACKNOWLEDGED: u64 = 17;
const SYNCED: u64 = ACKNOWLEDGED + LINES as u64;
const STARTED: u64 = SYNCED + LINES as u64;
const PHASES: u64 = 40;
const POINTS: u64 = 64;

const _: () = assert!(STARTED + LINES as u64 <= PHASES && PHASES + TELLERS as u64 <= POINTS);

/// The length of each line.
pub(crate) type Counts = [u64; LINES];

/// The notes, and their counters that only grow.
pub(crate) struct Notes {
    file: File,
    synced: Mutex<()>,
}

/// All notes except the read points.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Noted {
    pub(crate) is_founded: bool,
    pub(crate) lives: u64,
    pub(crate) acknowledged: Counts,
    pub(crate) synced: Counts,
    /// What the previous life began with.
    pub(crate) started: Counts,
}

impl Notes {
    /// The notes that this process was started with.
    pub(crate) fn inherited() -> io::Result<Notes> {
        let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        Ok(Notes { file, synced: Mutex::new(()) })
    }

    /// Everything noted.
    pub(crate) fn read(&self) -> io::Result<Noted> {
        let counts = |first: u64| -> io::Result<Counts> {
            let mut counts = Counts::default();
            for (line, count) in counts.iter_mut().enumerate() {
                *count = self.get(first + line as u64)?;
            }
            Ok(counts)
        };
        Ok(Noted {
            is_founded: self.get(FOUNDED)? != 0,
            lives: self.get(LIVES)?,
            acknowledged: counts(ACKNOWLEDGED)?,
            synced: counts(SYNCED)?,
            started: counts(STARTED)?,
        })
    }

    /// Begins a life with what was found. Later commits are forgotten, because they were allowed to
    /// be lost.
    pub(crate) fn begin_life(&self, found: &Counts) -> io::Result<()> {
        for (line, count) in (0..).zip(found) {
            self.set(STARTED + line, *count)?;
            self.set(ACKNOWLEDGED + line, *count)?;
        }
        self.set(LIVES, self.get(LIVES)? + 1)
    }

    /// Notes that the bank is founded, and that this is durable.
    pub(crate) fn found(&self) -> io::Result<()> {
        self.set(FOUNDED, 1)
    }

    /// Notes that a line's commit was acknowledged. Only one thread does so for a line.
    pub(crate) fn acknowledge(&self, line: usize, number: u64) -> io::Result<()> {
        self.set(ACKNOWLEDGED + line as u64, number)
    }

    /// The number of acknowledged commits of a line.
    pub(crate) fn acknowledged(&self) -> io::Result<Counts> {
        Ok(self.read()?.acknowledged)
    }

    /// Notes that a line was acknowledged as durable up to a commit.
    pub(crate) fn synced(&self, line: usize, number: u64) -> io::Result<()> {
        let _alone = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = SYNCED + line as u64;
        if self.get(cell)? < number { self.set(cell, number) } else { Ok(()) }
    }

    /// Notes the read point that a transfer was acknowledged with.
    pub(crate) fn set_point(&self, teller: usize, number: u64, point: ReadPoint) -> io::Result<()> {
        let bytes = point.to_bytes();
        let half = u64::from_be_bytes(*bytes.first_chunk().expect("16 bytes"));
        self.set(point_cell(teller, number), half)
    }

    pub(crate) fn point(&self, teller: usize, number: u64) -> io::Result<u64> {
        self.get(point_cell(teller, number))
    }

    /// Notes a step of a transfer in two phases. Only one thread does so for a teller.
    pub(crate) fn set_phase(&self, teller: usize, step: Step, number: u64) -> io::Result<()> {
        self.set(PHASES + teller as u64, Phase { step, number }.encode())
    }

    pub(crate) fn phase(&self, teller: usize) -> io::Result<Phase> {
        Ok(Phase::decode(self.get(PHASES + teller as u64)?))
    }

    /// The phases of all tellers.
    pub(crate) fn phases(&self) -> io::Result<[Phase; TELLERS]> {
        let mut phases = [Phase { step: Step::None, number: 0 }; TELLERS];
        for (teller, phase) in phases.iter_mut().enumerate() {
            *phase = self.phase(teller)?;
        }
        Ok(phases)
    }

    /// Counts commits of a thread, for the driver's report.
    pub(crate) fn count(&self, thread: usize) -> io::Result<()> {
        let cell = COMMITS + thread as u64;
        self.set(cell, self.get(cell)? + 1)
    }

    /// True if a call that has just returned was answered before the power was cut.
    pub(crate) fn is_power_on(&self) -> io::Result<bool> {
        Ok(self.get(POWER_IS_OFF)? == 0)
    }

    /// Notes a failure that nothing explains.
    pub(crate) fn fail(&self) -> io::Result<()> {
        self.set(UNEXPLAINED, 1)
    }

    fn set(&self, cell: u64, value: u64) -> io::Result<()> {
        self.file.write_all_at(&value.to_le_bytes(), cell * 8)
    }

    fn get(&self, cell: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        match self.file.read_at(&mut bytes, cell * 8)? {
            8 => Ok(u64::from_le_bytes(bytes)),
            _ => Ok(0),
        }
    }
}

fn point_cell(teller: usize, number: u64) -> u64 {
    POINTS + teller as u64 * TRANSFERS_MAX + (number - 1)
}
