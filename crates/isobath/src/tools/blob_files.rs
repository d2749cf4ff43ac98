//! Blob files for tools, which read their values though a header is damaged.

use crate::blob::{self, OpenStream};
use crate::cursor::Entry;
use crate::error::{Error, Result};
use crate::format::{
    Address, FILE_HEADER_LEN, FileHeader, FileKind, Lsn, OpKind, Salt, StreamAddress,
};
use crate::table::cache::read_header_of;
use crate::table::{BlockFile, Decompressor};
use crate::version::table_path;
use crate::vfs::{FileAccess, FileSystem, ReadFile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// So many files are kept open.
const OPEN_FILES: usize = 64;
/// The memory for entries whose values are read together.
const GATHERED_BYTES: usize = 4 << 20;

/// The blob files of a database.
pub(super) struct BlobFiles {
    fs: Arc<dyn FileSystem>,
    db: PathBuf,
    /// The database, if it is known.
    uuid: Option<[u8; 16]>,
    /// The same, or what other files say it is. It tells the salts of files without a header.
    likely: Option<[u8; 16]>,
    /// Each with the number of the call that asked for it last.
    open: BTreeMap<u64, (u64, Opened)>,
    calls: u64,
    decompressor: Arc<Decompressor>,
}

#[derive(Clone)]
struct Opened {
    file: Arc<dyn ReadFile>,
    /// The salts that its values may have, the likelier one first.
    salts: [Salt; 2],
}

impl BlobFiles {
    pub(super) fn new(fs: &Arc<dyn FileSystem>, db: &Path, uuid: Option<[u8; 16]>) -> BlobFiles {
        let (fs, db, open) = (fs.clone(), db.to_owned(), BTreeMap::new());
        BlobFiles { fs, db, uuid, likely: uuid, open, calls: 0, decompressor: Arc::default() }
    }

    /// Which database the files are of, as other files say. To be told before any is read.
    pub(super) fn suppose(&mut self, uuid: [u8; 16]) {
        debug_assert!(self.open.is_empty(), "the salts of files are known by now");
        self.likely = self.likely.or(Some(uuid));
    }

    pub(super) fn path(&self, number: u64) -> PathBuf {
        table_path(&self.db, number)
    }

    fn get(&mut self, number: u64) -> Result<Opened> {
        self.calls += 1;
        if let Some((used_at, file)) = self.open.get_mut(&number) {
            *used_at = self.calls;
            return Ok(file.clone());
        }
        if self.open.len() >= OPEN_FILES
            && let Some((&oldest, _)) = self.open.iter().min_by_key(|(_, (used_at, _))| *used_at)
        {
            self.open.remove(&oldest);
        }
        let file = self.fs.open_read(&self.path(number), FileAccess::Positional)?;
        let own = self.likely.map(|uuid| Salt::of(uuid, number));
        let salts = match read_header_of(&*file, FileKind::Blob) {
            Ok(header) => [header.salt, own.unwrap_or(header.salt)],
            Err(_) => [own.unwrap_or(Salt::NONE), Salt::NONE],
        };
        let opened = Opened { file, salts };
        self.open.insert(number, (self.calls, opened.clone()));
        Ok(opened)
    }

    /// The header of the file with this number.
    pub(super) fn header(&mut self, number: u64) -> Result<FileHeader> {
        read_header_of(&*self.get(number)?.file, FileKind::Blob)
    }

    /// Checks that the file is what its number says, and of this database if that is known.
    pub(super) fn check_header(&mut self, number: u64) -> Result<()> {
        let header = self.header(number)?;
        let path = self.path(number);
        if header.number != number {
            let detail = format!("the header says that this is blob file {}", header.number);
            return Err(Error::corruption(&path, 48, detail));
        }
        if self.uuid.is_some_and(|uuid| uuid != header.uuid) {
            return Err(Error::corruption(&path, 32, "the blob file belongs to another database"));
        }
        Ok(())
    }

    /// True if the file says that it is a blob file.
    pub(super) fn is_blob(&mut self, number: u64) -> bool {
        self.header(number).is_ok()
    }

    /// True if the file ends as a stream of the database with this identity does.
    pub(super) fn is_stream(&mut self, number: u64, uuid: [u8; 16]) -> bool {
        let ends = |opened: Opened| blob::ends_as_stream(&*opened.file, (uuid, number));
        self.get(number).and_then(ends).unwrap_or(false)
    }

    /// Reads the value of `key`, checks it, and leaves it in `out`. The file's header does not
    /// matter.
    pub(super) fn read(&mut self, address: &Address, key: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let Opened { file, salts: [likelier, other] } = self.get(address.file)?;
        if address.offset < FILE_HEADER_LEN as u64 {
            let detail = "the address of a value lies in the file's header";
            return Err(Error::corruption(file.path(), address.offset, detail).for_key(key));
        }
        let mut read = |salt| {
            let file = BlockFile::new(file.clone(), salt);
            blob::read_value(&file, address, &self.decompressor, out)
        };
        let found = match read(likelier) {
            Err(error) if error.is_corruption() => read(other).map_err(|_| error),
            read => read,
        };
        found.map_err(|error| error.for_key(key))
    }

    /// Checks the stream of `key`, with all its frames, and tells of each how long it is in the
    /// file.
    pub(super) fn check_stream(
        &mut self,
        address: &StreamAddress,
        key: &[u8],
        advance: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let file = self.get(address.file)?.file;
        OpenStream::open(file, self.decompressor.clone(), address)
            .and_then(|mut stream| stream.check(advance))
            .map_err(|error| error.for_key(key))
    }
}

/// Entries whose values lie apart, gathered so that these are read in the order in which they lie:
/// the keys of a slice may pass over many files again and again.
#[derive(Default)]
pub(super) struct ByPlace {
    entries: Vec<Gathered>,
    bytes: usize,
}

struct Gathered {
    key: Box<[u8]>,
    seq: Lsn,
    kind: OpKind,
    value: Box<[u8]>,
}

impl ByPlace {
    /// Takes in an entry. Returns true once there are enough.
    pub(super) fn add(&mut self, entry: &Entry<'_>) -> bool {
        let (key, value) = (entry.key.into(), entry.value.into());
        self.entries.push(Gathered { key, seq: entry.seq, kind: entry.kind, value });
        self.bytes += entry.key.len() + entry.value.len() + size_of::<Gathered>();
        self.bytes >= GATHERED_BYTES
    }

    /// Visits what was gathered, in the order of the values, and forgets it.
    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&Entry<'_>) -> Result<()>) -> Result<()> {
        self.bytes = 0;
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_by_cached_key(|entry| {
            Address::of(entry.kind, &entry.value).ok().map(|at| (at.file, at.offset))
        });
        entries.iter().try_for_each(|entry| {
            let Gathered { key, seq, kind, value } = entry;
            visit(&Entry { key, seq: *seq, kind: *kind, value })
        })
    }
}
