//! How far compactions are behind in each family, and how fast they progress. Writers are paced by
//! it.
//!
//! A family's backlog is measured in batches: the bytes that its compactions must still read,
//! divided by the bytes that they read when level 0 is just due. A running compaction counts with
//! the bytes that it has not read yet. So the backlog falls while a compaction runs, however long
//! that takes.

use crate::format::FamilyId;
use std::collections::BTreeMap;

/// Up to this backlog writers are not paced: compactions only start at one batch.
const FREE_BATCHES: f64 = 1.0;
/// At this backlog writers are slowed to a quarter of what compactions can sustain. Beyond it reads
/// get slow.
const FULL_BATCHES: f64 = 3.0;
/// Measurements older than this hardly count in the pace of compactions.
const MEMORY_NS: f64 = 4e9;
/// If compactions report nothing for this long, they were not running, or get nothing done. More
/// than this of it is not counted.
const PAUSE_NS: u64 = 1_000_000_000;
/// Bytes per second, until a rate has been measured.
const PACE_UNKNOWN: f64 = 1e9;

/// The work that a family's compactions have to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompactionDebt {
    /// Bytes that compactions must still read.
    pub(crate) bytes: u64,
    /// Bytes that compactions read for one batch.
    pub(crate) batch_debt: u64,
    /// Bytes in one batch.
    pub(crate) batch_bytes: u64,
}

impl CompactionDebt {
    pub(crate) fn batches(&self) -> f64 {
        self.bytes as f64 / self.batch_debt.max(1) as f64
    }
}

/// The backlogs of all families.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// The families that are behind. Writers are paced by them.
    families: BTreeMap<FamilyId, CompactionDebt>,
    pace: Pace,
}

/// Bytes that compactions read, and the time they took. Older measurements count less.
#[derive(Debug, Default)]
struct Pace {
    bytes: f64,
    ns: f64,
    last_ns: u64,
}

impl Pace {
    /// A job began then. If none had reported for long before, that was a pause.
    fn begin(&mut self, began_ns: u64) {
        if began_ns.saturating_sub(self.last_ns) >= PAUSE_NS {
            self.last_ns = began_ns;
        }
    }

    fn note(&mut self, bytes: u64, now_ns: u64) {
        let since = now_ns.saturating_sub(self.last_ns).min(PAUSE_NS);
        self.last_ns = now_ns;
        let kept = 1.0 - since as f64 / MEMORY_NS;
        self.bytes = self.bytes * kept + bytes as f64;
        self.ns = self.ns * kept + since as f64;
        debug_assert!(self.bytes >= 0.0 && self.ns >= 0.0, "a pace is never negative");
    }

    /// Bytes per second.
    fn rate(&self) -> f64 {
        if self.ns > 0.0 { self.bytes * 1e9 / self.ns } else { PACE_UNKNOWN }
    }
}

impl Backlog {
    /// Notes the debt of a family; `None` if the family was dropped.
    pub(crate) fn note(&mut self, family: FamilyId, debt: Option<CompactionDebt>) {
        match debt.filter(|debt| debt.batches() > FREE_BATCHES) {
            Some(debt) => self.families.insert(family, debt),
            None => self.families.remove(&family),
        };
    }

    /// Notes that a compaction, which began at this time, has read `bytes` more.
    pub(crate) fn note_read(&mut self, bytes: u64, began_ns: u64, now_ns: u64) {
        self.pace.begin(began_ns);
        self.pace.note(bytes, now_ns);
    }

    /// The lag of the family that is furthest behind (1 where its backlog is full, more beyond),
    /// and how many bytes per second flushes could add to it for ever at the present pace of
    /// compactions.
    pub(crate) fn pressure(&self) -> (f64, f64) {
        let last = self.families.values().max_by(|a, b| a.batches().total_cmp(&b.batches()));
        let Some(debt) = last else { return (0.0, PACE_UNKNOWN) };
        let share = debt.batch_bytes as f64 / debt.batch_debt.max(1) as f64;
        let lag = (debt.batches() - FREE_BATCHES) / (FULL_BATCHES - FREE_BATCHES);
        debug_assert!(lag > 0.0, "a family without a backlog is listed");
        (lag, self.pace.rate() * share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debt(bytes: u64) -> Option<CompactionDebt> {
        Some(CompactionDebt { bytes, batch_debt: 400, batch_bytes: 100 })
    }

    #[test]
    fn the_family_furthest_behind_counts() {
        let mut backlog = Backlog::default();
        backlog.note(1, debt(400));
        assert_eq!(backlog.pressure().0, 0.0, "a batch is what compactions wait for");
        backlog.note(2, debt(800));
        backlog.note(3, debt(1200));
        assert_eq!(backlog.pressure().0, 1.0);
        backlog.note(3, debt(9200));
        assert_eq!(backlog.pressure().0, 11.0, "no end to how far one can be behind");
        backlog.note(3, None);
        assert_eq!(backlog.pressure().0, 0.5);
    }

    #[test]
    fn what_may_be_added_follows_from_the_pace_of_compactions_without_their_pauses() {
        const SECOND: u64 = 1_000_000_000;
        let mut backlog = Backlog::default();
        backlog.note(1, debt(600));
        for tenth in 1..=20 {
            backlog.note_read(8_000_000, 70 * SECOND, 70 * SECOND + tenth * SECOND / 10);
        }
        let (_, rate) = backlog.pressure();
        assert!((rate - 20e6).abs() < 1e3, "{rate}");
        for tenth in 1..=300 {
            let now = 90 * SECOND + tenth * SECOND / 10;
            backlog.note_read(16_000_000, if tenth == 1 { 90 * SECOND } else { now - 10 }, now);
        }
        let (_, rate) = backlog.pressure();
        assert!((rate - 40e6).abs() < 1e6, "{rate}");
    }

    /// With a limit of 64 KiB a second a report comes every four seconds.
    #[test]
    fn compactions_that_report_seldom_are_not_taken_for_fast_ones() {
        const SECOND: u64 = 1_000_000_000;
        let mut backlog = Backlog::default();
        backlog.note(1, debt(600));
        for report in 1..=10 {
            backlog.note_read(256 << 10, 70 * SECOND, (70 + 4 * report) * SECOND);
            let (_, rate) = backlog.pressure();
            assert!((rate * 4.0 - 262_144.0).abs() < 1.0, "{report}: {rate}");
        }
    }

    #[test]
    fn no_writer_is_slowed_while_no_family_has_a_debt_of_more_than_a_batch() {
        let mut backlog = Backlog::default();
        backlog.note_read(1 << 20, 0, 500_000_000);
        assert_eq!(backlog.pressure(), (0.0, 1e9));
        backlog.note(1, debt(400));
        assert_eq!(backlog.pressure(), (0.0, 1e9), "a batch is not too much");
        backlog.note(1, debt(401));
        assert!(backlog.pressure().0 > 0.0);
        backlog.note(1, debt(400));
        assert_eq!(backlog.pressure(), (0.0, 1e9));
    }

    #[test]
    fn a_debt_without_a_known_batch_is_counted_in_bytes() {
        let mut backlog = Backlog::default();
        backlog.note(1, Some(CompactionDebt { bytes: 2, batch_debt: 0, batch_bytes: 5 }));
        assert_eq!(backlog.pressure(), (0.5, 5e9));
        backlog.note(1, debt(1200));
        assert_eq!(backlog.pressure(), (1.0, 2.5e8));
        backlog.note(1, debt(1000));
        assert_eq!(backlog.pressure(), (0.75, 2.5e8));
    }

    #[test]
    fn the_pace_is_a_mean_that_forgets_pauses_and_takes_late_news() {
        const SECOND: u64 = 1_000_000_000;
        let mut pace = Pace::default();
        pace.begin(70 * SECOND);
        assert_eq!(pace.rate(), PACE_UNKNOWN);
        let mut rate_after = |bytes, now_ns, begins_at: Option<u64>| {
            begins_at.iter().for_each(|at| pace.begin(*at));
            pace.note(bytes, now_ns);
            pace.rate()
        };
        let expect = |rate: f64, bytes: f64, seconds: f64| {
            assert!((rate / (bytes / seconds) - 1.0).abs() < 1e-9, "{rate}");
        };
        expect(rate_after(8_000_000, 70 * SECOND + SECOND / 10, None), 8e6, 0.1);
        let later = 70 * SECOND + SECOND / 2;
        expect(rate_after(4_000_000, later, None), 7.2e6 + 4e6, 0.09 + 0.4);
        // A job that begins beside another one, which has reported not long ago, is no pause.
        let begins = Some(later + SECOND / 4);
        let (bytes, seconds) = (11.2e6 * 0.875 + 5.0, 0.49 * 0.875 + 0.5);
        expect(rate_after(5, later + SECOND / 2, begins), bytes, seconds);
        // A pause of a second is not counted, and of a longer silence of jobs no more than that.
        let begins = Some(later + 3 * SECOND / 2);
        expect(rate_after(0, later + 3 * SECOND / 2, begins), bytes, seconds);
        let (bytes, seconds) = (bytes * 0.75 + 3e6, seconds * 0.75 + 1.0);
        expect(rate_after(3_000_000, later + 9 * SECOND, None), bytes, seconds);
        // Of two threads the one that read the clock later may report first.
        expect(rate_after(1_000_000, later + 8 * SECOND, None), bytes + 1e6, seconds);
    }
}
