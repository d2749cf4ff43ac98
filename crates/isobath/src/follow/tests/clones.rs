//! Clones of families beside a reader: no record of the log tells of them.

use super::{contents, options, read};
use crate::version::{Change, Edit, manifest_number, manifest_path};
use crate::vfs::{Fault, FileOp, FileSystem, MemoryFs};
use crate::{Batch, Db, Event, Family};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

fn fill(family: &Family, from: u32) {
    for n in from..from + 40 {
        family.put(n.to_be_bytes(), [n as u8; 50]).unwrap();
    }
}

#[test]
fn a_reader_shows_clones_as_the_writer_does_and_goes_on_with_families_after_them() {
    let fs = MemoryFs::new();
    let writer = options(&fs).open("/db").unwrap();
    let reader = read(&fs);
    let check = || {
        reader.catch_up().unwrap();
        assert_eq!(contents(&reader), contents(&writer));
        assert_eq!(contents(&read(&fs)), contents(&writer));
    };
    let source = writer.family("source").unwrap();
    fill(&source, 0);
    check();
    let before = reader.snapshot();
    let clone = writer.clone_family(&source, "clone").unwrap();
    check();
    fill(&source, 20);
    fill(&clone, 1000);
    check();
    let seen = reader.family("clone").unwrap();
    assert_eq!((before.of(&seen).count(..).unwrap(), seen.count(..).unwrap()), (0, 80));
    // Nothing looks between the clone, what it gets, and families with higher ids.
    let second = writer.clone_family(&clone, "second").unwrap();
    writer.family("plain").unwrap().put("key", "value").unwrap();
    fill(&second, 2000);
    writer.rename_family(&second, "renamed").unwrap();
    fill(&second, 3000);
    writer.drop_family(&clone).unwrap();
    check();
    assert!(seen.get(0u32.to_be_bytes()).is_err(), "it was dropped");
    let third = writer.clone_family(&source, "third").unwrap();
    fill(&third, 1);
    writer.drop_family(&third).unwrap();
    writer.family("third").unwrap().put("another", "value").unwrap();
    check();
    writer.close().unwrap();
    reader.catch_up().unwrap();
    assert_eq!(contents(&read(&fs)), contents(&reader));
}

/// The reader catches up between a clone's flush and its edit. When it looks again, the clone is
/// gone, and the log alone tells of it.
#[test]
fn a_reader_goes_on_past_a_clone_that_came_and_went_between_two_looks() {
    let fs = MemoryFs::new();
    let reader = Arc::new(OnceLock::<Db>::new());
    let following = reader.clone();
    let listener = move |event: &Event| {
        if let (Event::Flushed { .. }, Some(reader)) = (event, following.get()) {
            reader.catch_up().unwrap();
        }
    };
    let writer = options(&fs).on_event(listener).open("/db").unwrap();
    let source = writer.family("source").unwrap();
    reader.set(read(&fs)).ok().unwrap();
    fill(&source, 0);
    let clone = writer.clone_family(&source, "clone").unwrap();
    fill(&clone, 1000);
    writer.drop_family(&clone).unwrap();
    let reader = reader.get().unwrap();
    reader.catch_up().unwrap();
    assert_eq!(contents(reader), contents(&writer));
    fill(&source, 20);
    reader.catch_up().unwrap();
    assert_eq!(contents(reader), contents(&writer));
}

/// The sync of a clone's edit finds no room, so the edit can be read and does not count. The next
/// clone has the same id. All the time the reader has no other reason to begin anew: it follows the
/// log past the place where a flush makes replay begin before the manifest says so.
#[test]
fn a_clone_that_the_writer_withdraws_and_makes_anew_is_shown_anew() {
    for looks_between in [true, false] {
        let fs = MemoryFs::new();
        let reader = Arc::new(OnceLock::<Db>::new());
        let looks = Arc::new(AtomicU32::new(0));
        let (following, looked) = (reader.clone(), looks.clone());
        let listener = move |event: &Event| {
            if let (Event::BackgroundError { .. }, Some(reader)) = (event, following.get()) {
                reader.catch_up().unwrap();
                looked.fetch_add(1, Ordering::AcqRel);
            }
        };
        let writer = options(&fs).on_event(listener).open("/db").unwrap();
        let source = writer.family("source").unwrap();
        fill(&source, 0);
        writer.flush().unwrap();
        reader.set(read(&fs)).ok().unwrap();
        let reader = reader.get().unwrap();
        let clone = || {
            let engine = writer.engine();
            let id = engine.families.by_name("source").unwrap().id;
            let mut versions = engine.versions.lock();
            let state = versions.state();
            let change = Change::CloneFamily {
                family: state.next_family(),
                source: id,
                name: "clone".to_owned(),
                options: state.family(id).unwrap().options.to_vec(),
                lsn: state.replay_from() - 1,
            };
            versions.install(Edit::new(vec![change]), &[])
        };
        let no_room = |op| Fault::on(op).kind(io::ErrorKind::StorageFull);
        fs.inject(no_room(FileOp::Sync));
        assert!(clone().unwrap_err().is_retryable());
        reader.catch_up().unwrap();
        assert!(reader.family_if_exists("clone").unwrap().is_some(), "the edit can be read");
        fill(&source, 20);
        // The edit of the flush goes to a new manifest.
        let next = manifest_path(Path::new("/db"), manifest_of(&fs) + 1);
        fs.inject(no_room(FileOp::Create).suffix(next.to_str().unwrap()));
        writer.flush().or_else(|_| writer.flush()).unwrap();
        assert_eq!(looks.load(Ordering::Acquire), 1);
        if looks_between {
            reader.catch_up().unwrap();
            assert_eq!(contents(reader), contents(&writer));
        }
        clone().unwrap();
        reader.catch_up().unwrap();
        let shown = contents(reader);
        assert_eq!(shown, contents(&read(&fs)));
        assert_eq!(shown.iter().find(|(name, _)| name == "clone").unwrap().1.len(), 60);
    }
}

fn manifest_of(fs: &MemoryFs) -> u64 {
    let entries = fs.list(Path::new("/db")).unwrap();
    entries.iter().filter_map(|entry| manifest_number(&entry.name)).max().unwrap()
}

/// Writes the same number to both families by one batch, again and again, while clones come and go.
#[test]
fn a_reader_never_shows_a_part_of_a_batch_because_a_clone_is_news() {
    let fs = MemoryFs::new();
    let writer = options(&fs).open("/db").unwrap();
    let source = writer.family("source").unwrap();
    let (done, both) = (AtomicBool::new(false), AtomicU32::new(0));
    let outrun = AtomicBool::new(false);
    let number = |snapshot: &crate::Snapshot, family: &Family| {
        let value = match snapshot.of(family).get("n") {
            // The reader has begun anew since, and the clone was dropped.
            Err(error) if error.name() == "UNKNOWN_FAMILY" => None,
            value => value.unwrap(),
        };
        value.map(|value| u32::from_be_bytes(*value.first_chunk().unwrap()))
    };
    std::thread::scope(|scope| {
        let reader: Db = read(&fs);
        let (done, both, outrun) = (&done, &both, &outrun);
        let following = scope.spawn(move || {
            while !done.load(Ordering::Acquire) {
                match reader.catch_up() {
                    // On a busy machine the writer may be faster, for good, unless it waits.
                    Err(error) if error.name() == "OUTRUN" => {
                        outrun.store(true, Ordering::Release);
                        continue;
                    }
                    caught_up => _ = caught_up.unwrap(),
                }
                outrun.store(false, Ordering::Release);
                let snapshot = reader.snapshot();
                let source = reader.family_if_exists("source").unwrap().unwrap();
                let of_source = number(&snapshot, &source);
                let Some(clone) = reader.family_if_exists("clone").unwrap() else { continue };
                // It may be a later one than the snapshot's, and empty there.
                let of_clone = number(&snapshot, &clone);
                assert!(of_clone.is_none() || of_clone == of_source, "{of_clone:?} {of_source:?}");
                both.fetch_add(u32::from(of_clone.is_some()), Ordering::AcqRel);
            }
        });
        let mut n = 0u32;
        for round in 0.. {
            if round >= 60 && both.load(Ordering::Acquire) > 5 {
                break;
            }
            assert!(round < 20_000 && !following.is_finished(), "the reader shows no clone");
            let clone = writer.clone_family(&source, "clone").unwrap();
            for _ in 0..20 {
                n += 1;
                let mut batch = Batch::new();
                batch.of(&source).put("n", n.to_be_bytes());
                batch.of(&clone).put("n", n.to_be_bytes());
                writer.write(batch).unwrap();
            }
            std::thread::sleep(Duration::from_millis(1));
            while outrun.load(Ordering::Acquire) && !following.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            writer.drop_family(&clone).unwrap();
        }
        done.store(true, Ordering::Release);
    });
}
