//! The files of large commits, which records of the log name.

use crate::engine::Spills;
use crate::error::Result;
use crate::format::{FamilyId, SpilledFile};
use crate::table::TableFile;
use crate::table::cache::table_path;
use crate::version::SPILL_DIR;
use crate::vfs::FileSystem;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// Fails unless every file is whole. Returns the families that they write. The database is that
/// with this identity.
pub(super) fn check_spilled(
    fs: &Arc<dyn FileSystem>,
    db: &Path,
    uuid: [u8; 16],
    files: &[SpilledFile],
) -> Result<BTreeSet<FamilyId>> {
    let dir = db.join(SPILL_DIR);
    let spills = Spills::to_read(fs.clone(), dir.clone(), uuid);
    let mut families = BTreeSet::new();
    for named in files {
        families.extend(spills.open(named)?.slices().map(|meta| meta.family));
        let file = TableFile::open(fs, &table_path(&dir, named.number))?;
        if let Some(error) = file.check(&mut |_| ()).into_iter().next() {
            return Err(error);
        }
    }
    Ok(families)
}
