//! What a spill file must not have, though its checksums are right.

use super::*;
use crate::vfs::{Fault, FileOp, MemoryFs};
use std::cell::Cell;
use std::time::Duration;

/// A new file with one put of this kind.
fn written(spills: &Arc<Spills>, kind: OpKind, value: &[u8]) -> Arc<SpillFile> {
    let operation = Operation { family: 1, kind, key: b"k", value };
    spills.fs.create_dir_all(&spills.dir).unwrap();
    spills.write(std::iter::once(operation), |_| TableOptions::default(), (100, true)).unwrap()
}

/// A file with one put of this kind, read as one that a record of the log names.
fn file_with(kind: OpKind, value: &[u8]) -> Arc<SpillFile> {
    let fs: Arc<dyn FileSystem> = Arc::new(MemoryFs::new());
    let spills = Spills::to_read(fs, "/db/spill".into(), [7; 16]);
    let file = written(&spills, kind, value);
    file.keep();
    spills.open(&file.named()).unwrap()
}

#[test]
fn a_spill_file_that_says_its_values_lie_elsewhere_is_damaged() {
    let address = b"\xac\x02\x80\x01\x46\x88\x27";
    let expiring = [&u64::MAX.to_le_bytes()[..], address].concat();
    let refused = [
        (OpKind::PutSeparated, &address[..]),
        (OpKind::PutExpiringSeparated, &expiring),
        (OpKind::Merge, b"operand"),
    ];
    for (kind, value) in refused {
        let file = file_with(kind, value);
        let error = file.get(1, b"k").map(|found| found.is_some()).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        let text = error.to_string();
        assert!(text.contains("spill") && text.contains(kind.name()), "{text}");
        match file.each(|_| Ok(())) {
            Ok(()) => assert!(kind.is_operand(), "the last file of a commit may have some"),
            Err(error) => assert!(error.is_corruption() && !kind.is_operand(), "{error}"),
        }
        assert!(file.get(1, b"other").unwrap().is_none());
    }
    let file = file_with(OpKind::Put, b"value");
    assert_eq!(&*file.get(1, b"k").unwrap().unwrap().unwrap().1, b"value");
    file.each(|operation| {
        assert_eq!(operation.value, b"value");
        Ok(())
    })
    .unwrap();
}

#[test]
fn who_lets_go_of_a_committed_file_last_does_not_remove_it() {
    let fs = MemoryFs::new();
    let spills = Spills::to_read(Arc::new(fs.clone()), "/db/spill".into(), [7; 16]);
    let removals = |drop_file: &dyn Fn()| {
        let before = fs.tried(FileOp::Remove);
        drop_file();
        fs.tried(FileOp::Remove) - before
    };
    let write = || written(&spills, OpKind::Put, b"value");
    assert_eq!(removals(&|| drop(write())), 1, "its transaction has not committed");
    let committed = || {
        let file = write();
        file.keep();
        file
    };
    assert_eq!(removals(&|| drop(committed())), 0, "the log needs it");
    assert_eq!(removals(&|| spills.remove_obsolete()), 0);
    let named = committed().named();
    let again = || spills.open(&named).unwrap();
    assert_eq!(removals(&|| [committed(), again()].iter().for_each(|file| file.release())), 0);
    assert_eq!(removals(&|| spills.remove_obsolete()), 2);
}

thread_local! {
    static LATE: Cell<Option<Arc<SpillFile>>> = const { Cell::new(None) };
    static HAS_RETURNED: Cell<bool> = const { Cell::new(false) };
}

/// Who lets go of one may be the flusher.
#[test]
fn who_lets_go_of_a_file_does_not_wait_for_the_removal_of_others() {
    let fs = MemoryFs::new();
    let spills = Spills::to_read(Arc::new(fs.clone()), "/db/spill".into(), [7; 16]);
    let file = || written(&spills, OpKind::Put, b"value");
    let (first, late) = (file(), file());
    [&first, &late].iter().for_each(|file| {
        file.keep();
        file.release();
    });
    drop(first);
    LATE.set(Some(late));
    fs.inject(Fault::on(FileOp::Remove).runs(|| {
        let (late, (tell, told)) = (LATE.take(), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            drop(late);
            let _ = tell.send(());
        });
        HAS_RETURNED.set(told.recv_timeout(Duration::from_secs(60)).is_ok());
    }));
    spills.remove_obsolete();
    assert!(HAS_RETURNED.get());
    let removed = fs.tried(FileOp::Remove);
    spills.remove_obsolete();
    assert_eq!((removed, fs.tried(FileOp::Remove)), (1, 2));
}

/// The database may have been removed, and another one of the same path may have these names.
#[test]
fn what_outlives_its_database_removes_no_file() {
    let fs = MemoryFs::new();
    let spills = Spills::to_read(Arc::new(fs.clone()), "/db/spill".into(), [7; 16]);
    let file = || written(&spills, OpKind::Put, b"value");
    let (of_transaction, released, late) = (file(), file(), file());
    [&released, &late].iter().for_each(|file| file.keep());
    released.release();
    drop(released);
    let before = fs.tried(FileOp::Remove);
    spills.errands.close();
    drop(of_transaction);
    late.release();
    drop(late);
    spills.remove_obsolete();
    assert_eq!(fs.tried(FileOp::Remove), before);
}

/// A close that comes after the caller has looked whether the database is open.
#[test]
fn no_file_is_made_once_the_directory_is_given_back() {
    let fs = MemoryFs::new();
    let spills = Spills::to_read(Arc::new(fs.clone()), "/db/spill".into(), [7; 16]);
    fs.create_dir_all(&spills.dir).unwrap();
    spills.errands.close();
    let refused = spills.begin_file().map(drop).unwrap_err();
    assert!(refused.is_closed(), "{refused}");
    assert_eq!((fs.tried(FileOp::Create), fs.tried(FileOp::Remove)), (0, 0));
}

#[test]
fn a_file_that_cannot_be_made_holds_nothing_up() {
    let fs = MemoryFs::new();
    let spills = Spills::to_read(Arc::new(fs.clone()), "/db/spill".into(), [7; 16]);
    fs.create_dir_all(&spills.dir).unwrap();
    fs.inject(Fault::on(FileOp::Create));
    spills.begin_file().map(drop).unwrap_err();
    fs.clear_faults();
    drop(written(&spills, OpKind::Put, b"value"));
}

thread_local! {
    static SPILLS: Cell<Option<Arc<Spills>>> = const { Cell::new(None) };
}

/// Has `act` done by another thread while a file is made or removed, and notes whether that thread
/// has returned within so long.
fn done_meanwhile(act: fn(&Arc<Spills>), within: Duration) {
    let (spills, (tell, told)) = (SPILLS.take().unwrap(), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        act(&spills);
        let _ = tell.send(());
    });
    HAS_RETURNED.set(told.recv_timeout(within).is_ok());
}

/// Removing a large file takes long, and a thread of low priority may do it.
#[test]
fn who_makes_or_removes_a_file_does_not_wait_for_the_removal_of_another() {
    let acts: [fn(); 2] = [
        || done_meanwhile(|spills| drop(spills.begin_file().unwrap()), Duration::from_secs(60)),
        || done_meanwhile(|spills| spills.remove(77), Duration::from_secs(60)),
    ];
    for act in acts {
        let fs = MemoryFs::new();
        let spills = Spills::to_read(Arc::new(fs.clone()), "/db/spill".into(), [7; 16]);
        let file = written(&spills, OpKind::Put, b"value");
        SPILLS.set(Some(spills.clone()));
        fs.inject(Fault::on(FileOp::Remove).runs(act));
        drop(file);
        assert!(HAS_RETURNED.get());
    }
}

#[test]
fn a_close_waits_until_no_file_is_being_made_or_removed() {
    for op in [FileOp::Create, FileOp::Remove] {
        let fs = MemoryFs::new();
        let spills = Spills::to_read(Arc::new(fs.clone()), "/db/spill".into(), [7; 16]);
        fs.create_dir_all(&spills.dir).unwrap();
        SPILLS.set(Some(spills.clone()));
        let close = || done_meanwhile(|spills| spills.errands.close(), Duration::from_millis(100));
        fs.inject(Fault::on(op).runs(close));
        drop(spills.begin_file());
        assert!(!HAS_RETURNED.get(), "{op:?}");
        spills.errands.close();
        let tried = || [FileOp::Create, FileOp::Remove].map(|op| fs.tried(op));
        let before = tried();
        let refused = spills.begin_file().map(drop).unwrap_err();
        assert!(refused.is_closed() && tried() == before, "{refused}");
    }
}

#[test]
fn a_file_that_is_gone_is_kept_open_by_nobody() {
    let fs = MemoryFs::new();
    let spills = Spills::to_read(Arc::new(fs.clone()), "/db/spill".into(), [7; 16]);
    let file = written(&spills, OpKind::Put, b"value");
    assert_eq!(spills.tables.files.open_count(), 1);
    drop(file);
    assert_eq!(spills.tables.files.open_count(), 0);
}
