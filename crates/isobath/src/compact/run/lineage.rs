//! What an output says of the files it was made of, for a repair that has no manifest.

use crate::compact::plan::Compaction;
use crate::error::Result;
use crate::table::cache::table_path;
use crate::table::{Origin, TableContext, origin_of};
use crate::vfs::FileSystem;
use std::collections::BTreeSet;
use std::path::Path;

/// The origin of what `compaction` will write, but for the family's label: its inputs, and what
/// those were made of as far as it is still on disk (for a reader, or for another family that
/// shares the file). Fails for want of descriptors or memory only: the compaction could have them
/// again a moment later, and its outputs would not say what they stand for.
pub(in crate::compact) fn lineage(
    compaction: &Compaction,
    tables: &TableContext,
    fs: &dyn FileSystem,
    table_dir: &Path,
) -> Result<Origin> {
    let inputs: BTreeSet<u64> =
        compaction.inputs.iter().map(|(_, slice)| slice.meta.file).collect();
    let mut ancestors = BTreeSet::new();
    for (_, slice) in &compaction.inputs {
        let origin = match origin_of(tables, &slice.meta) {
            Err(error) if error.is_retryable() => return Err(error),
            // What is damaged fails the compaction soon enough.
            Err(_) => continue,
            Ok(origin) => origin,
        };
        ancestors.extend(origin.inputs.iter().chain(&*origin.ancestors));
    }
    ancestors.retain(|file| {
        !inputs.contains(file) && fs.exists(&table_path(table_dir, *file)).unwrap_or(true)
    });
    Ok(Origin {
        label: None,
        inputs: inputs.into_iter().collect(),
        ancestors: ancestors.into_iter().collect(),
    })
}
