//! SIGKILL at random moments, in both modes of the log: nothing acknowledged is lost, and batches
//! are whole.
//!
//! The test runs itself again as a child. The child writes from several threads, and prints what
//! was acknowledged. The parent kills the child, opens the database, and compares. A writer's batch
//! `n` sets a counter in one family, the same counter in another family, and one of its many data
//! keys, some of them by a stream. So the counter tells exactly what all of its keys must hold.
//! `ISOBATH_TEST_LONG=1` kills many more times.
#![cfg(unix)]

use isobath::{Batch, Db, IoMode, Options};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const WRITERS: u64 = 3;
const DATA_KEYS: u64 = 400;
/// Batches that a child acknowledges before it is killed, if it is to write.
const WRITTEN_LEAST: u64 = 10;

fn options(positional: bool) -> Options {
    let mode = if positional { IoMode::Positional } else { IoMode::Mapped };
    Options::new().write_buffer(128 << 10).block_cache(1 << 20).io(mode)
}

fn number(value: Option<isobath::Value>) -> u64 {
    value.map_or(0, |value| u64::from_be_bytes(value[..8].try_into().unwrap()))
}

fn counter_key(writer: u64) -> Vec<u8> {
    format!("counter {writer}").into_bytes()
}

fn data_key(writer: u64, n: u64) -> Vec<u8> {
    format!("data {writer} {:04}", n * 7919 % DATA_KEYS).into_bytes()
}

/// True if the batch puts its data key by a stream, which has a file of its own.
fn is_streamed(n: u64) -> bool {
    n % 16 == 3
}

fn data(n: u64) -> Vec<u8> {
    let mut data = n.to_be_bytes().to_vec();
    let len = if is_streamed(n) { 300_000 } else { 60 };
    data.resize(len + (n * 31 % 200) as usize, n as u8);
    data
}

/// The child: writes until it is killed.
#[test]
#[ignore = "run by the other test, in a process of its own"]
fn child_writes_until_killed() {
    let Some(dir) = std::env::var_os("ISOBATH_KILL_DIR") else { return };
    let db = options(std::env::var_os("ISOBATH_KILL_POSITIONAL").is_some()).open(dir).unwrap();
    let other = db.family("other").unwrap();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, other) = (&db, &other);
            scope.spawn(move || {
                let begin = number(db.get(counter_key(writer)).unwrap()) + 1;
                for n in begin.. {
                    let mut batch = Batch::new();
                    batch.put(counter_key(writer), n.to_be_bytes());
                    batch.of(other).put(counter_key(writer), n.to_be_bytes());
                    if is_streamed(n) {
                        let mut stream = db.value_writer(other).unwrap();
                        stream.write_all(&data(n)).unwrap();
                        batch.put_streamed(data_key(writer, n), stream.finish().unwrap());
                    } else {
                        batch.put(data_key(writer, n), data(n));
                    }
                    db.write(batch).unwrap();
                    // Writes the line with one call, so that a kill does not cut it.
                    let line = format!("acknowledged {writer} {n}\n");
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

fn spawn(dir: &Path, positional: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_writes_until_killed", "--ignored", "--nocapture"]);
    command.env("ISOBATH_KILL_DIR", dir).stdout(Stdio::piped());
    if positional {
        command.env("ISOBATH_KILL_POSITIONAL", "1");
    }
    command.spawn().unwrap()
}

/// Lets a child live for a while, kills it, and returns its last acknowledged batches. If it is to
/// write, it does so before the time begins to run, however slow the machine is.
fn write_and_kill(
    dir: &Path,
    positional: bool,
    lasts: Duration,
    writes: bool,
) -> [u64; WRITERS as usize] {
    let mut child = spawn(dir, positional);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (wrote, has_written) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut acknowledged = [0; WRITERS as usize];
        let mut count = 0;
        for line in lines.map_while(Result::ok) {
            let Some(rest) = line.strip_prefix("acknowledged ") else { continue };
            if let Some((writer, n)) = rest.split_once(' ')
                && let (Ok(writer), Ok(n)) = (writer.parse::<usize>(), n.parse())
            {
                acknowledged[writer] = n;
                count += 1;
                if count == WRITTEN_LEAST {
                    let _ = wrote.send(());
                }
            }
        }
        acknowledged
    });
    if writes {
        has_written.recv_timeout(Duration::from_secs(120)).expect("the child writes");
    }
    std::thread::sleep(lasts);
    assert!(child.try_wait().unwrap().is_none(), "the child ended by itself");
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

fn check(db: &Db, acknowledged: &[u64], before: &mut [u64]) {
    let Some(other) = db.family_if_exists("other").unwrap() else {
        assert_eq!(acknowledged, [0; WRITERS as usize], "the family is gone");
        return;
    };
    for writer in 0..WRITERS {
        let counter = number(db.get(counter_key(writer)).unwrap());
        let acknowledged = acknowledged[writer as usize].max(before[writer as usize]);
        assert!(
            counter >= acknowledged,
            "writer {writer}: {acknowledged} was acknowledged, {counter} is left"
        );
        let in_other = number(other.get(counter_key(writer)).unwrap());
        assert_eq!(counter, in_other, "writer {writer}: half a batch");
        for n in counter.saturating_sub(DATA_KEYS - 1).max(1)..=counter {
            let found = db.get(data_key(writer, n)).unwrap();
            assert_eq!(
                found.as_deref(),
                Some(&data(n)[..]),
                "writer {writer} of {counter}: data of {n}"
            );
        }
        before[writer as usize] = counter;
    }
    let keys = db.prefix("data ").keys().map(Result::unwrap).count() as u64;
    assert_eq!(keys, before.iter().map(|counter| DATA_KEYS.min(*counter)).sum::<u64>());
}

fn kill_again_and_again(positional: bool) {
    let rounds = if std::env::var_os("ISOBATH_TEST_LONG").is_some() { 500 } else { 10 };
    let dir = tempfile::tempdir().unwrap();
    let mut before = [0; WRITERS as usize];
    for round in 0..rounds {
        let lasts = Duration::from_millis(40 + round * 7919 % 271);
        // Every second one may be killed while it opens the database.
        let acknowledged = write_and_kill(dir.path(), positional, lasts, round % 2 == 0);
        let db = options(positional).open(dir.path()).unwrap();
        check(&db, &acknowledged, &mut before);
        // The next child finds what recovery made of the database, closed cleanly or not.
        if round % 2 == 0 {
            db.close().unwrap();
        }
    }
    println!("{rounds} kills, batches at the end: {before:?}");
    assert!(before.iter().sum::<u64>() > rounds, "hardly anything was written: {before:?}");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    kill_again_and_again(false);
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed_with_a_positional_log() {
    kill_again_and_again(true);
}
