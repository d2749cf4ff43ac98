//! Carries out one part of a compaction: reads the inputs, decides about each version, writes
//! tables. Installs nothing.
//!
//! The outputs become part of the tree only by the manifest edit that the caller makes. Until then
//! only the outcome holds the files. If the outcome is dropped, and after any error, they are
//! removed like any file that is not in use.

mod inputs;
mod job;
mod lineage;
#[cfg(test)]
mod tests;

pub(crate) use job::{CompactionJob, Outcome};
pub(super) use lineage::lineage;

use super::plan::{Compaction, Cutter};
use super::plants::cover_of_commit;
use crate::background::CancelToken;
use crate::blob::{BlobSink, Collected, FetchCounts, Fetcher};
use crate::cursor::{Cursor, Entry};
use crate::engine::{IoLimit, JobMemory};
use crate::env::{Plant, Reach, planted, preempt, reached, reached_if};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FamilyId, Lsn};
use crate::mvcc::{
    FilterVerdict, Filtering, Merging, ReaderPoints, Rewrite, Tally, Verdict, rewrite,
};
use crate::span::{Fragment, Fragments, Span, SpanSet};
use crate::table::cache::table_path;
use crate::table::{End, Extent, SliceMeta, TableContext, TableOptions, TableWriter};
use crate::version::{Beneath, FileNumbers, LiveFile, Slice};
use crate::vfs::{FileSystem, WriteFile};
use inputs::{Inputs, open_inputs, passed_of};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// After this many bytes, a part checks the cancel token and reports progress ...
const LOOK_BYTES: i64 = 256 << 10;
/// ... where a version counts for its key, its value, what of it is read from a blob file, and this
/// constant.
const VERSION_BYTES: i64 = 64;

/// Called from time to time, and once a part has read all, with the number of versions that a
/// compaction has read since the last call, with the bytes of values that it has moved, and with
/// whether the part goes on.
pub(crate) type Progress = Arc<dyn Fn(u64, u64, bool) + Send + Sync>;

/// What compactions of a family work with.
#[derive(Clone)]
pub(crate) struct CompactionContext {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) table_dir: PathBuf,
    pub(crate) uuid: [u8; 16],
    pub(crate) family: FamilyId,
    pub(crate) tables: TableContext,
    pub(crate) files: Arc<FileNumbers>,
    /// How outputs are written, for the compaction's depth and level.
    pub(crate) options: TableOptions,
    /// The read points that must be respected.
    pub(crate) readers: ReaderPoints,
    pub(crate) cancel: CancelToken,
    /// How fast outputs may be written.
    pub(crate) io_limit: Option<Arc<IoLimit>>,
    pub(crate) progress: Progress,
    /// How the family merges; `None` if it does not.
    pub(crate) merging: Option<Arc<Merging>>,
    /// The family's filter; `None` if all values stay.
    pub(crate) filtering: Option<Arc<Filtering>>,
    /// Blob files that are mostly garbage. What is left in them moves on.
    pub(crate) collected: Arc<BTreeMap<u64, Weak<LiveFile>>>,
    /// The most blob files that an output has values in.
    pub(crate) blobs_max: usize,
    /// An output with so many bytes of values in blob files ends.
    pub(crate) values_max: u64,
    /// What parts charge for what they take; `None` without a ceiling for memory.
    pub(crate) memory: Option<JobMemory>,
}

impl CompactionContext {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let file = self.fs.create(path)?;
        Ok(match &self.io_limit {
            Some(limit) => limit.limited(file, Some(&self.cancel)),
            None => file,
        })
    }

    /// Makes the names of outputs durable, where no engine does it for several jobs at once.
    #[cfg(any(test, feature = "bench-internals"))]
    pub(crate) fn sync_names(&self) -> Result<()> {
        self.files.sync_names(&*self.fs, &self.table_dir)
    }
}

/// What a part of a compaction wrote.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) slices: Vec<SliceMeta>,
    pub(super) files: Vec<Arc<LiveFile>>,
    pub(super) bytes: u64,
    /// Bytes of values that were read from blob files.
    pub(super) value_bytes_read: u64,
    /// How many entries of each input it has passed.
    pub(super) passed: Vec<u64>,
    pub(super) tally: Tally,
}

/// Merges the keys of `part`. `part_bytes` is about what the part reads.
pub(super) fn run_part(
    context: &CompactionContext,
    compaction: &Compaction,
    part: &Extent,
    part_bytes: u64,
) -> Result<Written> {
    let needs = || (compaction.input_rows() as u64, keys_of_output(compaction));
    let admit = |memory: &JobMemory| memory.admit(needs(), &context.cancel);
    let charge = context.memory.as_ref().map(admit).transpose()?;
    let table_keys = charge.as_ref().map_or(u64::MAX, |charge| charge.table_keys);
    let mut inputs = open_inputs(compaction, &context.tables);
    match &*part.start {
        [] => inputs.seek_first()?,
        start => inputs.seek(start)?,
    }
    let beneath = Beneath::new(&compaction.beneath, &context.tables);
    let spans = spans_of(context, compaction, part)?;
    let create = |path: &Path| context.create(path);
    let collected = Collected { files: &context.collected, tables: &context.tables };
    let sink = BlobSink::new(&create, &context.table_dir, context.uuid, &context.files);
    let mut work = PartWork {
        context,
        compaction,
        part,
        beneath,
        outputs: Outputs::new(context, (compaction, part), (part_bytes, table_keys), spans),
        sink: sink.collecting(collected),
        fetched: FetchCounts::default(),
        read: 0,
        told: 0,
        moved_told: 0,
        until_look: 0,
        tally: Tally::default(),
    };
    if let Err(error) = rewrite(&mut inputs, &context.readers, &mut work) {
        drop((inputs, work));
        return Err(culprit(context, compaction, part, error));
    }
    if work.filters() {
        // Its last keys may not have been judged.
        context.cancel.check()?;
    }
    work.tell(&inputs, false);
    let value_bytes_read = work.sink.read_bytes() + work.fetched.read_bytes();
    let (blobs, blob_bytes) = work.sink.finish()?;
    let mut written = Written {
        tally: work.tally,
        value_bytes_read,
        passed: passed_of(inputs),
        ..work.outputs.finish()?
    };
    written.files.extend(blobs);
    written.bytes += blob_bytes;
    Ok(written)
}

/// The cause of a failure. Tables refuse what is out of order, and inputs have nothing of the kind
/// unless bytes changed before their checksums were made. Then the damage is that of an input,
/// which the family's next plans must know.
#[cold]
fn culprit(
    context: &CompactionContext,
    compaction: &Compaction,
    part: &Extent,
    error: Error,
) -> Error {
    if !matches!(error.kind(), ErrorKind::InvalidArgument { .. }) {
        return error;
    }
    let check = |slice: &Slice| {
        context.cancel.check()?;
        slice.table_for_job(&context.tables)?.verify(&mut |_| (), &mut |_| ())
    };
    let says_why = |error: &Error| error.is_corruption() || error.is_cancelled();
    let read = compaction.inputs.iter().filter(|(_, slice)| slice.extent().overlaps(part));
    read.filter_map(|(_, slice)| check(slice).err()).find(says_why).unwrap_or(error)
}

/// How many keys a table gets, at most: twice as many as its length calls for.
fn keys_of_output(compaction: &Compaction) -> u64 {
    let entries: u64 = compaction.inputs.iter().map(|(_, slice)| slice.meta.entries).sum();
    let of_all = |bytes: u64| 2.0 * bytes as f64 / compaction.input_bytes().max(1) as f64;
    let share = compaction.output_bytes.map_or(1.0, of_all);
    (entries as f64 * share.min(1.0)) as u64
}

/// The range deletes of the inputs within the part.
fn spans_of(
    context: &CompactionContext,
    compaction: &Compaction,
    part: &Extent,
) -> Result<Vec<Span>> {
    let mut spans: Vec<Span> = Vec::new();
    for (_, slice) in &compaction.inputs {
        if slice.meta.spans.is_some()
            && let table = slice.table_for_job(&context.tables)?
            && let Some(set) = table.spans()
        {
            spans.extend(set.truncated(&part.start, part.end.key()).spans());
        }
    }
    Ok(spans)
}

/// The range deletes that an output has: all except those that every reader sees and under which
/// nothing older lies. Whatever the inputs have under those is dropped.
fn kept_spans(spans: SpanSet, readers: &ReaderPoints, beneath: &Beneath<'_>) -> SpanSet {
    let is_clear = |fragment: &Fragment| {
        let end = fragment.end.as_deref().map_or(End::Unbounded, End::Excluded);
        let is_clear = beneath.is_clear_of_all(&Extent { start: &fragment.start, end });
        reached_if(Reach::SpanDropped, || is_clear);
        is_clear || planted(Plant::SpanDroppedEarly)
    };
    debug_assert!(spans.is_sound(), "{spans:?}");
    spans.without_idle(readers.oldest(), is_clear)
}

/// A part that a thread is working on.
struct PartWork<'a> {
    context: &'a CompactionContext,
    compaction: &'a Compaction,
    part: &'a Extent,
    beneath: Beneath<'a>,
    outputs: Outputs<'a>,
    sink: BlobSink<'a>,
    /// Values that were read for operands and for the filter.
    fetched: FetchCounts,
    /// Versions read, and the number of versions, read or skipped, that were reported as progress.
    read: u64,
    told: u64,
    /// Bytes of moved values that were reported.
    moved_told: u64,
    until_look: i64,
    tally: Tally,
}

impl Rewrite<Inputs> for PartWork<'_> {
    #[inline(always)]
    fn goes_on(&mut self, inputs: &Inputs, entry: &Entry<'_>, enters: bool) -> Result<bool> {
        preempt();
        if enters && self.part.ends_before(entry.key) {
            return Ok(false);
        }
        if self.until_look <= 0 {
            self.look(inputs)?;
        }
        self.read += 1;
        self.until_look -= (entry.key.len() + entry.value.len()) as i64 + VERSION_BYTES;
        Ok(true)
    }

    #[inline(always)]
    fn is_alone(&mut self, key: &[u8]) -> bool {
        planted(Plant::TombstoneDropped) || self.beneath.is_clear_of(key)
    }

    #[inline(always)]
    fn cover_above(&mut self, key: &[u8], seq: Lsn) -> Option<Lsn> {
        let spans = self.outputs.spans.as_mut()?;
        match planted(Plant::OrdinalIgnored) {
            true => cover_of_commit(spans, key, seq),
            false => spans.least_above(key, seq),
        }
    }

    #[inline(always)]
    fn merging(&self) -> Option<&Merging> {
        self.context.merging.as_deref()
    }

    #[inline(always)]
    fn made_max(&self) -> u64 {
        self.context.options.made_max
    }

    #[inline(always)]
    fn filters(&self) -> bool {
        self.context.filtering.is_some()
    }

    fn judge(&mut self, put: &Entry<'_>) -> FilterVerdict {
        match &self.context.filtering {
            // It may take long, and a close waits for it.
            Some(_) if self.context.cancel.is_cancelled() => {
                self.until_look = 0;
                FilterVerdict::Keep
            }
            Some(filtering) => filtering.judge(put, self.context.options.made_max, &mut self.tally),
            None => FilterVerdict::Keep,
        }
    }

    #[inline(always)]
    fn note(&mut self, verdict: Verdict, entry: &Entry<'_>, enters: bool) {
        note_verdict(verdict, entry, enters, self.compaction);
    }

    fn fetch(&mut self, separated: &Entry<'_>) -> Result<Vec<u8>> {
        reached(Reach::BlobValueJoined);
        let (tables, counts) = (&self.context.tables, &self.fetched);
        let fetcher = Fetcher { tables, counts, fill_cache: false, whole_max: 0 };
        let value = fetcher.fetch_for_job(separated)?;
        self.until_look -= value.len() as i64;
        Ok(value)
    }

    #[inline(always)]
    fn add(&mut self, entry: Entry<'_>, enters: bool) -> Result<()> {
        let moved = self.sink.moved_bytes();
        let crowds = |file| self.outputs.is_crowded_by(file);
        let entry = self.sink.place(entry, &self.context.options, crowds)?;
        self.outputs.add(entry, enters)?;
        self.until_look -= (self.sink.moved_bytes() - moved) as i64;
        Ok(())
    }
}

impl PartWork<'_> {
    /// Checks whether to go on, and reports progress.
    fn look(&mut self, inputs: &Inputs) -> Result<()> {
        self.context.cancel.check()?;
        self.tell(inputs, true);
        self.until_look = LOOK_BYTES;
        Ok(())
    }

    fn tell(&mut self, inputs: &Inputs, goes_on: bool) {
        let (passed, moved) = (self.read + inputs.shadowed_count(), self.sink.moved_bytes());
        if passed > self.told {
            (self.context.progress)(passed - self.told, moved - self.moved_told, goes_on);
            (self.told, self.moved_told) = (passed, moved);
        }
    }
}

/// Counts what happens to versions, so that a simulation can tell whether each case occurred.
#[inline(always)]
fn note_verdict(verdict: Verdict, entry: &Entry<'_>, enters: bool, compaction: &Compaction) {
    let is_delete = || entry.kind.is_tombstone();
    let is_older_kept = || !enters && verdict.keeps();
    reached_if(Reach::VersionsKept, is_older_kept);
    reached_if(Reach::VersionsKeptDeep, || compaction.depth >= 2 && is_older_kept());
    reached_if(Reach::DeleteKept, || verdict == Verdict::KeepLast && is_delete());
    reached_if(Reach::DeleteDropped, || verdict == Verdict::DropRest && enters && is_delete());
}

/// The tables that a part writes, one after the other.
struct Outputs<'a> {
    context: &'a CompactionContext,
    cutter: Cutter<'a>,
    /// An output with so many keys ends, or has no filter.
    table_keys: u64,
    writer: Option<TableWriter>,
    written: Written,
    /// The range deletes of the inputs, if there are any. Outputs take theirs from them.
    spans: Option<Fragments<'a>>,
    beneath: Beneath<'a>,
    /// Where the range deletes of the next output to end begin, and where the part ends.
    start: Vec<u8>,
    end: Option<&'a [u8]>,
    /// Where slices begin that stay in the level: no output reaches across.
    fences: &'a [Box<[u8]>],
}

impl<'a> Outputs<'a> {
    fn new(
        context: &'a CompactionContext,
        (compaction, part): (&'a Compaction, &'a Extent),
        (part_bytes, table_keys): (u64, u64),
        spans: Vec<Span>,
    ) -> Self {
        Outputs {
            context,
            cutter: Cutter::new(compaction, part_bytes),
            table_keys,
            writer: None,
            written: Written::default(),
            spans: (!spans.is_empty()).then(|| Fragments::new(spans, &context.readers)),
            beneath: Beneath::new(&compaction.beneath, &context.tables),
            start: part.start.to_vec(),
            end: part.end.key(),
            fences: &compaction.fences,
        }
    }

    /// Adds an entry. `enters` is false if it may have the same key as the one added before it.
    #[inline]
    fn add(&mut self, entry: Entry<'_>, enters: bool) -> Result<()> {
        if let Some(writer) = &mut self.writer {
            // A job on the output should not have to move values without end.
            let has_values = writer.slice_apart_bytes() >= self.context.values_max;
            let has_keys = writer.filter_keys() >= self.table_keys;
            let is_full = (has_values || has_keys) && self.cutter.may_cut();
            reached_if(Reach::SliceFullOfValues, || is_full && has_values);
            let len = if is_full { u64::MAX } else { writer.slice_disk_bytes() };
            if !(enters && self.cutter.cuts_before(entry.key, len)) {
                reached_if(Reach::CutHeldBack, || !enters && self.cutter.is_full(len));
                if let Some(spans) = &mut self.spans {
                    spans.note(entry.key, entry.seq);
                }
                return writer.add(entry);
            }
        } else {
            self.cutter.begin(entry.key);
        }
        self.close_before(entry.key)?;
        if let Some(spans) = &mut self.spans {
            spans.note(entry.key, entry.seq);
        }
        self.open()?.add(entry)
    }

    /// True if the output has values in as many blob files as it may, and none in this one.
    fn is_crowded_by(&self, blob_file: u64) -> bool {
        let blobs = self.writer.as_ref().map(|writer| writer.slice_blobs());
        blobs.is_some_and(|blobs| {
            blobs.count() >= self.context.blobs_max && !blobs.contains(blob_file)
        })
    }

    #[cold]
    fn open(&mut self) -> Result<&mut TableWriter> {
        let file = self.context.files.allocate();
        let number = file.number();
        self.written.files.push(file);
        let path = table_path(&self.context.table_dir, number);
        let mut writer =
            TableWriter::create(self.context.create(&path)?, self.context.uuid, number)?;
        writer.begin_slice(self.context.family, &self.context.options)?;
        writer.limit_filter(self.table_keys);
        Ok(self.writer.insert(writer))
    }

    /// Ends the current output, if there is one, before the key `next`, with which the next one
    /// begins. What lies between the two belongs to the first; but where fences lie between, what
    /// lies behind the last of them belongs to the second.
    #[cold]
    fn close_before(&mut self, next: &[u8]) -> Result<()> {
        self.close_at_fences(Some(next))?;
        if self.writer.is_some() {
            self.close_at(Some(next))?;
        }
        Ok(())
    }

    /// Ends an output at each fence before `next` if there are range deletes for it.
    fn close_at_fences(&mut self, next: Option<&[u8]>) -> Result<()> {
        if self.spans.is_none() {
            return Ok(());
        }
        while let Some((fence, behind)) = self.fences.split_first() {
            if next.is_some_and(|next| *next < **fence) {
                break;
            }
            self.fences = behind;
            if *self.start < **fence {
                self.close_at(Some(fence))?;
            }
        }
        Ok(())
    }

    /// Ends the current output at a key. Range deletes that reach across are cut there. Without a
    /// current output, range deletes up to the key get one of their own.
    fn close_at(&mut self, end: Option<&[u8]>) -> Result<()> {
        let spans = self.spans_up_to(end);
        if self.writer.is_none() && !spans.is_empty() {
            self.open()?;
        }
        if let Some(mut writer) = self.writer.take() {
            if !spans.is_empty() {
                writer.set_spans(spans);
            }
            let finished = writer.finish()?;
            if let Some(file) = self.written.files.last() {
                file.len_or(|| Ok(finished.file_len))?;
            }
            self.written.slices.extend(finished.slices);
            self.written.bytes += finished.file_len;
        }
        Ok(())
    }

    /// The range deletes of the output that ends at a key.
    fn spans_up_to(&mut self, end: Option<&[u8]>) -> SpanSet {
        let Some(spans) = &mut self.spans else { return SpanSet::default() };
        let all = planted(Plant::SpanNotTruncated).then(|| spans.clone().take_up_to(None));
        let spans = spans.take_up_to(end);
        if let Some(end) = end {
            debug_assert!(*self.start <= *end, "outputs ascend");
            self.start.clear();
            self.start.extend_from_slice(end);
        }
        kept_spans(all.unwrap_or(spans), &self.context.readers, &self.beneath)
    }

    fn finish(mut self) -> Result<Written> {
        self.close_at_fences(self.end)?;
        self.close_at(self.end)?;
        Ok(self.written)
    }
}
