//! Checks a database that a process has open for writing, as a program that opens it for reading
//! sees it: the manifest, each table that it names, and the log behind what is in tables.
//!
//! The writer goes on meanwhile. Damage to a table counts only if the manifest names the table
//! afterwards, too. Otherwise a compaction has made the table obsolete, and the writer may have
//! removed it. What the writer has not finished yet looks like a leftover or a torn end, so nothing
//! is said of those. Sync markers, spare segments and older parts of the log are not checked.

use super::manifest::check_state;
use super::{Verification, tables};
use crate::env::Env;
use crate::error::Result;
use crate::follow::look_until_steady;
use crate::format::{Lsn, Payload, decode_payload};
use crate::options::FamilyOptions;
use crate::version::{
    self, LOG_DIR, ManifestReader, ObsoleteFiles, State, manifest_path, table_path,
};
use crate::wal::{self, Looked};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The looks at the log, each from the end of the one before on.
const LOOKS: usize = 3;

/// One moment of the database, with what was checked to see it.
struct Seen {
    state: State,
    manifest: PathBuf,
    manifest_len: u64,
    edits: u64,
    log_records: u64,
    log_len: u64,
}

pub(super) fn verify(verification: &mut Verification<'_>, env: &Env) -> Result<()> {
    let db = verification.db;
    let detail = "a process has it open for writing: what a reader needs was checked, and neither spare nor older \
                  segments of the log";
    verification.report.note(db, None, detail);
    let seen = match look_until_steady(env, db, &mut |_| look(verification)) {
        Ok(seen) => seen,
        Err(error) => return verification.report.absorb(error),
    };
    verification.report.edits = seen.edits;
    verification.report.log_records = seen.log_records;
    verification.expect(seen.manifest_len);
    verification.expect(seen.log_len);
    check_state(verification, &seen.manifest, &seen.state)?;
    check_tables(verification, env, &seen)
}

/// Reads the manifest and the log, as a reader does that opens the database.
fn look(verification: &Verification<'_>) -> Result<Seen> {
    let (fs, db) = (&**verification.fs, verification.db);
    let found = version::inspect(fs, db, &ObsoleteFiles::new())?;
    let manifest = manifest_path(db, found.manifest);
    let reader = ManifestReader::open(fs, &manifest)?;
    let (state, dir) = (found.state, db.join(LOG_DIR));
    let from = state.replay_from();
    if from < state.ceiling() {
        wal::demand_segment(fs, &dir, from)?;
    }
    let mut visit = |lsn: Lsn, payload: &[u8]| {
        match decode_payload(payload)? {
            Payload::FamilyCreate { options, .. } if lsn > state.families_changed() => {
                // A reader needs no codec before it reads what needs it.
                FamilyOptions::from_stored(options)?;
            }
            _ => {}
        }
        Ok(())
    };
    let place = (fs, &*dir, state.uuid());
    // Unlike a recovery, it meets records that are still being written. What lies behind the end is
    // no proof of damage if the log has grown meanwhile, which it hardly does in each short look.
    let (mut looked, mut end, mut records) = (Looked::default(), from, 0);
    for _ in 0..LOOKS {
        let from = (end, state.durable());
        let scanned = wal::follow(&mut looked, place, from, &mut visit, &mut |_, _| ())?;
        (end, records) = (scanned.end, records + scanned.records);
    }
    Ok(Seen {
        manifest_len: reader.len(),
        edits: reader.edits().filter(|edit| edit.is_ok()).count() as u64,
        log_records: records,
        log_len: end - from,
        state,
        manifest,
    })
}

/// Checks the tables that the manifest named at that moment, and drops what was found in those that
/// it names no more.
fn check_tables(verification: &mut Verification<'_>, env: &Env, seen: &Seen) -> Result<()> {
    let (db, fs) = (verification.db, verification.fs);
    let notes = verification.report.notes.len();
    let (wanted, mut blobs) = tables::gather(verification, Some(&seen.state))?;
    // What it says of tables without a name is about leftovers, which these are not.
    verification.report.notes.truncate(notes);
    verification.advance(seen.manifest_len + seen.log_len);
    let mut unreadable = Vec::new();
    for table in &wanted {
        let only = std::slice::from_ref(table);
        if let Err(error) = tables::verify(verification, Some(&seen.state), only, &mut blobs) {
            unreadable.push((table.path(db), error));
        }
    }
    unreadable.extend(blobs.check_headers(verification));
    unreadable.extend(blobs.finish(verification));
    if unreadable.is_empty() && verification.report.is_clean() {
        return Ok(());
    }
    let obsolete = ObsoleteFiles::new();
    let now = look_until_steady(env, db, &mut |_| version::inspect(&**fs, db, &obsolete))?.state;
    let named: BTreeSet<PathBuf> =
        tables::named(&now).into_iter().map(|number| table_path(db, number)).collect();
    let was_named: BTreeSet<PathBuf> =
        tables::named(&seen.state).into_iter().map(|number| table_path(db, number)).collect();
    let is_gone = |path: &PathBuf| was_named.contains(path) && !named.contains(path);
    verification.report.findings.retain(|finding| !is_gone(&finding.path));
    match unreadable.into_iter().find(|(path, _)| !is_gone(path)) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}
