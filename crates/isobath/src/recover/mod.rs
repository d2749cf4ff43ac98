//! From a directory to an open database.
//!
//! What opening does, and what is on disk after each step, should power fail there:
//!
//! 1. the directory is judged by names; one that holds something else is left untouched
//! 2. LOCK is taken
//! 3. the manifest is read, and files that it does not name are removed: a second open does the same
//! 4. the log is replayed from `replay from` into memtables; whenever they reach the budget they are flushed to a
//!    table, which one edit installs together with `replay from` behind its last record: a second open replays
//!    only what is behind it. The log itself is not touched.
//! 5. one edit installs the rest and ends the term: it says where the log ended and that LSNs go on above every
//!    one that may ever have been handed out. From here on the old segments are of no use.
//! 6. the log of the new term is started; it takes over the old segments
//!
//! Nothing is ever appended to a segment of an earlier term: what recovery could read of it may be in the page
//! cache only, and its tail may hold records that were never promised.

mod open;
mod replay;

pub(crate) use open::open;
