//! The recycler alone: how it sorts a directory, which spares it removes, and when it syncs names.

use super::support::*;
use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
use crate::wal::recycler::Recycler;
use crate::wal::*;
use std::path::{Path, PathBuf};

const FILE_LEN: u64 = HEADER_PAGE_LEN + SEGMENT_LEN;

fn make(fs: &dyn FileSystem, dir: &Path, name: &str, len: u64) {
    let mut file = fs.create(&dir.join(name)).unwrap();
    file.append(&vec![0; len as usize]).unwrap();
    file.sync().unwrap();
}

fn names(fs: &dyn FileSystem, dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs.list(dir).unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

/// A log directory in memory with `count` spares, numbered from 0, and its recycler.
fn recycler_of(count: u64) -> (Home, Recycler) {
    let home = Home::in_memory();
    let fs = &*home.env.fs;
    fs.create_dir_all(&home.path()).unwrap();
    (0..count).for_each(|n| make(fs, &home.path(), &format!("{n:016x}.spare"), FILE_LEN));
    let recycler = Recycler::open(fs, &home.options(), START).unwrap();
    (home, recycler)
}

/// The paths of the spares; those that would be taken last come first.
fn drain(recycler: &Recycler) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        std::iter::from_fn(|| recycler.take()).map(|spare| spare.path).collect();
    paths.reverse();
    paths
}

#[test]
fn a_directory_is_sorted_into_spares_leftovers_and_what_is_removed() {
    let home = Home::in_memory();
    let (fs, dir) = (&*home.env.fs, home.path());
    fs.create_dir_all(&dir).unwrap();
    let start = 16 * SEGMENT_LEN;
    make(fs, &dir, "0000000000005000.new", FILE_LEN);
    make(fs, &dir, "0000000000000007.spare", FILE_LEN);
    make(fs, &dir, "0000000000000003.spare", FILE_LEN + 8);
    make(fs, &dir, &format!("{:016x}.wal", start - SEGMENT_LEN), FILE_LEN);
    make(fs, &dir, &format!("{start:016x}.wal"), FILE_LEN);
    make(fs, &dir, &format!("{:016x}.wal", start + SEGMENT_LEN), FILE_LEN - 8);
    make(fs, &dir, "a stranger", 8);
    let recycler = Recycler::open(fs, &home.options(), start).unwrap();
    let kept = ["0000000000000007.spare", "000000000000f000.wal", "0000000000010000.spare"];
    assert_eq!(names(fs, &dir)[..3], kept);
    assert_eq!(names(fs, &dir)[3..], ["a stranger"]);
    let spares = drain(&recycler);
    assert_eq!(spares, [dir.join(kept[0]), dir.join(kept[2])]);
    let leftovers = recycler.leftovers_below(start - 1);
    assert!(leftovers.is_empty(), "{leftovers:?}");
    let leftovers = recycler.leftovers_below(start);
    assert_eq!(leftovers.iter().map(|info| &info.path).collect::<Vec<_>>(), [&dir.join(kept[1])]);
    assert!(recycler.leftovers_below(u64::MAX).is_empty(), "they were taken out");
}

#[test]
fn a_directory_that_cannot_be_made_is_told_as_such() {
    let (fs, home) = (MemoryFs::new(), Home::in_memory());
    fs.inject(Fault::on(FileOp::CreateDir).kind(std::io::ErrorKind::PermissionDenied));
    let told = Recycler::open(&fs, &home.options(), START).err().unwrap().to_string();
    assert!(told.contains("permission denied"), "{told}");
}

#[test]
fn a_spare_that_is_of_no_use_and_stays_fails_no_open() {
    let (fs, home) = (MemoryFs::new(), Home::in_memory());
    fs.create_dir_all(&home.path()).unwrap();
    make(&fs, &home.path(), "0000000000000003.spare", FILE_LEN + 8);
    fs.inject(Fault::on(FileOp::Remove).suffix(".spare").forever());
    let recycler = Recycler::open(&fs, &home.options(), START).unwrap();
    assert!(drain(&recycler).is_empty());
    assert_eq!(names(&fs, &home.path()), ["0000000000000003.spare"]);
}

#[test]
fn of_an_earlier_terms_longer_segment_counts_what_lies_below_the_start() {
    let home = Home::in_memory();
    let (fs, dir) = (&*home.env.fs, home.path());
    fs.create_dir_all(&dir).unwrap();
    make(fs, &dir, &format!("{:016x}.wal", 8 * SEGMENT_LEN), HEADER_PAGE_LEN + 8 * SEGMENT_LEN);
    let start = 10 * SEGMENT_LEN;
    let recycler = Recycler::open(fs, &home.options(), start).unwrap();
    assert!(recycler.leftovers_below(start - 1).is_empty());
    assert_eq!(recycler.leftovers_below(start).len(), 1);
}

#[test]
fn no_more_spares_are_kept_than_asked_for_and_three_files_make_a_stock() {
    for count in 0..=6 {
        let (home, recycler) = recycler_of(count);
        let kept = count.min(home.options().spare_segments as u64);
        assert_eq!(recycler.is_stocked(), kept >= 3, "{count}");
        assert_eq!(names(&*home.env.fs, &home.path()).len() as u64, kept);
        assert_eq!(drain(&recycler).len() as u64, kept);
    }
    // Leftovers of the regular length count, too; others do not.
    for (len, is_stocked) in [(FILE_LEN, true), (FILE_LEN + 4096, false)] {
        let home = Home::in_memory();
        let (fs, dir) = (&*home.env.fs, home.path());
        fs.create_dir_all(&dir).unwrap();
        (0..2).for_each(|n| make(fs, &dir, &format!("{n:016x}.spare"), FILE_LEN));
        make(fs, &dir, &format!("{SEGMENT_LEN:016x}.wal"), len);
        let recycler = Recycler::open(fs, &home.options(), 16 * SEGMENT_LEN).unwrap();
        assert_eq!(recycler.is_stocked(), is_stocked, "{len}");
    }
}

#[test]
fn the_spares_that_were_not_needed_for_a_while_go_those_first_that_lay_longest() {
    let (home, recycler) = recycler_of(4);
    let (fs, dir) = (&*home.env.fs, home.path());
    recycler.thin_out();
    assert_eq!(recycler.discard(fs), 0, "they have just come");
    let taken = [recycler.take().unwrap(), recycler.take().unwrap()];
    let path = |n: u64| dir.join(format!("{n:016x}.spare"));
    assert_eq!(taken.each_ref().map(|spare| spare.path.clone()), [path(3), path(2)]);
    for spare in taken {
        recycler.put_back(spare);
    }
    recycler.thin_out();
    assert_eq!(recycler.discard(fs), 2);
    assert_eq!(names(fs, &dir), ["0000000000000002.spare", "0000000000000003.spare"]);
    recycler.mark_spares_obsolete(1);
    assert_eq!((recycler.discard(fs), recycler.discard(fs)), (1, 0));
    // The spares that were taken were put back in the order 3, 2.
    assert_eq!(drain(&recycler), [path(2)]);
    recycler.mark_spares_obsolete(9);
    assert_eq!(recycler.discard(fs), 0);
    recycler.mark_obsolete(path(2), None);
    recycler.mark_obsolete(path(9), None);
    assert_eq!(recycler.discard(fs), 1, "one of them is not there");
    assert!(names(fs, &dir).is_empty());
}

#[test]
fn a_retired_segment_becomes_a_spare_by_a_name_of_its_own_if_it_is_wanted() {
    let (home, recycler) = recycler_of(3);
    let (fs, dir) = (&*home.env.fs, home.path());
    let recycle = |base: u64, file_len| {
        let path = dir.join(format!("{base:016x}.wal"));
        make(fs, &dir, &format!("{base:016x}.wal"), file_len);
        let info = SegmentInfo { path, kind: SegmentKind::Log, base, file_len };
        recycler.recycle(fs, &info, None).unwrap()
    };
    assert!(!recycle(2 * SEGMENT_LEN, FILE_LEN + 8), "of another length");
    assert!(recycle(3 * SEGMENT_LEN, FILE_LEN));
    assert!(!recycle(4 * SEGMENT_LEN, FILE_LEN), "there are enough");
    let named = dir.join(format!("{START:016x}.spare"));
    assert_eq!(drain(&recycler).last().unwrap(), &named);
    let left = names(fs, &dir);
    let kept = left.iter().filter(|name| name.ends_with(".wal")).collect::<Vec<_>>();
    assert_eq!(kept, ["0000000000002000.wal", "0000000000004000.wal"]);
}

/// Errors name the file by this path.
#[test]
fn an_open_segment_that_becomes_a_spare_knows_its_new_name() {
    let home = Home::in_memory();
    let log = home.start();
    let inner = log.take_over();
    while !log.has_room_at(START + 4 * SEGMENT_LEN) {
        inner.prepare_segment().unwrap();
    }
    for n in 0..3 {
        put(&log, &payload(n, 3000)).unwrap();
    }
    log.retire(log.tail());
    let spare = inner.recycler.take().unwrap();
    assert!(spare.path.extension().is_some_and(|kind| kind == "spare"));
    assert_eq!(spare.file.unwrap().path(), spare.path);
}

#[test]
fn no_spare_gets_a_name_that_a_term_before_may_have_given() {
    for (spare, named) in [(None, START), (Some(START + 6), START + 7), (Some(3), START)] {
        let home = Home::in_memory();
        let (fs, dir) = (&*home.env.fs, home.path());
        fs.create_dir_all(&dir).unwrap();
        spare.iter().for_each(|n| make(fs, &dir, &format!("{n:016x}.spare"), FILE_LEN));
        make(fs, &dir, &format!("{START:016x}.wal"), FILE_LEN);
        let recycler = Recycler::open(fs, &home.options(), START).unwrap();
        let newest = dir.join(format!("{named:016x}.spare"));
        assert_eq!(drain(&recycler).into_iter().max(), Some(newest), "{spare:?}");
    }
}

#[test]
fn names_found_at_an_open_are_synced_before_the_first_of_them_changes() {
    for (name, syncs) in
        [("0000000000000000.spare", 1), ("0000000000001000.wal", 1), ("0000000000000000.wal", 0)]
    {
        let home = Home::in_memory();
        let (fs, dir) = (&*home.env.fs, home.path());
        fs.create_dir_all(&dir).unwrap();
        make(fs, &dir, name, FILE_LEN);
        let before = home.faults.dirs_synced.load(crate::env::sync::atomic::Ordering::SeqCst);
        Recycler::open(fs, &home.options(), START).unwrap();
        let after = home.faults.dirs_synced.load(crate::env::sync::atomic::Ordering::SeqCst);
        assert_eq!(after - before, syncs, "{name}");
    }
}

#[test]
fn a_directory_of_the_log_that_may_not_survive_is_not_written_to() {
    let home = Home::in_memory();
    let fs = MemoryFs::new();
    fs.inject(Fault::on(FileOp::SyncDir));
    Recycler::open(&fs, &home.options(), START).map(drop).unwrap_err();
    assert_eq!(fs.struck(), 1);
    Recycler::open(&fs, &home.options(), START).unwrap();
}

/// A failed sync of the directory has lost that a file was renamed, and then it became another
/// segment. After a power cut it has both names.
#[test]
fn a_file_of_two_names_is_used_again_by_one_of_them() {
    let home = Home::new();
    let log = home.start();
    let ranges: Vec<_> = (0..200).map(|n| put(&log, &payload(n, 100)).unwrap()).collect();
    log.close().unwrap();
    drop(log);
    let (first, last) = (ranges[0].0, ranges[199].0 / SEGMENT_LEN * SEGMENT_LEN);
    assert!(last > first);
    let (fs, dir) = (&*home.env.fs, home.path());
    let name = |base: u64| dir.join(format!("{base:016x}.wal"));
    std::fs::hard_link(name(last), name(2 * last)).unwrap();
    let start = 4 * last;
    let recycler = Recycler::open(fs, &LogOptions { spare_segments: 99, ..home.options() }, start);
    let recycler = recycler.unwrap();
    let leftovers = recycler.leftovers_below(start);
    let is_used = |info: &SegmentInfo| recycler.recycle(fs, info, None).unwrap();
    let refused: Vec<_> = leftovers.iter().filter(|info| !is_used(info)).collect();
    assert_eq!(refused.iter().map(|info| info.base).collect::<Vec<_>>(), [2 * last]);
    assert!(leftovers.len() > 2);
}

/// Two segments in one file would overwrite each other.
#[test]
fn a_spare_that_may_be_another_file_too_is_not_used() {
    let home = Home::new();
    let log = home.start();
    let ranges: Vec<_> = (0..200).map(|n| put(&log, &payload(n, 100)).unwrap()).collect();
    log.close().unwrap();
    drop(log);
    let (fs, dir) = (&*home.env.fs, home.path());
    let of_segment = dir.join(format!("{:016x}.wal", ranges[199].0 / SEGMENT_LEN * SEGMENT_LEN));
    let spare = |n: u64| dir.join(format!("{n:016x}.spare"));
    let options = LogOptions { spare_segments: 99, ..home.options() };
    let open = || Recycler::open(fs, &options, ranges[199].1).unwrap();
    for stranger in home.names(".spare") {
        std::fs::remove_file(dir.join(stranger)).unwrap();
    }
    // Of a segment that is in use, of another spare, of none, and of none that can be told.
    std::fs::hard_link(&of_segment, spare(1)).unwrap();
    std::fs::copy(dir.join(format!("{START:016x}.wal")), spare(2)).unwrap();
    std::fs::remove_file(dir.join(format!("{START:016x}.wal"))).unwrap();
    make(fs, &dir, "0000000000000004.spare", FILE_LEN);
    make(fs, &dir, "0000000000000005.spare", FILE_LEN);
    let damaged = std::fs::File::options().write(true).open(spare(5)).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&damaged, &[1], 20).unwrap();
    assert_eq!(drain(&open()), [spare(2), spare(4)]);
    std::fs::hard_link(spare(2), spare(3)).unwrap();
    assert_eq!(drain(&open()), [spare(4)]);
    assert_eq!(home.names(".spare"), ["0000000000000004.spare"]);
    assert!(fs.exists(&of_segment).unwrap());
}
