//! One family's share of one table file, as readers and jobs hold it.
//!
//! The table is opened by whoever needs it first and stays open as long as the slice is in use: a
//! version that keeps a slice (or moves it to another level) keeps its filter and index top too.

use super::files::LiveFile;
use crate::error::Result;
use crate::table::{ExtentRef, SliceMeta, Table, TableContext};
use std::sync::{Arc, OnceLock};

/// A slice in use: what the manifest says of it, and the file it keeps alive.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) meta: SliceMeta,
    // Before the file: the table goes first.
    table: OnceLock<Arc<Table>>,
    pub(crate) file: Arc<LiveFile>,
}

impl Slice {
    /// The slice that `meta` describes, in `file`, whose number must be the one `meta` names.
    pub(crate) fn new(meta: SliceMeta, file: Arc<LiveFile>) -> Arc<Slice> {
        debug_assert_eq!(meta.file, file.number());
        Arc::new(Slice { meta, table: OnceLock::new(), file })
    }

    /// The open table. All slices of a database are opened with the same context.
    #[inline]
    pub(crate) fn table(&self, context: &TableContext) -> Result<&Arc<Table>> {
        match self.table.get() {
            Some(table) => Ok(table),
            None => self.open(context),
        }
    }

    /// Two threads may open the table at once; one of them wins, and nobody waits with a lock held
    /// while the other reads from the disk.
    #[cold]
    fn open(&self, context: &TableContext) -> Result<&Arc<Table>> {
        let table = Table::open(context.clone(), &self.meta)?;
        Ok(self.table.get_or_init(|| table))
    }

    /// Where its keys lie.
    #[inline]
    pub(crate) fn extent(&self) -> ExtentRef<'_> {
        self.meta.extent()
    }
}
