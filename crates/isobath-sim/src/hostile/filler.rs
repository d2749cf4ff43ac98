//! Fills the database that is damaged, and tells what is in it at each moment.

use super::image::{DB, FRAME_LEN, Rows, State, Writes};
use crate::existing::Existing;
use crate::simulation;
use isobath::vfs::{Fault, FileOp, MemoryFs};
use isobath::{Batch, Codec, Db, Error, Family, FamilyOptions, Options, Result, Streamed};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

const TAIL_RECORDS: u32 = 20;
/// After this one of them the log is synced.
const SYNCED: u32 = TAIL_RECORDS / 2;
/// No value of this life ends while anything reads the database.
const FAR_AWAY: Duration = Duration::from_secs(1_000_000_000);
/// The family of all that others do not have.
const MIXED: &str = "mixed";
/// It shares tables and blob files with the family that it was cloned from.
const CLONE: &str = "clone";
/// What was prepared before the flush and after it. The log's tail commits the first.
const EARLY: &str = "early";
const LATE: &str = "late";
/// The number of the error "too many open files" on every unix.
const EMFILE: i32 = 24;

/// Fills the database and says what should be in it.
struct Filler {
    db: Db,
    families: BTreeMap<String, Family>,
    state: State,
    /// Streams for the log's tail.
    streams: Vec<(Streamed, Vec<u8>)>,
    rng: fastrand::Rng,
}

impl Filler {
    fn new(db: Db) -> Filler {
        let mut filler = Filler {
            families: BTreeMap::new(),
            state: State::default(),
            streams: Vec::new(),
            rng: fastrand::Rng::with_seed(7),
            db,
        };
        filler.add(filler.db.default_family());
        filler
    }

    fn add(&mut self, family: Family) {
        self.state.contents.insert(family.name(), BTreeMap::new());
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
        self.state.contents.entry(name.to_owned()).or_default()
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

    /// Writes a value to a file of its own, in several frames.
    fn stream(&mut self, len: usize) -> Result<(Streamed, Vec<u8>)> {
        let value = self.text(len);
        let mut writer = self.db.value_writer(&self.families[MIXED])?;
        let of_engine = |error: std::io::Error| error.downcast::<Error>().expect("the engine's");
        writer.write_all(&value).map_err(of_engine)?;
        Ok((writer.finish()?, value))
    }

    fn put_stream(&mut self, batch: &mut Batch, nth: u32, stream: (Streamed, Vec<u8>)) {
        let key = key(MIXED, nth);
        batch.of(&self.families[MIXED]).put_streamed(&key, stream.0);
        self.rows(MIXED).insert(key, stream.1);
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
        for (nth, len) in [(7, FRAME_LEN * 3), (8, FRAME_LEN + 1)] {
            let stream = self.stream(len)?;
            self.put_stream(&mut batch, nth, stream);
        }
        self.db.write(batch).map(drop)
    }

    fn delete(&mut self, batch: &mut Batch, name: &str, key: &[u8]) -> Result<()> {
        batch.of(&self.families[name]).delete(key);
        self.state.contents.entry(name.to_owned()).or_default().remove(key);
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
            4 => {
                let stream = self.streams.pop().expect("one for each such record");
                self.put_stream(&mut batch, nth, stream);
            }
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

/// A database that was killed at the moment of the last state, and the first state that may be left
/// if the tail of its log is damaged.
pub(super) fn write(options: &Options, fs: &MemoryFs) -> Result<(Db, Vec<State>, usize)> {
    let mut filler = Filler::new(options.open(DB)?);
    let counts = filler.fill_tables()?;
    filler.reopen(options)?;
    filler.change(&counts)?;
    filler.db.flush()?;
    // Wait until maintenance has removed the log segments that are no longer needed. Damage to them
    // would test nothing, because their bytes mean nothing.
    simulation::sleep_ns(3_000_000_000);
    filler.streams = vec![filler.stream(FRAME_LEN * 2)?, filler.stream(FRAME_LEN * 2)?];
    let mut states = vec![filler.state.clone()];
    filler.commit_large(fs)?;
    states.push(filler.state.clone());
    let mut durable = 0;
    for nth in 0..TAIL_RECORDS {
        filler.tail(nth)?;
        states.push(filler.state.clone());
        match nth {
            3 => filler.prepare(LATE)?,
            6 => filler.commit_prepared(EARLY)?,
            SYNCED => filler.db.sync()?,
            _ => continue,
        }
        match nth {
            SYNCED => durable = states.len() - 1,
            _ => states.push(filler.state.clone()),
        }
    }
    Ok((filler.db, states, durable))
}

impl Filler {
    /// Families of each kind, all of it compacted. The counts are of their keys.
    fn fill_tables(&mut self) -> Result<Vec<(&'static str, u32)>> {
        let small = |codec| FamilyOptions::new().codec(codec).block_size(512);
        self.create("zstd", small(Codec::Zstd).filter_bits_per_key(0).block_size(1024))?;
        self.create("snappy", small(Codec::Snappy).block_size(256).filter_bits_per_key(16))?;
        self.create("plain", small(Codec::None).filter_bits_per_key(40))?;
        self.create("apart", small(Codec::Lz4).separate_from(100))?;
        self.create("before", small(Codec::Lz4))?;
        self.create(MIXED, small(Codec::Lz4).merge_operator("isobath.append"))?;
        self.create("dropped", small(Codec::Lz4))?;
        let counts = vec![
            ("default", 90),
            ("zstd", 60),
            ("snappy", 44),
            ("plain", 40),
            ("apart", 40),
            (MIXED, 24),
        ];
        self.fill("before", 1, 1, 0)?;
        for (name, count) in &counts {
            self.fill(name, *count, 1, 0)?;
        }
        self.fill("dropped", 5, 1, 0)?;
        let families: Vec<_> = self.families.values().cloned().collect();
        families.iter().try_for_each(|family| family.compact(..))?;
        Ok(counts)
    }

    /// What comes over the tables: a run of level 0 for each family, a clone, a rename, a drop, and
    /// a transaction that stays prepared.
    fn change(&mut self, counts: &[(&str, u32)]) -> Result<()> {
        self.clone_family("apart", CLONE)?;
        self.rename("before", "single")?;
        self.drop_family("dropped")?;
        for (name, count) in counts {
            self.fill(name, *count, 4, 16)?;
        }
        self.fill(CLONE, 6, 2, 0)?;
        let mut batch = Batch::new();
        self.delete(&mut batch, CLONE, &key("apart", 2))?;
        self.db.write(batch)?;
        self.mix()?;
        self.prepare(EARLY)
    }

    /// Prepares a transaction that puts two keys which no one else writes: others would wait for
    /// its locks.
    fn prepare(&mut self, xid: &str) -> Result<()> {
        let tx = self.db.begin();
        let writes: Writes = ["default", MIXED]
            .map(|name| (name, format!("{name}/of {xid}").into_bytes(), self.text(70)))
            .into();
        for (name, key, value) in &writes {
            tx.of(&self.families[*name]).put(key, value)?;
        }
        drop(tx.prepare(xid)?);
        self.state.in_doubt.insert(xid.as_bytes().to_vec(), writes);
        Ok(())
    }

    fn commit_prepared(&mut self, xid: &str) -> Result<()> {
        self.db.commit_prepared(&xid.into())?;
        self.state.commit(xid.as_bytes());
        Ok(())
    }

    /// A transaction whose writes go to files. They stay, as no flush finds a descriptor from
    /// here on.
    fn commit_large(&mut self, fs: &MemoryFs) -> Result<()> {
        let tx = self.db.begin();
        let mut rows = Rows::new();
        for nth in 30..54 {
            let (key, value) = (key("plain", nth), self.text(200));
            tx.of(&self.families["plain"]).put(&key, &value)?;
            rows.insert(key, value);
        }
        let last_file = 1;
        let table = Fault::on(FileOp::Create).suffix(".tbl").nth(last_file + 1);
        fs.inject(table.errno(EMFILE).forever());
        tx.commit()?;
        self.rows("plain").extend(rows);
        Ok(())
    }

    fn clone_family(&mut self, source: &str, name: &str) -> Result<()> {
        let clone = self.db.clone_family(&self.families[source], name)?;
        let contents = self.state.contents[source].clone();
        self.families.insert(name.to_owned(), clone);
        self.state.contents.insert(name.to_owned(), contents);
        Ok(())
    }

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
        let contents = self.state.contents.remove(from).unwrap_or_default();
        self.add(family);
        self.state.contents.insert(to.to_owned(), contents);
        Ok(())
    }

    fn drop_family(&mut self, name: &str) -> Result<()> {
        let Some(family) = self.families.remove(name) else { return Ok(()) };
        self.state.contents.remove(name);
        self.db.drop_family(&family)
    }
}
