//! The log of a database that is open for reading only. Nothing changes in it but the point up to
//! which readers see.
//!
//! It hands out no room, fails every write with
//! [`ErrorKind::ReadOnly`](crate::ErrorKind::ReadOnly), has no thread, and touches no file.

use super::frontier::Frontier;
use super::health::Health;
use super::log::{Inner, Log, LogOptions};
use super::preparer::{PreparerStats, Signal};
use super::recycler::Recycler;
use super::rest::Rest;
use super::room::Room;
use super::segment::SEGMENT_LEN_MAX;
use super::segment_table::SegmentTable;
use super::syncer::Syncer;
use crate::env::Env;
use crate::env::sync::{Mutex, Rank, atomic::*};
use crate::error::{Error, Result};
use crate::format::Lsn;
use crate::vfs::FileAccess;
use crossbeam_utils::CachePadded;
use std::path::PathBuf;
use std::sync::Arc;

/// A ring of one slot is enough: marks are always made at the frontier.
const FRONTIER_SLOTS: usize = 1;

impl Log {
    /// A log that shows everything below `at`.
    pub(crate) fn still(env: &Env, dir: PathBuf, uuid: [u8; 16], at: Lsn) -> Result<Log> {
        let options = LogOptions {
            dir,
            uuid,
            segment_len: SEGMENT_LEN_MAX,
            first_segment_len: SEGMENT_LEN_MAX,
            mode: FileAccess::Positional,
            spare_segments: 0,
            sync_interval: None,
            raise_ceiling: Box::new(|_| Err(Error::read_only())),
            admit_segment: Box::new(|_| Err(Error::read_only())),
        };
        let inner = Arc::new(Inner {
            room: Room::new(at, at),
            copied: Frontier::new(at, FRONTIER_SLOTS),
            visible: Frontier::new(at, FRONTIER_SLOTS),
            syncer: Syncer::new(at),
            table: SegmentTable::new(0, SEGMENT_LEN_MAX, SEGMENT_LEN_MAX),
            prefaulted: AtomicU64::new(at),
            wake_preparer_at: CachePadded::new(AtomicU64::new(Lsn::MAX)),
            bytes_not_prefaulted: AtomicU64::new(0),
            start: at,
            generation: 0,
            health: Health::read_only(),
            signal: Signal::new(),
            recycler: Recycler::bare(&*env.fs, &options, at)?,
            rest: Rest::new(at),
            preparer_stats: PreparerStats::default(),
            clock: Arc::clone(&env.clock),
            threads: Arc::clone(&env.threads),
            fs: Arc::clone(&env.fs),
            options,
        });
        Ok(Log { inner, preparer: Mutex::new(Rank::PreparerEnd, None), interval: None })
    }

    /// Shows everything below `point`, which is at or above the point shown so far. Only one thread
    /// at a time calls this.
    pub(crate) fn show(&self, point: Lsn) {
        assert!(self.visible() <= point, "points never go back");
        if self.visible() < point {
            self.inner.visible.mark(self.visible(), point);
        }
    }
}
