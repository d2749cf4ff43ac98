//! Damage to databases in which families share their files.

use super::*;
use crate::format::FILE_HEADER_LEN;
use crate::version::CURRENT;

const CLONE: &str = "clone";
/// The distance between damaged bytes of a file; a prime number.
const STEP: usize = 41;

/// Two families with a table in common, whose slice is in no level of the one any more, or is in a
/// level of both; each has a run of its own and keys in the log, and a run that both share.
fn left_behind(source_goes_on: bool) -> (MemoryFs, Content) {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let of = FamilyOptions::new().block_size(256).separate_from(90);
    let users = db.family((USERS, of)).unwrap();
    let long = |n: u32| value(n).into_iter().chain([n as u8; 60]).collect::<Vec<_>>();
    for n in 0..KEYS {
        users.put(key(n), if n % 5 == 0 { long(n) } else { value(n) }).unwrap();
        db.put(key(n), value(n)).unwrap();
    }
    users.compact(..).unwrap();
    for n in (0..KEYS).step_by(2) {
        users.put(key(n), value(n + 1)).unwrap();
    }
    let clone = db.clone_family(&users, CLONE).unwrap();
    for n in (0..KEYS).step_by(3) {
        users.put(key(n), value(n + 2)).unwrap();
        clone.put(key(n), value(n + 3)).unwrap();
    }
    db.flush().unwrap();
    if source_goes_on {
        users.compact(..).unwrap();
    }
    clone.put("in the log", "value").unwrap();
    db.sync().unwrap();
    let content = content(&db);
    (fs.killed(), content)
}

#[test]
fn a_sound_database_with_a_clone_is_left_alone() {
    for source_goes_on in [false, true] {
        let (fs, expected) = left_behind(source_goes_on);
        let (report, found) = repaired(&fs);
        assert!(report.is_sound(), "{report:?}");
        assert_eq!(found, expected);
    }
}

#[test]
fn damage_to_a_shared_file_is_a_loss_of_both_families_and_of_nothing_more() {
    let mut lost_in_both = 0;
    for source_goes_on in [false, true] {
        let (fs, expected) = left_behind(source_goes_on);
        for table in tables(&fs) {
            for at in (0..bytes(&fs, &table).len()).step_by(STEP) {
                let fs = fs.killed();
                fs.corrupt(&table, at as u64, 0x41).unwrap();
                let (report, found) = repaired(&fs);
                let is_older =
                    |(key, value): (&(String, Vec<u8>), &Vec<u8>)| expected.get(key) != Some(value);
                // Where a newer version is lost, an older one shows.
                let older: Vec<_> = found.iter().filter(|row| is_older(*row)).collect();
                let is_named = |(family, key): &(String, Vec<u8>)| {
                    report.losses.iter().any(|loss| {
                        loss.family_name.as_ref().is_none_or(|name| name == family)
                            && loss.keys.as_ref().is_none_or(|(from, to)| from <= key && key <= to)
                    })
                };
                let missing = expected.keys().filter(|key| !found.contains_key(*key));
                for key in older.iter().map(|(key, _)| *key).chain(missing) {
                    assert!(is_named(key), "{key:?}, {table:?} at {at}: {report:?}");
                }
                let has_lost = |name: &str| {
                    let of = |loss: &&crate::tools::Loss| loss.family_name.as_deref() == Some(name);
                    report.losses.iter().any(|loss| of(&loss))
                };
                lost_in_both += u32::from(has_lost(USERS) && has_lost(CLONE));
            }
        }
    }
    assert!(lost_in_both > 20, "{lost_in_both}");
}

#[test]
fn a_missing_shared_file_is_told_for_both() {
    let (fs, _) = left_behind(false);
    let (mut of_both, mut of_one) = (0, 0);
    for table in tables(&fs) {
        let fs = fs.killed();
        fs.remove(&table).unwrap();
        let verified = verify(Path::new(DB), &env(&fs), &mut |_, _| ()).unwrap();
        assert!(!verified.is_clean());
        let (report, _) = repaired(&fs);
        let named: std::collections::BTreeSet<_> =
            report.losses.iter().filter_map(|loss| loss.family_name.clone()).collect();
        let has = |name: &str| named.contains(name);
        of_both += u32::from(has(USERS) && has(CLONE));
        of_one += u32::from(has(USERS) != has(CLONE));
    }
    assert!(of_both >= 2, "{of_both} and {of_one}");
}

#[test]
fn a_manifest_that_is_damaged_anywhere_costs_neither_family_a_key() {
    for source_goes_on in [false, true] {
        let (fs, expected) = left_behind(source_goes_on);
        let manifest = manifests(&fs).pop().unwrap();
        let len = bytes(&fs, &manifest).len();
        for at in (0..len).step_by(17) {
            let fs = fs.killed();
            fs.corrupt(&manifest, at as u64, 0x41).unwrap();
            let report = run(&fs, false).unwrap();
            let db = options(&fs).open(DB).unwrap();
            let found = content(&db);
            let of = |content: &Content, name: &str| {
                let rows = content.iter().filter(|((family, _), _)| family == name);
                rows.map(|((_, key), value)| (key.clone(), value.clone())).collect::<Vec<_>>()
            };
            assert_eq!(of(&found, USERS), of(&expected, USERS), "{at}: {report:?}");
            // If the record of the clone itself is lost, what it shares is not known to be its own.
            if of(&found, CLONE) != of(&expected, CLONE) {
                let told = report.guesses.iter().any(|guess| guess.contains("clone of family"));
                assert!(told, "{at}: {report:?}");
            }
            db.close().unwrap();
            let verified = verify(Path::new(DB), &env(&fs), &mut |_, _| ()).unwrap();
            assert!(verified.is_clean(), "{at}: {verified:?}");
        }
    }
}

#[test]
fn without_a_manifest_the_source_has_what_both_shared_and_the_report_says_so() {
    for source_goes_on in [false, true] {
        let (fs, expected) = left_behind(source_goes_on);
        manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
        fs.remove(&Path::new(DB).join(CURRENT)).unwrap();
        let report = run(&fs, false).unwrap();
        let told = report.guesses.iter().filter(|guess| guess.contains("clone of family"));
        assert_eq!(told.count(), 1, "{report:?}");
        let db = options(&fs).open(DB).unwrap();
        for (row, value) in content(&db) {
            assert_eq!(expected.get(&row), Some(&value), "{row:?}");
        }
        let count = |name: &str| db.family_if_exists(name).unwrap().unwrap().count(..).unwrap();
        assert_eq!(count(USERS), u64::from(KEYS));
        assert_eq!(count(CLONE), u64::from(KEYS.div_ceil(3)) + 1);
    }
}

/// The log has what a clone shares under the name of the source.
#[test]
fn what_a_clone_loses_of_a_shared_slice_is_told_though_the_log_has_it() {
    let left = MemoryFs::new();
    let db = options(&left).open(DB).unwrap();
    let users = db.family((USERS, FamilyOptions::new().block_size(256))).unwrap();
    for n in 0..KEYS {
        users.put(key(n), value(n)).unwrap();
    }
    db.sync().unwrap();
    db.clone_family(&users, CLONE).unwrap();
    let expected = content(&db);
    let left = left.killed();
    left.corrupt(&manifests(&left)[0], FILE_HEADER_LEN as u64 + 20, 1).unwrap();
    let table = tables(&left).remove(0);
    for loses_all in [false, true] {
        let fs = left.killed();
        match loses_all {
            true => fs.truncate(&table, FILE_HEADER_LEN as u64).unwrap(),
            false => fs.corrupt(&table, FILE_HEADER_LEN as u64 + 300, 1).unwrap(),
        }
        let (report, found) = repaired(&fs);
        check_losses(&report, &found, &expected);
        let count = |name: &str| found.keys().filter(|(family, _)| family == name).count() as u32;
        assert_eq!(count(USERS), KEYS, "{loses_all}: {report:?}");
        assert_eq!(count(CLONE) == 0, loses_all, "{report:?}");
    }
}

#[test]
fn the_tables_of_a_first_repair_tell_a_second_one_that_a_family_is_a_clone() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let users = db.family((USERS, FamilyOptions::new().block_size(256))).unwrap();
    for n in 0..KEYS {
        users.put(key(n), value(n)).unwrap();
    }
    db.sync().unwrap();
    db.clone_family(&users, CLONE).unwrap();
    let fs = fs.killed();
    let shared = tables(&fs).remove(0);
    fs.corrupt(&shared, FILE_HEADER_LEN as u64 + 300, 1).unwrap();
    assert!(!run(&fs, false).unwrap().losses.is_empty());
    let again = fs.killed();
    let db = options(&again).create_if_missing(false).open(DB).unwrap();
    let expected = content(&db);
    drop(db);
    let of_clone = expected.keys().filter(|(family, _)| family == CLONE).count() as u32;
    assert!((KEYS / 2..KEYS).contains(&of_clone), "{of_clone}");
    manifests(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    fs.remove(&Path::new(DB).join(CURRENT)).unwrap();
    let made = tables(&fs).pop().unwrap();
    // The slices lie in the order of the families' ids.
    let at = bytes(&fs, &made).len() as u64 / 2 + 300;
    fs.corrupt(&made, at, 1).unwrap();
    let (report, found) = repaired(&fs);
    check_losses(&report, &found, &expected);
    let left = found.keys().filter(|(family, _)| family == CLONE).count() as u32;
    assert!((of_clone / 2..of_clone).contains(&left), "{left} of {of_clone}: {report:?}");
}
