//! What happens to a file system between the writes of a database and a cut: some of it reaches the
//! device, in no order.
//!
//! A cut alone loses all dirty pages together. So before it, ranges of the database's files are
//! written back, or every other page of its log, other files are synced (which commits the file
//! system's journal, and with it names and lengths that were not synced), and single files are
//! synced whole.

use super::calls;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PAGE_LEN: u64 = 4096;
/// A page that was written back is clean and protected again, so few at a time.
const PAGES_MAX: u64 = 4;
/// More than a segment of a small database has.
const SCATTERED_PAGES_MAX: u64 = 64;

/// A file beside the database, to be synced.
pub(crate) struct Bystander(File);

impl Bystander {
    pub(crate) fn create(dir: &Path) -> io::Result<Bystander> {
        let path = dir.join("bystander");
        Ok(Bystander(OpenOptions::new().write(true).create(true).truncate(false).open(path)?))
    }
}

/// Does one disturbance. A file that is removed meanwhile is no error.
pub(crate) fn disturb(db: &Path, bystander: &Bystander, rng: &mut fastrand::Rng) -> io::Result<()> {
    match rng.u32(..16) {
        0..5 => write_back_ranges(db, rng),
        5..10 => write_back_every_other_page(db, rng),
        10..13 => sync_a_file(db, rng),
        _ => {
            // The file gets longer, so its sync commits the file system's journal.
            let len = bystander.0.metadata()?.len();
            bystander.0.write_all_at(b"x", len)?;
            bystander.0.sync_data()
        }
    }
}

fn write_back_ranges(db: &Path, rng: &mut fastrand::Rng) -> io::Result<()> {
    let Some(file) = some_file(db, rng)? else { return Ok(()) };
    let pages = file.metadata()?.len().div_ceil(PAGE_LEN).max(1);
    for _ in 0..rng.u32(1..=4) {
        let len = rng.u64(1..=PAGES_MAX);
        calls::write_back(&file, rng.u64(..pages) * PAGE_LEN, len * PAGE_LEN)?;
    }
    Ok(())
}

/// Makes about half of the log's dirty pages durable, chosen page by page, which leaves holes.
fn write_back_every_other_page(db: &Path, rng: &mut fastrand::Rng) -> io::Result<()> {
    for log in files_below(db)?.iter().filter(|path| is_log(path)) {
        let Some(file) = open_if_there(log)? else { continue };
        let pages = file.metadata()?.len().div_ceil(PAGE_LEN);
        let first = rng.u64(..=pages.saturating_sub(SCATTERED_PAGES_MAX));
        for page in first..pages.min(first + SCATTERED_PAGES_MAX) {
            if rng.bool() {
                calls::write_back(&file, page * PAGE_LEN, PAGE_LEN)?;
            }
        }
    }
    Ok(())
}

fn sync_a_file(db: &Path, rng: &mut fastrand::Rng) -> io::Result<()> {
    some_file(db, rng)?.map_or(Ok(()), |file| file.sync_data())
}

/// Any file of a database, of its log in most cases.
fn some_file(db: &Path, rng: &mut fastrand::Rng) -> io::Result<Option<File>> {
    let mut files = files_below(db)?;
    if rng.u32(..3) > 0 {
        files.retain(|path| is_log(path));
    }
    rng.choice(&files).map_or(Ok(None), |path| open_if_there(path))
}

/// By the names that Isobath and its peers give their logs.
fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|end| ["wal", "log", "jnl"].map(OsStr::new).contains(&end))
}

fn open_if_there(path: &Path) -> io::Result<Option<File>> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// All files in a directory and its directories.
pub(crate) fn files_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => dirs.push(entry.path()),
                Ok(_) => files.push(entry.path()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(files)
}
