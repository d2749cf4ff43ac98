//! A log of keys that is trimmed at its beginning again and again, while its history stays
//! readable.

use super::*;
use crate::format::DEFAULT_FAMILY;

/// So many records a log has before it is trimmed.
const LEN: u32 = 20;

/// The fragments of range deletes in tables, and the sequence numbers that they have.
fn fragments_and_numbers(db: &Db) -> (usize, usize) {
    let engine = db.engine();
    let view = engine.families.by_id(DEFAULT_FAMILY).unwrap().view();
    let mut sum = (0, 0);
    for (_, slice) in view.tree.iter() {
        let table = slice.table(&engine.tables).unwrap();
        for fragment in table.spans().into_iter().flat_map(|spans| spans.fragments()) {
            sum = (sum.0 + 1, sum.1 + fragment.seqs.len());
        }
    }
    sum
}

#[test]
fn trims_of_a_log_take_two_numbers_each_and_every_state_stays() {
    const COUNT: u32 = 600;
    let (fs, clock) = (MemoryFs::new(), Arc::new(Wall(AtomicU64::new(STARTED_MS))));
    let db = open(&fs, &clock, Some(SPAN));
    let mut states: Vec<(ReadPoint, u32)> = Vec::new();
    let check = |states: &[(ReadPoint, u32)]| {
        for (point, first) in states {
            let snapshot = db.snapshot_at(*point).unwrap();
            let keys: Vec<Vec<u8>> = content(&snapshot).into_keys().collect();
            let expected = (*first..first + LEN).map(|n| n.to_be_bytes().to_vec());
            assert!(keys.into_iter().eq(expected), "from {first}");
            for (key, is_there) in [(first.saturating_sub(1), *first == 0), (*first, true)] {
                let found = snapshot.get(key.to_be_bytes()).unwrap();
                assert_eq!(found.is_some(), is_there, "{key} from {first}");
            }
        }
    };
    for n in 0..LEN {
        db.put(n.to_be_bytes(), "record").unwrap();
    }
    for first in 1..=COUNT {
        db.put((first + LEN - 1).to_be_bytes(), "record").unwrap();
        let commit = db.delete_range(..first.to_be_bytes()).unwrap();
        states.push((commit.into(), first));
        if first % 150 == 0 {
            db.flush().unwrap();
            check(&states[states.len() - 100..]);
        }
    }
    let (fragments, numbers) = fragments_and_numbers(&db);
    assert!(fragments >= COUNT as usize, "{fragments} fragments");
    db.compact().unwrap();
    let (merged, left) = fragments_and_numbers(&db);
    assert!(merged >= COUNT as usize, "{merged} fragments");
    assert!(numbers <= 2 * fragments && left <= 2 * merged, "{numbers} numbers, then {left}");
    check(&states);
}
