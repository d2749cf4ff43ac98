//! What scans have learned of the slices that a compaction reads, they know of its outputs.

use super::*;
use crate::cursor::Cursor;
use crate::table::Codec;
use crate::version::Slice;

const ROWS: u32 = 4000;

/// Blocks of about 4 KiB with 35 rows each, past a cache that holds nothing.
fn options() -> TableOptions {
    TableOptions { codec: Codec::None, ..TableOptions::default() }
}

fn write_run(bench: &mut Bench) {
    let file = bench.set.files().allocate();
    let created = bench.fs.create(&table_path(&bench.table_dir(), file.number())).unwrap();
    let mut writer = TableWriter::create(created, [7; 16], file.number()).unwrap();
    writer.begin_slice(DEFAULT_FAMILY, &options()).unwrap();
    for row in 0..ROWS {
        let version = Version::put(row.to_be_bytes(), bench.next_seq, [7; 100]);
        bench.next_seq += 1;
        writer.add(version.as_entry()).unwrap();
    }
    let slices = writer.finish().unwrap().slices;
    let added = slices.into_iter().map(|meta| Change::AddSlice { level: 0, meta }).collect();
    bench.set.install(Edit::new(added), &[file]).unwrap();
}

/// The calls that a scan of a hundred rows of an open table reads with.
fn reads(bench: &Bench, slice: &Slice) -> u64 {
    let table = slice.table(&bench.tables).unwrap().into_owned();
    let before = bench.fs.tried(FileOp::Read);
    let mut cursor = table.cursor(true);
    cursor.seek(&1000u32.to_be_bytes()).unwrap();
    (0..100).for_each(|_| cursor.next().unwrap());
    assert!(cursor.entry().is_some());
    bench.fs.tried(FileOp::Read) - before
}

#[test]
fn the_first_scan_of_a_new_slice_reads_as_those_before_it() {
    let mut bench = Bench::new();
    bench.tables = TableContext::new(bench.tables.files.clone(), BlockCache::new(0));
    write_run(&mut bench);
    let run = bench.tree().runs[0].clone();
    assert_eq!(reads(&bench, &run), 2, "nothing is known of it");
    (0..60).for_each(|_| _ = reads(&bench, &run));
    assert_eq!(reads(&bench, &run), 1);
    write_run(&mut bench);
    let newer = bench.tree().runs[0].clone();
    assert!(newer.meta.file != run.meta.file);
    assert_eq!(reads(&bench, &newer), 1);
    let policy = Policy {
        job_bytes_max: 1 << 30,
        target_file_bytes: 1 << 30,
        parts_max: 1,
        ..bench.policy.clone()
    };
    let (range, hints) = (ManualRange::everything(), bench.hints(false));
    let made = plan_manual(&bench.tree(), &policy, &bench.busy, &hints, &range);
    let ManualPlan::Do(Plan::Compaction(compaction)) = made else { panic!("{made:?}") };
    let context = CompactionContext { options: options(), ..bench.context() };
    let outcome = CompactionJob::new(compaction, context).finish(CompactionContext::sync_names);
    bench.install(outcome.unwrap());
    let tree = bench.tree();
    let slices: Vec<_> = tree.iter().collect();
    let [(1.., slice)] = slices[..] else { panic!("{slices:?}") };
    assert_eq!(reads(&bench, slice), 1);
}
