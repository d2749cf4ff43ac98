//! Long random sequences of operations over awkward keys.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Insert(Vec<u8>, OpKind, Vec<u8>),
    /// A batch. It is sorted before it is inserted.
    Sorted(Vec<Vec<u8>>),
    Seek(Vec<u8>),
    SeekForPrev(Vec<u8>),
    Next,
    PrevKey,
    NextKey,
}

/// Keys that share prefixes, are prefixes of each other, have equal heads, or lie at the ends.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let tail = || prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xff)], 0..4);
    prop_oneof![
        1 => Just(Vec::new()),
        8 => (0..600u16).prop_map(|i| i.to_be_bytes().to_vec()),
        4 => (0..300u16).prop_map(|i| format!("a/long/shared/prefix/{i:05}").into_bytes()),
        2 => (0..40usize).prop_map(|len| vec![b'x'; len + 1]),
        2 => (1..40usize).prop_map(|len| vec![0xff; len]),
        2 => (1..20usize).prop_map(|len| vec![0; len]),
        4 => tail().prop_map(|tail| [b"equalhds", &tail[..]].concat()),
        4 => (tail(), tail()).prop_map(|(a, b)| [b"p", &a[..], b"equalhds", &b[..]].concat()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
        1 => prop::collection::vec(any::<u8>(), 1..30),
        1 => any::<u8>().prop_map(|byte| {
            let mut key = vec![b'L'; if cfg!(miri) { 60 } else { 64 << 10 }];
            *key.last_mut().unwrap() = byte;
            key
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![3 => Just(OpKind::Put), 1 => Just(OpKind::Delete)];
    let value = prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        20 => (key(), kind, value).prop_map(|(key, kind, value)| {
            let value = if kind == OpKind::Put { value } else { Vec::new() };
            Step::Insert(key, kind, value)
        }),
        2 => prop::collection::vec(key(), 1..if cfg!(miri) { 10 } else { 40 }).prop_map(Step::Sorted),
        2 => key().prop_map(Step::Seek),
        2 => key().prop_map(Step::SeekForPrev),
        6 => Just(Step::Next),
        3 => Just(Step::PrevKey),
        2 => Just(Step::NextKey),
    ]
}

/// The expected position of a cursor after `step` from position `at`, according to the oracle. It
/// searches from the start. A cursor need not see later inserts, but with one thread it always
/// does.
fn expected(oracle: &Oracle, at: &Option<(Vec<u8>, Lsn)>, step: &Step) -> Option<(Vec<u8>, Lsn)> {
    let pair = |(key, seq): &(Vec<u8>, Reverse<Lsn>)| (key.clone(), seq.0);
    let newest = |key: &Vec<u8>| {
        oracle.range((key.clone(), Reverse(Lsn::MAX))..).next().map(|(found, _)| pair(found))
    };
    match step {
        Step::Seek(key) => newest(key),
        Step::SeekForPrev(key) => oracle
            .range(..=(key.clone(), Reverse(0)))
            .next_back()
            .and_then(|((key, _), _)| newest(key)),
        Step::Next => at.as_ref().and_then(|(key, seq)| {
            oracle
                .range((
                    std::ops::Bound::Excluded((key.clone(), Reverse(*seq))),
                    std::ops::Bound::Unbounded,
                ))
                .next()
                .map(|(found, _)| pair(found))
        }),
        Step::NextKey => at.as_ref().and_then(|(key, _)| {
            oracle.range((key.clone(), Reverse(0))..).next().map(|(found, _)| pair(found))
        }),
        Step::PrevKey => at.as_ref().and_then(|(key, _)| {
            oracle
                .range(..(key.clone(), Reverse(Lsn::MAX)))
                .next_back()
                .and_then(|((key, _), _)| newest(key))
        }),
        Step::Insert(..) | Step::Sorted(_) => at.clone(),
    }
}

fn run(table: Arc<Memtable>, steps: &[Step]) {
    let mut oracle = Oracle::new();
    let mut cursor = MemtableCursor::new(table.clone());
    let mut at = None;
    for (i, step) in steps.iter().enumerate() {
        // Sequence numbers do not ascend. They are 1000 apart, which leaves room for a batch.
        let seq = ((i as u64 * 7919) % 4099 + 1) * 1000;
        at = match step {
            // The cursor may miss versions newer than its own. So the expectation uses the position
            // to which the cursor skips.
            Step::Insert(..) | Step::Sorted(_) => at,
            _ => expected(&oracle, &at, step),
        };
        match step {
            Step::Insert(key, kind, value) => {
                table.insert(key, seq, *kind, value);
                oracle.insert((key.clone(), Reverse(seq)), (*kind, value.clone()));
            }
            Step::Sorted(keys) => {
                let mut keys = keys.clone();
                keys.sort();
                let ops = keys
                    .iter()
                    .enumerate()
                    .map(|(i, key)| (&key[..], seq + i as u64, OpKind::Put, &b"batch"[..]));
                for (key, seq, kind, value) in ops.clone() {
                    oracle.insert((key.to_vec(), Reverse(seq)), (kind, value.to_vec()));
                }
                table.insert_sorted(ops);
            }
            Step::Seek(key) => cursor.seek(key).unwrap(),
            Step::SeekForPrev(key) => cursor.seek_for_prev(key).unwrap(),
            Step::Next => cursor.next().unwrap(),
            Step::NextKey => cursor.next_key(),
            Step::PrevKey => cursor.prev_key().unwrap(),
        }
        assert_eq!(cursor.entry().map(|entry| (entry.key.to_vec(), entry.seq)), at, "{step:?}");
        if let (Some(entry), Some((key, seq))) = (cursor.entry(), &at) {
            let (kind, value) = &oracle[&(key.clone(), Reverse(*seq))];
            assert_eq!((entry.kind, entry.value), (*kind, &value[..]));
        }
    }
    check_against(&table, &oracle);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 96 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_sequence_of_operations_agrees_with_a_sorted_map(
        steps in prop::collection::vec(step(), 1..if cfg!(miri) { 40 } else { 600 }),
    ) {
        for table in tables() {
            run(table, &steps);
        }
    }
}
