//! The planner's decisions about some thousand drawn trees, compared with `decisions.txt`.
//!
//! Which of several sound jobs is best is a matter of measurements
//! (`docs/internals/compaction.md`), so no simple rule gives the right answer. This test only
//! detects that a decision has changed. To change a decision on purpose, review the difference and
//! put the text that the test prints into the file.

use super::super::{Compaction, Cutter, ManualPlan, Plan, debts};
use super::drawn::{Answer, KEYS, Scene, draw_of, walk};
use crate::blob::GarbageDebt;
use crate::env::fixtures::Draw;
use crate::version::Slice;
use std::fmt::Write;
use std::sync::Arc;

/// The number of trees whose plans the file holds in full ...
const TOLD: u64 = 30;
/// ... and the number of its checksums, each over the plans of `IN_SUM` further trees.
const SUMS: u64 = 60;
const IN_SUM: u64 = 50;

fn numbers<'a>(out: &mut String, name: &str, slices: impl Iterator<Item = &'a Arc<Slice>>) {
    out.push_str(name);
    for slice in slices {
        write!(out, " {}", slice.meta.file).unwrap();
    }
}

fn describe_compaction(out: &mut String, compaction: &Compaction, draw: &mut Draw) {
    let last = if compaction.is_last_level { " last" } else { "" };
    write!(out, "{:?} {}@{}{last}:", compaction.reason, compaction.target, compaction.depth)
        .unwrap();
    for (level, slice) in &compaction.inputs {
        write!(out, " {level}/{}", slice.meta.file).unwrap();
    }
    write!(out, " len {:?}", compaction.output_bytes).unwrap();
    for (name, keys) in [(" fences", &compaction.fences), (" cuts", &compaction.cuts)] {
        if !keys.is_empty() {
            write!(out, "{name} {:?}", keys.iter().map(|key| key[0]).collect::<Vec<_>>()).unwrap();
        }
    }
    for slices in &compaction.beneath {
        numbers(out, " above", slices.iter());
    }
    numbers(out, " guides", compaction.guides.iter());
    let mut cutter =
        Cutter::new(compaction, compaction.input_bytes() / (compaction.cuts.len() as u64 + 1));
    let len = compaction.output_bytes.unwrap_or(16);
    let (mut bytes, mut step) = (0, 1);
    out.push_str(" ends");
    for key in 0..KEYS {
        if draw.below(8) == 0 {
            step = draw.one(&[0, 1, len / 16, len / 8, len / 3]);
        }
        if cutter.cuts_before(&[key], bytes) {
            write!(out, " {key}").unwrap();
            bytes = 0;
        }
        bytes += step;
    }
}

fn describe(scene: &Scene, answer: &Answer, draw: &mut Draw) -> String {
    let mut out = String::new();
    match answer.plan() {
        Some(Plan::DoNothing) => out.push_str("nothing"),
        Some(Plan::Move(moves)) => {
            out.push_str("move");
            for step in moves {
                write!(out, " {}:{}->{}", step.slice.meta.file, step.from, step.to).unwrap();
            }
        }
        Some(Plan::Compaction(compaction)) => describe_compaction(&mut out, compaction, draw),
        Some(Plan::Drop(dropped)) => unreachable!("no range deletes were given: {dropped:?}"),
        None if matches!(answer, Answer::Requested(ManualPlan::Wait)) => out.push_str("wait"),
        None => out.push_str("done"),
    }
    let debts =
        debts(&scene.tree, &scene.policy, &scene.busy, &scene.hints, GarbageDebt::default());
    let (pending, unread) = (debts.pending_bytes, debts.unread_bytes);
    write!(out, " | owed {pending:?} {unread} {} {}", debts.batch_debt, debts.batch_bytes).unwrap();
    out
}

fn decisions_of(seed: u64) -> String {
    let (mut out, mut draw) = (format!("tree {seed}\n"), draw_of(!seed));
    walk(seed, |scene, answer| {
        writeln!(out, "  {}", describe(scene, answer, &mut draw)).unwrap();
    });
    out
}

/// FNV-1a.
fn sum(text: &str, start: u64) -> u64 {
    text.bytes().fold(start, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[test]
fn decisions_are_as_they_were() {
    let mut out: String = (0..TOLD).map(decisions_of).collect();
    for at in 0..SUMS {
        let from = TOLD + at * IN_SUM;
        let sum = (from..from + IN_SUM)
            .fold(0xcbf2_9ce4_8422_2325, |start, seed| sum(&decisions_of(seed), start));
        writeln!(out, "trees {from}..{}: {sum:016x}", from + IN_SUM).unwrap();
    }
    let before = include_str!("decisions.txt");
    if before != out {
        println!("{out}");
        let changed = before.lines().zip(out.lines()).find(|(was, is)| was != is);
        panic!("decisions have changed: {changed:#?}");
    }
}
