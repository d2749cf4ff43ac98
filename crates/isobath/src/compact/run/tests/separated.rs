//! Compactions of values that lie in blob files.

use super::*;
use crate::blob::{BlobSink, FetchCounts, Fetcher};
use crate::cursor::Cursor;
use crate::mvcc::{Entry, Filtering, OpKind};
use crate::table::Codec;
use crate::table::fixtures::forge_value;
use crate::version::LiveFile;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const COUNT: u64 = 150;

/// Writes a run of `COUNT` values that lie in a blob file. Each has the sequence number after that
/// of the one before it, or all have one, as the keys of a large commit.
fn add_run(bench: &mut Bench, options: &TableOptions, is_commit: bool) -> Vec<Arc<LiveFile>> {
    let (fs, dir) = (bench.fs.clone(), bench.table_dir());
    let create = |path: &Path| fs.create(path);
    let numbers = bench.set.files().clone();
    let mut sink = BlobSink::new(&create, &dir, [7; 16], &numbers);
    let file = numbers.allocate();
    let created = fs.create(&table_path(&dir, file.number())).unwrap();
    let mut writer = TableWriter::create(created, [7; 16], file.number()).unwrap();
    writer.begin_slice(DEFAULT_FAMILY, options).unwrap();
    for key in 0..COUNT {
        let version = Version::put(key.to_be_bytes(), bench.next_seq, noise(key));
        bench.next_seq += u64::from(!is_commit);
        writer.add(sink.place(version.as_entry(), options, |_| false).unwrap()).unwrap();
    }
    bench.next_seq += 1;
    let (blobs, _) = sink.finish().unwrap();
    let slices = writer.finish().unwrap().slices;
    let added = slices.into_iter().map(|meta| Change::AddSlice { level: 0, meta }).collect();
    let outputs: Vec<_> = blobs.iter().cloned().chain([file]).collect();
    bench.set.install(Edit::new(added), &outputs).unwrap();
    blobs
}

/// A compaction of a run whose values lie in a blob file that is collected.
fn with_a_collected_file() -> (Bench, Compaction, CompactionContext) {
    let mut bench = Bench::new();
    let options = TableOptions { separate_from: 100, ..bench.options() };
    let blobs = add_run(&mut bench, &options, false);
    let (range, hints) = (ManualRange::everything(), bench.hints(false));
    let made = plan_manual(&bench.tree(), &bench.policy, &bench.busy, &hints, &range);
    let ManualPlan::Do(Plan::Compaction(compaction)) = made else { panic!("{made:?}") };
    let weak = |file: &Arc<LiveFile>| (file.number(), Arc::downgrade(file));
    let collected = Arc::new(blobs.iter().map(weak).collect());
    let context = CompactionContext { collected, options, ..bench.context() };
    (bench, compaction, context)
}

#[test]
fn runs_made_into_one_stay_one_however_many_values_they_have() {
    let mut bench = Bench::new();
    let options = TableOptions { separate_from: 100, ..bench.options() };
    for _ in 0..4 {
        add_run(&mut bench, &options, true);
    }
    let compaction = Compaction {
        reason: crate::events::CompactionReason::RunsInPlace,
        inputs: bench.tree().runs.iter().map(|run| (0, run.clone())).collect(),
        target: 0,
        depth: 0,
        is_last_level: false,
        fences: Vec::new(),
        cuts: Vec::new(),
        beneath: Vec::new(),
        guides: Vec::new(),
        output_bytes: None,
        overlap_max: u64::MAX,
    };
    let context = CompactionContext { options, values_max: COUNT / 2 * 9000, ..bench.context() };
    let outcome = CompactionJob::new(compaction, context).finish(CompactionContext::sync_names);
    let outcome = outcome.unwrap();
    assert_eq!(outcome.added.len(), 1);
    let edit = Edit::new(outcome.changes(DEFAULT_FAMILY));
    bench.set.install(edit, &outcome.files).unwrap();
}

/// A value counts for what a compaction reads of it, not for its address: else a close would wait
/// until gigabytes have moved.
#[test]
fn a_compaction_that_moves_values_looks_up_every_quarter_of_a_mebibyte() {
    let (_bench, compaction, context) = with_a_collected_file();
    let told = Arc::new(crate::env::sync::Mutex::unranked(0));
    let heard = told.clone();
    let progress: super::super::Progress = Arc::new(move |_, _, _| *heard.lock() += 1);
    let context = CompactionContext { progress, ..context };
    let job = CompactionJob::new(compaction, context);
    let outcome = job.finish(CompactionContext::sync_names).unwrap();
    assert!(outcome.bytes_written > COUNT * 40, "{}", outcome.bytes_written);
    let looks = outcome.added.iter().flat_map(|(_, meta)| &meta.blobs).map(|share| share.bytes);
    let looks = looks.sum::<u64>() / (300 << 10);
    assert!(*told.lock() >= looks.max(1), "{} of {looks}", *told.lock());
}

#[test]
fn each_look_tells_what_has_moved_since_the_one_before() {
    let (_bench, compaction, context) = with_a_collected_file();
    let told = Arc::new(crate::env::sync::Mutex::unranked(Vec::new()));
    let heard = told.clone();
    let progress: super::super::Progress =
        Arc::new(move |versions, moved, goes_on| heard.lock().push((versions, moved, goes_on)));
    let context = CompactionContext { progress, ..context };
    let outcome = CompactionJob::new(compaction, context).finish(CompactionContext::sync_names);
    let shares = outcome.unwrap().added.into_iter().flat_map(|(_, meta)| meta.blobs);
    let all: u64 = shares.map(|share| share.bytes).sum();
    let (told, stored) = (told.lock().clone(), all / COUNT);
    assert!(told.len() > 3, "{told:?}");
    let last = told.len() - 1;
    for (nth, &(versions, moved, goes_on)) in told.iter().enumerate() {
        assert!(versions > 0 && moved == versions * stored && goes_on == (nth < last), "{told:?}");
        let passed = moved + versions * 100;
        assert!(passed < (256 << 10) + 2 * stored && (passed >= 256 << 10 || !goes_on), "{told:?}");
    }
    assert_eq!(told.iter().map(|(_, moved, _)| moved).sum::<u64>(), all, "{told:?}");
}

#[test]
fn values_that_are_read_for_a_filter_count_for_when_a_compaction_looks_up() {
    let (_bench, compaction, context) = with_a_collected_file();
    let told = Arc::new(crate::env::sync::Mutex::unranked(Vec::new()));
    let heard = told.clone();
    let keep = |_: crate::FilterEntry<'_>| crate::FilterVerdict::Keep;
    let context = CompactionContext {
        progress: Arc::new(move |versions, _, _| heard.lock().push(versions)),
        collected: Arc::default(),
        filtering: Some(Arc::new(Filtering {
            filter: Arc::new(keep),
            family: "f".into(),
            level: 6,
        })),
        ..context
    };
    let outcome = CompactionJob::new(compaction, context).finish(CompactionContext::sync_names);
    assert_eq!(outcome.unwrap().tally.kept, COUNT);
    let mut told = told.lock().clone();
    assert!(told.pop() < Some(30), "what is read last");
    assert!(told.len() > 3 && told.iter().all(|versions| (20..=30).contains(versions)), "{told:?}");
}

/// Compacts with a filter that cancels the compaction as it is asked for the time `cancel_at`.
/// Returns how often it was asked, and the error.
fn cancelled_by_its_filter(cancel_at: u64) -> (u64, Option<&'static str>) {
    let (mut bench, compaction) = super::with_a_large_compaction();
    let (before, context) = (bench.table_files(), bench.context());
    let (cancel, asked) = (context.cancel.clone(), Arc::new(AtomicU64::new(0)));
    let counts = asked.clone();
    let filter = move |_: crate::FilterEntry<'_>| {
        if counts.fetch_add(1, Relaxed) + 1 == cancel_at {
            cancel.cancel();
        }
        crate::FilterVerdict::Remove
    };
    let (filter, family) = (Arc::new(filter), "f".into());
    let filtering = Some(Arc::new(Filtering { filter, family, level: 6 }));
    let job = CompactionJob::new(compaction, CompactionContext { filtering, ..context });
    let failure = job.finish(CompactionContext::sync_names).err();
    drop(job);
    bench.remove_obsolete();
    assert!(failure.is_none() || bench.table_files() == before);
    (asked.load(Relaxed), failure.map(|error| error.name()))
}

#[test]
fn a_filter_is_asked_nothing_more_once_its_compaction_is_cancelled() {
    let (all, failure) = cancelled_by_its_filter(u64::MAX);
    assert!(all > 10 && failure.is_none(), "{all}: {failure:?}");
    for cancel_at in [1, 2, all - 1, all] {
        assert_eq!(cancelled_by_its_filter(cancel_at), (cancel_at, Some("CANCELLED")));
    }
}

/// What no codec makes shorter.
fn noise(key: u64) -> Vec<u8> {
    let hash = |at: u64| crate::format::checksum64(&(key << 32 | at).to_le_bytes()).to_le_bytes();
    (0..9000 / 8).flat_map(hash).collect()
}

#[test]
fn an_address_that_is_none_is_passed_on_as_it_is() {
    for is_collected in [false, true] {
        let mut bench = Bench::new();
        let options = TableOptions { separate_from: 100, codec: Codec::None, ..bench.options() };
        let blobs = add_run(&mut bench, &options, false);
        // 0 is the number of no file.
        let file = bench.tree().runs[0].meta.file;
        forge_value(&bench.fs, &table_path(&bench.table_dir(), file));
        let (range, hints) = (ManualRange::everything(), bench.hints(false));
        let made = plan_manual(&bench.tree(), &bench.policy, &bench.busy, &hints, &range);
        let ManualPlan::Do(Plan::Compaction(compaction)) = made else { panic!("{made:?}") };
        let weak = |file: &Arc<LiveFile>| (file.number(), Arc::downgrade(file));
        let collected: BTreeMap<_, _> = blobs.iter().map(weak).collect();
        let collected = Arc::new(if is_collected { collected } else { BTreeMap::new() });
        let context = CompactionContext { collected, options, ..bench.context() };
        let job = CompactionJob::new(compaction, context);
        let outcome = job.finish(CompactionContext::sync_names).unwrap();
        assert_eq!((outcome.entries_in, outcome.entries_out), (COUNT, COUNT));
        let shares = outcome.added.iter().flat_map(|(_, meta)| &meta.blobs);
        assert_eq!(shares.map(|share| share.values).sum::<u64>(), COUNT - 1);
        bench.set.install(Edit::new(outcome.changes(DEFAULT_FAMILY)), &outcome.files).unwrap();
        let first = bench.tree().iter().next().unwrap().1.clone();
        let mut cursor = first.table(&bench.tables).unwrap().cursor(false);
        cursor.seek_first().unwrap();
        let entry = cursor.entry().unwrap();
        assert!(entry.kind.is_separated() && entry.value.iter().all(|byte| *byte == 0));
        let counts = FetchCounts::default();
        let fetcher =
            Fetcher { tables: &bench.tables, counts: &counts, fill_cache: false, whole_max: 0 };
        let error = fetcher.fetch(&entry).unwrap_err();
        assert!(error.is_corruption(), "{error}");
    }
}

#[test]
fn what_is_as_long_as_a_separated_value_only_with_its_end_stays_where_it_is() {
    let bench = Bench::new();
    let (fs, dir, numbers) = (bench.fs.clone(), bench.table_dir(), bench.set.files().clone());
    let create = |path: &Path| fs.create(path);
    let options = TableOptions { separate_from: 100, ..bench.options() };
    let mut sink = BlobSink::new(&create, &dir, [7; 16], &numbers);
    for (len, is_separated) in [(99, false), (100, true)] {
        let stored = [&8u64.to_le_bytes()[..], &noise(1)[..len]].concat();
        let entry = Entry { key: b"key", seq: 1, kind: OpKind::PutExpiring, value: &stored };
        let placed = sink.place(entry, &options, |_| false).unwrap();
        assert_eq!(placed.kind.is_separated(), is_separated, "{len}");
    }
}

#[test]
#[cfg(feature = "lz4")]
fn a_job_keeps_a_short_buffer_for_its_next_value_and_gives_a_long_one_back() {
    let bench = Bench::new();
    let (fs, dir, numbers) = (bench.fs.clone(), bench.table_dir(), bench.set.files().clone());
    let create = |path: &Path| fs.create(path);
    let options = TableOptions { separate_from: 100, blob_codec: Codec::Lz4, ..bench.options() };
    let mut sink = BlobSink::new(&create, &dir, [7; 16], &numbers);
    for (len, kept) in [(16 << 10, 14 << 10), (8 << 20, 1 << 20)] {
        let value = vec![7; len];
        let entry = Entry { key: b"key", seq: 1, kind: OpKind::Put, value: &value };
        sink.place(entry, &options, |_| false).unwrap();
        assert_eq!(sink.compressor().buffer_len(), kept);
    }
}

#[test]
fn a_blob_file_is_complete_before_the_next_one_begins() {
    let bench = Bench::new();
    let options = TableOptions { separate_from: 100, ..bench.options() };
    let (fs, dir) = (bench.fs.clone(), bench.table_dir());
    let create = |path: &Path| fs.create(path);
    let numbers = bench.set.files().clone();
    let mut sink = BlobSink::new(&create, &dir, [7; 16], &numbers).with_files_of(4096);
    for key in 0..5u64 {
        let version = Version::put(key.to_be_bytes(), 9, noise(key));
        assert!(sink.place(version.as_entry(), &options, |_| false).unwrap().kind.is_separated());
    }
    let (files, bytes) = sink.finish().unwrap();
    let len = |file: &Arc<LiveFile>| {
        let path = table_path(&dir, file.number());
        fs.open_read(&path, crate::vfs::FileAccess::Positional).unwrap().len()
    };
    let lens: Vec<u64> = files.iter().map(len).collect();
    assert!(lens.len() > 1 && lens.iter().all(|len| *len > 1000), "{lens:?}");
    assert_eq!(lens.iter().sum::<u64>(), bytes);
}
