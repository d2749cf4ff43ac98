//! Devices that have no room left when the manifest is synced.

use super::super::edit::{Change, Edit};
use super::super::names::{manifest_name, table_path};
use super::super::tests::{DB, WAYS, cut, failed_install, flush, open};
use crate::vfs::{Fault, FileOp, FileSystem};
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
