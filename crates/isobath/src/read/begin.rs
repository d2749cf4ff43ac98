//! Where every read begins: the database is open, and the family exists at the read point.

use crate::engine::{Engine, Family, View};
use crate::error::{Error, Result};
use crate::format::Lsn;
use arc_swap::Guard;
use std::sync::Arc;

/// Pins a view of `family` and a read point that it can serve: the registered `point`, or the newest.
#[inline]
pub(super) fn begin(
    engine: &Engine,
    family: &Family,
    point: Option<Lsn>,
) -> Result<(Guard<Arc<View>>, Lsn)> {
    engine.check_open()?;
    let (view, newest) = family.pin(&engine.log);
    let point = point.unwrap_or(newest);
    match view.exists_at(point) {
        true => Ok((view, point)),
        false => Err(Error::UnknownFamily(family.name().to_string())),
    }
}
