//! Filters in a whole database: what compactions ask, what readers see who are there, and what is
//! told.

use crate::env::Env;
use crate::env::sync::Mutex;
use crate::error::ErrorKind;
use crate::options::{FamilyOptions, Options};
use crate::vfs::MemoryFs;
use crate::{Db, Event, Expiry, Family, FilterEntry, FilterFailure, FilterVerdict, Isolation};
use crate::{Metrics, TransactionOptions};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, SystemTime};

mod drawn;

/// Does what the value says.
fn obey(entry: FilterEntry<'_>) -> FilterVerdict {
    match entry.value {
        b"remove" => FilterVerdict::Remove,
        b"replace" => FilterVerdict::Replace(b"replaced".to_vec()),
        b"panic" => std::panic::resume_unwind(Box::new("as it was told")),
        _ => FilterVerdict::Keep,
    }
}

struct Bench {
    fs: MemoryFs,
    told: Arc<Mutex<Vec<Event>>>,
}

impl Bench {
    fn new() -> Bench {
        Bench { fs: MemoryFs::new(), told: Arc::default() }
    }

    fn options(&self) -> Options {
        let env = Env { fs: Arc::new(self.fs.clone()), ..Env::system() };
        let told = self.told.clone();
        let options =
            Options::new().env(env).on_event(move |event| told.lock().push(event.clone()));
        options.write_buffer(256 << 10).compaction_threads(1)
    }

    fn open(&self) -> (Db, Family) {
        let db = self.options().compaction_filter("obey", obey).open("db").unwrap();
        let family = db.family(("f", FamilyOptions::new().compaction_filter("obey"))).unwrap();
        (db, family)
    }

    fn told<T>(&self, of: impl FnMut(&Event) -> Option<T>) -> Vec<T> {
        self.told.lock().iter().filter_map(of).collect()
    }
}

fn text(family: &Family, key: &str) -> Option<String> {
    family.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap())
}

fn counts(metrics: &Metrics) -> (u64, u64, u64, u64) {
    let Metrics { filter_kept, filter_removed, filter_replaced, filter_failures, .. } = *metrics;
    (filter_kept, filter_removed, filter_replaced, filter_failures)
}

#[test]
fn compactions_ask_the_filter_and_flushes_do_not() {
    let bench = Bench::new();
    let (db, family) = bench.open();
    let others = db.family("others").unwrap();
    for (key, value) in [("a", "remove"), ("b", "replace"), ("c", "keep")] {
        others.put(key, value).unwrap();
        family.put(key, value).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(
        (text(&family, "a").as_deref(), counts(&db.metrics())),
        (Some("remove"), (0, 0, 0, 0))
    );
    db.compact().unwrap();
    let found = ["a", "b", "c"].map(|key| text(&family, key));
    assert_eq!(found, [None, Some("replaced".into()), Some("keep".into())]);
    assert_eq!(counts(&db.metrics()), (1, 1, 1, 0));
    assert_eq!(text(&others, "a").as_deref(), Some("remove"));
    let changed = bench.told(|event| match event {
        Event::Compacted { family, removed_entries, replaced_entries, .. } if family == "f" => {
            Some((*removed_entries, *replaced_entries))
        }
        _ => None,
    });
    assert_eq!(changed, [(1, 1)]);
    assert_eq!(family.iter().count(), 2);
    db.close().unwrap();
}

#[test]
fn what_is_removed_brings_nothing_older_back_and_leaves_nothing_in_the_last_level() {
    let bench = Bench::new();
    let (db, family) = bench.open();
    family.put("k", "old").unwrap();
    family.put("z", "old").unwrap();
    db.compact().unwrap();
    family.put("k", "remove").unwrap();
    db.compact().unwrap();
    assert_eq!(text(&family, "k"), None);
    let entries: Vec<u64> = db
        .metrics()
        .families
        .iter()
        .filter(|family| family.name == "f")
        .flat_map(|family| family.levels.iter().map(|level| level.entries))
        .collect();
    assert_eq!(entries.iter().sum::<u64>(), 1, "{entries:?}");
    db.close().unwrap();
}

#[test]
fn a_value_that_is_replaced_ends_when_the_old_one_would_have() {
    let bench = Bench::new();
    let (db, family) = bench.open();
    let end = SystemTime::UNIX_EPOCH + Duration::from_millis(4_000_000_000_123);
    family.put_ttl("k", "replace", end).unwrap();
    family.put_ttl("over", "replace", SystemTime::UNIX_EPOCH).unwrap();
    db.compact().unwrap();
    let (value, expiry) = family.get_expiry("k").unwrap().unwrap();
    assert_eq!((&*value, expiry), (&b"replaced"[..], Expiry::At(end)));
    assert_eq!(text(&family, "over"), None);
    assert_eq!(counts(&db.metrics()), (0, 0, 1, 0), "what has ended is not judged");
    db.close().unwrap();
}

#[test]
fn no_filter_judges_what_a_snapshot_sees_and_compacting_again_judges_it_once_it_is_gone() {
    let bench = Bench::new();
    let (db, family) = bench.open();
    family.put("seen", "remove").unwrap();
    let snapshot = db.snapshot();
    family.put("unseen", "remove").unwrap();
    db.compact().unwrap();
    assert_eq!(snapshot.of(&family).get("seen").unwrap().unwrap(), b"remove");
    assert_eq!((text(&family, "seen").as_deref(), text(&family, "unseen")), (Some("remove"), None));
    let metrics = db.metrics();
    assert_eq!((counts(&metrics), metrics.filter_held_views), ((0, 1, 0, 0), 0));
    drop(snapshot);
    db.compact().unwrap();
    assert_eq!(text(&family, "seen"), None);
    db.close().unwrap();
}

#[test]
fn every_value_is_judged_when_asked_for_though_it_is_in_the_last_level() {
    let bench = Bench::new();
    let db = bench.options().open("db").unwrap();
    let family = db.family("f").unwrap();
    for at in 0..5000 {
        family.put(format!("key{at:05}"), if at % 2 == 0 { "remove" } else { "keep" }).unwrap();
    }
    db.compact().unwrap();
    drop(family);
    db.close().unwrap();
    let (db, family) = bench.open();
    assert_eq!(family.iter().count(), 5000);
    family.compact("key00000".."key00010").unwrap();
    assert!(counts(&db.metrics()).1 >= 5, "slices are judged as a whole");
    assert_eq!(text(&family, "key00004"), None);
    db.compact().unwrap();
    assert_eq!(family.iter().count(), 2500);
    db.close().unwrap();
}

#[test]
fn a_database_without_its_filter_keeps_all_and_says_so_once() {
    let bench = Bench::new();
    let (db, family) = bench.open();
    family.put("a", "remove").unwrap();
    drop(family);
    db.close().unwrap();
    let db = bench.options().open("db").unwrap();
    let family = db.family_if_exists("f").unwrap().unwrap();
    for _ in 0..2 {
        db.compact().unwrap();
    }
    assert_eq!(text(&family, "a").as_deref(), Some("remove"));
    let compactions = db.metrics().compactions;
    db.compact().unwrap();
    assert_eq!(db.metrics().compactions, compactions, "there is no one to ask");
    let missing = bench.told(|event| match event {
        Event::FilterMissing { family, filter } => Some((family.clone(), filter.clone())),
        _ => None,
    });
    assert_eq!(missing, [("f".to_owned(), "obey".to_owned())]);
    let error = family.set_options(FamilyOptions::new().compaction_filter("obey")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
    assert!(error.to_string().contains("Options::compaction_filter"), "{error}");
    drop(family);
    db.close().unwrap();
    let (db, family) = bench.open();
    db.compact().unwrap();
    assert_eq!(text(&family, "a"), None);
    family.put("b", "remove").unwrap();
    family.set_options(FamilyOptions::new()).unwrap();
    db.compact().unwrap();
    assert_eq!(text(&family, "b").as_deref(), Some("remove"), "the family has no filter any more");
    db.close().unwrap();
}

#[test]
fn a_filter_that_fails_keeps_the_value_is_counted_and_told_of_once() {
    let bench = Bench::new();
    let (db, family) = bench.open();
    for key in ["a", "b"] {
        family.put(key, "panic").unwrap();
    }
    family.put("c", "remove").unwrap();
    for _ in 0..2 {
        db.compact().unwrap();
    }
    assert_eq!(text(&family, "b").as_deref(), Some("panic"));
    assert_eq!(counts(&db.metrics()), (0, 1, 0, 4));
    let failures = bench.told(|event| match event {
        Event::FilterFailed { family, filter, key, failure } => {
            Some((family.clone(), filter.clone(), key.clone(), *failure))
        }
        _ => None,
    });
    let failure = ("f".to_owned(), "obey".to_owned(), b"a".to_vec(), FilterFailure::Panicked);
    assert_eq!(failures, [failure]);
    db.close().unwrap();
}

/// A database whose filter removes everything, and waits for leave when it is first asked.
struct Waiting {
    db: Db,
    family: Family,
    asked: Receiver<()>,
    leave: Sender<()>,
}

impl Waiting {
    fn new() -> Waiting {
        let (tell, asked) = channel();
        let (leave, may_go) = channel::<()>();
        let may_go = std::sync::Mutex::new(Some(may_go));
        let filter = move |entry: FilterEntry<'_>| {
            if let Some(may_go) = may_go.lock().unwrap().take() {
                tell.send(()).unwrap();
                may_go.recv().unwrap();
            }
            match entry.key {
                b"stays" => FilterVerdict::Keep,
                _ => FilterVerdict::Remove,
            }
        };
        let options = Options::in_memory().compaction_filter("all", filter);
        let db = options.open("waiting").unwrap();
        // On a slow machine it would find the database idle, and compact.
        db.engine().maintenance.close();
        let family = db.family(("f", FamilyOptions::new().compaction_filter("all"))).unwrap();
        Waiting { db, family, asked, leave }
    }

    /// Calls `begin` while a compaction runs, and returns once that is installed.
    fn during<T>(&self, begin: impl FnOnce() -> T) -> T {
        let db = &self.db;
        std::thread::scope(|scope| {
            let compacting = scope.spawn(move || db.compact().unwrap());
            self.asked.recv().unwrap();
            let begun = begin();
            self.leave.send(()).unwrap();
            compacting.join().unwrap();
            begun
        })
    }
}

#[test]
fn a_snapshot_that_begins_while_a_compaction_runs_sees_the_same_before_and_after() {
    let waiting = Waiting::new();
    let (db, family) = (&waiting.db, &waiting.family);
    family.put("k", "value").unwrap();
    family.put("stays", "value").unwrap();
    let (snapshot, mut iter) = waiting.during(|| {
        let snapshot = db.snapshot();
        assert_eq!(snapshot.of(family).get("k").unwrap().unwrap(), b"value");
        family.put("later", "value").unwrap();
        (snapshot, family.iter())
    });
    assert_eq!(text(family, "k"), None, "who reads now sees what the filter has decided");
    let seen = snapshot.clone();
    drop(snapshot);
    let keys = |iter: crate::Range| iter.map(|entry| entry.unwrap().0.to_vec()).collect::<Vec<_>>();
    for _ in 0..2 {
        assert_eq!(seen.of(family).get("k").unwrap().unwrap(), b"value");
        assert_eq!(keys(seen.of(family).iter()), [&b"k"[..], b"stays"]);
        let values = seen.of(family).multi_get(["k", "later"]).unwrap();
        assert!(values[0].is_some() && values[1].is_none());
        // A flush moves what the view has in memory into a tree that the snapshot does not read.
        db.flush().unwrap();
    }
    assert_eq!(iter.next().unwrap().unwrap().0, b"k", "an iterator has its view");
    assert_eq!(db.metrics().filter_held_views, 1);
    assert!(db.snapshot().of(family).get("k").unwrap().is_none(), "a later one begins after it");
    drop(seen);
    assert_eq!(db.metrics().filter_held_views, 0);
    assert_eq!(text(family, "later").as_deref(), Some("value"));
    db.compact().unwrap();
    assert_eq!(text(family, "later"), None);
}

#[test]
fn a_transaction_that_begins_while_a_compaction_runs_reads_on_and_meets_no_conflict() {
    let waiting = Waiting::new();
    let (db, family) = (&waiting.db, &waiting.family);
    family.put("k", "1").unwrap();
    let options = TransactionOptions::new().isolation(Isolation::Serializable);
    let tx = waiting.during(|| {
        let tx = db.with(options).begin();
        assert_eq!(tx.of(family).get("k").unwrap().unwrap(), b"1");
        tx
    });
    assert_eq!(text(family, "k"), None);
    assert_eq!(tx.of(family).get("k").unwrap().unwrap(), b"1");
    tx.of(family).put("sum", "2").unwrap();
    tx.commit().unwrap();
    assert_eq!(text(family, "sum").as_deref(), Some("2"));
    assert_eq!(db.metrics().filter_held_views, 0);
}

#[test]
fn views_are_held_only_for_readers_who_see_what_was_changed() {
    let waiting = Waiting::new();
    let (db, family) = (&waiting.db, &waiting.family);
    let before = db.snapshot();
    family.put("k", "value").unwrap();
    waiting.during(|| ());
    assert_eq!((text(family, "k"), db.metrics().filter_held_views), (None, 0));
    assert!(before.of(family).get("k").unwrap().is_none());
}

#[test]
fn a_close_gives_up_views_that_are_held() {
    let waiting = Waiting::new();
    waiting.family.put("k", "value").unwrap();
    let snapshot = waiting.during(|| waiting.db.snapshot());
    assert_eq!(waiting.db.metrics().filter_held_views, 1);
    waiting.db.clone().close().unwrap();
    assert!(snapshot.of(&waiting.family).get("k").unwrap_err().is_closed());
}

#[test]
fn a_family_with_a_filter_has_no_gaps() {
    let bench = Bench::new();
    let db = bench.options().compaction_filter("obey", obey).open("db").unwrap();
    let family = db.family("f").unwrap();
    let fill = || {
        for at in 0..200u32 {
            family.put(at.to_be_bytes(), "value").unwrap();
            family.delete(at.to_be_bytes()).unwrap();
        }
        for _ in 0..3 {
            assert_eq!(family.iter().count(), 0);
        }
    };
    let gaps = || family.of(db.engine()).unwrap().view().gaps.clone();
    let has_gaps = || gaps().is_some();
    fill();
    assert!(has_gaps());
    family.set_options(FamilyOptions::new().compaction_filter("obey")).unwrap();
    assert!(!has_gaps());
    fill();
    assert!(!has_gaps());
    family.set_options(FamilyOptions::new()).unwrap();
    fill();
    assert!(!has_gaps(), "readers of before may be there");
    db.close().unwrap();
}
