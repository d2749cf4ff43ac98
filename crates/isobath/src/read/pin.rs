//! What a reader holds on to: a view and a read point. Scans over it merge the sources of the view
//! and resolve versions at the point.

use crate::cursor::{MergeCursor, VisibleCursor};
use crate::engine::{Engine, Keyspace, SpillFile, SpilledPart, View};
use crate::env::{Reach, reached_if};
use crate::error::Result;
use crate::footprint::WriteSet;
use crate::format::{FamilyId, Lsn};
use crate::memtable::Spans;
use crate::mvcc::{FirstEnd, Moment};
use crate::read::begin::ReadAt;
use crate::read::plants::{early_gaps, with_gaps};
use crate::read::scan::{Fetching, Scan, ScanBounds};
use crate::read::source::{OwnCursor, Source};
use crate::span::{Cover, Covers};
use crate::table::{ExtentRef, TableContext};
use crate::version::{Level, LiveFile, Slice};
use std::sync::Arc;

/// What a scan reads: a view, and a read point that the view can serve.
#[derive(Clone)]
pub(crate) struct Pin {
    pub(super) engine: Arc<Engine>,
    view: Arc<View>,
    pub(super) point: Lsn,
    /// The time at the point, in milliseconds since 1970.
    pub(super) unix_ms: u64,
    /// True if the reader relies on what it is shown.
    notes_ends: bool,
    pub(super) fill_cache: bool,
    family: FamilyId,
    /// What the transaction has written to the family, and to others.
    own: Option<WriteSet>,
    /// The files of its streams: another thread may end the transaction before the scan ends.
    own_streams: Vec<Arc<LiveFile>>,
    /// What it has written to the family before and holds in files, newest first.
    spilled: Vec<SpilledPart>,
    /// The family, if it may have operands.
    pub(super) merges: Option<Arc<Keyspace>>,
}

impl Pin {
    /// What is committed in a view. `is_merging` tells whether the family may have operands.
    pub(super) fn of_view(
        at: &ReadAt<'_>,
        view: Arc<View>,
        point: Lsn,
        unix_ms: u64,
        is_merging: bool,
    ) -> Pin {
        Pin {
            engine: at.engine.clone(),
            view,
            point,
            unix_ms,
            notes_ends: false,
            fill_cache: at.options.fill_cache,
            family: at.family.id,
            own: None,
            own_streams: Vec::new(),
            spilled: Vec::new(),
            merges: is_merging.then(|| at.family.clone()),
        }
    }

    #[inline]
    pub(crate) fn new(at: ReadAt<'_>) -> Result<Pin> {
        Pin::with_own(at, None, &[])
    }

    /// Like [`Pin::new`], with what a transaction has written on top: in files, oldest first, and
    /// then in memory.
    pub(crate) fn with_own(
        at: ReadAt<'_>,
        own: Option<WriteSet>,
        spilled: &[Arc<SpillFile>],
    ) -> Result<Pin> {
        let early = early_gaps(at.family);
        let (view, Moment { point, unix_ms }) = at.begin_at_moment()?;
        let view = with_gaps(arc_swap::Guard::into_inner(view), early);
        let parts = spilled.iter().rev().enumerate();
        let part = |(nth, file)| SpilledPart::new(file, at.family.id, nth, point);
        // Most scans are of no transaction that has spilled.
        let spilled =
            if spilled.is_empty() { Vec::new() } else { parts.filter_map(part).collect() };
        let is_merging = at.family.merging(&at.engine.options.operators).is_some();
        Ok(Pin { own, spilled, ..Pin::of_view(&at, view, point, unix_ms, is_merging) })
    }

    /// Has its scans note which of the values that they show ends first.
    pub(crate) fn note_ends(&mut self) {
        self.notes_ends = true;
    }

    /// Keeps the files of the streams that the transaction has put.
    pub(crate) fn keep_streams(&mut self, files: &[Arc<LiveFile>]) {
        self.own_streams.extend_from_slice(files);
    }

    /// Fails once the database is closed.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        self.engine.check_open()
    }

    /// Opens a scan without a position. The scan itself keeps alive what it reads.
    pub(crate) fn scan(&self, bounds: &ScanBounds) -> Result<Scan> {
        let mut scan = self.scan_keys(bounds)?;
        scan.show_values(true, self.fetching());
        Ok(scan)
    }

    /// The same, whose values are fetched when they are asked for, if they lie in blob files.
    pub(crate) fn scan_lazily(&self, bounds: &ScanBounds) -> Result<Scan> {
        let mut scan = self.scan_keys(bounds)?;
        scan.show_values(false, self.fetching());
        Ok(scan)
    }

    /// What fetches values of scans, if any lies in a blob file: most families have none.
    fn fetching(&self) -> Option<Box<Fetching>> {
        let View { tree, memtables, .. } = &*self.view;
        let has_streams = || memtables.iter().any(|of| of.epoch.has_streams());
        let has_streams = !self.own_streams.is_empty() || tree.has_streams() || has_streams();
        let has_any = tree.has_blobs() || has_streams;
        has_any.then(|| Box::new(Fetching::new(self.engine.clone(), self.fill_cache)))
    }

    /// The same of keys alone.
    pub(crate) fn scan_keys(&self, bounds: &ScanBounds) -> Result<Scan> {
        let sources = if bounds.is_empty() { Vec::new() } else { self.sources(bounds)? };
        let lower = bounds.lower.as_ref().map(Vec::as_slice);
        let upper = bounds.upper.as_ref().map(Vec::as_slice);
        let covers = self.covers(bounds, sources.len())?;
        let mut scan = VisibleCursor::new(MergeCursor::new(sources), self.point, lower, upper);
        scan.at_time(self.unix_ms);
        scan.noting_ends(self.notes_ends);
        scan.hiding(covers);
        scan.jumping(self.view.gaps.clone(), self.own_count(bounds));
        let is_merging = self.merges.is_some();
        if is_merging {
            scan.folding(Box::new(self.clone()));
        }
        Ok(Scan::new(scan))
    }

    /// How many sources come before those that are there for every reader.
    fn own_count(&self, bounds: &ScanBounds) -> usize {
        usize::from(self.own.is_some()) + self.spilled_within(bounds).count()
    }

    /// What the transaction holds in files within the bounds, newest first.
    fn spilled_within<'p>(
        &'p self,
        bounds: &'p ScanBounds,
    ) -> impl Iterator<Item = &'p SpilledPart> {
        let is_met = |part: &&SpilledPart| part.meta().extent().meets(&bounds.lower, &bounds.upper);
        self.spilled.iter().filter(is_met)
    }

    /// Makes the longest row of dead keys that a scan of this pin has passed known to its family,
    /// if it is worth that.
    #[inline]
    pub(crate) fn learn(&self, scan: &mut Scan) {
        if scan.has_stretch() {
            self.learn_gap(scan);
        }
    }

    #[cold]
    #[inline(never)]
    fn learn_gap(&self, scan: &mut Scan) {
        let engine = &self.engine;
        // The views of a reader beside the writer have no gaps, because no writer cuts them.
        if engine.shown.is_none()
            && let Some(stretch) = scan.take_stretch()
            && let Some(family) = engine.families.by_id(self.family)
        {
            let is_known = family.learn_gap(&stretch, self.point, || engine.log.touch());
            engine.gauges.gaps_found.add(u64::from(is_known));
        }
    }

    /// The range deletes of the sources, which they number as `sources` does; `None` if there are
    /// none. What is added to a memtable later is not below the point.
    pub(super) fn covers(
        &self,
        bounds: &ScanBounds,
        source_count: usize,
    ) -> Result<Option<Box<dyn Covers>>> {
        let (view, tables) = (&self.view, &self.engine.tables);
        let mut at = usize::from(self.own.is_some());
        let mut covers: Vec<(usize, CoverSource)> = Vec::new();
        if let Some(own) = self.own.as_ref().filter(|own| own.has_spans()) {
            covers.push((0, CoverSource::Own(own.clone(), self.family)));
        }
        for part in self.spilled_within(bounds) {
            if part.has_spans() {
                covers.push((at, CoverSource::Spilled(part.clone())));
            }
            at += 1;
        }
        for of in &view.memtables {
            covers.extend(of.memtable.spans().map(|spans| (at, CoverSource::Memtable(spans))));
            at += 1;
        }
        let is_met = |extent: ExtentRef<'_>| extent.meets(&bounds.lower, &bounds.upper);
        for group in view.layer_groups_within(self.point, bounds.borrowed()) {
            let with_spans = group.iter().filter(|layer| layer.part.has_spans());
            covers.extend(with_spans.map(|of| (at, CoverSource::Spilled(of.part.clone()))));
            at += 1;
        }
        for run in view.tree.runs.iter().filter(|run| is_met(run.extent())) {
            if run.meta.spans.is_some() {
                covers.push((at, CoverSource::Run(run.clone())));
            }
            at += 1;
        }
        for level in view.tree.levels.iter().filter(|level| !level.is_empty()) {
            if level.has_spans_within(&bounds.lower, &bounds.upper) {
                covers.push((at, CoverSource::Level(level.clone())));
            }
            at += 1;
        }
        debug_assert!(
            at == source_count || bounds.is_empty(),
            "range deletes name {at} sources of {source_count}"
        );
        if covers.is_empty() {
            return Ok(None);
        }
        debug_assert!(covers.is_sorted_by_key(|(at, _)| *at), "newest first, as the sources are");
        Ok(Some(Box::new(ScanCovers { covers, tables: tables.clone() })))
    }

    /// Calls `see` with each key within the bounds. Of their values it tells which ends first.
    pub(crate) fn each_key(
        &self,
        bounds: &ScanBounds,
        mut see: impl FnMut(&[u8]),
    ) -> Result<Option<FirstEnd>> {
        let mut scan = self.scan_keys(bounds)?;
        scan.seek_first()?;
        while let Some(key) = scan.key() {
            see(key);
            scan.next()?;
        }
        self.learn(&mut scan);
        Ok(scan.first_end().cloned())
    }

    /// The sources, newest first.
    pub(super) fn sources(&self, bounds: &ScanBounds) -> Result<Vec<Source>> {
        let (view, tables) = (&self.view, &self.engine.tables);
        let tree = &view.tree;
        let count = view.memtables.len() + tree.runs.len() + tree.levels.len();
        let mut sources = Vec::with_capacity(count + self.own_count(bounds));
        let own = self.own.iter().map(|own| own.cursor(self.family, self.point));
        sources.extend(own.map(|cursor| Source::Own(OwnCursor::Memory(cursor))));
        sources.extend(self.spilled_within(bounds).map(|part| Source::spilled(part, false)));
        sources.extend(view.memtables.iter().map(|of| Source::memtable(&of.memtable)));
        let layers = view.layer_groups_within(self.point, bounds.borrowed());
        sources.extend(layers.map(|group| Source::layers(group, self.fill_cache)));
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

/// The range deletes of a scan's sources, newest first.
struct ScanCovers {
    covers: Vec<(usize, CoverSource)>,
    tables: Arc<TableContext>,
}

enum CoverSource {
    Own(WriteSet, FamilyId),
    Spilled(SpilledPart),
    Memtable(Spans),
    Run(Arc<Slice>),
    Level(Arc<Level>),
}

impl Covers for ScanCovers {
    fn cover(&self, key: &[u8], point: Lsn) -> Result<Option<(Cover, usize)>> {
        let in_slice = |slice: &Arc<Slice>| -> Result<Option<Cover>> {
            if slice.meta.min_seq >= point {
                return Ok(None);
            }
            let table = slice.table(&self.tables)?;
            Ok(table.spans().and_then(|spans| spans.cover(key, point)))
        };
        for (at, source) in &self.covers {
            let cover = match source {
                CoverSource::Own(own, family) => {
                    let cover = own.cover(*family, key, point);
                    reached_if(Reach::SpanOwnHid, || cover.is_some());
                    cover
                }
                CoverSource::Spilled(part) => part.cover(key),
                CoverSource::Memtable(spans) => spans.cover(key, point),
                CoverSource::Run(slice) => in_slice(slice)?,
                CoverSource::Level(level) => match level.find_spanned(key) {
                    Some(slice) => in_slice(slice)?,
                    None => None,
                },
            };
            if let Some(cover) = cover {
                return Ok(Some((cover, *at)));
            }
        }
        Ok(None)
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::table::SpanMeta;
    use crate::table::cache::{BlockCache, FileCache};
    use crate::version::fixtures::meta;
    use crate::version::{LiveFile, ObsoleteFiles, Tree};
    use crate::vfs::{FileAccess, MemoryFs};

    /// A scan may stand at a key in memory and not have opened the table. Who does not need it must
    /// not fail because of it.
    #[test]
    fn range_deletes_that_are_all_newer_are_not_read() {
        let spanned = |file: u64, start: &str, end: &str| {
            let mut meta = meta(0, file, start, end, (10, 20));
            let (start, end) = (start.as_bytes().into(), Some(end.as_bytes().into()));
            meta.spans = Some(Box::new(SpanMeta { fragments: 1, start, end }));
            Slice::new(meta, LiveFile::new(file, &ObsoleteFiles::new()), Box::default())
        };
        let slices = vec![(0, spanned(9, "a", "z")), (6, spanned(8, "a", "z"))];
        let tree = Tree::default().with(&[], slices).unwrap();
        let level = tree.levels.iter().find(|level| !level.is_empty()).unwrap();
        let access = FileAccess::Positional;
        let files = FileCache::new(Arc::new(MemoryFs::new()), "/db/table".into(), access, 4);
        let tables = Arc::new(TableContext::new(Arc::new(files), BlockCache::new(0)));
        for source in [CoverSource::Run(tree.runs[0].clone()), CoverSource::Level(level.clone())] {
            let covers = ScanCovers { covers: vec![(0, source)], tables: tables.clone() };
            for point in [9, 10] {
                assert_eq!(covers.cover(b"k", point).unwrap(), None);
            }
            covers.cover(b"k", 11).unwrap_err();
        }
    }
}
