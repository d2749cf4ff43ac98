//! Writes a table file: header, slices in ascending order of family, directory, footer.

use super::footer::{FOOTER_LEN, Footer, decode_directory, put_directory};
use super::output::Output;
use super::slice_writer::SliceWriter;
use super::{BlobShares, SliceMeta, TableOptions};
use crate::cursor::Entry;
use crate::error::{Error, Result};
use crate::format::{FamilyId, FileHeader, FileKind};
use crate::span::SpanSet;
use crate::table::codec::Codec;
use crate::vfs::WriteFile;

/// Writes one table file. After an error the file is useless: drop the writer and remove the file.
pub(crate) struct TableWriter {
    number: u64,
    out: Output,
    slice: SliceWriter,
    is_in_slice: bool,
    slices: Vec<SliceMeta>,
}

/// A complete, synced table file. Its name survives power loss only after a sync of its directory.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) slices: Vec<SliceMeta>,
    pub(crate) file_len: u64,
}

impl TableWriter {
    /// Begins a table in a new, empty file.
    pub(crate) fn create(
        file: Box<dyn WriteFile>,
        uuid: [u8; 16],
        number: u64,
    ) -> Result<TableWriter> {
        let out = Output::begin(file, &FileHeader::new(FileKind::Table, uuid, number))?;
        let slice = SliceWriter::new();
        Ok(TableWriter { number, out, slice, is_in_slice: false, slices: Vec::new() })
    }

    /// Begins a family's slice. Families come in ascending order, each at most once.
    pub(crate) fn begin_slice(&mut self, family: FamilyId, options: &TableOptions) -> Result<()> {
        let last = self.slices.last().map(|slice| slice.family);
        if self.is_in_slice || last.is_some_and(|last| last >= family) {
            return Err(Error::invalid_argument(format!(
                "the slice of family {family} does not follow the one before"
            )));
        }
        self.slice.begin(family, options, self.out.offset());
        self.is_in_slice = true;
        Ok(())
    }

    /// No more than `count` keys come in the slice that has begun. It is worth telling where they
    /// may be many: then the filter takes no memory but its own.
    pub(crate) fn expect_keys(&mut self, count: u64) {
        self.slice.expect_keys(count);
    }

    /// With more than `most` keys the slice that has begun has no filter: that takes memory for
    /// each key until the slice is complete.
    pub(crate) fn limit_filter(&mut self, most: u64) {
        self.slice.limit_filter(most);
    }

    /// The number of keys in the slice's filter until now.
    pub(crate) fn filter_keys(&self) -> u64 {
        self.slice.filter_keys()
    }

    /// Adds an entry to the slice. Entries come by key ascending, then by sequence number
    /// descending.
    #[inline]
    pub(crate) fn add(&mut self, entry: Entry<'_>) -> Result<()> {
        if !self.is_in_slice {
            return Err(Error::invalid_argument("there is no slice to add an entry to"));
        }
        self.slice.add(entry, &mut self.out)
    }

    /// Sets the range deletes of the slice. They may come at any time before its end.
    pub(crate) fn set_spans(&mut self, spans: SpanSet) {
        self.slice.set_spans(spans);
    }

    /// An estimate of the slice's bytes on disk so far.
    pub(crate) fn slice_disk_bytes(&self) -> u64 {
        self.slice.disk_bytes(&self.out)
    }

    /// What the slice has in blob files until now.
    pub(crate) fn slice_blobs(&self) -> &BlobShares {
        self.slice.blobs()
    }

    /// Bytes of the values of the slice that lie apart, until now.
    pub(crate) fn slice_apart_bytes(&self) -> u64 {
        self.slice.apart_bytes()
    }

    /// Completes the slice. A slice without entries and range deletes leaves no trace.
    pub(crate) fn finish_slice(&mut self) -> Result<Option<SliceMeta>> {
        if !self.is_in_slice {
            return Err(Error::invalid_argument("there is no slice to finish"));
        }
        self.is_in_slice = false;
        let meta = self.slice.finish(self.number, &mut self.out)?;
        debug_assert!(
            meta.as_ref().is_none_or(|meta| {
                meta.root.offset + u64::from(meta.root.len) == self.out.offset()
            }),
            "a slice ends with its root"
        );
        self.slices.extend(meta.clone());
        Ok(meta)
    }

    /// True if no slice is complete.
    pub(crate) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// Writes directory and footer, and syncs the file.
    pub(crate) fn finish(mut self) -> Result<Finished> {
        if self.is_in_slice {
            self.finish_slice()?;
        }
        let roots: Vec<_> = self.slices.iter().map(|slice| (slice.family, slice.root)).collect();
        let mut payload = Vec::new();
        put_directory(&mut payload, &roots);
        debug_assert!(
            decode_directory(&payload).is_ok_and(|read| read == roots),
            "a directory reads back otherwise than it was written"
        );
        let directory = self.out.put_block(Codec::None, &payload)?;
        let file_len = self.out.offset() + FOOTER_LEN as u64;
        let footer = Footer { directory, file_len, number: self.number };
        debug_assert!(
            Footer::decode(&footer.encode(), file_len).is_ok_and(|read| read == footer),
            "a footer is written that refuses the file"
        );
        self.out.put_raw(&footer.encode())?;
        let written = self.out.finish()?;
        debug_assert_eq!(written, file_len, "the footer states another length than the file's");
        Ok(Finished { slices: self.slices, file_len })
    }
}
