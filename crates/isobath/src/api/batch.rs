//! A batch: writes to any column families, which become visible and durable together or not at all.
//!
//! A batch is encoded as a log record from its first operation on (`format/payload.rs`). So a
//! commit copies it into the log without another pass. The record starts with room for the record
//! header.

use crate::engine::{Engine, Keyspace, Mention};
use crate::env::{Reach, reached_if};
use crate::error::{Error, ErrorKind, Result};
use crate::family::Family;
use crate::format::{
    BATCH_PREFIX_LEN, DEFAULT_FAMILY, FamilyId, OpKind, put_batch_prefix, set_batch_count,
};
use crate::key_range::span_within;
use crate::limits::{MAX_BATCH_LEN, check_key, check_value, note_written};
use crate::options::Expiry;
use crate::read::ScanBounds;
use crate::stream::Streamed;
use crate::version::LiveFile;
use crate::wal::RECORD_HEADER_LEN;
use crate::write::{OpAt, Parts, Written, check_merges, push_op};
use crate::writes::{merges, range_deletes, writes};
use std::ops::Bound;
use std::sync::Arc;

/// Writes that are committed together. The last operation on a key wins, and merges of a key add
/// up. The batch's own methods write to the default family; [`Batch::of`] gives access to another
/// family.
///
/// The methods cannot fail. The batch remembers the first invalid operation, and
/// [`Db::write`](crate::Db::write) then returns an error that names it and commits nothing.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("batch")?;
/// let users = db.family("users")?;
/// let mut batch = isobath::Batch::new();
/// batch.put(b"count", b"1").delete(b"old");
/// batch.of(&users).put(b"u1", b"Ada");
/// db.write(batch)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Batch {
    record: Vec<u8>,
    ops: Vec<OpAt>,
    /// The families that were named by handles. A commit checks that they belong to this database
    /// and still exist.
    families: Vec<Mention>,
    /// What is wrong with the first operation that is invalid.
    invalid: Option<Box<str>>,
    /// The number of invalid operations.
    refused: usize,
    /// True if there are merges in the default family, whose options only a commit knows.
    merges: bool,
    /// The ends that puts state, by their place among the operations.
    ends: Vec<(u32, Expiry)>,
    /// The files of streams that it puts. A batch that is written more than once, or copied, puts
    /// the same ones.
    streams: Vec<Arc<LiveFile>>,
    /// Where the streams were written.
    origins: Vec<Mention>,
}

/// A new batch has room for so many bytes of keys and values: a few small operations, which then
/// need one allocation in place of four that grow.
const BYTES_EXPECTED: usize = 512;

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::with_capacity(BYTES_EXPECTED)
    }

    /// An empty batch with room for `bytes` of keys and values.
    pub fn with_capacity(bytes: usize) -> Batch {
        let mut record = Vec::with_capacity(RECORD_HEADER_LEN + BATCH_PREFIX_LEN + bytes);
        record.resize(RECORD_HEADER_LEN, 0);
        put_batch_prefix(&mut record, 0);
        Batch {
            record,
            ops: Vec::new(),
            families: Vec::new(),
            invalid: None,
            refused: 0,
            merges: false,
            ends: Vec::new(),
            streams: Vec::new(),
            origins: Vec::new(),
        }
    }

    /// The part of the batch that writes to `family`.
    pub fn of<'a>(&'a mut self, family: &'a Family) -> BatchFamily<'a> {
        BatchFamily { batch: self, family }
    }

    /// The number of operations, including the invalid ones.
    pub fn len(&self) -> usize {
        self.ops.len() + self.refused
    }

    /// True if there is no operation. A batch that has only invalid operations is not empty,
    /// because [`Db::write`](crate::Db::write) must report them.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The length of the batch in the log, in bytes.
    pub fn byte_len(&self) -> usize {
        self.record.len()
    }

    /// Removes all operations and keeps the allocated memory.
    pub fn clear(&mut self) {
        self.record.truncate(RECORD_HEADER_LEN + BATCH_PREFIX_LEN);
        self.ops.clear();
        self.families.clear();
        self.invalid = None;
        self.refused = 0;
        self.merges = false;
        self.ends.clear();
        self.streams.clear();
        self.origins.clear();
    }

    fn name_family(&mut self, family: &Family) {
        // Batches name few families, and often the same one several times in a row.
        if !self.families.iter().rev().any(|known| family.is_mentioned_by(known)) {
            self.families.push(family.mention());
        }
    }

    fn operate(&mut self, kind: OpKind, key: &[u8], value: &[u8]) -> &mut Self {
        self.merges |= kind.is_operand();
        if let Err(error) = self.push(DEFAULT_FAMILY, kind, key, value) {
            self.refuse(kind, key, error);
        }
        self
    }

    fn put_expiring(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> &mut Self {
        if let Err(error) = self.push_expiring(DEFAULT_FAMILY, key, value, expiry) {
            self.refuse(OpKind::Put, key, error);
        }
        self
    }

    fn push_expiring(
        &mut self,
        family: FamilyId,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
    ) -> Result<()> {
        expiry.stored(0)?;
        self.push(family, OpKind::Put, key, value)?;
        self.ends.push((self.ops.len() as u32 - 1, expiry));
        Ok(())
    }

    /// Sets `key` to a value that a [`ValueWriter`](crate::ValueWriter) has written. The batch
    /// takes the value's file: if it is dropped, and was not written, so is the file.
    pub fn put_streamed(&mut self, key: impl AsRef<[u8]>, value: Streamed) -> &mut Self {
        let key = key.as_ref();
        if let Err(error) = self.push_streamed(DEFAULT_FAMILY, key, value) {
            self.refuse(OpKind::Put, key, error);
        }
        self
    }

    fn push_streamed(&mut self, family: FamilyId, key: &[u8], streamed: Streamed) -> Result<()> {
        match streamed.value {
            Written::Held(value) => self.push(family, OpKind::Put, key, &value)?,
            Written::Apart(address, file) => {
                let mut stored = Vec::new();
                address.put(&mut stored);
                self.push(family, OpKind::PutStreamed, key, &stored)?;
                self.streams.push(file);
            }
        }
        self.origins.push(streamed.of);
        Ok(())
    }

    fn delete_within(&mut self, bounds: &ScanBounds) -> &mut Self {
        match span_within(bounds) {
            Ok(Some((start, end))) => self.operate(OpKind::DeleteRange, &start, &end),
            Ok(None) => self,
            Err(error) => {
                self.refuse(OpKind::DeleteRange, start_of(bounds), error);
                self
            }
        }
    }

    /// Counts an invalid operation, and remembers the error of the first one.
    #[cold]
    fn refuse(&mut self, kind: OpKind, key: &[u8], error: Error) {
        self.refused += 1;
        let (nth, shown) = (self.len(), key[..key.len().min(32)].escape_ascii());
        let dots = if key.len() > 32 { "..." } else { "" };
        let why = match error.kind() {
            ErrorKind::InvalidArgument { detail } => detail.clone(),
            other => other.to_string(),
        };
        self.invalid.get_or_insert_with(|| {
            format!("operation {nth} of the batch ({kind:?} of \"{shown}{dots}\"): {why}").into()
        });
    }

    /// An error if an operation was invalid.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        match &self.invalid {
            None => Ok(()),
            Some(why) => Err(Error::invalid_argument(why.to_string())),
        }
    }

    fn push(&mut self, family: FamilyId, kind: OpKind, key: &[u8], value: &[u8]) -> Result<()> {
        check_key(key)?;
        check_value(value)?;
        note_written(key, value);
        if self.record.len() + key.len() + value.len() > MAX_BATCH_LEN
            || self.ops.len() >= u32::MAX as usize
        {
            return Err(Error::invalid_argument(format!(
                "a batch may have at most {MAX_BATCH_LEN} bytes; commit it in parts"
            )));
        }
        reached_if(Reach::SpanWritten, || kind.is_span());
        let op = push_op(&mut self.record, family, kind, key, value);
        self.ops.push(op);
        Ok(())
    }

    /// Like [`Batch::parts`], but fails if an operation was invalid.
    #[inline]
    pub(crate) fn checked_parts(
        &mut self,
        engine: &Engine,
        default: &Keyspace,
    ) -> Result<Parts<'_>> {
        self.check()?;
        self.origins.iter().try_for_each(|origin| origin.demand_stream_of(engine))?;
        if self.merges {
            check_merges(engine, default, &[])?;
        }
        Ok(self.parts())
    }

    /// What a commit takes.
    pub(crate) fn parts(&mut self) -> Parts<'_> {
        set_batch_count(&mut self.record, RECORD_HEADER_LEN, self.ops.len() as u32);
        let Batch { record, ops, families: named, ends, streams, .. } = self;
        Parts { record, ops, named, ends, streams }
    }
}

/// The key at the lower bound, for an error.
fn start_of(bounds: &ScanBounds) -> &[u8] {
    match &bounds.lower {
        Bound::Included(key) | Bound::Excluded(key) => key,
        Bound::Unbounded => &[],
    }
}

writes!(Batch, self: &mut Self => &mut Self);
merges!(Batch, self: &mut Self => &mut Self);
range_deletes!(Batch, self: &mut Self => &mut Self);

/// The part of a family in a [`Batch`].
#[derive(Debug)]
pub struct BatchFamily<'a> {
    batch: &'a mut Batch,
    family: &'a Family,
}

writes!(BatchFamily<'_>, self: &mut Self => &mut Self);
merges!(BatchFamily<'_>, self: &mut Self => &mut Self);
range_deletes!(BatchFamily<'_>, self: &mut Self => &mut Self);

impl BatchFamily<'_> {
    /// Like [`Batch::put_streamed`], for a key of this family.
    pub fn put_streamed(&mut self, key: impl AsRef<[u8]>, value: Streamed) -> &mut Self {
        let key = key.as_ref();
        match self.batch.push_streamed(self.family.id(), key, value) {
            Ok(()) => self.batch.name_family(self.family),
            Err(error) => self.batch.refuse(OpKind::Put, key, error),
        }
        self
    }

    fn put_expiring(&mut self, key: &[u8], value: &[u8], expiry: Expiry) -> &mut Self {
        match self.batch.push_expiring(self.family.id(), key, value, expiry) {
            Ok(()) => self.batch.name_family(self.family),
            Err(error) => self.batch.refuse(OpKind::Put, key, error),
        }
        self
    }

    fn operate(&mut self, kind: OpKind, key: &[u8], value: &[u8]) -> &mut Self {
        if kind.is_operand()
            && let Err(error) = self.family.check_merges(key)
        {
            self.batch.refuse(kind, key, error);
            return self;
        }
        match self.batch.push(self.family.id(), kind, key, value) {
            Ok(()) => self.batch.name_family(self.family),
            Err(error) => self.batch.refuse(kind, key, error),
        }
        self
    }

    fn delete_within(&mut self, bounds: &ScanBounds) -> &mut Self {
        match span_within(bounds) {
            Ok(Some((start, end))) => self.operate(OpKind::DeleteRange, &start, &end),
            Ok(None) => self,
            Err(error) => {
                self.batch.refuse(OpKind::DeleteRange, start_of(bounds), error);
                self
            }
        }
    }
}

impl Default for Batch {
    fn default() -> Self {
        Batch::new()
    }
}
