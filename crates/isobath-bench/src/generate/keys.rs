//! An index in `[0, n)` as the bytes of a key, and back.
//!
//! Each shape is invertible, so that a scan can check every row it is shown without a model of the
//! database. All bytes beyond the first eight are derived from the index too.

use super::{mix, unmix};
use serde::{Deserialize, Serialize};

/// Fewer bytes can't tell the indexes apart.
pub(crate) const KEY_LEN_MIN: usize = 8;

/// Microseconds since 1970 at which the timestamp shape begins (2026-01-01).
const TIMESTAMP_BASE_US: u64 = 1_767_225_600_000_000;

/// How an index becomes bytes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum KeyShape {
    /// Zeros, then the index in big-endian: bytewise order is numeric order.
    Ordered,
    /// Every byte looks random.
    Hashed,
    /// Microseconds in big-endian, then a hash, as of a device: order is time.
    Timestamp,
    /// The index in little-endian, then zeros: the "random" keys of TidesDB's articles.
    Swapped,
}

/// Writes the key of `index` over all of `key`, which has at least [`KEY_LEN_MIN`] bytes.
#[inline]
pub(crate) fn write_key(shape: KeyShape, index: u64, key: &mut [u8]) {
    debug_assert!(key.len() >= KEY_LEN_MIN);
    match shape {
        KeyShape::Ordered => {
            let (zeros, tail) = key.split_at_mut(key.len() - 8);
            zeros.fill(0);
            tail.copy_from_slice(&index.to_be_bytes());
        }
        KeyShape::Hashed => fill_hashed(mix(index), key),
        KeyShape::Timestamp => {
            let (head, tail) = key.split_at_mut(8);
            head.copy_from_slice(&(TIMESTAMP_BASE_US + index).to_be_bytes());
            fill_hashed(mix(!index), tail);
        }
        KeyShape::Swapped => {
            let (head, tail) = key.split_at_mut(8);
            head.copy_from_slice(&index.to_le_bytes());
            tail.fill(0);
        }
    }
}

#[inline]
fn fill_hashed(mut word: u64, bytes: &mut [u8]) {
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&word.to_be_bytes()[..chunk.len()]);
        word = mix(word);
    }
}

/// The index whose key this is, or `None` if no index has it.
#[inline]
pub(crate) fn key_index(shape: KeyShape, key: &[u8]) -> Option<u64> {
    if key.len() < KEY_LEN_MIN {
        return None;
    }
    let word = |bytes: &[u8]| u64::from_be_bytes(std::array::from_fn(|i| bytes[i]));
    let index = match shape {
        KeyShape::Ordered => word(&key[key.len() - 8..]),
        KeyShape::Hashed => unmix(word(key)),
        KeyShape::Timestamp => word(key).checked_sub(TIMESTAMP_BASE_US)?,
        KeyShape::Swapped => word(key).swap_bytes(),
    };
    Some(index)
}

/// A number that orders the keys of a shape as their bytes do, another one for each.
#[inline]
pub(crate) fn sort_word(shape: KeyShape, key: &[u8]) -> u64 {
    let start = if shape == KeyShape::Ordered { key.len().saturating_sub(8) } else { 0 };
    key[start..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [KeyShape; 4] =
        [KeyShape::Ordered, KeyShape::Hashed, KeyShape::Timestamp, KeyShape::Swapped];

    fn key(shape: KeyShape, index: u64, len: usize) -> Vec<u8> {
        let mut key = vec![0xaa; len];
        write_key(shape, index, &mut key);
        key
    }

    #[test]
    fn every_shape_and_length_gives_its_index_back() {
        for shape in SHAPES {
            for len in [8, 9, 16, 23, 64] {
                for index in [0, 1, 255, 256, 1 << 40] {
                    assert_eq!(
                        key_index(shape, &key(shape, index, len)),
                        Some(index),
                        "{shape:?} {len}"
                    );
                }
            }
        }
    }

    #[test]
    fn ordered_and_timestamp_keys_sort_by_index() {
        for shape in [KeyShape::Ordered, KeyShape::Timestamp] {
            assert!((0..2000).all(|index| key(shape, index, 16) < key(shape, index + 1, 16)));
        }
    }

    #[test]
    fn the_sort_word_orders_as_the_bytes_do() {
        for shape in SHAPES {
            let mut keys: Vec<Vec<u8>> = (0..3000).map(|index| key(shape, index * 7, 20)).collect();
            keys.sort();
            let words: Vec<u64> = keys.iter().map(|key| sort_word(shape, key)).collect();
            assert!(words.windows(2).all(|pair| pair[0] < pair[1]), "{shape:?}");
        }
    }

    #[test]
    fn hashed_keys_use_every_byte_evenly() {
        let mut counts = [[0u32; 16]; 256];
        for index in 0..100_000 {
            for (column, byte) in key(KeyShape::Hashed, index, 16).into_iter().enumerate() {
                counts[usize::from(byte)][column] += 1;
            }
        }
        let expected = 100_000.0 / 256.0;
        for column in 0..16 {
            let chi: f64 = counts
                .iter()
                .map(|row| (f64::from(row[column]) - expected).powi(2) / expected)
                .sum();
            // 255 degrees of freedom: 347.7 is the 99.99 % quantile.
            assert!(chi < 347.7, "column {column}: chi squared {chi}");
        }
    }

    #[test]
    fn a_swapped_key_is_the_counter_back_to_front() {
        assert_eq!(key(KeyShape::Swapped, 0x0102, 10), [2, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
