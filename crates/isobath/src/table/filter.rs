//! Blocked Bloom filter: recognises most absent keys at the cost of one cache line.
//!
//! A key has a 64-bit hash (the XXH3-64 of the user key). The high half selects a 64-byte line, and
//! the low half selects bits in that line. (F. Putze, P. Sanders, J. Singler, "Cache-, Hash- and
//! Space-Efficient Bloom Filters", 2007.)
//!
//! ```text
//! kind    u8: 1 = this filter
//! probes  u8: bits set per key, 1 to 16
//! lines   64 bytes each: bit b of a line is bit (b mod 64) of its little-endian u64 number b / 64
//! ```

use crate::env::{Plant, planted};
use crate::error::{DecodeError, Decoded};

const KIND_BLOCKED_BLOOM: u8 = 1;
const HEADER_LEN: usize = 2;
const LINE_LEN: usize = 64;
const LINE_BITS: u64 = LINE_LEN as u64 * 8;
const PROBES_MAX: u32 = 16;
const PROBE_STEP: u32 = 0x9e37_79b9;

/// One cache line of a filter in memory.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line([u64; LINE_LEN / 8]);

/// A filter in memory, ready for use.
pub(crate) struct Filter {
    lines: Box<[Line]>,
    probes: u32,
}

/// The line of a hash: the high half scaled to the number of lines, without a division.
#[inline]
fn line_index(hash: u64, line_count: usize) -> usize {
    ((u128::from(hash) * line_count as u128) >> 64) as usize
}

/// The bits that a hash selects in its line.
#[inline]
fn bits(hash: u64, probes: u32) -> impl Iterator<Item = (usize, u64)> {
    (0..probes).scan(hash as u32, |state, _| {
        *state = state.wrapping_mul(PROBE_STEP);
        let bit = *state >> 23;
        Some(((bit >> 6) as usize, 1 << (bit & 63)))
    })
}

/// The best number of probes is near `0.69 × bits`. Lines fill unevenly, so somewhat fewer are
/// better.
fn probes_for(bits_per_key: u32) -> u32 {
    (bits_per_key * 6 / 10).clamp(1, PROBES_MAX)
}

/// Appends the filter over `hashes` to `out`, with `bits_per_key` bits for each hash.
pub(crate) fn put_filter(out: &mut Vec<u8>, hashes: &[u64], bits_per_key: u32) {
    let bit_count = hashes.len() as u64 * u64::from(bits_per_key.max(1));
    let line_count = bit_count.div_ceil(LINE_BITS).max(1) as usize;
    let probes = probes_for(bits_per_key);
    let mut lines = vec![Line::default(); line_count];
    let filled = if planted(Plant::FilterDenies) { probes - 1 } else { probes };
    for &hash in hashes {
        let line = &mut lines[line_index(hash, line_count)].0;
        for (word, mask) in bits(hash, filled) {
            line[word] |= mask;
        }
    }
    out.reserve(HEADER_LEN + line_count * LINE_LEN);
    out.extend_from_slice(&[KIND_BLOCKED_BLOOM, probes as u8]);
    for line in &lines {
        for word in line.0 {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

impl Filter {
    /// Decodes a stored filter. `None` for a kind that this version does not know: reads then go
    /// without a filter.
    pub(crate) fn decode(bytes: &[u8]) -> Decoded<Option<Filter>> {
        let Some((&[kind, probes], stored)) = bytes.split_first_chunk() else {
            return Err(DecodeError::damaged("a filter is shorter than its header"));
        };
        if kind != KIND_BLOCKED_BLOOM {
            return Ok(None);
        }
        let (stored, rest) = stored.as_chunks::<LINE_LEN>();
        let probes = u32::from(probes);
        if stored.is_empty() || !rest.is_empty() || !(1..=PROBES_MAX).contains(&probes) {
            return Err(DecodeError::damaged(format!(
                "a filter of {} bytes with {probes} probes",
                bytes.len()
            )));
        }
        let lines = stored.iter().map(|line| {
            let mut words = [0; LINE_LEN / 8];
            for (word, bytes) in words.iter_mut().zip(line.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*bytes);
            }
            Line(words)
        });
        Ok(Some(Filter { lines: lines.collect(), probes }))
    }

    /// False only if no key with this hash was added.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        let line = &self.lines[line_index(hash, self.lines.len())].0;
        bits(hash, self.probes).all(|(word, mask)| line[word] & mask != 0)
    }

    /// The memory that the filter takes, in bytes.
    pub(crate) fn charge(&self) -> usize {
        self.lines.len() * LINE_LEN
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Filter({} lines, {} probes)", self.lines.len(), self.probes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::checksum64;

    fn hash_of(i: u64) -> u64 {
        checksum64(format!("key{i}").as_bytes())
    }

    fn filter_over(count: u64, bits_per_key: u32) -> Filter {
        let hashes: Vec<u64> = (0..count).map(hash_of).collect();
        let mut stored = Vec::new();
        put_filter(&mut stored, &hashes, bits_per_key);
        Filter::decode(&stored).unwrap().unwrap()
    }

    #[test]
    fn golden_bytes_hold() {
        let mut out = Vec::new();
        put_filter(&mut out, &[0x0123_4567_89ab_cdef], 10);
        assert_eq!(out.len(), 2 + 64);
        assert_eq!(&out[..2], &[1, 6]);
        let mut expected = [0u8; 64];
        for bit in [227, 436, 48, 130, 237, 129] {
            expected[bit / 8] |= 1 << (bit % 8);
        }
        assert_eq!(&out[2..], &expected);
    }

    #[test]
    fn no_added_key_is_ever_denied() {
        for count in [1, 2, 51, 52, 1000, 50_000] {
            for bits_per_key in [1, 5, 10, 20, 100] {
                let filter = filter_over(count, bits_per_key);
                assert!((0..count).all(|i| filter.may_contain(hash_of(i))));
            }
        }
    }

    #[test]
    fn a_filter_has_the_lines_and_probes_that_its_keys_call_for() {
        let probes = [1, 2, 3, 4, 5, 10, 19, 20, 26, 27, 100].map(probes_for);
        assert_eq!(probes, [1, 1, 1, 2, 3, 6, 11, 12, 15, 16, 16]);
        for (count, bits_per_key, lines) in
            [(0, 10, 1), (64, 8, 1), (65, 8, 2), (51, 10, 1), (52, 10, 2), (513, 1, 2), (512, 0, 1)]
        {
            let mut stored = Vec::new();
            put_filter(&mut stored, &vec![7; count], bits_per_key);
            assert_eq!(stored.len(), 2 + 64 * lines, "{count} keys of {bits_per_key} bits");
            let filter = Filter::decode(&stored).unwrap().unwrap();
            assert_eq!(filter.charge(), 64 * lines);
        }
        let all_set = |probes: u8| [&[1, probes][..], &[0xff; 64]].concat();
        for probes in [1, 16] {
            assert!(Filter::decode(&all_set(probes)).unwrap().unwrap().may_contain(5));
        }
    }

    #[test]
    fn false_positives_are_as_rare_as_theory_says() {
        for (bits_per_key, rate_min, rate_max) in
            [(5, 0.08, 0.13), (8, 0.018, 0.032), (10, 0.007, 0.013), (15, 0.0005, 0.0025)]
        {
            let filter = filter_over(100_000, bits_per_key);
            let asked = 400_000;
            let wrong =
                (1_000_000..1_000_000 + asked).filter(|&i| filter.may_contain(hash_of(i))).count();
            let rate = wrong as f64 / asked as f64;
            assert!((rate_min..rate_max).contains(&rate), "{bits_per_key} bits: {rate}");
        }
    }

    #[test]
    fn malformed_filters_are_errors_and_unknown_kinds_are_no_filter() {
        assert!(Filter::decode(&[]).is_err());
        assert!(Filter::decode(&[1, 6]).is_err());
        assert!(Filter::decode(&[[1, 6].as_slice(), &[0; 63]].concat()).is_err());
        assert!(Filter::decode(&[[1, 0].as_slice(), &[0; 64]].concat()).is_err());
        assert!(Filter::decode(&[[1, 17].as_slice(), &[0; 64]].concat()).is_err());
        assert!(Filter::decode(&[9, 9, 9]).unwrap().is_none());
    }
}
