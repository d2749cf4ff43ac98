//! The range deletes of a memtable.
//!
//! A treap: a binary tree by the start of the spans, balanced by priorities that are as good as
//! random. They come from start and sequence number together, because the spans of a prepared
//! transaction have one sequence number. Each node knows how far the spans of its subtree reach,
//! and their least and greatest sequence number, so a look at a key visits the spans that hold it
//! and O(log n) others. Nodes never change. A writer copies the path to the place of its span,
//! under a lock, and swaps the root; a reader takes the root and needs no lock. Nothing is cut into
//! fragments for a read.
//!
//! A flag says that there is a span at all. It is set before the commit is published, so a reader
//! whose point is above the span sees it set; a read of a memtable without spans costs one load.

use crate::env::preempt;
use crate::env::sync::atomic::{AtomicBool, Ordering};
use crate::env::sync::{Mutex, Rank};
use crate::format::{Lsn, checksum64};
use crate::span::{Cover, Span, SpanKey, compare_ends, is_below_end, meets};
use arc_swap::ArcSwapOption;
use std::ops::Bound;
use std::sync::Arc;

/// The spans that writers add to.
pub(super) struct SpanTree {
    is_any: AtomicBool,
    root: ArcSwapOption<Node>,
    /// Held while the root is replaced.
    change: Mutex<()>,
}

/// The spans of a memtable at one moment.
#[derive(Clone)]
pub(crate) struct Spans(Arc<Node>);

type Link = Option<Arc<Node>>;

struct Node {
    span: Span,
    priority: u64,
    left: Link,
    right: Link,
    /// Of all spans of the subtree, where the one that reaches farthest ends.
    reach: Option<SpanKey>,
    min_seq: Lsn,
    max_seq: Lsn,
}

impl SpanTree {
    pub(super) fn new() -> SpanTree {
        SpanTree {
            is_any: AtomicBool::new(false),
            root: ArcSwapOption::const_empty(),
            change: Mutex::new(Rank::MemtableSpans, ()),
        }
    }

    /// Adds a span, and returns about how many bytes of memory it takes.
    pub(super) fn add(&self, span: Span) -> usize {
        debug_assert!(is_below_end(&span.start, span.end.as_deref()), "no key lies in {span:?}");
        let bytes = size_of::<Node>() + span.start.len() + span.end.as_ref().map_or(0, |e| e.len());
        let _right = self.change.lock();
        preempt();
        let root = self.root.load_full();
        preempt();
        self.root.store(Some(insert(root.as_ref(), span)));
        self.is_any.store(true, Ordering::Release);
        bytes
    }

    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// The spans at this moment, if there are any.
    #[inline]
    pub(super) fn load(&self) -> Option<Spans> {
        if !self.is_any() {
            return None;
        }
        preempt();
        self.root.load_full().map(Spans)
    }

    /// The newest sequence number below `point` of a span that holds `key`; 0 if there is none.
    #[inline]
    pub(super) fn newest_at(&self, key: &[u8], point: Lsn) -> Lsn {
        if self.is_any() { self.look(key, point) } else { 0 }
    }

    #[cold]
    fn look(&self, key: &[u8], point: Lsn) -> Lsn {
        preempt();
        let root = self.root.load();
        let mut best = None;
        cover(root.as_ref(), key, point, &mut best);
        best.map_or(0, |span: &Span| span.seq)
    }
}

impl Spans {
    /// What covers `key` for a reader at `point`.
    pub(crate) fn cover(&self, key: &[u8], point: Lsn) -> Option<Cover> {
        let mut best = None;
        cover(Some(&self.0), key, point, &mut best);
        let Span { start, end, seq } = best?.clone();
        Some(Cover { seq, start, end })
    }

    /// A span that may have a key within the bounds, and a sequence number from `from` on and
    /// below `below`.
    pub(crate) fn find(
        &self,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        from: Lsn,
        below: Lsn,
    ) -> Option<&Span> {
        find(Some(&self.0), (lower, upper), from, below)
    }

    /// All spans, by their start.
    pub(crate) fn all(&self) -> Vec<Span> {
        let mut all = Vec::new();
        collect(Some(&self.0), &mut all);
        debug_assert!(all.is_sorted_by_key(|span| &span.start), "the tree is in order");
        all
    }

    /// The least and the greatest sequence number.
    #[cfg(test)]
    pub(crate) fn seqs(&self) -> (Lsn, Lsn) {
        (self.0.min_seq, self.0.max_seq)
    }
}

/// A number that looks random, from the start and the sequence number of a span.
fn priority_of(span: &Span) -> u64 {
    let mut mixed = span.seq.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ checksum64(&span.start);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn node(span: Span, priority: u64, left: Link, right: Link) -> Arc<Node> {
    let (mut reach, mut min_seq, mut max_seq) = (span.end.clone(), span.seq, span.seq);
    for child in [&left, &right].into_iter().flatten() {
        if compare_ends(child.reach.as_deref(), reach.as_deref()).is_gt() {
            reach = child.reach.clone();
        }
        min_seq = min_seq.min(child.min_seq);
        max_seq = max_seq.max(child.max_seq);
    }
    debug_assert!(left.as_ref().is_none_or(|left| left.is_before(&span)), "out of order");
    debug_assert!(right.as_ref().is_none_or(|right| !right.is_before(&span)), "out of order");
    debug_assert!([&left, &right].into_iter().flatten().all(|child| child.priority <= priority));
    Arc::new(Node { span, priority, left, right, reach, min_seq, max_seq })
}

impl Node {
    fn is_before(&self, span: &Span) -> bool {
        (&self.span.start, self.span.seq) < (&span.start, span.seq)
    }

    fn with(&self, left: Link, right: Link) -> Arc<Node> {
        node(self.span.clone(), self.priority, left, right)
    }
}

fn insert(at: Option<&Arc<Node>>, span: Span) -> Arc<Node> {
    let priority = priority_of(&span);
    match at {
        Some(top) if top.priority >= priority => {
            if top.is_before(&span) {
                top.with(top.left.clone(), Some(insert(top.right.as_ref(), span)))
            } else {
                top.with(Some(insert(top.left.as_ref(), span)), top.right.clone())
            }
        }
        _ => {
            let (left, right) = split(at, &span);
            node(span, priority, left, right)
        }
    }
}

/// What lies before a span in the order of the tree, and what lies behind it.
fn split(at: Option<&Arc<Node>>, span: &Span) -> (Link, Link) {
    let Some(top) = at else { return (None, None) };
    if top.is_before(span) {
        let (left, right) = split(top.right.as_ref(), span);
        (Some(top.with(top.left.clone(), left)), right)
    } else {
        let (left, right) = split(top.left.as_ref(), span);
        (left, Some(top.with(right, top.right.clone())))
    }
}

/// Puts the newest span below `point` that holds `key` into `best`, if it is newer than that.
fn cover<'a>(at: Option<&'a Arc<Node>>, key: &[u8], point: Lsn, best: &mut Option<&'a Span>) {
    let Some(top) = at else { return };
    let is_past = !is_below_end(key, top.reach.as_deref());
    let is_known = best.is_some_and(|best| top.max_seq <= best.seq);
    if is_past || is_known || top.min_seq >= point {
        return;
    }
    let Span { start, end, seq } = &top.span;
    debug_assert!(top.min_seq <= *seq && *seq <= top.max_seq, "a node knows its subtree");
    if **start <= *key {
        let is_newer = *seq < point && best.is_none_or(|best| *seq > best.seq);
        if is_newer && is_below_end(key, end.as_deref()) {
            *best = Some(&top.span);
        }
        cover(top.right.as_ref(), key, point, best);
    }
    cover(top.left.as_ref(), key, point, best);
}

fn find<'a>(
    at: Option<&'a Arc<Node>>,
    bounds: (Bound<&[u8]>, Bound<&[u8]>),
    from: Lsn,
    below: Lsn,
) -> Option<&'a Span> {
    let top = at?;
    let reaches = meets((&[], top.reach.as_deref()), bounds.0, Bound::Unbounded);
    if !reaches || top.max_seq < from || top.min_seq >= below {
        return None;
    }
    let Span { start, end, seq } = &top.span;
    if (from..below).contains(seq) && meets((start, end.as_deref()), bounds.0, bounds.1) {
        return Some(&top.span);
    }
    let in_right = || {
        let begins_within = meets((start, None), Bound::Unbounded, bounds.1);
        if begins_within { find(top.right.as_ref(), bounds, from, below) } else { None }
    };
    find(top.left.as_ref(), bounds, from, below).or_else(in_right)
}

fn collect(at: Option<&Arc<Node>>, all: &mut Vec<Span>) {
    if let Some(top) = at {
        collect(top.left.as_ref(), all);
        all.push(top.span.clone());
        collect(top.right.as_ref(), all);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::mvcc::ReaderPoints;
    use crate::span::tests::{self as model, all_fragments};
    use proptest::prelude::*;

    fn depth(at: &Link) -> usize {
        at.as_ref().map_or(0, |top| 1 + depth(&top.left).max(depth(&top.right)))
    }

    proptest! {
        #[test]
        fn a_tree_covers_what_its_spans_cover(
            spans in model::spans(30),
            bounds in proptest::collection::vec((model::bound(), model::bound()), 10),
        ) {
            let tree = SpanTree::new();
            spans.iter().for_each(|span| { tree.add(span.clone()); });
            let set = all_fragments(spans.clone(), &ReaderPoints::from(0));
            let keys = spans.iter().flat_map(|span| {
                [Some(span.start.to_vec()), span.end.as_ref().map(|end| end.to_vec()), Some([&*span.start, &[2]].concat())]
            });
            for key in keys.flatten() {
                for point in (0..100).step_by(7) {
                    let newest = set.newest_at(&key, point);
                    prop_assert_eq!(tree.newest_at(&key, point), newest);
                    let cover = tree.load().and_then(|spans| spans.cover(&key, point));
                    prop_assert_eq!(cover.as_ref().map_or(0, |cover| cover.seq), newest);
                    let is_there = cover.is_none_or(|cover| {
                        *cover.start <= *key && is_below_end(&key, cover.end.as_deref())
                    });
                    prop_assert!(is_there);
                }
            }
            for (lower, upper) in &bounds {
                let bounds = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
                let windows = (0..100).step_by(9).map(|from| (from, from + 20));
                let single = spans.iter().map(|span| (span.seq, span.seq + 1));
                for (from, below) in windows.chain(single) {
                    let is_in = |span: &&Span| {
                        (from..below).contains(&span.seq)
                            && meets((&span.start, span.end.as_deref()), bounds.0, bounds.1)
                    };
                    let found = tree.load().and_then(|spans| spans.find(bounds, from, below).cloned());
                    prop_assert_eq!(found.is_some(), spans.iter().any(|span| is_in(&span)));
                    prop_assert!(found.is_none_or(|found| is_in(&&found)));
                }
            }
            let mut all = tree.load().map_or_else(Vec::new, |spans| spans.all());
            let mut given = spans;
            let by = |a: &Span, b: &Span| (&a.start, a.seq).cmp(&(&b.start, b.seq));
            all.sort_by(by);
            given.sort_by(by);
            prop_assert_eq!(all, given);
        }
    }

    #[test]
    fn the_tree_stays_flat_in_whatever_order_spans_come() {
        let tree = SpanTree::new();
        for n in 0..4000u32 {
            let start: SpanKey = n.to_be_bytes().to_vec().into();
            let end: SpanKey = (n + 2).to_be_bytes().to_vec().into();
            tree.add(Span { start, end: Some(end), seq: 100 + u64::from(n) * 24 });
        }
        let spans = tree.load().unwrap();
        assert!(depth(&Some(spans.0.clone())) < 45);
        assert_eq!(spans.seqs(), (100, 100 + 3999 * 24));
        assert_eq!(tree.newest_at(&500u32.to_be_bytes(), Lsn::MAX), 100 + 500 * 24);
        assert_eq!(tree.newest_at(&500u32.to_be_bytes(), 100 + 500 * 24), 100 + 499 * 24);
    }

    /// The range deletes of a prepared transaction have the sequence number of its decision.
    #[test]
    fn the_tree_stays_flat_where_all_spans_have_one_sequence_number() {
        let tree = SpanTree::new();
        for n in 0..2000u32 {
            let [start, end] = [2 * n, 2 * n + 1].map(|key| SpanKey::from(key.to_be_bytes()));
            tree.add(Span { start, end: Some(end), seq: 4096 });
        }
        assert!(depth(&Some(tree.load().unwrap().0)) < 45);
    }

    #[test]
    fn a_root_that_was_taken_does_not_change() {
        let tree = SpanTree::new();
        assert!(tree.load().is_none());
        let span = |seq| Span { start: b"a"[..].into(), end: None, seq };
        assert!(tree.add(span(10)) > 0);
        let before = tree.load().unwrap();
        tree.add(span(20));
        assert_eq!(before.cover(b"b", 100).unwrap().seq, 10);
        assert_eq!(tree.newest_at(b"b", 100), 20);
    }
}
