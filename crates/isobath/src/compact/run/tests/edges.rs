//! Where outputs begin and end: at fences, at the edges of parts, and with range deletes.

use super::super::Outputs;
use super::*;
use crate::format::checksum64;
use crate::span::Span;
#[cfg(not(any(loom, shuttle)))]
use crate::table::fixtures::forge_nth_key;
use crate::table::{End, Extent, Table};

#[test]
fn edges_before_a_part_do_not_end_its_outputs() {
    let (bench, mut compaction) = with_a_large_compaction();
    compaction.fences = ["a", "b", "c", "p3"].map(|fence| Box::from(fence.as_bytes())).to_vec();
    let context = bench.context();
    let part = Extent { start: b"b"[..].into(), end: End::Unbounded };
    let mut outputs = Outputs::new(&context, (&compaction, &part), (1 << 20, u64::MAX), Vec::new());
    for key in ["p0", "p1", "p2", "p3"] {
        outputs.add(Version::put(key, 60, "value").as_entry(), true).unwrap();
    }
    let slices = outputs.finish().unwrap().slices;
    let begins: Vec<&[u8]> = slices.iter().map(|slice| &*slice.smallest).collect();
    assert_eq!(begins, [b"p0", b"p3"]);
}

/// Range deletes reach behind the last key, and across slices that stay in the level.
#[test]
fn range_deletes_without_keys_are_cut_at_slices_that_stay_too() {
    let (bench, mut compaction) = with_a_large_compaction();
    compaction.fences = ["m", "t", "w"].map(|fence| Box::from(fence.as_bytes())).to_vec();
    let context = bench.context();
    // Readers to come tell it apart from what lies beneath.
    let seq = context.readers.horizon() + 1;
    let span = Span { start: b"o"[..].into(), end: Some(b"z"[..].into()), seq };
    let all = Extent { start: Box::default(), end: End::Unbounded };
    let mut outputs = Outputs::new(&context, (&compaction, &all), (1 << 20, u64::MAX), vec![span]);
    outputs.add(Version::put("p", 60, "value").as_entry(), true).unwrap();
    let slices = outputs.finish().unwrap().slices;
    let begins: Vec<&[u8]> = slices.iter().map(|slice| &*slice.smallest).collect();
    assert_eq!(begins, [b"p", b"t", b"w"]);
    let fences = compaction.fences[1..].iter().map(|fence| Some(&**fence));
    for (slice, end) in slices.iter().zip(fences.chain([Some(&b"z"[..])])) {
        assert_eq!(slice.extent().end.key(), end);
    }
}

#[test]
fn an_output_has_no_more_keys_than_there_is_memory_for_or_no_filter() {
    let (bench, mut compaction) = with_a_large_compaction();
    (compaction.guides, compaction.fences) = (Vec::new(), Vec::new());
    let all = Extent { start: Box::default(), end: End::Unbounded };
    for (output_bytes, counts) in [(Some(1 << 20), vec![300, 300, 300, 100]), (None, vec![1000])] {
        compaction.output_bytes = output_bytes;
        let context = bench.context();
        let limits = (1 << 20, 300);
        let mut outputs = Outputs::new(&context, (&compaction, &all), limits, Vec::new());
        for n in 0..1000_u32 {
            outputs.add(Version::put(n.to_be_bytes(), 60, "").as_entry(), true).unwrap();
            outputs.add(Version::put(n.to_be_bytes(), 50, "").as_entry(), false).unwrap();
        }
        let written = outputs.finish().unwrap();
        let entries: Vec<u64> = written.slices.iter().map(|slice| slice.entries / 2).collect();
        assert_eq!(entries, counts);
        for slice in &written.slices {
            let table = Table::open(bench.tables.clone(), slice).unwrap();
            let denied = (0..100)
                .filter(|n: &u32| !table.may_contain(checksum64(format!("absent {n}").as_bytes())));
            assert_eq!(denied.count() > 50, output_bytes.is_some());
        }
    }
}

/// A part ends at the first key behind it, and the parts behind it begin by a search.
#[cfg(not(any(loom, shuttle)))]
#[test]
fn what_lies_behind_a_key_out_of_order_is_not_dropped_untold() {
    for nth in 0..4 {
        let (bench, mut compaction) = with_a_large_compaction();
        let slice = &compaction.inputs[nth].1.meta;
        let path = table_path(&bench.table_dir(), slice.file);
        // Behind the keys of its first block, and before the forged one.
        let cut = [slice.smallest[0], slice.smallest[1], 0xfe];
        compaction.cuts = vec![Box::from(cut)];
        forge_nth_key(&bench.fs, &path, 2);
        let job = CompactionJob::new(compaction, bench.context());
        let told = job.finish(CompactionContext::sync_names).unwrap_err();
        assert!(told.is_corruption(), "{told}");
        assert_eq!(told.path(), Some(&*path));
        assert!(told.to_string().contains("out of order"), "{told}");
    }
}
