//! Bugs that a harness plants in transactions (`host/planted.rs`). Without the feature `simulation`
//! none of this code is compiled in.

use super::scan::{Recorder, Way};
use crate::env::{Plant, planted};
use crate::footprint::{Cut, Interval};

/// With [`Plant::RangeToLastKey`], a range counts as read up to the key that it returned, and not
/// beyond it up to the next key.
#[inline]
pub(super) fn pass_to_key(recorder: &mut Recorder<'_>, way: Way, key: &[u8]) {
    if planted(Plant::RangeToLastKey) {
        let Interval { start, end } = recorder.bounds().clone();
        recorder.pass(match way {
            Way::Forward => Interval { start, end: Some(Cut::after(key)) },
            Way::Backward => Interval { start: Cut::before(key), end },
        });
    }
}
