//! What the hot paths must not do. A put under process durability makes no system call if the log
//! is mapped. A get from memory or from a cached block makes neither a system call nor an
//! allocation. Page faults and growth are counted too. And a value that is written and read piece
//! by piece takes the memory of a few pieces.
//!
//! `strace` counts the calls, if it is installed and may attach. It traces a child that marks where
//! to count.
#![cfg(target_os = "linux")]

use isobath::{Db, IoMode, Options};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Read;
use std::process::{Command, Stdio};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that the thread has allocated and not freed, and the most since that was set.
    static HELD: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

fn hold(bytes: i64) {
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

struct Counting;

// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        hold(layout.size() as i64);
        // SAFETY: by the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        hold(-(layout.size() as i64));
        // SAFETY: by the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const WARM_PUTS: u64 = 300_000;
const PUTS: u64 = 100_000;
const GETS: u64 = 20_000;

fn key(n: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

fn minor_faults() -> u64 {
    // SAFETY: all zeros is a valid `rusage`, and the call fills it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &mut usage), 0);
        usage.ru_minflt as u64
    }
}

/// A call that does nothing and is easy to find in a trace.
fn mark(which: u64) {
    let name = format!("/isobath-mark-{which}");
    assert!(std::fs::metadata(name).is_err());
}

fn filled(dir: &std::path::Path) -> Db {
    let options = Options::new().write_buffer(16 << 20).block_cache(64 << 20);
    // Mapped, whatever the file system of the test is.
    let db = options.io(IoMode::Mapped).open(dir).unwrap();
    for n in 0..WARM_PUTS {
        db.put(key(n), [7; 100]).unwrap();
    }
    db
}

#[test]
fn a_get_of_what_is_in_memory_allocates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = filled(dir.path());
    db.flush().unwrap();
    db.wait_for_compactions(None).unwrap();
    db.put("in the memtable", [7; 100]).unwrap();
    let read_all = || {
        for n in 0..GETS {
            assert_eq!(db.get(key(n)).unwrap().unwrap().len(), 100);
            assert!(db.get("absent").unwrap().is_none());
            assert_eq!(db.get("in the memtable").unwrap().unwrap().len(), 100);
        }
    };
    read_all();
    let (allocations, faults) = (ALLOCATIONS.get(), minor_faults());
    read_all();
    let (allocations, faults) = (ALLOCATIONS.get() - allocations, minor_faults() - faults);
    println!("{} gets: {allocations} allocations, {faults} page faults", 3 * GETS);
    assert_eq!(allocations, 0);
    assert!(faults <= 3 * GETS / 1000, "{faults} page faults");
}

/// The most memory that this thread takes on top of what it has.
fn most_taken(what: impl FnOnce()) -> i64 {
    let held = HELD.get();
    MOST.set(held);
    what();
    MOST.get() - held
}

#[test]
fn a_stream_takes_the_memory_of_a_few_frames() {
    const LEN: u64 = 64 << 20;
    let dir = tempfile::tempdir().unwrap();
    let db = Options::new().write_buffer(16 << 20).open(dir.path()).unwrap();
    db.put("key", "value").unwrap();
    let writing = most_taken(|| {
        db.put_reader("long", std::io::repeat(7).take(LEN)).unwrap();
    });
    db.flush().unwrap();
    let reading = most_taken(|| {
        let mut reader = db.get_reader("long").unwrap().unwrap();
        let (mut piece, mut read) = ([0; 4096], 0);
        loop {
            match reader.read(&mut piece).unwrap() {
                0 => break,
                len => read += len as u64,
            }
            assert!(piece.iter().all(|byte| *byte == 7));
        }
        assert_eq!(read, LEN);
    });
    println!("{LEN} bytes: {writing} bytes of memory to write, {reading} to read");
    assert!(writing < 2 << 20 && reading < 1 << 20, "{writing} {reading}");
}

/// Not traced, because a tracer slows down the threads that fault in pages ahead of the writer.
/// One good run of some is enough, because a busy machine also keeps those threads from running.
#[test]
fn a_put_in_steady_state_faults_no_page_in() {
    let dir = tempfile::tempdir().unwrap();
    let db = filled(dir.path());
    let run = |run: u64| {
        let faults = minor_faults();
        for n in WARM_PUTS + run * PUTS..WARM_PUTS + (run + 1) * PUTS {
            db.put(key(n), [7; 100]).unwrap();
        }
        minor_faults() - faults
    };
    let is_good = |faults: &u64| *faults <= PUTS / 1000;
    let mut worse = Vec::new();
    let good = (0..20).map(run).inspect(|faults| worse.push(*faults)).find(is_good);
    let metrics = db.metrics();
    println!(
        "{PUTS} puts: {worse:?} page faults; {} of {} chunks were cold, {} bytes of the log not faulted in",
        metrics.arena_chunks_cold, metrics.arena_chunks, metrics.log_bytes_not_prefaulted
    );
    assert!(good.is_some(), "{worse:?} page faults");
}

/// The child of the test below: puts, then gets, each between two marks.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_to_be_traced() {
    let Some(dir) = std::env::var_os("ISOBATH_TRACE_DIR") else { return };
    let db = filled(std::path::Path::new(&dir));
    mark(1);
    for n in WARM_PUTS..WARM_PUTS + PUTS {
        db.put(key(n), [7; 100]).unwrap();
    }
    mark(2);
    db.wait_for_compactions(None).unwrap();
    (0..GETS).for_each(|n| assert!(db.get(key(n)).unwrap().is_some()));
    mark(3);
    (0..GETS).for_each(|n| assert!(db.get(key(n)).unwrap().is_some()));
    mark(4);
}

/// The calls of the marking thread between two marks.
fn calls_between(trace: &str, from: u64, to: u64) -> Vec<&str> {
    let is_mark = |line: &&str, which| line.contains(&format!("/isobath-mark-{which}\""));
    let marking = trace.lines().find(|line| is_mark(line, from)).expect("a mark in the trace");
    let thread = marking.split_whitespace().next().unwrap();
    let own = trace.lines().filter(|line| line.split_whitespace().next() == Some(thread));
    // The second half of a call during which another thread made one.
    let own = own.filter(|line| !line.contains(" resumed>"));
    own.skip_while(|line| !is_mark(line, from))
        .skip(1)
        .take_while(|line| !is_mark(line, to))
        .collect()
}

/// One good run of some is enough: on a busy machine the thread that flushes may fall so far behind
/// that puts wait for it.
#[test]
fn a_put_and_a_cached_get_make_no_system_call() {
    let mut worse = Vec::new();
    for _ in 0..5 {
        let Some(calls) = trace_puts() else {
            assert!(worse.is_empty(), "there is a trace at one time and none at another");
            return;
        };
        if calls.len() as u64 <= PUTS / 1000 {
            return;
        }
        worse.push(calls[..20].join("\n"));
    }
    panic!("{}", worse.join("\n\n"));
}

/// The system calls of some puts, after a check of gets. `None` if there is no trace.
fn trace_puts() -> Option<Vec<String>> {
    let dir = tempfile::tempdir().unwrap();
    let (db, trace) = (dir.path().join("db"), dir.path().join("trace"));
    let child = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(&trace)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child_to_be_traced", "--ignored", "--nocapture"])
        .env("ISOBATH_TRACE_DIR", &db)
        .stderr(Stdio::null())
        .output();
    if !child.is_ok_and(|output| output.status.success()) {
        println!("not checked: strace is missing or may not attach");
        return None;
    }
    let trace = std::fs::read_to_string(&trace).unwrap();
    let (puts, gets) = (calls_between(&trace, 1, 2), calls_between(&trace, 3, 4));
    println!("{PUTS} puts: {} system calls", puts.len());
    println!("{GETS} cached gets: {} system calls", gets.len());
    assert!(gets.is_empty(), "{}", gets[..gets.len().min(20)].join("\n"));
    Some(puts.into_iter().map(str::to_owned).collect())
}
