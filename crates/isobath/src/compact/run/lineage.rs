//! What an output states about the files it was made of. A repair without a manifest uses it.

use crate::compact::plan::Compaction;
use crate::error::Result;
use crate::table::cache::table_path;
use crate::table::{Origin, TableContext, origin_of};
use crate::vfs::FileSystem;
use std::collections::BTreeSet;
use std::path::Path;

/// The origin that the outputs of `compaction` state, without the family's label: its inputs, and
/// the files that those were made of, as far as these are still on disk (for a reader, or for
/// another family that shares the file). Fails only for lack of file descriptors or memory. Such an
/// error may be gone a moment later, so the compaction must not go on with outputs whose origin is
/// incomplete.
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
            // A damaged input fails the compaction later.
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
