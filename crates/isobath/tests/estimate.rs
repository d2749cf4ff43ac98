//! `Family::estimate` against exact counts.

use isobath::{Db, Family, Options, Result};

/// More than a data block holds of the entries below.
const BLOCK: u64 = 60;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn open() -> Result<(Db, Family)> {
    let db = Options::in_memory().write_buffer(256 << 10).open("db")?;
    let family = db.default_family();
    Ok((db, family))
}

fn put(family: &Family, key: u64, random: &mut Random) -> Result<()> {
    let value: Vec<u8> = (0..10).flat_map(|_| random.next().to_be_bytes()).collect();
    family.put(key.to_be_bytes(), value).map(drop)
}

/// Compares estimate and count of many ranges. Each of `sources` may be a block off at each end.
fn compare(family: &Family, keys: &[u64], sources: u64) -> Result<()> {
    let mut random = Random(99);
    for nth in 0..200 {
        let (a, b) = match nth {
            0 => (0, u64::MAX),
            _ => {
                let mut at = || keys[(random.next() % keys.len() as u64) as usize];
                let (a, b) = (at(), at());
                (a.min(b), a.max(b))
            }
        };
        let range = a.to_be_bytes()..b.to_be_bytes();
        let (exact, about) = (family.count(range.clone())?, family.estimate(range)?);
        let off = exact.abs_diff(about.keys);
        assert!(off <= 2 * BLOCK * sources, "{about:?} for {exact} keys of {a:#x} to {b:#x}");
    }
    let whole = family.estimate(..)?;
    assert_eq!((whole.keys, whole.deletes), (keys.len() as u64, 0), "ends are not estimated");
    Ok(())
}

fn check(draw: impl Fn(&mut Random) -> u64) -> Result<()> {
    let (db, family) = open()?;
    let mut random = Random(7);
    let mut keys: Vec<u64> = (0..12_000).map(|_| draw(&mut random)).collect();
    keys.sort_unstable();
    keys.dedup();
    // Every third first, in the order of nothing.
    let mut order = keys.clone();
    order.sort_by_key(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for key in &order {
        put(&family, *key, &mut random)?;
    }
    let runs = |db: &Db| db.metrics().families[0].levels.iter().map(|at| at.slices).sum::<u64>();
    compare(&family, &keys, 1 + runs(&db))?;
    db.compact()?;
    // One level: a range ends within two slices.
    compare(&family, &keys, 1)?;
    let whole = family.estimate(..)?;
    let disk: u64 = db.metrics().families[0].levels.iter().map(|at| at.disk_bytes).sum();
    assert_eq!((whole.disk_bytes, whole.memory_bytes), (disk, 0));
    Ok(())
}

#[test]
fn an_estimate_of_evenly_spread_keys_is_at_most_a_block_off_at_each_end() -> Result<()> {
    check(Random::next)
}

#[test]
fn an_estimate_of_skewed_keys_is_no_worse() -> Result<()> {
    // Most keys lie in a few narrow places.
    check(|random| match random.next() % 10 {
        0 => random.next(),
        place => (place << 60) + random.next() % 10_000,
    })
}

#[test]
fn an_estimate_counts_what_is_in_memory_and_takes_off_what_was_deleted() -> Result<()> {
    let (db, family) = open()?;
    let mut random = Random(7);
    for key in 0..600 {
        put(&family, key, &mut random)?;
    }
    let all = family.estimate(..)?;
    assert_eq!((all.keys, all.disk_bytes, all.memory_bytes), (600, 0, 600 * 88));
    assert_eq!(family.estimate(100u64.to_be_bytes()..350u64.to_be_bytes())?.keys, 250);
    db.flush()?;
    for key in 0..200u64 {
        family.delete(key.to_be_bytes())?;
    }
    let all = family.estimate(..)?;
    assert_eq!((all.keys, all.deletes), (400, 200));
    assert_eq!(family.estimate("b".."a")?, Default::default());
    Ok(())
}

#[test]
fn a_range_that_begins_with_the_first_key_is_not_estimated_at_that_end() -> Result<()> {
    let (db, family) = open()?;
    let mut random = Random(7);
    for key in 0..2000 {
        put(&family, key, &mut random)?;
    }
    db.flush()?;
    let whole = family.estimate(..)?;
    assert_eq!(whole.keys, 2000);
    assert_eq!(family.estimate(0u64.to_be_bytes()..)?.keys, whole.keys);
    assert_eq!(family.estimate(..=1999u64.to_be_bytes())?.keys, whole.keys);
    Ok(())
}

#[test]
fn deletes_in_tables_are_counted_and_taken_off() -> Result<()> {
    let (db, family) = open()?;
    let mut random = Random(7);
    for key in 0..1000 {
        put(&family, key, &mut random)?;
    }
    db.flush()?;
    for key in 0..100u64 {
        family.delete((key * 7).to_be_bytes())?;
    }
    db.flush()?;
    let whole = family.estimate(..)?;
    assert_eq!((whole.keys, whole.deletes), (900, 100));
    Ok(())
}
