//! Models of how long table files live. Jobs add and compact files, readers hold trees, obsolete
//! files are removed, and the manifest fails in between. Files and manifest are the real ones, in
//! memory. At any moment, what a killed process would leave must open and have every file that it
//! names.
//!
//! These bugs were planted and found: `ObsoleteFiles` that ignore a hold, or hand a number out
//! twice; a `VersionSet::install` that does not hold the obsolete files after a failed
//! append, or does not shut them after a failed sync, or that marks as obsolete what an edit
//! removes.

use super::*;
use crate::env::model::check;
use crate::env::sync::Mutex;
use crate::table::cache::FileCache;
use crate::vfs::{Fault, FileAccess, FileOp, FileSystem, MemoryFs};
use shuttle::rand::Rng;
use shuttle::thread;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

const DB: &str = "/db";

struct World {
    fs: MemoryFs,
    versions: Mutex<VersionSet>,
    files: FileCache,
}

impl World {
    fn new() -> Arc<World> {
        let fs = MemoryFs::new();
        let versions =
            VersionSet::create(Arc::new(fs.clone()), Path::new(DB), [7; 16], b"{}").unwrap();
        let dir = Path::new(DB).join(TABLE_DIR);
        let files = FileCache::new(Arc::new(fs.clone()), dir, FileAccess::Positional, 4);
        Arc::new(World { fs, versions: Mutex::unranked(versions), files })
    }

    fn tree(&self) -> Arc<Tree> {
        self.versions.lock().state().family(0).unwrap().tree.clone()
    }

    fn exists(&self, slice: &Slice) -> bool {
        self.fs.exists(&table_path(Path::new(DB), slice.meta.file)).unwrap()
    }

    /// Writes a file with these sequences and installs it in place of others. Returns whether that
    /// worked.
    fn install(&self, replaced: &[Arc<Slice>], seqs: (u64, u64)) -> bool {
        let numbers = self.versions.lock().files().clone();
        let file = numbers.allocate();
        let path = table_path(Path::new(DB), file.number());
        let mut written = self.fs.create(&path).unwrap();
        written.append(&[0; 192]).unwrap();
        drop(written);
        let removed = replaced.iter().map(|slice| slice.meta.file);
        let mut edit: Vec<_> =
            removed.map(|file| Change::RemoveSlice { family: 0, level: 0, file }).collect();
        let meta = fixtures::meta(0, file.number(), "a", "b", seqs);
        edit.push(Change::AddSlice { level: 0, meta });
        self.versions.lock().install(Edit::new(edit), &[file]).is_ok()
    }

    fn add(&self, seq: u64) {
        self.install(&[], (seq, seq));
    }

    fn compact(&self) {
        let inputs = self.tree().runs.clone();
        let seqs = || inputs.iter().flat_map(|run| [run.meta.min_seq, run.meta.max_seq]);
        let Some(seqs) = seqs().min().zip(seqs().max()) else { return };
        self.install(&inputs, seqs);
        assert!(inputs.iter().all(|input| self.exists(input)), "an input went while it was read");
    }

    fn read(&self) {
        let tree = self.tree();
        for _ in 0..2 {
            assert!(tree.runs.iter().all(|run| self.exists(run)), "a file went while it was read");
        }
    }

    /// If a number is handed out twice, its file is missing the second time.
    fn remove_dead(&self) {
        let dead = self.versions.lock().take_obsolete().unwrap_or_default();
        let is_gone = |number: &u64| self.files.remove(*number).is_some();
        assert!(dead.iter().all(is_gone), "a file was missing when it was to be removed");
    }

    /// Checks that what a killed process would leave can be opened, and that every file it names
    /// exists.
    fn outlive(&self) {
        let fs = self.fs.killed();
        let (versions, _) = VersionSet::open(Arc::new(fs.clone()), Path::new(DB)).unwrap();
        let tree = &versions.state().family(0).unwrap().tree;
        for (_, slice) in tree.iter() {
            let path = table_path(Path::new(DB), slice.meta.file);
            assert!(fs.exists(&path).unwrap(), "file {} is named and gone", slice.meta.file);
        }
    }

    fn files(&self) -> BTreeSet<u64> {
        let entries = self.fs.list(&Path::new(DB).join(TABLE_DIR)).unwrap();
        entries.iter().filter_map(|entry| table_number(&entry.name)).collect()
    }

    /// Runs all threads at once. Afterwards only the files that the manifest names exist.
    fn run(self: Arc<World>) {
        self.add(10);
        self.add(20);
        let bodies: [fn(&World); 4] = [
            |world| {
                world.add(30);
                world.remove_dead();
            },
            |world| {
                world.read();
                world.remove_dead();
            },
            World::read,
            World::outlive,
        ];
        let threads = bodies.map(|body| {
            let world = self.clone();
            thread::spawn(move || body(&world))
        });
        self.compact();
        self.remove_dead();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        self.outlive();
    }
}

fn some(range: std::ops::Range<u64>) -> u64 {
    shuttle::rand::thread_rng().gen_range(range)
}

#[test]
fn a_file_goes_with_its_last_user_and_none_is_left() {
    check(4000, || {
        let world = World::new();
        world.clone().run();
        world.remove_dead();
        let named: BTreeSet<_> = world.tree().iter().map(|(_, slice)| slice.meta.file).collect();
        assert_eq!(world.files(), named);
    });
}

#[test]
fn a_full_disk_neither_removes_what_is_named_nor_leaks_in_the_end() {
    check(4000, || {
        let world = World::new();
        let full = Fault::on(FileOp::Write).suffix("MANIFEST-000001");
        world.fs.inject(full.nth(some(1..12)).kind(io::ErrorKind::StorageFull));
        world.clone().run();
        while !world.install(&[], (40, 40)) {}
        world.remove_dead();
        let named: BTreeSet<_> = world.tree().iter().map(|(_, slice)| slice.meta.file).collect();
        assert_eq!(world.files(), named);
    });
}

#[test]
fn a_failed_sync_of_the_manifest_removes_nothing_that_it_may_name() {
    check(4000, || {
        let world = World::new();
        world.fs.inject(Fault::on(FileOp::Sync).suffix("MANIFEST-000001").nth(some(1..5)));
        world.run();
    });
}
