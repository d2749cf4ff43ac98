//! Logs whose records are whole and decode, and which no replay accepts: a bug makes one, or a
//! manifest that has lost the edit of a clone.

use super::*;
use crate::error::{Error, ErrorKind};
use crate::format::{
    DEFAULT_FAMILY, Decision, FamilyId, LockedRange, Lsn, Op, OpKind, Payload, Prepare, put_payload,
};
use crate::table::Codec;
use crate::tools::Finding;
use crate::version::{Change, Edit};
use crate::wal::{self, RECORD_HEADER_LEN};
use crate::{Db, Xid};
use std::iter;

/// Writes a record to the log, as no call does. Returns its LSN.
pub(super) fn forge(db: &Db, payload: &Payload<'_>) -> Lsn {
    let mut record = vec![0; RECORD_HEADER_LEN];
    put_payload(&mut record, payload);
    let mut record = wal::seal(&mut record);
    let log = &db.engine().log;
    let mut reservation = log.reserve(record.len() as u64).unwrap();
    let (start, end) = (reservation.start(), reservation.end());
    reservation.write(&mut record);
    reservation.publish();
    log.wait_visible(end).unwrap();
    start
}

fn forge_one(payload: Payload<'_>) -> impl Fn(&Db) {
    move |db| assert!(forge(db, &payload) > 0)
}

pub(super) fn put(family: FamilyId, key: &[u8]) -> Op<'_> {
    Op { kind: OpKind::Put, family, key, value: b"forged" }
}

pub(super) fn prepare<'a>(xid: &'a [u8], ops: Vec<Op<'a>>) -> Payload<'a> {
    Payload::Prepare(Prepare { xid, isolation: 0, ops, keys: Vec::new(), ranges: Vec::new() })
}

pub(super) fn commit(xid: &[u8], prepared: Lsn) -> Payload<'_> {
    Payload::Decide(Decision { is_commit: true, xid, prepared })
}

/// A database as a killed process leaves it: a table, and a log with `forged` between other
/// records. Two transactions are in doubt, one of them in a file.
fn left_behind(forge: &dyn Fn(&Db)) -> (MemoryFs, Content) {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    let users = db.family(USERS).unwrap();
    let doubt = |xid: &str| {
        let tx = db.begin();
        tx.put(xid, "now").unwrap();
        drop(tx.prepare(xid).unwrap());
    };
    db.put(key(1), value(1)).unwrap();
    doubt("filed");
    db.flush().unwrap();
    doubt("logged");
    users.put(key(2), value(2)).unwrap();
    forge(&db);
    db.put(key(3), value(3)).unwrap();
    users.put(key(4), value(4)).unwrap();
    db.sync().unwrap();
    let expected = content(&db);
    assert_eq!(expected.len(), 4);
    (fs.killed(), expected)
}

fn in_doubt(fs: &MemoryFs) -> Vec<String> {
    let db = options(fs).open(DB).unwrap();
    db.in_doubt().iter().map(|one| one.xid.to_string()).collect()
}

/// An open refuses it, `verify` and `repair` say so, and then all but that is there.
#[track_caller]
fn check(forge: &dyn Fn(&Db), why: &str, losses: usize) {
    let (fs, expected) = left_behind(forge);
    let refused = options(&fs).open(DB).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Corruption { .. }), "{refused}");
    let verified = verify(Path::new(DB), &env(&fs), &mut |_, _| ()).unwrap();
    assert!(verified.findings.iter().any(|it| it.detail.contains(why)), "{verified:?}");
    let (report, found) = repaired(&fs);
    assert_eq!(found, expected, "{report:?}");
    assert!(report.losses.iter().any(|loss| loss.detail.contains(why)), "{report:?}");
    assert_eq!(report.losses.len(), losses, "{report:?}");
    assert!(report.guesses.is_empty(), "{report:?}");
    assert_eq!(in_doubt(&fs), ["filed", "logged"]);
}

/// Older versions noted ranges between a key and its successor, which hold no key.
#[test]
fn a_locked_range_that_holds_no_key_puts_no_one_aside() {
    let locking = |xid, key, lower, upper| {
        let (family, upper) = (DEFAULT_FAMILY, Some(upper));
        let range = LockedRange { family, is_exclusive: true, lower, upper };
        let (ops, keys, ranges) = (vec![put(family, key)], Vec::new(), vec![range]);
        Payload::Prepare(Prepare { xid, isolation: 0, ops, keys, ranges })
    };
    let (fs, expected) = left_behind(&|db| {
        forge(db, &locking(b"of nothing", b"of nothing", b"g\0", b"g\0"));
        forge(db, &locking(b"of g and h", b"of g and h", b"g", b"i"));
    });
    let all = in_doubt(&fs);
    assert_eq!(all.len(), 4);
    let (report, found) = repaired(&fs);
    assert!(report.is_sound() && report.losses.is_empty(), "{report:?}");
    assert_eq!((found, in_doubt(&fs)), (expected, all));
}

/// The family may be a clone, which no record makes, and its edit may be gone.
#[test]
fn operations_of_a_family_that_no_one_knows_are_kept_under_a_name_of_its_own() {
    let of = |family| vec![put(DEFAULT_FAMILY, b"beside"), put(family, b"key")];
    let prepared = |db: &Db| {
        let lsn = forge(db, &prepare(b"forged", of(7)));
        forge(db, &commit(b"forged", lsn));
    };
    let once = |db: &Db| assert!(forge(db, &Payload::Batch(of(7))) > 0);
    let twice = |db: &Db| (0..2).for_each(|_| once(db));
    for forged in [&once as &dyn Fn(&Db), &twice, &prepared] {
        let (fs, mut expected) = left_behind(forged);
        let refused = options(&fs).open(DB).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Corruption { .. }), "{refused}");
        let verified = verify(Path::new(DB), &env(&fs), &mut |_, _| ()).unwrap();
        let is_told = |finding: &&Finding| finding.detail.contains("never created");
        assert_eq!(verified.findings.iter().filter(is_told).count(), 1, "{verified:?}");
        let (report, found) = repaired(&fs);
        for (family, key) in [("default", b"beside".to_vec()), ("recovered-7", b"key".to_vec())] {
            expected.insert((family.to_owned(), key), b"forged".to_vec());
        }
        assert_eq!(found, expected, "{report:?}");
        assert!(report.findings[0].detail.contains("never created"), "{report:?}");
        assert!(report.guesses.iter().any(|it| it.contains("recovered-7")), "{report:?}");
        assert_eq!(
            (report.losses.len(), in_doubt(&fs)),
            (0, vec!["filed".to_owned(), "logged".to_owned()])
        );
    }
}

/// Options that no open by this build accepts: of a later version, and with a codec that is not
/// there.
fn of_other_builds() -> Vec<Vec<u8>> {
    let missing = Codec::ALL.into_iter().find(|codec| !codec.is_available());
    let with_codec = missing.map(|codec| FamilyOptions::new().codec(codec).to_stored());
    iter::once(br#"{"!adds":true}"#.to_vec()).chain(with_codec).collect()
}

/// True if the error leaves this file to a later version, or to a build with another codec.
fn leaves(error: &Error, to_read: &Path) -> bool {
    match error.kind() {
        ErrorKind::NewerFormat { path, detail } => path == to_read && detail.contains("!adds"),
        ErrorKind::MissingCodec { path, .. } => path == to_read,
        _ => false,
    }
}

/// Creates a family with these options, and puts a key into it.
fn create_with(options: &[u8], is_synced: bool) -> impl Fn(&Db) {
    move |db| {
        forge(db, &Payload::FamilyCreate { id: 7, name: "new", options });
        forge(db, &Payload::Batch(vec![put(7, b"key")]));
        if is_synced {
            // Later records say that all before them was durable.
            db.sync().unwrap();
        }
    }
}

/// Damages the record before that of a family that is created.
fn damage_before(fs: &MemoryFs) -> PathBuf {
    let segment = segments(fs).pop().unwrap();
    let at = bytes(fs, &segment).windows(7).position(|window| window == key(2)).unwrap();
    fs.corrupt(&segment, at as u64, 1).unwrap();
    segment
}

/// The process died before the family was in the manifest.
#[test]
fn a_log_that_creates_a_family_of_another_build_is_left_to_that_build() {
    for stored in of_other_builds() {
        let left = || left_behind(&create_with(&stored, true)).0;
        let whole = left();
        let segment = segments(&whole).pop().unwrap();
        assert!(leaves(&options(&whole).open(DB).unwrap_err(), &segment));
        let verified = verify(Path::new(DB), &env(&whole), &mut |_, _| ());
        assert!(leaves(&verified.unwrap_err(), &segment));
        let (damaged, without_manifest) = (left(), left());
        damage_before(&damaged);
        manifests(&without_manifest).iter().for_each(|path| without_manifest.remove(path).unwrap());
        for (fs, path) in
            [(whole, &*segment), (damaged, &*segment), (without_manifest, Path::new(DB))]
        {
            let before = everything(&fs);
            for is_dry in [true, false] {
                let error = run(&fs, is_dry).unwrap_err();
                assert!(leaves(&error, path), "{error}");
            }
            assert_eq!(everything(&fs), before);
        }
    }
}

#[test]
fn beside_a_writer_a_family_of_a_later_version_is_told_as_a_reader_is() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    create_with(br#"{"!adds":true}"#, true)(&db);
    let segment = segments(&fs).pop().unwrap();
    let verified = verify(Path::new(DB), &env(&fs), &mut |_, _| ());
    assert!(leaves(&verified.unwrap_err(), &segment));
    let reader = options(&fs).read_only(true).open(DB);
    assert!(leaves(&reader.unwrap_err(), &segment));
}

#[test]
fn a_family_of_another_build_in_the_discarded_end_of_the_log_does_not_count() {
    for stored in of_other_builds() {
        let (fs, _) = left_behind(&create_with(&stored, false));
        damage_before(&fs);
        assert!(run(&fs, false).unwrap().is_sound());
        let db = options(&fs).open(DB).unwrap();
        assert!(db.family_if_exists("new").unwrap().is_none());
    }
}

/// The manifest has the change, and the log still has its record.
#[test]
fn options_in_the_log_do_not_count_once_the_manifest_has_the_family() {
    let (fs, expected) = left_behind(&|db| {
        let lsn =
            forge(db, &Payload::FamilyCreate { id: 7, name: "new", options: b"{\"!adds\":1}" });
        let known = Change::FamiliesChanged { lsn };
        db.engine().versions.lock().install(Edit::new(vec![known]), &[]).unwrap();
    });
    let verified = verify(Path::new(DB), &env(&fs), &mut |_, _| ()).unwrap();
    assert!(verified.is_clean(), "{verified:?}");
    let (report, found) = repaired(&fs);
    assert!(report.is_sound() && found == expected, "{report:?}");
}

#[test]
fn a_family_with_a_spent_id_or_a_taken_name_is_a_loss() {
    for (id, name, why) in
        [(0, "new", "is spent"), (1, "new", "is spent"), (7, USERS, "are called")]
    {
        let create = Payload::FamilyCreate { id, name, options: b"{}" };
        check(&forge_one(create), why, 1);
    }
    let rename = Payload::FamilyRename { id: 1, name: "default" };
    check(&forge_one(rename), "are called", 1);
}

/// Only a family that no one knows explains what comes later.
#[test]
fn what_a_refused_record_does_not_explain_is_told_beside_it() {
    let forged = |db: &Db| {
        forge(db, &Payload::FamilyCreate { id: 0, name: "new", options: b"{}" });
        forge(db, &commit(b"unheard of", 4096));
    };
    check(&forged, "is spent", 2);
    check(&forged, "never prepared", 2);
}

#[test]
fn decisions_of_nothing_prepared_and_names_that_are_in_doubt_are_losses() {
    check(&forge_one(commit(b"unheard of", 4096)), "never prepared", 1);
    let lsn_of = |db: &Db, xid: &str| db.engine().prepared.find(&Xid::new(xid)).unwrap().lsn();
    let of_another = |db: &Db| assert!(forge(db, &commit(b"filed", lsn_of(db, "logged"))) > 0);
    check(&of_another, "never prepared", 1);
    for xid in ["filed", "logged"] {
        let ops = vec![put(DEFAULT_FAMILY, b"other")];
        check(&forge_one(prepare(xid.as_bytes(), ops)), "is in doubt", 1);
    }
}

/// A rollback of nothing is no fault to a replay. It must not cost the transaction that was
/// prepared there, also where the log is replayed by a repair.
#[test]
fn a_rollback_under_another_name_decides_nothing() {
    let forged = |db: &Db| {
        let prepared = db.engine().prepared.find(&Xid::new("logged")).unwrap().lsn();
        forge(db, &Payload::Decide(Decision { is_commit: false, xid: b"filed", prepared }));
    };
    let (fs, expected) = left_behind(&forged);
    assert!(run(&fs, false).unwrap().is_sound());
    // A loss elsewhere makes the repair replay the log.
    let with_loss = |db: &Db| {
        forged(db);
        forge(db, &Payload::FamilyCreate { id: 0, name: "new", options: b"{}" });
    };
    let (lossy, _) = left_behind(&with_loss);
    let (report, found) = repaired(&lossy);
    assert_eq!((found, report.losses.len()), (expected, 1), "{report:?}");
    assert_eq!(in_doubt(&lossy), ["filed", "logged"]);
    assert_eq!(in_doubt(&fs), ["filed", "logged"]);
}

/// An older build let the second one in.
#[test]
fn of_two_in_doubt_that_have_locked_one_key_the_later_is_put_aside() {
    for (key, beside) in [("filed", false), ("logged", false), ("filed", true)] {
        let forged = |db: &Db| {
            let ops = vec![put(DEFAULT_FAMILY, key.as_bytes())];
            forge(db, &prepare(b"later", ops));
            // What is lost beside it explains nothing.
            beside
                .then(|| forge(db, &Payload::FamilyCreate { id: 0, name: "new", options: b"{}" }));
        };
        let (fs, expected) = left_behind(&forged);
        let refused = options(&fs).open(DB).unwrap_err().to_string();
        assert!(beside || refused.contains("locked one key"), "{refused}");
        // A failed open may have filed it.
        for fs in [left_behind(&forged).0, fs] {
            let (report, found) = repaired(&fs);
            assert_eq!(found, expected, "{report:?}");
            assert_eq!(report.losses.len(), 1 + usize::from(beside), "{report:?}");
            let is_named = |detail: &str| detail.contains("\"later\" is put aside");
            assert!(report.losses.iter().any(|loss| is_named(&loss.detail)), "{report:?}");
            assert!(report.findings.iter().any(|it| is_named(&it.detail)), "{report:?}");
            assert!(!report.moved.is_empty() && report.guesses.is_empty(), "{report:?}");
            assert_eq!(in_doubt(&fs), ["filed", "logged"]);
        }
    }
}

/// A decision may have been lost in the gap, so the earlier one counts as decided.
#[test]
fn where_a_record_is_missing_the_earlier_of_two_counts_as_decided() {
    let forged = |db: &Db| {
        forge(db, &Payload::Batch(vec![put(DEFAULT_FAMILY, b"lost and gone")]));
        // Later records say that it was durable.
        db.sync().unwrap();
        forge(db, &prepare(b"later", vec![put(DEFAULT_FAMILY, b"logged")]));
    };
    let fs = left_behind(&forged).0;
    let segment = segments(&fs)
        .into_iter()
        .find(|path| bytes(&fs, path).windows(13).any(|window| window == b"lost and gone"));
    let segment = segment.unwrap();
    let at = bytes(&fs, &segment).windows(13).position(|window| window == b"lost and gone");
    fs.corrupt(&segment, at.unwrap() as u64, 1).unwrap();
    let (report, _) = repaired(&fs);
    assert!(report.guesses.iter().any(|it| it.contains("\"logged\" was decided")), "{report:?}");
    assert_eq!(in_doubt(&fs), ["filed", "later"]);
}
