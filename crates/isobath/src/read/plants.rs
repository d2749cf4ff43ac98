//! Bugs that a harness plants in scans (`host/planted.rs`). Without the feature `simulation` none
//! of this code is compiled in.

use crate::engine::{Keyspace, View};
use crate::env::{Plant, Point, planted, yield_point};
use crate::gap::Gaps;
use std::sync::Arc;

/// With [`Plant::GapsBeforePoint`], what gaps the family has before the scan takes its point.
#[inline]
pub(super) fn early_gaps(family: &Keyspace) -> Option<Option<Arc<Gaps>>> {
    if !planted(Plant::GapsBeforePoint) {
        return None;
    }
    let gaps = family.view().gaps.clone();
    yield_point(Point::Pinned);
    Some(gaps)
}

/// Replaces the gaps of a pinned view by those.
#[inline]
pub(super) fn with_gaps(mut view: Arc<View>, early: Option<Option<Arc<Gaps>>>) -> Arc<View> {
    if let Some(gaps) = early {
        Arc::make_mut(&mut view).gaps = gaps;
    }
    view
}
