//! Many queues, one family each, which survive a crash of the worker.
//!
//! One batch takes a job from its queue and adds it to the family `running`. The job is deleted
//! from there when it is done. A job that is still there at the next start was not finished, and
//! goes back to its queue. So each job is done at least once.
//!
//! `cargo run -p isobath --example queues [DIRECTORY]`

use isobath::{Batch, Db, Family};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;

fn main() -> Result<(), Box<dyn Error>> {
    let scratch = tempfile::tempdir()?;
    let given = std::env::args_os().nth(1);
    run(given.as_deref().map_or(scratch.path(), Path::new), &mut io::stdout())
}

/// A queue's family, with the queue's first and last position. The lock is held across reads and
/// writes, so that workers wait for each other where transactions at one end would conflict.
struct Queue {
    waiting: Family,
    ends: Mutex<Ends>,
}

struct Ends {
    /// Every job below this was taken. A read begins here, past the deletes of the jobs that were
    /// taken.
    front: u64,
    back: u64,
}

struct Queues {
    db: Db,
    running: Family,
    queues: BTreeMap<String, Queue>,
}

impl Queues {
    /// Opens the database with these queues. Creating families waits for the device.
    fn open(dir: &Path, names: &[&str]) -> isobath::Result<Queues> {
        let db = Db::open(dir)?;
        let running = db.family("running")?;
        let families = db.open_families(names.iter().map(|name| format!("queue {name}")))?;
        let mut queues = BTreeMap::new();
        for (name, waiting) in names.iter().zip(families) {
            put_back(&db, &running, name, &waiting)?;
            let front = waiting.first()?.map_or(1, |(id, _)| number(&id));
            let back = waiting.last()?.map_or(front, |(id, _)| number(&id) + 1);
            let ends = Mutex::new(Ends { front, back });
            queues.insert(name.to_string(), Queue { waiting, ends });
        }
        Ok(Queues { db, running, queues })
    }

    fn push(&self, queue: &str, job: &str) -> isobath::Result<u64> {
        let queue = &self.queues[queue];
        let mut ends = queue.ends.lock().expect("no push panics");
        let id = ends.back;
        queue.waiting.put(id.to_be_bytes(), job)?;
        ends.back += 1;
        Ok(id)
    }

    fn take(&self, name: &str) -> isobath::Result<Option<(u64, String)>> {
        let queue = &self.queues[name];
        let mut ends = queue.ends.lock().expect("no take panics");
        let Some(item) = queue.waiting.range(ends.front.to_be_bytes()..).next() else {
            return Ok(None);
        };
        let (key, job) = item?;
        let id = number(&key);
        let mut batch = Batch::new();
        batch.of(&queue.waiting).delete(&key);
        batch.of(&self.running).put(running_key(name, id), &job);
        self.db.write(batch)?;
        ends.front = id + 1;
        Ok(Some((id, String::from_utf8_lossy(&job).into_owned())))
    }

    fn done(&self, queue: &str, id: u64) -> isobath::Result<()> {
        self.running.delete(running_key(queue, id)).map(drop)
    }

    fn waiting(&self, queue: &str) -> isobath::Result<u64> {
        self.queues[queue].waiting.count(..)
    }
}

/// Moves the jobs that were running when the program ended back to their queue, with their old ids.
fn put_back(db: &Db, running: &Family, name: &str, waiting: &Family) -> isobath::Result<()> {
    let mut batch = Batch::new();
    for item in running.prefix(running_prefix(name)) {
        let (key, job) = item?;
        batch.of(waiting).put(&key[key.len() - 8..], &job);
        batch.of(running).delete(&key);
    }
    db.write(batch).map(drop)
}

/// A zero ends the queue's name, so that no queue's keys begin with the name of another.
fn running_prefix(queue: &str) -> Vec<u8> {
    [queue.as_bytes(), &[0]].concat()
}

fn running_key(queue: &str, id: u64) -> Vec<u8> {
    [queue.as_bytes(), &[0], &id.to_be_bytes()].concat()
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("ids have eight bytes"))
}

pub(crate) fn run(dir: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let names = ["mail", "pictures"];
    let queues = Queues::open(dir, &names)?;
    for n in 0..50 {
        queues.push("mail", &format!("to customer {n}"))?;
        queues.push("pictures", &format!("resize {n}.png"))?;
    }

    // Two workers for each queue. Every job is taken once.
    let finished = Mutex::new(BTreeMap::<&str, Vec<u64>>::new());
    std::thread::scope(|scope| {
        for (name, _) in names.iter().flat_map(|name| [(*name, 1), (*name, 2)]) {
            let (queues, finished) = (&queues, &finished);
            scope.spawn(move || {
                while let Some((id, _job)) = queues.take(name).expect("the database works") {
                    queues.done(name, id).expect("the database works");
                    finished.lock().expect("no worker panics").entry(name).or_default().push(id);
                }
            });
        }
    });
    for (name, mut ids) in finished.into_inner()? {
        ids.sort();
        ids.dedup();
        writeln!(out, "{name}: {} jobs done, {} wait", ids.len(), queues.waiting(name)?)?;
    }

    // This worker takes a job and never reports that it is done.
    queues.push("mail", "to the last customer")?;
    let (id, _) = queues.take("mail")?.expect("one waits");
    writeln!(out, "mail: {id} begun, {} wait", queues.waiting("mail")?)?;
    drop(queues);

    let queues = Queues::open(dir, &names)?;
    let (again, job) = queues.take("mail")?.expect("it came back");
    writeln!(out, "mail: {again} again, {job:?}")?;
    Ok(queues.done("mail", again)?)
}
