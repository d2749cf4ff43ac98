//! Prepared transactions in damaged databases.

use super::*;
use crate::version::{read_entry, write_entry};
use crate::{Db, Xid};

fn prepare(db: &Db, xid: &str) {
    let tx = db.begin();
    tx.put(xid, "now").unwrap();
    drop(tx.prepare(xid).unwrap());
}

/// A database of a killed process: a transaction in doubt in a file, one in the log, and one of
/// each that the log commits.
fn in_doubt() -> MemoryFs {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    db.put("key", "value").unwrap();
    ["filed", "filed, committed"].iter().for_each(|xid| prepare(&db, xid));
    db.flush().unwrap();
    ["logged", "logged, committed"].iter().for_each(|xid| prepare(&db, xid));
    for xid in ["filed, committed", "logged, committed"] {
        db.commit_prepared(&Xid::new(xid)).unwrap();
    }
    fs.killed()
}

fn names(fs: &MemoryFs) -> Vec<String> {
    let db = options(fs).open(DB).unwrap();
    let names = db.in_doubt().iter().map(|one| one.xid.to_string()).collect();
    for one in db.in_doubt() {
        db.commit_prepared(&one.xid).unwrap();
        assert_eq!(db.get(one.xid.as_bytes()).unwrap().unwrap(), "now");
    }
    names
}

fn has(found: &Content, key: &str) -> bool {
    found.contains_key(&("default".to_owned(), key.into()))
}

/// The files of prepared transactions, by their names.
fn files(fs: &MemoryFs) -> BTreeMap<String, PathBuf> {
    let found = crate::tools::inspect(Path::new(DB), &env(fs)).unwrap().prepared;
    found.into_iter().map(|one| (one.xid.to_string(), one.path)).collect()
}

#[test]
fn what_can_be_read_stays_in_doubt_or_committed_though_the_manifest_is_lost() {
    for kept in [true, false] {
        let fs = in_doubt();
        assert_eq!(files(&fs).len(), 2);
        for entry in fs.list(Path::new(DB)).unwrap() {
            // Without CURRENT the manifest is found; without both, the files say what there is.
            if entry.name == "CURRENT" || entry.name.starts_with("MANIFEST") && !kept {
                fs.remove(&Path::new(DB).join(&entry.name)).unwrap();
            }
        }
        let (report, found) = repaired(&fs);
        assert!(report.losses.is_empty(), "{report:?}");
        assert!(has(&found, "filed, committed") && has(&found, "logged, committed"));
        assert!(!has(&found, "filed") && !has(&found, "logged"));
        assert_eq!(names(&fs), ["filed", "logged"]);
    }
}

#[test]
fn a_lost_file_is_named_with_its_transaction_and_so_is_a_commit_that_needs_it() {
    for (lost, is_removed) in [("filed", false), ("filed, committed", false), ("filed", true)] {
        let fs = in_doubt();
        let path = files(&fs)[lost].clone();
        match is_removed {
            true => fs.remove(&path).unwrap(),
            false => fs.corrupt(&path, 150, 1).unwrap(),
        }
        options(&fs).open(DB).unwrap_err();
        let (report, found) = repaired(&fs);
        let told: Vec<_> = report.losses.iter().map(|loss| loss.detail.as_str()).collect();
        assert!(told[0].contains(lost), "{told:?}");
        assert_eq!(told.len(), if lost == "filed" { 1 } else { 2 }, "{told:?}");
        assert_eq!(has(&found, "filed, committed"), lost == "filed");
        assert!(has(&found, "logged, committed") && has(&found, "key"));
        assert_eq!(report.moved.iter().any(|moved| moved.from == path), !is_removed);
        let left = names(&fs);
        assert_eq!(left.contains(&"filed".to_owned()), lost != "filed");
        assert!(left.contains(&"logged".to_owned()));
    }
}

/// A file of a transaction that was decided long ago is still there, and no manifest says so.
#[test]
fn of_two_that_have_locked_one_key_the_earlier_was_decided() {
    let fs = MemoryFs::new();
    let prepare = |db: &Db, xid: &str| {
        let tx = db.begin();
        tx.put("key", xid).unwrap();
        tx.put(xid, "now").unwrap();
        drop(tx.prepare(xid).unwrap());
    };
    let db = options(&fs).open(DB).unwrap();
    prepare(&db, "old");
    db.flush().unwrap();
    let path = files(&fs)["old"].clone();
    let old = read_entry(&fs, &path).unwrap();
    db.commit_prepared(&Xid::new("old")).unwrap();
    db.close().unwrap();
    let db = options(&fs).open(DB).unwrap();
    prepare(&db, "new");
    let fs = fs.killed();
    let (uuid, number) = (old.header.uuid, old.header.number);
    write_entry(&fs, Path::new(DB), uuid, number, (old.lsn, &old.payload)).unwrap();
    for entry in fs.list(Path::new(DB)).unwrap() {
        if entry.name == "CURRENT" || entry.name.starts_with("MANIFEST") {
            fs.remove(&Path::new(DB).join(&entry.name)).unwrap();
        }
    }
    let (report, found) = repaired(&fs);
    assert!(report.losses.is_empty() && has(&found, "old"), "{report:?}");
    assert!(report.guesses.iter().any(|guess| guess.contains("\"old\" was decided")), "{report:?}");
    assert_eq!(names(&fs), ["new"]);
}

/// The first repair has moved the log into a table and was interrupted then.
#[test]
fn a_second_repair_believes_the_manifest_though_the_file_of_a_transaction_is_lost() {
    use crate::vfs::{Fault, FileOp};
    for lost in ["filed", "filed, committed"] {
        let fs = in_doubt();
        fs.remove(&files(&fs)[lost]).unwrap();
        let first = run(&fs, true).unwrap();
        let tables_before = tables(&fs).len();
        fs.inject(Fault::on(FileOp::Create).suffix("CURRENT.tmp"));
        run(&fs, false).unwrap_err();
        fs.clear_faults();
        assert!(tables(&fs).len() > tables_before, "the first repair has written a table");
        let (report, found) = repaired(&fs);
        assert_eq!(report.losses, first.losses);
        let is_of_manifest = |path: &PathBuf| path.to_string_lossy().contains("MANIFEST");
        assert!(!report.findings.iter().any(|it| is_of_manifest(&it.path)), "{report:?}");
        assert!(has(&found, "logged, committed") && has(&found, "key"));
    }
}

/// It was decided since, and its file is gone because a table has what it wrote.
#[test]
fn an_old_manifest_that_names_a_transaction_in_doubt_costs_no_commit_that_is_not_told() {
    let fs = MemoryFs::new();
    let db = options(&fs).open(DB).unwrap();
    prepare(&db, "filed");
    db.flush().unwrap();
    let path = files(&fs)["filed"].clone();
    let saved = manifests(&fs).into_iter().chain([Path::new(DB).join("CURRENT")]);
    let saved: Vec<_> = saved.map(|path| (path.clone(), bytes(&fs, &path))).collect();
    db.commit_prepared(&Xid::new("filed")).unwrap();
    for _ in 0..6000 {
        db.flush().unwrap();
        if !fs.exists(&path).unwrap() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let fs = fs.killed();
    for (path, bytes) in saved {
        if fs.exists(&path).unwrap() {
            fs.remove(&path).unwrap();
        }
        fs.create(&path).unwrap().append(&bytes).unwrap();
    }
    options(&fs).open(DB).unwrap_err();
    let (report, found) = repaired(&fs);
    let is_told = report.losses.iter().any(|loss| loss.detail.contains("commit"));
    assert!(has(&found, "filed") || is_told, "{report:?}");
    assert!(names(&fs).is_empty());
}

fn lose_manifest(fs: &MemoryFs) {
    for entry in fs.list(Path::new(DB)).unwrap() {
        if entry.name == "CURRENT" || entry.name.starts_with("MANIFEST") {
            fs.remove(&Path::new(DB).join(&entry.name)).unwrap();
        }
    }
}

#[test]
fn a_file_of_another_number_or_another_database_is_not_in_doubt() {
    for is_foreign in [false, true] {
        let fs = in_doubt();
        let path = files(&fs)["filed"].clone();
        let file = read_entry(&fs, &path).unwrap();
        fs.remove(&path).unwrap();
        let number = 900;
        let (uuid, named) = match is_foreign {
            true => ([7; 16], number),
            false => (file.header.uuid, file.header.number),
        };
        write_entry(&fs, Path::new(DB), uuid, named, (file.lsn, &file.payload)).unwrap();
        let place = crate::version::table_path(Path::new(DB), number);
        if !is_foreign {
            fs.rename(&path, &place).unwrap();
        }
        lose_manifest(&fs);
        // The log has the transaction no longer, and nothing but this file.
        segments(&fs).iter().for_each(|path| fs.remove(path).unwrap());
        let (report, _) = repaired(&fs);
        assert!(report.losses.iter().any(|loss| loss.path == place), "{report:?}");
        assert!(report.moved.iter().any(|moved| moved.from == place), "{report:?}");
        assert!(!names(&fs).contains(&"filed".to_owned()));
    }
}

/// After a crash a term begins some GiB above all that is in tables.
#[test]
fn a_transaction_above_all_tables_stays_in_doubt_though_manifest_and_log_are_lost() {
    let mut fs = MemoryFs::new();
    for _ in 0..3 {
        let db = options(&fs).open(DB).unwrap();
        if tables(&fs).is_empty() {
            db.put("key", "value").unwrap();
            db.flush().unwrap();
        }
        db.sync().unwrap();
        fs = fs.killed();
    }
    let db = options(&fs).open(DB).unwrap();
    prepare(&db, "filed");
    db.flush().unwrap();
    let fs = fs.killed();
    assert_eq!(files(&fs).len(), 1);
    lose_manifest(&fs);
    segments(&fs).iter().for_each(|path| fs.remove(path).unwrap());
    let (_, found) = repaired(&fs);
    assert!(has(&found, "key"));
    assert_eq!(names(&fs), ["filed"]);
}
