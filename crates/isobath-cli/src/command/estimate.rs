//! `estimate`: about how much a range holds.

use super::Outcome;
use super::open::{Existing, reading};
use super::output::Output;
use super::scan::bounds;
use crate::cli::Estimate;
use crate::failure::Result;
use crate::text::Form;
use isobath::Prefix;

pub(super) fn estimate(asked: &Estimate) -> Result<Outcome> {
    let form = Form::of(asked.form.hex);
    let bounds = bounds(&asked.bounds, form)?;
    let prefix = asked.prefix.as_ref().map(|key| form.read(key)).transpose()?;
    reading(&asked.keyspace.database.path, |db| {
        let family = db.existing(&asked.keyspace.family)?;
        let about = match &prefix {
            Some(prefix) => family.estimate(Prefix(prefix))?,
            None => family.estimate(bounds.clone())?,
        };
        let figures = [
            ("keys", about.keys),
            ("deletes", about.deletes),
            ("bytes on disk", about.disk_bytes),
            ("bytes in memory", about.memory_bytes),
        ];
        let mut output = Output::new();
        for (name, figure) in figures {
            output.line(&format!("{name:<16} {figure:>14}"))?;
        }
        output.finish()?;
        Ok(Outcome::Yes)
    })
}
