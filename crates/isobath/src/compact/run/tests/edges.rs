//! Where outputs begin and end: at fences, at the edges of parts, and with range deletes.

use super::super::Outputs;
use super::*;
use crate::span::Span;
use crate::table::{End, Extent};

#[test]
fn edges_before_a_part_do_not_end_its_outputs() {
    let (bench, mut compaction) = with_a_large_compaction();
    compaction.fences = ["a", "b", "c", "p3"].map(|fence| Box::from(fence.as_bytes())).to_vec();
    let context = bench.context();
    let part = Extent { start: b"b"[..].into(), end: End::Unbounded };
    let mut outputs = Outputs::new(&context, (&compaction, &part), 1 << 20, Vec::new());
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
    let mut outputs = Outputs::new(&context, (&compaction, &all), 1 << 20, vec![span]);
    outputs.add(Version::put("p", 60, "value").as_entry(), true).unwrap();
    let slices = outputs.finish().unwrap().slices;
    let begins: Vec<&[u8]> = slices.iter().map(|slice| &*slice.smallest).collect();
    assert_eq!(begins, [b"p", b"t", b"w"]);
    let fences = compaction.fences[1..].iter().map(|fence| Some(&**fence));
    for (slice, end) in slices.iter().zip(fences.chain([Some(&b"z"[..])])) {
        assert_eq!(slice.extent().end.key(), end);
    }
}
