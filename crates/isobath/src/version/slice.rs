//! One family's share of one table file, as readers and jobs hold it.

use super::files::LiveFile;
use crate::table::SliceMeta;
use std::sync::Arc;

/// A slice in use: what the manifest says of it, and the file it keeps alive.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) meta: SliceMeta,
    pub(crate) file: Arc<LiveFile>,
}

impl Slice {
    /// The slice that `meta` describes, in `file`, whose number must be the one `meta` names.
    pub(crate) fn new(meta: SliceMeta, file: Arc<LiveFile>) -> Arc<Slice> {
        debug_assert_eq!(meta.file, file.number());
        Arc::new(Slice { meta, file })
    }

    /// True if a key in `smallest..=largest` may be in the slice.
    pub(crate) fn overlaps(&self, smallest: &[u8], largest: &[u8]) -> bool {
        &*self.meta.smallest <= largest && smallest <= &*self.meta.largest
    }
}
