//! From a directory to an open database.
//!
//! What opening does, and what is on disk if power fails after each step:
//!
//! 1. The directory is judged by the names in it. A directory that holds something else stays
//!    untouched.
//! 2. The engine takes LOCK.
//! 3. The manifest is read, and the files that it names are looked for. Nothing is removed.
//! 4. Files of segments that were being made are removed: nothing reads them, and the replay may
//!    need their room. The log is replayed from `replay from` into memtables. Whenever they reach
//!    the budget they are flushed to a table. One edit installs the table and moves `replay from`
//!    past its last record, so a second open replays only what comes after. The segments themselves
//!    stay untouched. Streams that records name are claimed (`streams.rs`): they are orphans only
//!    to step 3.
//! 5. The first segment of the new term is made. It lies above every LSN that may have been handed
//!    out, and above the segment where replay begins, which keeps its name. A second open finds it
//!    empty and makes it again.
//! 6. One edit installs the rest and ends the term: it says where the log ended and that LSNs
//!    continue in the new segment. If the edit is damaged before step 7, a second open takes it for
//!    torn and replays the old segments again.
//! 7. That edit is confirmed. From here on the old segments are not needed, so the log reuses them.
//!    Only now are records written to the new segment: without that edit no recovery would look for
//!    them. Files that neither the manifest of step 3 nor a replayed record names are removed only
//!    now, so that an open that fails leaves everything for a repair.
//!
//! So the segment that holds `replay from` is on disk as long as an LSN at or above it may have
//! been handed out (`replay from` is below the ceiling). If that segment is missing, it was lost.
//! The open then fails; it does not treat the lost records as an empty log. Flushes keep the same
//! rule ([`crate::flush`]).
//!
//! Nothing is ever appended to a segment of an earlier term. What recovery read from it may be in
//! the page cache only, and its tail may hold records that were never promised to survive.

mod open;
mod plants;
mod prepared;
mod replay;
mod streams;

pub(crate) use open::{open, spills_of, tables_of};
