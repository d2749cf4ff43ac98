//! What is counted and told of values in blob files.

use super::*;
use crate::Event;
use crate::blob::SUMS;
use crate::error::Error;
use std::io;
use std::sync::Mutex;

#[test]
fn values_that_a_compaction_reads_count_as_read_and_others_do_not() {
    let bench = Bench::new();
    let (db, family) = bench.open_family();
    let mut expected: BTreeMap<_, _> = (0..40).map(|nth| (key(nth), value(nth, 0, 5000))).collect();
    put(&family, &expected);
    db.compact().unwrap();
    let unread = db.metrics().compaction_read_bytes;
    assert!(unread < 10 * 5009, "addresses are passed on: {unread}");
    for nth in (0..40).filter(|nth| nth % 4 != 0) {
        expected.insert(key(nth), value(nth, 1, 5000));
        family.put(key(nth), &expected[&key(nth)]).unwrap();
    }
    db.compact().unwrap();
    db.wait_for_compactions(None).unwrap();
    check(&family, &expected);
    let read = db.metrics().compaction_read_bytes - unread;
    assert!((10 * 5009..20 * 5009).contains(&read), "ten values have moved: {read}");
    let metrics = db.metrics();
    let of_families = metrics.families.iter().flat_map(|family| &family.compactions);
    let sum: u64 = of_families.map(|done| done.read_bytes).sum();
    assert_eq!(sum, metrics.compaction_read_bytes);
}

#[test]
fn values_that_leave_unread_count_as_dropped() {
    let bench = Bench::new();
    let told = Arc::new(Mutex::new(0));
    let heard = told.clone();
    let listener = move |event: &Event| {
        if let Event::Dropped { bytes, .. } = event {
            *heard.lock().unwrap() += bytes;
        }
    };
    let db = bench.options().on_event(listener).open("/db").unwrap();
    let family = db.family(("f", FamilyOptions::new().separate_from(FROM))).unwrap();
    for nth in 0..20 {
        family.put(key(nth), value(nth, 0, 5000)).unwrap();
    }
    db.compact().unwrap();
    family.delete_range(..).unwrap();
    db.flush().unwrap();
    db.wait_for_compactions(None).unwrap();
    let dropped = db.metrics().dropped_bytes;
    assert!((20 * 5009..21 * 5009).contains(&dropped), "{dropped}");
    assert_eq!(*told.lock().unwrap(), dropped);
}

#[test]
fn what_is_alive_is_summed_up_once_for_all_families() {
    let bench = Bench::new();
    let db = bench.open();
    // It tries what has failed again.
    db.engine().maintenance.close();
    let options = || FamilyOptions::new().separate_from(FROM);
    let families: Vec<_> =
        (0..20).map(|nth| db.family((format!("{nth}"), options())).unwrap()).collect();
    for family in &families {
        put(family, &(0..5).map(|nth| (key(nth), value(nth, 0, 500))).collect());
    }
    db.flush().unwrap();
    db.wait_for_compactions(None).unwrap();
    let sums_of = |body: &dyn Fn()| {
        SUMS.set(0);
        body();
        SUMS.get()
    };
    let engine = db.engine().clone();
    assert_eq!(sums_of(&|| crate::compact::schedule_collections(&engine)), 1);
    assert_eq!(sums_of(&|| crate::compact::schedule_all(&engine)), 1);
    assert_eq!(sums_of(&|| crate::compact::retry(&engine)), 0, "none has failed");
    let full = || Error::io("write", "table".as_ref(), io::ErrorKind::StorageFull.into());
    for family in engine.families.all() {
        let mut state = family.compactions.state.lock();
        let job = state.busy.next_id();
        state.running += 1;
        state.note_end(job, Some(full()));
    }
    assert_eq!(sums_of(&|| crate::compact::retry(&engine)), 1);
    drop((families, engine));
    db.close().unwrap();
    assert_eq!(sums_of(&|| drop(bench.open())), 1);
}
