//! When the database was at which point, as maintenance notes it once a second.
//!
//! It tells for how long a reader has kept what was overwritten. No reader notes the time itself: a
//! read point must cost no look at a clock.

use crate::env::sync::{Mutex, Rank};
use crate::format::Lsn;

/// So many notes are kept. Once there are more, every second one goes, and from then on they come
/// half as often: so they are apart by a thousandth of the time that they cover.
const NOTES_MAX: usize = 2000;

#[derive(Debug)]
pub(crate) struct PointTimes {
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    /// Points of the log, and when each was reached, in nanoseconds of the clock.
    all: Vec<(Lsn, u64)>,
    /// How far apart they are at least.
    apart_ns: u64,
}

impl PointTimes {
    pub(crate) fn new() -> PointTimes {
        PointTimes { notes: Mutex::new(Rank::PointTimes, Notes::default()) }
    }

    /// The database is at this point now, and the oldest reader at another one, if there is any.
    pub(crate) fn note(&self, point: Lsn, oldest: Option<Lsn>, now_ns: u64) {
        let mut notes = self.notes.lock();
        let Notes { all, apart_ns } = &mut *notes;
        let unread = oldest.unwrap_or(point);
        all.drain(..all.partition_point(|(known, _)| *known <= unread));
        let Some((known, at)) = all.last() else {
            if point > unread {
                all.push((point, now_ns));
            }
            return;
        };
        // Once an old reader is gone, those that are left are younger.
        let thousandth_ns = now_ns.saturating_sub(all[0].1) / (NOTES_MAX as u64 / 2);
        *apart_ns = (*apart_ns).min(thousandth_ns);
        if *known >= point || now_ns.saturating_sub(*at) < *apart_ns {
            return;
        }
        if all.len() == NOTES_MAX {
            let mut is_kept = false;
            all.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            *apart_ns = thousandth_ns;
        }
        all.push((point, now_ns));
        debug_assert!(all.len() <= NOTES_MAX && all.is_sorted(), "time goes on with the log");
    }

    /// Nanoseconds since the first note of a point behind this one; 0 if there is none.
    pub(crate) fn passed_ns(&self, point: Lsn, now_ns: u64) -> u64 {
        let notes = self.notes.lock();
        let behind = notes.all.partition_point(|(known, _)| *known <= point);
        notes.all.get(behind).map_or(0, |(_, at)| now_ns.saturating_sub(*at))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::options::Options;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_time_since_a_point_was_passed_is_known_to_a_thousandth_however_long_it_is() {
        let times = PointTimes::new();
        assert_eq!(times.passed_ns(0, SECOND), 0);
        // The points 100, 200, and so on are reached in the second, the fourth and so on.
        for second in 1..=10 {
            times.note(100 * (second / 2), Some(0), second * SECOND);
        }
        assert_eq!(times.passed_ns(150, 10 * SECOND), 6 * SECOND);
        assert_eq!(times.passed_ns(200, 10 * SECOND), 4 * SECOND);
        assert_eq!(times.passed_ns(500, 10 * SECOND), 0);
        for second in 11..100_000 {
            times.note(100 * second, Some(150), second * SECOND);
            for point in [150, 100 * (second / 2).max(20), 100 * (second - 5).max(20)] {
                let truly = second.saturating_sub(if point == 150 { 4 } else { point / 100 + 1 });
                let told = times.passed_ns(point, second * SECOND) / SECOND;
                assert!(
                    (truly.saturating_sub(second / 900 + 2)..=truly).contains(&told),
                    "{told} {truly}"
                );
            }
        }
        assert!((1000..=NOTES_MAX).contains(&times.notes.lock().all.len()));
        // The oldest reader is gone.
        times.note(10_000_000, Some(9_000_050), 100_000 * SECOND);
        let told = times.passed_ns(9_000_050, 100_000 * SECOND) / SECOND;
        assert!((9_750..=9_999).contains(&told), "{told}");
        // For younger ones it is noted as often as for a reader that is the oldest from the start.
        for second in 100_001..101_000 {
            times.note(100 * second, Some(9_000_050), second * SECOND);
        }
        let told = times.passed_ns(100 * 100_900, 100_999 * SECOND) / SECOND;
        assert!((86..=98).contains(&told), "{told}");
        times.note(10_100_000, None, 101_000 * SECOND);
        assert!(times.notes.lock().all.is_empty());
    }

    #[test]
    fn a_snapshot_gets_older_while_others_write_and_maintenance_looks() {
        let db = Options::in_memory().open("/db").unwrap();
        let (engine, age) = (db.engine(), || db.metrics().oldest_read_point_age_ms);
        engine.maintenance.close();
        let snapshot = db.snapshot();
        engine.note_point_time();
        assert_eq!(age(), 0, "nothing was written behind it");
        db.put("key", "value").unwrap();
        engine.note_point_time();
        engine.options.env.threads.sleep(std::time::Duration::from_millis(30));
        assert!((30..60_000).contains(&age()), "{}", age());
        drop(snapshot);
        assert_eq!(age(), 0);
    }
}
