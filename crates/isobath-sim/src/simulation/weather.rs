//! The delays of a disk: operations are slow, or stop for seconds, and end in another order than
//! they began in.
//!
//! An operation waits for a while, takes effect, and ends a while later, so others overtake it on
//! both sides.

use super::runtime;
use isobath::env::reach::{Reach, reached};

/// How long operations on files take, in virtual nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// Half of the average time of an operation.
    usual_ns: u64,
    /// How often, of a thousand times, it stands still ...
    stall_permille: u64,
    /// ... and for how long at most.
    stall_ns_max: u64,
}

impl Weather {
    /// Nothing takes any time.
    pub(super) const CALM: Weather = Weather { usual_ns: 0, stall_permille: 0, stall_ns_max: 0 };

    pub(super) fn draw(rng: &mut fastrand::Rng) -> Weather {
        let (usual_ns, stall_permille, stall_ns_max) = match rng.u8(..8) {
            0..4 => return Weather::CALM,
            4 => (20_000, 0, 0),
            5 => (2_000_000, 0, 0),
            6 => (50_000, 10, 300_000_000),
            _ => (0, 4, 5_000_000_000),
        };
        Weather { usual_ns, stall_permille, stall_ns_max }
    }

    /// The longest that an operation waits.
    pub(super) fn longest_ns(self) -> u64 {
        self.usual_ns.max(self.stall_ns_max)
    }

    /// Waits for the device, before an operation takes effect or after it.
    pub(super) fn wait(self) {
        let stalls = self.stall_permille > 0 && runtime::random(1000) < self.stall_permille;
        let ns_max = if stalls { self.stall_ns_max } else { self.usual_ns };
        if ns_max > 0 {
            reached(if stalls { Reach::DiskStalled } else { Reach::DiskSlow });
            runtime::sleep_ns(runtime::random(ns_max));
        }
    }
}
