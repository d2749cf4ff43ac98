//! Checks `CURRENT` and the manifest it names.

use super::Verification;
use crate::error::Result;
use crate::options::FamilyOptions;
use crate::version::{
    CURRENT, ManifestReader, ObsoleteFiles, State, manifest_number, manifest_path, read_current,
    refuse_stale_current, table_path,
};
use std::path::Path;

/// The state that the manifest describes, if it could be read.
pub(super) fn verify(verification: &mut Verification<'_>) -> Result<Option<State>> {
    let (fs, db) = (verification.fs, verification.db);
    let current = db.join(CURRENT);
    if !fs.exists(&current)? {
        return Ok(None);
    }
    let number = read_current(&**fs, db).and_then(|number| {
        refuse_stale_current(&**fs, db, number)?;
        Ok(number)
    });
    let number = match number {
        Ok(number) => number,
        Err(error) => {
            verification.report.absorb(error)?;
            return Ok(None);
        }
    };
    for entry in fs.list(db)? {
        if entry.name == CURRENT {
            verification.expect(entry.len);
            verification.advance(entry.len);
        }
        if manifest_number(&entry.name).is_some_and(|other| other != number) {
            let detail = "a manifest that CURRENT does not name; the next open removes it";
            verification.report.note(&db.join(&entry.name), None, detail);
        }
    }
    let path = manifest_path(db, number);
    if !fs.exists(&path)? {
        verification.report.damage(&path, None, "it is missing, yet CURRENT names it");
        return Ok(None);
    }
    match read(verification, number) {
        Ok(state) => Ok(Some(state)),
        Err(error) => {
            verification.report.absorb(error)?;
            Ok(None)
        }
    }
}

fn read(verification: &mut Verification<'_>, number: u64) -> Result<State> {
    let path = manifest_path(verification.db, number);
    let reader = ManifestReader::open(&**verification.fs, &path)?;
    verification.expect(reader.len());
    verification.report.edits += reader.edits().filter(|edit| edit.is_ok()).count() as u64;
    for offset in reader.damaged_sync_markers() {
        let detail = "the sync marker of a record is damaged; the record itself is whole";
        verification.report.damage(&path, Some(offset), detail);
    }
    let (state, torn_tail) = reader.fold(&ObsoleteFiles::new())?;
    if let Some(tail) = torn_tail {
        let detail = format!(
            "its last {} bytes are an edit whose write was interrupted, and whose success was never reported",
            tail.len
        );
        verification.report.note(&path, Some(tail.offset), detail);
    }
    if let Some(offset) = reader.odd_last_sync_marker() {
        let detail = "the sync marker of the last record is not what was written: power failed then, or it is damaged; the \
                      record itself is whole and counts";
        verification.report.note(&path, Some(offset), detail);
    }
    check_state(verification, &path, &state)?;
    verification.advance(reader.len());
    Ok(state)
}

/// Fails if the options of a family name a codec that this build lacks: it could not open the
/// database.
pub(super) fn demand_codecs(verification: &Verification<'_>, state: &State) -> Result<()> {
    let demand = |stored: &[u8]| FamilyOptions::from_stored(stored)?.demand_codecs().map(drop);
    let mut families = state.families();
    families.try_for_each(|(_, family)| {
        demand(&family.options).map_err(|error| error.in_file(verification.db, 0))
    })
}

/// Checks what applying the edits does not check: options, and whether tables and log fit together.
/// Options that only a later version can read are an error, as they are when the database is
/// opened.
pub(super) fn check_state(
    verification: &mut Verification<'_>,
    path: &Path,
    state: &State,
) -> Result<()> {
    for (id, family) in state.families() {
        FamilyOptions::from_stored(&family.options).map_err(|error| error.in_file(path, 0))?;
        let replay_from = state.replay_from();
        for (_, slice) in family.tree.iter().filter(|(_, slice)| slice.meta.max_seq >= replay_from)
        {
            let detail = format!(
                "family {id} has a slice with sequence {:#x}, but replay of the log begins at {replay_from:#x}",
                slice.meta.max_seq
            );
            let table = table_path(verification.db, slice.meta.file);
            verification.report.damage(&table, Some(slice.meta.root.offset), detail);
        }
    }
    Ok(())
}
