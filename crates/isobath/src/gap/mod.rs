//! Gaps: ranges of keys of which a family remembers that no key there has a value.
//!
//! - `gaps`   the gaps of a family as one value: what is asked of them, and what they become
//! - `walk`   follows a scan over dead keys, past the gaps that it meets, to a gap that it finds
//!
//! A *dead* key has versions, but no value for the reader. A queue leaves as many as it has popped,
//! and each scan from its end would walk over all of them until a flush or a compaction drops them.
//!
//! A gap is a claim about what readers see, not about where it is stored: no key of the range has
//! a value at any point from the gap's on. Flushes and compactions change no answer, so they leave
//! gaps as they are. A put cuts its key out of every gap before it is visible. What was written at
//! the time when a gap was announced must be waited for: `docs/internals/gaps.md` has the protocol
//! and why it is sound. The view of the family holds its gaps (`engine/gaps.rs`).

mod gaps;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod walk;

pub(crate) use gaps::{Gaps, Lesson};
pub(crate) use walk::{Stretch, Toward, Walk};
