//! How the operations of a commit get into the memtables, once it has its LSN. Nothing here can
//! fail.

use super::parts::OpAt;
use crate::engine::{Engine, Keyspace, Mention};
use crate::env::{Reach, reached_if};
use crate::format::{DEFAULT_FAMILY, FamilyId, Lsn};
use crate::memtable::Memtable;
use std::sync::Arc;

/// A batch of at least this many operations is sorted: neighbouring keys then share most of the
/// search in the memtable.
const SORT_MIN: usize = 4;

/// The family of an operation of a batch.
pub(super) fn family_of<'a>(
    engine: &Engine,
    default: &'a Arc<Keyspace>,
    named: &'a [Mention],
    id: FamilyId,
) -> &'a Arc<Keyspace> {
    match id {
        DEFAULT_FAMILY => default,
        id => named
            .iter()
            .find(|family| family.id() == id)
            .and_then(|family| family.of(engine).ok())
            .expect("named when added, and checked since"),
    }
}

/// Runs `insert` on the memtable of `family` in the epoch that owns the reserved `lsn`. `puts` are
/// the keys that get a value.
#[inline]
pub(super) fn in_memtable<'k>(
    engine: &Engine,
    family: &Keyspace,
    lsn: Lsn,
    puts: impl IntoIterator<Item = &'k [u8]>,
    insert: impl FnOnce(&Memtable),
) {
    let cut_count = family.insert_at(&engine.epochs, lsn, puts, insert);
    if cut_count > 0 {
        engine.gauges.gaps_cut.add(cut_count);
    }
}

/// In which order the operations of a batch are applied. It is found before the commit takes its
/// LSN: from there on others wait for it.
pub(super) struct Order(Option<Vec<Placed>>);

impl Order {
    pub(super) fn of(record: &[u8], ops: &[OpAt]) -> Order {
        Order((ops.len() >= SORT_MIN).then(|| sorted_last_wins(record, ops)))
    }
}

/// Applies the operations of a batch, whose first has the sequence number `lsn`.
pub(super) fn apply_batch(
    engine: &Engine,
    default: &Arc<Keyspace>,
    named: &[Mention],
    (record, ops, order): (&[u8], &[OpAt], &Order),
    lsn: Lsn,
) {
    let family_of = |id: FamilyId| family_of(engine, default, named, id);
    let Order(Some(order)) = order else {
        for (ordinal, op) in ops.iter().enumerate() {
            let put = op.kind.puts_value().then(|| op.key(record));
            in_memtable(engine, family_of(op.family), lsn, put, |memtable| {
                memtable.apply(op.key(record), lsn + ordinal as u64, op.kind, op.value(record));
            });
        }
        return;
    };
    // Where a range delete and a key begin alike, both stay.
    for (ordinal, op) in ops.iter().enumerate().filter(|(_, op)| op.kind.is_span()) {
        in_memtable(engine, family_of(op.family), lsn, None, |memtable| {
            memtable.apply(op.key(record), lsn + ordinal as u64, op.kind, op.value(record));
        });
    }
    debug_assert!(
        order.is_sorted_by_key(|at| (at.family, ops[at.ordinal as usize].key(record), at.ordinal)),
        "a memtable takes the keys of a batch in order, and of one key the oldest operation first"
    );
    reached_if(Reach::BatchRepeats, || order.len() < ops.len());
    for group in order.chunk_by(|a, b| a.family == b.family) {
        let ops_of = group.iter().map(|at| &ops[at.ordinal as usize]);
        let puts = ops_of.filter(|op| op.kind.puts_value()).map(|op| op.key(record));
        in_memtable(engine, family_of(group[0].family), lsn, puts, |memtable| {
            memtable.insert_sorted(group.iter().map(|&Placed { ordinal, .. }| {
                let op = &ops[ordinal as usize];
                (op.key(record), lsn + u64::from(ordinal), op.kind, op.value(record))
            }));
        });
    }
}

/// An operation on a key, as a batch is sorted.
#[derive(Clone, Copy, Debug)]
struct Placed {
    family: FamilyId,
    /// Its number in the batch.
    ordinal: u32,
    /// The first 8 bytes of the key, so that most comparisons do not read the record.
    head: u64,
}

/// A batch's operations on keys, by family and key, without those that a later one on the same key
/// replaces (a merge replaces none): no reader can read between two operations of one commit. Of
/// one key the oldest comes first: a memtable finds the place of a key's newest version at once,
/// and walks over all newer ones to that of an older one.
fn sorted_last_wins(record: &[u8], ops: &[OpAt]) -> Vec<Placed> {
    let head = |op: &OpAt| {
        let key = op.key(record);
        let mut bytes = [0; 8];
        let len = key.len().min(8);
        bytes[..len].copy_from_slice(&key[..len]);
        u64::from_be_bytes(bytes)
    };
    let keyed = ops.iter().enumerate().filter(|(_, op)| !op.kind.is_span());
    let mut order = Vec::with_capacity(ops.len());
    order.extend(keyed.map(|(i, op)| Placed {
        family: op.family,
        ordinal: i as u32,
        head: head(op),
    }));
    let key = |at: &Placed| ops[at.ordinal as usize].key(record);
    let by_key = |a: &Placed, b: &Placed| {
        let heads = (a.family, a.head).cmp(&(b.family, b.head));
        reached_if(Reach::BatchSharedHeads, || heads.is_eq() && key(a) != key(b));
        heads.then_with(|| key(a).cmp(key(b)))
    };
    if order.is_sorted_by(|a, b| by_key(a, b).is_lt()) {
        return order;
    }
    order.sort_unstable_by(|a, b| by_key(a, b).then(a.ordinal.cmp(&b.ordinal)));
    // `len` operations stay so far, and those from `first` on are of one key.
    let (mut first, mut len) = (0, 0);
    for at in 0..order.len() {
        let op = order[at];
        let is_same = |other: &Placed| by_key(&op, other).is_eq();
        if !order[..len].last().is_some_and(is_same) {
            first = len;
        }
        if !ops[op.ordinal as usize].kind.is_operand() {
            len = first;
        }
        order[len] = op;
        len += 1;
    }
    order.truncate(len);
    order
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::write::Parts;

    #[test]
    fn a_batch_is_sorted_by_whole_keys_and_the_last_operation_on_a_key_wins() {
        let mut batch = Batch::new();
        for end in ["c", "a", "b", "a", ""] {
            batch.put(format!("the same{end}"), "value");
        }
        let Parts { record, ops, .. } = batch.parts();
        let ordinals =
            sorted_last_wins(record, ops).iter().map(|at| at.ordinal).collect::<Vec<_>>();
        assert_eq!(ordinals, [4, 3, 2, 0]);
    }

    #[test]
    fn the_last_of_many_operations_on_a_key_wins_and_merges_stay_in_their_order() {
        let mut batch = Batch::new();
        (0..100).for_each(|nth| _ = batch.put(format!("key{}", nth % 2), "value"));
        (0..100).for_each(|nth| _ = batch.merge(format!("key{}", 2 + nth % 2), "operand"));
        let Parts { record, ops, .. } = batch.parts();
        let ordinals: Vec<_> = sorted_last_wins(record, ops).iter().map(|at| at.ordinal).collect();
        let of_merges = (100..200).step_by(2).chain((101..200).step_by(2));
        assert_eq!(ordinals, [98, 99].into_iter().chain(of_merges).collect::<Vec<_>>());
    }

    #[test]
    fn a_sorted_batch_keeps_what_its_operands_need_and_no_more() {
        let mut batch = Batch::new();
        batch.merge("a", "0").put("a", "1").merge("a", "2").merge("a", "3");
        batch.merge("b", "4").put("b", "5").delete("c").merge("c", "6");
        let Parts { record, ops, .. } = batch.parts();
        let ordinals: Vec<_> = sorted_last_wins(record, ops).iter().map(|at| at.ordinal).collect();
        assert_eq!(ordinals, [1, 2, 3, 5, 6, 7]);
    }
}
