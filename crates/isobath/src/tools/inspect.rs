//! What a database consists of, according to its manifest and its directory, without opening it.

#[cfg(feature = "serde")]
use super::report::path_as_text;
use crate::env::Env;
use crate::error::Result;
use crate::follow::look_until_steady;
use crate::format::Lsn;
use crate::version::{
    self, LOG_DIR, ObsoleteFiles, PreparedFile, State, TABLE_DIR, table_number, table_path,
};
use crate::vfs::FileSystem;
use crate::wal::{self, SegmentKind};
use crate::xid::Xid;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The contents of a database that is not open.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Inspection {
    /// The database's identity, in hexadecimal digits.
    pub uuid: String,
    /// The number of the current manifest.
    pub manifest: u64,
    /// How often the database was opened.
    pub term: u64,
    /// Replay of the log begins here. Everything below is in tables.
    pub replay_from: Lsn,
    /// The log is known to be durable up to here.
    pub durable: Lsn,
    /// True if the database was closed cleanly.
    pub closed_cleanly: bool,
    /// The table files in use, by number.
    pub tables: Vec<TableInUse>,
    /// The blob files in use, by number.
    pub blobs: Vec<BlobInUse>,
    /// The files of prepared transactions that are in doubt, by the LSN of the prepare. Those whose
    /// prepare is still in the log have none.
    pub prepared: Vec<PreparedInFile>,
    /// The files of the log, by LSN.
    pub segments: Vec<SegmentFile>,
}

/// A table file that the manifest names.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TableInUse {
    /// The number of the file.
    pub number: u64,
    /// The path of the file.
    #[cfg_attr(feature = "serde", serde(serialize_with = "path_as_text"))]
    pub path: PathBuf,
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The slices in the file.
    pub slices: Vec<SliceInTable>,
}

/// A blob file in which slices have values.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BlobInUse {
    /// The number of the file.
    pub number: u64,
    /// The path of the file.
    #[cfg_attr(feature = "serde", serde(serialize_with = "path_as_text"))]
    pub path: PathBuf,
    /// The length of the file in bytes.
    pub bytes: u64,
}

/// A prepared transaction that is in doubt, and its file.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PreparedInFile {
    /// Its name.
    pub xid: Xid,
    /// The LSN of its prepare.
    pub prepared_at: Lsn,
    /// The path of the file.
    #[cfg_attr(feature = "serde", serde(serialize_with = "path_as_text"))]
    pub path: PathBuf,
    /// The length of the file in bytes.
    pub bytes: u64,
}

/// The share of one family in a table file.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SliceInTable {
    /// The family's id.
    pub family: u32,
    /// The level of the slice.
    pub level: usize,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// Bytes of keys and values before compression.
    pub raw_bytes: u64,
    /// Versions, including deletes.
    pub entries: u64,
    /// Deletes.
    pub deletes: u64,
    /// The smallest key.
    pub smallest: Vec<u8>,
    /// The largest key.
    pub largest: Vec<u8>,
}

/// A file of the log.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SegmentFile {
    /// The path of the file.
    #[cfg_attr(feature = "serde", serde(serialize_with = "path_as_text"))]
    pub path: PathBuf,
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The LSN at which it begins.
    pub base: Lsn,
    /// False if the file only waits to be reused.
    pub in_use: bool,
}

/// Reads what the database in `db` consists of. Changes nothing, and the database may be open
/// elsewhere.
pub fn inspect(db: &Path, env: &Env) -> Result<Inspection> {
    let fs = &*env.fs;
    version::Layout::examine(fs, db)?.demand_database(db)?;
    let found =
        look_until_steady(env, db, &mut |_| version::inspect(fs, db, &ObsoleteFiles::new()))?;
    let state = &found.state;
    let segments = wal::inventory(fs, &db.join(LOG_DIR))?.into_iter().map(|segment| SegmentFile {
        in_use: segment.kind == SegmentKind::Log && segment.end() > state.replay_from(),
        path: segment.path,
        bytes: segment.file_len,
        base: segment.base,
    });
    let lens = lens(fs, db)?;
    Ok(Inspection {
        uuid: format!("{:032x}", u128::from_be_bytes(state.uuid())),
        manifest: found.manifest,
        term: state.term().term,
        replay_from: state.replay_from(),
        durable: state.durable(),
        closed_cleanly: state.clean_close().is_some(),
        tables: tables(&lens, db, state),
        blobs: blobs(&lens, db, state),
        prepared: prepared(db, state),
        segments: segments.collect(),
    })
}

fn prepared(db: &Path, state: &State) -> Vec<PreparedInFile> {
    let told = |(lsn, prepared): (&Lsn, &PreparedFile)| PreparedInFile {
        xid: Xid::new(&prepared.xid),
        prepared_at: *lsn,
        path: table_path(db, prepared.file.number()),
        bytes: prepared.len,
    };
    state.prepared().iter().map(told).collect()
}

/// The lengths of the files in the directory of tables, by their numbers.
fn lens(fs: &dyn FileSystem, db: &Path) -> Result<BTreeMap<u64, u64>> {
    let entries = fs.list(&db.join(TABLE_DIR))?.into_iter();
    Ok(entries.filter_map(|entry| Some((table_number(&entry.name)?, entry.len))).collect())
}

fn blobs(lens: &BTreeMap<u64, u64>, db: &Path, state: &State) -> Vec<BlobInUse> {
    let slices = state.families().flat_map(|(_, family)| family.tree.iter());
    let numbers: BTreeSet<u64> = slices.flat_map(|(_, slice)| slice.meta.value_files()).collect();
    let told = |number| {
        let bytes = lens.get(&number).copied().unwrap_or(0);
        BlobInUse { number, path: table_path(db, number), bytes }
    };
    numbers.into_iter().map(told).collect()
}

fn tables(lens: &BTreeMap<u64, u64>, db: &Path, state: &State) -> Vec<TableInUse> {
    let mut tables: BTreeMap<u64, TableInUse> = BTreeMap::new();
    for (family, described) in state.families() {
        for (level, slice) in described.tree.iter() {
            let (meta, number) = (&slice.meta, slice.meta.file);
            let table = tables.entry(number).or_insert_with(|| TableInUse {
                number,
                path: table_path(db, number),
                bytes: lens.get(&number).copied().unwrap_or(0),
                slices: Vec::new(),
            });
            table.slices.push(SliceInTable {
                family,
                level,
                disk_bytes: meta.disk_bytes,
                raw_bytes: meta.raw_bytes,
                entries: meta.entries,
                deletes: meta.deletes,
                smallest: meta.smallest.to_vec(),
                largest: meta.largest.to_vec(),
            });
        }
    }
    tables.into_values().collect()
}
