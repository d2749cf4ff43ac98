//! Checks whether a manifest that can be read completely is older than the database. Its end may
//! have been cut off at the end of a record, or an old copy of it may have come back.
//!
//! The log shows it if it has a record beyond all sequence numbers that were given out according to
//! the manifest: that of a later term, for one. Tables that it does not name can show it, too. Such
//! a table may be the output of a job that was never installed. But that is not the case if the
//! table holds sequence numbers that, according to the manifest, were never given out; or if it
//! replaces a slice that the manifest names and whose table is gone; or if it holds what should be
//! in the log, and the log is gone.
//!
//! A table may be gone by damage as well, while a compaction that has read it had not ended: its
//! output may be there, and others not. So it shows nothing if another of its inputs, as the
//! manifest names them, is still whole. To give up the manifest would cost what is in that one, and
//! nothing would tell of it. The output is kept aside, since it may have what is lost.

use super::facts::Facts;
use super::log::dump;
use super::{Repair, identity};
use crate::error::Result;
use crate::format::FamilyId;
use crate::table::{Origin, TableFile};
use crate::version::{LOG_DIR, TABLE_DIR, table_number, table_path};
use crate::wal;
use std::collections::BTreeSet;
use std::path::Path;

pub(super) fn is_stale(repair: &mut Repair<'_>, facts: &Facts) -> Result<bool> {
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
    let blobs = facts.slices.values().flat_map(|(_, meta)| meta.value_files());
    let named_all: BTreeSet<u64> = blobs.chain(named).collect();
    let mut aside = Vec::new();
    for number in present.difference(&named_all) {
        // A damaged table shows nothing.
        let Ok(table) = TableFile::open(&repair.fs, &table_path(repair.db, *number)) else {
            continue;
        };
        // Nor does one that lies in the place of another, or is of another database.
        if !identity::mistaken(&table, facts, *number).is_empty() {
            continue;
        }
        for meta in table.slices() {
            let origin = table.origin(meta)?;
            let is_unheard_of = meta.max_seq >= facts.ceiling;
            let replaces_log = !has_log && meta.max_seq >= facts.replay_from;
            if is_unheard_of || replaces_log {
                return Ok(true);
            }
            if replaces_lost(facts, &present, (meta.family, &origin)) {
                if !has_whole_input(repair, facts, (meta.family, &origin)) {
                    return Ok(true);
                }
                aside.push(table.path().to_owned());
            }
        }
    }
    repair.aside.extend(aside);
    Ok(false)
}

/// True if the slice stands for one that the manifest names, and whose table is gone.
fn replaces_lost(
    facts: &Facts,
    present: &BTreeSet<u64>,
    (family, origin): (FamilyId, &Origin),
) -> bool {
    let mut stands_for = origin.inputs.iter().chain(&*origin.ancestors);
    stands_for.any(|file| facts.slices.contains_key(&(family, *file)) && !present.contains(file))
}

/// True if an input of the slice that the manifest names is whole.
fn has_whole_input(
    repair: &Repair<'_>,
    facts: &Facts,
    (family, origin): (FamilyId, &Origin),
) -> bool {
    let mut named =
        origin.inputs.iter().filter(|file| facts.slices.contains_key(&(family, **file)));
    named.any(|file| {
        let table = TableFile::open(&repair.fs, &table_path(repair.db, *file));
        table.is_ok_and(|table| {
            identity::mistaken(&table, facts, *file).is_empty()
                && table.check(&mut |_| ()).is_empty()
        })
    })
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
