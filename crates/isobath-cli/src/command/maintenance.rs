//! `flush`, `compact`.

use super::Outcome;
use super::open::{Existing, with_database};
use super::output::Output;
use super::scan::bounds;
use crate::cli::{Compact, Database};
use crate::failure::{Failure, Result};
use crate::text::{Form, size};
use isobath::CompactionMetrics;

pub(super) fn flush(asked: &Database) -> Result<Outcome> {
    with_database(&asked.path, |db| {
        db.flush()?;
        Ok(Outcome::Yes)
    })
}

pub(super) fn compact(asked: &Compact) -> Result<Outcome> {
    let bounds = bounds(&asked.bounds, Form::of(asked.form.hex))?;
    let mut done = Vec::new();
    let outcome = with_database(&asked.keyspace.database.path, |db| {
        let family = db.existing(&asked.keyspace.family)?;
        family.compact(bounds.clone())?;
        let families = db.metrics().families;
        let of_family = families.into_iter().find(|of| of.id == family.id());
        done = of_family.map_or_else(Vec::new, |of| of.compactions);
        Ok(Outcome::Yes)
    })?;
    if !asked.report {
        return Ok(outcome);
    }
    Output::answer(outcome, |output| report(output, &done)).map_err(Failure::once_done)
}

/// Prints what compactions did.
fn report(output: &mut Output, done: &[CompactionMetrics]) -> Result<()> {
    for one in done {
        output
            .line(&format!("{} into level {}, {} times:", one.reason, one.into_level, one.count))?;
        let line = |what: &str, entries: u64, deletes: u64, bytes: u64| {
            format!("  {what:<5} {entries:>11} entries ({deletes} deletes), {}", size(bytes))
        };
        output.line(&line("read", one.read_entries, one.read_deletes, one.read_bytes))?;
        let written = (one.written_entries, one.written_deletes, one.written_bytes);
        output.line(&line("wrote", written.0, written.1, written.2))?;
    }
    Ok(())
}
