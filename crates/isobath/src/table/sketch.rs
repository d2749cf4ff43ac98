//! A sketch of the keys of a slice: it tells about how many different ones there are, and those of
//! several slices together tell it of their union.
//!
//! A HyperLogLog of 2048 registers over the 64-bit hash of each key (the XXH3-64 that the filter
//! uses, too). The upper 11 bits select a register, which keeps the greatest rank: one more than
//! the number of zero bits with which the others begin. The union of two sketches has the greater
//! rank in each register. The standard error is 2.3%, of some hundred keys 1.6%, and up to thirty
//! keys the estimate is mostly right. (P.
//! Flajolet et al., "HyperLogLog", 2007; the estimate is that of O. Ertl, "New cardinality
//! estimation algorithms for HyperLogLog sketches", 2017, algorithm 6, which needs no tables and is
//! without bias for any number of keys.)
//!
//! Only keys count that have a value in some version. A slice with one data block in its root has
//! no sketch: that block has the keys themselves.
//!
//! ```text
//! form    u8: 1 or 2, whichever is shorter. A reader ignores a sketch of another form
//! 1       ascending registers that are not 0, varint for each: 64 × (register less the one before) + rank
//! 2       ranks of 6 bits: that of register r in the bits from 6r on, the lowest bit of a byte first
//! ```

use crate::error::{DecodeError, Decoded};
use crate::format::{Decoder, put_varint};

const INDEX_BITS: u32 = 11;
const REGISTERS: usize = 1 << INDEX_BITS;
const RANK_BITS: u32 = 64 - INDEX_BITS;
const RANK_MAX: u8 = RANK_BITS as u8 + 1;
const STORED_BITS: usize = 6;
const DENSE_LEN: usize = REGISTERS * STORED_BITS / 8;

const FORM_SPARSE: u8 = 1;
const FORM_DENSE: u8 = 2;

const _: () = assert!((RANK_MAX as u64) < 1 << STORED_BITS && DENSE_LEN.is_multiple_of(3));

/// The standard error of an estimate, as a share of it.
pub(crate) const STANDARD_ERROR: f64 = 0.023;

/// A sketch to which keys can be added.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Sketch {
    ranks: Box<[u8; REGISTERS]>,
}

impl Default for Sketch {
    fn default() -> Sketch {
        Sketch { ranks: Box::new([0; REGISTERS]) }
    }
}

impl Sketch {
    /// Forgets all keys.
    pub(crate) fn clear(&mut self) {
        self.ranks.fill(0);
    }

    /// Adds the key with this hash. Adding it again changes nothing.
    #[inline(always)]
    pub(crate) fn add(&mut self, hash: u64) {
        let register = (hash >> RANK_BITS) as usize;
        // A bit behind the last one ends the zeros.
        let rest = hash << INDEX_BITS | 1 << (INDEX_BITS - 1);
        let rank = rest.leading_zeros() as u8 + 1;
        let known = &mut self.ranks[register];
        if *known < rank {
            *known = rank;
        }
    }

    /// About how many different keys were added.
    pub(crate) fn estimate(&self) -> u64 {
        let mut counts = [0_u32; RANK_MAX as usize + 1];
        self.ranks.iter().for_each(|rank| counts[usize::from(*rank)] += 1);
        let (all, count) = (REGISTERS as f64, |rank: u8| f64::from(counts[usize::from(rank)]));
        let mut sum = all * tau(1.0 - count(RANK_MAX) / all);
        for rank in (1..RANK_MAX).rev() {
            sum = 0.5 * (sum + count(rank));
        }
        sum += all * sigma(count(0) / all);
        (all * all / (2.0 * std::f64::consts::LN_2) / sum).round() as u64
    }

    /// Appends the sketch as it is stored.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.push(FORM_SPARSE);
        let mut before = 0;
        for (register, rank) in self.ranks.iter().enumerate().filter(|(_, rank)| **rank > 0) {
            put_varint(out, ((register - before) as u64) << STORED_BITS | u64::from(*rank));
            before = register;
            if out.len() - start > DENSE_LEN {
                out.truncate(start);
                return self.encode_dense(out);
            }
        }
    }

    fn encode_dense(&self, out: &mut Vec<u8>) {
        out.push(FORM_DENSE);
        for four in self.ranks.as_chunks::<4>().0 {
            let bits =
                four.iter().rev().fold(0, |bits, rank| bits << STORED_BITS | u32::from(*rank));
            out.extend_from_slice(&bits.to_le_bytes()[..3]);
        }
    }

    /// Adds the keys of a stored sketch. False if this version does not know its form.
    pub(crate) fn add_stored(&mut self, stored: &[u8]) -> Decoded<bool> {
        match stored.split_first() {
            Some((&FORM_SPARSE, list)) => self.add_sparse(list)?,
            Some((&FORM_DENSE, ranks)) => self.add_dense(ranks)?,
            Some(_) => return Ok(false),
            None => return Err(DecodeError::damaged("a sketch has no form")),
        }
        Ok(true)
    }

    fn add_sparse(&mut self, list: &[u8]) -> Decoded<()> {
        let mut list = Decoder::new(list);
        let mut next = Some(0_u64);
        let mut is_first = true;
        while !list.is_done() {
            let number = list.varint()?;
            let (step, rank) = (number >> STORED_BITS, number & ((1 << STORED_BITS) - 1));
            next = next.and_then(|at| at.checked_add(step)).filter(|_| is_first || step > 0);
            let Some(register) = next.filter(|at| *at < REGISTERS as u64) else {
                return Err(list.malformed("the registers of a sketch do not ascend"));
            };
            self.raise(register as usize, rank as u8)?;
            is_first = false;
        }
        Ok(())
    }

    fn add_dense(&mut self, ranks: &[u8]) -> Decoded<()> {
        if ranks.len() != DENSE_LEN {
            return Err(DecodeError::damaged("a sketch has another length than its registers"));
        }
        for (nth, three) in ranks.as_chunks::<3>().0.iter().enumerate() {
            let bits = u32::from_le_bytes([three[0], three[1], three[2], 0]);
            for at in 0..4 {
                let rank = bits >> (at * STORED_BITS) & ((1 << STORED_BITS) - 1);
                if rank > 0 {
                    self.raise(4 * nth + at, rank as u8)?;
                }
            }
        }
        Ok(())
    }

    fn raise(&mut self, register: usize, rank: u8) -> Decoded<()> {
        if !(1..=RANK_MAX).contains(&rank) {
            return Err(DecodeError::damaged("a rank of a sketch is out of range"));
        }
        self.ranks[register] = self.ranks[register].max(rank);
        Ok(())
    }
}

/// The share of registers that no key has met, weighed.
fn sigma(share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut weight, mut sum) = (share, 1.0, share);
    loop {
        power *= power;
        let before = sum;
        sum += power * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

/// The share of registers below the greatest rank, weighed.
fn tau(share: f64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 0.0;
    }
    let (mut root, mut weight, mut sum) = (share, 1.0, 1.0 - share);
    loop {
        root = root.sqrt();
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - root) * (1.0 - root) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}

impl std::fmt::Debug for Sketch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sketch(about {} keys)", self.estimate())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::checksum64;

    fn of(keys: std::ops::Range<u64>) -> Sketch {
        let mut sketch = Sketch::default();
        keys.for_each(|key| sketch.add(checksum64(&key.to_be_bytes())));
        sketch
    }

    fn stored(sketch: &Sketch) -> Vec<u8> {
        let mut out = Vec::new();
        sketch.encode(&mut out);
        out
    }

    #[test]
    fn golden_bytes_of_both_forms_hold() {
        let mut sketch = Sketch::default();
        assert_eq!(stored(&sketch), [FORM_SPARSE]);
        // Register 0 with rank 54, register 1 with rank 1, register 2047 with rank 3.
        [0, 3 << 52, u64::MAX << 53 | 1 << 50].into_iter().for_each(|hash| sketch.add(hash));
        assert_eq!(stored(&sketch), b"\x01\x36\x41\x83\xff\x07");
        let mut dense = vec![FORM_DENSE];
        dense.resize(1 + DENSE_LEN, 0);
        (dense[1], dense[2], dense[DENSE_LEN]) = (0x76, 0, 0x0c);
        let mut out = Vec::new();
        sketch.encode_dense(&mut out);
        assert_eq!(out, dense);
        for form in [&stored(&sketch), &dense] {
            let mut read = Sketch::default();
            assert!(read.add_stored(form).unwrap());
            assert_eq!(read, sketch);
        }
    }

    #[test]
    fn estimates_are_within_three_standard_errors_for_any_number_of_keys() {
        for count in [0, 1, 2, 10, 100, 1000, 3000, 5000, 10_000, 50_000, 300_000] {
            for from in [0, 1 << 32, 1 << 40] {
                let about = of(from..from + count).estimate();
                let off = about.abs_diff(count) as f64;
                assert!(off <= 3.0 * STANDARD_ERROR * count as f64, "{about} for {count}");
            }
        }
        assert_eq!(of(0..30).estimate(), 30);
    }

    #[test]
    fn the_error_is_the_one_that_is_stated() {
        for count in [5_000, 20_000] {
            let mean_square: f64 = (0..100)
                .map(|nth| {
                    let from = nth << 32;
                    let off = of(from..from + count).estimate() as f64 / count as f64 - 1.0;
                    off * off / 100.0
                })
                .sum();
            let error = mean_square.sqrt();
            assert!((0.7..1.3).contains(&(error / STANDARD_ERROR)), "{error} of {count}");
        }
    }

    #[test]
    fn a_union_is_the_sketch_of_all_keys_together_in_any_form_and_order() {
        for (one, other) in [(0..100, 50..300), (0..90_000, 10..60), (0..9000, 5000..20_000)] {
            let whole = of(one.start..other.end.max(one.end));
            let parts = [stored(&of(one)), stored(&of(other))];
            for parts in [[&parts[0], &parts[1]], [&parts[1], &parts[0]]] {
                let mut union = Sketch::default();
                parts.iter().for_each(|part| assert!(union.add_stored(part).unwrap()));
                assert!(union == whole);
            }
        }
    }

    #[test]
    fn a_sketch_takes_two_bytes_a_key_and_never_more_than_its_registers() {
        for (count, most) in [(0, 1), (1, 4), (100, 250), (500, 1050), (1_000_000, 1 + DENSE_LEN)] {
            let len = stored(&of(0..count)).len();
            assert!(len <= most, "{len} for {count}");
        }
    }

    #[test]
    fn bad_bytes_are_errors_and_an_unknown_form_is_left_out() {
        let mut sketch = Sketch::default();
        assert!(!sketch.add_stored(&[3, 1, 2]).unwrap());
        let mut long = vec![FORM_DENSE; 1 + DENSE_LEN];
        long[1] = 0x3f;
        let step = |step: u64, rank: u64| {
            let mut list = vec![FORM_SPARSE, 0x41];
            put_varint(&mut list, step << STORED_BITS | rank);
            list
        };
        assert!(sketch.add_stored(&step(2046, 54)).unwrap());
        for bad in [
            &[][..],
            &[FORM_DENSE],
            &[FORM_DENSE; DENSE_LEN],
            &[FORM_DENSE; DENSE_LEN + 2],
            &long,
            &[FORM_SPARSE, 0x80],
            &step(0, 1),
            &step(1, 0),
            &step(1, 55),
            &step(2047, 1),
            &step(u64::MAX >> STORED_BITS, 1),
        ] {
            assert!(sketch.add_stored(bad).unwrap_err().is_damage(), "{bad:?}");
        }
    }
}
