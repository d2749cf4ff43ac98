//! The program as a user runs it: every bundled workload, the files that it leaves, and its
//! messages for bad input.

mod support;

use std::fs;
use std::process::Command;
use support::{PROGRAM, lua, refuse, str_of, succeed, workloads};

const SMALL: [&str; 8] = ["--items", "300", "--users", "60", "--units", "200", "-t", "2"];

#[test]
fn every_bundled_workload_runs_on_memory_and_on_isobath() {
    let mut count = 0;
    for entry in fs::read_dir(workloads()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "lua") {
            let dir = tempfile::tempdir().unwrap();
            let db = dir.path().join("db");
            let head = ["run", str_of(&path), "-e", "memory,isobath,null", "--db", str_of(&db)];
            let shown = succeed(&[&head[..], &SMALL[..]].concat());
            assert!(
                shown.contains("ops/s") && !shown.contains("FAILED"),
                "{}: {shown}",
                path.display()
            );
            count += 1;
        }
    }
    assert_eq!(count, 14);
}

#[test]
fn a_run_prints_what_it_promises_and_leaves_its_database() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let mixed = workloads().join("mixed.lua");
    let head = ["run", str_of(&mixed), "--db", str_of(&db), "--value-size", "512"];
    let shown = succeed(&[&head[..], &SMALL[..]].concat());
    for part in [
        "p50", "p99", "p99.9", "max", "put", "get", "del", "range", "hits", "written", "on disk",
        "memory", "peak",
    ] {
        assert!(shown.contains(part), "no {part} in {shown}");
    }
    assert!(db.join("isobath/CURRENT").exists(), "the database stays on disk");
}

#[test]
fn points_that_share_a_database_insert_records_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    // As the workload does it, but with a look before each insert.
    let flags = |path: &str| {
        let head = ["run", path, "-e", "isobath", "-t", "1,2", "--repeat", "2", "--load-once"];
        let more = ["--units", "400", "--items", "50", "--value-size", "64", "--db", str_of(&db)];
        [&head[..], &more[..]].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    for name in ["ycsb-d", "ycsb-e"] {
        let source = fs::read_to_string(workloads().join(format!("{name}.lua"))).unwrap();
        let inserted = source.split("kv.put(").last().unwrap();
        let key = &inserted[..inserted.find(")\n").unwrap()];
        let put = format!("kv.put({key})");
        let looked = source.replace(&put, &format!("assert(not kv.touch({key}), 'there') {put}"));
        assert_ne!(source, looked);
        let path = lua(dir.path(), &looked);
        let flags = flags(str_of(&path));
        succeed(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn a_saved_run_is_replayed_and_reports_come_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), dir.path().join("out"));
    let batch = workloads().join("batch.lua");
    let head = [
        "run",
        str_of(&batch),
        "-e",
        "memory",
        "--db",
        str_of(&db),
        "--sweep",
        "B=1,4",
        "--out",
        str_of(&out),
    ];
    succeed(&[&head[..], &SMALL[..]].concat());
    for name in
        ["report.json", "report.html", "report.csv", "report.tsv", "timeline.tsv", "config.toml"]
    {
        assert!(fs::metadata(out.join(name)).unwrap().len() > 100, "{name}");
    }
    let saved = db.join("run.toml");
    let again = dir.path().join("again");
    let shown = succeed(&["run", "--config", str_of(&saved), "--out", str_of(&again)]);
    assert!(shown.contains("B=4"), "{shown}");
    assert_eq!(
        fs::read(out.join("config.toml")).unwrap(),
        fs::read(again.join("config.toml")).unwrap()
    );
}

#[test]
fn reports_are_compared_by_exit_code_and_rendered_again() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), dir.path().join("out"));
    succeed(&[
        "suite",
        "smoke",
        "-e",
        "null",
        "--rows",
        "write_seq",
        "--db",
        str_of(&db),
        "--out",
        str_of(&out),
    ]);
    let report = out.join("report.json");
    let shown = succeed(&["compare", str_of(&report), str_of(&report)]);
    assert!(shown.contains("1 the same, 0 worse"), "{shown}");
    let slower = fs::read_to_string(&report).unwrap().replace("\"seconds\":", "\"seconds\":9");
    let slow = dir.path().join("slow.json");
    fs::write(&slow, slower).unwrap();
    assert!(refuse(&["compare", str_of(&report), str_of(&slow)]).contains("WORSE"));
    let again = dir.path().join("again");
    succeed(&["render", str_of(&report), "--out", str_of(&again)]);
    assert!(again.join("report.html").exists());
}

#[test]
fn rows_of_a_suite_tell_how_fast_their_base_was_loaded_and_what_they_filled() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), dir.path().join("out"));
    let head = ["suite", "smoke", "--scale", "0.0002", "--rows", "read_random,mixed_uniform"];
    succeed(&[&head[..], &["--db", str_of(&db), "--out", str_of(&out)]].concat());
    let text = fs::read_to_string(out.join("report.csv")).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let place = |name: &str| names.iter().position(|at| *at == name).unwrap();
    let (mut reads, mut writes) = (0, 0);
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        assert!(fields[place("load_ops_per_sec")].parse::<f64>().unwrap() > 0.0, "{line}");
        match fields[place("buffers_filled")] {
            "NA" => reads += 1,
            filled => writes += usize::from(filled.parse::<f64>().is_ok()),
        }
    }
    assert!(reads > 0 && writes > 0, "{text}");
}

#[test]
fn the_smoke_suite_passes_on_isobath() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let shown = succeed(&[
        "suite",
        "smoke",
        "-e",
        "isobath,memory",
        "--scale",
        "0.0002",
        "--db",
        str_of(&db),
    ]);
    assert!(!shown.contains("FAILED"), "{shown}");
    assert!(!db.join("isobath").exists(), "a suite's databases are deleted");
}

#[test]
fn the_scripts_that_make_the_tables_run_from_end_to_end() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let scripts = workloads().parent().unwrap().join("docs/results");
    let run = |script: &str, part: &str, only: &str, flags: &str| {
        let mut command = Command::new("sh");
        command.arg(scripts.join(script)).args((!part.is_empty()).then_some(part));
        let settings = [
            ("ENGINES", "isobath"),
            ("BENCH", PROGRAM),
            ("REPEATS", "1"),
            ("LUA_MINUTES", "0"),
            ("SCALE", "0.0001"),
            ("SECONDS_EACH", "0.1"),
            ("ITEMS", "1000"),
            ("RECORDS", "1000"),
            ("ONLY", only),
            ("FLAGS", flags),
        ];
        command.envs(settings);
        command.env("DB", place("db")).env("OUT", place("out")).env("RESULTS", place("results"));
        let output = command.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !told.contains("failed"), "{script} {part}: {told}");
        String::from_utf8(output.stdout).unwrap()
    };
    run("run.sh", "", "suite-sync,memtable,lua-batch-process,ycsb-a", "--quick");
    let kept = fs::read_to_string(place("results/README.md")).unwrap();
    for row in ["write_random_sync_t4 t4", "read_random_memtable", "batch t8 B=64", "ycsb-a t1"] {
        assert!(kept.contains(&format!("| {row}")), "{row} in {kept}");
    }
    for name in ["suite-sync", "memtable", "lua-batch-process", "ycsb-a"] {
        assert!(place("results").join(format!("{name}.csv")).exists(), "{name}");
    }
    assert!(run("articles.sh", "engines", "", "--quick").contains("| mixed_random_b1000_t4 t4 |"));
    assert!(run("articles.sh", "keybench", "", "").contains("| scan t16 |"));
}

#[test]
fn what_the_documentation_shows_runs_as_it_stands_but_small() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let docs = workloads().parent().unwrap().join("docs/bench");
    let page = fs::read_to_string(docs.join("writing-a-workload.md")).unwrap();
    let block = |language: &str| {
        let after = page.split(&format!("```{language}\n")).nth(1).unwrap();
        after.split("```").next().unwrap().to_owned()
    };
    let shown = lua(dir.path(), &block("lua"));
    let small = ["--seconds", "0.2", "--items", "300", "--db", str_of(&db)];
    let head = ["run", str_of(&shown), "--engine", "isobath,memory", "--threads", "1,4"];
    assert!(succeed(&[&head[..], &small[..]].concat()).contains("counters"));

    let config = dir.path().join("run.toml");
    let mixed = workloads().join("mixed.lua");
    // The peer of the example is not in every build.
    let text = block("toml").replace("workloads/mixed.lua", str_of(&mixed));
    let text = text.replace("\"rocksdb\"", "\"memory\"");
    fs::write(&config, text.split("[engine.rocksdb]").next().unwrap()).unwrap();
    let head = ["run", "--config", str_of(&config), "--repeat", "1"];
    assert!(succeed(&[&head[..], &small[..]].concat()).contains("mixed"));

    let page = fs::read_to_string(docs.join("db-bench.md")).unwrap();
    let commands = page.lines().filter_map(|line| line.strip_prefix("    isobath-bench "));
    let mut ran = 0;
    for command in commands {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        for at in 1..words.len() {
            words[at] = match words[at - 1] {
                "--num" => "2000",
                "-e" => "isobath",
                _ => words[at],
            };
        }
        assert!(succeed(&[&words[..], &["--db", str_of(&db)]].concat()).contains("micros/op"));
        ran += 1;
    }
    assert!(ran > 0);
}

#[test]
fn db_bench_prints_its_lines_for_every_benchmark() {
    let names = "fillseq,fillrandom,overwrite,readrandom,readmissing,readseq,seekrandom,multireadrandom,\
                 readwhilewriting,deleterandom,deleteseq,fillsync";
    for (engine, batch) in [("memory", "1"), ("isobath", "1"), ("isobath", "7"), ("null", "7")] {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("db");
        let head = ["db_bench", "--benchmarks", names, "--num=500", "--value_size=60"];
        let more = ["--threads=2", "--seek_nexts=3", "--histogram", "-e", engine];
        let tail = ["--batch_size", batch, "--db", str_of(&db)];
        let shown = succeed(&[&head[..], &more, &tail].concat());
        for name in names.split(',') {
            let line = shown.lines().find(|line| line.starts_with(name)).unwrap();
            assert!(line.contains("micros/op") && line.contains("ops/sec"), "{line}");
            if name != "readseq" {
                assert!(line.contains(" 1000 operations;"), "{engine}: {line}");
            }
        }
        let found = |name: &str| {
            shown.lines().find(|line| line.starts_with(name)).unwrap().contains("(0 of 1000 found)")
        };
        assert!(found("readmissing") && (engine == "null" || !found("readrandom")), "{shown}");
    }
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let refused = ["db_bench", "--benchmarks", "fillfast", "--db", str_of(&db)];
    assert!(refuse(&refused).contains("there is no benchmark `fillfast`"));
    let timed = ["db_bench", "--benchmarks", "fillrandom,readrandom", "--duration=0.2"];
    let shown =
        succeed(&[&timed[..], &["--num=500", "-e", "memory", "--db", str_of(&db)]].concat());
    assert!(!shown.contains(" 500 operations;"), "by time, not by number: {shown}");
}

#[test]
fn db_bench_reads_other_keys_than_it_has_just_written() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let head = ["db_bench", "--benchmarks", "fillrandom,readrandom", "--num=20000"];
    let shown = succeed(&[&head[..], &["-e", "memory", "--db", str_of(&db)]].concat());
    let line = shown.lines().find(|line| line.starts_with("readrandom")).unwrap();
    let found = line.split('(').nth(1).unwrap().split(' ').next().unwrap();
    let share = found.parse::<f64>().unwrap() / 20_000.0;
    // Of n keys drawn n times with repetition, 1 - 1/e are there.
    assert!((0.61..0.65).contains(&share), "{line}");
}

#[test]
fn rows_under_memory_pressure_run_in_a_group_of_their_own_or_are_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let (db, out) = (dir.path().join("db"), dir.path().join("out"));
    let head = ["suite", "memory-pressure", "--quick", "-e", "isobath", "--scale", "0.0002"];
    let rows = ["--rows", "read_random,mixed_uniform", "--knob", "isobath.io=positional"];
    let tail = ["--db", str_of(&db), "--out", str_of(&out)];
    let all = [&head[..], &rows, &tail].concat();
    let output = std::process::Command::new(support::PROGRAM).args(&all).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        assert!(shown.contains("read_random_third_memory"), "{shown}");
    } else {
        assert!(shown.contains("memory group"), "it takes a right that is absent here: {shown}");
    }
}

#[test]
fn an_open_loop_run_and_a_ramp_report_rates() {
    let dir = tempfile::tempdir().unwrap();
    let path = lua(dir.path(), "return { run = function() kv.put(gen.uniform(1000)) end }");
    let db = dir.path().join("db");
    let head = ["run", str_of(&path), "-e", "memory", "--db", str_of(&db), "-s", "0.3"];
    let shown = succeed(&[&head[..], &["--rate", "1000"]].concat());
    assert!(shown.contains("unit"), "{shown}");
    let shown = succeed(&[&head[..], &["--ramp-p99-ms", "50"]].concat());
    assert!(shown.contains("units/s keep p99 under 50 ms"), "{shown}");
}

#[test]
fn errors_of_lua_name_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let run = |source: &str| {
        let path = lua(dir.path(), source);
        refuse(&["run", str_of(&path), "-e", "memory", "--db", str_of(&db), "--units", "10"])
    };
    assert!(
        run("return {\n run = function(ctx)\n  ctx.nothing.at = 1\n end }").contains("w.lua:3")
    );
    assert!(run("return {\n run = = }").contains("w.lua:2"));
    assert!(
        run("return { run = function()\n kv.put({}, 'x') end }")
            .contains("a key is a string or an integer")
    );
}

#[test]
fn a_scan_calls_back_row_by_row_and_the_callback_may_use_kv() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let source = "return {
      load = function() for i = 1, 50 do kv.put('k' .. i, ('v'):rep(20000)) end end,
      run = function()
        local rows, last = 0, ''
        kv.scan('k', 'l', function(key, value)
          assert(key > last and #value == 20000 and kv.touch(key))
          rows, last = rows + 1, key
        end)
        assert(rows == 50, rows)
        rows = 0
        kv.scan('k', nil, function() rows = rows + 1 return rows == 7 end)
        assert(rows == 7, rows)
        assert(#kv.range('k1', 'k2') == 11)
        assert(kv.get('k1') == ('v'):rep(20000) and kv.get('none') == nil)
        kv.mput({'a', 'b'}, {'1', '2'})
        local got = kv.mget({'a', 'none', 'b'})
        assert(got[1] == '1' and got[2] == false and got[3] == '2')
        kv.mdel({'a', 'b'})
        assert(kv.mtouch({'a', 'b'}) == 0 and kv.seek('a') == 'k1')
        assert(select('#', kv.walk('k', 'l', 3)) == 2 and (kv.walk('k', 'l', 3)) == 3)
      end }";
    let path = lua(dir.path(), source);
    for engine in ["memory", "isobath"] {
        let size = ["--value-size", "32K", "--items", "100"];
        let head = [
            "run",
            str_of(&path),
            "-e",
            engine,
            "--load-threads",
            "1",
            "--db",
            str_of(&db),
            "--units",
            "3",
        ];
        succeed(&[&head[..], &size[..]].concat());
    }
}

#[test]
fn bad_input_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    let mixed = workloads().join("mixed.lua");
    let run =
        |more: &[&str]| refuse(&[&["run", str_of(&mixed), "--db", str_of(&db)], more].concat());
    assert!(run(&["-e", "speedydb"]).contains("there is no engine `speedydb`"));
    assert!(run(&["--value-size", "3"]).contains("value size 3 is impossible"));
    assert!(run(&["--key-size", "2"]).contains("key size 2 is impossible"));
    assert!(run(&["-t", "0"]).contains("threads go from 1"));
    assert!(run(&["--items", "999999999999"]).contains("MiB free"));
    assert!(run(&["--knob", "isobath.warp=9"]).contains("no knob `warp`"));
    assert!(run(&["--knob", "rocksdb.x=9"]).contains("isn't among the engines"));
    if !cfg!(feature = "rocksdb") {
        assert!(run(&["-e", "rocksdb"]).contains("--features rocksdb"));
    }
    assert!(refuse(&["run", "absent.lua", "--db", str_of(&db)]).contains("absent.lua"));
    let config = dir.path().join("bad.toml");
    fs::write(&config, "workload = 'x'\nsecond = 1\n").unwrap();
    assert!(refuse(&["run", "--config", str_of(&config)]).contains("second"));
    assert!(refuse(&["suite", "speedy", "--db", str_of(&db)]).contains("larger-than-memory"));
}

#[test]
fn a_directory_of_someone_else_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.txt"), "years").unwrap();
    let mixed = workloads().join("mixed.lua");
    let shown = refuse(&["run", str_of(&mixed), "--db", str_of(dir.path())]);
    assert!(shown.contains("didn't make"), "{shown}");
}

#[test]
fn a_ram_file_system_is_warned_of() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    let db = dir.path().join("db");
    let shown =
        succeed(&["suite", "smoke", "-e", "null", "--rows", "write_seq", "--db", str_of(&db)]);
    assert!(shown.contains("RAM file system"), "{shown}");
}
