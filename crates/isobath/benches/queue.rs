//! What a queue costs as it ages: a push at one end and a pop at the other, by how many have gone
//! before. Keys are 8 bytes and ascend; values have 100 bytes.
//!
//!     cargo bench -p isobath --bench queue [-- FILTER]
//!
//! prints, for each number of jobs that wait and each number of families, the microseconds of a
//! push and a pop over the first, the fourth and the seventh 10,000: of processor time on Linux, so
//! that a busy machine matters less, and elsewhere by the clock. Families take turns. The rows
//! `memory` never flush; the rows `flushed` do every 5,000, and that time does not count.
//! `QUEUE_BLOCK` replaces the 10,000. The row `shared` has two threads that push and two that pop,
//! of one family, and shows the time by the clock.

use isobath::{Db, Family, Options, Result};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Which blocks of pushes and pops are shown.
const SHOWN: [u64; 3] = [1, 4, 7];

struct Queue {
    family: Family,
    pushed: u64,
    popped: u64,
}

impl Queue {
    fn push(&mut self) -> Result<()> {
        self.family.put(self.pushed.to_be_bytes(), [b'v'; 100])?;
        self.pushed += 1;
        Ok(())
    }

    fn pop(&mut self) -> Result<()> {
        let (key, _) = self.family.pop_first(..)?.expect("jobs wait");
        assert_eq!(key, self.popped.to_be_bytes(), "the oldest job comes first");
        self.popped += 1;
        Ok(())
    }
}

/// The processor time of this thread, or the time.
fn now() -> Duration {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let on_cpu_ns = stat.and_then(|stat| stat.split(' ').next()?.parse().ok());
    on_cpu_ns.map_or_else(|| BEGAN.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

/// The microseconds of a push and a pop in each block.
fn age(db: &Db, depth: u64, families: u64, block: u64, flushes: bool) -> Result<Vec<f64>> {
    let family = |n| db.family(format!("q{n}").as_str());
    let queue = |n| Ok(Queue { family: family(n)?, pushed: 0, popped: 0 });
    let mut queues = (0..families).map(queue).collect::<Result<Vec<_>>>()?;
    for queue in &mut queues {
        (0..depth).try_for_each(|_| queue.push())?;
    }
    let mut costs = Vec::new();
    for _ in 0..SHOWN[2] {
        let mut spent = Duration::ZERO;
        for half in 0..2 {
            if flushes {
                db.flush()?;
            }
            let started = now();
            for n in half * block / 2..(half + 1) * block / 2 {
                let queue = &mut queues[(n % families) as usize];
                queue.push()?;
                queue.pop()?;
            }
            spent += now() - started;
        }
        costs.push(spent.as_nanos() as f64 / 1000.0 / block as f64);
    }
    Ok(costs)
}

/// The microseconds of a push and a pop in each block, with two threads for each. A thousand jobs
/// wait at most.
fn age_shared(db: &Db, block: u64) -> Result<Vec<f64>> {
    let (pushed, popped, all) = (AtomicU64::new(0), AtomicU64::new(0), block * SHOWN[2]);
    let push = || {
        loop {
            let n = pushed.fetch_add(1, Relaxed);
            if n >= all {
                return Ok(());
            }
            while n > popped.load(Relaxed) + 1_000 {
                std::thread::yield_now();
            }
            db.put(n.to_be_bytes(), [b'v'; 100])?;
        }
    };
    let pop = || {
        while popped.load(Relaxed) < all {
            match db.pop_first(..)? {
                Some(_) => _ = popped.fetch_add(1, Relaxed),
                None => std::thread::yield_now(),
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let pushers = [(); 2].map(|()| scope.spawn(push));
        let poppers = [(); 2].map(|()| scope.spawn(pop));
        let mut costs = Vec::new();
        for nth in 1..=SHOWN[2] {
            let started = Instant::now();
            while popped.load(Relaxed) < nth * block {
                std::thread::sleep(Duration::from_micros(200));
            }
            costs.push(started.elapsed().as_nanos() as f64 / 1000.0 / block as f64);
        }
        let mut threads = pushers.into_iter().chain(poppers);
        threads.try_for_each(|thread| thread.join().expect("no thread panics"))?;
        Ok(costs)
    })
}

fn show(name: &str, costs: &[f64]) {
    let [first, fourth, seventh] = SHOWN.map(|nth| costs[nth as usize - 1]);
    println!("{name:34} {first:9.2} {fourth:9.2} {seventh:9.2}");
}

fn main() -> Result<()> {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    let block = std::env::var("QUEUE_BLOCK").ok().and_then(|text| text.parse().ok());
    let block = block.unwrap_or(10_000);
    println!("{:34} {:>9} {:>9} {:>9}", "a push and a pop, µs", "1st", "4th", "7th");
    for (place, flushes) in [("memory", false), ("flushed", true)] {
        for depth in [10, 1_000, 100_000] {
            for families in [1, 16] {
                let name = format!("{place}, depth {depth}, families {families}");
                if !name.contains(&filter) {
                    continue;
                }
                let dir = tempfile::tempdir().expect("a directory for the database");
                let db = Options::new().open(dir.path())?;
                show(&name, &age(&db, depth, families, block, flushes)?);
                db.close()?;
            }
        }
    }
    if "shared".contains(&filter) {
        let dir = tempfile::tempdir().expect("a directory for the database");
        let db = Options::new().open(dir.path())?;
        show("shared", &age_shared(&db, block)?);
        db.close()?;
    }
    Ok(())
}
