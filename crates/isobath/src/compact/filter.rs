//! The compaction filter of a family: which one a compaction asks, and what is told of it.
//!
//! What a filter changed takes effect with the edit of its compaction, and is counted then. Readers
//! who began while the compaction ran go on reading what was there (`engine/held.rs`).

use crate::engine::{Engine, Keyspace};
use crate::events::Event;
use crate::mvcc::{Filtering, Tally};
use std::sync::Arc;

/// The filter that a compaction of the family into a level asks. `None` if the family has none, or
/// if the program did not bring it; that is told once.
pub(super) fn filtering_of(
    engine: &Engine,
    family: &Keyspace,
    level: usize,
) -> Option<Arc<Filtering>> {
    let options = family.options();
    let name = options.compaction_filter.as_deref()?;
    match engine.options.filters.find(name) {
        Some(filter) => Some(Arc::new(Filtering { filter, family: family.name(), level })),
        None => {
            if family.compactions.note_missing() {
                let (family, filter) = (family.name().to_string(), name.to_owned());
                engine.tell(Event::FilterMissing { family, filter });
            }
            None
        }
    }
}

/// True if the family's compactions ask a filter: one that its options name and the program brings.
pub(super) fn is_filtering(engine: &Engine, family: &Keyspace) -> bool {
    let options = family.options();
    let name = options.compaction_filter.as_deref();
    name.is_some_and(|name| engine.options.filters.find(name).is_some())
}

/// Counts and tells what the filter decided in a compaction that is installed.
pub(super) fn note(engine: &Engine, family: &Keyspace, tally: &Tally) {
    engine.gauges.filter_kept.add(tally.kept);
    engine.gauges.filter_removed.add(tally.removed);
    engine.gauges.filter_replaced.add(tally.replaced);
    engine.gauges.filter_failures.add(tally.failed);
    if let Some((key, failure)) = &tally.failure
        && family.compactions.note_failing()
    {
        engine.tell(Event::FilterFailed {
            family: family.name().to_string(),
            filter: family.options().compaction_filter.clone().unwrap_or_default(),
            key: key.to_vec(),
            failure: *failure,
        });
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
