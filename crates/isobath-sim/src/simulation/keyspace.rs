//! The keys that a seed's lives write and read: few short ones, or thousands of every length,
//! sometimes with the empty one among them.

use super::values::{Key, Place};
use isobath::MAX_KEY_LEN;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The number of neighbouring keys that are drawn more often than others.
const HOT_LEN: usize = 16;
/// A window of keys holds at most so many, where there are more.
const WINDOW_MAX: usize = 64;

/// One key in so many has any length. Longer ones cost a run time: the mean is some 6 KiB.
const ANY_LENGTH_EVERY: u16 = 400;

/// Keys in order.
pub(crate) struct Keyspace {
    keys: Vec<Key>,
    /// Half of what is drawn is one of [`HOT_LEN`] keys from here on.
    hot_from: Option<usize>,
}

impl Keyspace {
    /// Few short keys: everything happens to each of them. Or so few that each is written again and
    /// again within a flush: a read that is late by one misses what it should see.
    pub(crate) fn few(rng: &mut fastrand::Rng) -> Rc<Keyspace> {
        let count = [48, 48, 4][rng.usize(..3)];
        let keys = (0..count).map(|number| format!("key{number:03}").into_bytes().into());
        let mut keys: Vec<Key> = keys.collect();
        if rng.u8(..3) == 0 {
            keys[0] = [][..].into();
        }
        Rc::new(Keyspace { keys, hot_from: None })
    }

    /// Many keys of all lengths, most of them short: some differ in their first bytes, some only
    /// behind a long prefix that they share, some begin others; a few have any length, up to that
    /// which keys may have. There are `least` of them or more.
    pub(crate) fn many(least: usize, rng: &mut fastrand::Rng) -> Rc<Keyspace> {
        let count = [100, 400, 1000, 3000][rng.usize(..4)].max(least);
        let prefixes: Vec<Vec<u8>> = (0..rng.usize(1..4)).map(|_| prefix(rng)).collect();
        let has_long = rng.u8(..3) == 0;
        let mut keys = BTreeSet::new();
        if rng.u8(..3) == 0 {
            keys.insert(Vec::new());
        }
        while keys.len() < count {
            let mut key = match rng.u8(..4) {
                0 => Vec::new(),
                _ => prefixes[rng.usize(..prefixes.len())].clone(),
            };
            let tail = rng.usize(1..9);
            key.extend((0..tail).map(|_| b"\0\x01aabbz\xff"[rng.usize(..8)]));
            if rng.u16(..ANY_LENGTH_EVERY) == 0 {
                key.resize(any_len(rng), b'l');
            }
            keys.insert(key);
        }
        if has_long {
            for len in [MAX_KEY_LEN - 1, MAX_KEY_LEN] {
                let mut key = prefixes[0].clone();
                key.resize(len, b'b');
                keys.insert(key);
            }
        }
        let keys: Vec<Key> = keys.into_iter().map(Key::from).collect();
        let hot_from = Some(rng.usize(..keys.len() - HOT_LEN));
        Rc::new(Keyspace { keys, hot_from })
    }

    /// All keys, ascending.
    pub(crate) fn all(&self) -> &[Key] {
        &self.keys
    }

    /// One key, at random.
    pub(crate) fn key(&self, rng: &mut fastrand::Rng) -> Key {
        self.keys[self.at(rng)].clone()
    }

    fn at(&self, rng: &mut fastrand::Rng) -> usize {
        match self.hot_from {
            Some(hot) if rng.bool() => hot + rng.usize(..HOT_LEN),
            _ => rng.usize(..self.keys.len()),
        }
    }

    pub(crate) fn place(&self, rng: &mut fastrand::Rng) -> Place {
        (rng.u8(..2), self.key(rng))
    }

    /// Up to `count` neighbours, ascending, in a season those from its first key on.
    pub(crate) fn neighbours(
        &self,
        season: Option<u64>,
        count: usize,
        rng: &mut fastrand::Rng,
    ) -> &[Key] {
        let start = season.map_or_else(|| self.at(rng), |season| self.first_of(season));
        &self.keys[start..self.keys.len().min(start + count)]
    }

    /// One key; within a season, a key near the season's first one.
    pub(crate) fn key_in(&self, season: Option<u64>, rng: &mut fastrand::Rng) -> Key {
        let Some(season) = season else { return self.key(rng) };
        let start = self.first_of(season);
        let end = self.keys.len().min(start + HOT_LEN);
        self.keys[rng.usize(start..end)].clone()
    }

    fn first_of(&self, season: u64) -> usize {
        let spread = season.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(24);
        spread as usize % self.keys.len()
    }

    /// The ends of a stretch of keys, the lesser first. If there are few keys it may be any
    /// stretch; if there are many, it is rarely longer than a window.
    pub(crate) fn range(&self, rng: &mut fastrand::Rng) -> (Key, Key) {
        let (one, other) = if self.hot_from.is_none() || rng.u8(..32) == 0 {
            (self.at(rng), self.at(rng))
        } else {
            let start = self.at(rng);
            (start, self.keys.len().min(start + rng.usize(1..WINDOW_MAX)) - 1)
        };
        (self.keys[one.min(other)].clone(), self.keys[one.max(other)].clone())
    }
}

/// A length up to the greatest, as often from any power of two to the next.
fn any_len(rng: &mut fastrand::Rng) -> usize {
    let least = 1 << rng.u32(..MAX_KEY_LEN.ilog2());
    rng.usize(least..=(2 * least).min(MAX_KEY_LEN))
}

/// A prefix of many keys: longer or shorter than the eight bytes that are compared first.
fn prefix(rng: &mut fastrand::Rng) -> Vec<u8> {
    let len = [3, 8, 9, 20, 100][rng.usize(..5)];
    (0..len).map(|_| b'a' + rng.u8(..3)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_keys_are_sorted_and_some_differ_only_behind_eight_bytes() {
        let mut rng = fastrand::Rng::with_seed(1);
        let keys = Keyspace::many(0, &mut rng);
        assert!(keys.all().is_sorted_by(|a, b| a < b));
        assert!(
            keys.all()
                .windows(2)
                .any(|pair| pair[0].len() > 8 && pair[1].len() > 8 && pair[0][..8] == pair[1][..8])
        );
        for _ in 0..100 {
            let (lower, upper) = keys.range(&mut rng);
            assert!(lower <= upper);
            assert!((1..=9).contains(&keys.neighbours(None, 9, &mut rng).len()));
        }
    }

    #[test]
    fn keys_have_lengths_between_all_powers_of_two() {
        let mut counts = [0; MAX_KEY_LEN.ilog2() as usize + 1];
        for seed in 0..200 {
            let keys = Keyspace::many(0, &mut fastrand::Rng::with_seed(seed));
            let lens = keys.all().iter().map(|key| key.len()).filter(|len| *len > 0);
            lens.for_each(|len| counts[len.ilog2() as usize] += 1);
        }
        assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    }
}
