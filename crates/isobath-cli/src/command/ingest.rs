//! `ingest`: sorted keys with their values, from lines or from sorted files, all or nothing.

use super::Outcome;
use super::open::{Existing, with_database};
use crate::cli::Ingest;
use crate::failure::{Failure, Result};
use crate::text::Form;
use isobath::IngestFamily;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// How every file of the engine begins; no line does.
const MAGIC: &[u8] = b"ISOBATH\0";

pub(super) fn ingest(asked: &Ingest) -> Result<Outcome> {
    let form = Form::of(asked.form.hex);
    with_database(&asked.keyspace.database.path, |db| {
        let family = db.existing(&asked.keyspace.family)?;
        let mut ingest = db.ingest()?;
        for file in &asked.files {
            add(&mut ingest.of(&family), file, form)?;
        }
        ingest.commit()?;
        if asked.sync.sync {
            db.sync()?;
        }
        Ok(Outcome::Yes)
    })
}

/// Adds a file: lines, or what a `SortedFileWriter` has made.
fn add(part: &mut IngestFamily<'_>, file: &Path, form: Form) -> Result<()> {
    if file == Path::new("-") {
        return add_lines(part, file, std::io::stdin().lock(), form);
    }
    let cannot_read = |error: std::io::Error| {
        Failure::Request(format!("could not read {}: {error}; nothing was written", file.display()))
    };
    let mut lines = BufReader::new(File::open(file).map_err(cannot_read)?);
    match lines.fill_buf().map_err(cannot_read)?.starts_with(MAGIC) {
        true => Ok(part.add_file(file).map(drop)?),
        false => add_lines(part, file, lines, form),
    }
}

/// Adds lines as `scan` prints them: a key, a tab and a value.
fn add_lines(
    part: &mut IngestFamily<'_>,
    file: &Path,
    mut lines: impl BufRead,
    form: Form,
) -> Result<()> {
    let mut line = Vec::new();
    for nth in 1u64.. {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(Failure::Input)? == 0 {
            break;
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let added = match text.iter().position(|byte| *byte == b'\t') {
            None => Err(Failure::Request("a key, a tab and a value are wanted".to_owned())),
            Some(tab) => {
                let read = |bytes| form.read(OsStr::from_bytes(bytes));
                read(&text[..tab])
                    .and_then(|key| Ok((key, read(&text[tab + 1..])?)))
                    .and_then(|(key, value)| Ok(part.put(key, value)?))
            }
        };
        added.map_err(|failure| {
            let place = format!("{}, line {nth}", file.display());
            Failure::Request(format!("{place}: {failure}; nothing was written"))
        })?;
    }
    Ok(())
}
