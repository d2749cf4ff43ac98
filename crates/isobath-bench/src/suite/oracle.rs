//! What a database must hold after a row, known from replaying the choices of its threads, and the
//! check of every row against it.

use super::block::{MEASURED, POPULATED};
use super::row::{Row, Work};
use crate::engine::Session;
use crate::generate::{Chooser, Rng, Values, key_index, sort_word, write_key};
use anyhow::{Result, bail};

pub(super) struct Oracle {
    present: Bits,
    rewritten: Bits,
}

impl Oracle {
    /// The oracle of a row whose threads have done `done` keys each, with choices from `seed`.
    pub(super) fn replay(row: &Row, seed: u64, done: &[u64]) -> Oracle {
        let mut oracle = Oracle { present: Bits::new(row.keys), rewritten: Bits::new(row.keys) };
        if row.work.populated() {
            (0..row.keys).for_each(|index| oracle.present.set(index, true));
        }
        if row.work.destructive() {
            oracle.apply(row, seed, done);
        }
        oracle
    }

    /// Adds a phase.
    pub(super) fn apply(&mut self, row: &Row, seed: u64, done: &[u64]) {
        let threads = done.len() as u64;
        for (thread, &count) in (0..threads).zip(done) {
            let mut chooser = Chooser::new(row.pattern, row.keys, thread, threads, seed);
            let mut coin = coin(seed, thread);
            let mut reads = false;
            for place in 0..count {
                let index = chooser.next();
                if row.work == Work::Mixed && place % row.batch == 0 {
                    reads = coin.next() & 1 == 1;
                }
                match row.work {
                    Work::Delete => self.present.set(index, false),
                    Work::Mixed if reads => {}
                    _ => {
                        self.present.set(index, true);
                        self.rewritten.set(index, true);
                    }
                }
            }
        }
    }

    pub(super) fn keys(&self) -> u64 {
        self.present.count()
    }

    /// Scans everything; returns the rows seen. Fails on the first row that isn't right.
    pub(super) fn verify(
        &self,
        row: &Row,
        values: &Values,
        session: &mut dyn Session,
    ) -> Result<u64> {
        let shape = row.pattern.key_shape();
        let (mut seen, mut wrong) = (0u64, None);
        let mut last: Vec<u8> = Vec::new();
        let mut exact = vec![0; row.key_size];
        session.scan(b"", None, &mut |key, value| {
            let fault = match key_index(shape, key) {
                _ if seen > 0 && key <= last.as_slice() => Some("comes out of order"),
                Some(index) if index < row.keys && key.len() == row.key_size => {
                    write_key(shape, index, &mut exact);
                    self.fault(index, *key == *exact, values.version_of(index, value))
                }
                _ => Some("was never written"),
            };
            last.clear();
            last.extend_from_slice(key);
            seen += 1;
            wrong = fault;
            wrong.is_some()
        })?;
        if let Some(fault) = wrong {
            bail!("wrong answer: key {} {fault} (row {seen} of a whole scan)", hex(&last));
        }
        if seen != self.keys() {
            bail!(missing(row, session, seen, |index| self.present.get(index))?);
        }
        Ok(seen)
    }

    fn fault(&self, index: u64, exact: bool, version: Option<u8>) -> Option<&'static str> {
        let expected = if self.rewritten.get(index) { MEASURED } else { POPULATED };
        match version {
            _ if !exact => Some("was never written"),
            _ if !self.present.get(index) => Some("should be absent"),
            None => Some("has a damaged value"),
            Some(version) if version != expected => Some("has the value of another version"),
            Some(_) => None,
        }
    }
}

/// The error for a whole scan that showed too few rows, `seen`. It names the first row that a
/// second scan leaves out.
pub(super) fn missing(
    row: &Row,
    session: &mut dyn Session,
    seen: u64,
    present: impl Fn(u64) -> bool,
) -> Result<String> {
    let shape = row.pattern.key_shape();
    let mut shown = Bits::new(row.keys);
    session.scan(b"", None, &mut |key, _| {
        key_index(shape, key)
            .filter(|index| *index < row.keys)
            .inspect(|index| shown.set(*index, true));
        false
    })?;
    let must = (0..row.keys).filter(|index| present(*index)).count();
    let mut text = format!("wrong answer: a whole scan shows {seen} keys and must show {must}");
    if let Some(index) = (0..row.keys).find(|index| present(*index) && !shown.get(*index)) {
        let mut key = vec![0; row.key_size];
        write_key(shape, index, &mut key);
        text.push_str(&format!("; key {} is missing", hex(&key)));
    }
    Ok(text)
}

/// What a thread saw of a range: where it began, how many rows, the sum of their keys' sort words.
#[derive(Clone, Copy, Debug)]
pub(super) struct RangeSeen {
    pub(super) index: u64,
    pub(super) rows: u64,
    pub(super) words: u64,
}

/// Checks that no range left a row out or ended early; returns the rows compared. It is done after
/// the clock has stopped, because the order of all keys takes memory.
pub(super) fn verify_ranges(row: &Row, seen: &[RangeSeen]) -> Result<u64> {
    let shape = row.pattern.key_shape();
    let mut key = vec![0; row.key_size];
    let mut word_of = |index| {
        write_key(shape, index, &mut key);
        sort_word(shape, &key)
    };
    let mut words: Vec<u64> = (0..row.keys).map(&mut word_of).collect();
    words.sort_unstable();
    let mut sums = Vec::with_capacity(words.len() + 1);
    sums.push(0u64);
    for word in &words {
        sums.push(sums[sums.len() - 1].wrapping_add(*word));
    }
    let mut compared = 0;
    for range in seen {
        let rank = words.partition_point(|word| *word < word_of(range.index));
        let end = words.len().min(rank + row.range_size as usize);
        let expected = (end - rank) as u64;
        if range.rows != expected || range.words != sums[end].wrapping_sub(sums[rank]) {
            let mut from = vec![0; row.key_size];
            write_key(shape, range.index, &mut from);
            bail!(
                "wrong answer: a range from key {} has {} rows and must have {expected}, none left out",
                hex(&from),
                range.rows
            );
        }
        compared += expected;
    }
    Ok(compared)
}

/// The thread's choices between puts and gets in mixed work.
pub(super) fn coin(seed: u64, thread: u64) -> Rng {
    Rng::new(seed ^ 0xc0_1255 ^ (thread << 32))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Bits {
    words: Vec<u64>,
}

impl Bits {
    fn new(len: u64) -> Bits {
        Bits { words: vec![0; len.div_ceil(64) as usize] }
    }

    fn set(&mut self, index: u64, to: bool) {
        let (word, bit) = (&mut self.words[(index / 64) as usize], 1 << (index % 64));
        *word = if to { *word | bit } else { *word & !bit };
    }

    fn get(&self, index: u64) -> bool {
        self.words[(index / 64) as usize] >> (index % 64) & 1 == 1
    }

    fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}
