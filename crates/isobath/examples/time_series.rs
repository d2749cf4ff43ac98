//! Readings of sensors: the newest ones, a window of time, averages, and deleting old ones.
//!
//! A key is the sensor's name, a slash, and the time in seconds as eight bytes, most significant
//! first. So the readings of a sensor lie together, ordered by time. A value is an `f64` in eight
//! bytes.
//!
//! `cargo run -p isobath --example time_series [DIRECTORY]`

use isobath::{Batch, Codec, Db, Family, FamilyOptions, KIB};
use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let given = std::env::args_os().nth(1);
    run(given.as_deref().map_or(scratch.path(), Path::new), &mut io::stdout())
}

fn key(sensor: &str, at: u64) -> Vec<u8> {
    [sensor.as_bytes(), b"/", &at.to_be_bytes()].concat()
}

fn decode(key: &[u8], value: &[u8]) -> (u64, f64) {
    let at = key[key.len() - 8..].try_into().expect("keys end in a time");
    let reading = value.try_into().expect("readings have eight bytes");
    (u64::from_be_bytes(at), f64::from_be_bytes(reading))
}

/// The newest readings of a sensor, newest first.
fn newest(points: &Family, sensor: &str, count: usize) -> isobath::Result<Vec<(u64, f64)>> {
    let theirs = points.prefix(format!("{sensor}/")).rev().take(count);
    theirs.map(|item| item.map(|(key, value)| decode(&key, &value))).collect()
}

/// The average of a sensor's readings in a window of time; `None` if there are none.
fn average(points: &Family, sensor: &str, from: u64, to: u64) -> isobath::Result<Option<f64>> {
    let (mut sum, mut count) = (0.0, 0u32);
    for item in points.range(key(sensor, from)..key(sensor, to)) {
        let (key, value) = item?;
        sum += decode(&key, &value).1;
        count += 1;
    }
    Ok((count > 0).then(|| sum / f64::from(count)))
}

/// Deletes a sensor's readings from before a time, by one record however many they are. Compacting
/// the range frees the space at once; otherwise compactions do so in time. Where readings go by
/// their age alone, give the family a time to live (`FamilyOptions::ttl`) instead.
fn forget(points: &Family, sensor: &str, before: u64) -> isobath::Result<u64> {
    let old = key(sensor, 0)..key(sensor, before);
    let count = points.count(old.clone())?;
    points.delete_range(old.clone())?;
    points.compact(old)?;
    Ok(count)
}

pub(crate) fn run(dir: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let db = Db::open(dir)?;
    // Neighbouring readings are similar and are read together. So use larger blocks, and Zstandard
    // for the levels that hold most of the data.
    let dense = FamilyOptions::new().block_size(16 * KIB).codecs([Codec::None, Codec::Zstd]);
    let points = db.family(("points", dense))?;

    // A day of readings, one a minute. Each hour is a batch.
    for hour in 0..24u64 {
        let mut batch = Batch::new();
        for at in (hour * 3600..(hour + 1) * 3600).step_by(60) {
            let warm = 10.0 + hour as f64;
            batch.of(&points).put(key("roof", at), warm.to_be_bytes());
            batch.of(&points).put(key("cellar", at), 8.5f64.to_be_bytes());
        }
        db.write(batch)?;
    }

    writeln!(out, "newest on the roof: {:?}", newest(&points, "roof", 2)?)?;
    let noon = average(&points, "roof", 12 * 3600, 14 * 3600)?;
    writeln!(out, "from noon to two: {noon:?}")?;
    writeln!(out, "tomorrow: {:?}", average(&points, "roof", 86_400, 90_000)?)?;
    writeln!(out, "forgotten: {}", forget(&points, "roof", 23 * 3600)?)?;
    writeln!(out, "left: {}", points.count(..)?)?;
    let deletes: u64 = db.metrics().families[1].levels.iter().map(|level| level.deletes).sum();
    writeln!(out, "deletes in tables: {deletes}")?;
    Ok(db.close()?)
}
