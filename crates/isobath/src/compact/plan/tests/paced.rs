//! Writers that go as fast as they may, on the model, with the real planner, debts and pacer. Time
//! passes by what puts and compactions cost. Each put writes a new random key of 64 bytes on disk,
//! so the tree grows, and the rate that it can sustain falls slowly.

use super::super::fixtures::{Done, ENTRY_BYTES, Model};
use super::super::{Hints, Plan, Policy, debts, plan, run_bytes_after};
use crate::blob::GarbageDebt;
use crate::engine::{Backlog, Busy, CompactionDebt, JobId, Pacer};
use crate::env::fixtures::Stage;
use crate::env::{Clock, Threads};

use std::sync::Arc;
use std::time::Duration;

const KEYS: u64 = 1 << 40;
const RUN_ENTRIES: u64 = 1 << 19;
/// The bytes of a put in the log. A put takes more there than in a table, so writers are charged
/// too much.
const LOG_BYTES: u64 = ENTRY_BYTES * 5 / 4;
const PUT_NS: u64 = 900;
/// How many puts happen at a time.
const STEP: u64 = 1000;
const SECOND: u64 = 1_000_000_000;
const WINDOW_SECONDS: u64 = 5;

struct Job {
    id: JobId,
    done: Done,
    bytes_left: f64,
    bytes_per_ns: f64,
    began_ns: u64,
}

struct World {
    stage: Arc<Stage>,
    pacer: Pacer,
    backlog: Backlog,
    policy: Policy,
    hints: Hints,
    model: Model,
    busy: Busy,
    compaction_ns_per_entry: f64,
    job: Option<Job>,
    compacted_until_ns: u64,
    in_memory: u64,
    /// The largest jump of the debt, in batches, at the beginning or the end of a job since it was
    /// last asked for.
    leap_max: f64,
    runs_max: usize,
    /// Compactions get no processor.
    is_starved: bool,
}

/// What happened in five seconds.
#[derive(Debug)]
struct Window {
    puts_per_second: f64,
    runs_max: usize,
    leap_max: f64,
}

impl World {
    fn new(compaction_ns_per_entry: f64) -> World {
        let stage = Arc::new(Stage::default());
        World {
            pacer: Pacer::new(stage.clone(), stage.clone()),
            stage,
            backlog: Backlog::default(),
            policy: Policy::default(),
            hints: Hints::default(),
            model: Model::new(),
            busy: Busy::default(),
            compaction_ns_per_entry,
            job: None,
            compacted_until_ns: 0,
            in_memory: 0,
            leap_max: 0.0,
            runs_max: 0,
            is_starved: false,
        }
    }

    fn debt(&self) -> CompactionDebt {
        let debts =
            debts(&self.model.tree, &self.policy, &self.busy, &self.hints, GarbageDebt::default());
        let (batch_debt, batch_bytes) = (debts.batch_debt, debts.batch_bytes);
        CompactionDebt { bytes: debts.paced_bytes(), batch_debt, batch_bytes }
    }

    fn set_pace(&mut self) {
        self.backlog.note(0, Some(self.debt()));
        let (lag, drain) = self.backlog.pressure();
        self.pacer.set_compactions(lag, drain);
    }

    fn note_leap(&mut self, before: CompactionDebt) {
        let leap = (self.debt().batches() - before.batches()).abs();
        self.leap_max = self.leap_max.max(leap);
    }

    fn put(&mut self) {
        self.pacer.admit(STEP * LOG_BYTES, false, || 0.0).unwrap();
        self.stage.sleep(Duration::from_nanos(STEP * PUT_NS));
        self.in_memory += STEP;
        if self.in_memory >= RUN_ENTRIES {
            self.model.flush((0, KEYS - 1), self.in_memory, 0);
            let (flushed, tree) = (self.in_memory * ENTRY_BYTES, &self.model.tree);
            self.hints.run_bytes =
                run_bytes_after(flushed, tree, &self.policy, &self.busy, &self.hints);
            self.in_memory = 0;
            self.runs_max = self.runs_max.max(self.model.tree.runs.len());
        }
        while self.compact_until(self.stage.now_ns()) {}
        self.set_pace();
    }

    /// Compacts until `now` or until a job ends; true if a job ended.
    fn compact_until(&mut self, now: u64) -> bool {
        if self.is_starved {
            return false;
        }
        let Some(mut job) = self.job.take().or_else(|| self.begin()) else {
            self.compacted_until_ns = now;
            return false;
        };
        let could_read = (now - self.compacted_until_ns) as f64 * job.bytes_per_ns;
        let bytes = could_read.min(job.bytes_left);
        job.bytes_left -= bytes;
        self.compacted_until_ns += (bytes / job.bytes_per_ns) as u64;
        self.busy.note_read(job.id, bytes as u64);
        self.backlog.note_read(bytes as u64, job.began_ns, self.compacted_until_ns);
        if job.bytes_left > 0.0 {
            self.job = Some(job);
            return false;
        }
        let before = self.debt();
        self.model.install(job.done);
        self.busy.end(job.id);
        self.note_leap(before);
        true
    }

    fn begin(&mut self) -> Option<Job> {
        let planned = plan(&self.model.tree, &self.policy, &self.busy, &self.hints);
        let bytes_left = match &planned {
            Plan::DoNothing => return None,
            Plan::Move(_) | Plan::Drop(_) => 0.0,
            Plan::Compaction(compaction) => compaction.input_bytes() as f64,
        };
        let before = self.debt();
        let id = self.busy.begin(&planned);
        self.note_leap(before);
        let done = self.model.run(&planned, &self.hints);
        let bytes_per_ns = ENTRY_BYTES as f64 / self.compaction_ns_per_entry;
        Some(Job { id, done, bytes_left, bytes_per_ns, began_ns: self.compacted_until_ns })
    }

    fn window(&mut self) -> Window {
        (self.leap_max, self.runs_max) = (0.0, 0);
        let (start, mut puts) = (self.stage.now_ns(), 0);
        while self.stage.now_ns() - start < WINDOW_SECONDS * SECOND {
            self.put();
            puts += STEP;
        }
        let seconds = (self.stage.now_ns() - start) as f64 / SECOND as f64;
        let puts_per_second = puts as f64 / seconds;
        Window { puts_per_second, runs_max: self.runs_max, leap_max: self.leap_max }
    }
}

/// Checks what docs/internals/compaction.md says about the pace.
#[test]
fn writers_go_at_an_even_pace_however_long_compactions_take() {
    for compaction_ns_per_entry in [250.0, 350.0, 450.0] {
        let mut world = World::new(compaction_ns_per_entry);
        let windows: Vec<Window> = (0..40).map(|_| world.window()).collect();
        let free = SECOND as f64 / PUT_NS as f64;
        assert!(windows[0].puts_per_second > free * 0.99, "nothing was behind yet");
        for (at, near) in windows.windows(5).enumerate().skip(8) {
            let mean = near.iter().map(|window| window.puts_per_second).sum::<f64>() / 5.0;
            let share = near[2].puts_per_second / mean;
            assert!((0.7..1.3).contains(&share), "{compaction_ns_per_entry}, {at}: {near:#?}");
            assert!(mean < free * 0.8, "writers were not held back: {near:#?}");
            assert!(near[2].runs_max <= 20, "{near:#?}");
            assert!(near[2].leap_max < 0.3, "{near:#?}");
        }
    }
}

/// An ingest or a large commit is one run of level 0, and no writer has to wait for all of it.
#[test]
fn writers_go_on_while_what_an_ingest_has_brought_goes_down() {
    let mut world = World::new(250.0);
    let before: Vec<Window> = (0..12).map(|_| world.window()).collect();
    let mean = before[4..].iter().map(|window| window.puts_per_second).sum::<f64>() / 8.0;
    world.model.flush((0, KEYS - 1), 200 * RUN_ENTRIES, 0);
    for at in 0..60 {
        let window = world.window();
        // If all of it counted, they would put 2,500 a second.
        assert!(window.puts_per_second > mean / 25.0, "{at}, {mean}: {window:?}");
        assert!(window.runs_max <= 24, "{at}: {window:?}");
    }
}

/// Beside programs of a higher priority compactions may get no processor at all, after their pace
/// was measured.
#[test]
fn level_zero_stays_bounded_while_compactions_stand_still() {
    let mut world = World::new(250.0);
    for _ in 0..8 {
        world.window();
    }
    world.is_starved = true;
    for _ in 0..120 {
        world.window();
    }
    let runs = world.model.tree.runs.len();
    assert!(runs < 80, "after ten minutes, where a quarter of the measured pace makes 163: {runs}");
}
