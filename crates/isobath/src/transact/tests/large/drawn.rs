//! Large commits beside other writers and readers, and drawn ones beside maps.

use super::*;
use std::sync::atomic::AtomicU64;

#[test]
fn readers_see_a_large_commit_in_all_families_at_once_while_others_write() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    let side = db.family("side").unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2u32 {
            let (db, is_over) = (&db, &is_over);
            scope.spawn(move || {
                let mut n = 0;
                while !is_over.load(Ordering::Relaxed) {
                    // Every second key is theirs.
                    n = (n + 7) % 400;
                    let told = db.put(key(n * 2 + 1), writer.to_be_bytes());
                    assert!(told.is_ok(), "{told:?}");
                }
            });
        }
        let (db_, side_, is_over_) = (&db, &side, &is_over);
        scope.spawn(move || {
            while !is_over_.load(Ordering::Relaxed) {
                let snapshot = db_.snapshot();
                let mut found = Vec::new();
                for n in (0..300).step_by(20) {
                    let value = snapshot.get(key(n)).unwrap();
                    found.push(value.map(|value| value[0]));
                    let value = snapshot.of(side_).get(key(n)).unwrap();
                    found.push(value.map(|value| value[0]));
                }
                found.dedup();
                assert_eq!(found.len(), 1, "{found:?}");
            }
        });
        for round in 1..6u8 {
            let tx = begin(&db, Isolation::Serializable);
            for n in (0..300).step_by(2) {
                tx.put(key(n), [round; 300]).unwrap();
                tx.of(&side).put(key(n), [round; 300]).unwrap();
            }
            tx.commit().unwrap();
            assert_eq!(db.get(key(20)).unwrap().unwrap(), [round; 300]);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_at_rest(db.engine());
}

const COUNTERS: u32 = 40;

fn count(value: Option<crate::Value>) -> u64 {
    value.map_or(0, |value| u64::from_be_bytes(value[..8].try_into().unwrap()))
}

fn counted(count: u64, len: usize) -> Vec<u8> {
    [&count.to_be_bytes()[..], &vec![7; len]].concat()
}

/// Raises a counter in one of the ways in which no update is lost.
fn raise_one(db: &Db, rng: &mut Rng) -> crate::Result<()> {
    let at = key(rng.below(COUNTERS.into()) as u32);
    let level = [Isolation::Serializable, Isolation::RepeatableRead, Isolation::Snapshot]
        [rng.below(3) as usize];
    let way = rng.below(3);
    if way == 0 {
        let raise = |old: Option<&[u8]>| {
            let old = old.map_or([0; 8], |old| old[..8].try_into().unwrap());
            Some(counted(u64::from_be_bytes(old) + 1, 20))
        };
        return db.fetch_update(&at, raise).map(drop);
    }
    let tx = begin(db, level);
    let got = if way == 1 { tx.get(&at)? } else { tx.get_for_update(&at)? };
    tx.put(&at, counted(count(got) + 1, 20))?;
    tx.commit().map(drop)
}

fn raise_all(db: &Db, round: usize) -> crate::Result<()> {
    let tx = begin(db, [Isolation::Serializable, Isolation::Snapshot][round % 2]);
    for at in 0..COUNTERS {
        let got = match round % 3 {
            0 if at % 8 == 0 => tx.get_for_update(key(at))?,
            _ => tx.get(key(at))?,
        };
        tx.put(key(at), counted(count(got) + 1, 600))?;
    }
    tx.commit().map(drop)
}

/// Sees no counter go back.
fn watch(db: &Db, seen: &mut [u64]) {
    for at in 0..COUNTERS {
        let now = count(db.get(key(at)).unwrap());
        assert!(now >= seen[at as usize], "{at}: {now} after {}", seen[at as usize]);
        seen[at as usize] = now;
    }
    for (row, seen) in db.range(..).zip(seen) {
        let now = count(Some(row.unwrap().1));
        assert!(now >= *seen, "{now} after {seen}");
        *seen = now;
    }
}

/// Counters, which large commits raise together and small ones alone.
#[test]
fn no_update_is_lost_between_large_commits_and_small_ones_and_none_goes_back() {
    let fs = MemoryFs::new();
    let mut options = over(&fs).write_buffer(256 << 10);
    options.sizes.footprint_max = 8 << 10;
    options.sizes.large_from = 0;
    options.sizes.l0_trigger_runs = 3;
    let db = options.open("/db").unwrap();
    (0..COUNTERS).for_each(|at| _ = db.put(key(at), counted(0, 20)).unwrap());
    let raised = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let note = |told: crate::Result<()>, by: u32| match told {
        Ok(()) => _ = raised.fetch_add(by.into(), Ordering::Relaxed),
        Err(error) => assert!(error.is_conflict(), "{error}"),
    };
    std::thread::scope(|scope| {
        let (db, is_over, note) = (&db, &is_over, &note);
        for thread in 0..3u64 {
            scope.spawn(move || {
                let mut rng = Rng(thread);
                while !is_over.load(Ordering::Relaxed) {
                    note(raise_one(db, &mut rng), 1);
                }
            });
        }
        scope.spawn(move || {
            let mut seen = vec![0; COUNTERS as usize];
            while !is_over.load(Ordering::Relaxed) {
                watch(db, &mut seen);
            }
        });
        for round in 0..150 {
            note(raise_all(db, round), COUNTERS);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let sum = |db: &Db| db.range(..).map(|row| count(Some(row.unwrap().1))).sum::<u64>();
    let raised = raised.load(Ordering::Relaxed);
    assert!(sum(&db) == raised && raised > u64::from(COUNTERS), "{} {raised}", sum(&db));
    assert_eq!(sum(&over(&fs.killed()).open("/db").unwrap()), raised);
}

#[test]
fn drawn_large_commits_between_other_writes_show_what_a_map_has() {
    for seed in 1..4 {
        let (mut fs, mut rng) = (MemoryFs::new(), Rng(seed));
        let mut db = open(&fs);
        let mut maps: [Map; 2] = Default::default();
        for round in 0..8u32 {
            let families = [db.default_family(), db.family("side").unwrap()];
            let tx = db.begin();
            for step in 0..300u32 {
                let at = rng.below(2) as usize;
                let (part, map) = (tx.of(&families[at]), &mut maps[at]);
                let n = key(rng.below(500) as u32);
                match rng.below(30) {
                    0 => {
                        let to = key(rng.below(500) as u32).max(n.clone());
                        part.delete_range(n.clone()..to.clone()).unwrap();
                        map.retain(|other, _| *other < n || *other >= to);
                    }
                    1..4 => {
                        part.delete(&n).unwrap();
                        map.remove(&n);
                    }
                    _ => {
                        let mut value = [round, step].map(u32::to_be_bytes).concat();
                        value.resize(20 + rng.below(900) as usize, 0);
                        part.put(&n, &value).unwrap();
                        map.insert(n, value);
                    }
                }
            }
            assert!(tx.commit().is_ok());
            for _ in 0..rng.below(30) {
                let at = rng.below(2) as usize;
                let n = key(rng.below(500) as u32);
                if rng.below(3) == 0 {
                    families[at].delete(&n).unwrap();
                    maps[at].remove(&n);
                } else {
                    families[at].put(&n, "small").unwrap();
                    maps[at].insert(n, b"small".to_vec());
                }
            }
            for (family, map) in families.iter().zip(&maps) {
                assert_shows(family, map);
            }
            match rng.below(4) {
                0 => db.flush().unwrap(),
                1 => {
                    let left = fs.killed();
                    drop((families, db));
                    (db, fs) = (open(&left), left);
                }
                _ => {}
            }
        }
        let families = [db.default_family(), db.family("side").unwrap()];
        for (family, map) in families.iter().zip(&maps) {
            assert_shows(family, map);
        }
        assert_at_rest(db.engine());
    }
}
