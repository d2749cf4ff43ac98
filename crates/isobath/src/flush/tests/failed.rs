//! Flushes that fail: what they leave, who removes it, and what may be tried again.

use super::*;

#[test]
fn a_flush_that_found_no_room_leaves_nothing_and_is_tried_again_when_asked() {
    let mut held = Held::new();
    let (epoch, from) = (held.written("key"), held.replay_from());
    held.fs.inject(Fault::on(FileOp::Sync).suffix(".tbl").kind(io::ErrorKind::StorageFull));
    held.let_go();
    let engine = held.engine().clone();
    assert!(engine.epochs.check_flushes().unwrap_err().is_retryable());
    assert_eq!((held.replay_from(), held.errors(BackgroundJob::Flush).len()), (from, 1));
    assert!(soon(|| held.tables() == 0));
    let default = held.db.default_family();
    assert_eq!(get(&default, "key").unwrap(), b"value");
    held.db.put("more", "value").unwrap();
    retry(&engine);
    engine.flusher.wait_idle();
    assert_eq!((held.tables(), held.replay_from()), (1, epoch.end()));
    engine.epochs.check_flushes().unwrap();
    // Nothing is left to retry.
    held.hold();
    retry(&engine);
    assert_eq!(engine.flusher.queued_count(), 0);
}

/// Writers wait for flushes, and the removal of a file may take long.
#[test]
fn flushes_go_on_while_the_files_of_one_that_found_no_room_are_removed() {
    let (may_go_on, go_on) = mpsc::channel::<()>();
    let (go_on, fs) = (Mutex::unranked(go_on), MemoryFs::new());
    let listener = move |event: &Event| {
        if matches!(event, Event::FileRemoved { .. }) {
            let _ = go_on.lock().recv();
        }
    };
    let db = over(&fs).on_event(listener).open("/db").unwrap();
    let (engine, _end) = (db.engine().clone(), may_go_on);
    // It would try the flush again, and succeed.
    engine.maintenance.close();
    db.put("key", "value").unwrap();
    fs.inject(Fault::on(FileOp::Sync).suffix(".tbl").kind(io::ErrorKind::StorageFull));
    let epoch = seal_if_written(&engine).unwrap().unwrap();
    assert!(soon(|| engine.epochs.check_flushes().is_err()));
    retry(&engine);
    assert!(soon(|| engine.epochs.flushed() == epoch.id));
}

#[test]
fn a_flush_on_request_first_gets_back_the_room_that_a_failed_one_took() {
    let mut held = Held::new();
    let engine = held.engine().clone();
    let (end, ended) = mpsc::channel::<()>();
    let ended = Arc::new(Mutex::unranked(ended));
    for _ in 0..engine.compactor_count {
        let ended = ended.clone();
        let wait = Box::new(move |_: &_| {
            let _ = ended.lock().recv();
        });
        engine.compactors.submit(wait).unwrap();
    }
    held.written("key");
    held.fs.inject(Fault::on(FileOp::Sync).suffix(".tbl").kind(io::ErrorKind::StorageFull));
    held.let_go();
    held.told.lock().clear();
    held.db.flush().unwrap();
    let told = held.told.lock().clone();
    let at = |is_it: fn(&Event) -> bool| told.iter().position(is_it).unwrap();
    let removed = at(|event| matches!(event, Event::FileRemoved { .. }));
    assert!(removed < at(|event| matches!(event, Event::Flushed { .. })), "{told:?}");
    drop(end);
}

#[test]
fn a_flush_that_failed_for_good_has_writes_refused() {
    for op in [FileOp::Create, FileOp::Write, FileOp::Sync] {
        let mut held = Held::new();
        let from = held.replay_from();
        held.written("key");
        held.fs.inject(Fault::on(op).suffix(".tbl"));
        held.let_go();
        assert!(held.engine().epochs.check_flushes().is_ok(), "that is for what may be over");
        assert!(
            matches!(held.db.put("more", "value").as_ref().map_err(Error::name), Err("POISONED")),
            "{op:?}"
        );
        let told: Vec<_> = held.errors(BackgroundJob::Flush).iter().map(Error::name).collect();
        assert_eq!(told, ["IO"], "{op:?}");
        assert_eq!(held.replay_from(), from);
        assert_eq!(get(&held.db.default_family(), "key").unwrap(), b"value");
        let db = over(&held.fs.killed()).open("/db").unwrap();
        assert_eq!(get(&db.default_family(), "key").unwrap(), b"value");
    }
}

/// Such a change is in the log only. A flush that moved `replay from` past it would undo it for the
/// next open, while commits after it stay.
#[test]
fn no_flush_is_installed_past_a_change_of_families_that_was_given_up() {
    for change in ["create", "rename", "drop"] {
        let mut held = Held::new();
        let family = held.db.family("family").unwrap();
        family.put("key", "value").unwrap();
        held.fs.inject(Fault::on(FileOp::Write).kind(io::ErrorKind::StorageFull).forever());
        thread::scope(|scope| {
            let changer = scope.spawn(|| match change {
                "create" => held.db.family("another").map(drop),
                "rename" => held.db.rename_family(&family, "another"),
                _ => held.db.drop_family(&family),
            });
            assert!(soon(|| !held.errors(BackgroundJob::FamilyChange).is_empty()));
            held.db.with(WriteOptions::sync()).put("later", "value").unwrap();
            held.seal();
            held.engine().log.poison(&Error::planted());
            let told = changer.join().unwrap();
            assert!(told.as_ref().is_err_and(Error::is_outcome_unknown), "{change}: {told:?}");
        });
        held.fs.clear_faults();
        held.let_go();
        let db = over(&held.fs.killed()).open("/db").unwrap();
        assert_eq!(db.get("later").unwrap().unwrap(), b"value", "{change}");
        let mut names = db.list_families();
        names.sort();
        let expected: &[&str] = match change {
            "create" => &["another", "default", "family"],
            "rename" => &["another", "default"],
            _ => &["default"],
        };
        assert_eq!(names, expected, "{change}");
    }
}
