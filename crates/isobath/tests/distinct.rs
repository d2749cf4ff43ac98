//! `Family::distinct_keys` against the truth, wherever the keys lie.

use isobath::{
    Db, DistinctKeys, Env, Family, FamilyOptions, Options, Result, tools, vfs::MemoryFs,
};
use std::path::Path;
use std::sync::Arc;

fn open() -> Result<Db> {
    Options::in_memory().write_buffer(1 << 20).open("/db")
}

fn put(family: &Family, mut keys: impl Iterator<Item = u64>, value: &str) -> Result<()> {
    keys.try_for_each(|key| family.put(key.to_be_bytes(), value).map(drop))
}

/// Checks that an estimate is no further off than three standard errors, and right for few keys.
fn check(about: DistinctKeys, keys: u64) {
    assert_eq!(about.unsketched_entries, 0);
    if keys < 30 {
        return assert_eq!(about.keys, keys);
    }
    let off = about.keys.abs_diff(keys) as f64;
    assert!(off <= 3.0 * about.standard_error * keys as f64, "{about:?} for {keys}");
}

#[test]
fn keys_are_counted_wherever_they_lie_while_a_value_of_theirs_is_stored() -> Result<()> {
    let db = open()?;
    // Blocks in roots, tables with an index, and a family without filters.
    let families = ["few", "many", "unfiltered"];
    for (name, keys) in families.into_iter().zip([12_u64, 200, 200]) {
        let bits = if name == "unfiltered" { 0 } else { 10 };
        let family = db.family((name, FamilyOptions::new().filter_bits_per_key(bits)))?;
        let is = |keys| check(family.distinct_keys().unwrap(), keys);
        is(0);
        put(&family, 0..keys, "in memory")?;
        put(&family, 0..keys / 2, "again in memory")?;
        is(keys);
        db.flush()?;
        is(keys);
        put(&family, keys / 2..keys + keys / 4, "in a second run and in memory")?;
        is(keys + keys / 4);
        db.flush()?;
        is(keys + keys / 4);
        // A delete of what was never there is no key, and a deleted key is one until it is gone.
        // The snapshot keeps all deletes.
        let snapshot = db.snapshot();
        for key in keys / 2..2 * keys {
            family.delete(key.to_be_bytes())?;
        }
        is(keys + keys / 4);
        db.flush()?;
        is(keys + keys / 4);
        drop(snapshot);
        family.compact(..)?;
        is(keys / 2);
        family.clear()?;
        family.compact(..)?;
        is(0);
    }
    Ok(())
}

#[test]
fn a_key_counts_once_in_however_many_tables_it_lies() -> Result<()> {
    let db = open()?;
    let family = db.default_family();
    for round in 0..6 {
        put(&family, (0..40_000).filter(|key| key % 6 <= round), "value")?;
        db.flush()?;
        check(family.distinct_keys()?, (round + 1) * 40_000 / 6);
    }
    let levels = &db.metrics().families[0].levels;
    assert!(levels.iter().map(|level| level.entries).sum::<u64>() > 60_000, "{levels:?}");
    family.compact(..)?;
    check(family.distinct_keys()?, 40_000);
    Ok(())
}

#[test]
fn keys_of_a_large_transaction_count_before_and_after_the_flush_of_its_files() -> Result<()> {
    let db = open()?;
    let family = db.default_family();
    let tx = db.begin();
    for key in 0..30_000_u64 {
        tx.put(key.to_be_bytes(), "a value that is so long that they do not fit into memory")?;
    }
    tx.commit()?;
    check(family.distinct_keys()?, 30_000);
    put(&family, 29_000..31_000, "value")?;
    check(family.distinct_keys()?, 31_000);
    db.flush()?;
    check(family.distinct_keys()?, 31_000);
    Ok(())
}

#[test]
fn a_reader_beside_the_writer_and_the_next_opening_find_the_same_sketches() -> Result<()> {
    let fs = MemoryFs::new();
    let options = || Options::new().env(Env { fs: Arc::new(fs.clone()), ..Env::system() });
    let db = options().open("/db")?;
    put(&db.default_family(), 0..10_000, "value")?;
    db.flush()?;
    let keys = db.default_family().distinct_keys()?;
    check(keys, 10_000);
    let reader = options().read_only(true).open("/db")?;
    assert_eq!(reader.default_family().distinct_keys()?, keys);
    drop(reader);
    db.close()?;
    assert_eq!(options().open("/db")?.default_family().distinct_keys()?, keys);
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    assert!(tools::verify(Path::new("/db"), &env, &mut |_, _| ())?.is_clean());
    Ok(())
}
