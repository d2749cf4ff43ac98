//! Streams in a transaction: it keeps their files from the put to the commit, which gives them to
//! an epoch, or to its end. Its operations have the addresses.
//!
//! What a rollback to a savepoint or a later put has replaced may come back, so its file is kept
//! too. The commit gives away only what is named at last.

use super::begin::Life;
use super::read::living;
use crate::cursor::Entry;
use crate::engine::{Engine, Keyspace};
use crate::error::{Error, Result};
use crate::format::{OpKind, StreamAddress};
use crate::options::{Expiry, ReadOptions};
use crate::pinned::Value;
use crate::read::{Content, Located, Stream, StreamRead};
use crate::version::LiveFile;
use crate::write::{self, Written, default_expiry};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Life {
    /// Puts a value that was written piece by piece.
    pub(crate) fn put_streamed(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        written: Written,
    ) -> Result<()> {
        let (address, file) = match written {
            Written::Held(value) => return self.operate(engine, family, OpKind::Put, key, &value),
            Written::Apart(address, file) => (address, file),
        };
        let (kind, stored) = write::stored_stream(engine, default_expiry(family), &address)?;
        self.write_op(engine, family, kind, key, &stored)?;
        self.streams.push(file);
        Ok(())
    }

    /// The files of the streams that the write set names.
    pub(super) fn named_streams(&self) -> Vec<Arc<LiveFile>> {
        if self.streams.is_empty() {
            return Vec::new();
        }
        let streamed = self.footprint.writes().filter(|op| op.kind.is_streamed());
        let named = streamed.filter_map(|op| StreamAddress::of(op.kind, op.value).ok());
        let named: BTreeSet<u64> = named.map(|address| address.file).collect();
        self.streams.iter().filter(|file| named.contains(&file.number())).cloned().collect()
    }

    /// True if it would put a stream. What was replaced or taken back does not count.
    pub(super) fn has_streams(&self) -> bool {
        !self.streams.is_empty() && self.footprint.writes().any(|op| op.kind.is_streamed())
    }

    /// Fails a commit for which memory is too small if there are streams: what is in files would
    /// have to keep theirs.
    pub(super) fn check_unstreamed(&self, engine: &Engine) -> Result<()> {
        if !self.has_streams() {
            return Ok(());
        }
        let (needed, limit) = self.beyond_memory(engine);
        debug_assert!(needed > limit, "a commit that memory has room for is refused");
        Err(Error::transaction_too_large(needed, limit))
    }

    /// The value of an operation of its own, which is a stream.
    pub(super) fn fetch_own(
        engine: &Engine,
        key: &[u8],
        (kind, stored): (OpKind, &[u8]),
    ) -> Result<Value> {
        engine.check_open()?;
        let entry = Entry { key, seq: 0, kind, value: stored };
        engine.fetcher(false).fetch(&entry).map(Value::in_block)
    }

    /// The value of `key`, to be read piece by piece.
    pub(crate) fn get_stream(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        options: ReadOptions,
    ) -> Result<Option<StreamRead>> {
        let found = self.locate(engine, family, key, options)?;
        found.map(|found| StreamRead::new(engine, key, found)).transpose()
    }

    /// The value of `key`. Of a stream, nothing is read.
    pub(crate) fn locate(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        key: &[u8],
        options: ReadOptions,
    ) -> Result<Option<Located>> {
        self.check()?;
        match self.own_stored(family, key)? {
            None => {
                let at = self.track(engine, family, key, options)?;
                let found = at.locate(key)?;
                self.note_end_of(family, key, found.as_ref().map(|found| found.holds_until));
                Ok(found)
            }
            Some((kind, stored)) if kind.is_streamed() => {
                engine.check_open()?;
                Ok(self.own_stream(kind, &stored))
            }
            Some(_) => {
                let read = self.get_expiry(engine, family, key, options)?;
                Ok(read.map(Located::of_value))
            }
        }
    }

    /// A stream that the transaction has put; `None` if its end had passed before.
    fn own_stream(&self, kind: OpKind, stored: &Value) -> Option<Located> {
        let expires_ms = match kind.is_expiring() {
            true => living(stored)?.expires_ms,
            false => None,
        };
        let address = StreamAddress::of(kind, stored).ok();
        let file_of = |address: &StreamAddress| {
            self.streams.iter().find(|file| file.number() == address.file).cloned()
        };
        let Some((address, file)) = address.and_then(|address| Some((address, file_of(&address)?)))
        else {
            unreachable!("a transaction keeps the files of its streams");
        };
        let content = Content::Stream(Stream { address, file });
        Some(Located { content, expires_ms, holds_until: u64::MAX })
    }

    /// Puts a stream that is there already, so that it ends otherwise.
    pub(crate) fn put_located(
        &mut self,
        engine: &Arc<Engine>,
        family: &Arc<Keyspace>,
        (key, Stream { address, file }): (&[u8], Stream),
        expiry: Expiry,
    ) -> Result<()> {
        debug_assert_eq!(address.file, file.number(), "a put names another file than it keeps");
        let (kind, stored) = write::stored_stream(engine, expiry, &address)?;
        self.write_op(engine, family, kind, key, &stored)?;
        if !self.streams.iter().any(|known| known.number() == file.number()) {
            self.streams.push(file);
        }
        Ok(())
    }
}
