//! Taking the first or the last key of a range: a scan of one step, and a delete.
//!
//! What the scan passed up to the key is validated like that of any other scan. So at the commit's
//! LSN no key is nearer to the end of the range, and no two callers take the same key.
//!
//! Callers at one end want the same key, and all but one would fail. So each of them locks the end
//! before it reads, and they form a queue. A transaction does so from its second run on, because
//! nothing shows in advance that it will pop. Transactions on their first run do not queue, and
//! neither do writers that put keys. So a caller that had its turn and failed locks the whole range
//! for its next run.
//!
//! A transaction whose level checks nothing locks the whole range before it scans.

use super::begin::Life;
use super::scan::Way;
use super::steps::{alone, options_of};
use crate::engine::{Engine, Keyspace};
use crate::error::Result;
use crate::footprint::{Cut, Interval};
use crate::format::OpKind;
use crate::lock::LockMode;
use crate::options::{Isolation, ReadOptions, WriteOptions};
use crate::pinned::Value;
use crate::read::{Scan, ScanBounds};
use std::ops::Bound;
use std::sync::Arc;

/// Takes a key in a transaction of its own.
pub(crate) fn pop(
    engine: &Arc<Engine>,
    family: &Arc<Keyspace>,
    way: Way,
    bounds: &ScanBounds,
    write: WriteOptions,
) -> Result<Option<(Value, Value)>> {
    let options = options_of(Isolation::Serializable, write);
    let take = |life: &mut Life| life.pop(engine, family, way, bounds, ReadOptions::default());
    let prepare = |life: &mut Life| {
        life.note_end(family, way, bounds);
        life.begin_again(engine);
    };
    Ok(alone(engine, options, prepare, take)?.0)
}

impl Life {
    /// Removes the key that is first on the way through `bounds`, and returns it with its value.
    pub(crate) fn pop(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        way: Way,
        bounds: &ScanBounds,
        options: ReadOptions,
    ) -> Result<Option<(Value, Value)>> {
        engine.check_not_read_only()?;
        self.note_end(family, way, bounds);
        if self.checks_nothing() {
            self.lock_range(engine, family, bounds, LockMode::Exclusive)?;
        }
        let (pin, mut recorder) = self.scan(engine, family, bounds, options)?;
        let sought = pin.scan_lazily(bounds).and_then(|mut scan| {
            match way {
                Way::Forward => scan.seek_first()?,
                Way::Backward => scan.seek_last()?,
            }
            pin.learn(&mut scan);
            let found = taken(&scan)?;
            Ok((scan, found))
        });
        let (scan, found) = sought.inspect_err(|_| {
            if let Some(recorder) = &mut recorder {
                recorder.fail();
            }
        })?;
        if let Some(recorder) = &mut recorder {
            recorder.note_end(scan.first_end());
            let Interval { start, end } = recorder.bounds().clone();
            match (way, &found) {
                (_, None) => recorder.pass_all(),
                (Way::Forward, Some((key, _))) => {
                    recorder.return_key(key);
                    recorder.pass(Interval { start, end: Some(Cut::after(key)) });
                }
                (Way::Backward, Some((key, _))) => {
                    recorder.return_key(key);
                    recorder.pass(Interval { start: Cut::before(key), end });
                }
            }
        }
        drop(recorder);
        let Some((key, value)) = found else { return Ok(None) };
        // They share the write set, which would be copied otherwise.
        drop((scan, pin));
        self.operate(engine, family, OpKind::Delete, &key, &[])?;
        Ok(Some((key, value)))
    }

    /// Notes the end of the range at which callers queue. In an empty range there is nothing to
    /// wait for, and the key at its end is not in it.
    fn note_end(&mut self, family: &Arc<Keyspace>, way: Way, bounds: &ScanBounds) {
        let range = Interval::within(&bounds.lower, &bounds.upper);
        if !range.is_empty() {
            self.note_queue(family, end_key(way, bounds), &range);
        }
    }
}

/// The key where the scan stands, and its value. If that cannot be read, nothing is removed.
fn taken(scan: &Scan) -> Result<Option<(Value, Value)>> {
    if scan.is_separated() {
        let value = scan.fetched()?.clone();
        return Ok(scan.key().map(|key| (Value::copied(key), value)));
    }
    Ok(scan.pinned().map(|(key, value)| (Value::copied(key), value)))
}

/// The key by which callers at an end of a range find each other.
fn end_key(way: Way, bounds: &ScanBounds) -> &[u8] {
    match if way == Way::Forward { &bounds.lower } else { &bounds.upper } {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::{Db, FamilyOptions, Options, Prefix, Result, TransactionOptions, WriteOptions};
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::time::Duration;

    fn open() -> Db {
        Options::in_memory().open("/db").unwrap()
    }

    #[test]
    fn the_first_and_the_last_key_of_a_range_are_taken_with_their_values() {
        let db = open();
        let family = db.family("f").unwrap();
        for key in ["a", "b1", "b2", "b3", "c"] {
            db.put(key, key.to_uppercase()).unwrap();
            family.put(key, key).unwrap();
        }
        db.flush().unwrap();
        let key = |popped: Result<Option<(crate::Key, crate::Value)>>| {
            popped.unwrap().map(|(key, _)| key.to_vec())
        };
        assert_eq!(key(db.pop_first("b".."c")), Some(b"b1".to_vec()));
        let (popped, value) = db.pop_last("b".."c").unwrap().unwrap();
        assert_eq!((&popped[..], &value[..]), (&b"b3"[..], &b"B3"[..]));
        assert_eq!(key(db.with(WriteOptions::sync()).pop_last(..)), Some(b"c".to_vec()));
        assert_eq!(key(db.pop_first(Prefix("x"))), None);
        let keys: Vec<_> = db.iter().keys().map(Result::unwrap).collect();
        assert_eq!(keys, ["a", "b2"]);
        assert_eq!(
            key(family.with(WriteOptions::default()).pop_first("b"..)),
            Some(b"b1".to_vec())
        );
        assert_eq!(key(family.pop_last(..)), Some(b"c".to_vec()));
        let tx = db.begin();
        assert_eq!(key(tx.pop_first(..)), Some(b"a".to_vec()));
        tx.put("0", "own").unwrap();
        assert_eq!(key(tx.pop_first(..)), Some(b"0".to_vec()));
        assert_eq!(key(tx.of(&family).pop_first(..)), Some(b"a".to_vec()));
        assert_eq!(key(tx.pop_last(..)), Some(b"b2".to_vec()));
        assert_eq!(key(tx.pop_last(..)), None);
        assert!(db.contains("a").unwrap());
        tx.commit().unwrap();
        assert_eq!((db.count(..).unwrap(), family.count(..).unwrap()), (0, 2));
    }

    #[test]
    fn a_pop_in_a_transaction_takes_memory_for_its_key_alone() {
        const POPS: u64 = 1_000;
        for (has_savepoint, is_forward) in [(false, true), (true, true), (false, false)] {
            let db = open();
            (0..POPS).for_each(|n| _ = db.put(n.to_be_bytes(), n.to_string()).unwrap());
            let tx = db.begin();
            // It is listed once it has a number.
            tx.id();
            if has_savepoint {
                tx.savepoint("all").unwrap();
            }
            for n in 0..POPS {
                let (popped, expected) = match is_forward {
                    true => (tx.pop_first(..), n),
                    false => (tx.pop_last(..), POPS - 1 - n),
                };
                let (key, value) = popped.unwrap().unwrap();
                assert_eq!(
                    (&key[..], &value[..]),
                    (&expected.to_be_bytes()[..], expected.to_string().as_bytes())
                );
            }
            let bytes = db.transactions()[0].bytes;
            assert!(
                bytes <= 200 * POPS,
                "{bytes} bytes for {POPS} pops, savepoint: {has_savepoint}"
            );
            if has_savepoint {
                tx.rollback_to("all").unwrap();
            }
            tx.commit().unwrap();
            assert_eq!(db.count(..).unwrap(), if has_savepoint { POPS } else { 0 });
        }
    }

    /// The same of other steps that read what the transaction has written and write it again.
    #[test]
    fn a_step_takes_no_memory_for_the_value_that_it_replaces() {
        type Step<'s> = &'s dyn Fn(&crate::Transaction, u64);
        const STEPS: u64 = 1_000;
        let options = FamilyOptions::new().merge_operator("isobath.max");
        let db = open();
        let family = db.family(("merged", options)).unwrap();
        for len in [100, 16 << 10] {
            let filled = |byte: u64| vec![byte as u8; len];
            let steps: [(&str, Step<'_>); 3] = [
                ("fetch_update", &|tx, n| {
                    let next = |old: Option<&[u8]>| Some(filled(u64::from(old.unwrap()[0]) + 1));
                    assert_eq!(tx.fetch_update("k", next).unwrap().unwrap(), filled(n));
                }),
                ("set_expiry", &|tx, _| {
                    assert!(tx.set_expiry("k", Duration::from_secs(60)).unwrap());
                }),
                ("merge", &|tx, n| tx.of(&family).merge("k", filled(n)).unwrap()),
            ];
            for (name, step) in steps {
                let tx = db.begin();
                tx.id();
                tx.put("k", filled(0)).unwrap();
                (0..STEPS).for_each(|n| step(&tx, n));
                let (bytes, allowed) = (db.transactions()[0].bytes, 4_000.max(8 * len as u64));
                assert!(bytes <= allowed, "{bytes} bytes after {STEPS} of {name} with {len} bytes");
            }
        }
    }

    /// Consumers take keys until all that are produced are gone. Of each pair of consumers one
    /// takes keys from the front; the other takes them from the back if `from_both` is set.
    fn consume(db: &Db, jobs: u64, from_both: bool, produce: impl FnOnce(&AtomicU64) + Send) {
        const CONSUMERS: usize = 4;
        let produced = AtomicU64::new(0);
        let taken: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let produced = &produced;
            scope.spawn(move || produce(produced));
            let consume = move |at: usize| {
                let mut taken = Vec::new();
                loop {
                    let is_over = produced.load(Relaxed) == jobs;
                    let is_back = from_both && at % 2 == 1;
                    match if is_back { db.pop_last(..) } else { db.pop_first(..) } {
                        Ok(Some((key, value))) => {
                            let n = u64::from_be_bytes(key[..].try_into().unwrap());
                            assert_eq!(value, n.to_string());
                            taken.push(n);
                        }
                        Ok(None) if is_over => return taken,
                        Ok(None) => std::thread::yield_now(),
                        Err(error) => panic!("{error}"),
                    }
                }
            };
            let consumers: Vec<_> =
                (0..CONSUMERS).map(|at| scope.spawn(move || consume(at))).collect();
            consumers.into_iter().map(|consumer| consumer.join().unwrap()).collect()
        });
        let all: Vec<u64> = taken.iter().flatten().copied().collect();
        assert_eq!(all.len() as u64, jobs, "a key was taken twice or lost");
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), (0..jobs).collect());
        assert_eq!(db.count(..).unwrap(), 0);
    }

    #[test]
    fn of_many_consumers_beside_a_producer_none_takes_a_key_twice_and_none_is_lost() {
        let db = open();
        consume(&db, 400, false, |produced| {
            for n in 0..400u64 {
                db.put(n.to_be_bytes(), n.to_string()).unwrap();
                produced.fetch_add(1, Relaxed);
                if n == 200 {
                    db.flush().unwrap();
                }
            }
        });
    }

    #[test]
    fn those_who_pop_and_put_in_one_transaction_have_their_turn_after_three_runs() {
        let db = open();
        let done = db.family("done").unwrap();
        (0..400u64).for_each(|n| _ = db.put(n.to_be_bytes(), "").unwrap());
        // Enough attempts for a few deadlocks with callers that lock the range at the same time.
        let options = TransactionOptions::default().attempts(6);
        let work = || {
            loop {
                let taken = db.with(options).transact(|tx| {
                    let Some((key, _)) = tx.pop_first(..)? else { return Ok(false) };
                    std::thread::yield_now();
                    tx.of(&done).put(&key, "")?;
                    Ok(true)
                });
                if !taken.unwrap().0 {
                    return;
                }
            }
        };
        std::thread::scope(|scope| (0..8).for_each(|_| _ = scope.spawn(work)));
        assert_eq!((db.count(..).unwrap(), done.count(..).unwrap()), (0, 400));
    }

    #[test]
    fn consumers_at_both_ends_meet_and_share_everything() {
        let db = open();
        (0..400u64).for_each(|n| _ = db.put(n.to_be_bytes(), n.to_string()).unwrap());
        db.compact().unwrap();
        consume(&db, 400, true, |produced| produced.store(400, Relaxed));
    }
}
