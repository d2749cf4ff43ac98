//! Checks whether a manifest that can be read completely is older than the database. Its end may
//! have been cut off at the end of a record, or an old copy of it may have come back.
//!
//! The log shows it if it has a record beyond all sequence numbers that were given out according to
//! the manifest: that of a later term, for one. Tables that it does not name can show it, too. Such
//! a table may be the output of a job that was never installed. But that is not the case if the
//! table holds sequence numbers that, according to the manifest, were never given out; or if it
//! replaces a table that the manifest names and that is gone; or if it holds what should be in the
//! log, and the log or the file of a transaction in doubt is gone; or if it replaces a slice of
//! which a blob file is gone, and the job has left nothing there. A table outlives such a file if
//! other families share it.

use super::Repair;
use super::facts::Facts;
use super::log::dump;
use crate::error::Result;
use crate::format::FamilyId;
use crate::table::{Origin, TableFile};
use crate::version::{LOG_DIR, TABLE_DIR, table_number, table_path};
use crate::wal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

pub(super) fn is_stale(repair: &Repair<'_>, facts: &Facts) -> Result<bool> {
    let dir = repair.db.join(TABLE_DIR);
    let entries = if repair.fs.exists(&dir)? { repair.fs.list(&dir)? } else { Vec::new() };
    let present: BTreeSet<u64> =
        entries.iter().filter_map(|entry| table_number(&entry.name)).collect();
    let named: BTreeSet<u64> = facts.slices.keys().map(|(_, file)| *file).collect();
    let log_dir = repair.db.join(LOG_DIR);
    let has_log = facts.replay_from >= facts.ceiling
        || (repair.fs.exists(&log_dir)?
            && wal::demand_segment(&*repair.fs, &log_dir, facts.replay_from).is_ok());
    if goes_beyond(repair, facts, &log_dir)? {
        return Ok(true);
    }
    let mut blobs_moved: BTreeMap<(FamilyId, Arc<[u64]>), BTreeSet<u64>> = BTreeMap::new();
    let blobs = facts.slices.values().flat_map(|(_, meta)| &meta.blobs).map(|share| share.file);
    let named_all: BTreeSet<u64> = blobs.chain(named.iter().copied()).collect();
    // The file of a transaction in doubt goes when a table has what it was decided to be.
    let has_decided = facts.prepared.values().any(|(_, file, _)| !present.contains(file));
    for number in present.difference(&named_all) {
        // A damaged table shows nothing.
        let Ok(table) = TableFile::open(&repair.fs, &table_path(repair.db, *number)) else {
            continue;
        };
        for meta in table.slices() {
            let origin = table.origin(meta)?;
            let mut stands_for = origin.inputs.iter().chain(&*origin.ancestors);
            let replaces_lost =
                stands_for.any(|file| named.contains(file) && !present.contains(file));
            let is_unheard_of = meta.max_seq >= facts.ceiling;
            let is_later = meta.max_seq >= facts.replay_from;
            if replaces_lost || is_unheard_of || is_later && (!has_log || has_decided) {
                return Ok(true);
            }
            if !origin.is_of_repair() {
                let job = blobs_moved.entry((meta.family, origin.inputs.clone()));
                let blobs =
                    job.or_insert_with(|| blobs_lost(facts, meta.family, &origin, &present));
                blobs.retain(|blob| !meta.blobs.iter().any(|share| share.file == *blob));
            }
        }
    }
    Ok(blobs_moved.values().any(|blobs| !blobs.is_empty()))
}

/// The blob files that are gone and in which the slices that the origin names have values.
fn blobs_lost(
    facts: &Facts,
    family: FamilyId,
    origin: &Origin,
    present: &BTreeSet<u64>,
) -> BTreeSet<u64> {
    let files = origin.inputs.iter().chain(&*origin.ancestors);
    let slices = files.filter_map(|file| facts.slices.get(&(family, *file)));
    let blobs = slices.flat_map(|(_, meta)| meta.blobs.iter().map(|share| share.file));
    blobs.filter(|blob| !present.contains(blob)).collect()
}

/// True if the log has a whole record beyond what was given out according to the manifest.
fn goes_beyond(repair: &Repair<'_>, facts: &Facts, log_dir: &Path) -> Result<bool> {
    let mut goes_beyond = false;
    if repair.fs.exists(log_dir)? {
        dump(repair, facts.replay_from, &mut |dumped| {
            let is_whole = dumped.header.skip || dumped.payload.is_some();
            goes_beyond |= is_whole && dumped.header.lsn >= facts.ceiling;
            Ok(())
        })?;
    }
    Ok(goes_beyond)
}
