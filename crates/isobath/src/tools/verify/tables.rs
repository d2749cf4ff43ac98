//! Checks the files of tables and of prepared transactions: that each exists, is the one that the
//! manifest names, and is intact from header to footer.

use super::Verification;
use super::blobs::{self, Blobs};
use crate::error::{Error, Result};
use crate::format::{Lsn, Payload, decode_payload};
use crate::table::{SliceMeta, TableFile};
use crate::version::{State, TABLE_DIR, read_entry, read_own_entry, table_number, table_path};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A table file to check.
pub(super) struct Wanted {
    number: u64,
    /// What the manifest says about the table. Empty if there is no manifest.
    slices: Vec<SliceMeta>,
    /// The LSN of the prepared transaction that the manifest has in the file.
    prepared: Option<Lsn>,
}

impl Wanted {
    pub(super) fn path(&self, db: &Path) -> PathBuf {
        table_path(db, self.number)
    }
}

/// The numbers of the files that the manifest names.
pub(super) fn named(state: &State) -> BTreeSet<u64> {
    let families = state.families().map(|(_, family)| &family.tree);
    let slices = families.flat_map(|tree| tree.iter().map(|(_, slice)| slice.meta.file));
    let slices = slices.chain(blobs::named(state));
    slices.chain(state.prepared().values().map(|prepared| prepared.file.number())).collect()
}

/// Finds the table files and the blob files: those that the manifest names or, without a manifest,
/// all that exist.
pub(super) fn gather(
    verification: &mut Verification<'_>,
    state: Option<&State>,
) -> Result<(Vec<Wanted>, Blobs)> {
    let (fs, dir) = (verification.fs, verification.db.join(TABLE_DIR));
    let entries = if fs.exists(&dir)? { fs.list(&dir)? } else { Vec::new() };
    let mut present: BTreeMap<u64, u64> = entries
        .iter()
        .filter(|entry| !entry.is_dir)
        .filter_map(|entry| Some((table_number(&entry.name)?, entry.len)))
        .collect();
    let mut blobs = Blobs::gather(verification, state, &mut present);
    let mut wanted: BTreeMap<u64, Vec<SliceMeta>> = BTreeMap::new();
    match state {
        None => wanted.extend(present.keys().map(|number| (*number, Vec::new()))),
        Some(state) => {
            for (_, family) in state.families() {
                for (_, slice) in family.tree.iter() {
                    wanted.entry(slice.meta.file).or_default().push(slice.meta.clone());
                }
            }
        }
    }
    let entries = state.into_iter().flat_map(State::prepared);
    let entries: BTreeMap<u64, Lsn> =
        entries.map(|(lsn, prepared)| (prepared.file.number(), *lsn)).collect();
    wanted.extend(entries.keys().map(|number| (*number, Vec::new())));
    let mut found = Vec::with_capacity(wanted.len());
    for (number, slices) in wanted {
        let prepared = entries.get(&number).copied();
        match present.remove(&number) {
            Some(len) => {
                verification.expect(len);
                found.push(Wanted { number, slices, prepared });
            }
            None => {
                let path = table_path(verification.db, number);
                let detail = match prepared {
                    Some(_) => "it is missing, yet a prepared transaction is in it".to_owned(),
                    None => {
                        format!("it is missing, yet the manifest has {} slices in it", slices.len())
                    }
                };
                verification.report.damage(&path, None, detail);
            }
        }
    }
    for number in present.keys() {
        let path = table_path(verification.db, *number);
        let detail = match blobs.is_blob(*number) {
            true => {
                "a blob file that the manifest does not name; the next open removes it, unless the \
                 log names it"
            }
            false => "a table that the manifest does not name; the next open removes it",
        };
        verification.report.note(&path, None, detail);
    }
    Ok((found, blobs))
}

pub(super) fn verify(
    verification: &mut Verification<'_>,
    state: Option<&State>,
    tables: &[Wanted],
    blobs: &mut Blobs,
) -> Result<()> {
    for wanted in tables {
        let path = table_path(verification.db, wanted.number);
        let before = verification.done_bytes();
        if wanted.prepared.is_some() || state.is_none() && is_entry(verification, &path) {
            check_entry(verification, state, wanted)?;
            continue;
        }
        match TableFile::open(verification.fs, &path) {
            Ok(table) => {
                check_identity(verification, state, wanted, &table);
                check_slices(verification, wanted, &table);
                for error in table.check(&mut |len| verification.advance(len)) {
                    verification.report.absorb(error)?;
                }
                verification.report.slices += table.slices().len() as u64;
                let entries = table.slices().iter().map(|slice| slice.entries);
                verification.report.entries += entries.sum::<u64>();
                verification.advance_to(before + table.len());
                // Values of other slices may be gone.
                let is_in_use = |meta: &&SliceMeta| {
                    state.is_none() || wanted.slices.iter().any(|wanted| wanted.is_same_as(meta))
                };
                let slices = table.slices().iter().filter(is_in_use);
                blobs.check_values(verification, &table, slices)?;
            }
            Err(error) => verification.report.absorb(error)?,
        }
    }
    Ok(())
}

/// True if the file says that it holds a prepared transaction.
fn is_entry(verification: &Verification<'_>, path: &Path) -> bool {
    read_entry(&**verification.fs, path).is_ok()
}

/// Checks the file of a prepared transaction.
fn check_entry(
    verification: &mut Verification<'_>,
    state: Option<&State>,
    wanted: &Wanted,
) -> Result<()> {
    let (fs, db) = (&**verification.fs, verification.db);
    let path = table_path(db, wanted.number);
    let checked = match (state, wanted.prepared) {
        (Some(state), Some(lsn)) => read_own_entry(fs, db, state.uuid(), wanted.number, lsn),
        _ => read_entry(fs, &path).map(|entry| entry.payload),
    };
    let checked = checked.and_then(|payload| {
        verification.advance(payload.len() as u64);
        match decode_payload(&payload).map_err(|error| error.in_file(&path, 0))? {
            Payload::Prepare(_) => Ok(()),
            _ => Err(Error::corruption(&path, 0, "it holds no prepared transaction")),
        }
    });
    checked.or_else(|error| verification.report.absorb(error))
}

/// Checks which table of which database the header names.
fn check_identity(
    verification: &mut Verification<'_>,
    state: Option<&State>,
    wanted: &Wanted,
    table: &TableFile,
) {
    let path = table_path(verification.db, wanted.number);
    let header = table.header();
    if header.number != wanted.number {
        let detail = format!("the header says that this is table {}", header.number);
        verification.report.damage(&path, Some(48), detail);
    }
    if state.is_some_and(|state| state.uuid() != header.uuid) {
        verification.report.damage(&path, Some(32), "the table belongs to another database");
    }
}

/// Every slice that the manifest has in the file must be there, exactly as the manifest says.
fn check_slices(verification: &mut Verification<'_>, wanted: &Wanted, table: &TableFile) {
    let path = table_path(verification.db, wanted.number);
    for meta in
        wanted.slices.iter().filter(|meta| !table.slices().iter().any(|it| it.is_same_as(meta)))
    {
        let detail = format!(
            "the manifest has a slice of family {} here that the file does not have, or not so",
            meta.family
        );
        verification.report.damage(&path, Some(meta.root.offset), detail);
    }
}
