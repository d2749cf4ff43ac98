//! The effects of faults, kills and power cuts. The rules of every file system are checked in
//! `vfs/tests/conformance.rs`.

use super::*;
use crate::error::ErrorKind;
use std::collections::BTreeSet;
use std::io;

fn p(path: &str) -> &Path {
    Path::new(path)
}

fn get(fs: &MemoryFs, path: &str) -> Vec<u8> {
    let file = fs.open_read(p(path), FileAccess::Positional).unwrap();
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn has(fs: &MemoryFs, path: &str) -> bool {
    fs.exists(p(path)).unwrap()
}

fn synced_file(fs: &MemoryFs, path: &str, bytes: &[u8]) -> Box<dyn WriteFile> {
    let mut file = fs.create(p(path)).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
    fs.sync_dir(p(path).parent().unwrap()).unwrap();
    file
}

fn segment(fs: &MemoryFs, path: &str, len: u64) -> Result<Arc<dyn SegmentFile>> {
    // SAFETY: every test opens a segment once.
    unsafe { fs.open_segment(p(path), len, FileAccess::Mapped) }
}

fn synced_segment(fs: &MemoryFs, path: &str, len: u64) -> Arc<dyn SegmentFile> {
    let segment = segment(fs, path, len).unwrap();
    fs.sync_dir(p(path).parent().unwrap()).unwrap();
    segment
}

fn copy(segment: &dyn SegmentFile, offset: u64, bytes: &[u8]) -> Result<()> {
    // SAFETY: every test here copies from one thread, and reads after the copy has ended.
    unsafe { segment.copy_in(offset, bytes) }
}

fn io_kind<T>(result: Result<T>) -> io::ErrorKind {
    match result {
        Err(error) if error.io_kind().is_some() => error.io_kind().unwrap(),
        Err(other) => panic!("not an error of input or output: {other}"),
        Ok(_) => panic!("succeeded"),
    }
}

const LOSE_ALL: fn(&Unsynced<'_>) -> usize = |_| 0;
const KEEP_ALL: fn(&Unsynced<'_>) -> usize = |u| u.steps.len();

#[test]
fn a_power_cut_keeps_what_was_synced_and_nothing_else() {
    let fs = MemoryFs::new();
    let mut file = synced_file(&fs, "/f", b"synced");
    file.append(b", flushed").unwrap();
    file.flush().unwrap();
    file.append(b", gathered").unwrap();
    assert_eq!(get(&fs.crashed(LOSE_ALL), "/f"), b"synced");
    assert_eq!(get(&fs.crashed(KEEP_ALL), "/f"), b"synced, flushed");
    assert_eq!(get(&fs.killed(), "/f"), b"synced, flushed");
    assert_eq!(get(&fs.killed().crashed(LOSE_ALL), "/f"), b"synced");
    drop(file);
    assert_eq!(get(&fs.killed(), "/f"), b"synced, flushed, gathered");
    assert_eq!(get(&fs.crashed(LOSE_ALL), "/f"), b"synced");
}

#[test]
fn what_a_power_cut_left_survives_the_next_one() {
    let fs = MemoryFs::new();
    synced_file(&fs, "/f", b"synced").append(b" and not").unwrap();
    let once = fs.crashed(KEEP_ALL);
    assert_eq!(get(&once.crashed(LOSE_ALL), "/f"), b"synced and not");
}

#[test]
fn the_old_file_system_and_the_one_after_the_cut_are_apart() {
    let fs = MemoryFs::new();
    let mut file = synced_file(&fs, "/f", b"before");
    let left = fs.crashed(LOSE_ALL);
    file.append(b" and after").unwrap();
    file.sync().unwrap();
    assert_eq!(get(&left, "/f"), b"before");
    left.remove(p("/f")).unwrap();
    assert!(has(&fs, "/f"));
}

#[test]
fn a_new_name_is_lost_until_its_directory_is_synced() {
    let fs = MemoryFs::new();
    fs.create_dir_all(p("/d")).unwrap();
    let mut file = fs.create(p("/d/f")).unwrap();
    file.append(b"bytes").unwrap();
    file.sync().unwrap();
    assert!(!has(&fs.crashed(LOSE_ALL), "/d"));
    fs.sync_dir(p("/")).unwrap();
    let left = fs.crashed(LOSE_ALL);
    assert!(has(&left, "/d") && !has(&left, "/d/f"));
    fs.sync_dir(p("/d")).unwrap();
    assert_eq!(get(&fs.crashed(LOSE_ALL), "/d/f"), b"bytes");
}

#[test]
fn a_synced_name_without_synced_bytes_is_an_empty_file() {
    let fs = MemoryFs::new();
    let mut file = fs.create(p("/f")).unwrap();
    file.append(b"bytes").unwrap();
    file.flush().unwrap();
    fs.sync_dir(p("/")).unwrap();
    assert_eq!(get(&fs.crashed(LOSE_ALL), "/f"), b"");
}

#[test]
fn a_removal_is_undone_by_a_power_cut_until_its_directory_is_synced() {
    let fs = MemoryFs::new();
    synced_file(&fs, "/f", b"bytes");
    fs.remove(p("/f")).unwrap();
    assert_eq!(get(&fs.crashed(LOSE_ALL), "/f"), b"bytes");
    assert!(!has(&fs.killed(), "/f"));
    fs.sync_dir(p("/")).unwrap();
    assert!(!has(&fs.crashed(LOSE_ALL), "/f"));
}

#[test]
fn a_rename_is_one_change_and_a_power_cut_leaves_the_one_file_or_the_other() {
    let fs = MemoryFs::new();
    synced_file(&fs, "/CURRENT", b"old");
    synced_file(&fs, "/tmp", b"new");
    fs.replace(p("/tmp"), p("/CURRENT")).unwrap();
    let (before, after) = (fs.crashed(LOSE_ALL), fs.crashed(KEEP_ALL));
    assert_eq!((get(&before, "/CURRENT"), get(&before, "/tmp")), (b"old".into(), b"new".into()));
    assert_eq!((get(&after, "/CURRENT"), has(&after, "/tmp")), (b"new".into(), false));
    let mut choices = 0;
    fs.crashed(|_| {
        choices += 1;
        0
    });
    assert_eq!(choices, 1);
}

#[test]
fn changes_of_names_survive_independently() {
    let fs = MemoryFs::new();
    for name in ["/a", "/b", "/c"] {
        fs.create(p(name)).unwrap();
    }
    let left = fs.crashed(|u| usize::from(u.path == p("/b")));
    assert_eq!(left.list(p("/")).unwrap().into_iter().map(|e| e.name).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn sectors_survive_independently_and_never_in_part() {
    let fs = MemoryFs::new();
    let segment = synced_segment(&fs, "/s", 2048);
    copy(&*segment, 0, &[1; 2048]).unwrap();
    segment.sync_range(0, u64::MAX).unwrap();
    copy(&*segment, 500, &[2; 1000]).unwrap();
    let second_only = |u: &Unsynced<'_>| match u.kind {
        UnsyncedKind::Sector { offset } => usize::from(offset == 512),
        _ => panic!("only sectors were left to choose: {u:?}"),
    };
    let left = get(&fs.crashed(second_only), "/s");
    assert!(left[..512].iter().all(|b| *b == 1));
    assert!(left[512..1024].iter().all(|b| *b == 2));
    assert!(left[1024..].iter().all(|b| *b == 1));
}

#[test]
fn syncing_a_range_reaches_its_sectors_and_no_others() {
    let fs = MemoryFs::new();
    let segment = synced_segment(&fs, "/s", 2048);
    copy(&*segment, 0, &[1; 2048]).unwrap();
    segment.sync_range(600, 500).unwrap();
    let left = get(&fs.crashed(LOSE_ALL), "/s");
    assert!(left[..512].iter().all(|b| *b == 0));
    assert!(left[512..1536].iter().all(|b| *b == 1));
    assert!(left[1536..].iter().all(|b| *b == 0));

    fs.inject(Fault::on(FileOp::SyncRange));
    segment.sync_range(0, 512).unwrap_err();
    segment.sync_range(0, 2048).unwrap();
    let left = get(&fs.crashed(LOSE_ALL), "/s");
    assert!(left[..512].iter().all(|b| *b == 0), "a failed sync is final where it was");
    assert!(left[512..].iter().all(|b| *b == 1));
}

#[test]
fn a_sector_may_be_left_as_any_write_to_it_made_it() {
    let fs = MemoryFs::new();
    let segment = synced_segment(&fs, "/s", 512);
    copy(&*segment, 0, b"one").unwrap();
    copy(&*segment, 2, b"two").unwrap();
    copy(&*segment, 0, b"three").unwrap();
    let mut seen = BTreeSet::new();
    for kept in 0..=3 {
        let left = fs.crashed(|u| {
            assert_eq!(u.steps.len(), 3);
            kept
        });
        seen.insert(String::from_utf8(get(&left, "/s")[..5].to_vec()).unwrap());
    }
    let expected = ["\0\0\0\0\0", "one\0\0", "ontwo", "three"];
    assert_eq!(seen, expected.map(String::from).into());
}

#[test]
fn a_length_may_survive_without_the_bytes_and_the_bytes_without_the_length() {
    let fs = MemoryFs::new();
    let mut file = synced_file(&fs, "/f", b"abc");
    file.append(b"def").unwrap();
    file.flush().unwrap();
    let length_only = fs.crashed(|u| usize::from(u.kind == UnsyncedKind::Length));
    assert_eq!(get(&length_only, "/f"), b"abc\0\0\0");
    let bytes_only = fs.crashed(|u| usize::from(u.kind != UnsyncedKind::Length));
    assert_eq!(get(&bytes_only, "/f"), b"abc");
}

#[test]
fn cutting_everything_at_one_step_leaves_what_was_there_then() {
    let fs = MemoryFs::new();
    let mut file = fs.create(p("/f")).unwrap();
    let mut states = vec![(fs.steps(), Vec::new())];
    let mut written = Vec::new();
    for i in 0..20_u8 {
        file.append(&vec![i + 1; 300]).unwrap();
        file.flush().unwrap();
        written.extend_from_slice(&[i + 1; 300]);
        states.push((fs.steps(), written.clone()));
    }
    for (step, expected) in states {
        assert_eq!(get(&fs.crashed(|u| u.steps_until(step)), "/f"), expected, "at step {step}");
    }
    assert!(!has(&fs.crashed(|u| u.steps_until(0)), "/f"));
}

#[test]
fn a_file_with_two_names_is_one_file_after_a_cut() {
    let fs = MemoryFs::new();
    synced_file(&fs, "/a", b"bytes");
    fs.link(p("/a"), p("/b")).unwrap();
    fs.sync_dir(p("/")).unwrap();
    let left = fs.crashed(LOSE_ALL);
    left.corrupt(p("/a"), 0, 0xff).unwrap();
    assert_eq!(get(&left, "/b"), get(&left, "/a"));
    assert_eq!(get(&fs, "/a"), b"bytes");
}

#[test]
fn a_failed_sync_loses_what_it_covered_though_a_later_one_succeeds() {
    let fs = MemoryFs::new();
    let segment = synced_segment(&fs, "/s", 1024);
    fs.inject(Fault::on(FileOp::SyncRange));
    copy(&*segment, 0, b"lost").unwrap();
    let failed = segment.sync_range(0, u64::MAX).unwrap_err();
    assert!(matches!(
        failed.kind(),
        ErrorKind::Io { source, .. } if source.raw_os_error() == Some(5)
    ));
    copy(&*segment, 512, b"kept").unwrap();
    segment.sync_range(0, u64::MAX).unwrap();
    assert_eq!(&get(&fs, "/s")[..4], b"lost");
    let left = get(&fs.crashed(LOSE_ALL), "/s");
    assert_eq!((&left[..4], &left[512..516]), (&b"\0\0\0\0"[..], &b"kept"[..]));
    // Another write makes the whole sector dirty again.
    copy(&*segment, 4, b"!").unwrap();
    segment.sync_range(0, u64::MAX).unwrap();
    assert_eq!(&get(&fs.crashed(LOSE_ALL), "/s")[..5], b"lost!");
}

#[test]
fn without_descriptors_nothing_is_opened_and_what_is_open_goes_on() {
    let fs = MemoryFs::new();
    let (root, mut file) = (fs.open_dir(p("/")).unwrap(), fs.create(p("/f")).unwrap());
    fs.inject(Fault::no_descriptors());
    assert!(fs.sync_dir(p("/")).unwrap_err().is_too_many_files());
    assert!(fs.open_read(p("/f"), FileAccess::Positional).err().unwrap().is_too_many_files());
    file.append(b"bytes").unwrap();
    file.sync().unwrap();
    root.sync().unwrap();
    fs.clear_faults();
    assert_eq!(get(&fs.crashed(LOSE_ALL), "/f"), b"bytes");
}

#[test]
fn a_failed_sync_of_a_directory_loses_names_though_a_later_one_succeeds() {
    let fs = MemoryFs::new();
    synced_file(&fs, "/a", b"bytes");
    fs.inject(Fault::on(FileOp::SyncDir));
    fs.rename(p("/a"), p("/b")).unwrap();
    assert!(fs.sync_dir(p("/")).is_err());
    synced_file(&fs, "/c", b"more");
    fs.sync_dir(p("/")).unwrap();
    let left = fs.crashed(LOSE_ALL);
    assert!(has(&left, "/a") && !has(&left, "/b") && has(&left, "/c"));
    assert!(has(&fs.crashed(|u| u.steps.len()), "/b"));
    let after = fs.killed();
    after.sync_dir(p("/")).unwrap();
    assert!(has(&after.crashed(LOSE_ALL), "/b"));
    // A later change of this name is synced.
    fs.remove(p("/b")).unwrap();
    fs.sync_dir(p("/")).unwrap();
    assert!(!has(&fs.crashed(|u| u.steps.len()), "/b"));
}

#[test]
fn a_fault_strikes_the_nth_match_once_or_forever() {
    let fs = MemoryFs::new();
    fs.inject(Fault::on(FileOp::Create).suffix(".tbl").nth(2).kind(io::ErrorKind::StorageFull));
    fs.create(p("/1.tbl")).unwrap();
    fs.create(p("/2.wal")).unwrap();
    let full = fs.create(p("/3.tbl")).err().unwrap();
    assert!(full.is_out_of_space() && full.is_retryable(), "{full}");
    assert!(!has(&fs, "/3.tbl"));
    fs.create(p("/3.tbl")).unwrap();

    fs.inject(Fault::on(FileOp::Create).forever().errno(24));
    for _ in 0..2 {
        assert!(fs.create(p("/4.tbl")).err().unwrap().is_too_many_files());
    }
    assert_eq!(fs.tried(FileOp::Create), 6);
    fs.clear_faults();
    fs.create(p("/4.tbl")).unwrap();
}

#[test]
fn a_fault_can_strike_any_operation_and_is_gone_after_a_kill() {
    let fs = MemoryFs::new();
    let mut file = synced_file(&fs, "/f", b"bytes");
    let segment = synced_segment(&fs, "/s", 512);
    let reader = fs.open_read(p("/f"), FileAccess::Positional).unwrap();
    fs.inject(Fault::on_any().forever());
    let after = fs.killed();
    assert!(fs.list(p("/")).is_err());
    assert!(fs.remove(p("/f")).is_err());
    assert!(fs.lock(p("/LOCK")).is_err());
    assert!(reader.read_at(0, &mut [0]).is_err());
    assert!(segment.read_at(0, &mut [0]).is_err());
    assert!(copy(&*segment, 0, b"x").is_err());
    file.append(b"gathered").unwrap();
    assert!(file.flush().is_err());
    assert!(file.sync().is_err());
    assert_eq!(get(&after, "/f"), b"bytes");
}

#[test]
fn a_failed_flush_can_be_tried_again() {
    let fs = MemoryFs::new();
    let mut file = fs.create(p("/f")).unwrap();
    fs.inject(Fault::on(FileOp::Write));
    file.append(b"bytes").unwrap();
    assert!(file.flush().is_err());
    assert_eq!(file.len(), 5);
    file.append(b", more").unwrap();
    file.flush().unwrap();
    assert_eq!(get(&fs, "/f"), b"bytes, more");
}

#[test]
fn a_disk_that_is_over_full_still_takes_what_needs_no_room() {
    let fs = MemoryFs::new();
    let segment = segment(&fs, "/s", 4096).unwrap();
    fs.set_capacity(0);
    // SAFETY: no other thread uses the segment.
    unsafe { segment.copy_in(100, b"record") }.unwrap();
    let mut file = fs.create(p("/f")).unwrap();
    let full = file.append(b"more").and_then(|()| file.flush()).unwrap_err();
    assert!(full.is_out_of_space(), "{full}");
}

#[test]
fn space_runs_out_and_comes_back_when_the_last_handle_of_a_removed_file_is_gone() {
    let fs = MemoryFs::new();
    fs.set_capacity(1000);
    let mut file = fs.create(p("/f")).unwrap();
    file.append(&[1; 600]).unwrap();
    file.sync().unwrap();
    assert_eq!(fs.free_space(p("/")).unwrap(), 400);
    let refused = segment(&fs, "/s", 512).err().unwrap();
    assert!(refused.is_out_of_space() && !has(&fs, "/s"));
    file.append(&[2; 600]).unwrap();
    assert!(file.flush().unwrap_err().is_out_of_space());
    let after = fs.killed();
    assert_eq!(after.free_space(p("/")).unwrap(), 400);

    fs.set_capacity(1200);
    file.flush().unwrap();
    fs.remove(p("/f")).unwrap();
    fs.sync_dir(p("/")).unwrap();
    assert_eq!(fs.free_space(p("/")).unwrap(), 0);
    drop(file);
    assert_eq!(fs.free_space(p("/")).unwrap(), 1200);
}

#[test]
fn locks_are_free_after_a_kill_and_a_cut() {
    let fs = MemoryFs::new();
    let held = fs.lock(p("/LOCK")).unwrap();
    fs.sync_dir(p("/")).unwrap();
    assert!(fs.lock(p("/LOCK")).err().unwrap().is_retryable());
    let (killed, crashed) = (fs.killed(), fs.crashed(LOSE_ALL));
    drop(killed.lock(p("/LOCK")).unwrap());
    let held_after = crashed.lock(p("/LOCK")).unwrap();
    // The handle of the dead process belongs to the old state and releases nothing in the new one.
    drop(held);
    assert!(crashed.lock(p("/LOCK")).is_err());
    drop(held_after);
}

#[test]
fn rot_and_truncation_are_seen_by_those_who_open_the_file_then() {
    let fs = MemoryFs::new();
    synced_file(&fs, "/f", b"abcdef");
    let mapped = fs.open_read(p("/f"), FileAccess::Mapped).unwrap();
    fs.corrupt(p("/f"), 1, 0x20).unwrap();
    assert_eq!(get(&fs.crashed(LOSE_ALL), "/f"), b"aBcdef");
    let mut before = [0; 6];
    mapped.read_at(0, &mut before).unwrap();
    assert_eq!(&before, b"abcdef");
    assert_eq!(io_kind(fs.corrupt(p("/f"), 6, 1)), io::ErrorKind::UnexpectedEof);
    fs.truncate(p("/f"), 2).unwrap();
    assert_eq!(get(&fs.crashed(LOSE_ALL), "/f"), b"aB");
    assert_eq!(io_kind(fs.truncate(p("/f"), 3)), io::ErrorKind::UnexpectedEof);
    assert_eq!(io_kind(fs.truncate(p("/g"), 3)), io::ErrorKind::NotFound);
}

#[test]
fn directories_move_with_what_is_in_them_but_not_into_themselves() {
    let fs = MemoryFs::new();
    fs.create_dir_all(p("/a/b")).unwrap();
    fs.create_dir_all(p("/full/x")).unwrap();
    synced_file(&fs, "/a/b/f", b"bytes");
    assert_eq!(io_kind(fs.rename(p("/a"), p("/a/b/c"))), io::ErrorKind::InvalidInput);
    assert_eq!(io_kind(fs.replace(p("/a"), p("/full"))), io::ErrorKind::DirectoryNotEmpty);
    assert_eq!(io_kind(fs.replace(p("/a/b/f"), p("/full"))), io::ErrorKind::IsADirectory);
    fs.rename(p("/a"), p("/c")).unwrap();
    assert_eq!(get(&fs, "c/b/../b/f"), b"bytes");
    assert!(!has(&fs, "/a"));
}

#[test]
fn a_snapshot_taken_among_writers_never_has_an_effect_without_its_cause() {
    let fs = MemoryFs::new();
    let cause = synced_segment(&fs, "/cause", 8);
    let effect = synced_segment(&fs, "/effect", 8);
    let stop = crate::host::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1_u64.. {
                copy(&*cause, 0, &n.to_le_bytes()).unwrap();
                copy(&*effect, 0, &n.to_le_bytes()).unwrap();
                cause.sync_range(0, u64::MAX).unwrap();
                effect.sync_range(0, u64::MAX).unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let number = |fs: &MemoryFs, path| u64::from_le_bytes(get(fs, path).try_into().unwrap());
        for _ in 0..if cfg!(miri) { 5 } else { 300 } {
            let left = fs.killed();
            let (cause, effect) = (number(&left, "/cause"), number(&left, "/effect"));
            assert!(cause == effect || cause == effect + 1, "{cause} {effect}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[cfg(debug_assertions)]
#[test]
fn a_thread_of_low_priority_removes_no_file_under_a_lock_of_the_engine() {
    use crate::host::sync::{Mutex, Rank};
    use crate::host::{Priority, SystemThreads, Threads};
    for (priority, is_held, is_refused) in [
        (Priority::Normal, true, false),
        (Priority::Low, false, false),
        (Priority::Low, true, true),
    ] {
        let (fs, path) = (MemoryFs::new(), Path::new("/file"));
        drop(fs.create(path).unwrap());
        let (tell, told) = std::sync::mpsc::channel();
        let body = move || {
            let lock = Mutex::new(Rank::Errands, ());
            let held = is_held.then(|| lock.lock());
            let remove = std::panic::AssertUnwindSafe(|| fs.remove(path).unwrap());
            tell.send(std::panic::catch_unwind(remove).is_err()).unwrap();
            drop(held);
        };
        SystemThreads.spawn("test".to_owned(), priority, Box::new(body)).unwrap().join();
        assert_eq!(told.recv().unwrap(), is_refused, "{priority:?} {is_held}");
    }
}
