//! A batch: writes, to any column families, that become visible and durable together or not at all.
//!
//! A batch is encoded as its log record from the first operation on (`format/payload.rs`), so that a commit
//! copies it into the log without another pass. Room for the record header is kept in front.

use crate::column_family::ColumnFamily;
use crate::error::{Error, Result};
use crate::format::{
    BATCH_PREFIX_LEN, FamilyId, Op, OpKind, put_batch_prefix, put_op, set_batch_count,
};
use crate::limits::{MAX_BATCH_LEN, check_key, check_value, note_written};
use crate::wal::RECORD_HEADER_LEN;

/// Where an operation's parts lie in the record, so that applying it needs no decoding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpAt {
    pub(crate) family: FamilyId,
    pub(crate) kind: OpKind,
    pub(crate) key_len: u32,
    pub(crate) value_len: u32,
    /// The offset of the key in the record; the value, if any, ends the operation.
    pub(crate) key_at: usize,
    pub(crate) value_at: usize,
}

/// Writes that are committed together. The last operation on a key wins.
///
/// ```
/// # fn main() -> isobath::Result<()> {
/// # let db = isobath::Options::in_memory().open("batch")?;
/// let users = db.create_family("users")?;
/// let mut batch = isobath::Batch::new();
/// batch.put(b"count", b"1")?;
/// batch.put_in(&users, b"u1", b"Ada")?;
/// batch.delete(b"old")?;
/// db.write(batch)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Batch {
    record: Vec<u8>,
    ops: Vec<OpAt>,
    /// The families named by handles, so that a commit can check that they still exist, and in this database.
    families: Vec<ColumnFamily>,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::with_capacity(0)
    }

    /// An empty batch with room for `bytes` of keys and values.
    pub fn with_capacity(bytes: usize) -> Batch {
        let mut record = Vec::with_capacity(RECORD_HEADER_LEN + BATCH_PREFIX_LEN + bytes);
        record.resize(RECORD_HEADER_LEN, 0);
        put_batch_prefix(&mut record, 0);
        Batch { record, ops: Vec::new(), families: Vec::new() }
    }

    /// Sets `key` to `value` in the default family.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<&mut Self> {
        self.push(0, OpKind::Put, key.as_ref(), value.as_ref())
    }

    /// Removes `key` from the default family.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<&mut Self> {
        self.push(0, OpKind::Delete, key.as_ref(), &[])
    }

    /// Sets `key` to `value` in `family`.
    pub fn put_in(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<&mut Self> {
        self.push(family.id(), OpKind::Put, key.as_ref(), value.as_ref())?;
        self.name_family(family);
        Ok(self)
    }

    /// Removes `key` from `family`.
    pub fn delete_in(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<&mut Self> {
        self.push(family.id(), OpKind::Delete, key.as_ref(), &[])?;
        self.name_family(family);
        Ok(self)
    }

    /// The number of operations.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// True if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The bytes the batch takes in the log.
    pub fn byte_len(&self) -> usize {
        self.record.len()
    }

    /// Forgets the operations, keeps the memory.
    pub fn clear(&mut self) {
        self.record.truncate(RECORD_HEADER_LEN + BATCH_PREFIX_LEN);
        self.ops.clear();
        self.families.clear();
    }

    fn name_family(&mut self, family: &ColumnFamily) {
        // Batches name few families and name the same one in a row.
        if !self.families.iter().rev().any(|known| known.same_as(family)) {
            self.families.push(family.clone());
        }
    }

    fn push(
        &mut self,
        family: FamilyId,
        kind: OpKind,
        key: &[u8],
        value: &[u8],
    ) -> Result<&mut Self> {
        check_key(key)?;
        check_value(value)?;
        note_written(key, value);
        if self.record.len() + key.len() + value.len() > MAX_BATCH_LEN
            || self.ops.len() >= u32::MAX as usize
        {
            return Err(Error::InvalidArgument(format!(
                "a batch may have at most {MAX_BATCH_LEN} bytes; commit it in parts"
            )));
        }
        put_op(&mut self.record, &Op { kind, family, key, value });
        let value_at = self.record.len() - value.len();
        let gap = if kind.has_value() { crate::format::varint_len(value.len() as u64) } else { 0 };
        self.ops.push(OpAt {
            family,
            kind,
            key_len: key.len() as u32,
            value_len: value.len() as u32,
            key_at: value_at - gap - key.len(),
            value_at,
        });
        Ok(self)
    }

    /// The record to commit (header room in front), where its operations lie, and the families it names.
    pub(crate) fn parts(&mut self) -> (&mut Vec<u8>, &[OpAt], &[ColumnFamily]) {
        set_batch_count(&mut self.record, RECORD_HEADER_LEN, self.ops.len() as u32);
        (&mut self.record, &self.ops, &self.families)
    }
}

impl Default for Batch {
    fn default() -> Self {
        Batch::new()
    }
}

impl OpAt {
    #[inline]
    pub(crate) fn key<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        &record[self.key_at..self.key_at + self.key_len as usize]
    }

    #[inline]
    pub(crate) fn value<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        &record[self.value_at..self.value_at + self.value_len as usize]
    }
}
