//! Devices that have no room left when the manifest is synced.

use super::super::tests::{WAYS, cut, failed_install, flush, open};
use crate::vfs::{Fault, FileOp};
use std::io;

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
