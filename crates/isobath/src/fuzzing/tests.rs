//! Runs every target over its seeds and over random changes of them: briefly in each test run, and
//! with the same inputs each time.

#[cfg(feature = "simulation")]
mod controls;
mod places;

use super::{TARGETS, Target, run};
use crate::env::fixtures::Draw;

/// A source of random changes to bytes.
struct Chance(Draw);

impl Chance {
    fn new(seed: u64) -> Chance {
        Chance(Draw::new(seed))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0.index(end.max(1))
    }

    /// Makes one to four changes, of the kinds that fuzzers make.
    fn mutate(&mut self, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
        const TELLING: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, 0xfe, 16, 64];
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, TELLING[self.below(TELLING.len())]),
                2 if at < bytes.len() => bytes[at] = self.below(256) as u8,
                3 if at < bytes.len() => bytes[at] = TELLING[self.below(TELLING.len())],
                4 if at < bytes.len() => {
                    bytes[at] ^= 1 << self.below(8);
                }
                _ => {
                    let other = &others[self.below(others.len())];
                    let from = self.below(other.len() + 1);
                    let to = from + self.below(other.len() - from + 1);
                    bytes.splice(at.min(bytes.len()).., other[from..to].iter().copied());
                }
            }
        }
    }
}

/// The seeds of a target, followed by this many random inputs.
fn inputs(target: &Target, turns: usize) -> impl Iterator<Item = Vec<u8>> {
    let seeds = (target.seeds)(target.name);
    assert!(!seeds.is_empty());
    let mut chance = Chance::new(target.name.len() as u64);
    let drawn = seeds.clone();
    let drawn = std::iter::repeat_with(move || {
        let mut bytes = drawn[chance.below(drawn.len())].clone();
        chance.mutate(&mut bytes, &drawn);
        bytes
    });
    seeds.into_iter().chain(drawn.take(turns))
}

/// The first input on which a target fails, and the number of inputs before it.
fn first_failure(
    target: &Target,
    inputs: impl Iterator<Item = Vec<u8>>,
) -> Option<(usize, Vec<u8>)> {
    let fails = |bytes: &[u8]| std::panic::catch_unwind(|| run(target.name, bytes)).is_err();
    inputs.enumerate().find(|(_, bytes)| fails(bytes))
}

fn smoke(target: &Target, turns: usize) {
    if let Some((nth, bytes)) = first_failure(target, inputs(target, turns)) {
        panic!("{} fails over input {nth}: {}", target.name, bytes.escape_ascii());
    }
}

fn turns(short: usize) -> usize {
    let is_long = std::env::var_os("ISOBATH_TEST_LONG").is_some();
    if is_long { short * 200 } else { short }
}

#[test]
fn no_decoder_fails_over_what_chance_makes_of_its_seeds() {
    for target in TARGETS.iter().filter(|target| !["operations", "bounds"].contains(&target.name)) {
        smoke(target, turns(if target.name == "table" { 150 } else { 1500 }));
    }
}

#[test]
fn the_engine_answers_as_a_map_would_over_what_chance_makes_of_sequences() {
    for target in TARGETS.iter().filter(|target| ["operations", "bounds"].contains(&target.name)) {
        smoke(target, turns(60));
    }
}

/// Writes the seeds to `ISOBATH_SEEDS`/TARGET/, where `fuzz/run.sh` reads them.
#[test]
#[ignore = "a command: it writes files"]
fn write_seeds() {
    let Some(dir) = std::env::var_os("ISOBATH_SEEDS") else { return };
    for target in &TARGETS {
        let dir = std::path::Path::new(&dir).join(target.name);
        std::fs::create_dir_all(&dir).unwrap();
        for (nth, seed) in (target.seeds)(target.name).iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{nth}")), seed).unwrap();
        }
    }
}
