//! Models of the caches. Files stay open only while they are used, and their number is bounded.
//! What open tables hold is counted exactly, even if several threads open and release tables at
//! once. Blocks never take more than the cache may have, also while that changes. (The inside of
//! `quick_cache`, which finds open files, is not modelled: no thread switches there. A single frame
//! is modelled in `frames/model.rs`.)
//!
//! Each of these planted bugs made a model fail: `FileCache::evict` that does nothing, or that runs
//! before the last user has gone; a `ResidentCharge` that is not given back; a `Slice::open` that
//! leaks the table of the second thread to open it.

use super::*;
use crate::cursor::Entry;
use crate::env::model::check;
use crate::format::{OpKind, checksum64};
use crate::table::{SliceMeta, TableContext, TableOptions, TableWriter, block_of_len};
use crate::version::{LiveFile, ObsoleteFiles, Slice};
use crate::vfs::{FileAccess, FileSystem, MemoryFs};
use shuttle::thread;
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/table";
const OPEN_MAX: usize = 2;

struct World {
    fs: MemoryFs,
    obsolete: Arc<ObsoleteFiles>,
    context: TableContext,
}

impl World {
    fn new() -> Arc<World> {
        let fs = MemoryFs::new();
        fs.create_dir_all(Path::new(DIR)).unwrap();
        let files =
            FileCache::new(Arc::new(fs.clone()), DIR.into(), FileAccess::Positional, OPEN_MAX);
        let context = TableContext::new(Arc::new(files), BlockCache::new(1 << 16));
        Arc::new(World { fs, obsolete: ObsoleteFiles::new(), context })
    }

    /// A table with one key, whose value is the file's number.
    fn table(&self, number: u64) -> Arc<Slice> {
        let file = self.fs.create(&table_path(Path::new(DIR), number)).unwrap();
        let mut writer = TableWriter::create(file, [7; 16], number).unwrap();
        writer.begin_slice(0, &TableOptions::default()).unwrap();
        let value = number.to_le_bytes();
        writer.add(Entry { key: b"k", seq: 1, kind: OpKind::Put, value: &value }).unwrap();
        let meta: SliceMeta = writer.finish().unwrap().slices.remove(0);
        Slice::new(meta, LiveFile::new(number, &self.obsolete), Box::default())
    }

    fn read(&self, slice: &Slice) {
        let found = slice.table(&self.context).unwrap().get(b"k", checksum64(b"k"), 2).unwrap();
        assert_eq!(*found.unwrap().value, slice.meta.file.to_le_bytes());
        let file = self.context.files.get(slice.meta.file).unwrap();
        assert_eq!(read_header(&*file).unwrap().number, slice.meta.file);
        assert!(self.context.files.open_count() <= OPEN_MAX);
    }

    fn remove_dead(&self) {
        let dead = self.obsolete.take();
        let is_gone = |number: &u64| self.context.files.remove(*number).is_some();
        assert!(dead.iter().all(is_gone), "a file was missing when it was to be removed");
    }
}

#[test]
fn no_file_is_open_and_no_byte_is_counted_after_its_last_user() {
    check(3000, || {
        let world = World::new();
        let slices = [1, 2, 3].map(|number| world.table(number));
        let readers = [0, 1].map(|first| {
            let (world, slices) = (world.clone(), slices.clone());
            thread::spawn(move || {
                for at in [first, first + 1] {
                    world.read(&slices[at]);
                }
                drop(slices);
                world.remove_dead();
            })
        });
        drop(slices);
        world.remove_dead();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(world.context.files.open_count(), 0);
        assert_eq!(world.context.blocks.filter_index_bytes(), 0);
        assert!(world.fs.list(Path::new(DIR)).unwrap().is_empty());
    });
}

#[test]
fn a_table_that_two_open_at_once_is_counted_once() {
    check(3000, || {
        let world = World::new();
        let slice = world.table(1);
        let charge = {
            let alone = World::new();
            let slice = alone.table(1);
            alone.read(&slice);
            alone.context.blocks.filter_index_bytes()
        };
        let readers = [(); 2].map(|()| {
            let (world, slice) = (world.clone(), slice.clone());
            thread::spawn(move || world.read(&slice))
        });
        world.read(&slice);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(world.context.blocks.filter_index_bytes(), charge);
        let blocks = &world.context.blocks;
        assert!(charge > 0 && blocks.used_bytes() <= blocks.capacity());
    });
}

#[test]
fn blocks_take_no_more_than_there_is_while_that_changes() {
    check(3000, || {
        let len = |nth: u64| 300 + nth as usize * 200;
        let key = |nth: u64| BlockKey { id: 0, file: 1, offset: nth };
        let cache = BlockCache::new(3_000);
        let hints = Arc::new(Hints::new(4));
        let readers = [0, 1].map(|first: u64| {
            let (cache, hints) = (cache.clone(), hints.clone());
            thread::spawn(move || {
                for nth in [first, 2, 3 - first, first] {
                    let hint = || hints.of(nth as u32);
                    let found = cache.get(hint(), key(nth));
                    let held = found
                        .unwrap_or_else(|| cache.insert(hint(), key(nth), block_of_len(len(nth))));
                    assert!(held.bytes().len().abs_diff(len(nth)) < 60, "another block");
                }
            })
        });
        for capacity in [900, 0, 2_000] {
            cache.set_capacity(capacity);
            assert!(cache.used_bytes() <= capacity, "{} of {capacity}", cache.used_bytes());
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert!(cache.used_bytes() <= 2_000);
        cache.set_capacity(0);
        assert_eq!(cache.used_bytes(), 0);
    });
}
