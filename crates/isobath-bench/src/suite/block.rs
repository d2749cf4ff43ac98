//! Keys and values of the next operations, made ahead of the timed section.

use crate::engine::Operation;
use crate::generate::{Chooser, KeyShape, Rng, Values, write_key};

/// Version of a value as populated, and as written by a measured phase.
pub(super) const POPULATED: u8 = 0;
pub(super) const MEASURED: u8 = 1;

/// Bytes a block may take, unless one batch alone takes more.
const BLOCK_BYTES: usize = 256 << 10;
const BLOCK_KEYS: usize = 1024;

pub(super) struct Block {
    pub(super) indexes: Vec<u64>,
    /// Whether each operation writes, in mixed work.
    pub(super) writes: Vec<bool>,
    keys: Vec<u8>,
    values: Vec<u8>,
    key_size: usize,
    value_size: usize,
}

impl Block {
    /// Room for whole batches; `value_size` is 0 when nothing is written.
    pub(super) fn new(batch: usize, key_size: usize, value_size: usize) -> Block {
        let fitting = (BLOCK_BYTES / (key_size + value_size)).clamp(1, BLOCK_KEYS);
        let count = (fitting / batch).max(1) * batch;
        Block {
            indexes: vec![0; count],
            writes: vec![true; count],
            keys: vec![0; count * key_size],
            values: vec![0; count * value_size],
            key_size,
            value_size,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.indexes.len()
    }

    /// Draws the next operations. `shift` moves indexes out of the populated ones.
    pub(super) fn fill(
        &mut self,
        chooser: &mut Chooser,
        shape: KeyShape,
        values: &Values,
        version: u8,
        shift: u64,
    ) {
        for (place, index) in self.indexes.iter_mut().enumerate() {
            *index = chooser.next() + shift;
            write_key(shape, *index, &mut self.keys[place * self.key_size..][..self.key_size]);
            if self.value_size > 0 {
                values.write(
                    *index,
                    version,
                    &mut self.values[place * self.value_size..][..self.value_size],
                );
            }
        }
    }

    /// Lets half of the batches be reads.
    pub(super) fn flip_coins(&mut self, rng: &mut Rng, batch: usize) {
        for writes in self.writes.chunks_mut(batch) {
            writes.fill(rng.next() & 1 == 0);
        }
    }

    #[inline]
    pub(super) fn key(&self, place: usize) -> &[u8] {
        &self.keys[place * self.key_size..][..self.key_size]
    }

    #[inline]
    pub(super) fn value(&self, place: usize) -> &[u8] {
        &self.values[place * self.value_size..][..self.value_size]
    }

    pub(super) fn puts(&self) -> Vec<Operation<'_>> {
        (0..self.len()).map(|place| Operation::Put(self.key(place), self.value(place))).collect()
    }

    pub(super) fn deletes(&self) -> Vec<Operation<'_>> {
        (0..self.len()).map(|place| Operation::Delete(self.key(place))).collect()
    }
}
