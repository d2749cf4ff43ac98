//! Tests the cache of open files, and what opening a file checks.

use super::fixtures::*;
use crate::format::{FileHeader, FileKind};
use crate::table::cache::{FileCache, table_path};
use crate::table::{TableOptions, TableWriter};
use crate::vfs::{FileAccess, FileSystem};
use std::path::Path;

fn write(fixture: &Fixture, path: &Path, number: u64) {
    let file = fixture.fs.create(path).unwrap();
    TableWriter::create(file, [9; 16], number).unwrap().finish().unwrap();
}

fn cache(fixture: &Fixture, capacity: usize) -> FileCache {
    FileCache::new(fixture.fs.clone(), fixture.dir.clone(), FileAccess::Mapped, capacity)
}

#[test]
fn open_files_never_exceed_the_capacity() {
    let fixture = Fixture::new();
    for number in 0..1500 {
        write(&fixture, &table_path(&fixture.dir, number), number);
    }
    for capacity in [0, 1, 7, 1000] {
        let cache = cache(&fixture, capacity);
        for number in (0..1500).chain(0..1500) {
            assert!(!cache.get(number).unwrap().is_empty());
            assert!(cache.open_count() <= capacity);
        }
        assert!(cache.open_count() * 2 >= capacity);
    }
}

#[test]
fn an_evicted_file_is_opened_again() {
    let fixture = Fixture::new();
    write(&fixture, &table_path(&fixture.dir, 3), 3);
    let cache = cache(&fixture, 10);
    let before = cache.get(3).unwrap();
    cache.evict(3);
    assert_eq!(cache.open_count(), 0);
    assert!(!std::sync::Arc::ptr_eq(before.parts().0, cache.get(3).unwrap().parts().0));
}

#[test]
fn a_file_of_another_number_is_refused() {
    let fixture = Fixture::new();
    write(&fixture, &table_path(&fixture.dir, 3), 4);
    let error = cache(&fixture, 10).get(3).err().unwrap();
    assert!(error.is_corruption() && error.to_string().contains("number 4"), "{error}");
    assert!(!cache(&fixture, 10).get(5).err().unwrap().is_corruption());
}

#[test]
fn a_file_of_another_database_is_refused() {
    let fixture = Fixture::new();
    write(&fixture, &table_path(&fixture.dir, 3), 3);
    cache(&fixture, 10).of_database([9; 16]).get(3).unwrap();
    let error = cache(&fixture, 10).of_database([8; 16]).get(3).err().unwrap();
    assert!(error.is_corruption() && error.to_string().contains("another database"), "{error}");
}

#[test]
fn names_sort_as_numbers_do() {
    assert_eq!(table_path(Path::new("/db/table"), 42), Path::new("/db/table/0000000042.tbl"));
}

#[test]
fn a_file_that_is_no_table_is_refused() {
    let fixture = Fixture::new();
    fixture.write(&TableOptions::default(), &[]);
    for bytes in [vec![], vec![0; 127], vec![0; 5000]] {
        fixture.set_bytes(bytes);
        assert!(cache(&fixture, 10).get(NUMBER).err().unwrap().is_corruption());
    }
}

/// An address in a damaged table may name any file.
#[test]
fn a_file_of_another_kind_is_refused_whether_it_is_open_or_not() {
    let fixture = Fixture::new();
    write(&fixture, &table_path(&fixture.dir, 3), 3);
    let header = FileHeader::new(FileKind::Blob, [9; 16], 4);
    let mut blob = fixture.fs.create(&table_path(&fixture.dir, 4)).unwrap();
    blob.append(&header.encode()).unwrap();
    blob.flush().unwrap();
    for is_held in [false, true] {
        let cache = cache(&fixture, 10);
        let held = is_held.then(|| {
            let of = |number, kind| cache.hold(number, kind).unwrap();
            (of(3, FileKind::Table), of(4, FileKind::Blob))
        });
        for _ in 0..2 {
            cache.get(3).unwrap();
            cache.get_blob(4).unwrap();
            for error in [cache.get_blob(3).err(), cache.get(4).err()] {
                assert!(error.unwrap().is_corruption());
            }
            cache.evict(3);
            cache.evict(4);
        }
        drop(held);
    }
}
