//! Scans over values that cannot be read: each is an error in the place of its key, and the other
//! keys follow.

use super::*;
use crate::{Isolation, Range, TransactionOptions};
use std::io;

/// The damaged values of a file of sixty: neighbours among them, and those at both ends.
const DAMAGED: [u32; 5] = [0, 20, 21, 41, 59];

/// What a scan is to show: a value, or an error that says all of these words.
type Wanted = (Vec<u8>, Result<Vec<u8>, Vec<String>>);

/// Of sixty values in one file, the only one, these are damaged.
fn damaged(fs: &MemoryFs, damaged: &[u32]) -> Vec<Wanted> {
    let [blob] = &blobs(fs)[..] else { panic!("there are several files") };
    let wanted = (0..60).map(|nth| {
        let offset = 128 + u64::from(nth) * STORED;
        let is_damaged = damaged.contains(&nth);
        if is_damaged {
            fs.corrupt(blob, offset + 5, 1).unwrap();
        }
        let words = vec![blob.display().to_string(), format!("offset {offset}"), name(nth)];
        (key(nth), if is_damaged { Err(words) } else { Ok(value(nth, 0)) })
    });
    wanted.collect()
}

fn name(nth: u32) -> String {
    format!("the value of key \"{}\"", key(nth).escape_ascii())
}

fn assert_told(error: &crate::Error, words: &[String]) {
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}: {words:?}");
}

fn assert_item(item: Option<crate::Result<(crate::Key, Value)>>, wanted: Option<&Wanted>) {
    match (item, wanted) {
        (None, None) => {}
        (Some(Ok((key, value))), Some((wanted_key, Ok(wanted)))) => {
            assert!(key == *wanted_key && value == *wanted, "{key:?}");
        }
        (Some(Err(error)), Some((_, Err(words)))) => assert_told(&error, words),
        (item, wanted) => panic!("{item:?} for {wanted:?}"),
    }
}

/// Takes all from the ends that `is_back` draws.
fn assert_yields(mut range: Range<'_>, mut left: &[Wanted], mut is_back: impl FnMut() -> bool) {
    loop {
        let (item, taken) = match is_back() {
            true => (range.next_back(), left.split_last()),
            false => (range.next(), left.split_first()),
        };
        assert_item(item, taken.map(|(wanted, _)| wanted));
        let Some((_, rest)) = taken else { break };
        left = rest;
    }
    assert!(range.next().is_none() && range.next_back().is_none());
}

fn assert_all(ranges: &dyn Fn() -> Range<'static>, wanted: &[Wanted]) {
    assert_yields(ranges(), wanted, || false);
    assert_yields(ranges(), wanted, || true);
    for seed in 0..20 {
        let mut draw = Draw::new(seed);
        assert_yields(ranges(), wanted, || draw.below(2) == 0);
    }
}

#[test]
fn each_damaged_value_is_an_error_in_its_place_and_the_other_keys_follow() {
    for io in [IoMode::Positional, IoMode::Mapped] {
        let fs = MemoryFs::new();
        drop(filled(&fs, 60, 0));
        let wanted = damaged(&fs, &DAMAGED);
        let db = options(&fs).io(io).block_cache(0).open("/db").unwrap();
        let snapshot = db.snapshot();
        assert_all(&|| db.range(..), &wanted);
        assert_all(&|| snapshot.range(..), &wanted);
        assert_all(&|| db.range(key(20)..=key(41)), &wanted[20..=41]);
        let tx = db.begin();
        assert_yields(tx.range(..), &wanted, || false);
        assert_yields(tx.prefix("key "), &wanted, || true);
        tx.rollback();
        let is_told = |(item, (_, wanted)): (Result<Value>, &Wanted)| match (item, wanted) {
            (Ok(value), Ok(wanted)) => assert_eq!(value, *wanted),
            (item, wanted) => assert_told(&item.unwrap_err(), wanted.as_ref().unwrap_err()),
        };
        db.range(..).values().zip(&wanted).for_each(is_told);
        db.range(..).values().rev().zip(wanted.iter().rev()).for_each(is_told);
        let before = fetched(&db).1;
        assert_yields(db.range(..), &wanted, || false);
        let reads = fetched(&db).1 - before;
        assert!(io == IoMode::Mapped || reads < 20, "{reads} reads though values were read ahead");
        assert_eq!(db.range(..).keys().map(Result::unwrap).count(), 60);
        assert_eq!(db.count(..).unwrap(), 60);
    }
}

#[test]
fn a_get_of_a_damaged_value_names_it_and_fails_the_gets_made_with_it() {
    let fs = MemoryFs::new();
    drop(filled(&fs, 60, 0));
    let wanted = damaged(&fs, &DAMAGED);
    let db = options(&fs).block_cache(0).open("/db").unwrap();
    for (key, wanted) in &wanted {
        match (db.get(key), wanted) {
            (Ok(found), Ok(wanted)) => assert_eq!(found.unwrap(), *wanted),
            (found, wanted) => {
                let words = wanted.as_ref().unwrap_err();
                assert_told(&found.unwrap_err(), words);
                assert_told(&db.multi_get([key]).unwrap_err(), words);
                assert_told(&db.get_reader(key).unwrap_err(), words);
                assert_told(&db.with(ReadOptions::new()).get_expiry(key).unwrap_err(), words);
            }
        }
    }
    let error = db.multi_get([key(50), key(41), key(3), key(20)]).unwrap_err();
    assert_told(&error, &[name(20)]);
    assert_eq!(db.multi_get([key(50), key(3)]).unwrap().len(), 2);
}

#[test]
fn a_cursor_goes_on_over_damaged_values() {
    let fs = MemoryFs::new();
    drop(filled(&fs, 60, 0));
    let wanted = damaged(&fs, &DAMAGED);
    let db = options(&fs).block_cache(0).open("/db").unwrap();
    let assert_entry = |entry: crate::Entry<'_>, (key, wanted): &Wanted| {
        assert_eq!((entry.key(), entry.value_len()), (&key[..], LEN as u64));
        match wanted {
            Ok(wanted) => assert_eq!(entry.value().unwrap(), wanted),
            Err(words) => {
                assert_told(&entry.value().unwrap_err(), words);
                assert_told(&entry.pin().unwrap_err(), words);
            }
        }
    };
    let mut cursor = db.cursor(..).unwrap();
    wanted.iter().for_each(|wanted| assert_entry(cursor.next().unwrap().unwrap(), wanted));
    assert!(cursor.next().unwrap().is_none());
    wanted.iter().rev().for_each(|wanted| assert_entry(cursor.prev().unwrap().unwrap(), wanted));
    assert!(cursor.prev().unwrap().is_none());
}

/// Of the two files in which neighbours have values, one is gone.
#[test]
fn values_of_a_missing_file_are_errors_and_those_of_others_are_read() {
    let fs = MemoryFs::new();
    let db = options(&fs).open("/db").unwrap();
    for parity in [0, 1] {
        (0..60).filter(|nth| nth % 2 == parity).for_each(|nth| {
            db.put(key(nth), value(nth, 0)).unwrap();
        });
        db.flush().unwrap();
    }
    db.close().unwrap();
    let blobs = blobs(&fs);
    assert_eq!(blobs.len(), 2);
    let gone = blobs.iter().min().unwrap();
    // An open would notice that it is gone, so it goes behind that.
    let missing = Fault::on(FileOp::OpenRead).kind(io::ErrorKind::NotFound).forever();
    fs.inject(missing.suffix(gone.to_str().unwrap()));
    let db = options(&fs).block_cache(0).open("/db").unwrap();
    let wanted: Vec<Wanted> = (0..60)
        .map(|nth| {
            let offset = 128 + u64::from(nth / 2) * STORED;
            let words = vec![gone.display().to_string(), format!("offset {offset}"), name(nth)];
            (key(nth), if nth % 2 == 0 { Err(words) } else { Ok(value(nth, 0)) })
        })
        .collect();
    assert_all(&|| db.range(..), &wanted);
    assert_eq!(db.range(..).next().unwrap().unwrap_err().name(), "IO");
    assert_told(&db.get(key(6)).unwrap_err(), &[name(6), "offset".to_owned()]);
    assert_told(&db.multi_get([key(7), key(6)]).unwrap_err(), &[name(6), "offset".to_owned()]);
    fs.clear_faults();
    assert!(db.range(..).all(|item| item.is_ok()), "it is asked for anew");
}

/// The device fails for a while, with a chunk of other values in the scan's hands.
#[test]
fn a_scan_goes_on_once_its_file_can_be_read_again() {
    for is_back in [false, true] {
        let fs = MemoryFs::new();
        let db = filled(&fs, 200, 0);
        let blob = blobs(&fs).remove(0);
        let fault = Fault::on(FileOp::Read).suffix(blob.to_str().unwrap()).forever();
        let (mut range, mut refused) = (db.range(..), 0);
        for at in 0..200 {
            match at {
                50 => fs.inject(fault.clone()),
                150 => fs.clear_faults(),
                _ => {}
            }
            let nth = if is_back { 199 - at } else { at };
            match if is_back { range.next_back() } else { range.next() }.unwrap() {
                Ok(item) => assert!(item.0 == key(nth) && item.1 == value(nth, 0), "{nth}"),
                Err(error) => {
                    assert!((50..150).contains(&at) && error.name() == "IO", "{error}");
                    let offset = 128 + u64::from(nth) * STORED;
                    assert_told(&error, &[name(nth), format!("offset {offset}")]);
                    refused += 1;
                }
            }
        }
        assert!(range.next().is_none() && refused > 50, "{refused}");
    }
}

/// What a family with operands has: for each key a value in a blob file with an operand above it.
/// The operands are flushed by a close, behind which no compaction folds them.
fn appended(fs: &MemoryFs) -> (Db, crate::Family, Vec<Wanted>) {
    let with = FamilyOptions::new().separate_from(100).merge_operator("isobath.append");
    let db = options(fs).open("/db").unwrap();
    let family = db.family(("f", with.clone())).unwrap();
    (0..60).for_each(|nth| _ = family.put(key(nth), value(nth, 0)).unwrap());
    db.flush().unwrap();
    (0..60).for_each(|nth| _ = family.merge(key(nth), "!").unwrap());
    db.close().unwrap();
    let mut wanted = damaged(fs, &DAMAGED);
    for (_, value) in wanted.iter_mut() {
        let Ok(value) = value else { continue };
        value.push(b'!');
    }
    let db = options(fs).block_cache(0).open("/db").unwrap();
    let family = db.family(("f", with)).unwrap();
    (db, family, wanted)
}

#[test]
fn operands_over_a_damaged_value_are_an_error_in_the_place_of_their_key() {
    let fs = MemoryFs::new();
    let (db, family, wanted) = appended(&fs);
    assert_all(&|| family.range(..), &wanted);
    let tx = db.begin();
    assert_yields(tx.of(&family).range(..), &wanted, || false);
    tx.rollback();
    // To show their keys alone takes their values, too.
    let without = |(key, wanted): &Wanted| match wanted {
        Ok(_) => (key.clone(), Ok(Vec::new())),
        Err(words) => (key.clone(), Err(words.clone())),
    };
    let (mut keys, empty) = (family.range(..).keys(), Value::default());
    for wanted in wanted.iter().map(without) {
        let item = keys.next().map(|key| key.map(|key| (key, empty.clone())));
        assert_item(item, Some(&wanted));
    }
    assert!(keys.next().is_none());
    assert_told(&family.count(..).unwrap_err(), &[name(0)]);
    assert_told(&family.pop_first(..).unwrap_err(), &[name(0)]);
    assert_eq!(family.count(key(1)..key(20)).unwrap(), 19);
}

#[test]
fn a_range_of_keys_alone_shows_plain_keys_behind_those_that_it_must_refuse() {
    let fs = MemoryFs::new();
    let (db, family, wanted) = appended(&fs);
    for nth in (0..60).filter(|nth| !DAMAGED.contains(nth)) {
        family.put(key(nth), "plain").unwrap();
    }
    for seed in 0..40 {
        if seed == 20 {
            db.flush().unwrap();
        }
        let (mut draw, mut keys, mut left) =
            (Draw::new(seed), family.range(..).keys(), &wanted[..]);
        while let Some((item, (wanted, rest))) = match draw.below(2) == 0 {
            true => left.split_last().map(|taken| (keys.next_back(), taken)),
            false => left.split_first().map(|taken| (keys.next(), taken)),
        } {
            match (item.unwrap(), wanted) {
                (Ok(key), (wanted, Ok(_))) => assert_eq!(key, *wanted),
                (item, (_, wanted)) => {
                    assert_told(&item.unwrap_err(), wanted.as_ref().unwrap_err());
                }
            }
            left = rest;
        }
        assert!(keys.next().is_none() && keys.next_back().is_none());
    }
}

#[test]
fn a_cursor_tells_of_operands_over_a_damaged_value_once_and_goes_on_with_the_next_step() {
    let fs = MemoryFs::new();
    let (db, family, wanted) = appended(&fs);
    let tx = db.begin();
    for mut cursor in [family.cursor(..).unwrap(), tx.of(&family).cursor(..).unwrap()] {
        let mut step = |is_back: bool, (key, wanted): &Wanted| {
            let moved = if is_back { cursor.prev() } else { cursor.next() };
            match (moved, wanted) {
                (Ok(entry), Ok(wanted)) => {
                    let entry = entry.unwrap();
                    assert_eq!((entry.key(), entry.value().unwrap()), (&key[..], &wanted[..]));
                }
                (moved, wanted) => {
                    assert_told(&moved.unwrap_err(), wanted.as_ref().unwrap_err());
                    assert!(cursor.entry().is_none());
                }
            }
        };
        wanted.iter().for_each(|wanted| step(false, wanted));
        assert!(cursor.next().unwrap().is_none());
        let mut step = |wanted: &Wanted| match (cursor.prev(), &wanted.1) {
            (Ok(entry), Ok(_)) => assert_eq!(entry.unwrap().key(), wanted.0),
            (moved, told) => assert_told(&moved.unwrap_err(), told.as_ref().unwrap_err()),
        };
        wanted.iter().rev().for_each(&mut step);
        assert!(cursor.prev().unwrap().is_none());
        // Seeks are told as well, and the cursor stands where they have led.
        assert_told(&cursor.seek(key(20)).unwrap_err(), &[name(20)]);
        assert_told(&cursor.next().unwrap_err(), &[name(21)]);
        assert_eq!(cursor.next().unwrap().unwrap().key(), key(22));
        assert_told(&cursor.seek_for_prev(key(41)).unwrap_err(), &[name(41)]);
        assert_eq!(cursor.prev().unwrap().unwrap().key(), key(40));
        assert_told(&cursor.last().unwrap_err(), &[name(59)]);
        assert_eq!(cursor.prev().unwrap().unwrap().key(), key(58));
        assert_told(&cursor.first().unwrap_err(), &[name(0)]);
        assert_eq!(cursor.next().unwrap().unwrap().key(), key(1));
    }
    tx.rollback();
}

/// A transaction relies on keys whose values it could not read as on others: it was told that they
/// are there.
#[test]
fn a_key_whose_value_cannot_be_read_counts_as_read() {
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        for (written, conflicts) in [(20, true), (30, false)] {
            let fs = MemoryFs::new();
            drop(filled(&fs, 60, 0));
            damaged(&fs, &DAMAGED);
            let db = options(&fs).open("/db").unwrap();
            let tx = db.with(TransactionOptions::new().isolation(isolation)).begin();
            assert_eq!(tx.range(key(19)..key(23)).filter(|item| item.is_err()).count(), 2);
            tx.put("own", "value").unwrap();
            db.put(key(written), "other").unwrap();
            assert_eq!(tx.commit().is_err_and(|error| error.is_conflict()), conflicts);
        }
    }
}
