//! Steps outside a transaction that meet the locks of a prepared one. It may stay in doubt for
//! hours, so they wait as long as a put does.

use super::*;
use crate::Family;
use crate::error::Result;
use crate::options::WriteOptions;
use std::time::Instant;

type Step = fn(&Family, WriteOptions) -> Result<()>;

const STEPS: [Step; 4] = [
    |family, with| family.with(with).put_if("key", None, "other").map(drop),
    |family, with| family.with(with).fetch_update("key", |_| Some("other")).map(drop),
    |family, with| family.with(with).pop_first(..).map(drop),
    |family, with| family.with(with).pop_last(..="key").map(drop),
];

#[test]
fn a_step_waits_for_what_is_in_doubt_as_long_as_a_put_and_not_at_all_if_it_is_hasty() {
    let fs = MemoryFs::new();
    let family = crate::options::FamilyOptions::new();
    let db = over(&fs).lock_timeout(Duration::from_millis(40)).family(family).open("/db").unwrap();
    let tx = db.begin();
    assert!(tx.first().unwrap().is_none() && tx.last().unwrap().is_none());
    tx.put("key", "now").unwrap();
    let prepared = tx.prepare("x").unwrap();
    for (nth, step) in STEPS.into_iter().enumerate() {
        for fail_fast in [false, true] {
            let wait = || {
                let began = Instant::now();
                let told = step(&db.default_family(), WriteOptions::new().fail_fast(fail_fast));
                let (told, took) = (told.unwrap_err(), began.elapsed());
                let expected = if fail_fast { "WOULD_STALL" } else { "LOCK_TIMEOUT" };
                assert_eq!(told.name(), expected, "{nth}");
                assert!(fail_fast || took >= Duration::from_millis(40), "{nth}: {took:?}");
                took
            };
            // A busy machine may delay a thread, but not each time.
            let is_short = (0..20).any(|_| wait() < Duration::from_secs(5));
            assert!(is_short, "{nth} {fail_fast}");
        }
    }
    prepared.commit().unwrap();
    let popped = db.pop_first(..).unwrap().unwrap();
    assert_eq!(popped.1, "now");
    assert_at_rest(db.engine());
}

#[test]
fn an_empty_range_is_popped_whatever_is_locked_at_its_ends() {
    let db = open(&MemoryFs::new());
    drop(prepare(&db, "x", &["key"]));
    let (empty, none) = ("key".."key", "a".."a");
    for range in [empty.clone(), none] {
        assert!(db.pop_first(range.clone()).unwrap().is_none());
        assert!(db.pop_last(range).unwrap().is_none());
    }
    let hasty = db.with(WriteOptions::new().fail_fast(true));
    assert!(hasty.pop_first(empty.clone()).unwrap().is_none());
    let tx = db.begin();
    assert!(tx.pop_last(empty).unwrap().is_none());
    tx.put("other", "value").unwrap();
    tx.commit().unwrap();
    db.rollback_prepared(&xid("x")).unwrap();
    assert_at_rest(db.engine());
}
