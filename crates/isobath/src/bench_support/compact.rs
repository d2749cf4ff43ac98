//! Table files and a manifest in a file system, as flushes leave them; a compaction of these runs,
//! and a cursor over them.

use crate::background::CancelToken;
use crate::compact::{CompactionContext, CompactionJob, Hints, Outcome, Plan, Policy, plan};
use crate::cursor::{Entry, MergeCursor, VisibleCursor};
use crate::engine::Busy;
use crate::format::{FIRST_LSN, OpKind};
use crate::mvcc::ReaderPoints;
use crate::table::cache::{BlockCache, FileCache, table_path};
use crate::table::{TableContext, TableCursor, TableOptions, TableWriter};
use crate::version::{Change, Edit, Slice, Tree, VersionSet};
use crate::vfs::{FileAccess, FileSystem, SystemFs};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use crate::table::Codec;

/// A family's tree.
pub struct Runs {
    fs: Arc<dyn FileSystem>,
    set: VersionSet,
    dir: PathBuf,
    tables: TableContext,
    shares_heads: bool,
    next_seq: u64,
    random: u64,
}

fn options(codec: Codec) -> TableOptions {
    TableOptions { codec, ..TableOptions::default() }
}

impl Runs {
    /// An empty tree in `db`. With `shares_heads`, all keys begin with the same eight bytes.
    pub fn new(db: &Path, shares_heads: bool) -> Runs {
        let fs: Arc<dyn FileSystem> = Arc::new(SystemFs::new());
        let mut set = VersionSet::create(fs.clone(), db, [7; 16], b"{}").expect("a new database");
        let ceiling = Edit::new(vec![Change::LsnCeiling { lsn: 1 << 40 }]);
        set.install(ceiling, &[]).expect("room");
        let dir = db.join("table");
        let files = Arc::new(FileCache::new(fs.clone(), dir.clone(), FileAccess::Mapped, 1000));
        let tables = TableContext::new(files, BlockCache::new(1 << 30));
        let (next_seq, random) = (FIRST_LSN, 88_172_645_463_325_252);
        Runs { fs, set, dir, tables, shares_heads, next_seq, random }
    }

    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Adds a run of random keys of 16 bytes and values of 100 bytes. Half of the value bytes are
    /// zero.
    pub fn add(&mut self, entries: usize, codec: Codec) {
        let mut keys: Vec<[u8; 16]> = (0..entries)
            .map(|_| {
                let (a, b) = (self.random(), self.random());
                let a = if self.shares_heads { 0x7573_6572_2d69_643a } else { a };
                (u128::from(a) << 64 | u128::from(b)).to_be_bytes()
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let file = self.set.files().allocate();
        let new = self.fs.create(&table_path(&self.dir, file.number())).expect("a new file");
        let mut writer = TableWriter::create(new, [7; 16], file.number()).expect("room");
        writer.begin_slice(0, &options(codec)).expect("the first slice");
        let mut value = [0; 100];
        for key in &keys {
            for chunk in value[..50].chunks_mut(8) {
                let random = self.random().to_le_bytes();
                chunk.copy_from_slice(&random[..chunk.len()]);
            }
            self.next_seq += 1;
            let entry = Entry { key, seq: self.next_seq, kind: OpKind::Put, value: &value };
            writer.add(entry).expect("in order");
        }
        let slices = writer.finish().expect("room").slices;
        let added = slices.into_iter().map(|meta| Change::AddSlice { level: 0, meta }).collect();
        self.set.install(Edit::new(added), &[file]).expect("room");
    }

    fn tree(&self) -> Arc<Tree> {
        self.set.state().family(0).expect("the default family").tree.clone()
    }

    /// The next compaction that is due, as one part. Adds runs of `entries` entries until one is
    /// due.
    pub fn due(&mut self, entries: usize, codec_in: Codec, codec_out: Codec) -> Job {
        let hints = Hints { oldest_reader: self.next_seq + 1, ..Hints::default() };
        // The benchmark's runs are small, but large enough to be moved under this policy.
        let policy = Policy { target_file_bytes: 1 << 20, ..Policy::default() };
        let mut compaction = loop {
            match plan(&self.tree(), &policy, &Busy::default(), &hints) {
                Plan::Compaction(compaction) => break compaction,
                Plan::Move(moves) => {
                    let outcome = Outcome::of_moves(&moves);
                    let edit = Edit::new(outcome.changes(0));
                    self.set.install(edit, &outcome.files).expect("room");
                }
                Plan::DoNothing | Plan::Drop(_) => self.add(entries, codec_in),
            }
        };
        compaction.output_bytes = Some(Policy::default().target_file_bytes);
        compaction.cuts.clear();
        let context = CompactionContext {
            fs: self.fs.clone(),
            table_dir: self.dir.clone(),
            uuid: [7; 16],
            family: 0,
            tables: self.tables.clone(),
            files: self.set.files().clone(),
            options: options(codec_out),
            readers: ReaderPoints::new(Vec::new(), self.next_seq + 1),
            cancel: CancelToken::new(),
            io_limit: None,
            progress: Arc::new(|_, _, _| ()),
            merging: None,
            filtering: None,
            collected: Arc::default(),
            blobs_max: usize::MAX,
            values_max: u64::MAX,
            memory: None,
        };
        Job(CompactionJob::new(compaction, context))
    }

    /// What a reader of all runs sees.
    pub fn view(&self) -> View {
        let tree = self.tree();
        let table = |run: &Arc<Slice>| run.table(&self.tables).expect("a good table").cursor(true);
        let merged = MergeCursor::new(tree.runs.iter().map(table).collect());
        View(VisibleCursor::new(merged, self.next_seq + 1, Bound::Unbounded, Bound::Unbounded))
    }
}

/// A compaction that has not started.
pub struct Job(CompactionJob);

/// What a compaction read and wrote.
pub struct Done {
    pub entries_in: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

impl Job {
    /// Runs the compaction on this thread. Installs nothing.
    pub fn finish(self) -> Done {
        let Outcome { entries_in, bytes_read, bytes_written, .. } =
            self.0.finish(CompactionContext::sync_names).expect("room, and good tables");
        Done { entries_in, bytes_read, bytes_written }
    }
}

/// A cursor over what a reader sees.
pub struct View(VisibleCursor<MergeCursor<TableCursor>>);

impl View {
    pub fn first(&mut self) {
        self.0.seek_first().expect("good tables");
    }

    pub fn seek(&mut self, key: &[u8]) {
        self.0.seek(key).expect("good tables");
    }

    #[inline]
    pub fn next(&mut self) {
        self.0.next().expect("good tables");
    }

    #[inline]
    pub fn entry(&self) -> Option<(&[u8], &[u8])> {
        self.0.entry()
    }
}
