//! The log alone: records of one length, with nothing to apply unless the benchmark does it.

use crate::env::Env;
use crate::format::Lsn;
use crate::vfs::FileAccess;
use crate::wal as inner;
use std::path::Path;

/// How far LSNs reach before the log asks for more.
const CEILING: Lsn = 1 << 40;

pub struct Log {
    log: inner::Log,
    started_at: Lsn,
}

impl Log {
    /// A new log in `dir`, written through mappings.
    pub fn start(dir: &Path, segment_len: u64) -> Log {
        let options = inner::LogOptions {
            dir: dir.to_owned(),
            uuid: [9; 16],
            segment_len,
            first_segment_len: segment_len,
            mode: FileAccess::Mapped,
            spare_segments: 4,
            sync_interval: None,
            raise_ceiling: Box::new(|wanted| Ok(wanted + CEILING)),
            admit_segment: Box::new(|_| Ok(())),
        };
        let log = inner::Log::start(&Env::system(), options, segment_len, CEILING, 1)
            .expect("a directory to write to");
        Log { log, started_at: segment_len }
    }

    /// Commits a record and runs `apply` where a commit inserts into memtables. Returns the LSN to
    /// sync up to.
    pub fn commit(&self, record: &mut Vec<u8>, payload_len: usize, apply: impl FnOnce()) -> u64 {
        record.clear();
        record.resize(inner::RECORD_HEADER_LEN + payload_len, 0x5a);
        let mut record = inner::seal(record);
        let mut reservation =
            self.log.reserve_with(record.len() as u64, inner::Patience::Waits).expect("room");
        reservation.write(&mut record);
        apply();
        let end = reservation.end();
        reservation.publish();
        self.log.wait_visible(end).expect("a healthy log");
        end
    }

    pub fn sync_to(&self, up_to: u64) {
        self.log.sync_to(up_to).expect("a device that syncs");
    }

    /// The share of all bytes that were copied before their pages were faulted in.
    pub fn share_not_prefaulted(&self) -> f64 {
        self.log.stats().bytes_not_prefaulted as f64 / (self.log.tail() - self.started_at) as f64
    }

    /// The number of syncs, their time together and that of the longest, in nanoseconds.
    pub fn syncs(&self) -> (u64, u64, u64) {
        let sync = self.log.stats().sync;
        (sync.syncs, sync.total_ns, sync.max_ns)
    }
}
