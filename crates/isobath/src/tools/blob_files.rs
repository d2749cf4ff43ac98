//! Blob files for tools, which read their values though a header is damaged.

use crate::blob;
use crate::error::{Error, Result};
use crate::format::Address;
use crate::format::{FILE_HEADER_LEN, FileHeader, FileKind};
use crate::table::Decompressor;
use crate::table::cache::read_header_of;
use crate::version::table_path;
use crate::vfs::{FileAccess, FileSystem, ReadFile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// So many files are kept open.
const OPEN_FILES: usize = 64;

/// The blob files of a database.
pub(super) struct BlobFiles {
    fs: Arc<dyn FileSystem>,
    db: PathBuf,
    open: BTreeMap<u64, Arc<dyn ReadFile>>,
    decompressor: Decompressor,
}

impl BlobFiles {
    pub(super) fn new(fs: &Arc<dyn FileSystem>, db: &Path) -> BlobFiles {
        let (fs, db) = (fs.clone(), db.to_owned());
        BlobFiles { fs, db, open: BTreeMap::new(), decompressor: Decompressor::default() }
    }

    pub(super) fn path(&self, number: u64) -> PathBuf {
        table_path(&self.db, number)
    }

    fn get(&mut self, number: u64) -> Result<Arc<dyn ReadFile>> {
        if let Some(file) = self.open.get(&number) {
            return Ok(file.clone());
        }
        if self.open.len() >= OPEN_FILES {
            self.open.clear();
        }
        let file = self.fs.open_read(&self.path(number), FileAccess::Positional)?;
        self.open.insert(number, file.clone());
        Ok(file)
    }

    /// The header of the file with this number.
    pub(super) fn header(&mut self, number: u64) -> Result<FileHeader> {
        read_header_of(&*self.get(number)?, FileKind::Blob)
    }

    /// Checks that the file is what its number says, and of this database if `uuid` is that.
    pub(super) fn check_header(&mut self, number: u64, uuid: Option<[u8; 16]>) -> Result<()> {
        let header = self.header(number)?;
        let path = self.path(number);
        if header.number != number {
            let detail = format!("the header says that this is blob file {}", header.number);
            return Err(Error::corruption(&path, 48, detail));
        }
        if uuid.is_some_and(|uuid| uuid != header.uuid) {
            return Err(Error::corruption(&path, 32, "the blob file belongs to another database"));
        }
        Ok(())
    }

    /// True if the file says that it is a blob file.
    pub(super) fn is_blob(&mut self, number: u64) -> bool {
        self.header(number).is_ok()
    }

    /// Reads the value of `key`, checks it, and leaves it in `out`. The file's header does not
    /// matter.
    pub(super) fn read(&mut self, address: &Address, key: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let file = self.get(address.file)?;
        if address.offset < FILE_HEADER_LEN as u64 {
            let detail = "the address of a value lies in the file's header";
            return Err(Error::corruption(file.path(), address.offset, detail).for_key(key));
        }
        blob::read_value(&*file, address, &self.decompressor, out)
            .map_err(|error| error.for_key(key))
    }
}
