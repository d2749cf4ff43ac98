//! Moves values to blob files while a table is written.

use super::ahead::ReadAhead;
use super::writer::BlobWriter;
use crate::env::{Plant, Reach, planted, reached, reached_if};
use crate::error::Result;
use crate::format::Address;
use crate::mvcc::{Entry, OpKind};
use crate::table::cache::table_path;
use crate::table::{Compressor, TableContext, TableOptions};
use crate::version::{FileNumbers, LiveFile};
use crate::vfs::WriteFile;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Weak};

/// A blob file that is longer is ended, and another begun.
const BLOB_LEN_MAX: u64 = 256 << 20;

/// Creates the file with this path.
pub(crate) type Create<'a> = &'a dyn Fn(&Path) -> Result<Box<dyn WriteFile>>;

/// Blob files whose values move on to new ones, and where to read values.
#[derive(Clone, Copy)]
pub(crate) struct Collected<'a> {
    pub(crate) files: &'a BTreeMap<u64, Weak<LiveFile>>,
    pub(crate) tables: &'a TableContext,
}

/// The blob files that a job writes beside its tables, one after the other.
pub(crate) struct BlobSink<'a> {
    create: Create<'a>,
    dir: &'a Path,
    uuid: [u8; 16],
    numbers: &'a FileNumbers,
    /// A file with so many bytes ends.
    file_len: u64,
    collected: Option<Collected<'a>>,
    writer: Option<BlobWriter>,
    files: Vec<Arc<LiveFile>>,
    bytes: u64,
    /// Bytes of values that have come to this sink.
    moved_bytes: u64,
    /// Of these, bytes that were read from other blob files.
    read_bytes: u64,
    compressor: Compressor,
    ahead: ReadAhead,
    /// What is stored of the last entry.
    entry: Vec<u8>,
}

impl<'a> BlobSink<'a> {
    /// A sink that has no file yet, for the directory of tables.
    pub(crate) fn new(
        create: Create<'a>,
        dir: &'a Path,
        uuid: [u8; 16],
        numbers: &'a FileNumbers,
    ) -> BlobSink<'a> {
        BlobSink {
            create,
            dir,
            uuid,
            numbers,
            file_len: BLOB_LEN_MAX,
            collected: None,
            writer: None,
            files: Vec::new(),
            bytes: 0,
            moved_bytes: 0,
            read_bytes: 0,
            compressor: Compressor::default(),
            ahead: ReadAhead::new(1),
            entry: Vec::new(),
        }
    }

    /// The same with files that end at so many bytes.
    #[cfg(test)]
    pub(crate) fn with_files_of(self, file_len: u64) -> BlobSink<'a> {
        BlobSink { file_len, ..self }
    }

    /// Moves the values of these files, too.
    pub(crate) fn collecting(self, collected: Collected<'a>) -> BlobSink<'a> {
        let ahead = ReadAhead::below(collected.files.len(), collected.tables);
        BlobSink { collected: Some(collected), ahead, ..self }
    }

    /// The entry as a table gets it: if its value is long, that lies in a blob file from now on. Of
    /// values that lie in one already, those move whose file is collected, or crowds the slice that
    /// is being written.
    #[inline]
    pub(crate) fn place<'e>(
        &'e mut self,
        entry: Entry<'e>,
        options: &TableOptions,
        crowds: impl FnOnce(u64) -> bool,
    ) -> Result<Entry<'e>> {
        if entry.value.len() < options.separate_from as usize && !entry.kind.is_separated() {
            return Ok(entry);
        }
        self.move_value(entry, options, crowds)
    }

    #[inline(never)]
    fn move_value<'e>(
        &'e mut self,
        entry: Entry<'e>,
        options: &TableOptions,
        crowds: impl FnOnce(u64) -> bool,
    ) -> Result<Entry<'e>> {
        let value = entry.value_part();
        let (address, kind) = match entry.kind.separated() {
            None => match self.move_on(&entry, crowds)? {
                Some(address) => (address, entry.kind),
                None => return Ok(entry),
            },
            Some(_) if value.len() < options.separate_from as usize => return Ok(entry),
            Some(kind) => {
                reached(Reach::ValueSeparated);
                (self.separate(value, options)?, kind)
            }
        };
        if planted(Plant::SeparatedForGood) {
            address.put_in(OpKind::Put, &[], &mut self.entry);
            return Ok(Entry { kind: OpKind::PutSeparated, value: &self.entry, ..entry });
        }
        address.put_in(entry.kind, entry.value, &mut self.entry);
        Ok(Entry { kind, value: &self.entry, ..entry })
    }

    /// Moves a value out of its blob file. `None` if it stays where it is: nothing asks for a move,
    /// or the value cannot be read, and readers are told so as before.
    fn move_on(
        &mut self,
        entry: &Entry<'_>,
        crowds: impl FnOnce(u64) -> bool,
    ) -> Result<Option<Address>> {
        let Some(Collected { files, tables }) = self.collected else { return Ok(None) };
        if !entry.kind.is_separated() {
            return Ok(None);
        }
        let Ok(old) = Address::of(entry.kind, entry.value) else { return Ok(None) };
        let file = files.get(&old.file);
        if file.is_none() && !crowds(old.file) {
            return Ok(None);
        }
        self.begin_file()?;
        let stored = match self.ahead.read(tables, &old) {
            Ok(stored) => stored,
            Err(error) if !error.is_retryable() => {
                file.and_then(Weak::upgrade).inspect(|file| file.note_damaged());
                return Ok(None);
            }
            Err(error) => return Err(error.for_key(entry.key)),
        };
        reached_if(Reach::BlobValueMoved, || file.is_some());
        reached_if(Reach::BlobValueJoinsOthers, || file.is_none());
        let Some(writer) = &mut self.writer else { unreachable!("it was begun") };
        let address = writer.add(stored, old.value_len as usize)?;
        self.moved_bytes += u64::from(address.stored_len);
        self.read_bytes += u64::from(address.stored_len);
        Ok(Some(address))
    }

    fn separate(&mut self, value: &[u8], options: &TableOptions) -> Result<Address> {
        self.begin_file()?;
        let payload = self.compressor.compress(options.blob_codec, value);
        let Some(writer) = &mut self.writer else { unreachable!("it was begun") };
        let address = writer.add(payload, value.len())?;
        self.compressor.trim(1 << 20);
        self.moved_bytes += u64::from(address.stored_len);
        Ok(address)
    }

    #[cfg(test)]
    pub(crate) fn compressor(&self) -> &Compressor {
        &self.compressor
    }

    /// Bytes of values that were written to blob files until now.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.moved_bytes
    }

    /// Bytes of values that were read from blob files, to be moved.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Sees to a file that has room.
    fn begin_file(&mut self) -> Result<()> {
        if self.writer.as_ref().is_some_and(|writer| writer.len() < self.file_len) {
            return Ok(());
        }
        self.end_file()?;
        debug_assert!(self.writer.is_none(), "a file is begun beside one that is open");
        let file = self.numbers.allocate();
        let number = file.number();
        // If a later step fails, dropping it marks the file for removal.
        self.files.push(file);
        let path = table_path(self.dir, number);
        self.writer = Some(BlobWriter::create((self.create)(&path)?, self.uuid, number)?);
        Ok(())
    }

    fn end_file(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            let len = writer.finish()?;
            self.bytes += len;
            if let Some(file) = self.files.last() {
                file.len_or(|| Ok(len))?;
            }
        }
        Ok(())
    }

    /// Syncs what was written. Returns the files, which live as long as something holds them, and
    /// their bytes. Their names survive power loss only after a sync of the directory.
    pub(crate) fn finish(mut self) -> Result<(Vec<Arc<LiveFile>>, u64)> {
        self.end_file()?;
        Ok((self.files, self.bytes))
    }
}
