//! One log record: a 32-byte header, the payload, zeros to a multiple of 8.
//!
//! ```text
//! offset len  field                    all integers little-endian
//!      0   4  check: low half of XXH3-64 of bytes 4..32
//!      4   2  generation of the term
//!      6   6  payload length; bit 47 set: a skip record, its payload has no meaning
//!     12   8  LSN of the record
//!     20   4  (LSN - newest durable LSN) / 8; 0xffff_ffff: unknown
//!     24   8  XXH3-64 of the payload; 0 for a skip record
//! ```
//!
//! The caller builds a record in one buffer whose first 32 bytes are reserved for the header.
//! [`seal`] does what does not depend on the place in the log (padding, length, payload checksum)
//! and needs no lock. [`stamp`] does the rest once the LSN is known. Dropping the [`Sealed`]
//! removes the padding from the buffer again, so the caller may extend the buffer and seal it once
//! more, whatever happened to its first record.

use crate::env::{Plant, planted};
use crate::format::{Lsn, checksum32, checksum64};
use std::ops::Deref;

/// The length of a record's header, and of the reserved bytes before a payload.
pub(crate) const RECORD_HEADER_LEN: usize = 32;

/// Records begin on multiples of this.
pub(crate) const RECORD_ALIGN: u64 = 8;

const SKIP_BIT: u64 = 1 << 47;
const DURABLE_UNKNOWN: u32 = u32::MAX;

/// The bytes a record takes in the log.
pub(crate) const fn record_len(payload_len: u64) -> u64 {
    RECORD_HEADER_LEN as u64 + payload_len.next_multiple_of(RECORD_ALIGN)
}

/// A record as the log takes it. Dropping it gives the buffer its original length back.
#[derive(Debug)]
pub(crate) struct Sealed<'a> {
    record: &'a mut Vec<u8>,
    payload_end: usize,
}

impl Drop for Sealed<'_> {
    fn drop(&mut self) {
        self.record.truncate(self.payload_end);
    }
}

impl Deref for Sealed<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.record
    }
}

impl Sealed<'_> {
    /// The payload, without header and padding.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.record[RECORD_HEADER_LEN..self.payload_end]
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.record
    }
}

/// Pads the record to its length in the log and fills in the payload's length and checksum.
/// `record` holds [`RECORD_HEADER_LEN`] reserved bytes and then the payload.
pub(crate) fn seal(record: &mut Vec<u8>) -> Sealed<'_> {
    assert!(record.len() >= RECORD_HEADER_LEN, "a record has room for its header");
    let payload_len = (record.len() - RECORD_HEADER_LEN) as u64;
    assert!(payload_len < SKIP_BIT, "a payload's length fits 47 bits");
    let checksum = checksum64(&record[RECORD_HEADER_LEN..]);
    record.resize(record_len(payload_len) as usize, 0);
    record[6..12].copy_from_slice(&payload_len.to_le_bytes()[..6]);
    record[24..32].copy_from_slice(&checksum.to_le_bytes());
    Sealed { record, payload_end: RECORD_HEADER_LEN + payload_len as usize }
}

/// The payload of a sealed record; `None` for no record.
pub(crate) fn payload_of(record: &[u8]) -> Option<&[u8]> {
    let mut len = [0; 8];
    len[..6].copy_from_slice(record.get(6..12)?);
    let end = usize::try_from(u64::from_le_bytes(len)).ok()?.checked_add(RECORD_HEADER_LEN)?;
    record.get(RECORD_HEADER_LEN..end)
}

/// Fills in what depends on the place in the log. `record` is sealed.
#[inline]
pub(super) fn stamp(record: &mut [u8], lsn: Lsn, generation: u16, durable: Lsn) {
    debug_assert!(lsn.is_multiple_of(RECORD_ALIGN), "a record begins at {lsn:#x}");
    record[4..6].copy_from_slice(&generation.to_le_bytes());
    record[12..20].copy_from_slice(&lsn.to_le_bytes());
    record[20..24].copy_from_slice(&durable_delta(lsn, durable).to_le_bytes());
    let check = checksum32(&record[4..RECORD_HEADER_LEN]);
    record[..4].copy_from_slice(&check.to_le_bytes());
}

/// The header of a record of `len` bytes without a meaning. It fills a reservation that was not
/// used.
pub(super) fn skip_header(len: u64, lsn: Lsn, generation: u16, durable: Lsn) -> [u8; 32] {
    debug_assert!(len.is_multiple_of(RECORD_ALIGN), "a record fills {len} bytes");
    let mut header = [0; RECORD_HEADER_LEN];
    let payload_len = (len - RECORD_HEADER_LEN as u64) | SKIP_BIT;
    header[6..12].copy_from_slice(&payload_len.to_le_bytes()[..6]);
    stamp(&mut header, lsn, generation, durable);
    header
}

fn durable_delta(lsn: Lsn, durable: Lsn) -> u32 {
    lsn.checked_sub(durable)
        .and_then(|bytes| u32::try_from(bytes / RECORD_ALIGN).ok())
        .unwrap_or(DURABLE_UNKNOWN)
}

/// A header that was read back and whose check matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) lsn: Lsn,
    pub(crate) generation: u16,
    pub(crate) payload_len: u64,
    pub(crate) payload_checksum: u64,
    /// Everything below this LSN was durable when the record was written.
    pub(crate) durable: Option<Lsn>,
    /// The record fills a reservation that was not used.
    pub(crate) skip: bool,
}

impl RecordHeader {
    /// The header at `lsn`, or `None` if these bytes are no valid header. Only the first 32 bytes
    /// of `bytes` matter.
    #[inline]
    pub(super) fn decode(bytes: &[u8], lsn: Lsn) -> Option<RecordHeader> {
        let bytes: &[u8; RECORD_HEADER_LEN] = bytes.first_chunk()?;
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("8 bytes"));
        let half = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("4 bytes"));
        if word(12) != lsn || half(0) != checksum32(&bytes[4..]) {
            return None;
        }
        let len_and_skip = word(4) >> 16;
        let delta = half(20);
        Some(RecordHeader {
            lsn,
            generation: u16::from_le_bytes([bytes[4], bytes[5]]),
            payload_len: len_and_skip & !SKIP_BIT,
            payload_checksum: word(24),
            durable: (delta != DURABLE_UNKNOWN)
                .then(|| lsn.checked_sub(u64::from(delta) * RECORD_ALIGN))
                .flatten(),
            skip: len_and_skip & SKIP_BIT != 0,
        })
    }

    /// True if a header was written at `lsn` and part of it changed since: its LSN field still
    /// names this place, or its check would match if the field did. Bytes that a segment holds from
    /// an earlier use match neither.
    pub(super) fn is_remnant(bytes: &[u8], lsn: Lsn) -> bool {
        let Some(bytes) = bytes.first_chunk::<RECORD_HEADER_LEN>() else { return false };
        let mut placed = *bytes;
        placed[12..20].copy_from_slice(&lsn.to_le_bytes());
        placed == *bytes || placed[..4] == checksum32(&placed[4..]).to_le_bytes()
    }

    /// The bytes the record takes in the log.
    pub(crate) fn record_len(&self) -> u64 {
        record_len(self.payload_len)
    }

    /// True if `payload` has the checksum in this header; always true for a skip record.
    pub(super) fn matches(&self, payload: &[u8]) -> bool {
        self.skip
            || planted(Plant::TornTailAccepted)
            || checksum64(payload) == self.payload_checksum
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut record = vec![0; RECORD_HEADER_LEN];
        record.extend_from_slice(b"isobath log");
        let mut sealed = seal(&mut record);
        stamp(sealed.bytes_mut(), 0x1_0000, 7, 0xf000);
        sealed.to_vec()
    }

    #[test]
    fn a_buffer_sealed_again_makes_the_same_record_and_an_extended_one_holds_no_padding() {
        let mut buffer = vec![0; RECORD_HEADER_LEN];
        buffer.extend_from_slice(b"isobath log");
        for _ in 0..3 {
            let mut sealed = seal(&mut buffer);
            assert_eq!((sealed.payload(), sealed.len()), (b"isobath log".as_slice(), 48));
            stamp(sealed.bytes_mut(), 0x1_0000, 7, 0xf000);
            assert_eq!(*sealed, sample());
        }
        buffer.extend_from_slice(b"book");
        let mut sealed = seal(&mut buffer);
        stamp(sealed.bytes_mut(), 0x1_0000, 7, 0xf000);
        let header = RecordHeader::decode(&sealed, 0x1_0000).unwrap();
        assert_eq!(header.payload_len, 15);
        assert!(header.matches(b"isobath logbook"));
    }

    #[test]
    fn golden_bytes_hold() {
        let record = sample();
        assert_eq!(
            record,
            [
                GOLDEN_CHECK.as_slice(),
                &[7, 0],                   // generation
                &[11, 0, 0, 0, 0, 0],      // payload length
                &[0, 0, 1, 0, 0, 0, 0, 0], // LSN
                &[0, 2, 0, 0],             // 0x1000 / 8 bytes behind
                &GOLDEN_PAYLOAD_CHECKSUM,
                b"isobath log\0\0\0\0\0",
            ]
            .concat()
        );
        let header = RecordHeader::decode(&record, 0x1_0000).unwrap();
        assert_eq!(header.durable, Some(0xf000));
        assert_eq!((header.generation, header.payload_len, header.skip), (7, 11, false));
        assert_eq!(header.record_len(), 48);
        assert!(header.matches(b"isobath log"));
        assert!(!header.matches(b"isobath lag"));
    }

    const GOLDEN_CHECK: [u8; 4] = [47, 62, 53, 67];
    const GOLDEN_PAYLOAD_CHECKSUM: [u8; 8] = [215, 153, 252, 30, 228, 102, 87, 92];

    #[test]
    fn a_skip_record_has_a_length_and_no_payload() {
        let header = RecordHeader::decode(&skip_header(4096, 800, 1, 800), 800).unwrap();
        assert_eq!((header.skip, header.record_len(), header.durable), (true, 4096, Some(800)));
    }

    #[test]
    fn a_durable_lsn_too_far_back_is_left_out() {
        let far = 40 << 30;
        let header = RecordHeader::decode(&skip_header(64, far, 1, 0), far).unwrap();
        assert_eq!(header.durable, None);
    }

    #[test]
    fn every_flipped_header_bit_and_every_other_place_is_refused() {
        let good = sample();
        assert!(RecordHeader::decode(&good, 0x1_0008).is_none());
        assert!(RecordHeader::decode(&good[..31], 0x1_0000).is_none());
        for bit in 0..RECORD_HEADER_LEN * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(RecordHeader::decode(&bad, 0x1_0000).is_none(), "bit {bit}");
        }
    }
}
