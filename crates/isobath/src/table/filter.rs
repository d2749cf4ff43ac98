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

use super::frame::TRAILER_LEN;
use crate::env::{Plant, planted, prefetch};
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

/// Of no more keys than this the hashes are collected before a filter is made of them.
const COLLECTED_MAX: u64 = 1 << 20;
/// Lines that are set as keys come are a multiple of this, so that they can be halved.
const LINES_UNIT: usize = 64;
/// With more lines the stored block would be longer than its handle can tell. Of more keys than
/// these are for, a filter recognises fewer.
const LINES_MAX: usize =
    (u32::MAX as usize - HEADER_LEN - TRAILER_LEN) / LINE_LEN / LINES_UNIT * LINES_UNIT;

/// Makes a filter. Collects the hashes, as the number of lines follows from how many there are. Of
/// so many keys that these would take much memory it sets bits at once, in as many lines as the
/// keys would need that may come, and makes fewer lines of them in the end.
#[derive(Default)]
pub(crate) struct FilterBuilder {
    bits_per_key: u32,
    hashes: Vec<u64>,
    /// What is set as keys come.
    lines: Option<StoredLines>,
    count: u64,
    /// For more keys there is no filter.
    most: u64,
}

impl FilterBuilder {
    /// Begins a filter, with `bits_per_key` bits for each key; without any bits there is none.
    pub(crate) fn begin(&mut self, bits_per_key: u32) {
        (self.bits_per_key, self.count, self.most) = (bits_per_key, 0, u64::MAX);
        self.hashes.clear();
        self.lines = None;
    }

    /// No more than `count` keys come.
    pub(crate) fn expect(&mut self, count: u64) {
        debug_assert_eq!(self.count, 0, "what is expected is known before it comes");
        if count > COLLECTED_MAX && self.bits_per_key > 0 {
            let lines = line_count(count, self.bits_per_key).next_multiple_of(LINES_UNIT);
            self.lines = Some(StoredLines::new(lines, probes_for(self.bits_per_key)));
        }
    }

    /// If more than `most` keys come, there is no filter, and no memory is taken for it.
    pub(crate) fn limit(&mut self, most: u64) {
        self.most = most;
    }

    /// The number of keys until now, if there is to be a filter.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    #[cold]
    fn give_up(&mut self) {
        self.begin(0);
        self.hashes = Vec::new();
    }

    /// Adds the key with this hash.
    #[inline]
    pub(crate) fn add(&mut self, hash: u64) {
        if self.bits_per_key == 0 {
            return;
        }
        self.count += 1;
        if self.count > self.most {
            return self.give_up();
        }
        match &mut self.lines {
            None => self.hashes.push(hash),
            Some(lines) => lines.set(hash),
        }
    }

    /// The filter as it is stored; `None` if there were no keys. The builder keeps memory for so
    /// many hashes.
    pub(crate) fn finish(&mut self, kept: usize) -> Option<Vec<u8>> {
        let needed = line_count(self.count, self.bits_per_key);
        let lines = match self.lines.take() {
            Some(lines) => lines.halved_to(needed),
            None => StoredLines::over(&self.hashes, self.bits_per_key),
        };
        debug_assert!(
            self.count == 0
                || planted(Plant::FilterDenies)
                || Filter::decode(&lines.bytes).is_ok_and(|filter| {
                    filter.is_none_or(|it| self.hashes.iter().all(|hash| it.may_contain(*hash)))
                }),
            "a filter denies a key of its own"
        );
        let is_empty = self.count == 0;
        self.begin(0);
        self.hashes.shrink_to(kept);
        (!is_empty).then_some(lines.bytes)
    }
}

fn line_count(keys: u64, bits_per_key: u32) -> usize {
    let lines = keys.saturating_mul(bits_per_key.max(1).into()).div_ceil(LINE_BITS);
    lines.clamp(1, LINES_MAX as u64) as usize
}

/// A filter as it is stored: in so long a one there is no room for a copy in another form. Bit b of
/// a line is bit (b mod 8) of its byte b / 8.
struct StoredLines {
    bytes: Vec<u8>,
    /// How many bits are set for each key.
    filled: u32,
}

impl StoredLines {
    fn new(lines: usize, probes: u32) -> StoredLines {
        // With room for what a block's frame adds.
        let mut bytes = Vec::with_capacity(HEADER_LEN + lines * LINE_LEN + TRAILER_LEN);
        bytes.extend_from_slice(&[KIND_BLOCKED_BLOOM, probes as u8]);
        bytes.resize(HEADER_LEN + lines * LINE_LEN, 0);
        let filled = if planted(Plant::FilterDenies) { probes - 1 } else { probes };
        StoredLines { bytes, filled }
    }

    fn over(hashes: &[u64], bits_per_key: u32) -> StoredLines {
        let lines = line_count(hashes.len() as u64, bits_per_key);
        let mut stored = StoredLines::new(lines, probes_for(bits_per_key));
        hashes.iter().for_each(|&hash| stored.set(hash));
        stored
    }

    fn lines(&mut self) -> &mut [[u8; LINE_LEN]] {
        self.bytes[HEADER_LEN..].as_chunks_mut().0
    }

    #[inline]
    fn set(&mut self, hash: u64) {
        let filled = self.filled;
        let lines = self.lines();
        let line = &mut lines[line_index(hash, lines.len())];
        for (word, mask) in bits(hash, filled) {
            let bit = mask.trailing_zeros() as usize;
            line[word * 8 + bit / 8] |= 1 << (bit % 8);
        }
    }

    /// Halves the lines as long as `needed` are left. Of half as many the line of a hash is that
    /// with half its number.
    fn halved_to(mut self, needed: usize) -> StoredLines {
        let mut count = self.lines().len();
        while count / 2 >= needed && count.is_multiple_of(2) {
            count /= 2;
            let lines = self.lines();
            for at in 0..count {
                let (one, other) = (lines[2 * at], lines[2 * at + 1]);
                lines[at] = std::array::from_fn(|byte| one[byte] | other[byte]);
            }
            self.bytes.truncate(HEADER_LEN + count * LINE_LEN);
        }
        self
    }
}

/// Appends the filter over `hashes` to `out`, with `bits_per_key` bits for each hash.
#[cfg(any(test, fuzzing))]
pub(crate) fn put_filter(out: &mut Vec<u8>, hashes: &[u64], bits_per_key: u32) {
    out.extend_from_slice(&StoredLines::over(hashes, bits_per_key).bytes);
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

    /// Has the processor fetch the line of a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch(&self.lines[line_index(hash, self.lines.len())]);
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
    fn the_filter_of_any_number_of_keys_is_a_block_that_can_be_stored() {
        let stored = |lines: usize| HEADER_LEN + lines * LINE_LEN + TRAILER_LEN;
        for keys in [3_500_000_000, 1 << 40, u64::MAX] {
            let lines = line_count(keys, 10).next_multiple_of(LINES_UNIT);
            assert!(u32::try_from(stored(lines)).is_ok(), "{keys}");
        }
        assert_eq!(line_count(3_000_000_000, 10), 58_593_750);
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
    fn a_filter_that_is_set_as_keys_come_denies_none_and_few_others_pass_it() {
        let expected = COLLECTED_MAX + 1;
        for came in [1, 3000, expected / 5, expected] {
            let mut builder = FilterBuilder::default();
            builder.begin(10);
            builder.expect(expected);
            let key = |i: u64| i.to_be_bytes();
            (0..came).for_each(|i| builder.add(checksum64(&key(i))));
            assert!(builder.hashes.is_empty());
            let stored = builder.finish(0).unwrap();
            let least = line_count(expected, 10) / LINES_UNIT;
            let needed = line_count(came, 10).max(least);
            assert!(stored.len() < (2 * needed + 1) * LINE_LEN + LINES_UNIT * LINE_LEN, "{came}");
            let filter = Filter::decode(&stored).unwrap().unwrap();
            assert!((0..came).all(|i| filter.may_contain(checksum64(&key(i)))));
            let absent = (expected..expected + 10_000).map(|i| checksum64(&key(i)));
            let passed = absent.filter(|hash| filter.may_contain(*hash)).count();
            assert!(passed < 250, "{passed} of 10000 after {came}");
        }
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
