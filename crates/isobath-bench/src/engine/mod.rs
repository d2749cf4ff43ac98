//! What a workload may ask of a storage engine, and the list of engines.
//!
//! An [`Engine`] is an open database; a [`Session`] is one thread's way into it, so that an engine
//! may keep a transaction, a read handle or a batch per thread without the harness holding any lock
//! around a call. Values are handed to a visitor while they are pinned: an engine that can lend its
//! bytes isn't made to copy them, and one that can't pays for its own copy.

mod config;
#[cfg(test)]
mod conformance;
mod isobath;
mod memory;
mod null;
mod registry;
mod settle;
mod transactor;

#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "fjall")]
mod fjall_transactions;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "rocksdb")]
mod rocksdb_transactions;
#[cfg(feature = "tidesdb")]
mod tidesdb;

#[cfg(any(feature = "rocksdb", feature = "tidesdb", feature = "redb"))]
use config::UNFLUSHED_BUFFERS;
pub(crate) use config::{Codec, Durability, EngineConfig, check_rate, check_seconds};
#[cfg(test)]
pub(crate) use registry::plain_names;
pub(crate) use registry::{EngineKind, find, names};
pub(crate) use settle::{Settled, settle};
use transactor::rerun;
pub(crate) use transactor::{Access, Body, Conflict, Transactor, back_off};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How a wait for an engine's background ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Drained {
    /// No work is left.
    Done,
    /// Given up on request.
    Stopped,
    /// The engine can't tell: its debt has to be watched.
    Unknown,
}

/// Bytes that an engine says it has written since it was opened. `None` is what it can't tell.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Written {
    pub(crate) log: Option<u64>,
    pub(crate) flush: Option<u64>,
    pub(crate) compaction: Option<u64>,
}

impl Written {
    /// The steps of an engine that counts every byte.
    pub(crate) const EXACT: Written = Written { log: Some(1), flush: Some(1), compaction: Some(1) };

    /// What was written from `earlier` to this reading, by an engine that counts in these steps. If
    /// a count has not moved by a whole step, what was written is unknown, not zero.
    pub(crate) fn since(&self, earlier: &Written, steps: &Written) -> Written {
        let less = |now: Option<u64>, then: Option<u64>, step: Option<u64>| {
            let (more, step) = (now?.saturating_sub(then?), step?);
            (step == 1 || more >= step).then_some(more)
        };
        Written {
            log: less(self.log, earlier.log, steps.log),
            flush: less(self.flush, earlier.flush, steps.flush),
            compaction: less(self.compaction, earlier.compaction, steps.compaction),
        }
    }

    /// The sum, if each part is known.
    pub(crate) fn total(&self) -> Option<u64> {
        Some(self.log? + self.flush? + self.compaction?)
    }
}

/// What an engine had counted when a phase began.
pub(crate) struct Marks {
    written: Written,
    stall_us: Option<u64>,
}

impl Marks {
    pub(crate) fn read(engine: &dyn Engine) -> Marks {
        Marks { written: engine.written(), stall_us: engine.stall_us() }
    }

    /// What was written since then, once the count no longer changes: an engine may count a flush a
    /// moment after the callers that waited for the flush go on.
    pub(crate) fn written(&self, engine: &dyn Engine) -> Written {
        const POLL: Duration = Duration::from_millis(20);
        const QUIET_POLLS: u32 = 5;
        let (mut last, mut quiet) = (engine.written(), 0);
        while last != Written::default() && quiet < QUIET_POLLS {
            std::thread::sleep(POLL);
            let now = engine.written();
            quiet = if now == last { quiet + 1 } else { 0 };
            last = now;
        }
        last.since(&self.written, &engine.written_steps())
    }

    pub(crate) fn stall_us(&self, engine: &dyn Engine) -> Option<u64> {
        Some(engine.stall_us()?.saturating_sub(self.stall_us?))
    }
}

/// The counter of an engine that may have been compiled without the processor's instructions for
/// checksums: 0 if it was.
pub(crate) const FAST_CHECKSUMS: &str = "rocksdb.fast_checksums";

/// One operation of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation<'a> {
    Put(&'a [u8], &'a [u8]),
    Delete(&'a [u8]),
}

/// An open database.
pub(crate) trait Engine: Send + Sync {
    /// A way in for the calling thread.
    fn session(&self) -> Result<Box<dyn Session>>;

    /// A way to work in transactions for the calling thread.
    fn transactor(&self) -> Result<Box<dyn Transactor>> {
        bail!("this engine has no transactions here (`isobath-bench engines` shows which have)")
    }

    /// Moves what is in memory to sorted files.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Waits until no background work is left, if the engine can tell by itself, or until
    /// `go_on`, asked now and then, refuses.
    fn drain(&self, _go_on: &mut dyn FnMut() -> bool) -> Result<Drained> {
        Ok(Drained::Unknown)
    }

    /// Background work that is left, in a unit of the engine's own; 0 when there is none.
    fn debt(&self) -> Result<u64> {
        Ok(0)
    }

    /// What grows when writers outrun the background, in a unit of its own: bytes waiting to be
    /// compacted where the engine estimates them, else files of level 0. `None` where it can't
    /// tell.
    fn backlog(&self) -> Option<u64> {
        self.level_zero_files()
    }

    /// Files that a read may have to look into before the sorted levels, where the engine can tell.
    fn level_zero_files(&self) -> Option<u64> {
        None
    }

    /// Bytes to files, counted by the engine itself.
    fn written(&self) -> Written {
        Written::default()
    }

    /// The steps in which it shows these counts: a smaller difference is not seen.
    fn written_steps(&self) -> Written {
        Written::EXACT
    }

    /// The engine's own counters, under stable dotted names.
    fn counters(&self) -> BTreeMap<String, f64> {
        BTreeMap::new()
    }

    /// Microseconds that writers have been held back since opening, where the engine can tell.
    fn stall_us(&self) -> Option<u64> {
        None
    }

    /// Closes after every session is dropped, and reports what went wrong in doing so.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Takes a row of a scan; `true` stops the scan.
pub(crate) type RowVisitor<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// One thread's handle.
pub(crate) trait Session {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write_batch(&[Operation::Put(key, value)])
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write_batch(&[Operation::Delete(key)])
    }

    /// Applies the operations as one atomic batch where the engine has them.
    fn write_batch(&mut self, operations: &[Operation<'_>]) -> Result<()>;

    /// Shows the value to `visit` and returns whether there was one.
    fn get(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Looks up every key; `visit` gets the index of each key that exists, and its value.
    fn multi_get(&mut self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, &[u8])) -> Result<()> {
        for (index, key) in keys.iter().enumerate() {
            self.get(key, &mut |value| visit(index, value))?;
        }
        Ok(())
    }

    /// Rows of `[from, to)` in ascending order; no `to` means to the end. Bounds that cross or meet
    /// hold no rows. Engines answer such bounds in different ways, so they are not asked.
    fn scan(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()> {
        if to.is_some_and(|to| to <= from) {
            return Ok(());
        }
        self.rows(from, to, visit)
    }

    /// The same, for bounds with room between them.
    fn rows(&mut self, from: &[u8], to: Option<&[u8]>, visit: RowVisitor<'_>) -> Result<()>;

    /// Positions a fresh cursor at the first row at or after `key` and shows that row.
    fn seek(&mut self, key: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool> {
        let mut found = false;
        self.scan(key, None, &mut |row_key, value| {
            visit(row_key, value);
            found = true;
            true
        })?;
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_a_step_of_the_count_is_unknown_and_zero_only_where_every_byte_counts() {
        let at = |bytes: u64| Written { log: Some(bytes), flush: Some(bytes), compaction: None };
        let steps = Written { log: Some(100), ..Written::EXACT };
        let since = |from, to| at(to).since(&at(from), &steps);
        assert_eq!(since(500, 500), Written { log: None, flush: Some(0), compaction: None });
        assert_eq!(since(500, 700), Written { log: Some(200), flush: Some(200), compaction: None });
        assert_eq!(since(500, 500).total(), None);
    }
}
