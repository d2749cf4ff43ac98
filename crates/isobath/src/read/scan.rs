//! Reads of many keys in order: merges the sources of a pinned view and resolves versions at a read
//! point.

use crate::cursor::{MergeCursor, VisibleCursor};
use crate::engine::{Engine, View};
use crate::error::Result;
use crate::footprint::WriteSet;
use crate::format::{FamilyId, Lsn};
use crate::read::begin::ReadAt;
use crate::read::source::Source;
use crate::table::ExtentRef;
use std::ops::Bound;
use std::sync::Arc;

/// A scan's cursor: visible keys within bounds.
pub(crate) type Scan = VisibleCursor<MergeCursor<Source>>;

/// The bounds of the keys that a scan may show.
#[derive(Clone, Debug)]
pub(crate) struct ScanBounds {
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

impl ScanBounds {
    /// True if no key can lie within the bounds.
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

/// What a scan reads: a view, and a read point that the view can serve.
pub(crate) struct Pin {
    engine: Arc<Engine>,
    view: Arc<View>,
    point: Lsn,
    fill_cache: bool,
    /// What the transaction has written to the family, and to others.
    own: Option<(WriteSet, FamilyId)>,
}

impl Pin {
    pub(crate) fn new(at: ReadAt<'_>) -> Result<Pin> {
        Pin::with_own(at, None)
    }

    /// Like [`Pin::new`], with what a transaction has written on top.
    pub(crate) fn with_own(at: ReadAt<'_>, own: Option<WriteSet>) -> Result<Pin> {
        let (view, point) = at.begin()?;
        let (view, engine) = (arc_swap::Guard::into_inner(view), at.engine.clone());
        let own = own.map(|own| (own, at.family.id));
        Ok(Pin { engine, view, point, fill_cache: at.options.fill_cache, own })
    }

    /// Fails once the database is closed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        self.engine.check_open()
    }

    /// Opens a scan without a position. The scan itself keeps alive what it reads.
    pub(crate) fn scan(&self, bounds: &ScanBounds) -> Result<Scan> {
        let sources = if bounds.is_empty() { Vec::new() } else { self.sources(bounds)? };
        let lower = bounds.lower.as_ref().map(Vec::as_slice);
        let upper = bounds.upper.as_ref().map(Vec::as_slice);
        Ok(VisibleCursor::new(MergeCursor::new(sources), self.point, lower, upper))
    }

    /// Calls `see` with each key within the bounds.
    pub(crate) fn each_key(&self, bounds: &ScanBounds, mut see: impl FnMut(&[u8])) -> Result<()> {
        let mut scan = self.scan(bounds)?;
        scan.seek_first()?;
        while let Some(key) = scan.key() {
            see(key);
            scan.next()?;
        }
        Ok(())
    }

    /// The sources, newest first.
    fn sources(&self, bounds: &ScanBounds) -> Result<Vec<Source>> {
        let (view, tables) = (&self.view, &self.engine.tables);
        let count = view.memtables.len() + view.tree.runs.len() + view.tree.levels.len();
        let mut sources = Vec::with_capacity(count + usize::from(self.own.is_some()));
        let own = self.own.iter().map(|(own, family)| own.cursor(*family, self.point));
        sources.extend(own.map(Source::Own));
        sources.extend(view.memtables.iter().map(|of| Source::memtable(&of.memtable)));
        let is_met = |extent: ExtentRef<'_>| extent.meets(&bounds.lower, &bounds.upper);
        for run in view.tree.runs.iter().filter(|run| is_met(run.extent())) {
            sources.push(Source::run(run, tables, self.fill_cache)?);
        }
        for level in view.tree.levels.iter().filter(|level| !level.is_empty()) {
            sources.push(Source::level(level, tables, self.fill_cache));
        }
        Ok(sources)
    }
}

impl ReadAt<'_> {
    /// The number of keys within `bounds`.
    pub(crate) fn count(self, bounds: &ScanBounds) -> Result<u64> {
        let mut count = 0;
        Pin::new(self)?.each_key(bounds, |_| count += 1)?;
        Ok(count)
    }
}
