//! One stream of operations under many options: whatever they are, the answers must be the same.
//!
//! A seed is a stream (`stream.rs`): batches over families that come and go, reads of every kind,
//! snapshots, flushes, compactions, closes. It is played to a model, a `BTreeMap` for each family
//! (`model.rs`), and to the real engine with real threads under several sets of options
//! (`settings.rs`, `play.rs`), in memory and on files. Each read becomes a digest; the first that
//! differs from the model's is the failure.

mod model;
mod play;
mod settings;
mod stream;

use std::panic::{AssertUnwindSafe, catch_unwind};
use stream::Stream;

/// What a range of seeds amounted to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) seeds: u64,
    pub(crate) operations: u64,
    pub(crate) reads: u64,
    pub(crate) settings: u64,
}

/// Plays a seed under so many sets of options. The error says which read answered what it should
/// not have.
pub(crate) fn play_seed(seed: u64, variants: u64, tally: &mut Tally) -> Result<(), String> {
    let stream = Stream::draw(seed);
    let expected = model::answers(&stream);
    for variant in 0..variants {
        let mut rng = fastrand::Rng::with_seed(seed << 8 | variant);
        tally.settings += 1;
        // A panic is a failure of this seed like any other.
        let played = catch_unwind(AssertUnwindSafe(|| play::answers(&stream, &mut rng)));
        let found = played
            .unwrap_or_else(|_| Err("the engine panicked".to_owned()))
            .map_err(|why| format!("seed {seed}, variant {variant}: {why}"))?;
        if let Some(nth) = (0..expected.len()).find(|nth| found.get(*nth) != Some(&expected[*nth]))
        {
            let (at, _) = expected[nth];
            return Err(format!(
                "seed {seed}, variant {variant}: operation {at}, {:?}, answers otherwise",
                stream.ops[at]
            ));
        }
        if found.len() != expected.len() {
            return Err(format!("seed {seed}, variant {variant}: more answers than reads"));
        }
        tally.operations += stream.ops.len() as u64;
        tally.reads += found.len() as u64;
    }
    tally.seeds += 1;
    Ok(())
}

/// A number that tells answers apart: FNV-1a over their parts, each with its length.
#[derive(Clone, Copy)]
struct Digest(u64);

impl Digest {
    fn new() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn add_value(&mut self, value: Option<&[u8]>) {
        self.add(value.map_or(b"absent", |_| b"value"));
        self.add(value.unwrap_or_default());
    }
}

/// The answers to a stream's reads: the operation's number, and its digest.
type Answers = Vec<(usize, u64)>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_of_seeds_answers_the_same_under_all_options() {
        let mut tally = Tally::default();
        for seed in 0..2 {
            play_seed(seed, 2, &mut tally).unwrap();
        }
        assert!(tally.reads > 400, "{tally:?}");
    }

    #[test]
    fn another_answer_makes_another_digest() {
        let digest = |parts: &[Option<&[u8]>]| {
            let mut digest = Digest::new();
            parts.iter().for_each(|part| digest.add_value(*part));
            digest.0
        };
        let all = [
            digest(&[None]),
            digest(&[Some(b"")]),
            digest(&[Some(b"a"), Some(b"b")]),
            digest(&[Some(b"ab"), Some(b"")]),
        ];
        for (nth, one) in all.iter().enumerate() {
            assert!(all[..nth].iter().all(|other| other != one));
        }
    }
}
