//! What a compaction costs for each entry, and what a visible cursor costs over several runs. Run by
//! hand: `cargo test --release -p isobath compact::cost -- --ignored --nocapture --test-threads 1`

use super::{CompactionContext, CompactionJob, Hints, Outcome, Plan, Policy, plan};
use crate::background::CancelToken;
use crate::cursor::{MergeCursor, VisibleCursor};
use crate::engine::Busy;
use crate::format::{FIRST_LSN, OpKind};
use crate::mvcc::ReaderPoints;
use crate::table::cache::{BlockCache, FileCache, table_path};
use crate::table::{Codec, TableContext, TableOptions, TableWriter};
use crate::version::{Change, Edit, Tree, VersionSet};
use crate::vfs::{FileAccess, FileSystem, SystemFs};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

/// Nanoseconds that this thread has been on a processor: other work of the machine counts less.
#[allow(clippy::disallowed_methods)] // A measurement.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

struct Rig {
    fs: Arc<dyn FileSystem>,
    set: VersionSet,
    dir: std::path::PathBuf,
    tables: TableContext,
    next_seq: u64,
    random: u64,
}

impl Rig {
    fn new(db: &Path) -> Rig {
        let fs: Arc<dyn FileSystem> = Arc::new(SystemFs::new());
        let mut set = VersionSet::create(fs.clone(), db, [7; 16], b"{}").unwrap();
        set.install(Edit::new(vec![Change::LsnCeiling { lsn: 1 << 40 }]), &[]).unwrap();
        let dir = db.join("table");
        let files = Arc::new(FileCache::new(fs.clone(), dir.clone(), FileAccess::Mapped, 1000));
        let tables = TableContext::new(files, BlockCache::new(1 << 30));
        Rig { fs, set, dir, tables, next_seq: FIRST_LSN, random: 88_172_645_463_325_252 }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// A run of random keys of 16 bytes and values of 100, half of them zeros.
    fn flush(&mut self, entries: usize, options: &TableOptions) {
        let shares_heads = std::env::var("SHARED").is_ok();
        let mut keys: Vec<[u8; 16]> = (0..entries)
            .map(|_| {
                let (a, b) = (self.random(), self.random());
                let a = if shares_heads { 0x7573_6572_2d69_643a } else { a };
                (u128::from(a) << 64 | u128::from(b)).to_be_bytes()
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let file = self.set.files().allocate();
        let path = table_path(&self.dir, file.number());
        let mut writer =
            TableWriter::create(self.fs.create(&path).unwrap(), [7; 16], file.number()).unwrap();
        writer.begin_slice(0, options).unwrap();
        let mut value = [0; 100];
        for key in &keys {
            for chunk in value[..50].chunks_mut(8) {
                let random = self.random().to_le_bytes();
                chunk.copy_from_slice(&random[..chunk.len()]);
            }
            self.next_seq += 1;
            let entry =
                crate::cursor::Entry { key, seq: self.next_seq, kind: OpKind::Put, value: &value };
            writer.add(entry).unwrap();
        }
        let slices = writer.finish().unwrap().slices;
        let added = slices.into_iter().map(|meta| Change::AddSlice { level: 0, meta }).collect();
        self.set.install(Edit::new(added), &[file]).unwrap();
    }

    fn tree(&self) -> Arc<Tree> {
        self.set.state().family(0).unwrap().tree.clone()
    }

    fn context(&self, options: &TableOptions) -> CompactionContext {
        CompactionContext {
            fs: self.fs.clone(),
            table_dir: self.dir.clone(),
            uuid: [7; 16],
            family: 0,
            tables: self.tables.clone(),
            files: self.set.files().clone(),
            options: options.clone(),
            readers: ReaderPoints::new(Vec::new(), self.next_seq + 1),
            cancel: CancelToken::new(),
            progress: Arc::new(|_| ()),
        }
    }
}

#[test]
#[ignore = "measures"]
fn compaction_of_runs() {
    let entries: usize =
        std::env::var("ENTRIES").map_or(200_000, |entries| entries.parse().unwrap());
    for (codec_in, codec_out) in
        [(Codec::None, Codec::None), (Codec::None, Codec::Lz4), (Codec::Lz4, Codec::Lz4)]
    {
        if std::env::var("CODEC").is_ok_and(|wanted| wanted != format!("{codec_in:?}{codec_out:?}"))
        {
            continue;
        }
        let db = tempfile::tempdir().unwrap();
        let mut rig = Rig::new(db.path());
        let options = |codec| TableOptions { codec, ..TableOptions::default() };
        let started = cpu_ns();
        for _ in 0..9 {
            rig.flush(entries, &options(codec_in));
        }
        let flushed = cpu_ns() - started;
        let hints = Hints { oldest_reader: rig.next_seq + 1, ..Hints::default() };
        let policy = Policy::default();
        // However small the runs are here, they are not too small to be moved.
        let policy = Policy { target_file_bytes: 1 << 20, ..policy };
        let mut compaction = loop {
            match plan(&rig.tree(), &policy, &Busy::default(), &hints) {
                Plan::Compaction(compaction) => break compaction,
                Plan::Move(moves) => {
                    let outcome = Outcome::of_moves(&moves);
                    rig.set.install(Edit::new(outcome.changes(0)), &outcome.files).unwrap();
                }
                Plan::DoNothing => rig.flush(entries, &options(codec_in)),
            }
        };
        compaction.output_bytes = Some(Policy::default().target_file_bytes);
        compaction.cuts.clear();
        let job = CompactionJob::new(compaction, rig.context(&options(codec_out)));
        let started = cpu_ns();
        let outcome = job.finish(CompactionContext::sync_names).unwrap();
        let ns = cpu_ns() - started;
        println!(
            "{codec_in:?} to {codec_out:?}: write {} ns an entry (with generation), compaction {} ns an entry of {} ({} to {} MiB)",
            flushed / outcome.entries_in,
            ns / outcome.entries_in,
            outcome.entries_in,
            outcome.bytes_read >> 20,
            outcome.bytes_written >> 20,
        );
    }
}

#[test]
#[ignore = "measures"]
fn ranges_over_runs() {
    for runs in [1, 3, 5, 8] {
        let db = tempfile::tempdir().unwrap();
        let mut rig = Rig::new(db.path());
        for _ in 0..runs {
            rig.flush(400_000 / runs, &TableOptions::default());
        }
        let tree = rig.tree();
        let cursors = || {
            let tables = tree.runs.iter().map(|run| run.table(&rig.tables).unwrap().cursor(true));
            MergeCursor::new(tables.collect())
        };
        let mut cursor =
            VisibleCursor::new(cursors(), rig.next_seq + 1, Bound::Unbounded, Bound::Unbounded);
        for round in 0..2 {
            let started = cpu_ns();
            cursor.seek_first().unwrap();
            let (mut count, mut sum) = (0, 0u64);
            while let Some((key, value)) = cursor.entry() {
                count += 1;
                sum += u64::from(key[0]) + u64::from(value[60]);
                cursor.next().unwrap();
            }
            let full = cpu_ns() - started;
            let (mut random, mut found) = (12_345u64, 0u64);
            let started = cpu_ns();
            const SEEKS: u64 = 20_000;
            for _ in 0..SEEKS {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                cursor.seek(&random.to_be_bytes()).unwrap();
                for _ in 0..100 {
                    let Some((key, _)) = cursor.entry() else { break };
                    found += u64::from(key[0]);
                    cursor.next().unwrap();
                }
            }
            let ranges = cpu_ns() - started;
            let started = cpu_ns();
            for _ in 0..SEEKS {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                cursor.seek(&random.to_be_bytes()).unwrap();
                found += u64::from(cursor.entry().is_some());
            }
            let seeks = cpu_ns() - started;
            println!(
                "{runs} runs, round {round}: next {:.1} ns, range of 100 {} k/s, seek {} ns ({})",
                full as f64 / count as f64,
                SEEKS * 1_000_000 / ranges,
                seeks / SEEKS,
                (sum + found) % 10
            );
        }
    }
}
