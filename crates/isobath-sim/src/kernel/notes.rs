//! The acknowledgements that a writer got, recorded where no cut reaches: in a file in memory that
//! parent and child share.
//!
//! A writer records a commit when it is acknowledged, by one write of eight bytes, which a kill
//! does not split. So all acknowledged commits of each writer are known, and at most one more is in
//! flight.
//!
//! ```text
//! cell 0       failures that nothing explains
//! cell 1       failures that were expected: no room, a refused write
//! cell 2       steps of the passing family that are done, twice, and one more if what it holds was acknowledged
//! cell 3       an LSN below which everything was said to survive power loss
//! cell 4       lives begun
//! cell 5       flushes of this life that succeeded
//! cell 6       1 if the power is off: an answer that a call gets from then on does not count
//! cell 8..16   commits that a program from outside was acknowledged (`outside.rs`); what follows is its own then
//! cell 16..    for each life, how many commits of each writer were there when it began
//! then         for each writer, a cell for each commit: 0, or bit 63: synced, bit 62: acknowledged, below: its LSN
//! ```

use super::calls;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Writers of a database at most.
pub(crate) const WRITERS_MAX: usize = 4;
/// Lives of a database at most.
pub(crate) const LIVES_MAX: u64 = 64;
/// Commits of a writer at most, over all lives.
pub(crate) const COMMITS_MAX: u64 = 1 << 16;

const UNEXPLAINED: u64 = 0;
const EXPECTED: u64 = 1;
const FAMILY_STEPS: u64 = 2;
const SYNCED_BELOW: u64 = 3;
const LIVES: u64 = 4;
const FLUSHES: u64 = 5;
const POWER_IS_OFF: u64 = 6;
const OUTSIDE_COMMITS: Range<u64> = 8..16;
const STARTS: u64 = 16;
const COMMITS: u64 = STARTS + LIVES_MAX * WRITERS_MAX as u64;

const SYNCED: u64 = 1 << 63;
const ACKNOWLEDGED: u64 = 1 << 62;
/// Cells that are read at once.
const READ_CELLS: usize = 4096;

/// How many commits of each writer.
pub(crate) type Counts = [u64; WRITERS_MAX];

/// How far the passing family is, which is created and dropped by turns: odd steps create it and
/// write to it, even steps drop it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FamilySteps {
    pub(crate) done: u64,
    /// The write of the last step was acknowledged.
    pub(crate) is_whole: bool,
}

/// The shared file.
pub(crate) struct Notes {
    file: File,
}

/// A commit that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acknowledged {
    /// Its place in history; 0 if the engine does not tell.
    pub(crate) point: u64,
    pub(crate) is_synced: bool,
}

/// Everything noted of a database.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) family: FamilySteps,
    pub(crate) synced_below: u64,
    /// What was there when each life began.
    pub(crate) starts: Vec<Counts>,
    /// By writer and number; the first commit of a writer has number 1.
    commits: [Vec<u64>; WRITERS_MAX],
}

impl Record {
    /// Notes of lives that began with these commits, in which nothing is acknowledged.
    #[cfg(test)]
    pub(super) fn of_lives(starts: Vec<Counts>) -> Record {
        Record { starts, ..Record::default() }
    }

    /// How a commit was acknowledged, if it was.
    pub(crate) fn acknowledged(&self, writer: usize, n: u64) -> Option<Acknowledged> {
        let cell = *self.commits[writer].get(usize::try_from(n - 1).ok()?)?;
        (cell & ACKNOWLEDGED != 0).then_some(Acknowledged {
            point: cell & (ACKNOWLEDGED - 1),
            is_synced: cell & SYNCED != 0,
        })
    }

    /// The last commit of a writer that was acknowledged. One more may be there.
    pub(crate) fn last_acknowledged(&self, writer: usize) -> u64 {
        let last = self.commits[writer].iter().rposition(|cell| *cell != 0);
        last.map_or(0, |index| index as u64 + 1)
    }

    /// Commits that were acknowledged and not forgotten by a new life.
    pub(crate) fn commits(&self) -> u64 {
        self.commits.iter().flatten().filter(|cell| **cell != 0).count() as u64
    }

    /// The life in which a commit was made, among those that are left of a writer.
    pub(crate) fn life_of(&self, writer: usize, n: u64) -> u64 {
        let after = self.starts.iter().rposition(|start| start[writer] < n);
        after.unwrap_or(0) as u64
    }

    /// How many commits of each writer the last life began with.
    pub(crate) fn last_start(&self) -> Counts {
        self.starts.last().copied().unwrap_or_default()
    }
}

impl Notes {
    /// Empty notes.
    pub(crate) fn new() -> io::Result<Notes> {
        Ok(Notes { file: calls::file_in_memory()? })
    }

    /// The notes that this process was started with, as its standard input.
    pub(crate) fn inherited() -> io::Result<Notes> {
        Ok(Notes { file: File::from(io::stdin().as_fd().try_clone_to_owned()?) })
    }

    /// To be inherited.
    pub(crate) fn share(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    pub(crate) fn acknowledge(
        &self,
        writer: usize,
        n: u64,
        acknowledged: Acknowledged,
    ) -> io::Result<()> {
        let synced = if acknowledged.is_synced { SYNCED } else { 0 };
        self.set(commit_cell(writer, n), synced | ACKNOWLEDGED | acknowledged.point)
    }

    /// Notes that the database acknowledged everything below an LSN as surviving power loss.
    pub(crate) fn synced_below(&self, lsn: u64) -> io::Result<()> {
        self.set(SYNCED_BELOW, lsn)
    }

    pub(crate) fn family(&self, family: FamilySteps) -> io::Result<()> {
        self.set(FAMILY_STEPS, family.done * 2 + u64::from(family.is_whole))
    }

    pub(crate) fn flushes(&self, flushes: u64) -> io::Result<()> {
        self.set(FLUSHES, flushes)
    }

    pub(crate) fn flushes_noted(&self) -> io::Result<u64> {
        self.get(FLUSHES)
    }

    /// Notes a failure that the harness did not cause.
    pub(crate) fn fail(&self) -> io::Result<()> {
        self.set(UNEXPLAINED, 1)
    }

    /// Forgets how an earlier life ended.
    pub(crate) fn forgive(&self) -> io::Result<()> {
        self.set(UNEXPLAINED, 0)?;
        self.set(POWER_IS_OFF, 0)
    }

    /// Notes that the power is about to be cut.
    pub(crate) fn power_off(&self) -> io::Result<()> {
        self.set(POWER_IS_OFF, 1)
    }

    /// True if a call that has just returned was answered before the power was cut.
    pub(crate) fn is_power_on(&self) -> io::Result<bool> {
        Ok(self.get(POWER_IS_OFF)? == 0)
    }

    /// True if there was a failure that the harness did not cause.
    pub(crate) fn has_failed(&self) -> io::Result<bool> {
        Ok(self.get(UNEXPLAINED)? != 0)
    }

    /// Notes failures that were expected: how many there were.
    pub(crate) fn expected_failures(&self, failures: u64) -> io::Result<()> {
        self.set(EXPECTED, failures)
    }

    pub(crate) fn expected_failures_noted(&self) -> io::Result<u64> {
        self.get(EXPECTED)
    }

    /// Begins a life with this many commits of each writer. Later commits are forgotten, because
    /// the database lost them.
    pub(crate) fn begin_life(
        &self,
        record: &Record,
        counts: Counts,
        family: FamilySteps,
    ) -> io::Result<()> {
        let life = record.starts.len() as u64;
        assert!(life < LIVES_MAX, "a database is given up before");
        for (writer, count) in counts.into_iter().enumerate() {
            for n in count + 1..=record.last_acknowledged(writer) {
                self.set(commit_cell(writer, n), 0)?;
            }
            self.set(STARTS + life * WRITERS_MAX as u64 + writer as u64, count)?;
        }
        self.family(family)?;
        self.set(FLUSHES, 0)?;
        self.set(EXPECTED, 0)?;
        self.set(LIVES, life + 1)
    }

    /// True if a life has begun to write.
    pub(crate) fn has_begun(&self) -> io::Result<bool> {
        Ok(self.get(LIVES)? > 0)
    }

    /// Commits that a program from outside was acknowledged.
    pub(crate) fn outside_commits(&self) -> io::Result<u64> {
        OUTSIDE_COMMITS.map(|cell| self.get(cell)).sum()
    }

    /// Everything noted.
    pub(crate) fn read(&self) -> io::Result<Record> {
        let mut starts = Vec::new();
        for life in 0..self.get(LIVES)?.min(LIVES_MAX) {
            let mut counts = Counts::default();
            for (writer, count) in counts.iter_mut().enumerate() {
                *count = self.get(STARTS + life * WRITERS_MAX as u64 + writer as u64)?;
            }
            starts.push(counts);
        }
        let mut commits: [Vec<u64>; WRITERS_MAX] = Default::default();
        for (writer, cells) in commits.iter_mut().enumerate() {
            self.read_commits(writer, cells)?;
        }
        let steps = self.get(FAMILY_STEPS)?;
        Ok(Record {
            family: FamilySteps { done: steps / 2, is_whole: steps % 2 == 1 },
            synced_below: self.get(SYNCED_BELOW)?,
            starts,
            commits,
        })
    }

    /// Reads the cells of a writer up to a long run of empty ones. A commit in flight leaves one
    /// empty cell.
    fn read_commits(&self, writer: usize, cells: &mut Vec<u64>) -> io::Result<()> {
        let mut bytes = [0; READ_CELLS * 8];
        while (cells.len() as u64) < COMMITS_MAX {
            let from = commit_cell(writer, cells.len() as u64 + 1) * 8;
            bytes.fill(0);
            let len = self.file.read_at(&mut bytes, from)?;
            let piece = bytes[..len.next_multiple_of(8)].as_chunks::<8>().0;
            cells.extend(piece.iter().map(|cell| u64::from_le_bytes(*cell)));
            if piece.iter().all(|cell| *cell == [0; 8]) {
                break;
            }
        }
        Ok(())
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

fn commit_cell(writer: usize, n: u64) -> u64 {
    assert!((1..=COMMITS_MAX).contains(&n), "a writer stops before");
    COMMITS + writer as u64 * COMMITS_MAX + (n - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_acknowledged_is_read_back_and_a_new_life_forgets_what_was_lost() {
        let notes = Notes::new().unwrap();
        notes.begin_life(&notes.read().unwrap(), [0; WRITERS_MAX], FamilySteps::default()).unwrap();
        for n in 1..=10_000 {
            let acknowledged = Acknowledged { point: n * 8, is_synced: n % 2 == 0 };
            notes.acknowledge(1, n, acknowledged).unwrap();
        }
        let record = notes.read().unwrap();
        assert_eq!(record.last_acknowledged(1), 10_000);
        assert_eq!(record.acknowledged(1, 7), Some(Acknowledged { point: 56, is_synced: false }));
        assert_eq!(record.last_acknowledged(0), 0);
        notes.begin_life(&record, [0, 9000, 0, 0], FamilySteps::default()).unwrap();
        let record = notes.read().unwrap();
        assert_eq!(record.last_acknowledged(1), 9000);
        assert_eq!((record.life_of(1, 9000), record.life_of(1, 9001)), (0, 1));
        assert_eq!(record.acknowledged(1, 9001), None);
    }
}
