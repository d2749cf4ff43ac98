//! Plans carried out on real tables in memory and installed in a real manifest. Whatever is
//! written, deleted, snapshotted and compacted, and in whatever order jobs end, every reader must
//! find what a list of all versions says.

use super::{CompactionContext, CompactionJob, Outcome};
use crate::background::CancelToken;
use crate::compact::plan::fixtures::small_policy;
use crate::compact::plan::{
    Compaction, Hints, ManualPlan, ManualRange, Plan, Policy, plan, plan_manual,
};
use crate::cursor::fixtures::{Version, sort_versions};
use crate::cursor::{MergeCursor, VisibleCursor};
use crate::engine::{Busy, JobId};
use crate::error::{ErrorKind, Result};
use crate::format::{DEFAULT_FAMILY, FIRST_LSN, Lsn, OpKind};
use crate::mvcc::ReaderPoints;
use crate::table::cache::{BlockCache, FileCache, table_path};
use crate::table::{Codec, TableContext, TableOptions, TableWriter};
use crate::version::{Change, Edit, Tree, VersionSet};
use crate::vfs::{Fault, FileAccess, FileOp, FileSystem, MemoryFs};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod edges;
#[cfg(not(any(loom, shuttle)))]
mod scans;
#[cfg(not(any(loom, shuttle)))]
mod separated;

struct Bench {
    fs: MemoryFs,
    set: VersionSet,
    tables: TableContext,
    policy: Policy,
    /// Everything ever written.
    history: Vec<Version>,
    snapshots: BTreeSet<Lsn>,
    next_seq: Lsn,
    busy: Busy,
    running: Vec<(JobId, Running)>,
}

enum Running {
    Moves(Outcome),
    Compaction(Box<CompactionJob>),
}

fn tiny_policy() -> Policy {
    Policy { base_bytes: 2048, target_file_bytes: 1024, job_bytes_max: 8192, ..small_policy() }
}

impl Bench {
    fn new() -> Bench {
        let fs = MemoryFs::new();
        let shared: Arc<dyn FileSystem> = Arc::new(fs.clone());
        let db = Path::new("/db");
        let mut set = VersionSet::create(shared.clone(), db, [7; 16], b"{}").unwrap();
        let ceiling = Edit::new(vec![Change::LsnCeiling { lsn: 1 << 40 }]);
        set.install(ceiling, &[]).unwrap();
        let files =
            Arc::new(FileCache::new(shared, db.join("table"), FileAccess::Positional, 1000));
        Bench {
            fs,
            set,
            tables: TableContext::new(files, BlockCache::new(1 << 20)),
            policy: tiny_policy(),
            history: Vec::new(),
            snapshots: BTreeSet::new(),
            next_seq: FIRST_LSN,
            busy: Busy::default(),
            running: Vec::new(),
        }
    }

    fn tree(&self) -> Arc<Tree> {
        self.set.state().family(DEFAULT_FAMILY).unwrap().tree.clone()
    }

    fn table_dir(&self) -> PathBuf {
        Path::new("/db").join("table")
    }

    fn options(&self) -> TableOptions {
        let codec = Codec::None;
        TableOptions { block_len: 128, restart_interval: 3, codec, ..TableOptions::default() }
    }

    fn flush(&mut self, writes: &[(u8, bool)]) {
        let mut versions: Vec<Version> = Vec::new();
        for &(key, is_delete) in writes {
            let (seq, key) = (self.next_seq, vec![b'k', key / 8, key]);
            self.next_seq += 1;
            versions.push(match is_delete {
                true => Version::delete(&key, seq),
                false => Version::put(&key, seq, format!("value {seq} of the key").as_bytes()),
            });
        }
        self.history.extend(versions.iter().cloned());
        sort_versions(&mut versions);
        let file = self.set.files().allocate();
        let path = table_path(&self.table_dir(), file.number());
        let mut writer =
            TableWriter::create(self.fs.create(&path).unwrap(), [7; 16], file.number()).unwrap();
        writer.begin_slice(DEFAULT_FAMILY, &self.options()).unwrap();
        for version in &versions {
            writer.add(version.as_entry()).unwrap();
        }
        let slices = writer.finish().unwrap().slices;
        let added = slices.into_iter().map(|meta| Change::AddSlice { level: 0, meta }).collect();
        self.set.install(Edit::new(added), &[file]).unwrap();
    }

    fn hints(&self, is_idle: bool) -> Hints {
        let oldest = self.snapshots.first().copied().unwrap_or(self.next_seq);
        // Runs to come are as long as those that are there.
        let tree = self.tree();
        let run_bytes = tree.held_bytes(0) / tree.runs.len().max(1) as u64;
        Hints { run_bytes, oldest_reader: oldest, is_idle, ..Hints::default() }
    }

    fn context(&self) -> CompactionContext {
        CompactionContext {
            fs: Arc::new(self.fs.clone()),
            table_dir: self.table_dir(),
            uuid: [7; 16],
            family: DEFAULT_FAMILY,
            tables: self.tables.clone(),
            files: self.set.files().clone(),
            options: self.options(),
            readers: ReaderPoints::new(self.snapshots.iter().copied().collect(), self.next_seq),
            cancel: CancelToken::new(),
            io_limit: None,
            progress: Arc::new(|_, _, _| ()),
            merging: None,
            collected: Arc::default(),
            blobs_max: usize::MAX,
            values_max: u64::MAX,
            filtering: None,
            memory: None,
        }
    }

    fn plan(&self, is_idle: bool) -> Plan {
        plan(&self.tree(), &self.policy, &self.busy, &self.hints(is_idle))
    }

    fn begin(&mut self, plan: Plan) -> bool {
        let id = self.busy.begin(&plan);
        let running = match plan {
            Plan::DoNothing => return false,
            Plan::Move(moves) => Running::Moves(Outcome::of_moves(&moves)),
            Plan::Drop(dropped) => Running::Moves(Outcome::of_drop(&dropped)),
            Plan::Compaction(compaction) => {
                Running::Compaction(Box::new(CompactionJob::new(compaction, self.context())))
            }
        };
        self.running.push((id, running));
        true
    }

    fn end(&mut self, at: usize) {
        let (id, running) = self.running.remove(at);
        let outcome = match running {
            Running::Moves(outcome) => outcome,
            Running::Compaction(job) => job.finish(CompactionContext::sync_names).unwrap(),
        };
        self.install(outcome);
        self.busy.end(id);
    }

    fn install(&mut self, outcome: Outcome) {
        let edit = Edit::new(outcome.changes(DEFAULT_FAMILY));
        self.set.install(edit, &outcome.files).unwrap();
        assert!(self.tree().is_sound());
        drop(outcome);
        self.remove_obsolete();
    }

    /// Removes the files that nothing uses.
    fn remove_obsolete(&mut self) {
        for number in self.set.take_obsolete().unwrap() {
            let path = table_path(&self.table_dir(), number);
            // The number may belong to a file that could not be created.
            if self.fs.exists(&path).unwrap() {
                self.fs.remove(&path).unwrap();
            }
        }
    }

    fn end_all(&mut self) {
        while !self.running.is_empty() {
            self.end(0);
        }
    }

    fn compact_all(&mut self, is_idle: bool) {
        self.end_all();
        while self.begin(self.plan(is_idle)) {
            self.end_all();
        }
    }

    fn answers(&self, point: Lsn) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let tree = self.tree();
        let mut sources = Vec::new();
        for (_, slice) in tree.iter() {
            sources.push(slice.table(&self.tables)?.cursor(true));
        }
        let merged = MergeCursor::new(sources);
        let mut cursor = VisibleCursor::new(merged, point, Bound::Unbounded, Bound::Unbounded);
        let mut found = BTreeMap::new();
        cursor.seek_first()?;
        while let Some((key, value)) = cursor.entry() {
            found.insert(key.to_vec(), value.to_vec());
            cursor.next()?;
        }
        Ok(found)
    }

    fn truth(&self, point: Lsn) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut newest = BTreeMap::new();
        for version in self.history.iter().filter(|version| version.seq < point) {
            newest.insert(version.key.clone(), version);
        }
        let puts = newest.into_iter().filter(|(_, version)| version.kind == OpKind::Put);
        puts.map(|(key, version)| (key, version.value.clone())).collect()
    }

    #[track_caller]
    fn check(&self) {
        for point in self.snapshots.iter().copied().chain([self.next_seq]) {
            assert_eq!(self.answers(point).unwrap(), self.truth(point), "at {point}");
        }
    }

    fn table_files(&self) -> BTreeSet<String> {
        self.fs.list(&self.table_dir()).unwrap().into_iter().map(|entry| entry.name).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Flush(Vec<(u8, bool)>),
    Snapshot,
    /// Releases one of the snapshots.
    Release(usize),
    Begin {
        is_idle: bool,
    },
    End(usize),
    Request(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let keys = prop_oneof![3 => 0u8..=255, 1 => 40u8..60];
    let writes = prop::collection::vec((keys, prop::bool::weighted(0.3)), 1..40);
    prop_oneof![
        8 => writes.prop_map(Step::Flush),
        2 => Just(Step::Snapshot),
        2 => (0usize..9).prop_map(Step::Release),
        8 => any::<bool>().prop_map(|is_idle| Step::Begin { is_idle }),
        6 => (0usize..9).prop_map(Step::End),
        1 => (0u8..=255, 0u8..=255).prop_map(|(a, b)| Step::Request(a.min(b), a.max(b))),
    ]
}

fn apply(bench: &mut Bench, step: &Step) {
    match step {
        Step::Flush(writes) => bench.flush(writes),
        Step::Snapshot => {
            bench.snapshots.insert(bench.next_seq);
        }
        Step::Release(at) => {
            if let Some(point) = bench.snapshots.iter().nth(*at).copied() {
                bench.snapshots.remove(&point);
            }
        }
        Step::Begin { is_idle } => {
            let plan = bench.plan(*is_idle);
            bench.begin(plan);
        }
        Step::End(at) => {
            if let Some(last) = bench.running.len().checked_sub(1) {
                bench.end((*at).min(last));
            }
        }
        Step::Request(from, to) => {
            let key = |key: u8| Bound::Included([b'k', key / 8, key].as_slice().into());
            let (lower, upper, upto) = (key(*from), key(*to), bench.next_seq);
            let range = ManualRange { lower, upper, upto, judged_from: None };
            let made =
                plan_manual(&bench.tree(), &bench.policy, &bench.busy, &bench.hints(false), &range);
            if let ManualPlan::Do(plan) = made {
                bench.begin(plan);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_reader_finds_the_truth_whatever_is_compacted_when(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut bench = Bench::new();
        for step in &steps {
            apply(&mut bench, step);
            bench.check();
        }
        bench.compact_all(true);
        bench.check();
        bench.snapshots.clear();
        let range = ManualRange::everything();
        loop {
            let hints = bench.hints(false);
            match plan_manual(&bench.tree(), &bench.policy, &bench.busy, &hints, &range) {
                ManualPlan::Do(plan) => { bench.begin(plan); }
                ManualPlan::Wait => panic!("nothing runs"),
                ManualPlan::Done => break,
            }
            bench.end_all();
            bench.check();
        }
        let deletes: u64 = bench.tree().iter().map(|(_, slice)| slice.meta.deletes).sum();
        prop_assert_eq!(deletes, 0);
        let in_tree = bench.tree().iter().count();
        prop_assert_eq!(bench.table_files().len(), in_tree);
    }
}

fn writes(count: usize, salt: usize) -> Vec<(u8, bool)> {
    (0..count).map(|n| ((n * 89 + salt * 31) as u8, n % 7 == 0)).collect()
}

/// A bench whose next plan is a compaction with several parts.
fn with_a_large_compaction() -> (Bench, Compaction) {
    let mut bench = Bench::new();
    for salt in 0..40 {
        bench.flush(&writes(200, salt));
        match bench.plan(false) {
            Plan::Compaction(compaction) if compaction.cuts.len() > 1 => {
                bench.remove_obsolete();
                return (bench, compaction);
            }
            _ => bench.compact_all(false),
        }
    }
    panic!("no large compaction came up");
}

#[test]
fn threads_that_help_give_the_same_outputs_side_by_side() {
    let (bench, compaction) = with_a_large_compaction();
    let alone = CompactionJob::new(compaction, bench.context());
    let outcome = alone.finish(CompactionContext::sync_names).unwrap();
    let Plan::Compaction(compaction) = bench.plan(false) else {
        panic!("the same tree, another plan")
    };
    let shared = CompactionJob::new(compaction, bench.context());
    assert!(shared.part_count() > 2);
    let together = std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| shared.help(|_| ()));
        }
        shared.finish(CompactionContext::sync_names).unwrap()
    });
    let content = |outcome: &Outcome| {
        let slice = |(level, meta): &(usize, crate::table::SliceMeta)| {
            (*level, meta.smallest.clone(), meta.largest.clone(), meta.entries)
        };
        outcome.added.iter().map(slice).collect::<Vec<_>>()
    };
    assert_eq!(content(&outcome), content(&together));
    assert_eq!(outcome.entries_out, together.entries_out);
    assert!(outcome.bytes_written > 0 && outcome.bytes_read > outcome.bytes_written);
}

#[test]
fn a_cancelled_compaction_leaves_no_file_behind() {
    let (mut bench, compaction) = with_a_large_compaction();
    let before = bench.table_files();
    let context = bench.context();
    context.cancel.cancel();
    let job = CompactionJob::new(compaction, context);
    assert_eq!(job.finish(CompactionContext::sync_names).unwrap_err().name(), "CANCELLED");
    bench.remove_obsolete();
    assert_eq!(bench.table_files(), before);
}

#[test]
fn a_compaction_that_fails_anywhere_leaves_no_file_behind_and_the_tree_as_it_was() {
    let mut failures = 0;
    for nth in 1.. {
        let (mut bench, compaction) = with_a_large_compaction();
        let before = bench.table_files();
        let tree = bench.tree();
        bench.fs.inject(Fault::on_any().suffix(".tbl").nth(nth));
        let job = CompactionJob::new(compaction, bench.context());
        let result = job.finish(CompactionContext::sync_names);
        drop(job);
        bench.fs.clear_faults();
        let Err(error) = result else { break };
        failures += 1;
        assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
        bench.remove_obsolete();
        assert_eq!(bench.table_files(), before, "fault {nth}");
        assert!(Arc::ptr_eq(&tree, &bench.tree()));
        bench.check();
    }
    assert!(failures > 10, "only {failures} faults met the compaction");
}

#[test]
fn versions_of_a_key_stay_in_one_output_however_many_a_snapshot_needs() {
    let mut bench = Bench::new();
    for _ in 0..4 {
        for _ in 0..60 {
            bench.flush_one_more(7);
        }
    }
    bench.compact_all(true);
    bench.check();
}

impl Bench {
    fn flush_one_more(&mut self, key: u8) {
        self.snapshots.insert(self.next_seq);
        self.flush(&[(key, false), (key / 2, false), (key, false)]);
        if self.tree().runs.len() >= self.policy.l0_trigger_runs {
            self.compact_all(false);
        }
    }
}

/// Two runs of the same long values, to be compacted into one, and the progress that the compaction
/// should report.
fn with_long_values() -> (Bench, Compaction, Vec<(u64, bool)>) {
    const LEN: usize = 9000;
    const COUNT: u64 = 150;
    let mut bench = Bench::new();
    for _ in 0..2 {
        let file = bench.set.files().allocate();
        let path = table_path(&bench.table_dir(), file.number());
        let created = bench.fs.create(&path).unwrap();
        let mut writer = TableWriter::create(created, [7; 16], file.number()).unwrap();
        writer.begin_slice(DEFAULT_FAMILY, &bench.options()).unwrap();
        for key in 0..COUNT {
            let version = Version::put(key.to_be_bytes(), bench.next_seq, vec![1; LEN]);
            bench.next_seq += 1;
            writer.add(version.as_entry()).unwrap();
        }
        let slices = writer.finish().unwrap().slices;
        let added = slices.into_iter().map(|meta| Change::AddSlice { level: 0, meta }).collect();
        bench.set.install(Edit::new(added), &[file]).unwrap();
    }
    let range = ManualRange::everything();
    let policy = Policy { job_bytes_max: 1 << 30, parts_max: 1, ..bench.policy.clone() };
    let made = plan_manual(&bench.tree(), &policy, &bench.busy, &bench.hints(false), &range);
    let ManualPlan::Do(Plan::Compaction(compaction)) = made else { panic!("{made:?}") };
    // Each key counts twice, once it has been passed. Progress is reported at the beginning, if
    // there is any, then at the first version after each 256 KiB, and at the end.
    let (mut told, mut passed, mut since) = (Vec::new(), 0, 0);
    for key in 0..COUNT {
        if since >= 256 << 10 {
            told.push((2 * key - passed, true));
            (passed, since) = (2 * key, 0);
        }
        since += 8 + LEN + 64;
    }
    told.push((2 * COUNT - passed, false));
    (bench, compaction, told)
}

#[test]
fn a_compaction_tells_how_many_versions_it_has_passed_every_quarter_of_a_mebibyte() {
    let (bench, compaction, expected) = with_long_values();
    let told = Arc::new(crate::env::sync::Mutex::unranked(Vec::new()));
    let heard = told.clone();
    let context = CompactionContext {
        progress: Arc::new(move |more, _, goes_on| heard.lock().push((more, goes_on))),
        ..bench.context()
    };
    let outcome =
        CompactionJob::new(compaction, context).finish(CompactionContext::sync_names).unwrap();
    assert!(expected.len() > 3);
    assert_eq!(*told.lock(), expected);
    assert_eq!((outcome.entries_in, outcome.entries_out), (300, 150));
}

#[test]
fn a_compaction_that_is_cancelled_on_its_way_ends_there() {
    let (mut bench, compaction, _) = with_long_values();
    let (before, context) = (bench.table_files(), bench.context());
    let (cancel, told) = (context.cancel.clone(), Arc::new(crate::env::sync::Mutex::unranked(0)));
    let heard = told.clone();
    let progress: super::Progress = Arc::new(move |_, _, _| {
        *heard.lock() += 1;
        if *heard.lock() == 2 {
            cancel.cancel();
        }
    });
    let job = CompactionJob::new(compaction, CompactionContext { progress, ..context });
    assert_eq!(job.finish(CompactionContext::sync_names).unwrap_err().name(), "CANCELLED");
    drop(job);
    assert_eq!(*told.lock(), 2);
    bench.remove_obsolete();
    assert_eq!(bench.table_files(), before);
}

#[test]
fn an_outcome_says_what_was_read_and_written_and_names_are_durable_before_it() {
    let (bench, compaction) = with_a_large_compaction();
    let inputs: Vec<_> =
        compaction.inputs.iter().map(|(level, slice)| (*level, slice.meta.file)).collect();
    let (bytes, entries) =
        (compaction.input_bytes(), compaction.inputs.iter().map(|(_, slice)| slice.meta.entries));
    let (entries, target, cuts) =
        (entries.sum::<u64>(), compaction.target, compaction.cuts.clone());
    let synced = bench.fs.tried(FileOp::SyncDir);
    let job = CompactionJob::new(compaction, bench.context());
    assert_eq!(job.part_count(), cuts.len() + 1);
    let mut told = Vec::new();
    job.help(|parts| told.push(parts));
    job.help(|_| panic!("no part is left"));
    assert_eq!(told, [cuts.len() + 1]);
    assert_eq!(bench.fs.tried(FileOp::SyncDir), synced);
    let outcome = job.finish(CompactionContext::sync_names).unwrap();
    assert!(bench.fs.tried(FileOp::SyncDir) > synced);
    assert_eq!(outcome.removed, inputs);
    assert_eq!((outcome.bytes_read, outcome.entries_in), (bytes, entries));
    let added = || outcome.added.iter().map(|(_, meta)| meta);
    assert_eq!(outcome.entries_out, added().map(|meta| meta.entries).sum::<u64>());
    assert!(added().zip(added().skip(1)).all(|(a, b)| a.largest < b.smallest));
    assert!(outcome.added.iter().all(|(level, _)| *level == target));
    let numbers: Vec<_> = outcome.files.iter().map(|file| file.number()).collect();
    assert_eq!(numbers, added().map(|meta| meta.file).collect::<Vec<_>>());
    let lens = numbers.iter().map(|number| {
        let path = table_path(&bench.table_dir(), *number);
        bench.fs.open_read(&path, FileAccess::Positional).unwrap().len()
    });
    assert_eq!(outcome.bytes_written, lens.sum::<u64>());
    for cut in &cuts {
        assert!(added().all(|meta| meta.largest < *cut || *cut <= meta.smallest), "{cut:?}");
    }
}

#[test]
fn a_compaction_ends_once_a_helper_has_told_of_its_share() {
    let (bench, compaction) = with_a_large_compaction();
    let job = CompactionJob::new(compaction, bench.context());
    let (begun, has_begun) = std::sync::mpsc::channel();
    let told = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            job.help(|_| {
                begun.send(()).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(50));
                told.store(true, std::sync::atomic::Ordering::Relaxed);
            });
        });
        has_begun.recv().unwrap();
        job.finish(CompactionContext::sync_names).unwrap();
        assert!(told.load(std::sync::atomic::Ordering::Relaxed));
    });
}

#[test]
fn a_compaction_that_leaves_nothing_names_nothing() {
    let mut bench = Bench::new();
    bench.flush(&[(1, true), (2, true)]);
    bench.flush(&[(1, true), (3, true)]);
    let range = ManualRange::everything();
    let hints = bench.hints(false);
    let made = plan_manual(&bench.tree(), &bench.policy, &bench.busy, &hints, &range);
    let ManualPlan::Do(Plan::Compaction(compaction)) = made else { panic!("{made:?}") };
    let synced = bench.fs.tried(FileOp::SyncDir);
    let outcome = CompactionJob::new(compaction, bench.context())
        .finish(CompactionContext::sync_names)
        .unwrap();
    assert!(outcome.added.is_empty() && outcome.files.is_empty());
    assert_eq!((outcome.entries_in, outcome.entries_out, outcome.bytes_written), (4, 0, 0));
    assert_eq!(bench.fs.tried(FileOp::SyncDir), synced);
}
