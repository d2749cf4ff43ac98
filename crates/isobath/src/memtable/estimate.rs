//! Counts about what a memtable holds within a range of keys, by the sums that its leaves keep.
//!
//! Of the leaves at the ends of the range only the part within it counts, so the number of keys is
//! exact while no thread writes. Leaves do not count deletes: those of the first leaves are
//! counted, and then those of every sixteenth leaf stand for their neighbours.

use super::Memtable;
use super::node::Node;
use super::search::Target;

/// So many leaves are looked into, each; behind them one of so many.
const ALL_MAX: u64 = 64;
const SAMPLED: u64 = 16;

/// About what lies within a range.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Holding {
    /// Keys with a version, be it a delete.
    pub(crate) keys: u64,
    /// Of these, keys whose newest version is a delete.
    pub(crate) deletes: u64,
    /// Bytes of keys and values.
    pub(crate) bytes: u64,
}

/// The keys of a leaf within a range.
#[derive(Clone, Copy, Default)]
struct Part {
    keys: u64,
    bytes: u64,
    looked_at: u64,
    deletes: u64,
}

impl Memtable {
    /// About what it holds from `lower` on and below `upper`.
    pub(crate) fn holding(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Holding {
        let target = lower.map_or(Target::First, Target::Key);
        let (mut sum, mut nth) = (Part::default(), 0);
        let (mut leaf, mut stamp) = self.find_leaf(target);
        loop {
            let is_looked_at = nth < ALL_MAX || nth % SAMPLED == 0;
            let part = part_of(leaf, lower, upper, is_looked_at);
            let is_last = upper.zip(leaf.high()).is_some_and(|(upper, high)| upper <= high.key());
            let next = leaf.next();
            if !leaf.lock().validate(stamp) {
                match leaf.lock().read() {
                    Some(again) => stamp = again,
                    // Only a root that is a leaf is ever replaced, so nothing has been summed yet.
                    None => (leaf, stamp) = self.find_leaf(target),
                }
                continue;
            }
            sum.keys += part.keys;
            sum.bytes += part.bytes;
            sum.looked_at += part.looked_at;
            sum.deletes += part.deletes;
            nth += 1;
            match next.filter(|_| !is_last).and_then(|next| Some((next, next.lock().read()?))) {
                Some(at) => (leaf, stamp) = at,
                None => break,
            }
        }
        debug_assert!(sum.deletes <= sum.looked_at && sum.looked_at <= sum.keys);
        let deletes = sum.deletes as f64 * sum.keys as f64 / sum.looked_at.max(1) as f64;
        Holding { keys: sum.keys, deletes: deletes as u64, bytes: sum.bytes }
    }
}

fn part_of(leaf: Node<'_>, lower: Option<&[u8]>, upper: Option<&[u8]>, looks: bool) -> Part {
    let (count, totals) = (leaf.count(), leaf.totals());
    let from = lower.map_or(0, |key| position(leaf, key, count));
    let to = upper.map_or(count, |key| position(leaf, key, count)).max(from);
    let keys = (to - from) as u64;
    let is_delete =
        |at: &usize| leaf.key(*at).is_some_and(|record| record.newest().kind().is_tombstone());
    let deletes = if looks { (from..to).filter(is_delete).count() as u64 } else { 0 };
    Part {
        keys,
        bytes: totals.bytes * keys / (count as u64).max(1),
        looked_at: if looks { keys } else { 0 },
        deletes,
    }
}

/// The number of keys of the leaf below `key`, which may lie outside of the leaf's bounds.
fn position(leaf: Node<'_>, key: &[u8], count: usize) -> usize {
    if leaf.low().is_some_and(|low| key <= low.key()) {
        return 0;
    }
    if leaf.high().is_some_and(|high| high.key() <= key) {
        return count;
    }
    leaf.search(key).index.min(count)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::{Arena, ChunkPool};
    use super::*;
    use crate::format::OpKind;
    use std::sync::Arc;

    fn filled(count: u32) -> Memtable {
        let pool = Arc::new(ChunkPool::new(1 << 20, 1, 2));
        let table = Memtable::new(Arc::new(Arena::new(pool)));
        for at in 0..count {
            // Some order that is not the keys'.
            let key = (u64::from(at) * 7919 % u64::from(count)) as u32;
            let kind = if key.is_multiple_of(4) { OpKind::Delete } else { OpKind::Put };
            let value: &[u8] = if kind == OpKind::Put { b"0123456789" } else { b"" };
            table.insert(&key.to_be_bytes(), u64::from(at) + 1, kind, value);
        }
        table
    }

    #[test]
    fn keys_within_a_range_are_counted_exactly_and_deletes_about() {
        let count = 20_000;
        let table = filled(count);
        for (from, to) in [(0, count), (1, 2), (5, 5), (100, 19_000), (7000, 7123), (19_999, count)]
        {
            let (lower, upper) = (u32::to_be_bytes(from), u32::to_be_bytes(to));
            let held = table.holding(Some(&lower), Some(&upper));
            assert_eq!(held.keys, u64::from(to - from), "{from} to {to}");
            let deletes = u64::from(to.div_ceil(4) - from.div_ceil(4));
            assert!(held.deletes.abs_diff(deletes) * 20 <= deletes, "{held:?}, not {deletes}");
        }
        let all = table.holding(None, None);
        assert_eq!(all.keys, u64::from(count));
        assert_eq!(all.bytes, u64::from(count) * 4 + u64::from(count) * 3 / 4 * 10);
        let upper = table.holding(Some(&10_000u32.to_be_bytes()), None);
        assert_eq!(upper.keys, 10_000);
        assert_eq!(table.holding(Some(&[0xff; 9]), None), Holding::default());
        assert_eq!(filled(0).holding(None, None), Holding::default());
    }
}
