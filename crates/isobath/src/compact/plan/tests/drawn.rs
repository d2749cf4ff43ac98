//! Small trees drawn from a seed, with policies, hints and requests whose numbers are often equal,
//! so that both sides of each comparison occur. Jobs begin and end while plans are made step by
//! step. Each plan is compared with the rules for all plans (`soundness`) and with the plans that a
//! person last reviewed (`decisions`).

use super::super::{Hints, ManualPlan, ManualRange, Plan, Policy, plan, plan_manual};
use crate::engine::{Busy, JobId};
use crate::env::fixtures::Draw;
use crate::format::Lsn;
use crate::table::{BlockHandle, SliceMeta};
use crate::version::{LiveFile, ObsoleteFiles, Slice, Tree};
use std::ops::Bound;
use std::sync::Arc;

/// Keys are single bytes below this value.
pub(super) const KEYS: u8 = 64;
const STEPS: usize = 6;

/// The numbers of a seed.
pub(super) fn draw_of(seed: u64) -> Draw {
    Draw::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
}

/// The inputs of a decision.
pub(super) struct Scene {
    pub(super) tree: Tree,
    pub(super) policy: Policy,
    pub(super) hints: Hints,
    pub(super) range: ManualRange,
    pub(super) busy: Busy,
}

/// A question to the planner and its answer.
pub(super) enum Answer {
    Planned(Plan),
    Requested(ManualPlan),
}

impl Answer {
    pub(super) fn plan(&self) -> Option<&Plan> {
        match self {
            Answer::Planned(plan) | Answer::Requested(ManualPlan::Do(plan)) => Some(plan),
            Answer::Requested(_) => None,
        }
    }
}

fn slice(draw: &mut Draw, file: u64, keys: (u8, u8), bytes: u64, seqs: (Lsn, Lsn)) -> Arc<Slice> {
    let entries = draw.one(&[1, 2, 4, 10, 20]);
    let deletes = draw.one(&[0, 0, 0, entries / 4, entries / 2, entries]);
    let meta = SliceMeta {
        file,
        family: 0,
        root: BlockHandle { offset: 128, len: 64 },
        disk_bytes: bytes,
        raw_bytes: bytes,
        entries,
        deletes,
        smallest: [keys.0].into(),
        largest: [keys.1].into(),
        min_seq: seqs.0,
        max_seq: seqs.1,
        spans: None,
        ends: None,
        oldest_delete: None,
        blobs: Box::default(),
        streams: Box::default(),
    };
    Slice::new(meta, LiveFile::new(file, &ObsoleteFiles::new()), Box::default())
}

fn tree(draw: &mut Draw) -> Tree {
    let (mut tree, mut file) = (Tree::default(), 1);
    for level in 1..=draw.below(6) {
        let age = (10 - level) * 100;
        let mut key = draw.below(20);
        for _ in 0..draw.one(&[0, 0, 1, 2, 3, 4, 6]) {
            let last = key + draw.one(&[0, 1, 3, 8, 16]);
            if last >= u64::from(KEYS) {
                break;
            }
            let bytes = draw.one(&[1, 4, 8, 10, 16, 40, 64]) << draw.below(level + 1);
            let seqs = (age, age + draw.below(50));
            let next = slice(draw, file, (key as u8, last as u8), bytes, seqs);
            tree = tree.with(&[], vec![(level as usize, next)]).unwrap();
            file += 1;
            key = last + draw.one(&[1, 1, 2, 9]);
        }
    }
    let mut seq = 1000;
    for _ in 0..draw.one(&[0, 1, 2, 4, 6, 9]) {
        let (a, b) = (draw.below(KEYS.into()) as u8, draw.below(KEYS.into()) as u8);
        let first = seq - draw.one(&[0, 0, 0, 15]);
        let bytes = draw.one(&[1, 2, 4, 8, 10, 16, 40]);
        let run = slice(draw, file, (a.min(b), a.max(b)), bytes, (first, seq + 9));
        // Runs that share both keys and sequences cannot exist.
        tree = tree.with(&[], vec![(0, run)]).unwrap_or(tree);
        file += 1;
        seq += 10;
    }
    tree
}

impl Scene {
    pub(super) fn new(draw: &mut Draw) -> Scene {
        let tree = tree(draw);
        let policy = Policy {
            l0_trigger_runs: draw.one(&[0, 1, 2, 3, 4, 8]),
            size_ratio_max: draw.one(&[0, 2, 3, 4, 8]),
            base_bytes: draw.one(&[0, 8, 40, 200, 1000, 5120]),
            target_file_bytes: draw.one(&[0, 4, 8, 10, 16, 40, 100, 640]),
            output_bytes_min: draw.one(&[1, 4, 16]),
            job_bytes_max: draw.one(&[10, 40, 64, 200, 1000]),
            parts_max: draw.one(&[1, 2, 3, 8]),
            output_keys_min: u64::MAX,
            inputs_max: usize::MAX,
            levels_max: draw.one(&[0, 2, 3, 5, 7]),
            delete_percent: draw.one(&[25, 50, 100]),
            plain_depths: draw.one(&[0, 0, 1, 2, 3]),
            delete_within_ms: 0,
        };
        let edges: Vec<Lsn> = tree.iter().map(|(_, slice)| slice.meta.max_seq).collect();
        let near = |draw: &mut Draw, edges: &[Lsn]| match edges {
            [] => 1000,
            _ => draw.one(edges) + draw.below(2),
        };
        let oldest_reader = if draw.below(3) == 0 { near(draw, &edges) } else { Lsn::MAX };
        let run_bytes = draw.one(&[0, 0, 1, 4, 10, 40, u64::MAX / 3]);
        let is_idle = draw.below(2) == 0;
        let hints = Hints { run_bytes, oldest_reader, is_idle, ..Hints::default() };
        let edges: Vec<Lsn> = tree.iter().map(|(_, slice)| slice.meta.min_seq).collect();
        let mut bound = || {
            let key: Box<[u8]> = [draw.below(KEYS.into()) as u8].into();
            match draw.below(3) {
                0 => Bound::Unbounded,
                1 => Bound::Included(key),
                _ => Bound::Excluded(key),
            }
        };
        let (lower, upper) = (bound(), bound());
        let upto = if draw.below(2) == 0 { near(draw, &edges) } else { Lsn::MAX };
        let range = ManualRange { lower, upper, upto, judged_from: None };
        Scene { tree, policy, hints, range, busy: Busy::default() }
    }

    /// Some slices could not be read.
    pub(super) fn damage(&mut self, draw: &mut Draw) {
        let job = self.busy.next_id();
        for (_, slice) in self.tree.iter().filter(|_| draw.below(6) == 0) {
            self.busy.note_damaged(job, slice.meta.file, slice.extent().owned());
        }
    }
}

/// Asks for plans one after the other, while jobs begin, read and end. Calls `tell` with each
/// answer before its job begins.
pub(super) fn walk(seed: u64, tell: impl FnMut(&Scene, &Answer)) {
    walk_with(seed, |_, _| {}, tell);
}

/// The same, where some slices could not be read.
pub(super) fn walk_past_damage(seed: u64, tell: impl FnMut(&Scene, &Answer)) {
    walk_with(seed, Scene::damage, tell);
}

/// The same, in a scene that is changed first.
pub(super) fn walk_with(
    seed: u64,
    change: impl FnOnce(&mut Scene, &mut Draw),
    tell: impl FnMut(&Scene, &Answer),
) {
    let mut draw = draw_of(seed);
    let mut scene = Scene::new(&mut draw);
    change(&mut scene, &mut draw);
    walk_from(scene, draw, tell);
}

fn walk_from(mut scene: Scene, mut draw: Draw, mut tell: impl FnMut(&Scene, &Answer)) {
    let mut running: Vec<JobId> = Vec::new();
    for _ in 0..STEPS {
        let Scene { tree, policy, hints, range, busy } = &scene;
        let answer = match draw.below(3) {
            0 => Answer::Requested(plan_manual(tree, policy, busy, hints, range)),
            _ => Answer::Planned(plan(tree, policy, busy, hints)),
        };
        tell(&scene, &answer);
        match answer.plan() {
            Some(plan) if !matches!(plan, Plan::DoNothing) => {
                running.push(scene.busy.begin(plan));
                scene.busy.note_read(draw.one(&running), draw.one(&[0, 1, 8, 1000]));
            }
            _ if running.is_empty() => scene.hints.is_idle = !scene.hints.is_idle,
            _ => scene.busy.end(running.swap_remove(draw.below(running.len() as u64) as usize)),
        }
    }
}
