//! What the figures of a database can never say.

use isobath::{LevelMetrics, Metrics};

/// What cannot be so, whenever the figures are taken.
pub(super) fn nonsense_in(metrics: &Metrics) -> Option<&'static str> {
    let levels = metrics.families.iter().flat_map(|family| &family.levels);
    let is_level_odd =
        levels.clone().any(is_odd) || metrics.families.iter().any(|family| is_odd(&family.total()));
    let found = [
        (metrics.write_amplification().is_nan(), "write amplification"),
        (metrics.families.is_empty(), "no family"),
        (metrics.blob_garbage_bytes() > metrics.blob_bytes, "more garbage than blob files"),
        (metrics.level0_runs() > 0 && metrics.table_bytes() == 0, "runs without tables"),
        (metrics.pending_compaction_bytes() > 1 << 50, "debt"),
        (is_level_odd, "a level"),
    ];
    found.into_iter().find_map(|(is_so, what)| is_so.then_some(what))
}

/// True if the figures of a level contradict each other.
fn is_odd(level: &LevelMetrics) -> bool {
    let has_deletes = level.deletes + level.range_deletes > 0;
    level.delete_share() > 1.0
        || level.read_amplification > level.slices
        || (level.read_amplification == 0) != (level.slices == 0)
        || (level.oldest_delete_age_ms.is_some() && !has_deletes)
}
