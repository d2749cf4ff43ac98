//! Where one output ends and the next begins.
//!
//! Outputs end where slices of the next level end, if their length allows it. Then a later job that
//! takes an output down reads only whole slices there. An output also ends when it overlaps so much
//! of the next level that taking it down would be a long job: also a very short one, if that is
//! more than one job should read, or two deletes that lie far apart would have all between them
//! rewritten. An output never ends between two versions of one key.

use super::Compaction;
use crate::cursor::key_head;
use crate::env::{Reach, reached, reached_if};
use crate::version::Slice;
use std::sync::Arc;

/// From this share of its wanted length on, in eighths, an output ends at an edge of the next level
/// ...
const AT_EDGE_EIGHTHS: u64 = 6;
/// ... and at this share it ends anywhere.
const ANYWHERE_EIGHTHS: u64 = 10;
/// How much of the next level an output may overlap, as a multiple of the wanted length.
const OVERLAP_MAX: u64 = 12;
/// An output that overlaps too much ends only from this share of its wanted length on, in eighths,
/// unless that is also too much for a job that takes it down ([`Compaction::overlap_max`]).
const OVER_TOO_MUCH_EIGHTHS: u64 = 1;

/// Decides where to cut, while the keys of a compaction's outputs pass in ascending order.
#[derive(Debug)]
pub(crate) struct Cutter<'a> {
    output_bytes: u64,
    overlap_max: u64,
    fences: Edges<'a>,
    guides: Edges<'a>,
    /// Bytes of the next level beneath the current output.
    overlap_bytes: u64,
}

/// Keys at which an edge lies, ascending, with the next edge and its head.
#[derive(Debug)]
struct Edges<'a> {
    at: usize,
    head: u64,
    keys: EdgeKeys<'a>,
}

#[derive(Debug)]
enum EdgeKeys<'a> {
    /// The edge lies before the key.
    Fences(&'a [Box<[u8]>]),
    /// The edge lies where the slice's extent ends.
    Guides(&'a [Arc<Slice>]),
}

impl<'a> Edges<'a> {
    fn new(keys: EdgeKeys<'a>) -> Self {
        let mut edges = Edges { at: 0, head: 0, keys };
        edges.set_head();
        edges
    }

    fn set_head(&mut self) {
        self.head = match &self.keys {
            EdgeKeys::Fences(keys) => keys.get(self.at).map(|key| key_head(key)),
            EdgeKeys::Guides(slices) => {
                slices.get(self.at).and_then(|slice| slice.extent().end.key().map(key_head))
            }
        }
        .unwrap_or(u64::MAX);
    }

    /// Passes all edges at or before `key`.
    fn skip_to(&mut self, key: &[u8]) {
        self.at = match &self.keys {
            EdgeKeys::Fences(keys) => keys.partition_point(|fence| **fence <= *key),
            EdgeKeys::Guides(slices) => {
                slices.partition_point(|slice| slice.extent().ends_before(key))
            }
        };
        self.set_head();
    }

    /// True once for each edge at or before `key`.
    #[inline]
    fn passes(&mut self, key: &[u8]) -> bool {
        key_head(key) >= self.head && self.passes_slowly(key)
    }

    #[inline(never)]
    fn passes_slowly(&mut self, key: &[u8]) -> bool {
        let is_past = match &self.keys {
            EdgeKeys::Fences(keys) => keys.get(self.at).is_some_and(|fence| **fence <= *key),
            EdgeKeys::Guides(slices) => {
                slices.get(self.at).is_some_and(|slice| slice.extent().ends_before(key))
            }
        };
        if is_past {
            self.at += 1;
            self.set_head();
        }
        is_past
    }
}

impl<'a> Cutter<'a> {
    /// A cutter for the outputs of a part of `compaction` that reads about `part_bytes`.
    pub(crate) fn new(compaction: &'a Compaction, part_bytes: u64) -> Self {
        let output_bytes =
            compaction.output_bytes.map_or(u64::MAX, |wanted| match compaction.guides.is_empty() {
                true => even_share(part_bytes, wanted),
                false => wanted,
            });
        Cutter {
            output_bytes,
            overlap_max: compaction.overlap_max,
            fences: Edges::new(EdgeKeys::Fences(&compaction.fences)),
            guides: Edges::new(EdgeKeys::Guides(&compaction.guides)),
            overlap_bytes: 0,
        }
    }

    /// Begins with the first key of the first output that has keys. The edges before it lie
    /// beneath no such output, so they neither end one nor count as overlapped.
    #[cold]
    pub(crate) fn begin(&mut self, key: &[u8]) {
        self.fences.skip_to(key);
        self.guides.skip_to(key);
        debug_assert_eq!(self.overlap_bytes, 0, "nothing was written");
    }

    /// Whether the current output, of `bytes`, ends before the next key `key`.
    #[inline(always)]
    pub(crate) fn cuts_before(&mut self, key: &[u8], bytes: u64) -> bool {
        let mut cuts = self.is_full(bytes);
        reached_if(Reach::CutFull, || cuts);
        while self.fences.passes(key) {
            reached(Reach::CutAtFence);
            cuts = true;
        }
        while self.guides.passes(key) {
            cuts |= self.cuts_at_edge(bytes);
        }
        if cuts {
            self.overlap_bytes = 0;
        }
        cuts && bytes > 0
    }

    /// False if all output has to be one slice: level 0 does not take two that a single commit
    /// wrote last.
    #[inline]
    pub(crate) fn may_cut(&self) -> bool {
        self.output_bytes < u64::MAX
    }

    /// Whether an output of `bytes` ends before the next key wherever the edges lie.
    #[inline]
    pub(crate) fn is_full(&self, bytes: u64) -> bool {
        let has_guides = !matches!(self.guides.keys, EdgeKeys::Guides([]));
        let eighths = if has_guides { ANYWHERE_EIGHTHS } else { 8 };
        bytes / eighths >= self.output_bytes / 8
    }

    #[inline(never)]
    fn cuts_at_edge(&mut self, bytes: u64) -> bool {
        debug_assert!(self.guides.at > 0, "no guide was passed");
        if let EdgeKeys::Guides(slices) = &self.guides.keys {
            self.overlap_bytes += slices[self.guides.at - 1].meta.disk_bytes;
        }
        let eighth = self.output_bytes / 8;
        if bytes / AT_EDGE_EIGHTHS >= eighth {
            reached(Reach::CutAtEdge);
            return true;
        }
        let is_long = bytes / OVER_TOO_MUCH_EIGHTHS >= eighth;
        let lies_over_too_much = self.overlap_bytes / OVERLAP_MAX >= self.output_bytes
            && (is_long || self.overlap_bytes >= self.overlap_max);
        reached_if(Reach::CutOverTooMuch, || lies_over_too_much);
        lies_over_too_much
    }
}

/// The length at which all outputs are about equally long, so that the last one is not short.
fn even_share(total: u64, wanted: u64) -> u64 {
    let count = (total.saturating_add(wanted / 2) / wanted.max(1)).max(1);
    (total / count).max(wanted / 2).saturating_add(wanted / 64)
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::Model;
    use super::*;
    use crate::events::CompactionReason;

    #[test]
    fn outputs_come_out_even() {
        assert_eq!(even_share(100, 64), 100 / 2 + 1);
        assert_eq!(even_share(90, 64), 90 + 1);
        assert_eq!(even_share(1, 64), 32 + 1);
    }

    #[test]
    fn each_edge_is_passed_once_and_the_head_is_that_of_the_next() {
        let fences = ["d", "d\0", "m"].map(|fence| Box::from(fence.as_bytes()));
        let mut edges = Edges::new(EdgeKeys::Fences(&fences));
        for (key, passed) in [("c", 0), ("d", 1), ("d\0", 1), ("l", 0), ("m", 1), ("z", 0)] {
            let before = edges.at;
            while edges.passes(key.as_bytes()) {}
            assert_eq!(edges.at - before, passed, "{key}");
            let head = fences.get(edges.at).map_or(u64::MAX, |fence| key_head(fence));
            assert_eq!(edges.head, head, "{key}");
            let mut skipping = Edges::new(EdgeKeys::Fences(&fences));
            skipping.skip_to(key.as_bytes());
            assert_eq!((skipping.at, skipping.head), (edges.at, edges.head), "{key}");
        }
    }

    /// A compaction of nothing, with fences and guides at these numbers.
    fn edged(fences: &[u64], guides: &[u64]) -> Compaction {
        let mut model = Model::new();
        Compaction {
            reason: CompactionReason::Manual,
            inputs: Vec::new(),
            target: 1,
            depth: 1,
            is_last_level: false,
            fences: fences.iter().map(|fence| fence.to_be_bytes().into()).collect(),
            cuts: Vec::new(),
            beneath: Vec::new(),
            guides: guides.iter().map(|at| model.slice((*at, *at), 100, 0, (1, 9))).collect(),
            output_bytes: Some(64),
            overlap_max: 100 << 20,
        }
    }

    #[test]
    fn two_keys_far_apart_are_cut_where_all_between_is_more_than_one_job_reads() {
        let key = |at: u64| at.to_be_bytes();
        let guides: Vec<u64> = (0..30).map(|at| 10 * at).collect();
        let slices = edged(&[], &guides).guides;
        let between: u64 = slices[1..=20].iter().map(|slice| slice.meta.disk_bytes).sum();
        let output = between / OVERLAP_MAX;
        for (output, overlap_max, cut) in
            [(output, between + 1, false), (output, between, true), (output + 1, 1, false)]
        {
            let compaction =
                Compaction { output_bytes: Some(output), overlap_max, ..edged(&[], &guides) };
            let mut cutter = Cutter::new(&compaction, 1 << 20);
            cutter.begin(&key(5));
            assert!(!cutter.cuts_before(&key(6), 2));
            assert_eq!(cutter.cuts_before(&key(205), 3), cut, "over 20 slices");
        }
    }

    #[test]
    fn edges_before_the_first_key_end_no_output() {
        let key = |at: u64| at.to_be_bytes();
        let guides: Vec<u64> = (0..100).chain([205]).collect();
        let compaction = edged(&[10, 20, 200, 204], &guides);
        let mut cutter = Cutter::new(&compaction, 1 << 20);
        cutter.begin(&key(200));
        assert!(!cutter.cuts_before(&key(201), 8), "no fence lies between");
        assert!(!cutter.cuts_before(&key(203), 40), "what lies before is not overlapped");
        assert!(cutter.cuts_before(&key(204), 8), "a fence");
        assert!(cutter.cuts_before(&key(206), 48), "a guide");
    }
}
