//! A compaction filter whose verdicts the oracle knows, for the family of `leases.rs`.
//!
//! A value begins with its number, which decides. One in four may be gone at any time, and one in
//! four may have a mark, which is all that replaces it. Nothing that was seen to be gone comes
//! back, and a snapshot goes on showing what it showed first, marks included.

use isobath::{FamilyOptions, FilterEntry, FilterVerdict, Options};

/// The name under which the family knows the filter.
const NAME: &str = "isobath-sim.quarters";

/// The bit of a value's number that says that the filter has replaced the value.
const MARK: u64 = 1 << 63;

/// True if the filter removes the value with this number.
pub(crate) fn may_be_removed(number: u64) -> bool {
    number % 4 == 1
}

/// The number of a value without the filter's mark. Only values that the filter replaces have one.
pub(crate) fn unmarked(marked: u64) -> u64 {
    let number = marked & !MARK;
    if marked == number || number % 4 == 2 { number } else { marked }
}

fn verdict(entry: FilterEntry<'_>) -> FilterVerdict {
    let Some(number) = entry.value.first_chunk().map(|number| u64::from_le_bytes(*number)) else {
        return FilterVerdict::Keep;
    };
    match number & MARK {
        0 if may_be_removed(number) => FilterVerdict::Remove,
        0 if number % 4 == 2 => {
            let marked = (number | MARK).to_le_bytes();
            FilterVerdict::Replace([&marked[..], &entry.value[8..]].concat())
        }
        _ => FilterVerdict::Keep,
    }
}

/// The options with the filter of the simulation.
pub(crate) fn filtering(options: Options) -> Options {
    options.compaction_filter(NAME, verdict)
}

/// The same for a family, in most of its lives.
pub(crate) fn filtered(options: FamilyOptions, rng: &mut fastrand::Rng) -> FamilyOptions {
    FamilyOptions::compaction_filter(options, (rng.u8(..4) > 0).then_some(NAME))
}
