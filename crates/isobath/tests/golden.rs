//! Databases of every format that was ever in use, stored under `golden/v*`. Each opens, verifies,
//! holds its recorded content, and can be written to.
//!
//! `golden/vN/db` is a database whose process was killed, with something of every structure in it.
//! `golden/vN/contents.txt` is its content, one line for each key. `vN` was made when version N of
//! the format landed. `vN.1`, `vN.2` and so on were made when something was added that older
//! versions ignore.
//!
//! If the newest one lacks something that databases now hold, `ISOBATH_UPDATE_GOLDEN=1 cargo test
//! -p isobath --test golden` adds the next one. No existing one is ever made again. The function
//! `fill` must produce what is new.

use isobath::env::Env;
use isobath::tools::{self, DumpItem, Field, RepairOptions};
use isobath::vfs::{DirEntry, Fault, FileAccess, FileOp, FileSystem, MemoryFs};
use isobath::{Batch, Codec, Db, Family, FamilyOptions, IoMode, Options, Result, Streamed, Xid};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// The offset of the format's version in the header of every file.
const VERSION_AT: usize = 10;
/// The kind of file in every header, and the length of one.
const KIND_AT: usize = 8;
const HEADER_LEN: usize = 128;
/// The header page of a log segment; data follows.
const SEGMENT_HEADER_LEN: u64 = 4096;
/// The folders of a database, with its own.
const DIRS: [&str; 4] = ["", "table", "wal", "spill"];
/// Longer values are known by their length and a hash.
const SHOWN_LEN_MAX: usize = 2048;
/// The length of a value that has a file of its own: two frames.
const STREAM_LEN: u64 = 300 << 10;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn options() -> Options {
    Options::new().write_buffer(64 << 10).block_cache(1 << 20).compaction_threads(1)
}

fn of(fs: &MemoryFs) -> Env {
    Env { fs: Arc::new(fs.clone()), ..Env::system() }
}

fn in_memory(fs: &MemoryFs) -> Options {
    options().env(of(fs))
}

/// Everything in a database, one line for each key, in the form of `contents.txt`. Reads it in both
/// directions and by key.
fn contents(db: &Db) -> Result<String> {
    let mut out = String::new();
    for name in db.list_families() {
        let family = db.family_if_exists(&name)?.expect("there is one");
        let forward: Vec<_> = family.range(..).collect::<Result<_>>()?;
        let mut backward: Vec<_> = family.range(..).rev().collect::<Result<_>>()?;
        backward.reverse();
        assert_eq!(forward, backward);
        writeln!(out, "[{name}]").unwrap();
        for (key, value) in &forward {
            assert_eq!(family.get(key)?.as_ref(), Some(value));
            writeln!(out, "{}\t{}", key.escape_ascii(), shown(value)).unwrap();
        }
    }
    let in_doubt = db.in_doubt();
    if !in_doubt.is_empty() {
        writeln!(out, "in doubt:").unwrap();
    }
    in_doubt.iter().for_each(|one| writeln!(out, "{}\t{} bytes", one.xid, one.bytes).unwrap());
    Ok(out)
}

/// A value as `contents.txt` has it.
fn shown(value: &[u8]) -> String {
    if value.len() <= SHOWN_LEN_MAX {
        return value.escape_ascii().to_string();
    }
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = value.iter().fold(0xcbf2_9ce4_8422_2325, step);
    format!("{} bytes of FNV-1a {hash:016x}", value.len())
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

fn check(golden: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    copy(&golden.join("db"), &path);
    let report = tools::verify(&path, &Env::system(), &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{report:#?}");
    assert!(report.log_records > 0 && report.slices > 0, "{report:#?}");
    let expected = fs::read_to_string(golden.join("contents.txt")).unwrap();
    for mode in [IoMode::Mapped, IoMode::Auto, IoMode::Positional] {
        let db = options().io(mode).create_if_missing(false).open(&path).unwrap();
        assert_eq!(contents(&db).unwrap(), expected, "{}", golden.display());
        db.close().unwrap();
    }
    // The database can be written to, and its content survives being rewritten.
    let db = options().open(&path).unwrap();
    let families: Vec<_> =
        db.list_families().iter().map(|name| db.family_if_exists(name).unwrap().unwrap()).collect();
    for family in &families {
        family.put("~new", "new").unwrap();
        family.compact(..).unwrap();
        assert_eq!(family.get("~new").unwrap().unwrap(), b"new");
        family.delete("~new").unwrap();
    }
    db.close().unwrap();
    let db = options().open(&path).unwrap();
    assert_eq!(contents(&db).unwrap(), expected, "{} rewritten", golden.display());
    for one in db.in_doubt() {
        db.commit_prepared(&one.xid).unwrap();
        assert_eq!(db.get([b"prepared/", one.xid.as_bytes()].concat()).unwrap().unwrap(), "now");
    }
    db.close().unwrap();
    assert!(tools::verify(&path, &Env::system(), &mut |_, _| ()).unwrap().is_clean());
}

#[test]
fn every_format_that_ever_landed_opens_and_holds_what_it_held() {
    assert!(!states().is_empty());
    states().into_iter().for_each(|state| check(&dir_of(state)));
}

/// What a header says of blocks is known without it, of tables and blob files of all times.
#[test]
fn what_is_in_tables_is_repaired_though_all_their_headers_are_lost() {
    for state in states() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        copy(&dir_of(state).join("db"), &path);
        let mut damaged = 0;
        for entry in fs::read_dir(path.join("table")).unwrap() {
            let file = entry.unwrap().path();
            let mut bytes = fs::read(&file).unwrap();
            // A stream whose header is lost is lost.
            let mut is_stream = false;
            let mut visit = |item: &DumpItem<'_>| {
                is_stream |= item.name == "end of stream";
                Ok(())
            };
            tools::dump(&file, &Env::system(), &mut visit).unwrap();
            if [2, 3].contains(&bytes[KIND_AT]) && !is_stream {
                bytes[..HEADER_LEN].fill(0xff);
                fs::write(&file, bytes).unwrap();
                damaged += 1;
            }
        }
        assert!(damaged > 1, "{state:?}");
        let mut go_on = |_, _| ControlFlow::Continue(());
        let report = tools::repair(&path, &RepairOptions::new(), &mut go_on).unwrap();
        assert!(!report.findings.is_empty() && report.losses.is_empty(), "{state:?} {report:#?}");
        let db = options().open(&path).unwrap();
        let expected = fs::read_to_string(dir_of(state).join("contents.txt")).unwrap();
        assert!(contents(&db).unwrap() == expected, "{state:?}");
    }
}

/// `v1` is older than sketches. Each of its entries counts as a key of its own.
#[test]
fn tables_of_before_sketches_count_by_their_entries_until_they_are_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    copy(&golden().join("v1/db"), &path);
    let db = options().open(&path).unwrap();
    let plain = db.family_if_exists("plain").unwrap().unwrap();
    let before = plain.distinct_keys().unwrap();
    assert!(before.keys >= plain.count(..).unwrap() && before.keys < 40, "{before:?}");
    let family = db.family_if_exists("snappy").unwrap().unwrap();
    let before = family.distinct_keys().unwrap();
    assert!(before.unsketched_entries > 0 && before.keys > before.unsketched_entries);
    family.put("far", "new").unwrap();
    family.compact(..).unwrap();
    let after = family.distinct_keys().unwrap();
    assert_eq!((after.keys, after.unsketched_entries), (family.count(..).unwrap(), 0));
}

#[test]
fn the_golden_database_of_the_present_format_lacks_nothing_that_databases_now_hold() {
    let disk = MemoryFs::new();
    let contents = fill(&disk).unwrap();
    let present = kinds(Path::new("/db"), &of(&disk));
    let version = files(&disk).iter().filter_map(|(_, bytes)| version_of(bytes)).max().unwrap();
    let known = states().into_iter().rfind(|state| state.0 == version);
    let golden_kinds = match known {
        Some(state) => kinds(&dir_of(state).join("db"), &Env::system()),
        None => BTreeSet::new(),
    };
    let lacking: Vec<_> = present.difference(&golden_kinds).collect();
    if !lacking.is_empty() && std::env::var_os("ISOBATH_UPDATE_GOLDEN").is_some() {
        return add((version, known.map_or(0, |(_, nth)| nth + 1)), &disk, &contents);
    }
    assert!(
        lacking.is_empty(),
        "not in {known:?} of `golden/`: {lacking:?}; see the top of this file"
    );
}

fn add(state: (u16, u32), disk: &MemoryFs, contents: &str) {
    let target = dir_of(state);
    for (path, bytes) in files(disk) {
        let path = target.join("db").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::write(target.join("contents.txt"), contents).unwrap();
}

/// The states of the format that have a golden database, ascending: versions, and the additions to
/// each.
fn states() -> Vec<(u16, u32)> {
    let state = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let numbers = name.strip_prefix('v').unwrap();
        let (version, nth) = numbers.split_once('.').unwrap_or((numbers, "0"));
        (version.parse().unwrap(), nth.parse().unwrap())
    };
    let mut states: Vec<_> = fs::read_dir(golden()).unwrap().map(state).collect();
    states.sort_unstable();
    states
}

fn dir_of((version, nth): (u16, u32)) -> PathBuf {
    let nth = if nth == 0 { String::new() } else { format!(".{nth}") };
    golden().join(format!("v{version}{nth}"))
}

/// The kinds of things in a database's files, as a dump names them: each item with its fields, each
/// codec, each change of a manifest.
fn kinds(db: &Path, env: &Env) -> BTreeSet<String> {
    let mut kinds = BTreeSet::new();
    for dir in DIRS {
        for entry in list(&*env.fs, &db.join(dir)) {
            if entry.is_dir || entry.name == "LOCK" {
                continue;
            }
            // A spill file has the items of a table.
            let place = if dir == "spill" { "spill/: " } else { "" };
            let mut visit = |item: &DumpItem<'_>| {
                kinds.insert(format!("{place}{}", kind(item)));
                Ok(())
            };
            tools::dump(&db.join(dir).join(&entry.name), env, &mut visit).unwrap();
        }
    }
    kinds
}

/// What is in a folder, which older databases may not have.
fn list(fs: &dyn FileSystem, dir: &Path) -> Vec<DirEntry> {
    if fs.exists(dir).unwrap() { fs.list(dir).unwrap() } else { Vec::new() }
}

fn kind(item: &DumpItem<'_>) -> String {
    let mut kind = item.name.to_owned();
    for (name, field) in item.fields {
        kind += &format!(" {name}");
        match field {
            Field::Text(text) if ["kind", "codec"].contains(name) => kind += &format!("={text}"),
            // The words of a change before its first number.
            Field::Text(text) if item.name == "change" => {
                let is_word = |word: &&str| word.chars().all(char::is_alphabetic);
                let words: Vec<_> = text.split(' ').take_while(is_word).take(2).collect();
                kind += &words.join(" ");
            }
            _ => {}
        }
    }
    kind
}

/// The format's version in the header of a file that has one.
fn version_of(bytes: &[u8]) -> Option<u16> {
    let header = bytes.starts_with(b"ISOBATH\0").then_some(bytes)?;
    Some(u16::from_le_bytes([header[VERSION_AT], header[VERSION_AT + 1]]))
}

/// The files of the database in `/db`, by their paths in it. Log segments are cut to their written
/// part.
fn files(disk: &MemoryFs) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for dir in DIRS {
        for entry in list(disk, &Path::new("/db").join(dir)) {
            let path = Path::new(dir).join(&entry.name);
            if entry.is_dir || entry.name.ends_with(".spare") {
                continue;
            }
            let mut bytes = vec![0; entry.len as usize];
            let file = disk.open_read(&Path::new("/db").join(&path), FileAccess::Positional);
            file.unwrap().read_at(0, &mut bytes).unwrap();
            if dir == "wal" {
                let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64;
                let data_len = used.saturating_sub(SEGMENT_HEADER_LEN).max(1).next_power_of_two();
                bytes.truncate((SEGMENT_HEADER_LEN + data_len.max(4096)) as usize);
            }
            found.push((path, bytes));
        }
    }
    found
}

/// Puts a database with something of every structure on `disk`, in the state in which the death of
/// its process leaves it. Returns its content.
fn fill(disk: &MemoryFs) -> Result<String> {
    let fs = MemoryFs::new();
    first_term(&fs)?;
    let db = in_memory(&fs).open("/db")?;
    // Some are in files then, others in the log alone; of both kinds some are decided.
    ["filed", "filed, committed"].iter().try_for_each(|xid| prepare(&db, xid))?;
    db.flush()?;
    ["logged", "committed", "rolled back"].iter().try_for_each(|xid| prepare(&db, xid))?;
    db.rename_family(&db.family_if_exists("before")?.expect("there is one"), "after")?;
    db.drop_family(&db.family_if_exists("dropped")?.expect("there is one"))?;
    for (family, count) in families(&db)? {
        write(&family, 0..count, 3, "second")?;
    }
    // In tables, one within what they hold and one alone.
    let lz4 = db.family_if_exists("lz4")?.expect("there is one");
    lz4.delete_range("lz4/0004".."lz4/0009")?;
    merge_again(&db)?;
    of_ends(&db, "second")?;
    of_long_values(&db, "second")?;
    put_streams(&db, "second", long_streams(&db, "second")?)?;
    db.family_if_exists("zstd")?.expect("there is one").delete_range("zstd/0028"..)?;
    db.commit_prepared(&Xid::new("filed, committed"))?;
    db.flush()?;
    // One shares what the manifest's snapshot lists, the other what an edit names.
    db.clone_family(&lz4, "cloned again")?.delete("lz4/0001")?;
    // Their files could not be made behind that.
    let streams = long_streams(&db, "third")?;
    large(&db, &fs)?;
    db.commit_prepared(&Xid::new("committed"))?;
    db.rollback_prepared(&Xid::new("rolled back"))?;
    prepare(&db, "logged later")?;
    for (family, count) in families(&db)? {
        write(&family, count / 2..count + 2, 7, "third")?;
    }
    of_ends(&db, "third")?;
    of_long_values(&db, "third")?;
    put_streams(&db, "third", streams)?;
    db.sync()?;
    let mut batch = Batch::new();
    for (family, _) in families(&db)? {
        batch.of(&family).put("last", "of all families at once");
    }
    batch.of(&lz4).delete_prefix("lz4/002");
    batch.of(&db.family("merged")?).merge("base", ", in the log").merge("base", " twice");
    db.write(batch)?;
    let held = contents(&db)?;
    keep(&fs.killed(), disk)?;
    Ok(held)
}

/// Tables of every kind. The log of the second term holds nothing of this one.
fn first_term(fs: &MemoryFs) -> Result<()> {
    let db = in_memory(fs).history(Duration::from_secs(3600)).open("/db")?;
    let small = |codec| FamilyOptions::new().codec(codec).block_size(256);
    db.family(("lz4", small(Codec::Lz4)))?;
    db.family(("zstd", small(Codec::Zstd).filter_bits_per_key(0)))?;
    db.family(("snappy", small(Codec::Snappy).filter_bits_per_key(64)))?;
    db.family(("plain", small(Codec::None)))?;
    let dropped = db.family("dropped")?;
    of_few_keys(&db)?;
    of_ends(&db, "first")?;
    of_long_values(&db, "first")?;
    put_streams(&db, "first", long_streams(&db, "first")?)?;
    dropped.put("key", "value")?;
    for (family, count) in families(&db)? {
        write(&family, 0..count, 1, "first")?;
    }
    db.flush()?;
    // A reader keeps these files on disk beside what one or two compactions make of them.
    let plain = db.family_if_exists("plain")?.expect("there is one");
    let reader = plain.range(..);
    for (family, _) in families(&db)? {
        family.compact(..)?;
    }
    write(&plain, 0..12, 5, "between")?;
    plain.compact(..)?;
    drop(reader);
    db.clone_family(&plain, "cloned")?.put("own", "of the clone")?;
    db.close()
}

/// Copies the files of the database in `/db`.
fn keep(from: &MemoryFs, to: &MemoryFs) -> Result<()> {
    for (path, bytes) in files(from) {
        let path = Path::new("/db").join(path);
        to.create_dir_all(path.parent().unwrap())?;
        let mut file = to.create(&path)?;
        file.append(&bytes)?;
        file.flush()?;
    }
    Ok(())
}

/// Makes a family for a new name, and one with a merge operator and a key that operands change.
fn of_few_keys(db: &Db) -> Result<()> {
    db.family("before")?.put("only", "one")?;
    let merged = db.family(("merged", FamilyOptions::new().merge_operator("isobath.append")))?;
    merged.put("base", "put")?;
    merged.merge("base", ", merged").map(drop)
}

/// Puts values that lie in blob files once they are flushed. Some of them end in a hundred years.
fn of_long_values(db: &Db, round: &str) -> Result<()> {
    let century = Duration::from_secs(100 * 365 * 86_400);
    let apart = db.family(("apart", FamilyOptions::new().separate_from(60)))?;
    for key in 0..4 {
        apart.put(format!("long {key}"), format!("{round} ").repeat(20))?;
        apart.put(format!("{round} {key}"), format!("{round} {key} ").repeat(90))?;
        apart.put_ttl(format!("ends {key}"), format!("{round}, ends ").repeat(15), century)?;
    }
    apart.put("short", round)?;
    apart.delete("long 2").map(drop)
}

/// Three values that have files of their own.
fn long_streams(db: &Db, round: &str) -> Result<Vec<Streamed>> {
    let streams = db.family(("streams", FamilyOptions::new().codec(Codec::Lz4)))?;
    let stream = |nth: u8| {
        let mut writer = db.value_writer(&streams)?;
        let value = io::repeat(round.as_bytes()[0] + nth).take(STREAM_LEN);
        io::copy(&mut { value }, &mut writer).unwrap();
        writer.finish()
    };
    (0..3).map(stream).collect()
}

/// Puts the three values, the last one so that it ends in a hundred years.
fn put_streams(db: &Db, round: &str, values: Vec<Streamed>) -> Result<()> {
    let century = Duration::from_secs(100 * 365 * 86_400);
    let streams = db.family_if_exists("streams")?.expect("there is one");
    let keys = ["each".to_owned(), format!("of {round}"), format!("ends, {round}")];
    let tx = db.begin();
    for (key, value) in keys.iter().zip(values) {
        tx.of(&streams).put_streamed(key, value)?;
    }
    tx.of(&streams).set_expiry(&keys[2], century)?;
    tx.commit()?;
    streams.put_reader("short", round.as_bytes()).map(drop)
}

/// Commits more than a write buffer: the log names the files. From here on no flush of `fs` makes a
/// table of them.
fn large(db: &Db, fs: &MemoryFs) -> Result<()> {
    let century = Duration::from_secs(100 * 365 * 86_400);
    let lz4 = db.family_if_exists("lz4")?.expect("there is one");
    let spilled = db.family(("spilled", FamilyOptions::new()))?;
    (0..3).try_for_each(|key| spilled.put(format!("before {key}"), "in a table").map(drop))?;
    db.flush()?;
    // Spill files have names like those of tables.
    let last = list(fs, Path::new("/db/table")).into_iter().map(|entry| entry.name).max();
    let last: u64 = last.unwrap().trim_end_matches(".tbl").parse().unwrap();
    for number in last + 1..last + 100 {
        let table = format!("table/{number:010}.tbl");
        let full = Fault::on(FileOp::Create).suffix(&table).kind(io::ErrorKind::StorageFull);
        fs.inject(full.forever());
    }
    let tx = db.begin();
    // The newest file that has a key counts, and what a range delete has before it does not.
    for round in ["one", "two", "three", "four"] {
        let family = tx.of(&spilled);
        family.delete(format!("before {}", round.len() % 3))?;
        family.put("all", round)?;
        family.put(format!("long {round}"), round.repeat(12_000 / round.len()))?;
        family.put_ttl(format!("ends {round}"), round, century)?;
        family.delete_range(format!("long {round}")..format!("long {round}!"))?;
        family.put(format!("long {round}"), round.repeat(20_000 / round.len()))?;
        tx.of(&lz4).put(format!("spilled {round}"), round)?;
    }
    tx.commit().map(drop)
}

/// Puts values that end in a hundred years, later, and at once; the log and the manifest tell the
/// time then.
fn of_ends(db: &Db, round: &str) -> Result<()> {
    let century = Duration::from_secs(100 * 365 * 86_400);
    let ends = db.family(("ends", FamilyOptions::new().ttl(century)))?;
    ends.put(format!("default, {round}"), round)?;
    ends.put_ttl(format!("far, {round}"), round, UNIX_EPOCH + 3 * century)?;
    ends.put_ttl(format!("over, {round}"), round, UNIX_EPOCH)?;
    ends.put_ttl("over", round, Duration::from_millis(1))?;
    while ends.contains("over")? {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Adds operands that a table has as such, because what they are for lies beneath.
fn merge_again(db: &Db) -> Result<()> {
    let merged = db.family_if_exists("merged")?.expect("there is one");
    merged.merge("base", ", in a table")?;
    merged.merge("alone", "nothing").map(drop)
}

/// Prepares a transaction, which has locked a key and a range besides what it writes.
fn prepare(db: &Db, xid: &str) -> Result<()> {
    let tx = db.begin();
    tx.get(format!("read/{xid}"))?;
    tx.range(format!("scanned/{xid}/")..format!("scanned/{xid}0")).count();
    tx.put(format!("prepared/{xid}"), "now")?;
    tx.prepare(xid).map(drop)
}

/// The families to fill, with their numbers of keys.
fn families(db: &Db) -> Result<Vec<(Family, u32)>> {
    let sizes = [("default", 20), ("lz4", 30), ("zstd", 30), ("snappy", 30), ("plain", 12)];
    sizes
        .iter()
        .map(|(name, count)| Ok((db.family_if_exists(name)?.expect("there is one"), *count)))
        .collect()
}

/// Writes every `step`th key. In later rounds, every other write is a delete.
fn write(family: &Family, range: std::ops::Range<u32>, step: usize, round: &str) -> Result<()> {
    for nth in range.step_by(step) {
        let name = family.name();
        // Long keys make an index of two levels.
        let prefix = if name == "snappy" { "far ".repeat(50) } else { String::new() };
        let key = format!("{prefix}{name}/{nth:04}");
        if step > 1 && nth % 2 == 1 {
            family.delete(key)?;
        } else {
            family.put(key, format!("{round} {}", "and again ".repeat(nth as usize % 5)))?;
        }
    }
    Ok(())
}
