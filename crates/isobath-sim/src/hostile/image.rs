//! The database that is damaged: small, with most kinds of structure, and with known contents.
//!
//! Seven families with each codec, one of them with long values apart from their keys: many blocks,
//! two levels of index, filters in the root and outside of it, a slice that is one block; two
//! levels and a run of level 0; deletes; a family that was dropped and one that was renamed. The
//! last family has deleted ranges, operands, values that end, and streams with files of their own.
//! The log holds more of all, unflushed: some records that later ones state to be durable, and some
//! after these. The process was killed.
//!
//! What it lacks: clones, prepared transactions and their files, files of large transactions, a
//! manifest of several parts, and the options that a database gets rarely, as a history.
//!
//! Segments are cut to the part that was written; otherwise most bits would be padding. The rest of
//! a segment reads as the end of the log, wherever it ends.

use crate::existing::Existing;
use crate::position::position;
use crate::simulation::{self, Life};
use isobath::vfs::{FileAccess, FileSystem, MemoryFs};
use isobath::{Batch, Codec, Db, Error, Family, FamilyOptions, Options, Result, Sizes};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

pub(super) const DB: &str = "/db";
/// The header page of a segment; data follows.
const SEGMENT_HEADER_LEN: u64 = 4096;
const TAIL_RECORDS: u32 = 20;
/// A stream has a file of its own from this length on, and frames of it.
const FRAME_LEN: usize = 300;
/// No value of this life ends while anything reads the database.
const FAR_AWAY: Duration = Duration::from_secs(1_000_000_000);
/// The family of all that others do not have.
const MIXED: &str = "mixed";

/// What is in a family.
pub(super) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// What is in each family, by name.
pub(super) type Contents = BTreeMap<String, Rows>;

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
    pub(super) states: Vec<Contents>,
    /// The first of these states that may be left if the tail is damaged.
    pub(super) durable: usize,
}

/// Options with the least memory, so that an open costs little.
pub(super) fn options() -> Options {
    let mut sizes = Sizes::default();
    sizes.stream_frame_len = FRAME_LEN;
    let options = Options::new().write_buffer(64 << 10).block_cache(64 << 10);
    options.compaction_threads(1).sizes(sizes)
}

impl Image {
    pub(super) fn make() -> Result<Image, String> {
        let life = Life::quiet(MemoryFs::new());
        let made: Rc<RefCell<Option<Result<Image>>>> = Rc::default();
        let (result, on) = (made.clone(), life.clone());
        let ended = simulation::run(
            1,
            Box::new(move || {
                let image = write(&options().env(on.env())).and_then(|written| {
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

/// Fills the database and says what should be in it.
struct Filler {
    db: Db,
    families: BTreeMap<String, Family>,
    contents: Contents,
    rng: fastrand::Rng,
}

impl Filler {
    fn new(db: Db) -> Filler {
        let mut filler = Filler {
            families: BTreeMap::new(),
            contents: Contents::new(),
            rng: fastrand::Rng::with_seed(7),
            db,
        };
        filler.add(filler.db.default_family());
        filler
    }

    fn add(&mut self, family: Family) {
        self.contents.insert(family.name(), BTreeMap::new());
        self.families.insert(family.name(), family);
    }

    fn create(&mut self, name: &str, options: FamilyOptions) -> Result<()> {
        let family = self.db.family((name, options))?;
        self.add(family);
        Ok(())
    }

    /// Bytes that a codec makes shorter.
    fn text(&mut self, len: usize) -> Vec<u8> {
        const SYLLABLES: [&str; 16] = [
            "an", "be", "co", "du", "el", "fi", "go", "hu", "in", "jo", "ka", "lo", "mi", "no",
            "or", "pe",
        ];
        let mut value = String::new();
        while value.len() < len {
            value.push_str(SYLLABLES[self.rng.usize(..SYLLABLES.len())]);
        }
        value.into_bytes()
    }

    fn rows(&mut self, name: &str) -> &mut Rows {
        self.contents.entry(name.to_owned()).or_default()
    }

    fn put(&mut self, batch: &mut Batch, name: &str, key: &[u8], len: usize) -> Result<()> {
        let value = self.text(len);
        batch.of(&self.families[name]).put(key, &value);
        self.rows(name).insert(key.to_vec(), value);
        Ok(())
    }

    /// An operand of `isobath.append`.
    fn append(&mut self, batch: &mut Batch, nth: u32) {
        let (key, operand) = (key(MIXED, nth), self.text(12));
        batch.of(&self.families[MIXED]).merge(&key, &operand);
        self.rows(MIXED).entry(key).or_default().extend(operand);
    }

    fn put_ending(&mut self, batch: &mut Batch, nth: u32) {
        let (key, value) = (key(MIXED, nth), self.text(60));
        batch.of(&self.families[MIXED]).put_ttl(&key, &value, FAR_AWAY);
        self.rows(MIXED).insert(key, value);
    }

    fn delete_range(&mut self, batch: &mut Batch, from: u32, to: u32) {
        let (from, to) = (key(MIXED, from), key(MIXED, to));
        batch.of(&self.families[MIXED]).delete_range(&from[..]..&to[..]);
        self.rows(MIXED).retain(|key, _| !(&from..&to).contains(&key));
    }

    /// A value with a file of its own, of several frames.
    fn put_stream(&mut self, batch: &mut Batch, nth: u32, len: usize) -> Result<()> {
        let (key, value) = (key(MIXED, nth), self.text(len));
        let family = &self.families[MIXED];
        let mut writer = self.db.value_writer(family)?;
        let of_engine = |error: std::io::Error| error.downcast::<Error>().expect("the engine's");
        writer.write_all(&value).map_err(of_engine)?;
        batch.of(family).put_streamed(&key, writer.finish()?);
        self.rows(MIXED).insert(key, value);
        Ok(())
    }

    /// Operands, ends, a deleted range and streams, over what was filled in before. The log's tail
    /// leaves some of each in force.
    fn mix(&mut self) -> Result<()> {
        let mut batch = Batch::new();
        self.delete_range(&mut batch, 9, 15);
        for nth in [0, 1, 17] {
            self.append(&mut batch, nth);
        }
        for nth in [15, 16, 23] {
            self.put_ending(&mut batch, nth);
        }
        self.put_stream(&mut batch, 7, FRAME_LEN * 3)?;
        self.put_stream(&mut batch, 8, FRAME_LEN + 1)?;
        self.db.write(batch).map(drop)
    }

    fn delete(&mut self, batch: &mut Batch, name: &str, key: &[u8]) -> Result<()> {
        batch.of(&self.families[name]).delete(key);
        self.contents.entry(name.to_owned()).or_default().remove(key);
        Ok(())
    }

    /// Writes every `step`th of `count` keys of a family, and deletes every `gone`th.
    fn fill(&mut self, name: &str, count: u32, step: u32, gone: u32) -> Result<()> {
        for nth in (0..count).step_by(step as usize) {
            let mut batch = Batch::new();
            let key = key(name, nth);
            if gone > 0 && nth % gone == 0 {
                self.delete(&mut batch, name, &key)?;
            } else {
                let len = self.rng.usize(40..200);
                self.put(&mut batch, name, &key, len)?;
            }
            self.db.write(batch)?;
        }
        Ok(())
    }

    /// Adds a record to the log that no flush will see: several families, puts and a delete, and
    /// one of what the last family has.
    fn tail(&mut self, nth: u32) -> Result<()> {
        let mut batch = Batch::new();
        let len = self.rng.usize(20..120);
        self.put(&mut batch, "default", &key("default", nth * 5), len)?;
        self.put(&mut batch, "zstd", &key("zstd", nth * 2 + 1), len / 2)?;
        if nth.is_multiple_of(7) {
            self.delete(&mut batch, "snappy", &key("snappy", nth * 3 + 4))?;
        }
        self.put(&mut batch, "default", &key("default", 1000 + nth), 9)?;
        match nth % 8 {
            1 => self.append(&mut batch, nth),
            2 => self.put_ending(&mut batch, nth),
            3 => self.delete_range(&mut batch, nth, nth + 4),
            4 => self.put_stream(&mut batch, nth, FRAME_LEN * 2)?,
            _ => {}
        }
        self.db.write(batch).map(|_| ())
    }
}

/// Keys of a family: short ones, and long ones that differ only at the end, so that their index has
/// two levels.
fn key(name: &str, nth: u32) -> Vec<u8> {
    match name {
        "snappy" => format!("{}{nth:06}", "a long prefix of ".repeat(11)).into_bytes(),
        _ => format!("{name}/{nth:05}").into_bytes(),
    }
}

fn write(options: &Options) -> Result<(Db, Vec<Contents>, usize)> {
    let mut filler = Filler::new(options.open(DB)?);
    let small = |codec| FamilyOptions::new().codec(codec).block_size(512);
    filler.create("zstd", small(Codec::Zstd).filter_bits_per_key(0).block_size(1024))?;
    filler.create("snappy", small(Codec::Snappy).block_size(256).filter_bits_per_key(16))?;
    filler.create("plain", small(Codec::None).filter_bits_per_key(40))?;
    filler.create("apart", small(Codec::Lz4).separate_from(100))?;
    filler.create("before", small(Codec::Lz4))?;
    filler.create(MIXED, small(Codec::Lz4).merge_operator("isobath.append"))?;
    filler.create("dropped", small(Codec::Lz4))?;
    let sizes = [
        ("default", 90),
        ("zstd", 60),
        ("snappy", 44),
        ("plain", 40),
        ("apart", 40),
        ("before", 1),
        (MIXED, 24),
    ];
    for (name, count) in sizes {
        filler.fill(name, count, 1, 0)?;
    }
    filler.fill("dropped", 5, 1, 0)?;
    let names: Vec<_> = filler.families.values().cloned().collect();
    for family in &names {
        family.compact(..)?;
    }
    filler.reopen(options)?;
    filler.rename("before", "single")?;
    filler.drop_family("dropped")?;
    for (name, count) in sizes {
        if name != "before" {
            filler.fill(name, count, 4, 16)?;
        }
    }
    filler.mix()?;
    filler.db.flush()?;
    // Wait until maintenance has removed the log segments that are no longer needed. Damage to them
    // would test nothing, because their bytes mean nothing.
    simulation::sleep_ns(3_000_000_000);
    let mut states = vec![filler.contents.clone()];
    let mut durable = 0;
    for nth in 0..TAIL_RECORDS {
        filler.tail(nth)?;
        states.push(filler.contents.clone());
        if nth == TAIL_RECORDS / 2 {
            filler.db.sync()?;
            durable = states.len() - 1;
        }
    }
    Ok((filler.db, states, durable))
}

impl Filler {
    /// Closes and opens the database. Its log begins anew, so that it holds little of what is in
    /// tables.
    fn reopen(&mut self, options: &Options) -> Result<()> {
        self.families.clear();
        self.db.clone().close()?;
        self.db = options.open(DB)?;
        for name in self.db.list_families() {
            self.families.insert(name.clone(), self.db.existing(&name)?);
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let Some(family) = self.families.remove(from) else { return Ok(()) };
        self.db.rename_family(&family, to)?;
        let contents = self.contents.remove(from).unwrap_or_default();
        self.add(family);
        self.contents.insert(to.to_owned(), contents);
        Ok(())
    }

    fn drop_family(&mut self, name: &str) -> Result<()> {
        let Some(family) = self.families.remove(name) else { return Ok(()) };
        self.contents.remove(name);
        self.db.drop_family(&family)
    }
}

/// Removes segments that hold nothing, and cuts the others to the least length that holds what was
/// written, and is no less than that of the segment before: no log has a shorter one behind a
/// longer one, so the engine would take such lengths for a sign of where a missing segment began.
/// Behind `log_end` is what a segment held before it was used again.
fn trim(fs: &MemoryFs, log_end: u64) -> Result<Vec<ImageFile>> {
    let mut files = Vec::new();
    let mut least_len = SEGMENT_HEADER_LEN;
    for dir in ["", "table", "wal"] {
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
