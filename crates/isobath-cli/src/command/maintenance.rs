//! `flush`, `compact`.

use super::Outcome;
use super::open::{Existing, with_database};
use super::output::Output;
use super::scan::bounds;
use crate::cli::{Compact, Database};
use crate::failure::Result;
use crate::text::{Form, size};

pub(super) fn flush(asked: &Database) -> Result<Outcome> {
    with_database(&asked.path, |db| Ok(db.flush()?))?;
    Ok(Outcome::Yes)
}

pub(super) fn compact(asked: &Compact) -> Result<Outcome> {
    let bounds = bounds(&asked.bounds, Form::of(asked.form.hex))?;
    let done = with_database(&asked.keyspace.database.path, |db| {
        let family = db.existing(&asked.keyspace.family)?;
        family.compact(bounds)?;
        let families = db.metrics().families;
        let of_family = families.into_iter().find(|of| of.id == family.id());
        Ok(of_family.map_or_else(Vec::new, |of| of.compactions))
    })?;
    let mut output = Output::new();
    for one in done.iter().filter(|_| asked.report) {
        output
            .line(&format!("{} into level {}, {} times:", one.reason, one.into_level, one.count))?;
        let line = |what: &str, entries: u64, deletes: u64, bytes: u64| {
            format!("  {what:<5} {entries:>11} entries ({deletes} deletes), {}", size(bytes))
        };
        output.line(&line("read", one.read_entries, one.read_deletes, one.read_bytes))?;
        let written = (one.written_entries, one.written_deletes, one.written_bytes);
        output.line(&line("wrote", written.0, written.1, written.2))?;
    }
    output.finish()?;
    Ok(Outcome::Yes)
}
