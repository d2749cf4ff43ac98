//! The wall clock of a simulation, which is set forward and back, and how much of it the engine may
//! believe.

use super::runtime;
use isobath::env::reach::{Reach, reached};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// How far the clock is set forward or back at most: a day.
const FARTHEST_MS: u64 = 86_400_000;
/// Every other time by no more than this, an hour, which the engine believes at once.
const STEP_MS: u64 = 3_600_000;
/// Further ahead the engine does not believe the clock until it has stood there for an hour. It
/// looks at its two clocks one after the other, and time may pass in between.
const LEAP_MS: u64 = STEP_MS + 600_000;

/// Where the clock of a seed begins: some day in 2026.
const START_MS: u64 = 1_790_000_000_000;

thread_local! {
    /// How far the clock is ahead, which goes on from life to life.
    static AHEAD_MS: Cell<u64> = const { Cell::new(START_MS) };
    static LATEST_MS: Cell<u64> = const { Cell::new(0) };
}

/// The next life finds the clock so far ahead.
#[cfg(test)]
pub(crate) fn set_ahead(ms: u64) {
    AHEAD_MS.set(START_MS + ms);
}

/// The wall clock of one life.
pub(super) struct WallClock {
    /// How far it is ahead of the time since this life began, in milliseconds.
    ahead_ms: Cell<u64>,
    /// How far it is ahead at most for an engine that does not believe leaps.
    believed_ms: Cell<u64>,
    /// When the first leap of this life was shown, in milliseconds since it began.
    leapt_at_ms: Cell<Option<u64>>,
    /// The database is open. Before, the clock is believed.
    is_open: Cell<bool>,
    /// How far ahead it was when it was not believable. A task may have read it then and have its
    /// reading judged only later, by what is believed at that time.
    doubted_ms: RefCell<BTreeSet<u64>>,
}

impl WallClock {
    /// Sets the clock to where it begins.
    pub(super) fn begin() {
        AHEAD_MS.set(START_MS);
        LATEST_MS.set(0);
    }

    /// The clock of the next life.
    pub(super) fn of_life() -> WallClock {
        let ahead_ms = AHEAD_MS.get();
        if ahead_ms != START_MS {
            reached(Reach::ClockKept);
        }
        WallClock {
            ahead_ms: Cell::new(ahead_ms),
            believed_ms: Cell::new(ahead_ms.max(LATEST_MS.get())),
            leapt_at_ms: Cell::new(None),
            is_open: Cell::new(false),
            doubted_ms: RefCell::default(),
        }
    }

    /// What the clock shows, which is set anew now and then, forward and back.
    pub(super) fn unix_ms(&self) -> u64 {
        if runtime::random(50) == 0 {
            let drawn = runtime::random(2 * FARTHEST_MS);
            let farthest_ms = [FARTHEST_MS, STEP_MS][drawn as usize % 2];
            let ahead_ms = self.ahead_ms.get() + drawn % (2 * farthest_ms);
            let set = ahead_ms.saturating_sub(farthest_ms);
            let is_forward = set > self.ahead_ms.get();
            reached(if is_forward { Reach::ClockForward } else { Reach::ClockBack });
            self.ahead_ms.set(set);
            AHEAD_MS.set(set);
        }
        LATEST_MS.set(LATEST_MS.get().max(self.believable_ms()));
        self.shown_ms()
    }

    /// What the clock shows until it is set again.
    pub(super) fn shown_ms(&self) -> u64 {
        self.ahead_ms.get() + runtime::now_ns() / 1_000_000
    }

    /// The latest time that the clock has shown to the engine and that it may have believed, in
    /// this life or an earlier one.
    pub(super) fn latest_ms() -> u64 {
        LATEST_MS.get()
    }

    /// The database is open: from now on it does not believe leaps.
    pub(super) fn note_opened(&self) {
        self.is_open.set(true);
    }

    /// The latest time that the engine may take it to be, once it was shown the clock.
    fn believable_ms(&self) -> u64 {
        let (ahead_ms, believed_ms) = (self.ahead_ms.get(), self.believed_ms.get());
        let passed_ms = runtime::now_ns() / 1_000_000;
        if self.is_open.get() && ahead_ms > believed_ms + LEAP_MS {
            // Once one leap may be believed, later ones may be taken for the same.
            let leapt_at_ms = self.leapt_at_ms.get().unwrap_or(passed_ms);
            self.leapt_at_ms.set(Some(leapt_at_ms));
            if passed_ms - leapt_at_ms < STEP_MS {
                self.doubted_ms.borrow_mut().insert(ahead_ms);
                return believed_ms + passed_ms;
            }
        }
        let mut believed_ms = believed_ms.max(ahead_ms);
        for doubted_ms in self.doubted_ms.borrow().iter() {
            if *doubted_ms <= believed_ms + LEAP_MS {
                believed_ms = believed_ms.max(*doubted_ms);
            }
        }
        self.believed_ms.set(believed_ms);
        believed_ms + passed_ms
    }
}
