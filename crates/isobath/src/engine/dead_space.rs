//! What the trees of an open database have in table files. The lengths of the files are looked up
//! once.

use super::{Engine, Keyspace};
use crate::format::FamilyId;
use crate::version::{LiveFile, TABLE_DIR, TableUse, Tree, table_number, tables_in_use};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Engine {
    /// The use of all table files in which these trees have slices, but for files whose length
    /// cannot be learnt.
    pub(crate) fn tables_in_use(&self, trees: &[(Arc<Keyspace>, Arc<Tree>)]) -> Vec<TableUse> {
        let slices = || trees.iter().flat_map(|(_, tree)| tree.iter().map(|(_, slice)| slice));
        let listed = match slices().all(|slice| slice.file.len().is_some()) {
            true => BTreeMap::new(),
            false => self.table_lens(),
        };
        let len = |file: &Arc<LiveFile>| match listed.get(&file.number()) {
            Some(len) => file.len_or(|| Ok(*len)).ok(),
            None => file.len(),
        };
        let trees = trees.iter().map(|(family, tree)| -> (FamilyId, &Tree) { (family.id, tree) });
        tables_in_use(trees, len)
    }

    /// The lengths of the files in the directory of tables: of none, if it cannot be listed now.
    fn table_lens(&self) -> BTreeMap<u64, u64> {
        let listed = self.options.env.fs.list(&self.dir.join(TABLE_DIR)).unwrap_or_default();
        let of = |entry: &crate::vfs::DirEntry| Some((table_number(&entry.name)?, entry.len));
        listed.iter().filter_map(of).collect()
    }
}
