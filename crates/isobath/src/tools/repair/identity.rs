//! Which database the files are of, and whether a table is the one that its name says.
//!
//! A table that lies in the place of another, or is of another database, says nothing about what
//! the name stands for: levels, and which tables replace which, are told by numbers. So nothing of
//! it is taken. That is certain if its header is whole, or its footer, since a checksum vouches for
//! each. Where both are damaged, the file is taken for what its name says.
//!
//! Without a manifest the identity is that of most files, so that one strange file does not decide
//! it. Where as many have one as another, the log decides.

use super::Repair;
use super::facts::Facts;
use crate::error::{Error, Result};
use crate::format::{FILE_HEADER_LEN, FileHeader, FileKind};
use crate::table::{Salvage, TableFile};
use crate::version::{LOG_DIR, TABLE_DIR, table_number, table_path};
use crate::vfs::FileAccess;
use crate::wal;
use std::collections::BTreeMap;
use std::path::Path;

/// The identity of the database, as far as its tables and its log state it.
pub(super) fn of_most_files(repair: &Repair<'_>) -> Result<Option<[u8; 16]>> {
    // How many files have it, and how many of these are of the log.
    let mut votes: BTreeMap<[u8; 16], (u64, u64)> = BTreeMap::new();
    let (log, tables) = (repair.db.join(LOG_DIR), repair.db.join(TABLE_DIR));
    if repair.fs.exists(&tables)? {
        let listed = repair.fs.list(&tables)?;
        for number in listed.iter().filter_map(|entry| table_number(&entry.name)) {
            let head = head_of(repair, &table_path(repair.db, number))?;
            let kinds = [FileKind::Table, FileKind::Blob, FileKind::Prepared];
            let header = kinds.into_iter().find_map(|kind| FileHeader::decode(&head, kind).ok());
            header.into_iter().for_each(|header| votes.entry(header.uuid).or_default().0 += 1);
        }
    }
    if repair.fs.exists(&log)? {
        for info in wal::inventory(&*repair.fs, &log)? {
            if let Ok(header) = FileHeader::decode(&head_of(repair, &info.path)?, FileKind::Log) {
                let of = votes.entry(header.uuid).or_default();
                *of = (of.0 + 1, of.1 + 1);
            }
        }
    }
    Ok(votes.into_iter().max_by_key(|(_, count)| *count).map(|(uuid, _)| uuid))
}

/// The first bytes of a file, with zeros for what it lacks or the device cannot read.
fn head_of(repair: &Repair<'_>, path: &Path) -> Result<Vec<u8>> {
    let file = repair.fs.open_read(path, FileAccess::Positional)?;
    let mut head = vec![0; FILE_HEADER_LEN];
    let len = file.len().min(FILE_HEADER_LEN as u64) as usize;
    repair.unreadable.read_around(&*file, 0, &mut head[..len])?;
    Ok(head)
}

/// Why an open table is not the one that its name and the manifest say.
pub(super) fn mistaken(table: &TableFile, facts: &Facts, number: u64) -> Vec<Error> {
    said(table.header(), facts, (table.path(), number))
}

/// The same of one that could not be opened: by its header or its footer, if either is whole.
pub(super) fn mistaken_rest(
    salvage: &Salvage,
    facts: &Facts,
    (path, number): (&Path, u64),
) -> Vec<Error> {
    let wrong = salvage.header().map(|header| said(&header, facts, (path, number)));
    let wrong = wrong.filter(|wrong| !wrong.is_empty());
    let by_footer = salvage.number_at_end().filter(|at_end| *at_end != number).map(|at_end| {
        let detail = format!("the footer says that this is table {at_end}");
        Error::corruption(path, 0, detail)
    });
    wrong.unwrap_or_else(|| by_footer.into_iter().collect())
}

fn said(header: &FileHeader, facts: &Facts, (path, number): (&Path, u64)) -> Vec<Error> {
    let mut wrong = Vec::new();
    if header.number != number {
        let detail = format!("the header says that this is table {}", header.number);
        wrong.push(Error::corruption(path, 48, detail));
    }
    if facts.uuid.is_some_and(|uuid| uuid != header.uuid) {
        wrong.push(Error::corruption(path, 32, "the table belongs to another database"));
    }
    wrong
}
