//! Shows `CURRENT`, and a manifest edit by edit.

use super::{Dump, Field};
use crate::error::Result;
use crate::version::{ManifestReader, read_current};
use crate::vfs::FileAccess;
use std::path::Path;

/// Longer than any valid content of `CURRENT`.
const CURRENT_LEN_MAX: u64 = 256;

pub(super) fn current(dump: &mut Dump<'_>) -> Result<()> {
    let file = dump.fs.open_read(dump.path, FileAccess::Positional)?;
    let mut bytes = vec![0; file.len().min(CURRENT_LEN_MAX) as usize];
    file.read_at(0, &mut bytes)?;
    dump.show(0, 0, "line", &[("text", Field::Bytes(&bytes))])?;
    match read_current(dump.fs, dump.path.parent().unwrap_or(Path::new(""))) {
        Ok(number) => dump.show(0, 1, "names", &[("manifest", Field::Number(number))]),
        Err(error) => dump.absorb(&error),
    }
}

pub(super) fn manifest(dump: &mut Dump<'_>) -> Result<()> {
    let reader = match ManifestReader::open(dump.fs, dump.path) {
        Ok(reader) => reader,
        Err(error) => return dump.absorb(&error),
    };
    dump.header(reader.header())?;
    let mut edits = reader.edits();
    for edit in edits.by_ref() {
        let (offset, edit) = match edit {
            Ok(edit) => edit,
            Err(error) => {
                dump.absorb(&error)?;
                continue;
            }
        };
        dump.show(offset, 0, "edit", &[("changes", Field::Number(edit.changes.len() as u64))])?;
        for change in &edit.changes {
            dump.show(offset, 1, "change", &[("", Field::Text(&change.to_string()))])?;
        }
    }
    for offset in reader.damaged_sync_markers() {
        dump.damage(offset, "a sync marker is not what was written")?;
    }
    if let Some(tail) = edits.torn_tail() {
        let fields = [("bytes", Field::Number(tail.len))];
        dump.show(tail.offset, 0, "torn tail", &fields)?;
    }
    Ok(())
}
