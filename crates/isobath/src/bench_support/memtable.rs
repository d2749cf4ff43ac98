//! The memtable, with a pool that its tables share.

use crate::cursor::Cursor;
use crate::format::OpKind;
use crate::memtable as inner;
use std::sync::Arc;

pub struct Pool(Arc<inner::ChunkPool>);

impl Pool {
    /// A pool that keeps enough 2 MiB chunks warm for tables of `bytes` bytes in total.
    pub fn warm(bytes: usize) -> Pool {
        let chunks = bytes.div_ceil(2 << 20);
        let pool = inner::ChunkPool::new(2 << 20, chunks, chunks);
        pool.prefault_spares();
        Pool(Arc::new(pool))
    }

    pub fn cold_chunks(&self) -> u64 {
        self.0.stats().handed_out_cold
    }
}

pub struct Memtable(Arc<inner::Memtable>);

impl Memtable {
    pub fn new(pool: &Pool) -> Memtable {
        let arena = Arc::new(inner::Arena::new(pool.0.clone()));
        Memtable(Arc::new(inner::Memtable::new(arena)))
    }

    #[inline]
    pub fn put(&self, key: &[u8], seq: u64, value: &[u8]) {
        self.0.insert(key, seq, OpKind::Put, value);
    }

    pub fn put_sorted<'k>(&self, ops: impl Iterator<Item = (&'k [u8], u64, &'k [u8])>) {
        self.0.insert_sorted(ops.map(|(key, seq, value)| (key, seq, OpKind::Put, value)));
    }

    #[inline]
    pub fn get(&self, key: &[u8], point: u64) -> Option<&[u8]> {
        self.0.get(key, point).map(|found| found.value)
    }

    /// Visits up to `limit` entries from `key` on. Returns the bytes of their keys and values.
    pub fn scan(&self, key: &[u8], limit: usize) -> usize {
        let mut cursor = inner::MemtableCursor::new(self.0.clone());
        let mut bytes = 0;
        cursor.seek(key).expect("a memtable's cursor does not fail");
        for _ in 0..limit {
            let Some(entry) = cursor.entry() else { break };
            bytes += entry.key.len() + touch(entry.value);
            cursor.next().expect("a memtable's cursor does not fail");
        }
        bytes
    }

    pub fn arena_bytes(&self) -> usize {
        self.0.arena().allocated_bytes()
    }
}

/// Reads one byte of each cache line of a value, as a copy of it would, and returns the value's
/// length.
#[inline]
pub fn touch(value: &[u8]) -> usize {
    value.len() + usize::from(value.iter().step_by(64).fold(0, |sum: u8, byte| sum ^ byte) == 0x5a)
}
