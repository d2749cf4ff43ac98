//! The database that is damaged: small, with most kinds of structure, and with known contents.
//!
//! Seven families with each codec, one of them with long values apart from their keys: many blocks,
//! two levels of index, filters in the root and outside of it, a slice that is one block; two
//! levels and a run of level 0; deletes; a family that was dropped and one that was renamed. The
//! last family has deleted ranges, operands, values that end, and streams with files of their own.
//! The log holds more of all, unflushed: some records that later ones state to be durable, and some
//! after these. A family was cloned since it was compacted, and has changed like its clone. One
//! transaction was prepared before the flush, so it has a file, and is committed in the log; one is
//! prepared in the log and in doubt. The log begins with a large transaction, whose files no flush
//! has taken in. The process was killed.
//!
//! What it lacks: a manifest of several parts, and options that a database gets rarely, as a
//! history.
//!
//! Segments are cut to the part that was written; otherwise most bits would be padding. The rest of
//! a segment reads as the end of the log, wherever it ends.

use super::filler::write;
use crate::position::position;
use crate::simulation::{self, Life};
use isobath::vfs::{FileAccess, FileSystem, MemoryFs};
use isobath::{Options, Result, Sizes};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

pub(super) const DB: &str = "/db";
/// The header page of a segment; data follows.
pub(super) const SEGMENT_HEADER_LEN: u64 = 4096;
/// A stream has a file of its own from this length on, and frames of it.
pub(super) const FRAME_LEN: usize = 300;

/// What is in a family.
pub(super) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What is in each family, by name.
pub(super) type Contents = BTreeMap<String, Rows>;

/// What a transaction puts: family, key and value.
pub(super) type Writes = Vec<(&'static str, Vec<u8>, Vec<u8>)>;

/// What the database has at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) contents: Contents,
    /// The prepared transactions in doubt, by their names.
    pub(super) in_doubt: BTreeMap<Vec<u8>, Writes>,
}

impl State {
    /// What it is once a transaction in doubt is committed.
    pub(super) fn commit(&mut self, xid: &[u8]) {
        for (family, key, value) in self.in_doubt.remove(xid).into_iter().flatten() {
            self.contents.entry(family.to_owned()).or_default().insert(key, value);
        }
    }
}

/// A file of the database.
#[derive(Clone, Debug)]
pub(super) struct ImageFile {
    pub(super) path: PathBuf,
    pub(super) len: u64,
    /// The bytes from here on mean nothing: it is room in the log that was never written.
    pub(super) live_len: u64,
}

/// The database, and what is in it.
pub(super) struct Image {
    pub(super) fs: MemoryFs,
    pub(super) files: Vec<ImageFile>,
    pub(super) truth: Arc<Truth>,
}

/// The contents that the database may have after damage.
pub(super) struct Truth {
    /// What was in it before each record of the log's tail, and after the last.
    pub(super) states: Vec<State>,
    /// The first of these states that may be left if the tail is damaged.
    pub(super) durable: usize,
}

/// Options with the least memory, so that an open costs little.
pub(super) fn options() -> Options {
    let mut sizes = Sizes::default();
    sizes.stream_frame_len = FRAME_LEN;
    (sizes.footprint_max, sizes.large_from) = (4 << 10, 4 << 10);
    let options = Options::new().write_buffer(64 << 10).block_cache(64 << 10);
    options.compaction_threads(1).sizes(sizes)
}

impl Image {
    pub(super) fn make() -> Result<Image, String> {
        let life = Life::alone(MemoryFs::new());
        let made: Rc<RefCell<Option<Result<Image>>>> = Rc::default();
        let (result, on) = (made.clone(), life.clone());
        let ended = simulation::run(
            1,
            Box::new(move || {
                let image = write(&options().env(on.env()), &on.disk()).and_then(|written| {
                    let (db, states, durable) = written;
                    let fs = on.disk().killed();
                    let log_end = position(db.snapshot().read_point());
                    drop(db);
                    let files = trim(&fs, log_end)?;
                    Ok(Image { fs, files, truth: Arc::new(Truth { states, durable }) })
                });
                *result.borrow_mut() = Some(image);
            }),
        );
        let made = made.take();
        match (made, ended.failure) {
            (Some(image), None) => image.map_err(|error| format!("making the image: {error}")),
            (_, stuck) => Err(format!("making the image: {stuck:?}")),
        }
    }

    /// Bytes of all files.
    pub(super) fn len(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }
}

/// Removes segments that hold nothing, and cuts the others to the least length that holds what was
/// written, and is no less than that of the segment before: no log has a shorter one behind a
/// longer one, so the engine would take such lengths for a sign of where a missing segment began.
/// Behind `log_end` is what a segment held before it was used again.
fn trim(fs: &MemoryFs, log_end: u64) -> Result<Vec<ImageFile>> {
    let mut files = Vec::new();
    let mut least_len = SEGMENT_HEADER_LEN;
    for dir in ["", "table", "spill", "wal"] {
        let dir = Path::new(DB).join(dir);
        let mut entries = fs.list(&dir)?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
            let path = dir.join(&entry.name);
            let mut file = ImageFile { path, len: entry.len, live_len: entry.len };
            if dir.ends_with("wal") {
                let base = entry.name.split('.').next().map(|base| u64::from_str_radix(base, 16));
                let used =
                    log_end.saturating_sub(base.and_then(std::result::Result::ok).unwrap_or(0));
                let written = written_len(fs, &file.path, entry.len)?.min(used);
                if written == 0 || !entry.name.ends_with(".wal") {
                    fs.remove(&file.path)?;
                    continue;
                }
                let data_len = written.next_power_of_two().max(least_len);
                least_len = data_len;
                file.len = SEGMENT_HEADER_LEN + data_len.min(entry.len - SEGMENT_HEADER_LEN);
                file.live_len = SEGMENT_HEADER_LEN + written;
                fs.truncate(&file.path, file.len)?;
            }
            files.push(file);
        }
    }
    Ok(files)
}

/// How much of a segment's data was written: up to the last byte that is not zero, rounded up to
/// where a record may begin.
fn written_len(fs: &MemoryFs, path: &Path, len: u64) -> Result<u64> {
    let mut bytes = vec![0; len as usize];
    fs.open_read(path, FileAccess::Positional)?.read_at(0, &mut bytes)?;
    let data = &bytes[SEGMENT_HEADER_LEN as usize..];
    let written = data.iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1);
    Ok(written.next_multiple_of(8))
}
