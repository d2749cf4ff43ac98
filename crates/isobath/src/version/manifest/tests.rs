//! Devices that have no room left when the manifest is synced or replaced.

use super::super::edit::{Change, Edit};
use super::super::names::{manifest_name, table_path};
use super::super::set::VersionSet;
use super::super::tests::{DB, WAYS, create, cut, failed_install, flush, open};
use crate::error::Error;
use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
use std::io;
use std::path::Path;

/// As an append that finds none does.
#[test]
fn a_sync_that_finds_no_room_leaves_its_edit_in_doubt_until_a_new_manifest_is_in_force() {
    let fault = Fault::on(FileOp::Sync).suffix("MANIFEST-000001").kind(io::ErrorKind::StorageFull);
    let (fs, mut set, number, error) = failed_install(fault.clone());
    assert!(error.is_retryable() && set.manifest().is_in_doubt(), "{error}");
    assert!(set.files().obsolete().take().is_empty());
    for way in 0..WAYS {
        let runs = open(&cut(&fs, way)).unwrap().state().family(0).unwrap().tree.runs.len();
        assert!((1..=2).contains(&runs), "{way}");
    }
    flush(&fs, &mut set).unwrap();
    assert_eq!((set.manifest().is_in_doubt(), set.manifest().number()), (false, 2));
    assert_eq!(set.take_obsolete().unwrap(), [number]);
    let fault = fault.suffix("MANIFEST-000002");
    flush(&fs, &mut set).unwrap();
    fs.inject(fault);
    assert!(set.confirm().unwrap_err().is_retryable());
    set.confirm().unwrap();
    assert_eq!(set.manifest().number(), 3);
    let runs = open(&cut(&fs, 0)).unwrap().state().family(0).unwrap().tree.runs.len();
    assert_eq!(runs, 3);
}

/// A reader beside the writer has seen the edit. The file is removed then, and with it all else
/// that says that its number was used.
#[test]
fn numbers_in_an_edit_in_doubt_are_not_given_out_again() {
    let fault = Fault::on(FileOp::Sync).suffix("MANIFEST-000001").kind(io::ErrorKind::StorageFull);
    let (fs, mut set, number, error) = failed_install(fault.clone());
    assert!(error.is_retryable() && set.manifest().is_in_doubt(), "{error}");
    assert_eq!(set.take_obsolete().unwrap(), [number]);
    fs.remove(&table_path(Path::new(DB), number)).unwrap();
    drop(set);
    let fs = fs.killed();
    let mut set = open(&fs).unwrap();
    assert!(set.files().next() > number, "{} after {number}", set.files().next());
    let (family, options) = (set.state().next_family(), b"{}".to_vec());
    let lsn = set.state().replay_from() - 1;
    let clone = |family| Change::CloneFamily {
        family,
        source: 0,
        name: "clone".to_owned(),
        options: options.clone(),
        lsn,
    };
    set.set_roll_len_min(1 << 20);
    flush(&fs, &mut set).unwrap();
    let name = manifest_name(set.manifest().number());
    fs.inject(fault.suffix(&name));
    let error = set.install(Edit::new(vec![clone(family)]), &[]).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    fs.clear_faults();
    set.confirm().unwrap();
    drop(set);
    assert!(open(&fs.killed()).unwrap().state().next_family() > family);
}

/// A set whose switch to another manifest found no room, and no descriptor to look whether it
/// happened.
fn uncertain(fs: &MemoryFs) -> VersionSet {
    let mut set = create(fs).unwrap();
    flush(fs, &mut set).unwrap();
    set.set_roll_len_min(1);
    let full = Fault::on(FileOp::Rename).suffix("CURRENT.tmp").kind(io::ErrorKind::StorageFull);
    fs.inject(full);
    fs.inject(Fault::on(FileOp::OpenRead).suffix("CURRENT").errno(24).forever());
    let told = (0..100).find_map(|_| flush(fs, &mut set).err()).unwrap();
    assert!(told.is_too_many_files() && told.is_retryable(), "{told}");
    assert!(set.manifest().poison().is_none() && !set.manifest().is_in_doubt());
    set
}

#[test]
fn a_switch_without_room_that_could_not_be_looked_at_is_looked_at_before_anything_else() {
    let fs = MemoryFs::new();
    let mut set = uncertain(&fs);
    let runs = |set: &VersionSet| set.state().family(0).unwrap().tree.runs.len();
    let (before, number) = (runs(&set), set.manifest().number());
    let (written, synced) = (fs.tried(FileOp::Write), fs.tried(FileOp::Sync));
    let edit = || Edit::new(vec![Change::NextFile { number: 900 }]);
    for _ in 0..2 {
        let told = [set.install(edit(), &[]).map(drop), set.confirm(), set.renew()];
        assert!(told.iter().all(|told| told.as_ref().is_err_and(Error::is_retryable)), "{told:?}");
    }
    assert_eq!((fs.tried(FileOp::Write), fs.tried(FileOp::Sync)), (written, synced));
    for way in 0..WAYS {
        assert_eq!(runs(&open(&cut(&fs, way)).unwrap()), before, "{way}");
    }
    fs.clear_faults();
    flush(&fs, &mut set).unwrap();
    assert!(set.manifest().number() > number);
    for way in 0..WAYS {
        assert_eq!(runs(&open(&cut(&fs, way)).unwrap()), before + 1, "{way}");
    }
    let entries = fs.list(Path::new(DB)).unwrap();
    let manifests = entries.iter().filter(|entry| entry.name.starts_with("MANIFEST"));
    assert_eq!(manifests.count(), 1, "{entries:?}");
}

/// As a server may do whose answer was lost.
#[test]
fn a_switch_that_was_made_after_all_stops_the_writes() {
    let fs = MemoryFs::new();
    let mut set = uncertain(&fs);
    let before = set.state().family(0).unwrap().tree.runs.len();
    let db = Path::new(DB);
    fs.replace(&db.join("CURRENT.tmp"), &db.join("CURRENT")).unwrap();
    fs.clear_faults();
    flush(&fs, &mut set).unwrap_err();
    assert!(set.manifest().poison().is_some());
    assert_eq!(flush(&fs, &mut set).unwrap_err().name(), "POISONED");
    for way in 0..WAYS {
        let left = open(&cut(&fs, way)).unwrap();
        assert_eq!(left.state().family(0).unwrap().tree.runs.len(), before, "{way}");
    }
}
