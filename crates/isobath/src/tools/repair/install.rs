//! Makes the repaired state the current one. On disk, step by step:
//!
//! 1. The new tables are written and synced, then their directory. Nothing names them yet.
//! 2. Every file that will be replaced gets a second name in `lost+found` (segments of the log are
//!    copied instead, because the engine would reuse them in place). What is lost or guessed is
//!    written there, too, and synced. Then that directory is synced.
//! 3. A new manifest is written beside the existing ones, and `CURRENT` is switched to it
//!    atomically. From here on the database is repaired.
//! 4. The first names of the replaced files are removed. A segment that the device cannot read as a
//!    whole takes the place of its copy instead: other tools may get more of it.
//!
//! A crash before step 3 leaves the database as it was, with tables that are not needed. A second
//! repair finds the same damage. A crash after step 3 leaves files that the next open would remove
//! and that are also in `lost+found`.

use super::super::lost_and_found::LOST_AND_FOUND;
use super::Repair;
use super::report::MovedFile;
use crate::error::{Error, Result};
use crate::version::{CURRENT, LOG_DIR, State, TABLE_DIR, make_missing, replace_manifest};
use std::path::{Path, PathBuf};

/// Makes the directories of a database that are missing.
pub(super) fn make_dirs(repair: &Repair<'_>) -> Result<()> {
    let mut dirs = [LOG_DIR, TABLE_DIR].into_iter();
    dirs.try_for_each(|dir| make_missing(&*repair.fs, repair.db, dir))
}

pub(super) fn install(repair: &mut Repair<'_>, state: &State, replaced: &[PathBuf]) -> Result<()> {
    let db = repair.db;
    repair.fs.sync_dir(&db.join(TABLE_DIR))?;
    keep_aside(repair, replaced)?;
    replace_manifest(&repair.fs, db, state)?;
    let mut has_moved = false;
    for path in replaced.iter().filter(|path| !path.ends_with(CURRENT)) {
        let of_path = |moved: &&MovedFile| is_segment(path) && moved.from == *path;
        match repair.report.moved.iter().find(of_path) {
            Some(moved) if repair.unreadable.has_file(path) => {
                repair.fs.replace(path, &moved.to)?;
                has_moved = true;
            }
            _ => repair.fs.remove(path)?,
        }
    }
    // What has moved gets its new name before it loses the old one.
    let target = has_moved.then(|| db.join(LOST_AND_FOUND));
    let dirs = target.into_iter().chain([db.to_owned(), db.join(LOG_DIR), db.join(TABLE_DIR)]);
    for dir in dirs {
        repair.fs.sync_dir(&dir)?;
    }
    Ok(())
}

fn is_segment(path: &Path) -> bool {
    path.parent().is_some_and(|parent| parent.ends_with(LOG_DIR))
}

fn keep_aside(repair: &mut Repair<'_>, replaced: &[PathBuf]) -> Result<()> {
    let has_to_tell = !repair.report.losses.is_empty() || !repair.report.guesses.is_empty();
    if replaced.is_empty() && !has_to_tell {
        return Ok(());
    }
    let dir = repair.db.join(LOST_AND_FOUND);
    make_missing(&*repair.fs, repair.db, LOST_AND_FOUND)?;
    // Nothing is decided by what is read from here on.
    repair.unreadable.set_complete(false);
    for from in replaced {
        let to = free_name(repair, &dir, from)?;
        if is_segment(from) {
            copy(repair, from, &to)?;
        } else {
            repair.fs.link(from, &to)?;
        }
        repair.report.moved.push(MovedFile { from: from.clone(), to });
    }
    if has_to_tell {
        keep_report(repair, &dir)?;
    }
    repair.fs.sync_dir(&dir)
}

/// The last line shows that the file is complete.
fn keep_report(repair: &mut Repair<'_>, dir: &Path) -> Result<()> {
    let path = free_name(repair, dir, "report.txt".as_ref())?;
    let mut lines = repair.report.lines(|key| key.escape_ascii().to_string());
    lines.push(format!("end: {} losses\n", repair.report.losses.len()));
    let mut file = repair.fs.create(&path)?;
    file.append(lines.join("\n").as_bytes())?;
    file.sync()?;
    repair.report.kept_in = Some(path);
    Ok(())
}

/// A free name in `dir`, as similar as possible to the file's own name.
fn free_name(repair: &Repair<'_>, dir: &Path, file: &Path) -> Result<PathBuf> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or("file");
    for nth in 0..u32::MAX {
        let suffix = if nth == 0 { String::new() } else { format!(".{nth}") };
        let path = dir.join(format!("{name}{suffix}"));
        if !repair.fs.exists(&path)? {
            return Ok(path);
        }
    }
    Err(Error::invalid_argument(format!("{} is full of {name}", dir.display())))
}

fn copy(repair: &Repair<'_>, from: &Path, to: &Path) -> Result<()> {
    let bytes = repair.read_leniently(from)?;
    let mut file = repair.fs.create(to)?;
    file.append(&bytes)?;
    file.sync()
}
