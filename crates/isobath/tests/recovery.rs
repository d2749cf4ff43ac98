//! Recovery of a long log reports its progress, and restores everything. `ISOBATH_TEST_LONG=1`
//! makes the log 256 MiB long.

use isobath::env::Env;
use isobath::vfs::MemoryFs;
use isobath::{Event, Options};
use std::sync::{Arc, Mutex};
use std::time::Instant;

#[test]
fn the_recovery_of_a_long_log_shows_its_progress() {
    let log_bytes: u64 =
        if std::env::var_os("ISOBATH_TEST_LONG").is_some() { 256 << 20 } else { 24 << 20 };
    let fs = MemoryFs::new();
    let options = |fs: &MemoryFs| {
        let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
        Options::new().env(env)
    };
    let db = options(&fs).write_buffer(2 * log_bytes).open("/db").unwrap();
    let mut keys = 0u64;
    while db.metrics().log_bytes < log_bytes {
        for _ in 0..1000 {
            db.put(keys.to_be_bytes(), [keys as u8; 900]).unwrap();
            keys += 1;
        }
    }
    assert_eq!(db.metrics().flushes, 0, "all of it is to be in the log");
    let left = fs.killed();

    let progress = Arc::new(Mutex::new(Vec::new()));
    let noted = progress.clone();
    let listener = move |event: &Event| {
        if let Event::RecoveryProgress { done_bytes, total_bytes, .. } = event {
            noted.lock().unwrap().push((*done_bytes, *total_bytes));
        }
    };
    let began = Instant::now();
    // A smaller write buffer than the writer's, so recovery flushes while it replays.
    let db = options(&left).write_buffer(4 << 20).on_event(listener).open("/db").unwrap();
    let progress = progress.lock().unwrap();
    println!("{log_bytes} bytes in {:?}, told {} times", began.elapsed(), progress.len());
    assert!(progress.len() >= 5, "{progress:?}");
    assert!(progress.is_sorted_by_key(|(done, _)| *done), "{progress:?}");
    let (done, total) = *progress.last().unwrap();
    assert!(done <= total && done >= log_bytes, "{done} of {total}");
    let metrics = db.metrics();
    assert_eq!((metrics.recovered_records, metrics.recovered_bytes >= log_bytes), (keys, true));
    for key in (0..keys).step_by(97) {
        assert_eq!(db.get(key.to_be_bytes()).unwrap().unwrap(), [key as u8; 900]);
    }
    assert_eq!(db.range(..).keys().count() as u64, keys);
}
