//! `flush`, `compact`.

use super::Outcome;
use super::open::{with_database, with_family};
use super::scan::bounds;
use crate::cli::{Compact, Database};
use crate::failure::Result;
use crate::text::Form;

pub(super) fn flush(asked: &Database) -> Result<Outcome> {
    with_database(&asked.path, |db| Ok(db.flush()?))?;
    Ok(Outcome::Yes)
}

pub(super) fn compact(asked: &Compact) -> Result<Outcome> {
    let bounds = bounds(&asked.bounds, Form::of(asked.form.hex))?;
    with_family(&asked.keyspace, |family| Ok(family.compact(bounds)?))?;
    Ok(Outcome::Yes)
}
