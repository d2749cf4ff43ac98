//! Reads of one key whose value is read piece by piece.

use super::begin::ReadAt;
use super::expiry::Settled;
use super::get::{Wanted, find};
use crate::blob::OpenStream;
use crate::cursor::Entry;
use crate::engine::{Engine, View};
use crate::error::Result;
use crate::pinned::Value;
use crate::version::LiveFile;
use arc_swap::Guard;
use std::sync::Arc;

/// A value that is read piece by piece.
pub(crate) struct StreamRead {
    engine: Arc<Engine>,
    from: From,
    /// From when on the key has another value, if that is known.
    holds_until: Option<u64>,
}

enum From {
    /// The whole value.
    Memory(Value),
    /// A file of its own.
    File { stream: Box<OpenStream>, _kept: Kept },
}

/// What keeps the file.
enum Kept {
    View { _view: Arc<View> },
    File { _file: Arc<LiveFile> },
}

impl StreamRead {
    pub(crate) fn in_memory(engine: &Arc<Engine>, value: Value) -> StreamRead {
        let (engine, from) = (engine.clone(), From::Memory(value));
        StreamRead { engine, from, holds_until: None }
    }

    /// A stream that a transaction has put and not committed.
    pub(crate) fn of_own(
        engine: &Arc<Engine>,
        entry: &Entry<'_>,
        file: Arc<LiveFile>,
    ) -> Result<StreamRead> {
        engine.check_open()?;
        let stream = Box::new(engine.fetcher(false).stream(entry)?);
        let from = From::File { stream, _kept: Kept::File { _file: file } };
        Ok(StreamRead { engine: engine.clone(), from, holds_until: None })
    }

    /// From when on the read has another answer, if nothing is written.
    pub(crate) fn holds_until(&self) -> Option<u64> {
        self.holds_until
    }

    pub(crate) fn len(&self) -> u64 {
        match &self.from {
            From::Memory(value) => value.len() as u64,
            From::File { stream, .. } => stream.len(),
        }
    }

    /// What the value has from `at` on: not nothing, unless it ends there. Fails once the database
    /// is closed.
    pub(crate) fn read_from(&mut self, at: u64) -> Result<&[u8]> {
        self.engine.check_open()?;
        match &mut self.from {
            From::Memory(value) => {
                let at = usize::try_from(at).unwrap_or(usize::MAX).min(value.len());
                Ok(&value[at..])
            }
            From::File { stream, .. } => stream.read_from(at),
        }
    }
}

impl ReadAt<'_> {
    /// The value of `key`, to be read piece by piece.
    pub(crate) fn get_stream(&self, key: &[u8]) -> Result<Option<StreamRead>> {
        let (view, point) = self.begin()?;
        let found = find(self, &view, key, point, Wanted::Value)?;
        let (settled, view) = self.settle_now(key, found, (view, point), Wanted::Value)?;
        let holds_until = match &settled {
            Settled::Read(read) => read.as_ref().map(|read| read.holds_until),
            Settled::Apart { expires_ms, .. } => *expires_ms,
        };
        let holds_until = holds_until.filter(|until| *until < u64::MAX);
        let from = match settled {
            Settled::Read(None) => return Ok(None),
            Settled::Read(Some(read)) => From::Memory(read.value),
            Settled::Apart { kind, stored, .. } if kind.is_streamed() => {
                let entry = Entry { key, seq: 0, kind, value: &stored };
                let stream = Box::new(self.engine.fetcher(false).stream(&entry)?);
                From::File { stream, _kept: Kept::View { _view: Guard::into_inner(view) } }
            }
            Settled::Apart { kind, stored, .. } => From::Memory(self.fetch(key, (kind, &stored))?),
        };
        Ok(Some(StreamRead { engine: self.engine.clone(), from, holds_until }))
    }
}
