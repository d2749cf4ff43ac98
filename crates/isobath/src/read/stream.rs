//! Reads of one key that do not read a stream as a whole: they say where it lies, or read it piece
//! by piece.

use super::begin::ReadAt;
use super::expiry::{Read, Settled};
use super::get::{Found, Wanted, find};
use crate::blob::OpenStream;
use crate::cursor::Entry;
use crate::engine::{Engine, View};
use crate::error::{Error, Result};
use crate::format::{Lsn, StreamAddress};
use crate::mvcc::OpKind;
use crate::pinned::Value;
use crate::version::{LiveFile, Slice};
use arc_swap::Guard;
use std::sync::Arc;

/// What a read has found, before it reads any of a stream.
pub(crate) struct Located {
    pub(crate) content: Content,
    /// When the value ends, in milliseconds since 1970; `None` if it does not.
    pub(crate) expires_ms: Option<u64>,
    /// From when on the read has another answer; `u64::MAX` for never.
    pub(crate) holds_until: u64,
}

/// A value, or where it lies.
pub(crate) enum Content {
    Value(Value),
    Stream(Stream),
}

/// A stream that is not open. Its file stays, and nothing else that the read has pinned.
pub(crate) struct Stream {
    pub(crate) address: StreamAddress,
    pub(crate) file: Arc<LiveFile>,
}

impl Located {
    /// What was read of a value that is no stream.
    pub(crate) fn of_value(read: Read) -> Located {
        let Read { value, expires_ms, holds_until } = read;
        Located { content: Content::Value(value), expires_ms, holds_until }
    }

    /// The length of the value.
    pub(crate) fn len(&self) -> u64 {
        match &self.content {
            Content::Value(value) => value.len() as u64,
            Content::Stream(stream) => stream.address.value_len,
        }
    }
}

/// A value that is read piece by piece.
pub(crate) struct StreamRead {
    engine: Arc<Engine>,
    from: Source,
    expires_ms: Option<u64>,
}

enum Source {
    /// The whole value.
    Memory(Value),
    /// A file of its own, which stays until this is dropped.
    File { key: Box<[u8]>, stream: Box<OpenStream>, _file: Arc<LiveFile> },
}

impl StreamRead {
    /// Begins to read what was found at `key`.
    pub(crate) fn new(engine: &Arc<Engine>, key: &[u8], found: Located) -> Result<StreamRead> {
        let from = match found.content {
            Content::Value(value) => Source::Memory(value),
            Content::Stream(Stream { address, file }) => {
                debug_assert_eq!(address.file, file.number(), "a reader keeps another file");
                let stream = Box::new(engine.fetcher(false).stream(&address, key)?);
                Source::File { key: key.into(), stream, _file: file }
            }
        };
        Ok(StreamRead { engine: engine.clone(), from, expires_ms: found.expires_ms })
    }

    /// When the value ends, in milliseconds since 1970; `None` if it does not.
    pub(crate) fn expires_ms(&self) -> Option<u64> {
        self.expires_ms
    }

    pub(crate) fn len(&self) -> u64 {
        match &self.from {
            Source::Memory(value) => value.len() as u64,
            Source::File { stream, .. } => stream.len(),
        }
    }

    /// What the value has from `at` on: not nothing, unless it ends there. Fails once the database
    /// is closed.
    pub(crate) fn read_from(&mut self, at: u64) -> Result<&[u8]> {
        self.engine.check_open()?;
        match &mut self.from {
            Source::Memory(value) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX).min(value.len());
                Ok(&value[at..])
            }
            Source::File { key, stream, .. } => {
                stream.read_from(at).map_err(|error| error.for_key(key))
            }
        }
    }
}

impl ReadAt<'_> {
    /// The value of `key`, to be read piece by piece.
    pub(crate) fn get_stream(&self, key: &[u8]) -> Result<Option<StreamRead>> {
        let found = self.locate(key)?;
        found.map(|found| StreamRead::new(self.engine, key, found)).transpose()
    }

    /// The value of `key`. Of a stream, nothing is read.
    pub(crate) fn locate(&self, key: &[u8]) -> Result<Option<Located>> {
        let (view, point) = self.begin()?;
        match find(self, &view, key, point, Wanted::Value)? {
            Found::Absent => Ok(None),
            Found::Value(value) => Ok(Some(Located::of_value(Read::lasting(value)))),
            found => self.locate_otherwise(key, found, (view, point)),
        }
    }

    #[cold]
    fn locate_otherwise(
        &self,
        key: &[u8],
        found: Found,
        pinned: (Guard<Arc<View>>, Lsn),
    ) -> Result<Option<Located>> {
        let (settled, view) = self.settle_now(key, found, pinned, Wanted::Value)?;
        let (kind, stored, expires_ms) = match settled {
            Settled::Read(read) => return Ok(read.map(Located::of_value)),
            Settled::Apart { kind, stored, expires_ms } => (kind, stored, expires_ms),
        };
        let content = match kind.is_streamed() {
            true => Content::Stream(self.stream_in(&view, key, (kind, &stored))?),
            false => Content::Value(self.fetch(key, (kind, &stored))?),
        };
        Ok(Some(Located { content, expires_ms, holds_until: expires_ms.unwrap_or(u64::MAX) }))
    }

    /// The stream of an entry of the view, with its file, so that the view need not be kept.
    fn stream_in(
        &self,
        view: &View,
        key: &[u8],
        (kind, stored): (OpKind, &[u8]),
    ) -> Result<Stream> {
        let entry = Entry { key, seq: 0, kind, value: stored };
        let address = self.engine.fetcher(false).stream_address(&entry)?;
        match file_in(view, key, address.file) {
            Some(file) => Ok(Stream { address, file }),
            None => {
                let path = self.engine.tables.files.path(address.file);
                let detail = "an entry has its value in this file, and nothing names the file";
                Err(Error::corruption(&path, 0, detail).for_key(key))
            }
        }
    }
}

/// The file of a stream that is the value of `key` in the view: an epoch has it from the commit on,
/// and a slice from the flush on.
fn file_in(view: &View, key: &[u8], number: u64) -> Option<Arc<LiveFile>> {
    let tree = &view.tree;
    let in_slice = |slice: &Arc<Slice>| {
        let at = slice.meta.streams.binary_search_by_key(&number, |share| share.file).ok()?;
        slice.streams.get(at).cloned()
    };
    let runs = tree.runs.iter().filter(|run| run.meta.may_hold(key));
    let in_levels = tree.levels.iter().filter_map(|level| level.find(key));
    let in_epochs = || {
        let epochs = view.memtables.iter().map(|of| &of.epoch);
        let mut with_streams = epochs.filter(|epoch| epoch.has_streams());
        with_streams.find_map(|epoch| epoch.stream(number))
    };
    runs.chain(in_levels).find_map(in_slice).or_else(in_epochs)
}
