//! A tree without tables, for tests. A slice states how many of the integer keys between its ends
//! it holds, spread evenly, and a compaction computes what its outputs would hold. Plans and cuts
//! come from the real planner and cutter, so tests and figures measure those.

use super::cut::Cutter;
use super::{Compaction, Hints, Plan};
use crate::table::{BlockHandle, End, ExtentRef, SliceMeta};
use crate::version::{LiveFile, ObsoleteFiles, Slice, Tree};
use std::sync::Arc;

pub(crate) const ENTRY_BYTES: u64 = 64;

pub(crate) struct Model {
    pub(crate) tree: Tree,
    pub(crate) next_file: u64,
    pub(crate) next_seq: u64,
    obsolete: Arc<ObsoleteFiles>,
}

/// The entries that a job reads and writes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub(crate) entries_in: u64,
    pub(crate) entries_out: u64,
}

/// The changes of a finished job to the tree.
pub(crate) struct Done {
    removed: Vec<(usize, u64)>,
    added: Vec<(usize, Arc<Slice>)>,
    pub(crate) work: Work,
}

pub(crate) fn number(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("keys of the model have 8 bytes"))
}

struct Spread {
    start: u64,
    end: u64,
    density: f64,
    deletes: f64,
}

impl Spread {
    fn of(slice: &Slice) -> Spread {
        let (start, end) = ends(&slice.extent());
        let entries = slice.meta.entries as f64;
        let deletes = slice.meta.deletes as f64 / entries;
        Spread { start, end, density: (entries / (end - start) as f64).min(1.0), deletes }
    }
}

impl Model {
    pub(crate) fn new() -> Model {
        Model { tree: Tree::default(), next_file: 1, next_seq: 1, obsolete: ObsoleteFiles::new() }
    }

    pub(crate) fn slice(
        &mut self,
        keys: (u64, u64),
        entries: u64,
        deletes: u64,
        seqs: (u64, u64),
    ) -> Arc<Slice> {
        let file = self.next_file;
        self.next_file += 1;
        let meta = SliceMeta {
            file,
            family: 0,
            root: BlockHandle { offset: 128, len: 64 },
            disk_bytes: entries * ENTRY_BYTES,
            raw_bytes: entries * ENTRY_BYTES,
            entries,
            deletes,
            smallest: keys.0.to_be_bytes().into(),
            largest: keys.1.to_be_bytes().into(),
            min_seq: seqs.0,
            max_seq: seqs.1,
            spans: None,
            ends: None,
            oldest_delete: None,
            blobs: Box::default(),
            streams: Box::default(),
        };
        Slice::new(meta, LiveFile::new(file, &self.obsolete), Box::default())
    }

    /// Adds a run over `keys`, ends included, as a flush does.
    pub(crate) fn flush(&mut self, keys: (u64, u64), entries: u64, deletes: u64) {
        let seqs = (self.next_seq, self.next_seq + entries);
        self.next_seq += entries + 1;
        let run = self.slice(keys, entries, deletes, seqs);
        self.tree = self.tree.with(&[], vec![(0, run)]).unwrap();
    }

    /// The changes that carrying out a plan makes.
    pub(crate) fn run(&mut self, plan: &Plan, hints: &Hints) -> Done {
        match plan {
            Plan::DoNothing => Done { removed: vec![], added: vec![], work: Work::default() },
            Plan::Move(moves) => Done {
                removed: moves.iter().map(|step| (step.from, step.slice.meta.file)).collect(),
                added: moves.iter().map(|step| (step.to, step.slice.clone())).collect(),
                work: Work::default(),
            },
            Plan::Compaction(compaction) => self.run_compaction(compaction, hints),
            Plan::Drop(dropped) => Done {
                removed: dropped.slices.iter().map(|(at, slice)| (*at, slice.meta.file)).collect(),
                added: vec![],
                work: Work::default(),
            },
        }
    }

    pub(crate) fn install(&mut self, done: Done) {
        self.tree = self.tree.with(&done.removed, done.added).unwrap();
        assert!(self.tree.is_sound());
    }

    fn run_compaction(&mut self, compaction: &Compaction, hints: &Hints) -> Done {
        let spreads: Vec<_> =
            compaction.inputs.iter().map(|(_, slice)| Spread::of(slice)).collect();
        let seqs =
            compaction.inputs.iter().map(|(_, slice)| (slice.meta.min_seq, slice.meta.max_seq));
        let seqs = seqs.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap();
        let drops_deletes = compaction.is_bottom() && seqs.1 < hints.oldest_reader;
        let mut cutter = Cutter::new(compaction, compaction.input_bytes());
        let mut added = Vec::new();
        let (mut start, mut last, mut held, mut deletes) = (0, 0, 0.0f64, 0.0);
        let mut work = Work {
            entries_in: compaction.inputs.iter().map(|(_, slice)| slice.meta.entries).sum(),
            entries_out: 0,
        };
        for (from, to) in steps(compaction, &spreads) {
            let here = |spread: &&Spread| spread.start <= from && to <= spread.end;
            let absent: f64 =
                spreads.iter().filter(here).map(|spread| 1.0 - spread.density).product();
            let most_deleted =
                spreads.iter().filter(here).map(|spread| spread.deletes).fold(0.0, f64::max);
            let live = (1.0 - absent) * (to - from) as f64;
            if live == 0.0 {
                continue;
            }
            // Less than one entry counts as one; otherwise a fence would not cut.
            let bytes = held.ceil() as u64 * ENTRY_BYTES;
            if cutter.cuts_before(&from.to_be_bytes(), bytes) {
                added.push((start, last, held, deletes));
                (held, deletes) = (0.0, 0.0);
            }
            if held == 0.0 {
                start = from;
            }
            last = to - 1;
            held += live * if drops_deletes { 1.0 - most_deleted } else { 1.0 };
            deletes += live * if drops_deletes { 0.0 } else { most_deleted };
        }
        added.push((start, last, held, deletes));
        let mut slices = Vec::new();
        for (start, last, held, deletes) in added.into_iter().filter(|output| output.2 >= 1.0) {
            work.entries_out += held as u64;
            slices.push((
                compaction.target,
                self.slice((start, last), held as u64, deletes as u64, seqs),
            ));
        }
        let removed =
            compaction.inputs.iter().map(|(level, slice)| (*level, slice.meta.file)).collect();
        Done { removed, added: slices, work }
    }
}

/// The first number of an extent, and the number after its last.
fn ends(extent: &ExtentRef<'_>) -> (u64, u64) {
    let end = match extent.end {
        End::Included(last) => number(last) + 1,
        End::Excluded(end) => number(end),
        End::Unbounded => u64::MAX,
    };
    (number(extent.start), end)
}

/// Ranges of keys in which no slice begins or ends. They are short enough that cuts between them
/// are fine enough.
fn steps(compaction: &Compaction, spreads: &[Spread]) -> Vec<(u64, u64)> {
    let mut edges: Vec<u64> =
        spreads.iter().flat_map(|spread| [spread.start, spread.end]).collect();
    let (first, end) = ends(&compaction.hull());
    edges.extend(compaction.guides.iter().map(|slice| ends(&slice.extent()).1));
    edges.extend(compaction.fences.iter().map(|fence| number(fence)));
    let wanted = compaction.output_bytes.unwrap_or(u64::MAX);
    let fine = compaction.input_bytes() / (wanted / 64).max(1) + 1;
    let width = ((end - first) / fine).max(1);
    edges.extend((0..fine).map(|at| first + at * width));
    edges.retain(|edge| (first..=end).contains(edge));
    edges.sort_unstable();
    edges.dedup();
    edges.windows(2).map(|pair| (pair[0], pair[1])).collect()
}

/// A policy for trees that are small enough to read.
#[cfg(test)]
pub(crate) fn small_policy() -> super::Policy {
    super::Policy {
        l0_trigger_runs: 4,
        size_ratio_max: 8,
        base_bytes: 1 << 20,
        target_file_bytes: 256 << 10,
        job_bytes_max: 2 << 20,
        levels_max: 5,
        ..super::Policy::default()
    }
}
