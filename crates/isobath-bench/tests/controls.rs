//! Runs that must fail do fail, and an interrupted run leaves the results that it has.

mod support;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{PROGRAM, lua, refuse, str_of, succeed, workloads};

#[test]
fn a_lying_engine_fails_a_suite_and_is_named_with_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), dir.path().join("out"));
    let head = ["suite", "smoke", "-e", "isobath,memory", "--scale", "0.0002", "--db", str_of(&db)];
    let more = ["--rows", "write_random_b1,range_random_100", "--knob", "memory.lie=skipped"];
    let shown = refuse(&[&head[..], &more[..], &["--out", str_of(&out)]].concat());
    let fault = shown.lines().find(|line| line.starts_with("FAILED")).unwrap();
    assert!(fault.contains("memory") && fault.contains("wrong answer: ") && fault.contains("key "));
    assert!(!shown.contains("on isobath: "), "the honest one is not blamed: {shown}");
    let report = fs::read_to_string(out.join("report.json")).unwrap();
    assert!(report.contains("wrong answer"), "the report keeps the failure");
}

#[test]
fn a_lying_engine_fails_every_workload_that_reads_what_it_lies_about() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    for (workload, lie) in [
        ("mixed", "changed"),
        ("mixed", "twice"),
        ("cart", "changed"),
        ("cart", "twice"),
        ("scan", "changed"),
        ("scan", "short"),
        ("scan", "skipped"),
        ("scan", "twice"),
        ("batch", "changed"),
        ("valsize", "changed"),
        ("ycsb-a", "changed"),
        ("ycsb-e", "twice"),
    ] {
        let path = workloads().join(format!("{workload}.lua"));
        let knob = format!("memory.lie={lie}");
        let shown = refuse(&[
            "run",
            str_of(&path),
            "-e",
            "memory",
            "--items",
            "1200",
            "--users",
            "240",
            "--units",
            "3000",
            "--knob",
            &knob,
            "--db",
            str_of(&db),
        ]);
        assert!(shown.contains("FAILED") || shown.contains("error"), "{workload} {lie}: {shown}");
        let known = shown.contains("wrong answer: key ") || shown.contains("left rows out");
        assert!(known && shown.contains("memory"), "{workload} {lie}: {shown}");
    }
}

#[test]
fn a_lost_write_in_a_transaction_fails_what_a_workload_checks_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    for (workload, lie, fault) in
        [("smallbank", "lost", "the bank holds"), ("tpcc-lite", "lost", "there is no|condition")]
    {
        let path = workloads().join(format!("{workload}.lua"));
        let knob = format!("memory.lie={lie}");
        let head = ["run", str_of(&path), "-e", "memory", "--items", "50", "--users", "2"];
        let more = ["--units", "3000", "-t", "2", "--knob", &knob, "--db", str_of(&db)];
        let shown = refuse(&[&head[..], &more[..]].concat());
        assert!(fault.split('|').any(|fault| shown.contains(fault)), "{workload} {lie}: {shown}");
    }
}

#[test]
fn an_error_in_a_transaction_ends_the_run_and_one_taken_back_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let arguments = |body: &str| {
        let check = "check = function(ctx) assert(not kv.get('a') and not ctx.tally.n) end";
        let load = "load = function() end";
        let source = format!("return {{ {load}, run = function() {body} end, {check} }}");
        let path = lua(dir.path(), &source);
        ["run", str_of(&path), "-e", "isobath,memory", "--units", "5", "--db", str_of(&db)]
            .map(str::to_owned)
    };
    let back =
        "local done = kv.transact(function() kv.put('a', 'b') kv.tally('n', 1) return false end)
        assert(not done)";
    succeed(&arguments(back).each_ref().map(String::as_str));
    for (body, fault) in [
        ("kv.transact(function() kv.put('a', 'b') error('enough') end)", "enough"),
        ("kv.transact(function() kv.put('a', 'b') end)", "check failed"),
        ("kv.transact(function() kv.transact(function() end) end)", "within kv.transact"),
    ] {
        let shown = refuse(&arguments(body).each_ref().map(String::as_str));
        assert!(shown.contains(fault), "{shown}");
    }
}

#[test]
fn values_of_a_workload_s_own_are_not_taken_for_wrong_ones() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let source = "return {
      load = function() for i = 1, 50 do kv.put(i) end end,
      run = function()
        kv.put(gen.uniform(50) + 1, 'a value of my own')
        kv.touch(gen.uniform(50) + 1)
        kv.range(1, nil, 10)
        kv.mput({ 3, 4 }, { 'mine, and long enough', 20 })
        kv.mtouch({ 3, 4 })
      end }";
    let path = lua(dir.path(), source);
    let flags = ["--units", "200", "--load-threads", "1", "--db", str_of(&db)];
    support::succeed(&[&["run", str_of(&path), "-e", "memory,isobath"][..], &flags[..]].concat());
}

fn start(arguments: &[&str]) -> Child {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Interrupts the child once `ready`, and gives its exit code and how long it took to end.
fn interrupt(child: Child, ready: impl Fn() -> bool) -> (Option<i32>, Duration) {
    interrupt_after(child, ready, Duration::from_millis(300))
}

fn interrupt_after(
    mut child: Child,
    ready: impl Fn() -> bool,
    pause: Duration,
) -> (Option<i32>, Duration) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !ready() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(ready(), "it never got so far");
    std::thread::sleep(pause);
    assert!(child.try_wait().unwrap().is_none(), "it has ended already");
    let since = Instant::now();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    while child.try_wait().unwrap().is_none() {
        if since.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    (child.wait().unwrap().code(), since.elapsed())
}

fn interrupted_report(out: &Path) -> String {
    let report = fs::read_to_string(out.join("report.json")).unwrap();
    assert!(report.contains("\"interrupted\":true"), "{report}");
    for name in ["report.html", "report.csv", "report.tsv", "timeline.tsv"] {
        assert!(out.join(name).exists(), "{name}");
    }
    report
}

#[test]
fn an_interrupt_ends_a_run_cleanly_and_keeps_what_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), dir.path().join("out"));
    let mixed = workloads().join("mixed.lua");
    let head = ["run", str_of(&mixed), "-e", "isobath", "--items", "100", "-s", "600"];
    let tail = ["--db", str_of(&db), "--out", str_of(&out)];
    for threads in ["1", "1,2"] {
        let child = start(&[&head[..], &["-t", threads], &tail[..]].concat());
        let (code, took) = interrupt(child, || db.join("isobath/CURRENT").exists());
        assert_eq!(code, Some(130));
        assert!(took < Duration::from_secs(120), "{took:?}");
        interrupted_report(&out);
        fs::remove_dir_all(&out).unwrap();
        fs::remove_dir_all(&db).unwrap();
    }
}

#[test]
fn an_interrupt_while_loading_keeps_what_was_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), dir.path().join("out"));
    let source = "return { load = function() while true do kv.put(gen.uniform(1000)) end end,
                             run = function() end }";
    let path = lua(dir.path(), source);
    for threads in ["1", "1,2"] {
        // On a busy machine nothing may be loaded yet after a short pause.
        let has_loaded = [300, 1000, 5000, 20_000].into_iter().any(|pause_ms| {
            let head = ["run", str_of(&path), "-e", "isobath", "--items", "1000", "-t", threads];
            let child = start(&[&head[..], &["--db", str_of(&db), "--out", str_of(&out)]].concat());
            let is_open = || db.join("isobath/CURRENT").exists();
            let (code, took) = interrupt_after(child, is_open, Duration::from_millis(pause_ms));
            assert_eq!(code, Some(130));
            assert!(took < Duration::from_secs(120), "{took:?}");
            let report = interrupted_report(&out);
            let loaded = report.split("\"load\":{\"operations\":").nth(1).unwrap();
            fs::remove_dir_all(&out).unwrap();
            fs::remove_dir_all(&db).unwrap();
            !loaded.starts_with("0,")
        });
        assert!(has_loaded, "{threads}");
    }
}

#[test]
fn an_interrupt_ends_a_loop_that_calls_no_verb_and_keeps_what_was_measured_before() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), dir.path().join("out"));
    let begun = dir.path().join("begun");
    let source = format!(
        "return {{ load = function() kv.put(1) end, run = function(ctx)
           if ctx.threads == 1 and ctx.users == 2 then return kv.get(1) end
           io.open('{}', 'w'):close()
           while true do end
         end }}",
        str_of(&begun)
    );
    let path = lua(dir.path(), &source);
    let place = ["--db", str_of(&db), "--out", str_of(&out)];
    for (users, threads) in [("1", "1"), ("2", "1,2")] {
        let head = ["run", str_of(&path), "-s", "0.2", "--users", users, "-t", threads];
        let (code, took) = interrupt(start(&[&head[..], &place[..]].concat()), || begun.exists());
        assert_eq!(code, Some(130), "on {threads} threads");
        assert!(took < Duration::from_secs(120), "{took:?}");
        fs::remove_file(&begun).unwrap();
        fs::remove_dir_all(&db).unwrap();
    }
    let report = fs::read_to_string(out.join("report.json")).unwrap();
    assert!(report.contains("isobath t2 is missing"), "{report}");
    assert!(report.contains("\"threads\":1"), "the point before it is kept: {report}");
}

#[test]
fn an_interrupt_while_a_suite_runs_keeps_its_rows_and_deletes_its_databases() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), dir.path().join("out"));
    let head = ["suite", "sustained", "-e", "isobath", "--scale", "0.001", "--db", str_of(&db)];
    let more = ["--write-buffer", "64K", "--rows", "write_uniform_b1_sus", "--seconds", "600"];
    let tail = ["--out", str_of(&out)];
    let child = start(&[&head[..], &more[..], &tail[..]].concat());
    let (code, took) = interrupt(child, || db.join("isobath/row/CURRENT").exists());
    assert_eq!(code, Some(130));
    assert!(took < Duration::from_secs(120), "{took:?}");
    interrupted_report(&out);
    assert!(!db.join("isobath").exists());
}

#[test]
fn a_parent_that_is_killed_takes_its_row_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let head = ["suite", "sustained", "-e", "isobath", "--scale", "0.001", "--db", str_of(&db)];
    let more = ["--rows", "write_uniform_b1_sus", "--seconds", "600"];
    let mut child = start(&[&head[..], &more[..]].concat());
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut rows = Vec::new();
    while rows.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        rows = children_of(child.id());
    }
    assert_eq!(rows.len(), 1);
    std::thread::sleep(Duration::from_millis(500));
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = || !Path::new(&format!("/proc/{}/exe", rows[0])).exists();
    let deadline = Instant::now() + Duration::from_secs(120);
    while !gone() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(gone(), "the row lives on as an orphan");
}

fn children_of(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn hostile_configurations_are_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("hostile.toml");
    let mixed = workloads().join("mixed.lua");
    let db = dir.path().join("db");
    let place = format!("[common]\npath = '{}'\n", str_of(&db));
    let run = |text: &str| {
        fs::write(&config, format!("workload = '{}'\n{text}", str_of(&mixed))).unwrap();
        refuse(&["run", "--config", str_of(&config)])
    };
    for (text, said) in [
        ("rate = nan\n", "a rate must be"),
        ("rate = 1e300\n", "a rate must be"),
        ("seconds = -1\n", "seconds"),
        ("settle_limit_seconds = inf\n", "settle_limit_seconds"),
        ("threads = []\n", "at least one engine"),
        ("threads = [18446744073709551615]\n", "threads"),
        ("repeat = 0\n", "repeat"),
        ("engines = ['memory', 'speedydb']\n", "there is no engine `speedydb`"),
        ("[settings]\nitems = 9007199254740993\n", "items, users and batch"),
        ("[settings]\nvalue_size = 9999999999\n", "value size"),
        ("[engine.isobath]\nwarp = 9\n", "no knob `warp`"),
        ("[engine.isobath]\nblock_size = 'many'\n", "block_size"),
        ("[engine.memory]\nlie = 'lost'\n", "isn't among the engines"),
        ("wokload = 1\n", "line 2"),
        ("threads = [1\n", "line"),
    ] {
        let whole =
            if text.starts_with('[') { format!("{place}{text}") } else { format!("{text}{place}") };
        let shown = run(&whole);
        assert!(shown.contains(said) && !shown.contains("panicked"), "{text}: {shown}");
    }
    for (text, said) in [
        ("write_buffer_bytes = 0\n", "write buffer"),
        ("write_buffer_bytes = 9223372036854775807\n", "write buffer"),
        ("cache_bytes = 9223372036854775807\n", "cache"),
        ("filter_bits = 4294967295\n", "filter bits"),
        ("background_threads = 4294967295\n", "background threads"),
        ("durability = 'eternal'\n", "eternal"),
    ] {
        let shown = run(&format!("{place}{text}"));
        assert!(shown.contains(said) && !shown.contains("panicked"), "{text}: {shown}");
    }
    fs::write(&config, [0xff, 0xfe, 0, 1]).unwrap();
    assert!(refuse(&["suite", "--config", str_of(&config)]).contains("hostile.toml"));
}
