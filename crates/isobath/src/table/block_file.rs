//! An open file that consists of blocks: a table or a blob file.

use crate::format::{Mark, Salt};
use crate::vfs::ReadFile;
use std::ops::Deref;
use std::sync::Arc;

/// The file, and the salt of its blocks.
#[derive(Clone)]
pub(crate) struct BlockFile {
    file: Arc<dyn ReadFile>,
    salt: Salt,
}

impl BlockFile {
    pub(crate) fn new(file: Arc<dyn ReadFile>, salt: Salt) -> BlockFile {
        BlockFile { file, salt }
    }

    /// The file itself, and the salt of its blocks.
    pub(crate) fn parts(&self) -> (&Arc<dyn ReadFile>, Salt) {
        (&self.file, self.salt)
    }

    /// The mark of the block at this offset.
    #[inline]
    pub(crate) fn mark(&self, offset: u64) -> Mark {
        self.salt.mark(offset)
    }
}

impl Deref for BlockFile {
    type Target = dyn ReadFile;

    fn deref(&self) -> &(dyn ReadFile + 'static) {
        &*self.file
    }
}
