//! Writes one blob file.

use crate::env::{Plant, planted};
use crate::error::{Error, Result};
use crate::format::{Address, FILE_HEADER_LEN, FileHeader, FileKind};
use crate::table::{Codec, Output};
use crate::vfs::WriteFile;

/// After an error the file is useless: drop the writer and remove the file.
pub(super) struct BlobWriter {
    number: u64,
    out: Output,
}

impl BlobWriter {
    /// Begins a blob file in a new, empty file.
    pub(super) fn create(
        file: Box<dyn WriteFile>,
        uuid: [u8; 16],
        number: u64,
    ) -> Result<BlobWriter> {
        let out = Output::begin(file, &FileHeader::new(FileKind::Blob, uuid, number))?;
        Ok(BlobWriter { number, out })
    }

    /// Appends a value of `value_len` bytes, of which the codec has left `payload`.
    pub(super) fn add(
        &mut self,
        (codec, payload): (Codec, &[u8]),
        value_len: usize,
    ) -> Result<Address> {
        let value_len = u32::try_from(value_len)
            .map_err(|_| Error::invalid_argument("a value of 4 GiB and more"))?;
        let handle = self.out.put_block(codec, payload)?;
        let (mut offset, stored_len) = (handle.offset, handle.len);
        if planted(Plant::AddressOff) {
            offset = FILE_HEADER_LEN as u64;
        }
        Ok(Address { file: self.number, offset, stored_len, value_len })
    }

    /// The bytes written so far.
    pub(super) fn len(&self) -> u64 {
        self.out.offset()
    }

    /// Syncs the file. Its name survives power loss only after a sync of its directory.
    pub(super) fn finish(self) -> Result<u64> {
        self.out.finish_unless(planted(Plant::BlobNotSynced))
    }
}
