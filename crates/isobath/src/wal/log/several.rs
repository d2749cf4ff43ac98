//! Several records in one reservation. They become visible together, and one sync makes all of them
//! durable. On disk they are separate records, so a crash before the sync keeps a prefix of them.

use super::super::record::{self, RECORD_ALIGN, Sealed};
use super::{Reservation, Stage};
use crate::env::{Point, yield_point};

impl Reservation<'_> {
    /// Copies records into the log one after the other; together they have the reserved length.
    /// Returns the LSN of each.
    pub(crate) fn write_several(&mut self, records: &[Sealed<'_>]) -> Vec<u64> {
        assert!(self.stage == Stage::Reserved, "records are written once");
        let (mut bytes, mut lsns) = (Vec::new(), Vec::with_capacity(records.len()));
        for sealed in records {
            let (at, lsn) = (bytes.len(), self.start + bytes.len() as u64);
            debug_assert!(lsn.is_multiple_of(RECORD_ALIGN), "a record begins at {lsn:#x}");
            bytes.extend_from_slice(sealed);
            record::stamp(&mut bytes[at..], lsn, self.log.generation, self.log.syncer.durable());
            lsns.push(lsn);
        }
        assert!(bytes.len() as u64 == self.end - self.start, "records are as long as their room");
        self.copy(&bytes);
        yield_point(Point::Copied);
        lsns
    }
}
