//! Compactions overlap in time, and so do the parts of one compaction. A trace of events shows
//! both.

use isobath::{Event, FamilyOptions, Options};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Which thread worked on which compaction, with its start and its end in microseconds.
#[derive(Clone, Debug)]
struct Share {
    thread: std::thread::ThreadId,
    family: String,
    job: u64,
    parts: usize,
    from_us: u64,
    to_us: u64,
}

impl Share {
    fn overlaps(&self, other: &Share) -> bool {
        self.thread != other.thread && self.from_us < other.to_us && other.from_us < self.to_us
    }
}

fn pairs(shares: &[Share]) -> impl Iterator<Item = (&Share, &Share)> {
    shares
        .iter()
        .enumerate()
        .flat_map(|(at, one)| shares[at + 1..].iter().map(move |two| (one, two)))
}

#[test]
fn compactions_and_the_parts_of_one_compaction_run_at_the_same_time() {
    let (shares, began) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
    let noted = shares.clone();
    let listener = move |event: &Event| {
        let Event::SubcompactionDone { family, job, parts, took_us, .. } = event else { return };
        let to_us = began.elapsed().as_micros() as u64;
        noted.lock().unwrap().push(Share {
            thread: std::thread::current().id(),
            family: family.clone(),
            job: *job,
            parts: *parts,
            from_us: to_us.saturating_sub(*took_us),
            to_us,
        });
    };
    let db = Options::in_memory()
        .write_buffer(256 << 10)
        .compaction_threads(3)
        .family(FamilyOptions::new().level_size_ratio(4))
        .on_event(listener)
        .open("db")
        .unwrap();
    let families: Vec<_> = (0..3).map(|n| db.family(format!("family {n}")).unwrap()).collect();
    let both = |shares: &[Share]| {
        let of_one = |one: &Share, two: &Share| one.family == two.family && one.job == two.job;
        let parts = pairs(shares).any(|(one, two)| of_one(one, two) && one.overlaps(two));
        let jobs = pairs(shares).any(|(one, two)| !of_one(one, two) && one.overlaps(two));
        (parts, jobs)
    };
    let mut n = 0u64;
    while began.elapsed().as_secs() < 300 {
        for _ in 0..3000 {
            let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
            families[(n % 3) as usize].put(key, [7; 100]).unwrap();
            n += 1;
        }
        if both(&shares.lock().unwrap()) == (true, true) {
            break;
        }
    }
    db.close().unwrap();
    let mut shares = shares.lock().unwrap().clone();
    shares.sort_by_key(|share| share.from_us);
    println!("from us    to us  parts  compaction       thread");
    for share in shares.iter().rev().take(40).rev() {
        let Share { thread, family, job, parts, from_us, to_us } = share;
        println!("{from_us:7}  {to_us:7}  {parts:5}  {family} #{job:<5}  {thread:?}");
    }
    assert_eq!(
        both(&shares),
        (true, true),
        "(parts of one compaction, compactions) overlapped, after {n} puts"
    );
}
