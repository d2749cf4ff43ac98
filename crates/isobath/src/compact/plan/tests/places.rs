//! Scenes in which the planner comes to places that simulated lives hardly come to.

use super::super::clean::{CleaningLimits, choose_files, plan_clean};
use super::super::{Hints, Plan, Policy, plan_short};
use super::drawn::{Scene, draw_of, walk_past_damage, walk_with};
use super::soundness::{check, check_compaction};
use crate::engine::Busy;
use crate::env::Reach;
use crate::env::fixtures::Draw;
use crate::env::reach::take;
use crate::events::CompactionReason;
use crate::format::{FILE_HEADER_LEN, FamilyId};
use crate::table::SliceMeta;
use crate::version::fixtures::meta;
use crate::version::{LiveFile, ObsoleteFiles, Slice, TableUse, Tree};
use std::collections::BTreeMap;

/// Deletes may stay for a while only, or few inputs fit into memory; some slices cannot be read.
fn bounded(scene: &mut Scene, draw: &mut Draw) {
    scene.policy.delete_within_ms = draw.one(&[0, 1000]);
    scene.policy.inputs_max = draw.one(&[3, 4, usize::MAX]);
    if draw.below(2) == 0 {
        scene.damage(draw);
    }
}

/// Files with dead bytes, in most of which some families have slices. One of them can never leave.
fn choose(draw: &mut Draw) {
    let stuck: FamilyId = 3;
    let tables: Vec<TableUse> = (1..=draw.below(6))
        .map(|number| {
            let families = (0..4).filter(|_| draw.below(2) == 0).collect::<Vec<FamilyId>>();
            let bytes = draw.one(&[1, 10, 100]);
            let holders: Vec<_> = families.into_iter().map(|family| (family, bytes)).collect();
            let live = holders.iter().map(|(_, bytes)| bytes).sum();
            let dead = draw.one(&[0, 30, 300, 3000]);
            TableUse { number, len: FILE_HEADER_LEN as u64 + live + dead, live, holders }
        })
        .collect();
    let limits = CleaningLimits {
        dead_bytes: draw.one(&[0, 100]),
        toll: draw.one(&[0, 10]),
        slices_max: draw.one(&[1, 2, 32]),
        bytes_max: draw.one(&[10, 1000]),
    };
    let chosen = choose_files(&tables, &limits, |family, _| family == stuck);
    assert!(!chosen.contains_key(&stuck), "its slice cannot leave");
    let count: usize = chosen.values().map(BTreeMap::len).sum();
    assert!(count <= limits.slices_max, "{chosen:?}");
    for (family, file) in chosen.iter().flat_map(|(of, files)| files.keys().map(move |n| (of, n))) {
        let table = tables.iter().find(|table| table.number == *file).unwrap();
        assert!(table.dead() > 0 && table.holders.iter().any(|(holder, _)| holder == family));
    }
}

/// Every other file of a scene is to be left.
fn leave_files(scene: &Scene) {
    for worth in [40, u64::MAX] {
        let all = scene.tree.iter().map(|(_, slice)| slice.meta.file);
        let files = all.filter(|file| file % 2 == 0).map(|file| (file, worth)).collect();
        let plan = plan_clean(&scene.tree, &scene.policy, &scene.busy, &scene.hints, &files);
        if let Plan::Compaction(compaction) = plan {
            assert_eq!(compaction.reason, CompactionReason::DeadSpace);
            check_compaction(scene, &compaction);
        }
    }
}

/// A last level of many slices, most of them short, one of which a job may read.
fn lengthen(draw: &mut Draw) {
    let policy = Policy {
        target_file_bytes: 256,
        output_bytes_min: 1,
        job_bytes_max: draw.one(&[64, 2000]),
        ..Policy::default()
    };
    let level = policy.levels_max - 1;
    let slices = (1..=draw.one(&[8u64, 12, 20])).map(|file| {
        let bytes = draw.one(&[1, 1, 1, 2, 5, 20, 50]);
        let key = char::from(b'a' + file as u8).to_string();
        let meta = SliceMeta {
            disk_bytes: if file == 1 { 8192 } else { bytes },
            entries: 1,
            ..meta(0, file, &key, &key, (1, 1))
        };
        let own = LiveFile::new(file, &ObsoleteFiles::new());
        (level, Slice::new(meta, own, Box::default()))
    });
    let tree = Tree::default().with(&[], slices.collect()).unwrap();
    let hints = Hints { run_bytes: 64, ..Hints::default() };
    if let Plan::Compaction(compaction) = plan_short(&tree, &policy, &Busy::default(), &hints) {
        let lens = || compaction.inputs.iter().map(|(_, slice)| slice.meta.disk_bytes);
        let longest = lens().max().unwrap();
        assert!(
            compaction.inputs.len() >= 8 && lens().sum::<u64>() >= 2 * longest,
            "{compaction:?}"
        );
        assert!(longest < 256 / 4, "a slice is not short");
        assert_eq!((compaction.target, compaction.reason), (level, CompactionReason::ShortSlices));
    }
}

#[test]
fn drawn_scenes_come_to_the_places_that_lives_hardly_come_to() {
    take();
    for seed in 0..3000 {
        walk_with(seed, bounded, |scene, answer| {
            check(scene, answer);
            leave_files(scene);
        });
        walk_past_damage(seed, check);
        let mut draw = draw_of(seed);
        choose(&mut draw);
        lengthen(&mut draw);
    }
    let counts = take();
    let missed = Reach::OF_SCENES.iter().filter(|place| counts[**place as usize] == 0);
    let missed: Vec<&str> = missed.map(|place| place.name()).collect();
    assert!(missed.is_empty(), "no scene came to {missed:?}");
}
