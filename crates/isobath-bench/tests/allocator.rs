//! One allocator serves Rust, C and C++ code of the program: the C library's own stays unused.
//!
//! glibc is told to keep everything in one arena on the heap that grows by `brk`. If any engine's
//! code still reached it, that heap would grow with the engine's memtable.

mod support;

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{PROGRAM, lua, str_of, succeed};

/// Small puts, so that memtables of 64 MiB fill with small allocations.
const WORKLOAD: &str = "return { run = function() kv.put(gen.uniform(1000000000)) end }";

fn heap_bytes(pid: u32) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let lines = maps.lines().filter(|line| line.ends_with("[heap]"));
    lines
        .filter_map(|line| {
            let (from, to) = line.split(' ').next()?.split_once('-')?;
            Some(u64::from_str_radix(to, 16).ok()? - u64::from_str_radix(from, 16).ok()?)
        })
        .sum()
}

fn anonymous_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[test]
fn no_engine_of_this_build_uses_the_c_library_s_own_heap() {
    if cfg!(not(feature = "jemalloc")) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = lua(dir.path(), WORKLOAD);
    let built = succeed(&["engines"]);
    let engines = built.lines().filter_map(|line| line.split_whitespace().next());
    for engine in engines.filter(|name| ["isobath", "rocksdb", "tidesdb"].contains(name)) {
        let db = dir.path().join(engine);
        let mut child = Command::new(PROGRAM)
            .args(["run", str_of(&path), "-e", engine, "-s", "600", "--db", str_of(&db)])
            .env("MALLOC_ARENA_MAX", "1")
            .env("MALLOC_MMAP_THRESHOLD_", "1073741824")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(300);
        // What it holds goes with each flush.
        let mut anonymous = 0;
        while anonymous < 24 << 20 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
            anonymous = anonymous_bytes(child.id());
        }
        let heap = heap_bytes(child.id());
        assert!(child.try_wait().unwrap().is_none(), "{engine} ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(anonymous >= 24 << 20, "{engine} never held anything: {anonymous}");
        assert!(heap < 4 << 20, "{engine}: {heap} bytes in the C library's heap");
    }
}
