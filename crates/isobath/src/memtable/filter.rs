//! A filter that tells most keys that a memtable surely does not hold: a Bloom filter in which each
//! key has all of its bits in one word, so that a question reads one cache line.
//!
//! A get asks each memtable before the tables, and most keys are in none. A search costs two or
//! three cache misses there, the filter one at most.
//!
//! A key's bits are set before its version is linked into the tree, so before it is visible. A
//! reader takes its point first, which orders all of that before it. So for a version that the
//! reader sees, the bits are seen too, with relaxed loads.
//!
//! The filter has its length from the beginning, as a longer one could not be filled while writers
//! run. That length is a guess, from what the epoch before took of the family. If more keys come,
//! more others pass: that costs time and nothing else.

use crate::env::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::env::{Plant, planted};

/// Words for each leaf that the memtable is expected to have. A leaf holds 45 keys at random, and
/// 64 at most: that makes 8 to 11 bits a key, and two to six keys in a hundred pass that are not
/// there.
const WORDS_PER_LEAF: u32 = 8;
/// Below so many leaves, a search is as cheap as a question.
const LEAVES_MIN: u32 = if cfg!(any(test, feature = "simulation")) { 1 } else { 64 };

#[derive(Debug)]
pub(crate) struct KeyFilter {
    words: Box<[AtomicU64]>,
}

/// The bits of a hash in its word: up to four.
#[inline(always)]
fn bits(hash: u64) -> u64 {
    1 << (hash & 63) | 1 << (hash >> 6 & 63) | 1 << (hash >> 12 & 63) | 1 << (hash >> 18 & 63)
}

impl KeyFilter {
    /// A filter for a memtable that is expected to have so many leaves; `None` if it is too small
    /// to be worth one.
    pub(super) fn for_leaves(leaves: u32) -> Option<KeyFilter> {
        let words = (leaves >= LEAVES_MIN).then(|| leaves.saturating_mul(WORDS_PER_LEAF))?;
        Some(KeyFilter { words: (0..words).map(|_| AtomicU64::new(0)).collect() })
    }

    /// The memory that the filter takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// The word of a hash. Its high half scaled to the number of words, without a division.
    #[inline(always)]
    fn word(&self, hash: u64) -> &AtomicU64 {
        &self.words[((u128::from(hash) * self.words.len() as u128) >> 64) as usize]
    }

    /// Adds a key. The caller makes its version visible only later.
    #[inline]
    pub(super) fn add(&self, hash: u64) {
        let (word, bits) = (self.word(hash), bits(hash));
        if word.load(Relaxed) & bits != bits && !planted(Plant::MemtableDenies) {
            word.fetch_or(bits, Relaxed);
        }
        debug_assert!(self.may_hold(hash) || planted(Plant::MemtableDenies), "a key is denied");
    }

    /// False only if no key with this hash was added before the caller took its read point.
    #[inline]
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        let bits = bits(hash);
        self.word(hash).load(Relaxed) & bits == bits
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::format::checksum64;
    use std::sync::atomic::{AtomicU64 as StdAtomicU64, Ordering};

    fn hash_of(i: u64) -> u64 {
        checksum64(&i.to_be_bytes())
    }

    #[test]
    fn no_added_key_is_denied_and_few_others_pass_however_many_leaves_there_are() {
        for leaves in [1, 2, 7, 64, 1000] {
            let filter = KeyFilter::for_leaves(leaves).unwrap();
            assert_eq!(filter.bytes(), leaves as usize * 64);
            let keys = u64::from(leaves) * 45;
            (0..keys).for_each(|i| filter.add(hash_of(i)));
            assert!((0..keys).all(|i| filter.may_hold(hash_of(i))));
            let asked = if cfg!(miri) { 500 } else { 20_000 };
            let passed = (1 << 40..).take(asked).filter(|&i| filter.may_hold(hash_of(i))).count();
            assert!(passed < asked / 12, "{passed} of {asked} with {leaves} leaves");
        }
        assert!(KeyFilter::for_leaves(0).is_none());
    }

    #[test]
    fn more_keys_than_were_expected_are_all_held() {
        let filter = KeyFilter::for_leaves(1).unwrap();
        assert!(!filter.may_hold(hash_of(5000)));
        (0..2000).for_each(|i| filter.add(hash_of(i)));
        assert!((0..2000).all(|i| filter.may_hold(hash_of(i))));
    }

    #[test]
    fn a_key_sets_up_to_four_bits_of_one_word_and_all_words_are_used() {
        let mut set = 0;
        for hash in (0..1000).map(hash_of) {
            let filter = KeyFilter::for_leaves(3).unwrap();
            filter.add(hash);
            let words: Vec<u64> = filter.words.iter().map(|word| word.load(Relaxed)).collect();
            assert_eq!(words.iter().filter(|word| **word != 0).count(), 1);
            let bits: u32 = words.iter().map(|word| word.count_ones()).sum();
            assert!((1..=4).contains(&bits));
            set += bits;
        }
        assert!(set > 3800, "most keys set four bits, which rarely meet: {set}");
        let filter = KeyFilter::for_leaves(3).unwrap();
        [0, u64::MAX].iter().for_each(|hash| filter.add(*hash));
        assert!(filter.words[0].load(Relaxed) == 1 && filter.words[23].load(Relaxed) == 1 << 63);
    }

    #[test]
    fn who_sees_that_a_key_was_added_is_not_denied_it() {
        let (filter, added) = (KeyFilter::for_leaves(4).unwrap(), StdAtomicU64::new(0));
        let count = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..count {
                    filter.add(hash_of(i));
                    added.store(i + 1, Ordering::Release);
                }
            });
            scope.spawn(|| (count..2 * count).for_each(|i| filter.add(hash_of(i))));
            while added.load(Ordering::Acquire) < count {
                let seen = added.load(Ordering::Acquire);
                assert!((0..seen).rev().take(20).all(|i| filter.may_hold(hash_of(i))));
            }
        });
    }
}
