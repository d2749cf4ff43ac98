//! Power failures, full disks and failing devices at every single operation in the life of a
//! version set.
//!
//! A fault that fails every operation from the k-th on leaves the disk as it was before the k-th.
//! From there each run cuts the power in several ways: all unsynced changes are lost, none of them,
//! or a random part.

use super::edit::{Change, Edit};
use super::files::LiveFile;
use super::fixtures;
use super::layout::Layout;
use super::names::{TABLE_DIR, table_path};
use super::set::VersionSet;
use crate::env::fixtures::Draw;
use crate::error::{Error, ErrorKind, Result};
use crate::vfs::{Fault, FileAccess, FileOp, FileSystem, MemoryFs};
use std::io;
use std::path::Path;
use std::sync::Arc;

pub(super) const DB: &str = "/data/db";

pub(super) fn open(fs: &MemoryFs) -> Result<VersionSet> {
    let (mut set, opening) = VersionSet::open(Arc::new(fs.clone()), Path::new(DB))?;
    let (_, errors) = opening.leftovers.sweep(fs);
    assert!(errors.is_empty(), "{errors:?}");
    set.set_roll_len_min(300);
    Ok(set)
}

pub(super) fn create(fs: &MemoryFs) -> Result<VersionSet> {
    let mut set = VersionSet::create(Arc::new(fs.clone()), Path::new(DB), [9; 16], b"{}")?;
    set.set_roll_len_min(300);
    Ok(set)
}

/// Does what a flush does: a synced table in a synced directory, then the edit.
pub(super) fn flush(fs: &MemoryFs, set: &mut VersionSet) -> Result<()> {
    let (output, edit) = build(fs, set)?;
    set.install(edit, &[output]).map(|_| set.files().obsolete().remove_manifests(fs))
}

fn build(fs: &MemoryFs, set: &VersionSet) -> Result<(Arc<LiveFile>, Edit)> {
    let output = set.files().allocate();
    let mut file = fs.create(&table_path(Path::new(DB), output.number()))?;
    file.append(&[1; 500])?;
    file.sync()?;
    fs.sync_dir(&Path::new(DB).join(TABLE_DIR))?;
    let seq = set.state().ceiling();
    let meta = fixtures::meta(0, output.number(), "a", "z", (seq, seq + 9));
    let changes = vec![Change::LsnCeiling { lsn: seq + 10 }, Change::AddSlice { level: 0, meta }];
    Ok((output, Edit::new(changes)))
}

/// Does what a compaction does: all runs are removed, and their files too.
fn compact(fs: &MemoryFs, set: &mut VersionSet) -> Result<()> {
    let tree = Arc::clone(&set.state().family(0).unwrap().tree);
    let gone = tree.runs.iter().map(|run| {
        let file = run.meta.file;
        Change::RemoveSlice { family: 0, level: 0, file }
    });
    set.install(Edit::new(gone.collect()), &[])?;
    drop(tree);
    set.files().obsolete().remove_manifests(fs);
    for number in set.take_obsolete()? {
        fs.remove(&table_path(Path::new(DB), number))?;
    }
    Ok(())
}

/// A life with a create, flushes, compactions, rollovers, a reopen and a clean close. Records each
/// acknowledged state. Edits of more than `len_max` bytes take several records.
fn life(fs: &MemoryFs, len_max: usize, acked: &mut Vec<Edit>) -> Result<()> {
    let mut set = create(fs)?;
    set.set_payload_len_max(len_max);
    acked.push(set.state().snapshot());
    for round in 0..2 {
        for _ in 0..3 {
            flush(fs, &mut set)?;
            acked.push(set.state().snapshot());
        }
        compact(fs, &mut set)?;
        acked.push(set.state().snapshot());
        if round == 0 {
            set = open(fs)?;
            set.set_payload_len_max(len_max);
        }
    }
    let end = set.state().ceiling();
    set.install(Edit::new(vec![Change::CleanClose { end }]), &[])?;
    acked.push(set.state().snapshot());
    Ok(())
}

/// The states of a life without faults, and its number of operations.
fn undisturbed(len_max: usize) -> (Vec<Edit>, u64) {
    let (fs, mut states) = (MemoryFs::new(), Vec::new());
    life(&fs, len_max, &mut states).unwrap();
    (states, operation_count(&fs))
}

fn operation_count(fs: &MemoryFs) -> u64 {
    use FileOp::*;
    let all =
        [CreateDir, List, Exists, OpenRead, Create, Rename, Remove, SyncDir, Read, Write, Sync];
    all.into_iter().map(|op| fs.tried(op)).sum()
}

/// The ways to cut the power: no unsynced change survives, all do, or a part chosen by a seed.
pub(super) fn cut(fs: &MemoryFs, way: u64) -> MemoryFs {
    let mut draw = Draw::new(way);
    fs.crashed(|unsynced| match way {
        0 => 0,
        1 => unsynced.steps.len(),
        _ => draw.index(unsynced.steps.len() + 1),
    })
}

pub(super) const WAYS: u64 = 12;

/// The edits of a flush and of a compaction, and snapshots, take several records of this length.
const PART_LEN: usize = 40;

/// Opens what a cut has left. Its state must be one of two neighbouring ones.
fn recover(fs: &MemoryFs, states: &[Edit], acked: usize, what: &str) -> Option<VersionSet> {
    if acked == 0 && Layout::examine(fs, Path::new(DB)).unwrap() != Layout::Database {
        let set = create(fs).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(set.state().snapshot(), states[0], "{what}");
        return None;
    }
    let set = open(fs).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = set.state().snapshot();
    let is_last = acked > 0 && found == states[acked - 1];
    let is_next = states.get(acked) == Some(&found);
    assert!(is_last || is_next, "{what}: {acked} states were acknowledged, found {found:?}");
    Some(set)
}

#[test]
fn power_may_fail_at_any_operation() {
    fail_at_any_operation(usize::MAX);
}

#[test]
fn power_may_fail_at_any_operation_on_edits_of_several_records() {
    fail_at_any_operation(PART_LEN);
}

fn fail_at_any_operation(len_max: usize) {
    let (states, operations) = undisturbed(len_max);
    assert!(states.len() == 10 && operations > 100, "{} {operations}", states.len());
    for at in 1..=operations {
        let fs = MemoryFs::new();
        fs.inject(Fault::on_any().nth(at).forever());
        let mut acked = Vec::new();
        let outcome = life(&fs, len_max, &mut acked);
        assert_eq!(acked, states[..acked.len()]);
        assert!(outcome.is_err() || acked.len() == states.len());
        for way in 0..WAYS {
            let what = format!("operation {at}, way {way}");
            let left = cut(&fs, way);
            let Some(mut set) = recover(&left, &states, acked.len(), &what) else { continue };
            flush(&left, &mut set).unwrap_or_else(|error| panic!("{what}: {error}"));
            let expected = set.state().snapshot();
            let reopened = open(&cut(&left, 0)).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(reopened.state().snapshot(), expected, "{what}");
        }
        let killed = fs.killed();
        recover(&killed, &states, acked.len(), &format!("operation {at}, killed"));
    }
}

#[test]
fn power_may_fail_again_while_an_open_goes_on() {
    fail_again(usize::MAX);
}

#[test]
fn power_may_fail_again_while_an_open_reads_edits_of_several_records() {
    fail_again(PART_LEN);
}

fn fail_again(len_max: usize) {
    let (states, operations) = undisturbed(len_max);
    for at in (1..=operations).step_by(7) {
        let fs = MemoryFs::new();
        fs.inject(Fault::on_any().nth(at).forever());
        let mut acked = Vec::new();
        let _ = life(&fs, len_max, &mut acked);
        let first = cut(&fs, at);
        if recover(&first, &states, acked.len(), "first cut").is_none() {
            continue;
        }
        for again_at in 1.. {
            // Each time from the same disk, as the first cut left it.
            let second = cut(&fs, at);
            second.inject(Fault::on_any().nth(again_at).forever());
            let mut now = None;
            let outcome =
                VersionSet::open(Arc::new(second.clone()), Path::new(DB)).map(|(mut set, _)| {
                    now = Some(set.state().snapshot());
                    flush(&second, &mut set).map(|()| set.state().snapshot())
                });
            for way in 0..4 {
                let what = format!("operation {at}, then {again_at}, way {way}");
                let set =
                    open(&cut(&second, way)).unwrap_or_else(|error| panic!("{what}: {error}"));
                let found = set.state().snapshot();
                match &outcome {
                    Ok(Ok(flushed)) => assert_eq!(&found, flushed, "{what}"),
                    _ => check_one_flush_at_most(&found, now.as_ref(), &states, acked.len(), &what),
                }
            }
            if matches!(outcome, Ok(Ok(_))) {
                break;
            }
        }
    }
}

fn check_one_flush_at_most(
    found: &Edit,
    now: Option<&Edit>,
    states: &[Edit],
    acked: usize,
    what: &str,
) {
    let slices = |edit: &Edit| {
        edit.changes.iter().filter(|change| matches!(change, Change::AddSlice { .. })).count()
    };
    match now {
        Some(now) => {
            assert!(found == now || slices(found) == slices(now) + 1, "{what}: {found:?}");
        }
        None => {
            let neighbours = &states[acked.saturating_sub(1)..states.len().min(acked + 1)];
            assert!(neighbours.contains(found), "{what}: {found:?}");
        }
    }
}

#[test]
fn a_failing_operation_is_survived_or_stops_the_writes() {
    fail_one_operation(usize::MAX);
}

#[test]
fn a_failing_operation_on_edits_of_several_records_is_survived_or_stops_the_writes() {
    fail_one_operation(PART_LEN);
}

fn fail_one_operation(len_max: usize) {
    let (states, operations) = undisturbed(len_max);
    for at in 1..=operations {
        let fs = MemoryFs::new();
        fs.inject(Fault::on_any().nth(at));
        let mut acked = Vec::new();
        let _ = life(&fs, len_max, &mut acked);
        for way in 0..WAYS {
            let what = format!("operation {at} failed, way {way}");
            let left = cut(&fs, way);
            if acked.is_empty() && open(&left).is_err() {
                continue;
            }
            recover(&left, &states, acked.len(), &what);
        }
    }
}

#[test]
fn a_full_disk_is_got_over_once_there_is_room() {
    let lens = [usize::MAX, PART_LEN];
    let cases = lens.map(|len_max| (1..=undisturbed(len_max).1).map(move |at| (len_max, at)));
    let mut failures = 0;
    for (len_max, at) in cases.into_iter().flatten() {
        let fs = MemoryFs::new();
        let mut set = create(&fs).unwrap();
        set.set_payload_len_max(len_max);
        fs.inject(Fault::on_any().nth(at).kind(io::ErrorKind::StorageFull));
        let mut expected = 0;
        for _ in 0..8 {
            if let Err(error) = flush(&fs, &mut set) {
                failures += 1;
                if set.manifest().poison().is_some() {
                    break;
                }
                assert!(error.is_retryable(), "operation {at}: {error}");
                flush(&fs, &mut set).unwrap_or_else(|error| panic!("operation {at}: {error}"));
            }
            expected += 1;
            for number in set.take_obsolete().unwrap_or_default() {
                let _ = fs.remove(&table_path(Path::new(DB), number));
            }
        }
        let runs = set.state().family(0).unwrap().tree.runs.len();
        assert_eq!(runs, expected, "operation {at}");
        for way in 0..WAYS {
            let left = open(&cut(&fs, way)).unwrap_or_else(|error| panic!("{at} {way}: {error}"));
            let found = left.state().family(0).unwrap().tree.runs.len();
            let may_have_one_more = set.manifest().poison().is_some() && found == runs + 1;
            assert!(found == runs || may_have_one_more, "operation {at}: {found}, not {runs}");
        }
    }
    assert!(failures > 20, "{failures}");
}

#[test]
fn a_switch_of_manifests_that_finds_no_room_is_made_later() {
    let fs = MemoryFs::new();
    let mut set = create(&fs).unwrap();
    set.set_roll_len_min(1);
    fs.inject(Fault::on(FileOp::Rename).suffix("CURRENT.tmp").kind(io::ErrorKind::StorageFull));
    while fs.struck() == 0 {
        flush(&fs, &mut set).unwrap();
    }
    let runs = set.state().family(0).unwrap().tree.runs.len();
    assert_eq!(set.manifest().number(), 1);
    while set.manifest().number() == 1 {
        flush(&fs, &mut set).unwrap();
    }
    let left = open(&cut(&fs, 0)).unwrap();
    assert!(left.state().family(0).unwrap().tree.runs.len() > runs);
}

#[test]
fn a_manifest_that_cannot_be_finished_leaves_no_file() {
    for op in [FileOp::Create, FileOp::Write, FileOp::Sync, FileOp::Rename] {
        for suffix in ["MANIFEST-000002", "CURRENT.tmp"] {
            let fs = MemoryFs::new();
            drop(create(&fs).unwrap());
            let mut set = open(&fs).unwrap();
            let names = || -> Vec<String> {
                fs.list(Path::new(DB)).unwrap().into_iter().map(|entry| entry.name).collect()
            };
            let before = names();
            fs.inject(Fault::on(op).suffix(suffix).kind(io::ErrorKind::StorageFull));
            let renewed = set.renew();
            assert_eq!(renewed.is_err(), fs.struck() > 0);
            if let Err(error) = renewed {
                assert_eq!(names(), before, "{op:?} of {suffix}: {error}");
            }
        }
    }
}

/// A set with one edit that failed, the number of the file it added, and the file system.
pub(super) fn failed_install(fault: Fault) -> (MemoryFs, VersionSet, u64, Error) {
    let fs = MemoryFs::new();
    let mut set = create(&fs).unwrap();
    flush(&fs, &mut set).unwrap();
    let (output, edit) = build(&fs, &set).unwrap();
    let number = output.number();
    fs.inject(fault);
    let error = set.install(edit, &[output]).unwrap_err();
    fs.clear_faults();
    assert_eq!(set.state().family(0).unwrap().tree.runs.len(), 1);
    (fs, set, number, error)
}

#[test]
fn an_edit_in_doubt_holds_its_files_until_a_new_manifest_is_in_force() {
    let fault = Fault::on(FileOp::Write).suffix("MANIFEST-000001").kind(io::ErrorKind::StorageFull);
    let (fs, mut set, number, error) = failed_install(fault);
    assert!(error.is_retryable() && set.manifest().is_in_doubt(), "{error}");
    assert!(set.files().obsolete().take().is_empty());
    flush(&fs, &mut set).unwrap();
    assert!(!set.manifest().is_in_doubt());
    assert_eq!(set.manifest().number(), 2);
    assert_eq!(set.take_obsolete().unwrap(), [number]);
    let runs = open(&cut(&fs, 0)).unwrap().state().family(0).unwrap().tree.runs.len();
    assert_eq!(runs, 2);
}

#[test]
fn a_failed_sync_is_final_and_keeps_every_file() {
    let (fs, mut set, _, error) = failed_install(Fault::on(FileOp::Sync).suffix("MANIFEST-000001"));
    assert!(!error.is_retryable(), "{error}");
    let tried = fs.tried(FileOp::Write);
    let refused = set.install(Edit::new(vec![Change::NextFile { number: 90 }]), &[]).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Poisoned { .. }), "{refused}");
    assert_eq!(fs.tried(FileOp::Write), tried);
    // An edit that breaks a rule is still refused for that, and the error names no offset: no edit
    // goes to this file any more.
    let nowhere = Change::RemoveSlice { family: 0, level: 0, file: 77 };
    let refused = set.install(Edit::new(vec![nowhere]), &[]).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Corruption { offset: 0, .. }), "{refused}");
    assert!(set.files().obsolete().take().is_empty());
    // The kernel has the edit, so an open finds it and must find its file too.
    let runs = open(&fs.killed()).unwrap().state().family(0).unwrap().tree.runs.len();
    assert_eq!(runs, 2);
    let runs = open(&cut(&fs, 0)).unwrap().state().family(0).unwrap().tree.runs.len();
    assert_eq!(runs, 1);
}

#[test]
fn what_is_read_after_a_failed_sync_is_made_durable_before_anything_is_built_on_it() {
    let (fs, set, _, _) = failed_install(Fault::on(FileOp::Sync).suffix("MANIFEST-000001"));
    drop(set);
    let fs = fs.killed();
    let mut set = open(&fs).unwrap();
    flush(&fs, &mut set).unwrap();
    let runs = open(&cut(&fs, 0)).unwrap().state().family(0).unwrap().tree.runs.len();
    assert_eq!(runs, 3);
}

#[test]
fn a_switch_that_may_not_have_happened_stops_the_writes() {
    for op in [FileOp::Rename, FileOp::SyncDir] {
        let fs = MemoryFs::new();
        drop(create(&fs).unwrap());
        let mut set = open(&fs).unwrap();
        // The sync of the directory before the rename is the first.
        fs.inject(Fault::on(op).nth(if op == FileOp::SyncDir { 3 } else { 1 }));
        assert!(flush(&fs, &mut set).is_err());
        assert!(set.manifest().poison().is_some(), "{op:?}");
        assert_eq!(flush(&fs, &mut set).unwrap_err().name(), "POISONED");
        for way in 0..WAYS {
            assert!(open(&cut(&fs, way)).unwrap().state().family(0).unwrap().tree.is_empty());
        }
    }
}

#[test]
fn a_table_that_an_unsynced_edit_removed_stays_until_another_edit_holds() {
    let fs = MemoryFs::new();
    let mut set = create(&fs).unwrap();
    set.set_roll_len_min(1 << 20);
    flush(&fs, &mut set).unwrap();
    // The process dies before the sync of the edit that removes the table: the kernel has the edit,
    // the disk does not.
    fs.inject(Fault::on(FileOp::Sync).suffix("MANIFEST-000001"));
    let file = set.state().family(0).unwrap().tree.runs[0].meta.file;
    let edit = Edit::new(vec![Change::RemoveSlice { family: 0, level: 0, file }]);
    set.install(edit, &[]).unwrap_err();
    drop(set);
    let fs = fs.killed();
    let mut set = open(&fs).unwrap();
    assert!(set.state().family(0).unwrap().tree.is_empty());
    for way in 0..WAYS {
        open(&cut(&fs, way)).unwrap_or_else(|error| panic!("way {way}: {error}"));
    }
    assert!(set.files().obsolete().take().is_empty());
    flush(&fs, &mut set).unwrap();
    assert_eq!(set.take_obsolete().unwrap(), [file]);
}

/// Opens what a cut has left, after a bit of the manifest's last edit was flipped.
fn open_with_last_edit_damaged(left: &MemoryFs) -> Result<VersionSet> {
    fixtures::damage_last_edit(left, Path::new(DB));
    open(left)
}

#[test]
fn damage_of_an_edit_is_no_torn_tail_once_what_the_edit_removed_may_go() {
    let fs = MemoryFs::new();
    let mut set = create(&fs).unwrap();
    set.set_roll_len_min(1 << 20);
    flush(&fs, &mut set).unwrap();
    assert!(set.take_obsolete().unwrap().is_empty());
    let file = set.state().family(0).unwrap().tree.runs[0].meta.file;
    let edit = Edit::new(vec![Change::RemoveSlice { family: 0, level: 0, file }]);
    set.install(edit, &[]).unwrap();
    // Nothing that the earlier state needs has been removed yet.
    let left = open_with_last_edit_damaged(&cut(&fs, 0)).unwrap();
    assert_eq!(left.state().family(0).unwrap().tree.runs.len(), 1);
    assert_eq!(set.take_obsolete().unwrap(), [file]);
    for way in 0..WAYS {
        let error = open_with_last_edit_damaged(&cut(&fs, way)).unwrap_err();
        assert!(
            error.is_corruption() && error.to_string().contains("sync marker"),
            "{way}: {error}"
        );
    }
}

#[test]
fn an_edit_whose_sync_marker_found_no_room_is_confirmed_by_a_new_manifest() {
    for (room_again, held) in [(false, true), (true, false)] {
        let fs = MemoryFs::new();
        let mut set = create(&fs).unwrap();
        set.set_roll_len_min(1 << 20);
        flush(&fs, &mut set).unwrap();
        let file = set.state().family(0).unwrap().tree.runs[0].meta.file;
        // The edit is written. Its sync marker is not, nor is a new manifest.
        let full = Fault::on(FileOp::Write).kind(io::ErrorKind::StorageFull);
        fs.inject(full.nth(2).forever());
        let edit = Edit::new(vec![Change::RemoveSlice { family: 0, level: 0, file }]);
        set.install(edit, &[]).unwrap();
        if room_again {
            fs.clear_faults();
        }
        match set.take_obsolete() {
            Ok(dead) => assert_eq!((dead, held), (vec![file], false)),
            Err(error) => assert!(held && error.is_retryable(), "{error}"),
        }
        assert_eq!(set.manifest().number(), if held { 1 } else { 2 });
        fs.clear_faults();
        assert_eq!(set.take_obsolete().unwrap().is_empty(), !held);
        assert!(open(&cut(&fs, 0)).unwrap().state().family(0).unwrap().tree.is_empty());
    }
}

#[test]
fn a_sync_marker_is_synced_once() {
    let fs = MemoryFs::new();
    let mut set = create(&fs).unwrap();
    set.set_roll_len_min(1 << 20);
    let synced_by = |set: &mut VersionSet, act: fn(&mut VersionSet)| {
        let before = fs.tried(FileOp::Sync);
        act(set);
        fs.tried(FileOp::Sync) - before
    };
    let confirm = |set: &mut VersionSet| set.confirm().unwrap();
    assert_eq!(synced_by(&mut set, confirm), 0, "a new manifest is confirmed");
    for _ in 0..2 {
        let number = set.state().next_file() + 1;
        set.install(Edit::new(vec![Change::NextFile { number }]), &[]).unwrap();
        assert_eq!(synced_by(&mut set, confirm), 1);
        assert_eq!(synced_by(&mut set, confirm), 0);
    }
    set.renew().unwrap();
    assert_eq!(synced_by(&mut set, confirm), 0);
    let number = set.state().next_file() + 1;
    set.install(Edit::new(vec![Change::NextFile { number }]), &[]).unwrap();
    fs.inject(Fault::on(FileOp::Sync));
    assert!(!set.confirm().unwrap_err().is_retryable());
    assert_eq!(set.confirm().unwrap_err().name(), "POISONED");
    assert_eq!(set.renew().unwrap_err().name(), "POISONED");
}

/// Bytes of the manifest in force.
fn manifest_len(fs: &MemoryFs, set: &VersionSet) -> u64 {
    fs.open_read(&set.manifest().path(), FileAccess::Positional).unwrap().len()
}

fn raise(set: &mut VersionSet) {
    let lsn = set.state().ceiling() + 10;
    set.install(Edit::new(vec![Change::LsnCeiling { lsn }]), &[]).unwrap();
}

/// A failed sync of a directory is final. An attempt that could not open the directory would be
/// taken for one.
#[test]
fn no_step_of_an_edit_opens_a_directory() {
    let fs = MemoryFs::new();
    let mut set = create(&fs).unwrap();
    fs.inject(Fault::on(FileOp::OpenDir).errno(24).forever());
    for number in 2..5 {
        set.renew().unwrap();
        assert_eq!(set.manifest().number(), number);
        raise(&mut set);
        set.confirm().unwrap();
    }
    assert_eq!(fs.struck(), 0);
}

#[test]
fn a_manifest_is_replaced_at_the_first_edit_behind_twice_what_it_began_with() {
    let fs = MemoryFs::new();
    let mut set = create(&fs).unwrap();
    set.set_roll_len_min(0);
    for _ in 0..3 {
        set.renew().unwrap();
        let (number, began_with) = (set.manifest().number(), manifest_len(&fs, &set));
        while manifest_len(&fs, &set) < 2 * began_with {
            raise(&mut set);
            assert_eq!(set.manifest().number(), number);
        }
        raise(&mut set);
        assert_eq!(set.manifest().number(), number + 1);
        let least = manifest_len(&fs, &set);
        set.set_roll_len_min(least);
        raise(&mut set);
        assert_eq!(set.manifest().number(), number + 2);
        let least = manifest_len(&fs, &set) + 1;
        set.set_roll_len_min(least);
        raise(&mut set);
        assert_eq!(set.manifest().number(), number + 2, "it was one byte short");
        set.set_roll_len_min(0);
    }
}

#[test]
fn a_manifest_without_room_for_another_is_replaced_at_twice_the_length_at_the_earliest() {
    let fs = MemoryFs::new();
    let mut set = create(&fs).unwrap();
    let mut roll_at = 300; // As `create` has it.
    assert!(manifest_len(&fs, &set) < roll_at);
    fs.inject(Fault::on(FileOp::Create).kind(io::ErrorKind::StorageFull).forever());
    let (before, mut attempts) = (fs.tried(FileOp::Create), 0);
    while attempts < 3 {
        if manifest_len(&fs, &set) >= roll_at {
            roll_at *= 2;
            attempts += 1;
        }
        raise(&mut set);
        assert_eq!(fs.tried(FileOp::Create) - before, attempts);
    }
    assert_eq!(set.manifest().number(), 1);
}
