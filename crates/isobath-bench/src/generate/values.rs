//! Values of stated compressibility that can be checked when they are read back.
//!
//! ```text
//! value   stamp 8 bytes | body
//! stamp   of suites: upper 7 bytes of mix(index) | version
//!         of workloads, whose keys may be any: MARK 2 bytes | version | hash of the key 5 bytes
//! body    a slice of a fixed pool at an offset that the index, or the hash, and the version determine
//! ```
//!
//! A check of a value reads all of it, by [`touch`] where it is not compared. Otherwise an engine
//! that lends slices of a mapped file would be measured without the memory that it reads.

use super::{Rng, mix};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::hint::black_box;

/// Room for the stamp.
pub(crate) const VALUE_LEN_MIN: usize = 8;

const POOL_LEN: usize = 1 << 20;
const STAMP_LEN: usize = 8;

/// How well a value's bytes compress.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Compressibility {
    /// Random bytes.
    None,
    /// To about one half: runs of random bytes and of zeros in turn.
    Half,
    /// To nearly nothing: the alphabet over and over, as the tool of TidesDB's articles writes it.
    Pattern,
}

pub(crate) struct Values {
    pool: Vec<u8>,
    len: usize,
}

impl Values {
    pub(crate) fn new(len: usize, compressibility: Compressibility) -> Values {
        debug_assert!(len >= VALUE_LEN_MIN);
        let mut rng = Rng::new(0x000b_a7d0);
        let mut pool = vec![0; POOL_LEN + len];
        match compressibility {
            Compressibility::None => fill_random(&mut rng, &mut pool),
            Compressibility::Half => {
                // The stamp doesn't compress, so the first run of the body is zeros for small
                // values.
                let run = len.clamp(16, 64) / 2;
                for pair in pool.chunks_mut(2 * run) {
                    let half = pair.len().min(run);
                    fill_random(&mut rng, &mut pair[..half]);
                }
            }
            Compressibility::Pattern => {
                for (place, byte) in pool.iter_mut().enumerate() {
                    *byte = b'a' + (place % 26) as u8;
                }
            }
        }
        Values { pool, len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Writes the value of `index` at `version` over all of `value`, which has the stated length.
    #[inline]
    pub(crate) fn write(&self, index: u64, version: u8, value: &mut [u8]) {
        let (head, body) = value.split_at_mut(STAMP_LEN);
        head.copy_from_slice(&stamp(index, version).to_be_bytes());
        body.copy_from_slice(self.body(index, version, body.len()));
    }

    /// Fills `value`, of any length up to the stated one, from the pool, unstamped.
    #[inline]
    pub(crate) fn write_any(&self, salt: u64, value: &mut [u8]) {
        value.copy_from_slice(self.body(salt, 0, value.len()));
    }

    /// Writes a value of `key`, of any length up to the stated one; too short a one has no stamp.
    #[inline]
    pub(crate) fn write_for(&self, key: &[u8], version: u8, value: &mut [u8]) {
        if value.len() < STAMP_LEN {
            return self.write_any(u64::from(version), value);
        }
        let hash = key_hash(key);
        let (head, body) = value.split_at_mut(STAMP_LEN);
        head.copy_from_slice(&key_stamp(hash, version).to_be_bytes());
        body.copy_from_slice(self.body(hash, version, body.len()));
    }

    /// Tells where a value of `key` comes from. The stamp is always compared; the body is compared
    /// for one key in sixteen, and touched for the others.
    #[inline]
    pub(crate) fn origin(&self, key: &[u8], value: &[u8]) -> Origin {
        let Some(stamp) = value.first_chunk::<STAMP_LEN>() else { return Origin::Short };
        if stamp[..2] != MARK.to_be_bytes() {
            touch(&value[STAMP_LEN..]);
            return Origin::Foreign;
        }
        let (hash, version) = (key_hash(key), stamp[2]);
        let body = &value[STAMP_LEN..];
        let right = *stamp == key_stamp(hash, version).to_be_bytes()
            && body.len() <= self.len
            && if hash & 15 == 0 {
                *body == *self.body(hash, version, body.len())
            } else {
                touch(body);
                true
            };
        if right { Origin::Generated } else { Origin::Wrong }
    }

    /// The version of a value, if it is a value of `index`. Length and stamp are always compared;
    /// the body is compared for one index in sixteen, and touched for the others.
    #[inline]
    pub(crate) fn version_of(&self, index: u64, value: &[u8]) -> Option<u8> {
        if value.len() != self.len {
            return None;
        }
        let version = value[STAMP_LEN - 1];
        let stamped = value[..STAMP_LEN] == stamp(index, version).to_be_bytes();
        let body = &value[STAMP_LEN..];
        let whole = if mix(index) & 15 == 0 {
            *body == *self.body(index, version, body.len())
        } else {
            touch(body);
            true
        };
        (stamped && whole).then_some(version)
    }

    #[inline]
    fn body(&self, index: u64, version: u8, len: usize) -> &[u8] {
        let offset = mix(index ^ (u64::from(version) << 56)) as usize % POOL_LEN;
        &self.pool[offset..offset + len]
    }
}

/// Reads all of `bytes`, and returns their sum in words.
#[inline]
pub(crate) fn touch(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_ne_bytes(*word)));
    let sum = rest.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
    #[cfg(test)]
    tests::TOUCHED.set(tests::TOUCHED.get() + bytes.len());
    black_box(sum)
}

/// What a value is, if it is read under a certain key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Origin {
    /// Generated for that key.
    Generated,
    /// Generated, and not for that key or not left whole.
    Wrong,
    /// Not generated here.
    Foreign,
    /// Too short to tell.
    Short,
}

/// Begins the stamp of a workload's generated value.
const MARK: u16 = 0xb5c3;

#[inline]
fn key_stamp(hash: u64, version: u8) -> u64 {
    u64::from(MARK) << 48 | u64::from(version) << 40 | hash >> 24
}

#[inline]
fn key_hash(key: &[u8]) -> u64 {
    let mut hash = key.len() as u64;
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash ^ u64::from_le_bytes(word));
    }
    hash
}

#[inline]
fn stamp(index: u64, version: u8) -> u64 {
    (mix(index) & !0xff) | u64::from(version)
}

fn fill_random(rng: &mut Rng, bytes: &mut [u8]) {
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next().to_le_bytes()[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        /// How many bytes this thread has touched.
        pub(super) static TOUCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    #[test]
    fn each_byte_counts_in_the_sum() {
        for len in 0..40 {
            let mut bytes = vec![7; len];
            let before = touch(&bytes);
            for at in 0..len {
                bytes[at] ^= 1;
                assert_ne!(touch(&bytes), before, "byte {at} of {len}");
                bytes[at] ^= 1;
            }
        }
    }

    #[test]
    fn a_body_is_touched_where_it_is_not_compared() {
        let values = Values::new(100, Compressibility::None);
        let mut value = vec![0; 100];
        let body_len = value.len() - STAMP_LEN;
        let touched = |check: &mut dyn FnMut()| {
            let before = TOUCHED.get();
            check();
            TOUCHED.get() - before
        };
        let (mut compared, mut compared_by_key) = (0, 0);
        for index in 0..1600u64 {
            values.write(index, 0, &mut value);
            let bytes = touched(&mut || assert_eq!(values.version_of(index, &value), Some(0)));
            assert!(bytes == 0 || bytes == body_len);
            compared += usize::from(bytes == 0);
            let key = index.to_be_bytes();
            values.write_for(&key, 0, &mut value);
            let bytes = touched(&mut || assert_eq!(values.origin(&key, &value), Origin::Generated));
            assert!(bytes == 0 || bytes == body_len);
            compared_by_key += usize::from(bytes == 0);
        }
        assert!((60..150).contains(&compared) && (60..150).contains(&compared_by_key));
        let foreign = [1; 30];
        let bytes = touched(&mut || assert_eq!(values.origin(b"key", &foreign), Origin::Foreign));
        assert_eq!(bytes, 30 - STAMP_LEN);
    }

    #[test]
    fn a_value_is_known_again_and_a_wrong_one_is_not() {
        let values = Values::new(100, Compressibility::Half);
        let mut value = vec![0; 100];
        for index in 0..64 {
            values.write(index, 3, &mut value);
            assert_eq!(values.version_of(index, &value), Some(3));
            assert_eq!(values.version_of(index + 1, &value), None);
            assert_eq!(values.version_of(index, &value[..99]), None);
        }
    }

    #[test]
    fn a_damaged_body_is_seen_on_sampled_indexes() {
        let values = Values::new(100, Compressibility::None);
        let mut value = vec![0; 100];
        let seen = (0..1600).filter(|&index| {
            values.write(index, 0, &mut value);
            value[60] ^= 1;
            values.version_of(index, &value).is_none()
        });
        assert!((60..150).contains(&seen.count()));
    }

    #[test]
    fn a_value_of_a_key_is_told_from_that_of_another_and_from_a_foreign_one() {
        let values = Values::new(100, Compressibility::Half);
        for (number, len) in [(0u32, 8), (1, 9), (2, 100), (3, 57)] {
            let (key, mut value) = (format!("key {number}"), vec![0; len]);
            values.write_for(key.as_bytes(), number as u8, &mut value);
            assert_eq!(values.origin(key.as_bytes(), &value), Origin::Generated, "{number}");
            assert_eq!(values.origin(b"another key", &value), Origin::Wrong);
        }
        assert_eq!(values.origin(b"k", b"some text"), Origin::Foreign);
        assert_eq!(values.origin(b"k", b"text"), Origin::Short);
    }

    #[test]
    fn a_damaged_body_of_a_key_is_seen_on_sampled_keys() {
        let values = Values::new(100, Compressibility::None);
        let mut value = vec![0; 100];
        let seen = (0..1600u64).filter(|number| {
            values.write_for(&number.to_be_bytes(), 0, &mut value);
            value[60] ^= 1;
            values.origin(&number.to_be_bytes(), &value) == Origin::Wrong
        });
        assert!((60..150).contains(&seen.count()));
    }

    #[test]
    fn random_bytes_are_as_many_as_promised() {
        for (compressibility, low, high) in [
            (Compressibility::None, 0.98, 1.0),
            (Compressibility::Half, 0.45, 0.62),
            (Compressibility::Pattern, 0.0, 1.0),
        ] {
            let values = Values::new(4096, compressibility);
            let mut value = vec![0; 4096];
            let mut nonzero = 0;
            for index in 0..100 {
                values.write(index, 0, &mut value);
                nonzero += value.iter().filter(|byte| **byte != 0).count();
            }
            let share = nonzero as f64 / 409_600.0;
            assert!((low..=high).contains(&share), "{compressibility:?}: {share}");
        }
    }

    #[test]
    fn the_smallest_value_is_a_stamp() {
        let values = Values::new(VALUE_LEN_MIN, Compressibility::Half);
        let mut value = [0; VALUE_LEN_MIN];
        values.write(9, 1, &mut value);
        assert_eq!(values.version_of(9, &value), Some(1));
    }
}
