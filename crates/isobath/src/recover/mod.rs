//! From a directory to an open database.
//!
//! What opening does, and what is on disk after each step, should power fail there:
//!
//! 1. the directory is judged by names; one that holds something else is left untouched
//! 2. LOCK is taken
//! 3. the manifest is read, and what it names is looked for; nothing is removed
//! 4. the log is replayed from `replay from` into memtables; whenever they reach the budget they
//!    are flushed to a table, which one edit installs together with `replay from` behind its last
//!    record: a second open replays only what is behind it. The log itself is not touched.
//! 5. the first segment of the new term is made, above every LSN that may ever have been handed out
//!    and above the segment where replay begins, which keeps its name: a second open finds it empty
//!    and makes it again
//! 6. one edit installs the rest and ends the term: it says where the log ended and that LSNs go on
//!    in the new segment. Should it rot before step 7, a second open takes it for torn and replays
//!    the old segments again.
//! 7. that edit is confirmed. From here on the old segments are of no use, and the log takes them
//!    over; and records are written to the new one, which nobody would look for without that edit.
//!    Files that the manifest of step 3 did not name are removed now: an open that is refused
//!    leaves all there is to a repair.
//!
//! So whatever the manifest says of `replay from`, the segment that holds it is on disk, as long as
//! an LSN from there on may have been handed out (`replay from` lies below the ceiling). If it is
//! not there it was lost, and the open fails rather than take what it held for an empty log.
//! Flushes keep to the same ([`crate::flush`]).
//!
//! Nothing is ever appended to a segment of an earlier term: what recovery could read of it may be
//! in the page cache only, and its tail may hold records that were never promised.

mod open;
mod plants;
mod replay;

pub(crate) use open::{open, tables_of};
