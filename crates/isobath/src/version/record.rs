//! How edits lie in a manifest: records that are valid only in their own place.
//!
//! ```text
//! record  offset len  field                                            all integers little-endian
//!              0   4  payload length n
//!              4   4  low half of XXH3-64 of: file number (8), offset of the record in the file (8),
//!                     payload length (4), payload checksum (8)
//!              8   8  payload checksum: XXH3-64 of the payload
//!             16   n  payload
//!         16 + n   8  sync marker: XXH3-64 of "isobath synced record", file number (8), offset (8)
//! ```
//!
//! The sync marker is written once the record is synced. A damaged record with a sync marker, or
//! with a valid record behind it, had been complete: that is corruption. Without either, it is the
//! torn tail of a write whose success was never reported. A sync marker counts even if up to two of
//! its bytes are damaged. See `docs/internals/manifest.md`.

use crate::env::{Plant, planted};
use crate::error::{DecodeError, Decoded, Error, Result};
use crate::format::{checksum32, checksum64};

pub(super) const RECORD_HEADER_LEN: usize = 16;
pub(super) const SYNC_MARKER_LEN: usize = 8;

/// This many right bytes of a sync marker are no coincidence.
const SYNC_MARKER_BYTES_TELLING: usize = 6;

/// The longest payload: a snapshot of five million slices with short keys fits. What is longer is
/// written in parts.
pub(super) const PAYLOAD_LEN_MAX: usize = 1 << 30;

/// A valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// The offset of the record in the file.
    pub(super) offset: u64,
    pub(super) payload: &'a [u8],
}

/// An error if no record takes a payload of this length.
pub(super) fn demand_payload_len(len: usize) -> Result<()> {
    match len {
        0..=PAYLOAD_LEN_MAX => Ok(()),
        _ => Err(Error::invalid_argument(format!(
            "an edit of {len} bytes is too long for the manifest, which takes {PAYLOAD_LEN_MAX}"
        ))),
    }
}

/// Appends a record for `offset` of file `number`, without its sync marker.
pub(super) fn put_record(
    out: &mut Vec<u8>,
    number: u64,
    offset: u64,
    payload: &[u8],
) -> Result<()> {
    demand_payload_len(payload.len())?;
    let len = payload.len() as u32;
    let sum = checksum64(payload);
    out.reserve(RECORD_HEADER_LEN + payload.len() + SYNC_MARKER_LEN);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&header_checksum(number, offset, len, sum).to_le_bytes());
    out.extend_from_slice(&sum.to_le_bytes());
    out.extend_from_slice(payload);
    Ok(())
}

/// The sync marker of a record at `offset`, which is written after the record is synced.
pub(super) fn sync_marker(number: u64, offset: u64) -> [u8; SYNC_MARKER_LEN] {
    const TITLE: &[u8; 21] = b"isobath synced record";
    let mut bytes = [0; 37];
    bytes[..21].copy_from_slice(TITLE);
    bytes[21..29].copy_from_slice(&number.to_le_bytes());
    bytes[29..].copy_from_slice(&offset.to_le_bytes());
    checksum64(&bytes).to_le_bytes()
}

fn header_checksum(number: u64, offset: u64, len: u32, payload_sum: u64) -> u32 {
    let mut bytes = [0; 28];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..16].copy_from_slice(&offset.to_le_bytes());
    bytes[16..20].copy_from_slice(&len.to_le_bytes());
    bytes[20..].copy_from_slice(&payload_sum.to_le_bytes());
    checksum32(&bytes)
}

/// The end of the valid records of a manifest whose bytes go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TornTail {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Reads the records of a manifest's bytes in order.
#[derive(Clone, Debug)]
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    /// Where the bytes begin in the file.
    base: u64,
    number: u64,
    /// Where the next record is among the bytes.
    offset: usize,
    /// Where the last record was, and where the next one begins, though the file ends before.
    last: Option<(u64, u64)>,
    failed: bool,
}

impl<'a> Records<'a> {
    /// The records of file `number` from `offset` on; `bytes` is the whole file.
    pub(super) fn new(bytes: &'a [u8], number: u64, offset: usize) -> Self {
        let offset = offset.min(bytes.len());
        Records { bytes, base: 0, number, offset, last: None, failed: false }
    }

    /// The records of file `number` from offset `base` on, where one begins; `bytes` is the file
    /// from there on.
    pub(super) fn behind(bytes: &'a [u8], number: u64, base: u64) -> Self {
        Records { bytes, base, number, offset: 0, last: None, failed: false }
    }

    /// What follows the last valid record. Call it once the iterator has ended.
    pub(super) fn torn_tail(&self) -> Option<TornTail> {
        let len = (self.bytes.len() - self.offset) as u64;
        (len > 0 && !self.failed).then_some(TornTail { offset: self.offset(), len })
    }

    /// The offset of the next record.
    pub(super) fn offset(&self) -> u64 {
        self.at(self.offset)
    }

    fn at(&self, offset: usize) -> u64 {
        self.base + offset as u64
    }

    /// The offsets of the last valid record and of the next one. The file may end before that: a
    /// sync marker comes after its record.
    pub(super) fn last_place(&self) -> Option<(u64, u64)> {
        self.last
    }

    /// Where the bytes end in the file.
    pub(super) fn end(&self) -> u64 {
        self.at(self.bytes.len())
    }

    /// Ends the iteration, because the last record's content makes no sense.
    pub(super) fn stop(&mut self) {
        self.failed = true;
    }

    /// Every valid record, whatever bytes lie between them.
    pub(super) fn every_valid(&self) -> Vec<Record<'a>> {
        let mut found = Vec::new();
        let mut offset = self.offset;
        while offset < self.bytes.len() {
            match self.record_at(offset) {
                Some(record) => {
                    offset += RECORD_HEADER_LEN + record.payload.len();
                    found.push(record);
                }
                None => offset += 1,
            }
        }
        found
    }

    /// The payload's length and checksum, if there is a whole header of a record.
    fn header_at(&self, offset: usize) -> Option<(usize, u64)> {
        let header = self.bytes.get(offset..offset + RECORD_HEADER_LEN)?;
        let len = u32::from_le_bytes(header[..4].try_into().expect("4 bytes"));
        let sum = u64::from_le_bytes(header[8..].try_into().expect("8 bytes"));
        let expected = header_checksum(self.number, self.at(offset), len, sum);
        (header[4..8] == expected.to_le_bytes()).then_some((len as usize, sum))
    }

    fn record_at(&self, offset: usize) -> Option<Record<'a>> {
        let (len, sum) = self.header_at(offset)?;
        let payload = self.bytes[offset + RECORD_HEADER_LEN..].get(..len)?;
        let is_whole = checksum64(payload) == sum || planted(Plant::EditBelieved);
        is_whole.then_some(Record { offset: self.at(offset), payload })
    }

    /// The evidence that the damaged record at the current offset had been complete, if there is
    /// any. Where its header is whole, its payload is no evidence: keys in it may look like a sync
    /// marker or a record.
    fn proof_of_a_whole_record(&self) -> Option<String> {
        let marker = sync_marker(self.number, self.offset());
        let from = match self.header_at(self.offset) {
            Some((len, _)) => self.offset + RECORD_HEADER_LEN + len,
            None => self.offset,
        };
        let rest = self.bytes.get(from..)?;
        let is_marker = |window: &[u8]| {
            let right = window.iter().zip(&marker).filter(|(found, written)| found == written);
            right.count() >= SYNC_MARKER_BYTES_TELLING
        };
        if let Some(at) = rest.windows(SYNC_MARKER_LEN).position(is_marker) {
            return Some(format!("its sync marker is at {}", self.at(from + at)));
        }
        let next = (from.max(self.offset + 1)..self.bytes.len())
            .find(|&at| self.record_at(at).is_some())?;
        Some(format!("a valid record follows at {}", self.at(next)))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Decoded<Record<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        debug_assert!(self.offset <= self.bytes.len(), "records are read beyond the file's end");
        if self.failed || self.offset == self.bytes.len() {
            return None;
        }
        if let Some(record) = self.record_at(self.offset) {
            let end = self.offset + RECORD_HEADER_LEN + record.payload.len() + SYNC_MARKER_LEN;
            self.offset = end.min(self.bytes.len());
            self.last = Some((record.offset, self.at(end)));
            return Some(Ok(record));
        }
        let proof = self.proof_of_a_whole_record()?;
        self.failed = true;
        Some(Err(DecodeError::damaged(format!("a record of the manifest is damaged ({proof})"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: u64 = 3;

    /// Records after 10 other bytes, each with its sync marker.
    fn sample(payloads: &[&[u8]]) -> Vec<u8> {
        let mut out = vec![0xee; 10];
        for payload in payloads {
            let offset = out.len() as u64;
            put_record(&mut out, NUMBER, offset, payload).unwrap();
            out.extend_from_slice(&sync_marker(NUMBER, offset));
        }
        out
    }

    fn read(bytes: &[u8]) -> (Decoded<Vec<Vec<u8>>>, Option<TornTail>) {
        let mut records = Records::new(bytes, NUMBER, 10);
        let payloads =
            records.by_ref().map(|record| record.map(|record| record.payload.to_vec())).collect();
        (payloads, records.torn_tail())
    }

    #[test]
    fn golden_bytes_hold() {
        let bytes = sample(&[b"edit"]);
        let hex: String = bytes[10..].iter().map(|byte| format!("{byte:02x}")).collect();
        let (header, sum) = ("040000003124ee2b", "20751f9670c4515b");
        assert_eq!(hex, format!("{header}{sum}65646974{}", "2702d5e92f1e3c2c"));
    }

    #[test]
    fn records_come_back_in_order() {
        let bytes = sample(&[b"one", b"", b"three"]);
        let (payloads, tail) = read(&bytes);
        assert_eq!(payloads.unwrap(), [&b"one"[..], b"", b"three"]);
        assert_eq!(tail, None);
    }

    #[test]
    fn a_record_cut_anywhere_before_its_sync_marker_is_a_torn_tail() {
        let whole = sample(&[b"one"]).len();
        let bytes = sample(&[b"one", b"second"]);
        for len in whole + 1..bytes.len() - SYNC_MARKER_LEN {
            let (payloads, tail) = read(&bytes[..len]);
            assert_eq!(payloads.unwrap(), [b"one"]);
            let expected = TornTail { offset: whole as u64, len: (len - whole) as u64 };
            assert_eq!(tail, Some(expected));
        }
        for len in bytes.len() - SYNC_MARKER_LEN..bytes.len() {
            let (payloads, tail) = read(&bytes[..len]);
            assert_eq!((payloads.unwrap().len(), tail), (2, None));
        }
    }

    #[test]
    fn a_torn_record_whose_payload_looks_like_a_marker_or_a_record_is_a_torn_tail() {
        let start = sample(&[b"one"]).len() as u64;
        let mut payload = sync_marker(NUMBER, start).to_vec();
        let within = start + (RECORD_HEADER_LEN + payload.len()) as u64;
        put_record(&mut payload, NUMBER, within, b"forged").unwrap();
        payload.extend_from_slice(b"tail");
        let mut bytes = sample(&[b"one", &payload]);
        bytes.truncate(bytes.len() - SYNC_MARKER_LEN);
        *bytes.last_mut().unwrap() ^= 1;
        for len in start as usize + RECORD_HEADER_LEN..=bytes.len() {
            let (payloads, tail) = read(&bytes[..len]);
            assert_eq!((payloads.unwrap().len(), tail.unwrap().offset), (1, start), "{len}");
        }
    }

    #[test]
    fn zeros_and_garbage_behind_the_last_record_are_a_torn_tail() {
        for filler in [0, 0xff, 0x5a] {
            let mut bytes = sample(&[b"one"]);
            bytes.extend_from_slice(&[filler; 600]);
            let (payloads, tail) = read(&bytes);
            assert_eq!((payloads.unwrap().len(), tail.unwrap().len), (1, 600));
        }
    }

    #[test]
    fn a_flipped_bit_below_a_sync_marker_is_corruption() {
        let good = sample(&[b"one", b"second"]);
        let first_end = sample(&[b"one"]).len();
        for at in 10..good.len() - SYNC_MARKER_LEN {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let in_first_sync_marker = (first_end - SYNC_MARKER_LEN..first_end).contains(&at);
                assert_eq!(read(&bad).0.is_err(), !in_first_sync_marker, "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn a_sync_marker_counts_although_some_of_it_is_damaged_too() {
        let good = sample(&[b"one"]);
        let at = good.len() - SYNC_MARKER_LEN;
        for (damaged_bytes, is_marker) in [(1, true), (2, true), (3, false)] {
            let mut bad = good.clone();
            bad[10] ^= 1;
            bad[at..at + damaged_bytes].iter_mut().for_each(|byte| *byte ^= 4);
            let (payloads, tail) = read(&bad);
            assert_eq!((payloads.is_err(), tail.is_none()), (is_marker, is_marker));
        }
    }

    #[test]
    fn a_damaged_record_without_a_sync_marker_is_corruption_if_a_valid_one_follows() {
        let mut bytes = sample(&[b"one", b"second"]);
        let first_end = sample(&[b"one"]).len();
        bytes[10 + RECORD_HEADER_LEN] ^= 1;
        bytes[first_end - SYNC_MARKER_LEN..first_end].fill(0);
        let mut records = Records::new(&bytes, NUMBER, 10);
        let error = records.next().unwrap().unwrap_err();
        assert!(error.to_string().contains(&format!("follows at {first_end}")), "{error}");
        assert_eq!(records.offset(), 10, "where the damaged one lies");
    }

    #[test]
    fn a_valid_record_is_proof_from_the_next_byte_on_and_never_from_before() {
        let mut bytes = sample(&[b"one"]);
        bytes.truncate(bytes.len() - SYNC_MARKER_LEN);
        let error = Records::new(&bytes, NUMBER, 9).next().unwrap().unwrap_err();
        assert!(error.to_string().contains("follows at 10"), "{error}");
        assert!(Records::new(&bytes, NUMBER, 11).next().is_none());
    }

    #[test]
    fn a_record_of_another_file_or_another_place_is_not_valid() {
        let bytes = sample(&[b"one"]);
        assert_eq!(Records::new(&bytes, NUMBER + 1, 10).count(), 0);
        let mut moved = vec![0xee; 11];
        moved.extend_from_slice(&bytes[10..]);
        let mut records = Records::new(&moved, NUMBER, 11);
        assert!(records.next().is_none());
    }

    #[test]
    fn a_payload_that_is_too_long_is_refused() {
        let payload = vec![0; PAYLOAD_LEN_MAX + 1];
        assert!(put_record(&mut Vec::new(), 1, 0, &payload).is_err());
    }

    #[test]
    fn every_valid_record_is_found_whatever_lies_before_between_and_behind() {
        let last = b"four, and longer than the header before it";
        let mut bytes = sample(&[b"one", b"", b"three", last]);
        let second = sample(&[b"one"]).len();
        let fourth = sample(&[b"one", b"", b"three"]).len();
        bytes[fourth - SYNC_MARKER_LEN - 1] ^= 1;
        bytes.extend_from_slice(&[0x5a; 100]);
        for from in [0, 10] {
            let found = Records::new(&bytes, NUMBER, from).every_valid();
            let found: Vec<_> =
                found.iter().map(|record| (record.offset, record.payload)).collect();
            let expected = [(10, &b"one"[..]), (second as u64, b""), (fourth as u64, last)];
            assert_eq!(found, expected);
        }
        assert!(Records::new(&bytes, NUMBER, fourth + 1).every_valid().is_empty());
        assert!(Records::new(&[], NUMBER, 0).every_valid().is_empty());
    }

    #[test]
    fn nothing_is_read_behind_a_record_whose_content_makes_no_sense() {
        let bytes = sample(&[b"one", b"two"]);
        let mut records = Records::new(&bytes, NUMBER, 10);
        assert_eq!(records.next().unwrap().unwrap().payload, b"one");
        records.stop();
        assert!(records.next().is_none());
        assert_eq!(records.torn_tail(), None);
    }
}
