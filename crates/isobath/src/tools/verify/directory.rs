//! Looks for files in the directory that no other check covers: leftovers of a crash, and files
//! that do not belong to the database. Each is reported as a note, not as damage.

use super::super::lost_and_found::LOST_AND_FOUND;
use super::Verification;
use crate::error::Result;
use crate::version::{
    CURRENT, CURRENT_TMP, LOCK, LOG_DIR, SPILL_DIR, TABLE_DIR, manifest_number, table_number,
};
use crate::wal::{self, SegmentKind};
use std::path::Path;

pub(super) fn verify(verification: &mut Verification<'_>) -> Result<()> {
    let db = verification.db;
    let top = [CURRENT, LOCK, LOG_DIR, SPILL_DIR, TABLE_DIR, LOST_AND_FOUND];
    note_strangers(verification, db, &|name| {
        top.contains(&name) || name == CURRENT_TMP || manifest_number(name).is_some()
    })?;
    note_strangers(verification, &db.join(TABLE_DIR), &|name| table_number(name).is_some())?;
    let log_dir = db.join(LOG_DIR);
    if !verification.fs.exists(&log_dir)? {
        return Ok(());
    }
    let segments = wal::inventory(&**verification.fs, &log_dir)?;
    note_strangers(verification, &log_dir, &|name| {
        segments.iter().any(|info| info.path.ends_with(name))
    })?;
    for info in segments.iter().filter(|info| info.kind == SegmentKind::Unfinished) {
        let detail = "a log segment that was not made whole; the next open removes it";
        verification.report.note(&info.path, None, detail);
    }
    if verification.fs.exists(&db.join(CURRENT_TMP))? {
        let detail = "a switch of manifests that was cut short left it; the next open removes it";
        verification.report.note(&db.join(CURRENT_TMP), None, detail);
    }
    Ok(())
}

fn note_strangers(
    verification: &mut Verification<'_>,
    dir: &Path,
    is_ours: &dyn Fn(&str) -> bool,
) -> Result<()> {
    if !verification.fs.exists(dir)? {
        return Ok(());
    }
    for entry in verification.fs.list(dir)?.iter().filter(|entry| !is_ours(&entry.name)) {
        let detail = "no part of a database; nothing reads, changes or removes it";
        verification.report.note(&dir.join(&entry.name), None, detail);
    }
    Ok(())
}
