//! Tests of damage to streams: a verification finds it, a dump shows it, and a repair loses the
//! damaged values alone.

use super::*;
use crate::format::FileKind;
use crate::options::Expiry;
use crate::tools::{Report, dump};
use std::collections::BTreeSet;
use std::iter;
use std::time::Duration;

const FRAME: usize = 64;

pub(super) fn streaming(fs: &MemoryFs) -> Options {
    let mut options = options(fs);
    options.sizes.stream_frame_len = FRAME;
    options
}

pub(super) fn long(n: u32) -> Vec<u8> {
    (0..300 + n as usize).map(|at| (at * 7 + n as usize) as u8).collect()
}

/// A database as a killed process leaves it: streams and other values in a level, in a run and in
/// the log.
fn left_behind() -> (MemoryFs, Content) {
    let fs = MemoryFs::new();
    let db = streaming(&fs).open(DB).unwrap();
    let users = db.family(USERS).unwrap();
    for stage in 0..3 {
        for n in stage * 4..(stage + 1) * 4 {
            let durably = db.with(WriteOptions::sync());
            match n % 2 {
                0 => durably.put_reader(key(n), &*long(n)).unwrap(),
                _ => durably.put(key(n), value(n)).unwrap(),
            };
        }
        users.with(WriteOptions::sync()).put_reader(key(stage), &*long(100 + stage)).unwrap();
        match stage {
            0 => db.compact().unwrap(),
            1 => db.flush().unwrap(),
            _ => {}
        }
    }
    let content = content(&db);
    assert_eq!(content.len(), 15);
    (fs.killed(), content)
}

fn streams(fs: &MemoryFs) -> Vec<PathBuf> {
    let mut found = tables(fs);
    found.retain(|path| bytes(fs, path)[8] == FileKind::Blob as u8);
    found
}

fn verified(fs: &MemoryFs) -> Report {
    verify(Path::new(DB), &env(fs), &mut |_, _| ()).unwrap()
}

fn lose_manifest(fs: &MemoryFs) {
    manifests(fs).iter().for_each(|path| fs.remove(path).unwrap());
}

/// What is done to the file of a stream. It begins with its header, and ends with its trailer.
const DAMAGES: [fn(&MemoryFs, &Path, u64); 5] = [
    |fs, path, _| fs.remove(path).unwrap(),
    |fs, path, _| fs.corrupt(path, 40, 1).unwrap(),
    |fs, path, _| fs.corrupt(path, 200, 1).unwrap(),
    |fs, path, len| fs.corrupt(path, len - 1, 1).unwrap(),
    |fs, path, len| fs.truncate(path, len - 7).unwrap(),
];

#[test]
fn intact_streams_verify_and_survive_the_loss_of_the_manifest() {
    let (fs, expected) = left_behind();
    assert_eq!(streams(&fs).len(), 9);
    let report = verified(&fs);
    assert!(report.is_clean(), "{report:?}");
    assert!(run(&fs, false).unwrap().is_sound());
    lose_manifest(&fs);
    let (report, found) = repaired(&fs);
    assert!(report.losses.is_empty(), "{report:?}");
    assert_eq!(found, expected);
    assert_eq!(streams(&fs).len(), 9, "none was taken for one that nothing needs");
}

/// The log gives a stream another end, so that it names the file of a slice.
#[test]
fn a_stream_that_the_log_names_stays_though_the_slice_is_lost_that_had_it() {
    let with_end = || {
        let fs = MemoryFs::new();
        let db = streaming(&fs).open(DB).unwrap();
        db.put_reader(key(1), &*long(1)).unwrap();
        db.put(key(2), value(2)).unwrap();
        db.flush().unwrap();
        let durably = db.with(WriteOptions::sync());
        let an_hour = Expiry::After(Duration::from_secs(3600));
        assert!(durably.set_expiry(key(1), an_hour).unwrap());
        let content = content(&db);
        (fs.killed(), content)
    };
    let is_table = |fs: &MemoryFs, path: &PathBuf| bytes(fs, path)[8] == FileKind::Table as u8;
    let table = |fs: &MemoryFs| tables(fs).into_iter().find(|path| is_table(fs, path)).unwrap();
    let len = bytes(&with_end().0, &table(&with_end().0)).len() as u64;
    for at in iter::once(None).chain((0..len).step_by(7).map(Some)) {
        let (fs, expected) = with_end();
        let victim = table(&fs);
        match at {
            None => fs.remove(&victim).unwrap(),
            Some(at) => fs.corrupt(&victim, at, 1).unwrap(),
        }
        let (report, found) = repaired(&fs);
        check_losses(&report, &found, &expected);
        let name = ("default".to_owned(), key(1));
        assert_eq!(found.get(&name), expected.get(&name), "{at:?} {report:?}");
        assert_eq!(streams(&fs).len(), 1);
    }
}

#[test]
fn a_damaged_stream_is_found_and_lost_alone_wherever_its_entry_is() {
    for has_manifest in [true, false] {
        for (way, damage) in DAMAGES.iter().enumerate() {
            for nth in 0..9 {
                let (fs, expected) = left_behind();
                let victim = streams(&fs).remove(nth);
                damage(&fs, &victim, bytes(&fs, &victim).len() as u64);
                let found = verified(&fs);
                let is_told = found.findings.iter().any(|finding| finding.path == victim);
                assert!(is_told, "{way} {nth}: {found:?}");
                if !has_manifest {
                    lose_manifest(&fs);
                }
                let (report, content) = repaired(&fs);
                check_losses(&report, &content, &expected);
                let what = format!("{has_manifest} {way} {nth}: {report:?}");
                assert_eq!(content.len(), expected.len() - 1, "{what}");
                assert_eq!(streams(&fs).len(), 8, "{what}");
                let kept = fs.list(Path::new("/db/lost+found")).unwrap_or_default();
                let is_kept = kept.iter().any(|entry| victim.ends_with(&entry.name));
                assert_eq!(is_kept, way > 0, "{what} {kept:?}");
            }
        }
    }
}

#[test]
fn a_dump_shows_streams_with_their_frames_and_their_addresses() {
    let (fs, _) = left_behind();
    let shown = |path: &Path| {
        let mut names = Vec::new();
        let damaged = dump(path, &env(&fs), &mut |item| {
            names.push(item.name.to_owned());
            Ok(())
        });
        (damaged.unwrap(), names)
    };
    let victim = streams(&fs).remove(0);
    let (damaged, names) = shown(&victim);
    assert_eq!(damaged, 0);
    let frames = names.iter().filter(|name| *name == "frame").count();
    assert_eq!(frames, 300_usize.div_ceil(FRAME));
    assert!(names.contains(&"index".into()) && names.contains(&"end of stream".into()));
    fs.corrupt(&victim, 200, 1).unwrap();
    let (damaged, names) = shown(&victim);
    let left = names.iter().filter(|name| *name == "frame").count();
    assert_eq!((damaged, left), (1, frames - 1));
    let kinds: BTreeSet<String> = files(&fs, LOG_DIR, ".wal")
        .iter()
        .flat_map(|path| shown(path).1)
        .filter(|name| name.contains("streamed"))
        .collect();
    assert_eq!(kinds, BTreeSet::from(["put, streamed".to_owned()]));
}

/// What is left of a stream may be longer than memory.
#[test]
#[cfg(not(any(loom, shuttle)))]
fn a_long_stream_without_its_header_is_not_read_as_a_table() {
    const LEN: u64 = 24 << 20;
    let mut bits = 1_u64;
    let mut next = || {
        bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (bits >> 8).to_le_bytes()
    };
    let value: Vec<u8> = (0..LEN / 8).flat_map(|_| next()).collect();
    let left = MemoryFs::new();
    let db = options(&left).open(DB).unwrap();
    db.put(key(1), self::value(1)).unwrap();
    db.with(WriteOptions::sync()).put_reader(key(2), &*value).unwrap();
    let left = left.killed();
    lose_manifest(&left);
    let victim = streams(&left).remove(0);
    // A whole one, one that was half written, and one that was not begun on disk.
    for (len, zeros) in [(None, 0), (Some(LEN / 2), 0), (Some(LEN / 2), 300 << 10)] {
        let fs = left.killed();
        fs.corrupt(&victim, 40, 1).unwrap();
        if let Some(len) = len {
            fs.remove(&victim).unwrap();
            let mut file = fs.create(&victim).unwrap();
            let mut half = bytes(&left, &victim)[..len as usize].to_vec();
            half[..128 + zeros].fill(0);
            file.append(&half).unwrap();
            file.sync().unwrap();
        }
        let before = fs.read_bytes();
        let report = run(&fs, false).unwrap();
        let read = fs.read_bytes() - before;
        assert!(read < 12 << 20, "{len:?} {zeros}: {read} bytes of {LEN} were read");
        let names = |loss: &crate::tools::Loss| loss.keys == Some((key(2), key(2)));
        assert!(report.losses.iter().any(names), "{report:?}");
        assert!(report.moved.iter().any(|moved| moved.from == victim), "{report:?}");
        let found = content(&options(&fs).create_if_missing(false).open(DB).unwrap());
        assert_eq!(found.len(), 1, "{report:?}");
    }
}
