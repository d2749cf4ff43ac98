//! `Options::io_rate_limit`, seen from outside.

use isobath::{KIB, Options, Result};
use std::time::{Duration, Instant};

#[test]
fn flushes_and_compactions_take_as_long_as_the_limit_says_and_writers_get_through() -> Result<()> {
    let db = Options::in_memory().write_buffer(64 * KIB).io_rate_limit(512 * KIB).open("db")?;
    let started = Instant::now();
    let mut random = 7u64;
    for key in 0u32..4000 {
        let value: Vec<u8> = (0..12)
            .flat_map(|_| {
                random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (random >> 8).to_be_bytes()
            })
            .collect();
        db.put(key.to_be_bytes(), value)?;
    }
    db.compact()?;
    let metrics = db.metrics();
    assert_eq!(db.count(..)?, 4000);
    // The tables of flushes and those of compactions, once each at least.
    assert!(metrics.io_limited_bytes >= 2 * 4000 * 84, "{}", metrics.io_limited_bytes);
    let written = metrics.flush_bytes + metrics.compaction_written_bytes;
    assert_eq!(metrics.io_limited_bytes, written);
    assert!(metrics.io_limit_wait_ns > 0);
    // Flushes do not wait for compactions, so the greater of the two counts.
    let least_ms = metrics.compaction_written_bytes.max(metrics.flush_bytes) * 1000 / (512 * KIB);
    let took = started.elapsed();
    assert!(took + Duration::from_millis(700) > Duration::from_millis(least_ms), "{took:?}");
    db.close()
}

#[test]
fn a_limit_that_is_too_low_is_refused_and_none_is_not_counted() -> Result<()> {
    let error = Options::in_memory().io_rate_limit(1000).open("db").unwrap_err();
    assert!(error.to_string().contains("io_rate_limit must be from"), "{error}");
    let db = Options::in_memory().open("db")?;
    db.put("key", "value")?;
    db.flush()?;
    assert_eq!((db.metrics().io_limited_bytes, db.metrics().io_limit_wait_ns), (0, 0));
    Ok(())
}
