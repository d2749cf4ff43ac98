//! Ranges and cursors against a list of the keys that they must show.

use super::*;
use crate::env::Env;
use crate::vfs::{Fault, FileOp, MemoryFs};
use crate::{Db, Options};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

fn open(fs: &MemoryFs) -> Db {
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    Options::new().env(env).open("/db").unwrap()
}

/// Some keys in a table, some in memory, some in both.
fn filled(db: &Db) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut contents = BTreeMap::new();
    for (round, keys) in [[1, 3, 5, 9], [3, 4, 7, 9]].into_iter().enumerate() {
        for key in keys {
            // Long enough that the first read, of the table's end, does not cover the table.
            let value = vec![round as u8; 3000 + usize::from(key)];
            db.put([key], &value).unwrap();
            contents.insert(vec![key], value);
        }
        if round == 0 {
            db.flush().unwrap();
        }
    }
    db.delete([5]).unwrap();
    contents.remove(&vec![5]);
    contents
}

#[test]
fn both_ends_of_a_range_meet_wherever_that_is() {
    let db = open(&MemoryFs::new());
    let contents = filled(&db);
    for (lower, upper) in [(None, None), (Some(3), Some(9)), (Some(4), None), (Some(9), Some(2))] {
        let bound = |key: Option<u8>| key.map_or(Bound::Unbounded, |k| Bound::Included([k]));
        let bounds = (bound(lower), bound(upper));
        let inside = |key: u8| lower.is_none_or(|l| key >= l) && upper.is_none_or(|u| key <= u);
        let expected: Vec<_> = contents.iter().filter(|(key, _)| inside(key[0])).collect();
        // Tries every choice of ends for the first pulls. All later pulls come from the front.
        for choice in 0..1u32 << 7 {
            for wants_values in [true, false] {
                let range = db.range(bounds);
                let without = |key: Result<Value>| key.map(|key| (key, Value::default()));
                let mut range: Box<dyn DoubleEndedIterator<Item = _>> = match wants_values {
                    true => Box::new(range),
                    false => Box::new(range.keys().map(without)),
                };
                let mut left = expected.as_slice();
                for pull in 0..9 {
                    let is_back = choice & 1 << pull != 0;
                    let taken = if is_back { left.split_last() } else { left.split_first() };
                    let item = if is_back { range.next_back() } else { range.next() };
                    let item = item.map(Result::unwrap);
                    left = taken.map_or(left, |(_, rest)| rest);
                    let taken = taken.map(|(item, _)| *item);
                    assert_eq!(item.as_ref().map(|item| &*item.0), taken.map(|item| &item.0[..]));
                    let value = taken.map(|item| if wants_values { &item.1[..] } else { &[] });
                    assert_eq!(item.as_ref().map(|item| &*item.1), value);
                }
                assert!(left.is_empty() && range.next().is_none());
                assert!(range.next_back().is_none());
            }
        }
    }
}

#[test]
fn a_range_that_fails_says_so_once_and_ends() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    filled(&db);
    let family = db.family("brief").unwrap();
    db.drop_family(&family).unwrap();
    let mut range = family.range(..);
    assert_eq!(range.next_back().unwrap().unwrap_err().name(), "UNKNOWN_FAMILY");
    assert!(range.next().is_none() && range.next_back().is_none());
    db.close().unwrap();
    for is_back in [false, true] {
        let db = open(&fs);
        fs.inject(Fault::on(FileOp::Read).forever());
        let mut range = db.range(..);
        let item = if is_back { range.next_back() } else { range.next() };
        assert!(item.unwrap().is_err());
        fs.clear_faults();
        assert!(range.next().is_none() && range.next_back().is_none());
        assert_eq!(db.range(..).count(), 5);
    }
}

#[test]
fn after_a_failed_move_steps_fail_alike_until_a_seek() {
    let fs = MemoryFs::new();
    let db = open(&fs);
    filled(&db);
    db.close().unwrap();
    let db = open(&fs);
    let mut cursor = db.cursor(..).unwrap();
    fs.inject(Fault::on(FileOp::Read).forever());
    let failure = cursor.first().unwrap_err().to_string();
    fs.clear_faults();
    for _ in 0..2 {
        assert_eq!(cursor.next().unwrap_err().to_string(), failure);
        assert_eq!(cursor.prev().unwrap_err().to_string(), failure);
        assert!(cursor.entry().is_none());
    }
    assert_eq!(cursor.seek([4]).unwrap().unwrap().key(), [4]);
    let entry = cursor.next().unwrap().unwrap();
    assert_eq!((entry.key(), entry.value().unwrap()), (&[7][..], &[1; 3007][..]));
}

#[test]
fn a_cursor_has_no_entry_once_a_move_found_the_database_closed() {
    let db = open(&MemoryFs::new());
    filled(&db);
    let mut cursor = db.cursor(..).unwrap();
    let mut fresh = db.cursor(..).unwrap();
    let mut beyond = db.cursor(..).unwrap();
    assert_eq!(cursor.next().unwrap().unwrap().key(), [1]);
    assert!(beyond.seek([10]).unwrap().is_none());
    db.close().unwrap();
    assert_eq!(cursor.entry().unwrap().key(), [1]);
    for cursor in [&mut cursor, &mut fresh, &mut beyond] {
        for _ in 0..2 {
            assert!(cursor.next().unwrap_err().is_closed() && cursor.entry().is_none());
            assert!(cursor.prev().unwrap_err().is_closed());
            assert!(cursor.seek([3]).unwrap_err().is_closed());
        }
    }
}

/// A move of a cursor, with its name.
type Move = (&'static str, for<'e> fn(&'e mut Cursor<'static>) -> Result<Option<Entry<'e>>>);

#[test]
fn a_cursor_moves_among_the_keys_within_its_bounds() {
    let db = open(&MemoryFs::new());
    let contents = filled(&db);
    let mut cursor = db.cursor((Bound::Excluded([1]), Bound::Included([7]))).unwrap();
    let check = |cursor: &mut Cursor<'static>, (name, go): Move, key: Option<u8>| {
        let wanted = key.map(|key| (vec![key], contents[&vec![key]].clone()));
        let shown = |entry: Entry<'_>| {
            assert_eq!(entry.pin().unwrap(), entry.value().unwrap());
            assert_eq!(entry.value_len(), entry.value().unwrap().len() as u64);
            (entry.key().to_vec(), entry.value().unwrap().to_vec())
        };
        assert_eq!(go(cursor).unwrap().map(shown), wanted, "{name}");
        assert_eq!(cursor.entry().map(shown), wanted, "after {name}");
        let at = key.map(|key| [key].escape_ascii().to_string());
        assert_eq!(format!("{cursor:?}"), format!("Cursor(at {at:?})"));
    };
    let (next, prev): (Move, Move) = (("next", Cursor::next), ("prev", Cursor::prev));
    let (first, last): (Move, Move) = (("first", Cursor::first), ("last", Cursor::last));
    let up = [(next, Some(4)), (next, Some(7)), (next, None), (next, None)];
    let down = [(prev, Some(4)), (prev, Some(3)), (prev, None), (prev, None)];
    let script = [&[(first, Some(3))], &up[..], &[(prev, Some(7))], &down, &[(next, Some(3))]];
    let script = script.concat().into_iter().chain([(last, Some(7)), (prev, Some(4))]);
    assert!(cursor.entry().is_none());
    script.for_each(|(go, key)| check(&mut cursor, go, key));
    for (sought, above, below) in [
        (0, Some(3), None),
        (3, Some(3), Some(3)),
        (5, Some(7), Some(4)),
        (7, Some(7), Some(7)),
        (8, None, Some(7)),
    ] {
        let entry = cursor.seek([sought]).unwrap();
        assert_eq!(entry.map(|entry| entry.key()), above.as_ref().map(std::slice::from_ref));
        if above.is_none() {
            check(&mut cursor, next, None);
            check(&mut cursor, prev, Some(7));
        }
        let entry = cursor.seek_for_prev([sought]).unwrap();
        assert_eq!(entry.map(|entry| entry.key()), below.as_ref().map(std::slice::from_ref));
        if below.is_none() {
            check(&mut cursor, prev, None);
            check(&mut cursor, next, Some(3));
        }
    }
}

#[test]
fn a_fresh_cursor_goes_to_the_end_that_its_first_step_leaves_for() {
    let db = open(&MemoryFs::new());
    filled(&db);
    let fresh = || db.cursor([2]..[9]).unwrap();
    assert_eq!(fresh().next().unwrap().unwrap().key(), [3]);
    assert_eq!(fresh().prev().unwrap().unwrap().key(), [7]);
    let mut empty = db.cursor([5]..[6]).unwrap();
    for _ in 0..2 {
        assert!(empty.next().unwrap().is_none() && empty.next().unwrap().is_none());
        assert!(empty.prev().unwrap().is_none() && empty.entry().is_none());
    }
}

#[test]
fn a_value_that_lies_apart_is_not_read_once_the_database_is_closed() {
    let fs = MemoryFs::new();
    let env = Env { fs: Arc::new(fs.clone()), ..Env::system() };
    let family = crate::FamilyOptions::new().separate_from(100);
    let db = Options::new().env(env).family(family).open("/db").unwrap();
    for key in 0..3u8 {
        db.put([key], [key; 500]).unwrap();
    }
    db.flush().unwrap();
    let (mut read, mut unread) = (db.cursor(..).unwrap(), db.cursor(..).unwrap());
    assert_eq!(read.first().unwrap().unwrap().value().unwrap(), [0; 500]);
    unread.last().unwrap().unwrap();
    db.close().unwrap();
    assert_eq!(read.entry().unwrap().value().unwrap(), [0; 500], "it was read before");
    let entry = unread.entry().unwrap();
    assert!(entry.value().unwrap_err().is_closed() && entry.pin().unwrap_err().is_closed());
    assert_eq!((entry.key(), entry.value_len()), (&[2][..], 500));
}
