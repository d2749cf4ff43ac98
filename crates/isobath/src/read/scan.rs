//! Many keys in order: the sources of a pinned view, merged and resolved at a read point.

use crate::cursor::{MergeCursor, VisibleCursor};
use crate::engine::{Engine, Family, View};
use crate::error::Result;
use crate::format::Lsn;
use crate::read::begin::begin;
use crate::read::source::Source;
use crate::table::ExtentRef;
use std::ops::Bound;
use std::sync::Arc;

/// A scan's cursor: visible keys within bounds.
pub(crate) type Scan = VisibleCursor<MergeCursor<Source>>;

/// The keys that a scan may show.
#[derive(Clone, Debug)]
pub(crate) struct ScanBounds {
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

impl ScanBounds {
    /// True if no key can lie within.
    pub(crate) fn is_empty(&self) -> bool {
        match (&self.lower, &self.upper) {
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (
                Bound::Included(lower) | Bound::Excluded(lower),
                Bound::Included(upper) | Bound::Excluded(upper),
            ) => lower >= upper,
            _ => false,
        }
    }
}

/// What a scan reads: a view and a read point that fit.
pub(crate) struct Pin {
    engine: Arc<Engine>,
    view: Arc<View>,
    point: Lsn,
}

impl Pin {
    /// Pins `family` at the registered `point`, or at the newest read point.
    pub(crate) fn new(engine: &Arc<Engine>, family: &Family, point: Option<Lsn>) -> Result<Pin> {
        let (view, point) = begin(engine, family, point)?;
        Ok(Pin { engine: engine.clone(), view: arc_swap::Guard::into_inner(view), point })
    }

    /// Opens a scan, not positioned. It keeps what it reads alive by itself.
    pub(crate) fn scan(&self, bounds: &ScanBounds) -> Result<Scan> {
        let sources =
            if bounds.is_empty() { Vec::new() } else { sources(&self.engine, &self.view, bounds)? };
        let lower = bounds.lower.as_ref().map(Vec::as_slice);
        let upper = bounds.upper.as_ref().map(Vec::as_slice);
        Ok(VisibleCursor::new(MergeCursor::new(sources), self.point, lower, upper))
    }
}

/// Newest first.
fn sources(engine: &Engine, view: &Arc<View>, bounds: &ScanBounds) -> Result<Vec<Source>> {
    let mut sources =
        Vec::with_capacity(view.memtables.len() + view.tree.runs.len() + view.tree.levels.len());
    sources.extend(view.memtables.iter().map(|of| Source::memtable(&of.memtable)));
    let is_met = |extent: ExtentRef<'_>| extent.meets(&bounds.lower, &bounds.upper);
    for run in view.tree.runs.iter().filter(|run| is_met(run.extent())) {
        sources.push(Source::run(run, &engine.tables)?);
    }
    for level in view.tree.levels.iter().filter(|level| !level.is_empty()) {
        sources.push(Source::level(level, &engine.tables));
    }
    Ok(sources)
}
