//! Histories of real threads, judged by a checker that knows nothing of the engine: the crate
//! `adya` looks for the cycles that a level forbids in what transactions wrote and read, and in
//! when.
//!
//! Two forms, as the checker Elle has them: lists that transactions append to, whose reads show the
//! order of all appends before, and registers, for which the order of the commits is told. With
//! `ISOBATH_HISTORIES=DIR` each history is left there as lines of JSON and as EDN, for other
//! checkers to read.

use adya::{Opts, Valid, Workload};
use isobath::env::Env;
use isobath::vfs::MemoryFs;
use isobath::{Db, Isolation, Options, ReadPoint, Transaction, TransactionOptions};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

const THREADS: u64 = 6;
const TRANSACTIONS: u64 = 800;
/// Keys in use at a time; after so many writes of a key the next takes its place.
const KEYS: u64 = 5;
const WRITES_A_KEY: u64 = 60;

/// An operation of a transaction.
#[derive(Clone, Debug)]
enum Step {
    Append(u64, u64),
    Write(u64, u64),
    ReadList(u64, Option<Vec<u64>>),
    Read(u64, Option<u64>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Lists,
    Registers,
}

#[derive(Clone, Copy)]
enum Event {
    Invoke,
    Ok,
    Fail,
}

/// What happened to a transaction, its process, its steps, and when.
type Told = (Event, u64, Vec<Step>, u128);

/// What happened, in the order in which it was told.
struct Recorder {
    began: Instant,
    events: Mutex<Vec<Told>>,
    /// Where the commits that were told of are in the log, by the index of their event.
    order: Mutex<HashMap<u64, i64>>,
}

impl Recorder {
    fn new() -> Recorder {
        Recorder { began: Instant::now(), events: Mutex::default(), order: Mutex::default() }
    }

    fn tell(&self, event: Event, process: u64, steps: &[Step], at: Option<i64>) {
        let mut events = self.events.lock().unwrap();
        if let Some(at) = at {
            self.order.lock().unwrap().insert(events.len() as u64, at);
        }
        events.push((event, process, steps.to_vec(), self.began.elapsed().as_nanos()));
    }

    /// One operation a line, the words of it as a format has them.
    fn lines(
        &self,
        line: impl Fn(usize, &str, u64, &str, u128) -> String,
        nil: &str,
        key: &str,
    ) -> String {
        let events = self.events.lock().unwrap();
        let mut text = String::new();
        for (index, (event, process, steps, time)) in events.iter().enumerate() {
            let event = match event {
                Event::Invoke => "invoke",
                Event::Ok => "ok",
                Event::Fail => "fail",
            };
            let steps: Vec<String> = steps.iter().map(|step| show(step, nil, key)).collect();
            text += &line(index, event, *process, &steps.join(","), *time);
            text.push('\n');
        }
        text
    }

    fn json(&self) -> String {
        let line = |index, event: &str, process, steps: &str, time| {
            format!(
                r#"{{"index":{index},"type":"{event}","f":"txn","process":{process},"time":{time},"value":[{steps}]}}"#
            )
        };
        self.lines(line, "null", "\"")
    }

    fn edn(&self) -> String {
        let line = |index, event: &str, process, steps: &str, time| {
            format!(
                "{{:index {index}, :type :{event}, :f :txn, :process {process}, :time {time}, :value [{steps}]}}"
            )
        };
        self.lines(line, "nil", ":")
    }
}

/// A step as JSON, or as EDN: words stand in quotes, or behind colons.
fn show(step: &Step, nil: &str, mark: &str) -> String {
    let word = |word: &str| if mark == ":" { format!(":{word}") } else { format!("\"{word}\"") };
    let mut text = String::new();
    let written = match step {
        Step::Append(key, value) => write!(text, "[{},{key},{value}]", word("append")),
        Step::Write(key, value) => write!(text, "[{},{key},{value}]", word("w")),
        Step::ReadList(key, Some(list)) => write!(text, "[{},{key},{list:?}]", word("r")),
        Step::Read(key, Some(value)) => write!(text, "[{},{key},{value}]", word("r")),
        Step::ReadList(key, None) | Step::Read(key, None) => {
            write!(text, "[{},{key},{nil}]", word("r"))
        }
    };
    written.unwrap();
    text
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(8).map(|chunk| u64::from_be_bytes(chunk.try_into().unwrap())).collect()
}

/// What is asked of a transaction: reads are not answered yet.
fn plan(form: Form, written: &AtomicU64, rng: &mut fastrand::Rng) -> Vec<Step> {
    let count = rng.usize(1..5);
    let mut steps = Vec::with_capacity(count);
    for _ in 0..count {
        let base = written.load(Ordering::Relaxed) / WRITES_A_KEY / KEYS * KEYS;
        let key = base + rng.u64(..KEYS);
        let is_read = rng.bool();
        let value = if is_read { 0 } else { written.fetch_add(1, Ordering::Relaxed) + 1 };
        steps.push(match (form, is_read) {
            (Form::Lists, true) => Step::ReadList(key, None),
            (Form::Lists, false) => Step::Append(key, value),
            (Form::Registers, true) => Step::Read(key, None),
            (Form::Registers, false) => Step::Write(key, value),
        });
    }
    steps
}

fn carry_out(tx: &Transaction, steps: &mut [Step], rng: &mut fastrand::Rng) -> isobath::Result<()> {
    for step in steps {
        match step {
            Step::Append(key, value) => {
                let mut list = tx.get(key.to_be_bytes())?.map_or(Vec::new(), |list| list.to_vec());
                list.extend(value.to_be_bytes());
                tx.put(key.to_be_bytes(), list)?;
            }
            Step::Write(key, value) => tx.put(key.to_be_bytes(), value.to_be_bytes())?,
            Step::ReadList(key, list) => {
                *list = Some(tx.get(key.to_be_bytes())?.map_or(Vec::new(), |list| numbers(&list)));
            }
            Step::Read(key, value) => {
                *value = tx.get(key.to_be_bytes())?.map(|value| numbers(&value)[0]);
            }
        }
        if rng.bool() {
            std::thread::yield_now();
        }
    }
    Ok(())
}

fn position(point: impl Into<ReadPoint>) -> i64 {
    i64::from_be_bytes(*point.into().to_bytes().first_chunk().unwrap())
}

/// Lets threads loose on a database of small memtables, so that flushes and compactions come and go
/// under them.
fn record(level: Isolation, form: Form) -> Recorder {
    let env = Env { fs: Arc::new(MemoryFs::new()), ..Env::system() };
    let db = Options::new().write_buffer(64 << 10).env(env).open("db").unwrap();
    let (recorder, written) = (Recorder::new(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for process in 0..THREADS {
            let (db, recorder, written) = (&db, &recorder, &written);
            scope.spawn(move || work(db, recorder, written, (level, form), process));
        }
    });
    recorder
}

fn work(
    db: &Db,
    recorder: &Recorder,
    written: &AtomicU64,
    (level, form): (Isolation, Form),
    process: u64,
) {
    let mut rng = fastrand::Rng::with_seed(process);
    let options = TransactionOptions::default().isolation(level);
    for _ in 0..TRANSACTIONS {
        let mut steps = plan(form, written, &mut rng);
        recorder.tell(Event::Invoke, process, &steps, None);
        let tx = db.with(options).begin();
        let done = carry_out(&tx, &mut steps, &mut rng);
        match done.and_then(|()| tx.commit()) {
            Ok(commit) => recorder.tell(Event::Ok, process, &steps, Some(position(commit))),
            Err(error) if error.is_conflict() => {
                recorder.tell(Event::Fail, process, &steps, None);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// What the checker says of a history as one of a model.
fn judge(recorder: &Recorder, form: Form, model: &str) -> adya::Report {
    let history = adya::History::from_json(&recorder.json()).unwrap();
    let (workload, order) = match form {
        Form::Lists => (Workload::ListAppend, None),
        Form::Registers => (Workload::RwRegister, Some(recorder.order.lock().unwrap().clone())),
    };
    let opts = Opts { models: vec![model.to_owned()], transaction_order: order, ..Opts::default() };
    adya::check(&history, workload, &opts)
}

/// Records a history at a level and checks that it fits a model. A large share of the transactions
/// must commit; otherwise the history would show little.
fn is_of_model(level: Isolation, form: Form, model: &str) -> Recorder {
    let recorder = record(level, form);
    let name = match form {
        Form::Lists => format!("lists-{level:?}"),
        Form::Registers => format!("registers-{level:?}"),
    };
    if let Some(dir) = std::env::var_os("ISOBATH_HISTORIES") {
        let dir = std::path::Path::new(&dir);
        std::fs::write(dir.join(format!("{name}.jsonl")), recorder.json()).unwrap();
        std::fs::write(dir.join(format!("{name}.edn")), recorder.edn()).unwrap();
    }
    let report = judge(&recorder, form, model);
    assert_eq!(report.valid, Valid::True, "{name}: {:?}", report.anomalies);
    let committed = recorder.order.lock().unwrap().len() as u64;
    println!("{name}: {committed} of {} committed", THREADS * TRANSACTIONS);
    assert!(committed > THREADS * TRANSACTIONS / 20, "{name}: {committed} committed");
    let edn = adya::History::from_edn(&recorder.edn()).unwrap();
    assert_eq!(edn.ops.len(), recorder.events.lock().unwrap().len());
    recorder
}

#[test]
fn serializable_histories_are_strictly_serializable() {
    is_of_model(Isolation::Serializable, Form::Lists, "strict-serializable");
    is_of_model(Isolation::Serializable, Form::Registers, "strict-serializable");
}

#[test]
fn repeatable_read_histories_have_no_cycle_of_items() {
    is_of_model(Isolation::RepeatableRead, Form::Lists, "repeatable-read");
    is_of_model(Isolation::RepeatableRead, Form::Registers, "repeatable-read");
}

#[test]
fn snapshot_histories_skew_writes_and_nothing_else() {
    is_of_model(Isolation::Snapshot, Form::Lists, "strong-snapshot-isolation");
    is_of_model(Isolation::Snapshot, Form::Registers, "strong-snapshot-isolation");
    let shows_skew = || {
        let recorder = record(Isolation::Snapshot, Form::Lists);
        judge(&recorder, Form::Lists, "serializable").valid == Valid::False
    };
    assert!((0..20).any(|_| shows_skew()), "the checker or the threads are blind");
}

#[test]
fn read_committed_histories_show_finished_commits_only() {
    let shows_two_moments = || {
        let level = Isolation::ReadCommitted;
        let recorder = is_of_model(level, Form::Registers, "strong-read-committed");
        judge(&recorder, Form::Registers, "snapshot-isolation").valid == Valid::False
    };
    assert!((0..20).any(|_| shows_two_moments()), "these reads are permitted, and must show");
}
