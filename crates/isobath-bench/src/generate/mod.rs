//! Keys, values and choices, made to cost little and to be the same on every machine: the harness
//! owns its generator so that a seed means the same run in every version.

mod keys;
mod pattern;
mod permutation;
mod rng;
mod values;
mod zipf;

pub(crate) use keys::{KEY_LEN_MIN, KeyShape, key_index, sort_word, write_key};
pub(crate) use pattern::{Chooser, Pattern};
pub(crate) use permutation::Permutation;
pub(crate) use rng::{Rng, mix, unmix};
pub(crate) use values::{Compressibility, Origin, VALUE_LEN_MIN, Values, touch};
pub(crate) use zipf::Zipf;
